"""ATIF trajectories, alone or within the folders of Harbor's trials."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

from kp_batch.file_faults import UnreadableError
from kp_batch.imports.conversation.attributes import first_text
from kp_batch.imports.conversation.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    text_of,
)
from kp_batch.imports.conversation.payloads import at_path
from kp_batch.imports.conversation.transcript import Transcript
from kp_batch.imports.formats.harbor import inputs, sniff, trial_of
from kp_batch.imports.formats.json_files import read_json
from kp_batch.imports.model import (
    Format,
    Native,
    Origin,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
)
from kp_batch.imports.rules import Rules
from kp_batch.times import time_of

_ROLES: Mapping[str, Role] = {"user": "user", "agent": "assistant"}
_FAILED = ("is_error", "tool_result_is_error")  # as Harbor's agents note it; ATIF has no field


def units(path: Path, beside: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`; beside a trajectory is its trial's result."""
    told = _trajectory(read_json(path))
    agent = told.get("agent")
    if isinstance(agent, dict) and (agent.get("extra") or {}).get("parent_session_id"):
        yield Skipped("trajectory of a subagent")
        return
    name = told.get("trajectory_id")
    if not name and told.get("session_id"):  # which continuations share
        name = f"{told['session_id']}/{path.stem}"
    if not name:
        yield Rejected(["missing_id"], "a trajectory with neither trajectory_id nor session_id")
        return
    # What subagents said is no part of the trace, and may be long.
    record = {key: value for key, value in told.items() if key != "subagent_trajectories"}
    trial = trial_of(path, beside[0]) if beside else None
    yield SourceRecord(str(name), {"trajectory": record, "trial": trial})


def _trajectory(content: object) -> Json:
    told = cast("Json", content) if isinstance(content, dict) else {}
    if not str(told.get("schema_version")).startswith("ATIF-v1."):
        raise UnreadableError("it is no ATIF trajectory of version 1")
    steps = told.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UnreadableError("it is an ATIF trajectory whose steps are no list of objects")
    for step in cast("list[Json]", steps):
        _message(step)  # A damaged one is told here, of its file.
    return told


def draft(
    trace: str, found: Sequence[SourceRecord], rules: Rules
) -> TraceDraft | Rejected | Skipped:
    """See `Format`: of several files of one trajectory, one with a trial counts."""
    told_last_first = [cast("Json", each.record) for each in reversed(found)]
    record = max(told_last_first, key=lambda each: each["trial"] is not None)
    told, trial = cast("Json", record["trajectory"]), cast("Json", record["trial"] or {})
    transcript = Transcript(recovery=rules.recovers)
    copied, own = _parted(told)
    # A continuation's question stands in what it copied, whose steps the trace before it has.
    transcript.add_conversation(map(_message, copied))
    transcript.steps.clear()
    transcript.add_conversation(map(_message, own))
    named = at_path(told, rules.objective) if rules.objective else ""
    times = [time_of(step.get("timestamp")) for step in own]
    after = len(own) if copied else 1  # A continuation began later than its trial.
    times[after:after] = map(time_of, trial.get("started", ()))
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=next((time for time in times if time), None),
        ended_at=_ended(told, own, trial),
        objective=named or transcript.objective,
        steps=transcript.steps,
        scores=trial.get("rewards", {}),
        fields=trial.get("fields", {}),
        origin=_origin(told),
        native=Native(root=first_text([told], "session_id"), log=trial.get("name")),
    )


def _ended(told: Json, own: Sequence[Json], trial: Json) -> datetime | None:
    """When the agent had done its work, or else the last step; of one that goes on, the step."""
    agent, whole = map(time_of, trial.get("ended", (None, None)))
    steps = [time_of(step.get("timestamp")) for step in reversed(own)]
    goes_on = bool(told.get("continued_trajectory_ref"))
    times = [*steps, agent, whole] if goes_on else [agent, *steps, whole]
    return next((time for time in times if time), None)


def _origin(told: Json) -> Origin:
    models = [told.get("agent"), *cast("list[Json]", told["steps"])]
    return Origin(
        agent=first_text([told], "agent.name"),
        model=first_text(models, "model_name"),
        session=first_text([told], "session_id"),
        version=first_text([told], "agent.version"),
    )


def _parted(told: Json) -> tuple[list[Json], list[Json]]:
    """The steps that were copied from the trajectory before, and its own."""
    steps = cast("list[Json]", told["steps"])
    copied = [step for step in steps if step.get("is_copied_context")]
    return copied, [step for step in steps if not step.get("is_copied_context")]


def _message(step: Json) -> Message:
    observed = step.get("observation") or {}
    return Message(
        role=_ROLES.get(str(step.get("source")), "system"),
        text=text_of(step.get("message")),
        reasoning=text_of(step.get("reasoning_content")),
        calls=tuple(map(_call, step.get("tool_calls") or ())),
        results=tuple(map(_result, observed.get("results") or ())),
    )


def _call(call: Json) -> ToolCall:
    given, named = call.get("arguments"), call.get("tool_call_id")
    return ToolCall(str(call.get("function_name") or ""), given, str(named or ""))


def _result(result: Json) -> ToolResult:
    content, extra = result.get("content"), result.get("extra") or {}
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = text_of(content)
    failed = any(extra.get(name) for name in _FAILED)
    return ToolResult(content, str(result.get("source_call_id") or ""), failed)


FORMAT = Format(
    name="atif",
    holds="rewards by name, and a task's name and source as domain, in Harbor's trials",
    inputs=inputs,
    sniff=sniff,
    units=units,
    draft=draft,
    source="document",
)
