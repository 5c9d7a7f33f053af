"""A file of another kind is told by its first bytes, and what is damaged is still text."""

import gzip
import random
from pathlib import Path

import pytest

from kp_batch.bounds import utf8_lines_of
from kp_batch.errors import UnreadableError
from kp_batch.magic_bytes import binary_kind, kind_of

NOISE = random.Random(0).randbytes(9_000)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"PAR1\x15\x04", "Parquet"),
        (gzip.compress(b"{}", mtime=0), "packed by gzip"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x89PNG\r\n\x1a\n" + NOISE, "binary"),
        (NOISE, "binary"),
        (bytes(99), "binary"),
        (b"id,question\n1,what", "text"),
        ("größe;jährlich\n".encode("latin-1"), "text"),
        (b'\xef\xbb\xbf\n {"a": 1}', "JSON"),
        (b"[", "JSON"),
    ],
)
def test_a_kind_is_recognised_by_its_first_bytes(start: bytes, name: str) -> None:
    assert kind_of(start).name == name


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"id,question\n",
        bytes(9_000) + b'{"a": 1}\n',  # a hole that a crash left
        NOISE[:99] + b'\n{"a": 1}\n',  # a damaged line, and a good one
        b'{"a": "\x01\x02", "b": "' + b"x" * 4_000 + b'"}',
        b"\x1b[32mINFO\x1b[0m started\n" * 99,
        "\u4e0a\u4e8c".encode() * 2_000,
    ],
)
def test_what_may_have_lines_of_json_is_not_binary(start: bytes) -> None:
    assert binary_kind(start) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1" + NOISE, "it is Parquet, not lines of JSON: give it the ending .parquet"),
        (
            gzip.compress(b"{}\n", mtime=0),
            "it is packed by gzip, not lines of JSON: unpack it, as with gunzip",
        ),
        ('{"a": "яблоко"}\n'.encode("utf-16"), "its lines are UTF-16, not UTF-8: "),
    ],
)
def test_a_file_without_lines_is_refused_as_a_whole(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with (tmp_path / "a.jsonl").open("rb") as file, pytest.raises(UnreadableError) as refused:
        list(utf8_lines_of(file))
    assert str(refused.value).startswith(message)
