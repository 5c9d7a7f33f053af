"""A run's row in `runs`, read once, and how it differs from another run's."""

import json
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kp_batch.schemas import RUNS
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.warehouse.run_record import (
    RunCounts,
    RunRecord,
    done_runs,
    incomparable,
    last_done,
    profile_name,
)

JSON: dict[str, Any] = {
    "config": {"embedder": "minilm", "cache_size": 1000, "ttl": "none", "threshold": 0.75},
    "inputs": [{"path": "a.jsonl"}],
    "counts": {
        **{field.name: 1 for field in fields(RunCounts)},
        "rejected_by_code": {"no_steps": 1},
        "unreadable_files": ["a.jsonl"],
    },
    "seconds": {"embed": 1.5},
    "versions": {"facts": 1, "encoder": 1, "replay": 1, "scoring": 1, "numpy": "2.4"},
    "fingerprints": {"encoder_id": {"minilm-1": 9}, "profile_id": {"code-0-v1": 9}},
    "published": {"settings": {"threshold": 0.75}, "number": 3, "publication": "a" * 32},
    "changes": [{"code": "new_warehouse", "words": "a new warehouse"}],
    "audits": [{"name": "a", "severity": "warn", "rows": 1, "allowed": False}],
}
START = datetime(2026, 1, 2, tzinfo=UTC)
PLAIN: dict[str, Any] = {
    "run_id": "run-1",
    "started_at": START,
    "finished_at": START + timedelta(minutes=1),
    "status": "done",
    "reason": None,
    "note": "the new weights",
    "user": "ana",
}
ROW = PLAIN | {name: json.dumps(value) for name, value in JSON.items()}
RUN = RunRecord.of(ROW)


def published(run_id: str, number: int, status: str = "done") -> RunRecord:
    return replace(RUN, run_id=run_id, published={"number": number}, status=status)


def test_a_record_is_its_row_with_the_json_read() -> None:
    assert set(ROW) == set(RUNS)
    wanted = {name: value for name, value in (PLAIN | JSON).items() if name != "inputs"}
    assert asdict(RUN) == wanted | {"audits": ({**JSON["audits"][0], "first": (), "digest": ""},)}
    assert RUN.embedder == "minilm"
    assert RunRecord.of(ROW | {"mixed": False}) == RUN


def test_the_last_run_is_the_done_one_that_was_published_last() -> None:
    a, b, c = published("c", 1), published("a", 2), published("b", 10)
    failed = published("z", 12, "failed")
    assert done_runs([failed, c, a, b]) == [a, b, c]
    assert last_done([c, failed, b, a]) == c
    assert last_done([failed]) is last_done([]) is None


@pytest.mark.parametrize("name", ["code", "customer_service", "my-own-domain", "-", "a-0-v1"])
def test_the_name_in_a_profile_id_is_the_profiles_name(name: str) -> None:
    assert profile_name(WeightProfile(name, 0.25, 0.25, 0.25, 0.25).profile_id) == name


def test_runs_differ_by_formulas_and_encoders_alone() -> None:
    other = replace(
        RUN,
        versions=RUN.versions | {"facts": 2, "numpy": "2.5"},
        fingerprints=RUN.fingerprints | {"encoder_id": {"hashing-1": 4, "minilm-1": 5}},
    )
    assert incomparable(RUN, RUN) == []
    assert [reason.words for reason in incomparable(RUN, other)] == [
        "formula of facts 1 \N{RIGHTWARDS ARROW} 2",
        "encoder minilm-1 \N{RIGHTWARDS ARROW} hashing-1, minilm-1",
    ]
