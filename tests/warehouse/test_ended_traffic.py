"""A domain whose score falls only as another one's traffic ends: novelty, and no agent's doing."""

import re
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.data import gather
from kp_batch.report.findings import findings
from kp_batch.report.labels import ALL
from kp_batch.report.parts import with_parts
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.oracle.answers import ask_records

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
WEEKS = 8
ENDS = 6  # the first week without the other domain
CODE, LAW = 120, 600  # traces a week
WORDS = {
    "code": [f"module{number}" for number in range(14)],
    "law": [f"clause{number}" for number in range(400)],
}


def planted(seed: int = 1) -> list[dict[str, Any]]:
    """Two agents do the same work as well as ever; the other domain fills the cache, then ends."""
    chance, numbers = Random(seed), count()
    return [
        trace(
            id=f"kp:trace:{next(numbers)}",
            created_at=(BEGIN + timedelta(weeks=week, minutes=10_000 * place / size)).isoformat(),
            task_domain=domain,
            agent_id=chance.choice("ab"),
            objective=f"{domain}{chance.randrange(200)}",
            confidence=0.7,
            success=place % 10 < 7,
            steps=[step("thought", " ".join(chance.sample(WORDS[domain], 5))) for _ in range(2)],
        )
        for week in range(WEEKS)
        for domain, size in (("code", CODE), ("law", LAW if week < ENDS else 0))
        for place in range(size)
    ]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ended")
    archive = write_jsonl(folder / "a.jsonl", planted())
    own = RescoreConfig(
        archive=(str(archive),), warehouse=folder / "wh", embedder="hashing", cache_size=120
    )
    rescore_archive(own)
    return own.warehouse


@pytest.mark.slow
def test_the_change_is_of_novelty_as_the_domain_fills_its_own_cache(warehouse: Path) -> None:
    query = "FROM changes_by('task_domain', 'week', ['score', 'cache_share_of_domain'])"
    with connect(warehouse) as connection:
        rows = ask_records(connection, query)
    score, share = (
        row
        for row in rows
        if (row["task_domain"], row["begins"]) == ("code", (BEGIN + timedelta(weeks=ENDS)).date())
    )
    assert score["adjusted_p_value"] < 0.05
    assert score["high"] < 0
    parts = {name: value for name, value in score["parts"].items() if name != "novelty"}
    assert score["parts"]["novelty"] < -0.01
    assert all(abs(value) < 0.003 for value in parts.values()), parts
    assert sum(score["parts"].values()) == pytest.approx(score["change"], abs=1e-9)
    assert share["mean_before"] < 0.3
    assert share["mean"] > 0.5


@pytest.mark.slow
def test_the_report_says_that_it_is_novelty_and_blames_no_agent(warehouse: Path) -> None:
    with connect(warehouse) as connection:
        found = findings(with_parts(connection, gather(connection)), ALL)
    [moved] = [finding for finding in found if finding.code == "domain_moved"]
    ended = [f"{BEGIN + timedelta(weeks=week):%Y-%m-%d}" for week in (ENDS, ENDS + 1)]
    assert moved.sentence.startswith(
        tuple(f"In the week starting {day} code scored" for day in ended)
    )
    assert re.search(r"from its previous four weeks: -0\.\d{3} from novelty", moved.sentence)
    assert re.search(r"\d+% of its cache, up from \d\d%, which alone can lower", moved.sentence)
    assert not [each for each in found if each.code.startswith(("paired", "ranking"))]
    assert len(found) <= 5


@pytest.mark.slow
def test_no_agent_did_worse_than_the_other(warehouse: Path) -> None:
    with connect(warehouse) as connection:
        rows = ask_records(
            connection, "FROM differences_from_others('agent_id', ['score', 'success'])"
        )
    assert len(rows) == 8
    assert all(row["low"] < 0 < row["high"] < row["low"] + 0.2 for row in rows)
