"""What a model is given beside its messages: instructions, and the tools that it may call."""

from collections.abc import Iterator

from kp_batch.bounds import TooLargeError
from kp_batch.conversion.conversation.attributes import list_at, value_at
from kp_batch.conversion.conversation.messages import (
    CutContentError,
    Json,
    as_object,
    compact,
    first_of,
    list_in,
    object_in,
    parse_json,
    text_of,
)

# Where spans have the tools; each may be in one value, or in one for each tool.
_TOOLS = (
    *("gen_ai.tool.definitions", "llm.tools", "mlflow.chat.tools", "ai.prompt.tools"),
    *("llm.request.functions", "invocation_params.tools", "tools"),
)
_FIRST = ("", ".0.tool.json_schema", ".0.name")  # what such a name may go on with
_SYSTEM = "gen_ai.system_instructions"
_OF_PAYLOADS = ("system", "instructions")
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")


def system_of(attributes: Json, payload: object) -> str:
    """The instructions in a span's attributes, or beside the messages of its input; '' if none."""
    value = value_at(attributes, _SYSTEM)
    for name in _OF_PAYLOADS if value is None else ():
        value = value or _beside(payload, name)
    try:
        return text_of(parse_json(value))
    except (CutContentError, TooLargeError):
        return ""


def tools_of(attributes: Json, payload: object) -> str:
    """The tools in a span's attributes, or beside the messages of its input; see `tools_text`."""
    for name in _TOOLS:
        if any(value_at(attributes, name + more) is not None for more in _FIRST):
            return tools_text(list_at(attributes, name))
    return tools_text(_beside(payload, "tools"))


def _beside(payload: object, name: str) -> object:
    """The value of a key of a payload, which is only parsed if it may have that."""
    if isinstance(payload, str) and f'"{name}"' not in payload:
        return None
    try:
        return object_in(payload).get(name)
    except (CutContentError, TooLargeError):
        return None


def tools_text(tools: object) -> str:
    """Tools as JSON in the shape of OpenAI's chats; '' if there are none, or they are damaged.

    Args:
        tools: a list, or the JSON of one, in OpenAI's, Anthropic's, the AI SDK's or OpenInference's
            shape.
    """
    try:
        told = [tool for item in list_in(tools) for tool in _told(item)]
    except (CutContentError, TooLargeError):
        return ""
    return compact(told) if told else ""


def _told(item: object) -> Iterator[Json]:
    tool = object_in(value_at(item, "tool.json_schema")) or object_in(item)
    function = as_object(tool.get("function")) or tool
    if not isinstance(function.get("name"), str):
        return  # one that the model's provider runs has no schema
    schema = parse_json(first_of(function, *_SCHEMAS))
    values = (function["name"], function.get("description"), schema)
    named = zip(("name", "description", "parameters"), values, strict=True)
    yield {"type": "function", "function": {x: value for x, value in named if value is not None}}
