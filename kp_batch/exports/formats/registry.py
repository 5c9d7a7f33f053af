"""Units for a KnowledgePulse registry, with the score as quality_score."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from kp_batch.bounds import TooLargeError, loads
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats.model import LINES, ChosenTrace, ExportFormat, Row, is_portable
from kp_batch.exports.formats.scores import NativeIds, time_of
from kp_batch.ingest.reread import Trace

_CONTEXT = "https://openknowledgepulse.org/schema/v1"
_PREFIX = "kp:trace:"
_VISIBILITY = ("network", "org", "private")
_PRIVACY = ("aggregated", "federated", "private")

Test = Callable[[Any], bool]


class _RefusedError(Exception):
    """The registry would refuse the trace; the message is the reason."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and is_portable(value)


def _is_latency(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_delta(value: Any) -> bool:
    return (
        _is_object(value)
        and _are_objects(value.get("entities"), "name", "type")
        and _are_objects(value.get("relationships"), "fact", "valid_from")
    )


def _are_objects(values: Any, *keys: str) -> bool:
    """Whether this is a list of objects with a text for each key."""
    return isinstance(values, list) and all(
        _is_object(value) and all(_is_text(value.get(key)) for key in keys) for value in values
    )


def _row(chosen: ChosenTrace, trace: Trace, options: ExportOptions) -> Row | str:
    """Return a unit with the fields that the registry's parser keeps.

    Missing values are left out. A step without step_id gets its position.
    """
    system = NativeIds.of(chosen.trace_id, trace).system
    if system == "knowledgepulse" and not options.include_registry:
        return "from a registry"
    try:
        return _unit(chosen, trace)
    except _RefusedError as error:
        return str(error)


def _unit(chosen: ChosenTrace, trace: Trace) -> Row:
    metadata, task, outcome = trace["metadata"], trace["task"], trace["outcome"]
    _require(chosen.trace_id.startswith(_PREFIX), f"with an id that does not begin with {_PREFIX}")
    for name, values in (("visibility", _VISIBILITY), ("privacy_level", _PRIVACY)):
        _require(metadata.get(name) in values, f"with a {name} other than {', '.join(values)}")
    _require(_is_text(outcome.get("result_summary")), "without a text in outcome.result_summary")
    return {
        "@context": _CONTEXT,
        "@type": "ReasoningTrace",
        "id": chosen.trace_id,
        **_fields(trace, source_skill=_is_text),
        "metadata": {
            "created_at": time_of(chosen),
            **_fields(metadata, agent_id=_is_text, framework=_is_text, validated_by=_are_texts),
            **_fields(metadata, task_domain=_is_text),
            "success": metadata["success"],
            "quality_score": chosen.score,
            "visibility": metadata["visibility"],
            "privacy_level": metadata["privacy_level"],
        },
        "task": _fields(task, objective=_is_text, input_schema=_is_object),
        "steps": [_step(step, place) for place, step in enumerate(trace["steps"])],
        "outcome": {name: outcome[name] for name in ("result_summary", "confidence")},
        **_fields(trace, knowledge_graph_delta=_is_delta),
    }


def _step(step: Mapping[str, Any], place: int) -> Row:
    tool = _fields(step, tool=_is_object).get("tool") or {}
    has_tool = tool.get("name") is not None  # it may be empty
    row = {"step_id": place, **_fields(step, step_id=_is_number), "type": step["type"]}
    row |= _fields(step, content=_is_text)
    row |= {"tool": _fields(tool, name=_is_text, mcp_server=_is_text)} if has_tool else {}
    row |= _fields({"input": _parsed(step.get("input"))}, input=_is_object)
    return row | _fields(step, output_summary=_is_text, latency_ms=_is_latency)


def _parsed(value: Any) -> Any:
    """Return a step's input, parsed if the archive has it as JSON."""
    if isinstance(value, str):
        with suppress(ValueError, TooLargeError):
            return loads(value)
    return value


def _fields(values: Mapping[str, Any], **tests: Test) -> Row:
    """Return the named fields that have a value.

    Raises:
        _RefusedError: the registry would refuse a value.
    """
    found = {name: values[name] for name in tests if values.get(name) is not None}
    for name, value in found.items():
        _require(tests[name](value), f"with a value of {name} that registries refuse")
    return found


def _require(holds: object, reason: str) -> None:
    if not holds:
        raise _RefusedError(reason)


FORMAT = ExportFormat(row=_row, files={".jsonl": LINES})
