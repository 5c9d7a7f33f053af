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
    """A whole file cannot be read.

    Args:
        faults: all that is wrong with it; of a text alone the code is that of an unreadable file.
    """

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = [
            each if isinstance(each, Fault) else Fault(UNREADABLE_FILE, each) for each in faults
        ]
        super().__init__("; ".join(fault.message for fault in self.faults))
