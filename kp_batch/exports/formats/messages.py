"""Messages that trainers of chat models read: TRL, Axolotl and others.

A row has the columns id, score, messages and tools. The messages are the system prompt, the
objective, then the steps: the assistant's texts and calls, each call's result, and what the user
said. If the archive lacks a part, it is not invented: the trace is not written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, cast

import polars as pl
import pyarrow as pa

from kp_batch.bounds import TooLargeError, loads
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import (
    LINES,
    ChosenTrace,
    ExportFormat,
    FileWriter,
    Row,
    is_portable,
    write_parquet,
)
from kp_batch.ingest.reread import Trace
from kp_batch.text import encodable

# Why a trace cannot be written.
NO_NAME = "with a call without a tool's name"
NO_INPUT = "with a call whose input is missing"
NO_OBJECT = "with a call whose input is not a JSON object"
UNREADABLE = "with a call whose input loaders refuse"
NO_RESULT = "with a call whose result is missing or late"
NO_CALL = "with a result that belongs to no call"
SEVERAL_CALLS = "with a result that belongs to several calls"
NO_TEXT = "with a user's message without text"
NO_ANSWER = "without an answer at the end"


class _UnwrittenError(Exception):
    """A trace cannot be written; the text is the reason."""


@dataclass
class _Call:
    """A tool call; `result` is None until it is known."""

    call_id: str  # in the archive; empty if it has none
    id: str  # in the messages
    name: str
    arguments: Row
    result: str | None = None


@dataclass
class _Round:
    """The assistant's texts and calls, then the results and user messages before its next text."""

    said: list[str] = field(default_factory=list[str])
    thought: list[str] = field(default_factory=list[str])
    calls: list[_Call] = field(default_factory=list[_Call])
    asked: list[str] = field(default_factory=list[str])  # by the user
    waiting: dict[str, list[_Call]] = field(default_factory=dict[str, list[_Call]])  # by call_id
    results: int = 0  # calls that have a result

    @property
    def is_over(self) -> bool:
        """Whether the assistant's next words begin another round."""
        return bool(self.asked or self.results)

    def call(self, call: _Call) -> None:
        """Add a call, which waits for its result."""
        self.calls.append(call)
        self.waiting.setdefault(call.call_id, []).append(call)

    def answer(self, call_id: str, content: str, before: _Call | None) -> None:
        """Give a result to the call with its id; if one has no id, to the step before."""
        found = self.waiting.get(call_id, []) if call_id else []
        if not found and before and not (call_id and before.call_id):
            found = [before]
        if len(found) != 1:
            raise _UnwrittenError(SEVERAL_CALLS if found else NO_CALL)
        [call] = found
        call.result = content
        self.waiting[call.call_id].pop()  # the step before is the last one with its id
        self.results += 1

    def end(self) -> None:
        """Check that each call has its result before the assistant goes on."""
        if self.results < len(self.calls):
            raise _UnwrittenError(NO_RESULT)

    def messages(self, *, thoughts: bool) -> Iterator[Row]:
        """Yield the messages: the results are in the order of their calls."""
        message: Row = {"role": "assistant", "content": _joined(self.said)}
        if thoughts and self.thought:
            message["reasoning_content"] = _joined(self.thought)
        if self.calls:
            message["tool_calls"] = [_call_message(call) for call in self.calls]
        if len(message) > 2 or message["content"]:
            yield message
        for call in self.calls:
            result = {"tool_call_id": call.id, "name": call.name, "content": call.result}
            yield {"role": "tool", **result}
        yield from ({"role": "user", "content": text} for text in self.asked)


@dataclass
class _Conversation:
    """Reads the steps of a trace, one after another."""

    ids: set[str]  # those of the archive, and new ones
    rounds: list[_Round] = field(default_factory=lambda: [_Round()])
    _used: set[str] = field(default_factory=set[str])
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))  # for new ids
    _before: _Call | None = None  # the previous step, if it is a call

    def add(self, step: Trace) -> None:
        """Add a step."""
        before, self._before = self._before, None
        kind, name = step["type"], _tool_name(step)
        if kind == "observation" and step.get("role") == "user":
            self.rounds[-1].asked.append(_text(step) or _refuse(NO_TEXT))
        elif kind == "observation":
            if (content := _text(step)) is not None:
                self.rounds[-1].answer(_call_id(step), content, before)
        elif kind == "tool_call" or (kind == "error_recovery" and name):
            own = self._begin_round()
            self._before = self._call(step, name or _refuse(NO_NAME))
            own.call(self._before)
        elif text := _text(step):
            length = step.get("reasoning_chars")
            length = max(length, 0) if isinstance(length, int) else 0
            own = self._begin_round()
            own.thought += filter(None, [text[:length]])
            own.said += filter(None, [text[length:].removeprefix("\n") if length else text])

    def _begin_round(self) -> _Round:
        if self.rounds[-1].is_over:
            self.rounds[-1].end()
            self.rounds.append(_Round())
        return self.rounds[-1]

    def _call(self, step: Trace, name: str) -> _Call:
        call_id = _call_id(step)
        is_new = call_id and call_id not in self._used
        made = (f"call_{number}" for number in self._numbers)
        id_ = call_id if is_new else next(each for each in made if each not in self.ids)
        self._used.add(id_)
        self.ids.add(id_)
        return _Call(call_id, id_, name, _arguments(step.get("input")))


def _refuse(reason: str) -> Any:
    raise _UnwrittenError(reason)


def _row(scored: ChosenTrace, trace: Trace, options: ExportOptions) -> Row | str:
    task, thoughts = trace["task"], not options.no_thoughts
    try:
        messages = [*_opening(task), *_rounds(trace["steps"], thoughts=thoughts)]
    except _UnwrittenError as reason:
        return str(reason)
    tools = _tools(task.get("tools"))
    return {"id": scored.trace_id, "score": scored.score, "messages": messages, "tools": tools}


def _opening(task: Mapping[str, Any]) -> Iterator[Row]:
    if system := _as_text(task.get("system")):
        yield {"role": "system", "content": system}
    yield {"role": "user", "content": _as_text(task["objective"])}


def _rounds(steps: Iterable[Any], *, thoughts: bool) -> Iterator[Row]:
    """Yield the messages of steps, without what the user says after the last answer."""
    objects = [step for step in steps if isinstance(step, dict)]
    conversation = _Conversation({*map(_call_id, objects)})
    for step in objects:
        conversation.add(step)
    *_, last = conversation.rounds
    last.end()
    if last.calls or not last.said:
        raise _UnwrittenError(NO_ANSWER)
    last.asked.clear()
    for each in conversation.rounds:
        yield from each.messages(thoughts=thoughts)


def _call_message(call: _Call) -> Row:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(given: Any) -> Row:
    """Return the arguments of a call; an empty text means none.

    Some tools take plain text, such as a patch: OpenAI puts it in the field `input`.

    Raises:
        _UnwrittenError: they are missing, not an object, or not portable.
    """
    if given is None:
        raise _UnwrittenError(NO_INPUT)
    value = given
    if isinstance(given, str):
        is_plain = given.lstrip()[:1] not in ("", "{", "[")
        try:
            value = {"input": given} if is_plain else loads(given.strip() or "{}")
        except (ValueError, TooLargeError):
            raise _UnwrittenError(NO_OBJECT) from None
    if not isinstance(value, dict):
        raise _UnwrittenError(NO_OBJECT)
    if not is_portable(value):
        raise _UnwrittenError(UNREADABLE)
    return cast("Row", value)


def _tools(given: Any) -> list[Row] | None:
    """Return the tools if the archive has them in OpenAI's shape, else None."""
    try:
        tools = loads(given) if isinstance(given, str) else given
    except (ValueError, TooLargeError):
        return None
    is_usual = isinstance(tools, list) and tools and all(map(_is_tool, tools))
    return cast("list[Row]", tools) if is_usual and is_portable(tools) else None


def _is_tool(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _tool_name(step: Trace) -> str | None:
    tool = step.get("tool")
    return _as_text(tool.get("name")) if isinstance(tool, dict) else None


def _call_id(step: Trace) -> str:
    return _as_text(step.get("call_id")) or ""


def _text(step: Trace) -> str | None:
    return _as_text(step.get("content"))


def _as_text(value: Any) -> str | None:
    """Return a text unchanged, and any other value as JSON, as archives are read."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(texts)


# Each message and each tool is JSON, because their keys differ: in a column of structs, each would
# get the keys of all others.
_SCHEMA = pl.Schema(
    {
        "id": pl.String,
        "score": pl.Float64,
        "messages": pl.List(pl.String),
        "tools": pl.List(pl.String),
    }
)
_COLUMNS = pa.schema(
    {
        "id": pa.string(),
        "score": pa.float64(),
        "messages": pa.list_(pa.json_()),
        "tools": pa.list_(pa.json_()),
    }
)


def _to_frame(rows: Sequence[Row]) -> pl.DataFrame:
    values = [
        (encodable(row["id"]), row["score"], _texts(row["messages"]), _texts(row["tools"]))
        for row in rows
    ]
    return pl.DataFrame(values, schema=_SCHEMA, orient="row")


def _texts(objects: Iterable[Row] | None) -> list[str] | None:
    if objects is None:
        return None
    return [encodable(json.dumps(each, ensure_ascii=False)) for each in objects]


FORMAT = ExportFormat(
    row=_row,
    files={
        ".jsonl": LINES,
        ".parquet": FileWriter(_SCHEMA, _to_frame, partial(write_parquet, _COLUMNS)),
    },
)
