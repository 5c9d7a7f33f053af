"""Splits the change of the mean score between two runs: what came, what went, what has moved."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from kp_batch.html import Displayed
from kp_batch.parts import Head, Part, Row, Table
from kp_batch.tables import frame_of_rows
from kp_batch.text import count_of, shortened

if TYPE_CHECKING:
    import polars as pl

_DOMAINS = 50  # shown at the most
_DOMAIN = 17  # characters


@dataclass(frozen=True)
class DomainTurnover:
    """The traces of one domain that came and went, and its parts of the change of the mean."""

    task_domain: str | None  # of the second run, if that has the trace; null: all domains
    came: int  # traces that the second run alone has
    went: int  # traces that the first run alone has
    came_mean: float | None  # of their scores, 0..1; null: none came
    went_mean: float | None  # likewise
    from_came: float | None  # change of the mean; the three sum to all of it over all domains
    from_went: float | None  # null where either run has no trace
    from_moved: float | None  # by the traces in both


@dataclass(frozen=True)
class Turnover(Displayed):
    """The mean score of all traces of each run, and by what it changed."""

    first_mean: float | None  # 0..1; null: the run has no trace
    second_mean: float | None
    domains: tuple[DomainTurnover, ...]  # all domains first, then each; empty: there is no trace

    def to_polars(self) -> "pl.DataFrame":
        """A row for each of `domains`, with its fields."""
        return frame_of_rows(DomainTurnover, self.domains)

    def _parts(self) -> Iterator[Part]:
        return turnover_parts(self, rest="to_polars()")


class _Sums(NamedTuple):
    """The numbers of traces of a domain, or of all, and the sums of their scores."""

    came: Fraction
    went: Fraction
    both: Fraction
    came_sum: Fraction
    went_sum: Fraction
    first_sum: Fraction  # of the traces in both, in the first run
    second_sum: Fraction


class _Means(NamedTuple):
    """The mean scores between which one thing after the other changes the mean of all traces."""

    first: Fraction | None  # of all traces
    first_both: Fraction | None  # of those in both
    second_both: Fraction | None
    second: Fraction | None

    @classmethod
    def of(cls, total: _Sums) -> "_Means":
        first = _mean(total.went_sum + total.first_sum, total.went + total.both)
        second = _mean(total.came_sum + total.second_sum, total.came + total.both)
        if not total.both and first is not None and second is not None:
            between = (first + second) / 2
            return cls(first, between, between, second)
        both = _mean(total.first_sum, total.both), _mean(total.second_sum, total.both)
        return cls(first, *both, second)


def turnover(rows: Iterable[Sequence[Any]]) -> Turnover:
    """Split the change of the mean from one run to another, exactly.

    One thing after the other: the traces that went leave the mean of those in both, these move, and
    then others come. With n traces in a run and k in both::

        from_went   of each trace that went    (mean of those in both, first run - its score) / n
        from_moved  of each trace in both      (its second score - its first score) / k
        from_came   of each trace that came    (its score - mean of those in both, second run) / n

    The parts of all traces sum to the change. From the second run to the first each is the other
    way round, with what came in the place of what went. Where no trace is in both, the mean of the
    two means stands for theirs.

    Args:
        rows: of turnover.sql.
    """
    sums = {str(domain): _Sums(*map(Fraction, values)) for domain, *values in rows}
    if not sums:
        return Turnover(None, None, ())
    total = _Sums(*(sum(column, Fraction()) for column in zip(*sums.values(), strict=True)))
    means = _Means.of(total)
    domains = [_of_domain(domain, own, total, means) for domain, own in sums.items()]
    return Turnover(
        first_mean=_number(means.first),
        second_mean=_number(means.second),
        domains=(_of_domain(None, total, total, means), *domains),
    )


def _of_domain(domain: str | None, own: _Sums, total: _Sums, means: _Means) -> DomainTurnover:
    came = went = moved = None
    if means.first_both is not None and means.second_both is not None:
        came = (own.came_sum - own.came * means.second_both) / (total.came + total.both)
        went = (own.went * means.first_both - own.went_sum) / (total.went + total.both)
        moved = (own.second_sum - own.first_sum) / max(total.both, 1)
    return DomainTurnover(
        task_domain=domain,
        came=int(own.came),
        went=int(own.went),
        came_mean=_number(_mean(own.came_sum, own.came)),
        went_mean=_number(_mean(own.went_sum, own.went)),
        from_came=_number(came),
        from_went=_number(went),
        from_moved=_number(moved),
    )


def _mean(total: Fraction, count: Fraction) -> Fraction | None:
    return total / count if count else None


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def turnover_parts(result: Turnover, *, rest: str) -> Iterator[Part]:
    """By what the mean changed, for people; nothing where no trace came or went.

    Args:
        result: the turnover.
        rest: what has the domains that are not shown.
    """
    if not (result.domains and (result.domains[0].came or result.domains[0].went)):
        return
    yield ""
    if result.first_mean is None or result.second_mean is None:
        yield Head("which traces came and went:")
    else:
        means = f"{result.first_mean:.4f} \N{RIGHTWARDS ARROW} {result.second_mean:.4f}"
        yield Head(f"what changed the mean score of all traces, {means}:")
    largest = nlargest(
        _DOMAINS,
        range(1, len(result.domains)),
        key=lambda place: result.domains[place].came + result.domains[place].went,
    )
    yield Table([_cells(result.domains[place]) for place in sorted([0, *largest])], marked=[0])
    if more := len(result.domains) - 1 - len(largest):
        yield f"  {count_of(more, 'more domain')}, of which fewer came and went: see {rest}"


def _cells(row: DomainTurnover) -> Row:
    parts = (row.from_came, row.from_went, row.from_moved)
    names = ("from what came", "from what went", "from what moved")
    return {
        "domain": "all" if row.task_domain is None else shortened(row.task_domain, _DOMAIN),
        "came": f"{row.came:,}",
        "their mean": "" if row.came_mean is None else f"{row.came_mean:.4f}",
        "went": f"{row.went:,}",
        "mean of those": "" if row.went_mean is None else f"{row.went_mean:.4f}",
        **{
            name: "" if part is None else f"{part:+z.4f}"
            for name, part in zip(names, parts, strict=True)
        },
    }
