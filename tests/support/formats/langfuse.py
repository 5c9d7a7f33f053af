"""Langfuse's observations."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


ASK = {"role": "user", "content": "find it"}


def at(second: float) -> str:
    return f"2026-08-03 09:00:{second:09.6f}"


def observation(name: str, second: float, **changes: Any) -> Row:
    return {
        "id": name,
        "trace_id": "t",
        "type": "GENERATION",
        "parent_observation_id": "root",
        "start_time": at(second),
        "end_time": at(second + 0.5),
        "name": name,
        "level": "DEFAULT",
        "input": "",
        "output": "",
        "updated_at": "2026-08-03 10:00:00.000000",
        "created_at": "2026-08-04 00:00:00.000000",
        "tool_calls": [],
        "tool_call_names": [],
        "metadata": {},
        "tags": ["new", "bill"],
        **changes,
    }


def root(**changes: Any) -> Row:
    usual: Row = {"type": "AGENT", "parent_observation_id": "", "input": "find it"}
    return observation("root", 0, **{**usual, "end_time": at(59), **changes})


def lines(path: Path, rows: Sequence[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


CONVERSATION = [
    root(),
    observation(
        "ask",
        1,
        input=json.dumps([ASK]),
        output=json.dumps({"role": "assistant", "content": "so", "tool_calls": [CALL]}),
    ),
    observation("look", 2, type="TOOL", input='{"at": 1}', output='{"a": 1}', metadata={"x": "y"}),
    observation(
        "answer",
        3,
        input=json.dumps(
            {
                "messages": [
                    ASK,
                    {"role": "assistant", "content": "so", "tool_calls": [CALL]},
                    {"role": "tool", "tool_call_id": "c1", "content": '{"a": 1}'},
                ]
            }
        ),
        output="there",
    ),
]


def manifest(*keys: str) -> object:
    return {"version": 1, "files": [{"key": key} for key in keys]}
