"""A KnowledgePulse registry: its file, rows of its table, its export, or single traces.

A record is a trace, unchanged. Left out are units of other kinds, and columns that repeat the unit.
"""

import shutil
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import polars as pl

from kp_batch import bounds
from kp_batch.archive.file_formats.json import reader
from kp_batch.bounds import MOST, TooLargeError, loads
from kp_batch.conversion.conversation.attributes import score_of
from kp_batch.conversion.conversation.messages import Json, as_object
from kp_batch.conversion.formats.json_files import read_json, records_of_lines
from kp_batch.conversion.model import (
    Format,
    Input,
    Origin,
    Probe,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.conversion.rules import Rules
from kp_batch.duck import statement
from kp_batch.errors import UnreadableError
from kp_batch.schemas import TRACE
from kp_batch.text import time_of

_FILES = (".sqlite", ".sqlite3", ".db")
_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_LOG = "-wal"
_COLUMNS = "PRAGMA table_info(knowledge_units)"
# A view, or a virtual table, may be endless: neither has a page.
_IS_STORED = "SELECT rootpage > 0 FROM sqlite_master WHERE name = 'knowledge_units'"
_STATUS = "quarantine_status"
_ORIGIN = ("agent_id", "model", "session", "version")
_OURS = "ReasoningTrace"
_READ_TRACE = reader(pl.Struct(dict(TRACE)))  # as in an archive
_NEVER = datetime.min.replace(tzinfo=UTC)


def inputs(paths: Sequence[str], probe_file: Probe) -> Iterator[Input]:
    """See `Format`."""
    all_paths = set(paths)
    for file in by_ending(*_FILES, *_LINES, ".json")(paths, probe_file):
        log = f"{file.path}{_LOG}"  # may contain everything new
        yield Input(file.path, (log,) if log in all_paths or Path(log).exists() else ())


def records(path: Path, sidecars: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`; a database's sidecar is its -wal file."""
    name = path.name.lower()
    if name.endswith(_FILES):
        yield from _of_file(path, *sidecars)
    elif name.endswith(_LINES):
        yield from records_of_lines(path, _of_line)
    else:
        yield from map(_record, _exported(read_json(path)))


def _of_file(path: Path, log: Path | None = None) -> Iterator[ReadItem]:
    """Read without creating a file in the database's folder, which may be read-only."""
    try:
        with _opened(path, log or path.with_name(path.name + _LOG)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.LINE_BYTES)
            if database.execute(_IS_STORED).fetchone() == (0,):
                raise UnreadableError("its knowledge_units is a view, not the registry's table")
            columns = {column[1] for column in database.execute(_COLUMNS)}
            query = statement(
                "SELECT id, unit_json, updated_at, $status FROM knowledge_units",
                status=_STATUS if _STATUS in columns else "null",  # older registries have none
            )
            for row in database.execute(query):
                yield _of_row(*row)
    except sqlite3.DataError as error:  # a text exceeds the limit
        raise TooLargeError(f"it holds a unit that is too large to be read: {MOST}") from error
    except sqlite3.Error as error:
        raise UnreadableError(f"it is not a readable registry: {error}") from error


@contextmanager
def _opened(path: Path, log: Path) -> Generator[sqlite3.Connection]:
    """Open read-only; if a registry is writing, its newest rows are in the -wal file.

    Without a -shm file, for example in a copy, SQLite would create one. Files of a bucket are each
    in their own folder.
    """
    shared = log.with_name(f"{path.name}-shm")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    with TemporaryDirectory(prefix="kp-import-") as folder:
        if log.exists() and not shared.exists():
            shutil.copy(log, folder)
            path = Path(shutil.copy(path, folder))
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as database:
            yield database


def _of_line(line: Json, number: int) -> ReadItem:
    """Return a row of the table as psql exports it, or a trace."""
    if "unit_json" in line:
        item = _of_row(*map(line.get, ("id", "unit_json", "updated_at", _STATUS)))
    elif _is_trace(line):
        item = _record(line)
    else:
        raise UnreadableError("it is neither a row of knowledge_units nor a trace")
    return item if isinstance(item, Skipped) else replace(item, line=number)


def _of_row(name: object, unit: object, updated: object, status: object) -> ReadItem:
    """Return a unit's record; an unreadable one has the row's id, until it is read again."""
    try:
        content = loads(unit) if isinstance(unit, str | bytes) else unit
        item = _record(content, str(updated), quarantined=status == "quarantined")
    except TooLargeError as error:
        item = Refused([bounds.TOO_LARGE], str(error))
    except ValueError as error:
        item = Refused(["malformed_json"], f"unit_json is not JSON: {error}")
    if isinstance(item, Refused) and name is not None:
        payload = {"refused": item.reasons, "message": item.message, "updated": str(updated)}
        return SourceRecord(str(name), payload)
    return item


def _exported(content: object) -> Sequence[object]:
    payload = as_object(content)
    inner = payload.get("data")
    units = (inner if isinstance(inner, dict) else payload).get("knowledge_units")
    if isinstance(units, list):
        return cast("list[object]", units)
    if _is_trace(payload):
        return [payload]
    raise UnreadableError("it holds neither a registry's export nor a trace")


def _is_trace(payload: Json) -> bool:
    """Whether an object is a trace, not another unit; other systems' rows have metadata, too."""
    return "@type" in payload or {"metadata", "steps"} <= payload.keys()


def _record(
    unit: object, updated: str = "", *, quarantined: bool = False
) -> SourceRecord | Refused | Skipped:
    if not isinstance(unit, dict):
        return Refused(["malformed_json"], "a unit that is not a JSON object")
    trace = cast("Json", unit)
    kind = str(trace.get("@type") or _OURS)
    if kind != _OURS:
        return Skipped(kind)
    name = trace.get("id")
    if not isinstance(name, str) or not name:
        return Refused(["missing_id"], "a trace without an id")
    return SourceRecord(name, {"trace": trace, "updated": updated, "quarantined": quarantined})


def draft(trace: str, records: Sequence[SourceRecord], _: Rules) -> TraceDraft | Refused:
    """See `Format`: of several units of one id, the last updated one counts."""
    payloads = (record.payload for record in reversed(records))
    last: Json = max(payloads, key=lambda payload: time_of(payload["updated"]) or _NEVER)
    if "refused" in last:
        return Refused(last["refused"], last["message"], id=trace)
    unit = _READ_TRACE(last["trace"])
    metadata, task, outcome = (unit[name] or {} for name in ("metadata", "task", "outcome"))
    steps = unit["steps"] or []
    created = time_of(metadata.get("created_at"))  # when a live engine scored it: at its end
    return TraceDraft(
        id=trace,
        created_at=created,
        ended_at=created,
        objective=task.get("objective") or "",
        steps=steps if all(steps) else [],
        faults=["quarantined"] if last["quarantined"] else [],
        success=metadata.get("success"),
        confidence=score_of(outcome.get("confidence")),
        task_domain=metadata.get("task_domain"),
        origin=Origin(*(metadata.get(name) for name in _ORIGIN)),
        framework=metadata.get("framework"),
        source_skill=unit["source_skill"],
        quality_score=score_of(metadata.get("quality_score")),
        visibility=metadata.get("visibility"),
        privacy_level=metadata.get("privacy_level"),
        result_summary=outcome.get("result_summary"),
        system=task.get("system"),
        tools=task.get("tools"),
    )


FORMAT = Format(
    name="knowledgepulse",
    contents="everything, scores of the live engine included",
    inputs=inputs,
    records=records,
    draft=draft,
    decides=frozenset({"success", "confidence", "task_domain"}),
    prefix="",
    source="registry",
)
