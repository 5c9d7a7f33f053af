"""What a format is: how its files become records, and the records of a trace its draft."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from kp_batch.conversion.rules import Rules
from kp_batch.errors import is_passing


@dataclass(slots=True)
class Origin:
    """Who did it, as far as that is known."""

    agent: str | None = None  # its name
    model: str | None = None
    session: str | None = None
    version: str | None = None  # of the agent


@dataclass(frozen=True)
class Native:
    """Where a trace came from, in its system's own names, so that scores can go back there."""

    root: str | None = None  # id of the root span, or of the root run
    log: str | None = None  # id of the log that holds it
    sample: str | None = None  # id within the log
    epoch: int | None = None  # which repetition of the sample


@dataclass(frozen=True)
class TraceDraft:
    """A trace as its system has it."""

    id: str  # `kp:trace:` and the native id
    created_at: datetime | None  # with a zone; None if it is unknown
    objective: str
    steps: Sequence[Mapping[str, object]]
    scores: Mapping[str, float] = field(default_factory=dict[str, float])  # the latest by name
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    faults: Sequence[str] = ()  # reasons of the format to refuse it
    # Only some formats have these; None where a rule has to decide.
    success: bool | None = None
    confidence: float | None = None
    task_domain: str | None = None
    ended_at: datetime | None = None  # of its root, or else its last step; None if it is unknown
    # Carried through.
    origin: Origin = field(default_factory=Origin)
    framework: str | None = None
    source_skill: str | None = None
    quality_score: float | None = None
    visibility: str | None = None
    privacy_level: str | None = None
    result_summary: str | None = None
    system: str | None = None  # what the system says at first
    tools: str | None = None  # that the agent has: JSON, see `tools_text`
    native: Native = Native()


@dataclass(frozen=True)
class Rejected:
    """A trace, a line or a file that cannot be imported."""

    reasons: Sequence[str]  # the codes of `reasons`, and those of imports
    message: str = ""
    id: str | None = None  # of a trace in the archive
    line: int | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that is no agent's trace, and is only counted."""

    kind: str  # in the words of messages
    stays: bool = False  # whether its records are kept for good, and not for a while


Drafted = TraceDraft | Rejected | Skipped  # what the records of a trace come to


@dataclass(slots=True)
class SourceRecord:
    """A part of a trace from one place of a source: a span, a score, or the complete trace."""

    trace: str  # the trace's native id
    payload: Any  # JSON; None: it is too large to be read
    line: int | None = None


class Turn(Protocol):
    """A turn, of which not all may be known yet."""

    @property
    def trace(self) -> str:
        """The native id of its trace; '' if it has none."""
        ...


@dataclass(frozen=True)
class InTurn:
    """A line of a session, and the turn to which it belongs; None if to none."""

    line: int
    turn: Turn | None


# The numbers and values of a session's lines, which may be gone through several times. None is one
# that is forgotten, and {} the first of a forgotten turn: these, and what follows without a prompt,
# belong to a turn that is nobody's.
Lines = Iterable[tuple[int, dict[str, Any] | None]]

HEAD_BYTES = 64 << 10  # of a file, which show its format
Read = Callable[[str], bytes]  # reads these of a file
Sniff = Callable[[str], Any]  # sniffs a file; see `Format.sniff`
LocalPath = Callable[[str], AbstractContextManager[Path]]  # a file's path on this machine


@dataclass(frozen=True)
class Input:
    """A file to read with its sidecars.

    Attributes:
        path: a file's path, or its URL.
        sidecars: likewise, of further files that are read with it.
        refused: why it is not read; None if it is.
    """

    path: str
    sidecars: tuple[str, ...] = ()
    refused: Rejected | None = None


ReadItem = SourceRecord | Rejected | Skipped


@dataclass(frozen=True)
class Format:
    """A system's form of traces.

    Attributes:
        name: on the command line.
        holds: the data that it has by itself, in words.
        decides: of success, confidence and task_domain, those that need no rule.
        inputs: chooses among the paths of a source, sorted, those that are read; may sniff files.
        sniff: takes a file's path and content, and gives a small JSON value of what `inputs` has
            to know of it.
        records: reads an input, whose files are on this machine: its path, and its sidecars. May
            raise an UnreadableError, or any error of a damaged file: items before it are void.
            Refuses nothing of a known trace, but gives a record.
        draft: takes all records of a trace, each content once, in the order in which they were
            first read: of several contents of one span, run or sample that which the format itself
            calls newer counts, else the last.
        source: what a file of the format is. A "stream" is added to and rotated: records that it
            has no more still count. A "document" is complete: records that it had before it was
            rewritten count no more. Records of a "registry" still count, too, but traces that it
            has no more are counted as deleted.
        has_times: whether a trace says when it began; else a rule has to.
        has_spans: whether a trace is a tree of spans, whose root another system may have.
        prefix: before a trace's native id, in its id in the archive.
        turns: cuts a file of a session into its traces: turns, or by the rules the session. Takes
            the name of the session, its lines, and the rules; gives the records of traces, what is
            none, and of each line where it belongs. None for a format whose records are those of
            traces themselves.
    """

    name: str
    holds: str
    inputs: Callable[[Sequence[str], Sniff], Iterator[Input]]
    records: Callable[[Path, Sequence[Path]], Iterator[ReadItem]]
    draft: Callable[[str, Sequence[SourceRecord], Rules], Drafted]
    sniff: Callable[[str, bytes], Any] = lambda _path, _content: None
    decides: frozenset[str] = frozenset()
    source: Literal["stream", "document", "registry"] = "stream"
    has_times: bool = True
    has_spans: bool = False
    prefix: str = "kp:trace:"
    turns: Callable[[str, Lines, Rules], Iterator[ReadItem | InTurn]] | None = None

    def id_of(self, trace: str) -> str:
        """A trace's id in the archive."""
        return f"{self.prefix}{trace}"

    def trace_of(self, id_: str) -> str:
        """A trace's native id."""
        return id_.removeprefix(self.prefix)

    def read(self, source: Input, local_path: LocalPath) -> Generator[ReadItem]:
        """Read an input, wherever its files are; see `records`."""
        with ExitStack() as stack:
            paths = source.path, *source.sidecars
            file, *sidecars = [stack.enter_context(local_path(path)) for path in paths]
            yield from self.records(file, sidecars)


def by_ending(*endings: str) -> Callable[[Sequence[str], Sniff], Iterator[Input]]:
    """Choose the files with these endings, without sidecars."""
    return lambda paths, _: (Input(path) for path in paths if path.lower().endswith(endings))


def patient(look: Sniff, sniff: Callable[[str, bytes], Any]) -> Sniff:
    """Sniff a file that cannot be read as an empty one: it is refused when its turn comes.

    Args:
        look: sniffs a file; its passing errors are raised.
        sniff: see `Format.sniff`.
    """

    def sniffed(path: str) -> Any:
        try:
            return look(path)
        except OSError as error:
            if is_passing(error):
                raise
            return sniff(path, b"")

    return sniffed
