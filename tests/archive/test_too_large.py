"""Small files that would take gigabytes are refused by name, and no more of them is read."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from kp_batch import bounds
from kp_batch.archive.file_formats import json as json_format
from kp_batch.archive.file_formats import parquet_batches
from kp_batch.archive.reading import read_raw
from kp_batch.archive.sources import discover
from kp_batch.errors import UnreadableError
from tests.support.damage.places import write
from tests.support.damage.table import ARCHIVE, Damage, damages_at, lower_limits
from tests.support.make.archives import SCHEMA, read, retyped, step, trace, write_parquet

TOO_LARGE = ["too_large"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)
    for module in (json_format, parquet_batches):
        monkeypatch.setattr(module, "BATCH_BYTES", 1 << 18)


def codes(path: Path) -> list[list[str]]:
    """The faults of each row of a file, or of the file itself."""
    try:
        return read(path).get_column("reasons").to_list()
    except UnreadableError as error:
        return [[fault.code for fault in error.faults]]


@pytest.mark.parametrize("damage", damages_at(ARCHIVE), ids=str)
def test_what_is_too_large_or_damaged_is_refused(tmp_path: Path, damage: Damage) -> None:
    stay = write(damage, ARCHIVE, tmp_path / "a")
    [path] = (tmp_path / "a").iterdir()
    assert codes(path) == [*([reason] for reason in damage.reasons), *([] for _ in stay)]
    if stay:
        assert {*read(path).filter(pl.col("reasons").list.len() == 0)["trace_id"]} == stay


def test_a_row_that_is_too_large_is_known_by_its_id(tmp_path: Path) -> None:
    rows = [trace(id="a"), trace(id="b", objective="x" * (bounds.TEXT_BYTES + 1)), trace(id="c")]
    frame = read(write_parquet(tmp_path / "a.parquet", rows))
    assert list(frame.select("row", "trace_id", "reasons").iter_rows()) == [
        (0, "a", []),
        (1, "b", TOO_LARGE),
        (2, "c", []),
    ]


@pytest.mark.parametrize("ratio", [10, 1_000])
def test_a_large_file_may_unpack_to_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: int
) -> None:
    monkeypatch.setattr(bounds, "RATIO", ratio)
    rows = [trace(id=f"{number}", objective=f"{number % 10}" * 40_000) for number in range(50)]
    path = write_parquet(tmp_path / "a.parquet", rows, use_dictionary=False)
    assert 10 < 50 * 40_000 / path.stat().st_size < 1_000
    assert codes(path) == ([TOO_LARGE] if ratio == 10 else [[]] * 50)


def test_a_column_that_is_not_read_may_not_be_too_large(tmp_path: Path) -> None:
    rows = [trace(id="a", extra="x" * (2 * bounds.UNPACKED_BYTES))]
    schema = retyped(SCHEMA, "extra", pa.string())
    assert codes(write_parquet(tmp_path / "a.parquet", rows, schema, compression="zstd")) == [
        TOO_LARGE
    ]


def repeated(path: Path, **options: Any) -> Path:
    """Rows that hold the same texts, which with each other take more than a batch may."""
    long, other = "é" * 15_000, "ü" * 100
    rows = [
        trace(id="a", objective=long, steps=[step(content=long), step(content=None)] * 3),
        trace(id="b", objective=other, steps=[]),
        trace(id="c", objective=None, steps=[step(content=other), step(content=long)]),
        trace(id="d", objective=long, steps=[step(content=long)]),
    ]
    return write_parquet(path, rows * 2, **options)


def test_what_occurs_once_in_a_file_is_read_alike(tmp_path: Path) -> None:
    plain = repeated(tmp_path / "plain.parquet", use_dictionary=False)
    once = repeated(tmp_path / "once.parquet")
    assert once.stat().st_size < plain.stat().st_size
    assert read(once).equals(read(plain))
    assert raw(once) == raw(plain)


def raw(path: Path) -> list[tuple[int, str]]:
    return list(read_raw(discover([str(path)])[0], range(8)))


@pytest.mark.parametrize(("columns", "expected"), [(21, []), (20, TOO_LARGE)])
def test_a_file_of_too_many_columns_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, expected: list[str]
) -> None:
    path = write_parquet(tmp_path / "a.parquet", [trace(id="a")])
    monkeypatch.setattr(bounds, "COLUMNS", columns)
    assert codes(path) == [expected]
