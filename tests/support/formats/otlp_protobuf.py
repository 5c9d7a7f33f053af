"""Writes OTLP as protobuf, of requests as OTLP JSON has them."""

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kp_batch import zstd

Frame = Callable[[bytes], bytes]


def encoded(request: Any) -> bytes:
    """A request as protobuf."""
    return ParseDict(as_protobuf_has_it(request), ExportTraceServiceRequest()).SerializeToString()


def as_protobuf_has_it(value: Any, key: str = "") -> Any:
    """OTLP JSON as protobuf's own JSON, where ids are base64 and odd numbers are texts."""
    if isinstance(value, Mapping):
        return {name: as_protobuf_has_it(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [as_protobuf_has_it(each) for each in value]
    if key in ("traceId", "spanId", "parentSpanId"):
        return base64.b64encode(bytes.fromhex(value)).decode()
    if key == "doubleValue":
        value = float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def in_four_bytes(message: bytes) -> bytes:
    """A message with its length before it, as the Collector writes it."""
    return len(message).to_bytes(4, "big") + message


def in_varint(message: bytes) -> bytes:
    """A message with its length before it, as most others write it."""
    left, before = len(message), bytearray()
    while left > 127:
        before.append(left & 127 | 128)
        left >>= 7
    return bytes([*before, left]) + message


def within(message: bytes, *tags: int) -> bytes:
    """A message within others, by the tags of their fields."""
    for tag in tags:
        message = bytes([tag]) + in_varint(message)
    return message


def stream(messages: Iterable[bytes], frame: Frame = in_four_bytes) -> bytes:
    """Messages one after the other."""
    return b"".join(map(frame, messages))


def packed(message: bytes) -> bytes:
    """A message with zstd."""
    return zstd.compress(message)


def marked(content: bytes, frame: int = 0) -> bytes:
    """A packed content behind a frame that readers skip, of 16 kinds, as pzstd writes it."""
    return bytes([0x50 + frame]) + b"\x2a\x4d\x18\x04\x00\x00\x00" + bytes(4) + content


def unfinished(content: bytes, pieces: int = 3) -> bytes:
    """A file with zstd that is written to, as it is after each of so many pieces."""
    packer, size = zstd.ZstdCompressor(), len(content) // pieces + 1
    parts = (content[at : at + size] for at in range(0, len(content), size))
    return b"".join(packer.compress(part, packer.FLUSH_BLOCK) for part in parts)
