"""Rules for what a system does not have: success, confidence and domain."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from kp_batch.conversion.conversation.attributes import first
from kp_batch.errors import KpBatchError
from kp_batch.faults import Place, faults_of
from kp_batch.files import read_toml
from kp_batch.text import time_of, time_of_number

_FIELD = "field:"  # before the name of the field that contains the time
_NOON = "2026-05-01T12:00:00Z"


class _RulesTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def _refuse_with_always(self) -> None:
        """Refuse other values next to `always`: their author expects them to have an effect."""
        given = self.model_fields_set - {"always"}
        if others := [name for name in type(self).model_fields if name in given]:
            has, it = ("has", "it") if len(others) == 1 else ("have", "them")
            names = " and ".join(others)
            raise ValueError(
                f"{names} {has} no effect together with always; remove {it}, or always"
            )


class Success(_RulesTable):
    """A score that must reach a limit, or the same answer for all traces."""

    score: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    always: bool | None = None

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        if self.always is not None:
            self._refuse_with_always()
        elif self.score is None or (self.at_least is None) == (self.at_most is None):
            raise ValueError("must have either a score with at_least or at_most, or always")
        return self

    def decide(self, scores: Mapping[str, float]) -> bool | None:
        """Return whether a trace with these scores succeeded; None if its score is missing."""
        if self.score is None:
            return self.always
        value = scores.get(self.score)
        if value is None:
            return None
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0)


class Confidence(_RulesTable):
    """A score scaled from min..max to 0..1, or the same answer for all traces."""

    score: str | None = None
    min: float = 0.0
    max: float = 1.0
    always: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        if self.always is not None:
            self._refuse_with_always()
        elif self.score is None:
            raise ValueError("must have either a score with min and max, or always")
        elif not self.min < self.max:
            raise ValueError(f"must have a min below its max, got {self.min:g} and {self.max:g}")
        return self

    def decide(self, scores: Mapping[str, float]) -> float | None:
        """Return the confidence of a trace with these scores; None if missing or out of range."""
        if self.score is None:
            return self.always
        value = scores.get(self.score)
        if value is None or not self.min <= value <= self.max:
            return None
        return (value - self.min) / (self.max - self.min)


class Domain(_RulesTable):
    """A native field that names the domain, and the domains of its values."""

    source: str | None = Field(None, alias="from")
    map: dict[str, str] = Field(default_factory=dict[str, str])
    otherwise: str | None = None

    @model_validator(mode="after")
    def _leads_to_a_domain(self) -> Self:
        if not self.source and not self.otherwise:
            raise ValueError("must have from, otherwise, or both")
        if self.map and not self.source:
            raise ValueError("map has no effect without from; give it, or remove map")
        return self

    def decide(self, fields: Mapping[str, Sequence[str]]) -> str | None:
        """Return the domain of a trace with these fields; None if it has none."""
        return self.named(fields) or self.otherwise

    def named(self, fields: Mapping[str, Sequence[str]]) -> str | None:
        """Return the first domain that the field names; without a map, its first value."""
        values = fields.get(self.source, ()) if self.source else ()
        return first(map(self.map.get, values) if self.map else values)


def _time_rule(rule: str) -> str:
    """Check a rule for the times of traces."""
    is_field = rule.startswith(_FIELD) and rule != _FIELD
    if not (rule in ("start", "end") or is_field or time_of(rule)):
        raise ValueError(
            f"must be start, end, {_FIELD}NAME or a time such as {_NOON}, got {rule!r}"
        )
    return rule


class Rules(_RulesTable):
    """All rules of an import."""

    success: Success | None = None
    confidence: Confidence | None = None
    task_domain: Domain | None = None
    trace: Literal["turn", "session"] = "turn"  # what becomes a trace if users talk with agents
    # The time of a trace: the start of its task; or its end, when live engines score it; or a
    # field's value; or the same time for all.
    created_at: Annotated[str, AfterValidator(_time_rule)] = "start"
    agent_id: str | None = None  # the native field that names the agent, if another one does
    recovery: Literal["after_tool_error"] | None = None
    root: Literal["topmost", "topmost_at_once"] | None = None  # if the root is in another system
    objective: str | None = None  # the path of the question in a root's input

    @property
    def recovers(self) -> bool:
        """Whether the first thought after a failed tool is an error recovery."""
        return self.recovery == "after_tool_error"

    def time_of(
        self, start: datetime | None, end: datetime | None, fields: Mapping[str, Sequence[str]]
    ) -> datetime | None:
        """Return the time of a trace, given its start and end; None if unknown."""
        if self.created_at in ("start", "end"):
            return start if self.created_at == "start" else end
        if self.created_at.startswith(_FIELD):
            text = first(fields.get(self.created_at.removeprefix(_FIELD), ()))
            return time_of(text) or time_of_number(text)
        return time_of(self.created_at)

    @property
    def without_waiting(self) -> Self:
        """The rules for a trace that is complete."""
        return self.model_copy(update={"root": "topmost_at_once"}) if self.root else self

    def as_json(self) -> str:
        """Return the rules as in the metadata of files: without defaults and ineffective values."""
        exclude: dict[str, Any] = {
            name: True for name in _DEFAULTS if getattr(self, name) == _DEFAULTS[name]
        }
        if self.confidence and self.confidence.always is not None:
            exclude["confidence"] = {"min", "max"}
        return self.model_dump_json(by_alias=True, exclude_none=True, exclude=exclude)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make rules from a text of `as_json`.

        Raises:
            KpBatchError: a later version wrote the rules.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            faults = faults_of(error, cls, _named(()))
            raise KpBatchError(
                f"the archive's rules come from a later kp_batch ({faults}); install that version"
            ) from error


_DEFAULTS = {name: Rules.model_fields[name].default for name in ("trace", "created_at")}
_OPTIONS = {  # of a whole table
    "success": "--success",
    "confidence": "--confidence",
    "task_domain": "--domain",
}


def load_rules(path: Path | None, tables: Mapping[str, Any]) -> Rules:
    """Read rules.

    Args:
        path: path of a TOML file; None if there is none.
        tables: tables from options; they replace those of the file.

    Raises:
        KpBatchError: the rules cannot be read, or have faults; the message lists all of them.
    """
    subject = f"the rules of {path}" if path else "the rules"
    in_file = read_toml(path, "the rules file", KpBatchError)[1] if path else {}
    try:
        return Rules.model_validate({**in_file, **tables})
    except ValidationError as error:
        faults = faults_of(error, Rules, _named(tables))
        raise KpBatchError(f"{subject} have faults: {faults}") from error


def _named(options: Collection[str]) -> Callable[[Place], str]:
    """Return a function that names a place in rules; some tables come from options."""

    def named(place: Place) -> str:
        table, *inner = [*map(str, place)] or [""]
        if table in _OPTIONS:
            table = f"{_OPTIONS[table]}:" if table in options else f"[{table}]"
            return f"{table} {'.'.join(inner)}".rstrip()
        return ".".join([table, *inner])

    return named
