"""Applies rules to the draft of a trace: a row of an archive, or why it is refused."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from kp_batch import bounds
from kp_batch.bounds import TooLargeError
from kp_batch.conversion.conversation.attributes import first
from kp_batch.conversion.model import Format, Refused, TraceDraft
from kp_batch.conversion.rules import Domain, Rules
from kp_batch.errors import KpBatchError
from kp_batch.log import warn
from kp_batch.schemas import STEP_TYPES, TRACE
from kp_batch.text import ten_of

_CONTEXT = "https://knowledgepulse.dev/schema/v1"
_NATIVE = dict.fromkeys(("system", "root", "log", "sample"), pl.String()) | {"epoch": pl.Int64()}
IMPORTED = pl.Schema({**TRACE, "native": pl.Struct(_NATIVE)})
Row = dict[str, Any]  # of `IMPORTED`


def apply_rules(draft: TraceDraft, rules: Rules, system: str) -> Row | Refused:
    """Apply rules to what a system's draft leaves open.

    Returns:
        A row of `IMPORTED`, or all reasons to refuse the draft.
    """
    success, confidence, domain = draft.success, draft.confidence, draft.task_domain
    if rules.success:
        success = rules.success.decide(draft.scores)
    if rules.confidence:
        confidence = rules.confidence.decide(draft.scores)
    if rules.task_domain:
        domain = rules.task_domain.decide(draft.fields)
    created = rules.time_of(draft.created_at, draft.ended_at, draft.fields)
    agent = first(draft.fields.get(rules.agent_id, ())) if rules.agent_id else draft.origin.agent
    faults = {
        "bad_created_at": created is None,
        "empty_objective": not draft.objective,
        "no_steps": not draft.steps,
        "unknown_step_type": any(step["type"] not in STEP_TYPES for step in draft.steps),
        "missing_success": success is None,
        "bad_confidence": confidence is None or not 0 <= confidence <= 1,
        "empty_domain": not domain,
        bounds.TOO_LARGE: _is_too_large(draft),
    }
    reasons = [*draft.faults, *(reason for reason, is_fault in faults.items() if is_fault)]
    if reasons or created is None:
        return Refused(reasons, _message(draft, rules, reasons), id=draft.id)
    # In UTC, so texts sort as times do.
    time = created.isoformat(timespec="microseconds").replace("+00:00", "Z")
    decided = {"created_at": time, "agent_id": agent, "task_domain": domain, "success": success}
    native = {"system": system, **vars(draft.native)}
    return _row(draft, decided, confidence) | {"native": native}


def _is_too_large(draft: TraceDraft) -> bool:
    """Whether a run would refuse the trace because of its size."""
    values = (value for step in draft.steps for value in step.values())
    contents = (draft.objective, draft.system, draft.tools, *values)
    texts = [value for value in contents if isinstance(value, str)]
    return (
        len(draft.steps) > bounds.VALUES
        or sum(map(len, texts)) > bounds.LINE_BYTES
        # A letter takes at most 4 bytes, so short texts need not be encoded.
        or (
            4 * max(map(len, texts)) > bounds.TEXT_BYTES
            and any(len(text.encode(errors="replace")) > bounds.TEXT_BYTES for text in texts)
        )
    )


def _row(draft: TraceDraft, decided: Row, confidence: float | None) -> Row:
    """Return a row of `schemas.TRACE`."""
    return {
        "@context": _CONTEXT,
        "@type": "ReasoningTrace",
        "id": draft.id,
        "source_skill": draft.source_skill,
        "metadata": {
            **decided,
            "framework": draft.framework,
            "quality_score": draft.quality_score,
            "visibility": draft.visibility,
            "privacy_level": draft.privacy_level,
            "model": draft.origin.model,
            "session": draft.origin.session,
            "version": draft.origin.version,
        },
        "task": {
            "objective": draft.objective,
            "system": draft.system or None,
            "tools": draft.tools or None,
        },
        "steps": list(draft.steps),
        "outcome": {"result_summary": draft.result_summary, "confidence": confidence},
    }


def _message(draft: TraceDraft, rules: Rules, reasons: list[str]) -> str:
    """Return what the rules need, and what the draft contains."""
    parts: list[str] = []
    if "bad_created_at" in reasons and rules.created_at == "end":
        parts.append("it has neither an end time nor a step with a time")
    elif "bad_created_at" in reasons and rules.created_at != "start":
        parts.append(f"it has no time in {rules.created_at}")
    scores = ten_of(sorted(draft.scores)) or "none"
    if "missing_success" in reasons and rules.success and rules.success.score:
        parts.append(_lacking_score(rules.success.score, scores))
    if "bad_confidence" in reasons and rules.confidence and rules.confidence.score:
        parts.append(_about_confidence(rules.confidence.score, draft.scores, scores))
    if "empty_domain" in reasons and rules.task_domain:
        parts.append(_about_domain(rules.task_domain, draft.fields))
    if bounds.TOO_LARGE in reasons:
        parts.append(str(TooLargeError()))
    parts += (f"no rule decides it: give {_OPTIONS[rule]}" for rule in lacking(rules, reasons))
    return "; ".join(parts) or ", ".join(_IN_WORDS.get(x, x) for x in reasons)


def lacking(rules: Rules, reasons: Collection[str]) -> list[str]:
    """Return the missing rules that these reasons to refuse a trace point to."""
    return [
        name for reason, name in _DECIDED.items() if reason in reasons and not getattr(rules, name)
    ]


def _about_domain(rule: Domain, fields: Mapping[str, Sequence[str]]) -> str:
    values = ten_of(filter(None, fields.get(rule.source or "", ())))
    if rule.map and values:
        return f"the map has none of the values {values}"
    return f"the field {rule.source!r} is missing or empty"


def _about_confidence(name: str, values: Mapping[str, float], scores: str) -> str:
    if name in values:
        return f"the score {name!r} is {values[name]:g}, outside min..max"
    return _lacking_score(name, scores)


def _lacking_score(name: str, scores: str) -> str:
    return f"it has no score {name!r}; its scores: {scores}"


_DECIDED = {  # the rule that decides it, by the reason to refuse a trace
    "missing_success": "success",
    "bad_confidence": "confidence",
    "empty_domain": "task_domain",
}
_OPTIONS = {
    "success": "--success score:NAME:AT_LEAST or --success always",
    "confidence": "--confidence score:NAME:MIN:MAX or a number from 0 to 1",
    "task_domain": "--domain FIELD, or --domain =DOMAIN for all",
    "created_at": "--created-at field:NAME, or --created-at TIME for all",
}
_IN_WORDS = {
    "bad_created_at": "it has no start time",
    "empty_objective": "it has no question",
    "no_steps": "it has no steps",
}
_RULES = {  # to suggest if they are missing
    "success": '[success] with score = "NAME" and at_least = 1.0, or always = true',
    "confidence": '[confidence] with score = "NAME", min = 0 and max = 1, or always = 0.8',
}


def check_rules_decide(form: Format, rules: Rules, reasons: Collection[str]) -> None:
    """Raise an error if these rules refuse every trace of a format.

    Args:
        form: format of the traces.
        rules: rules of the import.
        reasons: reasons to refuse the traces.

    Raises:
        KpBatchError: options are missing; the message names them.
    """
    missing = [x for x in lacking(rules, reasons) if x not in form.decides]
    if "bad_created_at" in reasons and rules.created_at == "start" and not form.has_times:
        missing.append("created_at")
    if missing:
        options = "; and ".join(_OPTIONS[name] for name in missing)
        raise KpBatchError(
            f"no trace is imported, because the source lacks {' and '.join(missing)}; add {options}"
        )


def check_rules(form: Format, rules: Rules) -> None:
    """Raise an error if neither the rules nor the format decide something, before any work.

    Raises:
        KpBatchError: rules are missing; the message names them.
    """
    if rules.trace == "session" and not form.turns:
        raise KpBatchError(
            f'{form.name} has no sessions of several turns: remove the rule trace = "session"'
        )
    if rules.root and not form.has_spans:
        raise KpBatchError(f'{form.name} has no spans: remove the rule root = "{rules.root}"')
    missing = [name for name in _RULES if name not in form.decides and not getattr(rules, name)]
    if missing:
        raise KpBatchError(
            f"the format {form.name} lacks {' and '.join(missing)}; add to the rules "
            f"{'; and '.join(_RULES[name] for name in missing)}"
        )
    score = rules.success and rules.success.score
    if score and rules.confidence and rules.confidence.score == score:
        warn(
            f"the score {score!r} decides both success and confidence, so it counts twice; name "
            "another score for one of them, unless you want that"
        )
