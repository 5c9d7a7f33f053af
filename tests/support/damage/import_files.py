"""Whole files of other systems that are too large; some have a good trace beside."""

import gzip
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from kp_batch import bounds, zstd
from tests.support.damage import id_in
from tests.support.formats.inspect import TALK, USER, log, sample, write_eval
from tests.support.formats.otlp_protobuf import encoded, stream, within

AT = "2026-03-01T09:00:00.000000"


def request(trace: str, span: str, question: object = "go") -> str:
    """An export request of OTLP with one span."""
    texts = {"openinference.span.kind": "LLM", "input.value": question, "output.value": "so"}
    span_object = {
        "traceId": trace,
        "spanId": span.zfill(16),
        "startTimeUnixNano": "1772355600000000000",
        "endTimeUnixNano": "1772355601000000000",
        "attributes": [{"key": key, "value": {"stringValue": each}} for key, each in texts.items()],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span_object]}]}]})


def run(name: str, **changes: Any) -> dict[str, Any]:
    """A run of LangSmith, a root."""
    times = {"start_time": AT, "end_time": AT, "dotted_order": f"20260301T090000000000Z{name}"}
    fields = {"id": name, "trace_id": name, "parent_run_id": None, "name": "n", "status": "success"}
    texts = {"run_type": "llm", "inputs": {"input": "go"}, "outputs": {"output": "so"}}
    return {**fields, **times, **texts, **changes}


def filled(path: Path, text: str, one: bytes, size: int) -> None:
    """A file of this text, in gzip if it is named so, with so many bytes in place of `HERE`."""
    before, after = text.encode().split(b"HERE")
    many = one * max((1 << 20) // len(one), 1)
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(before)
        for _ in range(size // len(many)):
            file.write(many)
        file.write(one * (size % len(many) // len(one) + 1) + after)


def fill_member(path: Path, one: bytes) -> None:
    """A file of nothing but these bytes, again and again."""
    filled(path, "HERE", one, bounds.MEMBER_BYTES // 2)


def otlp_long_text(path: Path) -> None:
    """A line with a text that is larger than any line may be, and a good one."""
    text = f"{request(id_in(path, 'large'), '1', 'HERE')}\n{request(id_in(path), '1')}\n"
    filled(path, text, b"x", bounds.MEMBER_BYTES // 2)


def otlp_long_file(path: Path) -> None:
    """Likewise, but longer than any file may be once it is unpacked."""
    text = f"{request(id_in(path, 'large'), '1')}\n{request(id_in(path), '1', 'HERE')}\n"
    filled(path, text, b"x", bounds.MEMBER_BYTES)


def otlp_protobuf(path: Path) -> None:
    """Messages of many empty spans, and of a span with many empty attributes, and a good one."""
    many = bounds.LINE_BYTES // 2 - 99
    ids = b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + b"s" * 8
    spans = within(b"\x12\0" * many, 0x12, 0x0A)
    attributes = within(ids + b"\x4a\0" * many, 0x12, 0x12, 0x0A)
    good = encoded(json.loads(request(id_in(path), "1")))
    path.write_bytes(stream(map(zstd.compress, (spans, attributes, good))))


def otlp_spans_of_one(path: Path) -> None:
    """Spans of one trace that come to more than a trace may."""
    text = "x" * (bounds.LINE_BYTES // 2)
    size = bounds.TRACE_BYTES // len(text) + 2
    with gzip.open(path, "wt", 1) as file:
        file.writelines(request("a" * 32, f"{each}", text) + "\n" for each in range(1, size))


def eval_long_sample(path: Path, packed: int) -> None:
    """A sample with a long text, and a good one."""
    large = sample(id_in(path, "large"), input="x" * (bounds.MEMBER_BYTES // 2))
    samples = {"samples/0_epoch_2.json": sample(id_in(path)), "samples/1_epoch_2.json": large}
    write_eval(path, {"header.json": log(), **samples}, packed=packed)


def eval_ranges(path: Path) -> None:
    """A sample whose messages are the same ones, again and again."""
    count = bounds.VALUES // 50
    ranges = [[0, count]] * (bounds.VALUES // 4)
    _chunked(path, {"message_refs": ranges}, messages=[USER] * count)


def eval_events(path: Path) -> None:
    """Events of a run before, which name the same messages again and again."""
    count = bounds.VALUES // 50
    begin = {"event": "span_begin", "id": "p", "type": "prior_run"}
    again = {"event": "model", "input_refs": [[0, count]] * (bounds.VALUES // 4)}
    messages = [*({**USER, "id": f"{each}"} for each in range(count)), TALK[-1]]
    own = [[0, 1], [count, count + 1]]
    _chunked(path, {"message_refs": own}, messages=messages, events=[begin, again])


def eval_attachments(path: Path) -> None:
    """A sample that names a text again and again."""
    named = [{"role": "user", "content": "attachment://0"}] * 1_000
    text = "x" * (bounds.TEXT_BYTES - 9)
    _chunked(path, {"message_refs": [[0, 1_000]]}, messages=named, attachments=[text])


def eval_chunks(path: Path) -> None:
    """A sample of many chunks, each of which may be read."""
    chunk = [{"role": "user", "content": "x" * (bounds.TEXT_BYTES - 99)}]
    _chunked(path, {"message_refs": [[0, 1]]}, **{f"messages/{each}": chunk for each in range(99)})


def eval_samples(path: Path) -> None:
    """Many samples, each of which may be read."""
    large = json.dumps(sample(id_in(path, "large"), extra="x" * (bounds.LINE_BYTES - 999)))
    with _eval(path) as file:
        for each in range(1, bounds.MEMBER_BYTES // len(large) + 2):
            file.writestr(f"samples/{each}_epoch_2.json", large)


def eval_shells(path: Path) -> None:
    """Many samples in chunks."""
    with _eval(path) as file:
        for each in range(1, bounds.VALUES // 50):
            file.writestr(f"samples/{each}_epoch_2/sample.json", "{}")


def _eval(path: Path) -> ZipFile:
    """A log with one good sample, to write more into it."""
    file = ZipFile(path, "w", ZIP_DEFLATED)
    file.writestr("header.json", json.dumps(log()))
    file.writestr("samples/0_epoch_2.json", json.dumps(sample(id_in(path))))
    return file


def _chunked(path: Path, shell: Mapping[str, object], **chunks: object) -> None:
    content = {**sample(id_in(path, "large")), "started_at": AT, **shell}
    with _eval(path) as file:
        file.writestr("samples/1_epoch_2/sample.json", json.dumps(content))
        for name, items in chunks.items():
            chunk = name if "/" in name else f"{name}/0"
            file.writestr(f"samples/1_epoch_2/{chunk}.json", json.dumps(items))


def langsmith_python(path: Path) -> None:
    """Arguments in Python's notation, which takes hundreds of bytes a letter once it is parsed."""
    inputs = {"input": "{'a': [" + "[]," * (bounds.VALUES // 4) + "]}"}
    root = id_in(path)
    tool = run("tool", trace_id=root, parent_run_id=root, run_type="tool", inputs=inputs)
    path.write_text("\n".join(map(json.dumps, (run(root), tool))))


def endless_view(path: Path) -> None:
    """A registry whose units are made up without an end."""
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE VIEW knowledge_units AS "
            f"SELECT 'a' AS id, '{{' AS unit_json, '' AS updated_at FROM ({rows})"
        )


def long_unit(path: Path) -> None:
    """A registry with a unit that is made up, of many letters."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE knowledge_units (id, updated_at, "
            f"unit_json AS (hex(zeroblob({bounds.MEMBER_BYTES // 5}))))"
        )
        database.execute("INSERT INTO knowledge_units VALUES ('a', '')")
        database.commit()
