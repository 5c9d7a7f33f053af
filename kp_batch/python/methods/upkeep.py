"""The upkeep of a warehouse, and exports."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kp_batch.arguments import typed
from kp_batch.python.calls import Duration, Several, parsed
from kp_batch.settings import field_of
from kp_batch.text import parse_keep
from kp_batch.warehouse.author import parse_note

if TYPE_CHECKING:
    from kp_batch.exports.export import ExportResult
    from kp_batch.operations.forget import ForgetResult
    from kp_batch.operations.migrate import MigrateResult
    from kp_batch.operations.rollback import RollbackResult
    from kp_batch.warehouse.vacuum_result import VacuumResult

from kp_batch.python.methods.place import Place


@typed
class UpkeepMethods(Place):
    """Export traces, and keep a warehouse correct, small and private."""

    def export(  # noqa: PLR0913 (each is an option)
        self,
        output: str | PathLike[str],
        *,
        format: str = "traces",  # noqa: A002 (the option's name)
        ids: Any = None,
        only_changed: str | None = None,
        min_score: float | None = None,
        domain: Several = (),
        since: str | date | None = None,
        until: str | date | None = None,
        success: bool = False,
        where: str | None = None,
        distinct: float | None = None,
        per: Mapping[str, int] | Several = (),
        top: int | None = None,
        include_private: bool = False,
        thoughts: bool = True,
        include_registry: bool = False,
        split: float | None = None,
        split_by: Literal["objective", "time"] = "objective",
        deleted: str | PathLike[str] | None = None,
        compare_with: str | PathLike[str] | None = None,
    ) -> "ExportResult":
        """Export traces with their scores.

        Args:
            output: the file, such as `"best.jsonl"`.
            format: what to write for each trace: `"traces"`, `"messages"` or `"registry"`; or its
                score alone: `"langfuse"`, `"langsmith"`, `"phoenix"`, `"inspect"`, `"otel"` or
                `"csv"`.
            ids: only these traces: ids, a frame with the column trace_id or id, or a file.
            only_changed: only traces that are new since this run, or whose score or scoring
                settings changed.
            min_score: the lowest score; None: the threshold, or 0 for scores alone.
            domain: only these domains; empty: all.
            since: only traces made on this day or later, in UTC, such as `"2026-01-31"`.
            until: only traces made on this day or earlier.
            success: only successful traces.
            where: a condition on the view `scores`, in SQL.
            distinct: leave out traces at least this similar to a better one; 1: equal texts.
            per: only the best traces for each value of a column, such as `{"task_domain": 125}` or
                `{"objective": 1}`.
            top: only the best traces, at most this many.
            include_private: whether to export private traces, too.
            thoughts: whether messages include the model's reasoning.
            include_registry: whether to export traces from a registry to a registry.
            split: the share of the traces to write to NAME.train; the others go to NAME.test.
            split_by: `"objective"` keeps each task in one file; `"time"` puts the older traces in
                NAME.train.
            deleted: a file for the ids of scores to delete: those of traces in `only_changed` or
                `ids` that have no score now.
            compare_with: an earlier export; the result reports which traces entered and left, and
                why.

        Examples:
            >>> result = wh.export("best.jsonl", min_score=0.7, domain="code")
            >>> result.exported, result.private
            (12, 6)
        """
        from kp_batch.exports.export import export_to
        from kp_batch.exports.export_options import ExportOptions

        options = {
            "format": format,
            "no_thoughts": not thoughts,
            "min_score": min_score,
            "domain": domain,
            "since": since,
            "until": until,
            "success": success,
            "where": where,
            "distinct": distinct,
            "per": per,
            "top": top,
            "include_private": include_private,
            "include_registry": include_registry,
            "ids": ids,
            "only_changed": only_changed,
            "split": split,
            "split_by": split_by,
            "deleted": deleted,
            "compare_with": compare_with,
        }
        with self._reading() as folder:
            return export_to(folder, ExportOptions.checked(options, field_of), Path(output))

    def rollback(
        self, run: str, *, note: str | None = None, dry_run: bool = False
    ) -> "RollbackResult":
        """Publish the tables of an earlier run again.

        Args:
            run: the run to publish again, as for `as_of`.
            note: a line to store with the run.
            dry_run: return what would be undone, and change nothing.

        Examples:
            >>> undone = wh.rollback("previous", note="the cache was too small")
            >>> undone.rescored, [reason.words for reason in undone.rolled_back.undone]
            (141, ['cache size 100 → 1000', 'audit no_perfect_score gone'])
        """
        from kp_batch.operations.rollback import excluded_by, plan_rollback, rollback

        with self._reading() as folder:
            if dry_run:
                return plan_rollback(folder, run, excluded_by(self._project, folder))
            return rollback(folder, run, note=parsed(parse_note, note=note))

    def forget(
        self,
        *ids: str,
        unseen_too: bool = False,
        note: str | None = None,
        dry_run: bool = False,
    ) -> "ForgetResult":
        """Remove traces for good.

        Args:
            ids: the ids of the traces.
            unseen_too: keep unknown ids out of later runs, instead of failing.
            note: a line to store with the run.
            dry_run: return what would be done, and change nothing.

        Examples:
            >>> forgotten = wh.forget("kp:trace:5e14f46f-99e5-5efb-87a4-c2889ebb1b6b")
            >>> forgotten.traces
            1
        """
        from kp_batch.operations.forget import forget

        line = parsed(parse_note, note=note)
        with self._reading() as folder:
            return forget(folder, ids, unseen_too=unseen_too, note=line, dry_run=dry_run)

    def vacuum(self, *, keep: Duration = "30d", dry_run: bool = False) -> "VacuumResult":
        """Remove old versions, unused vectors, and the raw rows of old rejects.

        Args:
            keep: how long `as_of` can read the tables of a run.
            dry_run: return what would be removed, and change nothing.

        Examples:
            >>> wh.vacuum(keep="90d", dry_run=True).files
            0
        """
        from kp_batch.pipeline.vacuum import vacuum

        period = parsed(parse_keep, keep=keep)
        with self._reading() as folder:
            return vacuum(folder, period, datetime.now(UTC), dry_run=dry_run)

    def migrate(self, *, dry_run: bool = False) -> "MigrateResult":
        """Upgrade the warehouse to the format of this version; see `kp-batch migrate`.

        Args:
            dry_run: show what would be done, and change nothing.

        Examples:
            >>> wh.migrate().to_format
            20
        """
        from kp_batch.operations.migrate import migrate

        with self._called():
            return migrate(self._folder, self._warehouse_id, dry_run=dry_run)
