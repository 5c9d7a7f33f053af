"""A plan as people and programs read it, with an estimate of the time from the last runs' rates."""

from typing import Any

from kp_batch.planning.plan import Plan
from kp_batch.run import Run
from kp_batch.run_record import RunRecord, done_runs
from kp_batch.text import printable
from kp_batch.warehouse.relations import scan

# What each step takes its time for.
_RATED = {"embed": "embedded", "replay_timeline": "replayed", "write_tables": "partitions"}
_RUNS_RATED = 5
_SHOWN = 5


def forecast(run: Run, plan: Plan) -> dict[str, Any]:
    """The plan as data.

    Returns:
        files: the paths that are new, changed, gone, unreadable; texts_to_embed, traces_to_replay,
        traces_to_restate, traces_to_recombine, traces_to_remove: numbers; by_domain_and_day: the
        same by domain and day; partitions: the days to be written anew; differing: what is not as
        it has to be; seconds: an estimate, null where there are no rates for it.
    """
    work = {
        "embedded": len(plan.texts.missing),
        "replayed": run.counts["replayed"],
        "partitions": len(plan.partitions),
    }
    return {
        "files": plan.files,
        "texts_to_embed": work["embedded"],
        "traces_to_replay": work["replayed"],
        "traces_to_restate": run.counts["restated"],
        "traces_to_recombine": run.counts["recombined"],
        "traces_to_remove": run.counts["removed"],
        "by_domain_and_day": [
            {**row, "day": str(row["day"])} for row in plan.work.iter_rows(named=True)
        ],
        "partitions": [str(day) for day in plan.partitions],
        "differing": list(plan.differing),
        "seconds": _seconds(run, work),
    }


def as_text(plan: dict[str, Any]) -> str:
    """The plan as a person reads it in a terminal."""
    files = [f"{len(paths):,} {how}" for how, paths in plan["files"].items() if paths]
    if not plan["differing"]:
        return f"nothing to do ({', '.join(files) or 'no file changed'})"
    estimate = plan["seconds"]
    lines = [
        f"plan: {', '.join(plan['differing'])} will change",
        f"  files      {', '.join(files) or 'none changed'}",
        f"  embed      {plan['texts_to_embed']:,} texts",
        f"  replay     {plan['traces_to_replay']:,} traces",
        f"  restate    {plan['traces_to_restate']:,} traces{_by_domain(plan['by_domain_and_day'])}",
        f"  recombine  {plan['traces_to_recombine']:,} of them: their weights alone differ",
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


def _seconds(run: Run, work: dict[str, int]) -> float | None:
    """The time of the steps to come, from what the same steps took in the last runs."""
    rows = scan(run.config.warehouse, "runs", run.published.tables.get("runs")).collect()
    if rows.is_empty():
        return None
    last = done_runs(map(RunRecord.of, rows.iter_rows(named=True)))[-_RUNS_RATED:]
    rated = [record for record in last if record.embedder == run.config.embedder]
    estimate = 0.0
    for step, unit in _RATED.items():
        units = sum(record.counts.get(unit, 0) for record in rated)
        spent = sum(record.seconds.get(step, 0.0) for record in rated if record.counts.get(unit))
        if work[unit] and not units:
            return None
        estimate += spent / units * work[unit] if units else 0.0
    return estimate
