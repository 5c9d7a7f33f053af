"""Files of labels, and of fitted profiles, without a warehouse."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.errors import KpBatchError
from kp_batch.operations.fit_labels import read_labels
from kp_batch.operations.fit_profiles import (
    joined_sketch,
    profiles_text,
    reused_share,
    rounded,
    sketch_in,
    sketch_of,
)


def write_csv(path: Path, labels: pl.DataFrame) -> Path:
    labels.with_columns(
        label=pl.when("label").then(pl.lit("yes")).otherwise(pl.lit("No"))
    ).write_csv(path)
    return path


def write_lines(path: Path, labels: pl.DataFrame) -> Path:
    labels.write_ndjson(path)
    return path


def write_parquet(path: Path, labels: pl.DataFrame) -> Path:
    labels.with_columns(pl.col("label").cast(pl.Int8)).write_parquet(path)
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", write_csv),
        ("a.jsonl", write_lines),
        ("a.ndjson", write_lines),
        ("a.parquet", write_parquet),
    ],
)
def test_the_same_labels_in_any_file_are_the_same(
    tmp_path: Path, name: str, write: Callable[[Path, pl.DataFrame], Path]
) -> None:
    verdicts = [True, False, False, True]
    labels = pl.DataFrame({"trace_id": ["a", "b", "c", "1"], "label": verdicts})
    read = read_labels(write(tmp_path / name, labels))
    assert read.select("row", "trace_id", "label", "weight", "reason").rows() == [
        (row, trace_id, float(label), 1.0, None)
        for row, (trace_id, label) in enumerate(labels.rows(), 1)
    ]
    assert read_labels(labels.to_pandas())["label"].to_list() == read["label"].to_list()
    assert read_labels(labels.to_dicts())["label"].to_list() == read["label"].to_list()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KpBatchError, match=r"missing.csv is missing; name a file$"):
        read_labels(tmp_path / "missing.csv")


@pytest.mark.parametrize(
    "labels",
    [
        pl.DataFrame({"trace_id": ["a"], "label": [[1]]}),
        pl.DataFrame({"trace_id": ["a"], "label": [1], "weight": [{"is": 1}]}),
        pl.DataFrame({"trace_id": pl.Series([object()], dtype=pl.Object), "label": [1]}),
        [{"trace_id": "\ud800", "label": 1}],
        [{1: 1, "label": 1}],
    ],
)
def test_values_of_other_types_are_refused(labels: object) -> None:
    with pytest.raises(KpBatchError, match=r"labels cannot be used: .*; give trace_id as text"):
        read_labels(labels)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1 / 3, 1 / 3, 1 / 3, 0], [0.3334, 0.3333, 0.3333, 0]),
        ([0.12342, 0.37658, 0.5, 0.0], [0.1234, 0.3766, 0.5, 0]),
        ([1, 0, 0, 0], [1, 0, 0, 0]),
    ],
)
def test_rounded_weights_sum_to_1(weights: list[float], expected: list[float]) -> None:
    assert sum(rounded(weights)) == pytest.approx(1, abs=1e-12)
    assert sorted(rounded(weights)) == sorted(expected)


def test_the_share_of_reused_labels_is_estimated(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    before = [f"trace {number}" for number in range(5_000)]
    file.write_text(profiles_text({}, {}, [], sketch_of(before)))
    sketch = sketch_in(file)
    mixed = before[:2_000] + [f"other {number}" for number in range(2_000)]
    assert reused_share(sketch, before) == 1
    assert reused_share(sketch, mixed) == pytest.approx(0.5, abs=0.2)
    assert reused_share(sketch, ["other 1"]) == 0
    file.write_text(profiles_text({}, {}, [], sketch_of(before[:10])))
    assert reused_share(sketch_in(file), before[5:15]) == 0.5
    file.write_text("[profiles.code]")
    assert sketch_in(file) == []


@given(st.lists(st.sets(st.integers(0, 500)), max_size=3))
def test_joined_sketches_are_the_sketch_of_all(parts: list[set[int]]) -> None:
    named = [[f"trace {number}" for number in numbers] for numbers in parts]
    every = {trace for each in named for trace in each}
    assert joined_sketch(*map(sketch_of, named)) == sketch_of(every)
