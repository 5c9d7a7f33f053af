"""A dialect of spans as a table: what reads each thing that a span tells of an agent's work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from kp_batch.conversion.conversation.attributes import OtelSpan, Score, first_value, json_at
from kp_batch.conversion.conversation.messages import Message, ToolCall, ToolResult, id_text
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

Kind = Literal["model", "agent", "chain", "tool", "retriever"]  # a chain may be an agent
Reader = Callable[[OtelSpan], object]  # gives None where a span does not tell it
Messages = Callable[[OtelSpan], Sequence[Message]]


def value_of(*names: str) -> Reader:
    """Read the first of these attributes that a span has."""
    return lambda span: first_value(span.attributes, names)


def json_of(*names: str) -> Reader:
    """Likewise, where the value is JSON."""
    return lambda span: json_at(span.attributes, *names)


@dataclass(frozen=True)
class Dialect:
    """One dialect.

    Attributes:
        families: the beginnings of all names that it tells anything in, up to the second dot.
        kind: what a span is of; None if it is no part of an agent.
        prompt, answer: of a model.
        asked, answered: likewise, of an agent or a chain.
        agent: the name of an agent.
        tool: the name of a tool; where it has none, that of the span.
        call_id, arguments, result: of the tool's call.
        hook: gives the content of a span in place of all these, where no kind is told.
        input: of a span, as its maker has it.
        scores, of_trace: the scores of a span, and those of its trace that it has.
        is_repeated: whether a span has no content but what others have.
    """

    families: tuple[str, ...]
    kind: Callable[[OtelSpan], Kind | None] = lambda _: None
    prompt: Messages = lambda _: ()
    answer: Messages = lambda _: ()
    asked: Messages = lambda _: ()
    answered: Messages = lambda _: ()
    agent: Reader = lambda _: None
    tool: Reader = lambda _: None
    call_id: Reader = lambda _: None
    arguments: Reader = lambda _: None
    result: Reader = lambda _: None
    hook: Callable[[OtelSpan], SpanContent | None] | None = None
    input: Reader = lambda _: None
    scores: Callable[[OtelSpan], list[Score]] = lambda _: []
    of_trace: Callable[[OtelSpan], list[Score]] = lambda _: []
    is_repeated: Callable[[OtelSpan], bool] = lambda _: False

    def content(self, span: OtelSpan) -> SpanContent | None:
        """The content of a span; None if it has none."""
        if self.hook:
            return self.hook(span)
        kind = self.kind(span)
        if kind == "model":
            return ModelCall(self.prompt(span), self.answer(span))
        if kind == "agent":
            return AgentRun(self.asked(span), self.answered(span), str(self.agent(span) or ""))
        if kind == "chain":
            return AgentRun(self.asked(span), self.answered(span), is_chain=True)
        return self._run(span, is_retriever=kind == "retriever") if kind else None

    def _run(self, span: OtelSpan, *, is_retriever: bool) -> ToolRun:
        call_id = id_text(self.call_id(span))
        call = ToolCall(str(self.tool(span) or span.name), self.arguments(span), call_id)
        return ToolRun(call, ToolResult(self.result(span), call_id, span.failed), is_retriever)
