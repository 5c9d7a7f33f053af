"""The columns of results by name: their meaning, and their form in text, JSON and frames."""

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
    """What all columns of one name have in common.

    Attributes:
        meaning: what the values are, with their unit.
        type: the type of the values in JSON.
        heading: the heading in tables of text; empty if these leave the column out.
        form: how text shows a value: a specification for `format`, or a function.
        null: what text shows if there is no value.
    """

    meaning: str
    type: Any
    heading: str = ""
    form: Form = ""
    null: str = ""

    def cell(self, value: Any) -> str:
        """Return a value as text."""
        if value is None:
            return self.null
        return self.form(value) if callable(self.form) else format(value, self.form)


class Rows(Displayed, tuple[Mapping[str, Any], ...]):
    """A table of a result: each row is a mapping of the same columns' names to values."""

    __slots__ = ()
    names: ClassVar[tuple[str, ...]]  # the columns

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Make a table of rows, which may have other columns as well."""
        return cls({name: row[name] for name in cls.names} for row in rows)

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a frame, which has all columns and types even without rows."""
        return frame({name: COLUMNS[name].type for name in self.names}, self)

    def _parts(self) -> Iterable[Part]:
        yield Table(cells(self, *(name for name in self.names if COLUMNS[name].heading)))


def cells(rows: Iterable[Mapping[str, Any]], *names: str) -> list[Row]:
    """Return some columns of rows as text, by their headings."""
    columns = {name: COLUMNS[name] for name in names}
    return [
        {column.heading: column.cell(row[name]) for name, column in columns.items()} for row in rows
    ]


def _first(length: int) -> Form:
    """Show a text's first characters."""
    return lambda text: shortened(text, length)


def _made(age_s: float) -> str:
    return f"{age(abs(age_s))} {'later' if age_s < 0 else 'earlier'}"


def _count(meaning: str, heading: str = "") -> Column:
    return Column(meaning, int, heading, ",")


def _number(meaning: str, heading: str = "", form: Form = ".4f") -> Column:
    return Column(meaning, float, heading, form)


def _change(meaning: str, heading: str) -> Column:
    return Column(f"{meaning}; null: unknown", float | None, heading, _CHANGE)


COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        # What a row is about.
        "task_domain": Column(
            "the domain of the task; null: all domains", str | None, "domain", _first(30), "all"
        ),
        "trace_id": Column("the id of the trace", str | None, "trace", _first(45)),
        "day": Column("the day, in UTC", str, "day"),
        "traces": _count("the number of traces", "traces"),
        "run_id": Column("the run; null: the next one", str | None, "run"),
        "line": _count("the line of the file, from 1", "line"),
        # One score, and what it is made of.
        "score": Column(
            "the score, 0..1; null: none can be computed", float | None, "score", ".4f"
        ),
        "composite": Column("the weighted sum of the dimensions, 0..1", float | None),
        **{
            name: Column(f"the {name.replace('_', ' ')} of the trace, 0..1", float | None)
            for name in ("complexity", "novelty", "tool_diversity", "outcome_confidence")
        },
        "profile": Column("the profile whose weights it has", str | None, "profile", _first(40)),
        "max_similarity": Column(
            "the greatest cosine to a trace in its cache; null: the cache was empty",
            float | None,
            "similarity",
            ".4f",
        ),
        "nearest_trace_id": Column("the id of that trace in the cache", str | None),
        "created_at": Column("when the trace was made, in UTC", str),
        "similarity": _number("the cosine of the two traces, -1..1", "similarity"),
        "age_s": _number("how many seconds earlier the trace was made", "made", _made),
        "is_same_text": Column(
            "whether both traces have the same text",
            bool,
            "",
            lambda is_same: "the same text" if is_same else "",
        ),
        "text": Column(
            "its text, from the first difference; null: its file was not read",
            tuple[TextSpan, ...] | None,
        ),
        "own_text": Column(
            "the same part of the text of the new trace", tuple[TextSpan, ...] | None
        ),
        "reasons": Column("codes of why there is no score, or why a run had work", list[str]),
        "message": Column("why there is no score, in words", str | None, "", _first(120)),
        # A score from run to run.
        "finished_at": Column("when the run ended, in UTC", str),
        "user": Column("who ran it", str),
        "note": Column("the note given with the run", str | None),
        # What audits found.
        "name": Column("the name of the audit or setting", str, "audit"),
        "state": Column("passes, allowed, warns or fails", str, "found"),
        "rows": _count("the number of rows found", "rows"),
        "severity": Column("what the audit does if it finds rows", Literal["error", "warn"]),
        "allowed": Column("whether --allow-audit let it pass", bool),
        "first": Column("at most five of the rows found, as JSON", tuple[str, ...]),
        "digest": Column("a digest of the rows found, in any order", str),
        # What the next run computes scores with.
        "value": Column("the value of the setting: any JSON", Any),
        "source": Column(
            "where the value comes from: the project's file, the default, or the warehouse",
            Literal["project", "default", "warehouse"],
        ),
        # How scores are distributed.
        "bins": Column(
            "how many scores are in each of ten bins of equal width", list[int], "0 to 1", bar_line
        ),
        "at_threshold": _count("how many traces reach the threshold", "at threshold"),
        "share": _number(
            "the share of the traces that reach the threshold, 0..1", "at threshold", ".1%"
        ),
        "mean": _number("the mean of the scores, 0..1", "mean", ".3f"),
        **{
            f"p{share}": _number(f"quantile {share / 100:g} of the scores", f"p{share}", ".3f")
            for share in (5, 25, 50, 75, 95)
        },
        # The work of a run.
        "replay": _count("how many traces get a new novelty", "replay"),
        "rescore": _count("how many traces get a new row", "rescore"),
        "reweight": _count("how many of these differ only in their weights", "reweight"),
        # How scores differ from those computed from scratch.
        "column": Column(
            "a column of `scores`, or `vector`, the components of the stored vector",
            str,
            "column",
        ),
        "max_difference": Column(
            "the greatest difference, in the column's unit; 0 or 1 if it has none; infinite: the "
            "vector is missing; null: not compared",
            float | None,
            "greatest difference",
            ".3g",
            "not compared",
        ),
        "tolerance": _number("the greatest difference that does not count", "tolerance", ".3g"),
        # How scores changed from one run to another.
        "before_score": _number("the score in the run before or after, 0..1", "from"),
        "after_score": _number("the score in the run before or after, 0..1", "to"),
        "change": Column(
            "the score minus the one before; null: there is none before",
            float | None,
            "change",
            _CHANGE,
        ),
        "earlier_score": Column(
            "the score in the earlier export, 0..1; null: it has none", float | None, "from", ".4f"
        ),
        "change_of_export": Column("whether the trace entered or left the export", str, "change"),
        "why": Column("why it entered or left", str, "why"),
        "from_facts": _change("a part of the change, or its mean; the four sum to it", "facts"),
        "from_novelty": _change("a part of the change, or its mean; the four sum to it", "novelty"),
        "from_weights": _change("a part of the change, or its mean; the four sum to it", "weights"),
        "from_overrides": _change(
            "a part of the change, or its mean; the four sum to it", "overrides"
        ),
        "single_thought": Column(
            "in which run the trace is a single thought; null: in neither",
            Literal["before", "after"] | None,
        ),
        "objective": Column("the first 200 characters of the task, from its file", str | None),
        "unread": Column("why its file was not read; null: it was", Unread | None),
        "before_mean": _number("the mean score in the run before or after, 0..1"),
        "after_mean": _number("the mean score in the run before or after, 0..1"),
        "mean_change": _change("the mean after minus the mean before", "mean change"),
        "mean_absolute_change": _number("the mean absolute change of a score", "mean absolute"),
        "before_quantiles": Column(
            "the quantiles 0.05, 0.25, 0.5, 0.75 and 0.95 of these scores", list[float]
        ),
        "after_quantiles": Column(
            "the quantiles 0.05, 0.25, 0.5, 0.75 and 0.95 of these scores", list[float]
        ),
        "stability_index": Column(
            "the population stability index; 0: no change; null: fewer than 200 traces",
            float | None,
            "stability index",
            ".4f",
        ),
        "rank_correlation": Column(
            "Spearman's correlation, -1..1; null: all scores of one side are equal",
            float | None,
            "rank corr",
            ".4f",
        ),
        "rose": _count("how many scores rose, fell or stayed", "rose"),
        "fell": _count("how many scores rose, fell or stayed", "fell"),
        "stayed": _count("how many scores rose, fell or stayed", "stayed"),
        "now_reach": _count(
            "how many traces newly reach the threshold; sweep: compared with now",
            "now reach",
        ),
        "now_reach_by_threshold": _count(
            "how many of these would miss the old threshold", "of these by its move"
        ),
        "no_longer_reach": _count(
            "how many traces no longer reach the threshold; sweep: compared with now",
            "no longer",
        ),
        "no_longer_reach_by_threshold": _count(
            "how many of these would reach the old threshold",
            "of those by its move",
        ),
        "single_thoughts": _count("how many traces are a single thought in either run"),
        # Weights that are fitted to labels.
        "code": Column("a code of why these labels are not used", str),
        "because": Column("the same in words", str, "not used because"),
        "labels": _count("the number of labels", "labels"),
        "examples": Column("at most three of them, with their rows", list[str]),
        "tasks": _count("the number of tasks of labelled traces", "tasks"),
        "pairs": _count("how many pairs of labels are fitted", "pairs"),
        "widest": Column(
            "the widest 95% interval of a fitted weight; null: none is known",
            float | None,
            "widest interval",
            ".3f",
        ),
        "labels_needed": Column(
            "about how many labels make all intervals narrow enough; null: unknown",
            int | None,
            "labels needed",
            ",",
        ),
        "adjusted_p_value": Column(
            "the p-value of a better order of held-out labels, times the number of fits; null: no "
            "fit, or all domains",
            float | None,
            "adjusted p",
            ".2g",
        ),
        "decision": Column(
            "what the evidence suffices for; null: all domains share no profile",
            Literal["change", "keep", "too few labels", "no signal", "leak"] | None,
            "decision",
        ),
        "dimension": Column("the dimension", str, "dimension"),
        "published_weight": Column(
            "its published weight, 0..1; null: domains have different ones",
            float | None,
            "published",
            ".3f",
        ),
        "fitted_weight": _number("its fitted weight, 0..1", "fitted", ".3f"),
        "problem": Column(
            "why labels cannot determine the weight: the dimension is constant, or collinear with "
            "others; null: they can",
            Literal["constant", "collinear"] | None,
            "problem",
        ),
        "alone": Column(
            "how well the column alone orders the labels: AUC, or Spearman's correlation; null: it "
            "is constant",
            float | None,
            "order alone",
            ".3f",
        ),
        "tested_on": Column(
            "the labels that are ordered: those of the fit, or others",
            Literal[
                "the same labels", "held-out folds", "held out, same overrides", "later labels"
            ],
            "tested on",
        ),
        "published_order": Column(
            "how well published weights order the labels: AUC, or Spearman's correlation; null: "
            "all scores are equal",
            float | None,
            "published",
            ".3f",
        ),
        "fitted_order": Column(
            "how well fitted weights order the labels; null: all scores are equal",
            float | None,
            "fitted",
            ".3f",
        ),
        "difference": Column(
            "the order of fitted weights minus that of published ones; null: one is unknown",
            float | None,
            "difference",
            "+.3f",
        ),
        **{
            f"{name}_{end}": Column(
                f"the {end} end of the 95% interval of {name}; null: unknown", float | None
            )
            for name in ("fitted_weight", "alone", "published_order", "fitted_order", "difference")
            for end in ("low", "high")
        },
        "p_value": Column("the p-value of no difference, two-sided", float, "p", ".2g"),
        "weights": Column("the weights of the scores", Literal["published", "fitted"], "weights"),
        "best_threshold": _number("the threshold with the best F1", "threshold", ".2f"),
        "precision": Column(
            "the share of labels yes at or above it, held out, 0..1; null: there are none",
            float | None,
            "precision",
            ".1%",
        ),
        "recall": Column(
            "the share of labels yes that are at or above it, held out, 0..1; null: there are none",
            float | None,
            "recall",
            ".1%",
        ),
        "rank_low": _number("the low end of the rank in the domain, 0..1", "rank from", ".2f"),
        "rank_high": _number("the high end of the rank in the domain, 0..1", "to", ".2f"),
        # The scores under other settings.
        "cache_by": Column("a setting of the combination", str, "cache by"),
        "cache_size": _count("a setting of the combination", "size"),
        "ttl": Column("a setting of the combination", str, "ttl"),
        "threshold": _number("a setting of the combination", "threshold", ".12g"),
        "is_current": Column(
            "whether these are the current settings",
            bool,
            "",
            lambda is_current: "current" if is_current else "",
        ),
        "mean_novelty": _number("a mean, 0..1", "novelty"),
        "mean_score": _number("a mean, 0..1", "score"),
        "recorded": _count("how many traces have a recorded score that depends on novelty"),
        "recorded_error": Column(
            "the mean absolute difference from these scores; null: there are none",
            float | None,
        ),
        "recorded_share": Column(
            "the share of these scores reproduced within 1e-6, 0..1; null: there are none",
            float | None,
            "recorded",
            ".1%",
        ),
    }
)
