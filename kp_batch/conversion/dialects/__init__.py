"""The dialects of OpenTelemetry: how each maker records in a span what an agent did.

A dialect is a module with a table, so a quirk of one affects no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kp_batch.conversion.conversation.attributes import OtelSpan, Score, value_at
from kp_batch.conversion.conversation.messages import Json
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun
from kp_batch.conversion.dialects import (
    adk,
    ai_sdk,
    genai,
    langsmith,
    mlflow,
    openinference,
    openllmetry,
    pydantic_ai,
)
from kp_batch.conversion.dialects.dialect import Dialect


@dataclass(slots=True)
class SpanParts:
    """What a span contains, in all of its dialects.

    Attributes:
        content: None if it is not part of an agent.
        input: input in the first dialect that has one; None if none has.
        scores: scores of the span.
        of_trace: scores of its trace that it contains.
    """

    content: SpanContent | None = None
    input: object = None
    scores: list[Score] = field(default_factory=list[Score])
    of_trace: list[Score] = field(default_factory=list[Score])


# The first dialect with a value counts. OpenTelemetry's own comes before those of makers who add
# theirs to it, but after OpenLLMetry's runs of tools, which contain its JSON in both.
_DIALECTS = (
    *(openinference.DIALECT, langsmith.DIALECT, openllmetry.RUNS, genai.DIALECT, ai_sdk.DIALECT),
    *(openllmetry.DIALECT, pydantic_ai.DIALECT, adk.DIALECT, mlflow.DIALECT),
)


_KINDS = {name: {*kinds} for dialect in _DIALECTS for name, kinds in dialect.kinds.items()}


def unknown_kinds(attributes: Json) -> list[str]:
    """Return the kinds that a span's attributes name, and that are in no dialect."""
    named = ((kinds, str(value_at(attributes, name) or "")) for name, kinds in _KINDS.items())
    return [kind for kinds, kind in named if kind and kind.lower() not in kinds]


def read(span: OtelSpan) -> SpanParts:
    """Read a span in the dialects that its names belong to."""
    parts, is_repeated = SpanParts(), False
    for dialect in _dialects_of(span.families):
        is_repeated = is_repeated or dialect.is_repeated(span)
        if not _is_whole(parts.content):
            parts.content = _joined(parts.content, dialect.content(span))
        if parts.input is None:
            parts.input = dialect.input(span)
        parts.scores += dialect.scores(span)
        parts.of_trace += dialect.of_trace(span)
    if is_repeated:
        parts.content = None
    return parts


@lru_cache(maxsize=1 << 10)  # most spans have the same few
def _dialects_of(families: frozenset[str]) -> Sequence[Dialect]:
    """Return the dialects that names of these families may belong to."""
    return [dialect for dialect in _DIALECTS if any(_is_of(each, dialect) for each in families)]


def _is_of(family: str, dialect: Dialect) -> bool:
    is_nested = any(own.startswith(f"{family}.") for own in dialect.families)
    return is_nested or family.startswith(dialect.families)


def _is_whole(content: SpanContent | None) -> bool:
    """Whether no other dialect can add to a content."""
    if isinstance(content, ToolRun):
        return content.call.arguments is not None or content.result.content is not None
    return content is not None and bool(content.prompt and content.answer)


def _joined(one: SpanContent | None, other: SpanContent | None) -> SpanContent | None:
    """Return a content in one dialect, completed from the other one."""
    if one is None:
        return other
    if isinstance(one, ToolRun) and isinstance(other, ToolRun):
        return one if _is_whole(one) else other
    if isinstance(one, ModelCall | AgentRun) and isinstance(other, ModelCall | AgentRun):
        return replace(one, prompt=one.prompt or other.prompt, answer=one.answer or other.answer)
    return one
