import json
import math
from datetime import datetime, timedelta
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


def is_a_time(text: str | None) -> bool:
    try:
        return datetime.fromisoformat(text or "").tzinfo is not None
    except ValueError:
        return False


def reject_codes(row: dict[str, Any]) -> set[str]:
    """The row-level codes of spec.md, but for superseded, in plain Python."""
    metadata, steps = row["metadata"], row["steps"] or [None]
    confidence = row["outcome"]["confidence"]
    found = {
        "missing_id": not row["id"],
        "wrong_type": row["@type"] != "ReasoningTrace",
        "bad_created_at": not is_a_time(metadata["created_at"]),
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
    assert [path.name for path in once] == [f"2026-01-0{day}.parquet" for day in range(5, 10)]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


def test_another_seed_gives_other_days_ids_and_words(tmp_path: Path) -> None:
    one, two = (write_sample(tmp_path / str(seed), traces=90, seed=seed, days=5) for seed in (3, 4))
    assert [len(pl.read_parquet(path)) for path in one] != [
        len(pl.read_parquet(path)) for path in two
    ]
    assert not set(read(one)["id"]) & set(read(two)["id"])
    # One day's moments depend on that day's own draws alone.
    one, two = (write_sample(tmp_path / str(seed), traces=90, seed=seed, days=1) for seed in (5, 6))
    moments = pl.col("metadata").struct.field("created_at")
    assert not set(read(one).select(moments).rows()) & set(read(two).select(moments).rows())


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
    for row in read(write_sample(tmp_path, traces=1000)).to_dicts():
        texts = [row["task"]["objective"], row["outcome"]["result_summary"]]
        texts += [
            step[name] or "" for step in row["steps"] for name in ("content", "output_summary")
        ]
        assert all(texts[:2])
        assert not {"{", "}"} & set("".join(texts))


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


def test_texts_repeat_within_an_hour(facts: pl.DataFrame) -> None:
    gaps = facts.select(pl.col("created_at").str.to_datetime(time_zone="UTC").diff().over("text"))
    assert gaps.filter(pl.first() < pl.duration(hours=1)).height >= 60


def test_topics_return_after_days_unless_they_are_steady(tmp_path: Path) -> None:
    rows = read(write_sample(tmp_path, traces=4000)).select(
        date=pl.col("metadata").struct.field("created_at").str.slice(0, 10).str.to_date(),
        objective=pl.col("task").struct.field("objective"),
    )
    trips = rows.filter(pl.col("objective").str.contains("trip by train|cheapest sleeper|by rail"))
    silences = trips["date"].unique().sort().diff().drop_nulls()
    assert silences.filter(silences > timedelta(days=1)).len() >= 2
    assert timedelta(days=5) <= silences.max() <= timedelta(days=8)
    flaky = rows.filter(pl.col("objective").str.contains("test_[a-z_]+"))
    assert flaky["date"].n_unique() == 21


def changed_rows(
    archive: pl.DataFrame, folder: Path, dirty: float
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The row before it and the row itself, wherever a dirty archive differs from the clean one."""
    clean = archive.to_dicts()
    soiled = read(write_sample(folder, traces=600, dirty=dirty)).to_dicts()
    return [
        (soiled[i - 1], soiled[i])
        for i, row in enumerate(clean)
        if json.dumps(row) != json.dumps(soiled[i])
    ]


@pytest.mark.parametrize(
    ("dirty", "count"),
    [(0.0, 0), (1e-9, 1), (0.001, 1), (0.0026, 2), (0.1, 60), (0.5, 300), (1.0, 600)],
)
def test_the_share_of_bad_rows_is_rounded(
    archive: pl.DataFrame, tmp_path: Path, dirty: float, count: int
) -> None:
    assert len(changed_rows(archive, tmp_path, dirty)) == count


def test_bad_rows_take_every_fault_in_turn(archive: pl.DataFrame, tmp_path: Path) -> None:
    pairs = changed_rows(archive, tmp_path, 0.1)
    assert [reject_codes(row) for _, row in pairs[:19]] == [
        {"missing_id"},
        {"wrong_type"},
        {"bad_created_at"},
        {"empty_domain"},
        {"missing_success", "bad_confidence"},
        {"empty_objective"},
        {"no_steps"},
        {"unknown_step_type"},
        {"bad_confidence"},
        set(),  # superseded
        {"missing_id"},
        {"bad_created_at"},
        {"empty_domain"},
        {"empty_objective"},
        {"no_steps", "bad_confidence"},
        {"no_steps"},
        {"unknown_step_type"},
        {"bad_confidence"},
        {"bad_confidence"},
    ]
    rows = [row for _, row in pairs]
    assert {None, ""} <= {row["id"] for row in rows}
    assert {None, "2026-02-30T08:00:00.000Z"} <= {row["metadata"]["created_at"] for row in rows}
    assert {None, ""} <= {row["metadata"]["task_domain"] for row in rows}
    assert {None, ""} <= {row["task"]["objective"] for row in rows}
    assert [row["steps"] for row in (rows[6], rows[14])] == [None, []]
    assert rows[15]["steps"][0] is None
    assert {rows[7]["steps"][0]["type"], rows[16]["steps"][0]["type"]} == {"reflection", None}
    assert math.isnan(rows[8]["outcome"]["confidence"])
    assert [rows[i]["outcome"]["confidence"] for i in (17, 18)] == [None, 1.5]


def test_a_superseding_row_bears_the_id_of_a_clean_row_before_it(
    archive: pl.DataFrame, tmp_path: Path
) -> None:
    superseding = changed_rows(archive, tmp_path, 0.1)[9::19]
    assert len(superseding) == 3
    for before, row in superseding:
        assert row["id"] == before["id"]
        assert reject_codes(before) == reject_codes(row) == set()
        assert row["task"]["objective"] != before["task"]["objective"]


@pytest.mark.parametrize(
    "wrong", [{"traces": -1}, {"seed": -1}, {"days": 0}, {"dirty": -0.1}, {"dirty": 1.1}]
)
def test_an_argument_out_of_range_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"got .*{name}={value}"):
        write_sample(tmp_path / "none", **{"traces": 5, **wrong})
    assert not (tmp_path / "none").exists()
