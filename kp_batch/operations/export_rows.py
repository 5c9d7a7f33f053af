"""Reads scored traces again from the archive, and gives them their scores."""

import json
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow.parquet as pq

from kp_batch.archive.formats.json_values import rows_from_objects
from kp_batch.archive.reading import read_raw
from kp_batch.archive.sources import described
from kp_batch.archive.validation import reasons
from kp_batch.contracts import TIMESTAMP
from kp_batch.facts import with_facts
from kp_batch.operations.results import Unread

# Of what is looked at together: no more of either, unless one trace is more.
_ROWS = 2_000
_LETTERS = 16 << 20  # of JSON
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
    profile_id: str


Trace = dict[str, Any]
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

    Every file is opened once, and read as far as it is needed. A trace is left out if it is not
    what was scored any more: its row has another id or content now, as ingest names it.

    Args:
        path: the file of chosen.sql.
        left_out: takes what is left out.
        private: whether private traces are read, too.

    Yields:
        Some traces at a time, in the order of the chosen ones.
    """
    by_file = groupby(_chosen(path), key=lambda each: each.source_file)
    texts = chain.from_iterable(_texts(source, rows, left_out) for source, rows in by_file)
    for batch in _batches(texts):
        same = _same(batch, left_out)
        shown = [each for each in same if private or not _is_private(each[1])]
        left_out.private += len(same) - len(shown)
        for chosen, trace in shown:
            _add_score(trace, chosen)
        yield shown


def _chosen(path: Path) -> Iterator[Chosen]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=list(Chosen._fields)):
            rows = pl.DataFrame(batch).with_columns(pl.col("created_at").cast(TIMESTAMP))
            ordered = rows.with_columns(pl.col("created_at").to_physical()).select(Chosen._fields)
            yield from map(Chosen._make, ordered.iter_rows())


def _texts(
    source: str, chosen: Iterator[Chosen], left_out: LeftOut
) -> Iterator[tuple[Chosen, str]]:
    """The JSON of the chosen rows of one file, as far as they can be read again."""
    asked: deque[Chosen] = deque()  # no more than a batch of the file, whatever is chosen of it

    def rows() -> Iterator[int]:
        for each in chosen:
            asked.append(each)
            yield each.row

    why: Unread = "changed"
    try:
        for row, text in read_raw(described(source), rows(), whole=True):
            while (each := asked.popleft()).row != row:
                left_out.add_unread(each, why)
            yield each, text
    except FileNotFoundError:
        why = "gone"
    except Exception:  # noqa: BLE001 (file systems and damage raise errors of many kinds)
        why = "unreadable"
    for each in chain(asked, chosen):
        left_out.add_unread(each, why)


def _batches(texts: Iterator[tuple[Chosen, str]]) -> Iterator[list[tuple[Chosen, str]]]:
    batch: list[tuple[Chosen, str]] = []
    letters = 0
    for chosen, text in texts:
        if batch and (len(batch) == _ROWS or letters + len(text) > _LETTERS):
            yield batch
            batch, letters = [], 0
        batch.append((chosen, text))
        letters += len(text)
    if batch:
        yield batch


def _same(batch: list[tuple[Chosen, str]], left_out: LeftOut) -> list[Read]:
    """The traces that are still what was scored."""
    traces = [json.loads(text) for _, text in batch]
    # Of the JSON, which is what is written, whatever the file's format: who scores the export must
    # find the same content.
    facts = with_facts(rows_from_objects("", enumerate(traces)), reasons())
    now = facts.select("trace_id", "content_hash").iter_rows()
    same: list[Read] = []
    for (chosen, _), trace, found in zip(batch, traces, now, strict=True):
        if found == (chosen.trace_id, chosen.content_hash):
            same.append((chosen, trace))
        else:
            left_out.add_unread(chosen, "changed")
    return same


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
            "profile_id": chosen.profile_id,
            "source_file": chosen.source_file,
        },
    }
