"""The result of a sweep: the scores of each domain with each combination, as data and text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from typing import Any

from kp_batch.columns import Rows, cells
from kp_batch.html import Displayed
from kp_batch.rendering import Head, Part, Table, rest_in
from kp_batch.text import count_of, shortened

_DOMAINS = 10  # shown, each as a table
_DOMAIN = 60  # characters
_COMBINATION = ("cache_by", "cache_size", "ttl", "threshold")
_OUTCOME = (
    *("mean_novelty", "mean_score", "rank_correlation"),
    *("at_threshold", "now_reach", "no_longer_reach"),
)


class Variants(Rows):
    """The scores of domains with combinations of a cache and a threshold.

    The current combination, the warehouse's own, is included.
    """

    __slots__ = ()
    names = (
        *("task_domain", *_COMBINATION, "is_current", "traces", *_OUTCOME),
        *("recorded", "recorded_error", "recorded_share"),
    )


@dataclass(frozen=True)
class Sweep(Displayed):
    """The scores that a run would compute with each of some combinations."""

    encoder_id: str  # the current encoder
    traces: int
    # All domains first, then each; by cache_by, cache size, ttl and threshold.
    variants: Variants

    def _parts(self) -> Iterator[Part]:
        """Yield a table for all domains, and one for each of the largest.

        Long names of `--cache-by` exceed the 120 columns of a terminal.
        """
        overall, *domains = (
            list(rows) for _, rows in groupby(self.variants, lambda row: row["task_domain"])
        )
        shown = nlargest(_DOMAINS, domains, key=lambda rows: rows[0]["traces"])
        yield Head(
            f"{count_of(self.traces, 'trace')}, as a run would score them with the encoder "
            f"{self.encoder_id}"
        )
        yield "  rank corr, now reach, no longer (reach it): compared with the current combination"
        if any(row["rank_correlation"] is None for rows in (overall, *shown) for row in rows):
            yield "  no rank corr: all scores of one cache are equal, and have no order"
        if overall[0]["recorded"]:
            yield "  recorded: the share of recorded scores that are reproduced"
        for rows in (overall, *sorted(shown, key=domains.index)):
            yield from _of_domain(rows)
        if more := len(domains) - len(shown):
            more_domains = f"{count_of(more, 'more domain')}, with fewer traces"
            yield from ("", f"{more_domains}: {rest_in('variants')}")


def _of_domain(rows: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    domain = rows[0]["task_domain"]
    name = "all domains" if domain is None else shortened(domain, _DOMAIN)
    yield from ("", Head(f"{name}, {count_of(rows[0]['traces'], 'trace')}"))
    recorded = ["recorded_share"] if rows[0]["recorded"] else []
    current = [place for place, row in enumerate(rows) if row["is_current"]]
    table = cells(rows, *_COMBINATION, *_OUTCOME, *recorded, "is_current")
    yield Table(table, marked=current)
