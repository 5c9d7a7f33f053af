"""Rows with each reason to reject them, and rows with none."""

import math
from typing import Any

from tests.support.make.archives import step, trace

GOOD = step()


ACCEPTED = [
    trace(),
    trace(type=None),
    trace(id=" ", task_domain=" ", objective=" "),
    trace(id="\0", objective="\0", task_domain="\0"),
    trace(agent_id=None, framework=None),
    trace(success=False),
    trace(confidence=0.0),
    trace(confidence=-0.0),
    trace(confidence=1.0),
    trace(confidence=5e-324),
    trace(created_at="0001-01-01"),
    trace(created_at="9999-12-31T23:59:59Z"),
    trace(steps=[GOOD]),
    trace(steps=[step("thought"), step("tool_call"), step("observation"), step("error_recovery")]),
    trace(steps=[step("observation", "", "")]),
    trace(steps=[GOOD] * 1_000),
    {key: value for key, value in trace().items() if not key.startswith("@")},
]


REFUSED: list[tuple[list[str], dict[str, Any]]] = [
    (["missing_id"], trace(id=None)),
    (["missing_id"], trace(id="")),
    (["wrong_type"], trace(type="KnowledgeUnit")),
    (["wrong_type"], trace(type="reasoningtrace")),
    (["wrong_type"], trace(type="")),
    (["wrong_type"], trace(type="ReasoningTrace ")),
    (["bad_created_at"], trace(created_at=None)),
    (["bad_created_at"], trace(created_at="")),
    (["bad_created_at"], trace(created_at="yesterday")),
    (["bad_created_at"], trace(created_at="2026-02-30T00:00:00Z")),
    (["bad_created_at"], trace(created_at="0000-12-31T23:59:59Z")),
    (["bad_created_at"], trace(created_at="0001-01-01T00:00:00+00:01")),
    (["bad_created_at"], trace(created_at="9999-12-31T23:59:59-00:01")),
    (["empty_domain"], trace(task_domain=None)),
    (["empty_domain"], trace(task_domain="")),
    (["missing_success"], trace(success=None)),
    (["empty_objective"], trace(objective=None)),
    (["empty_objective"], trace(objective="")),
    (["no_steps"], trace(steps=None)),
    (["no_steps"], trace(steps=[])),
    (["no_steps"], trace(steps=[None])),
    (["no_steps"], trace(steps=[GOOD, None, GOOD])),
    (["unknown_step_type"], trace(steps=[step(None)])),
    (["unknown_step_type"], trace(steps=[GOOD, step("")])),
    (["unknown_step_type"], trace(steps=[GOOD, step("dream")])),
    (["unknown_step_type"], trace(steps=[step("Thought"), GOOD])),
    (["unknown_step_type"], trace(steps=[GOOD, step("thought "), GOOD])),
    (["no_steps", "unknown_step_type"], trace(steps=[None, step("guess")])),
    (["bad_confidence"], trace(confidence=None)),
    (["bad_confidence"], trace(confidence=math.nan)),
    (["bad_confidence"], trace(confidence=math.inf)),
    (["bad_confidence"], trace(confidence=-math.inf)),
    (["bad_confidence"], trace(confidence=-5e-324)),
    (["bad_confidence"], trace(confidence=math.nextafter(1, 2))),
    (["bad_confidence"], trace(confidence=1.5)),
    (["missing_id", "empty_objective"], trace(id=None, objective="")),
    (["bad_created_at", "empty_domain", "missing_success"], {**trace(), "metadata": None}),
    (["empty_objective"], {**trace(), "task": None}),
    (["bad_confidence"], {**trace(), "outcome": None}),
]


# Only JSON can say these.
REFUSED_JSON: list[tuple[list[str], Any]] = [
    (["missing_id"], trace(id=1.5)),
    (["missing_id"], trace(id=True)),
    (["missing_id"], trace(id="a\ud800")),
    (["missing_id"], trace(id="a\ud801")),
    (["missing_id"], trace(id=["a"])),
    (["wrong_type"], trace(type=1)),
    (["wrong_type"], trace(type=["ReasoningTrace"])),
    (["bad_created_at"], trace(created_at=1_767_600_000)),
    (["bad_created_at"], trace(created_at={"at": "2026-01-05"})),
    (["empty_domain"], trace(task_domain={})),
    (["missing_success"], trace(success=1)),
    (["missing_success"], trace(success="yes")),
    (["empty_objective"], trace(objective=["Fix"])),
    (["no_steps"], trace(steps={"type": "thought"})),
    (["no_steps"], trace(steps="thought")),
    (["no_steps"], trace(steps=[GOOD, "thought"])),
    (["no_steps"], trace(steps=[[GOOD]])),
    (["unknown_step_type"], trace(steps=[{}])),
    (["unknown_step_type"], trace(steps=[step(1), step(["thought"])])),
    (["bad_confidence"], trace(confidence="0.5")),
    (["bad_confidence"], trace(confidence=True)),
    (["bad_confidence"], trace(confidence=10**400)),
    (["bad_confidence"], trace(confidence=-(10**400))),
    (["bad_created_at", "empty_domain", "missing_success"], {**trace(), "metadata": []}),
    (["empty_objective"], {**trace(), "task": "Fix"}),
    (["bad_confidence"], {**trace(), "outcome": 0.5}),
    *((["malformed_json"], value) for value in (None, 1, "text", [], [trace()], True)),
]


EVERYTHING = trace(
    id="",
    type="x",
    created_at="x",
    task_domain="",
    success=None,
    objective="",
    steps=[None, step("x")],
    confidence=2.0,
)
