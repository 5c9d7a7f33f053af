"""Sessions of coding agents: what a user types, and what the agent does then, line by line.

A tool's format makes a record of each line that counts, of the parts that become steps, and a turn
is drafted of these.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, cast

from kp_batch import bounds
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    compact,
    joined,
    kind_of,
    parts_of,
    text_of,
    text_of_part,
)
from kp_batch.conversion.conversation.transcript import Transcript
from kp_batch.conversion.model import (
    Drafted,
    Native,
    Origin,
    Skipped,
    SourceRecord,
    TraceDraft,
)
from kp_batch.conversion.rules import Rules
from kp_batch.text import sortable, time_of

WORDLESS = "turn without a text"  # whose prompt is a picture
OTHERS = "turn of another session"
LOST = "step without its prompt"  # whose line is missing, or damaged
FORGOTTEN = "\0"  # which no trace is called
_GIVEN = ("input", "arguments")  # to tools
_ENCRYPTED = ("encrypted_content",)
_LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("base64", "image", "audio"), ("data",)),
    **dict.fromkeys(
        ("input_image", "input_file", "input_audio"), ("image_url", "file_data", "data")
    ),
    "thinking": ("signature",),
    "redacted_thinking": ("data",),
}
_PICTURES = {"image", "input_image", "local_image", "document", "input_file", "input_audio"}


@dataclass(frozen=True)
class NamedTurn:
    """A turn that is known by the name of its trace."""

    trace: str


@dataclass(kw_only=True)
class SessionFile:
    """A file, read from its first line on."""

    by_session: bool  # whether a trace is all of it; else it is a turn
    now: object = None  # the time of the line that is read; None if it has none
    _at: str = ""  # the last time of a line that counts
    _equals: Counter[str] = field(default_factory=Counter[str])  # records by what they are
    _copied: SourceRecord | None = None  # the first prompt, where it is another session's

    def key(self, *what: object) -> dict[str, object]:
        """The beginning of a record: its id and its time.

        It is known by what it is, and by which of equal ones it is: lines that do not count may
        come and go before it.
        """
        try:
            content = bounds.dump(what)
        except RecursionError:  # such a record is refused anyway
            content = b""
        digest = blake2b(content, digest_size=12).hexdigest()
        self._equals[digest] += 1
        self._at = sortable(self.now) or self._at
        return {"id": f"{digest} {self._equals[digest]}", "time": self._at}

    def begin(self, record: SourceRecord, *, is_copied: bool) -> Iterator[SourceRecord]:
        """Begin a turn; of those that another session has, a trace has no more than the first."""
        if is_copied:
            self._copied = self._copied or record
            return
        if self._copied and self.by_session:
            yield self._copied
        self._copied = None
        yield record


@dataclass(frozen=True)
class Injected:
    """What a tool puts into the messages of its users, who see nothing of it.

    Attributes:
        elements: the names of elements, which go with all that they enclose.
        openings: patterns of what a text begins with that is the tool's as a whole.
        banner: a pattern of a sentence above an element, which goes with it.
    """

    elements: tuple[str, ...]
    openings: tuple[str, ...]
    banner: str = ""

    @cached_property
    def _tag(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, self.elements))
        return re.compile(rf"(?:{self.banner})?<({names})(?:\s[^<>]*)?>")

    @cached_property
    def _opening(self) -> re.Pattern[str]:
        return re.compile("|".join(self.openings))

    def typed(self, content: object) -> str:
        """What a user typed of a content."""
        return joined([self._typed(text_of_part(part)) for part in parts_of(content)])

    def _typed(self, text: str) -> str:
        rest = self.without_elements(text)
        begin = rest.lstrip()
        cut = self._tag.match(begin)  # an element without an end has all the rest
        is_cut = cut and not begin.startswith(" ", cut.end())  # as where somebody mentions its tag
        return "" if self._opening.match(begin) or is_cut else rest

    def without_elements(self, text: str) -> str:
        """A text without what the tool put into it; the same where that is nothing."""
        kept, begin, endless = list[str](), 0, set[str]()
        for tag in self._tag.finditer(text):
            end = f"</{tag[1]}>"
            is_in_line = text[tag.start() - 1 : tag.start()] not in ("", "\n", ">")
            is_mention = is_in_line and text.startswith(" ", tag.end())
            if tag.start() < begin or tag[1] in endless or is_mention:
                continue
            place = text.find(end, tag.end())
            if place < 0:
                endless.add(tag[1])
                continue
            kept.append(text[begin : tag.start()])
            begin = place + len(end)
        return "".join([*kept, text[begin:]]).strip() if kept else text


def has_pictures(content: object) -> bool:
    """Whether a content has a picture or a document, which are left out."""
    return any(kind_of(part) in _PICTURES for part in parts_of(content))


def prompt(  # noqa: PLR0913 (all that is known of a turn)
    text: str,
    *,
    root: str,
    session: str,
    version: object = None,
    time: object = None,
    fields: Json,
    is_copied: bool = False,
) -> dict[str, object]:
    """The part of a record that begins a turn.

    Args:
        text: what was typed.
        root: the turn's id.
        session: its session's id.
        version: of the agent.
        time: when the turn began, as the line has it.
        fields: what rules may name, the folder `cwd` among them, of which the project is the last
            part; only texts that are not empty count.
        is_copied: whether another session has this turn: then only its text counts.
    """
    project = PurePath(str(fields.get("cwd") or "").replace("\\", "/")).name  # of any system
    named = {"project": project, **fields}
    texts = {name: x for name, x in named.items() if isinstance(x, str) and x}
    turn = {"root": root, "session": session, "version": version, "time": time, "fields": texts}
    return {"role": "user", "text": text, "turn": turn, "copied": is_copied}


def copy(id_: str, of: str, line: int) -> SourceRecord:
    """The record that a turn of this id is a copy of another one.

    A copy of the copy names this id alone as its origin, wherever and whenever it is read.
    """
    return SourceRecord(id_, {"id": of, "time": "", "role": "copy"}, line)


def call(
    name: object, arguments: object, call_id: object, namespace: object = ""
) -> dict[str, object]:
    """A tool's call, as records have it.

    Args:
        name: of the tool; `mcp__SERVER__NAME` is NAME on SERVER.
        arguments: None if unknown.
        call_id: its id.
        namespace: `mcp__SERVER`, where the name lacks the server.
    """
    tool, server = str(name or ""), str(namespace or "")
    if tool.startswith("mcp__") and "__" in tool[5:]:
        server, _, tool = tool[5:].partition("__")
    else:
        server = server[5:].rstrip("_") if server.startswith("mcp__") else ""
    return {"name": tool, "server": server or None, "given": arguments, "id": str(call_id or "")}


def result(content: object, call_id: object, has_failed: object) -> dict[str, object]:
    """A tool's result, as records have it: without pictures and documents."""
    if isinstance(content, list):
        parts = [part for part in parts_of(content) if kind_of(part) not in _PICTURES]
        is_text = all(kind_of(part).endswith("text") or isinstance(part, str) for part in parts)
        content = text_of(parts) if is_text else compact(parts)
    return {"content": content, "id": str(call_id or ""), "failed": bool(has_failed)}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What a prompt tells of its turn; see `prompt`."""

    root: str
    session: str
    version: object
    time: object
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    """How a call ended, told apart from its result."""

    call: object  # its id
    failed: bool


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line that counts, or a part of one, as its record has it.

    Attributes:
        id: what it is known by, with its role.
        order: what lines are sorted by: when its file began, or else its time.
        text: which no other line repeats, unlike `texts`; likewise `reasoning` and `thinking`.
        message: of which it is a part; None if it is a message by itself.
        turn: that it begins.
        is_copied: whether that is another session's turn: then only its text counts.
    """

    id: str
    role: Role
    time: str
    order: tuple[Any, ...]
    message: str | None
    text: str
    texts: Sequence[str]
    reasoning: str
    thinking: Sequence[str]
    calls: Sequence[ToolCall]
    results: Sequence[ToolResult]
    model: str
    turn: Turn | None
    ended: Ended | None
    is_copied: bool

    @classmethod
    def of(cls, record: Json) -> "Line":
        """The line of a record."""
        is_end, time = record["role"] == "end", record["time"]
        return cls(
            id=record["id"],
            role="tool" if is_end else record["role"],
            time=time,
            order=tuple(record.get("order") or [time]),
            message=record.get("message"),
            text=record.get("text") or "",
            texts=record.get("texts", ()),
            reasoning=record.get("reasoning") or "",
            thinking=record.get("thinking", ()),
            calls=[
                ToolCall(x["name"], x["given"], x["id"], x["server"])
                for x in record.get("calls", ())
            ],
            results=[
                ToolResult(x["content"], x["id"], bool(x["failed"]))
                for x in record.get("results", ())
            ],
            model=str(record.get("model") or ""),
            turn=Turn(**record["turn"]) if record.get("turn") else None,
            ended=Ended(record["call"], bool(record["failed"])) if is_end else None,
            is_copied=bool(record.get("copied")),
        )


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules, *, framework: str) -> Drafted:
    """See `Format`."""
    if any(record.payload["role"] == "copy" for record in records):
        return Skipped(OTHERS, stays=True)
    lines = _distinct(records)
    own = [line for line in lines if not line.is_copied]
    turn = next(line.turn for line in own if line.turn)
    transcript = Transcript(recovery=rules.recovers)
    transcript.add_conversation(_messages(lines))
    models = [*dict.fromkeys(line.model for line in own if line.model)]
    fields = {name: [value] for name, value in turn.fields.items()}
    first = models[0] if models else None
    version = str(turn.version) if turn.version else None
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=time_of(turn.time),
        ended_at=time_of(max(line.time for line in own)),
        objective=transcript.objective,
        steps=transcript.steps,
        system=transcript.system,
        fields={**fields, "model": models} if models else fields,
        origin=Origin(first, first, turn.session, version),
        framework=framework,
        native=Native(root=turn.root, log=turn.session),
    )


def _distinct(records: Iterable[SourceRecord]) -> list[Line]:
    """The lines in their order, each once: of several contents of one, the earliest in time.

    A copy has the time of its original, or that of its making. Of equal times it is the one read
    last. Of a prompt that sessions share it is the upper one: a session that goes on with another
    one has a title above what it has copied. Of two in the same line it is one whatever is read
    first.
    """
    lines: dict[tuple[str, str, bool], tuple[int, Line]] = {}
    for record in records:
        number, line = record.line or 0, Line.of(record.payload)
        key = line.id, line.role, line.ended is None
        other, before = lines.get(key, (number, line))
        ours, theirs = _session(line), _session(before)
        is_upper = ours == theirs or (number, ours) < (other, theirs)
        if line.time < before.time or (line.time == before.time and is_upper):
            lines[key] = number, line
    return sorted((line for _, line in lines.values()), key=lambda line: line.order)


def _session(line: Line) -> str:
    return line.turn.session if line.turn else ""


def _messages(lines: Iterable[Line]) -> list[Message]:
    """The messages: several lines may be parts of one, which has the place of the first."""
    failed: dict[object, bool] = {}  # by the calls' ids
    messages: dict[object, list[Line]] = {}
    for line in lines:
        if line.ended:
            failed[line.ended.call] = line.ended.failed
        else:
            messages.setdefault(line.message or (line.id, line.role), []).append(line)
    return [_message(parts, failed) for parts in messages.values()]


def _message(lines: Sequence[Line], failed: Mapping[object, bool]) -> Message:
    texts = dict.fromkeys(text for line in lines for text in line.texts)
    thinking = dict.fromkeys(text for line in lines for text in line.thinking)
    return Message(
        role=lines[0].role,
        text=joined([*(line.text for line in lines), *texts]),
        reasoning=joined([*(line.reasoning for line in lines), *thinking]),
        calls=_calls(lines),
        results=tuple(
            replace(result, failed=failed.get(result.id, result.failed))
            for line in lines
            for result in line.results
        ),
    )


def _calls(lines: Iterable[Line]) -> tuple[ToolCall, ...]:
    """The calls of a message: where the first of copies stands, as the last one has it."""
    calls: dict[object, ToolCall] = {}
    for each in (call for line in lines for call in line.calls):
        calls[each.id or len(calls)] = each
    return tuple(calls.values())


def session_of(path: PurePath) -> str:
    """The name of a file's session: its own, without endings."""
    return path.name.partition(".")[0]


def without_pictures(value: Any) -> Any:
    """A value of JSON without the bytes of pictures and documents, and what is encrypted.

    What a tool is given stays as it is.
    """
    if isinstance(value, list):
        return [without_pictures(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    named = cast("dict[str, Any]", value)
    kind = named.get("type")
    left_out = _LEFT_OUT.get(kind, _ENCRYPTED) if isinstance(kind, str) else ()
    return {
        name: each if name in _GIVEN else without_pictures(each)
        for name, each in named.items()
        if name not in left_out
    }
