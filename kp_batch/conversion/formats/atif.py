"""ATIF trajectories, alone or in the folders of Harbor's trials.

A record is a trajectory. Left out are subagents' trajectories, which are not part of the trace, and
all of a trial's result but its name, rewards, times and task: the rest describes how Harbor ran it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import cast

from kp_batch.bounds import TooLargeError, loads
from kp_batch.conversion.conversation.attributes import first_text, score_of, value_at
from kp_batch.conversion.conversation.instructions import tools_text
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    as_object,
    text_of,
)
from kp_batch.conversion.conversation.payloads import at_path
from kp_batch.conversion.conversation.transcript import Transcript
from kp_batch.conversion.formats.json_files import read_json
from kp_batch.conversion.model import (
    Format,
    Input,
    Native,
    Origin,
    Probe,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    TraceDraft,
    lenient_probe,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.text import time_of

_RESULT = "result.json"
_OTHERS = {_RESULT, "config.json", "lock.json", "reward.json", "manifest.json"}
_NOT_AGENTS = {"user-agent", "verifier", "artifacts"}  # folders of a trial
_MAIN = "trajectory.json"
_SEGMENT = re.compile(r"trajectory(\.cont-\d+)?\.json")
_FIELDS = ("source", "task_name")
_IS_ATIF = re.compile(rb'"schema_version"\s*:\s*"ATIF')
_REFERS = re.compile(rb'"(trajectory_path|continued_trajectory_ref)"')
# Errors that leave a trial's reward valid: the agent used up its means, or refused the task.
_VALID_AFTER = {
    "AgentTimeoutError",
    "ContextWindowExceededError",
    "ContextLengthExceededError",
    "OutputTokenExceededError",
    "OutputLengthExceededError",
    "AgentSafetyRefusalError",
    "ContentPolicyViolationError",
}
_ROLES: Mapping[object, Role] = {"user": "user", "agent": "assistant", "system": "system"}
_FAILED = ("is_error", "tool_result_is_error")  # of Harbor's agents; ATIF has no field


def records(path: Path, sidecars: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`; a trajectory's sidecar is its trial's result."""
    trajectory = _trajectory(read_json(path))
    agent, steps = trajectory.get("agent"), cast("list[Json]", trajectory["steps"])
    is_below = isinstance(agent, dict) and (agent.get("extra") or {}).get("parent_session_id")
    if is_below or (steps and all(map(_is_aside, steps))):
        yield Skipped("trajectory of a subagent")
        return
    name = trajectory.get("trajectory_id")
    if not name and trajectory.get("session_id"):  # continuations share it
        name = f"{trajectory['session_id']}/{path.stem}"
    if not name:
        yield Refused(["missing_id"], "a trajectory with neither trajectory_id nor session_id")
        return
    # Those of subagents are not part of the trace, and may be long.
    own = {key: value for key, value in trajectory.items() if key != "subagent_trajectories"}
    trial = trial_of(path, sidecars[0]) if sidecars else None
    yield SourceRecord(str(name), {"trajectory": own, "trial": trial})


def _trajectory(content: object) -> Json:
    trajectory = as_object(content)
    if not str(trajectory.get("schema_version")).startswith("ATIF-v1."):
        raise UnreadableError("it is not an ATIF trajectory of version 1")
    steps = trajectory.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UnreadableError("it is an ATIF trajectory whose steps are not a list of objects")
    for step in cast("list[Json]", steps):
        _message(step)  # if it is damaged, its file is refused
    return trajectory


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> TraceDraft:
    """See `Format`: of several files of one trajectory, one with a trial counts."""
    payloads = (record.payload for record in reversed(records))
    payload: Json = max(payloads, key=lambda payload: payload["trial"] is not None)
    trajectory, trial = cast("Json", payload["trajectory"]), cast("Json", payload["trial"] or {})
    transcript = Transcript(recovery=rules.recovers)
    steps = [step for step in cast("list[Json]", trajectory["steps"]) if not _is_aside(step)]
    copied = [step for step in steps if step.get("is_copied_context")]
    own = [step for step in steps if not step.get("is_copied_context")]
    # A continuation's question is in what it copied, whose steps belong to the trace before it.
    transcript.add_conversation(map(_message, copied))
    transcript.steps.clear()
    transcript.add_conversation(map(_message, own))
    times = [time_of(step.get("timestamp")) for step in own]
    after = len(own) if copied else 1  # A continuation began later than its trial.
    times[after:after] = map(time_of, trial.get("started", ()))
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=next((time for time in times if time), None),
        ended_at=_ended(trajectory, own, trial),
        objective=at_path(trajectory, rules.objective) or transcript.objective,
        steps=transcript.steps,
        scores=trial.get("rewards", {}),
        fields=trial.get("fields", {}),
        origin=_origin(trajectory),
        native=Native(root=first_text([trajectory], "session_id"), log=trial.get("name")),
        system=transcript.system,
        tools=tools_text(value_at(trajectory, "agent.tool_definitions")),
    )


def _unknown(payload: Json) -> Iterator[Skipped]:
    sources = (str(step.get("source")) for step in payload["trajectory"]["steps"])
    yield from (of_unknown_kind("step", source) for source in sources if source not in _ROLES)


def _is_aside(step: Json) -> bool:
    """Whether a step is not the agent's own.

    It is a subagent's, which Harbor marks for Claude Code, or it contains a summary of the earlier
    steps, with which the agent continues instead of them.
    """
    extra = as_object(step.get("extra"))
    replaces = value_at(extra, "context_management.boundary") == "replace"
    return extra.get("is_sidechain") is True or (replaces and step.get("source") == "system")


def _ended(trajectory: Json, own: Sequence[Json], trial: Json) -> datetime | None:
    """Return when the agent had done its work, or else its last step; if it continues, the step."""
    of_agent, of_trial = map(time_of, trial.get("ended", (None, None)))
    steps = [time_of(step.get("timestamp")) for step in reversed(own)]
    goes_on = bool(trajectory.get("continued_trajectory_ref"))
    times = [*steps, of_agent, of_trial] if goes_on else [of_agent, *steps, of_trial]
    return next((time for time in times if time), None)


def _origin(trajectory: Json) -> Origin:
    models = [trajectory.get("agent"), *cast("list[Json]", trajectory["steps"])]
    return Origin(
        agent=first_text([trajectory], "agent.name"),
        model=first_text(models, "model_name"),
        session=first_text([trajectory], "session_id"),
        version=first_text([trajectory], "agent.version"),
    )


def _message(step: Json) -> Message:
    source, observation = str(step.get("source")), step.get("observation") or {}
    return Message(
        role=_ROLES.get(source, "system"),
        text=text_of(step.get("message")) if source in _ROLES else "",
        reasoning=text_of(step.get("reasoning_content")),
        calls=tuple(map(_call, step.get("tool_calls") or ())),
        results=tuple(map(_result, observation.get("results") or ())),
    )


def _call(call: Json) -> ToolCall:
    name, call_id = call.get("function_name"), call.get("tool_call_id")
    return ToolCall(str(name or ""), call.get("arguments"), str(call_id or ""))


def _result(result: Json) -> ToolResult:
    content, extra = result.get("content"), result.get("extra") or {}
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = text_of(content)
    failed = any(extra.get(name) for name in _FAILED)
    return ToolResult(content, str(result.get("source_call_id") or ""), failed)


def probe(path: str, content: bytes) -> Json:
    """Return what `inputs` must know of a file's content.

    Returns:
        is_trial: whether it is the result of a trial, and not of a job; None if it is damaged.
        is_atif: whether it resembles a trajectory.
        subagents: paths of its subagents' files.
        continued: path of its continuation; '' if there is none.
    """
    subagents, continued = _references(path, content)
    return {
        "is_trial": _is_trial(content) if PurePosixPath(path).name == _RESULT else False,
        "is_atif": bool(_IS_ATIF.search(content)),
        "subagents": subagents,
        "continued": continued,
    }


def inputs(paths: Sequence[str], probe_file: Probe) -> Iterator[Input]:
    """Choose the trajectories of agents, with their trials' results as sidecars."""
    probe_file = lenient_probe(probe_file, probe)
    names = [path for path in paths if path.lower().endswith(".json")]
    trials: dict[str, str] = {}  # results by folder
    for path in names:
        if PurePosixPath(path).name == _RESULT:
            is_trial = probe_file(path)["is_trial"]
            if is_trial is not False:
                trials[_folder(path)] = path
            if is_trial is None:
                yield Input(path, refused=Refused(["unreadable_file"], "it is not JSON"))
    within = {path: _innermost(_folder(path), trials) for path in names}
    mains = {_folder(path) for path in names if PurePosixPath(path).name == _MAIN}
    probed = {
        path: probe_file(path) for path in names if _is_trajectory(path, within[path], probe_file)
    }
    subagents = {file for facts in probed.values() for file in facts["subagents"]}
    continued = {facts["continued"] for facts in probed.values()}
    for path in probed:
        trial = within[path]
        if path in subagents or (trial and not _is_of_agent(path, mains) and path not in continued):
            continue
        yield Input(path, (trials[trial],) if trial else ())


def _is_trial(content: bytes) -> bool | None:
    try:
        result = loads(content)
    except (ValueError, TooLargeError):
        return None
    return isinstance(result, dict) and ("trial_name" in result or "task_name" in result)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _innermost(folder: str, folders: Collection[str]) -> str:
    """Return this folder or the innermost one around it that is among some; '' if none is."""
    while folder and folder not in folders:
        folder = _folder(folder)
    return folder


def _is_trajectory(path: str, trial: str, probe_file: Probe) -> bool:
    """Whether a file is a trajectory, or should have been one."""
    inner = PurePosixPath(path.removeprefix(trial))
    if trial and _NOT_AGENTS & set(inner.parts):
        return False
    is_other = trial or inner.name in _OTHERS or inner.parent.name in _NOT_AGENTS
    if is_other and not (trial and _SEGMENT.fullmatch(inner.name)):
        return probe_file(path)["is_atif"]
    return True


def _is_of_agent(path: str, mains: Collection[str]) -> bool:
    """Whether a trajectory in a trial is the agent's, and not a subagent's or a log of its own."""
    folder = _innermost(_folder(path), mains)
    is_segment = bool(_SEGMENT.fullmatch(PurePosixPath(path).name))
    return not folder or (folder == _folder(path) and is_segment)


def _references(path: str, content: bytes) -> tuple[list[str], str]:
    """Return the files of a trajectory's subagents, and of its continuation."""
    if not _REFERS.search(content):
        return [], ""
    try:
        trajectory = loads(content)
        seen = [step.get("observation") or {} for step in trajectory["steps"]]
        results = [result for observation in seen for result in observation.get("results") or ()]
        refs = [ref for result in results for ref in result.get("subagent_trajectory_ref") or ()]
        names = [str(ref["trajectory_path"]) for ref in refs if ref.get("trajectory_path")]
        continued = trajectory.get("continued_trajectory_ref")
    except (ValueError, TooLargeError, LookupError, TypeError, AttributeError):
        return [], ""  # it is refused when it is read
    return [_sibling(path, name) for name in names], _sibling(path, str(continued or ""))


def _sibling(path: str, name: str) -> str:
    """Return the file that a trajectory names; a path in the agent's container is cut to a name."""
    parts = PurePosixPath(name)
    inner = [parts.name] if parts.is_absolute() else parts.parts
    return "/".join([_folder(path), *inner])


def trial_of(path: Path, result: Path) -> Json:
    """Return the facts of a trial's result that count for a trajectory.

    Returns:
        name: name of the trial; None if there is none.
        rewards: rewards by name; empty if an exception makes them void.
        started: start times, the best first.
        ended: end times, the best first.
        fields: fields that may name a domain.

    Raises:
        TooLargeError: the result exceeds a limit.
        UnreadableError: the result is damaged.
    """
    try:
        trial = cast("Json", read_json(result))
        part = _step_of(path, trial)
        errors = {(x.get("exception_info") or {}).get("exception_type") for x in (trial, part)}
        values = (part.get("verifier_result") or {}).get("rewards") or {}
        ran = part.get("agent_execution") or {}
        numbers = ((name, score_of(value)) for name, value in values.items())
        rewards = {name: number for name, number in numbers if number is not None}
        return {
            "name": str(trial["trial_name"]) if trial.get("trial_name") else None,
            "rewards": {} if errors - {None} - _VALID_AFTER else rewards,
            "started": [ran.get("started_at"), trial.get("started_at")],
            "ended": [ran.get("finished_at"), trial.get("finished_at")],
            "fields": {n: [str(trial[n])] if trial.get(n) else [] for n in _FIELDS},
        }
    except TooLargeError as error:
        raise TooLargeError(f"its trial's {result.name}: {error}") from error
    except (UnreadableError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(f"its trial's {result.name} cannot be read: {error}") from error


def _step_of(path: Path, trial: Json) -> Json:
    """Return the part of a trial that a trajectory belongs to: all of it, or one of its steps."""
    names = {name for folder, name in pairwise(path.parts) if folder == "steps"}
    steps = cast("list[Json]", trial.get("step_results") or [])
    return next((step for step in steps if step["step_name"] in names), trial)


FORMAT = Format(
    name="atif",
    contents="rewards by name, and a task's name and source as domain, in Harbor's trials",
    inputs=inputs,
    probe=probe,
    records=records,
    draft=draft,
    source="document",
    unknown=_unknown,
)
