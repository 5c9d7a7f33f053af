"""Langfuse: exports to a blob storage, new and old, and downloads from its page.

A record is a row. Left out are columns that no trace needs, such as costs and usage, and the
metadata of inner observations, which is long, unless it contains what other columns lack.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import cast

from kp_batch.bounds import loads
from kp_batch.conversion.conversation import spans
from kp_batch.conversion.conversation.attributes import (
    Score,
    agent_name,
    first_text,
    scores_of,
    texts,
)
from kp_batch.conversion.conversation.messages import (
    Json,
    JsonText,
    Message,
    ToolCall,
    ToolResult,
    list_in,
    object_in,
    parse_json,
)
from kp_batch.conversion.conversation.payloads import asked_in, messages_in, messages_of
from kp_batch.conversion.formats.json_files import is_empty, read_json
from kp_batch.conversion.formats.rows import RowMap
from kp_batch.conversion.model import (
    Drafted,
    Format,
    Input,
    Origin,
    Probe,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    lenient_probe,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.text import sortable

_TABLES = ("observations_v2", "observations", "scores", "traces")
_READ = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
_NOT_READ = (".csv", ".csv.gz")
_FIRST_MANIFESTS = "2026-07"  # earlier runs have no manifest
_UNFINISHED = Refused(["unfinished_run"], "no manifest names it yet: its run is not complete")
_MISSING = Refused(["unreadable_file"], "a manifest names it, but it is missing")
_CSV = Refused(["unreadable_file"], "CSV is not read; export Parquet or JSONL")
_DESCRIBED = ("TOOL", "RETRIEVER", "AGENT")  # by their metadata
_KINDS = (
    *("SPAN", "EVENT", "GENERATION", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR"),
    *("EMBEDDING", "GUARDRAIL"),
)
_OF_LANGSMITH = "it holds runs of LangSmith"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TEXT_FIELDS = ("trace_name", "environment", "release", "version", "user_id", "session_id")
# Where instrumentations have the call of a tool's span, and the agent of any span.
_CALL_IDS = ("tool_call_id", "gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id")
_AGENT_NAMES = ("gen_ai.agent.name", "agent.name")
_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")
# Where they have the input and the output, if Langfuse did not take them from there.
_MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages")
_PAYLOADS = ("input", "output")
_UNSET: Sequence[object] = (None, "")
_IN_ATTRIBUTES: Mapping[object, tuple[str, str]] = {
    "GENERATION": _MESSAGES,
    "AGENT": _MESSAGES,
    "TOOL": ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
}


# The columns that count; rows of older tables, or of a download, lack some.
_DESCRIBING = (
    *("id", "updated_at", "input", "trace_name", "tags", "environment", "release", "version"),
    *("user_id", "session_id", "metadata"),
)
_COLUMNS = {
    "trace": (*_DESCRIBING, "timestamp"),
    "observation": (
        *(*_DESCRIBING, "parent_observation_id", "is_root_observation", "type", "name"),
        *("start_time", "end_time", "level", "output", "provided_model_name", "model"),
        *("tool_calls", "tool_call_names", "tool_definitions"),
    ),
    "score": (
        *("id", "updated_at", "timestamp", "name", "observation_id", "data_type", "value"),
        "string_value",
    ),
}


def probe(path: str, content: bytes) -> list[str] | None:
    """Return the files that a manifest names; None if it is damaged. See `Format`."""
    try:
        keys: list[str] = [file["key"] for file in loads(content)["files"]]
        # They may begin with a prefix that the paths here lack.
        return ["/".join([_folder(path), *key.split("/")[-2:]]) for key in keys]
    except Exception:  # noqa: BLE001 (it may have any value)
        return None


def inputs(paths: Sequence[str], probe_file: Probe) -> Iterator[Input]:
    """Choose the files of exports that count; see `Format`.

    An export is a folder with a folder of each table. A run of it writes a file for each table, and
    last its manifest, which names them. A file of a run without a manifest may be cut.
    """
    probe_file = lenient_probe(probe_file, probe)
    named, first_runs = set[str](), dict[str, str]()  # files; first runs with a manifest, by folder
    manifests = {
        path for path in paths if _table(path) == "manifests" and path.lower().endswith(".json")
    }
    for path in sorted(manifests):
        folder, run, files = _folder(path), _run(path), probe_file(path)
        first_runs[folder] = min(run, first_runs.get(folder, run))
        named.update(files or ())
        if files is None:
            yield Input(path, refused=Refused(["unreadable_file"], "it is not a manifest"))
    for path in paths:
        if path not in manifests and path.lower().endswith(_READ + _NOT_READ):
            is_named = path in named
            yield Input(
                path, refused=_fault(path, first_runs.get(_folder(path)), is_named=is_named)
            )
    yield from (Input(path, refused=_MISSING) for path in sorted(named.difference(paths)))


def _fault(path: str, first_run: str | None, *, is_named: bool) -> Refused | None:
    """Return why a file does not count; files of runs from before manifests do."""
    is_unnamed = _table(path) in _TABLES and not is_named
    if first_run is not None and is_unnamed and _run(path) >= min(first_run, _FIRST_MANIFESTS):
        return _UNFINISHED
    return _CSV if path.lower().endswith(_NOT_READ) else None


def _folder(path: str) -> str:
    """Return the folder of the export."""
    return "/".join(path.split("/")[:-2])


def _table(path: str) -> str:
    return "".join(path.split("/")[-2:-1])


def _run(path: str) -> str:
    """Return the time in the names of a run's files, as text that sorts by time."""
    return path.rpartition("/")[2].partition(".")[0]


def records(path: Path, _: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: a row of any table is a record; its columns show the table."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".json"):
        yield from _of_json(read_json(path))
    elif name.endswith(".parquet") or not is_empty(path):  # a window without rows is empty
        yield from _ROWS.records(path)


def _of_json(content: object) -> Iterator[ReadItem]:
    """Read a list of a table's rows, or of traces as the page and the API write them."""
    for item in cast("list[object]", content) if isinstance(content, list) else [content]:
        if not isinstance(item, dict):
            raise UnreadableError("it holds neither rows of a Langfuse export nor a trace")
        row = cast("Json", item)
        if isinstance(row.get("observations"), list):
            yield from _of_page(row)
        else:
            yield _record(row)


def _of_page(page: Json) -> Iterator[ReadItem]:
    trace: Json = page["trace"] if isinstance(page.get("trace"), dict) else page
    # The page encodes a trace's input as JSON again; an observation's is unchanged.
    yield _record({**trace, "input": parse_json(trace.get("input"))})
    for row in [*page["observations"], *(trace.get("scores") or page.get("scores") or ())]:
        yield _record({"traceId": trace.get("id"), **row})


def _record(columns: Json, line: int | None = None) -> SourceRecord | Refused | Skipped:
    row = {_HUMP.sub("_", name).lower(): value for name, value in columns.items()}
    kind = _kind(row)
    if kind == "trace":  # named as in the rows of other tables
        row |= {"trace_id": row.get("id"), "trace_name": row.get("name")}
    trace = row.get("trace_id")
    if kind == "score" and not trace:
        return Skipped("score of no trace")  # but of a session, or of a run over a data set
    if not row.get("id") or not trace:
        return Refused(["missing_id"], "a row without its id, or without its trace's id", line=line)
    record = {name: _plain(row[name]) for name in _COLUMNS[kind] if name in row}
    if row.get("parent_observation_id") and not _is_described(row):
        record.pop("metadata", None)  # long, and unused
    return SourceRecord(str(trace), {**record, "kind": kind, "id": str(row["id"])}, line)


def _is_described(row: Json) -> bool:
    """Whether a row's metadata may contain what the row lacks."""
    return row.get("type") in (_DESCRIBED if _has_payloads(row) else (*_DESCRIBED, *_IN_ATTRIBUTES))


def _has_payloads(row: Json) -> bool:
    return all(row.get(name) not in _UNSET for name in _PAYLOADS)


def _kind(row: Json) -> str:
    if "run_type" in row:
        raise UnreadableError(_OF_LANGSMITH)
    if "trace_id" in row and "start_time" in row:
        return "observation"
    if "trace_id" in row and "value" in row:
        return "score"
    # Lines of other systems' sessions have a type.
    if "id" in row and "timestamp" in row and row.keys().isdisjoint(("trace_id", "type")):
        return "trace"
    raise UnreadableError("it holds no observations, scores or traces of Langfuse")


def _unknown(row: Json) -> Iterator[Skipped]:
    kind = row.get("type")
    if row["kind"] == "observation" and kind not in (*_KINDS, *_UNSET):
        yield of_unknown_kind("observation", kind)


def _plain(value: object) -> object:
    """Return JSON of a value from Parquet."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    return value


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Drafted:
    """See `Format`."""
    rows = [record.payload for record in records]
    traces, observations, scores = (
        spans.latest((row for row in rows if row["kind"] == kind), _updated) for kind in _COLUMNS
    )
    if not traces and not observations:
        return Skipped("scores of a trace that is not there")
    if not observations:
        return Refused(["incomplete"], "it has no observations yet", id=f"kp:trace:{trace}")
    rooted = spans.rooted(observations, "parent_observation_id", _is_root, rules)
    tree = [_span(observation) for observation in rooted]
    roots = [span for span in tree if not span.parent]
    tree += [_span_of_trace(row, roots) for row in traces]
    return spans.draft(trace, tree, rules, _scores(scores, {"", *(root.id for root in roots)}))


def _updated(row: Json) -> tuple[str, bool]:
    """Sort key of rows with one id, since windows of exports overlap: the last updated counts."""
    return sortable(row.get("updated_at")), _has_ended(row)


def _has_ended(row: Json) -> bool:
    return row.get("end_time", "") is not None


def _is_root(row: Json) -> bool:
    return not row.get("parent_observation_id") or row.get("is_root_observation") is True


def _span(row: Json) -> spans.Span:
    is_root, row = _is_root(row), _in_json(_completed(row))
    return spans.Span(
        id=row["id"],
        parent="" if is_root else str(row.get("parent_observation_id")),
        start=spans.nanoseconds(row.get("start_time")),
        end=spans.nanoseconds(row.get("end_time")),
        has_ended=_has_ended(row) or row.get("type") == "EVENT",
        content=_content_of(row),
        input=row.get("input"),
        attributes=_attributes(row, with_metadata=is_root or row.get("type") == "AGENT"),
        fields=_fields(row, with_metadata=is_root),
        origin=_origin(row, row.get("provided_model_name") or row.get("model")),
        release=row.get("release") or None,
    )


def _span_of_trace(row: Json, roots: Sequence[spans.Span]) -> spans.Span:
    """Return the span around the roots; its own time may be later than that of the first root."""
    starts = [spans.nanoseconds(row.get("timestamp")), *(root.start for root in roots)]
    start = min((start for start in starts if start is not None), default=None)
    return replace(_span(row), id="", start=start)


def _content_of(row: Json) -> spans.SpanContent | None:
    kind = row.get("type")
    if kind == "GENERATION":
        return spans.ModelCall(messages_in(row.get("input")), _answer(row))
    if kind in ("TOOL", "RETRIEVER"):
        return _tool_run(row)
    if kind == "AGENT":
        name = agent_name(str(row.get("name") or ""))
        return spans.AgentRun(asked_in(row.get("input")), _output(row), name)
    return None


def _completed(row: Json) -> Json:
    """Return a row with the input and output that only its attributes contain."""
    attributes = _IN_ATTRIBUTES.get(str(row.get("type")))
    if _has_payloads(row) or not attributes:
        return row
    names = zip(_PAYLOADS, attributes, strict=True)
    found = {name: _metadata_text(row, [attribute]) for name, attribute in names}
    return {**row, **{name: text for name, text in found.items() if row.get(name) in _UNSET}}


def _in_json(row: Json) -> Json:
    """Parse a row's texts that begin as JSON, except for what a tool returned."""
    names = ("input",) if row.get("type") in ("TOOL", "RETRIEVER") else _PAYLOADS
    texts = {name: JsonText.of(name, row[name], or_text=True) for name in names if name in row}
    return {**row, **texts}


def _output(row: Json) -> list[Message]:
    output = row.get("output")
    return [] if output in (None, "") else messages_of(output)


def _answer(row: Json) -> list[Message]:
    """Return the messages of a model's output, and the calls in their own columns."""
    answer = _output(row)
    if any(message.calls for message in answer):
        return answer
    return [*answer, Message("assistant", calls=tuple(_calls(row)))]


def _calls(row: Json) -> Iterator[ToolCall]:
    """Yield the calls in their column; another column has their names at the same places."""
    names = list_in(row.get("tool_call_names"))
    calls = list_in(JsonText.of("tool_calls", row.get("tool_calls")))
    for place, call in enumerate(map(object_in, calls)):
        function: Json = call["function"] if isinstance(call.get("function"), dict) else call
        name = names[place] if place < len(names) else function.get("name")
        yield ToolCall(str(name or ""), function.get("arguments"), str(call.get("id") or ""))


def _tool_run(row: Json) -> spans.ToolRun:
    name = str(_metadata_text(row, _TOOL_NAMES) or row.get("name") or "")
    call_id = _metadata_text(row, _CALL_IDS) or ""
    # In Langfuse, '' means unset.
    arguments, output = (None if x == "" else x for x in (row.get("input"), row.get("output")))
    return spans.ToolRun(
        ToolCall(name.removeprefix("execute_tool "), arguments, call_id),
        ToolResult(output, call_id, row.get("level") == "ERROR"),
        is_retriever=row["type"] == "RETRIEVER",
    )


def _fields(row: Json, *, with_metadata: bool) -> dict[str, list[str]]:
    names = {name: [str(value)] for name in _TEXT_FIELDS if (value := row.get(name))}
    tags = row.get("tags")
    tags = {} if tags is None else {"tags": [*map(str, list_in(tags))]}
    metadata = texts({"metadata": _metadata(row)}) if with_metadata else ()
    return names | tags | dict(metadata)


def _origin(row: Json, model: object = None) -> Origin:
    agent = _metadata_text(row, _AGENT_NAMES)
    values = (agent, model, row.get("session_id"), row.get("version"))
    return Origin(*(str(value) if value else None for value in values))


def _metadata(row: Json) -> Json:
    return _map_in(parse_json(JsonText.of("metadata", row.get("metadata"), or_text=True)))


def _map_in(value: object) -> Json:
    """Return a map; Parquet's are pairs with values in JSON."""
    if isinstance(value, dict):
        return cast("Json", value)
    pairs = [pair for pair in list_in(value) if isinstance(pair, list) and len(pair) == 2]
    return {str(key): parse_json(item) for key, item in cast("list[list[object]]", pairs)}


def _attributes(row: Json, *, with_metadata: bool) -> Json:
    """Return what a row has besides its input: its tools, by name, and attributes."""
    if defined := _map_in(row.get("tool_definitions")):
        return {"tools": [{"name": name, **object_in(defined[name])} for name in defined]}
    return object_in(_metadata(row).get("attributes")) if with_metadata else {}


def _metadata_text(row: Json, names: Sequence[str]) -> str | None:
    """Return the text that metadata has under one of these names, or as an attribute."""
    metadata = _metadata(row)
    holders = (metadata, object_in(metadata.get("attributes")))
    return first_text(holders, *names, *(f"attributes.{name}" for name in names))


def _scores(rows: Sequence[Json], roots: set[str]) -> list[Score]:
    """Return the scores of the trace and its roots."""
    ordered = sorted(rows, key=_updated)
    counted = (row for row in ordered if str(row.get("observation_id") or "") in roots)
    return scores_of(
        (x.get("name"), _number(x), spans.nanoseconds(x.get("timestamp"))) for x in counted
    )


def _number(row: Json) -> object:
    """Return a score's value; for a text or a category, it is only a place in a list."""
    kind, value = row.get("data_type"), row.get("value")
    if kind not in (None, "", "NUMERIC", "BOOLEAN"):
        return None
    if value is None and kind == "BOOLEAN":
        return {"true": 1.0, "false": 0.0}.get(str(row.get("string_value")).lower())
    return value


_ROWS = RowMap(
    record=_record,
    trace=["trace_id", "id"],
    at_once=256,
    is_read={"trace_id", "run_type", *chain(*_COLUMNS.values())}.__contains__,
)
FORMAT = Format(
    name="langfuse",
    contents="scores by their names, of the trace or its root; tags, trace_name, metadata.KEY",
    inputs=inputs,
    probe=probe,
    records=records,
    draft=draft,
    has_spans=True,
    unknown=_unknown,
)
