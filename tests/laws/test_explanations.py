"""Scores are explained, and new traces scored, as plain loops over the archive do."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from kp_batch.operations.explain import explain
from kp_batch.operations.redundancy import redundancy
from kp_batch.operations.score import Scored, score_lines
from kp_batch.operations.similar import SimilarTraces, similar_to_lines, similar_to_trace
from kp_batch.operations.warehouse_cache import warehouse_cache
from tests.support.make.archives import lines
from tests.support.oracle.answers import is_near
from tests.support.oracle.comparisons import parts
from tests.support.oracle.explanations import (
    breakdown,
    by_profile,
    contents,
    counts,
    met,
    nearest_of_all,
    neighbours,
    newcomer,
    repeating,
)
from tests.support.oracle.exports import reread
from tests.support.oracle.history import History
from tests.support.oracle.scoring import Score, text_of, vectors_of

pytestmark = pytest.mark.slow

SAID = ("task_domain", "agent_id", "framework", "success", "source_file", "recorded_score")
TOKENLESS, DAY = "?!", timedelta(days=1)


@pytest.mark.telling
def test_law_every_score_is_explained_by_its_sum_and_its_cache(history: History) -> None:
    for row in history.last.scores[::2]:
        assert_explained(history, row)


def test_law_so_is_one_of_a_drawn_archive(by_chance: History) -> None:
    for row in by_chance.last.scores[::6]:
        assert_explained(by_chance, row)


def assert_explained(history: History, row: Score) -> None:
    state, own = history.last, asdict(explain(history.warehouse, row["trace_id"]))
    assert {name: own[name] for name in SAID} == {name: row[name] for name in SAID}
    trace = reread(state, history.present(), row["trace_id"])
    same = [each for each in state.scores if each["objective_hash"] == row["objective_hash"]]
    assert own["same_objective"] == len(same) - 1
    assert own["unread"] == (trace if isinstance(trace, str) else None)
    if own["unread"] is None:
        assert own["objective"] == trace["task"]["objective"]
        assert_like(own["counts"], counts(trace))
    assert own["threshold"] == state.settings.threshold
    assert_like(own["breakdown"], breakdown(row, state.settings))
    assert_like(own["by_profile"], by_profile(row, state.settings))
    entries = met(state, row)
    wanted = contents(state, entries) | {"capacity": state.settings.cache_size}
    assert {name: own["cache"][name] for name in wanted} == wanted
    assert own["max_similarity"] == row["max_similarity"]
    near = neighbours(state, entries, row["vector"], row["created_at"])
    assert [{name: each[name] for name in near[0]} for each in own["neighbours"]] == near
    texts = {each["trace_id"]: each["text_hash"] for each in state.scores}
    for each in own["neighbours"]:
        assert each["is_same_text"] == (texts[each["trace_id"]] == row["text_hash"])
    assert_history(history, row["trace_id"], own["history"])


def assert_history(history: History, trace_id: str, changes: list[dict[str, Any]]) -> None:
    """Each has the score of its run, and what moved it since the one below."""
    states = {state.run_id: state for state in history.states}
    rows = {
        state.run_id: row
        for state in history.states
        for row in state.scores
        if row["trace_id"] == trace_id
    }
    runs = [change["run_id"] for change in changes]
    assert runs == [run for run in reversed(history.statuses) if run in runs]
    assert changes[0]["score"] == rows[history.last.run_id]["score"]
    for change, before in zip(changes, [*runs[1:], None], strict=True):
        now = rows[change["run_id"]]
        assert change["score"] == now["score"]
        if before is None:
            assert change["change"] is None
            continue
        assert_like(change, {"change": now["score"] - rows[before]["score"]})
        moved = parts(rows[before], now, states[before], states[change["run_id"]])
        assert_like(change, moved)


def assert_like(own: Any, wanted: Any) -> None:
    """Equal where something is stated, numbers nearly."""
    if isinstance(wanted, Mapping):
        for name, value in wanted.items():
            assert_like(own[name], value)
    elif isinstance(wanted, list):
        assert len(own) == len(wanted)
        for one, other in zip(own, wanted, strict=True):
            assert_like(one, other)
    else:
        assert is_near(own, wanted), (own, wanted)


def test_law_a_new_trace_is_scored_as_if_it_came_next(history: History) -> None:
    assert_scored_next(history)


def test_law_a_new_trace_is_scored_as_a_run_would_next_to_a_drawn_archive(
    by_chance: History,
) -> None:
    assert_scored_next(by_chance)


def assert_scored_next(history: History) -> None:
    state = history.last
    folder: dict[str, str | None] = {"host": "a"} if "host" in state.settings.cache_by else {}
    rows = {row.value["id"]: row.value for row in state.count.accepted}
    moments = sorted({row["created_at"] for row in state.scores})
    at = [moments[0] - timedelta(seconds=1), moments[len(moments) // 2], moments[-1]]
    for moment in (
        *at,
        moments[-1] + timedelta(minutes=59, seconds=59),
        moments[-1] + timedelta(1),
    ):
        known = list(rows.values())[:: max(1, len(rows) // 6)]
        new = [{**known[0], "id": "new"}, _without_tokens(known[-1]), *known]
        with warehouse_cache(history.warehouse, moment, folder) as (profiles, meet):
            answers = list(score_lines(lines(*new), profiles, moment, meet))
        for answer, trace in zip(answers, new, strict=True):
            assert isinstance(answer, Scored)
            wanted = newcomer(state, trace, moment, _group(history, trace, folder))
            own = asdict(answer)
            assert (own["score"], own["max_similarity"]) == (
                wanted["score"],
                wanted["max_similarity"],
            )
            assert list(own["neighbours"]) == wanted["neighbours"]
            assert_like(own["breakdown"], breakdown(wanted, state.settings))
            assert_like(own["by_profile"], by_profile(wanted, state.settings))
            assert_like(own["counts"], counts(trace))


@pytest.mark.telling
def test_law_the_nearest_are_those_of_the_whole_archive(history: History) -> None:
    assert_nearest(history)


def test_law_so_they_are_of_a_drawn_archive(by_chance: History) -> None:
    assert_nearest(by_chance)


def assert_nearest(history: History) -> None:
    state = history.last
    for row in state.scores[:: max(1, len(state.scores) // 12)]:
        own = asdict(similar_to_trace(history.warehouse, row["trace_id"], 3))
        assert (own["compared"], own["other_encoders"], own["missing"]) == (len(state.scores), 0, 0)
        assert own["is_zero"] == (not row["vector"].any())
        assert list(own["nearest"]) == nearest_of_all(state, row, row["created_at"], 3)
    moment = state.scores[0]["created_at"]
    new = [row.value for row in state.count.accepted][:: max(1, len(state.scores) // 6)]
    new = [{**new[0], "id": "new"}, _without_tokens(new[-1]), *new]
    answers = similar_to_lines(history.warehouse, lines(*new), moment, 1_000)
    for line, (answer, trace) in enumerate(zip(answers, new, strict=True), 1):
        assert isinstance(answer, SimilarTraces)
        text = text_of(trace)
        vectors = vectors_of([text], state.settings.embedder)
        assert vectors
        digest = hashlib.sha256(text.encode()).hexdigest()
        row = {"trace_id": trace["id"], "text_hash": digest, "vector": vectors[0]}
        wanted = nearest_of_all(state, row, moment, 1_000)
        assert (answer.line, answer.trace_id) == (line, trace["id"])
        assert list(asdict(answer)["nearest"]) == wanted


@pytest.mark.parametrize("similarity", [0.3, 0.6, 0.95, 1.0])
def test_law_all_that_nearly_repeat_an_earlier_trace_are_counted(
    history: History, similarity: float
) -> None:
    assert_redundancy(history, similarity)


def test_law_so_they_are_of_a_drawn_archive_too(by_chance: History) -> None:
    assert_redundancy(by_chance, 0.7)


def assert_redundancy(history: History, similarity: float) -> None:
    state = history.last
    own = asdict(redundancy(history.warehouse, similarity))
    wanted = repeating(state, similarity)
    assert {name: own[name] for name in wanted} == wanted
    assert own["traces"] == len(state.scores)


def _without_tokens(trace: Any) -> Any:
    steps = [{**step, "content": None} for step in trace["steps"]]
    return {**trace, "id": "none", "task": {"objective": TOKENLESS}, "steps": steps}


def _group(history: History, trace: Mapping[str, Any], folder: Mapping[str, Any]) -> str | None:
    names = sorted(history.last.settings.cache_by)
    values = {name: trace["metadata"].get(name, folder.get(name)) for name in names}
    return json.dumps(values, separators=(",", ":")) if values else None


def test_a_text_without_a_token_has_no_vector_to_compare() -> None:
    vectors = vectors_of([TOKENLESS], "hashing")
    assert vectors
    assert not vectors[0].any()
