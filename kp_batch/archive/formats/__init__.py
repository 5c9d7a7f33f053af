"""The file formats of an archive, one module each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import polars as pl

from kp_batch.archive.formats import jsonl, parquet


class ReadRaw(Protocol):
    """See `Format`."""

    def __call__(
        self, file: IO[bytes], rows: Iterable[int], batch_rows: int, /, *, whole: bool
    ) -> Iterator[tuple[int, str]]:
        """Read some rows again."""
        ...


@dataclass(frozen=True)
class Format:
    """How files of one format are recognised and read.

    Attributes:
        name: part of every file_id.
        endings: of file names, in lower case.
        read_rows: takes the file's name, the file, and the number of rows a batch; gives its rows
            as frames of `ROWS`, unchecked and in their order.
        read_raw: takes the file, ascending row numbers, the number of rows a batch, and whether
            damage is raised; gives the JSON texts of those rows that can be read, with their
            numbers.
    """

    name: str
    endings: tuple[str, ...]
    read_rows: Callable[[str, IO[bytes], int], Iterator[pl.DataFrame]]
    read_raw: ReadRaw


# The first is the format of files without a known ending.
FORMATS = (
    Format("parquet", (".parquet", ".pq"), parquet.read_rows, parquet.read_raw),
    Format("jsonl", (".jsonl", ".ndjson"), jsonl.read_rows, jsonl.read_raw),
)
BY_ENDING = {ending: each for each in FORMATS for ending in each.endings}


def format_of(path: str) -> Format:
    """The format of a file, by the ending of its name."""
    return BY_ENDING.get(Path(path).suffix.lower(), FORMATS[0])
