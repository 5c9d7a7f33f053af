"""What could not be imported: `_refused.jsonl` in the archive, a line for each.

What only waits, for its root or for the end of an export, stands in `_waiting.jsonl` instead.
"""

import json
from collections import Counter
from glob import escape
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.duck import duckdb_config, set_variables, sql, statement
from kp_batch.imports.archive import Archive
from kp_batch.imports.model import Rejected
from kp_batch.imports.sorted_runs import SortedRuns
from kp_batch.text import encodable, shortened

WAITING = ("incomplete", "unfinished_run")  # reasons that a later import finds gone
NAMES = {"refused": "_refused.jsonl", "waiting": "_waiting.jsonl"}
_FIRST = 300  # characters of the first one that a summary tells
_TEXTS = pl.Schema({"text": pl.String})
_IDS = pl.Schema({"id": pl.String})
_FILES = pl.Schema({"path": pl.String})


class Refusals:
    """The refusals of one import.

    Args:
        folder: an empty one, for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts, self._ids, self._files = (
            SortedRuns(folder / name, schema, schema.names(), pl.lit(100))
            for name, schema in (("texts", _TEXTS), ("ids", _IDS), ("files", _FILES))
        )
        self.refused, self.waiting = Counter[str](), Counter[str]()  # by reason
        self.numbers = Counter[str]()  # that are `unreadable`, files, or `refused`, all else
        self.first: dict[str, str] = {}  # likewise
        self.gone: list[str] = []  # files, and folders of files, of which no line stays
        self.left_out = False  # whether lines of before were damaged

    def read_trace(self, id_: str) -> None:
        """Forget what was refused of a trace, as it is built anew."""
        self._ids.add((encodable(id_),), len(id_))

    def read_file(self, path: str) -> None:
        """Forget what was refused of a file by itself, as it is read anew."""
        self._files.add((encodable(path),), len(path))

    def add(self, refused: Rejected, file: str, *, is_file: bool = False) -> None:
        """Take one: of a file that cannot be read, or of what it holds."""
        if not set(WAITING).isdisjoint(refused.reasons):
            self.waiting.update(refused.reasons)
        else:
            self.refused.update(refused.reasons)
            kind = "unreadable" if is_file else "refused"
            self.numbers[kind] += 1
            self.first.setdefault(kind, self._told(refused, file))
        line = {
            "id": refused.id,
            "file": file,
            "line": refused.line,
            "reasons": list(refused.reasons),
            "message": refused.message,
        }
        text = encodable(json.dumps(line, ensure_ascii=False))
        self._texts.add((text,), len(text))

    @staticmethod
    def _told(refused: Rejected, file: str) -> str:
        why = refused.message or ", ".join(refused.reasons)
        return shortened(f"{refused.id or file}: {why}", _FIRST)

    def write(self, archive: Archive) -> dict[str, int]:
        """Write them in the place of those of what was read again; the others stay.

        Args:
            archive: has those of before.

        Returns:
            How many there are now, by the names of `NAMES`.
        """
        none = self._folder / "none.jsonl"
        none.touch()
        before = [path for name in NAMES.values() if (path := archive.local_path(name)).exists()]
        given: dict[str, list[str]] = {
            "new_refusals": self._texts.names(),
            "read_ids": self._ids.names(),
            "read_files": self._files.names(),
            "old_refusals": [escape(str(path)) for path in (none, *before)],
            "waiting": list(WAITING),
            "gone": [each.rstrip("/") for each in self.gone],
        }
        with duckdb.connect(config=duckdb_config(self._folder / "spill")) as connection:
            set_variables(connection, **given)
            rows = sql(__name__, "rejects.sql")
            connection.execute(statement("CREATE TABLE refusals AS $rows", rows=rows))
            damaged = connection.execute("SELECT 1 FROM refusals WHERE text IS NULL").fetchall()
            self.left_out = bool(damaged)
            return {kind: _write(archive, kind, connection) for kind in NAMES}


def _write(archive: Archive, kind: str, connection: duckdb.DuckDBPyConnection) -> int:
    """Write the lines of one kind; returns how many."""
    lines = connection.sql(
        "SELECT text FROM refusals WHERE waits = ? AND text IS NOT NULL ORDER BY text",
        params=[kind == "waiting"],
    ).to_arrow_reader(10_000)
    number = 0
    with (
        archive.writing(NAMES[kind]) as written,
        written.open("w", encoding="utf-8", newline="") as file,
    ):
        for batch in lines:
            file.writelines(f"{each}\n" for each in batch.column("text").to_pylist())
            number += len(batch)
    return number
