"""What the report's page says of archives with truths in them: `python -m tests.bench.findings`.

As `tests.bench.planted`: of planted archives the page says what is planted. Of as many in which
nothing is, as agents, domains, weeks and successes were dealt out anew, 95 of 100 pages say nothing
of a code whose sentences are true of no agent, domain or week.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from kp_batch.report.data import ReportData, gather
from kp_batch.report.finding import Finding
from kp_batch.report.findings import findings
from kp_batch.report.kinds import novelty, outcomes, trends, units
from kp_batch.report.labels import ALL
from tests.bench.planted import Asked, Claim, Count, Trials, counts, print_all
from tests.support.make import planted as plan
from tests.support.make.planted import Planted, build_catalog, plant

DRAWS = 200
_AGENTS, _FRAMEWORKS = 12, 4
_BY_CHANCE: Sequence[Callable[[ReportData, str], Iterator[Finding]]] = (
    *(trends.mean_change, trends.domain_moved, units.ranking, units.paired),
    *(outcomes.confidence, outcomes.success),
)
_CODES = (
    *("mean_change", "domain_moved", "ranking", "paired_agents", "paired_frameworks"),
    *("confidence", "success"),
)


def data_of(asked: Asked) -> ReportData:
    """What the report is made of; its connection is of its own, as it gets views."""
    with asked.connection.cursor() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return gather(connection)


class Page:
    """The page of the archive that was last asked for; a page is gathered once."""

    def __init__(self) -> None:
        self._of: Asked | None = None

    def __call__(self, asked: Asked) -> ReportData:
        """The data of an archive."""
        if self._of is not asked:
            self._of, self._data = asked, data_of(asked)
        return self._data


page = Page()
PLANTED: list[Claim] = []
NOTHING: list[Claim] = []


def claim(says: str, kind: str) -> Callable[[Callable[[ReportData], Trials]], None]:
    """A claim about the page of a planted archive."""

    def add(tried: Callable[[ReportData], Trials]) -> None:
        PLANTED.append(Claim("page", says, kind, lambda asked: tried(page(asked))))

    return add


def said(data: ReportData, code: str, scope: str = ALL) -> Finding:
    """The finding of a code; without numbers if there is none."""
    none = Finding(code, (), "", {}, 0, 0.0)
    return next((each for each in findings(data, scope) if each.code == code), none)


@claim("code moved in the last week, and the mix of domains hid it", "found")
def _(data: ReportData) -> Trials:
    finding = said(data, "domain_moved")
    numbers = finding.numbers
    where = f"In the week starting {plan.LAST} {plan.MOVED} scored"
    parts = [numbers.get(name) or 0 for name in ("within", "mix")]
    is_hidden = "The mean of all traces shows no clear change" in finding.sentence
    yield finding.sentence.startswith(where) and is_hidden and parts[0] > 0 > parts[1]


@claim("who is better is above the others on the same tasks", "found")
def _(data: ReportData) -> Trials:
    finding = said(data, "paired_agents")
    yield "able scores" in finding.sentence and " above the others" in finding.sentence


@claim("of who takes easy tasks it never says so", "at least 95%")
def _(data: ReportData) -> Trials:
    for scope in (ALL, "ops"):
        told = [each.sentence for each in units.paired(data, scope) if "above" in each.sentence]
        yield not any("lucky scores" in sentence for sentence in told)


@claim("who overstates is overconfident", "found")
def _(data: ReportData) -> Trials:
    finding = said(data, "confidence")
    numbers = finding.numbers
    yield numbers.get("agent_id") == "overconfident" and "is overconfident by" in finding.sentence


@claim("of who is calibrated it says nothing of the kind", "at least 95%")
def _(data: ReportData) -> Trials:
    told = [each.numbers["agent_id"] for each in outcomes.confidence(data, "medical")]
    yield "calibrated" not in told


@claim("single thoughts drive support, on its own page", "found")
def _(data: ReportData) -> Trials:
    driver = said(data, "driver", "support")
    yield driver.sentence.startswith("In support, single thought accounts for")


@claim("complexity drives medical, on its own page", "found")
def _(data: ReportData) -> Trials:
    yield said(data, "driver", "medical").numbers["part"] == "complexity"


@claim("how many came while the caches were warming up, and by how much more novel", "always")
def _(data: ReportData) -> Trials:
    number = sum(plan.EARLY_TRACES.values()) - plan.EARLY_TRACES["fills"] + plan.CACHE
    [finding] = novelty.warming_up(data, ALL)
    numbers: Mapping[str, Any] = finding.numbers
    yield numbers["cache_warming_up"] == number
    yield numbers["novelty_warming_up"] > numbers["novelty_after"] + 0.3


@claim("of the week that moved alone, and of no mean that changed", "at least 95%")
def _(data: ReportData) -> Trials:
    told = [each.numbers for each in trends.domain_moved(data, ALL)]
    yield all(numbers["begins"] == str(plan.LAST) for numbers in told)
    yield not [*trends.mean_change(data, ALL)]


def nothing(seed: int) -> Planted:
    """A planted archive, of which agents, domains, weeks, tools and successes are dealt out anew.

    Scores go with tasks alone; so do the stated confidences, and traces succeed as these say.
    """
    key, generator = plant(seed), np.random.default_rng([seed, 1])
    rows, number = key.rows, key.rows.height
    dealt = [
        rows.select(names)[generator.permutation(number).tolist()]
        for names in (["created_at", "date"], ["task_domain"])
    ]
    agents = generator.choice(_AGENTS, number, p=generator.dirichlet(np.ones(_AGENTS)))
    tasks = rows["objective_hash"].rank("dense").to_numpy().astype(int) - 1
    confidence = generator.uniform(0.2, 0.9, tasks.max() + 1)[tasks]
    confidence += generator.uniform(-0.05, 0.05, number)
    drawn = {
        "agent_id": [f"agent {agent}" for agent in agents],
        "framework": [f"framework {agent % _FRAMEWORKS}" for agent in agents],
        "n_tools": generator.poisson(3, number),
        "confidence": confidence,
        "success": generator.random(number) < confidence,
        "cached_vectors": np.full(number, plan.CACHE),
    }
    dealt.append(pl.DataFrame(drawn).cast({name: rows.schema[name] for name in drawn}))
    for columns in dealt:
        rows = rows.with_columns(columns)
    return replace(key, rows=rows.sort("created_at"))


def _is_silent(code: str, scope: Callable[[ReportData], str]) -> Callable[[Asked], Trials]:
    def tried(asked: Asked) -> Trials:
        data = page(asked)
        told = (each.code for find in _BY_CHANCE for each in find(data, scope(data)))
        yield code not in told

    return tried


for _code in _CODES:
    NOTHING.append(Claim(_code, "says nothing", "at least 95%", _is_silent(_code, lambda _: ALL)))
    _of_one = _is_silent(_code, lambda data: data.labels[0])
    NOTHING.append(Claim(_code, "nor of the largest domain", "at least 95%", _of_one))


def planted_counts(catalog: Path, draws: int) -> list[Count]:
    """How often pages say what is planted."""
    return counts(catalog, range(draws), PLANTED)


def chance_counts(catalog: Path, draws: int) -> list[Count]:
    """How often pages say nothing of archives in which nothing is."""
    return counts(catalog, range(draws), NOTHING, nothing)


def main(draws: int) -> int:
    """Print how often; the exit status, which is 1 where a page is wrong too often."""
    with TemporaryDirectory() as folder:
        catalog = build_catalog(Path(folder))
        return print_all((*planted_counts(catalog, draws), *chance_counts(catalog, draws)))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS))
