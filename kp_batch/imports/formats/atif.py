"""ATIF trajectories, alone or within the folders of Harbor's trials."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import cast

from kp_batch.errors import UnreadableError, is_passing
from kp_batch.imports.conversation.attributes import first_text, score_of
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
from kp_batch.imports.formats.json_files import read_json
from kp_batch.imports.model import (
    Format,
    Input,
    Native,
    Origin,
    Rejected,
    Skipped,
    Sniff,
    SourceRecord,
    TraceDraft,
)
from kp_batch.imports.rules import Rules
from kp_batch.limits import TooLargeError, loads
from kp_batch.text import time_of

_RESULT = "result.json"
_OTHERS = {_RESULT, "config.json", "lock.json", "reward.json", "manifest.json"}
_NOT_AGENTS = {"user-agent", "verifier", "artifacts"}  # folders of a trial
_MAIN = "trajectory.json"
_SEGMENT = re.compile(r"trajectory(\.cont-\d+)?\.json")
_FIELDS = ("source", "task_name")
_IS_ATIF = re.compile(rb'"schema_version"\s*:\s*"ATIF')
_REFERS = re.compile(rb'"(trajectory_path|continued_trajectory_ref)"')
# What says nothing against a trial's reward: the agent spent what it had, or would not do the task.
_VALID_AFTER = {
    "AgentTimeoutError",
    "ContextWindowExceededError",
    "ContextLengthExceededError",
    "OutputTokenExceededError",
    "OutputLengthExceededError",
    "AgentSafetyRefusalError",
    "ContentPolicyViolationError",
}
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
    told_last_first = [cast("Json", each.payload) for each in reversed(found)]
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


def sniff(path: str, content: bytes) -> Json:
    """What a file's content tells `inputs`.

    Returns:
        is_trial: whether it is the result of a trial, and not of a job; None if it is damaged.
        is_atif: whether it looks like a trajectory.
        subagents: the paths of their files that it names.
        continued: that of its continuation; '' if there is none.
    """
    is_result = PurePosixPath(path).name == _RESULT
    subagents, continued = _refers(path, content)
    return {
        "is_trial": _is_trial(content) if is_result else False,
        "is_atif": bool(_IS_ATIF.search(content)),
        "subagents": subagents,
        "continued": continued,
    }


def inputs(paths: Sequence[str], look: Sniff) -> Iterator[Input]:
    """Choose the trajectories of agents, with their trials' results beside them."""
    look = _patient(look)
    names = [path for path in paths if path.lower().endswith(".json")]
    trials: dict[str, str] = {}  # results by their folders
    for path in names:
        if PurePosixPath(path).name == _RESULT:
            is_trial = look(path)["is_trial"]
            if is_trial is not False:
                trials[_folder(path)] = path
            if is_trial is None:
                yield Input(path, refused=Rejected(["unreadable_file"], "it is no JSON"))
    within = {path: _innermost(_folder(path), trials) for path in names}
    mains = {_folder(path) for path in names if PurePosixPath(path).name == _MAIN}
    told = {path: look(path) for path in names if _is_told(path, within[path], look)}
    subagents = {each for seen in told.values() for each in seen["subagents"]}
    continued = {seen["continued"] for seen in told.values()}
    for path in told:
        trial = within[path]
        if path in subagents or (trial and not _is_of_agent(path, mains) and path not in continued):
            continue
        yield Input(path, (trials[trial],) if trial else ())


def _patient(look: Sniff) -> Sniff:
    """See nothing in a file that cannot be read: where its turn comes, it is told."""

    def seen(path: str) -> Json:
        try:
            return look(path)
        except OSError as error:
            if is_passing(error):
                raise
            return sniff(path, b"")

    return seen


def _is_trial(content: bytes) -> bool | None:
    try:
        told = loads(content)
    except (ValueError, TooLargeError):
        return None
    return isinstance(told, dict) and ("trial_name" in told or "task_name" in told)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _innermost(folder: str, among: Collection[str]) -> str:
    """A folder, or the innermost one around it, that is among some; '' if there is none."""
    while folder and folder not in among:
        folder = _folder(folder)
    return folder


def _is_told(path: str, trial: str, look: Sniff) -> bool:
    """Whether a file is a trajectory, or should have been one."""
    here = PurePosixPath(path.removeprefix(trial))
    if trial and _NOT_AGENTS & set(here.parts):
        return False
    is_other = trial or here.name in _OTHERS or here.parent.name in _NOT_AGENTS
    if is_other and not (trial and _SEGMENT.fullmatch(here.name)):
        return look(path)["is_atif"]
    return True


def _is_of_agent(path: str, mains: Collection[str]) -> bool:
    """Whether a trajectory in a trial is the agent's, and not a subagent's or a log of its own."""
    folder = _innermost(_folder(path), mains)
    is_segment = bool(_SEGMENT.fullmatch(PurePosixPath(path).name))
    return not folder or (folder == _folder(path) and is_segment)


def _refers(path: str, content: bytes) -> tuple[list[str], str]:
    """The files of a trajectory's subagents, and of its continuation."""
    if not _REFERS.search(content):
        return [], ""
    try:
        told = loads(content)
        observed = [step.get("observation") or {} for step in told["steps"]]
        results = [result for each in observed for result in each.get("results") or ()]
        refs = [ref for result in results for ref in result.get("subagent_trajectory_ref") or ()]
        paths = [str(ref["trajectory_path"]) for ref in refs if ref.get("trajectory_path")]
        continued = told.get("continued_trajectory_ref")
    except (ValueError, TooLargeError, LookupError, TypeError, AttributeError):
        return [], ""  # It is told where it is read.
    return [_beside(path, each) for each in paths], _beside(path, str(continued or ""))


def _beside(path: str, name: str) -> str:
    """The file that a trajectory names; a path in the agent's container tells no folder here."""
    parts = PurePosixPath(name)
    inner = [parts.name] if parts.is_absolute() else parts.parts
    return "/".join([_folder(path), *inner])


def trial_of(path: Path, result: Path) -> Json:
    """What a trial's result says of a trajectory.

    Returns:
        name: of the trial; None if there is none.
        rewards: by name; empty if an exception makes them void.
        started: times, the best first.
        ended: likewise.
        fields: that may name a domain.

    Raises:
        TooLargeError: the result passes a limit.
        UnreadableError: it is damaged.
    """
    try:
        told = cast("Json", read_json(result))
        part = _step_of(path, told)
        ended = {(each.get("exception_info") or {}).get("exception_type") for each in (told, part)}
        given = (part.get("verifier_result") or {}).get("rewards") or {}
        ran = part.get("agent_execution") or {}
        numbers = ((name, score_of(value)) for name, value in given.items())
        rewards = {name: number for name, number in numbers if number is not None}
        return {
            "name": str(told["trial_name"]) if told.get("trial_name") else None,
            "rewards": rewards if _is_valid(ended) else {},
            "started": [ran.get("started_at"), told.get("started_at")],
            "ended": [ran.get("finished_at"), told.get("finished_at")],
            "fields": {n: [str(told[n])] if told.get(n) else [] for n in _FIELDS},
        }
    except TooLargeError as error:
        raise TooLargeError(f"its trial's {result.name}: {error}") from error
    except (UnreadableError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(f"its trial's {result.name} cannot be read: {error}") from error


def _step_of(path: Path, told: Json) -> Json:
    """The part of a trial that a trajectory is of: all of it, or one of its steps."""
    names = {name for folder, name in pairwise(path.parts) if folder == "steps"}
    steps = cast("list[Json]", told.get("step_results") or [])
    return next((step for step in steps if step["step_name"] in names), told)


def _is_valid(ended: set[str | None]) -> bool:
    return not ended - {None} - _VALID_AFTER


FORMAT = Format(
    name="atif",
    holds="rewards by name, and a task's name and source as domain, in Harbor's trials",
    inputs=inputs,
    sniff=sniff,
    units=units,
    draft=draft,
    source="document",
)
