"""The result of a sweep: the scores of each domain with each combination, and how it is shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from typing import TYPE_CHECKING

from kp_batch.html import Displayed
from kp_batch.parts import Head, Part, Row, Table, as_text
from kp_batch.tables import frame_of_rows
from kp_batch.text import count_of, shortened

if TYPE_CHECKING:
    import polars as pl

_DOMAINS = 10  # shown at the most, each a table
_DOMAIN = 60  # characters


@dataclass(frozen=True)
class Variant:
    """What the scores of one domain are with one combination of a cache and a threshold.

    Beside each stands the combination in force, the warehouse's own.
    """

    task_domain: str | None  # null: all domains
    cache_by: str  # none, agent_id, agent_id+host
    cache_size: int  # vectors
    ttl: str  # none, 90m, 12h, 7d
    threshold: float  # 0..1
    in_force: bool  # whether this is the combination in force
    traces: int
    mean_novelty: float  # 0..1
    mean_score: float  # 0..1
    # Spearman's, with the cache in force; null where all scores of one cache are one.
    rank_correlation: float | None
    worth_sharing: int  # traces that reach the threshold
    # Of these: below the threshold in force, with the cache in force.
    now_reach: int
    # Traces that reach the threshold in force, with the cache in force, and not this one.
    no_longer_reach: int
    recorded: int  # traces whose recorded score shows their novelty
    recorded_error: float | None  # mean absolute difference of their scores from the recorded ones
    recorded_share: float | None  # 0..1: how many of them get the recorded score within 1e-6


@dataclass(frozen=True)
class Sweep(Displayed):
    """What a run would make of the scores, with each of some combinations."""

    encoder_id: str  # in force, as are the weights
    traces: int
    # All domains first, then each; by cache_by, cache size, ttl and threshold.
    variants: tuple[Variant, ...]

    def to_polars(self) -> "pl.DataFrame":
        """A row for each of `variants`, with its fields."""
        return frame_of_rows(Variant, self.variants)

    def _parts(self) -> Iterator[Part]:
        return sweep_parts(self)


def sweep_text(result: Sweep) -> str:
    """Format a sweep for a terminal of 120 columns, which long names of `--cache-by` exceed."""
    return as_text(sweep_parts(result, rest="--json"))


def sweep_parts(result: Sweep, *, rest: str = "to_polars()") -> Iterator[Part]:
    """A sweep for people, a table for all domains and one for each of the largest.

    Args:
        result: the sweep.
        rest: what has the domains that are not shown.
    """
    overall, *domains = (
        list(rows) for _, rows in groupby(result.variants, lambda row: row.task_domain)
    )
    shown = nlargest(_DOMAINS, domains, key=lambda rows: rows[0].traces)
    yield Head(
        f"{count_of(result.traces, 'trace')}, as a run would score them with the encoder "
        f"{result.encoder_id}"
    )
    yield "  rank corr, now reach, no longer (reach it): beside the combination in force"
    if any(row.rank_correlation is None for rows in (overall, *shown) for row in rows):
        yield "  no rank corr: all scores of one cache are equal, and have no order"
    if overall[0].recorded:
        yield "  recorded: the share of recorded scores that come out the same"
    for rows in (overall, *sorted(shown, key=domains.index)):
        domain = rows[0].task_domain
        name = "all domains" if domain is None else shortened(domain, _DOMAIN)
        yield from ("", Head(f"{name}, {count_of(rows[0].traces, 'trace')}"))
        in_force = [place for place, row in enumerate(rows) if row.in_force]
        yield Table([_cells(row) for row in rows], marked=in_force)
    if more := len(domains) - len(shown):
        yield from ("", f"{count_of(more, 'more domain')}, with fewer traces: see {rest}")


def _cells(row: Variant) -> Row:
    recorded = "" if row.recorded_share is None else f"{row.recorded_share:.1%}"
    return {
        "cache by": row.cache_by,
        "size": f"{row.cache_size:,}",
        "ttl": row.ttl,
        "threshold": f"{row.threshold:.12g}",
        "novelty": f"{row.mean_novelty:.4f}",
        "score": f"{row.mean_score:.4f}",
        "rank corr": "" if row.rank_correlation is None else f"{row.rank_correlation:.4f}",
        "worth sharing": f"{row.worth_sharing:,} ({row.worth_sharing / row.traces:.1%})",
        "now reach": f"{row.now_reach:,}",
        "no longer": f"{row.no_longer_reach:,}",
        **({"recorded": recorded} if recorded else {}),
        "": "in force" if row.in_force else "",
    }
