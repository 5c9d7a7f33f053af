"""Results of runs, and the state of a warehouse."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from kp_batch.arguments import typed
from kp_batch.python.calls import Duration, parsed
from kp_batch.text import parse_count, parse_duration

if TYPE_CHECKING:
    from kp_batch.operations.compare import Comparison
    from kp_batch.operations.current_settings import CurrentSettings
    from kp_batch.operations.status import WarehouseStatus
    from kp_batch.operations.verify import Verification
    from kp_batch.warehouse.audits import AuditResults

from kp_batch.python.methods.place import Place


@typed
class HistoryMethods(Place):
    """Look at the runs, and check what they left."""

    def runs(self) -> pl.DataFrame:
        """Return the runs, the newest first.

        Examples:
            >>> wh.runs().select("status", "note").rows()
            [('done', 'a smaller cache'), ('done', None)]
        """
        from kp_batch.duck import set_variables
        from kp_batch.operations.kept_runs import RUNS, available_runs
        from kp_batch.warehouse.answer_formats import frame_answer
        from kp_batch.warehouse.reader import connect

        with self._reading() as folder, connect(folder) as connection:
            set_variables(connection, **available_runs(folder).variables)
            return frame_answer(connection, RUNS)

    def compare(self, before: str, after: str, *, force: bool = False) -> "Comparison":
        """Compare the scores of two runs.

        Args:
            before: a run, as for `as_of`.
            after: the run to compare with it.
            force: compare even if encoders or formulas differ.

        Examples:
            >>> comparison = wh.compare("previous", "latest")
            >>> [reason.words for reason in comparison.changes]
            ['cache size 1000 → 100', 'audit no_perfect_score new']
        """
        from kp_batch.operations.compare import compare

        with self._reading() as folder:
            return compare(folder, before, after, force=force)

    def crossed(self, before: str, after: str, *, force: bool = False) -> pl.DataFrame:
        """Return the traces that reach the threshold in only one of two runs.

        The arguments are those of `compare`.

        Examples:
            >>> wh.crossed("previous", "latest").select("task_domain", "crossed").head(2).rows()
            [('customer_service', 'up'), ('finance', 'up')]
        """
        from kp_batch.operations.compare import compare

        frames: list[pl.DataFrame] = []
        with self._reading() as folder:
            compare(folder, before, after, force=force, take_crossed=frames.append)
        return frames[0]

    def audit(self, run: str | None = None) -> "AuditResults":
        """Run the warehouse's audits.

        Args:
            run: the run whose tables are audited, as for `as_of`; None: the last run.

        Raises:
            AuditError: an audit fails; `results` has all results.

        Examples:
            >>> wh.audit().to_polars().select("name", "state").rows()
            [('no_perfect_score', 'passes')]
        """
        from kp_batch.pipeline.audit import audit
        from kp_batch.warehouse.audits import refuse_failed

        with self._reading() as folder:
            results = audit(folder, run)
        refuse_failed(results, "what is published stays")
        return results

    def verify(
        self, *, sample: int = 100, seed: int | None = None, embed: bool = True
    ) -> "Verification":
        """Score some traces again, and compare with the published scores.

        Args:
            sample: how many traces to draw at random.
            seed: the same seed draws the same traces; None: a new one.
            embed: whether to embed their texts again, too.

        Raises:
            KpBatchError: a score differs, or there is no unchanged file.

        Examples:
            >>> found = wh.verify(sample=5, seed=1)
            >>> found.checked, found.differences.to_polars()["max_difference"].max()
            (5, 0.0)
        """
        from kp_batch.operations.verify import refuse_wrong, verify

        traces = parsed(parse_count, sample=sample)
        with self._reading() as folder:
            return refuse_wrong(verify(folder, traces=traces, seed=seed, embed=embed))

    def status(
        self, *, max_age: Duration | None = None, max_trace_age: Duration | None = None
    ) -> "WarehouseStatus":
        """Return the last run, the last success and the open warnings.

        Args:
            max_age: raise if the last success is older than this, such as `"26h"`, or missing.
            max_trace_age: raise if the newest trace is older than this, or missing.

        Examples:
            >>> success = wh.status(max_age="26h").last_success
            >>> success.status if success else None
            'done'
        """
        from kp_batch.operations.status import check_age, check_trace_age, status_of

        with self._called():
            found = status_of(self._folder, datetime.now(UTC), self._warehouse_id, self._project)
            check_age(found, parsed(parse_duration, max_age=max_age))
            check_trace_age(found, parsed(parse_duration, max_trace_age=max_trace_age))
            return found

    def settings(self) -> "CurrentSettings":
        """Return the settings of the next run, and where each comes from.

        Examples:
            >>> wh.settings().to_polars().filter(name="cache_size")["value"].item()
            '100'
        """
        from kp_batch.operations.current_settings import settings

        with self._reading() as folder:
            return settings(folder, self._project)
