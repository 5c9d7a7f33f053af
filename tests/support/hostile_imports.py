"""Small files of other systems that would take gigabytes or hours, were there no limits.

An import refuses of each what is too large, and imports what is beside it.
"""

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pyarrow as pa

from kp_batch import limits
from kp_batch.conversion.formats.json_files import zstd
from tests.support.importing import kp_trace, write_json
from tests.support.otlp_protobuf import encoded, in_varint, stream

RULES = ("--success", "always", "--confidence", "0.8", "--domain", "=default")
AT = "2026-03-01T09:00:00.000000"
_LOG = {"version": 2, "status": "success", "eval": {"run_id": "r", "task": "t", "model": "m"}}
_TALK = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "so"}]


def request(trace: str, span: str, question: object = "go") -> str:
    """An export request of OTLP with one span."""
    texts = {"openinference.span.kind": "LLM", "input.value": question, "output.value": "so"}
    span_object = {
        "traceId": trace * 32,
        "spanId": span.zfill(16),
        "startTimeUnixNano": "1772355600000000000",
        "endTimeUnixNano": "1772355601000000000",
        "attributes": [{"key": key, "value": {"stringValue": each}} for key, each in texts.items()],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span_object]}]}]})


def sample(name: str, **changes: Any) -> dict[str, Any]:
    """A sample of Inspect."""
    fields = {"id": 1, "epoch": 1, "uuid": name, "started_at": AT, "input": "go", "messages": _TALK}
    return {**fields, **changes}


def run(name: str, **changes: Any) -> dict[str, Any]:
    """A run of LangSmith, a root."""
    times = {"start_time": AT, "end_time": AT, "dotted_order": f"20260301T090000000000Z{name}"}
    fields = {"id": name, "trace_id": name, "parent_run_id": None, "name": "n", "status": "success"}
    texts = {"run_type": "llm", "inputs": {"input": "go"}, "outputs": {"output": "so"}}
    return {**fields, **times, **texts, **changes}


def _line(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


# What is good, by the format; each is one trace.
GOOD: Mapping[str, Callable[[Path], Any]] = MappingProxyType(
    {
        "otlp": lambda folder: _line(folder / "beside.jsonl", request("b", "1")),
        "inspect": lambda folder: write_json(
            folder / "beside.json", {**_LOG, "samples": [sample("beside")]}
        ),
        "langsmith": lambda folder: _line(folder / "beside.jsonl", json.dumps(run("beside"))),
        "knowledgepulse": lambda folder: write_json(folder / "beside.json", kp_trace("beside")),
        "atif": lambda folder: write_json(
            folder / "beside.json",
            {
                "schema_version": "ATIF-v1.4",
                "session_id": "s",
                "agent": {"name": "a", "version": "1"},
                "steps": [
                    {"step_id": 1, "timestamp": AT, "source": "user", "message": "go"},
                    {"step_id": 2, "timestamp": AT, "source": "agent", "message": "so"},
                ],
            },
        ),
        "langfuse": lambda folder: _line(
            folder / "beside.jsonl",
            json.dumps(
                {
                    "id": "o",
                    "trace_id": "beside",
                    "parent_observation_id": "",
                    "type": "GENERATION",
                    "start_time": AT,
                    "end_time": AT,
                    "input": "go",
                    "output": "so",
                }
            ),
        ),
    }
)


def _packed(path: Path, parts: Iterator[bytes]) -> None:
    with gzip.open(path, "wb", 1) as file:
        file.writelines(parts)


def _repeated(text: bytes, size: int) -> Iterator[bytes]:
    """A text again and again, up to about a size."""
    many = text * max((1 << 20) // len(text), 1)
    for _ in range(size // len(many)):
        yield many
    yield text * (size % len(many) // len(text) + 1)


def _around(text: str, inner: Iterator[bytes], place: str = "HERE") -> Iterator[bytes]:
    before, after = text.encode().split(place.encode())
    yield before
    yield from inner
    yield after


def otlp_long_text(path: Path) -> None:
    """A line with a text that is larger than any line may be, and a good one."""
    text = f"{request('a', '1', 'HERE')}\n{request('c', '1')}\n"
    _packed(path, _around(text, _repeated(b"x", limits.MEMBER_BYTES // 2)))


def otlp_long_file(path: Path) -> None:
    """Likewise, but longer than any file may be once it is unpacked."""
    text = f"{request('a', '1')}\n{request('c', '1', 'HERE')}\n"
    _packed(path, _around(text, _repeated(b"x", limits.MEMBER_BYTES)))


def otlp_values(path: Path) -> None:
    """A line of many empty objects, in gzip."""
    line = '{"resourceSpans": [{}HERE]}\n'
    _packed(path, _around(line, _repeated(b",{}", 180 * limits.VALUES)))


def otlp_line(path: Path) -> None:
    """Likewise, plain."""
    line = '{"resourceSpans": [{}HERE]}\n'
    path.write_bytes(b"".join(_around(line, _repeated(b",{}", limits.LINE_BYTES))))


def otlp_deep(path: Path) -> None:
    """Lists within lists."""
    path.write_bytes(b"[" * (limits.LINE_BYTES // 2) + b"\n")


def otlp_blank_lines(path: Path) -> None:
    """Nothing but line ends."""
    _packed(path, _repeated(b"\n", limits.MEMBER_BYTES // 2))


def otlp_faulty_lines(path: Path) -> None:
    """Nothing but empty objects."""
    _packed(path, _repeated(b"{}\n", limits.MEMBER_BYTES // 2))


def otlp_inner_json(path: Path) -> None:
    """A text that is JSON of many values."""
    inner = "[" + "{}," * (limits.LINE_BYTES // 4) + "{}]"
    _line(path, request("a", "1", inner))


def otlp_protobuf(path: Path) -> None:
    """Messages of many empty spans, and of a span with many empty attributes, and a good one."""
    many = limits.LINE_BYTES // 2 - 99
    ids = b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + b"s" * 8
    spans = _within(b"\x12\0" * many, 0x12, 0x0A)
    attributes = _within(ids + b"\x4a\0" * many, 0x12, 0x12, 0x0A)
    good = encoded(json.loads(request("c", "1")))
    path.write_bytes(stream(map(zstd.compress, (spans, attributes, good))))


def _within(inner: bytes, *tags: int) -> bytes:
    """A message within others, by the tags of their fields."""
    for tag in tags:
        inner = bytes([tag]) + in_varint(inner)
    return inner


def otlp_spans_of_one(path: Path) -> None:
    """Spans of one trace that come to more than a trace may."""
    text = "x" * (limits.LINE_BYTES // 2)
    size = limits.TRACE_BYTES // len(text) + 2
    _packed(path, (request("a", f"{each}", text).encode() + b"\n" for each in range(1, size)))


def eval_long_sample(path: Path) -> None:
    """A sample with a long text, and a good one."""
    with _eval(path) as file, file.open("samples/1_epoch_1.json", "w") as member:
        text = json.dumps(sample("large", input="HERE"))
        for part in _around(text, _repeated(b"x", limits.MEMBER_BYTES // 2)):
            member.write(part)


def eval_zstandard(path: Path) -> None:
    """Likewise, in the other packing."""
    text = json.dumps(sample("large", input="HERE"))
    content = b"".join(_around(text, _repeated(b"x", limits.MEMBER_BYTES // 2)))
    packed = bytes(pa.Codec("zstd").compress(content))
    with _eval(path) as file:
        file.writestr("samples/1_epoch_1.json", packed)
        entry = file.getinfo("samples/1_epoch_1.json")
        assert file.fp
        file.fp.seek(entry.header_offset + 30 + len(entry.filename))
        file.fp.truncate()
        file.fp.write(packed)
        file.start_dir = file.fp.tell()
        entry.compress_type, entry.compress_size = 93, len(packed)
        entry.file_size = len(content)


def eval_ranges(path: Path) -> None:
    """A sample whose messages are the same ones, again and again."""
    count = limits.VALUES // 50
    ranges = [[0, count]] * (limits.VALUES // 4)
    _chunked(path, {"message_refs": ranges}, messages=[_TALK[0]] * count)


def eval_events(path: Path) -> None:
    """Events of a run before, which name the same messages again and again."""
    count = limits.VALUES // 50
    begin = {"event": "span_begin", "id": "p", "type": "prior_run"}
    again = {"event": "model", "input_refs": [[0, count]] * (limits.VALUES // 4)}
    messages = [*({**_TALK[0], "id": f"{each}"} for each in range(count)), _TALK[1]]
    own = [[0, 1], [count, count + 1]]
    _chunked(path, {"message_refs": own}, messages=messages, events=[begin, again])


def eval_attachments(path: Path) -> None:
    """A sample that names a text again and again."""
    named = [{"role": "user", "content": "attachment://0"}] * 1_000
    text = "x" * (limits.TEXT_BYTES - 9)
    _chunked(path, {"message_refs": [[0, 1_000]]}, messages=named, attachments=[text])


def eval_chunks(path: Path) -> None:
    """A sample of many chunks, each of which may be read."""
    chunk = [{"role": "user", "content": "x" * (limits.TEXT_BYTES - 99)}]
    _chunked(path, {"message_refs": [[0, 1]]}, **{f"messages/{each}": chunk for each in range(99)})


def eval_samples(path: Path) -> None:
    """Many samples, each of which may be read."""
    large = json.dumps(sample("large", extra="x" * (limits.LINE_BYTES - 999)))
    with _eval(path) as file:
        for each in range(limits.MEMBER_BYTES // len(large) + 1):
            file.writestr(f"samples/{each}_epoch_2.json", large)


def eval_shells(path: Path) -> None:
    """Many samples in chunks."""
    with _eval(path) as file:
        for each in range(1, limits.VALUES // 50):
            file.writestr(f"samples/{each}_epoch_1/sample.json", "{}")


def _eval(path: Path) -> ZipFile:
    """A log with one good sample, to write more into it."""
    file = ZipFile(path, "w", ZIP_DEFLATED)
    file.writestr("header.json", json.dumps(_LOG))
    file.writestr("samples/0_epoch_1.json", json.dumps(sample("good")))
    return file


def _chunked(path: Path, shell: Mapping[str, object], **chunks: object) -> None:
    content = {**sample("large"), **shell}
    with _eval(path) as file:
        file.writestr("samples/1_epoch_1/sample.json", json.dumps(content))
        for name, items in chunks.items():
            chunk = name if "/" in name else f"{name}/0"
            file.writestr(f"samples/1_epoch_1/{chunk}.json", json.dumps(items))


def langsmith_python(path: Path) -> None:
    """Arguments in Python's notation, which takes hundreds of bytes a letter once it is parsed."""
    inputs = {"input": "{'a': [" + "[]," * (limits.VALUES // 4) + "]}"}
    tool = run("tool", trace_id="good", parent_run_id="good", run_type="tool", inputs=inputs)
    _line(path, json.dumps(run("good")), json.dumps(tool))


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
            f"unit_json AS (hex(zeroblob({limits.MEMBER_BYTES // 5}))))"
        )
        database.execute("INSERT INTO knowledge_units VALUES ('a', '')")
        database.commit()


def atif_long(path: Path) -> None:
    """A trajectory of many empty steps."""
    begin = b'{"schema_version": "ATIF-v1.4", "session_id": "s", "steps": [{}'
    path.write_bytes(b"".join([begin, *_repeated(b",{}", limits.LINE_BYTES * 3 // 2), b"]}"]))


def langfuse_line(path: Path) -> None:
    """A row with many values."""
    begin = b'{"id": "a", "trace_id": "t", "start_time": "", "input": [{}'
    path.write_bytes(b"".join([begin, *_repeated(b",{}", limits.LINE_BYTES * 3 // 2), b"]}\n"]))


# By the file's name: its format, how it is written, the reasons that are reported, and the traces.
FILES: Mapping[str, tuple[str, Callable[[Path], None], list[str], set[str]]] = MappingProxyType(
    {
        "otlp_long_text.jsonl.gz": ("otlp", otlp_long_text, ["too_large"], {"c" * 32}),
        "otlp_long_file.jsonl.gz": ("otlp", otlp_long_file, ["too_large"], set()),
        "otlp_values.jsonl.gz": ("otlp", otlp_values, ["too_large"], set()),
        "otlp_line.jsonl": ("otlp", otlp_line, ["too_large"], set()),
        "otlp_deep.jsonl": ("otlp", otlp_deep, ["too_large"], set()),
        "otlp_blank_lines.jsonl.gz": ("otlp", otlp_blank_lines, ["too_large"], set()),
        "otlp_faulty_lines.jsonl.gz": ("otlp", otlp_faulty_lines, ["too_large"], set()),
        "otlp_inner_json.jsonl": ("otlp", otlp_inner_json, ["too_large"], set()),
        "otlp_protobuf.pb.zst": ("otlp", otlp_protobuf, ["too_large"], {"c" * 32}),
        "otlp_spans_of_one.jsonl.gz": ("otlp", otlp_spans_of_one, ["too_large"], set()),
        "long_sample.eval": ("inspect", eval_long_sample, ["too_large"], {"good"}),
        "zstandard.eval": ("inspect", eval_zstandard, ["too_large"], {"good"}),
        "ranges.eval": ("inspect", eval_ranges, ["too_large"], {"good"}),
        "events.eval": ("inspect", eval_events, [], {"good", "large"}),
        "attachments.eval": ("inspect", eval_attachments, ["too_large"], {"good"}),
        "chunks.eval": ("inspect", eval_chunks, ["too_large"], {"good"}),
        "samples.eval": ("inspect", eval_samples, ["too_large"], set()),
        "shells.eval": ("inspect", eval_shells, ["missing_id"], {"good"}),
        "langsmith_python.jsonl": ("langsmith", langsmith_python, [], {"good"}),
        "endless_view.sqlite": ("knowledgepulse", endless_view, ["unreadable_file"], set()),
        "long_unit.sqlite": ("knowledgepulse", long_unit, ["too_large"], set()),
        "atif_long.json": ("atif", atif_long, ["too_large"], set()),
        "langfuse_line.jsonl": ("langfuse", langfuse_line, ["too_large"], set()),
    }
)
