"""Which rows of an archive count, by its documentation alone: nothing here is the engine's."""

import json
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_STEP_TYPES = ("thought", "tool_call", "observation", "error_recovery")


@dataclass(frozen=True)
class File:
    """A file of the archive as the last run that is done left it."""

    status: str  # read, unreadable or gone
    content: bytes | None  # that could be read last; None: none ever could
    fault: str = ""  # the reason why it, or its end, cannot be read


@dataclass(frozen=True)
class Row:
    """A row of the archive, or a file that cannot be read."""

    source_file: str
    row: int | None  # None: the whole file
    value: Any = None  # a trace, or the text of a line that is not a JSON object
    reasons: tuple[str, ...] = ()
    later: tuple[str, int | None] | None = None  # the place of the other content that counts

    @property
    def place(self) -> tuple[str, int | None]:
        return self.source_file, self.row

    @property
    def trace_id(self) -> str | None:
        return self.value.get("id") if isinstance(self.value, dict) else None


@dataclass(frozen=True)
class Counted:
    """What becomes of all rows."""

    accepted: list[Row]  # one for each trace, in the order of the replay
    rejected: list[Row]  # superseded ones and unreadable files among them
    duplicates: int
    rows: int
    kept: int  # of these, in files that are gone or unreadable

    @property
    def published(self) -> dict[str, Any]:
        """The content of each trace, once these are published."""
        return {row.value["id"]: _content(row.value) for row in self.accepted}

    @property
    def superseded(self) -> int:
        return sum(row.reasons == ("superseded",) for row in self.rejected)

    @property
    def faulty(self) -> int:
        """How many rows cannot be scored."""
        return sum(row.row is not None for row in self.rejected) - self.superseded


def observed(
    before: Mapping[str, File],
    present: Mapping[str, bytes],
    forgotten: AbstractSet[str] = frozenset(),
    *,
    prune: bool,
) -> dict[str, File]:
    """The files as a run leaves them that finds these contents by their paths."""
    last = {path: None if prune else file.content for path, file in before.items()}
    seen = {
        path: _seen(Path(path).suffix, content, last.get(path), forgotten)
        for path, content in present.items()
    }
    if prune:
        return {path: replace(each, content=_if_read(each)) for path, each in seen.items()}
    gone = {
        path: replace(each, status="gone", fault="")
        for path, each in before.items()
        if path not in present and each.content is not None
    }
    return seen | gone


def _seen(ending: str, content: bytes, last: bytes | None, forgotten: AbstractSet[str]) -> File:
    rows = rows_in(ending, content)
    if rows is None:
        return File("unreadable", last, "unreadable_file")
    if not _is_cut(ending, content):
        return File("read", content)
    contents = _contents(rows)
    had = [] if last is None else _contents(rows_in(ending, last) or [])
    lost = [each for each in had if each not in contents and each[0] not in forgotten]
    return File("unreadable" if lost else "read", last if lost else content, "cut_file")


def _contents(rows: list[tuple[int, Any]]) -> list[tuple[Any, ...]]:
    return [(row["id"], *_content(row)) for _, row in rows if not [*_faults(row)]]


def _if_read(file: File) -> bytes | None:
    return file.content if file.status == "read" else None


def counted(
    files: Mapping[str, File],
    forgotten: AbstractSet[str] = frozenset(),
    published: Mapping[str, Any] = MappingProxyType({}),
) -> Counted:
    """Tell which rows count.

    Of rows with one id those in files that can be read come before the others, of which only those
    count that are as published; then the last path counts, by its UTF-8 bytes, then the last row.

    Args:
        files: as the run left them.
        forgotten: the ids that are.
        published: the contents that were before the run, see `Counted.published`.
    """
    rows = [row for row in _rows(files) if row.trace_id not in forgotten]

    def rank(row: Row) -> int:
        if files[row.source_file].status == "read":
            return 2
        return int(published.get(row.value["id"]) == _content(row.value))

    faultless = sorted((row for row in rows if not row.reasons), key=rank)
    last = {row.trace_id: row for row in faultless}
    accepted = [row for row in last.values() if rank(row)]
    others = [row for row in faultless if last[row.trace_id] is not row or not rank(row)]
    superseded = [
        replace(row, reasons=("superseded",), later=now.place if rank(now) else None)
        for row in others
        for now in [last[row.trace_id]]
        if not rank(now) or _content(row.value) != _content(now.value)
    ]
    unreadable = [
        Row(path, None, reasons=(each.fault,)) for path, each in files.items() if each.fault
    ]
    return Counted(
        sorted(accepted, key=lambda row: (moment_of(row.value), row.value["id"].encode())),
        [*unreadable, *(row for row in rows if row.reasons), *superseded],
        len(others) - len(superseded),
        len(rows),
        sum(files[row.source_file].status != "read" for row in rows),
    )


def _rows(files: Mapping[str, File]) -> Iterator[Row]:
    """All rows by path, then row. What a file held that moved stands where it is now."""
    present = {each.content for each in files.values() if each.status == "read"}
    for path, each in sorted(files.items(), key=lambda file: file[0].encode()):
        if each.content is None or (each.status != "read" and each.content in present):
            continue
        for number, value in rows_in(Path(path).suffix, each.content) or ():
            yield Row(path, number, value, tuple(_faults(value)))


@lru_cache(1_000)
def rows_in(ending: str, content: bytes) -> list[tuple[int, Any]] | None:
    """The rows of a file with their numbers, None where it cannot be read."""
    if ending == ".parquet":
        try:
            return [*enumerate(pq.read_table(BytesIO(content)).to_pylist())]
        except pa.ArrowInvalid:
            return None
    lines = content.split(b"\n")
    whole = enumerate(lines[:-1] if _is_cut(ending, content) else lines)
    return [(row, _value(line)) for row, line in whole if line.strip()] if content else None


def _is_cut(ending: str, content: bytes) -> bool:
    """Whether a file ends within a line."""
    end = content.rpartition(b"\n")[2]
    return ending != ".parquet" and bool(end.strip()) and not isinstance(_value(end), dict)


def _value(line: bytes) -> Any:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else line.decode("utf-8", "replace").rstrip()


def moment_of(trace: Mapping[str, Any]) -> datetime:
    """When the trace was made."""
    return datetime.fromisoformat(trace["metadata"]["created_at"]).astimezone(UTC)


def _faults(trace: Any) -> Iterator[str]:
    if not isinstance(trace, dict):
        yield "malformed_json"
        return
    metadata, steps = trace["metadata"], trace["steps"]
    confidence = trace["outcome"]["confidence"]
    faults = {
        "missing_id": not trace["id"],
        "wrong_type": trace.get("@type") not in (None, "ReasoningTrace"),
        "bad_created_at": not _is_moment(trace),
        "empty_domain": not metadata["task_domain"],
        "missing_success": metadata["success"] is None,
        "empty_objective": not trace["task"]["objective"],
        "no_steps": not steps or None in steps,
        "unknown_step_type": any(each and each["type"] not in _STEP_TYPES for each in steps or ()),
        "bad_confidence": confidence is None or math.isnan(confidence) or not 0 <= confidence <= 1,
    }
    yield from (code for code, is_faulty in faults.items() if is_faulty)


def _is_moment(trace: Mapping[str, Any]) -> bool:
    try:
        return bool(moment_of(trace))
    except (TypeError, ValueError, OverflowError):
        return False


def _content(trace: Mapping[str, Any]) -> tuple[Any, ...]:
    """Every field that reaches the scores or the text."""
    metadata = trace["metadata"]
    steps = [(each["type"], each.get("content"), tool_of(each)) for each in trace["steps"]]
    return (
        *(moment_of(trace), metadata["task_domain"], metadata["success"]),
        *(trace["task"]["objective"], steps, trace["outcome"]["confidence"]),
    )


def tool_of(step: Mapping[str, Any]) -> str | None:
    """The name of the tool that a step carries."""
    return (step.get("tool") or {}).get("name")
