"""Rows of messages, as datasets on the Hugging Face Hub have them: JSON lines, or Parquet.

A row is a record, and a trace: a conversation in OpenAI's shape, or in ShareGPT's. Left out are the
bytes of pictures in Parquet, and the column `trace`. In the Hub's own Parquet of agents' sessions,
it repeats the lines of their files.
"""

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b

from kp_batch import bounds
from kp_batch.conversion.conversation.attributes import first_text, scores_of, texts, value_at
from kp_batch.conversion.conversation.instructions import tools_text
from kp_batch.conversion.conversation.messages import (
    ROLES,
    Json,
    JsonText,
    Message,
    as_object,
    id_text,
    list_in,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import at_path, with_reasoning
from kp_batch.conversion.conversation.transcript import Transcript
from kp_batch.conversion.formats.rows import RowMap, plain
from kp_batch.conversion.model import (
    Format,
    Native,
    Origin,
    Refused,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.conversion.vendors import message_of, unwrapped
from kp_batch.errors import MISSING_COLUMN, Fault, UnreadableError

_MESSAGES = ("messages", "conversations", "conversation", "trajectory")  # the first one counts
_IDS = ("id", "uuid", "trace_id", "session_id", "conversation_id", "trajectory_id", "instance_id")
_UNREAD = "trace"
_SCOUT = "transcript_id"  # Scout's transcripts also have messages, and more: `inspect`
_NO_TIME = "rows have no times by themselves: give --created-at field:NAME, or a time for all"
# ShareGPT's roles.
_ROLES = {"gpt": "assistant", "function_call": "assistant", "observation": "tool"}


def _check(names: Collection[str]) -> None:
    if _SCOUT in names or not any(name in names for name in _MESSAGES):
        it = f"Scout's {_SCOUT}" if _SCOUT in names else f"no column {_MESSAGES[0]}"
        raise UnreadableError(Fault(MISSING_COLUMN, f"it has {it}"))


def _record(row: Json, line: int | None = None) -> SourceRecord:
    _check(row.keys())
    if line is None:  # in Parquet each struct has the keys of all others
        row = {name: plain(value) for name, value in row.items()}
    kept = {name: value for name, value in row.items() if name != _UNREAD and value is not None}
    content = bounds.dump(_conversation(kept))
    # Rows may share an id: attempts at one task do.
    id_, digest = _id(kept), blake2b(content, digest_size=12).hexdigest()
    return SourceRecord(f"{id_}/{digest}" if id_ else digest, kept, line)


def _conversation(row: Json) -> object:
    """Return the conversation of a row, or its JSON."""
    return next((JsonText.of(name, row[name]) for name in _MESSAGES if row.get(name)), None)


def _id(row: Json) -> str:
    return next(filter(None, (id_text(row.get(name)) for name in _IDS)), "")


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> TraceDraft | Refused:
    """See `Format`."""
    id_, row = f"kp:trace:{trace}", records[-1].payload
    if rules.created_at in ("start", "end"):
        return Refused(["bad_created_at"], _NO_TIME, id=id_)
    fields = dict(texts({name: row[name] for name in row if name not in (*_MESSAGES, "tools")}))
    transcript = Transcript(recovery=rules.recovers)
    transcript.add_conversation(_messages(row))
    return TraceDraft(
        id=id_,
        created_at=None,
        objective=at_path(row, rules.objective) or transcript.objective,
        steps=transcript.steps,
        scores={x.name: x.value for x in scores_of((x, value_at(row, x), None) for x in fields)},
        fields=fields,
        origin=Origin(
            agent=first_text([row], "agent", "agent_name", "harness"),
            model=first_text([row], "model", "model_name"),
            session=first_text([row], "session_id", "conversation_id"),
        ),
        framework=first_text([row], "harness", "framework"),
        native=Native(root=_id(row) or None),
        system=transcript.system,
        tools=tools_text(row.get("tools")),
    )


def _messages(row: Json) -> list[Message]:
    items = (_usual(as_object(parse_json(item))) for item in list_in(_conversation(row)))
    messages = (message_of(unwrapped(item)) for item in items)
    return with_reasoning(message for message in messages if message)


def _unknown(row: Json) -> Iterator[Skipped]:
    for message in map(as_object, map(parse_json, list_in(_conversation(row)))):
        role = message.get("role", message.get("from"))
        if role is not None and str(role).lower() not in (*ROLES, *_ROLES):
            yield of_unknown_kind("message", role)


def _usual(message: Json) -> Json:
    """Return a message in OpenAI's current shape."""
    if "from" in message and "role" not in message:
        said, speaker = message.get("value"), message["from"]
        call = {"function_call": parse_json(said)} if speaker == "function_call" else {}
        text = None if call else said
        message = {"role": _ROLES.get(str(speaker), speaker), "content": text, **call}
    usual = {"content": None, **message}
    if called := as_object(message.get("function_call")):
        usual["tool_calls"] = [{"function": called}]
    if thinking := message.get("thinking"):
        usual["reasoning_content"] = thinking
    return usual


_ROWS = RowMap(
    record=_record,
    trace=_IDS,
    at_once=64,  # each has a whole conversation
    is_read=lambda name: name != _UNREAD,
)
FORMAT = Format(
    name="messages",
    contents="columns of numbers as scores; columns of text as fields; no time: name one",
    inputs=by_ending(".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"),
    records=_ROWS.records,
    draft=draft,
    source="document",
    unknown=_unknown,
    has_times=False,
)
