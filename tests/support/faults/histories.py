"""Small histories whose last command is tried with faults, and what each of them leaves."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from kp_batch.embedding.chunks import stored_hashes
from kp_batch.operations.kept_runs import available_runs
from kp_batch.schemas import TABLES, VIEWS
from kp_batch.storage.urls import is_url
from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import FORMAT_VERSION
from kp_batch.warehouse.run_record import done_runs
from kp_batch.warehouse.snapshot import PublishedSnapshot, published
from tests.support.formats.shuffled_spans import RULES, SPANS, span_lines
from tests.support.imports.importing import imported
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.kept import unpacked
from tests.support.processes.buckets import fill
from tests.support.processes.commands import invoke

# They depend on the moment of a run, or on the file system.
_NOT_COMPARED = ("run_id", "version", "mtime_ns")
State = Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """What happened so far, and the command that follows.

    Attributes:
        make: makes what is there before the command, in a folder and a warehouse.
        command: returns the words of the command, for a warehouse and a folder.
        state: reads what is there, and fails if it is not whole.
    """

    make: Callable[[Path, str], None]
    command: Callable[[str, Path], Sequence[object]]
    state: Callable[[Path], State]


def _tables_of(snapshot: PublishedSnapshot) -> dict[str, list[str]]:
    """Return all rows of the tables but `runs`, in any order."""
    frames = {name: snapshot.scan(name).collect() for name in TABLES if name != "runs"}
    return {name: _rows(frame) for name, frame in frames.items()}


def _rows(frame: pl.DataFrame) -> list[str]:
    return sorted(map(repr, frame.drop(_NOT_COMPARED, strict=False).iter_rows()))


def warehouse_state(warehouse: Path) -> State:
    """Return what is published, and what the earlier runs left that can be read.

    Rejects are apart: a failed run publishes them, too.
    """
    now = published(warehouse)
    folders = Layout(warehouse).all_vectors.glob("*")
    stored = {hash_.decode() for each in folders for part in stored_hashes(each) for hash_ in part}
    assert stored.issuperset(now.scan("scores").collect()["text_hash"]), "vectors are lost"
    tables, readable = _tables_of(now), available_runs(warehouse).restorable
    done = enumerate(run.run_id for run in done_runs(now.runs()))
    past = {
        f"run {number}": _tables_of(now.as_of(*now.find_runs(run)))
        for number, run in done
        if run in readable
    }
    return {"rejects": tables.pop("rejects"), "others": tables, **past}


def assert_readable_by_others(warehouse: Path) -> None:
    """Read the tables as clients without kp_batch do: in kp.duckdb, and as Delta tables."""
    if not (warehouse / "kp.duckdb").exists():  # kept warehouses of earlier versions lack it
        return
    with duckdb.connect(f"{warehouse}/kp.duckdb", read_only=True) as connection:
        for name in VIEWS:
            connection.sql(f"FROM {name}").fetchall()
    for name in VIEWS:
        pl.read_delta(f"{warehouse}/{name}")


def _row(number: int, day: int, **more: Any) -> dict[str, Any]:
    at = f"2026-01-{day:02d}T08:00:00Z"
    return trace(id=f"kp:trace:{number}", created_at=at, objective=f"fix {number}", **more)


def _write(folder: Path, name: str, *rows: Any) -> None:
    write_jsonl(folder / "archive" / f"{name}.jsonl", rows)


_RUN = ("--embedder", "hashing", "--max-reject-share", "1", "--max-removed", "100%", "--no-prefect")


def _run(warehouse: str, folder: Path) -> Sequence[object]:
    return ["run", folder / "archive", "--warehouse", warehouse, *_RUN]


def _done_by(words: Sequence[object]) -> None:
    done = invoke(*words)
    assert done.returncode == 0, done.stderr


def one_night(folder: Path, warehouse: str) -> None:
    """A run over three files; then one is new, one has changed and one is missing."""
    _write(folder, "a", _row(1, 5), trace(success=None))
    _write(folder, "b", _row(2, 7), _row(3, 7))
    _write(folder, "c", _row(4, 6))
    _done_by(_run(warehouse, folder))
    _write(folder, "a", _row(1, 5, confidence=0.5), trace(success=None))
    (folder / "archive" / "c.jsonl").unlink()
    _write(folder, "d", _row(5, 6), _row(6, 8))


def two_nights(folder: Path, warehouse: str) -> None:
    """The same, and the run that follows."""
    one_night(folder, warehouse)
    _done_by(_run(warehouse, folder))


def two_old_nights(folder: Path, warehouse: str) -> None:
    """The same, longer ago than a second, so that a vacuum with --keep 1s takes both as old."""
    two_nights(folder, warehouse)
    time.sleep(1.1)


def old_warehouse(folder: Path, warehouse: str) -> None:
    """A warehouse that an earlier version made."""
    old = unpacked(17, 4, folder / "kept")
    if is_url(warehouse):
        fill(warehouse, old)
    else:
        shutil.move(old, warehouse)


def migrating_state(warehouse: Path) -> State:
    """Return what is published; in an earlier format, the files of its tables and of its log.

    In the current format the last run is known, too.
    """
    manifest = json.loads((warehouse / "manifest.json").read_bytes())
    if manifest["format_version"] == FORMAT_VERSION:
        last = LastRuns.read(warehouse).last_run
        return {**warehouse_state(warehouse), "last run": last and last.run_id}
    files = [each for name in TABLES for each in sorted((warehouse / name).rglob("*"))]
    return {
        f"{each.relative_to(warehouse)}": hashlib.sha256(each.read_bytes()).hexdigest()
        for each in (*files, warehouse / "manifest.json")
        if each.is_file() and "-format-" not in each.name and ".json.tmp" not in each.name
    }


def one_import(folder: Path, _: str) -> None:
    """An import of spans; then more spans come, also of the same traces."""
    source = folder / "source"
    source.mkdir()
    half, far = 4 * SPANS, 600  # minutes between traces
    (source / "a.jsonl").write_text("".join(span_lines(range(half), far)), "utf-8")
    _done_by(_import("", folder))
    lines = span_lines(range(half - SPANS // 2, 7 * SPANS), far)
    (source / "b.jsonl").write_text("".join([*lines, "{}\n", "no JSON\n"]), "utf-8")


def _import(_: str, folder: Path) -> Sequence[object]:
    return ["import", "otlp", folder / "source", "-o", folder / "imported", *RULES]


def import_state(warehouse: Path) -> State:
    """Return the traces of each day, which is replaced as a whole."""
    archive, days = warehouse.parent / "imported", dict[str, list[str]]()
    for id_, row in imported(archive).items():
        days.setdefault(row["metadata"]["created_at"][:10], []).append(id_ + repr(row))
    return days


def _first_run(warehouse: str) -> str:
    return min(run.run_id for run in published(Path(warehouse)).runs())


HISTORIES = {
    "run": History(one_night, _run, warehouse_state),
    "rollback": History(
        two_nights,
        lambda warehouse, _: ["rollback", _first_run(warehouse), "--warehouse", warehouse],
        warehouse_state,
    ),
    "vacuum": History(
        two_old_nights,
        lambda warehouse, _: ["vacuum", "--keep", "1s", "--warehouse", warehouse],
        warehouse_state,
    ),
    "forget": History(
        two_nights,
        lambda warehouse, _: ["forget", "kp:trace:2", "--warehouse", warehouse],
        warehouse_state,
    ),
    "migrate": History(
        old_warehouse,
        lambda warehouse, _: ["migrate", "--warehouse", warehouse],
        migrating_state,
    ),
    "import": History(one_import, _import, import_state),
}


@contextmanager
def own_places(folder: Path) -> Generator[None]:
    """Keep temporary files and the user's cache below a folder, so that they may fail, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder / "tmp"))
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield
