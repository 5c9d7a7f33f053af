"""What the live TypeScript engine returned, see golden/README.md."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.validation import reasons
from kp_batch.config import RescoreConfig
from kp_batch.embedding.minilm import MiniLM
from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.replay import replay
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.facts import with_facts
from kp_batch.scoring.profiles import load_profiles
from tests.support import GOLDEN
from tests.support.make.archives import write_jsonl
from tests.support.make.profiles import undated
from tests.support.read.queries import ask

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACT = ("complexity", "tool_diversity", "outcome_confidence")
CACHES = {
    "cap1000": (1_000, None),
    "cap8": (8, None),
    "cap1000_ttl1h": (1_000, HOUR),
    "cap8_ttl1h": (8, HOUR),
}
every_cache = pytest.mark.parametrize("name", CACHES)


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()]


def expected(name: str) -> pl.DataFrame:
    schema = dict.fromkeys(("complexity", "novelty", "tool_diversity"), pl.Float64)
    schema |= dict.fromkeys(("outcome_confidence", "score"), pl.Float64)
    return pl.DataFrame(lines(f"expected_{name}.jsonl"), schema={"id": pl.String, **schema})


@cache
def traces() -> pl.DataFrame:
    rows = rows_from_objects("traces.jsonl", enumerate(lines("traces.jsonl")))
    return with_facts(rows, reasons())


@cache
def vectors() -> npt.NDArray[np.float32]:
    return MiniLM().encode(traces().get_column("text").to_list())


def times() -> npt.NDArray[np.int64]:
    return traces().get_column("created_at").to_physical().to_numpy()


def scored(novelty: npt.ArrayLike) -> pl.DataFrame:
    frame = traces().with_columns(novelty=pl.Series(novelty, dtype=pl.Float64))
    weighted = frame.with_columns(assign(load_profiles()))
    return weighted.with_columns(composite(load_profiles().profiles)).with_columns(score())


def clamped(wanted: pl.DataFrame) -> pl.DataFrame:
    """Novelty within [0, 1], and the score without what that cuts."""
    inside = pl.col("novelty").clip(0, 1)
    weights = [
        undated().get(domain, undated()["default"]).novelty
        for domain in traces().get_column("task_domain")
    ]
    moved = (inside - pl.col("novelty")) * pl.Series(weights)
    unless = ~traces().get_column("single_thought")
    return wanted.with_columns(inside, score=pl.col("score") + moved * pl.lit(unless))


def assert_as_expected(novelty: npt.ArrayLike, name: str) -> None:
    actual, wanted = scored(novelty), clamped(expected(name))
    for column in ("novelty", "score"):
        difference = actual.get_column(column) - wanted.get_column(column)
        worst = int(difference.abs().arg_max() or 0)
        assert abs(difference[worst]) <= 1e-6, (column, wanted.row(worst, named=True))


def test_the_traces_are_in_replay_order() -> None:
    frame = traces().select("created_at", "trace_id")
    assert len(frame) == 118
    assert frame.equals(frame.sort("created_at", "trace_id"))


def test_the_traces_reach_every_override_and_profile() -> None:
    overrides = traces().select(pl.col(pl.Boolean).exclude("success").any())
    assert overrides.row(0) == (True, True, True)
    assert set(undated()) <= {*traces().get_column("task_domain"), "default"}


@pytest.mark.parametrize("name", [*CACHES, "no_embedder"])
def test_all_but_novelty_is_exactly_the_live_engines(name: str) -> None:
    wanted = expected(name)
    assert traces().get_column("trace_id").to_list() == wanted.get_column("id").to_list()
    assert traces().select(EXACT).rows() == wanted.select(EXACT).rows()


def test_without_an_embedder_the_score_is_exactly_the_live_engines() -> None:
    wanted = expected("no_embedder")
    assert wanted.get_column("novelty").unique().to_list() == [0.5]
    assert (
        scored(wanted.get_column("novelty")).get_column("score").equals(wanted.get_column("score"))
    )


@every_cache
def test_the_live_engines_novelty_gives_exactly_its_score(name: str) -> None:
    """Unclamped, so that nothing but the composite and its overrides is looked at."""
    wanted = expected(name)
    assert (
        scored(wanted.get_column("novelty")).get_column("score").equals(wanted.get_column("score"))
    )


@pytest.mark.telling
@pytest.mark.model
@every_cache
def test_the_replay_scores_as_the_live_engine_did(name: str) -> None:
    max_elements, ttl = CACHES[name]
    assert_as_expected(replay(vectors(), times(), max_elements=max_elements, ttl=ttl).novelty, name)


@pytest.mark.telling
@pytest.mark.model
def test_what_the_live_engine_recorded_is_reproduced_and_a_wrong_ttl_shows(tmp_path: Path) -> None:
    recorded = {line["id"]: line["score"] for line in lines("expected_cap1000_ttl1h.jsonl")}
    rows = lines("traces.jsonl")
    for row in rows:
        row["metadata"]["quality_score"] = recorded[row["id"]]
    write_jsonl(tmp_path / "a.jsonl", rows)
    where = {"archive": (str(tmp_path / "a.jsonl"),), "warehouse": tmp_path / "warehouse"}
    rescore_archive(RescoreConfig(**where, ttl="1h"))
    far = "SELECT trace_id FROM largest_score_differences WHERE abs(difference) > 1e-6"
    assert ask(where["warehouse"], far).is_empty()
    rescore_archive(RescoreConfig(**where, ttl="none"))
    differences = ask(
        where["warehouse"], "FROM largest_score_differences WHERE abs(difference) > 1e-6"
    )
    assert len(differences) == 7
    # Its novelty alone explains each, so that cache, clock or model were others.
    assert differences["implied_novelty"].is_between(-1e-6, 1 + 1e-6).all()
    days = ask(where["warehouse"], "FROM recorded_score_differences")
    assert days["traces"].sum() == sum(value != 0 for value in recorded.values())
    assert (days["mean_absolute_difference"] > 1e-4).any()


@pytest.mark.telling
@pytest.mark.model
@every_cache
def test_the_cache_scores_as_the_live_engine_did(name: str) -> None:
    max_elements, ttl = CACHES[name]
    vector_cache = VectorCache(max_elements, ttl=ttl)
    similarities: list[float | None] = []
    for vector, time in zip(vectors(), times().tolist(), strict=True):
        now = EPOCH + timedelta(microseconds=time)
        similarities.append(vector_cache.max_cosine_similarity(vector, now))
        vector_cache.add(vector, now)
    novelty = [
        0.5 if similarity is None else min(1.0, max(0.0, 1.0 - similarity))
        for similarity in similarities
    ]
    assert_as_expected(novelty, name)
    assert (
        novelty == replay(vectors(), times(), max_elements=max_elements, ttl=ttl).novelty.tolist()
    )
