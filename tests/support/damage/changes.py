"""What disks, programs and strangers do to bytes and to JSON, by a chance that is passed in."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

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
    *("", " ", "\0", "x\0y", "ä 日本 😀\u2028", "\ud800", "\udc00\ud83d", "x" * 9_999),
    *("NaN", "null", "1", "0.5", "true", "[]", "{}", '{"a": ['),
    *("2026-01-05T08:00:00Z", "0001-01-01", "9999-99-99"),
    *([], {}, [None], [[]], [{}], {"": None}, ["a", 1], {"a": {"b": [1.5, "\ud800"]}}),
)


def flipped(content: bytes, chance: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def overwritten(content: bytes, chance: Random) -> bytes:
    first, last = _range(content, chance)
    return content[:first] + bytes(chance.choices(_SIGNS, k=last - first)) + content[last:]


def replaced(content: bytes, chance: Random) -> bytes:
    """One byte by one of a few, at a place of any kind."""
    at = chance.randrange(len(content))
    return content[:at] + bytes([chance.choice(_SIGNS)]) + content[at + 1 :]


def cut(content: bytes, chance: Random) -> bytes:
    return content[: chance.randrange(len(content))]


def dropped(content: bytes, chance: Random) -> bytes:
    first, last = _range(content, chance)
    return content[:first] + content[last:]


def doubled(content: bytes, chance: Random) -> bytes:
    first, last = _range(content, chance)
    return content[:last] + content[first:last] * chance.choice((1, 1, 50)) + content[last:]


def with_nuls(content: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes(chance.choice((1, 7, 4_096))) + content[at:]


def of_other_letters(content: bytes, chance: Random) -> bytes:
    """In another encoding, as editors write it."""
    encodings = ("utf-16", "utf-16-be", "utf-8-sig", "utf-7", "cp1252")
    return content.decode("utf-8", "replace").encode(chance.choice(encodings), "replace")


def _range(content: bytes, chance: Random) -> tuple[int, int]:
    first = chance.randrange(len(content))
    return first, min(first + chance.choice((1, 4, 30, 300)), len(content))


def odd(_: Any, chance: Random) -> Any:
    return chance.choice(ODD)


def disguised(value: Any, chance: Random) -> Any:
    """As somebody may take it for, of another type."""
    if isinstance(value, bool):
        return chance.choice((int(value), str(value), float(value), [value]))
    return chance.choice((json.dumps(value), str(value), [value], {"a": value}))


def lacking(value: Any, chance: Random) -> Any:
    """Without one of what is in it."""
    if not isinstance(value, dict | list) or not value:
        return None
    copy: Any = value.copy()
    del copy[_place(value, chance)]
    return copy


def grown(value: Any, chance: Random) -> Any:
    """With one more in it."""
    one = chance.choice(ODD)
    if isinstance(value, dict):
        return {**value, "more": one}
    values = value if isinstance(value, list) else [value]
    at = chance.randint(0, len(values))
    return [*values[:at], one, *values[at:]]


def _place(value: Any, chance: Random) -> Any:
    return chance.choice([*value] if isinstance(value, dict) else range(len(value)))


def swapped(value: Any, change: Callable[[Any], Any], chance: Random) -> Any:
    """A JSON value that is changed in some place; the value itself stays as it is."""
    if isinstance(value, dict | list) and value and chance.random() < 0.9:
        copy: Any = value.copy()
        place = _place(value, chance)
        copy[place] = swapped(value[place], change, chance)
        return copy
    return change(value)


def as_json(value: Any) -> bytes:
    """Write a value of `swapped`, in a line."""
    text = json.dumps(value)
    for name, written in _WRITTEN.items():
        text = text.replace(f'"{name}"', written)
    return text.encode()
