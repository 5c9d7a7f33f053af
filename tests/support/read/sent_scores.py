"""How each system reads a score, and by what it knows one again, as its own sources state."""

import json
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from jsonschema import Draft202012Validator, FormatChecker
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from kp_batch.config import RescoreConfig
from kp_batch.exports.export import ExportResult, export_to
from kp_batch.exports.export_options import ExportOptions

Row = dict[str, Any]
NAME = "kp_batch.score"
TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "number"}
UUID = {"type": "string", "format": "uuid"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}
ORIGIN = ("scoring_id", "encoder_id", "cache_id", "profile_id", "run_id")


def of(**fields: Any) -> Row:
    """The schema of an object that has these fields, and no other."""
    names = [*fields]
    both = {"type": "object", "additionalProperties": False}
    return {**both, "required": names, "properties": fields}


METADATA = of(**dict.fromkeys(ORIGIN, TEXT))
# `CreateScoreRequest` of langfuse 5.0.4: an item of the list that POST /api/public/scores takes.
LANGFUSE = of(
    id=TEXT,
    traceId=TEXT,
    name={"const": NAME},
    value=NUMBER,
    dataType={"enum": ["NUMERIC", "CATEGORICAL", "BOOLEAN", "TEXT", "CORRECTION"]},
    timestamp=TIME,
    metadata=METADATA,
)
# `FeedbackCreate` of langsmith 0.15.1; at most four digits, or the API refuses it.
LANGSMITH = of(
    id=UUID,
    run_id=UUID,
    trace_id=UUID,
    key={"const": NAME},
    score={"type": "number", "multipleOf": 0.0001},
    comment={"type": "string", "pattern": "^scoring_id [0-9a-f]{16}, run .+$"},
    created_at=TIME,
    feedback_source=of(type={"enum": ["api", "model"]}, metadata=METADATA),
)
# `SpanAnnotationData` of Phoenix's server: an item of `data` of POST /v1/span_annotations.
PHOENIX = of(
    span_id={"type": "string", "pattern": "^[0-9a-f]{16}$"},
    name={"const": NAME},
    annotator_kind={"enum": ["LLM", "CODE", "HUMAN"]},
    result=of(score=NUMBER),
    metadata=METADATA,
    identifier=TEXT,
)
# The arguments of `edit_score`, and `ScoreEdit`, of inspect_ai 0.3.285.
INSPECT = of(
    log=TEXT,
    sample_id=TEXT,
    epoch={"type": "integer"},
    score_name={"const": NAME},
    edit=of(value=NUMBER, metadata=METADATA, provenance=of(author=TEXT, reason=TEXT)),
)


def _checked(schema: Row) -> Callable[[Row], Row]:
    reader = Draft202012Validator(schema, format_checker=FormatChecker())

    def read(line: Row) -> Row:
        reader.validate(line)
        return line

    return read


def read_otlp(line: Row) -> Row:
    """The one record of a request, as OpenTelemetry's own schema reads it."""
    request = ParseDict(_in_base64(line), ExportLogsServiceRequest())
    [resource] = request.resource_logs
    [scope] = resource.scope_logs
    [record] = scope.log_records
    values = {x.key: x.value for x in record.attributes}
    assert len(values) == len(record.attributes)
    number = values.pop("gen_ai.evaluation.score.value")
    assert number.WhichOneof("value") == "double_value"
    assert (len(record.trace_id), len(record.span_id)) == (16, 8)
    return {
        "event": record.event_name,
        "time": record.time_unix_nano,
        "trace": record.trace_id.hex(),
        "span": record.span_id.hex(),
        "score": number.double_value,
        **{name: value.string_value for name, value in values.items()},
    }


def _in_base64(value: Any) -> Any:
    """As protobuf's own JSON has ids, which are in hex in that of OTLP."""
    if isinstance(value, list):
        return [*map(_in_base64, value)]
    if not isinstance(value, dict):
        return value
    ids = {x: b64encode(bytes.fromhex(value[x])).decode() for x in _IDS if x in value}
    return {**{name: _in_base64(inner) for name, inner in value.items()}, **ids}


_IDS = ("traceId", "spanId")


@dataclass(frozen=True)
class System:
    """A system that scores are sent to.

    Attributes:
        read: reads a line strictly, and returns it, or its record.
        key: of what was read; a score with the key of another one replaces it.
        score: of what was read.
        origin: likewise, what computed it.
        id: likewise, by which a score is deleted.
    """

    read: Callable[[Row], Row]
    key: Callable[[Row], Hashable]
    score: Callable[[Row], float]
    origin: Callable[[Row], Row]
    id: Callable[[Row], str]


SYSTEMS: Mapping[str, System] = {
    "langfuse": System(
        _checked(LANGFUSE),
        lambda x: (x["id"], x["name"], x["timestamp"][:10]),
        lambda x: x["value"],
        lambda x: x["metadata"],
        lambda x: x["id"],
    ),
    "langsmith": System(
        _checked(LANGSMITH),
        lambda x: x["id"],
        lambda x: x["score"],
        lambda x: x["feedback_source"]["metadata"],
        lambda x: x["id"],
    ),
    "phoenix": System(
        _checked(PHOENIX),
        lambda x: (x["name"], x["span_id"], x["identifier"]),
        lambda x: x["result"]["score"],
        lambda x: x["metadata"],
        lambda x: x["identifier"],
    ),
    "inspect": System(
        _checked(INSPECT),
        lambda x: (x["log"], x["sample_id"], x["epoch"], x["score_name"]),
        lambda x: x["edit"]["value"],
        lambda x: x["edit"]["metadata"],
        lambda x: x["log"],
    ),
    "otel": System(
        read_otlp,
        lambda x: x["log.record.uid"],
        lambda x: x["score"],
        lambda x: {name: x[f"kp_batch.{name}"] for name in ORIGIN},
        lambda x: x["log.record.uid"],
    ),
}


@dataclass
class Double:
    """A system that keeps what is uploaded by its rule."""

    system: System
    kept: dict[Hashable, Row] = field(default_factory=dict[Hashable, Row])

    def upload(self, lines: Iterable[Row]) -> None:
        for line in lines:
            read = self.system.read(line)
            self.kept[self.system.key(read)] = read


def sent(run: RescoreConfig, form: str, folder: Path, **choice: Any) -> tuple[ExportResult, Any]:
    """An export of a format, and its lines."""
    path = folder / f"{form}.jsonl"
    options = ExportOptions.model_validate({"format": form, **choice})
    result = export_to(run.warehouse, options, path)
    return result, [json.loads(line) for line in path.read_bytes().splitlines()]
