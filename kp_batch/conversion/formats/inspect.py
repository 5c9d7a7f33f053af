"""Inspect's logs, `.json` and `.eval`, and Scout's transcripts in Parquet.

A record is a sample, or a transcript. Left out are pictures, and events, which repeat the messages
at many times their size: only their times, agent, tools and messages of an earlier run are kept.
Scores are kept if they are numbers or grades, since no rule can use other values.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from io import BufferedReader, BytesIO
from os import fstat
from pathlib import Path
from typing import Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo
from zlib import crc32

from kp_batch import bounds
from kp_batch.bounds import Budget, TooLargeError, loads, trace_budget, weight
from kp_batch.conversion.conversation.attributes import texts
from kp_batch.conversion.conversation.instructions import tools_text
from kp_batch.conversion.conversation.messages import Json, as_object, list_in, parse_json
from kp_batch.conversion.formats.inspect_samples import (
    ROLES,
    Events,
    LogFacts,
    draft,
    native_of,
    numbers,
    record_of,
    trim_messages,
)
from kp_batch.conversion.formats.json_files import read_json, unpacked
from kp_batch.conversion.formats.rows import RowMap
from kp_batch.conversion.model import (
    Format,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    by_ending,
    of_unknown_kind,
)
from kp_batch.errors import UnreadableError
from kp_batch.files import open_regular
from kp_batch.text import time_of

_HEADERS = ("header.json", "_journal/start.json")  # the second while a run continues
_WHOLE = re.compile(r"(samples/.+_epoch_\d+)\.json")
_SHELL = re.compile(r"(samples/.+_epoch_\d+)/sample\.json")
_CHUNK = re.compile(r"(samples/.+_epoch_\d+/\w+)/(\d+)\.json")
_PLAIN = (ZIP_STORED, ZIP_DEFLATED)  # other methods may unpack to any size at once
_ZSTANDARD = 93  # Python's zipfile has it from 3.14 on
_ID = "transcript_id"
_CONTENT = ("messages", "events", "events_data")
_UNREAD = "timelines"
_NO_FIELDS = (*_CONTENT, _ID, "score", "success", "date", "error")
_SCORER = "score_"  # before a scorer's name
_NATIVE = ("source_id", "task_id", "task_repeat")  # of the log: its id, the sample, its epoch


class EvalFile:
    """An open `.eval` file.

    Raises:
        TooLargeError: its header exceeds a limit, or its members unpack to more than a file may.
        UnreadableError: it is a zip file, but not an Inspect log.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._zip = file, ZipFile(file)
        members = self._zip.infolist()
        size = sum(member.file_size for member in members)  # never more is read than they state
        if size > max(bounds.MEMBER_BYTES, bounds.RATIO * fstat(file.fileno()).st_size):
            raise TooLargeError("it is too large to be read: its unpacked members exceed the limit")
        self._members = {member.filename: member for member in members}
        # The chunks of each folder, by the places of their first items.
        self._chunks: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for match in filter(None, map(_CHUNK.fullmatch, self._members)):
            self._chunks[match[1]].append((int(match[2]), match[0]))
        self.header = self._header()

    def samples(self) -> Iterator[Json | Refused]:
        """Yield each sample, as in JSON logs; iterate `messages` and `events` only once.

        Events that exceed a limit raise a TooLargeError during the iteration.
        """
        for name in self._members:
            try:
                sample = self._sample(name)
            except TooLargeError as error:
                yield Refused([bounds.TOO_LARGE], f"{name}: {error}")
            else:
                if sample is not None:
                    yield sample

    def _sample(self, name: str) -> Json | None:
        """Return the sample that a member is, or begins; None for other members."""
        if _WHOLE.fullmatch(name):
            return cast("Json", self._json(name, trace_budget()))
        match = _SHELL.fullmatch(name)
        if match is None or f"{match[1]}.json" in self._members:
            return None
        return self._chunked(match[1])

    def _header(self) -> Json:
        for name in _HEADERS:
            header = self._json(name, trace_budget()) if name in self._members else None
            if isinstance(header, dict):
                return cast("Json", header)
        raise UnreadableError("it is not an Inspect log: it has no header.json")

    def _chunked(self, folder: str) -> Json:
        """Return a sample in chunks; its messages are ranges of all messages in its events."""
        room = trace_budget()
        shell = cast("Json", self._json(f"{folder}/sample.json", room))
        known = list(self._sequence(f"{folder}/messages", room))
        attachments = enumerate(self._sequence(f"{folder}/attachments", room))
        ranges = shell.get("message_refs") or ()
        metadata = f"{folder}/metadata.json"
        return {
            **shell,
            "metadata": self._json(metadata, room) if metadata in self._members else None,
            "messages": (x for start, end in ranges for x in known[start:end]),
            "attachments": {str(place): text for place, text in attachments},
            "events": self._sequence(f"{folder}/events"),
            "events_data": {"messages": known},
        }

    def _sequence(self, folder: str, room: Budget | None = None) -> Iterator[Any]:
        """Yield the items of all chunks; without `room`, each chunk has its own limit."""
        for _, name in sorted(self._chunks[folder]):
            yield from cast("list[object]", self._json(name, room or trace_budget()))

    def _json(self, name: str, room: Budget) -> object:
        content = self._content(self._members[name])
        room.take(weight(content))
        return loads(content)

    def _content(self, member: ZipInfo) -> bytes:
        """Return the content of a member; if too large, a beginning that exceeds the limit, too."""
        most = min(member.file_size, bounds.LINE_BYTES) + 1
        if member.compress_type == _ZSTANDARD:
            return self._unpacked(member, most)
        if member.compress_type not in _PLAIN:
            raise UnreadableError(f"{member.filename} has a compression that Inspect does not use")
        with self._zip.open(member) as file:
            return file.read(most)

    def _unpacked(self, member: ZipInfo, most: int) -> bytes:
        self._file.seek(member.header_offset)
        name, extra = struct.unpack_from("<HH", self._file.read(30), 26)
        self._file.seek(name + extra, 1)
        packed = BytesIO(self._file.read(member.compress_size))
        with unpacked(BufferedReader(packed)) as file:
            content = file.read(most)
        is_cut = member.file_size > bounds.LINE_BYTES
        if len(content) > member.file_size or not (is_cut or crc32(content) == member.CRC):
            raise BadZipFile(f"{member.filename} is damaged")
        return content


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: each sample is a record, and so is each transcript."""
    name = path.name.lower()
    if name.endswith(".parquet"):
        yield from _TRANSCRIPTS.records(path)
    elif name.endswith(".eval"):
        with open_regular(path) as file:
            content = EvalFile(file)
            log = LogFacts.of(content.header)
            yield from (_sample(log, sample) for sample in content.samples())
    else:
        content = _log(read_json(path))
        log = LogFacts.of(content)
        yield from (_sample(log, sample) for sample in content.get("samples") or ())


def _log(content: object) -> Json:
    log = as_object(content)
    if isinstance(log.get("eval"), dict) and isinstance(log.get("samples") or [], list):
        return log
    raise UnreadableError("it is not an Inspect log: it describes no eval")


def _sample(log: LogFacts, item: object) -> SourceRecord | Refused:
    if isinstance(item, Refused):
        return item
    if not isinstance(item, dict):
        return Refused(["malformed_json"], "a sample that is not a JSON object")
    sample = cast("Json", item)
    name = sample.get("uuid") or log.name_of(sample)
    if not name:
        return Refused(["missing_id"], "a sample without an id")
    try:
        return SourceRecord(str(name), record_of(sample, log))
    except TooLargeError:
        return SourceRecord(str(name), None)


def _unknown(sample: Json) -> Iterator[Skipped]:
    roles = (message.get("role") for message in sample["messages"])
    yield from (of_unknown_kind("message", role) for role in roles if role not in (*ROLES,))


def _transcript(row: Json) -> SourceRecord | Refused:
    name = row[_ID]
    if not name:
        return Refused(["missing_id"], f"a transcript without its {_ID}")
    events = _events(row)
    return SourceRecord(
        str(name),
        {
            "created": row.get("date") or events.first,
            "ended": _ended(row) or events.last,
            "changed": "",
            "input": None,
            "messages": trim_messages(_objects(row.get("messages")), {}, events.of_prior_runs),
            "scores": _scores(row),
            "fields": _fields(row),
            "invalidated": False,
            "tools": tools_text(events.tools),
            "native": native_of(*map(row.get, _NATIVE)),
        },
    )


def _events(row: Json) -> Events:
    """Return the facts of the events that the other columns lack."""
    events = row.get("events")
    if _ended(row) and '"prior_run"' not in str(events):
        return Events.of((), None)
    return Events.of(_objects(events), parse_json(row.get("events_data")))


def _ended(row: Json) -> str:
    """Return when it ended, from its date and duration; '' if unknown."""
    begun, seconds = time_of(row.get("date")), row.get("total_time")
    if begun is None or not isinstance(seconds, int | float):
        return ""
    try:
        return (begun + timedelta(seconds=seconds)).isoformat()
    except (ValueError, OverflowError):
        return ""


def _objects(column: object) -> list[Json]:
    """Return the objects of a column that is a list in JSON."""
    return [item for item in list_in(column) if isinstance(item, dict)]


def _scores(row: Json) -> dict[str, float]:
    score = parse_json(row.get("score"))
    named = score if isinstance(score, dict) else {"score": score}
    scorers = {
        name.removeprefix(_SCORER): parse_json(value)
        for name, value in row.items()
        if name.startswith(_SCORER)
    }
    return dict(numbers({**scorers, **named, "success": row.get("success")}))


def _fields(row: Json) -> dict[str, list[str]]:
    """Return the columns of texts; a column with an object has a field for each key."""
    columns: dict[str, object] = {}
    for key, value in row.items():
        is_field = key not in _NO_FIELDS and not key.startswith(_SCORER)
        if is_field and isinstance(value, str):
            inner = parse_json(value)
            columns[key] = inner if isinstance(inner, dict) else value
    return dict(texts(columns))


_TRANSCRIPTS = RowMap(
    record=_transcript,
    trace=[_ID],
    at_once=16,  # each has a whole conversation, and its events
    needed=[_ID],
    is_read=lambda name: name != _UNREAD,
)
FORMAT = Format(
    name="inspect",
    contents="scores by scorer; task, dataset, model, tags, metadata.KEY (Scout: its columns)",
    inputs=by_ending(".eval", ".json", ".parquet"),
    records=records,
    draft=draft,
    unknown=_unknown,
    source="document",
)
