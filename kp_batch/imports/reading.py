"""Reads files: records are spooled; everything else is counted, or refused.

The function that reads files shares nothing, so many processes can read at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from polars.exceptions import PanicException

from kp_batch import bounds
from kp_batch.bounds import TOO_LARGE, TooLargeError, refusal_budget
from kp_batch.conversion.conversation.messages import CutContentError
from kp_batch.conversion.model import (
    Format,
    Input,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
)
from kp_batch.errors import KpBatchError, ResourceError, UnreadableError, is_of_machine, is_passing
from kp_batch.imports.blocks import Record, session_unit, unit_of
from kp_batch.imports.source_files import local_path
from kp_batch.imports.spool import SortedRun, Spool
from kp_batch.text import one_line


@dataclass(frozen=True)
class FilesRead:
    """The result of reading some files.

    Attributes:
        faults: by file, why it cannot be read; none of its records counts then.
        dropped: by file, items that are not records.
        runs: runs of records; see `spool`.
    """

    faults: Mapping[str, Refused]
    dropped: Sequence[tuple[str, Refused | Skipped]]
    runs: Sequence[SortedRun]


def read_files(
    form: Format, inputs: Sequence[Input], numbers: Mapping[str, tuple[int, int]], spool: Spool
) -> FilesRead:
    """Read inputs; `numbers` has the id and number of each file, by path."""
    faults: dict[str, Refused] = {}
    dropped: list[tuple[str, Refused | Skipped]] = []
    for file in inputs:
        try:
            others = list(_read(form, file, *numbers[file.path], spool))
        except (TooLargeError, UnreadableError) as error:
            faults[file.path] = fault_of(error)
        else:
            dropped += ((file.path, item) for item in others)
    return FilesRead(faults, dropped, spool.runs())


def fault_of(error: TooLargeError | UnreadableError) -> Refused:
    """Return the refusal of a file that cannot be read."""
    is_large = isinstance(error, TooLargeError)
    codes = [TOO_LARGE] if is_large else [fault.code for fault in error.faults]
    return Refused(codes, str(error))


def _read(
    form: Format, file: Input, id_: int, number: int, spool: Spool
) -> Iterator[Refused | Skipped]:
    """Spool the records of a file; yield all other items."""
    budget = refusal_budget()
    for position, item in enumerate(items_of(form, file)):
        if isinstance(item, SourceRecord):
            name, content = unit_of(item.trace), content_of(item)
            unit = session_unit(name) if form.turns else name
            spool.add(Record(unit, number, id_, position, item.line, content))
        else:
            budget.take(isinstance(item, Refused))
            yield item


def content_of(record: SourceRecord) -> bytes:
    """Return the JSON of a record; null, as for a record that is too large, if nested too deep."""
    try:
        return bounds.dump(record.payload)
    except RecursionError:
        return b"null"


def items_of(form: Format, file: Input) -> Iterator[ReadItem]:
    """Read a file, and count what is unknown in its records.

    Errors raised here are the file's fault, not that of the local disk.

    Raises:
        TooLargeError, UnreadableError: the file cannot be read; items before it are void.
    """
    try:
        for item in form.read(file, local_path):
            yield item
            if isinstance(item, SourceRecord):
                yield from _unknown_in(form, item)
    except (KpBatchError, TooLargeError, UnreadableError):
        raise
    except MemoryError as error:
        raise ResourceError(
            f"out of memory while {file.path} was read; import on a machine with more memory"
        ) from error
    except (Exception, PanicException) as error:  # damage raises errors of many kinds
        if is_passing(error) or is_of_machine(error):
            raise
        reason = one_line(str(error)) or type(error).__name__
        raise UnreadableError(f"it cannot be read: {reason}") from error


def _unknown_in(form: Format, record: SourceRecord) -> Iterator[Skipped]:
    if record.payload is None:  # it is too large, and its trace is refused
        return
    with suppress(CutContentError, TooLargeError):  # JSON in its texts, for which it is refused
        yield from form.unknown(record.payload)
