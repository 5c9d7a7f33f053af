"""What questions find of what is planted in an archive: `python -m tests.bench.planted`.

An archive is drawn from each of 100 seeds. A claim says what a question tells of it, and is tried
once a draw, or for each interval or period of an answer. A line tells how many trials were right,
and how many have to be, with ! where they are not. What 95 of 100 means depends on the claim:

- always: no chance is in it, as of copies. It holds in every trial.
- found: what is planted is large beside chance. It holds in 95 of 100 trials at least.
- 95%: the question itself promises 95 of 100, as of an interval that covers the truth. As many
  independent trials have fewer right once in 1,000 times, and more as rarely.
- at least 95%: likewise, but more is no fault: of Holm's, by which nothing moves in a period, of
  shares, which are discrete, and of the mean of all domains, as the drawing fixes how many tasks
  each has, and the question takes that for chance, too.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from scipy import stats

from tests.support.make import planted as plan
from tests.support.make.planted import Agent, Planted, build_catalog, plant

DRAWS = 100
BOUNDS: dict[str, Callable[[int], tuple[int, int]]] = {
    "always": lambda trials: (trials, trials),
    "found": lambda trials: (math.floor(0.95 * trials), trials),
    "at least 95%": lambda trials: (_rarely_fewer(0.001, trials), trials),
    "95%": lambda trials: (_rarely_fewer(0.001, trials), _rarely_fewer(0.999, trials)),
}


def _rarely_fewer(share: float, trials: int) -> int:
    return int(stats.binom.ppf(share, trials, 0.95))


AGENTS = [(name, agent) for name, domain in plan.DOMAINS.items() for agent in domain.agents]
Row = dict[str, Any]


@dataclass
class Asked:
    """An archive, and the answers of a catalog over it."""

    key: Planted
    connection: duckdb.DuckDBPyConnection
    answers: dict[str, list[Row]] = field(default_factory=dict)

    def rows(self, question: str, **values: object) -> list[Row]:
        """The rows of an answer that have these values; a question is asked once."""
        if question not in self.answers:
            answer = self.connection.execute(f"FROM {question}")
            names = [column[0] for column in answer.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
            self.answers[question] = rows
        return [row for row in self.answers[question] if values.items() <= row.items()]

    def row(self, question: str, **values: object) -> Row:
        [row] = self.rows(question, **values)
        return row

    def by_agent(self, question: str) -> dict[str, Row]:
        return {row["agent_id"]: row for row in self.rows(question)}


Trials = Iterable[bool]


@dataclass(frozen=True)
class Claim:
    """What a question tells, and how often it has to."""

    question: str
    says: str
    kind: str  # of LEAST
    tried: Callable[[Asked], Trials]


CLAIMS: list[Claim] = []


def claim(question: str, says: str, kind: str) -> Callable[..., Callable[[Asked], Trials]]:
    def add(tried: Callable[[Asked], Trials]) -> Callable[[Asked], Trials]:
        CLAIMS.append(Claim(question, says, kind, tried))
        return tried

    return add


def covers(row: Row, truth: float, name: str = "") -> bool:
    """Whether there is an interval, and the truth is in it."""
    low, high = (row[f"{name}_{end}" if name else end] for end in ("low", "high"))
    return low is not None and high is not None and low <= truth <= high


def near(value: float, truth: float, by: float) -> bool:
    return abs(value - truth) <= by


def has_moved(row: Row) -> bool:
    """Whether a change is more than chance, of all keys of its period."""
    return row["adjusted_p_value"] is not None and row["adjusted_p_value"] < 0.05


_DOMAINS = "changes_by('task_domain', 'week')"
_OTHERS = "differences_from_others('agent_id', ['score', 'success'])"
_PAIR = (
    "differences_by('agent_id', 'plain', '{}', ['score', 'complexity', 'novelty', "
    "'tool_diversity', 'outcome_confidence', 'success'])"
)


@claim("mean_changes", "mix down and within up hide each other, both of their size", "found")
def _(asked: Asked) -> Trials:
    row = asked.row("mean_changes('week')", begins=plan.LAST)
    uncertainty = (row["high"] - row["low"]) / 2
    sizes = near(row["within"], plan.within(), uncertainty) and near(
        row["mix"], -plan.within(), uncertainty
    )
    yield row["mix"] < 0 < row["within"] and sizes


@claim("mean_changes", "the four parts are the change, and no domain entered or exited", "always")
def _(asked: Asked) -> Trials:
    first, beginning, *rows = asked.rows("mean_changes('week')")
    yield all(row["change"] is None and row["mix"] is None for row in (first, beginning))
    for row in rows:
        parts = [row[name] for name in ("mix", "within", "entered", "exited")]
        yield near(sum(parts), row["change"], 1e-9) and max(map(abs, parts[2:])) < 1e-9


@claim("mean_changes", "the interval covers that nothing changes, of each week", "at least 95%")
def _(asked: Asked) -> Trials:
    for row in asked.rows("mean_changes('week')")[2:]:
        yield covers(row, 0)


@claim("changes_by", "the parts are the change, and none is of weights", "always")
def _(asked: Asked) -> Trials:
    for row in asked.rows(_DOMAINS):
        if row["parts"]:
            yield near(sum(row["parts"].values()), row["change"], 1e-9)
            yield row["parts"]["weights"] == 0


@claim("changes_by", "the domain that moved has moved up", "found")
def _(asked: Asked) -> Trials:
    row = asked.row(_DOMAINS, begins=plan.LAST, task_domain=plan.MOVED)
    yield has_moved(row) and row["low"] > 0


@claim("changes_by", "in the last week it has, and no other domain", "at least 95%")
def _(asked: Asked) -> Trials:
    rows = filter(has_moved, asked.rows(_DOMAINS, begins=plan.LAST))
    yield [row["task_domain"] for row in rows] == [plan.MOVED]


@claim("changes_by", "no domain has moved, of each other week", "at least 95%")
def _(asked: Asked) -> Trials:
    moved = {row["begins"] for row in filter(has_moved, asked.rows(_DOMAINS))}
    for week in range(1, plan.WEEKS - 1):
        yield plan.BEGIN + timedelta(weeks=week) not in moved


@claim("changes_by", "the interval covers the change, of each domain and week", "95%")
def _(asked: Asked) -> Trials:
    for row in asked.rows(_DOMAINS):
        is_planted = (row["task_domain"], row["begins"]) == (plan.MOVED, plan.LAST)
        if row["begins"] > plan.BEGIN:
            yield covers(row, plan.moved_by() if is_planted else 0)


@claim(
    "changes_by",
    "p_value is above 0.05 where nothing moved, of each agent and week",
    "at least 95%",
)
def _(asked: Asked) -> Trials:
    for row in asked.rows("changes_by('agent_id', 'week')"):
        is_planted = (row["agent_id"], row["begins"]) == ("coder", plan.LAST)
        if row["p_value"] is not None and not is_planted:
            yield row["p_value"] > 0.05


@claim("means_by", "who takes easy tasks has the highest mean of its domain", "found")
def _(asked: Asked) -> Trials:
    rows = asked.rows("means_by('agent_id', ['score'], task_domain = 'ops')")
    rows.sort(key=itemgetter("mean"), reverse=True)
    yield [row["agent_id"] for row in rows] == ["lucky", "able", "plain"]


@claim("means_by", "the intervals of score and success by agent cover the truth", "at least 95%")
def _(asked: Asked) -> Trials:
    scores, successes = (
        asked.by_agent(f"means_by('agent_id', ['{measure}'])") for measure in ("score", "success")
    )
    for domain, agent in AGENTS:
        if domain in {"medical", "ops"}:
            yield covers(scores[agent.name], plan.DOMAINS[domain].composite(agent))
        yield covers(successes[agent.name], agent.stated - agent.overstates)


@claim(
    "means_by",
    "the intervals of score, success and novelty by domain cover the truth",
    "at least 95%",
)
def _(asked: Asked) -> Trials:
    for name, domain in plan.DOMAINS.items():
        rows = asked.rows("means_by('task_domain')", task_domain=name)
        of = {row["measure"]: row for row in rows}
        if name not in {"code", "ops"}:
            yield covers(of["score"], plan.mean_score(name))
        succeeds = sum(agent.stated - agent.overstates for agent in domain.agents)
        yield covers(of["success"], succeeds / len(domain.agents))
        yield covers(of["novelty"], plan.NOVELTY)


@claim("differences_by", "who takes easy tasks is not better: score, and all else", "at least 95%")
def _(asked: Asked) -> Trials:
    for row in asked.rows(_PAIR.format("lucky")):
        yield covers(row, 0)


@claim("differences_by", "who is better is found, in score and complexity", "found")
def _(asked: Asked) -> Trials:
    for measure in ("score", "complexity"):
        yield asked.row(_PAIR.format("able"), measure=measure)["low"] > 0


@claim("differences_by", "the difference is that of the means, and of the parts", "always")
def _(asked: Asked) -> Trials:
    for row in asked.rows(_PAIR.format("lucky")):
        yield near(row["mean_b"] - row["mean_a"], row["difference"], 1e-9)
        if row["parts"]:
            yield near(sum(row["parts"].values()), row["difference"], 1e-9)


@claim("differences_by", "by as much as it is, and in nothing else", "at least 95%")
def _(asked: Asked) -> Trials:
    truths = {"complexity": 0.08, "score": 0.08 * plan.WEIGHTS["complexity"]}
    for row in asked.rows(_PAIR.format("able")):
        yield covers(row, truths.get(row["measure"], 0))


def from_others(asked: Asked, name: str, agent: Agent) -> dict[str, float]:
    """The expected differences of an agent from the others of its domain, by who tried what."""
    domain, tried = plan.DOMAINS[name], defaultdict[str, set[str]](set)
    traces = asked.key.rows.filter(task_domain=name)
    for objective, tried_by in traces.select("objective_hash", "agent_id").iter_rows():
        tried[objective].add(tried_by)
    others = [names - {agent.name} for names in tried.values() if agent.name in names]
    expected = {
        each.name: {
            "score": domain.composite(replace(each, prefers_easy=0)),
            "success": each.stated - each.overstates,
        }
        for each in domain.agents
    }
    return {
        measure: fmean(
            own - fmean(expected[other][measure] for other in of_task)
            for of_task in others
            if of_task
        )
        for measure, own in expected[agent.name].items()
    }


@claim("differences_from_others", "who is better is above the others", "found")
def _(asked: Asked) -> Trials:
    row = asked.row(_OTHERS, agent_id="able", measure="score")
    yield row["low"] > 0


@claim("differences_from_others", "who takes easy tasks is not above them", "at least 95%")
def _(asked: Asked) -> Trials:
    row = asked.row(_OTHERS, agent_id="lucky", measure="score")
    yield row["low"] <= 0


def covers_from_others(asked: Asked, measure: str) -> Trials:
    for name in ("medical", "ops"):
        for agent in plan.DOMAINS[name].agents:
            row = asked.row(_OTHERS, agent_id=agent.name, measure=measure)
            yield covers(row, from_others(asked, name, agent)[measure])


@claim("differences_from_others", "by as much as they differ on a task, in score", "at least 95%")
def _(asked: Asked) -> Trials:
    return covers_from_others(asked, "score")


@claim("differences_from_others", "likewise in success", "at least 95%")
def _(asked: Asked) -> Trials:
    return covers_from_others(asked, "success")


@claim("differences_from_others", "the agents of the domains that have several", "always")
def _(asked: Asked) -> Trials:
    rows = asked.rows(_OTHERS, measure="score")
    names = [(row["task_domain"], row["agent_id"]) for row in rows]
    yield names == sorted(
        (name, agent.name) for name, agent in AGENTS if name in {"medical", "ops"}
    )


@claim("confidence_calibration", "the interval covers by how much agents overstate", "at least 95%")
def _(asked: Asked) -> Trials:
    rows = asked.by_agent("confidence_calibration")
    for agent in (plan.FOUNDER, *(agent for _, agent in AGENTS)):
        yield covers(rows[agent.name], agent.overstates, "overconfidence")


@claim("confidence_calibration", "of who is calibrated it covers 0", "at least 95%")
def _(asked: Asked) -> Trials:
    row = asked.row("confidence_calibration", agent_id="calibrated")
    yield covers(row, 0, "overconfidence")


@claim("confidence_calibration", "of who overstates it does not, and the skill is less", "found")
def _(asked: Asked) -> Trials:
    rows = asked.by_agent("confidence_calibration")
    over, calibrated = rows["overconfident"], rows["calibrated"]
    skills = calibrated["brier_skill"] > max(0, over["brier_skill"])
    yield over["overconfidence_low"] > 0 and skills


@claim("confidence_calibration", "who states one value is told, and no other", "always")
def _(asked: Asked) -> Trials:
    rows = asked.rows("confidence_calibration", constant=True)
    yield [row["agent_id"] for row in rows] == ["constant"]
    yield all(row["brier_skill"] <= 1e-9 for row in rows)


@claim("means_by", "who states one value has one bin; all traces are in one", "always")
def _(asked: Asked) -> Trials:
    rows = asked.rows("means_by(['agent_id', 'confidence_bin'], ['confidence'])")
    [only] = [row for row in rows if row["agent_id"] == "constant"]
    yield near(only["confidence_bin"], 0.7, 1e-9) and near(only["mean"], 0.7, 1e-9)
    yield sum(row["traces"] for row in rows) == asked.key.rows.height
    yield all(-1e-9 <= row["mean"] - row["confidence_bin"] <= 0.1 + 1e-9 for row in rows)


@claim("repeats", "the copies, and no other text", "always")
def _(asked: Asked) -> Trials:
    rows = asked.rows("repeats('text_hash')")
    yield {row["text_hash"]: row["traces"] for row in rows} == asked.key.copies


@claim("repeats", "what is tried again, and no other objective", "always")
def _(asked: Asked) -> Trials:
    rows = asked.rows("repeats('objective_hash')")
    yield {row["objective_hash"]: row["traces"] for row in rows} == asked.key.attempts
    yield all(row["texts"] == row["traces"] for row in rows)


@claim("part_effects", "complexity drives one domain, and an override another", "found")
def _(asked: Asked) -> Trials:
    for domain, part, share in plan.driven():
        rows = asked.rows("part_effects", task_domain=domain)
        most = max(rows, key=itemgetter("share_of_variance"))
        yield most["part"] == part and near(most["share_of_variance"], share, 0.1)


@claim("part_effects", "the shares of a domain sum to 1", "always")
def _(asked: Asked) -> Trials:
    for domain in (*plan.DOMAINS, "early"):
        rows = asked.rows("part_effects", task_domain=domain)
        yield near(sum(row["share_of_variance"] for row in rows), 1, 1e-9)


@claim("part_effects", "the override of one domain, its traces, and no other", "always")
def _(asked: Asked) -> Trials:
    rows = [row for row in asked.rows("part_effects") if row["weight"] is None and row["traces"]]
    found = [(row["task_domain"], row["part"], row["traces"]) for row in rows]
    yield found == [("support", "single_thought", asked.key.singles)]


@claim("part_effects", "what it does to them, and to the mean of the domain", "found")
def _(asked: Asked) -> Trials:
    row = asked.row("part_effects", task_domain="support", part="single_thought")
    domain = plan.DOMAINS["support"]
    effect = 0.1 - domain.composite(domain.agents[0])
    is_right = near(row["effect_where_any"], effect, 0.05)
    yield is_right and near(row["mean_effect"], plan.SINGLE * effect, 0.05)


@claim("cache_beginnings", "which cache filled, to the trace, and which never did", "always")
def _(asked: Asked) -> Trials:
    rows = asked.rows("cache_beginnings")
    found = {row["cache_group"]: (row["cache_warming_up"], row["filled_at"]) for row in rows}
    yield found == asked.key.filled
    numbers = {group: number for group, (number, _) in found.items()}
    yield numbers == {**plan.EARLY_TRACES, "fills": plan.CACHE}
    yield [group for group, (_, at) in found.items() if at is None] == ["never"]


@claim("cache_beginnings", "by how much traces look more novel until then", "found")
def _(asked: Asked) -> Trials:
    for group in ("fills", "aged"):
        row = asked.row("cache_beginnings", cache_group=group)
        more = row["novelty_warming_up"] - row["novelty_after"]
        yield near(more, plan.WARMING_UP_NOVELTY - plan.NOVELTY, 0.15)


@claim("trace_measures", "all of a cache of one domain, none for who comes first", "always")
def _(asked: Asked) -> Trials:
    shares = {row["trace_id"]: row["cache_share_of_domain"] for row in asked.rows("trace_measures")}
    traces = asked.key.rows
    alone = [shares[trace] for trace in traces.filter(cache_group="never")["trace_id"]]
    yield alone == [0, *[1.0] * (plan.EARLY_TRACES["never"] - 1)]
    for domain in plan.DOMAINS:
        yield shares[traces.filter(task_domain=domain)["trace_id"][0]] == 0


@dataclass
class Count:
    """How many trials of a claim were right, of all draws."""

    claim: Claim
    right: int = 0
    trials: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        return BOUNDS[self.claim.kind](self.trials)

    @property
    def is_kept(self) -> bool:
        least, most = self.bounds
        return least <= self.right <= most

    def __str__(self) -> str:
        least, most = self.bounds
        share = f"{self.right} of {self.trials} ({least} to {most})"
        return f"{self.claim.question:24}{self.claim.kind:14}{share:28}{self.claim.says}"


def counts(
    catalog: Path,
    seeds: Iterable[int],
    claims: Iterable[Claim] = tuple(CLAIMS),
    draw: Callable[[int], Planted] = plant,
) -> list[Count]:
    """Try all claims of all seeds, by a catalog that `build_catalog` made."""
    of_claims = list(map(Count, claims))
    for seed in seeds:
        key = draw(seed)
        key.rows.write_parquet(catalog.with_name("scores.parquet"))
        with duckdb.connect(catalog, read_only=True, config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            asked = Asked(key, connection)
            for count in of_claims:
                trials = list(count.claim.tried(asked))
                count.right += sum(trials)
                count.trials += len(trials)
    return of_claims


def print_all(of_claims: Iterable[Count]) -> int:
    """Print each claim; the exit status, which is 1 if one is not kept."""
    kept = []
    for count in of_claims:
        print(f"{' ' if count.is_kept else '!'} {count}")
        kept.append(count.is_kept)
    return 0 if all(kept) else 1


if __name__ == "__main__":
    with TemporaryDirectory() as catalog_folder:
        sys.exit(print_all(counts(build_catalog(Path(catalog_folder)), range(DRAWS))))
