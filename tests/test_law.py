"""The law: whatever came before, the tables are those of one full run over what the archive holds.

A state machine writes, rewrites, damages, removes and prunes files, changes settings and back, lets
runs fail and be killed between any two steps, and compares after every run that succeeded.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from flows.steps import rescore_archive
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.warehouse.query import connect
from tests.archives import step, trace, write_jsonl, write_parquet

WEIGHTS = """[profiles.{name}]
complexity = {complexity}
novelty = {novelty}
tool_diversity = 0.2
outcome_confidence = 0.3
"""
DAMAGED = b"PAR1 and no more"


class Killed(BaseException):
    """As SIGKILL: nothing that follows is done."""


def moment(minutes: int) -> str:
    return f"2026-01-{5 + minutes // 12:02d}T{8 + minutes % 12:02d}:00:00Z"


# Few ids, times, texts: duplicates, superseded rows, ties and repeated texts all come up.
traces = st.builds(
    lambda number, minutes, words, domain, confidence, agent: trace(
        id=f"kp:trace:{number}",
        created_at=moment(minutes),
        objective=words,
        task_domain=domain,
        confidence=confidence,
        agent_id=agent,
        steps=[step("thought", words)] * (1 + number % 3),
    ),
    st.integers(0, 11),
    st.integers(0, 47),
    st.sampled_from(["fix the import", "fix the export", "sum the rows", "!", "plan a trip"]),
    st.sampled_from(["code", "finance", "poetry"]),
    st.sampled_from([0.5, 0.5, 0.9, 7.0]),
    st.sampled_from(["a", "a", "b"]),
)
names = st.sampled_from(["a.parquet", "b.jsonl", "c.parquet", "d/e.jsonl"])
contents = st.lists(traces, min_size=1, max_size=6)


class Nights(RuleBasedStateMachine):
    """An archive that changes, and the runs over it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.archive = self.folder / "archive"
        self.settings: dict[str, Any] = {}
        self.held: dict[str, list[Any]] = {}  # what counts, as of the last run
        self.present: dict[str, list[Any] | None] = {}  # None: damaged
        self.clock = 10**18

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(content=contents)
    def begin(self, content: list[Any]) -> None:
        self.write("a.parquet", [*content, trace(id="kp:trace:sound")])
        self.run()

    @rule(name=names, content=contents)
    def write(self, name: str, content: list[Any]) -> None:
        self.put(self.archive, name, content)
        self.present[name] = content

    @rule(name=names, other=names)
    def copy(self, name: str, other: str) -> None:
        content = self.present.get(name)
        if content is not None:
            self.write(other, content)

    @rule(name=names)
    def remove(self, name: str) -> None:
        if len(self.present) > 1 and name in self.present:
            (self.archive / name).unlink()
            del self.present[name]

    @rule(name=st.sampled_from(["a.parquet", "c.parquet"]))
    def damage(self, name: str) -> None:
        if name in self.present:
            self.touched(self.archive / name).write_bytes(DAMAGED)
            self.present[name] = None

    @rule(cache_size=st.integers(1, 4), ttl=st.sampled_from(["none", "2h", "1d"]))
    def change_the_cache(self, cache_size: int, ttl: str) -> None:
        self.settings |= {"cache_size": cache_size, "ttl": ttl}

    @rule(name=st.sampled_from(["code", "default"]), novelty=st.sampled_from([0.1, 0.4]))
    def change_a_profile(self, name: str, novelty: float) -> None:
        path = self.folder / f"{name}-{novelty}.toml"
        path.write_text(WEIGHTS.format(name=name, novelty=novelty, complexity=0.5 - novelty))
        self.settings |= {"profiles": path}

    @rule(threshold=st.sampled_from([0.3, 0.75]))
    def change_the_threshold(self, threshold: float) -> None:
        self.settings |= {"threshold": threshold}

    @rule()
    def change_all_back(self) -> None:
        self.settings = {}

    @rule()
    def fail(self) -> None:
        try:
            rescore_archive(self.config(max_reject_share=0))
        except ArchiveError:
            return
        self.hold(prune=False)

    @rule(steps=st.integers(0, 8))
    def be_killed(self, steps: int) -> None:
        left = iter(range(steps))

        def call(work: Callable[..., Any], *inputs: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            result = work(*inputs)
            if next(left, None) is None:
                raise Killed
            return result

        try:
            summary = rescore_archive(self.config(), call)
        except Killed:
            return
        assert steps > 0 or summary["run_id"] is None
        self.hold(prune=False)

    @rule(prune=st.booleans())
    def run(self, *, prune: bool = False) -> None:
        if prune and not any(self.present.values()):
            return
        rescore_archive(self.config(prune=prune))
        self.hold(prune=prune)
        self.compare()
        assert rescore_archive(self.config(prune=prune))["run_id"] is None

    def config(self, **more: Any) -> RescoreConfig:
        usual = {
            "archive": (str(self.archive),),
            "warehouse": self.folder / "warehouse",
            "embedder": "hashing",
            "max_reject_share": 1,
        }
        return RescoreConfig(**{**usual, **self.settings, **more})

    def put(self, archive: Path, name: str, content: list[Any]) -> None:
        write = write_parquet if name.endswith("parquet") else write_jsonl
        write(archive / name, content)
        self.touched(archive / name)

    def touched(self, path: Path) -> Path:
        """Files that are written within a clock's tick would bear one time."""
        self.clock += 1
        path.touch()
        os.utime(path, ns=(self.clock, self.clock))
        return path

    def hold(self, *, prune: bool) -> None:
        if prune:
            self.held = {}
        self.held |= {name: each for name, each in self.present.items() if each is not None}

    def compare(self) -> None:
        """Against one full run over what counts, in a new warehouse, at the same paths."""
        aside, reference = self.folder / "aside", self.folder / "reference"
        self.archive.rename(aside)
        for name, content in self.held.items():
            self.put(self.archive, name, content)
        expected = self.config(warehouse=reference)
        rescore_archive(expected)
        found, wanted = tables(self.folder / "warehouse"), tables(reference)
        damaged = pl.col("reasons").list.contains("unreadable_file")
        told = found["rejects"].filter(damaged).get_column("source_file").to_list()
        gone = [str(self.archive / name) for name in self.held.keys() - self.present.keys()]
        assert told == sorted(
            str(self.archive / name) for name, each in self.present.items() if each is None
        )
        found["rejects"] = found["rejects"].filter(~damaged)
        for name in wanted:
            left, right = found[name], wanted[name]
            if name == "rejects" and len(left) == len(right):
                # The JSON of a row whose file was gone when it came to be refused is not to be had.
                lost = left.select(
                    pl.col("raw").is_null() & pl.col("source_file").is_in([*gone, *told])
                ).to_series()
                raw = pl.when(lost).then(None).otherwise("raw")
                right = right.with_columns(raw=raw)
            assert left.equals(right), f"{name}\n{left}\n{right}"
        shutil.rmtree(self.archive)
        shutil.rmtree(reference)
        aside.rename(self.archive)


def tables(warehouse: Path) -> dict[str, pl.DataFrame]:
    queries = {
        "scores": "SELECT * EXCLUDE (run_id) FROM scores ORDER BY trace_id",
        "rejects": 'SELECT * EXCLUDE (run_id) FROM rejects ORDER BY source_file, "row", reasons',
        "profiles": "FROM profiles ORDER BY ALL",
    }
    with connect(warehouse) as connection:
        return {
            name: pl.DataFrame(connection.sql(query).to_arrow_table())
            for name, query in queries.items()
        }


TestNights = Nights.TestCase
TestNights.settings = settings(
    max_examples=int(os.environ.get("KP_LAW_EXAMPLES", "12")),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
