"""Describes a plan, for people and programs, with a time estimated from the last runs' rates."""

from typing import TYPE_CHECKING, Any

from kp_batch.run_record import RunRecord, done_runs
from kp_batch.text import printable

if TYPE_CHECKING:  # who only prints a plan does not wait for these
    from kp_batch.planning.plan import Plan
    from kp_batch.run import Run

# By the name of each step, the count that its time grows with.
_RATED = {"embed": "embedded", "replay": "replayed", "write": "partitions"}
_PENDING = {
    "archive": "the archive",
    "scores": "the scores",
    "profiles": "the profiles",
    "rejects": "the rejects",
    "threshold": "the threshold",
    "forgotten": "what is forgotten",
}
_RUNS_RATED = 5
_SHOWN = 5


def describe(run: "Run", plan: "Plan") -> dict[str, Any]:
    """Describe the plan as data.

    Returns:
        files: the paths that are new, changed, gone, unreadable; texts_to_embed, traces_to_replay,
        traces_to_restate, traces_to_reweight, traces_to_remove: numbers; by_domain_and_day: the
        same by domain and day; partitions: the days to be rewritten; pending: what differs from
        the published state (see `Plan.pending`); seconds: an estimate, null where no rates are
        known for it.
    """
    units = {
        "embedded": len(plan.texts.missing),
        "replayed": run.counts["replayed"],
        "partitions": len(plan.partitions),
    }
    return {
        "files": plan.files,
        "texts_to_embed": units["embedded"],
        "traces_to_replay": units["replayed"],
        "traces_to_restate": run.counts["restated"],
        "traces_to_reweight": run.counts["reweighted"],
        "traces_to_remove": run.counts["removed"],
        "by_domain_and_day": [
            {**row, "day": str(row["day"])} for row in plan.workload.iter_rows(named=True)
        ],
        "partitions": [str(day) for day in plan.partitions],
        "pending": list(plan.pending),
        "seconds": _seconds(run, units),
    }


def as_text(plan: dict[str, Any]) -> str:
    """Format a described plan for a terminal."""
    files = [f"{len(paths):,} {how}" for how, paths in plan["files"].items() if paths]
    if not plan["pending"]:
        return f"nothing to do ({', '.join(files) or 'no file changed'})"
    estimate = plan["seconds"]
    lines = [
        f"plan: {', '.join(_PENDING[what] for what in plan['pending'])} will change",
        f"  files      {', '.join(files) or 'none changed'}",
        f"  embed      {plan['texts_to_embed']:,} texts",
        f"  replay     {plan['traces_to_replay']:,} traces",
        f"  restate    {plan['traces_to_restate']:,} traces{_by_domain(plan['by_domain_and_day'])}",
        f"  reweight   {plan['traces_to_reweight']:,} of them: their weights alone differ",
        *(
            [f"  remove     {plan['traces_to_remove']:,} traces"]
            if plan["traces_to_remove"]
            else []
        ),
        f"  rewrite    {_days(plan['partitions'])}",
        f"  time       {'no rates yet' if estimate is None else f'about {estimate:,.0f} s'}",
    ]
    return "\n".join(lines)


def _by_domain(rows: list[dict[str, Any]]) -> str:
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["task_domain"]] = totals.get(row["task_domain"], 0) + row["restate"]
    most = sorted(totals, key=lambda domain: -totals[domain])
    named = [f"{printable(domain)} {totals[domain]:,}" for domain in most[:_SHOWN]]
    more = [f"{len(most) - _SHOWN} more"] if len(most) > _SHOWN else []
    return f" ({', '.join(named + more)})" if named else ""


def _days(days: list[str]) -> str:
    if not days:
        return "no partition"
    if len(days) <= _SHOWN:
        return f"{len(days)} partitions: {', '.join(days)}"
    return f"{len(days):,} partitions from {days[0]} to {days[-1]}"


def _seconds(run: "Run", units: dict[str, int]) -> float | None:
    """Estimate the time of the steps to come, from the rates of the last runs."""
    from kp_batch.warehouse.relations import scan

    rows = scan(run.config.warehouse, "runs", run.published.tables.get("runs")).collect()
    if rows.is_empty():
        return None
    last = done_runs(map(RunRecord.of, rows.iter_rows(named=True)))[-_RUNS_RATED:]
    rated = [record for record in last if record.embedder == run.config.embedder]
    estimate = 0.0
    for step, unit in _RATED.items():
        known = sum(record.counts.get(unit, 0) for record in rated)
        spent = sum(record.seconds.get(step, 0.0) for record in rated if record.counts.get(unit))
        if units[unit] and not known:
            return None
        estimate += spent / known * units[unit] if known else 0.0
    return estimate
