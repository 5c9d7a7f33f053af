from pathlib import Path
from unittest.mock import patch

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kp_batch.ingest.staged_rows
from kp_batch.archive.reading import read_rows_with_raw
from kp_batch.archive.sources import stat_file
from kp_batch.ingest.staged_rows import parquet_batches, staged_rows
from kp_batch.warehouse.staging import Staging
from tests.support.make.archives import step, trace, write_jsonl

SCHEMA = pl.Schema({"name": pl.String})


def written(path: Path, frames: list[pl.DataFrame], most: int) -> list[int]:
    """Write frames; returns the rows of each row group."""
    with parquet_batches(path, SCHEMA, most) as groups:
        for frame in frames:
            groups.add(frame)
    if not groups.files:
        return []
    metadata = pq.read_metadata(path)
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


@pytest.mark.telling
@pytest.mark.slow
@given(st.lists(st.lists(st.text("ab", max_size=20), max_size=9), max_size=9), st.integers(1, 12))
def test_law_rows_come_back_in_groups_of_at_most_so_many(
    tmp_path_factory: pytest.TempPathFactory, names: list[list[str]], most: int
) -> None:
    path = tmp_path_factory.mktemp("groups") / "rows.parquet"
    frames = [pl.DataFrame({"name": name}, schema=SCHEMA) for name in names]
    counts = written(path, frames, most)
    assert all(1 <= count <= most for count in counts)
    rows = pl.read_parquet(path) if counts else SCHEMA.to_frame()
    assert rows.equals(pl.concat([SCHEMA.to_frame(), *frames]))


def test_few_rows_are_a_group_where_they_are_large(tmp_path: Path) -> None:
    large = [pl.DataFrame({"name": ["x" * 1_000] * count}) for count in (1, 1, 9, 1)]
    small = [pl.DataFrame({"name": ["x"] * count}) for count in (1, 1, 9, 1)]
    with patch.object(kp_batch.ingest.staged_rows, "BUFFER_BYTES", 4_000):
        assert max(written(tmp_path / "large.parquet", large, 100)) <= 4
        assert written(tmp_path / "small.parquet", small, 100) == [12]
        assert written(tmp_path / "one.parquet", [pl.DataFrame({"name": ["x" * 9_999]})], 9) == [1]


def test_large_rows_wait_for_no_others(tmp_path: Path) -> None:
    """However many they may be: so they are written one batch after the other."""
    path, large = tmp_path / "rows.parquet", pl.DataFrame({"name": ["x" * 1_000] * 4})
    with (
        patch.object(kp_batch.ingest.staged_rows, "BUFFER_BYTES", 4_000),
        parquet_batches(path, SCHEMA, 1_000) as groups,
    ):
        groups.add(large)
        [half_written] = tmp_path.iterdir()
        groups.add(large)
    assert not half_written.exists()
    assert pq.read_metadata(path).num_row_groups == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_rows_before_an_error_leave_no_file(tmp_path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with parquet_batches(tmp_path / "rows.parquet", SCHEMA, 9) as rows:
            rows.add(pl.DataFrame({"name": ["a"]}))
            assert [*tmp_path.iterdir()]
            raise error

    with patch.object(kp_batch.ingest.staged_rows, "BUFFER_BYTES", 1), pytest.raises(error):
        write()
    assert not [*tmp_path.iterdir()]


def test_a_trace_of_a_hundred_thousand_steps_is_staged(tmp_path: Path) -> None:
    steps = [step("thought", f"{number}") for number in range(100_000)]
    path = write_jsonl(tmp_path / "a.jsonl", [trace(id="long", steps=steps), trace(id="short")])
    staging = Staging(tmp_path / "staging")
    staging.make()
    with staged_rows(staging, "both") as staged:
        for batch in read_rows_with_raw(stat_file(str(path)), lambda: False):
            staged.add(batch.with_columns(file_id=pl.lit("f")))
    facts = pl.read_parquet(staged.facts.files)
    assert facts.get_column("trace_id").to_list() == ["long", "short"]
    assert facts.get_column("n_steps").to_list()[0] == 100_000
    text = pl.read_parquet(staged.texts.files).get_column("text")[0]
    assert text.endswith(" 0 " + " ".join(map(str, range(1, 100_000))))
