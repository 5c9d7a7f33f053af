"""A kernel of Jupyter, and what its cells show."""

import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

_LONGEST_S = 120


@dataclass
class Cell:
    """What a cell has shown.

    Attributes:
        shown: what is displayed, and the result: texts by their media types.
        error: the name of what it raised, and its message.
    """

    out: str = ""
    err: str = ""
    shown: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    error: tuple[str, str] | None = None


class Kernel:
    """A kernel, and the client that it has."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        self._manager, self._client = manager, client

    def run(self, code: str, *, interrupted_after: str = "") -> Cell:
        """Run a cell to its end, or interrupt it once it has printed a text, on stderr maybe."""
        asked = self._client.execute(code)
        cell, until = Cell(), time.monotonic() + _LONGEST_S
        while time.monotonic() < until:
            try:
                message = self._client.get_iopub_msg(timeout=1)
            except Empty:
                assert self._manager.is_alive(), "the kernel has died"
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            if _add(cell, message["msg_type"], message["content"]):
                return cell
            if interrupted_after and interrupted_after in cell.out + cell.err:
                self._manager.interrupt_kernel()
                interrupted_after = ""
        raise TimeoutError(code)


def _add(cell: Cell, kind: str, content: dict[str, Any]) -> bool:
    """Add a message to what a cell has shown; whether it is the last one."""
    if kind == "stream" and content["name"] == "stdout":
        cell.out += content["text"]
    elif kind == "stream":
        cell.err += content["text"]
    elif kind in {"display_data", "execute_result"}:
        cell.shown.append(content["data"])
    elif kind == "error":
        cell.error = content["ename"], content["evalue"]
    return kind == "status" and content["execution_state"] == "idle"


class _OfThisPython(KernelManager):
    """Starts no kernel that a user has installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, language="python")


@contextmanager
def kernel(folder: Path) -> Generator[Kernel]:
    """A kernel in a folder, where it writes the file `stderr` besides."""
    sockets = tempfile.mkdtemp()  # the system has no sockets by long names
    manager = _OfThisPython(connection_file=f"{sockets}/kernel.json", transport="ipc")
    with (folder / "stderr").open("wb") as stderr:
        manager.start_kernel(cwd=str(folder), stderr=stderr)
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=_LONGEST_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        shutil.rmtree(sockets)
