"""Inspect's logs, `.json` and `.eval`, and Scout's transcripts in Parquet."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa

from kp_batch.errors import MISSING_COLUMN, Fault, UnreadableError
from kp_batch.imports.conversation.attributes import texts
from kp_batch.imports.conversation.messages import Json, list_in, parse_json
from kp_batch.imports.formats.eval_file import EvalFile
from kp_batch.imports.formats.inspect_messages import trim_messages
from kp_batch.imports.formats.inspect_samples import (
    Events,
    Log,
    draft,
    native_of,
    numbers,
    record_of,
)
from kp_batch.imports.formats.json_files import read_json
from kp_batch.imports.formats.parquet_rows import rows_of, units_of
from kp_batch.imports.model import Format, Rejected, Skipped, SourceRecord, by_ending
from kp_batch.limits import TooLargeError
from kp_batch.text import time_of

_ROWS = 16  # that are held at once; each has a whole conversation, and its events
_ID = "transcript_id"
_CONTENT = ("messages", "events", "events_data")
_UNREAD = ("timelines",)
_NO_FIELDS = (*_CONTENT, _ID, "score", "success", "date", "error")
_SCORER = "score_"  # before a scorer's name
_NATIVE = ("source_id", "task_id", "task_repeat")  # of the log: its id, the sample, its epoch


def units(path: Path, _: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`: each sample is a unit, and each transcript."""
    name = path.name.lower()
    if name.endswith(".parquet"):
        yield from _transcripts(path)
    elif name.endswith(".eval"):
        with EvalFile(path) as file:
            log = Log.of(file.header)
            yield from (_sample(log, each) for each in file.samples())
    else:
        content = _log(read_json(path))
        log = Log.of(content)
        yield from (_sample(log, each) for each in content.get("samples") or ())


def _log(content: object) -> Json:
    if isinstance(content, dict):
        log = cast("Json", content)
        if isinstance(log.get("eval"), dict) and isinstance(log.get("samples") or [], list):
            return log
    raise UnreadableError("it is no Inspect log: it does not tell of an eval")


def _sample(log: Log, found: object) -> SourceRecord | Rejected:
    if isinstance(found, Rejected):
        return found
    if not isinstance(found, dict):
        return Rejected(["malformed_json"], "a sample that is no JSON object")
    sample = cast("Json", found)
    name = sample.get("uuid") or log.name_of(sample)
    if not name:
        return Rejected(["missing_id"], "a sample without an id")
    try:
        return SourceRecord(str(name), record_of(sample, log))
    except TooLargeError:
        return SourceRecord(str(name), None)


def _transcripts(path: Path) -> Iterator[SourceRecord | Rejected | Skipped]:
    """The transcripts of a file, each a unit as a sample is one."""
    return units_of(path, _ROWS, _columns, _of_rows, [_ID])


def _columns(schema: pa.Schema) -> Callable[[str], bool]:
    if _ID not in schema.names:
        raise UnreadableError(Fault(MISSING_COLUMN, f"it has no column {_ID}"))
    return lambda leaf: leaf.split(".")[0] not in _UNREAD


def _of_rows(rows: pa.RecordBatch) -> Iterator[SourceRecord | Rejected]:
    return map(_transcript, rows_of(rows))


def _transcript(row: Json) -> SourceRecord | Rejected:
    name = row[_ID]
    if not name:
        return Rejected(["missing_id"], f"a transcript without its {_ID}")
    events = _events(row)
    return SourceRecord(
        str(name),
        {
            "created": row.get("date") or events.first,
            "ended": _ended(row) or events.last,
            "changed": "",
            "input": None,
            "messages": trim_messages(_listed(row.get("messages")), {}, events.of_prior_runs),
            "scores": _scores(row),
            "fields": _fields(row),
            "invalidated": False,
            "native": native_of(*(row.get(each) for each in _NATIVE)),
        },
    )


def _events(row: Json) -> Events:
    """The events, where they tell more than the messages, and when it was."""
    told = row.get("events")
    if _ended(row) and '"prior_run"' not in str(told):
        return Events.of((), None)
    return Events.of(_listed(told), parse_json(row.get("events_data")))


def _ended(row: Json) -> str:
    """When it ended, as its date and how long it took tell; '' if they do not."""
    begun, seconds = time_of(row.get("date")), row.get("total_time")
    if begun is None or not isinstance(seconds, int | float):
        return ""
    try:
        return (begun + timedelta(seconds=seconds)).isoformat()
    except (ValueError, OverflowError):
        return ""


def _listed(told: object) -> list[Json]:
    """The objects of a column that is a list in JSON."""
    return [each for each in list_in(told) if isinstance(each, dict)]


def _scores(row: Json) -> dict[str, float]:
    found = parse_json(row.get("score"))
    named = found if isinstance(found, dict) else {"score": found}
    scorers = {
        name.removeprefix(_SCORER): parse_json(value)
        for name, value in row.items()
        if name.startswith(_SCORER)
    }
    return dict(numbers({**scorers, **named, "success": row.get("success")}))


def _fields(row: Json) -> dict[str, list[str]]:
    """The columns of texts; of those that hold an object, its keys."""
    told: dict[str, object] = {}
    for key, value in row.items():
        is_field = key not in _NO_FIELDS and not key.startswith(_SCORER)
        if is_field and isinstance(value, str):
            inner = parse_json(value)
            told[key] = inner if isinstance(inner, dict) else value
    return dict(texts(told))


FORMAT = Format(
    name="inspect",
    holds="scores by scorer; task, dataset, model, tags, metadata.KEY (Scout: its columns)",
    inputs=by_ending(".eval", ".json", ".parquet"),
    units=units,
    draft=draft,
    source="document",
)
