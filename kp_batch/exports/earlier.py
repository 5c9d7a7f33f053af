"""Read ids of traces from a file or a frame, and the scores that an earlier export has."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike, fsdecode
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import polars as pl
from polars.exceptions import PolarsError

from kp_batch.bounds import TooLargeError, lines_of, loads
from kp_batch.files import read_named
from kp_batch.text import one_line, printable

_NAMES = ("trace_id", "id")  # the first one counts
_OF_SCORES = {"traceId", "run_id"}  # in exports of scores, whose ids are others
_EARLIER = pl.Schema({"trace_id": pl.String(), "score": pl.Float64()})


def read_ids(ids: object) -> tuple[str, ...]:
    """Return distinct ids of traces, in order.

    Args:
        ids: the name of a file: with one id a line, or a table that ends with .parquet, .csv or
            .jsonl; or a frame; or ids. A table or frame has the column trace_id, or id.

    Raises:
        ValueError: there are no ids, or they cannot be read.
    """
    if isinstance(ids, (str, PathLike)):
        path = Path(fsdecode(ids))
        is_table = path.suffix.lower() in _TABLES
        found = earlier_scores(path)["trace_id"].to_list() if is_table else _lines(path)
    elif hasattr(ids, "__arrow_c_stream__"):
        found = _ids_of(pl.DataFrame(cast("Any", ids))).to_list()
    elif isinstance(ids, Iterable):
        found = [*cast("Iterable[Any]", ids)]
    else:
        raise ValueError(f"give a file, a frame or ids, got {ids!r}")
    if not found or not all(isinstance(each, str) and each for each in found):
        raise ValueError("there are no ids in it, or some are no texts; give ids of traces")
    return tuple(dict.fromkeys(found))


def _lines(path: Path) -> list[str]:
    try:
        lines = read_named(path).split("\n")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return [stripped for line in lines if (stripped := line.strip())]


def earlier_scores(path: Path) -> pl.DataFrame:
    """Return trace_id and score of each row of a table, such as an earlier export.

    The score is that of the column `score`, or `metadata.quality_score`; null if there is no
    number. A later row of the same id replaces an earlier one.

    Args:
        path: the file: Parquet, CSV or JSON lines.

    Raises:
        ValueError: it cannot be read, has no column trace_id or id, or has the ids of scores.
    """
    read = _TABLES.get(path.suffix.lower())
    if read is None:
        raise ValueError(f"{printable(str(path))} does not end with {' or '.join(_TABLES)}")
    try:
        return read(path).unique("trace_id", keep="last", maintain_order=True)
    except (OSError, PolarsError, ValueError, TooLargeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ValueError:
    reason = getattr(error, "strerror", None) or one_line(str(error))
    return ValueError(f"{printable(str(path))} cannot be read: {reason}")


def _of_frame(read: Callable[[Path], pl.DataFrame]) -> Callable[[Path], pl.DataFrame]:
    def scores(path: Path) -> pl.DataFrame:
        rows = read(path)
        score, metadata = pl.lit(None), rows.schema.get("metadata")
        if "score" in rows.columns:
            score = pl.col("score")
        elif isinstance(metadata, pl.Struct) and "quality_score" in metadata.to_schema():
            score = pl.col("metadata").struct.field("quality_score")
        return rows.select(_ids_of(rows), score.cast(pl.Float64, strict=False).alias("score"))

    return scores


def _ids_of(rows: pl.DataFrame) -> pl.Series:
    name = next((name for name in _NAMES if name in rows.columns), None)
    if name is None:
        raise ValueError("there is no column trace_id or id; name one so")
    return rows[name].cast(pl.String).alias("trace_id")


def _of_lines(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        rows = [
            _id_and_score(line, number)
            for number, line in enumerate(lines_of(file), 1)
            if line.strip()
        ]
    return pl.DataFrame(rows, _EARLIER, orient="row")


def _id_and_score(line: bytes, number: int) -> tuple[str, float | None]:
    row = loads(line)
    values: Mapping[str, Any] = row if isinstance(row, dict) else {}
    name = next((values[name] for name in _NAMES if values.get(name)), None)
    if name is None or not _OF_SCORES.isdisjoint(values):
        raise ValueError(
            f"line {number:,} has no trace_id or id of a trace; give an export of traces, messages "
            "or csv"
        )
    metadata = values.get("metadata")
    within = metadata.get("quality_score") if isinstance(metadata, dict) else None
    score = values.get("score", within)
    is_number = isinstance(score, float) or (type(score) is int and 0 <= score <= 1)
    return str(name), score if is_number else None


_TABLES: Mapping[str, Callable[[Path], pl.DataFrame]] = MappingProxyType(
    {
        ".parquet": _of_frame(pl.read_parquet),
        ".csv": _of_frame(partial(pl.read_csv, infer_schema=False)),
        ".jsonl": _of_lines,
    }
)
