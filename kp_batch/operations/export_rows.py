"""Reads scored traces again from the archive, and gives them their scores."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow.parquet as pq

from kp_batch.contracts import TIMESTAMP
from kp_batch.ingest.reread import Trace, reread_batches
from kp_batch.unread import Unread

_ROWS = 2_000  # read at once
# What a trace may say of itself to be shared; so may one that says nothing.
_SHARED = {"visibility": ("network", "org"), "privacy_level": ("aggregated", "federated")}


class Chosen(NamedTuple):
    """A scored trace, and where the archive held it: columns of chosen.sql."""

    source_file: str
    row: int
    trace_id: str
    content_hash: str
    created_at: int  # microseconds
    score: float
    run_id: str
    encoder_id: str
    cache_id: str
    cache_group: str | None
    profile_id: str


Read = tuple[Chosen, Trace]


@dataclass
class LeftOut:
    """Counts the chosen traces that are not exported, and names the files that do not hold them."""

    private: int = 0
    unread: Counter[Unread] = field(default_factory=Counter[Unread])
    files: dict[str, None] = field(default_factory=dict[str, None])

    def add_unread(self, chosen: Chosen, why: Unread) -> None:
        """Count a trace that cannot be read again as it was scored."""
        self.unread[why] += 1
        self.files[chosen.source_file] = None


def read_chosen(path: Path, left_out: LeftOut, *, private: bool) -> Iterator[list[Read]]:
    """Read chosen traces again, each with its score; see `_add_score`.

    Args:
        path: the file of chosen.sql.
        left_out: takes what is left out.
        private: whether private traces are read, too.

    Yields:
        Some traces at a time, in the order of the chosen ones.
    """
    for batch in reread_batches(_chosen(path)):
        shown: list[Read] = []
        for chosen, read in batch:
            if isinstance(read, str):
                left_out.add_unread(chosen, read)
            elif private or not _is_private(read):
                _add_score(read, chosen)
                shown.append((chosen, read))
            else:
                left_out.private += 1
        yield shown


def _chosen(path: Path) -> Iterator[Chosen]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=list(Chosen._fields)):
            rows = pl.DataFrame(batch).with_columns(pl.col("created_at").cast(TIMESTAMP))
            ordered = rows.with_columns(pl.col("created_at").to_physical()).select(Chosen._fields)
            yield from map(Chosen._make, ordered.iter_rows())


def _is_private(trace: Trace) -> bool:
    """Whether it says anything else than that it may be shared, such as "Private"."""
    metadata = trace["metadata"]
    return any(metadata.get(name) not in (None, *shared) for name, shared in _SHARED.items())


def _add_score(trace: Trace, chosen: Chosen) -> None:
    """Put the score in, and where it is from: a struct of `contracts.EXPORTED`."""
    trace["metadata"] |= {
        "quality_score": chosen.score,
        "quality_score_from": {
            "run_id": chosen.run_id,
            "encoder_id": chosen.encoder_id,
            "cache_id": chosen.cache_id,
            "cache_group": chosen.cache_group,
            "profile_id": chosen.profile_id,
            "source_file": chosen.source_file,
        },
    }
