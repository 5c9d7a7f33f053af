import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from kp_batch.embedding.store import VectorStore, write_chunk
from kp_batch.errors import WarehouseError

Float32s = npt.NDArray[np.float32]


def hashes(*texts: str) -> pl.Series:
    return pl.Series([hashlib.sha256(text.encode()).hexdigest() for text in texts], dtype=pl.String)


def random(count: int) -> Float32s:
    """Any bits, NaN and infinity among them: the store looks at none."""
    bits = np.random.default_rng(count).integers(0, 2**32, (count, 384), dtype=np.uint32)
    return bits.view(np.float32)


FIRST, SECOND = hashes("a", "b", "c"), hashes("d", "e")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "vectors" / "hashing-384-v1"


@pytest.fixture
def store(folder: Path) -> VectorStore:
    write_chunk(folder, FIRST, random(3))
    write_chunk(folder, SECOND, random(2))
    return VectorStore(folder)


def name_of(text_hashes: pl.Series) -> str:
    """The name of a chunk."""
    return hashlib.sha256("".join(text_hashes).encode()).hexdigest()


def test_a_folder_that_is_not_there_holds_nothing(folder: Path) -> None:
    store = VectorStore(folder)
    assert store.missing(FIRST).to_list() == FIRST.to_list()
    assert store.gather(hashes()).shape[0] == 0
    assert not folder.exists()


def test_missing_names_each_hash_once_in_its_order(store: VectorStore) -> None:
    wanted = hashes("z", "a", "y", "z", "e", "x", "y")
    assert store.missing(wanted).to_list() == hashes("z", "y", "x").to_list()
    assert store.missing(pl.concat([FIRST, SECOND])).is_empty()
    assert store.missing(hashes()).is_empty()


def test_vectors_come_back_bit_for_bit_in_the_order_of_the_request(store: VectorStore) -> None:
    gathered = store.gather(hashes("e", "a", "d", "c", "b"))
    first, second = random(3), random(2)
    assert gathered.dtype == np.float32
    assert gathered.shape == (5, 384)
    assert gathered.tobytes() == np.stack([second[1], first[0], second[0], *first[:0:-1]]).tobytes()


def test_a_hash_asked_for_twice_is_given_twice(store: VectorStore) -> None:
    gathered = store.gather(hashes("d", "a", "d", "d"))
    assert (
        gathered.tobytes()
        == np.stack([random(2)[0], random(3)[0], random(2)[0], random(2)[0]]).tobytes()
    )


def test_a_second_store_sees_every_chunk(store: VectorStore, folder: Path) -> None:
    wanted = pl.concat([SECOND, FIRST])
    second = VectorStore(folder)
    assert second.missing(wanted).is_empty()
    assert second.gather(wanted).tobytes() == store.gather(wanted).tobytes()


def test_what_is_not_stored_cannot_be_gathered(store: VectorStore, folder: Path) -> None:
    with pytest.raises(WarehouseError, match=r"^2 of 3 vectors are not in .*; run again") as caught:
        store.gather(hashes("x", "a", "y"))
    assert str(folder) in str(caught.value)


def test_only_whole_chunks_are_left_in_the_folder(store: VectorStore, folder: Path) -> None:
    assert store.missing(FIRST).is_empty()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        f"{name_of(each)}.{part}.npy" for each in (FIRST, SECOND) for part in ("hashes", "vectors")
    }


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
    ],
    ids=["empty", "one byte", "half", "all but one byte", "zeros", "garbage", "only magic"],
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
    second = VectorStore(folder)
    assert second.missing(pl.concat([FIRST, SECOND])).to_list() == FIRST.to_list()
    assert second.gather(SECOND).tobytes() == random(2).tobytes()
    with pytest.raises(WarehouseError, match="3 of 3"):
        second.gather(FIRST)
    write_chunk(folder, FIRST, random(3))
    assert VectorStore(folder).gather(FIRST).tobytes() == random(3).tobytes()
    assert path.read_bytes() == content


def test_a_half_written_chunk_is_not_seen(store: VectorStore, folder: Path, tmp_path: Path) -> None:
    third = hashes("f")
    write_chunk(tmp_path, third, random(4)[:1])
    for name, kept in (("vectors.npy", "vectors.npy"), ("hashes.npy", "hashes.part")):
        content = (tmp_path / f"{name_of(third)}.{name}").read_bytes()
        (folder / f"{name_of(third)}.{kept}").write_bytes(content)
    second = VectorStore(folder)
    assert second.missing(third).to_list() == third.to_list()
    assert second.missing(FIRST).is_empty()
    write_chunk(folder, third, random(1))
    assert VectorStore(folder).gather(third).tobytes() == random(1).tobytes()
    assert store.missing(third).to_list() == third.to_list()


def test_a_text_in_two_chunks_has_one_vector(folder: Path) -> None:
    """As where two runs, each blind to the other, store overlapping chunks."""
    write_chunk(folder, hashes("a", "b"), random(2))
    write_chunk(folder, hashes("c", "b"), random(2))
    both = VectorStore(folder)
    assert both.gather(hashes("a", "b", "c", "b")).shape == (4, 384)
