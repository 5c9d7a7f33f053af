"""One server of Prefect for the whole suite, started by the command that the page on nights has."""

import fcntl
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.support import ROOT
from tests.support.processes.commands import until

[_SHOWN] = re.findall(
    r"^```sh\n(export PREFECT_API_URL.*?)^```",
    (ROOT / "docs" / "how-to" / "nightly.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
_EXPORT, _SERVER, *OTHERS = [line.split("#")[0].strip() for line in _SHOWN.splitlines()]
_KEEPERS: list[subprocess.Popen[bytes]] = []  # which Python would complain of, as they go on
# The first test that needs the server starts it, and others go on with it when that one's process
# has ended: so it is kept by a process that looks whether the suite itself is there.
_KEEPER = """
import os, subprocess, sys, time
suite, *command = sys.argv[1:]
server = subprocess.Popen(command)
try:
    while server.poll() is None:
        os.kill(int(suite), 0)
        time.sleep(0.5)
except ProcessLookupError:
    server.terminate()
    server.wait(20)
finally:
    server.kill()
"""


@dataclass(frozen=True)
class PrefectServer:
    """A server, and the folder that is its home."""

    url: str
    home: Path

    @property
    def variables(self) -> dict[str, str]:
        """By which Prefect knows it, and does not look into the user's home."""
        return {"PREFECT_API_URL": self.url, "PREFECT_HOME": str(self.home), "DO_NOT_TRACK": "1"}

    @property
    def database(self) -> Path:
        return self.home / "prefect.db"

    def ask(self, path: str, body: object = None) -> Any:
        """Its answer to a request, a POST where there is a body."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", data, kind)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
        time.sleep(0.2)  # somebody else writes, and Prefect's own clients ask again, too
        return self.ask(path, body)


def server_of_suite(temporary: Path) -> PrefectServer:
    """The server, which is started if it is not there yet.

    Args:
        temporary: the folder of this process of the suite, in that of the suite where it has
            several.
    """
    is_one_of_several = "PYTEST_XDIST_WORKER" in os.environ
    home = (temporary.parent if is_one_of_several else temporary) / "prefect"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        address = home / "address"
        if not address.exists():
            suite = os.getppid() if is_one_of_several else os.getpid()
            address.write_text(_start(home, suite).url)
        return PrefectServer(address.read_text(), home)


def _start(home: Path, suite: int) -> PrefectServer:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = PrefectServer(_EXPORT.partition("=")[2].replace("4200", port), home)
    with (home / "server.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-c", _KEEPER, str(suite), *shlex.split(_SERVER)],
            env=os.environ
            | server.variables
            | {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PREFECT_SERVER_API_PORT": port,
            },
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it ends the server itself after Ctrl-C
        )
    _KEEPERS.append(keeper)

    def is_up() -> bool:
        assert keeper.poll() is None, (home / "server.log").read_text()
        with suppress(OSError):
            return server.ask("health") is True
        return False

    until(is_up, 120)
    return server
