"""Records of a unit over several imports, against the plainest loop that has the same rules."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch import bounds
from kp_batch.imports.blocks import Record, digest_of, pack, unpack
from kp_batch.imports.merging import Merge, Merged

UNIT = "unit"
Files = Mapping[int, Sequence[bytes]]  # contents, by the files that were read
Place = tuple[int, int, int]  # of an import, a file and a position


class Imports:
    """Imports one after another of one unit, and what is stored of it."""

    def __init__(self, source: Any) -> None:
        self.source, self.number = source, 0
        self.forgotten = set[tuple[str, bytes | None]]()
        self.stored: list[Record] = []
        self.merged = Merged()

    def read(self, files: Files) -> None:
        """Read files, as they are by now."""
        self.number += 1
        new = [
            Record(UNIT, self.number, file, place, place + 1, content)
            for file, contents in files.items()
            for place, content in enumerate(contents)
        ]
        self._merge(new, read=[*files])

    def forget(self, files: Collection[int]) -> None:
        """Forget what only these files have."""
        self.number += 1
        self._merge([], gone=files)
        self.forgotten |= {(UNIT, digest) for digest in self.merged.only_gone}

    def forget_all(self) -> None:
        """Forget the unit."""
        self.number += 1
        self.forgotten.add((UNIT, None))
        self._merge([])

    def _merge(self, new: Sequence[Record], **more: Any) -> None:
        merge = Merge(self.number, self.source, forgotten=frozenset(self.forgotten), **more)
        self.merged = merge.merged(UNIT, reversed(self.stored), reversed(new))
        records = self.merged.records
        if self.merged.is_replaced:
            self.stored = []
        added = [x for x in records if self.merged.is_replaced or x.number == self.number]
        self.stored += unpack(pack([*self.merged.packed(added)]))


class Oracle:
    """The same, in plain loops: of each file, the contents that count, and where they were read."""

    def __init__(self, source: str) -> None:
        self.source, self.number = source, 0
        self.files: dict[int, dict[bytes, int]] = {}
        self.places: dict[tuple[int, bytes], Place] = {}
        self.forgotten: set[bytes] = set()

    def read(self, files: Files) -> None:
        self.number += 1
        for file, contents in files.items():
            old = self.files.get(file, {})
            new = list(dict.fromkeys(contents))
            for content in new:
                if content not in old:
                    self.places[file, content] = self.number, file, contents.index(content)
            if self.source == "stream":
                kept = [*old, *new]
            elif self.source == "document" or new:
                kept = new
            else:
                kept = [*old]
            self.files[file] = dict.fromkeys((x for x in kept if x not in self.forgotten), 0)

    def forget(self, gone: Collection[int]) -> None:
        self.number += 1
        others = {x for file, contents in self.files.items() if file not in gone for x in contents}
        for file in gone:
            self.forgotten |= self.files.pop(file, {}).keys() - others

    def forget_all(self) -> None:
        self.number += 1
        self.files = {}

    @property
    def records(self) -> list[tuple[Place, bytes]]:
        found = [
            (self.places[file, content], content)
            for file, contents in self.files.items()
            for content in contents
        ]
        return sorted(found)


CONTENTS = st.lists(st.sampled_from([b"", b"1", b"2", b"3", b'"\xc3\xa9"']), max_size=4)
READ = st.tuples(st.just("read"), st.dictionaries(st.integers(1, 3), CONTENTS, min_size=1))
FORGET = st.tuples(st.just("forget"), st.sets(st.integers(1, 3), min_size=1))


@pytest.mark.parametrize("source", ["stream", "document", "registry"])
@given(steps=st.lists(READ | READ | FORGET, max_size=6), is_forgotten=st.booleans())
def test_imports_come_to_what_a_plain_loop_comes_to(
    source: str, steps: list[tuple[str, Any]], *, is_forgotten: bool
) -> None:
    imports, oracle = Imports(source), Oracle(source)
    for name, what in steps:
        before = [*imports.stored]
        for each in (imports, oracle):
            getattr(each, name)(what)
        records = imports.merged.records
        assert [(x[1:4], x.content) for x in records] == oracle.records
        assert [x.content for x in imports.merged.contents] == [
            *dict.fromkeys(content for _, content in oracle.records)
        ]
        places = {place for place, _ in oracle.records}
        assert imports.merged.is_replaced == any(x[1:4] not in places for x in before)
        assert {x[1:4] for x in imports.stored} == places
        contents = [x.content for x in imports.stored if x.content is not None]
        assert len(contents) == len({*contents})  # each is stored once
        assert {digest for _, digest in imports.forgotten} == {*map(digest_of, oracle.forgotten)}
    if is_forgotten:
        imports.forget_all()
        assert (imports.merged.records, imports.stored) == ((), [])
        imports.read({1: [b"1"]})
        assert (imports.merged.records, imports.stored) == ((), [])


def test_what_is_new_is_what_this_import_read_first() -> None:
    imports = Imports("stream")
    imports.read({1: [b"1"]})
    assert imports.merged.has_new(1)
    imports.read({1: [b"1"], 2: [b"1"]})  # a copy
    assert not imports.merged.has_new(2)
    assert imports.merged.seen_again == 1
    assert [x[1:4] for x in imports.stored] == [(1, 1, 0), (2, 2, 0)]
    imports.read({1: [b"2"]})
    assert imports.merged.has_new(3)


def test_of_a_unit_that_is_too_large_the_first_records_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "TRACE_BYTES", 10)
    imports = Imports("stream")
    imports.read({1: [b"x" * 6, b"y" * 4]})
    assert not imports.merged.is_too_large
    imports.read({1: [b"z", b"a", b"b"]})
    assert imports.merged.is_too_large
    assert [x.content for x in imports.stored] == [b"x" * 6, b"y" * 4, b"z"]
    imports.read({2: [b"c"]})
    assert imports.merged.is_too_large
    assert len(imports.stored) == 3
