"""Makes a row from the records of a trace, or says why there is none."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kp_batch.bounds import TOO_LARGE, TooLargeError
from kp_batch.conversion.apply_rules import Row, apply_rules
from kp_batch.conversion.conversation.attributes import first
from kp_batch.conversion.conversation.messages import CutContentError
from kp_batch.conversion.model import Format, Refused, Skipped, SourceRecord, TraceDraft
from kp_batch.conversion.rules import Rules
from kp_batch.errors import ResourceError
from kp_batch.text import one_line


@dataclass
class ImportCounts:
    """What traces contain that rules may name."""

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


def make_row(
    form: Format, rules: Rules, name: str, records: Iterable[SourceRecord], counts: ImportCounts
) -> Row | Refused | Skipped:
    """Make the row of a trace from its records.

    Args:
        form: format of the sources.
        rules: rules of the import.
        name: native id of the trace.
        records: all records of the trace; iterating may raise a `TooLargeError`.
        counts: counts of earlier traces, to which this one is added.

    Raises:
        OSError, ResourceError: the machine failed, not the trace.
    """
    id_ = form.id_of(name)
    try:
        draft = form.draft(name, [*_whole(records)], rules)
        if not isinstance(draft, TraceDraft):
            return draft
        counts.count(draft, rules)
        return apply_rules(draft, rules, form.name)
    except OSError:
        raise
    except TooLargeError as error:
        return Refused([TOO_LARGE], str(error), id=id_)
    except CutContentError as error:
        return Refused(["cut_content"], str(error), id=id_)
    except MemoryError as error:
        raise ResourceError(
            f"out of memory while {id_} was made; import on a machine with more memory"
        ) from error
    except Exception as error:  # noqa: BLE001 (others' JSON may have any value)
        reason = one_line(f"{type(error).__name__}: {error}")
        return Refused(["malformed_json"], f"it is not understood: {reason}", id=id_)


def _whole(records: Iterable[SourceRecord]) -> Iterator[SourceRecord]:
    for record in records:
        if record.payload is None:
            raise TooLargeError("a part of it is too large to be read")
        yield record
