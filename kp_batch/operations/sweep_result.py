"""The result of a sweep: the scores of each domain with each combination, and how it is shown.

A column of a sweep is a field of `Outcome`, which sweep.sql computes: its JSON and its place in the
tables of a terminal follow from the field.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, get_type_hints

from kp_batch.html import Displayed
from kp_batch.parts import Head, Part, Row, Table, as_text
from kp_batch.tables import frame_of_rows
from kp_batch.text import count_of, shortened

if TYPE_CHECKING:
    import polars as pl

_DOMAINS = 10  # shown at the most, each a table
_DOMAIN = 60  # characters
# Scores that differ by no more are taken for the same one, however it was written.
SAME_SCORE = 1e-6


@dataclass(frozen=True)
class Shown:
    """How a field is shown in the tables where it has a heading.

    Attributes:
        form: of its value, as `format` takes it; empty: as it is.
        scores: its heading in the tables of scores; empty: it is in none.
        recorded: its heading in the table of recorded scores, likewise.
        text: the outcome in its place, as a template of `{0}`; empty: the value in its form.
    """

    form: str = ""
    scores: str = ""
    recorded: str = ""
    text: str = ""


@dataclass(frozen=True)
class Outcome:
    """What the scores of one domain are with one combination of a cache and a threshold.

    Beside each stands the combination in force, the warehouse's own.
    """

    task_domain: str | None  # null: all domains
    cache_by: Annotated[str, Shown("", "cache by", "cache by")]  # none, agent_id, agent_id+host
    cache_size: Annotated[int, Shown(",", "size", "size")]  # vectors
    ttl: Annotated[str, Shown("", "ttl", "ttl")]  # none, 90m, 12h, 7d
    threshold: Annotated[float, Shown(".12g", "threshold")]  # 0..1
    in_force: bool  # whether this is the combination in force
    traces: int
    mean_novelty: Annotated[float, Shown(".4f", "novelty")]  # 0..1
    mean_score: Annotated[float, Shown(".4f", "score")]  # 0..1
    # Of a score, from the cache in force to this one; z: no minus before a zero.
    mean_change: Annotated[float, Shown("+z.4f", "change")]
    # Spearman's; null where all scores of one cache are one.
    rank_correlation: Annotated[float | None, Shown(".4f", "rank corr")]
    # Traces whose recorded score shows their novelty, but for `implied_restarts`.
    recorded: Annotated[int, Shown(",", "", "traces")]
    # Mean absolute difference of their scores, after these restarts.
    recorded_error: Annotated[float | None, Shown(".6f", "", "error")]
    # 0..1: how many of them get the recorded score within 1e-6; no implied restart does.
    recorded_share: Annotated[float | None, Shown(".1%", "", "same score")]
    # Traces that an empty cache explains, and not this one.
    implied_restarts: Annotated[int, Shown(",", "", "restarts")]
    # Traces that reach the threshold.
    worth_sharing: Annotated[
        int, Shown(",", "worth sharing", text="{0.worth_sharing:,} ({0.share:.1%})")
    ]
    # Of these: below the threshold in force, with the cache in force.
    now_reach: Annotated[int, Shown(",", "now reach")]
    # Traces that reach the threshold in force, and not this one.
    no_longer_reach: Annotated[int, Shown(",", "no longer")]

    @property
    def cache(self) -> tuple[str, int, str]:
        """The settings that novelty depends on: cache_by, cache_size and ttl."""
        return self.cache_by, self.cache_size, self.ttl

    @property
    def share(self) -> float:
        """0..1: which share of the traces reaches the threshold."""
        return self.worth_sharing / self.traces

    def cell(self, name: str) -> str:
        """The text of one of `COLUMNS`; empty where its value is null."""
        text = COLUMNS[name].text or f"{{0.{name}:{COLUMNS[name].form}}}"
        return "" if getattr(self, name) is None else text.format(self)


COLUMNS = {
    name: shown
    for name, hint in get_type_hints(Outcome, include_extras=True).items()
    for shown in getattr(hint, "__metadata__", ())
}


@dataclass(frozen=True)
class Sweep(Displayed):
    """What a run would make of the scores, with each of some combinations."""

    encoder_id: str  # in force, as are the weights
    traces: int
    # All domains first, then each; by cache_by, cache size, ttl and threshold.
    outcomes: tuple[Outcome, ...]

    def to_polars(self) -> "pl.DataFrame":
        """A row for each of `outcomes`, with its fields."""
        return frame_of_rows(Outcome, self.outcomes)

    def _parts(self) -> Iterator[Part]:
        return sweep_parts(self)

    @property
    def caches(self) -> tuple[Outcome, ...]:
        """An outcome over all domains for each cache, of the one in force that in force."""
        overall = [outcome for outcome in self.outcomes if outcome.task_domain is None]
        in_force = {outcome.cache: outcome for outcome in overall if outcome.in_force}
        return tuple(({outcome.cache: outcome for outcome in overall} | in_force).values())

    @property
    def better_fit(self) -> str:
        """Which cache fits the recorded scores at least twice as well as the one in force.

        The best one gives most of them again, to a percent, and of several is nearest to the
        others. In words; empty: none does. What differs by less may do so by chance.
        """
        rows = [row for row in self.caches if row.recorded]
        best = max(rows, key=_share_and_error, default=None)
        now = next((row for row in self.caches if row.in_force), None)
        if best is None or now is None or not _is_twice_as_good(best, now):
            return ""
        return (
            f"--cache-by {best.cache_by} --cache-size {best.cache_size} --ttl {best.ttl} fits "
            f"better: {_fit_text(best)}; in force {_fit_text(now)}"
        )


def _share_and_error(row: Outcome) -> tuple[float, float]:
    return round(row.recorded_share or 0.0, 2), -(row.recorded_error or 0.0)


def _is_twice_as_good(best: Outcome, now: Outcome) -> bool:
    """Whether half as many differ, or they differ by half as much where that is known."""
    other, other_now = (1 - (row.recorded_share or 0.0) for row in (best, now))
    if now.recorded_error is None:  # restarts explain all of them
        return 2 * other < other_now
    error = best.recorded_error or 0.0
    return 2 * other < other_now or max(2 * error, SAME_SCORE) < now.recorded_error


def _fit_text(row: Outcome) -> str:
    off = "" if row.recorded_error is None else f", {row.recorded_error:.2g} off"
    return f"{row.recorded_share:.1%} the same{off}"


def sweep_text(result: Sweep) -> str:
    """Format a sweep for a terminal of 120 columns, which long names of `--cache-by` exceed."""
    return as_text(sweep_parts(result, rest="--json"))


def sweep_parts(result: Sweep, *, rest: str = "to_polars()") -> Iterator[Part]:
    """A sweep for people; `rest` is what has the domains that are not shown.

    Tables of all domains and of each of the largest, and how caches fit the recorded scores.
    """
    overall, *domains = (
        list(rows) for _, rows in groupby(result.outcomes, lambda row: row.task_domain)
    )
    shown = _largest(domains)
    yield Head(
        f"{count_of(result.traces, 'trace')}, as a run would score them with the encoder "
        f"{result.encoder_id}"
    )
    yield "  change, rank corr, now reach, no longer (reach it): beside the combination in force"
    if any(row.rank_correlation is None for rows in (overall, *shown) for row in rows):
        yield "  no rank corr: all scores of one cache are equal, and have no order"
    for rows in (overall, *shown):
        domain = rows[0].task_domain
        name = "all domains" if domain is None else shortened(domain, _DOMAIN)
        yield from ("", Head(f"{name}, {count_of(rows[0].traces, 'trace')}"))
        yield _table(rows, "scores")
    if more := len(domains) - len(shown):
        yield from ("", f"{count_of(more, 'more domain')}, with fewer traces: see {rest}")
    yield from _recorded(result)


def _largest(domains: Sequence[list[Outcome]]) -> list[list[Outcome]]:
    """The domains with the most traces, in their order."""
    largest = nlargest(_DOMAINS, range(len(domains)), key=lambda number: domains[number][0].traces)
    return [domains[number] for number in sorted(largest)]


def _table(rows: Sequence[Outcome], kind: str) -> Table:
    in_force = [place for place, row in enumerate(rows) if row.in_force]
    return Table([_cells(row, kind) for row in rows], marked=in_force)


def _cells(row: Outcome, table: str) -> Row:
    """A row of one of the two kinds of tables, by its headings; see `Shown`."""
    headings = {name: getattr(shown, table) for name, shown in COLUMNS.items()}
    cells = {heading: row.cell(name) for name, heading in headings.items() if heading}
    return {**cells, "": "in force" if row.in_force else ""}


def _recorded(result: Sweep) -> Iterator[Part]:
    if not (rows := [row for row in result.caches if row.recorded]):
        return
    yield ""
    yield Head(
        "recorded scores, with a restart of its engine wherever an empty cache alone explains one"
    )
    yield _table(rows, "recorded")
    if result.better_fit:
        yield f"  {result.better_fit}"
