"""Why a whole file cannot be read."""

from dataclasses import dataclass

UNREADABLE_FILE = "unreadable_file"
MISSING_COLUMN = "missing_column"
WRONG_COLUMN_TYPE = "wrong_column_type"


@dataclass(frozen=True)
class Fault:
    """One fault of a whole file: its reason code, and a sentence for people."""

    code: str
    message: str


class UnreadableError(Exception):
    """A whole file cannot be read; `faults` holds everything that is wrong with it."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = faults
