"""Claude Code's sessions, as they stand below `~/.claude/projects`: a line a message, or a part."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from kp_batch.errors import UnreadableError
from kp_batch.imports.conversation.messages import (
    Json,
    joined,
    kind_of,
    parts_of,
    reasoning_of,
    text_of_part,
)
from kp_batch.imports.conversation.sessions import call, draft_of, project_of, prompt, result
from kp_batch.imports.formats.json_files import read_json_lines
from kp_batch.imports.model import Format, ReadItem, Rejected, Skipped, SourceRecord, by_ending
from kp_batch.text import sortable

_NOT_TYPED = (
    *("[Request interrupted by user", "<system-reminder>", "<ide_opened_file>", "<ide_selection>"),
    *("<local-command-", "<bash-input>", "<bash-stdout>", "<bash-stderr>", "<task-notification>"),
    *("<teammate-message", "Caveat: The messages below were generated"),
)
_ASIDE = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")
_OWN = ("sessionId", "leafUuid", "messageId")  # one of which each kind of line has
_NAME = re.compile(r"<command-name>/?(.*?)</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_LOOKED_AT = 100  # lines of a file, to see whether it is a session


def _read(path: Path, _: Sequence[Path], *, whole: bool) -> Iterator[ReadItem]:
    if path.name.startswith("agent-"):
        yield Skipped("session of a subagent")
        return
    session = _Session(path.stem, whole)
    is_own = False
    for found in read_json_lines(path):
        if isinstance(found, Rejected):
            yield found
            continue
        number, line = found[0], cast("Json", found[1])
        is_own = is_own or (isinstance(line.get("type"), str) and any(map(line.get, _OWN)))
        if not is_own and number > _LOOKED_AT:
            break
        yield from session.take(number, line)
    if not is_own:
        raise UnreadableError("it is no session of Claude Code")
    if not session.has_prompt:
        yield Skipped(f"session {'of a subagent' if session.has_aside else 'without a prompt'}")


@dataclass
class _Session:
    """A file, read from its first line on.

    Attributes:
        stem: of its name.
        whole: whether a trace is all of it; else it is a turn.
    """

    stem: str
    whole: bool
    has_prompt: bool = False
    has_aside: bool = False  # what a subagent says
    _trace: str = ""  # to which the lines belong by now; '' if to none
    _at: str = ""  # the last time that was told
    _command: tuple[int, Json, str] | None = None  # a slash command that nothing has answered yet
    _copied: SourceRecord | None = None  # the first prompt, where it is another session's

    def take(self, number: int, line: Json) -> Iterator[ReadItem]:
        """What a line tells."""
        self._at = sortable(line.get("timestamp")) or self._at
        if line.get("isSidechain"):
            self.has_aside = True
        elif line.get("type") == "user":
            yield from self._user(number, line)
        elif line.get("type") == "assistant" and not _is_error(line):
            yield from self._answered()
            yield from self._add(number, line, "assistant", _said(line))
        elif text := _typed_meanwhile(line):
            yield from self._add(number, line, "user", {"text": text})

    def _user(self, number: int, line: Json) -> Iterator[ReadItem]:
        content = _content(line)
        results = [_result(part) for part in content if kind_of(part) == "tool_result"]
        if results:
            yield from self._add(number, line, "tool", {"results": results})
        told = [text_of_part(part) for part in content]
        if _is_told_by_tools(line, told):
            self._command = None
        text = _typed(told)
        if not text or any(line.get(name) for name in _ASIDE) or not _is_human(line):
            return
        if name := _NAME.search(text):
            given = _ARGUMENTS.search(text)
            text = f"/{name[1].strip()} {given[1].strip() if given else ''}".strip()
            self._command = (number, line, text)
        else:
            self._command = None
            yield from self._begin(number, line, text)

    def _answered(self) -> Iterator[ReadItem]:
        """A slash command is a prompt once the model answers."""
        if self._command:
            (number, line, text), self._command = self._command, None
            yield from self._begin(number, line, text)

    def _begin(self, number: int, line: Json, text: str) -> Iterator[ReadItem]:
        session, named = str(line.get("sessionId") or self.stem), line.get("uuid")
        if not named:
            self._trace = ""
            yield Rejected(["missing_id"], "a prompt without a uuid", line=number)
            return
        if is_copied := self.whole and "forkedFrom" in line:
            self._trace = ""  # only what the session itself goes on with is its own
        else:
            self._trace, self.has_prompt = (session if self.whole else str(named)), True
        begun = prompt(
            text,
            root=str(named),
            session=_first_session(line) or session,
            version=line.get("version"),
            time=line.get("timestamp"),
            fields={
                "project": project_of(line.get("cwd")),
                **{name: line.get(name) for name in ("cwd", "gitBranch", "version", "entrypoint")},
            },
            is_copied=is_copied,
        )
        record = SourceRecord(session, {"id": named, "time": self._at, **begun}, number)
        if is_copied:
            self._copied = self._copied or record
            return
        if self._copied:
            yield self._copied
            self._copied = None
        yield SourceRecord(self._trace, record.payload, number)

    def _add(self, number: int, line: Json, role: str, told: Json) -> Iterator[ReadItem]:
        if self._trace and any(told.values()):
            known = {"id": line.get("uuid") or f"line {number}", "time": self._at, "role": role}
            yield SourceRecord(self._trace, {**known, **told}, number)


def _content(line: Json) -> list[object]:
    message = line.get("message")
    return parts_of(cast("Json", message).get("content")) if isinstance(message, dict) else []


def _first_session(line: Json) -> str:
    """The session that a line was copied from, so that it is told alike in both."""
    origin = line.get("forkedFrom")
    return str(cast("Json", origin).get("sessionId") or "") if isinstance(origin, dict) else ""


def _is_human(told: Json) -> bool:
    origin = told.get("origin")
    kind = cast("Json", origin).get("kind") if isinstance(origin, dict) else None
    return kind in (None, "human")


def _typed(texts: Sequence[str]) -> str:
    return joined([text for text in texts if not text.lstrip().startswith(_NOT_TYPED)])


def _is_told_by_tools(line: Json, texts: Sequence[str]) -> bool:
    """Whether a command was carried out here, or something else began that the model answers."""
    return not _is_human(line) or any(
        text.lstrip().startswith(("<local-command-stdout", "<local-command-stderr"))
        for text in texts
    )


def _typed_meanwhile(line: Json) -> str:
    """What a user typed while the agent was at work; '' if a line is nothing like that."""
    told = line.get("attachment")
    if line.get("type") != "attachment" or not isinstance(told, dict):
        return ""
    told = cast("Json", told)
    is_prompt = told.get("type") == "queued_command" and told.get("commandMode") == "prompt"
    if not is_prompt or not _is_human(told):
        return ""
    return _typed([text_of_part(part) for part in parts_of(told.get("prompt"))])


def _is_error(line: Json) -> bool:
    message = line.get("message")
    model = cast("Json", message).get("model") if isinstance(message, dict) else None
    return bool(line.get("isApiErrorMessage")) or model == "<synthetic>"


def _said(line: Json) -> Json:
    message, parts = cast("Json", line.get("message") or {}), _content(line)
    calls = [
        call(part.get("name"), part.get("input"), part.get("id"))
        for part in cast("list[Json]", parts)
        if kind_of(part) in ("tool_use", "server_tool_use")
    ]
    told = {
        "reasoning": joined([reasoning_of(part) for part in parts if kind_of(part) == "thinking"]),
        "text": joined([text_of_part(part) for part in parts]),
        "calls": calls,
    }
    if not any(told.values()):
        return {}
    named = message.get("id")
    return {**told, "model": message.get("model"), "message": str(named) if named else None}


def _result(part: object) -> Json:
    told = cast("Json", part)
    return result(told.get("content"), told.get("tool_use_id"), told.get("is_error"))


FORMAT = Format(
    name="claude-code",
    holds="no scores; project, cwd, gitBranch, model, version, entrypoint",
    inputs=by_ending(".jsonl"),
    units=partial(_read, whole=False),
    sessions=partial(_read, whole=True),
    draft=draft_of("claude-code"),
)
