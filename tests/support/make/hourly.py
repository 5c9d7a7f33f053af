"""Traces an hour apart, whose caches are known."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.make.archives import step, trace, write_jsonl, write_parquet
from tests.support.make.runs import config
from tests.support.read.folders import keep

WORDS = (
    "fix the import",
    "sum the rows",
    "fix the export",
    "!",
    "fix the import",
    "plan a trip",
    "!",
    "sum all rows",
)


def said(number: int, words: str, **more: Any) -> dict[str, Any]:
    """The trace t`number`, an hour after the one before, whose text is `words words`."""
    moment = datetime.fromisoformat("2026-01-05T20:00:00Z") + timedelta(hours=number)
    own = {"id": f"t{number}", "created_at": moment.isoformat(), "objective": words}
    return trace(**{**own, "steps": [step("thought", words), step("observation")], **more})


def settings_of(folder: Path, **changes: Any) -> RescoreConfig:
    return config(folder, folder / "archive", **{"cache_size": 3, "max_reject_share": 1, **changes})


def write(folder: Path, *numbers: int, name: str = "a.jsonl", **changes: Any) -> None:
    traces = [said(number, WORDS[number], **changes) for number in numbers]
    writing = write_jsonl if name.endswith("jsonl") else write_parquet
    writing(folder / "archive" / name, traces)


def eight_kept(folder: Path) -> Path:
    """A warehouse of the traces of `WORDS`, kept as it is, for `restore`."""
    write(folder, *range(8))
    rescore_archive(settings_of(folder))
    keep(folder)
    return folder


def of_several_caches(folder: Path) -> int:
    """A trace a day, of two agents and of none, on two hosts and on none."""
    first = datetime.fromisoformat("2026-01-05T08:00:00Z")
    for place in ("host=a/a.jsonl", "host=b/b.jsonl", "c.jsonl"):
        traces = [
            said(
                number,
                WORDS[number % 8],
                created_at=(first + timedelta(days=number)).isoformat(),
                agent_id=("x", "y", None)[number // 3 % 3],
            )
            for number in range(36)
            if number % 3 == "abc".index(place[-7])
        ]
        write_jsonl(folder / "archive" / place, traces)
    rescore_archive(settings_of(folder, cache_size=2, cache_by="agent_id+host"))
    return 36
