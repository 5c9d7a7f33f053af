import base64
import codecs
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_batch.archive import reading
from kp_batch.archive.columns import FIELDS, STEP_FIELDS, STEPS, Field, times_from_text
from kp_batch.archive.file_formats import json as json_format
from kp_batch.archive.file_formats import parquet_batches
from kp_batch.archive.file_formats.parquet_batches import ParquetRows
from kp_batch.archive.reading import read_raw, read_rows, read_rows_with_raw
from kp_batch.archive.sources import content_digest, discover, is_cut, stat_file
from kp_batch.errors import UnreadableError
from kp_batch.schemas import ROWS, TIMESTAMP, TRACE
from kp_batch.text import time_of
from tests.support.damage.parquet_files import damage_page
from tests.support.damage.table import Damage, damages
from tests.support.make.archives import (
    OUTCOME,
    SCHEMA,
    STEP,
    read,
    retyped,
    step,
    table,
    trace,
    write_jsonl,
    write_parquet,
)

AT = "2026-01-05T08:00:00.250Z"
TRACES = [
    trace(created_at=AT, confidence=0.5),
    trace(id="b", created_at=AT, confidence=1.0, steps=[step(), step("observation", ""), step()]),
    trace(id="ü", created_at=AT, confidence=0.0, agent_id=None, steps=[step("tool_call", "x", "")]),
    trace(id="", created_at=AT, confidence=0.25, objective="a\0b", success=None),
]
TEXTS = [
    *("id", "@type", "metadata/created_at", "metadata/task_domain", "metadata/agent_id"),
    *("metadata/framework", "task/objective", "steps/type", "steps/content", "steps/tool/name"),
]

KEYS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The rows of `TRACES` from a plain Parquet file."""
    return read(write_parquet(tmp_path_factory.mktemp("plain") / "a.parquet", TRACES))


def with_inputs(value: Any) -> list[dict[str, Any]]:
    return [{**t, "steps": [{**s, "input": value} for s in t["steps"]]} for t in TRACES]


def reordered(kind: Any) -> Any:
    """The type with the fields of every struct in it in the opposite order, and one more."""
    if isinstance(kind, pa.ListType):
        return pa.list_(reordered(kind.value_type))
    if isinstance(kind, pa.StructType):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        fields = {name: reordered(kind.field(name).type) for name in reversed(names)}
        return pa.struct(
            {"type_": pa.int8(), **fields, "more": pa.list_(pa.struct({"id": pa.string()}))}
        )
    return kind


def reasons_of(path: Path, of: Sequence[str] = ("code", "message")) -> list[Any]:
    with pytest.raises(UnreadableError) as caught:
        read(path)
    faults = caught.value.faults
    assert str(caught.value) == "; ".join(fault.message for fault in faults)
    return [tuple(getattr(fault, name) for name in of) for fault in faults]


@pytest.mark.parametrize("fields", [FIELDS, STEP_FIELDS])
def test_each_field_has_its_place_in_a_trace_and_its_type_in_the_rows(
    fields: Mapping[str, Field],
) -> None:
    assert [*fields] == [name for name in ROWS if name in fields]
    for column, field in fields.items():
        kind: Any = pl.Struct(TRACE)
        for name in field.path if fields is FIELDS else (STEPS, *field.path):
            kind = kind.inner if isinstance(kind, pl.List) else kind
            kind = {field.name: field.dtype for field in kind.fields}[name]
        assert kind == (pl.String if column == "created_at" else field.dtype)
        assert ROWS[column] == (field.dtype if fields is FIELDS else pl.List(field.dtype))


def test_rows_are_what_the_traces_say(plain: pl.DataFrame) -> None:
    assert plain.schema.items() >= {(k, v) for k, v in ROWS.items() if k != "source_file"}
    assert plain["row"].to_list() == [0, 1, 2, 3]
    assert plain["created_at"].to_list() == [datetime(2026, 1, 5, 8, 0, 0, 250_000, UTC)] * 4
    assert plain["agent_id"].to_list() == ["agent-1", "agent-1", None, "agent-1"]
    assert plain["step_types"].to_list()[0] == ["thought", "tool_call"]
    assert plain["step_contents"].to_list()[1] == [None, "", None]
    assert plain["step_tools"].to_list()[:3] == [[None, "python"], [None] * 3, [""]]
    assert plain["content_hash"].n_unique() == 4


def test_jsonl_gives_the_same_rows(tmp_path: Path, plain: pl.DataFrame) -> None:
    lines = [json.dumps(t, ensure_ascii=False).encode() for t in TRACES]
    for name, content in {
        "a.jsonl": b"\n".join(lines),
        "b.ndjson": b"\r\n".join(lines) + b"\r\n",
        "c.jsonl": b"\n".join(b"  \t" + line + b" " for line in lines),
        "d.jsonl": b"\n".join(json.dumps(t, indent=None).encode() for t in TRACES),
    }.items():
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name).equals(plain)


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "Asia/Kolkata", "+02:00"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_of_any_unit_and_zone(
    tmp_path: Path, plain: pl.DataFrame, unit: str, zone: str | None
) -> None:
    at = datetime(2026, 1, 5, 8, 0, 0, 250_000, UTC if zone else None)
    traces = [{**t, "metadata": {**t["metadata"], "created_at": at}} for t in TRACES]
    schema = retyped(SCHEMA, "metadata/created_at", pa.timestamp(unit, zone))
    assert read(write_parquet(tmp_path / "a.parquet", traces, schema)).equals(plain)


def test_dates_are_midnights(tmp_path: Path) -> None:
    for kind in (pa.date32(), pa.date64()):
        schema = retyped(SCHEMA, "metadata/created_at", kind)
        day = datetime(1969, 12, 31, tzinfo=UTC).date()
        rows = read(write_parquet(tmp_path / "a.parquet", [trace(created_at=day)], schema))
        assert rows["created_at"].to_list() == [datetime(1969, 12, 31, tzinfo=UTC)]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.large_string(), pa.binary(), pa.large_binary()),
        *(pa.dictionary(key, pa.string()) for key in KEYS),
        *(pa.dictionary(pa.uint8(), kind) for kind in (pa.large_string(), pa.binary())),
    ],
    ids=str,
)
def test_text_of_any_physical_type(tmp_path: Path, plain: pl.DataFrame, kind: pa.DataType) -> None:
    every = SCHEMA
    for path in TEXTS:
        every = retyped(every, path, kind)
        one = write_parquet(tmp_path / "a.parquet", TRACES, retyped(SCHEMA, path, kind))
        assert read(one).equals(plain), path
    assert read(write_parquet(tmp_path / "b.parquet", TRACES, every)).equals(plain)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.dictionary(pa.uint32(), pa.string_view()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.opaque(pa.dictionary(pa.int8(), pa.string()), "kind", "vendor"),
    ],
    ids=str,
)
def test_text_that_another_library_had_in_any_type_of_arrow(
    tmp_path: Path, plain: pl.DataFrame, kind: pa.DataType
) -> None:
    noted = SCHEMA
    for name in TEXTS:
        noted = retyped(noted, name, kind)
    note = base64.b64encode(noted.serialize().to_pybytes())
    with pq.ParquetWriter(tmp_path / "a.parquet", SCHEMA, store_schema=False) as writer:
        writer.write_table(table(TRACES))
        writer.add_key_value_metadata({"ARROW:schema": note})
    assert read(tmp_path / "a.parquet").equals(plain)
    assert json.loads(raw(tmp_path / "a.parquet", [0])[0] or "")["task"] == TRACES[0]["task"]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_dictionaries_at_any_depth_of_a_column_that_nothing_reads(
    tmp_path: Path, plain: pl.DataFrame, key: pa.DataType
) -> None:
    texts = pa.array(["x", None, "y", "x"]).dictionary_encode()
    folded = pa.DictionaryArray.from_arrays(texts.indices.cast(key), texts.dictionary)
    ends = pa.array([0, 1, 1, 3, 4], pa.int32())
    struct = pa.StructArray.from_arrays([folded], ["m"])
    mapped = pa.MapArray.from_arrays(ends, pa.array(["a", "b", "c", "d"]), folded)
    whole = table(TRACES)
    for column in (folded, struct, pa.ListArray.from_arrays(ends, struct), mapped):
        whole = whole.append_column(f"extra {whole.num_columns}", column)
    pq.write_table(whole, tmp_path / "a.parquet")
    source = discover([str(tmp_path / "a.parquet")])[0]
    rows = pl.concat(read_rows_with_raw(source, lambda: False))
    names = [name for name in ROWS if name != "source_file"]
    assert rows.select(names).equals(plain.select(names))
    faulty = json.loads(rows["raw"].to_list()[3])
    extra = [value for name, value in faulty.items() if name.startswith("extra")]
    assert extra == ["x", {"m": "x"}, [{"m": "x"}], [["d", "x"]]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), '{"type": "thought"}'),
        (pa.struct({k: pa.string() for k in ("type", "content", "name")}), {"type": "guess"}),
        (pa.struct({"tool": pa.struct({"name": pa.string()})}), {"tool": {"name": "inner"}}),
        (pa.map_(pa.string(), pa.string()), [("type", "guess"), ("content", "no")]),
        (pa.list_(pa.struct({"type": pa.string(), "content": pa.int64()})), [{"type": "guess"}]),
        (pa.int64(), 3),
        (pa.null(), None),
        (None, None),
    ],
    ids=str,
)
def test_input_of_any_type(
    tmp_path: Path, plain: pl.DataFrame, kind: pa.DataType | None, value: Any
) -> None:
    schema = retyped(SCHEMA, "steps/input", kind)
    assert read(write_parquet(tmp_path / "a.parquet", with_inputs(value), schema)).equals(plain)
    assert read(write_jsonl(tmp_path / "a.jsonl", with_inputs(value))).equals(plain)


@pytest.mark.parametrize(
    ("kind", "convert"),
    [
        *((pa.int8(), int), (pa.int64(), int), (pa.uint64(), int), (pa.float16(), float)),
        *((pa.float32(), float), (pa.decimal128(5, 2), Decimal), (pa.decimal128(38, 9), Decimal)),
    ],
    ids=str,
)
def test_confidence_of_any_number_type(
    tmp_path: Path, kind: pa.DataType, convert: Callable[[int], Any]
) -> None:
    schema = retyped(SCHEMA, "outcome/confidence", kind)
    values = [0, 1, 2]
    rows = read(
        write_parquet(
            tmp_path / "a.parquet", [trace(confidence=convert(v)) for v in values], schema
        )
    )
    assert rows.equals(
        read(write_jsonl(tmp_path / "a.jsonl", [trace(confidence=v) for v in values]))
    )
    assert rows["reasons"].to_list() == [[], [], ["bad_confidence"]]


@pytest.mark.parametrize(
    ("kind", "value", "read_as"),
    [
        *((pa.float64(), value, value) for value in (None, 0.0, -0.5, 0.25)),
        *((pa.float64(), value, None) for value in (math.nan, math.inf)),
        *((pa.int32(), 1, 1.0), (pa.decimal128(5, 2), Decimal("0.5"), 0.5)),
        *((pa.string(), "0.5", None), (pa.bool_(), True, None), (pa.null(), None, None)),
        (pa.struct({"at": pa.float64()}), {"at": 0.5}, None),
        (pa.list_(pa.float64()), [0.5], None),
        (pa.timestamp("us"), datetime(2026, 1, 5), None),  # noqa: DTZ001 (no number, either way)
    ],
    ids=str,
)
def test_a_recorded_score_is_a_number_or_null_and_never_a_fault(
    tmp_path: Path, kind: pa.DataType, value: object, read_as: float | None
) -> None:
    schema = retyped(SCHEMA, "metadata/quality_score", kind)
    rows = read(write_parquet(tmp_path / "a.parquet", [trace(quality_score=value)], schema))
    assert rows.select("recorded_score", "reasons").rows() == [(read_as, [])]


def test_a_recorded_score_in_json_likewise(tmp_path: Path) -> None:
    values = [0.25, 1, 0, None, "0.5", True, [0.5], {"at": 0.5}, math.nan, math.inf, 10**400]
    rows = read(write_jsonl(tmp_path / "a.jsonl", [trace(quality_score=value) for value in values]))
    assert rows["recorded_score"].to_list() == [0.25, 1.0, 0.0, *[None] * 8]
    assert rows["reasons"].to_list() == [[]] * len(values)


def test_columns_in_another_order_and_more_of_them(tmp_path: Path, plain: pl.DataFrame) -> None:
    fields = reordered(pa.struct(list(SCHEMA)))
    schema = pa.schema([fields.field(i) for i in range(fields.num_fields)])
    assert schema.names[-2] == SCHEMA.names[0]
    assert read(write_parquet(tmp_path / "a.parquet", TRACES, schema)).equals(plain)


@pytest.mark.parametrize(
    "path",
    [
        *("@context", "steps/step_id", "steps/input", "steps/output_summary", "steps/latency_ms"),
        *("metadata/quality_score", "outcome/result_summary", "steps/tool/mcp_server"),
    ],
)
def test_columns_that_are_not_needed_may_be_missing(
    tmp_path: Path, plain: pl.DataFrame, path: str
) -> None:
    schema = retyped(SCHEMA, path, None)
    assert read(write_parquet(tmp_path / "a.parquet", TRACES, schema)).equals(plain)


def test_the_type_column_may_be_missing(tmp_path: Path, plain: pl.DataFrame) -> None:
    rows = read(write_parquet(tmp_path / "a.parquet", TRACES, retyped(SCHEMA, "@type", None)))
    assert rows["type"].to_list() == [None] * 4
    assert rows.drop("type").equals(plain.drop("type"))


def test_unneeded_columns_of_odd_types_are_ignored(tmp_path: Path, plain: pl.DataFrame) -> None:
    kinds = [
        *(pa.decimal256(50, 2), pa.duration("ns"), pa.time64("ns"), pa.uuid(), pa.float16()),
        *(pa.binary(3), pa.null(), pa.dictionary(pa.int8(), pa.int64()), pa.json_(), pa.uint64()),
        *(pa.map_(pa.string(), pa.int64()), pa.list_(pa.list_(pa.int8())), pa.list_(pa.int8(), 3)),
    ]
    whole = table(TRACES)
    for i, kind in enumerate(kinds):
        whole = whole.append_column(f"extra {i}", pa.nulls(len(TRACES), kind))
    whole = whole.append_column("metadata.success", pa.array([False] * len(TRACES)))
    pq.write_table(whole, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").equals(plain)


def test_no_step_has_a_tool(tmp_path: Path) -> None:
    traces = [trace(steps=[step(content="a"), step("observation")]), trace(id="b", steps=[step()])]
    rows = read(write_parquet(tmp_path / "a.parquet", traces))
    assert rows["step_tools"].to_list() == [[None, None], [None]]
    assert rows.equals(read(write_jsonl(tmp_path / "a.jsonl", traces)))
    bare = [
        {**t, "steps": [{k: v for k, v in s.items() if k != "tool"} for s in t["steps"]]}
        for t in traces
    ]
    assert rows.equals(read(write_jsonl(tmp_path / "b.jsonl", bare)))


LINE = json.dumps(trace()).encode()


@pytest.mark.parametrize(
    ("end", "rows", "cut"),
    [
        (b"", 1, False),
        (LINE, 2, False),
        (LINE + b"  ", 2, False),
        (b"  ", 1, False),
        (b"null", 2, False),  # a fault of its own
        (b"{\n", 2, False),
        (LINE[:-1], 1, True),
        (b"{", 1, True),
        (b"\0" * 9_000, 1, True),  # as a machine leaves it that lost power
        (b"\xff", 1, True),
    ],
)
def test_what_a_file_ends_within_is_no_row(
    tmp_path: Path, end: bytes, rows: int, *, cut: bool
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINE + b"\n" + end)
    assert len(read(path)) == rows
    assert is_cut(f"{content_digest(stat_file(str(path)))}-v1") == cut


def test_list_kinds_and_their_layouts(tmp_path: Path, plain: pl.DataFrame) -> None:
    path = tmp_path / "a.parquet"
    large = retyped(SCHEMA, "steps", pa.large_list(STEP))
    assert read(write_parquet(path, TRACES, large)).equals(plain)
    renamed = retyped(SCHEMA, "steps", pa.list_(pa.field("array_element", STEP)))
    for options in ({}, {"use_compliant_nested_type": False}):
        assert read(write_parquet(path, TRACES, renamed, **options)).equals(plain)


def test_fixed_size_lists(tmp_path: Path) -> None:
    pair = [step("thought", "a"), step("tool_call", "b", "t")]
    traces = [trace(steps=pair), trace(steps=None), trace(steps=[None, step()]), trace(steps=pair)]
    schema = retyped(SCHEMA, "steps", pa.list_(STEP, 2))
    fixed = read(write_parquet(tmp_path / "a.parquet", traces, schema))
    assert fixed.equals(read(write_parquet(tmp_path / "b.parquet", traces)))
    assert fixed["reasons"].to_list() == [[], ["no_steps"], ["no_steps"], []]


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "none"},
        {"compression": "zstd", "row_group_size": 1},
        {"data_page_version": "2.0", "use_dictionary": False},
        {"version": "1.0", "store_schema": False},
        {"write_page_checksum": True, "row_group_size": 3},
    ],
    ids=str,
)
def test_layouts_of_the_file(tmp_path: Path, plain: pl.DataFrame, options: dict[str, Any]) -> None:
    assert read(write_parquet(tmp_path / "a.parquet", TRACES, **options)).equals(plain)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_batches_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: pl.DataFrame, size: int
) -> None:
    parquet = write_parquet(tmp_path / "a.parquet", TRACES, row_group_size=3)
    jsonl = write_jsonl(tmp_path / "a.jsonl", TRACES)
    monkeypatch.setattr(reading, "BATCH_ROWS", size)
    for path in (parquet, jsonl):
        (source,) = discover([str(path)])
        frames = list(read_rows(source))
        assert all(frame.schema == ROWS for frame in frames)
        assert max(map(len, frames)) == min(size, len(TRACES))
        assert pl.concat(frames)["source_file"].unique().to_list() == [str(path)]
        assert read(path).equals(plain)
        assert [row for row, _ in read_raw(source, [0, 2, 3])] == [0, 2, 3]


def test_a_file_may_hold_no_row(tmp_path: Path) -> None:
    assert read(write_parquet(tmp_path / "a.parquet", [])).is_empty()
    (tmp_path / "a.jsonl").write_bytes(b"\n \r\n")
    assert read(tmp_path / "a.jsonl").is_empty()


def test_blank_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    lines = [b"", trace(), b"  \t\r", b"\x0b\x0c", b"{", b"", trace(id="b")]
    rows = read(write_jsonl(tmp_path / "a.jsonl", lines))
    assert rows["row"].to_list() == [1, 4, 6]
    assert rows["reasons"].to_list() == [[], ["malformed_json"], []]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("count", [1, 3])
def test_lines_of_another_encoding_are_refused_by_its_name(
    tmp_path: Path, encoding: str, count: int
) -> None:
    text = "".join(f"{json.dumps(t)}\n" for t in TRACES[:count])
    (tmp_path / "a.jsonl").write_bytes(text.encode(encoding))
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    with pytest.raises(UnreadableError, match=f"its lines are {name}, not UTF-8"):
        read(tmp_path / "a.jsonl")


def test_a_mark_of_utf_8_or_a_hole_at_its_begin_makes_no_other_encoding(
    tmp_path: Path, plain: pl.DataFrame
) -> None:
    lines = b"".join(json.dumps(t).encode() + b"\n" for t in TRACES)
    (tmp_path / "a.jsonl").write_bytes(codecs.BOM_UTF8 + lines)
    assert read(tmp_path / "a.jsonl").equals(plain)
    for hole in (bytes(4_096), b"{" + bytes(4_095)):
        (tmp_path / "a.jsonl").write_bytes(hole + b"\n" + lines)
        rows = read(tmp_path / "a.jsonl")
        assert rows["fault"].to_list() == ["malformed_json", *[None] * len(TRACES)]


def test_the_last_of_duplicate_keys_counts(tmp_path: Path) -> None:
    line = json.dumps(trace(id="second")).encode()
    assert line.startswith(b'{"@context"')
    twice = b'{"id": "first", "steps": [],' + line[1:]
    rows = read(write_jsonl(tmp_path / "a.jsonl", [twice]))
    assert rows["trace_id"].to_list() == ["second"]
    assert rows["reasons"].to_list() == [[]]


def test_numbers_that_json_should_not_hold(tmp_path: Path) -> None:
    line = json.dumps(trace(confidence=0.8)).encode()
    values = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 400, b"1" * 4_301)
    lines = [line.replace(b"0.8", value) for value in values]
    assert read(write_jsonl(tmp_path / "a.jsonl", [*lines, line]))["reasons"].to_list() == [
        *([["bad_confidence"]] * 5),
        ["malformed_json"],
        [],
    ]


def test_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    odd = trace(id="a", objective="a\udc00b", steps=[step(content="\ud83d x \ud83d\ude00")])
    rows = read(write_jsonl(tmp_path / "a.jsonl", [odd, trace()]))
    assert rows["trace_id"].to_list() == ["a", "kp:trace:1"]
    assert rows["text"].to_list()[0] == "a\ufffdb \ufffd x 😀"
    assert rows["reasons"].to_list() == [[], []]


def test_values_that_are_no_text_are_printed(tmp_path: Path) -> None:
    contents = [1, 1.5, True, [1, "ä"], {"a": None}, "x", None, ""]
    rows = read(
        write_jsonl(tmp_path / "a.jsonl", [trace(steps=[step(content=c) for c in contents])])
    )
    assert rows["step_contents"].to_list() == [
        ["1", "1.5", "true", '[1, "ä"]', '{"a": null}', "x", None, ""]
    ]


def test_deep_nesting(tmp_path: Path) -> None:
    line = json.dumps(trace(extra="HERE")).encode()
    lines = [line.replace(b'"HERE"', b"[" * n + b"]" * n) for n in (100, 50_000, 1)]
    rows = read(write_jsonl(tmp_path / "a.jsonl", lines))
    assert rows["reasons"].to_list() == [[], ["too_large"], []]


def test_nul_bytes_and_long_texts(tmp_path: Path) -> None:
    long = "wörd\0 " * 170_000
    traces = [trace(id="\0a\0", objective="\0", steps=[step(content=long), step(content="\0")])]
    rows = read(write_parquet(tmp_path / "a.parquet", traces))
    assert rows.equals(read(write_jsonl(tmp_path / "a.jsonl", traces)))
    assert rows.select("trace_id", "text", "reasons").rows() == [("\0a\0", f"\0 {long} \0", [])]


@pytest.mark.parametrize("name", ["a.parquet", "a.pq", "a.jsonl", "a.ndjson", "a"])
def test_a_file_of_no_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert reasons_of(tmp_path / name) == [("unreadable_file", "the file is empty (0 bytes)")]


def test_truncated_files(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "whole.parquet", TRACES).read_bytes()
    for length in (1, 3, 4, 7, 8, 12, 100, len(whole) // 2, *range(len(whole) - 12, len(whole))):
        (tmp_path / "a.parquet").write_bytes(whole[:length])
        assert reasons_of(tmp_path / "a.parquet", ["code"]) == [("unreadable_file",)]


@pytest.mark.parametrize(
    "content", [b"id,objective\n", b'{"id": 1}\n' * 99, b"PAR1", b"PAR1" * 9, b"\0" * 99, b"PK\3\4"]
)
def test_files_that_are_no_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    ((code, message),) = reasons_of(tmp_path / "a.parquet")
    assert code == "unreadable_file"
    assert message
    assert "\n" not in message


def test_a_file_of_another_kind_is_reported_as_such(tmp_path: Path) -> None:
    ((_, message),) = reasons_of(write_jsonl(tmp_path / "a.json", TRACES))
    assert message == (
        "it is JSON, not Parquet: put each trace on a line, and give it the ending .jsonl"
    )
    (tmp_path / "a.csv").write_text("id,question\n1,what\n")
    ((_, message),) = reasons_of(tmp_path / "a.csv")
    assert message == "it is text, not Parquet: convert it to lines of JSON"
    binary = tmp_path / "a.bin"
    binary.write_bytes(bytes(99))
    ((_, message),) = reasons_of(binary)
    assert (
        "it was read as Parquet, because it ends with none of .parquet, .pq, .jsonl, .ndjson"
        in message
    )
    damaged = binary.rename(tmp_path / "a.PQ")
    assert "ending" not in str(reasons_of(damaged))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TRACES)
    (source,) = discover([str(path)])
    path.unlink()
    with pytest.raises(UnreadableError, match="No such file"):
        list(read_rows(source))


@pytest.mark.parametrize("column", ["id", "steps.list.element.content"])
@pytest.mark.parametrize("page", damages("page"), ids=str)
def test_a_page_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Damage, column: str
) -> None:
    traces = [trace(id=f"{i}" * 99) for i in range(6)]
    path = write_parquet(tmp_path / "a.parquet", traces, row_group_size=1, use_dictionary=False)
    damage_page(path, 3, column, page.make)
    monkeypatch.setattr(reading, "BATCH_ROWS", 1)
    rows, seen = read_rows(discover([str(path)])[0]), list[int]()
    with pytest.raises(UnreadableError) as caught:
        seen.extend(frame["row"].item() for frame in rows)
    assert seen in ([0, 1, 2], [0, 1, 2, 3, 4])  # that rows are hidden shows at the end
    assert [fault.code for fault in caught.value.faults] == page.reasons


def test_missing_columns_are_all_named_at_once(tmp_path: Path) -> None:
    names = ("id", "metadata/created_at", "task/objective", "steps/type", "outcome/confidence")
    schema = SCHEMA
    for name in names:
        schema = retyped(schema, name, None)
    schema = retyped(schema, "task/more", pa.string())  # no struct can be empty
    assert reasons_of(write_parquet(tmp_path / "a.parquet", TRACES, schema)) == [
        (
            "missing_column",
            ("no column id, metadata.created_at, outcome.confidence, task.objective, steps[].type"),
        )
    ]


def test_a_file_of_something_else(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    assert reasons_of(tmp_path / "a.parquet") == [
        (
            "missing_column",
            (
                "no column id, metadata.created_at, metadata.task_domain, "
                "metadata.success, outcome.confidence, task.objective, steps"
            ),
        )
    ]


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("id", pa.float64(), "id is Float64, expected text"),
        ("id", pa.list_(pa.string()), "id is List(String), expected text"),
        (
            "metadata/created_at",
            pa.int64(),
            "metadata.created_at is Int64, expected a timestamp or ISO 8601 text",
        ),
        ("metadata/success", pa.int8(), "metadata.success is Int8, expected true or false"),
        ("metadata/success", pa.string(), "metadata.success is String, expected true or false"),
        ("outcome/confidence", pa.string(), "outcome.confidence is String, expected a number"),
        ("outcome/confidence", pa.bool_(), "outcome.confidence is Boolean, expected a number"),
        ("task", pa.string(), "task.objective is String, expected a struct around it"),
        ("steps", pa.string(), "steps is String, expected a list of structs"),
        ("steps", pa.list_(pa.string()), "steps is List(String), expected a list of structs"),
        ("steps/type", pa.float32(), "steps[].type is Float32, expected text"),
        ("steps/tool", pa.string(), "steps[].tool.name is String, expected a struct around it"),
        ("steps/tool/name", pa.bool_(), "steps[].tool.name is Boolean, expected text"),
        (
            "steps",
            pa.struct({f"field_{number}": pa.string() for number in range(9)}),
            "steps is Struct({'field_0': String, 'field_1': S…, expected a list of structs",
        ),
    ],
    ids=str,
)
def test_hopeless_types_are_named(
    tmp_path: Path, path: str, kind: pa.DataType, message: str
) -> None:
    schema = retyped(SCHEMA, path, kind)
    assert reasons_of(write_parquet(tmp_path / "a.parquet", [], schema)) == [
        ("wrong_column_type", message)
    ]


def test_faults_of_every_kind_are_reported_together(tmp_path: Path) -> None:
    schema = retyped(retyped(SCHEMA, "id", None), "outcome", pa.struct({"confidence": pa.string()}))
    schema = retyped(schema, "steps/type", pa.bool_())
    assert reasons_of(write_parquet(tmp_path / "a.parquet", [], schema)) == [
        ("missing_column", "no column id"),
        (
            "wrong_column_type",
            (
                "outcome.confidence is String, expected a number; "
                "steps[].type is Boolean, expected text"
            ),
        ),
    ]


def test_columns_of_nothing_but_null(tmp_path: Path) -> None:
    for path, code in {
        "id": "missing_id",
        "metadata/created_at": "bad_created_at",
        "metadata/success": "missing_success",
        "outcome/confidence": "bad_confidence",
        "task/objective": "empty_objective",
        "steps": "no_steps",
    }.items():
        name = path.rpartition("/")[2]
        traces = [trace(steps=None) if name == "steps" else trace(**{name: None})]
        schema = retyped(SCHEMA, path, pa.null())
        rows = read(write_parquet(tmp_path / "a.parquet", traces, schema))
        assert rows["reasons"].to_list() == [[code]]


def times(texts: Sequence[str | None]) -> list[datetime | None]:
    column = times_from_text(pl.Series("at", texts, pl.String))
    assert column.dtype == TIMESTAMP
    times = column.to_list()
    assert [time_of(text) for text in texts] == times  # an import reads the same
    return times


@pytest.mark.parametrize(
    "text",
    [
        *("2026-01-05T08:00:00Z", "2026-01-05T08:00:00", "2026-01-05t08:00:00z"),
        *("2026-01-05 08:00:00", "2026-01-05 08:00", "2026-01-05T08:00Z", "2026-01-05T08:00+00"),
        *("2026-01-05T08:00:00.0Z", "2026-01-05T08:00:00,000Z", "2026-01-05T08:00:00.0000009"),
        *("2026-01-05T10:00:00+02:00", "2026-01-05T10:00:00+0200", "2026-01-05T10:00:00+02"),
        *("2026-01-05 08:00:00 +00:00", "2026-01-05T08:00:00 Z", "2026-01-05T08:00:00-00:00"),
        *(
            "2026-01-05T02:30:00-05:30",
            "2026-01-06T07:59:00+23:59",
            "2026-01-04T20:00:00.000-12:00",
        ),
    ],
)
def test_spellings_of_one_time(text: str) -> None:
    assert times([text]) == [datetime(2026, 1, 5, 8, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-05", datetime(2026, 1, 5, tzinfo=UTC)),
        ("2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2026-01-05T08:00:00.5Z", datetime(2026, 1, 5, 8, 0, 0, 500_000, UTC)),
        ("2026-01-05T08:00:00.000001Z", datetime(2026, 1, 5, 8, 0, 0, 1, UTC)),
        ("2026-01-05T08:00:00.123456789Z", datetime(2026, 1, 5, 8, 0, 0, 123_456, UTC)),
        ("2026-12-31T23:59:59.999999999Z", datetime(2026, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("1969-12-31T23:59:59.999999999Z", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("1969-12-31T23:59:59.0000009Z", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("1500-06-01T12:00:00.25-01:00", datetime(1500, 6, 1, 13, 0, 0, 250_000, UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.9999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
)
def test_times_are_cut_to_microseconds(text: str, expected: datetime) -> None:
    assert times([text]) == [expected]


usual_times = st.builds(
    "{}-{:02}-{:02}T{:02}:{:02}:{:02}{}{}".format,
    st.sampled_from(["0000", "0001", "1500", "1969", "1970", "2024", "2026", "9999"]),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(0, 60),
    st.from_regex(r"\A(\.[0-9]{1,9})?\Z"),
    st.sampled_from(["Z", "+00:00", "-00:00", "+05:30", "-23:59"]),
)


@pytest.mark.telling
@pytest.mark.slow
@given(st.lists(st.none() | usual_times, max_size=9))
def test_law_a_time_is_read_the_same_whatever_other_times_its_column_has(
    texts: list[str | None],
) -> None:
    """Only where all are spelled as usual they are read the fast way."""
    alone = times_from_text(pl.Series(texts, dtype=pl.String))
    beside = times_from_text(pl.Series([*texts, "2026-01-05"], dtype=pl.String))
    assert alone.to_physical().equals(beside.head(len(texts)).to_physical())


def test_what_is_no_time_is_null() -> None:
    texts = [
        *("", " ", "now", "yesterday", "1767600000", "2026", "2026-01", "2026-1-5", "26-01-05"),
        *("2026-02-29", "2026-13-01", "2026-00-10", "2026-01-00", "2026-01-32", "2026-W01-1"),
        *("2026-005", "20260105", "20260105T080000Z", "05/01/2026", "2026/01/05", "2026-01-05T"),
        *("2026-01-05T08", "2026-01-05T08Z", "2026-01-05Z", "2026-01-05T8:00:00Z", "08:00:00"),
        *("2026-01-05T24:00:00Z", "2026-01-05T08:60:00Z", "2026-01-05T08:00:61Z"),
        *("2026-01-05T08:00:00+24:00", "2026-01-05T08:00:00+02:60", "2026-01-05T08:00:00+2"),
        *("2026-01-05T08:00:00.Z", "2026-01-05T08:00:00ZZ", "2026-01-05T08:00:00 UTC"),
        *("2026-01-05T08:00:00+00:00Z", " 2026-01-05T08:00:00Z", "2026-01-05T08:00:00Z\n"),
        *("2026-01-05T08:00:00Z\0", "2026-01-05T08:00:00Z[Europe/Paris]", "+2026-01-05"),
        *(
            "-2026-01-05",
            "2026-01-05T08:00:00\u221202:00",
            "٢٠٢٦-01-05",
            "NaT",
            "null",
            "x" * 1_000,
        ),
    ]
    assert [text for text, time in zip(texts, times(texts), strict=True) if time] == []
    assert times([None]) == [None]
    assert times([]) == []


@settings(max_examples=100)
@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001
    st.integers(-1_439, 1_439),
    st.sampled_from(["T", " "]),
)
def test_times_are_those_that_python_reads(at: datetime, minutes: int, between: str) -> None:
    zone = timezone(timedelta(minutes=minutes))
    text = at.replace(tzinfo=zone).isoformat(between)
    assert times([text, at.isoformat(between)]) == [
        datetime.fromisoformat(text).astimezone(UTC),
        at.replace(tzinfo=UTC),
    ]


@pytest.mark.parametrize("nanoseconds", [-1, -999, -1_000, -1_001, 0, 999, 1_000, 1_999])
def test_nanoseconds_are_cut_as_in_text(tmp_path: Path, nanoseconds: int) -> None:
    at = pa.array([nanoseconds], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    schema = retyped(SCHEMA, "metadata/created_at", at.type)
    rows = read(write_parquet(tmp_path / "a.parquet", [trace(created_at=at[0])], schema))
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
    assert rows.equals(read(write_jsonl(tmp_path / "a.jsonl", [trace(created_at=text)])))
    assert rows["created_at"].to_physical().item() == nanoseconds // 1_000


BOUNDS = (-62_135_596_800, 253_402_300_800, -9_223_372_037, 9_223_372_037)  # in seconds
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "INT96": 10**6}  # in a second


@pytest.mark.telling
@pytest.mark.slow
@given(st.sampled_from([*UNITS]), st.data())
def test_law_a_timestamp_is_read_unchanged_or_rejected(unit: str, data: st.DataObject) -> None:
    """Around the first and the last year, the ends of 64 bits of nanoseconds, and far from all."""
    size = UNITS[unit]
    far = 2**63 // 1_000 if unit == "s" else 2**63  # Parquet has no seconds
    # A day of INT96 is none before the year -4712.
    widest = st.integers(-(2 * 10**17) if unit == "INT96" else -far, far - 1)
    near = st.builds(int.__add__, st.sampled_from(BOUNDS), st.integers(-86_400, 86_400))
    exact = st.builds(lambda second, rest: second * size + rest, near, st.integers(-2, 2))
    counts = data.draw(st.lists(widest | exact.filter(lambda x: -far <= x < far), min_size=1))
    kind = pa.timestamp("us" if unit == "INT96" else unit)
    schema = retyped(SCHEMA, "metadata/created_at", kind)
    traces = [trace(created_at=pa.scalar(count, kind)) for count in counts]
    with TemporaryDirectory() as folder:
        is_deprecated = unit == "INT96"
        path = Path(folder, "a.parquet")
        write_parquet(path, traces, schema, use_deprecated_int96_timestamps=is_deprecated)
        rows = read(path)
    first, last = BOUNDS[0] * 10**6, BOUNDS[1] * 10**6 - 1
    times = [count * 10**6 // size for count in counts]
    are_held = [first <= time <= last for time in times]
    assert [reasons == [] for reasons in rows["reasons"].to_list()] == are_held
    assert {*rows["reasons"].explode().drop_nulls()} <= {"bad_created_at"}
    read_times = rows["created_at"].to_physical().filter(pl.Series(are_held))
    assert read_times.to_list() == [time for time in times if first <= time <= last]


def raw(path: Path, rows: list[int]) -> dict[int, str | None]:
    texts = dict(read_raw(discover([str(path)])[0], rows))
    return {row: texts.get(row) for row in rows}


def test_raw_rows_of_parquet_are_unchanged(tmp_path: Path) -> None:
    inputs = {"a": [1.5, None], "é": [math.inf]}
    kind = pa.struct({"a": pa.list_(pa.float64()), "é": pa.list_(pa.float64())})
    schema = retyped(
        retyped(SCHEMA, "steps/input", kind), "extra", pa.map_(pa.string(), pa.int64())
    )
    odd = step("guess", '\0 \u2028 "x"', "t", step_id=1, input=inputs)
    wanted = trace(confidence=math.nan, steps=[odd, None], extra=[("k", 1)])
    traces = [trace(steps=[]), wanted, trace(steps=None)]
    path = write_parquet(tmp_path / "a.parquet", traces, schema)
    got = {
        row: json.loads(text, parse_constant=pytest.fail) for row, text in raw(path, [1]).items()
    }
    (row,) = table([wanted], schema).to_pylist()
    row["outcome"]["confidence"] = "nan"
    row["steps"][0]["input"]["é"] = ["inf"]
    row["extra"] = [["k", 1]]
    assert got == {1: row}
    assert row["outcome"].keys() == {OUTCOME.field(i).name for i in range(OUTCOME.num_fields)}


def test_columns_of_views_and_decimals_are_given_raw(tmp_path: Path) -> None:
    schema = retyped(SCHEMA, "id", pa.string_view())
    schema = retyped(retyped(schema, "extra", pa.binary_view()), "share", pa.decimal128(5, 2))
    traces = [trace(id=letter, extra=b"\xc3\xa9", share=Decimal("0.1")) for letter in "abcd"]
    traces[2]["outcome"]["confidence"] = math.inf  # which JSON lacks
    got = raw(write_parquet(tmp_path / "a.parquet", traces, schema), [0, 2, 3])
    records = [json.loads(text or "") for text in got.values()]
    assert [record["id"] for record in records] == ["a", "c", "d"]
    assert {(record["extra"], record["share"]) for record in records} == {("é", 0.1)}
    assert [record["outcome"]["confidence"] for record in records] == [0.8, "inf", 0.8]


def test_a_line_that_is_nested_deep_hides_no_other(tmp_path: Path) -> None:
    lines = [f'{{"id": {"[" * depth}{"]" * depth}}}' for depth in (700, 990, 2_000, 1)]
    got = raw(write_jsonl(tmp_path / "a.jsonl", [line.encode() for line in lines]), [0, 1, 2, 3])
    assert got[0] == lines[0]
    assert got[2] == json.dumps(lines[2])
    assert got[3] == lines[3]


def test_raw_lines_are_unchanged(tmp_path: Path) -> None:
    lines = [
        b'  {"id":  "a",\t"id": "b", "x": 1e5}  \r',
        b"",
        b'{"id": "\xff"}',
        b'{"id": "\\ud800 \xc3\xa9"}',
        b'[1, "x"]',
        b'{"id": "\xed\xa0\x80"}',
        b'{"id": [1e999, -Infinity, NaN, 0.5, 1]}',
        b"not here",
    ]
    got = raw(write_jsonl(tmp_path / "a.jsonl", lines), [0, 2, 3, 4, 5, 6])
    assert got == {
        0: '{"id":  "a",\t"id": "b", "x": 1e5}',
        2: json.dumps('{"id": "\ufffd"}', ensure_ascii=False),
        3: '{"id": "\\ud800 é"}',
        4: json.dumps('[1, "x"]'),
        5: '{"id": "\ufffd"}',
        6: '{"id": ["inf", "-inf", "nan", 0.5, 1]}',
    }
    for text in got.values():
        json.loads(text)


def test_raw_rows_beyond_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 2)
    traces = [trace(id=str(i)) for i in range(9)]
    for path in (
        write_parquet(tmp_path / "a.parquet", traces, row_group_size=3),
        write_jsonl(tmp_path / "a.jsonl", traces),
    ):
        wanted = [0, 1, 4, 8]
        assert {row: json.loads(text)["id"] for row, text in raw(path, wanted).items()} == {
            row: str(row) for row in wanted
        }
        assert raw(path, []) == {}


@pytest.mark.parametrize(
    ("name", "write"), [("a.parquet", write_parquet), ("a.jsonl", write_jsonl)]
)
def test_batches_of_large_rows_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[..., Path]
) -> None:
    for module in (json_format, parquet_batches):
        monkeypatch.setattr(module, "BATCH_BYTES", 20_000)
    ids = [str(number) for number in range(12)]
    path = write(
        tmp_path / name, [trace(id=trace_id, objective=token_hex(4_500)) for trace_id in ids]
    )
    batches = list(read_rows(discover([str(path)])[0]))
    assert max(map(len, batches)) <= 3
    assert pl.concat(batches).get_column("trace_id").to_list() == ids
    assert pl.concat(batches).get_column("row").to_list() == list(range(12))


def test_texts_that_repeat_within_steps_are_read_across_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", 20_000)
    inputs = ["a" * 2_000, "b" * 2_000]
    steps = [{"type": "thought", "content": "", "input": text} for text in inputs * 10]
    rows = [trace(id=str(number), steps=steps) for number in range(4)]
    path = write_parquet(tmp_path / "a.parquet", rows, row_group_size=2)
    with path.open("rb") as file:
        records = [
            record for batch in ParquetRows(file).batches(100) for record in batch.to_pylist()
        ]
    assert [[step["input"] for step in row["steps"]] for row in records] == [inputs * 10] * 4


def test_a_footer_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    """Of some, pyarrow ends the process as soon as it is asked for the metadata of a column."""
    steps = pa.array([[{"x": "p"}], [], [{"x": "q"}, {"x": None}]])
    pq.write_table(pa.table({"id": ["a", "b", "c"], "steps": steps}), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    read: list[bool] = []
    for at in range(footer, len(whole)):
        changed = BytesIO(whole[:at] + b"G" + whole[at + 1 :])
        with suppress(Exception):  # as `read_rows` refuses a file, whatever the error
            read.append(sum(map(len, ParquetRows(changed).batches(10))) == 3)
    assert 0 < len(read) < len(whole) - footer
