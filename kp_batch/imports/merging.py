"""Merges the records that an import reads of a unit with the kept ones."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal

from kp_batch import bounds
from kp_batch.imports.blocks import Record, digest_of, is_session

# The contents of a session's forgotten lines, and of the first line of a forgotten turn.
BLANK, FIRST = b"null", b"{}"
_IS_FIRST = b"\1"  # after the digest
_Contents = dict[tuple[bytes, int], Record]


def forgotten_of(record: Record, *, is_first: bool) -> tuple[str, bytes]:
    """Return what makes a line of a session forgotten, wherever it is read."""
    return record.unit, digest_of(record.content or b"") + (_IS_FIRST if is_first else b"")


@dataclass(frozen=True)
class Merge:
    """Merges earlier records with new ones.

    Attributes:
        number: number of the first file that this import has read; its records are new.
        source: source of the format; see `Format.source`.
        read: files that this import has read.
        gone: files that are forgotten.
        forgotten: units with digests of contents that are kept out; None for all contents.
    """

    number: int
    source: Literal["stream", "document", "registry"] = "stream"
    read: Collection[int] = ()
    gone: Collection[int] = ()
    forgotten: AbstractSet[tuple[str, bytes | None]] = frozenset()

    def merged(self, name: str, kept: Iterable[Record], new: Iterable[Record]) -> "Merged":
        """Merge the kept records of a unit with those that were read.

        A content that a file had before keeps its place, so it does not become the newest again.
        """
        before = [*_with_contents(sorted(kept))]
        if (name, None) in self.forgotten:
            return Merged(is_replaced=bool(before))
        new_by_file = _by_file(map(self._blanked, sorted(new)))
        files, records = _by_file(before), list[Record]()
        for file in {**files, **new_by_file}:
            records += self._of_file(files.get(file, {}), new_by_file.get(file))
        if self.gone or self.forgotten:
            records = [x for x in records if x.file not in self.gone and not self._is_forgotten(x)]
        result = _limited(sorted(records))
        if result.is_too_large and is_session(name) and new_by_file:
            # Its turns stay whole, as they were: with more lines, some would be cut off.
            return replace(self.merged(name, before, ()), left_out=[*new_by_file])
        if before:
            stay = {record[1:4] for record in result.records}
            result.is_replaced = any(record[1:4] not in stay for record in before)
        result.only_gone = self._only_in_gone(before)
        result.seen_again = len(files.keys() & new_by_file.keys())
        return result

    def _of_file(self, before: "_Contents", new: "_Contents | None") -> Iterable[Record]:
        """Return the records of a file that count."""
        if new and is_session(next(iter(new.values())).unit):
            return _of_session(before, new)
        if self.source == "stream":
            return {**(new or {}), **before}.values()
        if new:
            return [before.get(content, record) for content, record in new.items()]
        return () if self.source == "document" and self._is_read(before) else before.values()

    def _is_read(self, before: "_Contents") -> bool:
        return any(record.file in self.read for record in before.values())

    def _is_forgotten(self, record: Record) -> bool:
        """Whether the content of a record is forgotten."""
        if not self.forgotten or record.content is None:
            return False
        return (record.unit, digest_of(record.content)) in self.forgotten

    def _blanked(self, record: Record) -> Record:
        """Return a record, without its content if it is a forgotten line of a session."""
        if not self.forgotten or not is_session(record.unit):
            return record
        digest = digest_of(record.content or b"")
        if (record.unit, digest + _IS_FIRST) in self.forgotten:
            return record._replace(content=FIRST)
        is_out = (record.unit, digest) in self.forgotten
        return record._replace(content=BLANK) if is_out else record

    def _only_in_gone(self, before: Sequence[Record]) -> set[bytes]:
        """Return the digests of the contents that only forgotten files have."""
        if not self.gone:
            return set()
        others = {record.content for record in before if record.file not in self.gone}
        gone = {record.content for record in before if record.file in self.gone}
        return {digest_of(content) for content in gone - others if content is not None}


def _of_session(before: _Contents, new: _Contents) -> Iterator[Record]:
    """Yield the lines of a session's file, ordered by their positions.

    A file with its former first line is the same file: changed lines replace the old ones, and
    lines that it had beyond its present end stay. Any other file was begun anew: its old lines stay
    above the new ones.
    """
    old = sorted(before.values(), key=lambda record: record.position)
    now = sorted(new.values(), key=lambda record: record.position)
    if old and (old[0].content or b"", 0) not in new:
        shift = old[-1].position + 1
        yield from old
        added = (record for key, record in new.items() if key not in before)
        yield from (record._replace(position=record.position + shift) for record in added)
        return
    for key, record in new.items():
        known = before.get(key, record)
        yield known._replace(position=record.position, line=record.line)
    end = now[-1].position
    yield from (x for key, x in before.items() if key not in new and x.position > end)


@dataclass
class Merged:
    """The merged records of a unit.

    Attributes:
        records: all that count, in the order in which they were first read, with their contents.
        contents: each content once, with the record that had it first.
        is_replaced: whether earlier records no longer count.
        is_too_large: whether there were more than a trace may have; the rest is left out.
        left_out: files with more of a session than there may be; the session stays as it was.
        only_gone: digests of the contents that only forgotten files have.
        seen_again: how many files had records of the unit before, and still have some.
    """

    records: Sequence[Record] = ()
    contents: Sequence[Record] = ()
    is_replaced: bool = False
    is_too_large: bool = False
    left_out: Sequence[int] = ()
    only_gone: AbstractSet[bytes] = field(default_factory=set[bytes])
    seen_again: int = 0

    def has_new(self, number: int) -> bool:
        """Whether any content was first read in a file of this number, or a later one."""
        return any(record.number >= number for record in self.contents)

    def packed(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return records as they are stored: each content only in the first record with it."""
        if len(self.contents) == len(self.records):
            return records
        first = {record.content: record[:4] for record in reversed(self.records)}
        return [
            record
            if record.content is None or first[record.content] == record[:4]
            else record._replace(content=None, digest=digest_of(record.content))
            for record in records
        ]


def _with_contents(records: Sequence[Record]) -> Iterator[Record]:
    """Yield records, with contents filled in from earlier records."""
    contents: dict[bytes, bytes] = {}
    if any(record.content is None for record in records):
        contents = {digest_of(x.content): x.content for x in records if x.content is not None}
    for record in records:
        if record.content is None and record.digest is not None:
            yield record._replace(content=contents[record.digest], digest=None)
        else:
            yield record


def _by_file(records: Iterable[Record]) -> "dict[int, _Contents]":
    """Group records by file, then by content. In sessions, equal lines are numbered.

    Outside sessions, the first of equal records counts.
    """
    files: dict[int, _Contents] = {}
    equals: dict[tuple[int, bytes], int] = {}
    for record in records:
        content, place = record.content or b"", 0
        if is_session(record.unit):
            place = equals.get((record.file, content), 0)
            equals[record.file, content] = place + 1
        files.setdefault(record.file, {}).setdefault((content, place), record)
    return files


def _limited(records: Sequence[Record]) -> Merged:
    """Return the records of a unit up to the limit of a trace's size."""
    size, kept, contents = 0, list[Record](), dict[bytes, Record]()
    for record in records:
        if size > bounds.TRACE_BYTES:
            break
        content = record.content or b""
        if content not in contents:
            size += len(content)
            contents[content] = record
        kept.append(record)
    return Merged(kept, [*contents.values()], is_too_large=size > bounds.TRACE_BYTES)
