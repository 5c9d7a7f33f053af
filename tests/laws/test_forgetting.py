"""The law of forgetting: whatever is asked afterwards answers as if the trace had never been there.

Drawn archives of several nights are scored, and traces are forgotten. Then each kept run has what
it had, without them; no file has a byte of them; and to roll back to any run and to run again
leaves the tables of one full run without them.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kp_batch.config import RescoreConfig
from kp_batch.errors import WarehouseError
from kp_batch.ingest import scan
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse import publication
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.snapshot import published
from tests.support.kill.removal import Killed, assert_same, of_a_full_run, said, settings_of, write
from tests.support.oracle.tables import tables
from tests.support.read.errors import fails_with

pytestmark = pytest.mark.slow

EXAMPLES = os.environ.get("KP_LAW_EXAMPLES")
WORDS = "unspeakable"  # in the texts of the traces that are forgotten
FORGOTTEN = ("kp:trace:secret-1", "kp:trace:secret-2")
OTHERS = tuple(f"kp:trace:{number}" for number in range(9))
KEPT = ("scores", "rejects", "files", "facts", "profiles")

Rows = list[dict[str, Any]]


def row(name: str, words: str, hours: int, agent: str, confidence: float) -> dict[str, Any]:
    words = f"{WORDS} {words}" if name in FORGOTTEN else words
    time = f"2026-01-{5 + hours // 4:02d}T{8 + hours % 4:02d}:00:00Z"  # ties come up
    more = {"id": name, "created_at": time, "agent_id": agent, "confidence": confidence}
    return said("", words, 0, **more)


def rows(names: Collection[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        row,
        st.sampled_from(sorted(names)),
        st.sampled_from(["fix it", "sum the rows", "plan a trip", "fix the rows"]),
        st.integers(0, 20),
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from([0.5, 0.5, 0.5, 0.9, 7.0]),  # the last one is rejected
    )


night = st.tuples(
    st.lists(rows(OTHERS), min_size=1, max_size=6),
    st.lists(rows(FORGOTTEN), max_size=2),
    st.randoms(use_true_random=False),
).map(lambda drawn: drawn[2].sample(both := [*drawn[0], *drawn[1]], len(both)))
# Later nights bring late traces, correct earlier ones, and repeat them; some replace a file.
nights = st.lists(
    st.tuples(st.sampled_from(["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"]), night),
    min_size=2,
    max_size=3,
)
caches = st.fixed_dictionaries(
    {
        "cache_size": st.integers(1, 4),
        "ttl": st.sampled_from(["none", "2h", "2d"]),
        "cache_by": st.sampled_from(["none", "none", "agent_id"]),
    }
)


class Warehouse:
    """An archive of several nights, and a warehouse with a run for each."""

    def __init__(self, folder: Path, nights: list[tuple[str, Rows]], **cache: Any) -> None:
        self.folder, self.cache = folder, cache
        self.archive: dict[str, Rows] = {"0.jsonl": [row("kp:trace:sound", "fix it", 3, "a", 0.5)]}
        self.path = self.config.warehouse
        self.runs: list[str] = []
        for name, content in nights:
            self.archive[name] = content
            write(folder, self.archive)
            if run := rescore_archive(self.config).run_id:
                self.runs.append(run)

    @property
    def config(self) -> RescoreConfig:
        return settings_of(self.folder, max_removed="100%", **self.cache)

    def as_of(self, run: str) -> dict[str, pl.DataFrame]:
        then = published(self.path, run)
        return {name: then.scan(name).collect() for name in KEPT}

    def wanted(self, without: Collection[str]) -> dict[str, pl.DataFrame]:
        """The tables of one full run over the archive without traces, and how many rows it read."""
        write(self.folder, self.archive, without)
        found = of_a_full_run(self.config)
        found["files"] = ledger(self.path.with_name("reference"))
        write(self.folder, self.archive)
        return found

    def assert_law(self, without: Collection[str]) -> None:
        wanted = self.wanted(without)
        assert_same({**tables(self.path), "files": ledger(self.path)}, wanted)


def ledger(warehouse: Path) -> pl.DataFrame:
    return published(warehouse).scan("files").select("source_file", "rows").collect()


def less(state: dict[str, pl.DataFrame], ids: Collection[str]) -> dict[str, pl.DataFrame]:
    """What a run left, without traces."""
    gone = state["facts"].filter(pl.col("trace_id").is_in(ids)).group_by("file_id").len("gone")
    counted = state["files"].join(gone, on="file_id", how="left", maintain_order="left")
    nearest = pl.col("nearest_trace_id")
    found = {
        name: state[name].filter(~pl.col("trace_id").is_in(ids).fill_null(value=False))
        for name in ("scores", "rejects", "facts")
    }
    return {
        **state,
        **found,
        "scores": found["scores"].with_columns(pl.when(~nearest.is_in(ids)).then(nearest)),
        "files": counted.with_columns(pl.col("rows") - pl.col("gone").fill_null(0)).drop("gone"),
    }


def assert_kept(warehouse: Warehouse, before: dict[str, dict[str, pl.DataFrame]]) -> None:
    for run, state in before.items():
        now = warehouse.as_of(run)
        for name, wanted in state.items():
            order = [c for c in wanted.columns if wanted[c].dtype != pl.List(pl.String)]
            assert now[name].sort(order).equals(wanted.sort(order)), f"{name} of {run}"


def places(folder: Path, secrets: Collection[str]) -> Iterator[str]:
    """Each file whose name or content has a secret."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = str(path).encode() + path.read_bytes()
            if path.suffix == ".parquet":
                content += repr(pl.read_parquet(path, hive_partitioning=False).rows()).encode()
            if any(secret.encode() in content for secret in secrets):
                yield str(path)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are known by their times at once, though they were just written."""
    monkeypatch.setattr(scan, "MTIME_MARGIN_NS", -(10**18))


lawful = settings(
    max_examples=int(EXAMPLES or 6),
    phases=tuple(Phase) if EXAMPLES else (Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
    deadline=None,
)


@pytest.fixture
def without_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the time of a tiny run; nothing here opens one."""
    monkeypatch.setattr(publication, "build_published", lambda catalog, _: catalog.touch())
    monkeypatch.setattr(publication, "is_current", lambda *_: True)


@pytest.mark.telling
@pytest.mark.usefixtures("without_catalogs")
@lawful
@given(nights=nights, cache=caches, back=st.tuples(*[st.integers(0, 2)] * 2))
def test_law_to_forget_and_roll_back_and_run_is_one_full_run_without_the_trace(
    nights: list[tuple[str, Rows]], cache: dict[str, Any], back: tuple[int, ...]
) -> None:
    folder = Path(tempfile.mkdtemp())
    warehouse = Warehouse(folder, nights, **cache)
    before = {run: warehouse.as_of(run) for run in warehouse.runs}
    for number, (trace_id, run) in enumerate(zip(FORGOTTEN, back, strict=True), 1):
        ids = FORGOTTEN[:number]
        forget(warehouse.path, [trace_id], unseen_too=True)
        before = {run: less(state, ids) for run, state in before.items()}
        assert_kept(warehouse, before)
        rollback(warehouse.path, warehouse.runs[run % len(warehouse.runs)])
        rescore_archive(warehouse.config)
        warehouse.assert_law(ids)
    assert rescore_archive(warehouse.config).run_id is None
    assert not [*places(warehouse.path, [*ids, WORDS])]
    shutil.rmtree(folder)


@pytest.mark.telling
@pytest.mark.parametrize("hours", [2, 5], ids=["at a time of others", "at its own time"])
def test_neighbours_of_a_forgotten_trace_are_replayed_after_a_rollback(
    tmp_path: Path, hours: int
) -> None:
    """Nothing else in the archive has changed, and no row of the state that is published has it."""
    times = enumerate((1, 2, 2, 6))
    others = [row(f"kp:trace:{number}", f"look {number}", at, "a", 0.5) for number, at in times]
    content = [*others[:2], row(FORGOTTEN[0], "look 3", hours, "a", 0.5), *others[2:]]
    warehouse = Warehouse(tmp_path, [("a.jsonl", content)], cache_size=1)
    [run] = warehouse.runs
    scores = warehouse.as_of(run)["scores"]
    [met] = scores.filter(pl.col("nearest_trace_id") == FORGOTTEN[0])["trace_id"]
    forget(warehouse.path, FORGOTTEN[:1])
    rollback(warehouse.path, run)
    scores = published(warehouse.path).scan("scores").collect()
    stale = scores.filter(pl.col("trace_id") == met)
    assert stale["nearest_trace_id"].to_list() == [None]
    assert stale["max_similarity"].null_count() == 0
    summary = rescore_archive(warehouse.config)
    assert summary.counts.replayed == (3 if hours == 2 else 1)
    warehouse.assert_law(FORGOTTEN[:1])


class Mortal:
    """Kills at one of the calls that change a file's name, or remove it, once it is published."""

    def __init__(self, patch: pytest.MonkeyPatch, manifest: Path, at: int) -> None:
        self.left, self.manifest, self.before = at, manifest, manifest.read_bytes()
        for name in ("replace", "unlink", "rmdir"):
            patch.setattr(Path, name, self.dying(getattr(Path, name)))

    def dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if self.manifest.read_bytes() == self.before:
                return call(*args, **kwargs)
            if self.left == 0:
                raise Killed
            self.left -= 1
            return call(*args, **kwargs)

        return called


def test_a_forget_that_is_killed_at_any_call_is_finished_by_the_same_command(
    tmp_path: Path,
) -> None:
    content = [row(f"kp:trace:{n}", f"look {n}", 4 * n, "a", 0.5) for n in range(3)]
    secret = row(FORGOTTEN[0], "look", 5, "a", 0.5)
    warehouse = Warehouse(
        tmp_path,
        [("a.jsonl", content), ("b.jsonl", [secret]), ("c.jsonl", [*content[:1], secret])],
    )
    wanted = warehouse.wanted(FORGOTTEN[:1])
    before = {run: less(warehouse.as_of(run), FORGOTTEN[:1]) for run in warehouse.runs}
    shutil.copytree(warehouse.path, tmp_path / "kept")
    for at in range(0, 1_000, 1 if EXAMPLES else 9):
        shutil.rmtree(warehouse.path)
        shutil.copytree(tmp_path / "kept", warehouse.path)
        with pytest.MonkeyPatch.context() as patch:
            mortal = Mortal(patch, Layout(warehouse.path).manifest, at)
            with suppress(Killed):
                forget(warehouse.path, FORGOTTEN[:1])
        assert tables(warehouse.path)["scores"].equals(wanted["scores"])
        for run in warehouse.runs:
            warehouse.as_of(run)  # all files are there
        if Layout(warehouse.path).forgetting.exists():
            with fails_with(WarehouseError, "unfinished_forget"):
                rollback(warehouse.path, warehouse.runs[0])
        forget(warehouse.path, FORGOTTEN[:1])
        assert_kept(warehouse, before)
        assert_same({**tables(warehouse.path), "files": ledger(warehouse.path)}, wanted)
        assert not [*places(warehouse.path, [FORGOTTEN[0], WORDS])]
        if mortal.left:  # it has ended before that
            break
