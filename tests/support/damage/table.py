"""All ways in which what we read is damaged or too large; to add one, add its line to `DAMAGES`.

What is too large is as large as the limits allow, and tests lower these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from zipfile import ZIP_DEFLATED

import pytest

from kp_batch import bounds
from tests.support.damage import archive_files as archive
from tests.support.damage import changes, texts
from tests.support.damage import import_files as imports
from tests.support.damage import parquet_files as parquet
from tests.support.damage.import_files import fill_member, filled
from tests.support.damage.parquet_files import BARE, PLAIN, Column

ARCHIVE = "archive"
# What may have a text in JSON, and in a column of Parquet; formats by the names of their kits.
IN_JSON = [
    *(ARCHIVE, "knowledgepulse", "otlp", "langfuse", "langsmith", "atif", "claude-code"),
    *("codex", "inspect", "messages", "pi"),
]
IN_PARQUET = [
    *(ARCHIVE, "phoenix", "langfuse in Parquet", "langsmith in Parquet", "scout"),
    "messages in Parquet",
]


@dataclass(frozen=True)
class Damage:
    """One way in which what is read is damaged or too large.

    Attributes:
        kind: what it is of, and so what `make` is: of the `bytes` of any file (those `in place`
            leave all else where it was) or a `value` of JSON, and a chance, another; of a file of
            Parquet, and a chunk of a column in it, the file with another `page`; the JSON that
            stands in place of a `text`; the `column` that stands in place of a text in Parquet;
            writes a whole `file`, of its path; the `answer` of a store, of what asks for the true
            one.
        name: of a file its name, too.
        make: see there.
        of: the archive, or formats, that it is tried on.
        reasons: what is reported, of each row or file. Of damage by chance it is whatever says that
            a row or file is not taken; of an answer, the name of the error's number.
        stay: the traces in a whole file that are taken all the same.
        message: what the report tells, as a pattern.
    """

    kind: Literal["bytes", "bytes in place", "value", "page", "text", "column", "file", "answer"]
    name: str
    make: Callable[..., Any]
    of: Sequence[str] = ()
    reasons: Sequence[str] = ()
    stay: Sequence[str] = ()
    message: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Answer:
    """What a store answers."""

    status: int
    content: bytes = b""
    length: int = 0  # that it tells of
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


UNKNOWN_STEPS = ["unknown_step_type"] * 3
TOO_LARGE, UNREADABLE, GOOD = ["too_large"], ["unreadable_file"], ["good"]
_DENIED = r"access is denied.*look at the credentials"
_SPANS = '{"resourceSpans": [{}HERE]}\n'
_LINES = ["otlp", "langsmith"]  # formats of lines in gzip

_in_bytes = partial(Damage, "bytes")
_in_place = partial(Damage, "bytes in place")
_value = partial(Damage, "value")
_page = partial(Damage, "page", of=[ARCHIVE], reasons=UNREADABLE)
_text = partial(Damage, "text", of=IN_JSON, reasons=TOO_LARGE)
_in_line = partial(Damage, "text", of=[ARCHIVE])
_column = partial(Damage, "column", of=IN_PARQUET, reasons=TOO_LARGE)
_archive = partial(Damage, "file", of=[ARCHIVE], reasons=TOO_LARGE)
_otlp = partial(Damage, "file", of=["otlp"], reasons=TOO_LARGE)
_eval = partial(Damage, "file", of=["inspect"], reasons=TOO_LARGE, stay=GOOD)
_registry = partial(Damage, "file", of=["knowledgepulse"], reasons=TOO_LARGE)
_answer = partial(Damage, "answer")

DAMAGES: Sequence[Damage] = (
    _in_place("flipped bits", changes.flipped),
    _in_place("overwritten bytes", changes.overwritten),
    _in_place("a byte replaced", changes.replaced),
    _in_bytes("cut", changes.cut),
    _in_bytes("dropped bytes", changes.dropped),
    _in_bytes("doubled bytes", changes.doubled),
    _in_bytes("NULs within", changes.with_nuls),
    _in_bytes("another encoding", changes.of_other_letters),
    _value("an odd value", changes.odd),
    _value("another type", changes.disguised),
    _value("less", changes.lacking),
    _value("more", changes.grown),
    _page("noise", parquet.noise),
    _page("another kind", parquet.other_kind),
    _text("long line", lambda: texts.of_length(bounds.LINE_BYTES)),
    _text("long text", lambda: texts.of_length(bounds.TEXT_BYTES + 1)),
    _text("escaped text", texts.escaped, reasons=()),
    _text("deep value", texts.deep),
    _text("many values", texts.values),
    _text("long line of values", lambda: texts.values(1.5)),
    _text("long text of values", lambda: texts.inner_values(bounds.LINE_BYTES)),
    _text("text of values", lambda: texts.inner_values(bounds.TEXT_BYTES), of=IN_JSON[1:]),
    _in_line("text of values", lambda: texts.inner_values(bounds.TEXT_BYTES)),
    _column("packed text", lambda: Column(parquet.nuls(), PLAIN)),
    _column("footer that lies", lambda: Column(parquet.nuls(), PLAIN, lies=True)),
    _column("packed nulls", lambda: Column(parquet.nulls()), of=IN_PARQUET[1:]),
    _column("many columns", lambda: Column(parquet.wide(), is_more=True)),
    _column("deep column", lambda: Column(parquet.deep(), BARE, is_more=True), reasons=UNREADABLE),
    _column("no UTF-8", lambda: Column(parquet.no_utf8()), reasons=UNREADABLE),
    _archive("escaped.jsonl", archive.escaped_reject, reasons=["missing_id"], stay=GOOD),
    _archive("empty_steps.jsonl", archive.empty_steps, stay=GOOD),
    _archive("allowed_steps.jsonl", archive.allowed_steps, reasons=UNKNOWN_STEPS, stay=GOOD),
    _archive("long_texts.parquet", archive.parquet_long_texts),
    _archive("many_steps.parquet", lambda path: archive.parquet_steps(path, bounds.VALUES + 3)),
    _otlp("long_text.jsonl.gz", imports.otlp_long_text, stay=GOOD),
    _otlp("long_file.jsonl.gz", imports.otlp_long_file),
    _otlp("values.jsonl.gz", lambda path: filled(path, _SPANS, b",{}", 180 * bounds.VALUES)),
    _otlp("line.jsonl", lambda path: filled(path, _SPANS, b",{}", bounds.LINE_BYTES)),
    _otlp("deep.jsonl", lambda path: filled(path, "HERE\n", b"[", bounds.LINE_BYTES // 2)),
    _otlp("blank_lines.jsonl.gz", lambda path: fill_member(path, b"\n"), of=_LINES),
    _otlp("faulty_lines.jsonl.gz", lambda path: fill_member(path, b"{}\n"), of=_LINES),
    _otlp("protobuf.pb.zst", imports.otlp_protobuf, stay=GOOD),
    _otlp("spans_of_one.jsonl.gz", imports.otlp_spans_of_one, message="its parts take more than"),
    _eval("long_sample.eval", lambda path: imports.eval_long_sample(path, ZIP_DEFLATED)),
    _eval("zstandard.eval", lambda path: imports.eval_long_sample(path, 93)),
    _eval("ranges.eval", imports.eval_ranges),
    _eval("events.eval", imports.eval_events, reasons=(), stay=["good", "large"]),
    _eval("attachments.eval", imports.eval_attachments),
    _eval("chunks.eval", imports.eval_chunks),
    _eval(
        "samples.eval", imports.eval_samples, stay=(), message="unpacked members exceed the limit"
    ),
    _eval("shells.eval", imports.eval_shells, reasons=["missing_id"]),
    Damage("file", "python.jsonl", imports.langsmith_python, ["langsmith"], stay=GOOD),
    _registry("endless_view.sqlite", imports.endless_view, reasons=UNREADABLE),
    _registry("long_unit.sqlite", imports.long_unit, message="it holds a unit that is too large"),
    _answer("busy", lambda _: Answer(503)),
    _answer("denied", lambda _: Answer(403), reasons=["EACCES"], message=_DENIED),
    _answer("cut", lambda ask: Answer(200, ask()[:9], 1_000_000), reasons=["EIO"], message="s3://"),
)


def damages(*kinds: str) -> list[Damage]:
    """Those of some kinds."""
    return [one for one in DAMAGES if one.kind in kinds]


def named(kind: str, name: str) -> Damage:
    """One of them."""
    [one] = [one for one in damages(kind) if one.name == name]
    return one


def damages_at(place: str) -> list[Damage]:
    """Those that are tried on the archive, or on a format."""
    return [one for one in damages("text", "column", "file") if place in one.of]


def lower_limits(monkeypatch: pytest.MonkeyPatch, **others: int) -> None:
    """Lower the limits for a test; `make torture` has the limits themselves."""
    lower = {"LINE_BYTES": 1 << 18, "TEXT_BYTES": 1 << 16, "VALUES": 1 << 12, "COLUMNS": 100}
    lower |= {"UNPACKED_BYTES": 1 << 20, "TRACE_BYTES": 1 << 20, "MEMBER_BYTES": 8 << 20}
    for name, value in {**lower, "REFUSED": 1 << 10, **others}.items():
        monkeypatch.setattr(bounds, name, value)
