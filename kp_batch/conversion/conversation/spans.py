"""Builds the tree of a trace's spans, for all systems, and the draft made from it.

A format makes spans of its rows. Here they are ordered, and each content is counted once. A model's
call may contain another one, with no run of a tool or an agent between them. Then both are the same
call, and the outer span counts.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, takewhile
from math import inf
from typing import Any

from kp_batch.conversion.conversation.attributes import Score, first
from kp_batch.conversion.conversation.instructions import system_of, tools_of
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    ToolCall,
    ToolResult,
    bare_arguments,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import (
    at_path,
    messages_in,
    objective_in,
    own_question_in,
    question_in,
    result_in,
)
from kp_batch.conversion.conversation.transcript import Transcript
from kp_batch.conversion.model import Drafted, Native, Origin, Refused, Skipped, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.text import time_of, time_of_ns, us_of


@dataclass(slots=True)
class ModelCall:
    """A call of a model: the messages of its input and of its answer.

    Attributes:
        may_wrap: whether only its messages show that it is one. It may then also wrap such calls,
            as cycles and swarms do, and counts only if it contains none.
    """

    prompt: Sequence[Message] = ()
    answer: Sequence[Message] = ()
    may_wrap: bool = False


@dataclass(slots=True)
class ToolRun:
    """A run of a tool, or of a retriever, which may be how another tool works."""

    call: ToolCall
    result: ToolResult
    is_retriever: bool = False


@dataclass(slots=True)
class AgentRun:
    """A run of an agent; its messages count only if it contains no call of a model.

    Its answer comes after all spans within it, because it depends on what tools have found.
    """

    prompt: Sequence[Message] = ()
    answer: Sequence[Message] = ()
    name: str = ""  # name of the agent
    is_chain: bool = False  # any chain: an agent if it contains tools


SpanContent = ModelCall | ToolRun | AgentRun


@dataclass(slots=True)
class Span:
    """A span of a trace."""

    id: str
    parent: str | None  # '' for a root, None if unknown
    start: int | None  # in nanoseconds after 1970
    end: int | None
    has_ended: bool = True  # whether it is complete
    content: SpanContent | None = None  # None if it is not part of an agent
    input: object = None  # as its system has it
    attributes: Json = field(default_factory=dict[str, Any])  # may contain instructions and tools
    sequence: str = ""  # sorts spans that start at once, if their system does
    scores: Sequence[Score] = ()  # count if it is a root, or the last span
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    origin: Origin = field(default_factory=Origin)
    release: str | None = None  # of the program, if its agent has no version


def latest(rows: Iterable[Json], version: Callable[[Json], Any]) -> list[Json]:
    """Return each row once, though exports repeat it: the last of the greatest version."""
    return list({row["id"]: row for row in sorted(rows, key=version)}.values())


def nanoseconds(text: object) -> int | None:
    """Return the time of a text in nanoseconds after 1970; None if it is not a time."""
    time = time_of(text)
    return None if time is None else us_of(time) * 1_000


def rooted(
    rows: Sequence[Json], parent: str, is_root: Callable[[Json], bool], rules: Rules
) -> Sequence[Json]:
    """Return the rows of a trace's spans; the topmost become roots if no root is to come.

    Args:
        rows: rows, each with its `id`.
        parent: key of the parent's id.
        is_root: whether a row is a root.
        rules: say whether more is to come.
    """
    if rules.root != "topmost_at_once" or any(map(is_root, rows)):
        return rows
    here = {row["id"] for row in rows}
    return [row if row.get(parent) in here else {**row, parent: ""} for row in rows]


def draft(trace: str, spans: Iterable[Span], rules: Rules, scores: Iterable[Score] = ()) -> Drafted:
    """Draft a trace from its spans.

    Args:
        trace: native id of the trace.
        spans: spans, each once, in any order.
        rules: decide what is a recovery, and where the objective is.
        scores: scores of the trace as a whole.
    """
    tree = _Tree(spans)
    name = f"kp:trace:{trace}"
    if not any(span.content for span in tree.spans):
        return Skipped("no span of an agent")
    if not tree.roots:
        why = f"its root is not here yet{_REMEDIES.get(rules.root, '')}"
        return Refused(["incomplete"], why, id=name)
    if not all(root.has_ended for root in tree.roots):
        return Refused(["incomplete"], "its root has not ended yet", id=name)
    transcript = _transcript(tree, rules)
    models = [span for span in tree.spans if isinstance(span.content, ModelCall | AgentRun)]
    return TraceDraft(
        id=name,
        created_at=_start(tree),
        ended_at=_end(tree),
        objective=transcript.objective or _question(tree),
        steps=transcript.steps,
        scores=_scores(tree, scores),
        fields=_fields(tree),
        origin=_origin(tree),
        native=Native(root=first(root.id for root in tree.roots)),
        system=transcript.system or first(system_of(x.attributes, x.input) for x in models),
        tools=first(tools_of(x.attributes, x.input) for x in models),
    )


_REMEDIES = {
    None: '; if another system has it, the rule root = "topmost" takes the topmost span for it',
    "topmost": "; the topmost span is taken for it once nothing of the trace came for a day",
}


class _Tree:
    """The spans of a trace in the order of time.

    Attributes:
        spans: all spans. Of those that start at once, outer ones come first, then those that ended
            first.
        roots: spans without a parent. A span whose parent is missing, because a filter dropped it,
            belongs to the last root that started before it.
        heads: the roots, then all spans: the order of search for the trace's own fields.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id: dict[str, Span] = {span.id: span for span in spans}
        contents = (span.content for span in self._by_id.values())
        self.has_tool_runs = any(isinstance(content, ToolRun) for content in contents)
        if not self.has_tool_runs:
            self._by_id = {span.id: _without_chain(span) for span in self._by_id.values()}
        self._adopt()
        self.spans = self._in_order()
        self.roots = [span for span in self.spans if span.parent == ""]
        self.heads = [*self.roots, *self.spans]
        self.calls = [span for span in self.spans if isinstance(span.content, ModelCall)]
        self._answered = self._above_answers()

    def _adopt(self) -> None:
        """Put spans whose parent is missing into a root."""
        spans = self._by_id.values()
        roots = sorted(
            (span for span in spans if span.id and span.parent == ""), key=lambda x: x.start or 0
        )
        starts = [root.start or 0 for root in roots]
        orphans = [x for x in spans if x.parent != "" and x.parent not in self._by_id]
        for span in orphans if roots else ():
            last = max(bisect_right(starts, span.start or 0) - 1, 0)
            self._by_id[span.id] = replace(span, parent=roots[last].id)

    @property
    def input(self) -> object:
        """Return the input of the first root that has one, or else of the agent before its work."""
        before = takewhile(
            lambda span: not isinstance(span.content, ModelCall | ToolRun), self.spans
        )
        agents = (span for span in before if isinstance(span.content, AgentRun))
        inputs = (span.input for span in (*self.roots, *agents))
        return next((given for given in inputs if given not in (None, "")), None)

    def counts(self, span: Span) -> bool:
        """Whether a span has content that no other span has."""
        content = span.content
        if isinstance(content, ModelCall):
            return not self._wraps_calls(span) and not self._is_within_same_call(span)
        if isinstance(content, ToolRun):
            return not self._is_within_same_run(span, content)
        return content is not None and span.id not in self._answered

    def contents(self) -> Iterator[SpanContent]:
        """Yield the contents that count, in order; an agent's comes again at its answer."""
        answers = list[tuple[int, int, AgentRun]]()
        for place, span in enumerate(self.spans):
            content = span.content if self.counts(span) else None
            if isinstance(content, AgentRun):
                before, answer = _parted(_own(content.answer, content.prompt))
                yield AgentRun(content.prompt, before)
                answer = [message for message in answer if message.text not in self._said]
                if answer:  # of nested agents, the inner one answers first
                    heappush(answers, (self._lasts[span.id], -place, AgentRun(answer=answer)))
            elif content:
                yield content
            while answers and answers[0][0] <= place:
                yield heappop(answers)[2]

    @cached_property
    def _said(self) -> set[str]:
        """The texts of models' answers, which agents repeat."""
        calls = (span.content for span in self.calls if self.counts(span))
        answers = (call.answer for call in calls if isinstance(call, ModelCall))
        return {message.text for answer in answers for message in answer if message.text}

    @cached_property
    def _lasts(self) -> dict[str, int]:
        """The place of the last span within each span, or its own."""
        lasts: dict[str, int] = {}
        for place, span in reversed([*enumerate(self.spans)]):
            for outer in chain([span], self._above(span)):
                if outer.id in lasts:
                    break
                lasts[outer.id] = place
        return lasts

    def _is_within_same_call(self, span: Span) -> bool:
        for outer in self._above(span):
            if isinstance(outer.content, ToolRun | AgentRun):
                return False  # it makes calls of its own
            if outer.content and has_content(outer.content.answer) and not self._wraps_calls(outer):
                return True
        return False

    def _wraps_calls(self, span: Span) -> bool:
        is_guess = isinstance(span.content, ModelCall) and span.content.may_wrap
        return is_guess and span.id in self._answered

    def _is_within_same_run(self, span: Span, run: ToolRun) -> bool:
        around = (outer.content for outer in self._above(span) if outer.content)
        if run.is_retriever:
            return any(isinstance(content, ToolRun) for content in around)
        outer = next(around, None)
        return isinstance(outer, ToolRun) and run.call.is_same_as(outer.call)

    def _above(self, span: Span) -> Iterator[Span]:
        """Yield the spans around a span, the inner ones first; sources contain cycles."""
        seen = {span.id}
        parent = self._by_id.get(span.parent or "")
        while parent and parent.id not in seen:
            yield parent
            seen.add(parent.id)
            parent = self._by_id.get(parent.parent or "")

    def _above_answers(self) -> set[str]:
        """The ids of the spans with an answer below them that no tool asked for."""
        above: set[str] = set()
        for span in self.spans:
            content = span.content
            if isinstance(content, ModelCall | AgentRun) and has_content(content.answer):
                for outer in self._above(span):
                    if outer.id in above or isinstance(outer.content, ToolRun):
                        break
                    above.add(outer.id)
        return above

    def _in_order(self) -> list[Span]:
        starts = self._starts()

        def place(span: Span) -> tuple[int, str, float, str]:
            return starts[span.id], span.sequence, inf if span.end is None else span.end, span.id

        ordered: dict[str, Span] = {}
        for span in sorted(self._by_id.values(), key=place):
            parent = self._by_id.get(span.parent or "")
            if not parent or starts[parent.id] != starts[span.id]:  # the usual case
                ordered[span.id] = span
                continue
            at_once = [span]
            for outer in self._above(span):
                if starts[outer.id] != starts[span.id] or outer.id in ordered:
                    break
                at_once.append(outer)
            for member in reversed(at_once):
                ordered.setdefault(member.id, member)
        return list(ordered.values())

    def _starts(self) -> dict[str, int]:
        """When each span started, or else the span around it."""
        spans = self._by_id.values()
        starts = {span.id: span.start for span in spans if span.start is not None}
        for span in spans if len(starts) < len(spans) else ():
            path = takewhile(lambda x: x.id not in starts, chain([span], self._above(span)))
            if lacking := [*path]:
                start = starts.get(lacking[-1].parent or "", 0)
                starts.update(dict.fromkeys((x.id for x in lacking), start))
        return starts


def _without_chain(span: Span) -> Span:
    is_chain = isinstance(span.content, AgentRun) and span.content.is_chain
    return replace(span, content=None) if is_chain else span


def has_content(messages: Sequence[Message]) -> bool:
    """Whether any of these messages has a text, a tool call or a result."""
    return any(message.thought or message.calls or message.results for message in messages)


def _own(answer: Sequence[Message], prompt: Sequence[Message]) -> Sequence[Message]:
    """Return an agent's messages, without the prompt if they repeat it at the beginning."""
    before = [message for message in prompt if message.role == "assistant"]
    places = [place for place, each in enumerate(answer) if each.role == "assistant"]
    if before and len(places) > len(before):
        repeated = [answer[place] for place in places[: len(before)]]
        return answer[places[len(before)] :] if repeated == before else answer
    return answer


def _parted(answer: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Split an agent's messages after the last call or result; the rest is its answer."""
    places = (place for place, each in enumerate(answer, 1) if each.calls or each.results)
    begin = max(places, default=0)
    return answer[:begin], answer[begin:]


def _transcript(tree: _Tree, rules: Rules) -> Transcript:
    transcript = Transcript(recovery=rules.recovers)
    given = parse_json(tree.input)
    question = at_path(given, rules.objective) or own_question_in(given)
    transcript.ask(question, messages_in(given))
    for content in tree.contents():
        if isinstance(content, ToolRun):
            transcript.add_tool_run(*_run(content))
        else:
            transcript.add_prompt(content.prompt)
            for message in content.answer:
                if message.role == "assistant":
                    transcript.add_answer(message)
                elif not (message.results and tree.has_tool_runs and _has_own_spans(content)):
                    transcript.add_prompt([message])
    return transcript


def _has_own_spans(content: ModelCall | AgentRun) -> bool:
    """Whether results in an answer come from tools that have spans of their own.

    Tools whose results are in a model's own answer run at its provider, and have no spans.
    """
    return not isinstance(content, ModelCall) or content.may_wrap


def _run(content: ToolRun) -> tuple[ToolCall, ToolResult]:
    """Return a call and its result, which may be in a message."""
    call, result = content.call, content.result
    if inner := result_in(result.content):
        failed = result.failed or inner.failed
        result = replace(inner, id=result.id or inner.id, failed=failed)
    arguments = bare_arguments(call.arguments)
    return ToolCall(call.name, arguments, call.id or result.id, call.server), result


def _start(tree: _Tree) -> datetime | None:
    """Return the start of the root, or else of the first span that has a time."""
    times = (time_of_ns(head.start) for head in tree.heads if head.start is not None)
    return next(filter(None, times), None)


def _end(tree: _Tree) -> datetime | None:
    """Return the end of the last root, or else of the last span that has a time."""
    lasts = (span.start if span.end is None else span.end for span in tree.spans)
    return _latest(root.end for root in tree.roots) or _latest(lasts)


def _latest(times: Iterable[int | None]) -> datetime | None:
    parsed = (time_of_ns(time) for time in times if time is not None)
    return max(filter(None, parsed), default=None)


def _question(tree: _Tree) -> str:
    """Return the question, if no user message asks one: a root's input, or the earliest span's."""
    inputs = (span.input for span in tree.spans if not isinstance(span.content, ToolRun))
    return question_in(tree.input) or next(filter(None, map(objective_in, inputs)), "")


def _scores(tree: _Tree, of_trace: Iterable[Score]) -> dict[str, float]:
    """Return the latest score of each name: of the trace, the roots, the last span and model call.

    The last span and call count because evaluations belong to what was generated.
    """
    judged = {span.id: span for span in (*tree.calls[-1:], tree.spans[-1], *tree.roots)}
    scores = [*of_trace, *(score for span in judged.values() for score in span.scores)]
    return {score.name: score.value for score in sorted(scores, key=lambda score: score.time)}


def _fields(tree: _Tree) -> dict[str, Sequence[str]]:
    """Return the values of each field from the first span that has it, roots first."""
    fields: dict[str, Sequence[str]] = {}
    for span in tree.heads:
        for name, values in span.fields.items():
            fields[name] = fields.get(name) or values
    return fields


def _origin(tree: _Tree) -> Origin:
    origins = [span.origin for span in tree.heads]
    agents = (span.content for span in tree.spans if isinstance(span.content, AgentRun))
    version = first(origin.version for origin in origins)
    return Origin(
        agent=first(origin.agent for origin in origins) or first(agent.name for agent in agents),
        model=first(call.origin.model for call in tree.calls),
        session=first(origin.session for origin in origins),
        version=version or first(span.release for span in tree.heads),
    )
