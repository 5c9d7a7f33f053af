import json
import warnings
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest

import kp_batch
from kp_batch.errors import TraceError
from kp_batch.operations import live
from kp_batch.operations.live import Session, compare_profiles, evaluate_value
from tests.support import GOLDEN
from tests.support.make.profiles import undated

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()]


def trace(objective: str = "Check the ledger", domain: str = "finance") -> dict[str, Any]:
    return {
        "metadata": {"task_domain": domain, "success": True},
        "task": {"objective": objective},
        "steps": [
            {"type": "thought", "content": "Where does it differ?"},
            {"type": "tool_call", "tool": {"name": "ledger"}},
            {"type": "tool_call", "tool": {"name": "bank"}},
        ],
        "outcome": {"confidence": 0.9},
    }


def expected(novelty: float) -> float:
    complexity = 2 / 4 * 0.5 + 0 + 3 / 20 * 0.2
    return complexity * 0.2 + novelty * 0.25 + 1.0 * 0.1 + 0.9 * 0.45


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """The session of a fresh process."""
    live.process_session.cache_clear()
    yield
    live.process_session.cache_clear()


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(embedder="hashing")
    monkeypatch.setattr(live, "process_session", cache(lambda: session))


@pytest.fixture
def without_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "find_spec", lambda _: None)


def cached() -> list[datetime]:
    """When the traces came that the process holds."""
    [*caches] = live.process_session()._caches.values()  # noqa: SLF001
    return [entry.created_at for each in caches for entry in each.came]


@pytest.mark.telling
@pytest.mark.model
def test_it_scores_as_the_live_engine_did() -> None:
    golden = zip(lines("traces.jsonl"), lines("expected_cap1000.jsonl"), strict=True)
    for record, wanted in list(golden)[:25]:
        now = datetime.fromisoformat(record["metadata"]["created_at"])
        profiles = undated()
        weight = profiles.get(record["metadata"]["task_domain"], profiles["default"]).novelty
        cut = max(0, wanted["novelty"] - 1) * (wanted["score"] != 0.1)
        score = wanted["score"] - weight * cut
        assert evaluate_value(record, now) == pytest.approx(score, abs=1e-6)


@pytest.mark.usefixtures("without_sentence_transformers")
def test_without_sentence_transformers_novelty_is_half_and_one_warning_says_so() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = [evaluate_value(record) for record in lines("traces.jsonl")]
        compared = compare_profiles(trace())
    assert scores == [wanted["score"] for wanted in lines("expected_no_embedder.jsonl")]
    assert compared["finance"] == expected(0.5)
    assert [
        "sentence-transformers is not installed" in str(warning.message) for warning in caught
    ] == [True]


@pytest.mark.usefixtures("hashing")
def test_after_a_reset_a_trace_is_as_new_as_at_first_and_any_time_will_do() -> None:
    first = evaluate_value(trace(), NOON)
    assert compare_profiles(trace())["finance"] == evaluate_value(trace(), NOON) < first
    kp_batch.reset()
    assert evaluate_value(trace(), NOON - SECOND) == first


@pytest.mark.usefixtures("hashing")
def test_each_call_adds_its_trace_to_the_cache() -> None:
    assert evaluate_value(trace(), NOON) == expected(0.5)
    assert evaluate_value(trace(), NOON) == pytest.approx(expected(0.0), abs=1e-7)
    new = evaluate_value(trace("Wholly other words"), NOON + SECOND)
    assert expected(0.3) < new < expected(1.0)
    assert cached() == [NOON, NOON, NOON + SECOND]


@pytest.mark.usefixtures("hashing")
def test_the_engine_has_no_ids() -> None:
    first = evaluate_value(trace() | {"id": "a"}, NOON)
    assert evaluate_value(trace() | {"id": "a"}, NOON) < first
    assert compare_profiles(trace() | {"id": "a"})["finance"] < first


@pytest.mark.usefixtures("hashing")
def test_comparing_profiles_does_not_touch_the_cache() -> None:
    evaluate_value(trace(), NOON)
    second = trace("Check the other ledger")
    compared = compare_profiles(second)
    assert compare_profiles(second) == compared
    assert cached() == [NOON]
    assert list(compared) == list(undated())
    assert evaluate_value(second, NOON) == compared["finance"]
    assert len(set(compared.values())) == 5


@pytest.mark.usefixtures("hashing")
@pytest.mark.parametrize("domain", [*undated(), "legal"])
def test_comparing_gives_every_profiles_score_whatever_the_domain(domain: str) -> None:
    record = trace(domain=domain)
    compared = compare_profiles(record)
    assert compared == compare_profiles(trace())
    assert evaluate_value(record, NOON) == compared.get(domain, compared["default"])


@pytest.mark.usefixtures("hashing")
def test_a_clock_that_runs_backwards_is_refused() -> None:
    evaluate_value(trace(), NOON)
    with pytest.raises(ValueError, match="clock runs backwards"):
        evaluate_value(trace(), NOON - SECOND)
    assert evaluate_value(trace(), NOON) == pytest.approx(expected(0.0), abs=1e-7)


@pytest.mark.usefixtures("hashing")
def test_a_time_without_a_zone_is_utc() -> None:
    evaluate_value(trace(), NOON.replace(tzinfo=None))
    assert cached() == [NOON]
    evaluate_value(trace(), NOON)
    with pytest.raises(ValueError, match="clock runs backwards"):
        evaluate_value(trace(), (NOON - SECOND).replace(tzinfo=None))


@pytest.mark.usefixtures("hashing")
def test_the_wall_clock_is_the_default() -> None:
    before = datetime.now(UTC)
    evaluate_value(trace())
    [came] = cached()
    assert before <= came <= datetime.now(UTC)
    with pytest.raises(ValueError, match="clock runs backwards"):
        evaluate_value(trace(), before - SECOND)


FAULTY = {
    "@type": "Trace",
    "metadata": {"task_domain": "", "success": "yes"},
    "task": {},
    "steps": [{"type": "idea"}, None],
    "outcome": {"confidence": 1.5},
}


@pytest.mark.parametrize(
    ("record", "codes"),
    [
        (
            FAULTY,
            (
                "wrong_type",
                "empty_domain",
                "missing_success",
                "empty_objective",
                "no_steps",
                "unknown_step_type",
                "bad_confidence",
            ),
        ),
        (
            {},
            ("empty_domain", "missing_success", "empty_objective", "no_steps", "bad_confidence"),
        ),
        (["no", "mapping"], ("malformed_json",)),
    ],
)
@pytest.mark.parametrize("call", [evaluate_value, compare_profiles])
@pytest.mark.usefixtures("hashing")
def test_a_trace_with_faults_is_refused_with_all_of_them(
    call: Any, record: Any, codes: tuple[str, ...]
) -> None:
    with pytest.raises(TraceError, match="cannot be scored") as caught:
        call(record)
    assert caught.value.reasons == codes
    assert all(f"{code}: " in str(caught.value) for code in codes)
    assert cached() == []


@pytest.mark.usefixtures("hashing")
def test_a_trace_is_left_as_it_was() -> None:
    record = trace()
    evaluate_value(record, NOON)
    compare_profiles(record)
    assert record == deepcopy(trace())
