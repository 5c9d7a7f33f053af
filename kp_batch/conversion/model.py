"""The parts of a format: files become records, and the records of a trace become its draft."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from kp_batch.conversion.rules import Rules
from kp_batch.errors import is_passing
from kp_batch.text import shortened

_KIND = 40  # characters of a kind that messages show


@dataclass(slots=True)
class Origin:
    """Who did it, as far as known."""

    agent: str | None = None  # name of the agent
    model: str | None = None
    session: str | None = None
    version: str | None = None  # version of the agent


@dataclass(frozen=True)
class Native:
    """Where a trace came from, by its system's own ids, so scores can be sent back there."""

    root: str | None = None  # id of the root span, or of the root run
    log: str | None = None  # id of the log that contains it
    sample: str | None = None  # id in the log
    epoch: int | None = None  # which repetition of the sample


@dataclass(frozen=True)
class TraceDraft:
    """A trace as its system has it."""

    id: str  # `kp:trace:` and the native id
    created_at: datetime | None  # with a zone; None if unknown
    objective: str
    steps: Sequence[Mapping[str, object]]
    scores: Mapping[str, float] = field(default_factory=dict[str, float])  # the latest by name
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    faults: Sequence[str] = ()  # the format's reasons to refuse it
    # Only some formats have these; if None, a rule must decide.
    success: bool | None = None
    confidence: float | None = None
    task_domain: str | None = None
    ended_at: datetime | None = None  # of its root, or else its last step; None if unknown
    # Carried through.
    origin: Origin = field(default_factory=Origin)
    framework: str | None = None
    source_skill: str | None = None
    quality_score: float | None = None
    visibility: str | None = None
    privacy_level: str | None = None
    result_summary: str | None = None
    system: str | None = None  # the first system message
    tools: str | None = None  # tools of the agent: JSON, see `tools_text`
    native: Native = Native()


@dataclass(frozen=True)
class Refused:
    """A trace, a line or a file that cannot be imported."""

    reasons: Sequence[str]  # the codes of `reasons`, and those of imports
    message: str = ""
    id: str | None = None  # of a trace in the archive
    line: int | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that is not an agent's trace, and is only counted."""

    kind: str  # as messages name it
    keeps_records: bool = False  # whether the archive keeps its records for good


def of_unknown_kind(part: str, kind: object) -> Skipped:
    """Count a part of a record whose kind no reader knows, such as a span of a later version."""
    return Skipped(f"{part} of an unknown kind: {shortened(str(kind), _KIND)}")


Drafted = TraceDraft | Refused | Skipped  # what the records of a trace become


@dataclass(slots=True)
class SourceRecord:
    """A part of a trace from one place of a source: a span, a score, or the complete trace."""

    trace: str  # the trace's native id
    payload: Any  # JSON; None if it is too large to be read
    line: int | None = None


class Turn(Protocol):
    """A turn, which may not be completely known yet."""

    @property
    def trace(self) -> str:
        """The native id of its trace; '' if it has none."""
        ...


@dataclass(frozen=True)
class InTurn:
    """A line of a session, and the turn to which it belongs; None if to none."""

    line: int
    turn: Turn | None


# The numbers and values of a session's lines, which can be iterated several times. None is a
# forgotten line, and {} the first line of a forgotten turn. These, and what follows without a
# prompt, belong to no trace.
Lines = Iterable[tuple[int, dict[str, Any] | None]]

HEAD_BYTES = 64 << 10  # of a file, which show its format
Read = Callable[[str], bytes]  # reads the head of a file
Probe = Callable[[str], Any]  # probes a file; see `Format.probe`
LocalPath = Callable[[str], AbstractContextManager[Path]]  # yields a file's path on this machine


@dataclass(frozen=True)
class Input:
    """A file to read with its sidecars.

    Attributes:
        path: path or URL of the file.
        sidecars: paths or URLs of further files that are read with it.
        refused: why it is not read; None if it is.
    """

    path: str
    sidecars: tuple[str, ...] = ()
    refused: Refused | None = None


ReadItem = SourceRecord | Refused | Skipped


@dataclass(frozen=True)
class Format:
    """A system's form of traces.

    Attributes:
        name: name on the command line.
        contents: what its data contains, in words.
        decides: which of success, confidence and task_domain need no rule.
        inputs: chooses the files to read among the sorted paths of a source; may probe files.
        probe: takes a file's path and content; returns what `inputs` must know of it, as a small
            JSON value.
        records: reads an input, given the local paths of its file and its sidecars. May raise an
            UnreadableError, or any error of a damaged file; items before it are void. It does not
            refuse parts of a known trace, but yields a record.
        draft: takes all records of a trace, each content once, in the order in which they were
            first read. If a span, run or sample has several contents, the one that the format
            itself calls newer counts, else the last.
        source: what a file of the format is. A "stream" is appended to and rotated: records that
            it no longer has still count. A "document" is complete: after it is rewritten, its
            earlier records no longer count. Records of a "registry" still count, but traces that it
            no longer has are counted as deleted.
        has_times: whether a trace contains its start; else a rule must decide.
        has_spans: whether a trace is a tree of spans, whose root may be in another system.
        unknown: yields, for the payload of a record, what no reader knows in it; see
            `of_unknown_kind`. It is passed over, and its record is kept for newer versions.
        prefix: prefix of a trace's native id in its id in the archive.
        turns: cuts a file of a session into its traces: turns, or, by the rules, the session. Takes
            the name of the session, its lines, and the rules. Yields the records of traces, items
            that are not records, and where each line belongs. None for a format whose records
            belong to traces directly.
    """

    name: str
    contents: str
    inputs: Callable[[Sequence[str], Probe], Iterator[Input]]
    records: Callable[[Path, Sequence[Path]], Iterator[ReadItem]]
    draft: Callable[[str, Sequence[SourceRecord], Rules], Drafted]
    probe: Callable[[str, bytes], Any] = lambda _path, _content: None
    decides: frozenset[str] = frozenset()
    source: Literal["stream", "document", "registry"] = "stream"
    has_times: bool = True
    has_spans: bool = False
    unknown: Callable[[Any], Iterable[Skipped]] = lambda _: ()
    prefix: str = "kp:trace:"
    turns: Callable[[str, Lines, Rules], Iterator[ReadItem | InTurn]] | None = None

    def id_of(self, trace: str) -> str:
        """Return a trace's id in the archive."""
        return f"{self.prefix}{trace}"

    def trace_of(self, id_: str) -> str:
        """Return a trace's native id."""
        return id_.removeprefix(self.prefix)

    def read(self, source: Input, local_path: LocalPath) -> Generator[ReadItem]:
        """Read an input, wherever its files are; see `records`."""
        with ExitStack() as stack:
            paths = source.path, *source.sidecars
            file, *sidecars = [stack.enter_context(local_path(path)) for path in paths]
            yield from self.records(file, sidecars)


def by_ending(*endings: str) -> Callable[[Sequence[str], Probe], Iterator[Input]]:
    """Choose the files with these endings, without sidecars."""
    return lambda paths, _: (Input(path) for path in paths if path.lower().endswith(endings))


def lenient_probe(probe_file: Probe, probe: Callable[[str, bytes], Any]) -> Probe:
    """Probe an unreadable file as if it were empty: it is refused later, when it is read.

    Args:
        probe_file: probes a file; its passing errors are raised.
        probe: see `Format.probe`.
    """

    def probed(path: str) -> Any:
        try:
            return probe_file(path)
        except OSError as error:
            if is_passing(error):
                raise
            return probe(path, b"")

    return probed
