"""Scores drawn from a seed, with truths planted in them, and the key that tells these.

Twelve weeks of five domains, whose tasks are tried again and again, and long before them one week
of a domain of its own, in which the caches begin. Each score is the weighted sum of its dimensions
after the overrides. What is drawn has bounds within those of its column, so that nothing is cut off
and expected values are exact.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl

from kp_batch.duck import read_parquet
from kp_batch.schemas import PROFILES, SCORES, TABLES, VIEWS
from kp_batch.warehouse.catalog import build
from kp_batch.warehouse.manifest import Manifest

WEIGHTS = MappingProxyType(
    {"complexity": 0.5, "novelty": 0.2, "tool_diversity": 0.1, "outcome_confidence": 0.2}
)
WEEKS = 12
BEGIN = date(2026, 1, 5)  # a Monday
LAST = BEGIN + timedelta(weeks=WEEKS - 1)
EARLY = BEGIN - timedelta(weeks=6)  # further back than any question compares
NOVELTY, TOOL_DIVERSITY, NOISE = 0.4, 0.3, 0.1

MOVED, SURGED = "code", "finance"  # what moves in the last week, and what hides it by coming more
SHIFT = 0.3  # of complexity
SINGLE = 0.3  # the share of single thoughts in support
CACHE, TTL = 40, timedelta(days=90)
EARLY_TRACES = MappingProxyType({"aged": 10, "fills": 60, "never": 30})  # by the cache's group
AGED = 10  # traces of the last week that come to a cache of few, whose ttl has passed
WARMING_UP_NOVELTY = 0.8
COPIES = (2, 2, 3, 3, 4, 5)  # how often each text is found, under other objectives
ATTEMPTS = (2, 3, 4, 5)  # how often the objectives of the early week that are tried again


@dataclass(frozen=True)
class Agent:
    """How an agent works: what it adds to a task's complexity, what it prefers and states."""

    name: str
    ability: float = 0.0
    prefers_easy: float = 0.0  # the logarithm by which a task is likelier for each 1 that it adds
    states: tuple[float, float] = (0.5, 0.9)  # the confidence in tasks; within 0.05, by attempt
    overstates: float = 0.0  # by which its confidence exceeds how often it succeeds

    @property
    def stated(self) -> float:
        return sum(self.states) / 2

    @property
    def jitter(self) -> float:
        """Half the width of what an attempt adds to the confidence; one value is stated always."""
        return 0.05 if self.states[0] < self.states[1] else 0.0

    def outcome(self, power: int) -> float:
        """The expected power of the outcome_confidence, by midpoints of tasks and attempts."""
        places = (np.arange(100) + 0.5) / 100
        low, high = self.states
        stated = low + (high - low) * places[:, None] + self.jitter * (2 * places - 1)
        succeeds = stated - self.overstates
        return float((stated**power * (succeeds + 0.3**power * (1 - succeeds))).mean())


@dataclass(frozen=True)
class Domain:
    """What a domain's traces are like."""

    weekly: int  # the expected number of traces a week
    complexity: float
    tasks_add: float  # half the width of what a task adds to the complexity
    agents: tuple[Agent, ...]  # equally often
    tasks: int = 80
    is_new: bool = False  # whether each week has tasks of its own

    def composite(self, agent: Agent) -> float:
        """The expected one of an agent: what its preference for easy tasks adds is included."""
        complexity, a, k = self.complexity + agent.ability, self.tasks_add, agent.prefers_easy
        if k:
            complexity += a / math.tanh(a * k) - 1 / k
        values = complexity, NOVELTY, TOOL_DIVERSITY, agent.outcome(1)
        return sum(w * value for w, value in zip(WEIGHTS.values(), values, strict=True))

    def variances(self) -> dict[str, float]:
        """Of what each weighted dimension makes of the composite, if the agents are equally able.

        A value within half the width a, equally likely all over, has the variance a * a / 3.
        """
        mean, squares = (
            sum(agent.outcome(power) for agent in self.agents) / len(self.agents)
            for power in (1, 2)
        )
        values = {
            "complexity": (self.tasks_add**2 + NOISE**2) / 3,
            "novelty": (2 * NOISE) ** 2 / 3,
            "tool_diversity": NOISE**2 / 3,
            "outcome_confidence": squares - mean**2,
        }
        return {name: WEIGHTS[name] ** 2 * value for name, value in values.items()}


DOCTORS = (
    Agent("calibrated", states=(0.2, 0.9)),
    Agent("overconfident", states=(0.3, 0.9), overstates=0.2),
    Agent("constant", states=(0.7, 0.7)),
)
OPERATORS = Agent("lucky", prefers_easy=12), Agent("plain"), Agent("able", ability=0.08)
DOMAINS: Mapping[str, Domain] = MappingProxyType(
    {
        "code": Domain(80, 0.4, 0.15, (Agent("coder"),)),
        "finance": Domain(60, 0.25, 0.15, (Agent("auditor"),), tasks=24, is_new=True),
        "medical": Domain(60, 0.5, 0.35, DOCTORS),
        "ops": Domain(90, 0.5, 0.25, OPERATORS),
        "support": Domain(50, 0.5, 0.15, (Agent("helper"),)),
    }
)
FOUNDER = Agent("founder")  # of the early week


def mean_score(name: str) -> float:
    """The expected score of a domain before the last week."""
    domain = DOMAINS[name]
    composite = sum(map(domain.composite, domain.agents)) / len(domain.agents)
    return composite + SINGLE * (0.1 - composite) if name == "support" else composite


def moved_by() -> float:
    """How much the score of the domain that moves does so."""
    return WEIGHTS["complexity"] * SHIFT


def surge() -> float:
    """How many traces more keep the mean of all where it was."""
    all_of = sum(domain.weekly for domain in DOMAINS.values())
    mean = sum(domain.weekly * mean_score(name) for name, domain in DOMAINS.items()) / all_of
    return DOMAINS[MOVED].weekly * moved_by() / (mean - mean_score(SURGED))


def within() -> float:
    """What the domains' own changes do to the mean of the last week; the mix does the opposite."""
    all_of, of_moved = sum(domain.weekly for domain in DOMAINS.values()), DOMAINS[MOVED].weekly
    return (of_moved / all_of + of_moved / (all_of + surge())) / 2 * moved_by()


def driven() -> tuple[tuple[str, str, float], ...]:
    """Two domains, what drives their scores, and the share of the variance that it makes."""
    medical, support = DOMAINS["medical"].variances(), DOMAINS["support"]
    [helper] = support.agents
    by_single = SINGLE * (1 - SINGLE) * (support.composite(helper) - 0.1) ** 2
    by_all = by_single + (1 - SINGLE) * sum(support.variances().values())
    return (
        ("medical", "complexity", medical["complexity"] / sum(medical.values())),
        ("support", "single_thought", by_single / by_all),
    )


@dataclass(frozen=True)
class Planted:
    """Rows of the table scores, and what only the drawing knows."""

    rows: pl.DataFrame
    filled: Mapping[str, tuple[int, datetime | None]]  # traces before a group's cache did, and when
    copies: Mapping[str, int]  # texts that more than one trace has
    attempts: Mapping[str, int]  # objectives that more than one trace has
    singles: int  # how many single thoughts there are


def plant(seed: int) -> Planted:
    """Draw the archive of a seed."""
    generator = np.random.default_rng(seed)
    traces = [_early(generator), *(_of_domain(generator, name) for name in DOMAINS)]
    rows = pl.concat(traces).sort("created_at")
    numbers = pl.int_range(pl.len())
    rows = rows.with_columns(
        trace_id=pl.format("t{}", numbers),
        text_hash=pl.format("text {}", numbers),
        tool_diversity=TOOL_DIVERSITY + _noise(generator, rows.height),
        novelty=NOVELTY + 2 * _noise(generator, rows.height),
        cache_group=_groups(generator, rows),
    )
    caches = _caches(rows)
    copied = _copies(generator, rows)
    attempts = Counter(rows["objective_hash"].to_list())
    return Planted(
        _scored(rows.with_columns(caches).update(copied, on="trace_id")),
        _filled(rows.with_columns(caches)),
        Counter(copied["text_hash"].to_list()),
        {objective: times for objective, times in attempts.items() if times > 1},
        int(rows["single_thought"].sum()),
    )


def _of_domain(generator: np.random.Generator, name: str) -> pl.DataFrame:
    """The traces of a domain in all weeks."""
    domain = DOMAINS[name]
    expected = np.full(WEEKS, float(domain.weekly))
    expected[-1] += surge() if name == SURGED else 0
    weeks = np.repeat(np.arange(WEEKS), generator.poisson(expected))
    agents = generator.integers(len(domain.agents), size=weeks.size)
    number = domain.tasks * (WEEKS if domain.is_new else 1)
    adds = generator.uniform(-domain.tasks_add, domain.tasks_add, number)
    tasks = _tasks(generator, domain, agents, adds[: domain.tasks])
    tasks += domain.tasks * weeks * domain.is_new
    is_sure = generator.random(number)  # how far within what its agent states of tasks
    complexity = (
        domain.complexity
        + np.array([agent.ability for agent in domain.agents])[agents]
        + adds[tasks]
        + _noise(generator, weeks.size)
        + SHIFT * ((name == MOVED) & (weeks == WEEKS - 1))
    )
    own = {
        "task_domain": np.full(weeks.size, name),
        "agent_id": np.array([agent.name for agent in domain.agents])[agents],
        "objective_hash": [_hash(f"{name} {task}") for task in tasks],
        "complexity": complexity,
        "single_thought": (name == "support") & (generator.random(weeks.size) < SINGLE),
        **_stated(generator, domain.agents, agents, is_sure[tasks]),
    }
    return pl.DataFrame(own).with_columns(_moments(generator, BEGIN, weeks))


def _tasks(
    generator: np.random.Generator, domain: Domain, agents: np.ndarray, adds: np.ndarray
) -> np.ndarray:
    """The task of each trace: some are tried often, and some agents prefer easy ones."""
    often = generator.gamma(2, size=adds.size)
    tasks = np.empty(agents.size, dtype=int)
    for number, agent in enumerate(domain.agents):
        own = agents == number
        likely = often * np.exp(agent.prefers_easy * adds)
        tasks[own] = generator.choice(adds.size, own.sum(), p=likely / likely.sum())
    return tasks


def _stated(
    generator: np.random.Generator,
    of_domain: tuple[Agent, ...],
    agents: np.ndarray,
    is_sure: np.ndarray,
) -> dict[str, np.ndarray]:
    """The confidence of each trace, and whether it succeeded."""
    low, high, jitter, overstates = np.array(
        [[*agent.states, agent.jitter, agent.overstates] for agent in of_domain]
    )[agents].T
    confidence = low + (high - low) * is_sure + jitter * generator.uniform(-1, 1, agents.size)
    success = generator.random(agents.size) < confidence - overstates
    return {"confidence": confidence, "success": success}


def _early(generator: np.random.Generator) -> pl.DataFrame:
    """The week in which the caches begin, of a domain of its own; few tasks are tried again."""
    number = sum(EARLY_TRACES.values())
    once = number - sum(ATTEMPTS)
    tasks = np.repeat(np.arange(len(ATTEMPTS) + once), [*ATTEMPTS, *[1] * once])
    weeks = np.zeros(number, dtype=int)
    own = {
        "task_domain": ["early"] * number,
        "agent_id": [FOUNDER.name] * number,
        "objective_hash": [_hash(f"early {task}") for task in generator.permutation(tasks)],
        "complexity": 0.5 + _noise(generator, number),
        "single_thought": weeks > 0,
        **_stated(generator, (FOUNDER,), weeks, generator.random(number)),
    }
    return pl.DataFrame(own).with_columns(_moments(generator, EARLY, weeks))


def _hash(objective: str) -> str:
    return sha256(objective.encode()).hexdigest()[:32]


def _moments(generator: np.random.Generator, begin: date, weeks: np.ndarray) -> pl.Series:
    first = datetime(begin.year, begin.month, begin.day, tzinfo=UTC)
    seconds = (weeks + generator.random(weeks.size)) * timedelta(weeks=1).total_seconds()
    microseconds = int(first.timestamp()) * 1_000_000 + (seconds * 1e6).astype(np.int64)
    return pl.Series("created_at", microseconds).cast(SCORES["created_at"])


def _noise(generator: np.random.Generator, size: int) -> np.ndarray:
    return generator.uniform(-NOISE, NOISE, size)


def _groups(generator: np.random.Generator, rows: pl.DataFrame) -> pl.Series:
    """The cache of each trace: all come to one but some early ones, and some of the last week."""
    groups = np.full(rows.height, "fills")
    early = np.repeat(list(EARLY_TRACES), list(EARLY_TRACES.values()))
    groups[: early.size] = generator.permutation(early)
    last = np.flatnonzero((rows["created_at"].dt.date() >= LAST).to_numpy())
    groups[generator.choice(last, AGED, replace=False)] = "aged"
    return pl.Series(groups)


def _caches(rows: pl.DataFrame) -> pl.DataFrame:
    """What the cache of each trace held, and whether it was still warming up."""
    caches: dict[str, list[datetime]] = {}
    found: list[tuple[int, bool]] = []
    for group, now in rows.select("cache_group", "created_at").iter_rows():
        came = caches.setdefault(group, [])
        held = min(CACHE, len(came) - bisect_right(came, now - TTL))
        found.append((held, held < CACHE and now - (came or [now])[0] < TTL))
        came.append(now)
    return pl.DataFrame(found, ["cached_vectors", "is_warming_up"], orient="row")


def _filled(rows: pl.DataFrame) -> dict[str, tuple[int, datetime | None]]:
    of_group = rows.group_by("cache_group").agg(
        pl.col("is_warming_up").sum(), pl.col("created_at").filter(~pl.col("is_warming_up")).min()
    )
    return {group: (number, at) for group, number, at in of_group.iter_rows()}


def _copies(generator: np.random.Generator, rows: pl.DataFrame) -> pl.DataFrame:
    """The traces whose texts are copies, and these; no two of them have one objective."""
    first = rows.unique("objective_hash", keep="first", maintain_order=True)["trace_id"]
    chosen = generator.choice(first.to_numpy(), sum(COPIES), replace=False)
    texts = [f"copy {text}" for text, times in enumerate(COPIES) for _ in range(times)]
    return pl.DataFrame({"trace_id": chosen, "text_hash": texts})


def _scored(rows: pl.DataFrame) -> pl.DataFrame:
    """With all columns of the table scores."""
    drawn = rows.with_columns(
        novelty=pl.col("novelty") + (WARMING_UP_NOVELTY - NOVELTY) * pl.col("is_warming_up"),
        outcome_confidence=pl.col("confidence") * pl.when("success").then(1.0).otherwise(0.3),
        recovery_bonus=False,
        low_diversity_penalty=False,
        profile=pl.lit("planted"),
        profile_id=pl.lit("planted"),
        date=pl.col("created_at").dt.date(),
        n_tools=pl.lit(2),
    ).with_columns(composite=pl.sum_horizontal(w * pl.col(name) for name, w in WEIGHTS.items()))
    drawn = drawn.with_columns(
        score=pl.when("single_thought").then(0.1).otherwise(pl.col("composite"))
    )
    lacking = (pl.lit(None).alias(name) for name in SCORES if name not in drawn.columns)
    return drawn.with_columns(lacking).select(SCORES.names()).cast(SCORES)


def build_catalog(folder: Path) -> Path:
    """Build a catalog over the files of a folder, in which `scores.parquet` may be replaced."""
    profile = ["planted", "planted", *WEIGHTS.values(), [None]]
    tables = {name: pl.DataFrame(schema=TABLES[name]) for name in VIEWS}
    tables["profiles"] = pl.DataFrame([profile], schema=PROFILES, orient="row")
    rows = {name: folder / f"{name}.parquet" for name in tables}
    for name, table in tables.items():
        table.write_parquet(rows[name])
    manifest = Manifest(
        {"threshold": 0.75, "embedder": "hashing", "cache_size": CACHE, "ttl": f"{TTL.days}d"},
        {},
    )
    path = folder / "kp.duckdb"
    build(path, str(folder), manifest, {name: read_parquet(file) for name, file in rows.items()})
    return path
