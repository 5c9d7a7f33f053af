"""MLflow's traces: files of its artifacts and archives, and traces as JSON.

A record is a span, as in `otlp`, or a trace's other data: its assessments, tags and metadata. Left
out are previews, which repeat the spans, and everything about where MLflow stores it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kp_batch.conversion.conversation.attributes import (
    Event,
    OtelSpan,
    Score,
    first_text,
    scores_of,
    texts,
)
from kp_batch.conversion.conversation.messages import Json, as_object, list_in, object_in
from kp_batch.conversion.conversation.spans import nanoseconds
from kp_batch.conversion.dialects.mlflow import parsed
from kp_batch.conversion.formats.json_files import read_json_values
from kp_batch.conversion.formats.otlp import draft as draft_of_spans
from kp_batch.conversion.formats.otlp import records as records_of_otlp
from kp_batch.conversion.formats.otlp import unknown
from kp_batch.conversion.formats.otlp_values import FAULTS, id_of, record_of, time_of
from kp_batch.conversion.model import (
    Drafted,
    Format,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    TraceDraft,
    by_ending,
)
from kp_batch.conversion.rules import Rules

ARCHIVED = "artifacts/traces.pb"  # in OTLP
_JSON = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_INFO = ("assessments", "tags", "trace_metadata", "request_metadata")  # the last one up to 2
_ERROR = ("STATUS_CODE_ERROR", "ERROR")  # the latter in 3.5, and up to 2
_RATINGS: Mapping[object, float] = {"yes": 1.0, "no": 0.0}  # the answers of MLflow's judges
_SCORER = "mlflow.trace.sourceScorer"  # marks what a judge does to other traces
_MALFORMED = "malformed_json"


def records(path: Path, sidecars: Sequence[Path]) -> Iterator[ReadItem]:
    """See `Format`: each span is a record, and so is the trace's other data."""
    if path.suffix == ".pb":
        yield from records_of_otlp(path, sidecars)
        return
    for item in read_json_values(path):
        if isinstance(item, Refused):
            yield item
            continue
        line, value = item
        trace = object_in(value.get("trace")) or value  # in a row of `search_traces`
        spans = object_in(trace.get("data") or trace).get("spans")
        if isinstance(spans, list):
            yield from _of_trace(object_in(trace.get("info")), spans, line)
        else:
            yield Refused([_MALFORMED], "it is not a trace of MLflow: it has no spans", line=line)


def _of_trace(info: Json, spans: Sequence[object], line: int | None) -> Iterator[ReadItem]:
    """Yield the records of a trace; up to 2, its id differs from its spans' id, which counts."""
    trace = _id(str(info.get("trace_id") or "").rpartition("/")[2], 16)
    for span in spans:
        item = _record(as_object(span), line)
        trace = item.trace if isinstance(item, SourceRecord) else trace
        yield item
    if trace and info:
        yield SourceRecord(trace, {"info": {x: info[x] for x in _INFO if x in info}}, line)
    elif not spans:
        yield Skipped("trace without a span")


def _record(span: Json, line: int | None) -> SourceRecord | Refused:
    ids = span.get("context", span)  # the former up to 2, like the second names below
    try:
        own = _otel_span(span, _id(ids.get("span_id"), 8))
        return record_of(_id(ids.get("trace_id"), 16), own, line)
    except FAULTS as error:
        return Refused([_MALFORMED], f"it is not a span: {error}", line=line)


def _otel_span(span: Json, id_: str) -> OtelSpan:
    status = as_object(span.get("status")).get("code")
    return OtelSpan(
        id=id_,
        parent=_id(span.get("parent_span_id", span.get("parent_id")), 8),
        name=str(span.get("name") or ""),
        start=time_of(span.get("start_time_unix_nano", span.get("start_time"))),
        end=time_of(span.get("end_time_unix_nano", span.get("end_time"))),
        failed=span.get("status_code", status) in _ERROR,
        attributes=parsed(span.get("attributes") or {}),
        resource={},
        events=[*map(_event, span.get("events") or ())],
    )


def _event(event: Json) -> Event:
    time = time_of(event.get("time_unix_nano", event.get("timestamp"))) or 0
    return Event(str(event.get("name") or ""), time, as_object(event.get("attributes")))


def _id(value: object, size: int) -> str:
    """Return an id in hex; it may be hex with a prefix, or base64."""
    text = value if isinstance(value, str) else ""
    return id_of(text.removeprefix("tr-").removeprefix("0x"), size)


def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Drafted:
    """See `Format`; the records are `OtelSpan`s, and the trace's other data."""
    infos = [record.payload["info"] for record in records if "info" in record.payload]
    own = [record for record in records if "info" not in record.payload]
    made = draft_of_spans(trace, [*_of_bare_names(own)], rules)
    if not infos or not isinstance(made, TraceDraft):
        return made
    tags = as_object(infos[-1].get("tags"))
    if _SCORER in tags:
        return Skipped("trace of a scorer")
    metadata = as_object(infos[-1].get("trace_metadata", infos[-1].get("request_metadata")))
    scores = sorted(_scores(infos, made.native.root), key=lambda score: score.time)
    session = first_text([metadata], "mlflow.trace.session")
    return replace(
        made,
        scores={**made.scores, **{score.name: score.value for score in scores}},
        fields={
            **made.fields,
            **dict(texts(tags, "tags.")),
            **dict(texts(metadata, "metadata.")),
        },
        origin=replace(made.origin, session=session or made.origin.session),
    )


def _of_bare_names(records: Sequence[SourceRecord]) -> Iterator[SourceRecord]:
    """Yield the records of spans, without the numbers by which 3.5 distinguishes equal names."""
    numbers = defaultdict[str, set[str]](set)
    for record in records:
        if "mlflow.spanLogLevel" not in record.payload["attributes"]:  # later versions have it
            name, _, number = record.payload["name"].rpartition("_")
            numbers[name].add(number)
    counted = {x for x, own in numbers.items() if len(own) > 1 and own == _counted_to(len(own))}
    for record in records:
        name = record.payload["name"].rpartition("_")[0]
        is_one = name in counted
        yield replace(record, payload={**record.payload, "name": name}) if is_one else record


def _counted_to(last: int) -> set[str]:
    return {str(number) for number in range(1, last + 1)}


def _scores(infos: Sequence[Json], root: str | None) -> list[Score]:
    """Return the feedback on a trace, or on its root, that nothing overrides."""
    assessments = [as_object(each) for info in infos for each in list_in(info.get("assessments"))]
    return scores_of(
        (each.get("assessment_name"), _score(each), nanoseconds(each.get("last_update_time")))
        for each in assessments
        if each.get("valid") is not False and _id(each.get("span_id"), 8) in ("", root)
    )


def _score(assessment: Json) -> object:
    value = as_object(assessment.get("feedback")).get("value")
    return _RATINGS.get(value, value) if isinstance(value, str) else value


FORMAT = Format(
    name="mlflow",
    contents="feedback by name (yes is 1); tags.KEY, metadata.KEY",
    inputs=by_ending(*_JSON, ARCHIVED),
    records=records,
    draft=draft,
    has_spans=True,
    unknown=unknown,
)
