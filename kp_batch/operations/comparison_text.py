"""Formats a comparison for a terminal of 120 columns."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from kp_batch.errors import UNREAD
from kp_batch.runs.reasons import Reason
from kp_batch.text import aligned, number, one_line, printable, shortened

if TYPE_CHECKING:
    from kp_batch.operations.compare import Comparison, DomainMoves, Mover

_DOMAINS = 50  # shown at the most
_DOMAIN, _IDENTITY, _LINE = 17, 45, 120  # characters: the row of a mover fits into its line


def comparison_text(result: "Comparison", *, shows_text: bool = True) -> str:
    """Format a comparison: what differs, how the scores moved and by what, and the threshold.

    Args:
        result: the comparison.
        shows_text: whether to show the objectives of the traces that moved most.
    """
    lines = [
        f"from {result.first} to {result.second}",
        (
            f"  {number(result.in_both, 'trace')} in both, {result.only_in_first:,} in the first "
            f"alone, {result.only_in_second:,} in the second alone"
        ),
        *("", *_differing(result.changes)),
    ]
    if result.domains:
        shown = _largest(result.domains)
        more = len(result.domains) - len(shown)
        lines += ["", "how the scores moved:", *aligned([_scores(row) for row in shown])]
        lines += [f"  {number(more, 'more domain')}, with fewer traces: see --json"] if more else []
        lines += ["", *_crossings(result, shown)]
        lines += ["", *_movements(result, shown, shows_text=shows_text)]
    return "\n".join(lines)


def _differing(changes: Sequence[Reason]) -> Iterator[str]:
    is_of_files = [each.code.startswith("files_") for each in changes]
    if not is_of_files:
        yield "nothing differs between the runs"
    elif all(is_of_files):
        yield "nothing differs but the archive:"
    elif any(is_of_files):
        yield "what differs:"
    else:
        yield "what differs, over the same archive:"
    yield from (f"  {printable(each.words)}" for each in changes)


def _largest(domains: Sequence["DomainMoves"]) -> list["DomainMoves"]:
    """The row of all domains, and those with the most traces, in their order."""
    most = nlargest(_DOMAINS, range(1, len(domains)), key=lambda each: domains[each].traces)
    return [domains[each] for each in sorted([0, *most])]


def _crossings(result: "Comparison", shown: Iterable["DomainMoves"]) -> Iterator[str]:
    """Which traces came to reach the threshold, and which no longer do."""
    old, new = result.first_threshold, result.second_threshold
    threshold = f"{old}" if old == new else f"{old} \N{RIGHTWARDS ARROW} {new}"
    crossed = [row for row in shown if row.now_reach or row.no_longer_reach]
    if crossed:
        yield f"which traces crossed the threshold {threshold}:"
        yield from aligned([_crossing(row, has_moved=old != new) for row in crossed])
    else:
        yield f"no trace crossed the threshold {threshold}"


def _crossing(row: "DomainMoves", *, has_moved: bool) -> dict[str, str]:
    now, no_longer = row.now_reach_by_threshold, row.no_longer_reach_by_threshold
    return {
        **_domain(row),
        "now reach it": f"{row.now_reach:,}",
        **({"of these by its move": f"{now:,}"} if has_moved else {}),
        "no longer reach it": f"{row.no_longer_reach:,}",
        **({"of those by its move": f"{no_longer:,}"} if has_moved else {}),
    }


def _movements(
    result: "Comparison", shown: Iterable["DomainMoves"], *, shows_text: bool
) -> Iterator[str]:
    """What moved the scores, and the traces that moved most, with their objectives or without."""
    if not result.movers:
        yield "no score moved"
        return
    yield "what moved them, on the mean:"
    yield from aligned([{**_domain(row), **_parts(row)} for row in shown])
    yield from ("", "which moved most:")
    head, *rows = aligned([_mover(row) for row in result.movers])
    yield head
    for line, mover in zip(rows, result.movers, strict=True):
        yield line
        if shows_text:
            yield f"    {shortened(_objective(mover), _LINE - 4)}"


def _scores(row: "DomainMoves") -> dict[str, str]:
    return {
        **_domain(row),
        "traces": f"{row.traces:,}",
        "rose": f"{row.rose:,}",
        "fell": f"{row.fell:,}",
        "stayed": f"{row.stayed:,}",
        "mean change": _signed(row.second_mean - row.first_mean),
        "mean absolute": f"{row.mean_absolute_change:.4f}",
        "stability index": f"{row.stability_index:.4f}",
        "rank corr": "" if row.rank_correlation is None else f"{row.rank_correlation:.4f}",
    }


def _mover(row: "Mover") -> dict[str, str]:
    return {
        "trace": shortened(row.trace_id, _IDENTITY),
        "domain": shortened(row.task_domain, _DOMAIN),
        "from": f"{row.first_score:.4f}",
        "to": f"{row.second_score:.4f}",
        **_parts(row),
    }


def _objective(row: "Mover") -> str:
    single = f"(a single thought in the {row.single_thought} run) " if row.single_thought else ""
    if row.objective is None:
        return f"{single}({UNREAD[row.unread or 'unreadable']})"
    return single + one_line(row.objective)


def _domain(row: "DomainMoves") -> dict[str, str]:
    return {"domain": "all" if row.task_domain is None else shortened(row.task_domain, _DOMAIN)}


def _parts(row: "DomainMoves | Mover") -> dict[str, str]:
    return {
        "facts": _signed(row.from_facts),
        "novelty": _signed(row.from_novelty),
        "weights": _signed(row.from_weights),
        "overrides": _signed(row.from_overrides),
    }


def _signed(value: float) -> str:
    return f"{value:+z.4f}"  # z: no minus before a zero
