"""A kit for each form of each format, which writes traces with times and scores as one likes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from tests.support.formats.otlp_protobuf import encoded, stream
from tests.support.imports.drafting import Conversion, converted
from tests.support.imports.importing import kp_trace

Row = dict[str, Any]
Files = dict[str, list[Row]]
_RULES = {
    "success": {"score": "right", "at_least": 0.5},
    "confidence": {"always": 0.5},
    "task_domain": {"otherwise": "default"},
}
RULES = load_rules(None, _RULES)
AT = "2026-08-03T09:00:00.000000Z"
SECONDS = 1_785_747_600
ASKED = "whither?"
_TIMES = {
    *("start_time", "end_time", "timestamp", "updated_at", "date", "created_at"),
    "first_token_time",
}


def _talk(question: str) -> list[Row]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": "so"}]


def knowledgepulse(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A bare trace."""
    made = kp_trace(name, outcome={"confidence": score}, task={"objective": question})
    made["metadata"]["created_at"] = at
    return {f"{name}.json": [made]}


def knowledgepulse_rows(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """Likewise; a row of the registry's table, as psql exports it."""
    [[trace]] = knowledgepulse(name, at, score, question).values()
    row = {"id": trace["id"], "unit_json": trace, "updated_at": AT, "quarantine_status": None}
    return {"units.jsonl": [row]}


def otlp(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """An agent's span, and a model's."""
    ask, so = _talk(question)
    judged = {"gen_ai.evaluation.name": "right", "gen_ai.evaluation.score.value": score}
    event = {"name": "gen_ai.evaluation.result", "attributes": _attributes(judged)}
    values = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([ask]),
        "gen_ai.output.messages": json.dumps([so]),
    }
    both = {"traceId": (name * 32)[:32], "startTimeUnixNano": at, "endTimeUnixNano": at}
    root = {**both, "spanId": "a" * 16, "parentSpanId": "", "attributes": [], "events": [event]}
    call = {**both, "spanId": "b" * 16, "parentSpanId": "a" * 16, "attributes": _attributes(values)}
    return {
        "spans.jsonl": [{"resourceSpans": [{"scopeSpans": [{"spans": [x]}]}]} for x in (root, call)]
    }


def _attributes(plain: Row) -> list[Row]:
    return [
        {"key": key, "value": {"stringValue" if isinstance(value, str) else "doubleValue": value}}
        for key, value in plain.items()
    ]


def otlp_protobuf(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """Likewise; the file is protobuf."""
    return {"spans.pb": otlp(name, at, score, question)["spans.jsonl"]}


def phoenix(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A model's span."""
    row: Row = {"context.trace_id": name, "context.span_id": "s", "parent_id": None}
    row |= {"start_time": at, "end_time": at, "attributes.openinference.span.kind": "LLM"}
    row |= {"attributes.input.value": question, "attributes.output.value": "so"}
    row["attributes.annotations"] = [{"annotation.name": "right", "annotation.score": score}]
    return {"spans.parquet": [{**row, "events": [{"name": "e", "timestamp": at}]}]}


def mlflow(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """An agent's span, a model's, and feedback."""
    ids = {"trace_id": (name * 32)[:32], "start_time_unix_nano": at, "end_time_unix_nano": at}
    root = {**ids, "span_id": "a" * 16, "parent_span_id": None}
    root["attributes"] = {"mlflow.spanType": '"AGENT"'}
    call = {**ids, "span_id": "b" * 16, "parent_span_id": "a" * 16}
    told = {"spanType": "LLM", "spanInputs": question, "spanOutputs": "so"}
    call["attributes"] = {f"mlflow.{x}": json.dumps(told[x]) for x in told}
    judged = {"assessment_name": "right", "feedback": {"value": score}}
    info = {"trace_id": f"tr-{ids['trace_id']}", "assessments": [judged]}
    return {"traces.jsonl": [{"info": info, "data": {"spans": [root, call]}}]}


def langfuse(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """An agent's observation, a model's, and a score."""
    seen = {"trace_id": name, "start_time": at, "end_time": at, "updated_at": at}
    root = {**seen, "id": f"{name}-root", "type": "AGENT", "parent_observation_id": ""}
    call = {**seen, "id": f"{name}-ask", "type": "GENERATION", "input": question, "output": "so"}
    call["parent_observation_id"] = f"{name}-root"
    judged = {"id": name, "trace_id": name, "timestamp": at, "name": "right", "value": score}
    return {"observations.jsonl": [root, call], "scores.jsonl": [judged]}


def langsmith(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A model's run."""
    run: Row = {"id": name, "trace_id": name, "parent_run_id": None, "run_type": "llm"}
    run |= {"start_time": at, "end_time": at, "inputs": question, "outputs": "so"}
    return {"runs.jsonl": [{**run, "feedback_stats": json.dumps({"right": {"avg": score}})}]}


def atif(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A trial of Harbor."""
    steps = [
        {"source": "user", "message": question, "timestamp": at},
        {"source": "agent", "message": "so", "timestamp": at},
    ]
    trajectory = {"schema_version": "ATIF-v1.6", "trajectory_id": name, "agent": {}, "steps": steps}
    judged = {"rewards": {"right": score}}
    result = {"trial_name": name, "started_at": at, "verifier_result": judged}
    return {f"{name}/agent/trajectory.json": [trajectory], f"{name}/result.json": [result]}


def claude_code(name: str, at: object, _score: object, question: str = ASKED) -> Files:
    """A session of one turn."""
    both = {"sessionId": f"session {name}", "timestamp": at, "cwd": "/home/me/shop"}
    ask, so = _talk(question)
    said = {**so, "id": f"message {name}", "model": "m"}
    return {
        f"{name}.jsonl": [
            {**both, "type": "user", "uuid": name, "message": ask},
            {**both, "type": "assistant", "uuid": f"answer {name}", "message": said},
        ]
    }


def codex(name: str, at: object, _score: object, question: str = ASKED) -> Files:
    """A session of one turn."""
    answer = {"type": "message", "role": "assistant", "content": _parts("so")}
    payloads = [
        ("session_meta", {"id": f"session {name}", "timestamp": at, "cwd": "/home/me/shop"}),
        ("event_msg", {"type": "task_started", "turn_id": name}),
        ("turn_context", {"model": "m"}),
        ("event_msg", {"type": "user_message", "message": question}),
        ("response_item", answer),
    ]
    lines = [{"timestamp": at, "type": kind, "payload": payload} for kind, payload in payloads]
    return {f"rollout-{name}.jsonl": lines}


def _parts(text: str) -> list[Row]:
    return [{"type": "output_text", "text": text}]


def pi(name: str, at: object, _score: object, question: str = ASKED) -> Files:
    """A session of one turn."""
    ask, so = _talk(question)
    both = {"type": "message", "timestamp": at}
    header = {"type": "session", "version": 3, "id": f"session {name}", "timestamp": at}
    return {
        f"{name}.jsonl": [
            {**header, "cwd": "/home/me/shop"},
            {**both, "id": name, "parentId": None, "message": ask},
            {**both, "id": f"answer {name}", "parentId": name, "message": {**so, "model": "m"}},
        ]
    }


def inspect(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A log of one sample."""
    sample = {"uuid": name, "started_at": at, "input": question, "messages": _talk(question)}
    sample["events"] = [{"event": "sample_init", "timestamp": at}]
    sample["scores"] = {"right": {"value": score}}
    return {f"{name}.json": [{"eval": {"task": "t"}, "samples": [sample]}]}


def scout(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A transcript."""
    row: Row = {"transcript_id": name, "date": at, "total_time": 0.0}
    row["messages"] = json.dumps(_talk(question))
    return {"t.parquet": [{**row, "score_right": score}]}


def messages(name: str, at: object, score: object, question: str = ASKED) -> Files:
    """A row of messages."""
    row = {"id": name, "created_at": at, "right": score, "messages": _talk(question)}
    return {"rows.jsonl": [row]}


@dataclass(frozen=True)
class Kit:
    """How traces stand in files of a format.

    Attributes:
        name: of the format.
        make: a trace of this name, with this time everywhere, this score and this question.
        at: a usual time.
        ends: the first and the last time that a trace may have.
        beyond: times of no calendar.
        is_parquet: whether the rows are Parquet's; else they are JSON.
        is_log: whether the order of rows tells something, and no row a score.
        created_at: the rule that its traces need.
    """

    name: str
    make: Callable[..., Files]
    at: Any
    ends: Mapping[Any, str]
    beyond: Sequence[Any]
    is_parquet: bool = False
    is_log: bool = False
    created_at: str = "start"

    @property
    def is_lines(self) -> bool:
        """Whether the rows are lines of JSON."""
        names = self.make("aa", self.at, 1.0)
        return not self.is_parquet and all(name.endswith(".jsonl") for name in names)

    @property
    def rules(self) -> Rules:
        """Rules for its traces, which leave nothing open."""
        if self.is_log:
            return load_rules(None, {**_RULES, "success": {"always": True}})
        rules = load_rules(None, {}) if self.name == "knowledgepulse" else RULES
        return self.dated(rules)

    def dated(self, rules: Rules, created_at: str = "start") -> Rules:
        """Rules with one for times that its traces can follow."""
        is_usual = self.created_at == "start"
        return rules.model_copy(update={"created_at": created_at if is_usual else self.created_at})

    def write(self, folder: Path, traces: Sequence[Files], unit: str = "us") -> list[Path]:
        """Write the rows of traces in their order, times in columns as counts of this unit."""
        files: Files = {}
        for trace in traces:
            for name, rows in trace.items():
                files[name] = [*files.get(name, ()), *rows]
        return [self._write(folder / name, rows, unit) for name, rows in files.items()]

    def _write(self, path: Path, rows: list[Row], unit: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".pb":
            path.write_bytes(stream(map(encoded, rows)))
            return path
        if not self.is_parquet:
            path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
            return path
        path = path.with_suffix(".parquet")
        columns = {name: [row.get(name) for row in rows] for row in rows for name in row}
        pq.write_table(pa.table({x: _column(x, columns[x], unit) for x in columns}), path)
        return path

    def converted(self, source: Path, created_at: str = "start") -> Conversion:
        """What was written comes to."""
        return converted(self.name, source, self.dated(self.rules, created_at))

    def read(self, source: Path, archive: Path) -> Imported:
        """Import what was written."""
        return import_traces(FORMATS[self.name], [str(source)], archive, self.rules)


def _column(name: str, values: list[Any], unit: str) -> pa.Array:
    if name == "events":
        inner = [("name", pa.string()), ("timestamp", pa.timestamp(unit))]
        return pa.array(values, pa.list_(pa.struct(inner)))
    return pa.array(values, pa.timestamp(unit, "+05:30") if name in _TIMES else None)


_FIELD = "field:created_at"
FIRST, LAST = "0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"
_TEXTS = (
    AT,
    {FIRST: FIRST, LAST: LAST},
    ("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00", "10000-01-01T00:00:00Z"),
)
_NANOSECONDS = (
    str(SECONDS * 10**9),
    {"1": "1970-01-01T00:00:00.000000Z", "253402300799999999999": LAST},
    (str(10**24),),
)
_FIXED64 = (
    str(SECONDS * 10**9),
    {"1": "1970-01-01T00:00:00.000000Z", f"{2**64 - 1}": "2554-07-21T23:34:33.709551Z"},
    (),
)
_COLUMNS = (
    SECONDS * 10**6,
    {-62_135_596_800_000_000: FIRST, 253_402_300_799_999_999: LAST},
    (2**62, -(2**62)),
    True,
)
KITS: Mapping[str, Kit] = {
    "knowledgepulse": Kit("knowledgepulse", knowledgepulse, *_TEXTS),
    "knowledgepulse in lines": Kit("knowledgepulse", knowledgepulse_rows, *_TEXTS),
    "otlp": Kit("otlp", otlp, *_NANOSECONDS),
    "otlp in protobuf": Kit("otlp", otlp_protobuf, *_FIXED64),
    "mlflow": Kit("mlflow", mlflow, *_NANOSECONDS),
    "langfuse": Kit("langfuse", langfuse, *_TEXTS),
    "langsmith": Kit("langsmith", langsmith, *_TEXTS),
    "atif": Kit("atif", atif, *_TEXTS),
    "claude-code": Kit("claude-code", claude_code, *_TEXTS, is_log=True),
    "codex": Kit("codex", codex, *_TEXTS, is_log=True),
    "pi": Kit("pi", pi, *_TEXTS, is_log=True),
    "inspect": Kit("inspect", inspect, *_TEXTS),
    "messages": Kit("messages", messages, *_TEXTS, created_at=_FIELD),
    "phoenix": Kit("phoenix", phoenix, *_COLUMNS),
    "langfuse in Parquet": Kit("langfuse", langfuse, *_COLUMNS),
    "langsmith in Parquet": Kit("langsmith", langsmith, *_COLUMNS),
    "messages in Parquet": Kit("messages", messages, *_COLUMNS, created_at=_FIELD),
    "scout": Kit("inspect", scout, *_COLUMNS),
}
