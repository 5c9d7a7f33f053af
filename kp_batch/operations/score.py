"""Scores new traces: as a live engine would its first, or as they would come to a warehouse."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from json import loads
from typing import IO, cast

import numpy as np
import polars as pl

from kp_batch.archive.formats.json_values import rows_from_objects
from kp_batch.archive.formats.jsonl import read_rows
from kp_batch.archive.validation import message, reasons
from kp_batch.facts import with_facts
from kp_batch.live import NOT_NEEDED
from kp_batch.novelty.cache import novelty
from kp_batch.operations.breaking_down import Row, counts_of, scores_by_profile
from kp_batch.operations.explained import Scored, Similar, Unscored
from kp_batch.scoring.breakdown import breakdowns
from kp_batch.scoring.composite import assign
from kp_batch.scoring.profiles import WeightProfile

_ROWS = 256  # scored at once

# What a trace meets: the greatest similarity, None where there is nothing, and the nearest traces.
Met = tuple[float | None, tuple[Similar, ...]]
# What each trace of a frame of `with_facts` meets.
Meet = Callable[[pl.DataFrame], list[Met]]


def meet_nobody(facts: pl.DataFrame) -> list[Met]:
    """What traces meet that come first: each an empty cache."""
    return [(None, ())] * len(facts)


def score_lines(
    file: IO[bytes], profiles: Mapping[str, WeightProfile], meet: Meet = meet_nobody
) -> Iterator[Scored | Unscored]:
    """Score new traces, each by itself: none meets another one of them.

    Neither id nor created_at is needed. Memory is that of some lines.

    Args:
        file: one trace as JSON, or JSONL: one on each line.
        profiles: by name, with `default`.
        meet: what they meet.

    Yields:
        One for each line that is not blank, in their order.
    """
    for rows in _rows(file):
        facts = with_facts(rows, _faults())
        good = facts.filter(pl.col("reasons").list.len() == 0)
        scored = iter(_scored(good, profiles, meet))
        for row in facts.with_columns(message=message(pl.col("reasons"))).iter_rows(named=True):
            yield _unscored(row) if row["reasons"] else next(scored)


def _rows(file: IO[bytes]) -> Iterator[pl.DataFrame]:
    """The traces as frames of `ROWS`."""
    first = next(file, b"")
    if _is_object(first):
        lines = chain([first], file)
    else:
        rest = file.read()
        if _is_object(first + rest):
            yield rows_from_objects("", [(0, loads(first + rest))])
            return
        lines = iter((first + rest).splitlines(keepends=True))
    yield from read_rows("", cast("IO[bytes]", lines), _ROWS)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _faults() -> pl.Expr:
    return reasons().list.filter(~pl.element().is_in(sorted(NOT_NEEDED)))


def _scored(
    facts: pl.DataFrame, profiles: Mapping[str, WeightProfile], meet: Meet
) -> Iterator[Scored]:
    met = meet(facts)
    similarity = np.array([each for each, _ in met], dtype=np.float64)  # None is NaN
    rows = facts.with_columns(novelty=pl.Series(novelty(similarity))).with_columns(assign(profiles))
    told = breakdowns(rows, profiles.values())
    for row, (greatest, nearest), breakdown in zip(rows.to_dicts(), met, told, strict=True):
        yield Scored(
            line=row["row"] + 1,
            trace_id=row["trace_id"],
            task_domain=row["task_domain"],
            score=breakdown.score,
            by_profile=scores_by_profile(row, profiles),
            counts=counts_of(row),
            breakdown=breakdown,
            max_similarity=greatest,
            neighbours=nearest,
        )


def _unscored(row: Row) -> Unscored:
    return Unscored(row["row"] + 1, row["trace_id"], tuple(row["reasons"]), row["message"])
