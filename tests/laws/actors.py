"""Actors, who do commands on warehouses one after another, and tell when each began and ended.

Several of them meet by `actors_at_once`; what is lawful then is in `order_of_commands`.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import ComputeError

import kp_batch as kp
from kp_batch.errors import BusyError, KpBatchError
from kp_batch.operations.score import Scored
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.encoders import write_bag_of_words

WRITES = ("run", "rollback", "forget")  # whose note is that of a row in `runs`
REMOVES = ("vacuum", "forget")  # files of past states, which somebody may be reading
# Of a command that was refused, or of a reader whose files another one removed meanwhile.
_LOST = (KpBatchError, ComputeError, FileNotFoundError)
LIMITS: dict[str, Any] = {
    "max_reject_share": 1,
    **dict.fromkeys(("max_removed", "max_gone"), "100%"),
}
_WHOLE = """
    SELECT
        (SELECT note FROM runs WHERE run_id = latest()) AS note,
        (SELECT count(*) FROM scores) AS scores,
        (SELECT (counts->>'accepted')::BIGINT FROM runs WHERE run_id = latest()) AS accepted,
        (SELECT count(*) FROM scores ANTI JOIN profiles USING (profile_id)) AS without_profile,
        (SELECT count(*) FROM scores ANTI JOIN files USING (source_file)) AS without_file,
        (SELECT count(*) FROM scores ANTI JOIN runs USING (run_id)) AS without_run,
        (SELECT count(*) FROM rejects ANTI JOIN files USING (source_file)) AS no_file_of_reject
"""


@dataclass(frozen=True)
class Command:
    """What somebody does.

    Attributes:
        note: tells it from all others.
        does: the name of a method of a warehouse, or of one of `READS`.
        on: the name of the warehouse.
        how: its arguments, as JSON has them.
    """

    note: str
    does: str
    on: str
    how: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Event:
    """A command that was begun; its times are of the machine's clock that never goes back."""

    command: Command
    began: float
    ended: float | None = None  # None: nobody knows when, as it was killed
    how: str = ""  # done, busy, failed, interrupted; empty: as above
    value: Any = None  # what it read, or its error

    def overlaps(self, other: "Event") -> bool:
        """Whether both were at work at one moment."""
        return not (self.is_before(other) or other.is_before(self))

    def is_before(self, other: "Event") -> bool:
        """Whether it had ended when the other one began."""
        return self.ended is not None and self.ended < other.began


def write_archives(folder: Path) -> None:
    """Three archives: one, another, and one with other content of the same ids; and a model."""
    write_bag_of_words(folder / "model")
    objectives = ["fix the import", "fix the export", "sum the rows", "plan a trip"]
    for number, name in enumerate(("a", "b", "c")):
        rows = [
            trace(
                id=f"kp:trace:{each}",
                created_at=f"2026-01-{5 + each % 4:02d}T{8 + each:02d}:0{number}:00Z",
                objective=objectives[(each + number) % len(objectives)],
                task_domain="code" if each % 3 else "finance",
                agent_id=f"agent {each % 2}",
                steps=[step("thought", "look"), step("tool_call", "do", "sql")] * (1 + each % 2),
            )
            for each in range(4 * (number % 2), 6 + 2 * number)
        ]
        write_jsonl(folder / name / f"{name}.jsonl", [*rows, trace(success=None)])


# What is read, in a form that can be compared and sent.


def _rows(frame: pl.DataFrame, *without: str) -> Any:
    kept = frame.drop(*without, strict=False)
    numbers = kept.with_columns(pl.col(pl.Float64).round(9))
    return json.loads(numbers.sort(pl.all()).write_json() if kept.width else "[]")


def _scores(wh: kp.Warehouse) -> Any:
    return _rows(wh.scores().collect(), "run_id")


def _rejects(wh: kp.Warehouse) -> Any:
    frame = wh.rejects().with_columns(pl.col("reasons").list.join("+")).collect()
    return _rows(frame, "run_id", "raw", "message")  # a vacuum changes these


def _whole(wh: kp.Warehouse) -> Any:
    [row] = wh.sql(_WHOLE).to_dicts()
    assert row["scores"] == row["accepted"], row
    assert not any(row[name] for name in row if name.startswith(("without", "no_file"))), row
    return row


def _asked(wh: kp.Warehouse) -> Any:
    return _rows(wh.ask("means_by", "task_domain"))


def _explained(wh: kp.Warehouse) -> Any:
    try:
        found = wh.explain("kp:trace:5")
    except KpBatchError as error:
        return _refusal(error, "no trace")
    near = [(each["trace_id"], round(each["similarity"], 9)) for each in found.neighbours]
    return json.loads(json.dumps([found.breakdown, near, found.threshold], default=_plain))


def _swept(wh: kp.Warehouse) -> Any:
    try:
        found = wh.sweep(cache_size=[1, 3], threshold=[0.5])
    except KpBatchError as error:
        return _refusal(error, "without an encoder")
    return json.loads(json.dumps(found, default=_plain))


def _refusal(error: KpBatchError, of_content: str) -> str:
    """An answer, too, where what the tables hold has none."""
    if of_content not in str(error):
        raise error
    return of_content


def _charted(wh: kp.Warehouse) -> Any:
    datasets = wh.chart("scores_by_domain").to_dict()["datasets"].values()
    return _rows(pl.concat([pl.DataFrame(rows) for rows in datasets], how="diagonal_relaxed"))


def _new(wh: kp.Warehouse) -> Any:
    """The score of a new trace, which came just after all others."""
    [found] = wh.score(
        trace(id="new", objective="fix the rows"), at=datetime(2026, 1, 9, tzinfo=UTC)
    )
    assert isinstance(found, Scored)
    return [round(found.score, 9), [near["trace_id"] for near in found.neighbours]]


def _runs(wh: kp.Warehouse) -> Any:
    done = wh.runs().filter(pl.col("status") == "done")
    return done.reverse()["note"].to_list()


def _plain(value: Any) -> Any:
    fields = asdict(value)
    return {name: each for name, each in fields.items() if name not in {"run_id", "warehouse"}}


READS: Mapping[str, Callable[[kp.Warehouse], Any]] = {
    "scores": _scores,
    "rejects": _rejects,
    "whole": _whole,
    "asked": _asked,
    "explained": _explained,
    "swept": _swept,
    "charted": _charted,
    "new": _new,
    "notes": _runs,
}


class Actor:
    """One thread, and its commands."""

    def __init__(self, folder: Path, tell: Callable[[Event], object]) -> None:
        self._folder, self._tell = folder, tell
        self._pinned: list[tuple[Event, pl.LazyFrame]] = []

    def do_all(self, commands: Iterable[Command]) -> None:
        for command in commands:
            self.do(command)
        self.look_again()

    def do(self, command: Command) -> None:
        event = Event(command, time.monotonic())
        self._tell(event)
        try:
            event.value = self._do(event)
            event.how = "done"
        except BusyError as error:
            event.how, event.value = "busy", str(error)
        except _LOST as error:
            event.how, event.value = "failed", f"{type(error).__name__}: {error}"
        except KeyboardInterrupt:
            event.how = "interrupted"
            raise
        except BaseException as error:
            event.how, event.value = "broken", f"{type(error).__name__}: {error}"
            raise
        finally:
            event.ended = time.monotonic()
            self._tell(event)

    def _do(self, event: Event) -> Any:
        command = event.command
        wh = kp.Warehouse(self._folder / command.on)
        if command.does in READS:
            return READS[command.does](wh)
        if command.does == "scored":
            return scored(command, self._folder)
        if command.does == "pinned":
            frame = wh.scores()
            self._pinned.append((event, frame))
            return _rows(frame.collect(), "run_id")
        return do(wh, command, self._folder)

    def look_again(self) -> None:
        """At what was pinned: it is what it was."""
        for pinned, frame in self._pinned:
            again = Command(f"{pinned.command.note} again", "again", pinned.command.on)
            event = Event(again, pinned.began)
            try:
                event.how, event.value = "done", _rows(frame.collect(), "run_id")
            except _LOST as error:
                event.how, event.value = "failed", f"{type(error).__name__}: {error}"
            event.ended = time.monotonic()
            self._tell(event)


def scored(command: Command, folder: Path) -> Any:
    """What `kp.score` makes of an archive."""
    how = settings_of(command, folder)
    traces: Any = folder / how.pop("archive")[0]
    match how.pop("kind"):
        case "frame":
            traces = pl.read_ndjson(traces / f"{traces.name}.jsonl", infer_schema_length=None)
        case "dicts":
            lines = (traces / f"{traces.name}.jsonl").read_text("utf-8").splitlines()
            traces = [json.loads(line) for line in lines]
    found = kp.score(traces, **how)
    rejects = found.rejects.with_columns(pl.col("reasons").list.join("+"))
    return [_rows(found, "source_file"), _rows(rejects, "source_file", "message"), found.counts]


def settings_of(command: Command, folder: Path) -> dict[str, Any]:
    """The arguments of a command; a model is in a folder."""
    is_model = command.how.get("embedder") == "model"
    return {**command.how, **({"embedder": str(folder / "model")} if is_model else {})}


def do(wh: kp.Warehouse, command: Command, folder: Path) -> Any:
    """Do what changes a warehouse, or would: its run, if it has one."""
    how = settings_of(command, folder)
    if command.does in {"run", "preview"}:
        archives = [folder / name for name in how.pop("archive")]
        method = wh.run if command.does == "run" else wh.preview
        return method(*archives, note=command.note, **LIMITS, **how).status
    if command.does == "rollback":
        return wh.rollback("previous", note=command.note).run_id
    if command.does == "forget":
        return wh.forget(how["id"], unseen_too=True, note=command.note).run_id
    wh.vacuum(keep=timedelta(0))
    return None


def words_of(command: Command, folder: Path) -> list[str]:
    """The same, for the command line."""
    place, note = ["--warehouse", str(folder / command.on)], ["--note", command.note]
    how = settings_of(command, folder)
    if command.does in {"run", "preview"}:
        archives = [str(folder / name) for name in how.pop("archive")]
        options = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in {**LIMITS, **how}.items()
            if value is not True
        ]
        flags = [f"--{name}" for name, value in how.items() if value is True]
        looks = ["--preview"] if command.does == "preview" else []
        return ["run", *archives, *place, *note, "--no-prefect", *options, *flags, *looks]
    if command.does == "rollback":
        return ["rollback", "previous", *place, *note]
    if command.does == "forget":
        return ["forget", how["id"], "--unseen-too", *place, *note]
    return ["vacuum", "--keep", "1h", *place]
