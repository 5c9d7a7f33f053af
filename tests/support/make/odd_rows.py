"""Traces of every shape that a file may hold, good and bad."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support import GOLDEN
from tests.support.make.archives import SCHEMA, retyped, step, trace, write_jsonl, write_parquet

TYPES = ("thought", "tool_call", "observation", "error_recovery")
BOTH: list[Any] = [
    trace(),
    *(trace(steps=[step(kind)]) for kind in (*TYPES, None, "", "guess")),
    trace(steps=[step(kind, kind, kind) for kind in TYPES]),
    trace(steps=[step("thought")] * 30),
    *(trace(steps=[step("error_recovery", "again")] * n, success=n % 2 == 1) for n in range(1, 6)),
    trace(steps=[step("error_recovery")] * 3, success=None),
    trace(steps=[step("tool_call", None, name) for name in ("a", "A", "", None, "a", " ", "é")]),
    trace(steps=[step("tool_call", "x", "a"), step("thought", tool="a")]),
    trace(steps=[step("thought", "x", "a")]),
    trace(steps=[step("thought"), None, step("thought", "x")]),
    trace(steps=[None]),
    trace(steps=[]),
    trace(steps=None),
    *(
        trace(objective=text)
        for text in ("", None, " ", "\0", "a\0b", "ä 日本 😀\u2028", "x" * 9_999)
    ),
    *(trace(steps=[step(content=text)]) for text in ("", "\0", "\n\t", '"],["', "é", "e\u0301")),
    *(trace(confidence=at) for at in (-0.0, 0.0, 5e-324, 0.1 + 0.2, 1.0, None)),
    *(trace(confidence=at) for at in (math.nan, math.inf, -math.inf, -1.0, 1.5)),
    *(trace(confidence=0.7, success=success) for success in (True, False, None)),
    *(trace(id=each) for each in (None, "", "\0", "ü", "kp:trace:2")),
    *(trace(type=each) for each in (None, "", "Trace")),
    *(trace(task_domain=each) for each in (None, "", "Code", "code ")),
    trace(agent_id=None, framework=None),
    *(trace(quality_score=at) for at in (None, 0.0, 0.25, -1.0, math.nan, math.inf)),
    *(
        trace(created_at=at)
        for at in (
            *("2026-01-05", "2026-01-05T08:00", "2026-01-05T08:00:00.1234569+02:00"),
            *("1969-12-31T23:59:59.999999Z", "0001-01-01", "9999-12-31T23:59:59.5Z"),
            *("0000-01-01", "2026-02-30", "2026-01-05T25:00", "yesterday", "", None),
        )
    ),
    {**trace(), "metadata": None, "task": None, "outcome": None},
]
JSON_ALONE: list[Any] = [
    *({}, [], None, 1, "text", b"{", b"", b"\xff", b'{"id": "a"}', b'{"id": "\\ud800"}'),
    *(trace(id=each) for each in (12, 1.5, True, ["a"], "\ud800")),
    *(trace(type=each) for each in (1, ["ReasoningTrace"])),
    *(trace(created_at=each) for each in (1_767_600_000, {"at": 1})),
    *(trace(success=each) for each in (1, "true")),
    *(trace(quality_score=each) for each in (1, "0.5", True, 10**400, {"at": 1})),
    *(trace(confidence=each) for each in (1, 0, "0.5", True, 10**400, -(10**400))),
    trace(agent_id=7, framework=[], steps=[step(1), step("thought", {"a": [1.5, "\udc00"]})]),
    trace(steps=[step("thought", [False]), "thought", [step()], {**step(), "tool": "python"}]),
    trace(steps=[step("thought", tool=7), step("thought", tool=["a"])]),
    trace(steps={"type": "thought"}),
    {**trace(), "metadata": [], "task": "Fix", "outcome": 0.5},
]
PARQUET_ALONE = {
    "metadata/created_at": (pa.timestamp("ns"), datetime(2026, 1, 5, 8, 0, 0, 250_001, UTC)),
    "outcome/confidence": (pa.float32(), 0.1),
    "id": (pa.int64(), 12),
    "steps": (pa.null(), None),
}


def write_odd_rows(folder: Path) -> list[Path]:
    """Write them as JSONL, as Parquet, and as Parquet of other column types; return the files."""
    golden = GOLDEN / "traces.jsonl"
    paths = [
        write_jsonl(folder / "a.jsonl", golden.read_bytes().splitlines()),
        write_jsonl(folder / "b.jsonl", [*BOTH, *JSON_ALONE]),
        write_parquet(folder / "c.parquet", list(map(json.loads, golden.read_text().splitlines()))),
        write_parquet(folder / "d.parquet", BOTH),
    ]
    for path, (kind, value) in PARQUET_ALONE.items():
        name = path.rpartition("/")[2]
        schema = retyped(SCHEMA, path, kind)
        paths.append(write_parquet(folder / f"{name}.parquet", [trace(**{name: value})], schema))
    return paths
