"""How a run ended, in the one vocabulary of the command line, of its mark and of `status`."""

from dataclasses import dataclass
from typing import Literal

from kp_batch.errors import Ending, explain_error

Status = Literal["done", "nothing_to_do", Ending]
GOOD: tuple[Status, ...] = ("done", "nothing_to_do")


@dataclass(frozen=True)
class Ended:
    """How a run ended, and if it is not done, why: in one line, and by a code.

    The code is a word for the kind of the reason, which stays when its words change.
    """

    status: Status
    reason: str | None = None
    code: str | None = None

    @classmethod
    def by(cls, error: BaseException, *, begun: bool = False, stored: bool = False) -> "Ended":
        """How an error ends a run.

        Args:
            error: the error.
            begun: whether the run had begun, see `OpenRun.begun`.
            stored: whether a warehouse keeps it, see `KpBatchError.stored`.
        """
        if not _is_failure(error):
            return cls("stopped", "interrupted", "signal")
        told = explain_error(error)
        late: Ending = "failed" if begun else "could_not_begin"
        return cls(told.ending or late, told.stored if stored else str(told), told.code)

    @property
    def is_good(self) -> bool:
        """Whether what is published is as the archive has it."""
        return self.status in GOOD


def _is_failure(error: BaseException) -> bool:
    """Whether the work failed; else somebody stopped it. Rust's panics are no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
