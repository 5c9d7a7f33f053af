"""LangSmith's runs: the bulk export's Parquet, or JSON lines.

A record is a run. Left out are columns that no trace needs, such as costs and events, the text of
an error, and most of `extra`, which is long: the model, its tools and the root's metadata are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from kp_batch.bounds import TooLargeError
from kp_batch.conversion.conversation import spans
from kp_batch.conversion.conversation.attributes import (
    FlatAttributes,
    OtelSpan,
    Score,
    first_text,
    is_pause,
    scores_of,
    texts,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    CutContentError,
    Json,
    JsonText,
    object_in,
)
from kp_batch.conversion.dialects.langsmith import DIALECT, INPUTS, KIND, KINDS, OUTPUTS
from kp_batch.conversion.formats.rows import RowMap
from kp_batch.conversion.model import (
    Drafted,
    Format,
    Origin,
    Refused,
    Skipped,
    SourceRecord,
    by_ending,
    of_unknown_kind,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import UnreadableError
from kp_batch.text import sortable

_MODELS = ("metadata.ls_model_name", "invocation_params.model", "invocation_params.model_name")
_NAMES = ("name", "session_id", "session_name")


# The fields of the bulk export and of the API that count.
_TEXTS = (
    *("id", "trace_id", "run_type", "parent_run_id", "name", "status", "start_time", "end_time"),
    *("dotted_order", "session_id", "session_name"),
)
_OTHERS = ("inputs", "outputs", "error", "feedback_stats", "tags", "extra")
_PAYLOADS = ("inputs", "outputs", "extra", "feedback_stats")


def _record(row: Json, line: int | None = None) -> SourceRecord | Refused:
    trace = row.get("trace_id")
    if not row.get("id") or not trace:
        return Refused(["missing_id"], "a run without its id, or without its trace's id", line=line)
    if "run_type" not in row:
        raise UnreadableError("not a run of LangSmith: it has no run_type")
    record: dict[str, object] = {name: _text(row[name]) for name in _TEXTS if name in row}
    record |= {name: row[name] for name in _OTHERS if name in row}
    try:
        record |= {"error": bool(row.get("error")), "extra": _extra(row)}
        if is_pause(row.get("error")):  # its status is also an error
            record |= {"error": False, "status": "interrupted"}
    except TooLargeError:
        return SourceRecord(str(trace), None, line)
    return SourceRecord(str(trace), record, line)


def _text(value: object) -> str | None:
    return (str(value) or None) if isinstance(value, str | UUID) else None


def _extra(row: Json) -> object:
    """Return what counts of a run's extra, which is long; all of it if it breaks off."""
    is_root, extra = not row.get("parent_run_id"), JsonText.of("extra", row.get("extra"))
    try:
        extra = object_in(extra) if is_root or row["run_type"] == "llm" else {}
    except CutContentError:
        return extra
    metadata = object_in(extra.get("metadata")) if is_root else {}
    tools = value_at(extra, "invocation_params.tools")
    values = {"model": first_text([extra], *_MODELS), "metadata": metadata, "tools": tools}
    return {name: value for name, value in values.items() if value}


def _unknown(run: Json) -> Iterator[Skipped]:
    if run["run_type"] not in (*KINDS, None):
        yield of_unknown_kind("run", run["run_type"])


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Drafted:
    """See `Format`."""
    runs = spans.latest((record.payload for record in records), _age)
    rooted = spans.rooted(runs, "parent_run_id", _is_root, rules)
    return spans.draft(trace, map(_span, rooted), rules)


def _age(run: Json) -> tuple[bool, str, int]:
    """Sort key of exports of a run: later ones have the end, and more feedback."""
    counts = (n for stats in _feedback(run).values() if isinstance(n := stats.get("n"), int))
    return not _is_pending(run), sortable(run.get("end_time")), sum(counts)


def _is_pending(run: Json) -> bool:
    status = run.get("status")
    return status == "pending" if status else run.get("end_time", "") is None


def _is_root(run: Json) -> bool:
    return run["id"] == run["trace_id"] or not run.get("parent_run_id", "unknown")


def _span(run: Json) -> spans.Span:
    is_root = _is_root(run)
    run = {**run, **{name: JsonText.of(name, run[name]) for name in _PAYLOADS if name in run}}
    run["extra"] = object_in(run["extra"])
    metadata = [run["extra"].get("metadata")]
    return spans.Span(
        id=run["id"],
        parent="" if is_root else run.get("parent_run_id") or None,
        start=spans.nanoseconds(run.get("start_time")),
        end=spans.nanoseconds(run.get("end_time")),
        has_ended=not _is_pending(run),
        content=DIALECT.content(_otel_span(run)),
        input=run.get("inputs"),
        attributes=run["extra"],
        # Its own time in the dotted order, which counts runs that start at once.
        sequence=(run.get("dotted_order") or "").rpartition(".")[2].partition("Z")[0],
        scores=_scores(run) if is_root else (),
        fields=_fields(run) if is_root else {},
        origin=Origin(
            agent=first_text(metadata, "lc_agent_name", "agent_name"),
            model=run["extra"].get("model"),
            session=first_text(metadata, "session_id", "thread_id", "conversation_id"),
            version=first_text(metadata, "version", "revision_id"),
        ),
    )


def _otel_span(run: Json) -> OtelSpan:
    """Return a run as LangSmith's own exporter records it."""
    attributes = {KIND: run["run_type"], INPUTS: run.get("inputs"), OUTPUTS: run.get("outputs")}
    parent = "" if _is_root(run) else run.get("parent_run_id") or "unknown"
    failed = run.get("status") == "error" or bool(run["error"])
    name = run.get("name") or ""
    return OtelSpan(run["id"], parent, name, None, None, failed, FlatAttributes(attributes), {}, ())


def _feedback(run: Json) -> Mapping[str, Json]:
    feedback = object_in(run.get("feedback_stats"))
    return {name: stats for name, stats in feedback.items() if isinstance(stats, dict)}


def _scores(run: Json) -> list[Score]:
    return scores_of((name, stats.get("avg"), None) for name, stats in _feedback(run).items())


def _fields(run: Json) -> dict[str, list[str]]:
    tags = list(map(str, run["tags"])) if isinstance(run.get("tags"), list) else []
    names = {name: [text] for name in _NAMES if (text := run.get(name))}
    metadata = run["extra"].get("metadata", {})
    return {"tags": tags} | names | dict(texts({"metadata": metadata}))


_ROWS = RowMap(
    record=_record,
    trace=["trace_id"],
    at_once=256,
    needed=["id", "trace_id", "run_type"],
    is_read={*_TEXTS, *_OTHERS}.__contains__,
)
FORMAT = Format(
    name="langsmith",
    contents="feedback by name (its average); tags, name, session_name, metadata.KEY",
    inputs=by_ending(".parquet", ".jsonl", ".jsonl.gz"),
    records=_ROWS.records,
    draft=draft,
    has_spans=True,
    unknown=_unknown,
)
