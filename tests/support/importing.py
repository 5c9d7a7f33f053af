"""Sources that tests import."""

import json
from pathlib import Path
from typing import Any

import polars as pl


def kp_trace(name: str, day: int = 1, **changes: Any) -> dict[str, Any]:
    """A trace as a KnowledgePulse registry writes it."""
    return {
        "@type": "ReasoningTrace",
        "id": f"kp:trace:{name}",
        "metadata": {
            "created_at": f"2026-03-{day:02d}T10:00:00.000Z",
            "task_domain": "code",
            "success": True,
            "quality_score": 0.5,
            "visibility": "network",
        },
        "task": {"objective": f"do {name}"},
        "steps": [
            {"step_id": 0, "type": "thought", "content": "so"},
            {"step_id": 1, "type": "tool_call", "tool": {"name": "look"}, "input": {"at": 1}},
        ],
        "outcome": {"result_summary": "done", "confidence": 0.9},
        **changes,
    }


def write_json(path: Path, value: object) -> Path:
    """Write a file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def imported(archive: Path) -> dict[str, dict[str, Any]]:
    """The traces of an archive, by their ids; each stands in the file of its day."""
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(archive.glob("*.parquet")):
        for row in pl.read_parquet(path, glob=False).to_dicts():
            assert row["metadata"]["created_at"].startswith(path.stem)
            assert row["id"] not in rows
            rows[row["id"]] = row
    return rows


def refusals(archive: Path, kind: str = "refused") -> list[dict[str, Any]]:
    """The lines of `_refused.jsonl`, or of `_waiting.jsonl`."""
    text = (archive / f"_{kind}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]
