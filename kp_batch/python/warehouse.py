"""A warehouse in Python: the commands of the command line as methods, and its tables as frames."""

import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from os import PathLike
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import polars as pl

from kp_batch.errors import SettingError
from kp_batch.faults import unknown_key
from kp_batch.operations.outcome import Awaited, PreviewOutcome, RunOutcome
from kp_batch.project import Project as ProjectFile
from kp_batch.project import load_project
from kp_batch.python.calls import Profiles, Settings, Several, called, config_of
from kp_batch.settings import PROJECT_FILE
from kp_batch.storage.urls import is_url
from kp_batch.text import parse_duration
from kp_batch.warehouse.bucket.location import folder_of, shown

if TYPE_CHECKING:
    from altair.typing import ChartType

    from kp_batch.config import RescoreConfig
    from kp_batch.operations.compare import Comparison
    from kp_batch.operations.explanation import Explanation
    from kp_batch.operations.export import ExportResult
    from kp_batch.operations.forget import ForgetResult
    from kp_batch.operations.rollback import RollbackResult
    from kp_batch.operations.score import ScoredLines
    from kp_batch.operations.settings import SettingsInForce
    from kp_batch.operations.similar import SimilarLines, SimilarTraces
    from kp_batch.operations.status import WarehouseStatus
    from kp_batch.operations.sweep_result import Sweep
    from kp_batch.operations.vacuum import VacuumResult
    from kp_batch.operations.verify import Verification
    from kp_batch.planning.explain_plan import PlanDescription
    from kp_batch.runs.audits import AuditResults
    from kp_batch.warehouse.redundancy import Redundancy
    from kp_batch.warehouse.snapshot import PublishedSnapshot

Trace = Mapping[str, Any]
Duration = str | timedelta


class Warehouse:
    """A warehouse: a folder of scored tables, or its URL in a bucket.

    It need not be there: the first `run` makes it. All is done in this process, and nothing is
    printed; every method raises a `KpBatchError` where it fails.

    Args:
        place: the folder, or the URL.
        progress: whether bars are shown, in a notebook or on stderr.

    Examples:
        >>> wh.scores().select(pl.len(), pl.mean("score").round(3)).collect().rows()
        [(400, 0.529)]
    """

    def __init__(self, place: str | PathLike[str], *, progress: bool = False) -> None:
        folder_of(place)
        self._place = place if is_url(str(place)) else Path(folder_of(place)).absolute()
        self._progress = progress

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self._folder)!r})"

    def __fspath__(self) -> str:
        """Its folder: what takes that, such as a `Session`, takes a warehouse as well."""
        return str(self._folder)

    # A run, and what it would do.

    def run(
        self, *archive: str | PathLike[str], prefect: bool = False, **settings: Unpack[Settings]
    ) -> RunOutcome:
        """Rescore an archive: Parquet or JSONL files, folders, globs or URLs.

        Args:
            archive: left out, it is that of the project, or of the last run.
            prefect: whether to run as a Prefect flow.
            settings: what is left out stays as the warehouse has it.

        Raises:
            KpBatchError: it failed, and published no scores.

        Examples:
            >>> wh.run("archive").status
            'nothing_to_do'
            >>> audits = {"no_perfect_score": {"sql": "FROM scores WHERE score = 1"}}
            >>> run = wh.run(cache_size=100, audits=audits, note="a smaller cache")
            >>> run.status, run.warnings
            ('done', ())
        """
        return cast("RunOutcome", self._start(archive, settings, prefect=prefect))

    def preview(
        self, *archive: str | PathLike[str], prefect: bool = False, **settings: Unpack[Settings]
    ) -> PreviewOutcome:
        """Do all the work of a run and publish nothing: how the scores would move.

        Args:
            archive: as of `run`.
            prefect: likewise.
            settings: likewise.

        Raises:
            AuditError: audits would refuse it; `results` has what they found.
            KpBatchError: it would fail.

        Examples:
            >>> code = kp.load_profiles().as_json()["code"]
            >>> weights = {"code": code | {"novelty": 0.2, "outcome_confidence": 0.3}}
            >>> preview = wh.preview("archive", profiles=weights)
            >>> preview.changes, [audit.state for audit in preview.audits]
            (True, ['passes'])
            >>> preview.moved.select("task_domain", pl.col("change").round(3)).head(2).rows()
            [('code', 0.098), ('code', 0.098)]
        """
        return cast("PreviewOutcome", self._start(archive, settings, preview=True, prefect=prefect))

    def plan(
        self, *archive: str | PathLike[str], **settings: Unpack[Settings]
    ) -> "PlanDescription":
        """Tell what a run would do, and why; nothing changes.

        Args:
            archive: as of `run`.
            settings: likewise.

        Examples:
            >>> plan = wh.plan(ttl="1d")
            >>> [reason.words for reason in plan.reasons], plan.traces_to_replay
            (['ttl none → 1d'], 381)
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
        """Tell what other caches and thresholds would do to the scores; nothing changes.

        Every combination is compared with the one in force; what is left out stays as it is.

        Args:
            cache_by: whose traces share a cache; None: all of them.
            cache_size: vectors.
            ttl: times to live, such as "12h"; None: no limit.
            threshold: scores worth sharing.

        Examples:
            >>> sweep = wh.sweep(cache_size=[50, 1000]).to_polars()
            >>> of_all = sweep.filter(pl.col("task_domain").is_null())
            >>> of_all.select("cache_size", pl.col("mean_novelty").round(3), "worth_sharing").rows()
            [(50, 0.261, 36), (100, 0.249, 34), (1000, 0.221, 32)]
        """
        from kp_batch.operations.sweep import sweep

        by, sizes = _each("cache_by", cache_by), _each("cache_size", cache_size)
        ttls, thresholds = _each("ttl", ttl), _each("threshold", threshold)
        with self._reading() as folder:
            return sweep(folder, cache_by=by, sizes=sizes, ttls=ttls, thresholds=thresholds)

    # Its tables, and questions to them.

    def scores(self, as_of: str | None = None) -> pl.LazyFrame:
        """One row a trace: its four dimensions, its score, and why it was novel or not.

        Args:
            as_of: the table as that run left it: its id, the beginning of it, latest, previous, a
                time, or candidate. None: as it is published now.

        Returns:
            The view `scores`; times in UTC. Runs after this call change nothing of it.

        Examples:
            >>> by_domain = wh.scores().group_by("task_domain").agg(pl.mean("score").round(3))
            >>> by_domain.sort("score").head(2).collect().rows()
            [('legal', 0.392), ('finance', 0.493)]
            >>> wh.scores(as_of="previous").select(pl.mean("novelty").round(3)).collect().item()
            0.221
        """
        return self._table("scores", as_of)

    def rejects(self, as_of: str | None = None) -> pl.LazyFrame:
        """One row for each row or file that could not be scored, with all reasons.

        Args:
            as_of: as of `scores`.

        Examples:
            >>> wh.rejects().select("source_file", "reasons", "message").collect().rows()
            []
        """
        return self._table("rejects", as_of)

    def profiles(self, as_of: str | None = None) -> pl.LazyFrame:
        """The weights of every profile.

        Args:
            as_of: as of `scores`.

        Examples:
            >>> wh.profiles().filter(pl.col("name") == "code").select("novelty").collect().rows()
            [(0.3,)]
        """
        return self._table("profiles", as_of)

    def files(self, as_of: str | None = None) -> pl.LazyFrame:
        """The ledger: one row for each file that was ever read.

        Args:
            as_of: as of `scores`.

        Examples:
            >>> wh.files().select(pl.len(), pl.sum("rows")).collect().rows()
            [(21, 400)]
        """
        return self._table("files", as_of)

    def distributions(self, as_of: str | None = None) -> pl.LazyFrame:
        """How the scores of each domain were distributed when each run had ended.

        Args:
            as_of: as of `scores`.

        Examples:
            >>> of_code = wh.distributions().filter(pl.col("task_domain") == "code")
            >>> of_code.select("traces", pl.col("mean").round(3)).collect().rows()
            [(79, 0.57), (79, 0.578)]
        """
        return self._table("distributions", as_of)

    def sql(self, query: str, as_of: str | None = None) -> pl.DataFrame:
        """The answer to a query of the views, in DuckDB's SQL.

        Args:
            query: one question; statements before it may prepare it.
            as_of: as of `scores`.

        Examples:
            >>> wh.sql("SELECT task_domain, round(mean, 3) FROM scores_by_domain LIMIT 2").rows()
            [('code', 0.578), ('customer_service', 0.54)]
        """
        from kp_batch.warehouse.answers import frame_answer
        from kp_batch.warehouse.reader import connect

        with self._reading() as folder, connect(folder, as_of) as connection:
            return frame_answer(connection, query)

    def ask(
        self, question: str, *values: Any, as_of: str | None = None, **named: Any
    ) -> pl.DataFrame:
        """The answer to one of the named questions; see `questions`.

        Args:
            question: its name.
            values: of its parameters, in their order. Columns are texts, or lists of texts:
                `wh.ask("means_by", ["task_domain", "agent_id"])`; and so are the names of runs.
            as_of: as of `scores`.
            named: further values, by their names.

        Examples:
            >>> wh.ask("near_duplicates", 0.99).height
            79
            >>> halves = wh.ask("score_histogram", bins=2).filter(task_domain="code")
            >>> halves.select("low", "traces").rows()
            [(0.0, 15), (0.5, 64)]
        """
        from kp_batch.operations.ask import ask

        with self._snapshot(as_of) as snapshot:
            return ask(snapshot, question, values, named)

    def questions(self) -> pl.DataFrame:
        """The named questions: group, name, call with its parameters, comment, example.

        Examples:
            >>> wh.questions().filter(pl.col("name") == "near_duplicates")["call"].item()
            'near_duplicates(similarity)'
        """
        from kp_batch.warehouse.questions import questions

        return pl.DataFrame(questions())

    def report(self, format: Literal["html", "markdown", "json"] = "html") -> str:  # noqa: A002 (the option's name)
        """The report on the scores: one page, or its words and numbers.

        Args:
            format: html is a page that needs nothing else.

        Examples:
            >>> wh.report("markdown").splitlines()[0]
            '# Scores of reasoning traces'
        """
        from kp_batch.pipeline.report import report

        if format not in {"html", "markdown", "json"}:
            raise SettingError(f"format {format!r} is none; choose html, markdown or json")
        with self._reading() as folder:
            return report(folder, format)

    def chart(self, name: str, domain: str | None = None) -> "ChartType":
        """A chart of the report in Altair, with its rows: to show, to save, or to change.

        Args:
            name: that of the question which it shows: scores_by_domain, scores_by_agent,
                scores_by_week, ...; the error of an unknown one lists all.
            domain: of which it is; None: of all together.

        Examples:
            >>> chart = wh.chart("scores_by_week", domain="code")
            >>> chart.save("scores.html")
            >>> chart.to_dict()["title"]["text"]
            'Score and novelty over time'
        """
        from kp_batch.operations.chart import chart

        with self._reading() as folder:
            return chart(folder, name, domain)

    # A trace.

    def explain(self, trace: str, *, candidate: bool = False) -> "Explanation":
        """Explain the score of a trace, and which traces it resembled.

        Args:
            trace: its id, or the beginning of it.
            candidate: the score that the last run did not publish.

        Examples:
            >>> found = wh.explain("5e14f46f")
            >>> found.terms.select("dimension", pl.col("product").round(3)).rows()[:2]
            [('complexity', 0.091), ('novelty', 0.012)]
            >>> found.traces_met.select("task_domain", pl.col("similarity").round(3)).rows()[:2]
            [('code', 0.961), ('code', 0.907)]
        """
        from kp_batch.operations.explain import explain

        with self._reading() as folder:
            return explain(folder, trace, candidate=candidate)

    @overload
    def similar(self, trace: str, *, most: int = 10) -> "SimilarTraces": ...

    @overload
    def similar(self, trace: Trace | Iterable[Trace], *, most: int = 10) -> "SimilarLines": ...

    def similar(
        self, trace: str | Trace | Iterable[Trace], *, most: int = 10
    ) -> "SimilarTraces | SimilarLines":
        """Find the traces of the whole archive, earlier and later, that one resembles most.

        Args:
            trace: an id or the beginning of one; or a new trace, or several, which give a list with
                `to_polars`.
            most: how many are listed at the most.

        Examples:
            >>> found = wh.similar("5e14f46f", most=2)
            >>> found.to_polars().select("is_same_text", pl.col("similarity").round(2)).rows()
            [(False, 0.96), (False, 0.91)]
        """
        from kp_batch.operations.similar import SimilarLines, similar_to_lines, similar_to_trace

        _check(most=most >= 1)
        with self._reading() as folder:
            if isinstance(trace, str):
                return similar_to_trace(folder, trace, most)
            lines = similar_to_lines(folder, _lines(trace), datetime.now(UTC), most)
            return SimilarLines(lines)

    def score(
        self,
        traces: Trace | Iterable[Trace],
        *,
        profiles: Profiles | None = None,
        at: datetime | None = None,
        group: Mapping[str, str | None] | None = None,
    ) -> "ScoredLines":
        """Score new traces, each as if it came next; the warehouse stays as it is.

        Args:
            traces: one, or several, or a frame of them.
            profiles: the weights; None: those of the warehouse.
            at: when they come; None: now.
            group: values that choose their caches, in place of their own.

        Returns:
            A list: of each `Scored`, or `Unscored` with its reasons; `to_polars` makes it a frame.

        Examples:
            >>> [getattr(each, "score", None) for each in wh.score([trace, {}])]
            [0.56..., None]
        """
        from kp_batch.operations.score import ScoredLines, score_lines
        from kp_batch.operations.warehouse_cache import scoring

        weights = config_of({"warehouse": "", "profiles": profiles}).profiles if profiles else None
        moment = _in_utc(at or datetime.now(UTC))
        with self._reading() as folder, scoring(folder, weights, moment, group or {}) as scorer:
            return ScoredLines(score_lines(_lines(traces), scorer[0], moment, scorer[1]))

    def redundancy(self, *, similarity: float = 0.95) -> "Redundancy":
        """Find the share of the traces that nearly repeat any earlier one of the archive.

        Args:
            similarity: the cosine from which on one does, above 0, up to 1.

        Examples:
            >>> redundancy = wh.redundancy(similarity=0.95)
            >>> redundancy.same_text, redundancy.repeats
            (79, 8)
        """
        from kp_batch.operations.redundancy import redundancy

        _check(similarity=0 < similarity <= 1)
        with self._reading() as folder:
            return redundancy(folder, similarity)

    # Runs, and what became of them.

    def runs(self) -> pl.DataFrame:
        """The runs, the last one first: what each changed, or why it failed.

        `kept` is as-of where its tables can be read, and rollback where they can be published
        again, too.

        Examples:
            >>> wh.runs().select("status", "note").rows()
            [('done', 'a smaller cache'), ('done', None)]
        """
        from kp_batch.duck import set_variables
        from kp_batch.operations.kept_runs import RUNS, available_runs
        from kp_batch.warehouse.answers import frame_answer
        from kp_batch.warehouse.reader import connect

        with self._reading() as folder, connect(folder) as connection:
            set_variables(connection, **available_runs(folder).variables)
            return frame_answer(connection, RUNS)

    def compare(self, first: str, second: str, *, force: bool = False) -> "Comparison":
        """Tell how the scores moved from one run to another, and what moved them.

        Args:
            first: the earlier run, named as of `scores`.
            second: the later one.
            force: compare different encoders or formulas, too.

        Examples:
            >>> comparison = wh.compare("previous", "latest")
            >>> [reason.words for reason in comparison.changes]
            ['cache size 1000 → 100', 'audit no_perfect_score new']
            >>> comparison.by_domain.height, comparison.moved.height
            (7, 87)
        """
        from kp_batch.operations.compare import compare

        with self._reading() as folder:
            return compare(folder, first, second, force=force)

    def crossed(self, first: str, second: str, *, force: bool = False) -> pl.DataFrame:
        """The traces that crossed the threshold from one run to another.

        Args:
            first: as of `compare`.
            second: likewise.
            force: likewise.

        Examples:
            >>> wh.crossed("previous", "latest").select("task_domain", "crossed").rows()
            [('medical', 'up'), ('medical', 'up')]
        """
        from kp_batch.operations.compare import compare

        frames: list[pl.DataFrame] = []
        with self._reading() as folder:
            compare(folder, first, second, force=force, take_crossed=frames.append)
        return frames[0]

    def audit(self, run: str | None = None) -> "AuditResults":
        """Run the audits that the warehouse keeps.

        Args:
            run: over what it left, named as of `scores`; None: over what is published.

        Raises:
            AuditError: one fails; `results` has all.

        Examples:
            >>> wh.audit().to_polars().select("name", "state").rows()
            [('no_perfect_score', 'passes')]
        """
        from kp_batch.pipeline.audit import audit
        from kp_batch.runs.audits import refuse_failed

        with self._reading() as folder:
            results = audit(folder, run)
        refuse_failed(results, "what is published stays")
        return results

    def verify(
        self, *, sample: int = 100, seed: int | None = None, embed: bool = True
    ) -> "Verification":
        """Compute some traces from scratch, from their files, and compare.

        Args:
            sample: how many traces, drawn by chance.
            seed: draws the same ones again; None: others each time.
            embed: embed their texts again, too.

        Raises:
            KpBatchError: any differs, or no file of them is there as it was.

        Examples:
            >>> found = wh.verify(sample=5, seed=1)
            >>> found.checked, found.to_polars()["max_difference"].max()
            (5, 0.0)
        """
        from kp_batch.operations.verify import refuse_wrong, verify

        _check(sample=sample >= 1)
        seed = randbelow(10**6) if seed is None else seed
        with self._reading() as folder:
            return refuse_wrong(verify(folder, traces=sample, seed=seed, embed=embed))

    def status(
        self, *, max_age: Duration | None = None, max_trace_age: Duration | None = None
    ) -> "WarehouseStatus":
        """Tell how the last run ended, when one was last done, and what stands since.

        Args:
            max_age: fail if the last success is longer ago, as "26h", or there is none.
            max_trace_age: fail if the newest trace is older, as "3d", or there is none.

        Examples:
            >>> success = wh.status(max_age="26h").last_success
            >>> success.status if success else None
            'done'
        """
        from kp_batch.operations.status import check_age, check_trace_age, status_of

        with self._called():
            found = status_of(self._folder, datetime.now(UTC), self._warehouse_id, self._project)
            check_age(found, _duration("max_age", max_age))
            check_trace_age(found, _duration("max_trace_age", max_trace_age))
            return found

    def settings(self) -> "SettingsInForce":
        """What the next run computes scores with, where it takes it from, and which run set it.

        Examples:
            >>> wh.settings().to_polars().filter(name="cache_size")["value"].item()
            '100'
        """
        from kp_batch.operations.settings import settings

        with self._reading() as folder:
            return settings(folder, self._project)

    # Its upkeep, and what goes out of it.

    def export(  # noqa: PLR0913 (each is an option)
        self,
        output: str | PathLike[str],
        *,
        min_score: float | None = None,
        domain: Several = (),
        since: str | date | None = None,
        until: str | date | None = None,
        where: str | None = None,
        distinct: float | None = None,
        top: int | None = None,
        include_private: bool = False,
    ) -> "ExportResult":
        """Write traces with their scores, by default those that are worth sharing.

        Args:
            output: FILE.jsonl or FILE.parquet.
            min_score: the least score; None: the threshold of the warehouse.
            domain: of these domains; empty: of any.
            since: made on that day or later, in UTC, such as "2026-01-31".
            until: made on that day or earlier.
            where: a condition on the view scores, in SQL.
            distinct: leave out what resembles a better one that much; 1: equal texts.
            top: the best ones of what is left.
            include_private: private traces, too.

        Examples:
            >>> result = wh.export("best.jsonl", min_score=0.7, domain="code")
            >>> result.exported, result.private
            (6, 8)
        """
        from kp_batch.operations.export import ExportFilter, export_to

        domains = (domain,) if isinstance(domain, str) else domain
        days = (_day("since", since), _day("until", until))
        wanted = (min_score, domains, *days, where, distinct, top, include_private)
        with self._reading() as folder:
            return export_to(folder, ExportFilter(*wanted), Path(output))

    def rollback(
        self, run: str, *, note: str | None = None, dry_run: bool = False
    ) -> "RollbackResult":
        """Publish again what a run left: its scores, rejects, files and settings.

        Args:
            run: named as of `scores`.
            note: a line to keep with it.
            dry_run: tell what would be undone; nothing changes.

        Examples:
            >>> undone = wh.rollback("previous", note="the cache was too small")
            >>> undone.rescored, [reason.words for reason in undone.settings]
            (87, ['cache size 100 → 1000', 'audit no_perfect_score gone'])
        """
        from kp_batch.operations.rollback import excluded_by, plan_rollback, rollback

        with self._reading() as folder:
            if dry_run:
                return plan_rollback(folder, run, excluded_by(self._project, folder))
            return rollback(folder, run, note=_note(note), with_page=True)

    def forget(
        self,
        *ids: str,
        unseen_too: bool = False,
        note: str | None = None,
        dry_run: bool = False,
    ) -> "ForgetResult":
        """Remove traces for good, as if they had never been in the archive.

        Args:
            ids: of the traces.
            unseen_too: keep ids out of later runs that were never seen.
            note: a line to keep with the run.
            dry_run: tell what would be done; nothing changes.

        Examples:
            >>> forgotten = wh.forget("kp:trace:5e14f46f-99e5-5efb-87a4-c2889ebb1b6b")
            >>> forgotten.traces
            1
        """
        from kp_batch.operations.forget import forget

        choices = {"unseen_too": unseen_too, "note": _note(note), "dry_run": dry_run}
        with self._reading() as folder:
            return forget(folder, ids, with_page=True, **choices)

    def vacuum(self, *, keep: Duration = "30d", dry_run: bool = False) -> "VacuumResult":
        """Remove old versions, vectors that nothing needs, and the raw rows of old rejects.

        Args:
            keep: what runs of this time left stays readable.
            dry_run: tell what would be removed; nothing changes.

        Examples:
            >>> wh.vacuum(keep="90d", dry_run=True).files
            0
        """
        from kp_batch.operations.vacuum import parse_keep, vacuum

        with self._reading() as folder:
            return vacuum(folder, parse_keep(keep), datetime.now(UTC), dry_run=dry_run)

    @property
    def _folder(self) -> Path:
        """Of the tables; of a bucket that of its copy, which depends on the environment."""
        return Path(folder_of(self._place))

    @property
    def _project(self) -> ProjectFile | None:
        return None

    @property
    def _warehouse_id(self) -> str | None:
        return None

    def _config(
        self, archive: Sequence[Any], settings: Mapping[str, Any], *, preview: bool = False
    ) -> "RescoreConfig":
        """The settings of a run.

        Raises:
            SettingError: others than `Settings` are given, as another warehouse, or one cannot be.
        """
        known = Settings.__annotations__
        if unknown := [unknown_key("", name, known) for name in settings if name not in known]:
            raise SettingError("; ".join(unknown))
        place = {"warehouse": self._folder, "archive": archive, "project": self._project}
        return config_of({**place, "preview": preview, **settings})

    def _start(
        self,
        archive: Sequence[Any],
        settings: Mapping[str, Any],
        *,
        prefect: bool,
        preview: bool = False,
    ) -> RunOutcome | PreviewOutcome:
        """Run, or preview."""
        from kp_batch.start import make_place, start

        results: list[Any] = []
        with self._called() as told:
            config = self._config(archive, settings, preview=preview)
            began = datetime.now(UTC).timestamp()
            make_place(config)
            start(config, results.append, prefect=prefect)
            awaited = Awaited(config.warehouse, config.preview, began, tuple(told))
            return awaited.outcome_of(results[-1])

    @contextmanager
    def _called(self) -> Generator[list[str]]:
        with called(progress=self._progress) as warnings:
            yield warnings

    @contextmanager
    def _reading(self) -> Generator[Path]:
        """The folder of the tables; of a bucket the local copy, made equal to it."""
        from kp_batch.warehouse.bucket.mirror import refresh
        from kp_batch.warehouse.manifest import check_identity, require_manifest

        with self._called() as told:
            refresh(self._folder)
            check_identity(self._folder, self._warehouse_id)
            require_manifest(self._folder)
            yield self._folder
        for text in told:  # no result has these
            warnings.warn(text, stacklevel=4)

    @contextmanager
    def _snapshot(self, as_of: str | None) -> Generator["PublishedSnapshot"]:
        from kp_batch.warehouse.snapshot import published

        with self._reading() as folder:
            yield published(folder, as_of)

    def _table(self, name: str, as_of: str | None) -> pl.LazyFrame:
        from kp_batch.warehouse.lazy import lazy_view

        with self._snapshot(as_of) as snapshot:
            return lazy_view(snapshot, name)


class Project(Warehouse):
    """The warehouse of a project, whose file has its archive, its settings and its limits.

    The file is read at each call, so that what is changed in it holds from then on.

    Args:
        file: a kp_batch.toml.
        progress: as of `Warehouse`.

    Raises:
        SettingError: the file is missing or has faults, or names no warehouse.

    Examples:
        >>> project = kp.Project()
        >>> project.run().status
        'nothing_to_do'
    """

    def __init__(self, file: str | PathLike[str] = PROJECT_FILE, *, progress: bool = False) -> None:
        self._file = Path(file).expanduser().absolute()
        super().__init__(self._named(self._project), progress=progress)

    @property
    def _project(self) -> ProjectFile:
        """The file as it is now: it may be edited while a notebook is open."""
        return load_project(self._file)

    @property
    def _folder(self) -> Path:
        return Path(folder_of(self._named(self._project)))

    @property
    def _warehouse_id(self) -> str | None:
        return self._project.warehouse_id

    @staticmethod
    def _named(project: ProjectFile) -> str:
        if project.warehouse is None:
            raise SettingError(f'{project.name} names no warehouse: add a line warehouse = "..."')
        return project.warehouse


def _each(name: str, values: Any) -> list[Any]:
    """The values of a setting, of which one may stand alone, as the warehouse keeps them."""
    several = values if isinstance(values, (list, tuple)) else [values]
    return [config_of({"warehouse": "", name: value}).settings[name] for value in several]


def _check(**holds: bool) -> None:
    """Refuse values that cannot be.

    Raises:
        SettingError: one cannot.
    """
    bounds = {"similarity": "above 0, up to 1"}
    for name in (name for name, is_held in holds.items() if not is_held):
        raise SettingError(f"{name} is {bounds.get(name, 'at least 1')}")


def _duration(name: str, value: Duration | None) -> timedelta | None:
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from error


def _lines(traces: Trace | Iterable[Trace]) -> BytesIO:
    from kp_batch.python.frames import lines

    return BytesIO(b"".join(lines(traces)))


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _day(name: str, day: str | date | None) -> str | None:
    if isinstance(day, datetime):
        day = _in_utc(day).astimezone(UTC).date()
    try:
        return None if day is None else str(date.fromisoformat(str(day)))
    except ValueError as error:
        raise SettingError(f"{name} {day!r} is no day; write one such as 2026-01-31") from error


def _note(note: str | None) -> str | None:
    return config_of({"warehouse": "", "note": note}).note
