"""Small files of an archive that would take gigabytes or hours, were there no limits.

A run refuses of each what is too large, as `too_large`, and scores what stands beside it.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kp_batch import limits
from tests.archives import trace, write_jsonl


def long_line(path: Path) -> None:
    """A line that is larger than any line may be, and one beside it."""
    line = json.dumps(trace(id="long", extra="HERE")).encode()
    long = line.replace(b"HERE", b"x" * limits.LINE_BYTES)
    write_jsonl(path, [long, trace(id="good")])


def long_text(path: Path) -> None:
    """A text that is larger than any text may be, on a line that is not."""
    write_jsonl(path, [trace(id="long", objective="x" * (limits.TEXT_BYTES + 1)), trace(id="good")])


def escaped_text(path: Path) -> None:
    """A text of control characters, which take six times as much as JSON."""
    line = json.dumps(trace(id="", objective="HERE")).encode()
    long = line.replace(b"HERE", rb"\u0000" * (limits.LINE_BYTES // 6 - len(line)))
    write_jsonl(path, [long, trace(id="good")])


def deep_line(path: Path) -> None:
    """Lists within lists."""
    line = json.dumps(trace(id="deep", extra="HERE")).encode()
    half = limits.LINE_BYTES // 2 - len(line)
    write_jsonl(path, [line.replace(b'"HERE"', b"[" * half + b"]" * half), trace(id="good")])


def many_values(path: Path) -> None:
    """Numbers and texts of few letters, each of which takes far more memory than a file."""
    line = json.dumps(trace(id="many", extra="HERE")).encode()
    many = b",".join([b'"ab"', b"{}", b"1.5"] * ((limits.LINE_BYTES - len(line)) // 12))
    write_jsonl(path, [line.replace(b'"HERE"', b"[" + many + b"]"), trace(id="good")])


def empty_steps(path: Path) -> None:
    """A trace of nothing but empty steps."""
    line = json.dumps(trace(id="empty", steps="HERE")).encode()
    steps = b",".join([b"{}"] * ((limits.LINE_BYTES - len(line)) // 3))
    write_jsonl(path, [line.replace(b'"HERE"', b"[" + steps + b"]"), trace(id="good")])


def many_empty_steps(path: Path) -> None:
    """Traces of as many empty steps as a trace may have."""
    line = json.dumps(trace(id="empty", steps="HERE")).encode()
    steps = b",".join([b"{}"] * (limits.VALUES // 2 - 100))
    one = line.replace(b'"HERE"', b"[" + steps + b"]")
    write_jsonl(path, [*[one] * 3, trace(id="good")])


# By the file's name. Each has a good trace, but for `parquet_...` of which nothing can be read.
FILES: Mapping[str, Callable[[Path], None]] = MappingProxyType(
    {
        f"{write.__name__}.jsonl": write
        for write in (
            long_line,
            long_text,
            escaped_text,
            deep_line,
            many_values,
            empty_steps,
            many_empty_steps,
        )
    }
)
