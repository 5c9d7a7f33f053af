"""The file formats of an archive, one module each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from kp_batch.archive.file_formats import json
from kp_batch.archive.file_formats.json import Batch


@dataclass(frozen=True)
class FileFormat:
    """The endings and the readers of one file format.

    Attributes:
        name: name, which is part of every file_id.
        endings: endings of file names, in lower case.
        read_batches: takes the file's name, the file, and the rows of a batch; yields its rows in
            order.
        read_raw: takes the file, ascending row numbers, and the rows of a batch; yields the numbers
            and JSON texts of those rows.
        is_cut: whether a file ends within a row; `read_batches` leaves that row out.
    """

    name: str
    endings: tuple[str, ...]
    read_batches: Callable[[str, IO[bytes], int], Iterator[Batch]]
    read_raw: Callable[[IO[bytes], Iterable[int], int], Iterator[tuple[int, str]]]
    is_cut: Callable[[IO[bytes]], bool] = lambda _: False


# pyarrow's reader takes 30 ms to import; an archive of JSONL does not need it.


def _parquet_batches(path: str, file: IO[bytes], batch_rows: int) -> Iterator[Batch]:
    from kp_batch.archive.file_formats.parquet import read_batches

    return read_batches(path, file, batch_rows)


def _raw_parquet(
    file: IO[bytes], rows: Iterable[int], batch_rows: int
) -> Iterator[tuple[int, str]]:
    from kp_batch.archive.file_formats.parquet import read_raw

    return read_raw(file, rows, batch_rows)


# The first is the format of files with an unknown ending.
FORMATS = (
    FileFormat("parquet", (".parquet", ".pq"), _parquet_batches, _raw_parquet),
    FileFormat("jsonl", (".jsonl", ".ndjson"), json.read_batches, json.read_raw, json.is_cut),
)
BY_ENDING = {ending: form for form in FORMATS for ending in form.endings}
ENDINGS = ", ".join(BY_ENDING)  # for messages
