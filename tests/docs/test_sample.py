import json
import math
from datetime import timedelta
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support import ROOT
from tests.support.make.archives import read
from tests.support.make.sample import write_sample

TYPES = {"thought", "tool_call", "observation", "error_recovery"}
DOMAINS = {"default", "finance", "code", "medical", "customer_service", "legal"}
COMMITTED = ROOT / "data" / "sample"
# The bad rows' codes in turn, where the fault is, and what is found there.
FAULTS: list[tuple[str, list[Any], object]] = [
    ("missing_id", ["id"], None),
    ("wrong_type", ["@type"], "KnowledgeUnit"),
    ("bad_created_at", ["metadata", "created_at"], None),
    ("empty_domain", ["metadata", "task_domain"], ""),
    ("missing_success", ["metadata", "success"], None),
    ("empty_objective", ["task", "objective"], ""),
    ("no_steps", ["steps"], None),
    ("unknown_step_type", ["steps", 0, "type"], "reflection"),
    ("bad_confidence", ["outcome", "confidence"], pytest.approx(math.nan, nan_ok=True)),
    ("superseded", ["task", "objective"], "The task before, with corrected figures"),
    ("missing_id", ["id"], ""),
    ("bad_created_at", ["metadata", "created_at"], "2026-02-30T08:00:00.000Z"),
    ("empty_domain", ["metadata", "task_domain"], None),
    ("empty_objective", ["task", "objective"], None),
    ("no_steps", ["steps"], []),
    ("no_steps", ["steps", 0], None),
    ("unknown_step_type", ["steps", 0, "type"], None),
    ("bad_confidence", ["outcome", "confidence"], None),
    ("bad_confidence", ["outcome", "confidence"], 1.5),
]


def as_written(paths: list[Path]) -> pl.DataFrame:
    """The rows, with `reasons` for which their own codes are rejected."""
    return pl.concat(pl.read_parquet(path).with_columns(read(path)["reasons"]) for path in paths)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_sample(tmp_path_factory.mktemp("archive"), traces=600)


@pytest.fixture(scope="module")
def archive(paths: list[Path]) -> pl.DataFrame:
    return as_written(paths)


@pytest.fixture(scope="module")
def facts(paths: list[Path]) -> pl.DataFrame:
    return pl.concat(read(path) for path in paths)


@pytest.mark.parametrize("dirty", [0.0, 0.1, 1.0])
def test_the_same_arguments_give_the_same_bytes(tmp_path: Path, dirty: float) -> None:
    once, again = (
        write_sample(tmp_path / name, traces=90, seed=3, days=5, dirty=dirty) for name in "ab"
    )
    assert [path.name for path in once] == [f"2026-01-0{day}.parquet" for day in range(5, 10)]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


def test_another_seed_gives_other_days_ids_and_moments(tmp_path: Path) -> None:
    one, two = (write_sample(tmp_path / str(seed), traces=90, seed=seed, days=5) for seed in (3, 4))
    heights = [[pl.read_parquet(path).height for path in paths] for paths in (one, two)]
    assert heights[0] != heights[1]
    assert not set(as_written(one)["id"]) & set(as_written(two)["id"])
    # One day's moments depend on that day's own draws alone.
    one, two = (write_sample(tmp_path / str(seed), traces=90, seed=seed, days=1) for seed in (5, 6))
    assert not set(read(one[0])["created_at"]) & set(read(two[0])["created_at"])


@pytest.mark.parametrize("dirty", [0.0, 0.03, 1.0])
@pytest.mark.parametrize(("traces", "days"), [(0, 21), (1, 1), (5, 21), (601, 21), (997, 40)])
def test_number_and_schema_are_exact(tmp_path: Path, traces: int, days: int, dirty: float) -> None:
    paths = write_sample(tmp_path, traces=traces, days=days, dirty=dirty)
    heights = [pl.read_parquet(path).height for path in paths]
    assert sum(heights) == traces
    assert 0 not in heights
    assert sorted(tmp_path.iterdir()) == paths
    schema = pl.read_parquet_schema(COMMITTED / "2026-01-05.parquet")
    assert all(pl.read_parquet_schema(path) == schema for path in paths)


def test_a_file_holds_one_day_in_order_of_time(paths: list[Path]) -> None:
    assert len(paths) == 21
    assert sum(path.stat().st_size for path in paths) < 400 * 1024
    for path in paths:
        times = pl.read_parquet(path)["metadata"].struct.field("created_at")
        assert times.is_sorted()
        assert times.str.contains(rf"^{path.stem}T\d\d:\d\d:\d\d\.\d\d\dZ$").all()


def test_a_clean_archive_has_no_fault(archive: pl.DataFrame) -> None:
    assert archive["reasons"].list.len().sum() == 0
    assert archive["id"].is_unique().all()
    assert archive["id"].str.contains(r"^kp:trace:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").all()


def test_steps_are_numbered_inputs_are_json_and_no_template_is_left(tmp_path: Path) -> None:
    for row in as_written(write_sample(tmp_path, traces=1000)).to_dicts():
        texts = [row["task"]["objective"], row["outcome"]["result_summary"]]
        assert all(texts)
        assert [step["step_id"] for step in row["steps"]] == list(range(len(row["steps"])))
        for step in row["steps"]:
            assert (step["tool"] is None) == (step["type"] in {"thought", "observation"})
            assert step["tool"] is None or type(json.loads(step["input"])) is dict
            texts += [step["content"] or "", step["output_summary"] or ""]
        assert not {"{", "}"} & set("".join(texts))


@pytest.mark.parametrize(
    ("rule", "at_least"),
    [
        ((pl.col("n_steps") == 1) & (pl.col("n_thoughts") == 1), 20),
        ((pl.col("n_recoveries") > 2) & pl.col("success"), 20),
        ((pl.col("n_recoveries") > 2) & ~pl.col("success"), 3),
        ((pl.col("n_tools") == 1) & (pl.col("n_tool_steps") > 0), 60),
        ((pl.col("n_tool_steps") == 0) & (pl.col("n_steps") > 1), 10),
        (pl.col("n_tools") >= 3, 100),
        (~pl.col("success"), 60),
        (pl.col("n_steps") == 14, 5),
        (pl.col("confidence") < 0.25, 3),
        (pl.col("confidence") > 0.95, 30),
        (pl.col("text").is_duplicated(), 60),
        (pl.col("created_at").is_duplicated(), 6),
        (pl.col("created_at").diff().over("text") < timedelta(hours=1), 60),
    ],
    ids=str,
)
def test_every_rule_fires(facts: pl.DataFrame, rule: pl.Expr, at_least: int) -> None:
    assert facts.filter(rule).height >= at_least


def test_all_domains_and_step_types_come(facts: pl.DataFrame) -> None:
    assert set(facts["step_types"].explode()) == TYPES
    assert set(facts["task_domain"]) == DOMAINS
    assert facts["task_domain"].value_counts()["count"].min() >= 20


def test_agents_are_surer_where_they_succeed(facts: pl.DataFrame) -> None:
    means = dict(facts.group_by("success").agg(pl.col("confidence").mean()).iter_rows())
    assert means[True] > means[False] + 0.2
    assert facts["confidence"].is_between(0.2, 0.99).all()


@pytest.mark.telling
@pytest.mark.slow
def test_topics_return_after_days_unless_they_are_steady(tmp_path: Path) -> None:
    rows = pl.concat(read(path) for path in write_sample(tmp_path, traces=4000))
    rows = rows.select("objective", date=pl.col("created_at").dt.date())
    trips = rows.filter(pl.col("objective").str.contains("trip by train|cheapest sleeper|by rail"))
    silences = trips["date"].unique().sort().diff().drop_nulls()
    assert silences.filter(silences > timedelta(days=1)).len() >= 2
    assert timedelta(days=5) <= silences.max() <= timedelta(days=8)
    flaky = rows.filter(pl.col("objective").str.contains("test_[a-z_]+"))
    assert flaky["date"].n_unique() == 21


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dirty", "count"),
    [(0.0, 0), (1e-9, 1), (0.001, 1), (0.0026, 2), (0.1, 60), (0.5, 300), (1.0, 600)],
)
def test_bad_rows_are_the_share_rounded_and_take_every_fault_in_turn(
    archive: pl.DataFrame, tmp_path: Path, dirty: float, count: int
) -> None:
    rows = as_written(write_sample(tmp_path, traces=600, dirty=dirty)).to_dicts()
    pairs = zip(archive.to_dicts(), rows, strict=True)
    changed = [i for i, (clean, row) in enumerate(pairs) if json.dumps(clean) != json.dumps(row)]
    assert len(changed) == count
    for number, position in enumerate(changed):
        code, place, bad_value = FAULTS[number % len(FAULTS)]
        row, before = rows[position], rows[position - 1]
        if code == "superseded":
            assert row["reasons"] == []
            assert dirty > 0.5 or (row["id"] == before["id"] and before["reasons"] == [])
        elif number % 5 == 4:  # a second fault besides
            assert row["outcome"]["confidence"] == 1.5
            assert set(row["reasons"]) == {code, "bad_confidence"}
        else:
            assert row["reasons"] == [code]
        if place != ["outcome", "confidence"] or number < len(FAULTS):
            assert reduce(getitem, place, row) == bad_value


@pytest.mark.parametrize(
    "wrong", [{"traces": -1}, {"seed": -1}, {"days": 0}, {"dirty": -0.1}, {"dirty": 1.1}]
)
def test_an_argument_out_of_range_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"got .*{name}={value}"):
        write_sample(tmp_path / "none", **{"traces": 5, **wrong})
    assert not (tmp_path / "none").exists()
