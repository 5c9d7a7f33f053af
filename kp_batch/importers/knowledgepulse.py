"""A KnowledgePulse registry: its database, its export, or single traces."""

import shutil
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from kp_batch import limits
from kp_batch.bounded_json import MOST, TooLargeError, loads
from kp_batch.importers.draft import Draft, Origin, PassedOver, Refused, Unit, UnreadableError
from kp_batch.importers.format import Format, Input, Look, by_ending
from kp_batch.importers.json_files import read_json
from kp_batch.importers.knowledgepulse_postgres import rows_of
from kp_batch.importers.messages import Json, as_text
from kp_batch.importers.rules import Rules
from kp_batch.importers.scores import score_of
from kp_batch.sql import statement
from kp_batch.storage.urls import is_database
from kp_batch.times import time_of

_FILES = (".sqlite", ".sqlite3", ".db")
_LOG = "-wal"
_COLUMNS = "PRAGMA table_info(knowledge_units)"
# A view, or a table that is made up as it is read, may be endless: neither has a page.
_IS_STORED = "SELECT rootpage > 0 FROM sqlite_master WHERE name = 'knowledge_units'"
_STATUS = "quarantine_status"
_ORIGIN = ("agent_id", "model", "session", "version")
_OURS = "ReasoningTrace"
_NEVER = datetime.min.replace(tzinfo=UTC)


def inputs(paths: Sequence[str], look: Look) -> Iterator[Input]:
    """See `Format`."""
    yield from (Input(path) for path in paths if is_database(path))
    named = set(paths)
    for found in by_ending(*_FILES, ".json")([x for x in paths if not is_database(x)], look):
        log = f"{found.path}{_LOG}"  # all that is new may stand there alone
        yield Input(found.path, (log,) if log in named or Path(log).exists() else ())


def rows(url: str, since: str | None) -> Iterator[Unit | PassedOver]:
    """See `Format`."""
    for row in rows_of(url, since):
        yield _of_row(*row)


def units(path: Path, beside: Sequence[Path]) -> Iterator[Unit | Refused | PassedOver]:
    """See `Format`; beside a database is its -wal."""
    if path.name.lower().endswith(_FILES):
        yield from _of_file(path, *beside)
        return
    content = read_json(path)
    found = _exported(content)
    if found is None:
        raise UnreadableError("it holds neither a registry's export nor a trace")
    for each in found:
        yield _unit(each)


def _of_file(path: Path, log: Path | None = None) -> Iterator[Unit | PassedOver]:
    """Read without leaving a file beside the database, where none may be written, too."""
    try:
        with _opened(path, log or path.with_name(path.name + _LOG)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.LINE_BYTES)
            if database.execute(_IS_STORED).fetchone() == (0,):
                raise UnreadableError("its knowledge_units is a view, and not the registry's table")
            columns = {each[1] for each in database.execute(_COLUMNS)}
            query = statement(
                "SELECT id, unit_json, updated_at, $status FROM knowledge_units",
                status=_STATUS if _STATUS in columns else "null",  # older registries have none
            )
            for row in database.execute(query):
                yield _of_row(*row)
    except sqlite3.DataError as error:  # of a text that is longer than may be
        raise TooLargeError(f"it holds a unit that is too large to be read: {MOST}") from error
    except sqlite3.Error as error:
        raise UnreadableError(f"it is no registry that can be read: {error}") from error


@contextmanager
def _opened(path: Path, log: Path) -> Generator[sqlite3.Connection]:
    """Open read-only; a registry that writes meanwhile has its newest rows in the file's -wal.

    Where only that stands beside the file, as in a copy, SQLite would make another file; and of
    objects, each has a folder of its own.
    """
    shared = log.with_name(f"{path.name}-shm")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    with TemporaryDirectory(prefix="kp-import-") as folder:
        if log.exists() and not shared.exists():
            shutil.copy(log, folder)
            path = Path(shutil.copy(path, folder))
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as database:
            yield database


def _of_row(name: str, text: str, updated: str | None, status: str | None) -> Unit | PassedOver:
    """Of what cannot be read, a unit with the row's own id: it counts until that is read again."""
    try:
        found = _unit(loads(text), str(updated), quarantined=status == "quarantined")
    except TooLargeError as error:
        found = Refused([limits.TOO_LARGE], str(error))
    except (ValueError, TypeError) as error:
        found = Refused(["malformed_json"], f"unit_json is no JSON: {error}")
    if isinstance(found, Refused):
        told = {"refused": found.reasons, "message": found.message, "updated": str(updated)}
        return Unit(str(name), told)
    return found


def _exported(content: object) -> Sequence[object] | None:
    if not isinstance(content, Mapping):
        return None
    payload = cast("Json", content)
    inner = payload.get("data")
    listed = (inner if isinstance(inner, Mapping) else payload).get("knowledge_units")
    if isinstance(listed, list):
        return cast("list[object]", listed)
    return [payload] if "@type" in payload or "metadata" in payload else None


def _unit(
    found: object, updated: str = "", *, quarantined: bool = False
) -> Unit | Refused | PassedOver:
    if not isinstance(found, Mapping):
        return Refused(["malformed_json"], "a unit that is no JSON object")
    trace = cast("Json", found)
    kind = str(trace.get("@type") or _OURS)
    if kind != _OURS:
        return PassedOver(kind)
    name = trace.get("id")
    if not isinstance(name, str) or not name:
        return Refused(["missing_id"], "a trace without an id")
    return Unit(name, {"trace": trace, "updated": updated, "quarantined": quarantined})


def draft(trace: str, found: Sequence[Unit], _: Rules) -> Draft | Refused | PassedOver:
    """See `Format`: of several units of one id, the one that was updated last counts."""
    records = [cast("Json", each.record) for each in found]
    last = max(records, key=lambda each: time_of(each["updated"]) or _NEVER)
    if "refused" in last:
        reasons, message = cast("list[str]", last["refused"]), cast("str", last["message"])
        return Refused(reasons, message, id=trace)
    told = cast("Json", last["trace"])
    metadata, task, outcome = (_object(told.get(each)) for each in ("metadata", "task", "outcome"))
    given = told.get("steps")
    steps = cast("list[object]", given) if isinstance(given, list) else []
    return Draft(
        id=trace,
        created_at=time_of(metadata.get("created_at")),
        objective=_text(task.get("objective")) or "",
        steps=[_step(each) for each in steps] if all(map(_is_object, steps)) else [],
        faults=["quarantined"] if last["quarantined"] else [],
        success=metadata["success"] if isinstance(metadata.get("success"), bool) else None,
        confidence=_number(outcome.get("confidence")),
        task_domain=_text(metadata.get("task_domain")),
        origin=Origin(*(_text(metadata.get(each)) for each in _ORIGIN)),
        framework=_text(metadata.get("framework")),
        source_skill=_text(told.get("source_skill")),
        quality_score=_number(metadata.get("quality_score")),
        visibility=_text(metadata.get("visibility")),
        privacy_level=_text(metadata.get("privacy_level")),
        result_summary=_text(outcome.get("result_summary")),
    )


def _step(value: object) -> dict[str, object]:
    step, tool = _object(value), _object(_object(value).get("tool"))
    given = step.get("input")
    return {
        "step_id": step.get("step_id") if isinstance(step.get("step_id"), int) else None,
        "type": _text(step.get("type")),
        "content": None if step.get("content") is None else as_text(step["content"]),
        "tool": {name: _text(tool.get(name)) for name in ("name", "mcp_server")} if tool else None,
        "input": None if given is None else as_text(given),
        "output_summary": _text(step.get("output_summary")),
        "latency_ms": _number(step.get("latency_ms")),
    }


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return None if isinstance(value, bool) else score_of(value)


FORMAT = Format(
    name="knowledgepulse",
    holds="everything, scores of the live engine included",
    inputs=inputs,
    units=units,
    draft=draft,
    decides=frozenset({"success", "confidence", "task_domain"}),
    id_of=str,
    rows=rows,
)
