"""ATIF trajectories, and those in the folders of Harbor's trials."""

import json
from pathlib import Path
from typing import Any

import pytest

from kp_batch.conversion.formats.atif import FORMAT, draft, records
from kp_batch.conversion.model import Native, SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from tests.support.formats.atif import agent, at, result, short, trajectory, user
from tests.support.imports import drafting
from tests.support.imports.drafting import ALWAYS, always, converted, transcript
from tests.support.imports.importing import imported, write_json

BY_REWARD = always(
    success={"score": "reward", "at_least": 1},
    confidence={"score": "part"},
    task_domain={"from": "source", "map": {"shop": "retail"}, "otherwise": "default"},
)


def call(name: str, *results: object, **arguments: Any) -> dict[str, Any]:
    """What a step holds of a call, and of what came of it."""
    return {
        "tool_calls": [{"tool_call_id": "c", "function_name": name, "arguments": arguments}],
        "observation": {
            "results": [{"source_call_id": "c", "content": content} for content in results]
        },
    }


def drafted(tmp_path: Path, content: object, rules: Rules = ALWAYS) -> TraceDraft:
    """What a file of its own comes to."""
    return drafting.drafted("atif", write_json(tmp_path / "run.json", content), rules).draft


def test_steps_and_their_texts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = {"type": "image", "source": {"media_type": "image/png", "path": "é.png"}}
    trace = drafted(
        tmp_path,
        trajectory(
            {"source": "system", "message": "be good", "timestamp": None},
            user(parts, timestamp=at(1)),
            agent("", reasoning_content="hm", **call("look", '{"x": 1}', at="é")),
            agent(parts, reasoning_content="so", **call("see", parts, "", None, [image])),
            agent(""),
            user(""),
        ),
    )
    assert trace.objective == "a\nb"
    assert transcript(trace) == [
        ("thought", "hm"),
        ("tool_call", "look", '{"at":"é"}'),
        ("observation", '{"x": 1}'),
        ("thought", "so\na\nb"),
        ("tool_call", "see", "{}"),
        ("observation", "a\nb"),
        ("observation", ""),
        ("observation", f"[{json.dumps(image, separators=(',', ':'), ensure_ascii=False)}]"),
        ("observation", ""),
    ]


@pytest.mark.parametrize("minor", range(9))
def test_all_versions_are_read(tmp_path: Path, minor: int) -> None:
    assert drafted(tmp_path, short(schema_version=f"ATIF-v1.{minor}")).steps


def test_ids(tmp_path: Path) -> None:
    assert drafted(tmp_path, short()).id == "kp:trace:s/run"
    assert drafted(tmp_path, short(trajectory_id="own")).id == "kp:trace:own"
    nameless = write_json(tmp_path / "x.json", short(session_id=None))
    assert drafting.drafted("atif", nameless).reasons == [["missing_id"]]


def test_the_first_step_with_a_time_gives_the_start(tmp_path: Path) -> None:
    trace = drafted(tmp_path, trajectory(user("x"), agent("y", timestamp=at(7)), agent("z")))
    assert str(trace.created_at) == "2026-05-01 09:00:07.123456+00:00"
    assert drafted(tmp_path, trajectory(user("x"), agent("y"))).created_at is None


def test_a_continuation_has_the_question_of_what_it_copied(tmp_path: Path) -> None:
    old = {"is_copied_context": True}
    steps = (user("q", timestamp=at(1), **old), agent("a", **old), agent("b", timestamp=at(5)))
    trace = drafted(tmp_path, trajectory(*steps, user("q")))
    assert trace.objective == "q"
    assert transcript(trace) == [("thought", "b"), ("observation", "q")]
    assert [step["step_id"] for step in trace.steps] == [0, 1]
    assert trace.created_at
    assert trace.created_at.second == 5


def test_what_takes_the_place_of_earlier_steps_is_none(tmp_path: Path) -> None:
    def managed(boundary: object, text: str) -> dict[str, Any]:
        kind = {"context_management": {"type": "compaction", "boundary": boundary}}
        seen = {"results": [{"content": text}]}
        return {"source": "system", "message": "m", "observation": seen, "extra": kind}

    steps = (agent("a"), managed("replace", "Summary: a"), managed("append", "known"), agent("b"))
    assert transcript(drafted(tmp_path, trajectory(user("q"), *steps))) == [
        ("thought", "a"),
        ("observation", "known"),
        ("thought", "b"),
    ]


def test_rules_name_the_question_and_the_recoveries(tmp_path: Path) -> None:
    failed = call("f", "no")
    failed["observation"]["results"][0]["extra"] = {"is_error": True}
    content = short(extra={"task": "the task"})
    content["steps"] += [agent("try", **failed), agent("again")]
    rules = always(objective="extra.task", recovery="after_tool_error")
    trace = drafted(tmp_path, content, rules)
    assert trace.objective == "the task"
    assert transcript(trace)[-1] == ("error_recovery", "again")
    assert drafted(tmp_path, content).steps[-1]["type"] == "thought"


def test_of_two_files_of_a_trajectory_the_trials_counts(tmp_path: Path) -> None:
    path = write_json(tmp_path / "run.json", short(trajectory_id="own"))
    beside = write_json(tmp_path / "result.json", result())
    both = [*records(path, []), *records(path, [beside])]
    for order in (both, both[::-1]):
        trace = draft(
            "own",
            [record for record in order if isinstance(record, SourceRecord)],
            ALWAYS,
        )
        assert isinstance(trace, TraceDraft)
        assert trace.scores == {"reward": 1, "part": 0.25}
        assert trace.native == Native(root="s", log="t__1")


def test_of_files_of_a_trajectory_without_a_trial_the_last_counts() -> None:
    longer, shorter = (
        SourceRecord("own", {"trajectory": content, "trial": None})
        for content in (short(), trajectory(user("do this")))
    )
    for source_records, objective in (([longer, shorter], "do this"), ([shorter, longer], "do it")):
        trace = draft("own", source_records, ALWAYS)
        assert isinstance(trace, TraceDraft)
        assert trace.objective == objective


def test_a_subagents_trajectory_is_passed_over(tmp_path: Path) -> None:
    helper = {"name": "a", "extra": {"parent_session_id": "s"}}
    aside = trajectory(agent("so", extra={"is_sidechain": True}))
    for content in (short(agent=helper), aside):
        made = drafting.drafted("atif", write_json(tmp_path / "x.json", content))
        assert (made.drafts, made.skipped) == ({}, ["trajectory of a subagent"])


def test_steps_of_a_subagent_are_no_steps_of_the_agent(tmp_path: Path) -> None:
    aside = {"extra": {"is_sidechain": True}}
    main = {"extra": {"is_sidechain": False}}
    inner = [user("look there", **aside), agent("so", **aside, **call("ls", "x"))]
    asks, done = agent("ask", timestamp=at(2), **main, **call("Task", "b")), agent("done", **main)
    for steps in ([user("go"), asks, *inner, done], [*inner, user("go"), asks, done]):
        trace = drafted(tmp_path, trajectory(*steps))
        assert trace.objective == "go"
        assert transcript(trace) == [
            ("thought", "ask"),
            ("tool_call", "Task", "{}"),
            ("observation", "b"),
            ("thought", "done"),
        ]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"schema_version": "ATIF-v2.0", "steps": []}',
        '{"schema_version": "ATIF-v1.6", "steps": "none"}',
        '{"schema_version": "ATIF-v1.6", "steps": [1]}',
    ],
)
def test_damaged_files_are_reported(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UnreadableError):
        list(records(path, []))


def test_a_file_with_a_damaged_step_is_reported(tmp_path: Path) -> None:
    odd = write_json(tmp_path / "odd.json", short(steps=[agent(tool_calls=[1])]))
    write_json(tmp_path / "well.json", short())
    made = converted("atif", tmp_path)
    assert made.row["id"] == "kp:trace:s/well"
    assert [(file, refusal.reasons) for file, refusal in made.refused] == [
        (str(odd), ["unreadable_file"])
    ]


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A trial of a job, with all that lies around a trajectory."""
    write_json(tmp_path / "job/result.json", {"id": "job", "stats": {}})
    write_json(tmp_path / "job/config.json", {})
    folder = tmp_path / "job/t__1"
    write_json(folder / "result.json", result())
    write_json(folder / "config.json", {"trial_name": "t__1"})
    write_json(folder / "verifier/reward.json", {"reward": 1})
    (folder / "verifier/reward.txt").write_text("1")
    write_json(folder / "user-agent/trajectory.json", short(session_id="user"))
    ref = {"subagent_trajectory_ref": [{"trajectory_path": "helper.json"}]}
    helped = agent("", observation={"results": [ref]})
    main = trajectory(user("do it"), helped, agent("done", timestamp=at(9)))
    write_json(folder / "agent/trajectory.json", main)
    write_json(folder / "agent/helper.json", short(trajectory_id="helper"))
    write_json(folder / "agent/trajectory.summary-1.json", short(trajectory_id="summary"))
    write_json(folder / "agent/native.trajectory.json", ["a log of its own"])
    return folder


def test_a_trial_gives_its_reward_its_source_and_its_start(trial: Path, tmp_path: Path) -> None:
    done = import_traces(FORMAT, [str(trial.parent)], tmp_path / "archive", BY_REWARD)
    assert (done.traces, done.files_read, done.refused, done.skipped) == (1, 1, {}, {})
    row = imported(tmp_path / "archive")["kp:trace:s/trajectory"]
    assert row["metadata"]["created_at"] == "2026-05-01T08:30:00.000000Z"
    assert row["metadata"]["task_domain"] == "retail"
    assert row["metadata"]["success"] is True
    assert row["outcome"]["confidence"] == 0.25
    assert row["task"]["objective"] == "do it"
    assert transcript(row) == [("thought", "done")]


def test_a_helper_outside_of_trials_is_no_trace(trial: Path) -> None:
    (trial / "result.json").unlink()
    for name in ("native.trajectory.json", "trajectory.summary-1.json"):
        (trial / "agent" / name).unlink()
    made = converted("atif", trial / "agent")
    assert (made.row["id"], made.refused, made.skipped) == ("kp:trace:s/trajectory", [], [])


def test_continuations_share_the_trial(trial: Path) -> None:
    write_json(trial / "agent/trajectory.json", short(continued_trajectory_ref="next.json"))
    write_json(trial / "agent/next.json", short())
    write_json(trial / "agent/trajectory.cont-1.json", short())
    names = {"trajectory", "next", "trajectory.cont-1"}
    made = converted("atif", trial, BY_REWARD)
    assert made.rows.keys() == {f"kp:trace:s/{name}" for name in names}


@pytest.mark.parametrize(
    ("ended", "reasons"),
    [
        ("AgentTimeoutError", []),
        ("ContextLengthExceededError", []),
        ("OutputTokenExceededError", []),
        ("AgentSafetyRefusalError", []),
        ("ContentPolicyViolationError", []),
        ("ApiRateLimitError", [["missing_success", "bad_confidence"]]),
        ("SomethingElseError", [["missing_success", "bad_confidence"]]),
    ],
)
def test_a_reward_after_an_exception(trial: Path, ended: str, reasons: list[list[str]]) -> None:
    write_json(trial / "result.json", result(exception_info={"exception_type": ended}))
    second = trial.parent / "t__2"
    write_json(second / "result.json", result())
    write_json(second / "agent/trajectory.json", short(session_id="other"))
    made = converted("atif", trial.parent, BY_REWARD)
    assert (len(made.rows), made.reasons) == (1 if reasons else 2, reasons)


def test_a_trials_steps_have_rewards_of_their_own(trial: Path) -> None:
    (trial / "agent/trajectory.json").rename(trial / "agent/helper.json")
    parts = []
    for name, reward in {"one": 0, "two": 1}.items():
        path = trial / "steps" / name / "agent/trajectory.json"
        write_json(path, short(session_id=name))
        rewards = {"rewards": {"reward": reward, "part": reward}}
        parts.append({"step_name": name, "verifier_result": rewards})
    write_json(trial / "result.json", result(step_results=parts))
    rows = converted("atif", trial.parent, BY_REWARD).rows
    assert [
        rows[f"kp:trace:{name}/trajectory"]["metadata"]["success"] for name in ("one", "two")
    ] == [False, True]


def test_a_damaged_result_is_reported_and_keeps_its_trial_out(trial: Path, tmp_path: Path) -> None:
    (trial / "result.json").write_text("{")
    write_json(tmp_path / "job/alone.json", short(session_id="other"))
    made = converted("atif", tmp_path / "job")
    assert made.row["id"] == "kp:trace:other/alone"
    assert [(file, refusal.reasons) for file, refusal in made.refused] == [
        (str(trial / name), ["unreadable_file"])
        for name in ("agent/trajectory.json", "result.json")
    ]
