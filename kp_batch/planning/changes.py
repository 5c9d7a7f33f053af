"""Detect new (late ones too), changed and removed traces: compare facts with scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import polars as pl

from kp_batch.duck import columns, read_parquet, set_variables, sql, statement
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.ingest.stage import VERSION
from kp_batch.planning.cache_groups import group_of
from kp_batch.schemas import FACTS, FILES
from kp_batch.text import be, count_of, printable, shortened
from kp_batch.warehouse.open_snapshot import OpenSnapshot
from kp_batch.warehouse.snapshot import parquet_relation

# The relations that changes.sql, candidates.sql and diff.sql create for the others, by columns.
RELATIONS: Mapping[str, tuple[str, ...]] = {
    # every file that was ever read, as it is now
    "ledger": tuple(FILES),
    # all rows that were ever read
    "all_facts": tuple(FACTS),
    # the same without forgotten traces
    "facts": tuple(FACTS),
    # the files whose content counts
    "contents": ("source_file", "file_id", "rows", "status", "path_keys", "is_read"),
    # new or gone, with other content or keys, or no longer or again readable
    "changed_contents": ("source_file", "file_id"),
    # the hashes of ids that may have changed
    "touched_ids": ("id",),
    # the content with such ids
    "touched_contents": ("file_id",),
    # all accepted rows of these ids that were ever read
    "touched_rows": tuple(FACTS),
    # the rows of these ids, where an id has several, or none that counts
    "duplicates": (
        *("trace_id", "task_domain", "file_id", "row", "content_hash", "availability"),
        *("last_content", "last_file", "last_row", "last_availability", "is_last"),
    ),
    # the row that counts, for each of these ids
    "current": (*(name for name in FACTS if name != "reasons"), "source_file", "cache_group"),
    # the same rows joined with the published scores
    "diff": (
        *("trace_id", "created_at", "old_created_at", "text_hash"),
        *("cache_group", "old_cache_group"),
        *("removed_from", "old_content_hash", "in_place", "differs"),
    ),
    # the ids whose own row does not change their score
    "unchanged": ("trace_id",),
}
_ID = 100  # characters of a trace's id
# Up to so many touched ids have their rows in memory: finding them in all facts takes a while.
_FEW = 250_000
# All accepted rows of these ids, of any content. A few are a table, because they are read
# repeatedly.
_TOUCHED_ROWS = """
    CREATE TEMP $kind touched_rows AS
    FROM all_facts SEMI JOIN touched_contents USING (file_id)
    WHERE len(reasons) = 0 AND hash(trace_id) IN (SELECT id FROM touched_ids)
"""
# From the facts, which have few files; the scores have one file a day. An id may have several
# times in the facts; its score has one of them.
_TOUCHED_DAYS = """
    SELECT DISTINCT day_of(created_at) AS day
    FROM touched_rows
    SEMI JOIN published.files USING (file_id)
"""
_BY_DAY = """
    SELECT day_of(created_at) AS day, day_of(old_created_at) AS old_day, count(*) AS traces
    FROM diff
    WHERE differs
    GROUP BY ALL
"""
_ROWS = """
    SELECT
        coalesce(sum("rows"), 0)::BIGINT AS "rows",
        coalesce(sum("rows") FILTER (NOT is_read), 0)::BIGINT AS rows_kept,
        coalesce(sum("rows") FILTER (NOT ends_with(file_id, getvariable('version'))), 0)::BIGINT
            AS rows_of_earlier,
        count(*) FILTER (status = 'gone') AS gone,
        count(*) FILTER (status = 'excluded') AS excluded
    FROM contents
"""
_LOSS = """
    WITH counting AS (FROM ledger WHERE file_id IS NOT NULL),
    lost AS (
        SELECT diff.trace_id
        FROM diff
        SEMI JOIN counting ON source_file = removed_from
        ANTI JOIN (
            -- Without --prune these would stay.
            SELECT trace_id, content_hash
            FROM touched_rows
            SEMI JOIN (FROM published.files ANTI JOIN counting USING (source_file)) USING (file_id)
        ) AS pruned ON pruned.trace_id = diff.trace_id AND content_hash = old_content_hash
    )
    SELECT
        trace_id IN (FROM lost) AS is_lost, count(*), min(trace_id), arg_min(removed_from, trace_id)
    FROM diff
    WHERE removed_from IS NOT NULL
    GROUP BY is_lost
"""
# What `--prune` would remove, whether or not it was given.
_PRUNABLE = """
    WITH readable AS (
        FROM facts SEMI JOIN (FROM ledger WHERE status = 'read') USING (file_id)
    ),
    away AS (
        FROM published.files ANTI JOIN (FROM ledger WHERE status = 'read') USING (source_file)
    )
    SELECT count(DISTINCT facts.trace_id), count(DISTINCT away.source_file)
    FROM facts
    JOIN away USING (file_id)
    ANTI JOIN (FROM readable WHERE len(reasons) = 0) AS kept USING (trace_id)
    WHERE len(facts.reasons) = 0
"""


@dataclass(frozen=True)
class ChangeSet:
    """How many rows count, and how many traces differ from the published ones."""

    by_day: pl.DataFrame  # day (null: removed), old_day (null: new), traces
    rows: int  # rows that count
    rows_kept: int  # of these, in files that are gone, unreadable or excluded
    rows_of_earlier: int  # of these, with facts of an earlier version
    gone: int  # files that are gone, but whose content counts
    excluded: int  # files that are excluded, but whose content counts

    @property
    def days(self) -> set[date]:
        """Every day that gains, loses or changes a trace."""
        both = self.by_day.select(pl.concat([pl.col("day"), pl.col("old_day")]))
        return set(both.to_series().drop_nulls())

    @property
    def removed(self) -> int:
        """How many published traces are no longer in the archive."""
        return self._traces(pl.col("day").is_null())

    @property
    def added(self) -> int:
        """How many traces were not published."""
        return self._traces(pl.col("old_day").is_null())

    def _traces(self, which: pl.Expr) -> int:
        return int(self.by_day.filter(which).get_column("traces").sum())


@dataclass(frozen=True)
class Loss:
    """Published traces that are no longer in their files although these still count.

    Or those that `--prune` removes with their files.
    """

    traces: int = 0
    trace_id: str = ""  # one of them
    source_file: str = ""  # the file that had it

    @property
    def example(self) -> str:
        """One of the traces, in words."""
        return f"such as {shortened(self.trace_id, _ID)} of {printable(self.source_file)}"


@dataclass(frozen=True)
class Prunable:
    """What `--prune` would remove: published traces that no readable file has, and their files."""

    traces: int = 0
    files: int = 0  # gone, unreadable or excluded, since any run

    @property
    def words(self) -> str:
        """How many traces and files there are."""
        files = count_of(self.files, "file")
        are = be(self.files)
        return (
            f"{count_of(self.traces, 'trace')} of {files} that {are} gone, unreadable or excluded"
        )


@dataclass(frozen=True)
class ChangeDetection:
    """The archive compared with the published tables by `detect_changes`."""

    snapshot: OpenSnapshot
    changes: ChangeSet

    def losses(self) -> tuple[Loss, Loss]:
        """Return the removed traces: those of files that still count, and those of pruned files."""
        found = {is_lost: Loss(*row) for is_lost, *row in self.snapshot.ask(_LOSS).iter_rows()}
        return found.get(True, Loss()), found.get(False, Loss())

    def prunable(self) -> Prunable:
        """Count what `--prune` removes, or would."""
        return Prunable(*self.snapshot.ask(_PRUNABLE).row(0))

    def locate(self, texts: str) -> tuple[set[str], set[str]]:
        """Find the files that contain the texts of a table with the column `text_hash`.

        Returns:
            The files that can be read, and the needed files that cannot be, for example because
                they are gone.
        """
        holders = self.snapshot.ask(sql(__name__, "locate.sql", texts=texts))
        readable = pl.col("status") == "read"
        return (
            set(holders.filter(readable).get_column("source_file")),
            set(holders.filter(~readable).get_column("source_file")),
        )


def detect_changes(
    snapshot: OpenSnapshot, scan: ArchiveScan, cache_by: Sequence[str], *, touches_all: bool
) -> ChangeDetection:
    """Find the traces that are new (late ones too), changed, removed or forgotten.

    Args:
        snapshot: the published tables.
        scan: the archive as it is now.
        cache_by: how traces share caches; see `cache_groups`.
        touches_all: whether to compare all rows, because the published rejects are not those of the
            published ledger, or traces share caches differently now.
    """
    to_forget = snapshot.staging.to_forget
    forgotten, without = statement("(SELECT '' AS trace_id WHERE false)"), statement("")
    if to_forget.exists():
        forgotten = read_parquet(to_forget)
        # Only then, because filtering all ids takes a while.
        without = statement("ANTI JOIN $ids AS gone USING (trace_id)", ids=forgotten)
    query = sql(
        __name__,
        "changes.sql",
        columns=columns(FACTS),
        staged=parquet_relation("facts", scan.facts),
        forgotten=forgotten,
        without=without,
        files=parquet_relation("files", [snapshot.staging.table("files")]),
    )
    set_variables(snapshot.connection, touches_all=touches_all, version=VERSION)
    snapshot.connection.execute(query)
    few = snapshot.ask("SELECT count(*) FROM touched_ids").item() <= _FEW
    kind = statement("TABLE") if few else statement("VIEW")
    snapshot.connection.execute(statement(_TOUCHED_ROWS, kind=kind))
    scores = snapshot.scores_of(snapshot.ask(_TOUCHED_DAYS).get_column("day"))
    group = group_of(cache_by)
    query = sql(__name__, "candidates.sql", scores=scores, without=without, cache_group=group)
    snapshot.connection.execute(query)
    snapshot.connection.execute(sql(__name__, "diff.sql", scores=scores))
    [counts] = snapshot.ask(_ROWS).iter_rows()
    return ChangeDetection(snapshot, ChangeSet(snapshot.ask(_BY_DAY), *counts))
