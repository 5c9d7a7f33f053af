"""Reads files so that one which cannot be read keeps no other from being read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.sources import described
from kp_batch.errors import StorageError, is_passing
from kp_batch.file_faults import UnreadableError
from kp_batch.steps.step import retried

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Unreadable:
    """Why content cannot be read."""

    reasons: tuple[str, ...]
    message: str

    @classmethod
    def of(cls, error: UnreadableError) -> "Unreadable":
        """The faults that the error holds."""
        return cls(tuple(sorted({fault.code for fault in error.faults})), str(error))


def read_each(
    name: str, files: Mapping[T, SourceFile], read: Callable[[T], R]
) -> list[R | Unreadable]:
    """Read each of some things; those whose failure may pass are `retried` together.

    Args:
        name: of the step.
        files: what to read, each with its file.
        read: raises an UnreadableError, from the system's error if there is one. Its other errors
            are raised.

    Returns:
        For each in their order, what was read or why it cannot be.

    Raises:
        StorageError: a file failed each time and cannot even be looked at: its disk or its server
            is away. One that can be is at fault itself, and unreadable.
    """
    found: dict[T, R | Unreadable] = {}
    passing: dict[T, UnreadableError] = {}

    def read_left() -> None:
        for each in files:
            if each in found and each not in passing:
                continue
            passing.pop(each, None)
            try:
                found[each] = read(each)
            except UnreadableError as error:
                found[each] = Unreadable.of(error)
                if is_passing(error):
                    passing[each] = error
        for each, error in passing.items():
            raise OSError(f"{files[each].path}: {error}") from error

    try:
        retried(name, read_left)
    except StorageError:
        if any(_is_away(files[each]) for each in passing):
            raise
    return [found[each] for each in files]


def _is_away(source: SourceFile) -> bool:
    try:
        described(source.path)
    except OSError as error:
        return is_passing(error)
    return False
