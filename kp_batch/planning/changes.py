"""From what changed in the archive to the traces that differ, and to the rows it refuses."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Self, cast

import polars as pl

from kp_batch.archive.formats.parquet import read_raw
from kp_batch.archive.ledger import Entry, Ledger, as_frame
from kp_batch.archive.validation import message
from kp_batch.contracts import FACTS, SCORES, TABLES
from kp_batch.staging import Stage
from kp_batch.warehouse.relations import (
    attach_tables,
    frame_of,
    parquet_relation,
    partitions_of,
)

_OWN = [name for name in SCORES if name in FACTS] + ["source_file"]
_MET = [name for name in SCORES if name not in _OWN and name != "date"]


@dataclass(frozen=True)
class Changes:
    """The traces that differ from the published ones."""

    frame: pl.DataFrame  # day (null: removed), was_day (null: new), traces

    @property
    def days(self) -> set[date]:
        """Every day that gains, loses or changes a trace."""
        both = self.frame.select(pl.concat([pl.col("day"), pl.col("was_day")]))
        return set(both.to_series().drop_nulls())

    @property
    def removed(self) -> int:
        """How many traces are no more."""
        return self._traces(pl.col("day").is_null())

    @property
    def added(self) -> int:
        """How many traces were not there."""
        return self._traces(pl.col("was_day").is_null())

    def _traces(self, which: pl.Expr) -> int:
        return int(self.frame.filter(which).get_column("traces").sum())


class Archive:
    """The archive and what is published of it, side by side in DuckDB.

    Args:
        warehouse: the folder of the tables.
        tables: the published version of each.
        stage: the run's files.
    """

    def __init__(self, warehouse: Path, tables: dict[str, int], stage: Stage) -> None:
        """Look at the published tables."""
        self._stage = stage
        self._days = partitions_of(warehouse, "scores", tables.get("scores"))
        self._connection = stage.connect()
        attach_tables(self._connection, warehouse, tables, "published")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._connection.close()

    def table(self, name: str) -> pl.DataFrame:
        """All rows of a published table."""
        rows = frame_of(self._connection.table(f"published.{name}"))
        return rows.select(list(TABLES[name])).cast(TABLES[name])

    def rows_by_content(self) -> dict[str, int]:
        """How many rows each content has that was read before, by its file_id."""
        counts = self._ask("SELECT file_id, count(*) FROM published.facts GROUP BY ALL")
        return dict(counts.iter_rows())

    def fingerprints(self) -> pl.DataFrame:
        """What computed the published scores, by day and domain.

        Returns:
            day, task_domain, the three ids, `traces`: how many, `met`: as many as any of them met.
        """
        return self._ask(_sql("fingerprints.sql"))

    def settle(self, ledger: Iterable[Entry], ids: Iterable[str]) -> Changes:
        """Find the traces that differ from the published ones.

        Args:
            ledger: the archive's files as they are now.
            ids: traces to look at, whatever became of their files.
        """
        self._connection.register("now", as_frame(ledger).to_arrow())
        looked_at = pl.DataFrame({"trace_id": list(ids)}, schema={"trace_id": pl.String})
        self._connection.register("ids", looked_at.to_arrow())
        names = {
            "columns": ", ".join(FACTS),
            "staged": parquet_relation("facts", [self._stage.rows]),
        }
        self._connection.execute(Template(_sql("changes.sql")).substitute(names))
        return Changes(self._ask("FROM changes"))

    def write_timeline(self, days: Iterable[date]) -> None:
        """Write the traces of some published days, with all that changed: `stage.timeline`."""
        paths = [path for day in days for path in self._days.get(day, [])]
        names = {
            "scores": parquet_relation("scores", paths),
            "new_own": ", ".join(f"new.{name}" for name in _OWN),
            "old_own": ", ".join(f"old.{name}" for name in _OWN),
            "old_met": ", ".join(f"old.{name}" for name in _MET),
        }
        self._connection.execute("SET VARIABLE timeline = ?", [str(self._stage.timeline)])
        self._connection.execute(Template(_sql("timeline.sql")).substitute(names))

    def locate(self, text_hashes: pl.Series) -> tuple[set[str], set[str]]:
        """The files that hold these texts.

        Returns:
            Those that can be read, and those needed that cannot: gone, or unreadable.
        """
        self._connection.register("wanted", text_hashes.to_frame("text_hash").to_arrow())
        found = self._ask(_sql("locate.sql"))
        readable = pl.col("status") == "read"
        return (
            set(found.filter(readable).get_column("source_file")),
            set(found.filter(~readable).get_column("source_file")),
        )

    def sample(self, traces: int) -> pl.DataFrame:
        """Some published traces, drawn by chance: see verify.sql."""
        sql = Template(_sql("verify.sql")).substitute(traces=traces)
        self._connection.execute(sql)
        return self._ask("FROM sampled")

    def missing(self) -> int:
        """How many traces of the published ledger's files have no score."""
        return self._ask(_sql("missing.sql")).item()

    def window(self, first: int, last: int) -> pl.DataFrame:
        """The traces at positions `first` to `last` (excluded) of the timeline, once sampled."""
        return self._ask(Template(_sql("window.sql")).substitute(first=first, last=last))

    def write_rejects(self, ledger: Ledger, run_id: str) -> bool:
        """Write all that is refused as the archive stands now: `stage.rejects`.

        Returns:
            Whether it differs from what is published.
        """
        refused = self._stage.folder / "refused.parquet"
        self._connection.execute("SET VARIABLE refused = ?", [str(refused)])
        self._connection.execute(_sql("rejects.sql"))
        told = pl.coalesce("message", message(pl.col("reasons")))
        found = pl.read_parquet(refused, glob=False).with_columns(message=told)
        rows = _with_raw(found, ledger)
        rows.with_columns(pl.col("run_id").fill_null(run_id)).write_parquet(self._stage.rejects)
        before = self._ask("SELECT count(*) FROM published.rejects").item()
        return len(rows) != before or any(
            rows.get_column(name).null_count() != known
            for name, known in (("run_id", 0), ("raw", found.get_column("raw").null_count()))
        )

    def _ask(self, query: str) -> pl.DataFrame:
        return frame_of(self._connection.sql(query))


def _sql(name: str) -> str:
    return files("kp_batch.planning").joinpath(name).read_text("utf-8")


def _with_raw(refused: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """The same rows with their JSON, read again where it is not known and their file is there."""
    known = pl.col("raw").is_not_null() | pl.col("row").is_null()
    frames = [refused.filter(known)]
    for (path,), frame in refused.filter(~known).group_by("source_file", maintain_order=True):
        entry = ledger[cast("str", path)]
        rows = frame.get_column("row").to_list()
        raw = read_raw(entry.source, rows) if entry.status == "read" else [None] * len(rows)
        frames.append(frame.with_columns(raw=pl.Series(raw, dtype=pl.String)))
    return pl.concat(frames).sort("source_file", "row", nulls_last=True, maintain_order=True)
