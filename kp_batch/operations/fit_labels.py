"""Labels of traces: read from a file or a frame, and what keeps one from being used."""

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

import polars as pl

from kp_batch.errors import KpBatchError
from kp_batch.table_files import read_table, text_columns
from kp_batch.text import one_line, printable, shortened, ten_of

_YES, _NO = ("yes", "true"), ("no", "false")
_NEEDED, _WEIGHT = ("trace_id", "label"), "weight"
_WEIGHTS = 1e-6, 1e6
_EXAMPLES, _LENGTH = 3, 40  # of each reason, and characters of one
_SOURCES = "give a file, a frame of polars or pandas, a table of Arrow, or a list of mappings"
# Why a label is not used, in the order in which this is checked.
REASONS = {
    "no_trace_id": "it has no trace_id",
    "no_label": "it is empty",
    "bad_label": "it is neither yes nor no, nor a finite number",
    "bad_weight": "its weight is not a number from 0.000001 to 1,000,000",
    "unknown_trace": "no trace with a score has this id",
    "repeated": "the trace has the same label in an earlier row",
    "contradicting": "the trace has other labels in other rows",
}


def read_labels(source: Any) -> pl.DataFrame:
    """Read labels.

    Args:
        source: the path of a file whose name ends with .csv, .parquet, .jsonl or .ndjson; a frame;
            or mappings. It has `trace_id`, `label` and perhaps `weight`.

    Returns:
        `row` (from 1), `trace_id`, the numbers `label` and `weight` (1 if it is left out), `said`
        (the label as text) and `reason` (why it cannot be used; null: it can).

    Raises:
        KpBatchError: it cannot be read, lacks a column, or mixes yes and no with other numbers.
    """
    is_file = isinstance(source, (str, PathLike))
    name = printable(str(source)) if is_file else "labels"
    try:
        table = read_table(Path(source)) if is_file else _frame(source)
        return _labels_of(table, name)
    except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
        reason = shortened(one_line(str(error)), 200)
        raise KpBatchError(
            f"{name} cannot be used: {reason}; give trace_id as text, label and weight as numbers"
        ) from error


def _labels_of(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the labels of a table; see `read_labels`."""
    lacking = [column for column in _NEEDED if column not in table.columns]
    if lacking:
        raise KpBatchError(
            f"{name} has no column {' and no column '.join(lacking)}; its columns are "
            f"{ten_of(map(printable, table.columns)) or 'none'}; add it"
        )
    weight = pl.col(_WEIGHT) if _WEIGHT in table.columns else pl.lit(1.0).alias(_WEIGHT)
    rows = table.select(pl.int_range(1, pl.len() + 1).alias("row"), *_NEEDED, weight)
    texts = rows["label"].cast(pl.String, strict=False).str.strip_chars()
    labels = _numbers(rows["label"], texts)
    weights = rows[_WEIGHT].cast(pl.Float64, strict=False)
    _check_one_kind(name, texts, labels)
    read = rows.select(
        "row",
        pl.col("trace_id").cast(pl.String, strict=False),
        labels.alias("label"),
        weights.alias(_WEIGHT),
        texts.alias("said"),
    )
    return read.with_columns(_reason())


def _reason() -> pl.Expr:
    trace, said, label, weight = map(pl.col, ("trace_id", "said", "label", _WEIGHT))
    return (
        pl.when(trace.fill_null("") == "")
        .then(pl.lit("no_trace_id"))
        .when(said.fill_null("") == "")
        .then(pl.lit("no_label"))
        .when(~label.is_finite().fill_null(value=False))
        .then(pl.lit("bad_label"))
        .when(~weight.is_between(*_WEIGHTS).fill_null(value=False))
        .then(pl.lit("bad_weight"))
        .alias("reason")
    )


def _numbers(values: pl.Series, texts: pl.Series) -> pl.Series:
    if values.dtype.is_numeric() or values.dtype == pl.Boolean:
        return values.cast(pl.Float64)
    words = dict.fromkeys(_YES, 1.0) | dict.fromkeys(_NO, 0.0)
    lowered = texts.str.to_lowercase()
    said = lowered.replace_strict(words, default=None, return_dtype=pl.Float64)
    return said.fill_null(texts.cast(pl.Float64, strict=False))


def _check_one_kind(name: str, texts: pl.Series, labels: pl.Series) -> None:
    """Refuse labels of which some are words and others numbers between or beyond 0 and 1."""
    is_word = texts.str.to_lowercase().is_in([*_YES, *_NO]).fill_null(value=False)
    is_other = labels.is_finite().fill_null(value=False) & ~labels.is_in([0.0, 1.0])
    if is_word.any() and is_other.any():
        word, number = (int(rows.arg_true()[0]) for rows in (is_word, is_other))
        raise KpBatchError(
            f"{name} mixes yes and no with numbers: row {word + 1:,} has {texts[word]!r}, row "
            f"{number + 1:,} has {texts[number]!r}; use one kind"
        )


def _frame(source: Any) -> pl.DataFrame:
    """Make a frame of another kind of frame, or of mappings, whose values may have any types."""
    if isinstance(source, (pl.DataFrame, pl.LazyFrame)):
        return source.lazy().collect()
    if hasattr(source, "__arrow_c_stream__"):
        return pl.DataFrame(source)
    if not isinstance(source, Iterable) or isinstance(source, (Mapping, bytes)):
        raise KpBatchError(f"labels is of type {type(source).__name__}; {_SOURCES}")
    rows = [*cast("Iterable[Any]", source)]
    for row in rows:
        if not isinstance(row, Mapping):
            raise KpBatchError(f"labels contains a value of type {type(row).__name__}; {_SOURCES}")
    return text_columns(rows)


def with_known(labels: pl.DataFrame, known: pl.Series) -> pl.DataFrame:
    """Return labels with the reasons that need the traces, or other labels.

    Args:
        labels: what `read_labels` returns.
        known: the ids of the traces that have scores.
    """
    is_usable = pl.col("reason").is_null()
    labels = labels.with_columns(
        pl.when(is_usable & ~pl.col("trace_id").is_in(known.implode()))
        .then(pl.lit("unknown_trace"))
        .otherwise("reason")
        .alias("reason")
    )
    of_trace = pl.col("label").filter(is_usable).n_unique().over("trace_id")
    is_later = is_usable & (is_usable.cum_sum().over("trace_id") > 1)
    return labels.with_columns(
        pl.when(is_usable & (of_trace > 1))
        .then(pl.lit("contradicting"))
        .when(is_later)
        .then(pl.lit("repeated"))
        .otherwise("reason")
        .alias("reason")
    )


def unused(labels: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the reasons that occur, how many labels each keeps from use, and examples."""
    for reason, words in REASONS.items():
        rows = labels.filter(reason=reason)
        if rows.height:
            examples = (
                f"row {row:,}: {shortened(' '.join(filter(None, (trace, said))), _LENGTH)}"
                for row, trace, said in rows.select("row", "trace_id", "said").rows()[:_EXAMPLES]
            )
            yield {
                "code": reason,
                "because": words,
                "labels": rows.height,
                "examples": [*examples],
            }
