"""An import from a bucket, and into one: the same bytes as here, and no more traffic than that."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl
import pytest

from kp_batch.conversion.formats import atif, knowledgepulse, langfuse
from kp_batch.conversion.model import Format
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.errors import ArchiveError, BusyError, StorageError, WarehouseError, explain_error
from kp_batch.imports import destination
from kp_batch.imports.importing import import_traces
from kp_batch.imports.source_files import head_of
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.storage.store import Store, store_at
from kp_batch.warehouse.lock import noticed
from kp_batch.warehouse.reader import connect
from tests.support.damage.answers import Trouble, between
from tests.support.damage.table import damages
from tests.support.formats.atif import result, short
from tests.support.formats.knowledgepulse import registry, unit
from tests.support.formats.langfuse import CONVERSATION, lines, manifest, observation, root
from tests.support.imports.importing import (
    RULES,
    import_spans,
    older_importer,
    older_spans,
    span,
    write_json,
    write_lines,
)
from tests.support.make.runs import config
from tests.support.processes.buckets import counted_reads, fill

pytestmark = pytest.mark.process

_LOCK = ("kp.lock",)
_REPORTS = {"_refused.jsonl", "_waiting.jsonl"}


_STATE = {"_import/records.sqlite", "_import/done"}
_OTHER = {"confidence": {"always": 0.9}}


@pytest.fixture
def url(bucket: str) -> str:
    return f"{bucket}/team/archive"


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    folder = tmp_path / "nights"
    folder.mkdir()
    write_lines(folder / "1.jsonl", [on(1, "a"), on(2, "b"), on(3, "c"), on(5, "e")])
    write_lines(folder / "2.jsonl", [on(2, "b"), on(4, "d"), {"trace": "odd", "at": 5}])
    return folder


@pytest.fixture
def server(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trouble]:
    """Notes what the server is asked, and may answer badly."""
    with between(s3) as (address, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        store_at.cache_clear()
        yield server
    store_at.cache_clear()


def on(day: int, trace: str) -> dict[str, Any]:
    return {**span(trace, day), "at": f"2026-03-{day:02d}T00:00:00Z"}


def late(folder: Path) -> None:
    """One trace is new, one moves to the day before, and one leaves its day empty."""
    write_lines(folder / "3.jsonl", [on(2, "new"), on(1, "b"), on(2, "e")])


def folder_files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in _LOCK)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def bucket_files(url: str) -> dict[str, bytes]:
    store = store_at(url)
    names = [entry.path for entry in store.objects() if not entry.path.endswith(_LOCK)]
    return {name: store.read(name)[0] for name in names}


def days(*numbers: int) -> set[str]:
    return {f"2026-03-{number:02d}.parquet" for number in numbers}


def test_an_archive_in_a_bucket_has_the_bytes_of_one_here(
    nights: Path, tmp_path: Path, url: str
) -> None:
    for changed, rules in ((5, {}), (3, {}), (4, _OTHER)):
        done = import_spans(nights, url, **rules)
        assert done == import_spans(nights, tmp_path / "local", **rules)
        assert done.files_changed == changed
        assert bucket_files(url) == folder_files(tmp_path / "local")
        late(nights)
    assert bucket_files(url).keys() == days(1, 2, 3, 4) | _REPORTS | _STATE


def test_a_night_moves_what_it_changes_and_what_it_has_to_know(
    nights: Path, url: str, server: Trouble
) -> None:
    import_spans(nights, url)
    import_spans(nights, f"{url}/")  # the same one
    fill(f"{url}/source", nights)
    import_spans(f"{url}/source", f"{url}/2")
    server.asked.clear()
    assert import_spans(f"{url}/source", f"{url}/2").files == 2
    assert objects(server, url, "GET") == {f"2/{name}" for name in _STATE}
    # A look at the name of the source, two lists, and in each folder above it three for tables.
    assert len(server.asked) == 11
    late(nights)
    fill(f"{url}/source", nights)
    server.asked.clear()
    assert import_spans(f"{url}/source", f"{url}/2").files_read == 1
    changed = days(1, 2, 5) | _REPORTS | _STATE
    assert objects(server, url, "GET") == {"source/3.jsonl", *(f"2/{name}" for name in changed)}
    stored = days(1, 2) | _STATE
    assert objects(server, url, "PUT") == {f"2/{name}" for name in stored}


def test_a_store_that_is_too_large_for_one_write_is_refused_by_name(
    nights: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_spans(nights, url)
    before = bucket_files(url)
    late(nights)
    monkeypatch.setattr("kp_batch.storage.store.MAX_PUT_BYTES", 10_000)
    with pytest.raises(StorageError, match=r"_import/records.sqlite would take .* in one write"):
        import_spans(nights, url)
    assert bucket_files(url) == before
    monkeypatch.undo()
    assert import_spans(nights, url).files_read == 1


def objects(server: Trouble, url: str, method: str) -> set[str]:
    """The objects below a URL that were asked for, but for what locks it."""
    below = url.removeprefix("s3:/") + "/"
    paths = {path.partition("?")[0] for verb, path in server.asked if verb == method}
    return {path.removeprefix(below) for path in paths if below in path and "kp." not in path}


def test_a_newer_importer_builds_all_of_what_a_bucket_has(
    nights: Path, tmp_path: Path, url: str
) -> None:
    with older_importer():
        import_traces(older_spans(), [str(nights)], url, load_rules(None, RULES))
    import_spans(nights, tmp_path / "fresh")
    assert but_state(bucket_files(url)) != but_state(folder_files(tmp_path / "fresh"))
    (nights / "1.jsonl").unlink()
    done = import_spans(nights, url)
    assert (done.files_read, done.traces) == (0, 5)
    assert but_state(bucket_files(url)) == but_state(folder_files(tmp_path / "fresh"))


def test_an_import_killed_before_any_of_its_writes_is_made_good_by_the_next(
    nights: Path, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_spans(nights, tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    late(nights)
    import_spans(nights, tmp_path / "after")
    writes = 0
    while True:
        url = f"{bucket}/{writes}"
        fill(url, tmp_path / "before")
        with monkeypatch.context() as patch:
            die_after(writes, patch)
            try:
                import_spans(nights, url)
            except KeyboardInterrupt:
                pass
            else:
                break
        assert ids(bucket_files(url)) >= {f"kp:trace:{name}" for name in "abcde"}
        import_spans(nights, url)
        assert but_state(bucket_files(url)) == but_state(folder_files(tmp_path / "after"))
        writes += 1
    assert writes == 6  # the store, days, one of them twice, one that goes, and that it is done
    assert bucket_files(url) == folder_files(tmp_path / "after")


def but_state(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: files[name] for name in files if not name.startswith("_import/")}


def ids(files: dict[str, bytes]) -> set[str]:
    tables = [pl.read_parquet(files[file]) for file in files if file.startswith("2026")]
    return set(pl.concat(tables).get_column("id"))


def die_after(writes: int, patch: pytest.MonkeyPatch) -> None:
    """Let so many writes of an archive's files and no more happen."""
    remaining = iter(range(writes))

    def mortal(how: Any) -> Any:
        def change(store: Store, what: Any, *arguments: Any, **more: Any) -> Any:
            if not str(what).startswith("kp.") and next(remaining, None) is None:
                raise KeyboardInterrupt
            return how(store, what, *arguments, **more)

        return change

    patch.setattr(Store, "write", mortal(Store.write))
    patch.setattr(Store, "delete", mortal(Store.delete))


@pytest.mark.telling
def test_large_files_are_stored_one_after_another(
    nights: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "MAX_PARALLEL_BYTES", 0)
    alone, write = Lock(), Store.write

    def writing(*arguments: Any, **kwargs: Any) -> str:
        assert alone.acquire(blocking=False)
        try:
            return write(*arguments, **kwargs)
        finally:
            alone.release()

    monkeypatch.setattr(Store, "write", writing)
    assert import_spans(nights, url).traces == 5


@pytest.mark.telling
def test_another_import_is_reported_and_waited_for(nights: Path, url: str) -> None:
    with (
        noticed(store_at(f"{url}/_import"), "another machine's"),
        pytest.raises(
            BusyError,
            match=rf"is writing to {url} \(.*\); try again when it has ended$",
        ),
    ):
        import_spans(nights, url)
    assert import_spans(nights, url).traces == 5


@pytest.mark.telling
def test_what_another_import_did_just_before_is_not_lost(
    nights: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_spans(nights, url)
    late(nights)
    write_lines(tmp_path / "others" / "4.jsonl", [on(1, "other"), on(4, "another")])
    alone = destination.archive_notice

    def beaten(place: str, archive: str) -> Any:
        monkeypatch.setattr(destination, "archive_notice", alone)
        import_spans(tmp_path / "others", url)
        return alone(place, archive)

    monkeypatch.setattr(destination, "archive_notice", beaten)
    import_spans(nights, url)
    assert ids(bucket_files(url)) == {
        f"kp:trace:{name}" for name in (*"abcde", "new", "other", "another")
    }


@pytest.mark.telling
def test_what_another_writer_stores_meanwhile_is_not_replaced(
    nights: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Store.write

    def overtaken(store: Store, path: str, content: Any, **how: Any) -> str:
        if path == "2026-03-03.parquet":
            write(store, path, b"another's")
        return write(store, path, content, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", overtaken)
        with pytest.raises(
            BusyError, match=r"another writer stored 2026-03-03.parquet in .*again$"
        ):
            import_spans(nights, url)
    assert bucket_files(url)["2026-03-03.parquet"] == b"another's"


@pytest.mark.telling
def test_a_day_that_another_writer_stored_meanwhile_is_not_removed(
    nights: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_spans(nights, url)
    late(nights)
    head = Store.head

    def overtaken(store: Store, path: str) -> Any:
        if path == "2026-03-05.parquet":
            store.write(path, b"another's")
        return head(store, path)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "head", overtaken)
        with pytest.raises(BusyError, match=r"another writer stored 2026-03-05.parquet in "):
            import_spans(nights, url)
    assert bucket_files(url)["2026-03-05.parquet"] == b"another's"


@pytest.mark.telling
def test_what_is_imported_into_a_bucket_can_be_scored(
    nights: Path, url: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    import_spans(nights, url)
    settings = config(tmp_path, url)
    assert rescore_archive(settings).run_id
    with connect(settings.warehouse) as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == [(5,)]
        assert connection.execute("SELECT count(*) FROM files").fetchall() == [(5,)]
    assert not recwarn.list


def trials(folder: Path) -> tuple[Format, Rules]:
    """Folders of Harbor, of which a step has a reward of its own."""
    trial = folder / "jobs" / "a b%20#?" / "t__1"
    write_json(trial / "agent" / "trajectory.json", short(session_id="main"))
    write_json(trial / "steps" / "two" / "agent" / "trajectory.json", short(session_id="step"))
    own = {"step_name": "two", "verifier_result": {"rewards": {"reward": 0}}}
    write_json(trial / "result.json", result(step_results=[own]))
    write_json(folder / "jobs" / "alone.json", short(session_id="alone"))
    return atif.FORMAT, load_rules(None, {**RULES, "success": {"score": "reward", "at_least": 1}})


def exports(folder: Path) -> tuple[Format, Rules]:
    """A run of Langfuse that is complete, and one that is not."""
    lines(folder / "observations_v2" / "2026-08-03.jsonl", CONVERSATION)
    lines(
        folder / "observations_v2" / "2026-08-04.jsonl", [root(trace_id="u"), observation("x", 2)]
    )
    write_json(
        folder / "manifests" / "2026-08-03.json", manifest("observations_v2/2026-08-03.jsonl")
    )
    return langfuse.FORMAT, load_rules(None, {**RULES, "success": {"always": True}})


@pytest.mark.parametrize("make", [trials, exports])
def test_files_that_say_more_about_others_do_so_in_a_bucket_and_once(
    make: Any, tmp_path: Path, bucket: str, server: Trouble
) -> None:
    source = tmp_path / "source"
    form, rules = make(source)
    fill(f"{bucket}/source", source)
    archives = [tmp_path / "local", tmp_path / "remote"]
    for location, archive in zip([str(source), f"{bucket}/source"], archives, strict=True):
        import_traces(form, [location], archive, rules)
    local, remote = map(folder_files, archives)
    compared = [name for name in local if name.startswith("2026")]
    assert compared
    assert [remote[name] for name in compared] == [local[name] for name in compared]
    [first, second] = [files["_refused.jsonl"].decode() for files in (local, remote)]
    assert second.replace(bucket, str(tmp_path)) == first
    server.asked.clear()
    import_traces(form, [f"{bucket}/source"], archives[1], rules)
    assert [method for method, _ in server.asked] == ["HEAD", "GET"]  # of the name, and a list


def test_a_source_is_an_object_a_folder_or_a_glob(
    nights: Path, bucket: str, tmp_path: Path
) -> None:
    odd = f"{bucket}/x/a b%20#?[1].jsonl"
    for name in ("x/1.jsonl", "y/1.jsonl", odd.removeprefix(f"{bucket}/"), "x-1.jsonl"):
        store_at(bucket).write(name, nights / "1.jsonl")
    for number, (source, files) in enumerate(
        {f"{bucket}/x": 2, f"{bucket}/x/": 2, odd: 1, f"{bucket}/*/1*": 2, bucket: 4}.items()
    ):
        assert import_spans(source, tmp_path / f"{number}").files == files, source
    for nothing in (f"{bucket}/z", f"{bucket}/x-1.json", f"{bucket}/*.txt"):
        with pytest.raises(ArchiveError, match="there is no file at"):
            import_spans(nothing, tmp_path / "0")


@pytest.mark.telling
def test_a_registry_that_is_written_to_is_read_with_its_newest_rows(
    tmp_path: Path, bucket: str
) -> None:
    with closing(registry(tmp_path / "r.sqlite", [unit("a")])) as live:
        live.execute("PRAGMA wal_checkpoint")
        live.execute("INSERT INTO knowledge_units VALUES (?, ?, ?, ?)", unit("b"))
        live.commit()
        for ending in ("", "-wal", "-shm"):
            store_at(bucket).write(f"r.sqlite{ending}", tmp_path / f"r.sqlite{ending}")
    rules = load_rules(None, {})
    assert import_traces(knowledgepulse.FORMAT, [bucket], tmp_path / "archive", rules).traces == 2


@pytest.mark.telling
def test_an_archive_below_its_source_is_none_of_it(nights: Path, bucket: str) -> None:
    fill(bucket, nights)
    for _ in range(2):
        assert import_spans(bucket, f"{bucket}/archive").files == 2


def test_faults_are_reported_in_one_line(nights: Path, url: str, server: Trouble) -> None:
    with pytest.raises(
        WarehouseError, match="can hold neither a warehouse nor an imported archive"
    ):
        import_spans(nights, "gs://box/archive")
    for arguments in ((nights, "s3://kp-none/archive"), ("s3://kp-none/source", url)):
        with pytest.raises(OSError, match="NoSuchBucket") as none:
            import_spans(*arguments)
        assert "s3://kp-none" in str(explain_error(none.value))
    import_spans(nights, url)
    late(nights)
    for bad in filter(lambda damage: damage.reasons, damages("answer")):
        moved = "PUT" if bad.name == "denied" else "GET"
        server.answer = lambda method, path, moved=moved, bad=bad: (
            bad if method == moved and "2026" in path else None
        )
        with pytest.raises(OSError, match=bad.message):
            import_spans(nights, url)
    server.answer = lambda _method, _path: None
    assert import_spans(nights, url).traces == 3


def test_what_a_file_is_shows_its_beginning_alone(bucket: str, tmp_path: Path) -> None:
    """With `auto`, which looks into every file that may be a trajectory."""
    path = tmp_path / "files"
    write_json(path / "a.json", short(notes="x" * 300_000))
    (path / "b.json").touch()
    fill(bucket, path)
    for name, size in (("a.json", 64 << 10), ("b.json", 0)):
        with counted_reads() as sizes:
            head = head_of(f"{bucket}/{name}", f"{(path / name).stat().st_size} stamp")
        assert head == (path / name).read_bytes()[:size]
        assert sum(sizes) == size
