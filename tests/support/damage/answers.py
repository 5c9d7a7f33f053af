"""A server between a client and a store, which makes trouble on demand."""

import http.client
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from tests.support.damage.table import Answer, Damage

_OWN = ("transfer-encoding", "connection", "content-length")  # headers that a server makes itself


@dataclass
class Trouble:
    """What it does to the requests that pass."""

    answer: Callable[[str, str], Damage | None] = lambda _method, _path: None
    delay_s: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@contextmanager
def between(address: str) -> Generator[tuple[str, Trouble]]:
    """Serve what another server serves; gives its own address, and what makes trouble."""
    trouble, host = Trouble(), urlsplit(address).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *_: object) -> None: ...  # noqa: A002 (as its parent has it)

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            trouble.asked.append((self.command, self.path))
            time.sleep(trouble.delay_s)
            if damage := trouble.answer(self.command, self.path):
                self.send(damage.make(lambda: self.ask(body).content))
            else:
                self.send(self.ask(body))

        def ask(self, body: bytes) -> Answer:
            inner = http.client.HTTPConnection(host)
            inner.request(self.command, self.path, body, dict(self.headers.items()))
            answer = inner.getresponse()
            content = answer.read()
            inner.close()
            of_none = int(answer.headers.get("Content-Length", 0))  # a HEAD asks for no content
            length = of_none if self.command == "HEAD" else len(content)
            return Answer(answer.status, content, length, dict(answer.headers))

        def send(self, answer: Answer) -> None:
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(answer.length))
            self.end_headers()
            self.wfile.write(answer.content)
            self.close_connection |= len(answer.content) < answer.length and self.command != "HEAD"

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", trouble
        server.shutdown()
