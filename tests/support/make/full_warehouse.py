"""A warehouse in which every question has an answer."""

from pathlib import Path
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.make.archives import record_scores, step, trace, write_jsonl
from tests.support.make.sample import write_sample


def answering_warehouse(folder: Path) -> Path:
    """Make it in a folder, by two runs, whose scores differ."""
    write_sample(folder / "archive", traces=400, days=12, seed=5, dirty=0.05)
    record_scores(folder / "archive", seed=5)
    late = [trace(id=f"kp:trace:{n}", created_at=f"2026-03-{n:02d}T23:30:00Z") for n in (1, 5)]
    ties = [trace(id=f"kp:trace:tie-{n}", created_at="2026-03-09T00:00:00Z") for n in range(3)]
    write_jsonl(folder / "archive" / "late.jsonl", [*late, *ties])
    write_jsonl(folder / "archive" / "recorded.jsonl", recorded())
    where = folder / "warehouse"
    for ttl in ("none", "1d"):
        rescore_archive(
            RescoreConfig(
                archive=(str(folder / "archive"),),
                warehouse=where,
                embedder="hashing",
                ttl=ttl,
                cache_by="agent_id",
                threshold=0.6,
                max_reject_share="100%",
            )
        )
    return where


def recorded() -> list[dict[str, Any]]:
    """Traces with recorded scores: equal ones, placeholders, and a day of nothing else.

    The first one's is that of an empty cache.
    """
    restarted = {"id": "kp:trace:restarted", "created_at": "2026-03-05T12:00:00Z"}
    others = [
        trace(
            id=f"kp:trace:recorded-{n:02d}",
            created_at=f"2026-03-{2 + n % 3:02d}T12:{n:02d}:00Z",
            task_domain=("code", "finance")[n % 2],
            confidence=n / 30,
            objective=f"Fix {n % 4}",
            steps=[step("thought", "so")] * (1 + n % 2),
            quality_score=(0 if n % 3 == 2 else (None, 0, 0.3, 0.3, 0.5, 0.7, 0.9)[n % 7]),
        )
        for n in range(30)
    ]
    return [trace(**restarted, objective="Fix 1", quality_score=0.564), *others]
