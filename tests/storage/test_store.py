"""Object stores: conditional writes, whole files, and what a store's bad day looks like."""

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import obstore
import pytest

from kp_batch.errors import is_passing
from kp_batch.storage import store as storage
from kp_batch.storage.store import (
    ConflictError,
    Store,
    bucket_and_path,
    run_parallel,
    store_at,
)
from tests.support.damage.answers import Trouble, between
from tests.support.damage.table import Damage, damages, named
from tests.support.processes.buckets import silent_server

pytestmark = pytest.mark.process


@pytest.fixture
def store(bucket: str) -> Store:
    return store_at(bucket)


@pytest.fixture
def troubled(
    s3: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, Trouble]]:
    """A store whose answers pass through trouble."""
    with between(s3) as (address, trouble):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield Store(bucket), trouble


def test_a_write_may_have_a_condition(store: Store) -> None:
    first = store.write("a", b"1", instead_of="")
    with pytest.raises(ConflictError, match=f"^{store.url}/a was changed by another writer$"):
        store.write("a", b"2", instead_of="")
    second = store.write("a", b"2", instead_of=first)
    for stale in (first, "none"):
        with pytest.raises(ConflictError):
            store.write("a", b"3", instead_of=stale)
    with pytest.raises(ConflictError):
        store.write("b", b"3", instead_of=second)
    content, stored = store.read("a")
    assert (content, stored.etag) == (b"2", second)
    assert stored == store.head("a")


@pytest.mark.telling
def test_to_replace_what_is_gone_is_a_conflict_though_s3_says_not_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(obstore, "put", missing)
    with pytest.raises(ConflictError, match=f"^{store.url}/a was removed by another writer$"):
        store.write("a", b"1", instead_of="known")
    for new in (None, ""):
        with pytest.raises(FileNotFoundError, match="there is no such object"):
            store.write("a", b"1", instead_of=new)


def test_a_write_whose_answer_was_lost_finds_its_own_object(store: Store) -> None:
    etag = store.write("a", b"1", instead_of="")
    assert store.write("a", b"1", instead_of="") == etag
    assert store.write("a", b"1", instead_of="stale") == etag


@pytest.mark.telling
def test_files_of_any_size_go_there_and_come_back(store: Store, tmp_path: Path) -> None:
    for name, content in {"empty": b"", "small": b"x", "parts": bytes(range(256)) * 80_000}.items():
        file = tmp_path / name
        file.write_bytes(content)
        store.write(f"deep/{name}", file)
        store.download(f"deep/{name}", tmp_path / "back" / name)
        assert (tmp_path / "back" / name).read_bytes() == content
    assert [entry.path for entry in store.objects()] == ["deep/empty", "deep/parts", "deep/small"]
    assert next(store_at(f"{store.url}/deep").objects()).path == "empty"
    store.delete(["deep/empty", "deep/none"])
    assert store.head("deep/empty") is None


def test_many_objects_are_listed_and_deleted_in_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "AT_ONCE", 10)
    for number in range(25):
        store.write(f"{number:02}", b"")
    names = [entry.path for entry in store.objects()]
    assert names == [f"{number:02}" for number in range(25)]
    store.delete(names)
    assert not list(store.objects())


def test_a_url_is_cut_into_its_bucket_and_the_path_there() -> None:
    store, path = bucket_and_path("s3://box/a/b c%20#?.pq")
    assert (store.url, path) == ("s3://box", "a/b c%20#?.pq")


@pytest.mark.telling
def test_no_such_bucket_and_no_such_object_are_named(store: Store) -> None:
    with pytest.raises(FileNotFoundError, match=r"NoSuchBucket.*s3://kp-none"):
        list(store_at("s3://kp-none").objects())
    with pytest.raises(FileNotFoundError, match=f"no such object: '{store.url}/none'"):
        store.read("none")


@pytest.mark.parametrize("damage", damages("answer"), ids=str)
def test_after_a_bad_answer_it_is_asked_again_or_reports_it_in_one_line(
    troubled: tuple[Store, Trouble], tmp_path: Path, damage: Damage
) -> None:
    store, trouble = troubled
    content = b"0123456789" * 10
    store.write("a", content)
    bad = iter([damage])
    trouble.answer = lambda method, _path: next(bad, None) if method == "GET" else None
    if damage.reasons:
        with pytest.raises(OSError, match=damage.message) as caught:
            store.download("a", tmp_path / "a")
        assert [errno.errorcode[caught.value.errno or 0]] == damage.reasons
        assert is_passing(caught.value) == (damage.reasons == ["EIO"])
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.iterdir())  # not even a part
    store.download("a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == content


def test_what_may_not_be_written_is_reported(troubled: tuple[Store, Trouble]) -> None:
    store, trouble = troubled
    denied = named("answer", "denied")
    trouble.answer = lambda _method, _path: denied
    with pytest.raises(PermissionError, match=denied.message) as refused:
        store.write("a", b"1")
    assert refused.value.errno == errno.EACCES
    assert "\n" not in str(refused.value)


def test_a_store_that_is_busy_for_a_while_is_asked_again(troubled: tuple[Store, Trouble]) -> None:
    store, trouble = troubled
    busy = iter([named("answer", "busy")] * 2)
    trouble.answer = lambda _method, _path: next(busy, None)
    store.write("a", b"1")
    assert store.read("a")[0] == b"1"


def test_after_an_error_no_further_object_is_begun() -> None:
    begun: list[int] = []

    def work(part: int) -> None:
        begun.append(part)
        if part == 1:
            raise OSError("full")
        Event().wait(0.05 if part else 1)

    with pytest.raises(OSError, match="full"):
        run_parallel(work, range(100))
    assert len(begun) < 60  # of which 16 are on their way at once


def test_a_server_that_never_answers_is_asked_once_and_named(store: Store) -> None:
    """Not even ten times more, as obstore asks again."""
    words = f"there was no answer for 1 s; look at the address and the network: '{store.url}"
    with silent_server() as taken:
        silent = Store(store.url)
        for ask in (lambda: silent.read("a"), lambda: silent.write("a", b""), silent.head):
            before = len(taken)
            with pytest.raises(TimeoutError, match=words) as caught:
                ask()
            assert is_passing(caught.value)
            assert len(taken) - before <= 1
