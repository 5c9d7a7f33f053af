"""Pi's sessions, from `~/.pi/agent/sessions`: a line is an entry of a tree, below its parent.

The Hub's Session Trace Simple Format, a header and a list of messages, is read as well. Left out of
the records are pictures and encrypted content. Traces also leave out commands that users run
themselves, what extensions add, and summaries.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kp_batch.conversion.conversation import sessions
from kp_batch.conversion.conversation.messages import (
    Json,
    as_object,
    id_text,
    list_in,
    parts_of,
    text_of,
)
from kp_batch.conversion.formats.json_files import read_json_lines
from kp_batch.conversion.model import (
    Format,
    InTurn,
    Lines,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    Turn,
    by_ending,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.text import sortable, time_of_number

_SKILL = re.compile(r'<skill name="([^"]*)" location="[^"]*">\n.*?\n</skill>', re.DOTALL)
_FILES = sessions.Injected(elements=("file",), openings=())
_RESULTS = ("toolResult", "tool")
_KINDS = (
    *("message", "session", "model_change", "thinking_level_change", "compaction"),
    *("branch_summary", "custom", "custom_message", "label", "session_info"),
)
_ROLES = (
    *("user", "assistant", "system", *_RESULTS),
    *("bashExecution", "custom", "branchSummary", "compactionSummary"),
)


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: each line is a record."""
    items = read_json_lines(path)
    first = next(items, None)
    header: Json = first[1] if isinstance(first, tuple) else {}
    if header.get("type") != "session" or "id" not in header:
        raise UnreadableError("it is not a session of Pi: it does not begin with its header")
    name = sessions.session_of(path)
    yield SourceRecord(name, header, 1)
    for item in items:
        if isinstance(item, Refused):
            yield item
            continue
        number, line = item
        yield SourceRecord(name, sessions.without_pictures(line), number)


def _unknown(line: Json) -> Iterator[Skipped]:
    kind, role = line.get("type"), as_object(line.get("message")).get("role")
    if kind not in _KINDS:
        yield of_unknown_kind("line", kind)
    elif kind == "message" and role not in _ROLES:
        yield of_unknown_kind("message", role)


def turns(_: str, lines: Lines, rules: Rules) -> Iterator[ReadItem | InTurn]:
    """See `Format`."""
    session = _PiSession(by_session=rules.trace == "session", header={})
    for number, line in lines:
        if not line:
            session.forget(is_first=line is not None)
        elif line.get("type") == "session" and not session.header:
            session.header = line
        else:
            yield from session.take(number, line)
        yield InTurn(number, session.turn)
    if not session.prompts:
        yield Skipped("session without a prompt")


@dataclass(kw_only=True)
class _PiSession(sessions.SessionFile):
    header: Json
    prompts: int = 0
    _trace: str | None = ""  # of the current entry; '' if it has none; None if it is lost
    _traces: dict[str, str | None] = field(default_factory=dict[str, str | None])  # by entries' ids
    # Entries after which the model continues by itself: what a user types there steers it.
    _due: set[str] = field(default_factory=set[str])

    _has_gap: bool = False  # whether lines are forgotten, which may be the parents of others

    @property
    def turn(self) -> Turn:
        """The turn of the last line."""
        return sessions.NamedTurn(self._trace or "")

    def forget(self, *, is_first: bool) -> None:
        """Take a forgotten line: those below it belong to no trace."""
        self.prompts += is_first
        self._trace, self._has_gap = sessions.FORGOTTEN, True

    def take(self, number: int, line: Json) -> Iterator[ReadItem]:
        """Yield the records of a line; its parent is the line above in version 1, without ids."""
        message, kind = as_object(line.get("message")), line.get("type")
        time = time_of_number(message.get("timestamp"))
        self.now = line.get("timestamp") or (time.isoformat() if time else None)
        id_, parent = (id_text(line.get(name)) for name in ("id", "parentId"))
        # A fork lacks the labels of what it copies: what is below one is below the line above.
        lost = self._trace if self.by_session or self._is_copied else None
        lost = sessions.FORGOTTEN if self._has_gap else lost
        self._trace = self._traces.get(parent, lost if parent else "")
        is_due, role = parent in self._due, message.get("role") if kind == "message" else ""
        self._due.discard(parent)  # another one below the same entry is a branch
        if role == "user":
            yield from self._user(number, line, is_due=is_due)
        elif role == "assistant" and message.get("stopReason") != "error":  # Pi tries again
            yield from self._add(number, line, "assistant", _answer(message))
        elif role in _RESULTS:
            fields = (message.get(name) for name in ("content", "toolCallId", "isError"))
            yield from self._add(number, line, "tool", {"results": [sessions.result(*fields)]})
        if role in _RESULTS or (is_due and role != "assistant"):
            self._due.add(id_)
        self._traces[id_] = self._trace

    @property
    def _is_copied(self) -> bool:
        """Whether a fork copied the current line from another session."""
        header = self.header
        return "parentSession" in header and sortable(self.now) < sortable(header.get("timestamp"))

    def _user(self, number: int, line: Json, *, is_due: bool) -> Iterator[ReadItem]:
        content = line["message"].get("content")
        text = _typed(text_of(content))
        if text and is_due:
            yield from self._add(number, line, "user", {"text": text})
        elif text:
            yield from self._begin(number, line, text)
        elif sessions.has_pictures(content) and not self.by_session:
            self._trace = ""  # what follows is the work on the picture
            yield Skipped(sessions.WORDLESS)

    def _begin(self, number: int, line: Json, text: str) -> Iterator[SourceRecord]:
        self.prompts += 1
        session, id_ = id_text(self.header["id"]), id_text(line.get("id"))
        # A fork copies entries with their times and ids, and the ids are too short to be unique.
        turn = f"{id_}/{self.now or session}" if id_ else f"{session}/{self.prompts}"
        trace, root = session if self.by_session else turn, id_ or turn
        is_copied = self.by_session and self._is_copied
        self._trace = "" if is_copied else trace
        details = {"time": self.now, "fields": self.header, "is_copied": is_copied}
        part = sessions.prompt(text, root=root, session=session, **details)
        record = SourceRecord(trace, {**self.key(turn), "id": root, **part}, number)
        yield from self.begin(record, is_copied=is_copied)

    def _add(self, number: int, line: Json, role: str, part: Json) -> Iterator[ReadItem]:
        if any(part.values()) and self._trace is None:
            yield Skipped(sessions.LOST)
        elif any(part.values()) and self._trace:
            key = self.key(self._trace, role, part)
            key |= {"id": id_text(line.get("id")) or key["id"], "role": role}
            yield SourceRecord(self._trace, {**key, **part}, number)


def _typed(text: str) -> str:
    """Return what a user typed in a text; for a skill, its name."""
    typed = _FILES.without_elements(text) or text
    if skill := _SKILL.match(typed):
        return f"/skill:{skill[1]} {typed[skill.end() :].strip()}".strip()
    return typed


def _answer(message: Json) -> Json:
    parts = [as_object(part) for part in parts_of(message.get("content"))]
    thoughts = [part.get("thinking") for part in parts if not part.get("redacted")]
    separate = map(as_object, list_in(message.get("toolCalls")))
    calls = [x for x in parts if x.get("type") == "toolCall"]
    calls += ({**x, **as_object(x.get("function"))} for x in separate)
    answer = {
        "text": text_of(message.get("content")),
        "reasoning": text_of([*filter(None, thoughts), message.get("reasoningContent")]),
        "calls": [sessions.call(x.get("name"), x.get("arguments"), x.get("id")) for x in calls],
    }
    return {**answer, "model": message.get("model")} if any(answer.values()) else {}


FORMAT = Format(
    name="pi",
    contents="no scores; project, model, and what a session's header has, as cwd",
    inputs=by_ending(".jsonl"),
    records=records,
    turns=turns,
    unknown=_unknown,
    draft=partial(sessions.draft, framework="pi"),
)
