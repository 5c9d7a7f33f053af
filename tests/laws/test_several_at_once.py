"""The law of several at once: threads, processes and kills leave what some order would leave."""

import os
import random
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kp_batch as kp
from kp_batch.config import RescoreConfig
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.lock import holder
from kp_batch.warehouse.publication import writing
from tests.laws.actors import LIMITS, READS, Command, do, settings_of, write_archives
from tests.laws.actors_at_once import Log, at_once, command_line, hosted
from tests.laws.order_of_commands import assert_linear, assert_scored
from tests.laws.process_state import differences, grown, resources_of_process, settings_of_process
from tests.support.oracle.accepted_rows import observed
from tests.support.oracle.tables import assert_lawful

pytestmark = pytest.mark.process

EXAMPLES = int(os.environ.get("KP_ACTORS_EXAMPLES", "1"))
FIRST = int(os.environ.get("KP_ACTORS_FIRST", "0"))
OTHERS = ("none", "hashing", "model")  # the embedder of the second warehouse


class Draw:
    """Commands by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.embedders = {"one": "hashing", "two": OTHERS[seed % len(OTHERS)]}
        self._number = 0

    def command(self, *names: str) -> Command:
        self._number += 1
        does = self.chance.choice(names)
        on = "" if does == "scored" else self.chance.choice(["one"] * 4 + ["two"])
        how = self._how(does)
        return Command(f"{self._number}: {does}", does, on, how)

    def _how(self, does: str) -> dict[str, Any]:
        if does == "forget":
            return {"id": f"kp:trace:{self.chance.randrange(10)}"}
        if does not in {"run", "preview", "scored"}:
            return {}
        settings: dict[str, Any] = {
            "archive": self.chance.choice([["a"], ["b"], ["c"], ["a", "b"], ["a", "c"]]),
            "cache_size": self.chance.choice([1, 2, 50]),
            "cache_by": self.chance.choice(["none", "agent_id"]),
            "threshold": self.chance.choice([0.4, 0.75]),
        }
        kept = self.chance.sample(sorted(settings), self.chance.randint(1, 3))
        chosen = {name: settings[name] for name in sorted({*kept, "archive"})}
        if does == "scored":
            kind = self.chance.choice(["frame", "dicts", "files"])
            return chosen | {
                "kind": kind,
                "embedder": self.chance.choice([*self.embedders.values()]),
            }
        return chosen | self.chance.choice([{}, {"wait": True}])

    def commands(self, most: int, *names: str) -> list[Command]:
        return [self.command(*names) for _ in range(self.chance.randint(2, most))]


WRITE = ("run", "run", "run", "run", "preview", "rollback", "forget", "vacuum")
ALL = (*WRITE, *WRITE, *READS, "scored", "scored")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with archives, in which temporary files of this process are as well."""
    for name in ("temporary", "of-killed"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    write_archives(tmp_path)
    return tmp_path


SEEDS = [*range(FIRST, FIRST + EXAMPLES)]


@pytest.mark.filterwarnings("ignore:a kp-batch forget did not finish")  # one that was killed
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_read_and_left_is_what_some_order_of_the_commands_would_leave(
    folder: Path, seed: int
) -> None:
    draw, log = Draw(seed), Log()
    firsts = {on: begin(folder, on, embedder) for on, embedder in draw.embedders.items()}
    before, resources = settings_of_process(), resources_of_process()

    meet(draw, folder, log)
    for on in firsts:
        with writing(folder / on, wait=60):  # what a killed command line has begun
            pass

    [itself] = [event for event in log.events if event.command.does == "itself"]
    assert itself.value[1:] == [{}, {}]
    assert_scored(folder, log.events)
    for on, commands in firsts.items():
        assert_linear(folder, on, commands, log.events)
        assert_ends_lawfully(folder, commands[0], log)
    assert differences(before, settings_of_process()) == {}
    assert grown(resources, resources_of_process(), folder) == {}
    left = {path.name.partition("_")[0] for path in (folder / "temporary").iterdir()}
    assert left <= {"torchinductor"}  # which torch makes where it is imported


def begin(folder: Path, on: str, embedder: str) -> list[Command]:
    """Make a warehouse by two runs, so that there is one to go back to."""
    commands = [
        Command("first", "run", on, {"archive": ["c"], "embedder": embedder}),
        Command("second", "run", on, {"archive": ["a"]}),
    ]
    for command in commands:
        do(kp.Warehouse(folder / on), command, folder)
    for read in READS.values():  # so that what is loaded once is loaded
        read(kp.Warehouse(folder / on))
    return commands


def meet(draw: Draw, folder: Path, log: Log) -> None:
    """Threads of this process, those of one that is killed, a main thread, and a shell."""
    first = (*READS, *["pinned"] * len(READS))
    own = [[draw.command(*first), *draw.commands(4, *ALL)] for _ in range(3)]
    beside = [draw.commands(3, *ALL) for _ in range(2)]
    main = [draw.command("run", "run", "preview"), draw.command("run")]
    words, patience = draw.commands(2, *WRITE), draw.chance.choice([2.0, 3.0, 60.0])
    killed_after, interrupted_after = draw.chance.uniform(0, 3), draw.chance.uniform(0, 1)
    with_model = "model" in draw.embedders.values()
    all_ready = threading.Barrier(len(own) + 2, timeout=60)
    host = partial(hosted, folder=folder, log=log, all_ready=all_ready)
    others = [
        partial(host, beside, killed_after=killed_after),
        partial(host, [main], interrupted_after=interrupted_after, with_model=with_model),
        partial(command_line, words, folder, log, patience),
    ]
    at_once(own, folder, log, all_ready, others)


def assert_ends_lawfully(folder: Path, first: Command, log: Log) -> None:
    """One run more, and the warehouse is what a new one would be."""
    on, embedder = first.on, settings_of(first, folder)["embedder"]
    wh = kp.Warehouse(folder / on)
    forgets = [e for e in log.events if (e.command.on, e.command.does) == (on, "forget")]
    for event in forgets:
        if not event.how:  # it was killed: the same is asked for again
            do(wh, event.command, folder)
    tried = {e.command.how["id"] for e in forgets if e.how in {"done", ""}}
    settings = {"embedder": embedder, "cache_size": 3, "cache_by": "agent_id"}
    last = {**settings, "threshold": 0.6, **LIMITS, "prune": True}
    archives = [folder / name for name in ("a", "b", "c")]
    wh.run(*archives, **last)
    config = RescoreConfig(archive=tuple(map(str, archives)), warehouse=folder / on, **last)
    present = {str(path): path.read_bytes() for each in archives for path in each.iterdir()}
    has_raw = not any(event.command.does == "vacuum" for event in log.events)
    files = observed({}, present, tried, prune=False)
    assert_lawful(config, files, tried, has_raw=has_raw)
    assert holder(folder / on) is None
    layout = Layout(folder / on)
    assert [*layout.all_staging.glob("*")] == []
    assert not [path for path in layout.root.rglob("*") if path.suffix in {".new", ".part", ".wal"}]
