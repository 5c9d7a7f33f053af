import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.sample import write_sample

TYPES = {"thought", "tool_call", "observation", "error_recovery"}
DOMAINS = {"default", "finance", "code", "medical", "customer_service", "legal"}
SCHEMA = pl.Schema(
    {
        "@context": pl.String,
        "@type": pl.String,
        "id": pl.String,
        "metadata": pl.Struct(
            {
                "created_at": pl.String,
                "agent_id": pl.String,
                "framework": pl.String,
                "task_domain": pl.String,
                "success": pl.Boolean,
                "quality_score": pl.Float64,
                "visibility": pl.String,
                "privacy_level": pl.String,
            }
        ),
        "task": pl.Struct({"objective": pl.String}),
        "steps": pl.List(
            pl.Struct(
                {
                    "step_id": pl.Int64,
                    "type": pl.String,
                    "content": pl.String,
                    "tool": pl.Struct({"name": pl.String, "mcp_server": pl.String}),
                    "input": pl.String,
                    "output_summary": pl.String,
                    "latency_ms": pl.Float64,
                }
            )
        ),
        "outcome": pl.Struct({"result_summary": pl.String, "confidence": pl.Float64}),
    }
)


def read(paths: list[Path]) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(path) for path in paths)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    return read(write_sample(tmp_path_factory.mktemp("archive"), traces=600))


@pytest.fixture(scope="module")
def facts(archive: pl.DataFrame) -> pl.DataFrame:
    kinds = pl.col("steps").list.eval(pl.element().struct.field("type"))
    tools = pl.col("steps").list.eval(
        pl.element().struct.field("tool").struct.field("name").drop_nulls()
    )
    contents = pl.col("steps").list.eval(pl.element().struct.field("content").fill_null(""))
    return archive.select(
        pl.col("metadata").struct.unnest(),
        pl.col("outcome").struct.field("confidence"),
        n=pl.col("steps").list.len(),
        first=kinds.list.first(),
        recoveries=kinds.list.count_matches("error_recovery"),
        tools=tools.list.n_unique(),
        calls=tools.list.len(),
        text=pl.concat_str(
            pl.col("task").struct.field("objective"), contents.list.join(" "), separator=" "
        ),
    )


def reject_codes(row: dict[str, Any]) -> set[str]:
    """The row-level codes of spec.md, but for superseded, in plain Python."""
    metadata, steps = row["metadata"], row["steps"] or [None]
    confidence = row["outcome"]["confidence"]
    missing = pl.Series([metadata["created_at"]], dtype=pl.String).str.to_datetime(strict=False)
    found = {
        "missing_id": not row["id"],
        "wrong_type": row["@type"] != "ReasoningTrace",
        "bad_created_at": missing.null_count() > 0,
        "empty_domain": not metadata["task_domain"],
        "missing_success": metadata["success"] is None,
        "empty_objective": not row["task"]["objective"],
        "no_steps": None in steps,
        "unknown_step_type": any(step["type"] not in TYPES for step in steps if step),
        "bad_confidence": confidence is None or not 0 <= confidence <= 1,
    }
    return {code for code, holds in found.items() if holds}


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    once = write_sample(tmp_path / "once", traces=90, seed=3, days=5, dirty=0.1)
    again = write_sample(tmp_path / "again", traces=90, seed=3, days=5, dirty=0.1)
    other = write_sample(tmp_path / "other", traces=90, seed=4, days=5, dirty=0.1)
    assert [path.name for path in once] == [f"2026-01-0{day}.parquet" for day in range(5, 10)]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]
    assert [path.read_bytes() for path in once] != [path.read_bytes() for path in other]


@pytest.mark.parametrize("traces", [1, 40])
@pytest.mark.parametrize("dirty", [0.0, 1.0])
def test_every_file_has_the_schema(tmp_path: Path, traces: int, dirty: float) -> None:
    for path in write_sample(tmp_path, traces=traces, days=3, dirty=dirty):
        assert pl.read_parquet_schema(path) == SCHEMA


@pytest.mark.parametrize(("traces", "days"), [(0, 21), (1, 1), (5, 21), (601, 21), (997, 40)])
def test_the_number_of_traces_is_exact(tmp_path: Path, traces: int, days: int) -> None:
    paths = write_sample(tmp_path, traces=traces, days=days, dirty=0.03)
    heights = [pl.read_parquet(path).height for path in paths]
    assert sum(heights) == traces
    assert 0 not in heights
    assert sorted(tmp_path.iterdir()) == paths


def test_a_file_holds_one_day_in_order_of_time(tmp_path: Path) -> None:
    paths = write_sample(tmp_path, traces=600)
    assert len(paths) == 21
    assert sum(path.stat().st_size for path in paths) < 400 * 1024
    for path in paths:
        times = pl.read_parquet(path)["metadata"].struct.field("created_at")
        assert times.is_sorted()
        assert times.str.contains(rf"^{path.stem}T\d\d:\d\d:\d\d\.\d\d\dZ$").all()


def test_a_clean_archive_has_no_fault(archive: pl.DataFrame) -> None:
    assert [codes for row in archive.to_dicts() if (codes := reject_codes(row))] == []
    assert archive["id"].is_unique().all()
    assert archive["id"].str.contains(r"^kp:trace:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").all()


def test_steps_are_numbered_and_inputs_are_json(archive: pl.DataFrame) -> None:
    for steps in archive["steps"].to_list():
        assert [step["step_id"] for step in steps] == list(range(len(steps)))
        for step in steps:
            assert (step["tool"] is None) == (step["type"] in {"thought", "observation"})
            assert step["tool"] is None or type(json.loads(step["input"])) is dict


def test_no_template_is_left_unfilled(tmp_path: Path) -> None:
    whole = json.dumps(read(write_sample(tmp_path, traces=3000)).drop("steps").to_dicts())
    assert "{" not in whole.replace('{"', "")


@pytest.mark.parametrize(
    ("rule", "at_least"),
    [
        ((pl.col("n") == 1) & (pl.col("first") == "thought"), 20),
        ((pl.col("recoveries") > 2) & pl.col("success"), 20),
        ((pl.col("recoveries") > 2) & ~pl.col("success"), 3),
        ((pl.col("tools") == 1) & (pl.col("calls") > 0), 60),
        ((pl.col("calls") == 0) & (pl.col("n") > 1), 10),
        (pl.col("tools") >= 3, 100),
        (~pl.col("success"), 60),
        (pl.col("n") == 14, 5),
        (pl.col("confidence") < 0.25, 3),
        (pl.col("confidence") > 0.95, 30),
        (pl.col("text").is_duplicated(), 60),
        (pl.col("created_at").is_duplicated(), 6),
    ],
    ids=str,
)
def test_every_rule_fires(facts: pl.DataFrame, rule: pl.Expr, at_least: int) -> None:
    assert facts.filter(rule).height >= at_least


def test_all_domains_and_step_types_come(archive: pl.DataFrame, facts: pl.DataFrame) -> None:
    steps = archive["steps"].explode().struct.unnest()
    assert set(steps["type"]) == TYPES
    assert facts["task_domain"].value_counts().filter(pl.col("count") >= 20).height == len(DOMAINS)
    assert set(facts["task_domain"]) == DOMAINS


def test_agents_are_surer_where_they_succeed(facts: pl.DataFrame) -> None:
    means = dict(facts.group_by("success").agg(pl.col("confidence").mean()).iter_rows())
    assert means[True] > means[False] + 0.2
    assert facts["confidence"].is_between(0.2, 0.99).all()


def test_repetitions_follow_within_hours_and_topics_return_after_days(facts: pl.DataFrame) -> None:
    # "the INR" and the like come from one topic only, so an agent's sentence tells its topic.
    times = pl.col("created_at").str.to_datetime(time_zone="UTC")
    again = facts.select("text", at=times).sort("at").with_columns(gap=pl.col("at").diff().over("text"))
    assert again.filter(pl.col("gap") < pl.duration(hours=6)).height >= 60
    trains = facts.filter(pl.col("text").str.contains("rail|sleeper|by train")).select(at=times)
    assert trains["at"].sort().diff().max() > pl.Series([pl.duration(days=3)]).item()


def test_bad_rows_have_their_share_and_every_fault(tmp_path: Path) -> None:
    clean = read(write_sample(tmp_path / "clean", traces=601)).to_dicts()
    dirty = read(write_sample(tmp_path / "dirty", traces=601, dirty=0.1)).to_dicts()
    changed = [(a, b) for a, b in zip(clean, dirty, strict=True) if json.dumps(a) != json.dumps(b)]
    codes = [reject_codes(row) for _, row in changed]
    assert len(changed) == 60
    assert len(codes) - codes.count(set()) == 57
    assert set().union(*codes) == set(reject_codes(clean[0])) | {
        "missing_id",
    }
