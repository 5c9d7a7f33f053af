"""Rows on their way to the disk, so that memory holds a few of them at a time."""

from glob import escape
from pathlib import Path

import polars as pl

_ROWS = 10_000


class Spool:
    """Parquet files of one schema.

    Args:
        folder: for the files; made where it is missing.
        schema: of the rows.
    """

    def __init__(self, folder: Path, schema: pl.Schema) -> None:
        self.folder, self._schema = folder, schema
        self._rows: list[tuple[object, ...]] = []
        self._files = 0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, row: tuple[object, ...]) -> None:
        """Take a row."""
        self._rows.append(row)
        if len(self._rows) == _ROWS:
            self._write()

    def close(self) -> str:
        """Write what is held; returns the glob of all files, of which there is at least one."""
        if self._rows or not self._files:
            self._write()
        return f"{escape(str(self.folder))}/*.parquet"

    def _write(self) -> None:
        frame = pl.DataFrame(self._rows, schema=self._schema, orient="row")
        frame.write_parquet(self.folder / f"{self._files:06d}.parquet")
        self._files, self._rows = self._files + 1, []
