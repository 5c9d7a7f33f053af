"""Each window is embedded once, however many texts have it, in the order of the texts."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.embedding import windows as module
from kp_batch.embedding.chunks import HASHES, stored_hashes, write_chunk
from kp_batch.embedding.windows import KnownWindows, TextWindows, chunks_to_embed, window_hash

PIECES = st.lists(st.integers(0, 3), min_size=1, max_size=2)
PARTS = st.lists(st.lists(PIECES, max_size=6), max_size=6)


def windows_of(part: list[list[int]]) -> TextWindows:
    windows = [np.array(pieces, dtype=np.uint16) for pieces in part]
    return TextWindows([window_hash(window) for window in windows], windows, len(windows))


def as_stored(hashes: list[str]) -> np.ndarray:
    return np.array(hashes, dtype="S64")


@pytest.mark.telling
@pytest.mark.slow
@given(parts=PARTS, stored=st.lists(PIECES), size=st.integers(1, 4), recent=st.integers(0, 5))
def test_law_what_is_new_leaves_once_in_chunks_in_its_order(
    parts: list[list[list[int]]], stored: list[list[int]], size: int, recent: int
) -> None:
    hashes = windows_of(stored).hashes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RECENT_DIGESTS", recent)
        known = KnownWindows([as_stored(hashes[:2]), as_stored(hashes[2:])])
        chunks = list(chunks_to_embed((windows_of(part) for part in parts), known, size))
    seen, new = {tuple(pieces) for pieces in stored}, []
    for pieces in (pieces for part in parts for pieces in part):
        if tuple(pieces) not in seen:
            new.append(pieces)
        seen.add(tuple(pieces))
    assert [window.tolist() for chunk in chunks for window in chunk.windows] == new
    assert all(chunk.hashes == windows_of(chunk.windows).hashes for chunk in chunks)
    assert all(len(chunk.windows) == size for chunk, _ in pairwise(chunks))
    assert sum(chunk.texts for chunk in chunks) == sum(map(len, parts))


def test_windows_are_known_by_more_than_the_beginning_of_their_hashes() -> None:
    """Of two stored hashes that begin alike one may be forgotten: its window is made again."""
    begin, other = "0" * 16, "f" * 16
    known = KnownWindows([as_stored([begin + "1" * 48])])
    assert known.add([begin + "2" * 48, other + "1" * 48, begin + "1" * 48]) == [True, True, False]


@pytest.mark.parametrize("place", [0, 20, 40, 63])
@pytest.mark.parametrize("change", [1, 0x10, 0x80])
def test_a_window_whose_stored_hash_is_damaged_is_made_again(
    tmp_path: Path, place: int, change: int
) -> None:
    """No lookup finds its vector, by whichever letter: it must not count as known."""
    hashes = windows_of([[0], [1], [2]]).hashes
    path = tmp_path / (write_chunk(tmp_path, hashes, np.eye(3, dtype=np.float32)) + HASHES)
    content = bytearray(path.read_bytes())
    content[content.index(hashes[1].encode()) + place] ^= change
    path.write_bytes(content)
    assert KnownWindows(stored_hashes(tmp_path)).add(hashes) == [False, True, False]


def test_a_chunk_holds_its_windows_alone() -> None:
    """A Ray worker's windows are views of one object, which stays while there is any of them."""
    part = np.arange(512, dtype=np.uint16)
    views = list(part.reshape(256, 2))
    tokenised = (windows_of([[0, 1]])._replace(windows=[view]) for view in views[:1])
    [chunk] = chunks_to_embed(tokenised, KnownWindows([]), 2)
    assert not np.shares_memory(chunk.windows[0], part)


def test_a_part_is_named_in_a_line() -> None:
    assert repr(windows_of([[1], [2]])).startswith("2 windows, the first ")
    assert repr(TextWindows([], [], 0)) == "0 windows, the first None"
