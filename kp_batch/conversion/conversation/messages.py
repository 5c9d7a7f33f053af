"""Messages, tool calls and their results, whatever format they come from."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from kp_batch.limits import loads

Json = Mapping[str, Any]  # an object
Role = Literal["system", "user", "assistant", "tool"]


ALIKE = 2  # see `ToolCall.likeness`


@dataclass(slots=True)
class ToolCall:
    """An agent's call of a tool."""

    name: str
    arguments: object = None  # JSON, or a text that may be JSON; None if unknown
    id: str = ""  # empty where the format has none
    server: str | None = None  # the MCP server, where it is known
    _given: "_Arguments | None" = field(default=None, init=False, repr=False, compare=False)

    def is_same_as(self, other: "ToolCall") -> bool:
        """Whether another one may be of the same call, by what it was given."""
        return self.likeness(other) >= ALIKE

    def likeness(self, other: "ToolCall") -> int:
        """How likely another one is of the same call.

        Returns:
            0 if it is of another one; 1 if no more than the name is the same; `ALIKE` if one has
            all arguments of the other, as where defaults complete them, or where they are not known
            yet; more if they are equal, or by the ids of both.
        """
        if self.id and other.id:
            return (ALIKE + 1) * (self.id == other.id)
        if self.name != other.name:
            return 0
        one, another = self.given, other.given
        if one == another:
            return ALIKE + 1
        return ALIKE if one.has_all(another) or another.has_all(one) else 1

    @property
    def given(self) -> "_Arguments":
        """The arguments, parsed once, however many other calls they are compared with."""
        if self._given is None:
            self._given = _parted(self.arguments)
        return self._given


@dataclass
class _Arguments:
    """What a call was given, with all JSON in texts parsed."""

    positional: list[object]
    named: Json

    @cached_property
    def key(self) -> Hashable:
        """Equal where the arguments are."""
        return _hashable(self.positional), _hashable(self.named)

    @cached_property
    def values(self) -> set[str]:
        return {compact(value) for value in (*self.positional, *self.named.values())}

    def has_all(self, other: "_Arguments") -> bool:
        """Whether all arguments of another call are among these, by name, or else by value."""
        is_named = other.named.items() <= self.named.items()
        return is_named and all(compact(value) in self.values for value in other.positional)


def _hashable(value: object) -> Hashable:
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return frozenset([(name, _hashable(inner)) for name, inner in pairs])
    if isinstance(value, list):
        return tuple([_hashable(inner) for inner in cast("list[object]", value)])
    return cast("Hashable", value)


@dataclass(slots=True)
class ToolResult:
    """The result of a tool."""

    content: object = None  # JSON, or a text; None if unknown
    id: str = ""  # of the call
    failed: bool = False


@dataclass(slots=True)
class Message:
    """One message, with the tool calls and results within."""

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def thought(self) -> str:
        """The reasoning, then the text."""
        return joined([self.reasoning, self.text])


def joined(parts: list[str]) -> str:
    """Texts with a newline between, without the empty ones."""
    return "\n".join(filter(None, parts))


def compact(value: object) -> str:
    """JSON without spaces, with its keys in their order and its letters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_text(value: object) -> str:
    """A text as it is, any other value as compact JSON."""
    return value if isinstance(value, str) else compact(value)


def parse_json(value: object) -> object:
    """The value of a text that is JSON; anything else as it is.

    Raises:
        TooLargeError: it passes a limit.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def as_object(value: object) -> Json:
    """An object as it is; empty if the value is none."""
    return cast("Json", value) if isinstance(value, dict) else {}


def object_in(value: object) -> Json:
    """An object, or a text that is one in JSON; empty if the value is neither."""
    return as_object(parse_json(value))


def list_in(value: object) -> list[object]:
    """A list, or a text that is one in JSON; empty if the value is neither."""
    items = parse_json(value)
    return cast("list[object]", items) if isinstance(items, list) else []


def parse_json_deep(value: object) -> object:
    """A value with all texts within that are JSON parsed."""
    parsed = parse_json(value)
    if isinstance(parsed, dict):
        items = cast("dict[str, object]", parsed).items()
        return {name: parse_json_deep(item) for name, item in items}
    if isinstance(parsed, list):
        return [parse_json_deep(item) for item in cast("list[object]", parsed)]
    return parsed


def wrapped_arguments(value: object) -> tuple[list[object], Json] | None:
    """The positional and the named arguments in what decorators record of a function's call.

    They write `{"args": [...], "kwargs": {...}}`; a tool may well have a parameter named `args`,
    but hardly one named `kwargs`.
    """
    payload = object_in(value)
    if "kwargs" not in payload:
        return None
    args, kwargs = payload.get("args", []), payload["kwargs"]
    if not (isinstance(args, list) and isinstance(kwargs, dict) and len(payload) <= len(_WRAPPER)):
        return None
    return (args, kwargs) if payload.keys() <= _WRAPPER else None


def bare_arguments(value: object) -> object:
    """Arguments without that wrapper; as they are where they have none, or are of both kinds."""
    args, kwargs = wrapped_arguments(value) or ([], None)
    if kwargs is None or (args and kwargs):
        return value
    return (args if len(args) > 1 else args[0]) if args else kwargs


def _parted(arguments: object) -> _Arguments:
    value = parse_json_deep(bare_arguments(arguments))
    if wrapped := wrapped_arguments(value):
        return _Arguments(*wrapped)
    if isinstance(value, dict):
        return _Arguments([], cast("Json", value))
    if isinstance(value, list):
        return _Arguments(cast("list[object]", value), {})
    return _Arguments([] if value in (None, "") else [value], {})


def first_of(payload: Json, *names: str) -> Any:
    """The value of the first of these keys that an object has, may it be None."""
    return next((payload[name] for name in names if name in payload), None)


ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_WRAPPER = {"args", "kwargs"}
_PART_KEYS = ("thought", "function_call", "functionCall", "function_response", "functionResponse")
_MESSAGE_KEYS = ("tool_calls", "reasoning_content", "reasoning", "additional_kwargs")
_WRAPPERS = ("gen_ai.event.content", "lc", "data")
_BODY = ("content", "parts", "tool_calls", "function_call")
_CALLS = ("tool_call", "tool_use", "server_tool_use", "mcp_tool_use")
_ARGUMENTS = (  # of calls; the latter of tools that the model's provider runs
    *("arguments", "input", "args"),
    *("action", "operation", "queries", "code", "server_tool_call"),
)
_RESULTS = ("tool_result", "tool_call_response", "function_response", "_call_output")
_CONTENTS = ("response", "result", "content", "output", "server_tool_call_response")
_FAILED = ("failed", "error")
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_TEXT_KINDS = ("", *_TEXTS)


def message_of(payload: Json) -> Message | None:
    """The message that a JSON object is; None if it is none."""
    if "role" not in payload and (item := _response_item(payload)):
        return item
    speaker = str(payload.get("role") or payload.get("type") or "")
    role = ROLES.get(speaker) or ROLES.get(speaker.lower())
    if role is None or payload.keys().isdisjoint(_BODY):
        return None
    parts = parts_of(
        payload.get("parts") if payload.get("parts") is not None else payload.get("content")
    )
    text = joined([text_of_part(part) for part in parts])
    parts = [part for part in parts if not _is_text_alone(part)]
    if not parts and role != "tool" and payload.keys().isdisjoint(_MESSAGE_KEYS):
        return Message(role, text)  # as most are
    calls = [*_calls_of(parts), *_calls_outside_content(payload)]
    results = _results_of(parts)
    if role == "tool" and not results:
        content = payload.get("content", text or None)
        if isinstance(content, dict) and isinstance(content.get("function"), dict):
            return Message("system")  # LangGraph lists the tools that there are
        failed = payload.get("status") == "error" or bool(payload.get("is_error"))
        results = [ToolResult(_plain(content), id_text(payload.get("tool_call_id")), failed)]
        text = ""
    reasoning = joined([*map(reasoning_of, parts), _reasoning_outside_content(payload)])
    return Message(role, text, reasoning, _distinct(calls), tuple(results))


def _response_item(payload: Json) -> Message | None:
    """An item of OpenAI's responses that is no message."""
    kind = kind_of(payload)
    if kind.endswith("_call_output"):
        return Message("tool", results=tuple(_results_of([payload])))
    if kind.endswith("_call") and kind != "tool_call":
        calls, results = tuple(_calls_of([payload])), tuple(_results_of([payload]))
        return Message("assistant", calls=calls, results=results)
    if kind == "reasoning":
        return Message("assistant", reasoning=text_of(payload.get("summary")))
    return None


def unwrapped(payload: Json) -> Json:
    """LangChain's serialised objects hold a message in `kwargs`, old exports in `data`."""
    if payload.keys().isdisjoint(_WRAPPERS):
        return payload
    event = parse_json(payload.get("gen_ai.event.content"))  # Semantic Kernel's
    if isinstance(event, dict):
        return {"role": payload.get("role"), **event}
    if payload.get("lc") and isinstance(payload.get("kwargs"), dict):
        return {"type": _lc_type(payload), **payload["kwargs"]}
    if "type" in payload and isinstance(payload.get("data"), dict) and "content" in payload["data"]:
        return {**payload["data"], "type": payload["type"]}
    return payload


def _lc_type(payload: Json) -> str:
    path = payload.get("id")
    name = str(cast("list[object]", path)[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def _reasoning_outside_content(payload: Json) -> str:
    holders = (payload, as_object(payload.get("additional_kwargs")))
    texts = (holder.get(name) for holder in holders for name in ("reasoning_content", "reasoning"))
    return next((text for text in texts if isinstance(text, str)), "")


def _calls_outside_content(payload: Json) -> Iterator[ToolCall]:
    extra = as_object(payload.get("additional_kwargs"))
    calls = list_in(payload.get("tool_calls") or extra.get("tool_calls"))
    for call in (cast("Json", call) for call in calls if isinstance(call, dict)):
        function = call.get("function")
        if isinstance(function, dict):
            name, arguments = function.get("name"), function.get("arguments")
        else:
            name, arguments = call.get("name"), first_of(call, "args", "arguments", "input")
        yield ToolCall(str(name or ""), arguments, id_text(call.get("id")))


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of one message, which LangChain has both in its content and outside of it."""
    distinct: list[ToolCall] = []
    for call in calls:
        if not (call.id and any(call.id == other.id for other in distinct)):
            distinct.append(call)
    return tuple(distinct)


def text_of(content: object) -> str:
    """The text of a message's content: a text, or parts of which some are texts."""
    return joined([text_of_part(part) for part in parts_of(content)])


def parts_of(content: object) -> list[object]:
    """The parts of a content, which may be one by itself."""
    if content is None:
        return []
    return cast("list[object]", content) if isinstance(content, list) else [content]


def kind_of(part: object) -> str:
    """A part's type, with the AI SDK's `tool-call` as `tool_call`."""
    return str(as_object(part).get("type") or "").replace("-", "_")


def text_of_part(part: object) -> str:
    """A part's text; empty where it is none."""
    if isinstance(part, str):
        return part
    payload = as_object(part)
    if not payload.get("thought") and kind_of(payload) in _TEXT_KINDS:
        for name in ("text", "content", "refusal"):
            if isinstance(text := payload.get(name), str):
                return text
    return ""


def _is_text_alone(part: object) -> bool:
    """Whether a part can hold no reasoning, no call and no result."""
    if not isinstance(part, dict):
        return True
    payload = cast("Json", part)
    return payload.get("type") in _TEXTS and payload.keys().isdisjoint(_PART_KEYS)


def reasoning_of(part: object) -> str:
    """A part's reasoning; empty where it is none."""
    payload = as_object(part)
    if payload.get("thought") is True:
        return str(payload.get("text") or "")
    if kind_of(part) not in ("thinking", "reasoning"):
        return ""
    names = ("thinking", "reasoning", "content", "text", "summary")
    reasoning = next((payload[name] for name in names if payload.get(name)), "")
    return text_of(reasoning) or as_text(reasoning)


def _calls_of(parts: Sequence[object]) -> Iterator[ToolCall]:
    for part in map(as_object, parts):
        kind = kind_of(part)
        if kind.endswith(("_call", "tool_use")) or _is_bare_call(part):
            # Of tools that the model's provider runs, some are named by the type alone.
            type_ = "" if kind in _CALLS else kind.removesuffix("_call")
            server = part.get("server_label") or part.get("server_name")
            yield ToolCall(
                str(part.get("name") or part.get("toolName") or type_),
                first_of(part, *_ARGUMENTS),
                _first_id(part, "call_id", "id", "toolCallId"),
                str(server) if server else None,
            )
        elif isinstance(call := part.get("function_call") or part.get("functionCall"), Mapping):
            yield ToolCall(str(call.get("name") or ""), call.get("args"), id_text(call.get("id")))
        elif code := _gemini(part, "executable_code", "executableCode"):
            yield ToolCall("code_execution", code.get("code"))


def _gemini(part: Json, *names: str) -> Json:
    return next((part[name] for name in names if isinstance(part.get(name), dict)), {})


def _first_id(part: Json, *names: str) -> str:
    return id_text(next((part[name] for name in names if part.get(name)), None))


def _is_bare_call(part: Json) -> bool:
    """The AI SDK has calls without a type, too."""
    return not kind_of(part) and "toolName" in part and "result" not in part


def _results_of(parts: Sequence[object]) -> list[ToolResult]:
    results: list[ToolResult] = []
    for part in map(as_object, parts):
        kind = kind_of(part)
        response = part.get("function_response") or part.get("functionResponse")
        if kind.endswith(_RESULTS):
            content = first_of(part, *_CONTENTS)
            id_ = _first_id(part, "tool_use_id", "tool_call_id", "call_id", "id", "toolCallId")
            what = kind_of(content)
            failed = what.startswith("error_") or what.endswith("_error") or _has_failed(part)
            results.append(ToolResult(_plain(content), id_, failed))
        elif isinstance(response, Mapping):
            results.append(ToolResult(response.get("response"), id_text(response.get("id"))))
        elif ran := _gemini(part, "code_execution_result", "codeExecutionResult"):
            failed = str(ran.get("outcome") or "OUTCOME_OK") != "OUTCOME_OK"
            results.append(ToolResult(ran.get("output"), failed=failed))
        elif kind.endswith("_call") and kind not in _CALLS:  # with the result within
            held = (part.get(name) for name in ("output", "outputs", "results", "error"))
            content = next((each for each in held if each is not None), None)
            if content is not None:
                id_ = _first_id(part, "call_id", "id")
                results.append(ToolResult(_plain(content), id_, _has_failed(part)))
    return results


def _has_failed(part: Json) -> bool:
    return bool(part.get("is_error") or part.get("error")) or part.get("status") in _FAILED


def _plain(content: object) -> object:
    """Anthropic's tool results are lists of text parts, the AI SDK's have a type and a value."""
    content = _legible(content)
    for name in ("value", "text"):
        if as_object(content).keys() == {"type", name}:
            return as_object(content)[name]
    if isinstance(content, list) and content and all(kind_of(part) == "text" for part in content):
        return text_of(cast("object", content))
    return content


def _legible(content: object) -> object:
    """A result without what only the model's provider can read, where it ran the tool."""
    if isinstance(content, list):
        return [_legible(item) for item in cast("list[object]", content)]
    result = as_object(content)
    if not any(name.startswith("encrypted_") for name in result):
        return content
    return {name: each for name, each in result.items() if not name.startswith("encrypted_")}


def id_text(value: object) -> str:
    """An id as text; empty where there is none."""
    return "" if value is None else as_text(value)
