"""What could not be imported: `_refused.jsonl` in the archive, a line for each."""

import json
from collections import Counter
from glob import escape
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.importers.archive import Archive
from kp_batch.importers.draft import Refused
from kp_batch.importers.spool import Spool
from kp_batch.sql import sql
from kp_batch.text import encodable

NAME = "_refused.jsonl"
_SCHEMA = pl.Schema({"id": pl.String, "file": pl.String, "text": pl.String})


class Refusals:
    """The refusals of one import.

    Args:
        folder: an empty one, for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder, _SCHEMA)
        self.counts = Counter[str]()  # by reason

    def add(self, refused: Refused, file: str) -> None:
        """Take one."""
        self.counts.update(refused.reasons)
        line = {
            "id": refused.id,
            "file": file,
            "line": refused.line,
            "reasons": list(refused.reasons),
            "message": refused.message,
        }
        text = encodable(json.dumps(line, ensure_ascii=False))
        self._spool.add((refused.id and encodable(refused.id), encodable(file), text))

    def write(
        self, archive: Archive, ids: str, files: str, connection: duckdb.DuckDBPyConnection
    ) -> None:
        """Replace those of what was read again; the others stay.

        Args:
            archive: has those of before.
            ids: Parquet files with the column `id`, of all traces that were read.
            files: Parquet files with the column `path`, of all files that were.
            connection: sorts within its memory.
        """
        path = archive.here(NAME)
        if not path.exists():
            path = self._spool.folder / "none.jsonl"
            path.touch()
        for name, value in (
            ("new_refusals", self._spool.close()),
            ("read_ids", ids),
            ("read_files", files),
            ("old_refusals", escape(str(path))),
        ):
            connection.execute(f"SET VARIABLE {name} = ?", [value])
        lines = connection.sql(sql(__name__, "refused.sql"))
        with (
            archive.writing(NAME) as written,
            written.open("w", encoding="utf-8", newline="") as file,
        ):
            for batch in lines.to_arrow_reader(10_000):
                file.writelines(f"{each}\n" for each in batch.column("text").to_pylist())
