"""The JSON of rejected rows, which is taken while their file is read."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from kp_batch import bounds
from kp_batch.archive import reading
from kp_batch.archive.file_formats import json as json_format
from kp_batch.archive.file_formats import parquet_batches
from kp_batch.archive.file_formats.json import truncated
from kp_batch.archive.file_formats.parquet_batches import ParquetRows
from kp_batch.archive.reading import read_raw, read_rows_with_raw
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import reasons
from kp_batch.errors import UnreadableError, is_passing
from tests.support.damage.parquet_files import damage_page
from tests.support.make.archives import SCHEMA, retyped, trace, write_jsonl, write_parquet
from tests.support.make.rejected_rows import ACCEPTED, EVERYTHING, REFUSED, REFUSED_JSON

WRITERS = {"a.jsonl": write_jsonl, "a.parquet": write_parquet}
BAD = trace(confidence=2.0)


def checked(path: Path, *, private: bool = False) -> list[pl.DataFrame]:
    """The rows of a file, with their JSON and `reasons`."""
    frames = read_rows_with_raw(discover([str(path)])[0], lambda: private)
    return [frame.with_columns(reasons=reasons()) for frame in frames]


def rejected(path: Path, *, private: bool = False) -> dict[int, str | None]:
    """The JSON of the rejected rows, by their numbers; that of others is none."""
    rows = pl.concat(checked(path, private=private))
    is_rejected = pl.col("reasons").list.len() > 0
    assert rows.remove(is_rejected).get_column("raw").null_count() == len(rows.remove(is_rejected))
    return dict(rows.filter(is_rejected).select("row", "raw").iter_rows())


def as_read_again(path: Path, rows: list[int]) -> dict[int, str]:
    return {row: truncated(text) for row, text in read_raw(discover([str(path)])[0], rows)}


def of_every_code(name: str) -> list[Any]:
    """Rows that are accepted, and rows with each code."""
    mixed = [row for pair in zip(ACCEPTED, REFUSED, strict=False) for row in (pair[0], pair[1][1])]
    rows = [*mixed, *(row for _, row in REFUSED), EVERYTHING, trace(objective="x" * 70_000)]
    if name == "a.parquet":
        return rows
    lines = [
        b"{",
        b"",
        b'{"id": "\xff"}',
        b"x" * 90_000,
        b"[" * 2_000,
        b'{"id": "\\ud800 \xc3\xa9"}',
    ]
    return [*rows, *(row for _, row in REFUSED_JSON), *lines]


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("most", [1 << 20, 1_000])
@pytest.mark.parametrize("batch", [1, 7, 4_096])
@pytest.mark.parametrize("name", WRITERS)
def test_json_of_every_code_is_as_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, batch: int, most: int
) -> None:
    monkeypatch.setattr(bounds, "TEXT_BYTES", 1 << 16)
    monkeypatch.setattr(bounds, "LINE_BYTES", 1 << 16)
    monkeypatch.setattr(bounds, "RAW_BYTES", most)
    monkeypatch.setattr(reading, "BATCH_ROWS", batch)
    path = WRITERS[name](tmp_path / name, of_every_code(name))
    texts = rejected(path)
    assert texts == as_read_again(path, [*texts])
    codes = pl.concat(checked(path)).get_column("reasons").explode().drop_nulls().n_unique()
    assert codes == (10 if name == "a.parquet" else 11)
    assert max(len((text or "").encode()) for text in texts.values()) <= max(most, 2_000)


@pytest.mark.parametrize("name", WRITERS)
def test_json_of_lines_that_are_no_objects_is_kept_of_no_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(bounds, "TEXT_BYTES", 1_000)
    rows = [trace(objective="x" * 1_001), BAD, trace(), *([b"secret"] if name == "a.jsonl" else [])]
    path = WRITERS[name](tmp_path / name, rows)
    kept = [row for row, text in rejected(path, private=True).items() if text is not None]
    assert kept == [1]
    assert None not in rejected(path).values()


@pytest.mark.parametrize("name", WRITERS)
def test_frames_hold_no_more_json_than_a_batch_and_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 3_000)
    rows = [
        trace(id=f"{number}", confidence=2 - number % 2, extra="x" * 900) for number in range(40)
    ]
    schema = retyped(SCHEMA, "extra", pa.string())
    options = {"schema": schema} if name == "a.parquet" else {}
    path = WRITERS[name](tmp_path / name, rows, **options)
    frames = checked(path)
    assert pl.concat(frames).get_column("row").to_list() == [*range(40)]
    assert max(int(frame["raw"].str.len_bytes().sum()) for frame in frames) < 3_000 + 2_000
    assert len(rejected(path)) == 20


@pytest.mark.parametrize("name", WRITERS)
def test_of_one_file_no_more_json_is_kept_than_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 3)
    path = WRITERS[name](tmp_path / name, [BAD] * 9)
    size = len(rejected(path)[0] or "")
    monkeypatch.setattr(bounds, "RATIO", 0)
    monkeypatch.setattr(bounds, "ALL_RAW_BYTES", 5 * size)
    assert [text is not None for text in rejected(path).values()] == [True] * 5 + [False] * 4


def test_rows_of_columns_that_are_not_read_are_cut_by_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (json_format, parquet_batches):
        monkeypatch.setattr(module, "BATCH_BYTES", 20_000)
    rows = [trace(id=f"{number}", confidence=9, extra=f"{number}" * 4_000) for number in range(30)]
    schema = retyped(SCHEMA, "extra", pa.string())
    path = write_parquet(tmp_path / "a.parquet", rows, schema, row_group_size=7)
    assert len(checked(path)) < 5
    texts = rejected(path)
    assert [json.loads(text or "")["extra"] for text in texts.values()] == [
        row["extra"] for row in rows
    ]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Columns that are not in `ROWS` cannot be read after the first rows."""
    read: Callable[..., Iterator[pa.RecordBatch]] = ParquetRows.batches

    def batches(
        self: ParquetRows, most: int, is_wanted: Callable[[str], bool] | None = None
    ) -> Iterator[pa.RecordBatch]:
        for batch in read(self, most, is_wanted):
            yield batch
            if not is_wanted:
                raise error

    monkeypatch.setattr(ParquetRows, "batches", batches)


def test_where_another_column_is_damaged_the_json_has_those_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 2)
    rows = [trace(id=f"{number}" * 99, confidence=5.0) for number in range(6)]
    path = write_parquet(tmp_path / "a.parquet", rows, row_group_size=2, use_dictionary=False)
    whole = rejected(path)
    damage_page(path, 1, "@context")
    texts = rejected(path)
    assert [texts[row] for row in (0, 1)] == [whole[row] for row in (0, 1)]
    for row in range(2, 6):
        parsed = json.loads(texts[row] or "")
        assert "@context" not in parsed
        assert parsed["metadata"] == json.loads(whole[row] or "")["metadata"]


def test_where_the_disk_fails_while_json_is_taken_the_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 2)
    path = write_parquet(tmp_path / "a.parquet", [BAD] * 4)
    failing(monkeypatch, OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(UnreadableError) as caught:
        checked(path)
    assert is_passing(caught.value)
