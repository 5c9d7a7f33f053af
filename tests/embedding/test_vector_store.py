import hashlib
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.embedding.chunks import (
    _MERGED_BYTES,
    count_vectors,
    damaged_rows,
    groups_to_merge,
    merge_small,
    records_of,
    remove_damaged,
    whole_chunks,
    window_hashes_of,
    write_chunk,
    write_windows,
)
from kp_batch.errors import DamagedVectorsError, WarehouseError
from kp_batch.storage.store import Object
from kp_batch.warehouse.bucket.location import CopyRecord, folder_of
from tests.support.faults.calls import failing_calls
from tests.support.make.vector_stores import Opened

Float32s = npt.NDArray[np.float32]


def hashes(*texts: str) -> pl.Series:
    return pl.Series([hashlib.sha256(text.encode()).hexdigest() for text in texts], dtype=pl.String)


def random(count: int) -> Float32s:
    """Any bits, NaN and infinity among them: the store looks at none."""
    bits = np.random.default_rng(count).integers(0, 2**32, (count, 384), dtype=np.uint32)
    return bits.view(np.float32)


FIRST, SECOND = hashes("a", "b", "c"), hashes("d", "e")
WINDOWS = pl.Series([digest.replace("0", "f") for digest in hashes("v", "w")])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "vectors" / "hashing-384-v1"


@pytest.fixture
def store(folder: Path) -> Opened:
    write_chunk(folder, FIRST, random(3))
    write_chunk(folder, SECOND, random(2))
    return Opened(folder)


def name_of(text_hashes: pl.Series, vectors: Float32s | None = None) -> str:
    """The name of a chunk: of random vectors, unless they are given."""
    records = b"".join(
        digest.encode() + zlib.crc32(vector.tobytes()).to_bytes(4, "little")
        for digest, vector in zip(
            text_hashes, random(len(text_hashes)) if vectors is None else vectors, strict=True
        )
    )
    return hashlib.sha256(records).hexdigest()


def test_a_folder_that_is_not_there_holds_nothing(folder: Path) -> None:
    store = Opened(folder)
    assert store.missing(FIRST) == set(FIRST)
    assert store.gather(hashes()).shape[0] == 0
    assert not folder.exists()


def test_missing_names_each_hash_without_a_vector(store: Opened) -> None:
    wanted = hashes("z", "a", "y", "e", "x")
    assert store.missing(wanted) == set(hashes("z", "y", "x"))
    assert store.missing(pl.concat([FIRST, SECOND])) == set()
    assert store.missing(hashes()) == set()


def test_a_hash_is_another_where_only_its_end_differs(store: Opened) -> None:
    near = FIRST.str.slice(0, 63) + FIRST.str.slice(63).replace_strict(
        list("0123456789abcdef"), list("123456789abcdef0")
    )
    assert store.missing(near) == set(near)


def test_vectors_come_back_bit_for_bit_in_the_order_of_the_request(store: Opened) -> None:
    gathered = store.gather(hashes("e", "a", "d", "c", "b"))
    first, second = random(3), random(2)
    assert gathered.dtype == np.float32
    assert gathered.shape == (5, 384)
    assert gathered.tobytes() == np.stack([second[1], first[0], second[0], *first[:0:-1]]).tobytes()


def test_a_hash_asked_for_twice_is_given_twice(store: Opened) -> None:
    gathered = store.gather(hashes("d", "a", "d", "d"))
    assert (
        gathered.tobytes()
        == np.stack([random(2)[0], random(3)[0], random(2)[0], random(2)[0]]).tobytes()
    )


def test_a_second_store_sees_every_chunk(store: Opened, folder: Path) -> None:
    wanted = pl.concat([SECOND, FIRST])
    second = Opened(folder)
    assert second.missing(wanted) == set()
    assert second.gather(wanted).tobytes() == store.gather(wanted).tobytes()


def test_what_is_not_stored_cannot_be_gathered(store: Opened, folder: Path) -> None:
    with pytest.raises(
        WarehouseError, match=r"^2 of 3 vectors are not in .*; kp-batch run"
    ) as caught:
        store.gather(hashes("x", "a", "y"))
    assert str(folder) in str(caught.value)


def test_only_whole_chunks_are_left_in_the_folder(store: Opened, folder: Path) -> None:
    assert store.missing(FIRST) == set()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        f"{name_of(chunk)}.{part}.npy"
        for chunk in (FIRST, SECOND)
        for part in ("hashes", "vectors")
    }


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[:1],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: bytes(len(content)),
        lambda content: b"no numpy file " * len(content),
        lambda content: content[:8] + bytes(len(content) - 8),
        lambda content: content.replace(b"|S64", b"|S32").replace(b"<f4", b">f4"),
    ],
    ids=["empty", "one byte", "half", "all but one byte", "zeros", "garbage", "magic", "type"],
)
@pytest.mark.parametrize("part", ["hashes", "vectors"])
@pytest.mark.usefixtures("store")
def test_a_damaged_chunk_is_missing_and_can_be_written_over(
    folder: Path, part: str, damage: object
) -> None:
    path = folder / f"{name_of(FIRST)}.{part}.npy"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(content))
    second = Opened(folder)
    assert second.missing(pl.concat([FIRST, SECOND])) == set(FIRST)
    assert second.gather(SECOND).tobytes() == random(2).tobytes()
    with pytest.raises(WarehouseError, match="3 of 3"):
        second.gather(FIRST)
    write_chunk(folder, FIRST, random(3))
    assert Opened(folder).gather(FIRST).tobytes() == random(3).tobytes()
    assert path.read_bytes() == content


def test_chunks_without_checksums_are_missing(folder: Path) -> None:
    """As earlier versions wrote them."""
    folder.mkdir(parents=True)
    np.save(folder / f"{'0' * 64}.vectors.npy", random(3))
    np.save(folder / f"{'0' * 64}.hashes.npy", np.array(FIRST.to_list(), dtype="S64"))
    assert Opened(folder).missing(FIRST) == set(FIRST)
    assert count_vectors(folder) == 0


def damage(folder: Path, row: int, *, zeroed: bool = False) -> Path:
    """Turn a bit of a vector of the first chunk, or make it zero; returns its file."""
    path = folder / f"{name_of(FIRST)}.vectors.npy"
    vectors = np.lib.format.open_memmap(path, mode="r+")
    if zeroed:
        vectors[row] = 0
    else:
        vectors.view(np.uint32)[row, 7] ^= 1 << 12
    vectors.flush()
    return path


@pytest.mark.parametrize("zeroed", [False, True])
def test_a_damaged_vector_is_never_read_and_is_missing_once_it_is_removed(
    store: Opened, *, zeroed: bool
) -> None:
    path = damage(store.folder, 1, zeroed=zeroed)
    with pytest.raises(DamagedVectorsError, match=f"^{path} is damaged: row 1 has"):
        store.gather(hashes("e", "a", "b"))
    assert store.gather(hashes("a", "c")).tobytes() == random(3)[[0, 2]].tobytes()
    [(file, rows)] = damaged_rows(store.folder)
    assert (file, rows.tolist()) == (path, [1])
    assert remove_damaged(store.folder) == 1
    again = Opened(store.folder)
    assert again.missing(pl.concat([FIRST, SECOND])) == set(hashes("b"))
    assert (
        again.gather(hashes("c", "d")).tobytes() == np.stack([random(3)[2], random(2)[0]]).tobytes()
    )
    assert store.gather(hashes("a")).tobytes() == random(3)[:1].tobytes()  # that found it before
    assert remove_damaged(store.folder) == 0
    write_chunk(store.folder, hashes("b"), random(1))
    assert Opened(store.folder).gather(hashes("b")).tobytes() == random(1).tobytes()


def test_the_texts_of_some_vectors_are_found_by_their_own_hashes_and_by_those_of_windows(
    folder: Path,
) -> None:
    write_chunk(folder, [*SECOND, *WINDOWS], random(4))
    wanted = pl.Series([*FIRST, *SECOND, *SECOND])
    marked = pl.DataFrame({"hash": [WINDOWS[0], SECOND[1]], "mark": [1.5, 2.5]})
    rows = Opened(folder).rows_of(marked, wanted)
    assert rows == [(SECOND[1], SECOND[1], 2.5)]
    write_windows(folder, FIRST, pl.Series([WINDOWS[0], WINDOWS[1], WINDOWS[0]]))
    rows = Opened(folder).rows_of(marked, wanted)
    of_window = [(FIRST[row], WINDOWS[0], 1.5) for row in (0, 2)]
    assert sorted(rows) == sorted([*of_window, (SECOND[1], SECOND[1], 2.5)])


def test_all_vectors_are_read_with_their_hashes_but_for_removed_and_damaged_ones(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kp_batch.embedding.chunks.VECTORS_PER_READ", 2)

    def read() -> list[tuple[list[bytes], bytes]]:
        parts = whole_chunks(store.folder)
        return [(digests.tolist(), vectors.tobytes()) for digests, vectors in parts]

    first = [digest.encode() for digest in FIRST]
    second = ([digest.encode() for digest in SECOND], random(2).tobytes())
    assert read() == [
        (first[:2], random(3)[:2].tobytes()),
        (first[2:], random(3)[2:].tobytes()),
        second,
    ]
    path = damage(store.folder, 1)
    with pytest.raises(DamagedVectorsError, match=f"^{path} is damaged: row 1 has"):
        read()
    remove_damaged(store.folder)
    assert read()[0] == (first[:1], random(3)[:1].tobytes())
    path.write_bytes(b"")
    assert read() == [second]


def test_a_damaged_hash_or_checksum_costs_one_vector(store: Opened) -> None:
    path = store.folder / f"{name_of(FIRST)}.hashes.npy"
    records = np.load(path)
    records["hash"][0], records["crc32"][2] = hashes("x").item().encode(), 0
    np.save(path, records)
    assert Opened(store.folder).missing(FIRST) == set(hashes("a"))
    assert [rows.tolist() for _, rows in damaged_rows(store.folder)] == [[2]]


def test_damaged_vectors_are_not_copied_where_others_are_removed(store: Opened) -> None:
    damage(store.folder, 1)
    assert store.prune_to(hashes("a", "b", "d")) == 2
    assert Opened(store.folder).missing(hashes("a", "b", "d")) == set(hashes("b"))
    assert not [*damaged_rows(store.folder)]


def test_a_chunk_of_damaged_vectors_alone_goes(store: Opened) -> None:
    damage(store.folder, 1)
    assert store.prune_to(hashes("b")) == 4
    assert not [*store.folder.iterdir()]


def test_the_files_of_one_name_are_the_same_whoever_wrote_them(folder: Path) -> None:
    """As where two machines embed the same texts, whose last bits depend on the machine."""
    names = {write_chunk(folder, FIRST, random(3)), write_chunk(folder, FIRST, random(4)[:3])}
    assert len(names) == 2
    assert len(Opened(folder).gather(FIRST)) == 3


def test_hashes_of_another_type_are_damaged_though_their_vectors_are_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = Path(folder_of("s3://bucket/team"))
    folder = copy / "vectors" / "e"
    write_chunk(folder, FIRST, random(3))
    record, name = CopyRecord(copy), name_of(FIRST)
    path = f"vectors/e/{name}.vectors.npy"
    record.mark_remote(Object(path, 0, 0, "etag"))
    record.save()
    stored = records_of(folder, name)["hash"].tolist()
    assert stored == [digest.encode() for digest in FIRST]
    hashes = folder / f"{name}.hashes.npy"
    hashes.write_bytes(hashes.read_bytes().replace(b"|S64", b"|S32"))
    assert not len(records_of(folder, name))


def test_a_half_written_chunk_is_not_seen(store: Opened, folder: Path, tmp_path: Path) -> None:
    third = hashes("f")
    write_chunk(tmp_path, third, random(4)[:1])
    for name, kept in (("vectors.npy", "vectors.npy"), ("hashes.npy", "hashes.part")):
        chunk = name_of(third, random(4)[:1])
        content = (tmp_path / f"{chunk}.{name}").read_bytes()
        (folder / f"{chunk}.{kept}").write_bytes(content)
    second = Opened(folder)
    assert second.missing(third) == set(third)
    assert second.missing(FIRST) == set()
    write_chunk(folder, third, random(1))
    assert Opened(folder).gather(third).tobytes() == random(1).tobytes()
    assert store.missing(third) == set(third)


def test_a_text_in_two_chunks_has_the_vector_of_the_first(folder: Path) -> None:
    """As where two runs, each blind to the other, store overlapping chunks."""
    chunks = [(hashes("a", "b"), random(2)), (hashes("b", "c"), random(4)[:2])]
    for chunk in chunks:
        write_chunk(folder, *chunk)
    first, _ = sorted(chunks, key=lambda chunk: name_of(*chunk))
    vector = first[1][first[0].index_of(hashes("b").item())]
    both = Opened(folder).gather(hashes("b", "a", "b", "c"))
    assert both[0].tobytes() == both[2].tobytes() == vector.tobytes()
    assert both[3].tobytes() == random(4)[1].tobytes()


def test_a_text_of_any_hash_is_found_in_any_chunk(folder: Path) -> None:
    """More chunks and more rows than DuckDB takes at once."""
    texts = hashes(*map(str, range(5_000)))
    numbers = np.arange(5_000, dtype=np.float32)[:, None]
    for part in (slice(0, 4_000), slice(4_000, 4_001), slice(4_001, 5_000)):
        write_chunk(folder, texts[part], numbers[part])
    order = np.random.default_rng(0).permutation(5_000)
    assert (Opened(folder).gather(texts[order])[:, 0] == order).all()


def test_other_vectors_are_removed_and_split_chunks_written_anew(store: Opened) -> None:
    (store.folder / f"{'0' * 64}.vectors.npy.0.part").write_bytes(b"half")
    assert store.prune_to(hashes("e", "c", "a", "d", "nowhere", "a")) == 1
    assert {path.name.partition(".")[0] for path in store.folder.iterdir()} == {
        name_of(SECOND),
        name_of(hashes("a", "c"), random(3)[[0, 2]]),
    }
    assert count_vectors(store.folder) == 4
    pruned = Opened(store.folder)
    assert pruned.missing(FIRST) == set(hashes("b"))
    kept = np.stack([random(3)[0], random(3)[2], *random(2)])
    assert pruned.gather(hashes("a", "c", "d", "e")).tobytes() == kept.tobytes()


def test_a_text_in_two_chunks_is_kept_once(folder: Path) -> None:
    write_chunk(folder, hashes("a", "b"), random(2))
    write_chunk(folder, hashes("b", "c"), random(2))
    assert Opened(folder).prune_to(hashes("a", "b", "c")) == 0
    assert count_vectors(folder) == 3
    assert Opened(folder).missing(hashes("a", "b", "c")) == set()


# --- small files


@pytest.mark.parametrize("number", range(4))  # the names of files come in several orders
def test_small_chunks_are_merged_and_go_with_the_next_pruning(folder: Path, number: int) -> None:
    for part in range(2):
        write_chunk(folder, hashes(f"{number}{part}", f"{number}{part} and"), random(part + 2)[:2])
    store = Opened(folder)
    wanted = hashes(*(f"{number}{part}{more}" for part in range(2) for more in (" and", "")))
    before = {path.name for path in store.folder.iterdir()}
    vectors = store.gather(wanted).tobytes()
    assert store.count_mergeable(wanted) == merge_small(store.folder) == 2
    assert store.gather(wanted).tobytes() == vectors  # that found the small ones before
    merged = Opened(store.folder)
    assert merged.missing(wanted) == set()
    assert merged.prune_to(wanted) == 0
    after = {path.name for path in store.folder.iterdir()}
    assert (len(after), after & before) == (2, set())
    last = Opened(store.folder)
    assert last.gather(wanted).tobytes() == vectors
    assert last.count_mergeable(wanted) == merge_small(store.folder) == 0
    assert last.prune_to(wanted) == 0
    assert {path.name for path in store.folder.iterdir()} == after


def test_what_is_forgotten_after_a_merger_is_in_no_file(store: Opened) -> None:
    merge_small(store.folder)
    forgetting = Opened(store.folder)
    assert forgetting.prune_to(hashes("a", "b", "d")) == 2
    stored = b"".join(path.read_bytes() for path in store.folder.iterdir())
    for vector, stays in zip([*random(3), *random(2)], [1, 1, 0, 1, 0], strict=True):
        assert stored.count(vector.tobytes()) == stays


def test_damaged_vectors_are_not_merged(store: Opened) -> None:
    damage(store.folder, 1)
    assert merge_small(store.folder) == 2
    assert len([*damaged_rows(store.folder)]) == 1
    remove_damaged(store.folder)
    assert Opened(store.folder).missing(pl.concat([FIRST, SECOND])) == set(hashes("b"))


def test_small_files_of_windows_are_merged(folder: Path) -> None:
    write_chunk(folder, WINDOWS, random(2))
    write_windows(folder, FIRST, pl.Series([WINDOWS[0]] * 3))
    write_windows(folder, SECOND, pl.Series([WINDOWS[1]] * 2))
    wanted = pl.concat([FIRST, SECOND])
    assert Opened(folder).count_mergeable(wanted) == merge_small(folder) == 2
    assert Opened(folder).prune_to(wanted) == 0
    assert len([*folder.glob("*.windows.npy")]) == 1
    assert Opened(folder).gather(wanted).tobytes() == random(2)[[0, 0, 0, 1, 1]].tobytes()


@given(st.lists(st.integers(0, _MERGED_BYTES), max_size=30))
def test_law_what_is_merged_is_small_and_becomes_large(sizes: list[int]) -> None:
    by_name = {str(number): size for number, size in enumerate(sizes)}
    groups = groups_to_merge(by_name)
    small = {name for name, size in by_name.items() if 0 < size < _MERGED_BYTES // 2}
    merged = [name for group in groups for name in group]
    assert len(merged) == len(set(merged))
    assert small.issuperset(merged)
    assert len(small) - len(merged) <= 1  # one has no other
    for group in groups[:-1]:
        assert _MERGED_BYTES <= sum(by_name[name] for name in group) < 3 * _MERGED_BYTES // 2


# --- texts that share their windows


@pytest.fixture
def shared(folder: Path) -> Opened:
    """The texts a, b and c have the first window, d and e the second one."""
    write_chunk(folder, WINDOWS, random(2))
    write_windows(folder, FIRST, pl.Series([WINDOWS[0]] * 3))
    write_windows(folder, SECOND, pl.Series([WINDOWS[1]] * 2))
    return Opened(folder)


def test_texts_have_the_vector_of_their_window(shared: Opened) -> None:
    assert shared.missing(hashes("a", "c", "d", "f")) == set(hashes("f"))
    first, second = random(2)
    gathered = shared.gather(hashes("e", "a", "c"))
    assert gathered.tobytes() == np.stack([second, first, first]).tobytes()


def test_windows_have_their_own_vectors(shared: Opened) -> None:
    other = hashes("u")
    assert shared.missing(pl.concat([WINDOWS, other])) == set(other)


def test_a_text_of_a_window_without_a_vector_is_missing(shared: Opened) -> None:
    write_windows(shared.folder, hashes("f"), hashes("u"))
    assert Opened(shared.folder).missing(hashes("e", "f")) == set(hashes("f"))


def test_a_text_whose_window_is_stored_twice_has_one_vector(shared: Opened) -> None:
    """As where two runs, each blind to the other, store the windows of the same texts."""
    write_windows(shared.folder, hashes("c", "b", "f"), pl.Series([WINDOWS[0]] * 3))
    write_windows(shared.folder, hashes("c"), hashes("u"))  # and one that no vector has
    again = Opened(shared.folder)
    assert again.missing(hashes("b", "c", "x")) == set(hashes("x"))
    assert again.gather(hashes("c", "b", "c")).tobytes() == random(2)[[0, 0, 0]].tobytes()
    assert again.prune_to(hashes("b", "f")) == 1
    pairs = [
        pair
        for path in shared.folder.glob("*.windows.npy")
        for pair in window_hashes_of(shared.folder, path.name.partition(".")[0])
        .T.astype(str)
        .tolist()
    ]
    assert sorted(pairs) == sorted([digest, WINDOWS[0]] for digest in hashes("b", "f"))


def test_a_vector_stays_as_long_as_a_text_has_its_window(shared: Opened) -> None:
    assert shared.count_prunable(hashes("b", "d", "e")) == 0
    before = {path.name for path in shared.folder.iterdir()}
    assert shared.prune_to(hashes("b", "d", "e")) == 0
    after = {path.name for path in shared.folder.iterdir()}
    assert (len(before & after), len(after)) == (3, 4)  # the windows of a and c are forgotten
    pruned = Opened(shared.folder)
    assert pruned.missing(hashes("a", "b", "c", "d")) == set(hashes("a", "c"))
    assert pruned.count_prunable(hashes("b")) == 1
    assert pruned.prune_to(hashes("b")) == 1
    last = Opened(shared.folder)
    assert last.missing(hashes("b", "d")) == set(hashes("d"))
    assert last.gather(hashes("b")).tobytes() == random(2)[0].tobytes()
    assert last.prune_to(hashes()) == 1
    assert not [*shared.folder.iterdir()]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[:-1],
        lambda content: bytes(len(content)),
        lambda content: content.replace(b"(2, 3)", b"(6,)  "),  # as earlier ones had it
        lambda content: content.replace(b"|S64", b"|S32").replace(b"(2, 3)", b"(2, 6)"),
        lambda content: content.replace(b"False", b"True "),  # the order of Fortran
    ],
    ids=["empty", "all but one byte", "zeros", "of one row", "of other hashes", "by columns"],
)
def test_the_texts_of_damaged_windows_are_missing(
    shared: Opened, damage: Callable[[bytes], bytes]
) -> None:
    [path] = [
        path
        for path in shared.folder.glob("*.windows.npy")
        if window_hashes_of(shared.folder, path.name.partition(".")[0]).shape == (2, 3)
    ]
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert Opened(shared.folder).missing(pl.concat([FIRST, SECOND])) == set(FIRST)
    write_windows(shared.folder, FIRST, pl.Series([WINDOWS[0]] * 3))
    assert path.read_bytes() == content


def test_a_vector_that_is_stored_under_its_text_is_found_though_others_have_windows(
    shared: Opened,
) -> None:
    write_chunk(shared.folder, hashes("x"), random(1))
    assert Opened(shared.folder).gather(hashes("x")).tobytes() == random(1).tobytes()


def test_a_lookup_leaves_the_connection_as_it_was(store: Opened) -> None:
    settings = "SELECT name, value FROM duckdb_settings() ORDER BY name"
    before = store.connection.sql(settings).fetchall()
    store.missing(FIRST)
    assert store.connection.sql(settings).fetchall() == before


def test_a_chunk_that_cannot_be_read_now_is_not_removed(folder: Path) -> None:
    for texts in (FIRST, SECOND, WINDOWS[:1]):
        write_chunk(folder, texts, random(len(texts)))
    write_windows(folder, hashes("f"), WINDOWS[:1])
    files = set(folder.iterdir())
    for number in count(1):
        with failing_calls(folder, number) as calls, suppress(OSError):
            Opened(folder).prune_to(pl.concat([FIRST, SECOND, hashes("f")]))
        assert {*folder.iterdir()} == files, calls.failed
        if calls.failed is None:
            break
    assert number > 5
