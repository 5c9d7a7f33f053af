"""The columns of results by name: what each is, and how people, programs and frames have it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from kp_batch.errors import Unread
from kp_batch.html import Displayed
from kp_batch.rendering import Part, Row, Table, TextSpan
from kp_batch.tables import frame
from kp_batch.text import age, bar_line, shortened

if TYPE_CHECKING:  # commands that show no frame start without
    import polars as pl

_CHANGE = "+z.4f"  # z: no minus before a zero
Form = str | Callable[[Any], str]


@dataclass(frozen=True)
class Column:
    """What all columns of one name are.

    Attributes:
        meaning: what its values are, with their unit.
        type: of its values in JSON.
        heading: above it in a table for people; empty: it is in none.
        form: of its values for people, as `format` takes it, or a function.
        null: what people read where there is no value.
    """

    meaning: str
    type: Any
    heading: str = ""
    form: Form = ""
    null: str = ""

    def cell(self, value: Any) -> str:
        """A value for people."""
        if value is None:
            return self.null
        return self.form(value) if callable(self.form) else format(value, self.form)


class Rows(Displayed, tuple[Mapping[str, Any], ...]):
    """A table of a result: rows of the same columns, each a value by the name of its column."""

    __slots__ = ()
    names: ClassVar[tuple[str, ...]]  # of the columns

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Take the columns of rows that may have more."""
        return cls({name: row[name] for name in cls.names} for row in rows)

    def to_polars(self) -> "pl.DataFrame":
        """The rows as a frame, which has its columns and their types without any row, too."""
        return frame({name: COLUMNS[name].type for name in self.names}, self)

    def _parts(self) -> Iterable[Part]:
        yield Table(cells(self, *(name for name in self.names if COLUMNS[name].heading)))


def cells(rows: Iterable[Mapping[str, Any]], *names: str) -> list[Row]:
    """Some columns of rows for people, by their headings."""
    columns = {name: COLUMNS[name] for name in names}
    return [
        {column.heading: column.cell(row[name]) for name, column in columns.items()} for row in rows
    ]


def _first(length: int) -> Form:
    """A text's first characters."""
    return lambda text: shortened(text, length)


def _made(age_s: float) -> str:
    return f"{age(abs(age_s))} {'later' if age_s < 0 else 'earlier'}"


def _count(meaning: str, heading: str = "") -> Column:
    return Column(meaning, int, heading, ",")


def _number(meaning: str, heading: str = "", form: Form = ".4f") -> Column:
    return Column(meaning, float, heading, form)


def _change(meaning: str, heading: str) -> Column:
    return Column(f"{meaning}; null: not known", float | None, heading, _CHANGE)


COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        # Whatever a row is about.
        "task_domain": Column(
            "the domain of the task; null: all domains", str | None, "domain", _first(30), "all"
        ),
        "trace_id": Column("the trace", str | None, "trace", _first(45)),
        "day": Column("the traces' day, in UTC", str, "day"),
        "traces": _count("how many there are", "traces"),
        "run_id": Column("the run; null: the next one", str | None, "run"),
        "line": _count("of the file, from 1", "line"),
        # One score, and what it is made of.
        "score": Column("0..1; null: none can be computed", float | None, "score", ".4f"),
        "composite": Column("the weighted sum of the dimensions, 0..1", float | None),
        **{
            name: Column(f"the {name.replace('_', ' ')} of the trace, 0..1", float | None)
            for name in ("complexity", "novelty", "tool_diversity", "outcome_confidence")
        },
        "profile": Column("whose weights it has", str | None, "profile", _first(40)),
        "max_similarity": Column(
            "the greatest cosine to what came before; null: nothing did",
            float | None,
            "similarity",
            ".4f",
        ),
        "nearest_trace_id": Column("which trace that is", str | None),
        "created_at": Column("when the trace was made, in UTC", str),
        "similarity": _number("the cosine of the two traces, -1..1", "similarity"),
        "age_s": _number("how much earlier the trace was made, in seconds", "made", _made),
        "is_same_text": Column(
            "whether both have the same text",
            bool,
            "",
            lambda is_same: "the same text" if is_same else "",
        ),
        "text": Column(
            "of what was embedded, from where the two begin to differ; null: it was not read",
            tuple[TextSpan, ...] | None,
        ),
        "own_text": Column("the same of the trace that came", tuple[TextSpan, ...] | None),
        "reasons": Column("why there is no score, as codes; or why a run had any work", list[str]),
        "message": Column("why there is no score, in words", str | None, "", _first(120)),
        # A score over the runs.
        "finished_at": Column("when the run ended, in UTC", str),
        "user": Column("who ran it", str),
        "note": Column("of who ran it", str | None),
        # What audits found.
        "name": Column("of the audit, or of the setting", str, "audit"),
        "state": Column("passes, allowed, warns or fails", str, "found"),
        "rows": _count("how many rows must not be", "rows"),
        "severity": Column("whether these fail the run, or warn", Literal["error", "warn"]),
        "allowed": Column("whether --allow-audit let the audit pass this once", bool),
        "first": Column("five of the rows at the most, as JSON", tuple[str, ...]),
        "digest": Column("of all these rows, in any order", str),
        # What the next run computes scores with.
        "value": Column("of the setting: any JSON", Any),
        "source": Column(
            "where the next run takes the setting from: the project's file, or the default where "
            "that leaves it out; without a project the warehouse keeps it",
            Literal["project", "default", "warehouse"],
        ),
        # How scores are distributed.
        "bins": Column(
            "how many scores are in each of ten bins of equal width", list[int], "0 to 1", bar_line
        ),
        "at_threshold": _count("how many of the traces reach the threshold", "at threshold"),
        "share": _number(
            "the share of the traces that reach the threshold, 0..1", "at threshold", ".1%"
        ),
        "mean": _number("of the scores, 0..1", "mean", ".3f"),
        **{
            f"p{share}": _number(f"quantile {share / 100:g} of the scores", f"p{share}", ".3f")
            for share in (5, 25, 50, 75, 95)
        },
        # What a run has to do.
        "replay": _count("how many traces get a new novelty", "replay"),
        "rescore": _count("how many traces get a new row", "rescore"),
        "reweight": _count("how many of these differ by their weights alone", "reweight"),
        # How scores differ from those computed from scratch.
        "column": Column("of `scores`, or `vector`: of the stored one's components", str, "column"),
        "max_difference": Column(
            "in the column's unit; 0 or 1 if it is no number; infinite: there is no vector; "
            "null: not compared",
            float | None,
            "greatest difference",
            ".3g",
            "not compared",
        ),
        "tolerance": _number("the greatest difference that is none yet", "tolerance", ".3g"),
        # How scores moved from one run to another.
        "before_score": _number("of the first run, 0..1", "from"),
        "after_score": _number("of the second run, 0..1", "to"),
        "change": Column(
            "a score less the one before; null: the first that is known",
            float | None,
            "change",
            _CHANGE,
        ),
        "from_facts": _change("the change by the traces' own facts, on the mean", "facts"),
        "from_novelty": _change("the change by their novelty", "novelty"),
        "from_weights": _change("the change by the weights", "weights"),
        "from_overrides": _change(
            "the change by the overrides; the four sum to all of it", "overrides"
        ),
        "single_thought": Column(
            "in which run the trace is a single thought; null: in neither",
            Literal["before", "after"] | None,
        ),
        "objective": Column(
            "the first 200 characters of the task, read again from the archive", str | None
        ),
        "unread": Column("what has become of the trace's file; null: it was read", Unread | None),
        "before_mean": _number("of the scores of the first run, 0..1"),
        "after_mean": _number("of the scores of the second run, 0..1"),
        "mean_change": _change("the second mean less the first", "mean change"),
        "mean_absolute_change": _number("how far a score rose or fell", "mean absolute"),
        "before_quantiles": Column("0.05, 0.25, 0.5, 0.75, 0.95 of the first scores", list[float]),
        "after_quantiles": Column("0.05, 0.25, 0.5, 0.75, 0.95 of the second scores", list[float]),
        "stability_index": Column(
            "of populations, over ten bins of equal width, 0: as they were; null below 200 traces",
            float | None,
            "stability index",
            ".4f",
        ),
        "rank_correlation": Column(
            "Spearman's, -1..1; null where all scores of a run, or of a cache, are one",
            float | None,
            "rank corr",
            ".4f",
        ),
        "rose": _count("how many scores rose, whatever the thresholds are", "rose"),
        "fell": _count("how many scores fell", "fell"),
        "stayed": _count("how many scores stayed", "stayed"),
        "now_reach": _count(
            "how many traces reach the threshold that did not in the first run, or do not with the "
            "current settings",
            "now reach",
        ),
        "now_reach_by_threshold": _count(
            "of these, how many would not, had the threshold stayed", "of these by its move"
        ),
        "no_longer_reach": _count(
            "how many traces reach the threshold in the first run, or with the current settings, "
            "and not here",
            "no longer",
        ),
        "no_longer_reach_by_threshold": _count(
            "of these, how many would reach it still, had the threshold stayed",
            "of those by its move",
        ),
        "single_thoughts": _count("how many traces are a single thought in either run"),
        # What other settings would make of the scores.
        "cache_by": Column(
            "by what caches are kept: none, agent_id, agent_id+host", str, "cache by"
        ),
        "cache_size": _count("how many vectors the cache holds", "size"),
        "ttl": Column("how long it holds one: none, 90m, 12h, 7d", str, "ttl"),
        "threshold": _number("the threshold, 0..1", "threshold", ".12g"),
        "is_current": Column(
            "whether these are the warehouse's own settings",
            bool,
            "",
            lambda is_current: "current" if is_current else "",
        ),
        "mean_novelty": _number("of the traces, 0..1", "novelty"),
        "mean_score": _number("of the traces, 0..1", "score"),
        "recorded": _count("how many traces have a recorded score that shows their novelty"),
        "recorded_error": Column(
            "their scores' mean absolute difference from the recorded ones; null: there is none",
            float | None,
        ),
        "recorded_share": Column(
            "the share of these that get the recorded score within 1e-6, 0..1; null: there is none",
            float | None,
            "recorded",
            ".1%",
        ),
    }
)
