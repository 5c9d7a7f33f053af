"""Rules for what a system does not have: success, confidence and domain."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kp_batch.conversion.conversation.attributes import first
from kp_batch.errors import KpBatchError
from kp_batch.text import one_line


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Success(_Table):
    """A score that has to reach a limit, or the same answer for all traces."""

    score: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    always: bool | None = None

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        is_score = self.score is not None and len(limits) == 1 and self.always is None
        is_always = self.always is not None and self.score is None and not limits
        if not (is_score or is_always):
            raise ValueError("has either a score with at_least or at_most, or always")
        return self

    def decide(self, scores: Mapping[str, float]) -> bool | None:
        """Whether a trace with these scores succeeded; None if its score is missing."""
        if self.score is None:
            return self.always
        value = scores.get(self.score)
        if value is None:
            return None
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0)


class Confidence(_Table):
    """A score scaled from min..max to 0..1, or the same answer for all traces."""

    score: str | None = None
    min: float = 0.0
    max: float = 1.0
    always: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        if (self.score is None) == (self.always is None):
            raise ValueError("has either a score with min and max, or always")
        if not self.min < self.max:
            raise ValueError(f"has a min below its max, got {self.min:g} and {self.max:g}")
        return self

    def decide(self, scores: Mapping[str, float]) -> float | None:
        """The confidence in a trace with these scores; None if it is missing or out of range."""
        if self.score is None:
            return self.always
        value = scores.get(self.score)
        if value is None or not self.min <= value <= self.max:
            return None
        return (value - self.min) / (self.max - self.min)


class Domain(_Table):
    """A native field that names the domain, and the domains of its values."""

    source: str | None = Field(None, alias="from")
    map: dict[str, str] = Field(default_factory=dict[str, str])
    otherwise: str | None = None

    @model_validator(mode="after")
    def _leads_to_a_domain(self) -> Self:
        if not self.source and not self.otherwise:
            raise ValueError("has from, or otherwise, or both")
        return self

    def decide(self, fields: Mapping[str, Sequence[str]]) -> str | None:
        """The domain of a trace with these fields; None if it has none."""
        return self.named(fields) or self.otherwise

    def named(self, fields: Mapping[str, Sequence[str]]) -> str | None:
        """The first domain that the field names; without a map, its first value."""
        values = fields.get(self.source, ()) if self.source else ()
        return first(map(self.map.get, values) if self.map else values)


class Rules(_Table):
    """All rules of an import."""

    success: Success | None = None
    confidence: Confidence | None = None
    task_domain: Domain | None = None
    trace: Literal["turn", "session"] = "turn"  # what is a trace, where users talk with agents
    created_at: Literal["start", "end"] = "start"  # of the task; live engines score at its end
    agent_id: str | None = None  # the native field that names the agent, if another one does
    recovery: Literal["after_tool_error"] | None = None
    root: Literal["topmost", "topmost_at_once"] | None = None  # where another system has it
    objective: str | None = None  # the path of the question in a root's input

    @property
    def recovers(self) -> bool:
        """Whether the first thought after a failed tool is an error recovery."""
        return self.recovery == "after_tool_error"

    @property
    def settled(self) -> Self:
        """The rules for a trace of which no more is to come."""
        return self.model_copy(update={"root": "topmost_at_once"}) if self.root else self

    def as_json(self) -> str:
        """The rules, as the metadata of files has them: without defaults."""
        exclude = {name for name in _DEFAULTS if getattr(self, name) == _DEFAULTS[name]}
        return self.model_dump_json(by_alias=True, exclude_none=True, exclude=exclude)


_DEFAULTS = {name: Rules.model_fields[name].default for name in ("trace", "created_at")}


def load_rules(path: Path | None, tables: Mapping[str, Any]) -> Rules:
    """Read rules.

    Args:
        path: of a TOML file; None if there is none.
        tables: as in the file, whose tables they replace.

    Raises:
        KpBatchError: they cannot be read, or have faults; the message names all of them.
    """
    subject = f"the rules of {path}" if path else "the rules"
    try:
        in_file = tomllib.loads(path.read_text("utf-8")) if path else {}
        return Rules.model_validate({**in_file, **tables})
    except OSError as error:
        raise KpBatchError(f"{subject} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        raise KpBatchError(f"{subject} have faults: {faults}") from error
    except ValueError as error:
        raise KpBatchError(f"{subject} are no TOML: {one_line(str(error))}") from error


def _fault(error: Mapping[str, Any]) -> str:
    place = ".".join(map(str, error["loc"])) or "they"
    return f"{place}: {str(error['msg']).removeprefix('Value error, ')}"
