"""Formats what the works on a warehouse tell for a terminal, in a few lines each."""

from collections.abc import Iterable
from typing import Any, cast

from kp_batch.operations.results import Removed, Setting, Verification
from kp_batch.text import aligned, printable


def verification_text(result: Verification) -> str:
    """Format a verification for a terminal."""
    skipped = result.sampled - result.checked
    rows = [
        {
            "column": each.column,
            "greatest difference": f"{each.greatest:.3g}",
            "tolerance": f"{each.tolerance:.3g}",
            "trace": printable(each.trace_id or ""),
        }
        for each in result.differences
    ]
    return "\n".join(
        [
            f"{result.checked:,} traces verified (--seed {result.seed})"
            + (f", {skipped:,} skipped: their files are gone or changed" if skipped else ""),
            "",
            *aligned(rows),
        ]
    )


def removed_text(result: Removed) -> str:
    """Format what was removed for a terminal."""
    return (
        f"removed: {result.files:,} files, {result.facts:,} facts, {result.raw_rows:,} raw rows, "
        f"{result.vectors:,} vectors"
    )


def settings_text(settings: Iterable[Setting]) -> str:
    """Format the settings of a warehouse for a terminal."""
    rows = [(printable(each.name), _value(each.value), each.run_id) for each in settings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:<{widths[1]}}  since run {run_id}"
        for name, value, run_id in rows
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        weights = cast("dict[str, float]", value)
        return ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    return printable(str(value))
