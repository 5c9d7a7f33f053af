"""Damage by chance, the same each time: some of what the table has."""

from io import BytesIO
from random import Random
from typing import Any

import pyarrow.parquet as pq

from tests.support.damage.changes import swapped
from tests.support.damage.table import damages

_IN_PLACE, _PAGES, _VALUES = damages("bytes in place"), damages("page"), damages("value")
_BYTES = [*damages("bytes"), *_IN_PLACE]


def damaged(content: bytes, chance: Random) -> bytes:
    """The content with one or two damages; it is not empty."""
    for _ in range(chance.choice((1, 1, 2))):
        content = chance.choice(_BYTES).make(content, chance) or b"\n"
    return content


def damaged_in_place(content: bytes, chance: Random) -> bytes:
    """The content with damages that leave all else where it was."""
    for _ in range(chance.choice((1, 1, 4))):
        content = chance.choice(_IN_PLACE).make(content, chance)
    return content


def damaged_parquet(content: bytes, chance: Random) -> bytes:
    """A Parquet file, described mostly at its end: damage is as likely before, or nowhere."""
    kind, end = chance.random(), len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if kind < 0.3:
        return damaged(content, chance)
    if kind < 0.6:
        return damaged_in_place(content[:end], chance) + content[end:]
    return _with_page(content, chance) if kind < 0.8 else content


def _with_page(content: bytes, chance: Random) -> bytes:
    metadata = pq.read_metadata(BytesIO(content))
    group = metadata.row_group(chance.randrange(metadata.num_row_groups))
    column = group.column(chance.randrange(group.num_columns))
    return chance.choice(_PAGES).make(content, column)


def damaged_value(value: Any, chance: Random) -> Any:
    """A JSON value that is changed in some place; the value itself stays as it is."""
    return swapped(value, lambda each: chance.choice(_VALUES).make(each, chance), chance)
