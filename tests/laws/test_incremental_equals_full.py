"""The law: whatever came before, the tables are those that the documentation states.

A state machine writes, corrects, renames, cuts, damages and moves files away and back, moves the
archive, changes settings and encoders, sets the clock, forgets, vacuums, rolls back, and lets runs
fail, be killed and meet each other. After every run that is done it compares the tables with those
of `oracle/tables.py`. The runs that it compares do every step twice, and the parts of its work in
any order.
"""

import json
import operator
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError, BusyError
from kp_batch.exports.export import export
from kp_batch.exports.export_options import ExportOptions
from kp_batch.ingest import scan
from kp_batch.operations.explain import explain
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import rollback
from kp_batch.operations.verify import verify
from kp_batch.pipeline import rescore
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.report.run_summary import Summary
from kp_batch.scoring.profiles import load_profiles
from kp_batch.steps.step import ThreadExecutor, timed
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import step, trace, write_jsonl, write_parquet
from tests.support.make.encoders import write_bag_of_words
from tests.support.oracle.accepted_rows import Counted, File, Row, counted, observed, rows_in
from tests.support.oracle.tables import assert_lawful, assert_rejects, intact, tables

pytestmark = pytest.mark.slow

WEIGHTS = """[[profiles.{name}]]
{begin}
complexity = {complexity}
novelty = {novelty}
tool_diversity = 0.2
outcome_confidence = 0.3
"""


class Killed(BaseException):
    """As SIGKILL: nothing that follows is done."""


class Dying(ThreadExecutor):
    """Is killed before or after one of the steps that it calls, or a part of one."""

    def __init__(self, remaining: Iterator[int]) -> None:
        self._remaining = remaining

    def calling(self, _: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            self._live_on()
            result = function(*args, **kwargs)
            self._live_on()
            return result

        return called

    def map(self, step: Any, parts: Any, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        mortal = replace(step, function=self.calling(step.name, step.function))
        return super().map(mortal, parts, *args, **kwargs)

    def _live_on(self) -> None:
        if next(self._remaining, None) is None:
            raise Killed


class Restless(ThreadExecutor):
    """Calls every step twice, and its parts in any order, as if workers died of their results."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    @staticmethod
    def calling(_: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            function(*args, **kwargs)
            return function(*args, **kwargs)

        return called

    def map(self, step: Any, parts: Any, /, *args: Any, **kwargs: Any) -> Generator[Any]:
        numbers = [*range(len(parts))] * 2
        self._chance.shuffle(numbers)
        done = {number: step(parts[number], *args, **kwargs) for number in numbers}
        yield from (done[number] for number in range(len(parts)))


class Meeting:
    """Lets another thread try to write before one of the steps."""

    def __init__(self, other: Callable[[], object], at: int) -> None:
        self._other = other
        self._remaining = at
        self.errors: list[BaseException | None] = []  # how that ended

    def calling(self, _: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._remaining == 0:
            with ThreadPoolExecutor(1) as pool:
                self.errors.append(pool.submit(self._other).exception())
        self._remaining -= 1
        return function


def moment(minutes: int) -> str:
    return f"2026-01-{5 + minutes // 12:02d}T{8 + minutes % 12:02d}:00:00Z"


# Few ids, times, texts: duplicates, superseded rows, ties and repeated texts all come up.
STEPS = [
    [step("thought")],
    [step("thought", "sum it"), step("tool_call", None, "sql")],
    [step("tool_call", "a", "sql"), step("observation", "b", ""), step("thought", "fix")],
    [step("error_recovery", "again")] * 3,
]
traces = st.builds(
    lambda number, minutes, words, domain, confidence, agent, skill, recorded, steps: trace(
        id=f"kp:trace:{number}",
        created_at=moment(minutes),
        objective=words,
        task_domain=domain,
        confidence=confidence,
        agent_id=agent,
        source_skill=skill,
        quality_score=recorded,
        steps=steps,
    ),
    st.integers(0, 15),
    st.integers(0, 95),
    st.sampled_from(["fix the import", "fix the export", "sum the rows", "!", "plan a trip"]),
    st.sampled_from(["code", "code", "finance", "poetry", ""]),
    st.sampled_from([0.5, 0.5, 0.9, 7.0]),
    st.sampled_from(["a", "a", "b", None]),
    st.sampled_from([None, None, "search"]),
    st.sampled_from([None, 0.0, 0.4]),
    st.sampled_from(STEPS[:2] + STEPS[3:]),
)
FOLDERS = ("archive", "0-archive", "z-archive")
TABLES = ("a.parquet", "host=x/c.parquet", "0/z.parquet")
LINES = ("b.jsonl", "host=y/e.jsonl", "0/host=x/y.jsonl")
names = st.sampled_from([*TABLES, *LINES])
pairs = st.sampled_from([TABLES, LINES]).flatmap(st.permutations)  # the third counts for nothing
LIMITS = ("max_reject_share", "max_removed", "max_unreadable", "max_gone")
contents = st.lists(traces, min_size=1, max_size=8)
then = st.sampled_from(["run", "run", "run", "prune", "no run"])


def weights(name: str, versions: list[tuple[int, float]]) -> str:
    """A profiles file: from when on a name has which weight of novelty; -1: from the beginning."""
    return "".join(
        WEIGHTS.format(
            name=name,
            begin=f"from = {moment(minutes)}" if minutes >= 0 else "",
            complexity=0.5 - novelty,
            novelty=novelty,
        )
        for minutes, novelty in versions
    )


def changed(row: Any) -> Any:
    return {**row, "outcome": {**row["outcome"], "confidence": 0.7}}


def swapped(row: Any) -> Any:
    confidence = {0.5: 0.9, 0.9: 0.5}.get(row["outcome"]["confidence"], 0.5)
    return {**row, "outcome": {**row["outcome"], "confidence": confidence}}


class ChangingArchive(RuleBasedStateMachine):
    """An archive that changes, and the runs over it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.archive = self.folder / FOLDERS[0]
        self.settings: dict[str, Any] = {}
        self.files: dict[str, File] = {}  # as the last run that is done left them
        self.forgotten: set[str] = set()
        self.last = self.config()  # of that run
        self.published: dict[str, Any] = {}  # the content of each trace
        self.states: dict[
            str, tuple[RescoreConfig, dict[str, File], dict[str, Any], frozenset[str]]
        ] = {}  # by runs, the last one is what had been forgotten
        self.runs: list[str] = []  # in the order in which they were published
        self.vacuumed = False
        self.away: dict[str, tuple[bytes, int]] = {}
        self.time = 10**18
        self.chance = random.Random(0)
        self.patch = pytest.MonkeyPatch()
        # Files are known by their times at once, though their ctime is that of the test.
        self.patch.setattr(scan, "MTIME_MARGIN_NS", -(10**18))
        write_bag_of_words(self.folder / "model")

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder)

    # What changes.

    @initialize(content=contents)
    def begin(self, content: list[Any]) -> None:
        self.write("a.parquet", [*content, trace(id="kp:trace:sound")])
        self.put("host=z/no-rows.jsonl", b"\n")  # so that there are hosts
        self.run()

    @rule(name=names, content=contents, then=then)
    def write(self, name: str, content: list[Any], then: str = "no run") -> None:
        write = write_parquet if name.endswith("parquet") else write_jsonl
        self.put(name, write(self.archive / name, content).read_bytes())
        self.go_on(then)

    @rule(pair=pairs, then=then)
    def copy(self, pair: list[str], then: str) -> None:
        if self.has(pair[0]):
            self.put(pair[1], (self.archive / pair[0]).read_bytes())
            self.go_on(then)

    @rule(pair=pairs, then=then)
    def rename(self, pair: list[str], then: str) -> None:
        if self.has(pair[0]):
            (self.archive / pair[1]).parent.mkdir(parents=True, exist_ok=True)
            (self.archive / pair[0]).replace(self.archive / pair[1])
            self.go_on(then)

    @rule(to=st.sampled_from(FOLDERS), then=then)
    def move_the_archive(self, to: str, then: str) -> None:
        self.archive = self.archive.rename(self.folder / to)
        self.go_on(then)

    @rule(pair=pairs, change=st.booleans(), then=then)
    def correct_under_another_name(self, pair: list[str], then: str, *, change: bool) -> None:
        """The corrected file takes the place of the first one, earlier or later than it."""
        if rows := self.rows(pair[0]):
            (self.archive / pair[0]).unlink()
            self.write(pair[1], [changed(row) for row in rows] if change else rows[::-1])
            self.go_on(then)

    @rule(
        pair=st.lists(names, min_size=2, max_size=2, unique=True), change=st.booleans(), then=then
    )
    def move_rows(self, pair: list[str], then: str, *, change: bool) -> None:
        """The last rows of the first file stand in the second one."""
        rows, others = self.rows(pair[0]), self.rows(pair[1])
        if len(rows) > 1:
            kept = len(rows) // 2
            moved = [changed(row) if change else row for row in rows[kept:]]
            self.write(pair[0], rows[:kept])
            self.write(pair[1], [*others, *moved])
            self.go_on(then)

    @rule(name=names, then=then)
    def correct_at_the_same_time(self, name: str, then: str) -> None:
        """Other content, of the same length in JSONL, as `cp -p` and `tar -x` leave it."""
        if rows := self.rows(name):
            path = self.archive / name
            time = path.stat().st_mtime_ns
            self.write(name, [swapped(row) for row in rows])
            os.utime(path, ns=(time, time))
            self.go_on(then)

    @rule(name=names, share=st.sampled_from([0, 0.3, 0.6, 0.95]), at_end=st.booleans(), then=then)
    def cut(self, name: str, share: float, then: str, *, at_end: bool) -> None:
        """At the end of a line or within it; Parquet cannot be read then, nor what is empty."""
        if self.has(name):
            content = (self.archive / name).read_bytes()
            start = content[: int(share * len(content))]
            self.put(name, start[: start.rfind(b"\n") + 1] if at_end else start)
            self.go_on(then)

    @rule(name=st.sampled_from(LINES), content=contents, then=then)
    def cut_a_file_that_has_rejects(self, name: str, content: list[Any], then: str) -> None:
        """What is left of it has a rejected row, and lacks a trace, so that its rows stay."""
        rejected, last = trace(id="kp:trace:faulty", steps=[]), trace(id="kp:trace:torn")
        self.write(name, [rejected, *content, last], "run")
        self.put(name, (self.archive / name).read_bytes()[:-20])
        self.go_on(then)

    @rule(name=names, then=then)
    def take_away(self, name: str, then: str) -> None:
        if self.has(name) and len(self.present) > 1:
            path = self.archive / name
            self.away[name] = path.read_bytes(), path.stat().st_mtime_ns
            path.unlink()
            self.go_on(then)

    @rule(name=names, then=then)
    def bring_back(self, name: str, then: str) -> None:
        if name in self.away:
            content, time = self.away[name]
            self.put(name, content)
            os.utime(self.archive / name, ns=(time, time))
            self.go_on(then)

    @rule(
        cache_size=st.integers(1, 4),
        ttl=st.sampled_from(["none", "2h", "1d"]),
        cache_by=st.sampled_from(["none", "agent_id", "host", "agent_id+host", "task_domain"]),
        threshold=st.sampled_from([0.3, 0.75]),
        profiles=st.tuples(
            st.sampled_from(["code", "code", "default", "poetry", "legal"]),
            st.lists(
                st.tuples(st.integers(-1, 95), st.sampled_from([0.1, 0.3, 0.4])),
                min_size=1,
                max_size=3,
                unique_by=operator.itemgetter(0),
            ).map(sorted),
        ),
        embedder=st.sampled_from(["none", "hashing", "model"]),
        changed=st.sets(
            st.sampled_from(["cache_size", "ttl", "cache_by", "threshold", "profiles", "embedder"])
        ),
    )
    def change_settings_or_change_back(self, changed: set[str], **settings: Any) -> None:
        path = self.folder / "profiles.toml"
        path.write_text(weights(*settings["profiles"]))
        settings["profiles"] = load_profiles(path)
        if settings["embedder"] == "model":
            settings["embedder"] = str(self.folder / "model")
        self.settings = {name: settings[name] for name in changed}

    @rule(hours=st.sampled_from([-30, -1, 0, 25]))
    def set_the_clock(self, hours: int) -> None:
        class Wrong(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return datetime.now(tz) + timedelta(hours=hours)

        self.patch.setattr(rescore, "datetime", Wrong)

    # What is done.

    def go_on(self, then: str) -> None:
        if then != "no run":
            self.run(prune=then == "prune")

    @rule(prune=st.booleans())
    def run(self, *, prune: bool = False) -> None:
        config = self.config(prune=prune)
        after = self.observed(prune=prune)
        if not self.counted(after).accepted:
            self.fail(config, after, "can be scored")
            return
        restless = Restless(self.chance)
        with timed(caller=restless.calling):
            summary = rescore_archive(config, restless)
        self.done(config, after)
        self.check(summary)
        assert rescore_archive(config).run_id is None

    @rule(name=names, content=contents, limit=st.sampled_from(LIMITS))
    def write_and_pass_a_limit(self, name: str, content: list[Any], limit: str) -> None:
        """Where anything passes it, the run fails, and says which one it was."""
        self.write(name, content)
        config = self.config(**{limit: 0 if limit == "max_reject_share" else "0"})
        after = self.observed()
        count = self.counted(after)
        if not count.accepted:
            self.fail(config, after, "can be scored")
        elif self.over(limit, after, count):
            self.fail(config, after, f"more than --{limit.replace('_', '-')} 0")
        else:
            rescore_archive(config)
            self.done(config, after)

    def over(self, limit: str, after: dict[str, File], count: Counted) -> int:
        """How much there is of what a limit is on."""
        before = self.counted(self.files).accepted
        stay = {row.trace_id for row in count.accepted}
        readable = {file.content for file in after.values() if file.status == "read"}
        return {
            "max_reject_share": count.faulty,
            "max_removed": sum(row.trace_id not in stay for row in before),
            "max_unreadable": sum(
                bool(file.fault) and not (path in self.files and self.files[path].fault)
                for path, file in after.items()
            ),
            "max_gone": sum(
                file.status != "gone" and path not in self.present and file.content not in readable
                for path, file in self.files.items()
                if file.content is not None
            ),
        }[limit]

    @rule(name=names, content=contents, steps=st.integers(0, 12))
    def write_and_be_killed(self, name: str, content: list[Any], steps: int) -> None:
        self.write(name, content)
        after = self.observed()
        if not self.counted(after).accepted:
            return
        before = read_manifest(self.config().warehouse)
        dying = Dying(iter(range(steps)))
        try:
            with timed(caller=dying.calling):
                rescore_archive(self.config(), dying)
        except Killed:  # maybe only after it had published
            now = read_manifest(self.config().warehouse)
            if now == before or not now or now.failed:
                return
        self.done(self.config(), after)

    @rule(name=names, content=contents, at=st.integers(0, 5), forgets=st.booleans())
    def write_and_meet_another(
        self, name: str, content: list[Any], at: int, *, forgets: bool
    ) -> None:
        """While one thread runs, another one can neither run nor forget."""
        self.write(name, content)
        config, after = self.config(), self.observed()
        if not self.counted(after).accepted:
            return
        other = partial(forget, config.warehouse, ["new"], unseen_too=True)
        meeting = Meeting(other if forgets else partial(rescore_archive, config), at)
        with timed(caller=meeting.calling):
            summary = rescore_archive(config)
        assert all(type(error) is BusyError for error in meeting.errors), meeting.errors
        self.done(config, after)
        self.check(summary)

    @rule(number=st.integers(0, 15))
    def forget(self, number: int) -> None:
        """Without the model, which nothing needs that is embedded already."""
        name = f"kp:trace:{number}"
        away = (self.folder / "model").rename(self.folder / "away")
        forget(self.last.warehouse, [name], unseen_too=True)
        away.rename(self.folder / "model")
        self.forgotten.add(name)
        self.done(self.last, self.files)
        self.assert_law()

    @rule(days=st.sampled_from([0, 1]))
    def vacuum(self, days: int) -> None:
        """Only the JSON of rejected rows goes, and values in their messages."""
        warehouse = self.last.warehouse
        before = tables(warehouse)
        vacuum(warehouse, timedelta(days), datetime.now(UTC))
        self.vacuumed = True
        self.states.clear()
        for name, rows in tables(warehouse).items():
            assert rows.drop("raw", "message", strict=False).equals(
                before[name].drop("raw", "message", strict=False)
            )

    @rule(number=st.integers(0, 4))
    def roll_back(self, number: int) -> None:
        """To one of the last runs that are done; the next run goes on from there."""
        if len(self.states) <= number:
            return
        name, (config, files, self.published, forgotten) = [*self.states.items()][-1 - number]
        rollback(self.last.warehouse, name)
        self.done(config, files, forgotten)
        if forgotten == self.forgotten:
            self.assert_law()
        else:  # until then scores are as they were beside the forgotten traces
            self.run()

    # What has to be.

    def check(self, summary: Summary) -> None:
        """The tables are lawful, their counts are theirs, and commands find all that is there."""
        count = self.assert_law()
        self.assert_counts(summary, count)
        self.assert_read(count)

    def assert_law(self) -> Counted:
        state, has_raw = (self.files, self.forgotten, self.published), not self.vacuumed
        return assert_lawful(self.last, *state, has_raw=has_raw)

    def assert_counts(self, summary: Summary, count: Counted) -> None:
        """What the summary counts adds up, and is of the files that are there."""
        counts = summary.counts
        assert counts.files == len(self.present)
        assert (counts.rows, counts.rows_kept) == (count.rows, count.kept)
        assert (
            counts.accepted + counts.duplicates == count.rows - counts.rejected - counts.superseded
        )
        assert (counts.accepted, counts.duplicates) == (len(count.accepted), count.duplicates)
        assert (counts.rejected, counts.superseded) == (count.faulty, count.superseded)
        query = "SELECT fingerprints->>'encoder_id' FROM runs WHERE run_id = latest()"
        [(fingerprints,)] = self.ask(query)
        assert sum(json.loads(fingerprints).values()) == counts.accepted

    def assert_read(self, count: Counted) -> None:
        """Each trace whose file is there can be verified, exported and explained."""
        sources = intact(self.files, self.present)
        readable = [row.trace_id for row in count.accepted if row.source_file in sources]
        warehouse = self.last.warehouse
        result = verify(warehouse, traces=1_000, seed=0, embed=False)
        is_unchecked = bool(count.accepted) and not readable
        assert result.wrong.startswith("nothing could be checked" if is_unchecked else "")
        assert (bool(result.wrong), result.sampled) == (is_unchecked, len(count.accepted))
        assert result.checked == len(readable)
        wanted, output = (
            ExportOptions(min_score=0, include_private=True),
            self.folder / "export.jsonl",
        )
        export(warehouse, wanted, output, ending=".jsonl")
        there = [
            row.trace_id
            for row in count.accepted
            if row.trace_id in readable or self.still_holds(row)
        ]
        assert [json.loads(line)["id"] for line in output.read_text().splitlines()] == there
        for name in readable[:1]:
            assert explain(warehouse, f"{name}").unread is None

    def still_holds(self, row: Row) -> bool:
        """Whether a file that was cut, and lacks traces, has this one."""
        content = self.present.get(row.source_file, b"")
        rows = rows_in(Path(row.source_file).suffix, content) or ()
        return (row.row, row.value) in rows

    # How.

    def observed(self, *, prune: bool = False) -> dict[str, File]:
        return observed(self.files, self.present, self.forgotten, prune=prune)

    def counted(self, files: dict[str, File]) -> Counted:
        return counted(files, self.forgotten, self.published)

    @property
    def present(self) -> dict[str, bytes]:
        """The contents of all files that are there, by their paths."""
        return {str(path): path.read_bytes() for path in self.archive.rglob("*.*")}

    def has(self, name: str) -> bool:
        return (self.archive / name).exists()

    def rows(self, name: str) -> list[Any]:
        """The traces of a file; none where it cannot be read."""
        path = self.archive / name
        rows = rows_in(path.suffix, path.read_bytes()) if path.exists() else None
        return [row for _, row in rows or () if isinstance(row, dict)]

    def config(self, **more: Any) -> RescoreConfig:
        usual = {
            "archive": (str(self.archive),),
            "warehouse": self.folder / "warehouse",
            "embedder": "hashing",
            "max_reject_share": 1,
            "max_removed": "100%",
        }
        return RescoreConfig(**{**usual, **self.settings, **self.same_encoder, **more})

    @property
    def same_encoder(self) -> dict[str, str]:
        """The last run's, while texts are in no file that can be read: no other can embed these."""
        files = self.observed().values()
        readable = {file.content for file in files if file.status == "read"}
        is_kept = any(file.content not in {None, *readable} for file in files)
        return {"embedder": self.last.embedder} if is_kept else {}

    def put(self, name: str, content: bytes) -> None:
        """A file whose time no other has: within a tick of the clock two writes would share it."""
        path = self.archive / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.time += 1
        os.utime(path, ns=(self.time, self.time))

    def ask(self, query: str) -> list[Any]:
        with connect(self.last.warehouse) as connection:
            return connection.execute(query).fetchall()

    def done(
        self,
        config: RescoreConfig,
        files: dict[str, File],
        forgotten: frozenset[str] | None = None,
    ) -> None:
        """A run is done that has left these files, by default without what is forgotten."""
        self.last, self.files = config, files
        self.published = self.counted(files).published
        self.note_runs()
        [(latest,)] = self.ask("SELECT latest()")
        gone = frozenset(self.forgotten) if forgotten is None else forgotten
        self.states[latest] = config, files, self.published, gone

    def fail(self, config: RescoreConfig, files: dict[str, File], message: str) -> None:
        """A run fails: its rejects are published, and no scores."""
        with pytest.raises(ArchiveError, match=message):
            rescore_archive(config)
        self.note_runs()
        count = self.counted(files)
        rejects = tables(config.warehouse)["rejects"]
        assert_rejects(rejects, count, has_raw=not self.vacuumed)

    def note_runs(self) -> None:
        """Runs stand in the order in which they were published, whatever the clock said."""
        runs = self.ask("SELECT run_id, status, latest() FROM runs ORDER BY number")
        assert [name for name, *_ in runs[: len(self.runs)]] == self.runs
        assert len(runs) <= len(self.runs) + 1
        self.runs = [name for name, *_ in runs]
        done = [name for name, status, _ in runs if status == "done"]
        assert runs[-1][-1] == done[-1]


EXAMPLES = os.environ.get("KP_LAW_EXAMPLES")
TestNights = pytest.mark.telling(ChangingArchive.TestCase)
TestNights.settings = settings(
    max_examples=int(EXAMPLES or 4),
    stateful_step_count=15,
    # Shrinking takes longer than a test of the suite may: there a failure is reported as it is.
    phases=tuple(Phase) if EXAMPLES else (Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
