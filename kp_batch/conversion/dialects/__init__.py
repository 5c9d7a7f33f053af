"""The dialects of OpenTelemetry: how each maker tells what an agent did in a span.

A dialect is a module of functions of a span, so that a quirk of one moves no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kp_batch.conversion.conversation.attributes import OtelSpan, Score
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun
from kp_batch.conversion.dialects import (
    adk,
    ai_sdk,
    genai,
    langsmith,
    openinference,
    openllmetry,
    pydantic_ai,
)

_REPEATED: Sequence[Callable[[OtelSpan], bool]] = (adk.is_repeated, langsmith.is_template)
# The first one counts where several tell a content. OpenTelemetry's own stands before those of
# makers who add theirs to it, but after OpenLLMetry, which has its own JSON in both.
_CONTENTS: Sequence[Callable[[OtelSpan], SpanContent | None]] = (
    openinference.content_of,
    langsmith.content_of,
    openllmetry.content_of,
    genai.content_of,
    ai_sdk.content_of,
    pydantic_ai.content_of,
    adk.content_of,
)
_PAYLOADS: Sequence[Callable[[OtelSpan], object]] = (
    openinference.payload,
    genai.payload,
    ai_sdk.payload,
    openllmetry.payload,
    pydantic_ai.payload,
)


def content_of(span: OtelSpan) -> SpanContent | None:
    """The content of a span, of all its dialects; None if it is no part of an agent."""
    content = None
    if any(is_repeated(span) for is_repeated in _REPEATED):
        return None
    for read in _CONTENTS:
        content = _joined(content, read(span))
        if _is_whole(content):
            break
    return content


def _is_whole(content: SpanContent | None) -> bool:
    """Whether no other dialect can add to a content."""
    if isinstance(content, ToolRun):
        return content.call.arguments is not None or content.result.content is not None
    return content is not None and bool(content.prompt and content.answer)


def payload(span: OtelSpan) -> object:
    """The input of a span, in the first dialect that has one; None if none has."""
    values = (read(span) for read in _PAYLOADS)
    return next((value for value in values if value is not None), None)


def scores(span: OtelSpan) -> list[Score]:
    """The scores of a span."""
    return [*openinference.scores(span), *genai.scores(span)]


def scores_of_trace(span: OtelSpan) -> list[Score]:
    """The scores of its trace that a span has."""
    return openinference.scores(span, "trace.")


def _joined(one: SpanContent | None, other: SpanContent | None) -> SpanContent | None:
    """The content of a span in one dialect, or where that has none in the other."""
    if isinstance(one, ToolRun) and isinstance(other, ToolRun):
        return one if _is_whole(one) else other
    if isinstance(one, ModelCall | AgentRun) and isinstance(other, ModelCall | AgentRun):
        return replace(one, prompt=one.prompt or other.prompt, answer=one.answer or other.answer)
    return one or other
