"""Archives that broke earlier versions, or would have: one row or file must never stop others."""

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch.archive.sources import discover
from kp_batch.errors import ArchiveError, UnreadableError
from kp_batch.planning.timeline import TIMELINE
from tests.support.damage.parquet_files import damage_page, other_kind
from tests.support.make.archives import (
    SCHEMA,
    read,
    retyped,
    step,
    table,
    trace,
    write_jsonl,
    write_parquet,
)
from tests.support.read.errors import fails_with
from tests.support.read.intake import take_in


@pytest.mark.parametrize("kind", [None, pa.null()], ids=str)
@pytest.mark.parametrize(
    "path",
    ["metadata/agent_id", "metadata/framework", "steps/content", "steps/tool", "steps/tool/name"],
)
def test_optional_columns_missing_or_of_null(
    tmp_path: Path, path: str, kind: pa.DataType | None
) -> None:
    name = path.partition("/")[2]
    bare = [step("thought", "a", "t"), step("observation"), step("tool_call", "b")]
    if path == "steps/tool/name":
        bare = [{**s, "tool": {"mcp_server": "x"}} for s in bare]
    elif path.startswith("steps"):
        bare = [{k: v for k, v in s.items() if k != name} for s in bare]
    one = trace(steps=bare, **({name: None} if path.startswith("metadata") else {}))
    rows = read(write_parquet(tmp_path / "a.parquet", [one], retyped(SCHEMA, path, kind)))
    assert rows.equals(read(write_jsonl(tmp_path / "a.jsonl", [one])))


@pytest.mark.parametrize("name", ["metadata", "task", "outcome"])
def test_whole_struct_of_null_type(tmp_path: Path, name: str) -> None:
    one = {**trace(), name: None}
    rows = read(write_parquet(tmp_path / "a.parquet", [one], retyped(SCHEMA, name, pa.null())))
    assert rows.equals(read(write_jsonl(tmp_path / "a.jsonl", [one])))


@pytest.mark.parametrize(
    "odd",
    [
        trace(steps=[step(content={"a": "\ud800"})]),
        trace(type=["\ud800"]),
        trace(steps=[step(["\udc00"])]),
    ],
    ids=["content", "@type", "type"],
)
def test_nested_lone_surrogates(tmp_path: Path, odd: dict) -> None:
    rows = read(write_jsonl(tmp_path / "a.jsonl", [odd, trace()]))
    assert rows["trace_id"].to_list() == ["kp:trace:1"] * 2


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        (1_999, "ns"),
        (253402300800000000, "us"),
        (-62135596800000001, "us"),
        (10**15, "ms"),
        (2**62, "ms"),
    ],
)
def test_raw_of_rejects_whose_times_python_cannot_hold(
    tmp_path: Path, value: int, unit: str
) -> None:
    at = pa.array([value], pa.int64()).cast(pa.timestamp(unit, "UTC"))
    write_parquet(
        tmp_path / "a.parquet",
        [trace(id="", created_at=at[0])],
        retyped(SCHEMA, "metadata/created_at", at.type),
    )
    taken = take_in(tmp_path)
    assert "missing_id" in taken.rejects["reasons"].item().to_list()
    json.loads(taken.rejects["raw"].item())


@pytest.mark.parametrize("zone", ["+05:30", "-03:30", "+02", "Mars/Olympus"])
def test_zones_that_polars_does_not_know(tmp_path: Path, zone: str) -> None:
    at = pa.array([0], pa.int64()).cast(pa.timestamp("us", zone))
    path = write_parquet(
        tmp_path / "a.parquet",
        [trace(created_at=at[0])],
        retyped(SCHEMA, "metadata/created_at", at.type),
    )
    assert read(path)["created_at"].to_list() == [datetime(1970, 1, 1, tzinfo=UTC)]


def test_in_a_column_that_is_not_needed(tmp_path: Path) -> None:
    pq.write_table(
        table([trace()]).append_column("seen", pa.nulls(1, pa.timestamp("us", "+05:30"))),
        tmp_path / "a.parquet",
    )
    assert read(tmp_path / "a.parquet")["reasons"].to_list() == [[]]


def test_decimal256(tmp_path: Path) -> None:
    from decimal import Decimal

    path = write_parquet(
        tmp_path / "a.parquet",
        [trace(confidence=Decimal(1))],
        retyped(SCHEMA, "outcome/confidence", pa.decimal256(45, 2)),
    )
    with contextlib.suppress(UnreadableError):
        assert read(path)["reasons"].to_list() == [[]]


def test_a_column_name_that_is_no_utf8(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [trace()], store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"@context", b"@cont\xffxt"))
    write_jsonl(tmp_path / "b.jsonl", [trace(id="b")])
    assert take_in(tmp_path).counts == {"unreadable_file": 1}


def test_notes_of_a_writer_that_are_no_utf8(tmp_path: Path) -> None:
    rows = table([trace()])
    with pq.ParquetWriter(tmp_path / "a.parquet", rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"made by": b"\xff", "ARROW:schema": b"\xff"})
    assert read(tmp_path / "a.parquet")["reasons"].to_list() == [[]]


def test_text_that_is_no_utf8(tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(
        1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    )
    pq.write_table(table([trace()]).set_column(2, "id", bad), tmp_path / "a.parquet")
    write_jsonl(tmp_path / "b.jsonl", [trace()])
    taken = take_in(tmp_path)
    assert taken.counts == {"unreadable_file": 1}
    assert taken.ids == ["kp:trace:1"]


def test_text_that_is_no_utf8_in_an_unneeded_column_of_a_reject(tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(
        1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    )
    pq.write_table(table([trace(id="")]).set_column(0, "@context", bad), tmp_path / "a.parquet")
    json.loads(take_in(tmp_path).rejects["raw"].item())


def test_unneeded_column_is_damaged_in_a_file_with_a_reject(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [trace(), trace(id="")], use_dictionary=False)
    damage_page(path, 0, "@context")
    assert take_in(tmp_path).rejects.height == 1


def test_rows_that_a_damaged_page_hides(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [trace(), trace(id="b")], use_dictionary=False)
    damage_page(path, 0, "@type", other_kind)
    write_jsonl(tmp_path / "b.jsonl", [trace()])
    taken = take_in(tmp_path)
    assert taken.counts == {"unreadable_file": 1}
    assert taken.ids == ["kp:trace:1"]


@pytest.mark.parametrize(
    "line", [b'{"id": "", "c": NaN}', b'{"id": "", "c": [-Infinity]}', b'\xef\xbb\xbf{"id": ""}']
)
def test_raw_lines_are_valid_json(tmp_path: Path, line: bytes) -> None:
    write_jsonl(tmp_path / "a.jsonl", [line])
    json.loads(take_in(tmp_path).rejects["raw"].item(), parse_constant=pytest.fail)


def test_warehouse_with_brackets(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "w[1]" / "a.jsonl", [trace(), b"{"])
    assert take_in(tmp_path / "w[1]").counts == {"malformed_json": 1}


@pytest.mark.parametrize("name", ["env=prod", "trace_id=x"])
def test_warehouse_that_looks_hive_partitioned(tmp_path: Path, name: str) -> None:
    write_jsonl(tmp_path / name / "a.jsonl", [trace(), trace(id="b")])
    taken = take_in(tmp_path / name)
    assert taken.timeline.columns == list(TIMELINE)
    assert taken.ids == ["b", "kp:trace:1"]


def test_a_link_that_leads_nowhere_is_unreadable(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_jsonl(archive / "x" / "a.jsonl", [trace()])
    write_jsonl(tmp_path / "b.jsonl", [trace(id="b")])
    (archive / "x" / "b.jsonl").symlink_to("../../b.jsonl")
    (archive / "x" / "gone.jsonl").symlink_to("../../gone.jsonl")
    (archive / "x" / "loop.jsonl").symlink_to("loop.jsonl")
    (archive / "x" / "gone.txt").symlink_to("../../gone.txt")
    taken = take_in(tmp_path, archive)
    assert taken.ids == ["b", "kp:trace:1"]
    names = [f"{archive}/x/{name}.jsonl" for name in ("gone", "loop")]
    assert taken.plan.counts.unreadable_files == names
    assert taken.rejects["message"][0] == "it is a link that leads nowhere: to ../../gone.jsonl"
    with fails_with(ArchiveError, "no_archive"):
        discover([names[0]])


def test_a_pipe_in_place_of_a_file_is_unreadable_and_never_read(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    (tmp_path / "there").mkdir()
    (tmp_path / "folder.jsonl").symlink_to("there")
    for name in ("b.jsonl", "b.txt"):
        os.mkfifo(tmp_path / name)
    taken = take_in(tmp_path)
    assert taken.plan.counts.unreadable_files == [f"{tmp_path}/b.jsonl"]
    assert [*taken.rejects["message"]] == ["it is a pipe, a socket or a device, not a file"]


def test_a_link_that_a_glob_matches_and_that_leads_nowhere_is_unreadable(tmp_path: Path) -> None:
    make = {"host=a": "there", "host=b": "not there", "host=c": "host=c"}
    write_jsonl(tmp_path / "there" / "a.jsonl", [trace()])
    for name, target in make.items():
        (tmp_path / name).symlink_to(target)
    files = {Path(file.path).name: file.fault for file in discover([f"{tmp_path}/host=*"])}
    assert files == {
        "a.jsonl": "",
        "host=b": "it is a link that leads nowhere: to not there",
        "host=c": "Too many levels of symbolic links",
    }


def test_a_file_whose_name_is_no_utf8_is_unreadable_and_the_others_are_scored(
    tmp_path: Path,
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id="a")])
    for name in ("mar\udce9e.jsonl", "mar\udce8e/b\n.jsonl", "mar\udce8e/c.txt"):
        write_jsonl(tmp_path / name, [trace()])
    taken = take_in(tmp_path)
    assert taken.ids == ["a"]
    names = ["mar\\xe8e/b\n.jsonl", "mar\\xe9e.jsonl"]
    assert taken.plan.counts.unreadable_files == [f"{tmp_path}/{name}" for name in names]
    assert {*taken.rejects["message"]} == {"its name is not UTF-8: rename it"}
    with pytest.raises(ArchiveError, match=r"cannot read '.*/mar.udce9e.jsonl': 'utf-8' codec"):
        discover([f"{tmp_path}/mar\udce9e.jsonl"])


@pytest.mark.parametrize("name", ["[1].parquet", "a[b].jsonl"])
def test_urls_with_brackets(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert len(discover([f"file://{tmp_path}/{name}"])) == 1


def test_hidden_files_below_urls_and_globs(tmp_path: Path) -> None:
    for name in ("a.parquet", ".b.parquet", "_c.parquet", "_tmp/d.parquet", ".e/f.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    for archive in (f"file://{tmp_path}", f"{tmp_path}/*", f"{tmp_path}/**"):
        assert [Path(file.path).name for file in discover([archive])] == ["a.parquet"]


def test_paths_with_dots_count_once(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x/a.jsonl", [trace()])
    assert len(discover([f"{tmp_path}/x/a.jsonl", f"{tmp_path}/x/../x/a.jsonl"])) == 1


def test_the_last_second(tmp_path: Path) -> None:
    rows = read(write_jsonl(tmp_path / "a.jsonl", [trace(created_at="9999-12-31T23:59:59.5Z")]))
    assert rows["reasons"].to_list() == [[]]


def test_minus_zero(tmp_path: Path) -> None:
    rows = read(write_jsonl(tmp_path / "a.jsonl", [trace(confidence=0.0), trace(confidence=-0.0)]))
    assert rows["content_hash"].n_unique() == 1


def test_an_empty_name() -> None:
    with pytest.raises(ArchiveError):
        discover([""])
