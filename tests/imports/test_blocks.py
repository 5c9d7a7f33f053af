"""Blocks of records: whatever is packed is unpacked, and damage raises one of the known faults."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch import zstd
from kp_batch.imports.blocks import FAULTS, Record, digest_of, pack, unpack

NAMES = st.text(st.characters(codec="utf-8"), max_size=3)
NUMBERS = st.integers(0, 1 << 40)


@st.composite
def records(draw: st.DrawFn) -> Record:
    content = draw(st.none() | st.binary(max_size=20))
    return Record(
        draw(NAMES),
        draw(NUMBERS),
        draw(NUMBERS),
        draw(NUMBERS),
        draw(st.none() | NUMBERS),
        content,
        digest_of(draw(st.binary(max_size=2))) if content is None else None,
    )


@given(st.lists(records(), max_size=9))
def test_what_is_unpacked_is_what_was_packed(packed: list[Record]) -> None:
    assert [*unpack(pack(packed))] == packed


BLOCK = pack(
    [Record("é\u2028\0", 1, 2, 3, 4, b'{"a": 1}'), Record("b", 1, 2, 3, None, None, b"d" * 16)]
)
CONTENT = zstd.decompress(BLOCK)


@pytest.mark.parametrize("end", range(len(BLOCK)))
def test_a_block_that_is_cut_raises_a_known_fault(end: int) -> None:
    with pytest.raises(FAULTS):
        [*unpack(BLOCK[:end])]


@pytest.mark.parametrize("place", range(len(BLOCK)))
def test_a_block_with_a_changed_bit_raises_a_known_fault(place: int) -> None:
    for bit in range(8):
        changed = bytearray(BLOCK)
        changed[place] ^= 1 << bit
        with suppress(*FAULTS):  # some bits of zstd mean nothing
            assert [*unpack(bytes(changed))] == [*unpack(BLOCK)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0\x09[]",
        b"\0\0\0\x02[]",
        CONTENT.replace(b'"units"', b'"unity"'),
        CONTENT.replace(b'"numbers":[1,1]', b'"numbers":[111]'),
        CONTENT.replace(b'"lengths":[8,', b'"lengths":"8,'),
    ],
)
def test_a_block_of_something_else_raises_a_known_fault(content: bytes) -> None:
    assert content != CONTENT
    with pytest.raises(FAULTS):
        [*unpack(zstd.compress(content))]
