"""One import on its way: what files tell, what is made of it, and what is refused.

Files are read, and traces are built, by functions that share nothing, so that many processes may
do so at once; what comes of it is brought together in the order of the files and of the traces.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException

from kp_batch.errors import KpBatchError, ResourceError, UnreadableError, is_of_machine, is_passing
from kp_batch.imports.apply_rules import Row, apply_rules
from kp_batch.imports.conversation.attributes import first
from kp_batch.imports.days import DailyPartitions, day_of, rows_of
from kp_batch.imports.model import (
    Format,
    Input,
    Present,
    ReadItem,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
)
from kp_batch.imports.records import NewRecords, Outcome, TraceRecords
from kp_batch.imports.rejects import Refusals
from kp_batch.imports.rules import Rules
from kp_batch.imports.sorted_runs import SortedRuns
from kp_batch.imports.sources import local_path
from kp_batch.imports.workers import Workers
from kp_batch.limits import (
    TOO_LARGE,
    VALUE_BYTES,
    TooLargeError,
    parse,
    refusal_budget,
    trace_budget,
    weight,
)
from kp_batch.text import one_line

_PRESENT = pl.Schema({"trace": pl.String, "file": pl.String})
_BATCH_BYTES = 1 << 20  # of records, of which traces are built at once


@dataclass(frozen=True)
class FilesRead:
    """What some files told.

    Attributes:
        faults: of each file why it cannot be read; then it tells nothing.
        aside: what is no record, by file.
        records: runs of `records.RECORDS`.
        present: likewise, of the traces that registries still have.
    """

    faults: dict[str, Rejected]
    aside: list[tuple[str, Rejected | Skipped]]
    records: Sequence[Path]
    present: Sequence[Path]


def read_files(
    form: Format, rules: Rules, inputs: Sequence[Input], number: int, folder: Path
) -> FilesRead:
    """Read files.

    Args:
        form: of the files.
        rules: by which it has its traces.
        inputs: the files.
        number: of the import.
        folder: for what they tell; it is new.
    """
    records = NewRecords(folder / "records", number)
    present = SortedRuns(folder / "present", _PRESENT, ["trace"], pl.lit(100))
    faults: dict[str, Rejected] = {}
    aside: list[tuple[str, Rejected | Skipped]] = []
    form = form.under(rules)
    for each in inputs:
        try:
            told = list(_read(form, each, records, present))
        except TooLargeError as error:
            faults[each.path] = Rejected([TOO_LARGE], str(error))
        except UnreadableError as error:
            faults[each.path] = Rejected([fault.code for fault in error.faults], str(error))
        else:
            aside += ((each.path, found) for found in told)
    return FilesRead(faults, aside, records.runs(), present.runs())


def _read(
    form: Format, given: Input, records: NewRecords, present: SortedRuns
) -> Iterator[Rejected | Skipped]:
    """Take what a file tells; gives what is no record."""
    room = refusal_budget()
    for position, found in enumerate(_found(form, given)):
        if isinstance(found, SourceRecord):
            records.add(found, given.path, position)
        elif isinstance(found, Present):
            present.add((found.trace, given.path), len(found.trace))
        else:
            room.take(isinstance(found, Rejected))
            yield found


def _found(form: Format, given: Input) -> Iterator[ReadItem]:
    """What a file tells. Only what is raised here is a fault of it, and not of our own disk."""
    try:
        yield from form.read(given, local_path)
    except (KpBatchError, TooLargeError, UnreadableError):
        raise
    except MemoryError as error:
        raise _out_of_memory(f"{given.path} was read") from error
    except (Exception, PanicException) as error:  # damage raises errors of many kinds
        if is_passing(error) or is_of_machine(error):
            raise
        reason = one_line(str(error)) or type(error).__name__
        raise UnreadableError(f"it cannot be read: {reason}") from error


@dataclass
class ImportCounts:
    """What an import has counted of its traces."""

    unmapped: Counter[str] = field(default_factory=Counter[str])  # values that name no domain
    scores: set[str] = field(default_factory=set[str])  # names that traces have
    fields: set[str] = field(default_factory=set[str])

    def note(self, draft: TraceDraft, rules: Rules) -> None:
        """Count a trace."""
        self.scores |= draft.scores.keys()
        self.fields |= draft.fields.keys()
        rule = rules.task_domain
        if rule and rule.source and not rule.named(draft.fields):
            values = draft.fields.get(rule.source, ())
            self.unmapped[first(values) or "(none)"] += 1

    def add(self, other: "ImportCounts") -> None:
        """Count others."""
        self.scores |= other.scores
        self.fields |= other.fields
        self.unmapped += other.unmapped


@dataclass(frozen=True)
class Built:
    """What became of some traces.

    Attributes:
        made: of each its day, or why there is none; None if nothing is told of it by now.
        rows: those that there are, as `days.rows_of` has them.
        counts: of these, and of those that the rules refuse.
    """

    made: list[str | Rejected | Skipped | None]
    rows: pl.DataFrame
    counts: ImportCounts


def build_traces(form: Format, rules: Rules, traces: Sequence[TraceRecords]) -> Built:
    """Make traces, each of all that was told of it, or refuse them."""
    counts = ImportCounts()
    made = [_made(form, rules, trace, counts) if trace.contents else None for trace in traces]
    rows = rows_of([each for each in made if isinstance(each, dict)])
    return Built([day_of(x) if isinstance(x, dict) else x for x in made], rows, counts)


def _made(
    form: Format, rules: Rules, told: TraceRecords, counts: ImportCounts
) -> Row | Rejected | Skipped:
    name = form.id_of(told.trace)
    try:
        made = form.draft(told.trace, list(_records(told)), rules)
        if isinstance(made, TraceDraft):
            counts.note(made, rules)
            made = apply_rules(made, rules, form.name)
    except OSError:
        raise
    except TooLargeError as error:
        return Rejected([TOO_LARGE], str(error), id=name)
    except MemoryError as error:
        raise _out_of_memory(f"{name} of {told.file} was made") from error
    except Exception as error:  # noqa: BLE001 (any value may stand in others' JSON)
        reason = one_line(f"{type(error).__name__}: {error}")
        return Rejected(["malformed_json"], f"it is not understood: {reason}", id=name)
    return made


def _records(told: TraceRecords) -> Iterator[SourceRecord]:
    room = trace_budget()
    for content, line in zip(told.contents, told.lines, strict=True):
        room.take(VALUE_BYTES + weight(content))
        if (record := parse(content)) is None:
            raise TooLargeError("a part of it is too large to be read")
        yield SourceRecord(told.trace, record, line)


def _out_of_memory(when: str) -> ResourceError:
    return ResourceError(f"memory ran out while {when}; import it where there is more")


class ImportJob:
    """Takes files, then builds traces of what they and others told.

    Args:
        form: of the files.
        rules: decide what the format does not tell.
        folder: an empty one, for what does not fit into memory.
        number: of this import.
        workers: do it.
    """

    def __init__(
        self, form: Format, rules: Rules, folder: Path, number: int, workers: Workers
    ) -> None:
        self.form, self.rules, self._folder, self._workers = form, rules, folder, workers
        self.traces, self.skipped, self.counts = 0, Counter[str](), ImportCounts()
        self.new = NewRecords(folder / "new", number)
        self.present = SortedRuns(folder / "present", _PRESENT, ["trace"], pl.lit(100))
        self.days = DailyPartitions(folder / "days")
        self.refusals = Refusals(folder / "refused")

    def read(self, groups: Sequence[Sequence[Input]]) -> Iterator[set[str]]:
        """Take the records of files; gives of each group the paths of those that could be read."""
        begun = [
            self._workers.submit(
                read_files,
                self.form,
                self.rules,
                [each for each in group if not each.refused],
                self.new.number,
                self._folder / "read" / f"{place}",
            )
            for place, group in enumerate(groups)
        ]
        for group, read in zip(groups, begun, strict=True):
            yield self._take(group, read())

    def _take(self, group: Sequence[Input], read: FilesRead) -> set[str]:
        faults = {each.path: each.refused for each in group if each.refused} | read.faults
        self.new.adopt(read.records)
        self.present.adopt(read.present)
        for each in group:
            self.refusals.read_file(each.path)
        for path, fault in faults.items():
            self.new.void(path)
            self.refusals.add(fault, path, is_file=True)
        for path, each in read.aside:
            if isinstance(each, Rejected):
                self.refusals.add(each, path)
            else:
                self.skipped[each.what] += 1
        return {each.path for each in group} - faults.keys()

    def build(self, traces: Sequence[TraceRecords]) -> Callable[[], Iterator[Outcome]]:
        """Begin to build traces; what is returned waits for it, and gives what became of each."""
        batches = list(_batches(traces))
        begun = [
            self._workers.submit(build_traces, self.form, self.rules, batch) for batch in batches
        ]
        return lambda: (
            outcome
            for batch, built in zip(batches, begun, strict=True)
            for outcome in self._outcomes(batch, built())
        )

    def _outcomes(self, batch: Sequence[TraceRecords], built: Built) -> Iterator[Outcome]:
        self.days.add(built.rows)
        self.counts.add(built.counts)
        for told, made in zip(batch, built.made, strict=True):
            name = self.form.id_of(told.trace)
            self.refusals.read_trace(name)
            if isinstance(made, Rejected):
                self.refusals.add(made, told.file)
            elif isinstance(made, Skipped):
                self.skipped[made.what] += 1
            elif made:
                self.traces += 1
            day = made if isinstance(made, str) else None
            self.days.move(name, day, told.days)
            yield Outcome(day, isinstance(made, Skipped))

    def check_names(self) -> None:
        """Refuse rules that name what no trace has, where traces have others.

        Raises:
            KpBatchError: tells all of them.
        """
        rules, faults = self.rules, list[str]()
        has_scores, has_fields = sorted(self.counts.scores), sorted(self.counts.fields)
        for rule in (rules.success, rules.confidence):
            if rule and rule.score and has_scores and rule.score not in has_scores:
                has = ", ".join(has_scores)
                faults.append(f"no score {rule.score!r}; the source has: {has}")
        domain = rules.task_domain
        # With another domain for all else, a field that stands on some traces only may be missing.
        source = domain.source if domain and domain.otherwise is None else None
        for name in (source, rules.agent_id):
            if name and has_fields and name not in has_fields:
                has = ", ".join(has_fields)
                faults.append(f"no field {name!r}; the source has: {has}")
        if faults:
            raise KpBatchError("; ".join(faults))


def _batches(traces: Sequence[TraceRecords]) -> Iterator[Sequence[TraceRecords]]:
    """Traces in their order, as many at once as have some records."""
    begin = size = 0
    for end, each in enumerate(traces, 1):
        size += sum(map(len, each.contents))
        if size > _BATCH_BYTES or end == len(traces):
            yield traces[begin:end]
            begin, size = end, 0
