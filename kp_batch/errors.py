"""Errors for users. Every message says what happened, to what, and what to do next."""


class KpBatchError(Exception):
    """An error that the user can put right. The command line prints it as one line and exits 1."""


class ArchiveError(KpBatchError):
    """The archive cannot be scored: nothing found, nothing acceptable, too much rejected."""


class EncoderError(KpBatchError):
    """The encoder cannot be loaded, or its vectors cannot be used."""


class ProfileError(KpBatchError):
    """A profiles file has faults; the message lists all of them."""


class ResourceError(KpBatchError):
    """The machine has too little memory or too little disk for a run."""


class StorageError(KpBatchError):
    """The disk or the network failed, each time that it was tried."""


class TraceError(KpBatchError):
    """One trace cannot be scored; `reasons` holds the codes of all its faults."""

    def __init__(self, message: str, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reasons = reasons


class WarehouseError(KpBatchError):
    """The warehouse is missing, damaged, or cannot be written."""


class BusyError(WarehouseError):
    """Another process is writing to the warehouse."""
