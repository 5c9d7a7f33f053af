"""Runs, and what they would do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kp_batch.arguments import typed
from kp_batch.operations.preview import Preview
from kp_batch.python.calls import Archive, Duration, Setting, Several, show_settings
from kp_batch.report.run_summary import Summary, with_all_domains
from kp_batch.settings import field_of
from kp_batch.text import in_utc

if TYPE_CHECKING:
    from kp_batch.operations.fit_result import WeightFit
    from kp_batch.operations.sweep_result import Sweep
    from kp_batch.planning.explain_plan import PlanDescription

from kp_batch.python.methods.place import Place


@typed
class RunMethods(Place):
    """Run, and show what a run would do."""

    def run(self, *archive: Archive, prefect: bool = False, **settings: Setting) -> Summary:
        """Rescore an archive.

        Args:
            archive: files, folders, globs or URLs; by default, the project's, or the last run's.
            prefect: whether to run as a Prefect flow.
            settings: settings of the run; if left out, those of the warehouse stay.

        Examples:
            >>> wh.run("archive").status
            'nothing_to_do'
            >>> audits = {"no_perfect_score": {"sql": "FROM scores WHERE score = 1"}}
            >>> run = wh.run(cache_size=100, audits=audits, note="a smaller cache")
            >>> run.status, run.warnings
            ('done', ())
        """
        return cast("Summary", self._start(archive, settings, prefect=prefect))

    def preview(self, *archive: Archive, prefect: bool = False, **settings: Setting) -> Preview:
        """Do the work of a run, publish nothing, and show how the scores would change.

        Args:
            archive: see `run`.
            prefect: see `run`.
            settings: see `run`.

        Raises:
            AuditError: audits would refuse the run; see its `results`.

        Examples:
            >>> moved = wh.preview("archive", cache_size=10).moved.to_polars()
            >>> moved.select("task_domain", pl.col("change").round(3)).head(2).rows()
            [('default', 0.164), ('code', 0.16)]
        """
        return cast("Preview", self._start(archive, settings, preview=True, prefect=prefect))

    def plan(self, *archive: Archive, **settings: Setting) -> "PlanDescription":
        """Show what a run would do, and why. Changes nothing.

        Args:
            archive: see `run`.
            settings: see `run`.

        Examples:
            >>> plan = wh.plan(ttl="1d")
            >>> [reason.words for reason in plan.reasons], plan.traces_to_replay
            (['ttl none → 1d'], 575)
        """
        from kp_batch.operations.preview import plan

        with self._called():
            return plan(self._config(archive, settings), by_domain_and_day=True)

    def sweep(
        self,
        *,
        cache_by: str | Sequence[Several | None] = (),
        cache_size: int | Sequence[int] = (),
        ttl: Duration | Sequence[Duration | None] = (),
        threshold: float | Sequence[float] = (),
    ) -> "Sweep":
        """Show the effect of other caches and thresholds. Changes nothing.

        Args:
            cache_by: which traces share a cache; None: all.
            cache_size: how many vectors a cache holds.
            ttl: how long a vector stays in a cache; None: no limit.
            threshold: the threshold, 0 to 1.

        Examples:
            >>> sweep = wh.sweep(cache_size=[50, 1000]).variants.to_polars()
            >>> of_all = sweep.filter(pl.col("task_domain").is_null())
            >>> of_all.select("cache_size", pl.col("mean_novelty").round(3), "at_threshold").rows()
            [(50, 0.255, 42), (100, 0.244, 37), (1000, 0.214, 30)]
        """
        from kp_batch.operations.sweep import sweep
        from kp_batch.operations.sweep_values import SweepValues

        values = {"cache_by": cache_by, "cache_size": cache_size, "ttl": ttl}
        wanted = SweepValues.checked({**values, "threshold": threshold}, field_of)
        with self._reading() as folder:
            return sweep(folder, wanted)

    def fit_weights(
        self,
        labels: Any,
        *,
        profiles: str | PathLike[str] | None = None,
        valid_from: datetime | None = None,
        output: str | PathLike[str] | None = None,
        suggest: int = 0,
    ) -> "WeightFit":
        """Find the weights that order labels best, and test them on labels held out.

        Args:
            labels: a file, a frame, or mappings, with `trace_id`, `label` (yes or no, or a number)
                and perhaps `weight`.
            profiles: a TOML file of weights to compare with; None: those of the warehouse.
            valid_from: the time from which fitted weights apply; None: at all times.
            output: a TOML file to write all profiles to; None: none.
            suggest: how many traces to suggest for labelling next, each of another task.

        Examples:
            >>> verdict = (pl.col("outcome_confidence") > 0.5) & (pl.col("novelty") < 0.8)
            >>> labels = wh.scores().select("trace_id", label=verdict).collect()
            >>> fit = wh.fit_weights(labels)
            >>> fit.measure, fit.labels, fit.changed
            ('AUC', 600, ())
        """
        from kp_batch.operations.fit import FitOptions, fit_weights

        options = FitOptions(
            Path(profiles) if profiles else None,
            in_utc(valid_from) if valid_from else None,
            Path(output) if output else None,
            suggest,
        )
        with self._reading() as folder:
            return fit_weights(folder, labels, options)

    def _start(
        self,
        archive: Sequence[Any],
        settings: Mapping[str, Any],
        *,
        prefect: bool,
        preview: bool = False,
    ) -> Summary | Preview:
        """Run, or preview."""
        from kp_batch.start import make_place, start

        results: list[Summary | Preview] = []
        with self._called() as texts:
            config = self._config(archive, settings, preview=preview)
            make_place(config)
            start(config, results.append, prefect=prefect)
            result = results[-1]
            if isinstance(result, Summary):
                result = with_all_domains(config.warehouse, result)
            return replace(result, warnings=tuple(texts))


show_settings(RunMethods.run)
show_settings(RunMethods.preview, "keep", "report")
show_settings(RunMethods.plan, "ray", "wait", "keep", "report", "note")
