"""Read trace ids from a file or a frame, and scores from an earlier export."""

from collections.abc import Callable, Iterable
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any, cast

import polars as pl
from polars.exceptions import PolarsError

from kp_batch.errors import KpBatchError
from kp_batch.files import read_named
from kp_batch.table_files import is_table, named_columns, read_table
from kp_batch.text import one_line, printable

_IDS = ("trace_id", "id")  # the first one counts
_SCORES = ("score", "metadata.quality_score")  # the first one counts
_OF_SCORES = ("traceId", "feedback_source")  # only in exports of scores, which have other ids
_NAMES = (*_IDS, *_SCORES, *_OF_SCORES)


def read_ids(ids: object) -> tuple[str, ...]:
    """Return distinct trace ids, in order.

    Args:
        ids: a list of ids, a frame, or the name of a file: a table (see `read_table`), or one id
            per line. A table or frame has the column trace_id, or id.

    Raises:
        KpBatchError: there are no ids, or they cannot be read.
    """
    if isinstance(ids, (str, PathLike)):
        path = Path(fsdecode(ids))
        found = earlier_scores(path)["trace_id"].to_list() if is_table(path) else _lines(path)
    elif hasattr(ids, "__arrow_c_stream__"):
        found = _scores_in(lambda: _columns_of(ids), "the frame")["trace_id"].to_list()
    elif isinstance(ids, Iterable):
        found = [*cast("Iterable[Any]", ids)]
    else:
        raise KpBatchError(f"give a file, a frame or ids, got {ids!r}")
    if not found or not all(isinstance(each, str) and each for each in found):
        raise KpBatchError("there are no ids, or some are empty or not texts; give ids of traces")
    return tuple(dict.fromkeys(found))


def _lines(path: Path) -> list[str]:
    try:
        lines = read_named(path).split("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        raise KpBatchError(f"{printable(str(path))} cannot be read: {reason}; fix it") from error
    return [stripped for line in lines if (stripped := line.strip())]


def earlier_scores(path: Path) -> pl.DataFrame:
    """Return trace_id and score of each row of a table, such as an earlier export.

    The score is in the column `score`, or in `metadata.quality_score`; null if it is not a number.
    If an id repeats, its last row counts.

    Args:
        path: the file; see `read_table`.

    Raises:
        KpBatchError: the file cannot be read, has ids of scores, or a row has neither trace_id nor
            id.
    """
    rows = _scores_in(lambda: read_table(path, _NAMES), printable(str(path)))
    return rows.unique("trace_id", keep="last", maintain_order=True)


def _columns_of(frame: Any) -> pl.DataFrame:
    return named_columns(pl.DataFrame(frame).lazy(), _NAMES)


def _scores_in(read: Callable[[], pl.DataFrame], name: str) -> pl.DataFrame:
    """Return trace_id and score of each row; errors call the table `name`."""
    try:
        rows = read()
        scores = rows.select(
            pl.coalesce(pl.col(_IDS).cast(pl.String)).alias("trace_id"),
            pl.coalesce(pl.col(_SCORES).cast(pl.Float64, strict=False)).alias("score"),
        )
    except (PolarsError, TypeError, ValueError) as error:  # the last two of frames of pandas
        reason = one_line(str(error))
        raise KpBatchError(f"{name} cannot be used: {reason}; give trace_id as text") from error
    if any(rows[column].count() for column in _OF_SCORES):
        raise KpBatchError(
            f"{name} has ids of scores, not of traces; give an export of traces, messages or csv"
        )
    missing = (scores["trace_id"].fill_null("") == "").arg_true()
    if missing.len():
        raise KpBatchError(
            f"{name} has no trace_id or id in {_rows(missing, len(scores))}; "
            "give an export of traces, messages or csv, or add the column"
        )
    return scores


def _rows(missing: pl.Series, rows: int) -> str:
    return "any row" if missing.len() == rows else f"row {missing[0] + 1:,}"
