"""Formats a sweep for a terminal of 120 columns."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import groupby

from kp_batch.operations.sweep_result import Outcome, Sweep
from kp_batch.text import aligned, number, shortened

_DOMAINS = 10  # shown at the most, each a table
_DOMAIN = 60  # characters


def sweep_text(result: Sweep) -> str:
    """Format a sweep: a table over all domains, and one for each of the largest."""
    overall, *domains = (
        list(rows) for _, rows in groupby(result.outcomes, lambda row: row.task_domain)
    )
    shown = _largest(domains)
    more = len(domains) - len(shown)
    tables = ["\n".join(_table(rows)) for rows in (overall, *shown)]
    left_out = [f"{number(more, 'more domain')}, with fewer traces: see --json"] if more else []
    return "\n\n".join(["\n".join(_head(result)), *tables, *left_out])


def _head(result: Sweep) -> Iterator[str]:
    yield (
        f"{number(result.traces, 'trace')}, as a run would score them with the encoder "
        f"{result.encoder_id}"
    )
    yield "  change, rank corr, now reach it, no longer (reach it): beside the combination in force"


def _largest(domains: Sequence[list[Outcome]]) -> list[list[Outcome]]:
    """The domains with the most traces, in their order."""
    most = nlargest(_DOMAINS, range(len(domains)), key=lambda each: domains[each][0].traces)
    return [domains[each] for each in sorted(most)]


def _table(rows: Sequence[Outcome]) -> Iterator[str]:
    domain = rows[0].task_domain
    name = "all domains" if domain is None else shortened(domain, _DOMAIN)
    yield f"{name}, {number(rows[0].traces, 'trace')}"
    yield from aligned([_row(row) for row in rows])


def _row(row: Outcome) -> dict[str, str]:
    return {
        "cache size": f"{row.cache_size:,}",
        "ttl": row.ttl,
        "threshold": f"{row.threshold:g}",
        "novelty": f"{row.mean_novelty:.4f}",
        "score": f"{row.mean_score:.4f}",
        "change": f"{round(row.mean_change, 4) + 0.0:+.4f}",  # + 0.0: no minus before a zero
        "rank corr": "" if row.rank_correlation is None else f"{row.rank_correlation:.4f}",
        "worth sharing": f"{row.worth_sharing:,} ({row.worth_sharing / row.traces:.1%})",
        "now reach it": f"{row.now_reach:,}",
        "no longer": f"{row.no_longer_reach:,}",
        "": "in force" if row.in_force else "",
    }
