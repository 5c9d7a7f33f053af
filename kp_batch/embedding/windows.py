"""Decides which windows to embed: each once, however many texts have it.

Texts arrive as they are tokenised, a part at a time. Windows without a vector leave in chunks, as
they are embedded and stored. So the first chunk is embedded while later texts are tokenised.
"""

import hashlib
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.minilm import Window

Digests = npt.NDArray[np.uint64]  # both halves of hashes, combined, shape (n, 2)

RECENT_DIGESTS = 1 << 20  # in a set before they are merged; each takes a hundred bytes


class TextWindows(NamedTuple):
    """The windows of some texts, with their hashes: SHA-256 in hex."""

    hashes: list[str]
    windows: list[Window]
    texts: int  # how many have these windows, or windows seen before

    def __repr__(self) -> str:
        """Return a short text, for the message of a part that fails."""
        return f"{len(self.windows)} windows, the first {self.hashes[0] if self.hashes else None}"


def window_hash(window: Window) -> str:
    """Return the hash of a window. It begins with a byte that UTF-8 lacks, so no text has it."""
    return hashlib.sha256(b"\xff" + window.astype("<u2").tobytes()).hexdigest()


def chunks_to_embed(
    tokenised: Generator[TextWindows], known: "KnownWindows", size: int
) -> Generator[TextWindows]:
    """Cut the windows that are not known into chunks, in order, and add them to the known ones.

    Args:
        tokenised: the windows of texts, a part at a time; closed at the end.
        known: the windows that have a vector.
        size: windows of each chunk. The last one may have fewer, or none, if its texts only have
            windows that were seen before.
    """
    hashes, windows, texts = list[str](), list[Window](), 0
    with closing(tokenised):
        for part in tokenised:
            for is_new, hash_, window in zip(
                known.add(part.hashes), part.hashes, part.windows, strict=True
            ):
                if is_new and len(windows) == size:
                    yield TextWindows(hashes, windows, texts)
                    hashes, windows, texts = list[str](), list[Window](), 0
                if is_new:
                    hashes.append(hash_)
                    windows.append(window.copy())  # a view would keep its whole part in memory
                texts += 1
    if texts:
        yield TextWindows(hashes, windows, texts)


class KnownWindows:
    """The windows that have, or will have, a vector: 16 bytes each, more for the latest.

    Half of the bytes of a hash are kept: that two of a billion agree has a probability of 1e-21.
    They are combined from all bytes: if a stored hash is damaged anywhere, it matches no window,
    and the window is embedded again.

    Args:
        hashes: hashes of the windows that have a vector: arrays of S64, SHA-256 in hex.
    """

    def __init__(self, hashes: Iterable[npt.NDArray[np.bytes_]]) -> None:
        self._old = _in_order(np.concatenate([np.empty((0, 2), np.uint64), *map(_digests, hashes)]))
        self._recent: set[str] = set()

    def add(self, hashes: list[str]) -> list[bool]:
        """Add hashes; return whether each is new: neither known, nor earlier in this list."""
        are_old = self._are_old(_digests(np.array(hashes, dtype="S64")))
        are_new: list[bool] = []
        for hash_, is_old in zip(hashes, are_old.tolist(), strict=True):
            is_new = not is_old and hash_ not in self._recent
            are_new.append(is_new)
            if is_new:
                self._recent.add(hash_)
        if len(self._recent) > max(RECENT_DIGESTS, len(self._old) // 8):
            recent = _digests(np.array(list(self._recent), dtype="S64"))
            self._old = _in_order(np.concatenate([self._old, recent]))
            self._recent.clear()
        return are_new

    def _are_old(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Search by the first halves; among a billion, hardly ever are two equal."""
        if not len(self._old):
            return np.zeros(len(digests), dtype=np.bool_)
        places = np.searchsorted(self._old[:, 0], digests[:, 0])
        found = self._old[np.minimum(places, len(self._old) - 1)]
        return np.asarray((found == digests).all(axis=1), dtype=np.bool_)


def _digests(hashes: npt.NDArray[np.bytes_]) -> Digests:
    raw = bytes.fromhex(hashes.tobytes().decode("ascii"))
    quarters = np.frombuffer(raw, dtype=">u8").reshape(len(hashes), 4)
    return (quarters[:, :2] ^ quarters[:, 2:]).astype(np.uint64)


def _in_order(digests: Digests) -> Digests:
    return digests[np.argsort(digests[:, 0])]
