"""A dialect of spans as a table: how to read each thing that a span records of an agent's work."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kp_batch.conversion.conversation.attributes import OtelSpan, Score, first_value, json_at
from kp_batch.conversion.conversation.messages import Message, ToolCall, ToolResult, id_text
from kp_batch.conversion.conversation.spans import AgentRun, ModelCall, SpanContent, ToolRun

Kind = Literal["model", "agent", "chain", "tool", "retriever"]  # a chain may be an agent
Reader = Callable[[OtelSpan], object]  # returns None if a span does not have it
Messages = Callable[[OtelSpan], Sequence[Message]]


def value_of(*names: str) -> Reader:
    """Make a reader of the first of these attributes that a span has."""
    return lambda span: first_value(span.attributes, names)


def json_of(*names: str) -> Reader:
    """Make a reader of the first of these attributes; its value is JSON."""
    return lambda span: json_at(span.attributes, *names)


@dataclass(frozen=True)
class Dialect:
    """One dialect.

    Attributes:
        families: beginnings of all its attribute names, up to the second dot.
        kinds: for each attribute that names the kind of a span, all known values in lower case,
            whether they are part of an agent or not.
        kind: kind of a span; None if it is not part of an agent.
        prompt, answer: messages of a model.
        asked, answered: messages of an agent or a chain.
        agent: name of an agent.
        tool: name of a tool; if it has none, the span's name counts.
        call_id, arguments, result: of the tool's call.
        hook: returns the content of a span instead of all these, if no kind is recorded.
        input: input of a span, as its maker has it.
        scores, of_trace: scores of a span, and those of its trace that it contains.
        is_repeated: whether a span only repeats content of others.
    """

    families: tuple[str, ...]
    kinds: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
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
        """Return the content of a span; None if it has none."""
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
