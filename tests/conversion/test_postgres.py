"""A registry's PostgreSQL database: what is new is read, and the archive is that of all."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi

from kp_batch.conversion.formats.knowledgepulse import FORMAT, rows, rows_of, state_of
from kp_batch.conversion.model import Present, Skipped, SourceRecord
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import KpBatchError, UnreadableError
from kp_batch.imports.days import DailyPartitions
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from tests.support.commands import invoke
from tests.support.importing import (
    imported,
    kp_trace,
    older_importer,
    refusals,
    write_json,
)
from tests.support.postgres import POSTGRES, Registry, postgres_server, registry_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(POSTGRES is None, reason="NO POSTGRESQL: see the end of this output"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Registry]:
    with postgres_server() as database:
        yield database


@pytest.fixture
def registry(server: Registry) -> Iterator[Registry]:
    with registry_of(server) as registry:
        yield registry


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def import_all(archive: Path, *sources: str, **rules: Any) -> Imported:
    return import_traces(FORMAT, sources, archive, load_rules(None, rules))


def objective(archive: Path, name: str) -> str:
    return imported(archive)[f"kp:trace:{name}"]["task"]["objective"]


def of(name: str, text: str) -> dict[str, Any]:
    return kp_trace(name, task={"objective": text})


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def reasons(archive: Path) -> dict[str, list[str]]:
    """Of what is refused, whichever file it was read in first."""
    return {refusal["id"]: refusal["reasons"] for refusal in refusals(archive)}


@pytest.mark.telling
def test_a_database_is_read_as_a_file_is(registry: Registry, archive: Path) -> None:
    registry.put(kp_trace("a"))
    registry.put(kp_trace("b", 2))
    registry.put(kp_trace("c"))
    registry.put({"@type": "ExpertSOP", "id": "x"})
    registry.report("b", "flagged")
    registry.report("c", "quarantined")
    done = import_all(archive, registry.url)
    assert (done.traces, done.refused) == (2, {"quarantined": 1})
    assert done.passed_over == {"ExpertSOP": 1}
    row = imported(archive)["kp:trace:a"]
    assert [step["input"] for step in row["steps"]] == [None, '{"at": 1}']
    assert row["metadata"]["quality_score"] == 0.5


@pytest.mark.telling
def test_an_older_registry_has_fewer_columns_and_may_hold_text(
    registry: Registry, archive: Path
) -> None:
    registry.do("ALTER TABLE knowledge_units DROP quarantine_status, ALTER unit_json TYPE text")
    registry.put(kp_trace("a"))
    registry.do("INSERT INTO knowledge_units (id, unit_json) VALUES ('b', '{cut'), ('c', '[]')")
    registry.do("""INSERT INTO knowledge_units (id, unit_json) VALUES ('d', '{"metadata": {}}')""")
    done = import_all(archive, registry.url)
    assert (done.traces, done.refused) == (1, {"malformed_json": 2, "missing_id": 1})
    registry.put(kp_trace("e"))
    registry.do("UPDATE knowledge_units SET updated_at = now() - interval '2 d' WHERE id < 'e'")
    import_all(archive, registry.url)
    assert [refusal["id"] for refusal in refusals(archive)] == ["b", "c", "d"]


def test_only_what_is_new_is_read_from_an_hour_before(registry: Registry, archive: Path) -> None:
    registry.put(kp_trace("a"), "3 days")
    registry.put(kp_trace("b"), "2 days")
    assert import_all(archive, registry.url).traces == 2
    registry.put(kp_trace("c"), "2 days 50 min")  # as one that began before and commits only now
    registry.put(kp_trace("d"), "2 days 70 min")
    registry.put(kp_trace("e"), "1 day")
    assert import_all(archive, registry.url).traces == 2  # c and e; of b there is nothing new
    assert imported(archive).keys() == {f"kp:trace:{name}" for name in "abce"}


def test_units_without_a_time_or_of_one_to_come_hide_no_others(
    registry: Registry, archive: Path
) -> None:
    registry.do("ALTER TABLE knowledge_units ALTER updated_at DROP NOT NULL")
    registry.put(kp_trace("a"), "2 days")
    registry.put(kp_trace("b"), "-9 days")
    registry.put(kp_trace("c"))
    registry.do("UPDATE knowledge_units SET updated_at = NULL WHERE id = 'kp:trace:c'")
    import_all(archive, registry.url)
    registry.put(kp_trace("d"), "1 day")
    registry.do(
        "UPDATE knowledge_units SET unit_json = $1::jsonb WHERE updated_at IS NULL",
        json.dumps(of("c", "new")),
    )
    assert import_all(archive, registry.url).traces == 2
    assert objective(archive, "c") == "new"
    assert "kp:trace:d" in imported(archive)


@pytest.mark.telling
def test_nothing_new_writes_nothing(registry: Registry, archive: Path) -> None:
    registry.put(kp_trace("a"))
    import_all(archive, registry.url)
    before = {path: path.stat().st_mtime_ns for path in archive.rglob("*.[pj]*")}
    done = import_all(archive, registry.url)
    assert (done.files_read, done.traces, done.files_changed) == (0, 0, 0)
    assert before == {path: path.stat().st_mtime_ns for path in archive.rglob("*.[pj]*")}


def test_a_report_alone_is_noticed(registry: Registry, archive: Path) -> None:
    registry.put(kp_trace("a"), "3 days")
    registry.put(kp_trace("b"))
    import_all(archive, registry.url)
    registry.report("a", "quarantined")
    assert import_all(archive, registry.url).refused == {"quarantined": 1}
    assert imported(archive).keys() == {"kp:trace:b"}
    registry.report("a", "cleared")
    assert import_all(archive, registry.url).refused == {}
    assert refusals(archive) == []


@pytest.mark.parametrize("seed", range(2))
def test_night_by_night_ends_as_all_at_once(
    registry: Registry, archive: Path, tmp_path: Path, seed: int
) -> None:
    """Of a database and a folder that tell of the same traces, whatever happens to these."""
    chance, folder = Random(seed), tmp_path / "files"
    write_json(folder / "0.json", kp_trace("0"))

    def change(at: int) -> None:
        name, day = chance.choice("0123456789"), chance.randint(1, 4)
        trace = {**kp_trace(name, day), "task": {"objective": f"{at}"}}
        match chance.choice(("put", "put", "put", "bad", "file", "quarantined", "cleared")):
            case "put":
                registry.put(trace, f"{90 - at} days")
            case "bad":
                registry.put({**trace, "steps": []}, f"{90 - at} days")
            case "file":
                write_json(folder / f"{name}.json", trace)
            case status:
                registry.report(name, status)

    for night in range(4):
        for index in range(6):
            change(10 * night + index)
        import_all(archive, registry.url, str(folder))
    import_all(tmp_path / "at-once", registry.url, str(folder))
    assert content(archive) == content(tmp_path / "at-once")
    assert len(content(archive)) > 1
    assert reasons(archive) == reasons(tmp_path / "at-once")


def test_of_what_was_read_before_only_the_ids_are_read(registry: Registry) -> None:
    registry.put(kp_trace("a"), "3 days")
    registry.put(kp_trace("b"), "2 days")
    registry.put(kp_trace("c"))
    registry.put(kp_trace("d"), "4 days")
    registry.report("d", "cleared")
    since, _ = state_of(registry.url)
    assert {type(row) for row in rows(registry.url, None)} == {SourceRecord}
    items = [row for row in rows(registry.url, since) if not isinstance(row, Skipped)]
    assert {item.trace: type(item) for item in items} == {
        "kp:trace:a": Present,
        "kp:trace:b": Present,
        "kp:trace:c": SourceRecord,
        "kp:trace:d": SourceRecord,
    }


def test_what_is_deleted_stays_and_is_counted(
    registry: Registry, archive: Path, tmp_path: Path
) -> None:
    registry.put(of("a", "of the database"), "2 days")
    registry.put(kp_trace("b"), "2 days")
    registry.put(kp_trace("c"))
    assert import_all(archive, registry.url).deleted == 0
    registry.do("DELETE FROM knowledge_units WHERE id = 'kp:trace:a'")
    assert import_all(archive, registry.url).deleted == 1
    for name in "ab":
        write_json(tmp_path / "files" / f"{name}.json", of(name, "of a file"))
    import_all(archive, registry.url, str(tmp_path / "files"))
    assert objective(archive, "a") == "of the database"
    assert import_all(archive, registry.url, str(tmp_path / "files")).files_read == 0


def test_what_was_not_read_again_is_still_known(
    registry: Registry, archive: Path, tmp_path: Path
) -> None:
    registry.put(of("a", "of the database"), "3 days")
    for name in "bc":
        registry.put(kp_trace(name))
        import_all(archive, registry.url)
    registry.put(kp_trace("d"))
    path = str(write_json(tmp_path / "a.json", of("a", "of a file")))
    assert import_all(archive, registry.url, path).deleted == 0
    assert objective(archive, "a") == "of the database"


def test_a_trace_of_a_database_and_a_file_is_that_of_the_later_one(
    registry: Registry, archive: Path, tmp_path: Path
) -> None:
    registry.put(of("a", "of the database"), "1 day 1 minute")
    import_all(archive, registry.url)
    path = write_json(tmp_path / "a.json", of("a", "of an export, which tells no time"))
    import_all(archive, registry.url, str(path))
    assert objective(archive, "a") == "of the database"
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("CREATE TABLE knowledge_units (id, unit_json, updated_at)")
        later = "INSERT INTO knowledge_units VALUES ('x', ?, datetime('now', '-1 day'))"
        other.execute(later, [json.dumps(of("a", "of a file"))])
        other.commit()
    sources = registry.url, str(path), str(tmp_path / "a.db")
    import_all(archive, *sources)
    assert objective(archive, "a") == "of a file"
    registry.put(of("a", "newest"))
    import_all(archive, *sources)
    assert objective(archive, "a") == "newest"


def test_a_killed_import_is_made_good_by_the_next(
    registry: Registry, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.put(kp_trace("a"), "3 days")
    registry.put(kp_trace("b"), "2 days")
    import_all(archive, registry.url)
    registry.put(kp_trace("c"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DailyPartitions, "upsert", killed)
        with pytest.raises(KeyboardInterrupt):
            import_all(archive, registry.url)
    assert import_all(archive, registry.url).traces == 1  # c
    import_all(tmp_path / "at-once", registry.url)
    assert content(archive) == content(tmp_path / "at-once")


def test_other_rules_read_all_anew(registry: Registry, archive: Path) -> None:
    registry.put(kp_trace("a"), "3 days")
    registry.put(kp_trace("b"))
    import_all(archive, registry.url)
    assert import_all(archive, registry.url, confidence={"always": 0.5}).traces == 2


def test_a_server_that_is_away_for_a_night_stops_no_other_source(
    registry: Registry, archive: Path, tmp_path: Path
) -> None:
    registry.put(kp_trace("a"), "3 days")
    registry.put(kp_trace("b"))
    path = str(write_json(tmp_path / "c.json", kp_trace("c")))
    import_all(archive, registry.url)
    registry.do("ALTER TABLE knowledge_units RENAME TO away")
    done = import_all(archive, registry.url, path)
    assert (done.traces, done.refused) == (1, {"unreadable_file": 1})
    assert imported(archive).keys() == {f"kp:trace:{name}" for name in "abc"}
    [refused] = refusals(archive)
    assert refused["file"] == registry.url
    assert refused["message"] == (
        'it cannot be read: relation "knowledge_units" does not exist; '
        "name the database of a registry"
    )
    registry.do("ALTER TABLE away RENAME TO knowledge_units")
    registry.put(kp_trace("d"))
    assert import_all(archive, registry.url, path).traces == 1  # d, from where it was read to
    assert refusals(archive) == []


def test_a_database_whose_state_cannot_be_asked_is_not_taken_for_read(
    registry: Registry, archive: Path
) -> None:
    registry.put(kp_trace("a"))
    registry.do(
        "CREATE FUNCTION hashtextextended(text, int) RETURNS int8 LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'busy'; END $$"
    )
    for _ in range(2):
        assert import_all(archive, registry.url).refused == {"unreadable_file": 1}
    assert "busy" in refusals(archive)[0]["message"]
    registry.do("DROP FUNCTION hashtextextended(text, int)")
    assert import_all(archive, registry.url).traces == 1
    assert refusals(archive) == []


@pytest.mark.telling
def test_a_file_that_tells_of_the_same_while_the_server_is_away_is_no_newer(
    registry: Registry, archive: Path, tmp_path: Path
) -> None:
    registry.put(of("a", "of the database"), "3 days")
    registry.put(kp_trace("b"))
    import_all(archive, registry.url)
    registry.do("ALTER TABLE knowledge_units RENAME TO away")
    path = str(write_json(tmp_path / "a.json", of("a", "of a file")))
    import_all(archive, registry.url, path)
    assert objective(archive, "a") == "of the database"


@pytest.mark.telling
def test_what_is_in_the_way_is_reported_in_one_line(registry: Registry, archive: Path) -> None:
    registry.do("CREATE ROLE guest LOGIN")
    for url, reason in {
        "postgresql://kp@127.0.0.1:1/x": r"Connection refused .*; see that the server answers",
        registry.url.replace("kp@", "nobody@"): r'role "nobody" does not exist; see that',
        registry.url.replace("kp@", "guest@"): r"permission denied for .*; let this user SELECT",
        f"{registry.url}&sslmode=no": r'invalid sslmode value: "no"; see that',
    }.items():
        with pytest.raises(UnreadableError, match=rf"^it cannot be read: .*{reason}.*$"):
            list(rows_of(url, None))
    assert import_all(archive, "postgres://kp@127.0.0.1:1/x").refused == {"unreadable_file": 1}


def test_a_server_that_ends_while_it_is_read_is_reported(registry: Registry) -> None:
    registry.do(
        "INSERT INTO knowledge_units (id, unit_json) "
        "SELECT i, to_jsonb(repeat('x', 100000)) FROM generate_series(1, 400) AS i"
    )
    items = rows_of(registry.url, None)
    next(items)
    registry.do(
        "DO $$ BEGIN PERFORM pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE query LIKE 'COPY%'; END $$"
    )
    with pytest.raises(UnreadableError, match=r"be read: .*(closed|terminat).*; see"):
        list(items)


def test_a_wait_for_the_server_is_ended_by_ctrl_c(registry: Registry, archive: Path) -> None:
    command = [sys.executable, "-m", "kp_batch", "import", "auto", registry.url, "-o", archive]
    with dbapi.connect(registry.url) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE knowledge_units")
        waiting = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while cursor.execute(query).fetchall() == [(0,)]:
            assert waiting.poll() is None
        waiting.send_signal(signal.SIGINT)
        assert waiting.communicate(timeout=10)[1].startswith("kp-batch: ended by SIGINT")
    assert waiting.returncode == 130


def test_nothing_is_ever_written(registry: Registry) -> None:
    registry.do("ALTER TABLE knowledge_units RENAME TO units")
    registry.do(
        "CREATE FUNCTION seen() RETURNS bool LANGUAGE plpgsql AS "
        "$$ BEGIN DELETE FROM units; RETURN true; END $$"
    )
    registry.do("CREATE VIEW knowledge_units AS SELECT * FROM units WHERE seen()")
    registry.do("INSERT INTO units (id, unit_json) VALUES ('a', '{}')")
    with pytest.raises(UnreadableError, match="in a read-only transaction"):
        list(rows_of(registry.url, None))


@pytest.mark.telling
def test_a_password_is_refused_and_never_written(
    registry: Registry, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (
        "postgresql://kp:s3cret@/x",
        "postgres://kp:s3c/ret?#@/x",
        "PostgreSQL://kp:s3cret@/x",
        "postgresql://kp@/x?sslmode=require&pass%77ord=s3cret",
        "postgresql://kp@/x?sslpassword=s3cret",
        "postgresql://kp@/x?PASSWORD=s3cret",
        "postgresql://kp@/x?pass=s3cret",
        "postgresql://kp@/x?sslmode=require;passwd=s3cret",
    ):
        with pytest.raises(KpBatchError, match=r"holds a password.*PGPASSWORD") as failed:
            import_all(archive, url)
        assert "s3c" not in str(failed.value)
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    registry.put(kp_trace("a"))
    import_all(archive, registry.url, "postgresql://kp@127.0.0.1:1/x?passfile=.pgpass")
    assert b"s3cret" not in b"".join(x.read_bytes() for x in archive.rglob("*") if x.is_file())


def test_a_newer_importer_reads_all_of_a_database_again(
    registry: Registry, archive: Path, tmp_path: Path
) -> None:
    def older_rows(url: str, cursor: str | None) -> Iterator[Any]:
        for item in rows(url, cursor):
            assert isinstance(item, SourceRecord)
            yield replace(item, payload={**item.payload, "trace": of(item.trace[9:], "older")})

    for name in "abc":
        registry.put(kp_trace(name), "3 days")
    with older_importer():
        form = replace(FORMAT, rows=older_rows)
        import_traces(form, [registry.url], archive, load_rules(None, {}))
    registry.do("DELETE FROM knowledge_units WHERE id = 'kp:trace:c'")
    done = import_all(archive, registry.url)
    assert (done.files_read, done.deleted, done.kept) == (1, 1, 1)
    assert [objective(archive, name) for name in "abc"] == ["do a", "do b", "older"]
    assert import_all(archive, registry.url).files_read == 0
    registry.put(of("c", "do c"))
    assert import_all(archive, registry.url).traces == 1
    import_all(tmp_path / "fresh", registry.url)
    assert content(archive) == content(tmp_path / "fresh")


def test_a_url_is_recognised_by_itself(registry: Registry, archive: Path) -> None:
    registry.put(kp_trace("a"))
    done = invoke("import", "auto", registry.url, "-o", archive)
    assert done.stdout.startswith("1 trace from 1 of 1 file that are new or changed\n")


@pytest.mark.telling
def test_without_its_driver_the_error_names_what_to_install(
    registry: Registry, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(KpBatchError, match=r"pip install 'kp-batch\[postgres\]'"):
        import_all(archive, registry.url)
