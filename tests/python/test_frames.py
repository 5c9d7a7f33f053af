"""Traces of any kind become the rows of a file: the same ones, whatever their kind."""

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from kp_batch import bounds
from kp_batch.errors import SettingError, UnreadableError
from kp_batch.python.frames import take
from tests.support.make.archives import (
    read,
    retyped,
    step,
    table,
    trace,
    write_jsonl,
    write_parquet,
)

ROWS = [
    trace(id="kp:trace:1", objective="Fix the import", quality_score=0.5),
    trace(id="kp:trace:é", agent_id=None, steps=[step("thought"), step("observation", "", "")]),
    trace(id="kp:trace:😀", success=False, confidence=0.0, steps=[step("tool_call", "x", "a")] * 9),
    trace(id=None, created_at="yesterday", task_domain="", success=None, confidence=None),
]
VIEW, LARGE = pa.string_view(), pa.large_string()


class Stream:
    """All that is known of some tables: how Arrow takes them."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


def taken(traces: Any, folder: Path) -> Path:
    path = take(traces, folder)
    assert isinstance(path, Path)
    return path


def of_types(text: pa.DataType, listed: Any = pa.large_list) -> pa.Table:
    """The rows with such texts, and such lists."""
    schema = table(ROWS).schema
    for path in ("id", "@type", "metadata/task_domain", "task/objective"):
        schema = retyped(schema, path, text)
    steps = schema.field("steps").type.value_type
    steps = retyped(steps, "content", pa.large_string() if pa.types.is_dictionary(text) else text)
    return pa.Table.from_pylist(ROWS, schema=retyped(schema, "steps", listed(steps)))


KINDS = {
    "polars": lambda: pl.DataFrame(table(ROWS)),
    "polars, in parts": lambda: pl.concat([pl.DataFrame(table(ROWS))[n : n + 1] for n in range(4)]),
    "polars, lazy": lambda: pl.DataFrame(table(ROWS)).lazy(),
    "polars, categories": lambda: pl.DataFrame(of_types(pa.dictionary(pa.int32(), pa.string()))),
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas, of Arrow": lambda: table(ROWS).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, of NumPy": lambda: table(ROWS).to_pandas(),
    "pandas, indexed": lambda: pd.DataFrame(ROWS, index=[7, 7, 1, 0]),
    "arrow": lambda: table(ROWS),
    "arrow, a batch": lambda: table(ROWS).to_batches()[0],
    "arrow, batches": lambda: table(ROWS).to_reader(max_chunksize=1),
    "arrow, large": lambda: of_types(LARGE),
    "arrow, views": lambda: of_types(VIEW),
    "arrow, dictionaries": lambda: of_types(pa.dictionary(pa.int8(), pa.large_string())),
    "a stream": lambda: Stream(table(ROWS)),
    "mappings": lambda: ROWS,
    "a tuple of mappings": lambda: tuple(map(MappingProxyType, ROWS)),
    "a generator": lambda: (row for row in ROWS),
    "an array of Arrow": lambda: table(ROWS).to_struct_array().combine_chunks(),
    "a series of pandas": lambda: pd.Series(ROWS, index=[5, 5, 5, 1]),
    "a series of polars": lambda: pl.Series(ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    wanted = read(write_jsonl(tmp_path / "wanted.jsonl", ROWS))
    assert_frame_equal(read(taken(KINDS[kind](), tmp_path)), wanted)


@pytest.mark.parametrize("kind", ["polars", "polars, categories", "arrow, views", "pandas"])
def test_a_frame_is_read_as_the_parquet_file_that_others_make_of_it(
    tmp_path: Path, kind: str
) -> None:
    path = taken(KINDS[kind](), tmp_path)
    assert path.suffix == ".parquet"
    assert_frame_equal(read(path), read(write_parquet(tmp_path / "wanted.parquet", ROWS)))


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array(["a"]))
ODD = {
    "an object": lambda: pl.DataFrame(table(ROWS)).with_columns(
        extra=pl.Series([object()] * 4, dtype=pl.Object)
    ),
    "whole numbers of 128 bits": lambda: pl.DataFrame(table(ROWS)).with_columns(
        extra=pl.lit(2**100, pl.Int128)
    ),
    "an empty struct": lambda: pl.DataFrame(table(ROWS)).with_columns(
        extra=pl.lit(None, pl.Struct([]))
    ),
    "mixed types": lambda: pd.DataFrame(ROWS).assign(extra=["a", 1, None, {"a": 1}]),
    "text that is not UTF-8": lambda: pd.DataFrame(ROWS).assign(
        extra=pd.Series(["\ud800"] * 4, dtype=object)
    ),
    "large numbers": lambda: pd.DataFrame(ROWS).assign(extra=[10**30] * 4),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_parquet_has_no_type_for_is_written_as_json(tmp_path: Path, odd: str) -> None:
    path = taken(ODD[odd](), tmp_path)
    assert path.suffix == ".jsonl"
    assert_frame_equal(read(path), read(write_jsonl(tmp_path / "wanted.jsonl", ROWS)))


@pytest.mark.parametrize("kind", [pd.DataFrame, pd.Series, list])
def test_each_row_keeps_its_own_types(tmp_path: Path, kind: Any) -> None:
    rows = [trace(id=1), trace(id="b"), trace(success="yes"), trace(confidence=1)]
    assert_frame_equal(
        read(taken(kind(rows), tmp_path)), read(write_jsonl(tmp_path / "wanted.jsonl", rows))
    )


@pytest.mark.parametrize("others", [["b"], ["b", 5]])  # as Parquet and as JSONL
def test_what_is_missing_in_a_frame_of_pandas_is_null(tmp_path: Path, others: list[Any]) -> None:
    ids, n = ["a", *others], 1 + len(others)
    frame = pd.DataFrame([trace(id=each, steps=[step(content=math.nan)]) for each in ids])
    frame["source_skill"] = pd.array([pd.NA, *["s"] * len(others)], dtype="string")
    frame["metadata"] = [{**each, "agent_id": pd.NA} for each in frame["metadata"]]
    rows = read(taken(frame, tmp_path))
    assert rows["text"].to_list() == ["Fix the import "] * n
    assert rows["agent_id"].to_list() == [None] * n
    assert rows["source_skill"].to_list() == [None, *["s"] * len(others)]


def test_the_index_of_pandas_is_no_column(tmp_path: Path) -> None:
    path = taken(pd.DataFrame(ROWS, index=[7, 7, 1, 0]), tmp_path)
    assert set(pl.read_parquet_schema(path)) == set(ROWS[0])


def one(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """The row that is read of a mapping with such values."""
    return read(taken([trace(**changes)], tmp_path)).row(0, named=True)


MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        MONDAY,
        pd.Timestamp(MONDAY),
        pd.Timestamp("2026-01-05T09:00:00.000000000+0100"),
        np.datetime64("2026-01-05T08:00:00", "ns"),
        MONDAY.replace(tzinfo=None),
    ],
)
def test_a_mapping_may_have_any_kind_of_time(tmp_path: Path, value: Any) -> None:
    assert one(tmp_path, created_at=value)["created_at"] == MONDAY


def test_a_mapping_may_have_values_that_json_lacks(tmp_path: Path) -> None:
    assert one(tmp_path, created_at=date(2026, 1, 5))["created_at"] == MONDAY.replace(hour=0)
    for missing in (pd.NA, pd.NaT, None, np.datetime64("NaT")):
        assert "bad_created_at" in one(tmp_path, created_at=missing)["reasons"]
    for number in (np.float32(0.5), Decimal("0.5"), np.array(0.5)[()]):
        assert one(tmp_path, confidence=number)["confidence"] == 0.5
    assert one(tmp_path, success=np.True_)["success"] is True
    assert one(tmp_path, id=np.int64(7))["trace_id"] == "7"
    assert one(tmp_path, id=10**30)["trace_id"] == str(10**30)
    assert one(tmp_path, agent_id=b"a\xff")["agent_id"] == "a�"
    assert one(tmp_path, steps=np.array([step(), step()], dtype=object))["n_steps"] == 2
    assert one(tmp_path, steps=pl.Series([step(), step()]))["n_steps"] == 2
    assert one(tmp_path, task_domain=Path("code"))["task_domain"] == "code"
    assert one(tmp_path, objective="\ud800")["objective"] == "�"
    assert one(tmp_path, task_domain=Domain.CODE)["task_domain"] == "code"
    assert one(tmp_path, metadata=MappingProxyType(trace()["metadata"]))["success"] is True


class Domain(Enum):
    CODE = "code"


def itself() -> Any:
    value = trace()
    value["metadata"]["me"] = value
    return value


@pytest.mark.parametrize(
    "item", [None, 5, "text", [trace()], itself(), {**trace(), (1, 2): 3}, trace(extra=10**5_000)]
)
def test_what_is_no_trace_keeps_its_row(tmp_path: Path, item: Any) -> None:
    rows = read(taken([trace(), item, trace(id="b")], tmp_path))
    assert rows["row"].to_list() == [0, 1, 2]
    assert rows["fault"].to_list() == [None, "malformed_json", None]


@pytest.mark.parametrize(
    "nothing",
    [[], iter(()), pl.DataFrame(), pl.DataFrame(table(ROWS))[:0], pl.LazyFrame(), table(ROWS)[:0]],
)
def test_without_rows_there_is_no_file(tmp_path: Path, nothing: Any) -> None:
    assert take(nothing, tmp_path) is None
    assert take(pd.DataFrame(), tmp_path) is None
    assert take(pd.DataFrame(ROWS)[:0], tmp_path) is None


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ("traces", ("traces",)),
        (Path("traces"), ("traces",)),
        (["a.parquet", Path("b")], ("a.parquet", "b")),
        (("s3://bucket/*.jsonl",), ("s3://bucket/*.jsonl",)),
        (iter(["a"]), ("a",)),
    ],
)
def test_paths_stay_as_they_are(tmp_path: Path, paths: Any, names: tuple[str, ...]) -> None:
    assert take(paths, tmp_path) == names
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("traces", "message"),
    [
        (None, "traces is of type NoneType; give a frame"),
        (5, "traces is of type int; give"),
        (b"traces", "traces is of type bytes; give"),
        (trace(), r"traces is one mapping; put it into a list: kp_batch.score\(\[trace\]\)"),
        ([pl.DataFrame(ROWS[:1])] * 2, "traces has several frames; make one of them"),
        (
            pd.DataFrame([[1, 2]], columns=["id", "id"]),
            r"two columns with the same name: \['id', 'id'\]",
        ),
        (pd.DataFrame([[1, 2]], columns=[5, "5"]), "two columns with the same name"),
        (table(ROWS).append_column("extra", RUNS), "a column that Polars cannot read: .*; cast it"),
        (["a", trace()], "traces mixes paths with values of type dict; give"),
    ],
)
def test_what_has_no_traces_is_refused(tmp_path: Path, traces: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        take(traces, tmp_path)


def test_a_generator_is_written_as_it_comes(tmp_path: Path) -> None:
    seen: list[int] = []

    def rows() -> Iterator[Any]:
        for number in range(20_000):
            seen.append((tmp_path / "traces.jsonl").exists())
            yield {"id": str(number)}

    path = taken(rows(), tmp_path)
    assert sum(seen) > 19_000
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()][-1] == "19999"


def test_a_frame_of_one_text_is_read_though_a_file_of_it_unpacks_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "UNPACKED_BYTES", 1 << 16)
    monkeypatch.setattr(bounds, "RATIO", 5)
    frame = pl.DataFrame(table([trace(objective="a" * 1_000)] * 500))
    frame.write_parquet(tmp_path / "packed.parquet")
    with pytest.raises(UnreadableError, match="the file unpacks to more than"):
        read(tmp_path / "packed.parquet")
    assert len(read(taken(frame, tmp_path))) == 500


def test_a_failing_query_of_a_lazy_frame_is_its_own_error(tmp_path: Path) -> None:
    failing = pl.DataFrame(table(ROWS)).lazy().with_columns(pl.col("id").str.to_integer())
    with pytest.raises(pl.exceptions.ComputeError, match="kp:trace:1"):
        take(failing, tmp_path)
