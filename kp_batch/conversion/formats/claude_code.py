"""Claude Code's sessions, from `~/.claude/projects`: a line is a message, or a part of one.

Left out of the records are pictures, documents, snapshots of files, signatures of thoughts, and
`toolUseResult`, which repeats a result. Subagents' texts are left out because a call and its result
represent them. A line without content only keeps its place among the others.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

from kp_batch.conversion.conversation import sessions
from kp_batch.conversion.conversation.messages import (
    Json,
    Reasoning,
    ToolCall,
    ToolResult,
    as_object,
    id_text,
    kind_of,
    parts_of,
    text_of,
    text_of_part,
)
from kp_batch.conversion.formats.json_files import own_lines
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
from kp_batch.conversion.vendors import ANTHROPIC, pieces_of

_INJECTED = sessions.Injected(
    elements=(
        *("system-reminder", "ide_opened_file", "ide_selection", "task-notification"),
        *("local-command-caveat", "local-command-stdout", "local-command-stderr"),
        *("bash-input", "bash-stdout", "bash-stderr", "new-diagnostics"),
        *("teammate-message", "agent-message", "cross-session-message", "user-prompt-submit-hook"),
    ),
    openings=(
        r"\[Request interrupted by user",
        r"\[Your previous response had no visible output",
        r"\[SYSTEM NOTIFICATION - NOT USER INPUT\]",
        r"\[Subagent hand-back\]",
        r"Another Claude session sent a message[\w ]*:\s*?(?:\n|$)",
        "This came from another Claude session",
        "Stop hook feedback:",
        "Caveat: The messages below were generated",
        "This session is being continued from a previous conversation",
        "Base directory for this skill:",
    ),
    banner=r"A background [^\n<]{1,80}:\s{1,9}",
)
# Above or below what a tool returned; one within belongs to it, for example in a file that was
# read.
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_PEOPLE = (None, "human", "channel")  # whose prompts count
# Around what people type elsewhere.
_CHANNEL = re.compile(r"^<channel(?:\s[^<>]*)?>|</channel>$", re.MULTILINE)
_OUTPUTS = ("<local-command-stdout", "<local-command-stderr")
_ASIDE = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")
_FIRED = "scheduled_task_fire"
_OWN = ("sessionId", "leafUuid", "messageId")  # each kind of line has one of these
_FIELDS = ("cwd", "gitBranch", "version", "entrypoint")
_SPEAK = ("user", "assistant", "attachment", "system")
_SILENT = (
    *("summary", "ai-title", "custom-title", "agent-name", "tag", "pr-link", "mode"),
    *("permission-mode", "file-history-snapshot", "queue-operation", "last-prompt", "progress"),
)
_PLACE = ("type", "subtype", "uuid", "parentUuid", "timestamp", "sessionId", "isSidechain")
_SAY = (
    *_FIELDS,
    *("message", "attachment", "origin", "forkedFrom", "isApiErrorMessage"),
    *("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"),
)


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: each line is a record, with only what may count."""
    if path.name.startswith("agent-"):
        yield Skipped("session of a subagent")
        return
    name = sessions.session_of(path)
    for item in own_lines(path, _is_own, "session of Claude Code"):
        if isinstance(item, Refused):
            yield item
            continue
        number, line = item
        yield SourceRecord(name, _kept(line), number)


def _is_own(line: Json) -> bool:
    return isinstance(line.get("type"), str) and any(map(line.get, _OWN))


def _unknown(line: Json) -> Iterator[Skipped]:
    if "type" in line and line["type"] not in (*_SPEAK, *_SILENT):
        yield of_unknown_kind("line", line["type"])


def _kept(line: Json) -> Json:
    """Return a line without pictures and the tool's own data; without content, only its place."""
    says = line.get("type") in _SPEAK and not line.get("isSidechain")
    kept = {name: each for name, each in line.items() if name in _PLACE or (says and name in _SAY)}
    return cast("Json", sessions.without_pictures(kept))


def turns(name: str, lines: Lines, rules: Rules) -> Iterator[ReadItem | InTurn]:
    """See `Format`."""
    session = _ClaudeSession(by_session=rules.trace == "session", stem=name)
    for number, line in lines:
        if not line:
            session.forget()
        else:
            yield from session.take(number, line)
        yield InTurn(number, session.turn)
    if not session.has_prompt:
        yield Skipped(f"session {'of a subagent' if session.has_aside else 'without a prompt'}")


@dataclass(eq=False)
class _ClaudeTurn:
    """A prompt with the lines below it.

    Attributes:
        trace: trace that they belong to; '' if none.
        is_lost: whether there is none because the line above them is missing.
    """

    trace: str = ""
    is_lost: bool = False


@dataclass(kw_only=True)
class _ClaudeSession(sessions.SessionFile):
    stem: str  # of the file's name
    has_prompt: bool = False
    has_aside: bool = False  # whether there are messages of a subagent
    _turn: _ClaudeTurn = field(default_factory=_ClaudeTurn)  # of the current line
    _forgotten: _ClaudeTurn | None = None  # its lines may be the parents of others
    _turns: dict[str, _ClaudeTurn] = field(
        default_factory=dict[str, _ClaudeTurn]
    )  # by id of a line
    # A slash command that nothing has answered yet, and its turn.
    _command: tuple[int, Json, str, _ClaudeTurn] | None = None
    _is_due: bool = False  # whether a scheduled prompt follows, which is marked as an aside

    @property
    def turn(self) -> Turn | None:
        """The turn of the last line; None if it is unknown yet whether the line begins one."""
        is_open = self._command and self._command[-1] is self._turn
        return None if is_open else self._turn

    def forget(self) -> None:
        """Take a forgotten line: those below it belong to no trace."""
        self._forgotten = self._forgotten or _ClaudeTurn(sessions.FORGOTTEN)
        self._turn, self._command, self._is_due = self._forgotten, None, False

    def take(self, number: int, line: Json) -> Iterator[ReadItem]:
        """Yield the records of a line, which belongs to the turn of the line it names as parent."""
        self.now = line.get("timestamp")
        if parent := id_text(line.get("parentUuid") or None):
            # A session has all of its lines; a line without an id may be the parent of any.
            is_known = self.by_session or "" in self._turns
            lost = self._turn if is_known else _ClaudeTurn(is_lost=True)
            self._turn = self._turns.get(parent, self._forgotten or lost)
        yield from self._taken(number, line)
        if (id_ := id_text(line.get("uuid") or None)) or parent:
            self._turns[id_] = self._turn

    def _taken(self, number: int, line: Json) -> Iterator[ReadItem]:
        if line.get("isSidechain"):
            self.has_aside = True
        elif line.get("type") == "user":
            yield from self._user(number, line)
        elif line.get("type") == "assistant" and not _is_error(line):
            yield from self._answered()
            yield from self._add(number, line, "assistant", _answer(line))
        elif line.get("subtype") == _FIRED:
            self._is_due = True
        elif text := _typed_meanwhile(line):
            yield from self._add(number, line, "user", {"text": text})

    def _user(self, number: int, line: Json) -> Iterator[ReadItem]:
        content = _content(line)
        results = [
            sessions.result(
                _returned(part.get("content")), part.get("tool_use_id"), part.get("is_error")
            )
            for part in map(as_object, content)
            if kind_of(part) == "tool_result"
        ]
        yield from self._add(number, line, "tool", {"results": results})
        is_output = any(tag in text_of_part(part) for part in content for tag in _OUTPUTS)
        if is_output or _came_from(line) not in _PEOPLE:
            self._command = None  # it was carried out, or the model answers something else
        is_due, self._is_due = self._is_due and not results, False
        if not _is_typed(line, is_marked=is_due):
            return
        text = _words(line, content)
        if not text and not results and sessions.has_pictures(content) and not self.by_session:
            self._turn, self._command = (
                _ClaudeTurn(),
                None,
            )  # what follows is the work on the picture
            yield Skipped(sessions.WORDLESS)
        elif not text:
            return
        elif text.lstrip().startswith("<command-") and (name := _element(text, "name")):
            text = f"/{name.removeprefix('/').strip()} {_element(text, 'args').strip()}".strip()
            self._turn = replace(self._turn)
            self._command = (number, line, text, self._turn)
        else:
            self._command, self._turn = None, _ClaudeTurn()
            yield from self._begin(number, line, text)

    def _answered(self) -> Iterator[ReadItem]:
        """Yield the prompt of a slash command, once the model answers it."""
        if self._command and self._command[-1] is self._turn:
            (number, line, text, _), self._command = self._command, None
            yield from self._begin(number, line, text)

    def _begin(self, number: int, line: Json, text: str) -> Iterator[ReadItem]:
        """Begin the turn of the current line; its prompt or command is known."""
        session, id_ = str(line.get("sessionId") or self.stem), _original(line)
        if not id_:
            self._turn.trace = ""
            yield Refused(["missing_id"], "a prompt without a uuid", line=number)
            return
        trace = session if self.by_session else id_
        is_copied = self.by_session and "forkedFrom" in line
        self._turn.trace = "" if is_copied else trace  # only its own lines below are the session's
        self._turn.is_lost = False
        self.has_prompt = self.has_prompt or not is_copied
        part = sessions.prompt(
            text,
            root=id_,
            # The origin of a copy, if any, so a line is the same in both.
            session=str(as_object(line.get("forkedFrom")).get("sessionId") or session),
            version=line.get("version"),
            time=line.get("timestamp"),
            fields={name: line.get(name) for name in _FIELDS},
            is_copied=is_copied,
        )
        record = SourceRecord(trace, {**self.key(id_), "id": id_, **part}, number)
        yield from self.begin(record, is_copied=is_copied)
        own = id_text(line.get("uuid") or None)
        if own and own != id_ and not self.by_session:
            yield sessions.copy(own, id_, number)

    def _add(self, number: int, line: Json, role: str, part: Json) -> Iterator[ReadItem]:
        if not any(part.values()):
            return
        if self._turn.is_lost:
            yield Skipped(sessions.LOST)
        elif trace := self._turn.trace:
            key = self.key(trace, role, part)
            key |= {"id": _original(line) or key["id"], "role": role}
            yield SourceRecord(trace, {**key, **part}, number)


def _original(line: Json) -> str:
    """Return the id of a line, or of the line that it is a copy of; empty if it has none."""
    copied = as_object(line.get("forkedFrom")).get("messageUuid")
    return id_text(copied or line.get("uuid") or None)


def _content(line: Json) -> list[object]:
    return parts_of(as_object(line.get("message")).get("content"))


def _came_from(line: Json) -> object:
    return as_object(line.get("origin")).get("kind")


def _is_typed(line: Json, *, is_marked: bool) -> bool:
    """Whether a user may have typed a line, here or in a chat, whose lines are marked as asides."""
    aside = {name for name in _ASIDE if line.get(name)}
    is_marked = is_marked or _came_from(line) == "channel"
    return _came_from(line) in _PEOPLE and (not aside or (is_marked and aside == {"isMeta"}))


def _words(line: Json, content: object) -> str:
    text = _INJECTED.typed(content)
    return _CHANNEL.sub("", text).strip() if _came_from(line) == "channel" else text


def _returned(content: object) -> object:
    """Return what a tool returned, without the reminders that Claude Code adds around it."""
    if isinstance(content, str):
        return _between_reminders(content)
    if not isinstance(content, list):
        return content
    parts = [(part, text_of_part(part)) for part in cast("list[object]", content)]
    kept = [(part, text, _between_reminders(text)) for part, text in parts]
    return [
        {**as_object(part), "text": between} if between != text else part
        for part, text, between in kept
        if between or not text
    ]


def _between_reminders(text: str) -> str:
    """Return a text without reminders at its ends, and the line breaks next to them."""
    reminders = _reminders(text)
    begin, end = 0, len(text)
    for start, stop in reminders:
        if text[begin:start].strip():
            break
        begin = stop
    for start, stop in reversed(reminders):
        if start < begin or text[stop:end].strip():
            break
        end = start
    kept = text[begin:end].removeprefix("\n") if begin else text[:end]
    return kept.removesuffix("\n").removesuffix("\n") if end < len(text) else kept


def _reminders(text: str) -> list[tuple[int, int]]:
    """Return the places of reminders that begin a line, without those inside others."""
    places, after = list[tuple[int, int]](), 0
    while (end := text.find(_REMINDER_END, after)) >= 0:
        begin = text.rfind(f"\n{_REMINDER}", after, end) + 1
        is_first = not after and text.startswith(_REMINDER)
        after = end + len(_REMINDER_END)
        if begin or is_first:
            places.append((begin, after))
    return places


def _element(text: str, name: str) -> str:
    """Return the content of an element of a slash command; empty if there is none."""
    _, _, rest = text.partition(f"<command-{name}>")
    enclosed, is_closed, _ = rest.partition(f"</command-{name}>")
    return enclosed if is_closed else ""


def _typed_meanwhile(line: Json) -> str:
    """Return what a user typed while the agent was working; '' for any other line."""
    queued = as_object(line.get("attachment"))
    is_prompt = queued.get("type") == "queued_command" and queued.get("commandMode") == "prompt"
    if line.get("type") != "attachment" or not is_prompt or _came_from(queued) not in _PEOPLE:
        return ""
    return _words(queued, queued.get("prompt"))


def _is_error(line: Json) -> bool:
    model = as_object(line.get("message")).get("model")
    return bool(line.get("isApiErrorMessage")) or model == "<synthetic>"


def _answer(line: Json) -> Json:
    message, pieces = cast("Json", line.get("message") or {}), pieces_of(_content(line), ANTHROPIC)
    thoughts = [text_of(piece.content) for piece in pieces if isinstance(piece, Reasoning)]
    answer = {
        "thinking": [thought for thought in thoughts if thought],
        "texts": [piece for piece in pieces if isinstance(piece, str) and piece],
        "calls": [
            sessions.call(call.name, call.arguments, call.id)
            for call in pieces
            if isinstance(call, ToolCall)
        ],
        # Tools that the model's provider runs, for example a search or an advisor.
        "results": [
            sessions.result(found.content, found.id, found.failed)
            for found in pieces
            if isinstance(found, ToolResult)
        ],
    }
    if not any(answer.values()):
        return {}
    id_ = message.get("id")
    return {**answer, "model": message.get("model"), "message": str(id_) if id_ else None}


FORMAT = Format(
    name="claude-code",
    contents="no scores; project, cwd, gitBranch, model, version, entrypoint",
    inputs=by_ending(".jsonl"),
    records=records,
    turns=turns,
    unknown=_unknown,
    draft=partial(sessions.draft, framework="claude-code"),
)
