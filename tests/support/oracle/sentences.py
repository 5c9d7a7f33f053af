"""That a finding says what the answer to its question has."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from kp_batch.report.finding import Finding, Untrusted, percent
from tests.support.oracle.answers import ask_records, is_near
from tests.support.oracle.statistics import grouped

Row = Mapping[str, Any]


def assert_answered(connection: duckdb.DuckDBPyConnection, finding: Finding) -> None:
    """The question has the numbers, and the sentence shows these; a shell leaves it as it is."""
    assert finding.question.isprintable()
    assert not set(finding.question) & set('"$`\\!'), finding.question
    rows = ask_records(connection, finding.question)
    assert any(has(row, finding) for row in answers(finding, rows)), (finding, rows)
    assert finding.sentence.endswith(".")
    assert finding.sentence[:1] == finding.sentence[:1].upper()
    for text, is_true in words(finding):
        assert (text in finding.sentence) == is_true, (text, finding)
    shown = forms(finding)
    for text in numerals(finding):
        assert text in shown, (text, finding)


_OF_ANSWERS = {"begins": str}


def has(row: Row, finding: Finding) -> bool:
    """Whether a row has every number of a finding."""
    return all(
        name in row and is_near(_OF_ANSWERS.get(name, lambda value: value)(row[name]), value)
        for name, value in finding.numbers.items()
    )


def answers(finding: Finding, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of an answer; where a finding tells of two, both in one."""
    match finding.code:
        case "driver":
            pairs = ((row, other) for row in rows for other in rows if row["part"] != other["part"])
            for row, other in pairs:
                yield {**row, **{f"second_{name}": value for name, value in other.items()}}
            yield from rows
        case "success":
            pairs = ((low, high) for low in rows for high in rows)
            yield from ({**_bin("low", low), **_bin("high", high)} for low, high in pairs)
        case "paired_agents" | "paired_frameworks":
            column = "agent_id" if finding.code == "paired_agents" else "framework"
            units = grouped(rows, lambda row: (row["task_domain"], row[column]))
            for own in units.values():
                found = {"unit": own[0][column], **_of_measures(own)}
                yield {**found, **_parts(own[0], finding, "score_difference")}
        case "domain_moved":
            domains = grouped(rows, lambda row: row["task_domain"])
            yield from (_of_change(own, finding) for own in domains.values())
        case "mean_change":
            yield from ({**row, **_parts(row, finding, "change")} for row in rows)
        case "cache_warming_up":
            yield from map(_of_both, grouped(rows, lambda row: row.get("task_domain")).values())
        case _:
            yield from rows


def _of_change(rows: Sequence[Row], finding: Finding) -> dict[str, Any]:
    """The change of a domain, with its parts, and how its share of its cache changed."""
    score, *others = rows
    found = {**score, "p_value": score["adjusted_p_value"], **_parts(score, finding, "change")}
    for share in others:
        found |= {"cache_share": share["mean"], "cache_share_before": share["mean_before"]}
    return found


def _parts(row: Row, finding: Finding, whole: str) -> dict[str, float]:
    """The parts of a difference; those that the finding names, and the rest, make the whole."""
    numbers: Mapping[str, Any] = finding.numbers
    named = [value for name, value in numbers.items() if name.startswith("from_")]
    parts = {f"from_{name}": value for name, value in row["parts"].items()}
    if not named:
        return parts
    assert abs(sum(named) - numbers[whole]) <= 0.0005, finding
    rest = sum(value for name, value in parts.items() if name not in numbers)
    return {**parts, "from_rest": rest}


def _of_both(rows: Sequence[Row]) -> dict[str, Any]:
    """What came while a cache was warming up, and what came later, as one row."""
    sides = {row["cache_warming_up"]: row for row in rows}
    warming_up = sides.get(True, {"traces": 0, "novelty": None})
    return {
        "cache_warming_up": warming_up["traces"],
        "novelty_warming_up": warming_up["novelty"],
        "novelty_after": sides[False]["novelty"] if False in sides else None,
        "share": warming_up["traces"] / sum(row["traces"] for row in rows),
    }


def _of_measures(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows of one unit, a row for each measure, as one."""
    found = {"traces": rows[0]["traces"], "tasks": rows[0]["tasks"]}
    for row in rows:
        found |= {f"{row['measure']}_{name}": row[name] for name in ("difference", "low", "high")}
    return found


def _bin(side: str, row: Row) -> dict[str, Any]:
    ends = {"success": row["mean"], "success_low": row["low"], "success_high": row["high"]}
    own = {"traces": row["traces"], "least": row["score_bin"], **ends}
    return {f"{side}_{name}": value for name, value in own.items()}


def numerals(finding: Finding) -> Iterator[str]:
    """The numbers of a sentence, as it has them; those of names are none of its own."""
    text = "|".join(part for part in finding.parts if not isinstance(part, Untrusted))
    if finding.code == "near_repeats":
        text = text.replace("similarity of 0.95", "")
    yield from re.findall(r"(?<!\w)[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?(?:-\d\d-\d\d)?%?", text)


def forms(finding: Finding) -> set[str]:
    """All ways in which a sentence may show the numbers of a finding."""
    shown = {"0.01%", "99.99%"}
    for name, value in finding.numbers.items():
        if isinstance(value, str):
            shown.add(value)
        elif isinstance(value, int):
            shown.add(f"{value:,}")
        elif isinstance(value, float):
            specs = [".2f", "+.2f", ".3f", "+.3f", ".2g", "+.2g", "+,.0f", ".0%"]
            texts = [format(each, spec) for each in (value, abs(value)) for spec in specs]
            shown |= {*texts, percent(value)}
            if name.endswith("_least"):
                shown |= {f"{value:.1f}", f"{value + 0.1:.1f}"}
    return shown


def words(finding: Finding) -> Iterator[tuple[str, bool]]:
    """The words of a sentence that say to which side its numbers are, and whether they are."""
    n: Mapping[str, Any] = finding.numbers
    match finding.code:
        case "driver":
            shares = n["share_of_variance"] + n.get("second_share_of_variance", 0)
            yield "other parts offset", shares >= 1.005
        case "override":
            effects = n["effect_on_mean"], n.get("second_effect_on_mean", 0)
            yield " lowers ", min(effects) < 0
            yield " raises ", max(effects) > 0
        case "ranking":
            yield "succeed less often", n["success"] < -0.3
            yield "hardly succeed more often", -0.3 <= n["success"] <= 0.3
        case "paired_agents" | "paired_frameworks":
            low, high = n["success_low"], n["success_high"]
            yield " above the others", n["score_low"] > 0
            yield " below the others", n["score_high"] < 0
            yield "It succeeds more often", low > 0
            yield "succeeds less often", high < 0
            yield "about as often", -0.1 <= low <= 0 <= high <= 0.1
            yield "is not clear", low <= 0 <= high and max(-low, high) > 0.1
        case "domain_moved" if "cache_share" in n:
            yield "can lower novelty", n["cache_share"] > n["cache_share_before"]
            yield "can raise novelty", n["cache_share"] < n["cache_share_before"]
        case "confidence":
            yield " is overconfident", n["overconfidence_low"] > 0
            yield " is underconfident", n["overconfidence_high"] < 0
        case "success":
            yield " but only ", n["high_success_high"] < n["low_success_low"]
        case "cache_warming_up":
            yield "All traces were made", n["novelty_after"] is None
            yield "that of the other traces", n["novelty_after"] is not None
        case _:
            return
