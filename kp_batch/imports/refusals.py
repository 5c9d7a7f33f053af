"""The refusals of imports: `_refused.jsonl` in the archive, a line for each.

What only waits, as a trace for its root or a line for its end, is in `_waiting.jsonl` instead.
"""

import json
from collections import Counter
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.conversion.model import Rejected
from kp_batch.duck import duckdb_config, escaped, set_variables, sql, statement
from kp_batch.imports.destination import Archive
from kp_batch.imports.sorted_runs import SortedRuns
from kp_batch.stopping import stopped_by
from kp_batch.text import encodable, shortened

# Reasons that a later import finds gone.
_WAITING = ("incomplete", "unfinished_run", "unfinished_line")
NAMES = {"refused": "_refused.jsonl", "waiting": "_waiting.jsonl"}
_EXAMPLE = 300  # characters of a refusal that a message shows


def waits(refused: Rejected) -> bool:
    """Whether it is only refused until a later import."""
    return not set(_WAITING).isdisjoint(refused.reasons)


class Refusals:
    """The refusals of one import, with its files in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts, self._ids, self._files = (
            SortedRuns(folder / column, pl.Schema({column: pl.String}), [column], pl.lit(100))
            for column in ("text", "id", "path")
        )
        self.refused, self.waiting = Counter[str](), Counter[str]()  # by reason
        self.counts = Counter[str]()  # of `unreadable` files, and of other `refused` things
        self.examples: dict[str, str] = {}  # likewise
        self.forgotten: list[str] = []  # files, and folders of files, of which no line stays
        self.has_damaged_lines = False  # those of before

    def read_trace(self, id_: str) -> None:
        """Drop the old refusals of a trace, as it is built anew."""
        self._ids.add((encodable(id_),), len(id_))

    def read_file(self, path: str) -> None:
        """Drop the old refusals of a file that are of no trace, as it is read anew."""
        self._files.add((encodable(path),), len(path))

    def add(self, refused: Rejected, file: str, *, is_file: bool = False) -> None:
        """Take a refusal: of a file that cannot be read, or of a part of it."""
        if waits(refused):
            self.waiting.update(refused.reasons)
        else:
            self.refused.update(refused.reasons)
            kind = "unreadable" if is_file else "refused"
            self.counts[kind] += 1
            message = refused.message or ", ".join(refused.reasons)
            example = shortened(f"{refused.id or file}: {message}", _EXAMPLE)
            self.examples.setdefault(kind, example)
        line = {
            "id": refused.id,
            "file": file,
            "line": refused.line,
            "reasons": list(refused.reasons),
            "message": refused.message,
        }
        text = encodable(json.dumps(line, ensure_ascii=False))
        self._texts.add((text,), len(text))

    def write(self, archive: Archive) -> dict[str, int]:
        """Write them in the place of those of files and traces that were read again.

        Returns:
            How many there are now of each kind of `NAMES`.
        """
        none = self._folder / "none.jsonl"
        none.touch()
        before = [path for name in NAMES.values() if (path := archive.local_path(name)).exists()]
        variables: dict[str, list[str]] = {
            "new_refusals": self._texts.names(),
            "read_ids": self._ids.names(),
            "read_files": self._files.names(),
            "old_refusals": [escaped(path) for path in (none, *before)],
            "waiting": list(_WAITING),
            "forgotten": [path.rstrip("/") for path in self.forgotten],
        }
        config = duckdb_config(self._folder / "spill")
        with duckdb.connect(config=config) as connection, stopped_by(connection.interrupt):
            set_variables(connection, **variables)
            rows = sql(__name__, "refusals.sql")
            connection.execute(statement("CREATE TABLE refusals AS $rows", rows=rows))
            damaged = connection.execute("SELECT 1 FROM refusals WHERE text IS NULL").fetchall()
            self.has_damaged_lines = bool(damaged)
            return {kind: _write(archive, kind, connection) for kind in NAMES}


def _write(archive: Archive, kind: str, connection: duckdb.DuckDBPyConnection) -> int:
    """Write the lines of one kind; returns how many there are."""
    lines = connection.sql(
        "SELECT text FROM refusals WHERE waits = ? AND text IS NOT NULL ORDER BY text",
        params=[kind == "waiting"],
    ).to_arrow_reader(10_000)
    number = 0
    with (
        archive.writing(NAMES[kind]) as path,
        path.open("w", encoding="utf-8", newline="") as file,
    ):
        for batch in lines:
            file.writelines(f"{text}\n" for text in batch.column("text").to_pylist())
            number += len(batch)
    return number
