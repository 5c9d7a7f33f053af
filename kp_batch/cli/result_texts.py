"""Formats what the works on a warehouse tell for a terminal."""

from collections.abc import Iterable
from typing import Any, cast

from kp_batch.operations.results import (
    Comparison,
    DomainMoves,
    Mover,
    Removed,
    Setting,
    Verification,
)
from kp_batch.text import aligned, printable


def comparison_text(result: Comparison) -> str:
    """Format a comparison for a terminal."""
    return "\n".join(
        [
            f"from {result.first} to {result.second}",
            (
                f"  {result.in_both:,} traces in both, {result.only_in_first:,} in the first alone,"
                f" {result.only_in_second:,} in the second alone"
            ),
            "",
            *aligned([_domain(row) for row in result.domains]),
            "",
            *aligned([_mover(row) for row in result.movers]),
        ]
    )


def _domain(row: DomainMoves) -> dict[str, str]:
    return {
        "domain": "all" if row.task_domain is None else printable(row.task_domain),
        "traces": f"{row.traces:,}",
        "mean": _signed(row.second_mean - row.first_mean),
        "median": _signed(row.second_quantiles[2] - row.first_quantiles[2]),
        "psi": f"{row.psi:.4f}",
        "rank corr": "" if row.rank_correlation is None else f"{row.rank_correlation:.4f}",
        "up": f"{row.crossed_up:,}",
        "down": f"{row.crossed_down:,}",
        **_parts(row),
    }


def _mover(row: Mover) -> dict[str, str]:
    return {
        "trace": printable(row.trace_id),
        "from": f"{row.first_score:.4f}",
        "to": f"{row.second_score:.4f}",
        **_parts(row),
        "single thought": row.single_thought or "",
    }


def _parts(row: DomainMoves | Mover) -> dict[str, str]:
    return {
        "facts": _signed(row.from_facts),
        "novelty": _signed(row.from_novelty),
        "weights": _signed(row.from_weights),
        "overrides": _signed(row.from_overrides),
    }


def _signed(value: float) -> str:
    return f"{round(value, 4) + 0.0:+.4f}"  # + 0.0: no minus before a zero


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
