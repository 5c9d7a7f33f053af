"""One import on its way: what was read, what was made of it, and what was refused."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException

from kp_batch.bounded_json import VALUE_BYTES, TooLargeError, room_of_refused, room_of_trace, weight
from kp_batch.errors import KpBatchError, ResourceError, is_of_machine, is_passing
from kp_batch.file_faults import UnreadableError
from kp_batch.imports.apply_rules import Row, apply_rules
from kp_batch.imports.conversation.attributes import first
from kp_batch.imports.days import DailyPartitions
from kp_batch.imports.model import (
    Format,
    Found,
    Here,
    Input,
    Present,
    Rejected,
    Skipped,
    SourceRecord,
    TraceDraft,
)
from kp_batch.imports.records import NewRecords, Outcome, TraceRecords
from kp_batch.imports.rejects import Refusals
from kp_batch.imports.rules import Rules
from kp_batch.imports.sorted_runs import SortedRuns
from kp_batch.limits import TOO_LARGE
from kp_batch.text import one_line

_PRESENT = pl.Schema({"trace": pl.String, "file": pl.String})


@dataclass
class ImportCounts:
    """What an import has counted."""

    traces: int = 0
    passed_over: Counter[str] = field(default_factory=Counter[str])
    unmapped: Counter[str] = field(default_factory=Counter[str])  # values that name no domain
    scores: set[str] = field(default_factory=set[str])  # names that traces have
    fields: set[str] = field(default_factory=set[str])


class ImportJob:
    """Takes files, then builds traces of what they and others told.

    Args:
        form: of the files.
        rules: decide what the format does not tell.
        folder: an empty one, for what does not fit into memory.
        here: gives the path of a file on this machine.
        number: of this import.
    """

    def __init__(self, form: Format, rules: Rules, folder: Path, here: Here, number: int) -> None:
        self.form, self.rules, self._here = form.under(rules), rules, here
        self.counts = ImportCounts()
        self.new = NewRecords(folder / "new", number)
        self.present = SortedRuns(folder / "present", _PRESENT, ["trace"], pl.lit(100))
        self.days = DailyPartitions(folder / "days")
        self.refusals = Refusals(folder / "refused")

    def read(self, given: Input) -> bool:
        """Take the records of a file; returns whether that went well: else it tells nothing."""
        if given.refused:
            return self._refuse(given, given.refused)
        aside: list[Rejected | Skipped] = []
        room = room_of_refused()
        try:
            for position, found in enumerate(self._found(given)):
                if isinstance(found, SourceRecord):
                    self.new.add(found, given.path, position)
                elif isinstance(found, Present):
                    self.present.add((found.trace, given.path), len(found.trace))
                else:
                    room.take(isinstance(found, Rejected))
                    aside.append(found)
        except TooLargeError as error:
            return self._refuse(given, Rejected([TOO_LARGE], str(error)))
        except UnreadableError as error:
            return self._refuse(given, Rejected([each.code for each in error.faults], str(error)))
        self.refusals.read_file(given.path)
        for each in aside:
            if isinstance(each, Rejected):
                self.refusals.add(each, given.path)
            else:
                self.counts.passed_over[each.what] += 1
        return True

    def _found(self, given: Input) -> Iterator[Found]:
        """What a file tells. Only what is raised here is a fault of it, and not of our own disk."""
        try:
            yield from self.form.read(given, self._here)
        except (KpBatchError, TooLargeError, UnreadableError):
            raise
        except MemoryError as error:
            raise _out_of_memory(f"{given.path} was read") from error
        except (Exception, PanicException) as error:  # damage raises errors of many kinds
            if is_passing(error) or is_of_machine(error):
                raise
            reason = one_line(str(error)) or type(error).__name__
            raise UnreadableError(f"it cannot be read: {reason}") from error

    def _refuse(self, given: Input, refused: Rejected) -> bool:
        self.new.void(given.path)
        self.refusals.read_file(given.path)
        self.refusals.add(refused, given.path, is_file=True)
        return False

    def build(self, told: TraceRecords) -> Outcome:
        """Make a trace of all that was told of it, or refuse it."""
        name = self.form.id_of(told.trace)
        self.refusals.read_trace(name)
        made = self._made(name, told) if told.contents else None
        if isinstance(made, Rejected):
            self.refusals.add(made, told.file)
        elif isinstance(made, Skipped):
            self.counts.passed_over[made.what] += 1
        elif made:
            self.counts.traces += 1
        row = made if isinstance(made, dict) else None
        return Outcome(self.days.put(name, row, told.days), isinstance(made, Skipped))

    def _made(self, name: str, told: TraceRecords) -> Row | Rejected | Skipped:
        try:
            made = self.form.draft(told.trace, list(_records(told)), self.rules)
            if isinstance(made, TraceDraft):
                self._note(made)
                made = apply_rules(made, self.rules, self.form.name)
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

    def _note(self, draft: TraceDraft) -> None:
        self.counts.scores |= draft.scores.keys()
        self.counts.fields |= draft.fields.keys()
        rule = self.rules.task_domain
        if rule and rule.source and not rule.named(draft.fields):
            values = draft.fields.get(rule.source, ())
            self.counts.unmapped[first(values) or "(none)"] += 1

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


def _records(told: TraceRecords) -> Iterator[SourceRecord]:
    room = room_of_trace()
    for content, line in zip(told.contents, told.lines, strict=True):
        room.take(VALUE_BYTES + weight(content))
        if (record := json.loads(content)) is None:
            raise TooLargeError("a part of it is too large to be read")
        yield SourceRecord(told.trace, record, line)


def _out_of_memory(when: str) -> ResourceError:
    return ResourceError(f"memory ran out while {when}; import it where there is more")
