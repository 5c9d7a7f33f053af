"""OTLP as protobuf: whatever it is framed and packed with, it tells what OTLP JSON tells."""

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from kp_batch import bounds
from kp_batch.bounds import TooLargeError
from kp_batch.conversion.formats import FORMATS, detect_format, otlp
from kp_batch.conversion.formats.json_files import opened
from kp_batch.conversion.model import Refused, Skipped, SourceRecord
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from tests.support.damage.table import lower_limits
from tests.support.formats.otlp import TALK, TRACE, agent, attributes, chat, request, text
from tests.support.formats.otlp_protobuf import (
    as_protobuf_has_it,
    encoded,
    in_four_bytes,
    in_varint,
    marked,
    packed,
    stream,
    unfinished,
    within,
)
from tests.support.imports.drafting import ALWAYS, drafted, transcript
from tests.support.imports.importing import imported, refusals

REQUESTS = [
    request([agent()], **{"service.name": "desk"}),
    request([chat(1, TALK, [text("assistant", "so")], status=2, events=[("e", {"at": 1})])]),
    request([chat(2, TALK, [text("assistant", "there")])], **{"service.name": "desk"}),
]
MESSAGES = [encoded(json.loads(line)) for line in REQUESTS]
LINES = "".join(f"{line}\n" for line in REQUESTS).encode()
ONE_BY_ONE = stream(map(packed, MESSAGES))
FILES = {
    "collector.pb": stream(MESSAGES),
    "collector.pb.gz": gzip.compress(stream(MESSAGES), mtime=0),
    "collector.pb.zst": ONE_BY_ONE,
    "json.json.zst": stream(packed(line.encode()) for line in REQUESTS),
    "native.pb.zst": packed(stream(MESSAGES)),
    "frames.pb.zst": packed(stream(MESSAGES[:1])) + packed(stream(MESSAGES[1:])),
    "pzstd.pb.zst": marked(packed(stream(MESSAGES[:1]))) + marked(packed(stream(MESSAGES[1:]))),
    "seekable.jsonl.zst": packed(LINES) + marked(b"", 14),
    "last.jsonl.zst": marked(packed(LINES), 15),
    "pzstd.json.zst": stream(marked(packed(line.encode())) for line in REQUESTS),
    "endless.pb.zst": unfinished(stream(MESSAGES)),
    "endless.jsonl.zst": unfinished(LINES),
    "varints.binpb": stream(MESSAGES, in_varint),
    "varints.binpb.gz": gzip.compress(stream(MESSAGES, in_varint), mtime=0),
    "one.pb": b"".join(MESSAGES),  # which protobuf reads as one request
    "one.BINPB": b"".join(MESSAGES),
    "one.pb.zst": packed(b"".join(MESSAGES)),
    # The content tells what the name does not.
    "collector.json": ONE_BY_ONE,
    "packed.pb": gzip.compress(stream(MESSAGES), mtime=0),
    "plain.pb.gz": stream(MESSAGES),
    "lines.pb": LINES,
}


def records(path: Path) -> list[tuple[str, str]]:
    return [(record.trace, json.dumps(record.payload)) for record in items_of(path, SourceRecord)]


def items_of(path: Path, kind: type[Any]) -> list[Any]:
    return [record for record in otlp.records(path, []) if isinstance(record, kind)]


@pytest.fixture
def as_json(tmp_path: Path) -> list[tuple[str, str]]:
    (tmp_path / "spans.jsonl").write_bytes(LINES)
    return records(tmp_path / "spans.jsonl")


@pytest.mark.parametrize("name", FILES)
def test_every_compression_gives_the_same_as_lines_of_json(
    tmp_path: Path, as_json: list[tuple[str, str]], name: str
) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert [*map(str, otlp.FORMAT.inputs([name], str))]
    assert records(tmp_path / name) == as_json
    assert items_of(tmp_path / name, Refused) == []


VALUES = st.recursive(
    st.one_of(
        st.just({}),
        st.text().map(lambda plain: {"stringValue": plain}),
        st.booleans().map(lambda plain: {"boolValue": plain}),
        st.integers(-(2**63), 2**63 - 1).map(lambda plain: {"intValue": str(plain)}),
        st.floats().map(lambda plain: {"doubleValue": plain}),
        st.binary().map(lambda plain: {"bytesValue": base64.b64encode(plain).decode()}),
    ),
    lambda inner: st.one_of(
        st.lists(inner).map(lambda values: {"arrayValue": {"values": values}}),
        st.lists(st.fixed_dictionaries({"key": st.text(), "value": inner})).map(
            lambda values: {"kvlistValue": {"values": values}}
        ),
    ),
    max_leaves=9,
)
ATTRIBUTES = st.lists(st.fixed_dictionaries({"key": st.text(), "value": VALUES}), max_size=4)
TIMES = st.integers(0, 2**64 - 1).map(str)
EVENTS = {"name": st.text(), "timeUnixNano": TIMES, "attributes": ATTRIBUTES}
SPANS = st.fixed_dictionaries(
    {
        "traceId": st.binary(min_size=16, max_size=16).map(bytes.hex),
        "spanId": st.binary(min_size=8, max_size=8).map(bytes.hex),
        "parentSpanId": st.sampled_from(["", "00" * 8, "1f" * 8]),
        "name": st.text(),
        "startTimeUnixNano": TIMES,
        "endTimeUnixNano": TIMES,
        "attributes": ATTRIBUTES,
        "events": st.lists(st.fixed_dictionaries(EVENTS), max_size=2),
        "status": st.sampled_from([{}, {"code": 1}, {"code": 2, "message": "no"}]),
    }
)
GROUPS = st.fixed_dictionaries(
    {
        "resource": st.fixed_dictionaries({"attributes": ATTRIBUTES}),
        "scopeSpans": st.lists(
            st.fixed_dictionaries({"spans": st.lists(SPANS, max_size=2)}), max_size=2
        ),
    }
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(GROUPS, max_size=2))
def test_a_request_is_the_same_as_json_and_as_protobuf(tmp_path: Path, groups: list[Any]) -> None:
    content = {"resourceSpans": groups}
    (tmp_path / "spans.json").write_text(json.dumps(content), "utf-8")
    (tmp_path / "spans.pb").write_bytes(stream([encoded(content), MESSAGES[0]]))
    assert records(tmp_path / "spans.pb")[:-1] == records(tmp_path / "spans.json")


def test_a_trace_in_both_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/spans.jsonl").write_bytes(LINES)
    (tmp_path / "1/spans.pb").write_bytes(stream(MESSAGES))
    done = import_traces(otlp.FORMAT, [str(tmp_path / "1")], tmp_path / "out", ALWAYS)
    assert (done.traces, done.refused) == (1, {})
    (tmp_path / "1/spans.jsonl").unlink()
    (tmp_path / "1/again.binpb").write_bytes(b"".join(MESSAGES))
    done = import_traces(otlp.FORMAT, [str(tmp_path / "1")], tmp_path / "out", ALWAYS)
    assert (done.traces, done.refused) == (0, {})  # none is new


def test_auto_finds_it_out(tmp_path: Path) -> None:
    path = tmp_path / "traces.pb"
    path.write_bytes(stream(MESSAGES))
    form = detect_format([str(path)], lambda _: b"", lambda name: nullcontext(Path(name)))
    assert form is FORMATS["otlp"]


@pytest.mark.slow
@pytest.mark.parametrize("frame", [in_four_bytes, in_varint])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, unfinished])
def test_of_a_stream_that_is_cut_anywhere_what_came_before_counts(
    tmp_path: Path,
    as_json: list[tuple[str, str]],
    frame: Callable[[bytes], bytes],
    pack: Callable[[bytes], bytes],
) -> None:
    path, ends = tmp_path / "spans.pb", [0]
    for message in MESSAGES:
        ends.append(ends[-1] + len(frame(message)))
    whole = stream(MESSAGES, frame)
    for size in range(len(whole)):
        path.write_bytes(pack(whole[:size]))
        if size < ends[1]:
            with pytest.raises(UnreadableError, match=r"it is empty|it is cut"):
                [*otlp.records(path, [])]
            continue
        number = sum(size >= end for end in ends[1:])
        items = [*otlp.records(path, [])]
        spans = [item for item in items if isinstance(item, SourceRecord)]
        assert [(span.trace, json.dumps(span.payload)) for span in spans] == as_json[:number]
        refused = items[number:]
        assert [item.reasons for item in refused] == [["unreadable_file"]] * (size not in ends)
        assert all(item.message.startswith(f"it is cut after {number}") for item in refused)


def test_of_a_gzip_file_that_is_cut_anywhere_too(
    tmp_path: Path, as_json: list[tuple[str, str]]
) -> None:
    path, whole = tmp_path / "spans.pb.gz", FILES["collector.pb.gz"]
    numbers = set[int]()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert _reasons(path) == ["unreadable_file"], size
        with suppress(UnreadableError):
            assert records(path) == as_json[: len(records(path))]
            numbers.add(len(records(path)))
    assert numbers == {1, 2, 3}


def test_nothing_of_a_gzip_file_counts_that_is_other_than_it_was(tmp_path: Path) -> None:
    path, whole = tmp_path / "spans.pb.gz", FILES["collector.pb.gz"]
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    with pytest.raises(UnreadableError, match="it cannot be unpacked: CRC check failed"):
        [*otlp.records(path, [])]


def test_zstd_lacks_its_end_only_where_it_may(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(unfinished(LINES))
    with opened(tmp_path / "x", may_lack_end=True) as file:
        assert file.read() == LINES
    with opened(tmp_path / "x") as file, pytest.raises(UnreadableError, match="cannot be unpacked"):
        file.read()


def test_so_are_packed_messages(tmp_path: Path, as_json: list[tuple[str, str]]) -> None:
    path = tmp_path / "spans.pb.zst"
    whole = len(in_four_bytes(packed(MESSAGES[0])))
    for size in range(len(ONE_BY_ONE)):
        path.write_bytes(ONE_BY_ONE[:size])
        if size >= whole:
            assert records(path) == as_json[: len(records(path))] != []
        else:
            assert _reasons(path) == ["unreadable_file"]


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_with_flipped_bytes_it_is_read_or_refused(tmp_path: Path, name: str) -> None:
    content, path = FILES[name], tmp_path / name
    for at in range(0, len(content), 3):
        flipped = content[at] ^ 1 << Random(at).randrange(8)
        path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        _reasons(path)


def _reasons(path: Path) -> Sequence[str]:
    """Why a file, or something in it, is refused."""
    try:
        refused = items_of(path, Refused)
    except UnreadableError:
        return ["unreadable_file"]
    except TooLargeError:
        return ["too_large"]
    return [reason for item in refused for reason in item.reasons]


def test_a_cut_stream_is_reported_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "spans.pb"
    path.write_bytes(stream(MESSAGES)[:-1])
    done = import_traces(otlp.FORMAT, [str(path)], tmp_path / "out", ALWAYS)
    assert (done.traces, done.refused) == (1, {"unreadable_file": 1})
    (refusal,) = refusals(tmp_path / "out")
    assert (refusal["id"], refusal["file"], refusal["reasons"]) == (
        None,
        str(path),
        ["unreadable_file"],
    )
    path.write_bytes(stream(MESSAGES))
    import_traces(otlp.FORMAT, [str(path)], tmp_path / "out", ALWAYS)
    assert refusals(tmp_path / "out") == []
    (row,) = imported(tmp_path / "out").values()
    assert transcript(row) == [("thought", "so"), ("thought", "there")]


LOG = {"timeUnixNano": "1", "body": {"stringValue": "hm"}, "attributes": attributes({"a": 1})}
LATE = {"observedTimeUnixNano": "1", "traceId": "AAAA"}
POINTS = {"dataPoints": [{"timeUnixNano": "1", "asDouble": 0.5}]}


def other(kind: type[Any], **fields: Any) -> bytes:
    return ParseDict(fields, kind()).SerializeToString()


def logs(record: dict[str, Any]) -> bytes:
    scopes = [{"scope": {"name": "s"}, "logRecords": [record]}]
    return other(ExportLogsServiceRequest, resourceLogs=[{"scopeLogs": scopes}])


def metrics(**fields: Any) -> bytes:
    scopes = [{"metrics": [{"name": "tokens", "unit": "1", **fields}]}]
    return other(ExportMetricsServiceRequest, resourceMetrics=[{"scopeMetrics": scopes}])


def test_other_signals_are_counted(tmp_path: Path) -> None:
    messages = [
        logs(LOG),
        MESSAGES[0],
        logs(LATE),
        metrics(gauge=POINTS),
        metrics(description="of both", sum=POINTS),
    ]
    (tmp_path / "all.pb").write_bytes(stream(messages))
    skipped = items_of(tmp_path / "all.pb", Skipped)
    assert skipped == [Skipped("logs")] * 2 + [Skipped("metrics")] * 2
    assert items_of(tmp_path / "all.pb", Refused) == []
    assert len(records(tmp_path / "all.pb")) == 1
    (tmp_path / "logs.pb").write_bytes(logs(LOG))
    assert items_of(tmp_path / "logs.pb", Skipped) == [Skipped("logs")]


def test_a_message_that_is_no_request_is_refused_alone(
    tmp_path: Path, as_json: list[tuple[str, str]]
) -> None:
    nameless = encoded({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]})
    bad = [MESSAGES[1][:-1], b"\x0bgroup", nameless, MESSAGES[1].replace(b"where", b"\xff\xff\xff")]
    path = tmp_path / "spans.pb"
    path.write_bytes(stream([MESSAGES[0], *bad, b"", *MESSAGES[1:]]))
    refused = items_of(path, Refused)
    assert [(item.reasons, item.line) for item in refused] == [
        (["malformed_json"], line) for line in (2, 3, 4, 5)
    ]
    assert records(path) == as_json
    path.write_bytes(stream(map(packed, MESSAGES[:2])) + in_four_bytes(packed(b"x" * 99)[:-9]))
    assert [item.line for item in items_of(path, Refused)] == [3]
    path.write_bytes(stream([packed(MESSAGES[0]), packed(b"{"), packed(b"{}")]))
    assert [item.line for item in items_of(path, Refused)] == [2, 3]


def test_damaged_json_is_recognised_by_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "spans.JSONL").write_bytes(b"\0\0\0\1 torn\n" + LINES)
    assert [item.line for item in items_of(tmp_path / "spans.JSONL", Refused)] == [1]
    assert len(records(tmp_path / "spans.JSONL")) == 3


def test_a_span_without_its_ids_is_refused_alone(tmp_path: Path) -> None:
    content = json.loads(request([agent(), {**chat(1), "spanId": ""}]))
    (tmp_path / "spans.pb").write_bytes(encoded(content))
    assert [item.reasons for item in items_of(tmp_path / "spans.pb", Refused)] == [["missing_id"]]
    assert len(records(tmp_path / "spans.pb")) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", r"it is empty \(0 bytes\)"),
        (packed(b""), r"it is empty \(0 bytes\)"),
        (b"trace_id,span_id\n1,2\n", "it is cut after 0 messages, or holds no export request"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "it is cut after 0 messages, or holds no export"),
        (b"\xff" * 99, "it is cut after 0 messages"),
        (bytes(1_000), "it holds no export request of OTLP"),
        (b"\x08\x01\x12\x9e\x05saved_model", "it is cut after 0 messages"),
        (b"\n\x05weigh", "it is cut, or no export request of OTLP"),
        (MESSAGES[0][:-1], "it is cut, or no export request of OTLP"),
        (b'{"error": {"code": 401}}', "it holds no export request of OTLP"),
        (packed(b"x")[:4] + b"\xff" * 99, "it cannot be unpacked"),
        (b"\x1f\x8b\xff\xff", "it cannot be unpacked"),
    ],
)
def test_what_is_no_otlp_is_reported(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x.pb").write_bytes(content)
    with pytest.raises(UnreadableError, match=why):
        [*otlp.records(tmp_path / "x.pb", [])]


def large(size: int) -> bytes:
    return encoded(json.loads(request([agent(attributes={"input.value": "x" * size})])))


IDS = b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + b"s" * 8


@pytest.mark.parametrize(
    "inner",
    [
        lambda most: b"\x0a\0" * most,  # groups
        lambda most: within(b"\x12\0" * most, 0x0A),  # scopes
        lambda most: within(b"\x12\0" * most, 0x12, 0x0A),  # spans
        lambda most: within(IDS + b"\x4a\0" * most, 0x12, 0x12, 0x0A),  # attributes
        lambda most: within(IDS + b"\x5a\0" * most, 0x12, 0x12, 0x0A),  # events
        lambda most: within(IDS, 0x12, 0x12, 0x0A) + within(b"\x0a\0" * most, 0x0A, 0x0A),
        lambda most: within(
            IDS + within(b"\x0a\0" * most, 0x2A, 0x12, 0x4A), 0x12, 0x12, 0x0A
        ),  # values of a list
        lambda most: within(IDS + b"\x6a\0" * most, 0x12, 0x12, 0x0A),  # links
        # Attributes, events and values of two spans.
        lambda most: within(IDS + b"\x4a\0" * (most // 2), 0x12, 0x12, 0x0A) * 2,
        lambda most: within(IDS + b"\x5a\0" * (most // 2), 0x12, 0x12, 0x0A) * 2,
        lambda most: (
            within(IDS + within(b"\x0a\0" * (most // 2), 0x2A, 0x12, 0x4A), 0x12, 0x12, 0x0A) * 2
        ),
    ],
)
def test_a_message_with_too_many_values_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: Callable[[int], bytes]
) -> None:
    lower_limits(monkeypatch)
    path = tmp_path / "spans.pb"
    path.write_bytes(stream([MESSAGES[0], inner(bounds.VALUES + 1), MESSAGES[1]]))
    assert [item.reasons for item in items_of(path, Refused)] == [["too_large"]]
    assert len(records(path)) == 2


@pytest.mark.parametrize("pack", [bytes, packed])
def test_a_message_that_is_too_large_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    lower_limits(monkeypatch)
    path = tmp_path / "spans.pb"
    path.write_bytes(stream(map(pack, [MESSAGES[0], large(3 * bounds.LINE_BYTES), MESSAGES[1]])))
    assert [(item.reasons, item.line) for item in items_of(path, Refused)] == [(["too_large"], 2)]
    assert len(records(path)) == 2
    path.write_bytes(large(bounds.LINE_BYTES))
    with pytest.raises(TooLargeError):
        [*otlp.records(path, [])]


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(bytes(1 << 15), mtime=0),  # empty messages
        stream([packed(large(1 << 17))] * 9),
        packed(stream([large(1 << 17)] * 9)),
    ],
    ids=["empty messages", "messages packed one by one", "packed messages"],
)
def test_a_file_that_unpacks_to_too_much_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    lower_limits(monkeypatch, MEMBER_BYTES=1 << 20)
    (tmp_path / "spans.pb").write_bytes(content)
    with pytest.raises(TooLargeError):
        [*otlp.records(tmp_path / "spans.pb", [])]


def test_a_trace_in_a_dialect_that_is_not_read_is_refused_by_that_name(tmp_path: Path) -> None:
    generation = {"langfuse.observation.type": "generation", "langfuse.observation.input": "x"}
    path = tmp_path / "traces.pb"
    alone = [{**agent(), "attributes": attributes(generation)}]
    path.write_bytes(encoded(json.loads(request(alone))))
    ((_, refused),) = drafted("otlp", path).refused
    assert (refused.id, refused.reasons) == (f"kp:trace:{TRACE}", ["unknown_dialect"])
    assert "Langfuse" in refused.message
    both = [agent(attributes=generation), chat(1, TALK, [text("assistant", "so")])]
    path.write_bytes(encoded(json.loads(request(both))))
    assert drafted("otlp", path).reasons == []


def test_spans_under_the_number_of_collectors_before_2022_are_read(tmp_path: Path) -> None:
    spans = [
        ParseDict(as_protobuf_has_it(each), ProtoSpan()).SerializeToString()
        for each in (agent(), chat(1, TALK, [text("assistant", "so")]))
    ]
    library = b"".join(within(each, 0x12) for each in spans)
    group = b"\xc2\x3e" + in_varint(library)  # field 1000
    (tmp_path / "old.pb").write_bytes(within(group, 0x0A))
    assert transcript(drafted("otlp", tmp_path / "old.pb").draft) == [("thought", "so")]
