"""Makes a record from a sample of Inspect, with its chat messages, and a trace from the record."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self, cast, get_args

from kp_batch import bounds
from kp_batch.bounds import VALUE_BYTES, Budget, TooLargeError
from kp_batch.conversion.conversation.attributes import first, first_text, score_of, texts, value_at
from kp_batch.conversion.conversation.instructions import tools_text
from kp_batch.conversion.conversation.messages import (
    Json,
    Message,
    Role,
    ToolCall,
    ToolResult,
    joined,
)
from kp_batch.conversion.conversation.payloads import at_path
from kp_batch.conversion.conversation.transcript import Transcript
from kp_batch.conversion.model import Native, Origin, SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.text import sortable, time_of

ROLES: Mapping[str, Role] = {role: role for role in get_args(Role)}
_ATTACHED = ("attachment://", "tc://")  # the second in old logs
_OF_MESSAGES = ("role", "reasoning", "tool_call_id", "error", "tool_error")
_OF_PARTS = (
    *("type", "text", "reasoning", "summary", "redacted"),
    *("tool_type", "context", "id", "name", "arguments", "result", "error"),
)
_OF_CALLS = ("id", "function", "arguments")
_OLD_SCORERS = ("score", "88F74D2C")  # if a score lacks its scorer's name
_INTEGERS = 1 << 63  # a column holds smaller numbers, on either side of 0
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def trim_messages(
    messages: Iterable[Json], attachments: Mapping[str, str], prior: Collection[str] = ()
) -> list[Json]:
    """Return messages with the keys that count, without pictures, with attachments inserted.

    A summary of earlier messages is left out, since these messages are still before it.

    Args:
        messages: messages as in a log.
        attachments: attachments of the sample, by name.
        prior: ids of messages from earlier runs of the sample.

    Raises:
        TooLargeError: they exceed the size of a trace.
    """
    room = _room()
    return [
        cast("Json", _resolved(_slim(message, prior), attachments, room))
        for message in messages
        if not _is_summary(message)
    ]


def _is_summary(message: Json) -> bool:
    # Inspect's `CompactionSummary` adds it to the conversation.
    return message.get("role") == "user" and value_at(message, "metadata.summary") is True


def _slim(message: Json, prior: Collection[str]) -> Json:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    return {
        **_only(message, _OF_MESSAGES),
        "prior": str(message.get("id")) in prior,
        "content": [_only(part, _OF_PARTS) for part in _parts(message)]
        if isinstance(content, list)
        else content,
        "tool_calls": [_only(call, _OF_CALLS) for call in cast("Iterable[Json]", calls)],
    }


def _only(value: Json, names: Iterable[str]) -> Json:
    return {name: value[name] for name in names if value.get(name) is not None}


def _room() -> Budget:
    # A few bytes can refer to a long text, or to many messages, any number of times.
    most = f"{bounds.LINE_BYTES >> 20} MiB"
    return Budget(
        bounds.LINE_BYTES, f"it is too large to be read: its messages take more than {most}"
    )


def _resolved(value: object, attachments: Mapping[str, str], room: Budget) -> object:
    if isinstance(value, str):
        text = _attached(value, attachments)
        room.take(VALUE_BYTES + len(text))
        return text
    if not isinstance(value, (list, dict)):
        return value
    room.take(VALUE_BYTES)
    try:
        if isinstance(value, list):
            return [_resolved(item, attachments, room) for item in cast("list[object]", value)]
        items = cast("Json", value).items()
        return {key: _resolved(item, attachments, room) for key, item in items}
    except RecursionError as error:
        raise TooLargeError from error


def _attached(text: str, attachments: Mapping[str, str]) -> str:
    for protocol in _ATTACHED:
        if text.startswith(protocol):
            attached: object = attachments.get(text.removeprefix(protocol))
            return attached if isinstance(attached, str) else text
    return text


def conversation(messages: Iterable[Json]) -> Iterator[Message]:
    """Yield messages, without those of an earlier run, except for the question."""
    asked = False
    for message in messages:
        role = ROLES.get(message.get("role") or "")
        can_ask = role == "user" and not asked and not _is_shown(message)
        is_question = can_ask and _text(message) != ""
        asked = asked or is_question
        if role and (is_question or not message["prior"]):
            yield from _read(role, message)


def _read(role: Role, message: Json) -> Iterator[Message]:
    if role == "assistant":
        yield from _answer(message)
    elif role == "tool":
        yield Message(role, results=(_result(message),))
    elif not _is_shown(message):
        yield Message(role, _text(message))


def _is_shown(message: Json) -> bool:
    """Whether a user's message only contains what a tool has shown."""
    return message.get("role") == "user" and bool(message.get("tool_call_id"))


def _answer(message: Json) -> Iterator[Message]:
    reasoning = [_reasoning(part) for part in _parts(message)]
    if isinstance(message.get("reasoning"), str):
        reasoning.append(message["reasoning"])
    yield Message("assistant", _text(message), joined(reasoning))
    for part in _parts(message):
        if part.get("type") == "tool_use":
            yield _run_by_provider(part)
    calls = (
        ToolCall(str(call.get("function") or ""), call.get("arguments"), str(call.get("id") or ""))
        for call in message.get("tool_calls") or ()
    )
    yield Message("assistant", calls=tuple(calls))


def _run_by_provider(part: Json) -> Message:
    name, call_id = str(part.get("name") or ""), str(part.get("id") or "")
    server = part.get("context") if part.get("tool_type") == "mcp_call" else None
    call = ToolCall(name, part.get("arguments"), call_id, server)
    content, failed = part.get("result") or part.get("error") or "", bool(part.get("error"))
    return Message("assistant", calls=(call,), results=(ToolResult(content, call_id, failed),))


def _result(message: Json) -> ToolResult:
    """Return a tool's result; if it failed without one, the error that the model was shown."""
    error = message.get("error") or message.get("tool_error")
    shown = error.get("message") if isinstance(error, dict) else error
    return ToolResult(
        _text(message) or shown or (None if message.get("content") is None else ""),
        str(message.get("tool_call_id") or ""),
        failed=bool(error),
    )


def _parts(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content or () if isinstance(part, dict)]


def _text(message: Json) -> str:
    parts = _parts(message)
    return joined([str(part.get("text") or "") for part in parts if part.get("type") == "text"])


def _reasoning(part: Json) -> str:
    """Return a reasoning; if it is encrypted, its summary."""
    if part.get("type") != "reasoning":
        return ""
    hidden = part.get("redacted") or not part.get("reasoning")
    return str(part.get("summary" if hidden else "reasoning") or "")


@dataclass(frozen=True)
class LogFacts:
    """The facts of a log that all its samples share."""

    run: str
    name: str | None  # its best identifier
    scorer: str  # the first one
    fields: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, header: Json) -> Self:
        """Make it from a log's header, or from that of a run that continues."""
        spec = header.get("eval") or {}
        named = {
            "task": spec.get("task"),
            "dataset": value_at(spec, "dataset.name"),
            "model": spec.get("model"),
            "solver": spec.get("solver"),
            "tags": header.get("tags", spec.get("tags")),  # the edited ones come first
        }
        results = header.get("results") or {}
        scores = results.get("scores") or [results.get("scorer") or {}]
        fields = {"tags": list[str](), **dict(texts(named))}
        run, name = str(spec.get("run_id") or ""), first_text([spec], "eval_id", "run_id")
        return cls(run, name, str(scores[0].get("name") or ""), fields)

    def name_of(self, sample: Json) -> str:
        """Return the name of a sample that has none, as in old logs; '' if there is none."""
        if not self.run or sample.get("id") is None:
            return ""
        return f"{self.run}/{sample['id']}/{sample.get('epoch', 1)}"


def record_of(sample: Json, log: LogFacts) -> dict[str, object]:
    """Return the payload of a sample's record."""
    old = sample.get("transcript") or {}
    events = Events.of(sample.get("events") or old.get("events") or (), sample.get("events_data"))
    attachments = {**(old.get("content") or {}), **(sample.get("attachments") or {})}
    scores = _scores_of(sample, log)
    edits = [edit for score in scores.values() for edit in score.get("history") or ()]
    changes = [value_at(edit, "provenance.timestamp") for edit in edits]
    changes.append(value_at(sample.get("invalidation"), "timestamp"))
    return {
        "created": sample.get("started_at") or events.first,
        "ended": sample.get("completed_at") or events.last,
        "changed": max([events.last, *(sortable(change) for change in changes)]),
        "input": _input(sample.get("input"), attachments),
        "messages": trim_messages(sample.get("messages") or (), attachments, events.of_prior_runs),
        "scores": dict(numbers({name: score.get("value") for name, score in scores.items()})),
        "fields": {**log.fields, **dict(texts({"metadata": sample.get("metadata") or {}}))},
        "invalidated": sample.get("invalidation") is not None,
        "agent": events.agent,
        "tools": tools_text(events.tools),
        "native": native_of(log.name, sample.get("id"), sample.get("epoch")),
    }


def native_of(log: object, sample: object, epoch: object) -> dict[str, object]:
    """Return the fields of `Native` that identify a sample."""
    names = {"log": log, "sample": sample}
    is_number = type(epoch) is int and abs(epoch) < _INTEGERS
    return {
        **{name: None if id_ is None else str(id_) for name, id_ in names.items()},
        "epoch": epoch if is_number else None,
    }


@dataclass(frozen=True)
class Events:
    """The facts of a sample's events that its messages lack."""

    first: str | None  # time of the first event
    last: str  # time of the latest event, in UTC; '' if there is none
    of_prior_runs: frozenset[str]  # ids of messages
    agent: str | None  # the first one that ran
    tools: object  # of the first call of a model with tools

    @classmethod
    def of(cls, events: Iterable[Json], pools: object) -> Self:
        """Make it in one iteration over the events.

        Args: events: events in order. If a run continues a stopped one, it restores the earlier
        events in a span `prior_run`. pools: `events_data`; events refer to its messages by their
        places.
        """
        known = cast("list[Json]", value_at(pools, "messages") or [])
        changes = [0] * (len(known) + 1)  # change of the number of ranges that contain each message
        begun, last, prior, spans, agent = None, "", set[str](), set[str](), None
        tools: object = None
        for event in events:
            begun = begun or event.get("timestamp")
            last = max(last, sortable(event.get("timestamp")))
            tools = tools or event.get("tools")
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
        return cls(begun, last, frozenset(prior), agent, tools)


def _add(ranges: Iterable[tuple[int, int]], changes: list[int]) -> None:
    """Record where ranges begin and end, because they may be many and long."""
    for start, end in ranges:
        if places := range(len(changes) - 1)[start:end]:
            changes[places.start] += 1
            changes[places.stop] -= 1


def _message_ids(event: Json) -> Iterator[str]:
    messages: list[object] = [{"id": event.get("message_id")}]
    messages += [choice.get("message") for choice in value_at(event, "output.choices") or ()]
    messages += event["input"] if isinstance(event.get("input"), list) else []
    return _ids(messages)


def _ids(messages: Iterable[object]) -> Iterator[str]:
    return (str(id_) for message in messages if (id_ := value_at(message, "id")))


def _input(value: object, attachments: Mapping[str, str]) -> object:
    if isinstance(value, list):
        return trim_messages(cast("list[Json]", value), attachments)
    return _resolved(value, attachments, _room())


def _scores_of(sample: Json, log: LogFacts) -> dict[str, Json]:
    scores: dict[str, object] = {**(sample.get("scores") or {})}
    if sample.get("score") is not None:
        scores["score"] = sample["score"]
    return {
        (log.scorer or name) if name in _OLD_SCORERS else name: cast("Json", score)
        for name, score in scores.items()
        if isinstance(score, dict)
    }


def numbers(values: Json) -> Iterator[tuple[str, float]]:
    """Yield the scores that are numbers or grades; nested scores have their own names."""
    inner: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            inner |= {key: x for key, x in numbers(cast("Json", value)) if key not in inner}
            continue
        number = _GRADES.get(value) if isinstance(value, str) else score_of(value)
        if number is not None:
            yield name, number
    yield from ((name, number) for name, number in inner.items() if name not in values)


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> TraceDraft:
    """See `Format`: of several samples of one id, the last changed one counts."""
    samples = (record.payload for record in reversed(records))
    sample: Json = max(samples, key=lambda sample: sample["changed"])
    transcript = Transcript(recovery=rules.recovers)
    transcript.add_conversation(conversation(sample["messages"]))
    fields = cast("Mapping[str, Sequence[str]]", sample["fields"])
    agents = [*fields.get("agent", ()), *fields.get("solver", ()), sample.get("agent")]
    return TraceDraft(
        id=f"kp:trace:{trace}",
        created_at=time_of(sample["created"]),
        ended_at=time_of(sample.get("ended")),
        objective=at_path(sample["input"], rules.objective) or transcript.objective,
        steps=transcript.steps,
        scores=sample["scores"],
        fields=fields,
        faults=["invalidated"] if sample["invalidated"] else [],
        origin=Origin(first(agents), first(fields.get("model", ()))),
        native=Native(**sample["native"]),
        system=transcript.system,
        tools=sample.get("tools") or None,
    )
