"""Which texts are embedded together, and that they are those that are in the staged files."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.pipeline.embed import rows_at, slices
from kp_batch.steps.step import cut


@given(st.lists(st.integers(1, 30)), st.integers(1, 40))
def test_law_slices_are_cut_as_parts_are(sizes: list[int], most: int) -> None:
    parts = cut(enumerate(sizes), lambda pair: pair[1], most)
    expected = [(part[0][0], part[-1][0] + 1) for part in parts]
    assert list(slices(np.array(sizes, dtype=np.int64), most)) == expected


@given(st.integers(1, 9), st.sets(st.integers(0, 19), min_size=1))
def test_law_texts_are_read_from_any_row_groups(
    tmp_path_factory: pytest.TempPathFactory, group: int, chosen: set[int]
) -> None:
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    texts = pl.DataFrame(
        {
            "text_hash": [f"{row:064x}" for row in range(20)],
            "text": [f"text {row}" for row in range(20)],
            "bytes": [6] * 20,
        }
    )
    texts.write_parquet(path, row_group_size=group)
    rows = np.array(sorted(chosen), dtype=np.int64)
    assert rows_at(path, rows, ["text", "bytes"]).equals(texts[sorted(chosen)].drop("text_hash"))
