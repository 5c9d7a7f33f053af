"""The log of a command that writes to a warehouse: what libraries and Prefect's server print.

It is begun beside the log of the command before, which may still be at work, and takes its place
once this command alone writes.
"""

from dataclasses import dataclass
from pathlib import Path

from kp_batch.errors import BusyError
from kp_batch.files import temporary_sibling


@dataclass(frozen=True)
class Log:
    """A log, and the file that it is until it takes its place."""

    path: Path  # in the warehouse
    begun: Path

    @classmethod
    def begin(cls, path: Path) -> "Log":
        """Make an empty file.

        Raises:
            OSError: it cannot be written.
        """
        begun = temporary_sibling(path)
        begun.touch(0o600, exist_ok=False)  # libraries may print what traces say
        return cls(path, begun)

    def take_place(self) -> None:
        """Replace the log of the command before; only who alone writes may.

        Raises:
            OSError: it cannot be replaced.
        """
        if self.begun.exists():  # else it has
            self.begun.replace(self.path)

    def settle(self) -> bool:
        """Take the place unless another command writes; gives whether it has the place now."""
        from kp_batch.warehouse.lock import locked

        try:
            with locked(self.path.parent, wait=False):
                self.take_place()
        except (BusyError, OSError):
            return False
        return True

    def end(self) -> None:
        """Remove what took no place."""
        self.begun.unlink(missing_ok=True)
