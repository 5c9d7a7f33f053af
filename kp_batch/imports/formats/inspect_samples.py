"""What a sample of Inspect tells of a trace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self, cast

from kp_batch.imports.conversation.attributes import first, first_text, score_of, texts, told
from kp_batch.imports.conversation.messages import Json
from kp_batch.imports.conversation.payloads import at_path
from kp_batch.imports.conversation.transcript import Transcript
from kp_batch.imports.formats.inspect_messages import (
    conversation,
    resolve_attachments,
    trim_messages,
)
from kp_batch.imports.model import Native, Origin, SourceRecord, TraceDraft
from kp_batch.imports.rules import Rules
from kp_batch.text import sortable, time_of

_OLD_SCORERS = ("score", "88F74D2C")  # where a score lacks its scorer's name
_INTEGERS = 1 << 63  # so many that a column holds, on either side of 0
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


@dataclass(frozen=True)
class Log:
    """What a log tells of all its samples."""

    run: str
    name: str | None  # what identifies it best
    scorer: str  # the first one
    fields: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, header: Json) -> Self:
        """What a log's header tells, or that of a run that goes on."""
        spec = header.get("eval") or {}
        named = {
            "task": spec.get("task"),
            "dataset": told(spec, "dataset.name"),
            "model": spec.get("model"),
            "solver": spec.get("solver"),
            "tags": header.get("tags", spec.get("tags")),  # the first are the edited ones
        }
        results = header.get("results") or {}
        scores = results.get("scores") or [results.get("scorer") or {}]
        fields = {"tags": list[str](), **dict(texts(named))}
        run, name = str(spec.get("run_id") or ""), first_text([spec], "eval_id", "run_id")
        return cls(run, name, str(scores[0].get("name") or ""), fields)

    def name_of(self, sample: Json) -> str:
        """The name of a sample that has none of its own, as in old logs; '' if there is none."""
        if not self.run or sample.get("id") is None:
            return ""
        return f"{self.run}/{sample['id']}/{sample.get('epoch', 1)}"


def record_of(sample: Json, log: Log) -> dict[str, object]:
    """What of a sample makes a trace."""
    old = sample.get("transcript") or {}
    events = Events.of(sample.get("events") or old.get("events") or (), sample.get("events_data"))
    attachments = {**(old.get("content") or {}), **(sample.get("attachments") or {})}
    scores = _named(sample, log)
    edits = [each for score in scores.values() for each in score.get("history") or ()]
    changes = [told(each, "provenance.timestamp") for each in edits]
    changes.append(told(sample.get("invalidation"), "timestamp"))
    return {
        "created": sample.get("started_at") or events.first,
        "ended": sample.get("completed_at") or events.last,
        "changed": max([events.last, *(sortable(each) for each in changes)]),
        "input": _asked(sample.get("input"), attachments),
        "messages": trim_messages(sample.get("messages") or (), attachments, events.of_prior_runs),
        "scores": dict(numbers({name: score.get("value") for name, score in scores.items()})),
        "fields": {**log.fields, **dict(texts({"metadata": sample.get("metadata") or {}}))},
        "invalidated": sample.get("invalidation") is not None,
        "agent": events.agent,
        "native": native_of(log.name, sample.get("id"), sample.get("epoch")),
    }


def native_of(log: object, sample: object, epoch: object) -> dict[str, object]:
    """Of `Native`, what leads back to a sample."""
    names = {"log": log, "sample": sample}
    is_number = type(epoch) is int and abs(epoch) < _INTEGERS
    return {
        **{name: None if each is None else str(each) for name, each in names.items()},
        "epoch": epoch if is_number else None,
    }


@dataclass(frozen=True)
class Events:
    """What a sample's events tell beside its messages."""

    first: str | None  # when the first one was
    last: str  # when the latest one was, in UTC; '' if there is none
    of_prior_runs: frozenset[str]  # ids of messages
    agent: str | None  # the first one that ran

    @classmethod
    def of(cls, events: Iterable[Json], pools: object) -> Self:
        """Go through the events once.

        Args:
            events: in their order; a run that goes on where another one stopped restores its events
                within a span `prior_run`.
            pools: `events_data`, of which events name messages by their places.
        """
        known = cast("list[Json]", told(pools, "messages") or [])
        changes = [0] * (len(known) + 1)  # in how many ranges stands each, from one to the next
        begun, last, prior, spans, agent = None, "", set[str](), set[str](), None
        for event in events:
            begun = begun or event.get("timestamp")
            last = max(last, sortable(event.get("timestamp")))
            kind = event.get("type") if event.get("event") == "span_begin" else None
            if kind == "agent":
                agent = agent or first_text([event], "name")
            if kind == "prior_run":
                spans.add(str(event.get("id")))
            elif event.get("event") == "span_end":
                spans.discard(str(event.get("id")))
            elif spans:
                prior.update(_message_ids(event))
                _add(event.get("input_refs") or (), changes)
        inside = zip(known, accumulate(changes), strict=False)
        prior.update(_ids(message for message, ranges in inside if ranges))
        return cls(begun, last, frozenset(prior), agent)


def _add(ranges: Iterable[tuple[int, int]], changes: list[int]) -> None:
    """Note where ranges begin and end, as they may be many and long."""
    for start, end in ranges:
        if places := range(len(changes) - 1)[start:end]:
            changes[places.start] += 1
            changes[places.stop] -= 1


def _message_ids(event: Json) -> Iterator[str]:
    found: list[object] = [{"id": event.get("message_id")}]
    found += [each.get("message") for each in told(event, "output.choices") or ()]
    given = event.get("input")
    found += given if isinstance(given, list) else []
    return _ids(found)


def _ids(messages: Iterable[object]) -> Iterator[str]:
    return (str(name) for each in messages if (name := told(each, "id")))


def _asked(given: object, attachments: Mapping[str, str]) -> object:
    if isinstance(given, list):
        return trim_messages(cast("list[Json]", given), attachments)
    return resolve_attachments(given, attachments)


def _named(sample: Json, log: Log) -> dict[str, Json]:
    found: dict[str, object] = {**(sample.get("scores") or {})}
    if sample.get("score") is not None:
        found["score"] = sample["score"]
    return {
        (log.scorer or name) if name in _OLD_SCORERS else name: cast("Json", score)
        for name, score in found.items()
        if isinstance(score, dict)
    }


def numbers(values: Json) -> Iterator[tuple[str, float]]:
    """The scores that are numbers or grades; those within a score by their own names."""
    inner: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            inner |= {key: each for key, each in numbers(cast("Json", value)) if key not in inner}
        elif (number := number_of(value)) is not None:
            yield name, number
    yield from ((name, number) for name, number in inner.items() if name not in values)


def number_of(value: object) -> float | None:
    """A score's value as a number; None if it is a text that is no grade, or not finite."""
    return _GRADES.get(value) if isinstance(value, str) else score_of(value)


def draft(trace: str, found: Sequence[SourceRecord], rules: Rules) -> TraceDraft:
    """See `Format`: of several samples of one id, the one that was changed last counts."""
    told_last_first = [cast("Json", each.payload) for each in reversed(found)]
    record = max(told_last_first, key=lambda each: cast("str", each["changed"]))
    transcript = Transcript(recovery=rules.recovers)
    transcript.add_conversation(conversation(record["messages"]))
    asked = at_path(record["input"], rules.objective) if rules.objective else ""
    fields = cast("Mapping[str, Sequence[str]]", record["fields"])
    agents = [*fields.get("agent", ()), *fields.get("solver", ()), record.get("agent")]
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=time_of(record["created"]),
        ended_at=time_of(record.get("ended")),
        objective=asked or transcript.objective,
        steps=transcript.steps,
        scores=record["scores"],
        fields=fields,
        faults=["invalidated"] if record["invalidated"] else [],
        origin=Origin(first(agents), first(fields.get("model", ()))),
        native=Native(**record["native"]),
    )
