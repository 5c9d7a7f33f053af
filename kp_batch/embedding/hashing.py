"""A lexical stand-in for a model: counts of words and word pairs."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import polars as pl
import polars_hash as _  # noqa: F401

from kp_batch.embedding.checked import ENCODER_VERSION, checked
from kp_batch.embedding.precision import Precision
from kp_batch.vectors import Float32s, Float64s

_AT_ONCE = 512  # texts whose counts, of float64, stay in a core's cache
# Of their texts: a word and a pair of words take some forty times their size while they are hashed.
_LETTERS_AT_ONCE = 1 << 20
_WORD = re.compile(r"\w+")


class Hashing:
    """Signed hashed counts of words and word pairs, as scikit-learn's `HashingVectorizer` counts.

    A term's 32-bit MurmurHash3 h, a signed number, names its column, |h| modulo the dimensions, and
    the sign of its count. Words of one letter count, which scikit-learn's own pattern drops.
    """

    dimensions = 384
    chunk_size = 16_384
    precision: Precision = "float32"
    encoder_id = f"hashing-384-v{ENCODER_VERSION}"

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        least = _LETTERS_AT_ONCE // _AT_ONCE
        ends = np.cumsum([max(len(text), least) for text in texts], dtype=np.int64)
        firsts = np.flatnonzero(np.diff((ends - 1) // _LETTERS_AT_ONCE, prepend=-1))
        for first, last in pairwise([*firsts.tolist(), len(texts)]):
            vectors[first:last] = checked(self._counted(texts[first:last]))
        return vectors

    def _counted(self, texts: Sequence[str]) -> Float64s:
        terms = [_terms(text) for text in texts]
        of_term = pl.Series([term for each in terms for term in each], dtype=pl.String)
        # polars-hash registers `nchash` on every expression when it is imported.
        hashed = pl.select(cast("Any", pl.lit(of_term)).nchash.murmur32()).to_series().to_numpy()
        signed = hashed.view(np.int32).astype(np.int64)
        row = np.repeat(np.arange(len(texts)), [len(each) for each in terms])
        place = row * self.dimensions + np.abs(signed) % self.dimensions
        size = len(texts) * self.dimensions
        counts = np.bincount(place, weights=np.where(signed < 0, -1.0, 1.0), minlength=size)
        return counts.astype(np.float64, copy=False).reshape(len(texts), self.dimensions)


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.lower())
    return words + [f"{word} {after}" for word, after in pairwise(words)]
