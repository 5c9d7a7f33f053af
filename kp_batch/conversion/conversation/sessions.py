"""Sessions of coding agents, line by line: what a user types, and what the agent does then.

A tool's format makes a record of each line that counts, with the parts that become steps. A turn is
drafted from these records.
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

WORDLESS = "turn without a text"  # its prompt is a picture
OTHERS = "turn of another session"
LOST = "step without its prompt"  # the prompt's line is missing, or damaged
FORGOTTEN = "\0"  # no trace has this name
_GIVEN = ("input", "arguments")  # keys of what tools are given
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
    """A turn that is only known by the name of its trace."""

    trace: str


@dataclass(kw_only=True)
class SessionFile:
    """A file, read from its first line on."""

    by_session: bool  # whether all of it is one trace; else each turn is
    now: object = None  # time of the current line; None if it has none
    _at: str = ""  # the last time of a line that counts
    _equals: Counter[str] = field(default_factory=Counter[str])  # equal records, by content
    _copied: SourceRecord | None = None  # the first prompt, if it is another session's

    def key(self, *what: object) -> dict[str, object]:
        """Return the beginning of a record: its id and its time.

        The id comes from its content, and its place among equal records. So lines that do not count
        may be added or removed before it.
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
        """Begin a turn; from a copied turn, a trace takes only the prompt."""
        if is_copied:
            self._copied = self._copied or record
            return
        if self._copied and self.by_session:
            yield self._copied
        self._copied = None
        yield record


@dataclass(frozen=True)
class Injected:
    """What a tool adds to its users' messages without showing it to them.

    Attributes:
        elements: names of elements, which are removed with their content.
        openings: patterns of beginnings; a text with one is the tool's as a whole.
        banner: pattern of a sentence above an element, which is removed with it.
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
        """Return what a user typed in a content."""
        return joined([self._typed(text_of_part(part)) for part in parts_of(content)])

    def _typed(self, text: str) -> str:
        rest = self.without_elements(text)
        begin = rest.lstrip()
        cut = self._tag.match(begin)  # an element without an end extends to the end
        is_cut = cut and not begin.startswith(" ", cut.end())  # if somebody mentions its tag, say
        return "" if self._opening.match(begin) or is_cut else rest

    def without_elements(self, text: str) -> str:
        """Return a text without what the tool added to it."""
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
    """Return the part of a record that begins a turn.

    Args:
        text: what was typed.
        root: id of the turn.
        session: id of its session.
        version: version of the agent.
        time: time of the line.
        fields: fields that rules may name, including the folder `cwd`, whose last part is the
            project; only texts that are not empty count.
        is_copied: whether another session has this turn; then only its text counts.
    """
    project = PurePath(str(fields.get("cwd") or "").replace("\\", "/")).name  # of any system
    named = {"project": project, **fields}
    texts = {name: x for name, x in named.items() if isinstance(x, str) and x}
    turn = {"root": root, "session": session, "version": version, "time": time, "fields": texts}
    return {"role": "user", "text": text, "turn": turn, "copied": is_copied}


def copy(id_: str, of: str, line: int) -> SourceRecord:
    """Return a record which says that the turn of this id is a copy of another one.

    A copy of a copy names the same origin, wherever and whenever it is read.
    """
    return SourceRecord(id_, {"id": of, "time": "", "role": "copy"}, line)


def call(
    name: object, arguments: object, call_id: object, namespace: object = ""
) -> dict[str, object]:
    """Return a tool's call, as records contain it.

    Args:
        name: name of the tool; `mcp__SERVER__NAME` is NAME on SERVER.
        arguments: None if unknown.
        call_id: id of the call.
        namespace: `mcp__SERVER`, if the name lacks the server.
    """
    tool, server = str(name or ""), str(namespace or "")
    if tool.startswith("mcp__") and "__" in tool[5:]:
        server, _, tool = tool[5:].partition("__")
    else:
        server = server[5:].rstrip("_") if server.startswith("mcp__") else ""
    return {"name": tool, "server": server or None, "given": arguments, "id": str(call_id or "")}


def result(content: object, call_id: object, has_failed: object) -> dict[str, object]:
    """Return a tool's result, as records contain it: without pictures and documents."""
    if isinstance(content, list):
        parts = [part for part in parts_of(content) if kind_of(part) not in _PICTURES]
        is_text = all(kind_of(part).endswith("text") or isinstance(part, str) for part in parts)
        content = text_of(parts) if is_text else compact(parts)
    return {"content": content, "id": str(call_id or ""), "failed": bool(has_failed)}


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What a prompt records of its turn; see `prompt`."""

    root: str
    session: str
    version: object
    time: object
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Ended:
    """How a call ended, recorded apart from its result."""

    call: object  # id of the call
    failed: bool


@dataclass(frozen=True, kw_only=True)
class SessionLine:
    """A line that counts, or a part of one, as in its record.

    Attributes:
        id: its id, with its role.
        order: sort key of lines: when its file began, or else its time.
        text: a text that no other line repeats, unlike `texts`; so are `reasoning` and `thinking`.
        message: message that it is a part of; None if it is a message by itself.
        turn: turn that it begins.
        is_copied: whether the turn is another session's; then only its text counts.
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
    turn: Prompt | None
    ended: Ended | None
    is_copied: bool

    @classmethod
    def of(cls, record: Json) -> "SessionLine":
        """Make the line of a record."""
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
            turn=Prompt(**record["turn"]) if record.get("turn") else None,
            ended=Ended(record["call"], bool(record["failed"])) if is_end else None,
            is_copied=bool(record.get("copied")),
        )


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules, *, framework: str) -> Drafted:
    """See `Format`."""
    if any(record.payload["role"] == "copy" for record in records):
        return Skipped(OTHERS, keeps_records=True)
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


def _distinct(records: Iterable[SourceRecord]) -> list[SessionLine]:
    """Return the lines in order, each once; of different contents, the earliest in time.

    A copy has the time of its original, or of the copying. At equal times, the one read last
    counts. If sessions share a prompt, the upper one counts: a session that continues another one
    has a title above the copied lines. If both are in the same line, the order of reading does not
    matter.
    """
    lines: dict[tuple[str, str, bool], tuple[int, SessionLine]] = {}
    for record in records:
        number, line = record.line or 0, SessionLine.of(record.payload)
        key = line.id, line.role, line.ended is None
        other, before = lines.get(key, (number, line))
        ours, theirs = _session(line), _session(before)
        is_upper = ours == theirs or (number, ours) < (other, theirs)
        if line.time < before.time or (line.time == before.time and is_upper):
            lines[key] = number, line
    return sorted((line for _, line in lines.values()), key=lambda line: line.order)


def _session(line: SessionLine) -> str:
    return line.turn.session if line.turn else ""


def _messages(lines: Iterable[SessionLine]) -> list[Message]:
    """Return the messages; a message of several lines has the place of its first line."""
    failed: dict[object, bool] = {}  # by id of the call
    messages: dict[object, list[SessionLine]] = {}
    for line in lines:
        if line.ended:
            failed[line.ended.call] = line.ended.failed
        else:
            messages.setdefault(line.message or (line.id, line.role), []).append(line)
    return [_message(parts, failed) for parts in messages.values()]


def _message(lines: Sequence[SessionLine], failed: Mapping[object, bool]) -> Message:
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


def _calls(lines: Iterable[SessionLine]) -> tuple[ToolCall, ...]:
    """Return the calls of a message; a repeated call has its first place and last content."""
    calls: dict[object, ToolCall] = {}
    for each in (call for line in lines for call in line.calls):
        calls[each.id or len(calls)] = each
    return tuple(calls.values())


def session_of(path: PurePath) -> str:
    """Return the name of a file's session: the file's name without endings."""
    return path.name.partition(".")[0]


def without_pictures(value: Any) -> Any:
    """Remove the bytes of pictures and documents, and encrypted values, from JSON.

    What a tool is given stays unchanged.
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
