"""A trace from its spans: which of them count, in which order, and what the root tells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import cast

from kp_batch.importers import genai, openinference
from kp_batch.importers.attributes import first, first_text, texts
from kp_batch.importers.draft import Draft, Origin, PassedOver, Refused, Unit
from kp_batch.importers.messages import Json, compact, unfolded
from kp_batch.importers.payloads import at_path, messages_in, objective_in, question_in
from kp_batch.importers.rules import Rules
from kp_batch.importers.span import AgentRun, ModelCall, Said, Span, ToolRun, said_text
from kp_batch.importers.transcript import Transcript
from kp_batch.times import time_of_ns

_AGENT = ("gen_ai.agent.name", "agent.name")
_MODEL = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
_SESSION = ("gen_ai.conversation.id", "session.id")
_NO_AGENT = PassedOver("no span of an agent")
Voices = Mapping[str, Said | None]  # what spans say, by their ids


def draft(trace: str, units: Sequence[Unit], rules: Rules) -> Draft | Refused | PassedOver:
    """See `Format`; the records are those of `Span`."""
    tree = Tree(Span.of(cast("Json", each.record)) for each in units)
    if not any(tree.voices.values()):
        return _NO_AGENT
    name = f"kp:trace:{trace}"
    if tree.root is None:
        return Refused(["incomplete"], "its root is not here yet", id=name)
    if tree.root.end is None:
        return Refused(["incomplete"], "its root has not ended yet", id=name)
    transcript = Transcript(recovery=rules.recovers)
    transcript.recall(messages_in(_payload(tree.root)))
    for span in tree.spans:
        if tree.counts(span):
            _tell(tree.voices[span.id], transcript, has_runs=tree.has_runs)
    return Draft(
        id=name,
        created_at=tree.start,
        objective=_objective(tree, transcript, rules.objective),
        steps=transcript.steps,
        scores=_scores(tree),
        fields=dict(texts(tree.root.resource)) | dict(texts(tree.root.attributes)),
        origin=_origin(tree, tree.root),
    )


def _origin(tree: "Tree", root: Span) -> Origin:
    """What the root tells, or else the first span, or call of a model, that does."""
    spans = (root, *tree.spans)
    calls = [x.attributes for x in tree.spans if isinstance(tree.voices[x.id], ModelCall)]
    heads = [root.attributes, *calls[:1]]
    agent = first_text((each.attributes for each in spans), *_AGENT)
    version = first_text(heads, "gen_ai.agent.version")
    return Origin(
        agent=agent or first(map(openinference.agent, spans)),
        model=first_text(calls, *_MODEL),
        session=first_text(heads, *_SESSION),
        version=version or first_text([root.resource], "service.version"),
    )


class Tree:
    """The spans of a trace, each once, in the order of time, parents before their children."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id: dict[str, Span] = {}
        for span in spans:
            known = self._by_id.get(span.id, span)
            self._by_id[span.id] = span if known is span else max(known, span, key=_completeness)
        self.spans = sorted(self._by_id.values(), key=self._place)
        self.root = next((each for each in self.spans if not each.parent), None)
        self.voices: Voices = {each.id: _said(each) for each in self.spans}
        self.has_runs = any(isinstance(each, ToolRun) for each in self.voices.values())
        self._spoken_for = {
            above.id
            for each in self.spans
            if _speaks(self.voices[each.id])
            for above in self._above(each)
        }

    @property
    def start(self) -> datetime | None:
        """When the root started, or else the first span that has a time."""
        starts = [each.start for each in (self.root, *self.spans) if each]
        times = (time_of_ns(each) for each in starts if each is not None)
        return next((each for each in times if each), None)

    def counts(self, span: Span) -> bool:
        """Whether a span tells what no other does."""
        voice = self.voices[span.id]
        if isinstance(voice, ModelCall):
            return not self._is_within_same_call(span)
        if isinstance(voice, ToolRun):
            return not self._is_within_same_run(span, voice)
        return isinstance(voice, AgentRun) and span.id not in self._spoken_for

    def _is_within_same_call(self, span: Span) -> bool:
        for each in self._above(span):
            voice = self.voices[each.id]
            if isinstance(voice, ToolRun | AgentRun):
                return False  # which makes calls of its own
            if voice and said_text(voice.answer):
                return True
        return False

    def _is_within_same_run(self, span: Span, run: ToolRun) -> bool:
        outer = next((said for each in self._above(span) if (said := self.voices[each.id])), None)
        if not isinstance(outer, ToolRun) or outer.call.name != run.call.name:
            return False
        given, again = unfolded(outer.call.arguments), unfolded(run.call.arguments)
        return not given or not again or given == again

    def _above(self, span: Span) -> Iterator[Span]:
        """The parent, its parent, and so on; broken sources have circles."""
        seen = {span.id}
        parent = self._by_id.get(span.parent)
        while parent and parent.id not in seen:
            yield parent
            seen.add(parent.id)
            parent = self._by_id.get(parent.parent)

    def _place(self, span: Span) -> tuple[int, int, str]:
        above = list(self._above(span))
        start = next((each.start for each in (span, *above) if each.start is not None), 0)
        return start, len(above), span.id


def _completeness(span: Span) -> tuple[bool, int, str]:
    record = compact(span.record())
    return span.end is not None, len(record), record


def _said(span: Span) -> Said | None:
    """What a span says; where one dialect leaves the content to the other, what that one has."""
    one, other = openinference.said(span), genai.said(span)
    if isinstance(one, ToolRun) and isinstance(other, ToolRun):
        has_content = one.call.arguments is not None or one.result.content is not None
        return one if has_content else other
    if isinstance(one, ModelCall | AgentRun) and isinstance(other, ModelCall | AgentRun):
        return type(one)(one.given or other.given, one.answer or other.answer)
    return one or other


def _speaks(voice: Said | None) -> bool:
    """Whether the agents above are not asked for their messages."""
    return isinstance(voice, ModelCall | AgentRun) and said_text(voice.answer)


def _tell(voice: Said | None, transcript: Transcript, *, has_runs: bool) -> None:
    if isinstance(voice, ToolRun):
        transcript.run(voice.call, voice.result)
    elif voice:
        transcript.recall(voice.given)
        for message in voice.answer:
            if message.role == "assistant":
                transcript.say(message)
            elif not (message.results and has_runs):  # which tell them at their own time
                transcript.recall([message])


def _objective(tree: Tree, transcript: Transcript, path: str | None) -> str:
    """The text at a path of the root's input, if one is given; else the first question of a user.

    Else the root's input, or that of the earliest span that has one.
    """
    if path and (found := at_path(_payload(tree.root), path)):
        return found
    if transcript.objective:
        return transcript.objective
    asked = (each for each in tree.spans if not isinstance(tree.voices[each.id], ToolRun))
    inputs = (objective_in(_payload(each)) for each in asked)
    return question_in(_payload(tree.root)) or next(filter(None, inputs), "")


def _payload(span: Span | None) -> object:
    if span is None:
        return None
    found = openinference.payload(span)
    return genai.payload(span) if found is None else found


def _scores(tree: Tree) -> dict[str, float]:
    """The latest of each name: the trace's, wherever they stand, the root's and the last span's.

    That is the last of all, or the last call of a model: evaluations belong to what was generated.
    """
    told = [each for span in tree.spans for each in openinference.trace_scores(span)]
    calls = [each for each in tree.spans if isinstance(tree.voices[each.id], ModelCall)]
    judged = [*calls[-1:], tree.spans[-1], *([tree.root] if tree.root else [])]
    for span in {each.id: each for each in judged}.values():
        told += [*openinference.scores(span), *genai.scores(span)]
    return {each.name: each.value for each in sorted(told, key=lambda each: each.time)}
