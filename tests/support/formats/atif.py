"""ATIF trajectories."""

from typing import Any


def at(second: int) -> str:
    return f"2026-05-01T09:00:{second:02d}.123456789Z"


def user(text: object, **more: Any) -> dict[str, Any]:
    return {"source": "user", "message": text, **more}


def agent(text: object = "", **more: Any) -> dict[str, Any]:
    return {"source": "agent", "message": text, **more}


def trajectory(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": n, **step} for n, step in enumerate(steps, 1)]
    head = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a"}}
    return {**head, "steps": numbered, **more}


def short(**more: Any) -> dict[str, Any]:
    return trajectory(user("do it", timestamp=at(1)), agent("done"), **more)


def result(**more: Any) -> dict[str, Any]:
    return {
        "trial_name": "t__1",
        "task_name": "t",
        "source": "shop",
        "started_at": "2026-05-01T08:00:00Z",
        "agent_execution": {"started_at": "2026-05-01T08:30:00Z"},
        "verifier_result": {"rewards": {"reward": 1, "part": 0.25}},
        **more,
    }
