"""Tables in files that a user names."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from kp_batch.errors import KpBatchError
from kp_batch.table_files import is_table, read_table

ENDINGS = {
    ".csv": pl.DataFrame.write_csv,
    ".parquet": pl.DataFrame.write_parquet,
    ".jsonl": pl.DataFrame.write_ndjson,
    ".ndjson": pl.DataFrame.write_ndjson,
    ".CSV": pl.DataFrame.write_csv,
}


@pytest.mark.parametrize(("ending", "write"), ENDINGS.items())
def test_the_same_table_in_any_file_is_the_same(
    tmp_path: Path, ending: str, write: Callable[[pl.DataFrame, Path], None]
) -> None:
    """The name is no glob, and 0001 is no number."""
    table = pl.DataFrame({"id": ["0001", "1e5", None, "b"], "said": ["a", "ü\n,", "'\"", None]})
    path = tmp_path / f"[a]*{ending}"
    write(table, path)
    assert is_table(path)
    assert read_table(path).equals(table)
    columns = read_table(path, ["said", "other", "id.x"])
    assert columns.columns == ["said", "other", "id.x"]
    assert columns["said"].equals(table["said"])
    assert columns.select("other", "id.x").null_count().row(0) == (4, 4)
    write(table.clear(), path)
    assert not read_table(path, ["said", "id"]).height


def test_a_field_of_structs_or_objects_is_a_column(tmp_path: Path) -> None:
    table = pl.DataFrame({"id": ["a", "b", "c"], "m": [{"q": 0.25, "r": 1}, None, {"q": None}]})
    table.write_parquet(tmp_path / "a.parquet")
    table.write_ndjson(tmp_path / "a.jsonl")
    for name in ("a.parquet", "a.jsonl"):
        read = read_table(tmp_path / name, ["m.q", "m.s", "id.q"])
        assert read["m.q"].cast(pl.Float64).to_list() == [0.25, None, None]
        assert read.select("m.s", "id.q").null_count().row(0) == (3, 3)


def test_values_of_json_are_texts(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"v": 1, "w": [1]}\n\n{"v": true}\n{"v": 0.1}\n{"v": null, "x": "a"}\n')
    read = read_table(file)
    assert read["v"].to_list() == ["1", "true", "0.1", None]
    assert read["w"].to_list() == ["[1]", None, None, None]
    assert read["x"].to_list() == [None, None, None, "a"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a.txt does not end with .csv, .parquet, .jsonl, .ndjson; name"),
        ("a.csv", b"", r"a.csv cannot be read: .*; fix it"),
        ("a.csv", b"a,b\n1,\xff", r"a.csv cannot be read: .*utf-8.*; fix it"),
        ("a.parquet", b"PAR", r"a.parquet cannot be read: .*; fix it"),
        ("a.jsonl", b'{"id": "a"}\n\n{', r"a.jsonl has no JSON in line 3: .*; fix it"),
        ("a.jsonl", b"\xff", r"a.jsonl has no JSON in line 1: .*; fix it"),
        ("a.jsonl", b"[" * 100_000, r"a.jsonl has no JSON in line 1: .*; fix it"),
        ("a.jsonl", b"[1]", r"a.jsonl has no JSON object in line 1; fix it"),
        ("a.jsonl", b'{"id": "\\ud800"}', r"a.jsonl cannot be read: .*; fix it"),
        ("a.jsonl", b"\x1f\x8b\x08\0", r"a.jsonl cannot be read: .*; fix it"),
        ("a.jsonl", '{"id": "a"}'.encode("utf-16"), r"a.jsonl cannot be read: .*UTF-16.*; fix it"),
        ("missing.csv", None, r"missing.csv is missing; name a file$"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(KpBatchError, match=message):
        read_table(tmp_path / name)


def test_a_line_with_more_fields_than_the_header_is_refused(tmp_path: Path) -> None:
    """Whichever columns are read: its values would be in the wrong ones."""
    path = tmp_path / "a.csv"
    path.write_text("owner,trace_id\nSmith, J,t1\nx,t2\n")
    for names in ([], ["trace_id"]):
        with pytest.raises(KpBatchError, match=r"a.csv cannot be read: .*more fields.*; fix it"):
            read_table(path, names)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_files_are_read(tmp_path: Path, kind: str) -> None:
    """Nothing waits for a pipe."""
    path = tmp_path / "a.jsonl"
    (path.mkdir if kind == "folder" else partial(os.mkfifo, path))()
    with pytest.raises(KpBatchError, match=f"a.jsonl is a {kind}; name a file$"):
        read_table(path)


def test_a_line_of_json_ends_only_with_a_newline(tmp_path: Path) -> None:
    """JSON writes U+2028 as it is."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "a\u2028b"}\r\n{"id": "c"}\n', "utf-8-sig")
    assert read_table(file)["id"].to_list() == ["a\u2028b", "c"]
