"""Formats comparisons and verifications for a terminal."""

from typing import Any

from kp_batch.text import aligned, printable


def comparison_text(result: dict[str, Any]) -> str:
    """Format a comparison for a terminal."""
    alone = [
        f"{result[f'only_in_{which}']:,} in the {which} alone" for which in ("first", "second")
    ]
    return "\n".join(
        [
            f"from {result['first']} to {result['second']}",
            f"  {result['in_both']:,} traces in both, {', '.join(alone)}",
            "",
            *aligned([_domain(row) for row in result["domains"]]),
            "",
            *aligned([_mover(row) for row in result["movers"]]),
        ]
    )


def _domain(row: dict[str, Any]) -> dict[str, str]:
    change = row["second_mean"] - row["first_mean"]
    median = row["second_quantiles"][2] - row["first_quantiles"][2]
    correlation = row["rank_correlation"]
    return {
        "domain": "all" if row["task_domain"] is None else printable(row["task_domain"]),
        "traces": f"{row['traces']:,}",
        "mean": _signed(change),
        "median": _signed(median),
        "psi": f"{row['psi']:.4f}",
        "rank corr": "" if correlation is None else f"{correlation:.4f}",
        "up": f"{row['crossed_up']:,}",
        "down": f"{row['crossed_down']:,}",
        **_parts(row),
    }


def _mover(row: dict[str, Any]) -> dict[str, str]:
    return {
        "trace": printable(row["trace_id"]),
        "from": f"{row['first_score']:.4f}",
        "to": f"{row['second_score']:.4f}",
        **_parts(row),
        "single thought": row["single_thought"] or "",
    }


def _parts(row: dict[str, Any]) -> dict[str, str]:
    names = ("facts", "novelty", "weights", "overrides")
    return {name: _signed(row[f"from_{name}"]) for name in names}


def _signed(value: float) -> str:
    return f"{round(value, 4) + 0.0:+.4f}"  # + 0.0: no minus before a zero


def verification_text(result: dict[str, Any]) -> str:
    """Format a verification for a terminal."""
    skipped = result["sampled"] - result["checked"]
    rows = [
        {
            "column": each["column"],
            "greatest difference": f"{each['greatest']:.3g}",
            "tolerance": f"{each['tolerance']:.3g}",
            "trace": printable(each["trace_id"] or ""),
        }
        for each in result["differences"]
    ]
    return "\n".join(
        [
            f"{result['checked']:,} traces verified (--seed {result['seed']})"
            + (f", {skipped:,} skipped: their files are gone or changed" if skipped else ""),
            "",
            *aligned(rows),
        ]
    )
