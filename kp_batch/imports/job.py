"""One import on its way: what was read, what was made of it, and what was refused."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import polars as pl
from polars.exceptions import PanicException

from kp_batch.bounded_json import TooLargeError, room_of_refused
from kp_batch.errors import KpBatchError, ResourceError, is_of_machine, is_passing
from kp_batch.file_faults import UnreadableError
from kp_batch.imports.apply_rules import Row, Rules, apply_rules
from kp_batch.imports.archive import Archive
from kp_batch.imports.conversation.attributes import first
from kp_batch.imports.day_files import DayFiles
from kp_batch.imports.model import Format, Here, Input, Rejected, Skipped, SourceRecord, TraceDraft
from kp_batch.imports.new_traces import NewTraces
from kp_batch.imports.rejects import Refusals
from kp_batch.imports.spool import Spool
from kp_batch.imports.units_by_trace import TraceUnits, UnitsByTrace
from kp_batch.limits import TOO_LARGE
from kp_batch.text import encodable, one_line

_IDS = pl.Schema({"id": pl.String})
_PATHS = pl.Schema({"path": pl.String})


@dataclass
class ImportCounts:
    """What an import has counted."""

    traces: int = 0
    passed_over: Counter[str] = field(default_factory=Counter[str])
    unmapped: Counter[str] = field(default_factory=Counter[str])  # values that name no domain
    scores: set[str] = field(default_factory=set[str])  # names that traces have
    fields: set[str] = field(default_factory=set[str])


class ImportJob:
    """Takes files, then decides about their traces, then changes an archive.

    Args:
        form: of the files.
        rules: decide what the format does not tell.
        folder: an empty one, for what does not fit into memory.
        here: gives the path of a file on this machine.
    """

    def __init__(self, form: Format, rules: Rules, folder: Path, here: Here) -> None:
        self.form, self.rules, self._here = form.under(rules), rules, here
        self.tally = ImportCounts()
        self.units = UnitsByTrace(folder / "units")
        self.refusals = Refusals(folder / "refused")
        self._new = NewTraces(folder / "new")
        self._ids = Spool(folder / "ids", _IDS)
        self._files = Spool(folder / "files", _PATHS)

    def read(self, given: Input) -> bool:
        """Take the units of a file; returns whether that went well."""
        self._files.add((given.path,))
        beside = self._read(given, lambda _: True)
        for found in beside or ():
            if isinstance(found, Rejected):
                self.refusals.add(found, given.path)
            else:
                self.tally.passed_over[found.what] += 1
        return beside is not None

    def read_again(self, given: Input, traces: Collection[str]) -> set[str] | None:
        """Take the units of some traces, as the index has them, of a file that was read before.

        Returns:
            Those that it tells of still; None if it cannot be read.
        """
        told: set[str] = set()

        def counts(trace: str) -> bool:
            name = encodable(trace)
            if name in traces:
                told.add(name)
            return name in traces

        return None if self._read(given, counts) is None else told

    def _read(self, given: Input, counts: Callable[[str], bool]) -> list[Rejected | Skipped] | None:
        """Take the units of traces that count; returns what is no unit, or None if that failed."""
        if given.refused:
            return self._refuse_file(given, given.refused)
        beside: list[Rejected | Skipped] = []
        room = room_of_refused()
        try:
            with self.units.reading(given.path) as add:
                for found in self._found(given):
                    if not isinstance(found, SourceRecord):
                        room.take(isinstance(found, Rejected))
                        beside.append(found)
                    elif counts(found.trace):
                        try:
                            add(found)
                        except TooLargeError as error:
                            name = self.form.id_of(found.trace)
                            beside.append(Rejected([TOO_LARGE], str(error), name, found.line))
        except TooLargeError as error:
            return self._refuse_file(given, Rejected([TOO_LARGE], str(error)))
        except UnreadableError as error:
            codes = [each.code for each in error.faults]
            return self._refuse_file(given, Rejected(codes, str(error)))
        return beside

    def _found(self, given: Input) -> Iterator[SourceRecord | Rejected | Skipped]:
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

    def _refuse_file(self, given: Input, refused: Rejected) -> None:
        self.refusals.add(refused, given.path, is_file=True)

    def close(self) -> None:
        """Close the files."""
        self.units.close()
        self._new.close()

    def decide(self, left: Collection[str], connection: duckdb.DuckDBPyConnection) -> None:
        """Make traces of the units, or refuse them.

        Args:
            left: traces that stay as they were.
            connection: sorts within its memory.
        """
        for units in self.units.traces(connection):
            if units.trace not in left:
                self._decide(units)

    def _decide(self, units: TraceUnits) -> None:
        name = self.form.id_of(units.trace)
        self._ids.add((name,))
        made = self._made(name, units)
        if isinstance(made, Rejected):
            self.refusals.add(made, units.file)
        elif isinstance(made, Skipped):
            self.tally.passed_over[made.what] += 1
        else:
            self._new.add(made)
            self.tally.traces += 1

    def _made(self, name: str, units: TraceUnits) -> Row | Rejected | Skipped:
        if units.fault:
            return Rejected([TOO_LARGE], str(units.fault), id=name)
        try:
            made = self.form.draft(units.trace, units.units, self.rules)
            if isinstance(made, TraceDraft):
                self._note(made)
                made = apply_rules(made, self.rules)
        except OSError:
            raise
        except TooLargeError as error:
            return Rejected([TOO_LARGE], str(error), id=name)
        except MemoryError as error:
            raise _out_of_memory(f"{name} of {units.file} was made") from error
        except Exception as error:  # noqa: BLE001 (any value may stand in others' JSON)
            reason = one_line(f"{type(error).__name__}: {error}")
            return Rejected(["malformed_json"], f"it is not understood: {reason}", id=name)
        return made

    def _note(self, draft: TraceDraft) -> None:
        self.tally.scores |= draft.scores.keys()
        self.tally.fields |= draft.fields.keys()
        rule = self.rules.task_domain
        if rule and rule.source and not rule.named(draft.fields):
            values = draft.fields.get(rule.source, ())
            self.tally.unmapped[first(values) or "(none)"] += 1

    def check_names(self) -> None:
        """Refuse rules that name what no trace has, where traces have others.

        Raises:
            KpBatchError: tells all of them.
        """
        rules, faults = self.rules, list[str]()
        has_scores, has_fields = sorted(self.tally.scores), sorted(self.tally.fields)
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

    def write(
        self, archive: Archive, metadata: Mapping[str, str], connection: duckdb.DuckDBPyConnection
    ) -> int:
        """Change the days of an archive; returns how many are other than they were.

        Args:
            archive: that is changed.
            metadata: of each file that is written.
            connection: sorts within its memory.
        """
        return DayFiles(archive, connection, metadata).put(self._new, self._ids.close())

    def write_refusals(
        self, archive: Archive, connection: duckdb.DuckDBPyConnection
    ) -> dict[str, int]:
        """Tell in an archive what was refused; see `Refusals.write`."""
        return self.refusals.write(archive, self._ids.close(), self._files.close(), connection)


def _out_of_memory(when: str) -> ResourceError:
    return ResourceError(f"memory ran out while {when}; import it where there is more")
