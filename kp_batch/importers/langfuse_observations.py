"""What a Langfuse observation tells: of a model's messages, or of a tool's run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from kp_batch.importers.attributes import agent_named, first
from kp_batch.importers.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    as_text,
    list_in,
    object_in,
    parsed,
)
from kp_batch.importers.payloads import messages_in, said_in

# Where instrumentations tell of a tool's span what the call was.
_CALL_IDS = ("tool_call_id", "gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id")
_AGENT_NAMES = ("gen_ai.agent.name", "agent.name")
_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")


def is_set(payload: object) -> bool:
    """Langfuse's '' is unset."""
    return payload is not None and payload != ""


def said_of(generation: Json) -> list[Message]:
    """What a model gave back, in its output and in the columns of its calls."""
    output = generation.get("output")
    said = said_in(output) if is_set(output) else []
    if any(each.calls for each in said):
        return said
    return [*said, Message("assistant", calls=tuple(_told_calls(generation)))]


def _told_calls(generation: Json) -> Iterator[ToolCall]:
    """The calls in the columns: their names stand at the same places of another one."""
    names = list_in(generation.get("tool_call_names"))
    for place, each in enumerate(list_in(generation.get("tool_calls"))):
        call = object_in(each)
        function: Json = call["function"] if isinstance(call.get("function"), Mapping) else call
        name = names[place] if place < len(names) else function.get("name")
        yield ToolCall(str(name or ""), function.get("arguments"), str(call.get("id") or ""))


def run_of(observation: Json) -> tuple[ToolCall, ToolResult]:
    """The call that a tool's observation is, and what came of it."""
    given, output = observation.get("input"), observation.get("output")
    told = _first(metadata_of(observation), _CALL_IDS)
    call_id = "" if told is None else as_text(told)
    content, failed = output, observation.get("level") == "ERROR"
    if result := _result_message(output):  # LangChain's tools give back a message
        content, failed = result.content, failed or result.failed
        call_id = call_id or result.id
    call = ToolCall(tool_name(observation), given if is_set(given) else None, call_id)
    return call, ToolResult(content if is_set(content) or result else None, call_id, failed)


def _result_message(output: object) -> ToolResult | None:
    found = parsed(output)
    if not isinstance(found, Mapping) or "tool_call_id" not in found:
        return None
    results = [result for each in messages_in(cast("Json", found)) for result in each.results]
    return results[0] if len(results) == 1 else None


def tool_name(observation: Json) -> str:
    """The name of the tool that an observation is a run of."""
    told = _first(metadata_of(observation), _TOOL_NAMES)
    return str(told or observation.get("name") or "").removeprefix("execute_tool ")


def agent_name(observations: Sequence[Json]) -> str | None:
    """The agent's name: an attribute of the first observation that has it, else an agent's own."""
    told = (_first(metadata_of(each), _AGENT_NAMES) for each in observations)
    names = (str(each.get("name") or "") for each in observations if each.get("type") == "AGENT")
    return first(map(str, filter(None, told))) or first(map(agent_named, names))


def metadata_of(record: Json) -> Json:
    """Its metadata: Parquet's maps are pairs, whose values are JSON in texts."""
    found = parsed(record.get("metadata"))
    if isinstance(found, Mapping):
        return cast("Json", found)
    pairs = [each for each in list_in(found) if isinstance(each, list) and len(each) == 2]
    return {str(key): parsed(value) for key, value in cast("list[list[object]]", pairs)}


def _first(metadata: Json, names: Sequence[str]) -> object:
    """What stands under the first of these names, be it as an attribute."""
    attributes = object_in(metadata.get("attributes"))
    told = (
        place.get(key)
        for name in names
        for place, key in ((metadata, name), (attributes, name), (metadata, f"attributes.{name}"))
    )
    return next((each for each in told if each is not None), None)
