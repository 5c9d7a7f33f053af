"""What is removed for good, old versions and forgotten traces, and that all else stays."""

import hashlib
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import kp_batch.ingest.scan
import kp_batch.pipeline.rescore
import kp_batch.pipeline.vacuum
from kp_batch.archive.validation import CHECKS
from kp_batch.embedding.chunks import write_chunk
from kp_batch.embedding.encoders import Hashing
from kp_batch.embedding.vector_store import VectorStore
from kp_batch.errors import ArchiveError, WarehouseError
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import rollback
from kp_batch.operations.verify import verify
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.schemas import GROWING, TABLES, VIEWS
from kp_batch.warehouse import publication
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.vacuum_result import VacuumResult
from tests.support.kill.removal import (
    Killed,
    assert_same,
    can_be_read,
    killed,
    left_by_three_runs,
    needed,
    of_a_full_run,
    parquet,
    published,
    refused,
    said,
    settings_of,
    write,
)
from tests.support.make.archives import write_jsonl
from tests.support.make.publications import Draft, files_of
from tests.support.make.vector_stores import Opened
from tests.support.oracle.tables import tables
from tests.support.processes.holder import HOLD, holding
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, listing, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

SECRET = "kp:trace:secret"


def text_hash(words: str) -> str:
    return hashlib.sha256(f"{words} {words}".encode()).hexdigest()


def views(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[Any, ...]]]:
    return {name: connection.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in VIEWS}


def facts(warehouse: Path) -> pl.DataFrame:
    paths = files_of(warehouse, "facts")
    return pl.concat([TABLES["facts"].to_frame(), *map(pl.read_parquet, paths)])


def stored(warehouse: Path) -> set[str]:
    """The names of all vectors, as their encoder and hash."""
    return {
        f"{path.parent.name}/{digest.decode()}"
        for path in (warehouse / "vectors").glob("*/*.hashes.npy")
        for digest in np.load(path)["hash"]
    }


def hashing(*texts: str) -> set[str]:
    return {f"hashing-384-v1/{text_hash(words)}" for words in texts}


# --- vacuum ---


class ThreeRuns:
    """Three runs: the last one's archive has lost a file and rewritten another."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings_of(folder)
        self.warehouse = folder / "warehouse"
        self.archive = folder / "archive"
        self.runs: list[str] = []
        self.states: list[dict[str, list[tuple[Any, ...]]]] = []
        self.first = {
            "a.jsonl": [said(1, "fix it", 8), refused("no", success=None)],
            "b.jsonl": [said(2, "lose it", 9), refused("never")],
        }
        write(folder, self.first)
        self.run()
        write_jsonl(self.archive / "a.jsonl", [said(1, "fix all", 8), said(3, "see it", 10)])
        (self.archive / "b.jsonl").unlink()
        self.run()
        write_jsonl(self.archive / "a.jsonl", [said(1, "fix more", 8), said(3, "see it", 10)])
        write_jsonl(self.archive / "c.jsonl", [said(4, "sum it", 11), refused("later")])
        self.run()

    def run(self) -> None:
        self.runs.append(rescore_archive(self.settings).run_id)
        with connect(self.warehouse) as connection:
            self.states.append(views(connection))

    def vacuum(self, kept: int) -> VacuumResult:
        """Remove what is older than the last so many runs."""
        return vacuum(self.warehouse, *self.keeping(kept))

    def keeping(self, kept: int) -> tuple[timedelta, datetime]:
        """How long to keep, and the time, so that the last so many runs stay."""
        ends = sorted(
            end for (end,) in ask_rows(self.settings.warehouse, "SELECT finished_at FROM runs")
        )
        keep = timedelta(days=30)
        since = ends[-kept] if kept else ends[-1] + timedelta(seconds=1)
        return keep, since + keep

    def readable(self) -> tuple[str, ...]:
        return tuple(run for run in self.runs if can_be_read(self.warehouse, run))


def counted(removed: VacuumResult) -> tuple[int, ...]:
    return removed.files, removed.facts, removed.raw_rows, removed.vectors


@pytest.fixture(scope="module")
def all_nights(tmp_path_factory: pytest.TempPathFactory) -> ThreeRuns:
    folder = tmp_path_factory.mktemp("vacuum")
    nights = ThreeRuns(folder)
    keep(folder)
    return nights


@pytest.fixture
def nights(all_nights: ThreeRuns) -> ThreeRuns:
    """The same nights again, whatever the last test made of them."""
    restore(all_nights.archive.parent)
    return all_nights


def test_vacuum_keeps_what_the_last_runs_left_and_who_reads_what_is_published_reads_on(
    nights: ThreeRuns,
) -> None:
    gone, *kept = nights.runs
    with duckdb.connect(str(nights.warehouse / "kp.duckdb"), read_only=True) as reader:
        reader.execute("SET TimeZone = 'UTC'")
        before = views(reader)
        assert nights.vacuum(2).raw_rows > 0
        assert views(reader) == before
    for run_id, expected in zip(kept, nights.states[-2:], strict=True):
        with connect(nights.warehouse, run_id) as connection:
            assert views(connection) == expected
    with pytest.raises(WarehouseError, match="were removed"):
        connect(nights.warehouse, gone).__enter__()
    with connect(nights.warehouse) as connection:
        now = views(connection)
    for name in ("scores", "profiles", "runs", "files"):
        assert now[name] == nights.states[-1][name]


def test_a_dry_run_shows_what_vacuum_removes_and_changes_nothing(
    nights: ThreeRuns, tmp_path: Path
) -> None:
    """Before and after a vacuum that removes all that can be."""
    needless = nights.warehouse / "vectors" / "hashing-8-v0"
    write_chunk(needless, pl.Series([text_hash("other")]), np.eye(1, 8, dtype=np.float32))
    for vacuums in range(2):
        before = Path(shutil.copytree(nights.warehouse, tmp_path / f"{vacuums}"))
        for kept in (2, 0):
            shutil.rmtree(nights.warehouse)
            shutil.copytree(before, nights.warehouse)
            case = f"{kept} runs are kept after {vacuums} vacuums"
            files, could_be_read = listing(nights.warehouse), nights.readable()
            result = vacuum(nights.warehouse, *nights.keeping(kept), dry_run=True)
            assert listing(nights.warehouse) == files, case
            assert nights.vacuum(kept) == result, case
            can_be = nights.readable()
            assert result.readable == can_be, case
            assert result.lost == tuple(run for run in could_be_read if run not in can_be), case


def test_vacuum_leaves_no_file_that_nothing_needs_and_no_json_of_old_rejects(
    nights: ThreeRuns,
) -> None:
    assert places(nights.warehouse, ["refused words"])
    before, was_published = parquet(nights.warehouse), needed(nights.warehouse)
    with duckdb.connect(str(nights.warehouse / "kp.duckdb"), read_only=True) as reader:
        rows = views(reader)
        removed = nights.vacuum(0)
        assert views(reader) == rows
    after = parquet(nights.warehouse)
    # What the last run left stays, for who still reads it, and to be rolled back to.
    assert after == needed(nights.warehouse) | was_published
    assert removed.files == len(before - after)
    joined = sum(path.parent.name in GROWING for path in was_published)
    assert counted(nights.vacuum(0)) == (joined, 0, 0, 0)
    assert counted(nights.vacuum(0)) == (0, 0, 0, 0)
    write_jsonl(nights.archive / "d.jsonl", [said(5, "try it", 12)])
    rescore_archive(nights.settings)
    was_published = needed(nights.warehouse)
    nights.vacuum(0)
    assert parquet(nights.warehouse) == needed(nights.warehouse) | was_published
    assert places(nights.warehouse, ["refused words"]) == []


def test_vacuum_removes_what_killed_runs_left_and_files_in_no_log(nights: ThreeRuns) -> None:
    before = parquet(nights.warehouse)
    rows: dict[str, dict[str, Any]] = {
        "scores": {"date": [datetime(2026, 1, 5, tzinfo=UTC).date()]},
        **{
            name: {next(iter(TABLES[name])): ["of a killed run"]}
            for name in ("profiles", "facts", "forgotten")
        },
    }
    dead = Draft(nights.warehouse, "killed")
    for name, row in rows.items():
        dead.append(name, pl.concat([TABLES[name].to_frame(), pl.DataFrame(row)], how="diagonal"))
    dead.candidate.move_files()
    for folder in ("scores/date=2026-01-05", "facts"):
        (nights.warehouse / folder / "half-written.parquet").write_bytes(b"PAR1")
    assert len(parquet(nights.warehouse) - before) == len(rows) + 2
    (nights.warehouse / "last-run.json").touch()
    nights.vacuum(3)
    assert (nights.warehouse / "last-run.json").exists()
    assert parquet(nights.warehouse) - before == needed(nights.warehouse) - before
    with connect(nights.warehouse) as connection:
        assert views(connection)["scores"] == nights.states[-1]["scores"]


@pytest.mark.telling
def test_vacuum_removes_facts_of_replaced_content_and_vectors_that_nothing_needs(
    nights: ThreeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a dry run predicts.
    monkeypatch.setattr(VectorStore, "count_mergeable", killed)
    needless = pl.Series([text_hash("fix more"), text_hash("other")])
    other = nights.warehouse / "vectors" / "hashing-8-v0"
    write_chunk(other, needless, np.eye(2, 8, dtype=np.float32))
    assert len(facts(nights.warehouse)) == 2 + 2 + 2 + 2 + 2
    removed = nights.vacuum(3)
    assert (removed.facts, removed.vectors) == (4, 2 + 2)
    rows = facts(nights.warehouse)
    ledger = ask_rows(nights.settings.warehouse, "SELECT file_id FROM files")
    assert set(rows["file_id"]) == {file_id for (file_id,) in ledger}
    ids = ["1", "2", "3", "4", "later", "never"]
    assert sorted(rows["trace_id"]) == [f"kp:trace:{name}" for name in ids]
    assert stored(nights.warehouse) == hashing("lose it", "see it", "fix more", "sum it")
    assert not other.exists()
    kept = Opened(nights.warehouse / "vectors" / Hashing.encoder_id)
    words = ["sum it", "lose it", "fix more", "see it"]
    vectors = kept.gather(pl.Series([text_hash(word) for word in words]))
    assert (vectors == Hashing().encode([f"{word} {word}" for word in words])).all()


def test_vacuum_drops_the_json_of_old_rejects_for_good(nights: ThreeRuns) -> None:
    query = "SELECT trace_id, raw FROM rejects ORDER BY trace_id"
    [later, never] = ask_rows(nights.settings.warehouse, query)
    assert nights.vacuum(1).raw_rows == 1
    rows = [later, (never[0], None)]
    assert ask_rows(nights.settings.warehouse, query) == rows
    assert nights.vacuum(1).raw_rows == 0
    assert rescore_archive(nights.settings).run_id is None
    write_jsonl(nights.archive / "d.jsonl", [said(5, "add it", 12)])
    write(nights.archive.parent, {"b.jsonl": nights.first["b.jsonl"]})  # it was gone
    rescore_archive(nights.settings)
    assert ask_rows(nights.settings.warehouse, query) == rows


def test_law_after_vacuum_nothing_is_to_be_done_and_later_runs_are_lawful(
    nights: ThreeRuns,
) -> None:
    nights.vacuum(0)
    assert rescore_archive(nights.settings).run_id is None
    # What is back is of content that was known and removed, and of content that was kept.
    write_jsonl(nights.archive / "a.jsonl", nights.first["a.jsonl"])
    write_jsonl(nights.archive / "b.jsonl", nights.first["b.jsonl"])
    write_jsonl(nights.archive / "d.jsonl", [said(5, "add it", 9), refused("last")])
    changed = nights.settings.model_copy(update={"cache_size": 2, "threshold": 0.2})
    assert rescore_archive(changed).counts.embedded == 2  # fix it, add it
    actual, wanted = tables(nights.warehouse), of_a_full_run(changed)
    raw = actual["rejects"]["raw"], wanted["rejects"]["raw"]
    dropped = actual["rejects"].filter(raw[0].ne_missing(raw[1]))
    assert dropped["raw"].to_list() == [None] * 2
    assert set(dropped["message"]) == {CHECKS["bad_confidence"].message}  # nobody knows the value
    for side in (actual, wanted):
        kept = pl.when(raw[0] == raw[1]).then("message").alias("message")
        side["rejects"] = side["rejects"].with_columns(kept).drop("raw")
    assert_same(actual, wanted)


def test_neither_vacuum_nor_forget_waits_for_another_writer(nights: ThreeRuns) -> None:
    before = parquet(nights.warehouse), published(nights.warehouse)
    with holding(HOLD, nights.warehouse) as holder:
        refusal = f"process {holder.pid} "
        with pytest.raises(WarehouseError, match=refusal):
            nights.vacuum(0)
        with pytest.raises(WarehouseError, match=refusal):
            forget(nights.warehouse, ["kp:trace:1"])
    assert (parquet(nights.warehouse), published(nights.warehouse)) == before


@pytest.mark.parametrize("work", ["unlink", "merge_small", "publish"])
def test_a_killed_vacuum_takes_nothing_away_and_the_next_one_ends_it(
    nights: ThreeRuns, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    was_published = needed(nights.warehouse)
    with monkeypatch.context() as patch:
        owner = Path if work == "unlink" else kp_batch.pipeline.vacuum
        patch.setattr(owner, work, killed)
        with pytest.raises(Killed):
            nights.vacuum(0)
    assert rescore_archive(nights.settings).run_id is None
    nights.vacuum(0)
    now = needed(nights.warehouse)
    of_runs = {path for path in was_published if path.parent.name not in GROWING}
    assert now | of_runs <= parquet(nights.warehouse) <= now | was_published
    assert stored(nights.warehouse) == hashing("lose it", "see it", "fix more", "sum it")
    assert tables(nights.warehouse)["scores"].height == 4


def test_vacuum_merges_the_small_files_of_vectors_that_nights_left(nights: ThreeRuns) -> None:
    def files() -> int:
        return len([*nights.warehouse.glob("vectors/*/*.hashes.npy")])

    assert (files(), nights.vacuum(3).merged, files()) == (3, 3, 4)  # a later one removes these
    assert (nights.vacuum(3).merged, files()) == (0, 1)
    assert verify(nights.warehouse, traces=9, seed=0, embed=True).wrong == ""
    assert rescore_archive(nights.settings).run_id is None
    with connect(nights.warehouse, nights.runs[0]) as connection:
        assert views(connection) == nights.states[0]


def test_vectors_survive_a_killed_removal(
    nights: ThreeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector of a file that is gone cannot be made again."""
    unlink = Path.unlink

    def dying(path: Path, *, missing_ok: bool = False) -> None:
        if not missing_ok and path.name.endswith(".hashes.npy"):
            raise Killed
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dying)
        with pytest.raises(Killed):
            nights.vacuum(0)
    nights.vacuum(0)
    assert stored(nights.warehouse) == hashing("lose it", "see it", "fix more", "sum it")


def test_a_vacuum_after_a_failed_run_keeps_the_json_of_what_is_published(nights: ThreeRuns) -> None:
    query = "SELECT trace_id, raw, message FROM rejects ORDER BY trace_id"
    before, file = ask_rows(nights.settings.warehouse, query), nights.archive / "c.jsonl"
    assert all(raw for _, raw, _ in before)
    content = file.read_bytes()
    file.write_bytes(b"no longer JSON\n")
    with pytest.raises(ArchiveError):
        rescore_archive(nights.settings.model_copy(update={"max_reject_share": "0%"}))
    vacuum(nights.warehouse, timedelta(days=30), datetime.now(UTC))
    file.write_bytes(content)
    rescore_archive(nights.settings)
    assert ask_rows(nights.settings.warehouse, query) == before


@pytest.mark.parametrize("work", [vacuum, forget])
def test_where_no_warehouse_is_nothing_is_made(tmp_path: Path, work: Any) -> None:
    rest = ([SECRET],) if work is forget else (timedelta(days=1), datetime.now(UTC))
    with fails_with(WarehouseError, "no_warehouse"):
        work(tmp_path / "none", *rest)


def test_a_warehouse_without_scores_can_be_vacuumed(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [refused("no")])
    settings = settings_of(tmp_path)
    with pytest.raises(ArchiveError):
        rescore_archive(settings)
    vacuum(settings.warehouse, timedelta(0), datetime.now(UTC))
    assert ask_rows(settings.warehouse, "SELECT raw FROM rejects") == [(None,)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", [said(1, "fix it", 8)])
    rescore_archive(settings)
    assert ask_rows(settings.warehouse, "SELECT trace_id FROM scores") == [("kp:trace:1",)]
    assert ask_rows(settings.warehouse, "SELECT count(*) FROM rejects") == [(0,)]


def test_the_last_run_can_be_rolled_back_to_though_files_times_were_published_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.ingest.scan, "MTIME_MARGIN_NS", -(10**18))
    warehouse = tmp_path / "warehouse"
    write(tmp_path, {"a.jsonl": [said("one", "fix it", 5)]})
    rescore_archive(settings_of(tmp_path))
    before = published(warehouse)
    (tmp_path / "archive" / "a.jsonl").chmod(0o640)
    assert rescore_archive(settings_of(tmp_path)).run_id is None
    assert published(warehouse).tables["files"] != before.tables["files"]
    assert vacuum(warehouse, timedelta(0), datetime.now(UTC)).lost == ()
    write(tmp_path, {"b.jsonl": [said("two", "plan it", 6)]})
    rescore_archive(settings_of(tmp_path))
    rollback(warehouse, "previous")
    assert ask_rows(settings_of(tmp_path).warehouse, "SELECT trace_id FROM scores") == [
        ("kp:trace:one",)
    ]


# --- forget ---

TWICE = "said by two"
ODD = "kp é 日本, it's\na\t%\" "  # an id may be any text
OLDER = {"a.jsonl": [said(SECRET, "older words", 8, id=SECRET), said(1, "fix it", 8)]}
NEWER = {
    "a.jsonl": [said(SECRET, "first words", 8, id=SECRET), said(1, "fix it", 8)],
    "b.jsonl": [
        said(2, "sum it", 9),
        said(SECRET, "a secret plan", 10, id=SECRET),
        said(3, "a secret trip", 11),
        said(SECRET, "refused plan", 8, id=SECRET, confidence=7.0),
        refused("bad"),
        said(4, "plan it", 12),
    ],
    "c.jsonl": [said(5, TWICE, 13), said("", TWICE, 14, id=ODD), said(1, "fix it all", 15)],
}
EMBEDDED = ("older words", "first words", "a secret plan")  # of the secret


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs over an archive that contained the secret in all ways."""
    folder = tmp_path_factory.mktemp("forget")
    return left_by_three_runs(folder, OLDER, NEWER, cache_size=3)


@pytest.fixture
def folder(as_it_was: Path) -> Path:
    restore(as_it_was)
    return as_it_was


@cache
def without(folder: Path, *ids: str) -> dict[str, pl.DataFrame]:
    """The tables of a full run over the same archive without some traces."""
    write(folder, NEWER, ids)
    wanted = of_a_full_run(settings_of(folder, cache_size=3))
    write(folder, NEWER)
    return wanted


def places(warehouse: Path, sought: Iterable[str]) -> list[str]:
    """Every file below the folder whose name or content has one of the words."""
    words = [word.encode() for word in sought]
    matches = []
    for path in sorted(warehouse.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes() + str(path.relative_to(warehouse)).encode()
        if path.suffix == ".parquet":
            content += repr(pl.read_parquet(path, hive_partitioning=False).rows()).encode()
        if any(word in content for word in words):
            matches.append(str(path.relative_to(warehouse)))
    return matches


def vectors_in(warehouse: Path, texts: Iterable[str]) -> list[str]:
    """Every file below the folder that contains a text's vector."""
    vectors = Hashing().encode([f"{words} {words}" for words in texts])
    sought = [vector.tobytes() for vector in vectors]
    paths = [path for path in sorted(warehouse.rglob("*")) if path.is_file()]
    return [str(path) for path in paths if any(vector in path.read_bytes() for vector in sought)]


def traces_of(warehouse: Path) -> list[str]:
    """Every file that contains something of the secret."""
    texts = (*EMBEDDED, "refused plan")
    matches = places(warehouse, [SECRET, *texts, *map(text_hash, texts)])
    return matches + vectors_in(warehouse, EMBEDDED)


@pytest.mark.telling
def test_what_is_sought_is_found_before_it_is_forgotten(folder: Path) -> None:
    assert {path.partition("/")[0] for path in places(folder / "warehouse", [SECRET])} == {
        "facts",
        "rejects",
        "scores",
    }
    assert len(vectors_in(folder / "warehouse", ["a secret plan"])) == 1
    assert {path.split("/")[0] for path in places(folder / "warehouse", [text_hash(TWICE)])} == {
        "facts",
        "scores",
        "vectors",
    }


def test_law_forgetting_leaves_the_tables_of_an_archive_without_that_trace_and_nothing_of_it(
    folder: Path,
) -> None:
    content = facts(folder / "warehouse").filter(pl.col("trace_id") == SECRET)["content_hash"]
    assert places(folder / "warehouse", content)
    runs = [run for (run,) in ask_rows(settings_of(folder).warehouse, "SELECT run_id FROM runs")]
    assert len(runs) == 3
    summary = forget(folder / "warehouse", [SECRET])
    assert summary.traces == 1
    actual = tables(folder / "warehouse")
    assert_same(actual, without(folder, SECRET))
    assert actual["rejects"]["trace_id"].to_list() == ["kp:trace:1", "kp:trace:bad"]
    assert traces_of(folder / "warehouse") == []
    assert places(folder / "warehouse", content) == []
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert {path.partition("/")[0] for path in places(folder / "warehouse", [digest])} == {
        "forgotten"
    }
    assert hashing("older words").isdisjoint(stored(folder / "warehouse"))
    for run_id in runs:
        with connect(folder / "warehouse", run_id) as connection:
            query = "SELECT count(*) FROM scores WHERE trace_id = ? OR nearest_trace_id = ?"
            assert connection.execute(query, [SECRET, SECRET]).fetchall() == [(0,)]
    with connect(folder / "warehouse", summary.run_id) as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(6,)]


def test_a_forgotten_trace_stays_out_of_later_runs_and_vacuums(folder: Path) -> None:
    forget(folder / "warehouse", [SECRET])
    assert rescore_archive(settings_of(folder, cache_size=3)).run_id is None
    assert ask_rows(settings_of(folder).warehouse, 'SELECT "rows" FROM files ORDER BY ALL') == [
        (1,),
        (3,),
        (4,),
    ]
    vacuum(folder / "warehouse", timedelta(0), datetime.now(UTC))
    assert traces_of(folder / "warehouse") == []
    settings = settings_of(folder, cache_size=2, threshold=0.1)
    again = {"b.jsonl": [*NEWER["b.jsonl"], said(6, "see it", 16)]}
    write(folder, again)
    write(folder, {"d.jsonl": [said(SECRET, "a secret plan", 17, id=SECRET)]})
    rescore_archive(settings)
    assert traces_of(folder / "warehouse") == []
    actual = tables(folder / "warehouse")
    write(folder, NEWER | again, [SECRET])
    (folder / "archive" / "d.jsonl").write_bytes(b"\n")
    assert_same(actual, of_a_full_run(settings))


def test_a_superseded_row_goes_with_its_trace_and_a_text_that_another_has_keeps_its_vector(
    folder: Path,
) -> None:
    forget(folder / "warehouse", ["kp:trace:1", "kp:trace:5"])
    assert_same(tables(folder / "warehouse"), without(folder, "kp:trace:1", "kp:trace:5"))
    assert places(folder / "warehouse", ['kp:trace:1"', text_hash("fix it all")]) == []
    assert hashing(TWICE) <= stored(folder / "warehouse")
    forget(folder / "warehouse", [ODD])
    assert hashing(TWICE).isdisjoint(stored(folder / "warehouse"))
    assert places(folder / "warehouse", [text_hash(TWICE), "kp:trace:5", "日本"]) == []


def test_forgetting_all_traces_leaves_empty_tables_and_an_id_that_nobody_knows_stays_out(
    folder: Path,
) -> None:
    known = {row["id"] for rows in NEWER.values() for row in rows}
    ids = [*sorted(known), "kp:trace:unknown", "kp:trace:unknown", "é 日本"]
    result = forget(folder / "warehouse", ids, unseen_too=True)
    assert (result.traces, result.rows, result.replaced, result.unseen) == (7, 4, 0, 2)
    assert {name: len(rows) for name, rows in tables(folder / "warehouse").items()} == {
        "scores": 0,
        "rejects": 0,
        "profiles": 5,
    }
    assert len(facts(folder / "warehouse")) == len(stored(folder / "warehouse")) == 0
    assert places(folder / "warehouse", known) == []
    write(folder, {"d.jsonl": [said("unknown", "not yet known", 7), said(7, "known", 7)]})
    rescore_archive(settings_of(folder, cache_size=3))
    assert tables(folder / "warehouse")["scores"]["trace_id"].to_list() == ["kp:trace:7"]
    assert places(folder / "warehouse", ["unknown", text_hash("not yet known")]) == []


def test_a_forget_that_is_killed_before_it_publishes_changes_nothing_until_it_is_given_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(folder / "warehouse")
    predicted = forget(folder / "warehouse", [SECRET], dry_run=True)
    with monkeypatch.context() as patch:
        patch.setattr(kp_batch.pipeline.rescore, "publish_success", killed)
        with pytest.raises(Killed):
            forget(folder / "warehouse", [SECRET])
    assert rescore_archive(settings_of(folder, cache_size=3)).run_id is None
    assert_same(tables(folder / "warehouse"), before)
    done = forget(folder / "warehouse", [SECRET])
    assert done.finishes
    assert done.vectors == predicted.vectors > 0
    assert traces_of(folder / "warehouse") == []
    assert_same(tables(folder / "warehouse"), without(folder, SECRET))
    assert rescore_archive(settings_of(folder, cache_size=3)).run_id is None


def test_what_a_killed_run_left_of_a_trace_is_forgotten_as_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"d.jsonl": [said("dead", "never published", 7)]})
    with monkeypatch.context() as patch:
        patch.setattr(kp_batch.pipeline.rescore, "publish_success", killed)
        patch.setattr(publication, "remove_working_files", lambda _: None)
        with pytest.raises(Killed):
            rescore_archive(settings_of(folder, cache_size=3))
    assert places(folder / "warehouse", ["kp:trace:dead"])
    forget(folder / "warehouse", ["kp:trace:dead"], unseen_too=True)
    assert places(folder / "warehouse", ["kp:trace:dead", text_hash("never published")]) == []
    assert vectors_in(folder / "warehouse", ["never published"]) == []


def not_done(_path: Path, **_: bool) -> None:
    pass


@pytest.mark.parametrize(
    ("ending", "work"),
    [(".vectors.npy", "forget"), (".hashes.npy", "vacuum")],
)
def test_half_a_chunk_of_a_killed_run_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str, work: str
) -> None:
    write(folder, {"d.jsonl": [said("dead", "never published", 7)]})
    replace = Path.replace

    def dying(path: Path, target: Path) -> Path:
        if str(target).endswith(ending):
            raise Killed
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        patch.setattr(Path, "unlink", not_done)  # who is killed removes nothing
        with pytest.raises(Killed):
            rescore_archive(settings_of(folder, cache_size=3))
    assert vectors_in(folder / "warehouse", ["never published"])
    if work == "forget":
        forget(folder / "warehouse", ["kp:trace:dead"], unseen_too=True)
    else:
        vacuum(folder / "warehouse", timedelta(0), datetime.now(UTC))
    assert places(folder / "warehouse", ["kp:trace:dead", text_hash("never published")]) == []
    assert vectors_in(folder / "warehouse", ["never published"]) == []


def test_traces_of_a_file_that_is_gone_are_forgotten_without_archive_and_profiles(
    folder: Path,
) -> None:
    profiles = folder / "profiles.toml"
    weights = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
    profiles.write_text("[profiles.code]\n" + "".join(f"{name} = 0.25\n" for name in weights))
    settings = settings_of(folder, cache_size=3, profiles=profiles)
    (folder / "archive" / "b.jsonl").unlink()
    rescore_archive(settings)
    write(folder, NEWER, [SECRET])
    wanted = of_a_full_run(settings)
    profiles.unlink()
    shutil.rmtree(folder / "archive")
    forget(folder / "warehouse", [SECRET])
    assert traces_of(folder / "warehouse") == []
    assert_same(tables(folder / "warehouse"), wanted)
