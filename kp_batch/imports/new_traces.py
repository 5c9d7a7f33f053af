"""Traces on their way into an archive, kept on disk and given back in the order of their time."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.imports.apply_rules import Row
from kp_batch.imports.records import Records
from kp_batch.imports.spool import Spool
from kp_batch.text import encodable

_KEYS = pl.Schema(
    {**dict.fromkeys(("day", "time", "id"), pl.String()), "place": pl.Int64(), "length": pl.Int64()}
)
Timed = tuple[tuple[str, str], str]  # when a trace was made, and its id; the trace as JSON


class NewTraces:
    """The traces of one import.

    Args:
        folder: an empty one, for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._keys = Spool(folder, _KEYS)
        self._rows = Records(folder / "rows")

    def add(self, row: Row) -> None:
        """Take a trace."""
        time: str = row["metadata"]["created_at"]
        place = self._rows.add(encodable(json.dumps(row, ensure_ascii=False)))
        self._keys.add((time[: len("2026-01-31")], time, row["id"], *place))

    def keys(self) -> str:
        """The glob of Parquet files with a row for each trace, `day` and `id` among others."""
        return self._keys.close()

    def of_day(self, day: str, connection: duckdb.DuckDBPyConnection) -> Iterator[Timed]:
        """The traces of a day, by their time and the bytes of their ids.

        Args:
            day: of these.
            connection: its table `new` holds what `keys` names.
        """
        found = connection.execute(
            "SELECT time, id, place, length FROM new WHERE day = ? ORDER BY time, id", [day]
        ).fetchall()
        for time, name, place, length in found:
            yield (time, name), self._rows.read(place, length)

    def close(self) -> None:
        """Close the files."""
        self._rows.close()
