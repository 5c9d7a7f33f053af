"""The faults of a synthetic archive: every way to make a trace bad, spread evenly."""

from collections.abc import Sequence
from functools import reduce
from math import nan
from operator import getitem
from typing import Any, Final, NamedTuple

DOUBLE_EVERY: Final = 5  # the last of so many bad rows has a confidence of 1.5 as well


class _Fault(NamedTuple):
    """The code that rejects the row, the place of the fault, and the value put there."""

    code: str
    at: Sequence[Any]
    put: object = None


# Each code comes once before any comes twice, so ten bad rows show all ten.
_FAULTS: Final = (
    _Fault("missing_id", ("id",)),
    _Fault("wrong_type", ("@type",), "KnowledgeUnit"),
    _Fault("bad_created_at", ("metadata", "created_at")),
    _Fault("empty_domain", ("metadata", "task_domain"), ""),
    _Fault("missing_success", ("metadata", "success")),
    _Fault("empty_objective", ("task", "objective"), ""),
    _Fault("no_steps", ("steps",)),
    _Fault("unknown_step_type", ("steps", 0, "type"), "reflection"),
    _Fault("bad_confidence", ("outcome", "confidence"), nan),
    _Fault("superseded", ("task", "objective"), "The task before, with corrected figures"),
    _Fault("missing_id", ("id",), ""),
    _Fault("bad_created_at", ("metadata", "created_at"), "2026-02-30T08:00:00.000Z"),
    _Fault("empty_domain", ("metadata", "task_domain")),
    _Fault("empty_objective", ("task", "objective")),
    _Fault("no_steps", ("steps",), []),
    _Fault("no_steps", ("steps", 0)),
    _Fault("unknown_step_type", ("steps", 0, "type")),
    _Fault("bad_confidence", ("outcome", "confidence")),
    _Fault("bad_confidence", ("outcome", "confidence"), 1.5),
)


def bad_rows(traces: int, dirty: float) -> dict[int, int]:
    """Number the bad rows by their positions, the middles of as many equal stretches."""
    count = min(traces, max(round(traces * dirty), int(dirty > 0)))
    return {(2 * number + 1) * traces // (2 * count): number for number in range(count)}


def spoil(row: dict[str, Any], number: int, id_before: str) -> None:
    """Put a fault into the bad row of this number; the faults take turns."""
    fault = _FAULTS[number % len(_FAULTS)]
    *parents, last = fault.at
    reduce(getitem, parents, row)[last] = fault.put
    if fault.code == "superseded":  # no second fault: only this row remains of its trace
        row["id"] = id_before
    elif number % DOUBLE_EVERY == DOUBLE_EVERY - 1:
        row["outcome"]["confidence"] = 1.5
