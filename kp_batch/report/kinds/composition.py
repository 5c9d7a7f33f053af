"""Findings about the parts of a score: its dimensions and overrides."""

from collections.abc import Iterator, Sequence

from kp_batch.report.data import MIN_TRACES, ReportData
from kp_batch.report.finding import (
    MATTERS,
    VISIBLE,
    Finding,
    Row,
    Untrusted,
    Value,
    labels_of,
    only,
    percent,
    query,
    traces_of,
    weights_of,
)
from kp_batch.text import count_of

_DRIVES = 0.3  # of the variance: the smallest share that drives a score


def driver(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find the part with most of the variance of a domain's scores."""
    deviations = dict(data.domains.select("domain", "deviation").iter_rows())
    for label in labels_of(data, scope):
        rows = data.of("drivers", label).drop_nulls("share_of_variance")
        traces = traces_of(data, label)
        if rows.is_empty() or traces < MIN_TRACES or deviations[label] < MATTERS:
            continue
        first, *others = rows.sort("share_of_variance", descending=True).to_dicts()
        if first["share_of_variance"] < _DRIVES:
            continue
        also = [row for row in others[:1] if row["share_of_variance"] >= _DRIVES / 2]
        yield Finding(
            "driver",
            ("In ", Untrusted(label), *_drive(data, label, [first, *also])),
            query("FROM part_effects", task_domain=data.names[label]),
            _numbers(first)
            | {f"second_{name}": n for row in also for name, n in _numbers(row).items()},
            traces,
            deviations[label] * min(1, first["share_of_variance"]),
        )


def _drive(data: ReportData, label: str, parts: Sequence[Row]) -> Iterator[str]:
    dated = weights_of(data, label) in data.weights["name"]
    named = [
        row["part"]
        if row["is_override"]
        else f"{row['part']} ({'mean weight' if dated else 'weight'} {row['weight']:.2g})"
        for row in parts
    ]
    shares = [row["share_of_variance"] for row in parts]
    yield f", {named[0]} accounts for {shares[0]:.0%} of the variance of the scores"
    others = zip(named[1:], shares[1:], strict=True)
    yield from (f", and {of} for {share:.0%}" for of, share in others)
    yield "; other parts offset some of it." if sum(shares) >= 1.005 else "."


def _numbers(row: Row) -> dict[str, Value]:
    return only(row, "weight", "share_of_variance") | {"part": row["part"].replace(" ", "_")}


def override(data: ReportData, scope: str) -> Iterator[Finding]:
    """Find the override with the largest total effect."""
    rows = data.of("drivers", scope).drop_nulls("total_effect").to_dicts()
    rows.sort(key=lambda row: -abs(row["total_effect"]))
    for row, other in zip(rows[:1], [*rows[1:2], None], strict=False):
        if row["traces"] < MIN_TRACES or abs(row["mean_effect"]) < MATTERS:
            continue
        traces = traces_of(data, scope)
        on_mean, share = row["total_effect"] / traces, row["traces"] / traces
        other_effect = other["total_effect"] / traces if other else 0.0
        second = other if abs(other_effect) >= VISIBLE else None
        also = ""
        if second:
            does = _does(other_effect)
            also = f" The override “{second['part']}” {does} that mean by {abs(other_effect):.2g}."
        yield Finding(
            "override",
            (
                (
                    f"The override “{row['part']}” {_does(on_mean)} "
                    f"{count_of(row['traces'], 'score')} ({percent(share)}) by "
                    f"{abs(row['mean_effect']):.3f} on average, and the mean of all scores by "
                    f"{abs(on_mean):.2g}.{also}"
                ),
            ),
            query(_asked(row, second), task_domain=data.names.get(scope)),
            {
                "override": row["part"].replace(" ", "_"),
                **only(row, "traces", "mean_effect"),
                "effect_on_mean": on_mean,
                "share": share,
                **({"second_effect_on_mean": other_effect} if second else {}),
            },
            row["traces"],
            abs(row["mean_effect"]),
        )


def _does(effect: float) -> str:
    return "lowers" if effect < 0 else "raises"


def _asked(row: Row, second: Row | None) -> str:
    """Return the query for what an override does, and what the second does to the mean."""
    name, other = (each and each["part"].replace(" ", "_") for each in (row, second))
    columns = (
        f"'{name}' AS override",
        f"count(*) FILTER ({name}) AS traces",
        "traces / count(*) AS share",
        f"sum(from_{name}) / traces AS mean_effect",
        f"sum(from_{name}) / count(*) AS effect_on_mean",
        *([f"sum(from_{other}) / count(*) AS second_effect_on_mean"] if other else []),
    )
    return f"SELECT {', '.join(columns)} FROM trace_measures"  # noqa: S608 (shown, not executed)
