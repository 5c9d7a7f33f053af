"""The lease of a warehouse in a bucket."""

import errno
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import ANY

import pytest

from kp_batch.errors import BusyError
from kp_batch.storage.store import Store, run_parallel, store_at
from kp_batch.warehouse import lock as lease
from kp_batch.warehouse.lock import LEASE, leased

pytestmark = pytest.mark.process


@pytest.fixture
def store(bucket: str) -> Store:
    return store_at(bucket)


@pytest.mark.telling
def test_a_beat_whose_answer_was_lost_does_not_lose_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Store.write

    def without_answer(self: Store, path: str, content: bytes | Path, **how: object) -> str:
        write(self, path, content, **how)
        raise OSError(errno.EIO, "no answer")

    with leased(store, "copy") as own_lease:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "write", without_answer)
            with pytest.raises(OSError, match="no answer"):
                own_lease.renew()
        own_lease.renew()
        own_lease.check()
        store.write(LEASE, b"another's")
        own_lease.renew()
        with pytest.raises(BusyError, match="was taken over by another writer"):
            own_lease.check()


def test_no_two_beats_are_the_same(store: Store) -> None:
    with leased(store, "copy") as own_lease:
        etags = [own_lease.etag]
        for _ in range(3):
            own_lease.renew()
            etags.append(own_lease.etag)
        assert len(set(etags)) == 4


def test_threads_that_renew_it_at_once_do_not_lose_it(store: Store) -> None:
    with leased(store, "copy") as own_lease:
        run_parallel(lambda _: own_lease.renew(), range(16))
        own_lease.check()
        assert store.read(LEASE)[1].etag == own_lease.etag


@pytest.mark.telling
def test_who_lost_it_leaves_the_winner_in_peace(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as first, ExitStack() as second:
        sleeping = first.enter_context(leased(store, "sleeping"))
        monkeypatch.setattr(lease, "_DEAD_S", -1)
        winner = second.enter_context(leased(store, "winner"))
        monkeypatch.setattr(lease, "_DEAD_S", 90)
        sleeping.renewed_at = 0
        for _ in range(3):
            with pytest.raises(BusyError, match="was taken over"):
                sleeping.check()
            sleeping.renew()
        first.close()
        assert b"winner" in store.read(LEASE)[0]
        winner.renew()
        winner.check()
    assert store.read(LEASE) == (b"{}", ANY)


@pytest.mark.telling
def test_who_cannot_ask_is_sure_of_it_for_a_moment_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, "unreachable")

    with leased(store, "copy") as own_lease:
        monkeypatch.setattr(Store, "write", unreachable)
        own_lease.check()
        for away_s in (60, -60):  # clocks go back, too
            own_lease.renewed_at -= away_s
            with pytest.raises(OSError, match="unreachable"):
                own_lease.check()
            own_lease.renewed_at += away_s


def test_the_clone_of_a_machine_waits_like_any_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leased(store, "copy"):
        monkeypatch.setattr(lease.socket, "gethostname", lambda: "clone")
        with pytest.raises(BusyError, match="another run is writing"), leased(store, "copy"):
            pass
