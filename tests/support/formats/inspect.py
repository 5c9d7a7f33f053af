"""Inspect's logs, and transcripts as Scout's database has them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pyarrow as pa

USER = {"id": "m0", "role": "user", "source": "input", "content": "add 1 and 2"}


CALL = {"id": "c0", "function": "add", "arguments": {"of": [1, 2]}, "view": {"content": "1 + 2"}}


TALK = [
    {"id": "s", "role": "system", "content": "be brief"},
    USER,
    {"id": "m1", "role": "assistant", "content": "I add", "tool_calls": [CALL]},
    {"id": "m2", "role": "tool", "tool_call_id": "c0", "function": "add", "content": '{"is": 3}'},
    {"id": "m3", "role": "assistant", "content": "3"},
]


FIRST = {"event": "sample_init", "timestamp": "2025-01-02T03:04:05.123456-04:00"}


def sample(name: str | None = "one", **changes: Any) -> dict[str, Any]:
    """A sample as logs have it."""
    row = {
        "id": 7,
        "epoch": 2,
        "input": "add 1 and 2",
        "messages": TALK,
        "scores": {"match": {"value": "C", "history": []}},
        "metadata": {"level": "easy"},
        "events": [FIRST],
        "uuid": name,
        **changes,
    }
    return {key: value for key, value in row.items() if value is not None}


def log(*samples: object, **changes: Any) -> dict[str, Any]:
    """A log in JSON."""
    spec = {"run_id": "run", "task": "sums", "model": "m", "dataset": {"name": "d"}, "tags": ["t"]}
    return {"version": 2, "status": "success", "eval": spec, "samples": list(samples), **changes}


def write_eval(path: Path, members: Mapping[str, object], *, packed: int = ZIP_DEFLATED) -> Path:
    """Write a zip as Inspect does, deflated or (93) as Zstandard."""
    with ZipFile(path, "w") as file:
        for name, value in members.items():
            content = json.dumps(value).encode()
            if packed == ZIP_DEFLATED:
                file.writestr(name, content, ZIP_DEFLATED)
            else:
                _write_zstandard(file, name, content)
    return path


def _write_zstandard(file: ZipFile, name: str, content: bytes) -> None:
    """What Python's zipfile cannot write: it is stored packed, and then called so."""
    plain = ZipInfo(name)
    file.writestr(plain, content)
    assert file.fp
    packed = bytes(pa.Codec("zstd").compress(content))
    file.fp.seek(plain.header_offset + 30 + len(name))
    file.fp.truncate()
    file.fp.write(packed)
    file.start_dir = file.fp.tell()
    plain.compress_type, plain.compress_size = 93, len(packed)


def row(**changes: Any) -> dict[str, Any]:
    """A transcript as Scout's database has it."""
    return {
        "transcript_id": "t",
        "date": "2026-01-02T03:04:05.5",
        "task_set": "shop",
        "score": '{"reward": 0.5, "judge": "C"}',
        "success": True,
        "total_tokens": 3,
        "sample_metadata": '{"level": "easy"}',
        "messages": json.dumps(TALK),
        "events": "[]",
        "timelines": "[]",
        **changes,
    }
