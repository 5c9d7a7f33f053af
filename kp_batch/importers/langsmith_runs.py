"""What runs of LangSmith come to: the steps, scores and fields of a trace."""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kp_batch.importers.attributes import first_text, texts
from kp_batch.importers.draft import Draft, Origin, Refused, Unit
from kp_batch.importers.message_json import message_of
from kp_batch.importers.messages import Json, Message, ToolCall, ToolResult, object_in, parsed
from kp_batch.importers.payloads import (
    at_path,
    messages_in,
    objective_in,
    question_in,
    without_role,
)
from kp_batch.importers.rules import Rules
from kp_batch.importers.scores import score_of
from kp_batch.importers.transcript import Transcript
from kp_batch.times import sortable, time_of

_TOOLS = {"tool", "retriever"}
_LITERAL = 1 << 18  # letters: parsed, each takes up to 500 bytes


def draft(trace: str, found: Sequence[Unit], rules: Rules) -> Draft | Refused:
    """See `Format`: of several exports of a run, the last one counts."""
    name = f"kp:trace:{trace}"
    runs: dict[str, Json] = {}
    for each in sorted((cast("Json", unit.record) for unit in found), key=_age):
        runs[str(each["id"])] = each
    ordered = _in_order(runs)
    roots = [run for run in ordered if run["id"] == trace] or [
        run for run in ordered if "parent_run_id" in run and not run["parent_run_id"]
    ]
    if not roots:
        return Refused(["incomplete"], "its root run is not there yet", id=name)
    root = roots[0]
    if _is_pending(root):
        return Refused(["incomplete"], "its root run is still pending", id=name)
    transcript = Transcript(recovery=rules.recovers)
    for run in ordered:
        _take(transcript, run, {each.get("run_type") for each in _chain(run, runs)[:-1]})
    starts = (time_of(run.get("start_time")) for run in (root, *ordered))
    return Draft(
        id=name,
        created_at=next((start for start in starts if start), None),
        objective=_objective(root, ordered, transcript, rules),
        steps=transcript.steps,
        scores=_scores(root),
        fields=_fields(root),
        origin=_origin(root, ordered),
    )


def _age(run: Json) -> tuple[bool, str, int, int, str]:
    """Later exports know of the end, of more feedback, and of more fields."""
    counts = (n for each in _feedback(run).values() if isinstance(n := each.get("n"), int))
    filled = sum(value not in (None, "", [], {}) for value in run.values())
    text = json.dumps(run, sort_keys=True)
    return not _is_pending(run), sortable(run.get("end_time")), sum(counts), filled, text


def _is_pending(run: Json) -> bool:
    if run.get("status"):
        return run["status"] == "pending"
    return "end_time" in run and not run["end_time"]


def _in_order(runs: Mapping[str, Json]) -> list[Json]:
    """Runs in their dotted order: by time, and what belongs to a run follows it."""
    listed = list(runs.values())
    if all(run.get("dotted_order") for run in listed):
        return sorted(listed, key=lambda run: (run["dotted_order"], run["id"]))
    return sorted(listed, key=lambda run: [_start(each) for each in _chain(run, runs)])


def _chain(run: Json, runs: Mapping[str, Json]) -> list[Json]:
    """A run, and before it those that it is within, from the outermost on."""
    chain = [run]
    while (parent := runs.get(str(chain[0].get("parent_run_id")))) and parent not in chain:
        chain.insert(0, parent)
    return chain


def _start(run: Json) -> tuple[str, str]:
    return sortable(run.get("start_time")), str(run["id"])


def _take(transcript: Transcript, run: Json, within: set[Any]) -> None:
    kind = run.get("run_type")
    if kind == "llm" and kind not in within:
        transcript.recall(messages_in(run.get("inputs")))
        for message in _answers(run.get("outputs")):
            transcript.say(message)
    elif kind == "tool" or (kind == "retriever" and not within & _TOOLS):
        result = _result(run)
        transcript.run(_call(run, result.id), result)


def _answers(outputs: object) -> list[Message]:
    """What a model said: its messages; else its text, as models without messages have."""
    if said := [each for each in messages_in(outputs) if each.role == "assistant"]:
        return said
    found = parsed(outputs)
    return [without_role(found) or Message("assistant", _text_of(found))]


def _text_of(found: object) -> str:
    while isinstance(found, list) and found:
        found = cast("list[object]", found)[0]
    if isinstance(found, Mapping) and "generations" in found:
        return _text_of(found["generations"])
    return objective_in(found) if isinstance(found, str | Mapping) else ""


def _call(run: Json, named: str) -> ToolCall:
    given = parsed(run.get("inputs"))
    if isinstance(given, Mapping):
        inputs = cast("Json", given)
        if inputs.get("type") == "tool_call" and "args" in inputs:
            given, named = inputs["args"], named or str(inputs.get("id") or "")
        elif set(inputs) == {"input"} and isinstance(inputs["input"], str):
            given = _arguments(inputs["input"]) or given
    return ToolCall(str(run.get("name") or ""), given, named)


def _arguments(text: str) -> Json | None:
    """Arguments as LangChain writes them: in Python's notation, if that is short, or as JSON."""
    found = parsed(text)
    if isinstance(found, str) and found.startswith("{") and len(found) <= _LITERAL:
        try:
            found = ast.literal_eval(found)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return found if isinstance(found, Mapping) else None


def _result(run: Json) -> ToolResult:
    failed = run.get("status") == "error" or bool(run.get("error"))
    given = parsed(run.get("outputs"))
    if given == {}:
        given = None  # what LangSmith has where nothing came out
    if isinstance(given, Mapping) and set(given) == {"output"}:
        given = given["output"]
    if told := _told(given):
        return ToolResult(told.content, told.id, failed or told.failed)
    return ToolResult(given, failed=failed)


def _told(given: object) -> ToolResult | None:
    """The result within a tool's message, as LangChain's tools give it back."""
    if not isinstance(given, Mapping):
        return None
    message = message_of(given)
    messages = [message] if message else messages_in(given) if given.get("lc") else []
    return next((result for each in messages for result in each.results), None)


def _objective(root: Json, ordered: Sequence[Json], transcript: Transcript, rules: Rules) -> str:
    inputs = root.get("inputs")
    named = at_path(inputs, rules.objective) if rules.objective else ""
    said = (each.text for each in messages_in(inputs) if each.role == "user" and each.text)
    found = named or next(said, "") or transcript.objective or question_in(inputs)
    others = (objective_in(run.get("inputs")) for run in ordered)
    return found or next((text for text in others if text), "")


def _feedback(run: Json) -> Mapping[str, Json]:
    stats = object_in(run.get("feedback_stats"))
    return {name: each for name, each in stats.items() if isinstance(each, Mapping)}


def _scores(root: Json) -> dict[str, float]:
    averages = {name: score_of(each.get("avg")) for name, each in _feedback(root).items()}
    return {name: value for name, value in averages.items() if value is not None}


def _origin(root: Json, ordered: Sequence[Json]) -> Origin:
    calls = [each for each in ordered if each.get("run_type") == "llm"]
    metadata = [root.get("metadata")]
    return Origin(
        agent=first_text(metadata, "lc_agent_name", "agent_name"),
        model=first_text(calls, "model"),
        session=first_text(metadata, "session_id", "thread_id", "conversation_id"),
        version=first_text(metadata, "version", "revision_id"),
    )


def _fields(root: Json) -> dict[str, list[str]]:
    tags = root.get("tags")
    fields = {"tags": list(map(str, tags)) if isinstance(tags, list) else []}
    for name in ("name", "session_id", "session_name"):
        if root.get(name):
            fields[name] = [str(root[name])]
    return fields | dict(texts({"metadata": root.get("metadata", {})}))
