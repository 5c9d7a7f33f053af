"""An external merge sort: all rows, in order, each key in one piece, whatever the sizes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kp_batch.imports.sorted_runs import RowGroupWriter, SortedRuns, merged, pieces

from kp_batch.imports import sorted_runs

ROWS = pl.Schema({"key": pl.String, "number": pl.Int64})
SIZE = pl.col("key").str.len_bytes()


@pytest.mark.telling
@pytest.mark.slow
@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(st.text("abé", max_size=2), st.none() | st.integers(0, 9))),
    run=st.integers(1, 200),
    group=st.integers(1, 20),
)
def test_rows_come_in_order_and_keys_in_one_piece(
    rows: list[tuple[str, int | None]], run: int, group: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(sorted_runs, "RUN_BYTES", run)
        patch.setattr(sorted_runs, "_PIECE_BYTES", run)
        patch.setattr(sorted_runs, "_AT_ONCE", 2)
        one, other = (
            SortedRuns(Path(folder, name), ROWS, ROWS.names(), SIZE) for name in ("made", "other")
        )
        patch.setattr(
            RowGroupWriter.__init__,
            "__kwdefaults__",
            {"rows": group, "most": group, "metadata": None},
        )
        for place, row in enumerate(rows):
            if place % 4 == 0:
                one.extend(pl.DataFrame([row], schema=ROWS, orient="row"))
            else:
                (other if place % 4 == 1 else one).add(row, 20)
        one.adopt(other.runs())
        runs = one.runs()
        assert 1 <= len(runs) <= 4
        frames = list(merged(map(pieces, runs), ROWS.names()))
    keys = [frame["key"].unique().to_list() for frame in frames]
    assert len([x for piece in keys for x in piece]) == len({x for piece in keys for x in piece})
    ordered = sorted(rows, key=lambda row: (row[0], row[1] is None, row[1] or 0))
    assert [row for frame in frames for row in frame.rows()] == ordered


def test_row_groups_are_the_same_however_rows_come(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"key": ["x" * (number % 7) for number in range(100)], "number": range(100)}
    )
    for name, step in (("one", 100), ("many", 3)):
        with RowGroupWriter(tmp_path / name, ROWS, SIZE, rows=9, most=20) as writer:
            for first in range(0, 100, step):
                writer.write(frame[first : first + step])
        assert writer.rows == 100
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()
    sizes = [
        pq.ParquetFile(tmp_path / "one").read_row_group(index)["key"].to_pylist()
        for index in range(pq.ParquetFile(tmp_path / "one").num_row_groups)
    ]
    assert all(len(size) <= 9 and sum(map(len, size)) <= 20 for size in sizes)


def test_of_a_range_only_its_row_groups_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"key": [f"{number:02d}" for number in range(90)], "number": range(90)})
    with RowGroupWriter(tmp_path / "run", ROWS, SIZE, rows=10) as writer:
        writer.write(frame)
    result = pl.concat(pieces(tmp_path / "run", ("25", "31")))
    assert result["number"].to_list() == [*range(20, 40)]
