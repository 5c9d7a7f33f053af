"""Damages files as disks, programs and strangers do: by chance, and the same each time."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

_SIGNS = b'\0\xff\x80{}[]",:\n\r 019ez\\'
# Values that JSON's grammar has and Python does not write; see `as_json`.
_WRITTEN = {
    "<deep>": "[" * 3_000 + "]" * 3_000,
    "<deeper>": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "<long>": "9" * 5_000,
    "<far>": "-1e999",
}
ODD: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, -0.0, 0.1 + 0.2, 5e-324, 1e308, 2**53 + 1, 2**63, 10**30),
    *(float("nan"), float("inf"), float("-inf"), *_WRITTEN),
    *(
        "",
        " ",
        "\0",
        "x\0y",
        "ä 日本 😀\u2028",
        "\ud800",
        "\udc00\ud83d",
        "x" * 9_999,
        "NaN",
        "null",
    ),
    *(
        "1",
        "0.5",
        "true",
        "[]",
        "{}",
        '{"a": [',
        "2026-01-05T08:00:00Z",
        "0001-01-01",
        "9999-99-99",
    ),
    *([], {}, [None], [[]], [{}], {"": None}, ["a", 1], {"a": {"b": [1.5, "\ud800"]}}),
)


def _flipped(content: bytes, chance: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwritten(content: bytes, chance: Random) -> bytes:
    first, last = _range(content, chance)
    return content[:first] + bytes(chance.choices(_SIGNS, k=last - first)) + content[last:]


def _replaced(content: bytes, chance: Random) -> bytes:
    """One byte by one of a few, at a place of any kind."""
    at = chance.randrange(len(content))
    return content[:at] + bytes([chance.choice(_SIGNS)]) + content[at + 1 :]


def _cut(content: bytes, chance: Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _dropped(content: bytes, chance: Random) -> bytes:
    first, last = _range(content, chance)
    return content[:first] + content[last:]


def _doubled(content: bytes, chance: Random) -> bytes:
    first, last = _range(content, chance)
    return content[:last] + content[first:last] * chance.choice((1, 1, 50)) + content[last:]


def _with_nuls(content: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes(chance.choice((1, 7, 4_096))) + content[at:]


def _of_other_letters(content: bytes, chance: Random) -> bytes:
    """In another encoding, as editors write it."""
    text = content.decode("utf-8", "replace")
    return text.encode(
        chance.choice(("utf-16", "utf-16-be", "utf-8-sig", "utf-7", "cp1252")), "replace"
    )


DAMAGES: Sequence[Callable[[bytes, Random], bytes]] = (
    *(_flipped, _overwritten, _replaced, _replaced, _cut, _dropped, _doubled, _with_nuls),
    _of_other_letters,
)


def _range(content: bytes, chance: Random) -> tuple[int, int]:
    first = chance.randrange(len(content))
    return first, min(first + chance.choice((1, 4, 30, 300)), len(content))


def damaged(content: bytes, chance: Random) -> bytes:
    """The content with one or two damages; it is not empty."""
    for _ in range(chance.choice((1, 1, 2))):
        content = chance.choice(DAMAGES)(content, chance) or b"\n"
    return content


def overwritten(content: bytes, chance: Random) -> bytes:
    """The content with damages that leave all else in its place."""
    for _ in range(chance.choice((1, 1, 4))):
        content = chance.choice((_flipped, _replaced, _overwritten))(content, chance)
    return content


def damaged_parquet(content: bytes, chance: Random) -> bytes:
    """A Parquet file, described mostly at its end: damage is as likely before, or nowhere."""
    kind, end = chance.random(), len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if kind < 0.3:
        return damaged(content, chance)
    return overwritten(content[:end], chance) + content[end:] if kind < 0.7 else content


def swapped(value: Any, chance: Random) -> Any:
    """A JSON value with another one, or none, in some place; the value itself stays as it is."""
    kind = chance.random()
    if isinstance(value, dict) and value and kind < 0.97:
        key = chance.choice(list(value))
        if kind < 0.06:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: swapped(value[key], chance)}
    if isinstance(value, list) and value and kind < 0.85:
        at = chance.randrange(len(value))
        if kind < 0.1:
            return [*value[:at], chance.choice(ODD), *value[at:]]
        return [*value[:at], swapped(value[at], chance), *value[at + 1 :]]
    return chance.choice((chance.choice(ODD), chance.choice(ODD), _disguised(value, chance)))


def _disguised(value: Any, chance: Random) -> Any:
    """A value as somebody may take it for, of another type."""
    if isinstance(value, bool):
        return chance.choice((int(value), str(value), float(value), [value]))
    return chance.choice((json.dumps(value), str(value), [value], {"a": value}))


def as_json(value: Any) -> bytes:
    """Write a value of `swapped`, in a line."""
    text = json.dumps(value)
    for name, written in _WRITTEN.items():
        text = text.replace(f'"{name}"', written)
    return text.encode()


def write(path: Path, content: bytes) -> Path:
    """Write a file, its folders included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def damage(path: Path, group: int, column: str) -> None:
    """Overwrite a page of a column."""
    metadata = pq.read_metadata(path).row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    (chunk,) = [chunk for chunk in chunks if chunk.path_in_schema == column]
    content = bytearray(path.read_bytes())
    start, length = chunk.data_page_offset, chunk.total_compressed_size
    content[start : start + length] = b"\xff" * length
    path.write_bytes(content)
