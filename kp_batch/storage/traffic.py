"""Counts what is asked of stores."""

from dataclasses import dataclass

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
