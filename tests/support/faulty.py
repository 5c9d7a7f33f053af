"""A server between a client and a store, which makes trouble on demand."""

import http.client
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

Fault = str  # 503 | 403 | cut
_CONDITIONS = ("if-match", "if-none-match")


@dataclass
class Faulty:
    """What it does to the requests that pass."""

    fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
    forgets_conditions: bool = False
    delay_s: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@contextmanager
def between(address: str) -> Generator[tuple[str, Faulty]]:
    """Serve what another server serves; gives its own address, and what makes trouble."""
    faulty, host = Faulty(), urlsplit(address).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            faulty.asked.append((self.command, self.path))
            time.sleep(faulty.delay_s)
            fault = faulty.fault(self.command, self.path)
            if fault in ("503", "403"):
                self.answer(int(fault), {}, b"")
                return
            kept = {
                name: value
                for name, value in self.headers.items()
                if not (faulty.forgets_conditions and name.lower() in _CONDITIONS)
            }
            inner = http.client.HTTPConnection(host)
            inner.request(self.command, self.path, body, kept)
            answer = inner.getresponse()
            content = answer.read()
            inner.close()
            if fault == "cut":
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + content[:9]
                )
                self.close_connection = True
                return
            self.answer(answer.status, dict(answer.headers), content)

        def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else len(content)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content if self.command != "HEAD" else b"")

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", faulty
        server.shutdown()
