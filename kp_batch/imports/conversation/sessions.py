"""Sessions of coding agents: what a user types, and what the agent does then, told line by line.

A reader of a tool's files makes a record of each line that counts, and a turn is drafted of these.
A record holds the parts that become steps, and nothing else of a line.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, cast

from kp_batch.imports.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    compact,
    joined,
    kind_of,
    parts_of,
    text_of_part,
)
from kp_batch.imports.conversation.transcript import Transcript
from kp_batch.imports.model import Native, Origin, SourceRecord, TraceDraft
from kp_batch.imports.rules import Rules
from kp_batch.text import time_of

_PICTURES = {"image", "input_image", "local_image", "document", "input_file", "input_audio"}


def prompt(  # noqa: PLR0913 (all that is told of a turn)
    text: str,
    *,
    root: str,
    session: str,
    version: object = None,
    time: object = None,
    fields: Json | None = None,
    is_copied: bool = False,
) -> dict[str, object]:
    """The part of a record that begins a turn.

    Args:
        text: what was typed.
        root: the turn's id.
        session: its session's id.
        version: of the agent.
        time: when the turn began, as it is told.
        fields: what rules may name; those that are no texts are left out.
        is_copied: whether another session has this turn: then only its text counts.
    """
    told = {name: value for name, value in (fields or {}).items() if isinstance(value, str)}
    told = {name: value for name, value in told.items() if value}
    begun = {"root": root, "session": session, "version": version, "time": time, "fields": told}
    return {"role": "user", "text": text, "turn": begun, "copied": is_copied}


def project_of(folder: object) -> str:
    """The project in whose folder an agent works: the last part of its path, of any system."""
    return PurePath(str(folder or "").replace("\\", "/")).name


def call(name: object, given: object, named: object, space: object = "") -> dict[str, object]:
    """The part of a record that tells of a tool's call.

    Args:
        name: of the tool; `mcp__SERVER__NAME` is NAME on SERVER.
        given: the arguments; None if they are not told.
        named: the call's id.
        space: `mcp__SERVER`, where the name does not tell the server.
    """
    tool, server = str(name or ""), str(space or "")
    if tool.startswith("mcp__") and "__" in tool[5:]:
        server, _, tool = tool[5:].partition("__")
    else:
        server = server[5:].rstrip("_") if server.startswith("mcp__") else ""
    return {"name": tool, "server": server or None, "given": given, "id": str(named or "")}


def result(content: object, named: object, has_failed: object) -> dict[str, object]:
    """The part of a record that tells of a tool's result; without pictures and documents."""
    return {"content": _worded(content), "id": str(named or ""), "failed": bool(has_failed)}


def _worded(content: object) -> object:
    if not isinstance(content, list):
        return content
    parts = [part for part in parts_of(cast("object", content)) if kind_of(part) not in _PICTURES]
    texts = [text_of_part(part) for part in parts]
    is_text = all(kind_of(part).endswith("text") or isinstance(part, str) for part in parts)
    return joined(texts) if is_text else compact(parts)


def draft(
    trace: str, found: Sequence[SourceRecord], rules: Rules, framework: str = ""
) -> TraceDraft:
    """See `Format`; a record tells its `time`, sortable, and the `order` where times do not."""
    lines = _distinct(found)
    own = [line for line in lines if not line.get("copied")]
    begun = next(cast("Json", line["turn"]) for line in own if line.get("turn"))
    transcript = Transcript(recovery=rules.recovers)
    transcript.add_conversation(_messages(lines))
    models = [*dict.fromkeys(str(line["model"]) for line in own if line.get("model"))]
    fields = {name: [value] for name, value in begun["fields"].items()}
    version = begun["version"]
    first = models[0] if models else None
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=time_of(begun["time"]),
        ended_at=time_of(max(line["time"] for line in own)),
        objective=transcript.objective,
        steps=transcript.steps,
        fields={**fields, "model": models} if models else fields,
        origin=Origin(first, first, begun["session"], str(version) if version else None),
        framework=framework,
        native=Native(root=begun["root"], log=begun["session"]),
    )


def draft_of(framework: str) -> partial[TraceDraft]:
    """The `draft` of a tool's format."""
    return partial(draft, framework=framework)


def _distinct(found: Iterable[SourceRecord]) -> list[Json]:
    """The records in their order; of copies of a line, which may differ in little, the upper one.

    A session that goes on with another one has a title above what it has copied.
    """
    told = [(each.line or 0, cast("Json", each.payload)) for each in found]
    lines: dict[tuple[object, object], tuple[int, Json]] = {}
    for number, line in told:
        old = lines.setdefault((line["id"], line["role"]), (number, line))
        if number < old[0]:
            lines[line["id"], line["role"]] = number, line
    return sorted((line for _, line in lines.values()), key=_order)


def _order(line: Json) -> Any:
    return line.get("order") or line["time"]


def _messages(lines: Iterable[Json]) -> list[Message]:
    """The messages that records tell of: several may tell parts of one, which stands at the first.

    Whether a tool has failed may be told apart from its result.
    """
    ended: dict[object, bool] = {}
    parts: dict[object, list[Json]] = {}
    for line in lines:
        if line["role"] == "end":
            ended[line["call"]] = bool(line["failed"])
        else:
            parts.setdefault(line.get("message") or (line["id"], line["role"]), []).append(line)
    return [_message(part, ended) for part in parts.values()]


def _message(lines: Sequence[Json], ended: dict[object, bool]) -> Message:
    return Message(
        role=lines[0]["role"],
        text=joined([line.get("text") or "" for line in lines]),
        reasoning=joined([line.get("reasoning") or "" for line in lines]),
        calls=tuple(
            ToolCall(each["name"], each["given"], each["id"], each["server"])
            for line in lines
            for each in line.get("calls", ())
        ),
        results=tuple(
            ToolResult(each["content"], each["id"], ended.get(each["id"], bool(each["failed"])))
            for line in lines
            for each in line.get("results", ())
        ),
    )
