"""Sessions of coding agents: what a user types, and what the agent does then, line by line.

A tool's format makes a record of each line that counts, of the parts that become steps, and a turn
is drafted of these.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePath

from kp_batch import limits
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    as_object,
    compact,
    joined,
    kind_of,
    parts_of,
    text_of,
    text_of_part,
)
from kp_batch.conversion.conversation.transcript import Transcript
from kp_batch.conversion.model import Native, Origin, SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.text import sortable, time_of

FIRST_LINES = 100  # among which a session shows that it is one
WORDLESS = "turn without a text"  # whose prompt is a picture
_PICTURES = {"image", "input_image", "local_image", "document", "input_file", "input_audio"}


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
            content = limits.dump(what)
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
        # An element without an end has all the rest, but not where somebody mentions its tag.
        return "" if self._opening.match(begin) or self._tag.match(begin) else rest

    def without_elements(self, text: str) -> str:
        """A text without what the tool put into it; the same where that is nothing."""
        kept, begin, endless = list[str](), 0, set[str]()
        for tag in self._tag.finditer(text):
            end = f"</{tag[1]}>"
            if tag.start() < begin or tag[1] in endless:
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


def draft(
    trace: str, records: Sequence[SourceRecord], rules: Rules, *, framework: str
) -> TraceDraft:
    """See `Format`; records are sorted by their `order`, or else their `time`, a sortable text."""
    lines = _distinct(records)
    own = [line for line in lines if not line.get("copied")]
    turn: Json = next(line["turn"] for line in own if line.get("turn"))
    transcript = Transcript(recovery=rules.recovers)
    transcript.add_conversation(_messages(lines))
    models = [*dict.fromkeys(str(line["model"]) for line in own if line.get("model"))]
    fields = {name: [value] for name, value in turn["fields"].items()}
    version = turn["version"]
    first = models[0] if models else None
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=time_of(turn["time"]),
        ended_at=time_of(max(line["time"] for line in own)),
        objective=transcript.objective,
        steps=transcript.steps,
        fields={**fields, "model": models} if models else fields,
        origin=Origin(first, first, turn["session"], str(version) if version else None),
        framework=framework,
        native=Native(root=turn["root"], log=turn["session"]),
    )


def _distinct(records: Iterable[SourceRecord]) -> list[Json]:
    """The lines in their order, each once: of several contents of one, the one read last.

    Of a prompt that sessions share it is the upper one: a session that goes on with another one
    has a title above what it has copied.
    """
    lines: dict[tuple[object, object], tuple[int, Json]] = {}
    for record in records:
        key = record.payload["id"], record.payload["role"]
        number, line = record.line or 0, record.payload
        other, before = lines.get(key, (number, line))
        if number < other or _session(line) == _session(before):
            lines[key] = number, line
    ordered = [line for _, line in lines.values()]
    return sorted(ordered, key=lambda line: line.get("order") or line["time"])


def _session(line: Json) -> object:
    return as_object(line.get("turn")).get("session")


def _messages(lines: Iterable[Json]) -> list[Message]:
    """The messages: several lines may be parts of one, which has the place of the first.

    Whether a tool has failed may be in a line apart from its result.
    """
    failed: dict[object, bool] = {}  # by the calls' ids
    messages: dict[object, list[Json]] = {}
    for line in lines:
        if line["role"] == "end":
            failed[line["call"]] = bool(line["failed"])
        else:
            messages.setdefault(line.get("message") or (line["id"], line["role"]), []).append(line)
    return [_message(parts, failed) for parts in messages.values()]


def _message(lines: Sequence[Json], failed: dict[object, bool]) -> Message:
    return Message(
        role=lines[0]["role"],
        text=joined([*(line.get("text") or "" for line in lines), *_once(lines, "texts")]),
        reasoning=joined(
            [*(line.get("reasoning") or "" for line in lines), *_once(lines, "thinking")]
        ),
        calls=_calls(lines),
        results=tuple(
            ToolResult(x["content"], x["id"], failed.get(x["id"], bool(x["failed"])))
            for line in lines
            for x in line.get("results", ())
        ),
    )


def _once(lines: Sequence[Json], name: str) -> list[str]:
    """The blocks of a message, of which a line may repeat those before."""
    return [*dict.fromkeys(block for line in lines for block in line.get(name, ()))]


def _calls(lines: Sequence[Json]) -> tuple[ToolCall, ...]:
    """Likewise its calls: where the first one stands, as the last one has it."""
    calls: dict[object, ToolCall] = {}
    for line in lines:
        for x in line.get("calls", ()):
            calls[x["id"] or len(calls)] = ToolCall(x["name"], x["given"], x["id"], x["server"])
    return tuple(calls.values())
