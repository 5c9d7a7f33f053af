"""Exports in Parquet with rows that are too large, and of odd types: what else they hold counts.

Of what unpacks to too much, and is refused whole, `test_too_large` is.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch import bounds
from kp_batch.archive.file_formats import parquet_batches
from tests.support.damage.table import lower_limits
from tests.support.formats.kits import KITS
from tests.support.formats.rows import ROWS
from tests.support.imports.drafting import Conversion, always, converted
from tests.support.imports.importing import named

RULES = always(task_domain={"from": "none", "otherwise": "default"})
of_all = pytest.mark.parametrize("name", ROWS)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", 1 << 18)


def _write(path: Path, columns: Mapping[str, pa.Array], **options: Any) -> None:
    pq.write_table(pa.table({**columns}), path, compression="zstd", **options)


def text_of(name: str) -> str:
    """The text of a good trace."""
    return ROWS[name].columns[ROWS[name].text]


def made_of(tmp_path: Path, name: str) -> Conversion:
    return converted(ROWS[name].format, tmp_path, KITS[name].dated(RULES))


def rows_of(name: str, ids: list[str], texts: pa.Array) -> dict[str, pa.Array]:
    """Traces of a format, of a row each."""
    rows = [ROWS[name].named(trace) for trace in ids]
    columns = {key: pa.array([row[key] for row in rows], pa.string()) for key in rows[0]}
    return {**columns, ROWS[name].text: texts}


@of_all
@pytest.mark.parametrize("beyond", ["text", "values", "bytes"])
def test_a_trace_with_a_row_that_is_too_large_is_refused_and_the_others_are_imported(
    tmp_path: Path, name: str, beyond: str
) -> None:
    good = text_of(name)
    lists = beyond != "text"
    large: Any = {
        "text": "x" * (bounds.TEXT_BYTES + 1),
        "values": ["x"] * (bounds.VALUES + 1),
        "bytes": ["x" * bounds.TEXT_BYTES] * 4,
    }[beyond]
    kind = pa.list_(pa.string()) if lists else pa.string()
    texts = pa.array([None if lists else good, large, None if lists else good], kind)
    columns = rows_of(name, ["a", "large", "z"], texts)
    _write(tmp_path / "a.parquet", columns)
    made = made_of(tmp_path, name)
    too_large = [(x, y.id) for x, y in made.refused if y.reasons == ["too_large"]]
    assert too_large == [(str(tmp_path / "a.parquet"), "kp:trace:large")]
    assert lists or named(made.rows).keys() == {"kp:trace:a", "kp:trace:z"}


def test_a_trace_is_refused_whole_where_a_part_of_it_is_too_large(tmp_path: Path) -> None:
    texts = pa.array(["done", "x" * (bounds.TEXT_BYTES + 1)])
    _write(tmp_path / "a.parquet", rows_of("langfuse in Parquet", ["good", "good"], texts))
    made = made_of(tmp_path, "langfuse in Parquet")
    assert (made.rows, made.reasons) == ({}, [["too_large"]])


def test_a_large_row_of_no_trace_is_refused_by_itself(tmp_path: Path) -> None:
    texts = pa.array(["done", "x" * (bounds.TEXT_BYTES + 1)])
    rows = rows_of("langsmith in Parquet", ["good", "other"], texts)
    rows["trace_id"] = pa.array(["good", None])
    _write(tmp_path / "a.parquet", rows)
    made = made_of(tmp_path, "langsmith in Parquet")
    assert (made.row["id"], made.reasons) == ("kp:trace:good", [["too_large"]])


def test_the_trace_of_a_large_row_is_found_where_columns_are_nested(tmp_path: Path) -> None:
    rows = rows_of("phoenix", ["large"], pa.array(["x" * (bounds.TEXT_BYTES + 1)]))
    names = ["trace_id", "span_id"]
    ids = pa.StructArray.from_arrays([rows.pop(f"context.{name}") for name in names], names)
    _write(tmp_path / "a.parquet", {**rows, "context": ids})
    ((_, refusal),) = made_of(tmp_path, "phoenix").refused
    assert (refusal.id, refusal.reasons) == ("kp:trace:large", ["too_large"])


@of_all
def test_texts_may_be_dictionaries_with_keys_of_any_type(tmp_path: Path, name: str) -> None:
    good = text_of(name)
    for number, keys in enumerate((pa.uint8(), pa.uint32(), pa.int64())):
        rows = rows_of(name, [f"{number}"], pa.array([good]))
        folded = {column: pa.array(["", *texts.to_pylist()]) for column, texts in rows.items()}
        kind = pa.dictionary(keys, pa.string())
        columns = {column: texts.cast(kind)[1:] for column, texts in folded.items()}
        _write(tmp_path / f"{number}.parquet", {**columns, "unread": columns[ROWS[name].text]})
    made = made_of(tmp_path, name)
    assert (made.reasons, set(named(made.rows))) == (
        [],
        {f"kp:trace:{number}" for number in range(3)},
    )


@pytest.mark.parametrize("name", ["phoenix", "langsmith in Parquet", "langfuse in Parquet"])
def test_times_of_twelve_bytes_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    """INT96, of Spark and Hive: a day, and its nanoseconds."""
    good = text_of(name)
    rows = rows_of(name, ["last"], pa.array([good]))
    at = pa.array([datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    times = {"start_time": at, "end_time": at}
    _write(tmp_path / "a.parquet", {**rows, **times}, use_deprecated_int96_timestamps=True)
    assert made_of(tmp_path, name).row["metadata"]["created_at"] == "9999-12-31T23:59:59.000000Z"


@of_all
def test_a_file_that_lacks_rows_is_reported(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pa.array([text_of(name)] * 2)
    _write(tmp_path / "good.parquet", rows_of(name, ["good"] * 2, texts))
    read = parquet_batches.ParquetRows.batches
    monkeypatch.setattr(
        parquet_batches.ParquetRows,
        "batches",
        lambda *arguments: (batch.slice(1) for batch in read(*arguments)),
    )
    ((_, refusal),) = made_of(tmp_path, name).refused
    assert refusal.reasons == ["unreadable_file"]
    assert "declares 2 rows, but has 1" in refusal.message
