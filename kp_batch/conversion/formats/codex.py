"""Codex's sessions, from `~/.codex/sessions`: a line is an item, or an event.

Left out of the records are pictures, encrypted content, which nobody can read, instructions, which
each session repeats, and events and compacted histories that repeat items. Sessions of subagents
are kept, but no trace is made from them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from kp_batch.conversion.conversation import sessions
from kp_batch.conversion.conversation.attributes import value_at
from kp_batch.conversion.conversation.messages import (
    Json,
    as_object,
    first_of,
    id_text,
    joined,
    object_in,
    parts_of,
    text_of,
)
from kp_batch.conversion.formats import codex_prompts as prompts
from kp_batch.conversion.formats.json_files import own_lines
from kp_batch.conversion.model import (
    Format,
    Input,
    InTurn,
    Lines,
    Probe,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.text import sortable, time_of

_FIELDS = (
    *("cwd", "model_provider", "cli_version", "originator", "source"),
    *("git.branch", "git.repository_url"),
)
# Threads that agents begin; all others belong to a feature that a user has chosen.
_OF_AGENTS = ("subagent", "guardian_review", "memory_consolidation")
_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_INSTRUCTIONS = ("base_instructions", "instructions", "user_instructions", "developer_instructions")
_SILENT = ("compacted", "world_state")  # kinds of lines
_REPEATS = ("token_count", "agent_message", "agent_reasoning", "ghost_snapshot")  # of payloads
_FAILED = re.compile(
    r"^(?:Script failed|(?:Exit code:|Process exited with code) (?!0\s*$)-?\d+)\s*$", re.MULTILINE
)
_STARTS = ("task_started", "turn_started")
_BEGINS = (*_STARTS, "user_message")
_COMPLETES = ("task_complete", "turn_complete", "turn_aborted")
_AT_ONCE = 1.0  # seconds between copied lines, at most
_ENDS = ("exec_command_end", "patch_apply_end", "mcp_tool_call_end")
_MESSAGES = ("UserMessage", "AgentMessage", "Reasoning")
# What has a meaning here, and what is passed over because no trace needs it.
_ITEMS = (
    *("message", "reasoning", "ghost_snapshot", "additional_tools", "configuration_update"),
    *("compaction", "compaction_summary", "context_compaction"),
)
_EVENTS = (
    *(*_BEGINS, *_COMPLETES, *_ENDS, *_REPEATS, "item_completed", "agent_reasoning_raw_content"),
    *("context_compacted", "thread_rolled_back", "thread_goal_updated", "thread_name_updated"),
    *("thread_settings_applied", "entered_review_mode", "exited_review_mode", "undo_completed"),
    *("web_search_end", "image_generation_end", "view_image_tool_call", "sub_agent_activity"),
    *("collab_agent_spawn_end", "collab_agent_interaction_end", "collab_waiting_end"),
    *("collab_close_end", "collab_resume_end", "dynamic_tool_call_request"),
    *("dynamic_tool_call_response", "guardian_assessment", "error", "warning", "stream_error"),
)
_LOST = "its first line, which identifies the session, is lost"
_UUID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_NAME = re.compile(r"rollout-.{19}-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")  # a file's name


def _inputs(paths: Sequence[str], _: Probe) -> Iterator[Input]:
    """Yield each session once; an unpacked file replaces a packed one."""
    all_paths = set(paths)
    for path in paths:
        is_packed = path.lower().endswith(".jsonl.zst")
        if path.lower().endswith(".jsonl") or (is_packed and path[:-4] not in all_paths):
            yield Input(path)


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: each line is a record, with only what may count.

    Raises:
        UnreadableError: it is not a session, or its first line is lost, see `_LOST`.
    """
    name = sessions.session_of(path)
    is_known = bool(_NAME.match(name))  # whose session it is
    for item in own_lines(path, _is_own, "session of Codex"):
        if isinstance(item, Refused):
            if not is_known:  # of two headers, a fork's own may be lost
                raise UnreadableError(_LOST)
            yield item
            continue
        number, line = item
        is_known = is_known or line.get("type") == "session_meta" or _is_bare_header(line)
        yield SourceRecord(name, _kept(line), number)


def _is_own(line: Json) -> bool:
    return line.get("type") in _KINDS or _is_bare_header(line)


def _is_bare_header(line: Json) -> bool:
    """Whether a line is the header of a session until autumn 2025, which has no type."""
    is_header = {*line} <= {"id", "timestamp", "instructions", "git"}
    return is_header and bool(line.get("id") and line.get("timestamp"))


def _unknown(line: Json) -> Iterator[Skipped]:
    """Yield the kind of a line, an item or an event; until autumn 2025, items were bare."""
    kind, payload = line.get("type"), as_object(line.get("payload"))
    if "payload" not in line:
        is_known = "type" not in line or _is_item(kind)
        yield from () if is_known else [of_unknown_kind("item", kind)]
    elif kind not in (*_KINDS, *_SILENT):
        yield of_unknown_kind("line", kind)
    elif kind == "response_item" and not _is_item(payload.get("type")):
        yield of_unknown_kind("item", payload.get("type"))
    elif kind == "event_msg" and payload.get("type") not in _EVENTS:
        yield of_unknown_kind("event", payload.get("type"))


def _is_item(kind: object) -> bool:
    return kind in _ITEMS or str(kind).endswith(("_call", "_output"))


def _kept(line: Json) -> Json:
    """Return a line without pictures and instructions; without content, its kind and time."""
    payload = as_object(line.get("payload"))
    if line.get("type") in _SILENT or payload.get("type") in _REPEATS:
        own = {name: each for name, each in payload.items() if name in ("type", "turn_id", "role")}
        line = {**line, "payload": own}
    elif payload:
        line = {**line, "payload": _without_instructions(payload)}
    elif "content" in line:
        line = _without_instructions(line)
    return cast("Json", sessions.without_pictures(line))


def _without_instructions(payload: Json) -> Json:
    """Return a payload without the texts that Codex or an app puts before what a user types."""
    kept = {name: each for name, each in payload.items() if name not in _INSTRUCTIONS}
    if isinstance(kept.get("images"), list):
        kept["images"] = ["" for _ in kept["images"]]
    if payload.get("type") == "message" and payload.get("role") != "assistant":
        parts = parts_of(payload.get("content"))
        kept["content"] = [
            part
            for part in parts
            if prompts.typed_in_message({"content": [part]}) or sessions.has_pictures([part])
        ]
    return kept


def turns(name: str, lines: Lines, rules: Rules) -> Iterator[ReadItem | InTurn]:
    """See `Format`.

    Raises:
        UnreadableError: the first line is lost, which identifies the session.
    """
    session = _CodexSession(
        by_session=rules.trace == "session", file=name, has_events=_has_events(lines)
    )
    for number, line in lines:
        if not line:
            yield from session.forget(is_first=line is not None)
            yield InTurn(number, session.turn)
            continue
        kind, payload = session.parted(line)
        if kind == "session_meta" and session.is_header(payload):
            session.meta = payload
            if session.is_subagents:
                yield Skipped("session of a subagent")
                return
        elif kind == "session_meta" and payload.get("id") != session.id and not session.own_from:
            session.own_from = _end_of_history(lines, session.begun)
        yield from session.take(number, kind, payload, line.get("timestamp"))
        yield InTurn(number, session.turn)
        if session.has_turn and not session.meta:  # it may be a subagent's, or a fork's
            raise UnreadableError(_LOST)
    yield from session.end()
    if not session.has_turn:
        yield Skipped("session without a prompt")


def _has_events(lines: Lines) -> bool:
    """Whether events contain what users typed; else messages do, most of which are injected."""
    return any(
        prompts.typed_in_event(cast("Json", line["payload"])) is not None
        for _, line in lines
        if line and line.get("type") == "event_msg" and isinstance(line.get("payload"), dict)
    )


def _end_of_history(lines: Lines, begun: float) -> int:
    """Return the earliest line at which a fork's own turns can begin.

    Its parent's header names the session whose history follows. A fork writes that at once, mostly
    with new times. Then it waits for its user, or for a model's answer.

    Args:
        lines: lines of the session.
        begun: when the fork began, in seconds after 1970; 0 if unknown.
    """
    before, asked, last = begun, 0, 0
    for number, line in lines:
        last = number
        if not line:
            continue
        kind, payload = str(line.get("type")), as_object(line.get("payload"))
        time = time_of(line.get("timestamp"))
        now = time.timestamp() if time else before
        if before and now - before > _AT_ONCE:
            return asked or last
        before = max(before, now)
        if payload.get("type") in _BEGINS or payload.get("role") == "user":
            asked = asked or last
        elif kind == "response_item" or payload.get("type") in _COMPLETES:
            asked = 0
    return last + 1


@dataclass(kw_only=True)
class _CodexSession(sessions.SessionFile):
    """A file of a session.

    Attributes:
        file: its name.
        has_events: see `_has_events`.
        meta: payload of its first line; empty until that is read.
        own_from: line at which a fork's own turns begin; 0 in any other session.
    """

    file: str
    has_events: bool
    meta: Json = field(default_factory=dict[str, object])
    own_from: int = 0
    is_bare: bool = False
    has_turn: bool = False
    _turn: "_CodexTurn | None" = None
    _next: str = ""  # id of the current turn, even if its start is lost
    _count: int = 0  # number of turns with a prompt
    _model: object = None
    _thought: str = ""  # id of the first part of a thought that continues; '' if none does
    _unanswered: list[tuple[int, str, object]] = field(default_factory=list[Any])

    @property
    def id(self) -> str:
        """The session's own id; if it is cut off, the id in the file's name."""
        return str(self.meta.get("id") or self._name or self.file.partition(".")[0])

    @property
    def _name(self) -> str:
        """The id in the file's name; '' if there is none."""
        match = _NAME.match(self.file)
        return match[1] if match else ""

    @property
    def begun(self) -> float:
        """When it began, in seconds after 1970; 0 if unknown."""
        time = time_of(self.meta.get("timestamp"))
        return _seconds_of(self.id) or (time.timestamp() if time else 0.0)

    def is_header(self, meta: Json) -> bool:
        """Whether a header is the session's own; a fork has its parent's header below."""
        if self.meta:
            return False
        return not self._name or meta.get("id") in (None, "", self._name)

    @property
    def is_subagents(self) -> bool:
        """Whether it is not a user's; an app that is unknown to Codex is an object, too."""
        source = as_object(self.meta.get("source"))
        is_agents = self.meta.get("thread_source") in _OF_AGENTS
        return is_agents or "subagent" in source or "internal" in source

    @property
    def _fields(self) -> Json:
        fields = {name: value_at(self.meta, name) for name in _FIELDS}
        return {**fields, "source": as_object(fields["source"]).get("custom", fields["source"])}

    def parted(self, line: Json) -> tuple[str, Json]:
        """Return a line's kind and payload; until autumn 2025, items were bare, below a header."""
        payload = line.get("payload")
        if isinstance(payload, dict):
            return str(line.get("type")), cast("Json", payload)
        if not self.meta and "type" not in line and line.get("id") and line.get("timestamp"):
            self.is_bare = True
            return "session_meta", line
        return ("response_item" if self.is_bare else ""), line

    @property
    def turn(self) -> "_CodexTurn | None":
        """The turn of the last line; None if it is unknown yet whether the line begins one."""
        return None if self._unanswered else self._turn

    def forget(self, *, is_first: bool) -> Iterator[ReadItem]:
        """Take a forgotten line: what follows without a prompt belongs to no trace."""
        yield from self.end()
        self._count += is_first
        self._turn = _CodexTurn(
            0, "", None, None, has_events=False, trace=sessions.FORGOTTEN, has_prompt=True
        )

    def take(self, number: int, kind: str, payload: Json, time: object) -> Iterator[ReadItem]:
        """Yield the records of a line; it belongs to the turn that it names, if any."""
        self.now = time
        name = id_text(payload.get("turn_id")) if kind in ("turn_context", "event_msg") else ""
        if name and self._turn and self._turn.id not in ("", name):
            if not _begins(kind, payload):  # it reports how a call of an earlier turn ended
                return
            yield from self.end()
        if name and _begins(kind, payload):
            self._next = name
        yield from self._taken(number, kind, payload, time)

    def _taken(self, number: int, kind: str, payload: Json, time: object) -> Iterator[ReadItem]:
        event = payload.get("type")
        if kind == "turn_context":
            self._model = payload.get("model") or self._model
        elif kind == "event_msg" and event in _STARTS:
            yield from self.end()
            self._turn = _CodexTurn(
                number, str(payload.get("turn_id") or ""), payload.get("started_at"), time
            )
            self.has_turn = True
        elif kind == "event_msg" and event in _COMPLETES:
            yield from self._answered()
            yield from self._add(number, "end", {"call": None, "failed": False}, "turn")
            yield from self.end()
        elif text := self._typed(kind, payload):
            self._unanswered.append((number, text, time))
            if self.has_events or self.is_bare or event != "message":
                yield from self._answered()
        elif self._is_wordless(kind, payload):
            yield from self._answered()
            yield from self.end()
            yield Skipped(sessions.WORDLESS)
        elif kind == "event_msg" and (ended := _ended(payload)):
            yield from self._add(number, "end", self._within(ended), str(ended["call"]))
        elif kind == "response_item":
            if event != "message" or payload.get("role") == "assistant":
                yield from self._answered()
            yield from self._item(number, str(event), payload)

    def end(self) -> Iterator[ReadItem]:
        """End the current turn."""
        turn, self._turn, self._thought, self._next = self._turn, None, "", ""
        self._unanswered.clear()
        if turn and self._is_others(turn):
            yield Skipped(sessions.OTHERS)
        elif turn and not turn.has_prompt:
            yield Skipped("turn without a prompt")

    def _answered(self) -> Iterator[ReadItem]:
        """Yield prompts that only messages have, once something follows, unless an event does."""
        prompts = self._unanswered
        self._unanswered = []
        for number, text, time in prompts:
            self._thought = ""
            yield from self._prompt(number, text, time)

    def _is_others(self, turn: "_CodexTurn") -> bool:
        """Whether a turn belongs to another session, because a fork has copied it.

        Copied turns are older, by their ids or their contents; else their place decides.
        """
        if self.begun and (own := _seconds_of(turn.id)) is not None:
            return own < self.begun
        if self.begun and isinstance(turn.started, int | float):
            return turn.started < int(self.begun)
        return turn.line < self.own_from

    def _typed(self, kind: str, payload: Json) -> str:
        if kind == "event_msg":
            return prompts.typed_in_event(payload) or ""
        if kind != "response_item":
            return ""
        is_users = payload.get("type") == "message" and payload.get("role") == "user"
        if is_users and not self.has_events:
            return prompts.typed_in_message(payload)
        return prompts.scheduled(payload)

    def _is_wordless(self, kind: str, payload: Json) -> bool:
        """Whether a prompt without text begins a turn; events begin none."""
        if self.by_session or (self._turn and self._turn.has_events):
            return False
        if kind == "event_msg":
            return prompts.typed_in_event(payload) is not None and _has_pictures(payload)
        is_users = payload.get("type") == "message" and payload.get("role") == "user"
        return is_users and not self.has_events and _has_pictures(payload)

    def _prompt(self, number: int, text: str, time: object) -> Iterator[ReadItem]:
        """Begin a turn by its prompt, which may follow its first event; later prompts interject."""
        turn = self._turn
        if turn is None or not turn.has_events:
            time = self.meta.get("timestamp") if self.is_bare and not self._count else time
            turn = self._without_start(number, time)
        if turn.is_lost and not self.by_session:
            return
        if turn.has_prompt:
            yield from self._add(number, "user", {"text": text})
            return
        turn.has_prompt = True
        self._count += 1
        is_unique = _UUID.fullmatch(turn.id)
        turn.trace = turn.id if is_unique else f"{self.id}/{turn.id or self._count}"
        is_copied = self._is_others(turn)
        part = sessions.prompt(
            text,
            root=turn.trace,
            session=self.id,
            version=self.meta.get("cli_version"),
            time=turn.time,
            fields=self._fields,
            is_copied=is_copied,
        )
        record = SourceRecord(self._trace(turn), {**self._key(turn, "prompt"), **part}, number)
        yield from self.begin(record, is_copied=is_copied)

    def _without_start(self, number: int, time: object) -> "_CodexTurn":
        self.has_turn = True
        self._turn = _CodexTurn(number, self._next, None, time, has_events=bool(self._next))
        return self._turn

    def _trace(self, turn: "_CodexTurn") -> str:
        return self.id if self.by_session else turn.trace

    def _key(self, turn: "_CodexTurn", *what: object) -> Json:
        """Return the key of a record, and the order of its file, one of several of a thread.

        Only a turn with an id of its own is the same in another file.
        """
        begun = sortable(self.meta.get("timestamp"))
        key = self.key("" if turn.trace == turn.id else begun, turn.trace, *what)
        return {**key, "time": key["time"] or begun, "order": [begun]}

    def _item(self, number: int, kind: str, item: Json) -> Iterator[ReadItem]:
        call_id = item.get("call_id") or item.get("id")
        own = f"{kind} {call_id}" if call_id else ""
        if kind == "reasoning":
            parts = (item.get("summary"), item.get("content"))
            yield from self._think(number, joined([_text(part) for part in parts]), own)
        elif kind == "message" and item.get("role") == "assistant":
            yield from self._think(number, text_of(item.get("content")), own)
        elif kind.endswith("_call"):
            self._thought = ""
            name = item.get("name") or kind.removesuffix("_call")
            arguments = first_of(item, "arguments", "input", "action")
            part = sessions.call(name, arguments, call_id, item.get("namespace"))
            if self._turn and call_id:
                self._turn.calls.add(str(call_id))
                self._turn.open[str(call_id)] = None
            yield from self._add(number, "assistant", {"calls": [part], "model": self._model}, own)
        elif kind.endswith("_output"):
            self._thought = ""
            content, has_failed = _output(item)
            if self._turn:
                self._turn.open.pop(str(call_id), None)
            part = sessions.result(content, call_id, has_failed)
            yield from self._add(number, "tool", {"results": [part]}, own)

    def _within(self, ended: Json) -> Json:
        """Return how a call ended: if a script fails, the call that runs it fails."""
        turn = self._turn
        if turn and turn.open and ended["failed"] and ended["call"] not in turn.calls:
            return {**ended, "call": next(reversed(turn.open))}
        return ended

    def _think(self, number: int, text: str, own: str) -> Iterator[ReadItem]:
        part = {"text": text, "model": self._model}
        for record in self._add(number, "assistant", part, own) if text else ():
            self._thought = self._thought or record.payload["id"]
            record.payload["message"] = self._thought
            yield record

    def _add(self, number: int, role: str, part: Json, own: str = "") -> Iterator[SourceRecord]:
        """Yield the record of a part, identified by its own id if it has one."""
        turn = self._turn
        if not turn and self._next:
            turn = self._without_start(number, self.now)
        if turn and not turn.has_prompt:
            turn.is_lost = True  # later input did not ask for it
        elif turn and not self._is_others(turn):
            record = {**self._key(turn, role, own or part), "role": role, **part}
            yield SourceRecord(self._trace(turn), record, number)


@dataclass
class _CodexTurn:
    """A turn.

    Attributes:
        line: line with which it begins.
        id: its own id; '' if unknown.
        started: when it started, in seconds after 1970; None if unknown.
        time: time of the line that begins it.
        has_events: whether events mark its beginning and end; else the next prompt ends it.
        trace: id of its trace.
        is_lost: whether it has steps, but no prompt above them.
        calls: ids of its calls.
        open: ids of calls that have no output yet.
    """

    line: int
    id: str
    started: object
    time: object
    has_events: bool = True
    trace: str = ""
    has_prompt: bool = False
    is_lost: bool = False
    calls: set[str] = field(default_factory=set[str])
    open: dict[str, None] = field(default_factory=dict[str, None])


def _begins(kind: str, payload: Json) -> bool:
    """Whether a line begins a turn."""
    is_typed = as_object(payload.get("item")).get("type") == "UserMessage"
    return kind == "turn_context" or payload.get("type") in _BEGINS or is_typed


def _seconds_of(name: str) -> float | None:
    """Return the time in a UUID of version 7."""
    if not _UUID.fullmatch(name) or UUID(name).version != 7:
        return None
    return (UUID(name).int >> 80) / 1000


def _text(content: object) -> str:
    """Return the texts of reasoning, whose parts have their own types."""
    parts = parts_of(content)
    texts = (part if isinstance(part, str) else as_object(part).get("text") for part in parts)
    return joined([str(text or "") for text in texts])


def _has_pictures(payload: Json) -> bool:
    """Whether a user shows a picture, in a message or an event."""
    content = first_of(as_object(payload.get("item")) or payload, "content")
    is_in_event = any(payload.get(name) for name in ("images", "local_images"))
    return is_in_event or sessions.has_pictures(content)


def _ended(event: Json) -> Json | None:
    """Return how a call ended, from an event; None for any other event."""
    kind, item = event.get("type"), event.get("item")
    if kind in _ENDS:
        return {"call": id_text(event.get("call_id")), "failed": _has_failed(event)}
    if kind != "item_completed" or not isinstance(item, dict) or item.get("type") in _MESSAGES:
        return None
    return {"call": id_text(item.get("id")), "failed": _has_failed(item)}


def _has_failed(ended: Json) -> bool:
    result = as_object(ended.get("result"))
    return (
        ended.get("exit_code") not in (None, 0)
        or ended.get("success") is False
        or ended.get("status") in ("failed", "declined")
        or bool(ended.get("error") or "Err" in result or result.get("isError"))
        or bool(value_at(result, "Ok.isError"))
    )


def _output(item: Json) -> tuple[object, bool]:
    """Return the result of a call, and whether it failed."""
    content, has_failed = item.get("output", item.get("tools")), item.get("success") is False
    if isinstance(content, dict) and "content" in content:
        has_failed = has_failed or content.get("success") is False
        content = content["content"]
    text = content if isinstance(content, str) else text_of(content)
    code = value_at(object_in(text), "metadata.exit_code")
    head, is_output, _ = text.partition("Output:\n")
    is_failure = is_output and _FAILED.search(head)
    return content, has_failed or code not in (None, 0) or bool(is_failure)


FORMAT = Format(
    name="codex",
    contents="no scores; project, cwd, git.branch, model, cli_version, originator, source",
    inputs=_inputs,
    records=records,
    turns=turns,
    unknown=_unknown,
    draft=partial(sessions.draft, framework="codex"),
)
