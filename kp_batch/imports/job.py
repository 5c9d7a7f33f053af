"""The work of one import: files become records, and records become traces, or are refused.

Files are read, and traces are built, by functions that share nothing, so that many processes may
do so at once; their results are joined in the order of the files and of the traces.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException

from kp_batch import bounds
from kp_batch.bounds import (
    TOO_LARGE,
    VALUE_BYTES,
    TooLargeError,
    parse,
    refusal_budget,
    trace_budget,
    weight,
)
from kp_batch.conversion.apply_rules import Row, apply_rules
from kp_batch.conversion.conversation.attributes import first
from kp_batch.conversion.conversation.messages import CutContentError
from kp_batch.conversion.model import (
    Format,
    Input,
    Present,
    ReadItem,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
)
from kp_batch.conversion.rules import Rules
from kp_batch.errors import KpBatchError, ResourceError, UnreadableError, is_of_machine, is_passing
from kp_batch.imports.days import DailyPartitions, day_of, rows_of
from kp_batch.imports.join import Outcome, TraceRecords
from kp_batch.imports.records import NewRecords
from kp_batch.imports.refusals import Refusals, waits
from kp_batch.imports.source_files import local_path
from kp_batch.imports.workers import Workers
from kp_batch.steps.step import cut
from kp_batch.text import one_line, ten_of

_BATCH_BYTES = 1 << 20  # of the records of traces that are built at once


@dataclass(frozen=True)
class FilesRead:
    """What was read from some files.

    Attributes:
        faults: by file, why it cannot be read; then none of its records counts.
        dropped: by file, what is no record.
        records: runs of `records.RECORDS`.
        present: runs of the traces that registries still have.
    """

    faults: dict[str, Rejected]
    dropped: list[tuple[str, Rejected | Skipped]]
    records: Sequence[Path]
    present: Sequence[Path]


def read_files(
    form: Format, rules: Rules, inputs: Sequence[Input], number: int, folder: Path
) -> FilesRead:
    """Read the inputs of an import of this number, with runs in a new folder."""
    new = NewRecords(folder, number)
    faults: dict[str, Rejected] = {}
    dropped: list[tuple[str, Rejected | Skipped]] = []
    form = form.under(rules)
    for file in inputs:
        try:
            others = list(_read(form, file, new))
        except TooLargeError as error:
            faults[file.path] = Rejected([TOO_LARGE], str(error))
        except UnreadableError as error:
            faults[file.path] = Rejected([fault.code for fault in error.faults], str(error))
        else:
            dropped += ((file.path, item) for item in others)
    return FilesRead(faults, dropped, new.records.runs(), new.present.runs())


def _read(form: Format, file: Input, new: NewRecords) -> Iterator[Rejected | Skipped]:
    """Take the records of a file; gives what is no record."""
    budget = refusal_budget()
    for position, item in enumerate(items_of(form, file)):
        if isinstance(item, SourceRecord):
            new.add(item, file.path, position)
        elif isinstance(item, Present):
            new.present.add((item.trace, file.path), len(item.trace))
        else:
            budget.take(isinstance(item, Rejected))
            yield item


def items_of(form: Format, file: Input) -> Iterator[ReadItem]:
    """Read a file. Only what is raised here is a fault of it, and not of our own disk.

    Raises:
        TooLargeError, UnreadableError: what was read before is void.
    """
    try:
        yield from form.read(file, local_path)
    except (KpBatchError, TooLargeError, UnreadableError):
        raise
    except MemoryError as error:
        raise _out_of_memory(f"{file.path} was read") from error
    except (Exception, PanicException) as error:  # damage raises errors of many kinds
        if is_passing(error) or is_of_machine(error):
            raise
        reason = one_line(str(error)) or type(error).__name__
        raise UnreadableError(f"it cannot be read: {reason}") from error


@dataclass
class ImportCounts:
    """What traces have that rules may name."""

    unmapped: Counter[str] = field(default_factory=Counter[str])  # values that name no domain
    scores: set[str] = field(default_factory=set[str])  # names
    fields: set[str] = field(default_factory=set[str])  # names

    def count(self, draft: TraceDraft, rules: Rules) -> None:
        """Count a trace."""
        self.scores |= draft.scores.keys()
        self.fields |= draft.fields.keys()
        rule = rules.task_domain
        if rule and rule.source and not rule.named(draft.fields):
            values = draft.fields.get(rule.source, ())
            self.unmapped[first(values) or "(none)"] += 1

    def add(self, other: "ImportCounts") -> None:
        """Add the counts of other traces."""
        self.scores |= other.scores
        self.fields |= other.fields
        self.unmapped += other.unmapped


@dataclass(frozen=True)
class Built:
    """The results of building some traces.

    Attributes:
        results: of each its day, or why it has none; None if it has no records by now.
        rows: the traces that have a day, as `days.rows_of` has them.
        counts: of these, and of those that the rules refuse.
    """

    results: list[str | Rejected | Skipped | None]
    rows: pl.DataFrame
    counts: ImportCounts


def build_traces(form: Format, rules: Rules, traces: Sequence[TraceRecords]) -> Built:
    """Build traces, each of all its records, or refuse them."""
    counts = ImportCounts()
    built = [
        _built(form, rules, trace, counts) if trace.contents or trace.is_too_large else None
        for trace in traces
    ]
    rows = rows_of([row for row in built if isinstance(row, dict)])
    return Built([day_of(x) if isinstance(x, dict) else x for x in built], rows, counts)


def _built(
    form: Format, rules: Rules, trace: TraceRecords, counts: ImportCounts
) -> Row | Rejected | Skipped:
    id_ = form.id_of(trace.trace)
    try:
        chosen = rules.settled if trace.is_settled else rules
        draft = form.draft(trace.trace, list(_parsed(trace)), chosen)
        if not isinstance(draft, TraceDraft):
            return draft
        counts.count(draft, rules)
        return apply_rules(draft, rules, form.name)
    except OSError:
        raise
    except TooLargeError as error:
        return Rejected([TOO_LARGE], str(error), id=id_)
    except CutContentError as error:
        return Rejected(["cut_content"], str(error), id=id_)
    except MemoryError as error:
        raise _out_of_memory(f"{id_} of {trace.file} was made") from error
    except Exception as error:  # noqa: BLE001 (others' JSON may have any value)
        reason = one_line(f"{type(error).__name__}: {error}")
        return Rejected(["malformed_json"], f"it is not understood: {reason}", id=id_)


def _parsed(trace: TraceRecords) -> Iterator[SourceRecord]:
    """The records of a trace; nothing is parsed of one that is too large."""
    budget = trace_budget()
    if trace.is_too_large:
        budget.take(bounds.TRACE_BYTES + 1)
    for content in trace.contents:
        budget.take(VALUE_BYTES + weight(content))
    for content, line in zip(trace.contents, trace.lines, strict=True):
        if (payload := parse(content)) is None:
            raise TooLargeError("a part of it is too large to be read")
        yield SourceRecord(trace.trace, payload, line)


def _out_of_memory(when: str) -> ResourceError:
    return ResourceError(f"memory ran out while {when}; import it where there is more")


class ImportJob:
    """Has workers read files, then build traces of their records and earlier ones.

    What does not fit into memory goes into the folder, which is empty.
    """

    def __init__(
        self, form: Format, rules: Rules, folder: Path, number: int, workers: Workers
    ) -> None:
        self.form, self.rules, self._folder, self._workers = form, rules, folder, workers
        self.traces, self.skipped, self.counts = 0, Counter[str](), ImportCounts()
        self.new = NewRecords(folder / "new", number)
        self.days = DailyPartitions(folder / "days")
        self.refusals = Refusals(folder / "refused")

    def read(self, groups: Sequence[Sequence[Input]]) -> Iterator[set[str]]:
        """Take the records of files; gives of each group the paths of those that are readable."""
        begun = [
            self._workers.submit(
                read_files,
                self.form,
                self.rules,
                [file for file in group if not file.refused],
                self.new.number,
                self._folder / "read" / f"{place}",
            )
            for place, group in enumerate(groups)
        ]
        for group, read in zip(groups, begun, strict=True):
            yield self._take(group, read())

    def _take(self, group: Sequence[Input], read: FilesRead) -> set[str]:
        faults = {file.path: file.refused for file in group if file.refused} | read.faults
        self.new.records.adopt(read.records)
        self.new.present.adopt(read.present)
        for file in group:
            self.refusals.read_file(file.path)
        for path, fault in faults.items():
            self.new.void(path)
            self.refusals.add(fault, path, is_file=True)
        for path, item in read.dropped:
            self._drop(item, path)
        return {file.path for file in group} - faults.keys()

    def _drop(self, item: Rejected | Skipped, file: str) -> None:
        if isinstance(item, Rejected):
            self.refusals.add(item, file)
        else:
            self.skipped[item.kind] += 1

    def build(self, traces: Sequence[TraceRecords]) -> Callable[[], Iterator[Outcome]]:
        """Begin to build traces; what is returned waits for the outcome of each."""
        begun = [
            (batch, self._workers.submit(build_traces, self.form, self.rules, batch))
            for batch in cut(traces, lambda x: sum(map(len, x.contents)), _BATCH_BYTES)
        ]
        return lambda: (
            outcome for batch, built in begun for outcome in self._outcomes(batch, built())
        )

    def _outcomes(self, batch: Sequence[TraceRecords], built: Built) -> Iterator[Outcome]:
        self.days.add(built.rows)
        self.counts.add(built.counts)
        for trace, result in zip(batch, built.results, strict=True):
            id_, day = self.form.id_of(trace.trace), None
            self.refusals.read_trace(id_)
            if isinstance(result, Rejected | Skipped):
                self._drop(result, trace.file)
            elif result:
                self.traces, day = self.traces + 1, result
            self.days.move(id_, day, trace.days)
            is_waiting = isinstance(result, Rejected) and waits(result) and not trace.is_settled
            is_skipped = isinstance(result, Skipped) and not result.stays
            yield Outcome(day, is_skipped, is_waiting)

    def check_names(self) -> None:
        """Refuse rules that name a score or a field that no trace has, where traces have others.

        Raises:
            KpBatchError: names all of them.
        """
        success, confidence = self.rules.success, self.rules.confidence
        domain, scores, fields = self.rules.task_domain, self.counts.scores, self.counts.fields
        # With another domain for all else, a field that only some traces have may be missing.
        named = (
            ("score", success and success.score, scores),
            ("score", confidence and confidence.score, scores),
            ("field", domain and domain.otherwise is None and domain.source, fields),
            ("field", self.rules.agent_id, fields),
        )
        faults = [
            f"no {kind} {name!r}; the source has: {ten_of(sorted(names))}"
            for kind, name, names in named
            if name and names and name not in names
        ]
        if faults:
            raise KpBatchError("; ".join(faults))
