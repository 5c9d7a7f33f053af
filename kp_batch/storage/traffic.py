"""Counts what is asked of stores."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kp_batch.text import number


@dataclass
class Traffic:
    """What was asked of stores, tries again not counted, and what that moved."""

    requests: int = 0
    read: int = 0  # bytes
    written: int = 0  # bytes

    def count(self, *, requests: int = 1, read: int = 0, written: int = 0) -> None:
        """Add to all of it."""
        self.requests += requests
        self.read += read
        self.written += written

    def __str__(self) -> str:
        mib = (each / (1 << 20) for each in (self.read, self.written))
        read, written = (f"{each:,.1f} MiB" for each in mib)
        return f"{number(self.requests, 'request')}, {read} read, {written} written"


TRAFFIC = Traffic()  # of this process


@contextmanager
def counted() -> Generator[Traffic]:
    """Count what is asked meanwhile apart, for another process to add to its own."""
    before, apart = replace(TRAFFIC), Traffic()
    yield apart
    apart.count(
        requests=TRAFFIC.requests - before.requests,
        read=TRAFFIC.read - before.read,
        written=TRAFFIC.written - before.written,
    )
