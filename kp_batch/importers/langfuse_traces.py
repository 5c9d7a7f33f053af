"""A Langfuse trace's observations as an agent's steps."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from kp_batch.importers.attributes import first, first_text, texts
from kp_batch.importers.draft import Draft, Origin, PassedOver, Refused, Unit
from kp_batch.importers.langfuse_observations import (
    agent_name,
    is_set,
    metadata_of,
    run_of,
    said_of,
    tool_name,
)
from kp_batch.importers.messages import Json, Message, list_in
from kp_batch.importers.payloads import at_path, messages_in, objective_in
from kp_batch.importers.rules import Rules
from kp_batch.importers.scores import score_of
from kp_batch.importers.transcript import Transcript
from kp_batch.times import time_of

_LLM, _TOOL = "GENERATION", "TOOL"
_OF_NO_AGENT = {"SPAN", "EVENT"}  # any program has them
_NEVER, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_TEXT_FIELDS = ("trace_name", "environment", "release", "version", "user_id", "session_id")


def draft(trace: str, found: Sequence[Unit], rules: Rules) -> Draft | Refused | PassedOver:
    """See `Format`."""
    records = _latest([cast("Json", each.record) for each in found])
    row = next((each for each in records if each["kind"] == "trace"), None)
    observations = _in_order([each for each in records if each["kind"] == "observation"])
    roots = [each for each in observations if _is_root(each)]
    name = f"kp:trace:{trace}"
    if not row and not observations:
        return PassedOver("scores of a trace that is not there")
    if not observations or not (row or roots) or any(_is_pending(each) for each in roots):
        return Refused(["incomplete"], "its root is not there yet, or has not ended", id=name)
    if all(str(each.get("type")) in _OF_NO_AGENT for each in observations):
        return PassedOver("trace without an agent")
    context = [each for each in (row, *roots) if each]
    given = next((each["input"] for each in context if is_set(each.get("input"))), None)
    transcript = _transcript(given, observations, rules)
    asked = at_path(given, rules.objective) if rules.objective else ""
    fields = _fields(context, observations)
    return Draft(
        id=name,
        created_at=_started(row, roots, observations),
        objective=asked or transcript.objective or _asked_first(given, observations),
        steps=transcript.steps,
        scores=_scores(records, {"", *(str(each["id"]) for each in roots)}),
        fields=fields,
        origin=_origin(fields, observations),
    )


def _latest(records: Sequence[Json]) -> list[Json]:
    """Each record as it was updated last; windows of exports overlap."""
    latest: dict[tuple[str, str], Json] = {}
    for each in sorted(records, key=_version):
        latest[str(each["kind"]), str(each["id"])] = each
    return list(latest.values())


def _version(record: Json) -> tuple[datetime, bool, str]:
    updated = time_of(record.get("updated_at")) or _NEVER
    return updated, record.get("end_time") is not None, json.dumps(record, sort_keys=True)


def _is_root(observation: Json) -> bool:
    return not _parent(observation) or observation.get("is_root_observation") is True


def _parent(observation: Json) -> str:
    return str(observation.get("parent_observation_id") or "")


def _is_pending(root: Json) -> bool:
    return "end_time" in root and not root["end_time"] and root.get("type") != "EVENT"


def _in_order(observations: Sequence[Json]) -> list[Json]:
    """By time; of those that start at once a parent before its children, then what ended first."""
    by_id = {str(each["id"]): each for each in observations}

    def place(each: Json) -> tuple[datetime, list[tuple[datetime, str]]]:
        start = _start(each)
        path = [each, *_above(each, by_id)]
        at_once = [one for one in path if _start(one) == start]
        ends = [(time_of(one.get("end_time")) or _LAST, str(one["id"])) for one in at_once]
        return start, ends[::-1]

    return sorted(observations, key=place)


def _start(observation: Json) -> datetime:
    return time_of(observation.get("start_time")) or _LAST


def _above(observation: Json, by_id: Mapping[str, Json]) -> Iterator[Json]:
    """Its parent, that one's parent, and so on."""
    seen, parent = {str(observation["id"])}, _parent(observation)
    while parent in by_id and parent not in seen:
        seen.add(parent)
        yield by_id[parent]
        parent = _parent(by_id[parent])


def _started(
    row: Json | None, roots: Sequence[Json], observations: Sequence[Json]
) -> datetime | None:
    """When the root started; of several, the trace is the root, and its timestamp may be late."""
    timestamp = time_of((row or {}).get("timestamp"))
    starts = [time_of(each.get("start_time")) for each in roots]
    starts += [timestamp] if len(roots) > 1 else []
    others = (timestamp, *(time_of(each.get("start_time")) for each in observations))
    return min(filter(None, starts), default=None) or next(filter(None, others), None)


def _transcript(given: object, observations: Sequence[Json], rules: Rules) -> Transcript:
    transcript = Transcript(recovery=rules.recovers)
    by_id = {str(each["id"]): each for each in observations}
    transcript.recall(messages_in(given))
    for each in observations:
        if each.get("type") == _LLM:
            if not any(one.get("type") == _LLM for one in _above(each, by_id)):
                transcript.recall(messages_in(each.get("input")))
                _say(transcript, said_of(each))
        elif each.get("type") == _TOOL:
            above = next(_above(each, by_id), {})
            if above.get("type") != _TOOL or tool_name(above) != tool_name(each):
                transcript.run(*run_of(each))
    return transcript


def _say(transcript: Transcript, said: Sequence[Message]) -> None:
    for each in said:
        transcript.say(each) if each.role == "assistant" else transcript.recall([each])


def _asked_first(given: object, observations: Sequence[Json]) -> str:
    inputs = [given, *(each.get("input") for each in observations)]
    return next((objective_in(each) for each in inputs if is_set(each)), "")


def _scores(records: Sequence[Json], places: set[str]) -> dict[str, float]:
    """The numbers of the trace and its roots, by name, the latest of each."""
    found = [each for each in records if each["kind"] == "score"]
    found = [each for each in found if str(each.get("observation_id") or "") in places]
    found.sort(key=lambda each: (time_of(each.get("timestamp")) or _NEVER, _version(each)))
    numbers = ((str(each.get("name")), _number(each)) for each in found)
    return {name: number for name, number in numbers if number is not None}


def _number(score: Json) -> float | None:
    """A score's value; a text's or a category's is only its place in a list."""
    value, kind = score.get("value"), score.get("data_type")
    if kind not in (None, "", "NUMERIC", "BOOLEAN"):
        return None
    if value is None and kind == "BOOLEAN":
        return {"true": 1.0, "false": 0.0}.get(str(score.get("string_value")).lower())
    return score_of(value)


def _origin(fields: Mapping[str, Sequence[str]], observations: Sequence[Json]) -> Origin:
    calls = [each for each in observations if each.get("type") == _LLM]
    return Origin(
        agent=agent_name(observations),
        model=first_text(calls, "provided_model_name", "model"),
        session=first(fields.get("session_id", ())),
        version=first((*fields.get("version", ()), *fields.get("release", ()))),
    )


def _fields(context: Sequence[Json], observations: Sequence[Json]) -> dict[str, list[str]]:
    """What a rule may take a domain from, of the trace, else of its root, else of any."""
    fields: dict[str, list[str]] = {}
    places = (*context, *observations)
    tags = [list_in(each["tags"]) for each in places if each.get("tags") is not None]
    if tags:
        fields["tags"] = [str(tag) for tag in next(filter(None, tags), ())]
    for name in _TEXT_FIELDS:
        if found := [str(each[name]) for each in places if each.get(name)]:
            fields[name] = found[:1]
    for each in reversed(context):
        fields |= texts({"metadata": metadata_of(each)})
    return fields
