"""Formats what the works on a warehouse tell for a terminal."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from kp_batch.operations.results import (
    Comparison,
    DomainMoves,
    Forgotten,
    Mover,
    Removed,
    Setting,
    Verification,
)
from kp_batch.text import aligned, number, printable


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


_UNCHANGED = "nothing was changed"


def removed_text(result: Removed, *, dry_run: bool = False) -> str:
    """Format what was removed for a terminal, or what would be."""
    counts = [
        (result.files, "file"),
        (result.facts, "fact"),
        (result.raw_rows, "raw row"),
        (result.vectors, "vector"),
    ]
    told = ", ".join(number(count, what) for count, what in counts)
    head = f"{'to be removed' if dry_run else 'removed'}: {told}"
    readable = f"{number(len(result.readable), 'run')} since {next(iter(result.readable), None)}"
    lines = [
        head if any(count for count, _ in counts) else "nothing to remove",
        *_lost(result.lost, dry_run=dry_run),
        *([_line("readable", f"{readable}, with --as-of")] if result.readable else []),
    ]
    return "\n".join([*lines, *([_UNCHANGED] if dry_run else [])])


def forgotten_text(result: Forgotten, *, dry_run: bool = False) -> str:
    """Format what was forgotten for a terminal, or what would be."""
    traces = f"{number(result.traces, 'scored trace')}, {number(result.rows, 'refused row')}"
    unseen = "; --unseen-too keeps such ids out of later runs" if dry_run else ""
    ids = [
        ("replaced", result.replaced, "of content that counts no more"),
        ("before", result.before, "forgotten before"),
        ("unseen", result.unseen, f"never seen: {result.unseen_named}{unseen}"),
    ]
    work = [
        ("replay", result.replayed, "trace"),
        ("restate", result.restated, "trace"),
        ("rewrite", result.partitions, "partition"),
        ("remove", result.vectors, "vector"),
    ]
    run = f" by run {result.run_id}" if result.run_id else ""
    is_work = result.traces or result.rows or result.replaced or result.unseen
    lines = [
        f"{'to be forgotten' if dry_run else f'forgotten{run}'}: {traces}"
        if is_work
        else "nothing to do",
        *(_line(name, f"{number(count, 'id')} {what}") for name, count, what in ids if count),
        *(_line(name, number(count, what)) for name, count, what in work if count),
        *_lost(result.lost, dry_run=dry_run),
    ]
    return "\n".join([*lines, *([_UNCHANGED] if dry_run else [])])


def _lost(runs: Sequence[str], *, dry_run: bool) -> list[str]:
    """Tell which runs --as-of cannot read any more, if there are any."""
    if not runs:
        return []
    which = runs[0] if len(runs) == 1 else f"from {runs[0]} to {runs[-1]}"
    can = "could" if dry_run else "can"
    told = f"{number(len(runs), 'run')} {can} no longer be read with --as-of: {which}"
    return [_line("lost", told)]


def _line(name: str, told: str) -> str:
    return f"  {name:<10} {told}"


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
