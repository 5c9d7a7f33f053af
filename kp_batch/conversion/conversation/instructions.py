"""What a model gets besides its messages: instructions, and the tools that it may call."""

from collections.abc import Iterator

from kp_batch.bounds import TooLargeError
from kp_batch.conversion.conversation.attributes import first, list_at, value_at
from kp_batch.conversion.conversation.messages import (
    CutContentError,
    Json,
    JsonText,
    as_object,
    compact,
    first_of,
    list_in,
    object_in,
    parse_json,
    text_of,
)

# Where spans have the tools: the name if attributes are nested; then if they are in one value; and
# the first name of the values if each tool has several.
_TOOLS = (
    ("gen_ai", "gen_ai.tool.definitions"),
    ("llm", "llm.tools", "llm.tools.0.tool.json_schema"),
    ("llm", "llm.request.functions", "llm.request.functions.0.name"),
    ("mlflow", "mlflow.chat.tools"),
    ("ai", "ai.prompt.tools"),
    ("tools", "tools"),
)
_CUT = (CutContentError, TooLargeError)  # a trace is built without a value that breaks off here
_SYSTEM = "gen_ai.system_instructions"
_OF_PAYLOADS = ("system", "instructions")
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")


def system_of(attributes: Json, payload: object) -> str:
    """Return the instructions in a span's attributes, or in its input; '' if there are none."""
    value = JsonText.of(_SYSTEM, value_at(attributes, _SYSTEM), or_text=True)
    for name in _OF_PAYLOADS if value is None else ():
        value = value or _value_in(payload, name)
    try:
        return text_of(parse_json(value))
    except _CUT:
        return ""


def tools_of(attributes: Json, payload: object) -> str:
    """Return the tools in a span's attributes, or in its input; see `tools_text`."""
    lists = (
        _list_at(attributes, names[1])
        for names in _TOOLS
        if not attributes.keys().isdisjoint(names)  # most spans have none of them
    )
    return first(map(tools_text, lists)) or tools_text(_value_in(payload, "tools"))


def _list_at(attributes: Json, name: str) -> object:
    try:
        return list_at(attributes, name)
    except _CUT:
        return None


def _value_in(payload: object, name: str) -> object:
    """Return the value of a payload's key; parse the payload only if it may have the key."""
    if isinstance(payload, str) and f'"{name}"' not in payload:
        return None
    try:
        return object_in(payload).get(name)
    except _CUT:
        return None


def tools_text(tools: object) -> str:
    """Return tools as JSON in the shape of OpenAI's chats; '' if there are none, or damaged ones.

    Args:
        tools: a list, or its JSON, in the shape of OpenAI, Anthropic, the AI SDK or
            OpenInference.
    """
    try:
        listed = [tool for item in list_in(tools) for tool in _functions_of(item)]
    except _CUT:
        return ""
    return compact(listed) if listed else ""


def _functions_of(item: object) -> Iterator[Json]:
    tool = object_in(value_at(item, "tool.json_schema")) or object_in(item)
    function = as_object(tool.get("function")) or tool
    if not isinstance(function.get("name"), str):
        return  # a tool that the model's provider runs has no schema
    schema = parse_json(first_of(function, *_SCHEMAS))
    values = (function["name"], function.get("description"), schema)
    named = zip(("name", "description", "parameters"), values, strict=True)
    shown = {name: value for name, value in named if value not in (None, "")}
    yield {"type": "function", "function": shown}
