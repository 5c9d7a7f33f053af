"""The notice by which a writer asks others to wait, in the bucket of a warehouse."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from kp_batch.errors import BusyError
from kp_batch.storage.store import Store, store_at
from kp_batch.warehouse import lock
from kp_batch.warehouse.lock import NOTICE, locked, noticed, noticed_writer
from tests.support.read.errors import fails_with

pytestmark = pytest.mark.process


@pytest.fixture
def store(bucket: str) -> Store:
    return store_at(bucket)


@pytest.mark.telling
def test_a_writer_is_heeded_until_it_ends(store: Store) -> None:
    with noticed(store, "copy"):
        with fails_with(BusyError, "busy"), noticed(store, "other"):
            pass
        assert (noticed_writer(store) or {})["copy"] == "copy"
    assert noticed_writer(store) is None
    with noticed(store, "other"):
        pass


@pytest.mark.telling
def test_who_is_not_heeded_any_more_leaves_the_notice_of_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(noticed(store, "sleeping"))
        monkeypatch.setattr(lock, "NOTICE_TTL_S", -1)
        second.enter_context(noticed(store, "next"))
        first.close()
        assert (noticed_writer(store) or {})["copy"] == "next"
    assert store.read(NOTICE)[0] == b"{}"


def test_the_clone_of_a_machine_waits_like_any_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with noticed(store, "copy"):
        monkeypatch.setattr(lock.socket, "gethostname", lambda: "clone")
        with fails_with(BusyError, "busy"), noticed(store, "copy"):
            pass


def test_the_lock_of_a_folder_that_was_copied_into_the_bucket_stops_nobody(
    store: Store, tmp_path: Path
) -> None:
    with locked(tmp_path, wait=0):
        store.write(NOTICE, (tmp_path / NOTICE).read_bytes())
    assert noticed_writer(store) is None
    with noticed(store, "copy"):
        pass


def test_who_was_killed_on_this_machine_stops_nobody_here(store: Store) -> None:
    with ExitStack() as killed:
        killed.enter_context(noticed(store, "copy"))
        content = store.read(NOTICE)[0]
    store.write(NOTICE, content)
    with noticed(store, "copy"):
        pass
    assert noticed_writer(store) is None
