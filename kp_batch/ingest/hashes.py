"""Sorted hashes, of forgotten ids and of wanted texts, and which rows have one of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from kp_batch.embedding.vector_store import HASH, Hashes


def forgotten_hashes(forgotten: Sequence[Path]) -> Hashes:
    """The hashes of the forgotten ids, ascending."""
    if not forgotten:
        return np.empty(0, dtype=HASH)
    hashes = pl.read_parquet(list(forgotten), glob=False).get_column("id_hash").sort()
    return np.array(hashes.to_list(), dtype=HASH)


def stand_in(known: Hashes, hashes: pl.Series) -> pl.Series:
    """Which hashes stand among the known ones, which are ascending, and at least one."""
    # A search, since a join would look at all that are known for every batch.
    sought = np.array(hashes.to_list(), dtype=HASH)
    place = np.minimum(np.searchsorted(known, sought), len(known) - 1)
    return pl.Series(known[place] == sought)
