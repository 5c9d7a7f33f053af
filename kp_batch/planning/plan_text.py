"""Formats a described plan for a terminal and for logs."""

from dataclasses import asdict

from kp_batch.planning.describe import PlanDescription
from kp_batch.text import number, printable

_SUPERSEDED = "superseded"  # as `archive.validation` has it, which takes a while to import
_DATED = "once scored, they are found by: kp-batch sql 'FROM scores WHERE created_at > now()'"
_SHOWN = 5
_REASONS = 12


def as_text(plan: PlanDescription) -> str:
    """Format a described plan for a terminal."""
    if not plan.pending:
        return f"nothing to do ({_files(plan) or 'no file changed'})"
    reweighted = f"{number(plan.traces_to_reweight, 'trace')}: their weights alone differ"
    work = [
        ("embed", plan.texts_to_embed, number(plan.texts_to_embed, "text")),
        ("replay", plan.traces_to_replay, number(plan.traces_to_replay, "trace")),
        ("reweight", plan.traces_to_reweight, reweighted),
        ("remove", plan.traces_to_remove, number(plan.traces_to_remove, "trace")),
        ("reject", sum(plan.rejected_by_code.values()), _rejected(plan)),
    ]
    time = (
        "no rates yet"
        if plan.estimated_seconds is None
        else f"about {plan.estimated_seconds:,.0f} s"
    )
    return "\n".join(
        [
            f"plan: restate {number(plan.traces_to_restate, 'trace')}{_by_domain(plan)}",
            *_why(plan),
            *(f"  {what:<10} {told}" for what, count, told in work if count),
            f"  rewrite    {_days(plan.partitions)}",
            f"  time       {time}",
        ]
    )


def warnings(plan: PlanDescription) -> list[str]:
    """What a described plan asks its reader to look at again: no line, or one for each matter."""
    asked = [
        f"no trace has the domain {printable(name)}"
        + (f"; did you mean {printable(meant)}?" if meant else ", which has a profile")
        for name, meant in plan.unused_profiles.items()
    ]
    if plan.future_partitions:
        asked.append(f"traces are dated in the future: {_days(plan.future_partitions)}; {_DATED}")
    return [*asked, *([f"a run would fail: {printable(plan.excess)}"] if plan.excess else [])]


def _why(plan: PlanDescription) -> list[str]:
    """A line for each reason, those about files on one."""
    files = _files(plan)
    others = [printable(each.words) for each in plan.reasons if not each.code.startswith("files_")]
    more = [f"and {len(others) - _REASONS:,} more"] if len(others) > _REASONS else []
    lines = [*others[:_REASONS], *more, *([files] if files else [])]
    return [f"  {'why' if not row else '':<10} {line}" for row, line in enumerate(lines)]


def _files(plan: PlanDescription) -> str:
    counted = [f"{len(paths):,} {how}" for how, paths in asdict(plan.files).items() if paths]
    return f"files: {', '.join(counted)}" if counted else ""


def _rejected(plan: PlanDescription) -> str:
    """Rows and files that are rejected, and rows that others stand for."""
    codes = {code: count for code, count in plan.rejected_by_code.items() if code != _SUPERSEDED}
    listed = ", ".join(f"{code} {count:,}" for code, count in codes.items())
    superseded = plan.rejected_by_code.get(_SUPERSEDED, 0)
    told = [
        *([number(plan.rows_rejected, "row")] if plan.rows_rejected else []),
        *([number(len(plan.files.unreadable), "file")] if plan.files.unreadable else []),
        *([f"{number(superseded, 'row')} superseded"] if superseded else []),
    ]
    return ", ".join(told) + (f" ({listed})" if listed else "")


def _by_domain(plan: PlanDescription) -> str:
    named = [f"{printable(name)} {count:,}" for name, count in plan.largest_domains.items()]
    more = [f"{plan.domains - len(named):,} more"] if plan.domains > len(named) else []
    return f" ({', '.join(named + more)})" if named else ""


def _days(days: list[str]) -> str:
    if not days:
        return "no partition"
    if len(days) <= _SHOWN:
        return f"{number(len(days), 'partition')}: {', '.join(days)}"
    return f"{number(len(days), 'partition')} from {days[0]} to {days[-1]}"
