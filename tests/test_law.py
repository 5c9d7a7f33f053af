"""The law: whatever came before, the tables are those of one full run over what the archive holds.

A state machine writes, rewrites, damages, removes and prunes files, changes settings and back, lets
runs fail and be killed between any two steps or parts, and compares after every run that succeeded.
The runs that it compares do every step twice, and the parts of its work in any order.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError
from kp_batch.executor import Local, P, R, Step, T
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.manifest import read_manifest
from tests.archives import step, trace, write_jsonl, write_parquet
from tests.lawful import assert_lawful

WEIGHTS = """[profiles.{name}]
complexity = {complexity}
novelty = {novelty}
tool_diversity = 0.2
outcome_confidence = 0.3
"""
DAMAGED = b"PAR1 and no more"


class Killed(BaseException):
    """As SIGKILL: nothing that follows is done."""


class Dying(Local):
    """Calls steps, until it is killed before or after one of them, or a part of one."""

    def __init__(self, left: Iterator[int]) -> None:
        self._left = left

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._live_on()
        result = step.function(*args, **kwargs)
        self._live_on()
        return result

    def _live_on(self) -> None:
        if next(self._left, None) is None:
            raise Killed


class Restless(Local):
    """Calls every step twice, and its parts in any order, as if workers died of their results."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        step.function(*args, **kwargs)
        return step.function(*args, **kwargs)

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        numbers = [*range(len(parts))] * 2
        self._chance.shuffle(numbers)
        done = {number: step.function(parts[number], *args, **kwargs) for number in numbers}
        return iter([done[number] for number in range(len(parts))])


def moment(minutes: int) -> str:
    return f"2026-01-{5 + minutes // 12:02d}T{8 + minutes % 12:02d}:00:00Z"


# Few ids, times, texts: duplicates, superseded rows, ties and repeated texts all come up.
traces = st.builds(
    lambda number, minutes, words, domain, confidence, agent, recorded: trace(
        id=f"kp:trace:{number}",
        created_at=moment(minutes),
        objective=words,
        task_domain=domain,
        confidence=confidence,
        agent_id=agent,
        quality_score=recorded,
        steps=[step("thought", words)] * (1 + number % 3),
    ),
    st.integers(0, 15),
    st.integers(0, 95),
    st.sampled_from(["fix the import", "fix the export", "sum the rows", "!", "plan a trip"]),
    st.sampled_from(["code", "finance", "poetry"]),
    st.sampled_from([0.5, 0.5, 0.9, 7.0]),
    st.sampled_from(["a", "a", "b"]),
    st.sampled_from([None, 0.0, 0.4]),
)
TWINS = [("a.parquet", "c.parquet"), ("b.jsonl", "d/e.jsonl")]
names = st.sampled_from([name for pair in TWINS for name in pair])
contents = st.lists(traces, min_size=1, max_size=8)


class Nights(RuleBasedStateMachine):
    """An archive that changes, and the runs over it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.archive = self.folder / "archive"
        self.settings: dict[str, Any] = {}
        self.held: dict[str, bytes] = {}  # what counts, as of the last run
        self.present: dict[str, bytes | None] = {}  # None: damaged
        self.clock = 10**18
        self.chance = random.Random(0)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(content=contents)
    def begin(self, content: list[Any]) -> None:
        self.write("a.parquet", [*content, trace(id="kp:trace:sound")])
        self.run()

    @rule(name=names, content=contents)
    def write(self, name: str, content: list[Any]) -> None:
        write = write_parquet if name.endswith("parquet") else write_jsonl
        self.put(name, write(self.archive / name, content).read_bytes())

    @rule(name=names, content=contents)
    def write_and_run(self, name: str, content: list[Any]) -> None:
        self.write(name, content)
        self.run()

    @rule(pair=st.sampled_from(TWINS), forth=st.booleans())
    def copy_and_run(self, pair: tuple[str, str], *, forth: bool) -> None:
        name, other = pair if forth else reversed(pair)
        content = self.present.get(name)
        if content is not None:
            self.put(other, content)
            self.run()

    @rule(name=names, prune=st.booleans())
    def remove_and_run(self, name: str, *, prune: bool) -> None:
        if len(self.present) > 1 and name in self.present:
            (self.archive / name).unlink()
            del self.present[name]
            self.run(prune=prune)

    @rule(name=st.sampled_from(["a.parquet", "c.parquet"]), prune=st.booleans())
    def damage_and_run(self, name: str, *, prune: bool) -> None:
        if name in self.present:
            self.put(name, DAMAGED)
            self.present[name] = None
            self.run(prune=prune)

    @rule(
        cache_size=st.integers(1, 4),
        ttl=st.sampled_from(["none", "2h", "1d"]),
        threshold=st.sampled_from([0.3, 0.75]),
        profiles=st.sampled_from([("code", 0.1), ("code", 0.4), ("default", 0.1), ("legal", 0.1)]),
        changed=st.sets(st.sampled_from(["cache_size", "ttl", "threshold", "profiles"])),
    )
    def change_settings_or_change_back(self, changed: set[str], **settings: Any) -> None:
        name, novelty = settings["profiles"]
        path = self.folder / f"{name}-{novelty}.toml"
        path.write_text(WEIGHTS.format(name=name, novelty=novelty, complexity=0.5 - novelty))
        settings["profiles"] = path
        self.settings = {each: settings[each] for each in changed}

    @rule(name=names, content=contents)
    def write_and_fail(self, name: str, content: list[Any]) -> None:
        self.write(name, content)
        try:
            rescore_archive(self.config(max_reject_share=0))
        except ArchiveError:
            return
        self.hold(prune=False)

    @rule(name=names, content=contents, steps=st.integers(0, 30))
    def write_and_be_killed(self, name: str, content: list[Any], steps: int) -> None:
        self.write(name, content)
        before = read_manifest(self.config().warehouse)
        try:
            rescore_archive(self.config(), Dying(iter(range(steps))))
        except ArchiveError:
            return
        except Killed:  # maybe only after it had published
            now = read_manifest(self.config().warehouse)
            if now == before or not now or now.failed:
                return
        self.hold(prune=False)

    @rule(prune=st.booleans())
    def run(self, *, prune: bool = False) -> None:
        try:
            rescore_archive(self.config(prune=prune), Restless(self.chance))
        except ArchiveError:  # not one trace can be scored any more
            return
        self.hold(prune=prune)
        damaged = {name for name, each in self.present.items() if each is None}
        assert_lawful(self.config(prune=prune), self.held, damaged)
        assert rescore_archive(self.config(prune=prune)).run_id is None

    def config(self, **more: Any) -> RescoreConfig:
        usual = {
            "archive": (str(self.archive),),
            "warehouse": self.folder / "warehouse",
            "embedder": "hashing",
            "max_reject_share": 1,
        }
        return RescoreConfig(**{**usual, **self.settings, **more})

    def put(self, name: str, content: bytes) -> None:
        """A file whose time no other has: within a tick of the clock two writes would share it."""
        path = self.archive / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.clock += 1
        os.utime(path, ns=(self.clock, self.clock))
        self.present[name] = content

    def hold(self, *, prune: bool) -> None:
        if prune:
            self.held = {}
        self.held |= {name: each for name, each in self.present.items() if each is not None}


TestNights = Nights.TestCase
TestNights.settings = settings(
    max_examples=int(os.environ.get("KP_LAW_EXAMPLES", "4")),
    stateful_step_count=15,
    # Shrinking would take longer than a test may: what was found is told as it is.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
