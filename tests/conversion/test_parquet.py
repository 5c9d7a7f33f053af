"""Exports in Parquet that were made to take memory, or are damaged within: no more is read of them.

What they write has the size that the limits allow, and so is small where the limits are.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch import limits
from kp_batch.archive.formats import parquet_batches
from tests.support.drafting import Conversion, always, converted
from tests.support.formats.rows import LANGFUSE, LANGSMITH, PHOENIX, SCOUT
from tests.support.hostile import lower_limits

RULES = always(task_domain={"from": "none", "otherwise": "default"})
FORMS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "phoenix": ("phoenix", PHOENIX, "attributes.output.value"),
    "langsmith": ("langsmith", LANGSMITH, "outputs"),
    "langfuse": ("langfuse", LANGFUSE, "output"),
    "scout": ("inspect", SCOUT, "messages"),
}
of_all = pytest.mark.parametrize("name", FORMS)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch, UNPACKED_BYTES=1 << 20)
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", 1 << 18)


def long_text(path: Path, name: str) -> None:
    """A text of nothing but NULs, which take no room."""
    write(path, name, pa.array(["\0" * (3 * limits.UNPACKED_BYTES)]), use_dictionary=False)


def texts_alike(path: Path, name: str) -> None:
    """Texts that may be read, which stand once in the file and in two thousand rows."""
    places = pa.nulls(2_000, pa.int32()).fill_null(0)
    write(path, name, pa.DictionaryArray.from_arrays(places, ["x" * (limits.TEXT_BYTES // 4)]))


def many_values(path: Path, name: str) -> None:
    """A list of nothing but nulls, each of which takes memory."""
    nothing = pa.nulls(20 * limits.VALUES, pa.bool_())
    write(path, name, pa.ListArray.from_arrays([0, len(nothing)], nothing))


def write(path: Path, name: str, values: pa.Array, **options: Any) -> None:
    """Write rows of a format with those values in the column of its text."""
    _, row, column = FORMS[name]
    columns = {key: pa.array([value] * len(values), pa.string()) for key, value in row.items()}
    _write(path, {**columns, column: values}, **options)


def _write(path: Path, columns: Mapping[str, pa.Array], **options: Any) -> None:
    pq.write_table(pa.table({**columns}), path, compression="zstd", **options)


def made_of(tmp_path: Path, name: str) -> Conversion:
    return converted(FORMS[name][0], tmp_path, RULES)


@of_all
@pytest.mark.parametrize("hostile", [long_text, texts_alike, many_values])
def test_a_file_that_unpacks_to_too_much_is_refused_and_the_others_are_imported(
    tmp_path: Path, name: str, hostile: Callable[[Path, str], None]
) -> None:
    write(tmp_path / "good.parquet", name, pa.array([FORMS[name][1][FORMS[name][2]]]))
    hostile(tmp_path / "hostile.parquet", name)
    assert (tmp_path / "hostile.parquet").stat().st_size < 12_000
    made = made_of(tmp_path, name)
    assert (made.row["id"], made.reasons) == ("kp:trace:good", [["too_large"]])


def rows_of(name: str, ids: list[str], texts: pa.Array) -> dict[str, pa.Array]:
    """Traces of a format, of a row each."""
    _, row, column = FORMS[name]
    columns = {
        key: pa.array([trace if value == "good" else value for trace in ids], pa.string())
        for key, value in row.items()
    }
    return {**columns, column: texts}


@of_all
@pytest.mark.parametrize("beyond", ["text", "values", "bytes"])
def test_a_trace_with_a_row_that_is_too_large_is_refused_and_the_others_are_imported(
    tmp_path: Path, name: str, beyond: str
) -> None:
    good = FORMS[name][1][FORMS[name][2]]
    lists = beyond != "text"
    large: Any = {
        "text": "x" * (limits.TEXT_BYTES + 1),
        "values": ["x"] * (limits.VALUES + 1),
        "bytes": ["x" * limits.TEXT_BYTES] * 4,
    }[beyond]
    kind = pa.list_(pa.string()) if lists else pa.string()
    texts = pa.array([None if lists else good, large, None if lists else good], kind)
    columns = rows_of(name, ["a", "large", "z"], texts)
    _write(tmp_path / "a.parquet", columns)
    made = made_of(tmp_path, name)
    too_large = [(x, y.id) for x, y in made.refused if y.reasons == ["too_large"]]
    assert too_large == [(str(tmp_path / "a.parquet"), "kp:trace:large")]
    assert lists or made.rows.keys() == {"kp:trace:a", "kp:trace:z"}


def test_a_trace_is_refused_whole_where_a_part_of_it_is_too_large(tmp_path: Path) -> None:
    texts = pa.array(["done", "x" * (limits.TEXT_BYTES + 1)])
    _write(tmp_path / "a.parquet", rows_of("langfuse", ["good", "good"], texts))
    made = made_of(tmp_path, "langfuse")
    assert (made.rows, made.reasons) == ({}, [["too_large"]])


def test_a_large_row_of_no_trace_is_refused_by_itself(tmp_path: Path) -> None:
    texts = pa.array(["done", "x" * (limits.TEXT_BYTES + 1)])
    rows = rows_of("langsmith", ["good", "other"], texts)
    rows["trace_id"] = pa.array(["good", None])
    _write(tmp_path / "a.parquet", rows)
    made = made_of(tmp_path, "langsmith")
    assert (made.row["id"], made.reasons) == ("kp:trace:good", [["too_large"]])


def test_the_trace_of_a_large_row_is_found_where_columns_are_nested(tmp_path: Path) -> None:
    rows = rows_of("phoenix", ["large"], pa.array(["x" * (limits.TEXT_BYTES + 1)]))
    names = ["trace_id", "span_id"]
    ids = pa.StructArray.from_arrays([rows.pop(f"context.{name}") for name in names], names)
    _write(tmp_path / "a.parquet", {**rows, "context": ids})
    ((_, refusal),) = made_of(tmp_path, "phoenix").refused
    assert (refusal.id, refusal.reasons) == ("kp:trace:large", ["too_large"])


@of_all
def test_texts_may_be_dictionaries_with_keys_of_any_type(tmp_path: Path, name: str) -> None:
    good = FORMS[name][1][FORMS[name][2]]
    for number, keys in enumerate((pa.uint8(), pa.uint32(), pa.int64())):
        rows = rows_of(name, [f"{number}"], pa.array([good]))
        folded = {column: pa.array(["", *texts.to_pylist()]) for column, texts in rows.items()}
        kind = pa.dictionary(keys, pa.string())
        columns = {column: texts.cast(kind)[1:] for column, texts in folded.items()}
        _write(tmp_path / f"{number}.parquet", {**columns, "unread": columns[FORMS[name][2]]})
    made = made_of(tmp_path, name)
    assert (made.reasons, set(made.rows)) == ([], {f"kp:trace:{number}" for number in range(3)})


@pytest.mark.parametrize("name", ["phoenix", "langsmith", "langfuse"])
def test_times_of_twelve_bytes_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    """INT96, of Spark and Hive: a day, and its nanoseconds."""
    good = FORMS[name][1][FORMS[name][2]]
    rows = rows_of(name, ["last"], pa.array([good]))
    at = pa.array([datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    times = {"start_time": at, "end_time": at}
    _write(tmp_path / "a.parquet", {**rows, **times}, use_deprecated_int96_timestamps=True)
    assert made_of(tmp_path, name).row["metadata"]["created_at"] == "9999-12-31T23:59:59.000000Z"


@of_all
def test_text_that_is_no_utf_8_is_told_in_one_line(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    good = FORMS[name][1][FORMS[name][2]]
    write(tmp_path / "good.parquet", name, pa.array([good]))
    no_text = pa.array([b"\xff\xfe"])
    wrong = pa.StringArray.from_buffers(1, no_text.buffers()[1], no_text.buffers()[2])
    write(tmp_path / "wrong.parquet", name, wrong)
    made = made_of(tmp_path, name)
    assert (made.row["id"], made.reasons) == ("kp:trace:good", [["unreadable_file"]])
    assert "".join(capfd.readouterr()) == ""


@of_all
def test_a_file_that_lacks_rows_is_told(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "good.parquet", name, pa.array([FORMS[name][1][FORMS[name][2]]] * 2))
    read = parquet_batches.ParquetRows.batches
    monkeypatch.setattr(
        parquet_batches.ParquetRows,
        "batches",
        lambda *arguments: (batch.slice(1) for batch in read(*arguments)),
    )
    ((_, refusal),) = made_of(tmp_path, name).refused
    assert refusal.reasons == ["unreadable_file"]
    assert "tells of 2 rows, and has 1" in refusal.message
