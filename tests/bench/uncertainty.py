"""How often the intervals of `means_by` cover the truth: `python -m tests.bench.uncertainty`.

A cell is a number of tasks, equally often attempted or by Pareto's law, and a mean, or a share
whose attempts at one task are alike by so much. Each is drawn 2,000 times; every draw is one group
of one question. A line tells how many draws got an interval, how many of these cover the truth,
and, for a share, how wide they are beside Clopper and Pearson's of as many effective tasks, and how
many of those of overconfidence cover it, where each trace states 0.5.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import duckdb
import numpy as np
import polars as pl
from scipy import stats

from kp_batch.warehouse.catalog import create_macros
from tests.support.read.means import ask_of

DRAWS = 2_000
TASKS = (5, 10, 30, 100)
SHARES = (0.05, 0.3)
ALIKE = (0.0, 0.1, 0.3, 1.0)  # the correlation of two attempts at one task
SEEDS = (1, 2)
MEAN = 0.4
CONFIDENCE = 0.5


@dataclass(frozen=True)
class Cell:
    """What is drawn."""

    tasks: int
    is_skewed: bool
    share: float | None  # None: a mean
    alike: float
    seed: int


@dataclass(frozen=True)
class Coverage:
    """What came of it, in shares; None: of nothing."""

    given: float
    given_from_ten: float | None  # of the draws with ten effective tasks
    covered: float | None  # of the draws that got an interval
    width: float | None  # of theirs by Clopper and Pearson's; None for a mean
    overconfidence: float | None  # covered, likewise


def cells() -> Iterator[Cell]:
    for seed, tasks, is_skewed in product(SEEDS, TASKS, (False, True)):
        yield Cell(tasks, is_skewed, None, 0.5, seed)
        for share, alike in product(SHARES, ALIKE):
            yield Cell(tasks, is_skewed, share, alike, seed)


def coverage(cell: Cell, draws: int = DRAWS) -> Coverage:
    generator = np.random.default_rng(cell.seed)
    attempts = _attempts(generator, cell, draws)
    rows = _traces(generator, cell, attempts)
    with duckdb.connect() as connection:
        create_macros(connection)
        ask_of(connection, rows)
        names = ["score", "success", "overconfidence"]
        found = connection.sql(f"FROM means_by('draw', {names}) ORDER BY draw").pl()
    answers = {name: found.filter(measure=name) for name in names}
    truth = MEAN if cell.share is None else cell.share
    answer = answers["score" if cell.share is None else "success"]
    low, high = (answer[name].to_numpy() for name in ("low", "high"))
    effective = attempts.sum(1) ** 2 / (attempts**2).sum(1)
    given = ~np.isnan(low)
    width = overconfidence = None
    if cell.share is not None:
        width = _mean((high - low) / _clopper_pearson(answer["mean"].to_numpy(), effective), given)
        least, most = (answers["overconfidence"][end].to_numpy() for end in ("low", "high"))
        gap = CONFIDENCE - cell.share
        overconfidence = _mean((least <= gap) & (gap <= most), given)
    return Coverage(
        float(given.mean()),
        _mean(given, effective >= 10),
        _mean((low <= truth) & (truth <= high), given),
        width,
        overconfidence,
    )


def _mean(values: np.ndarray, chosen: np.ndarray) -> float | None:
    return float(values[chosen].mean()) if chosen.any() else None


def _attempts(generator: np.random.Generator, cell: Cell, draws: int) -> np.ndarray:
    """How often each task is attempted, by draw."""
    shape = draws, cell.tasks
    if not cell.is_skewed:
        return np.full(shape, 10)
    return np.minimum(np.ceil(generator.pareto(1.1, shape) + 1), 300).astype(int)


def _traces(generator: np.random.Generator, cell: Cell, attempts: np.ndarray) -> pl.DataFrame:
    """The traces of all draws, with what the question reads."""
    of_task = np.repeat(np.arange(attempts.size), attempts.ravel())
    means = generator.beta(2, 3, attempts.size)  # whose mean is MEAN
    scores = means[of_task] + generator.normal(0, 0.1, of_task.size)
    shares = _shares(generator, cell, attempts.size)
    return pl.DataFrame(
        {
            "draw": of_task // cell.tasks,
            "objective_hash": of_task,
            "score": scores,
            "success": (generator.random(of_task.size) < shares[of_task]).astype(int),
            "confidence": CONFIDENCE,
        }
    ).with_columns(overconfidence=pl.col("confidence") - pl.col("success"))


def _shares(generator: np.random.Generator, cell: Cell, tasks: int) -> np.ndarray:
    """How often each task succeeds."""
    share = MEAN if cell.share is None else cell.share
    if cell.alike in {0.0, 1.0}:
        return np.full(tasks, share) if not cell.alike else (generator.random(tasks) < share) * 1.0
    spread = 1 / cell.alike - 1
    return generator.beta(share * spread, (1 - share) * spread, tasks)


def _clopper_pearson(share: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The width of the exact interval."""
    hits = share * n
    low = np.where(hits > 0, stats.beta.ppf(0.025, hits, n - hits + 1), 0)
    high = np.where(hits < n, stats.beta.ppf(0.975, hits + 1, n - hits), 1)
    return high - low


def main() -> None:
    print("seed  tasks  attempts  of           alike   given   covered  width  overconfidence")
    for cell in cells():
        found = coverage(cell)
        assert found.given_from_ten in {None, 1}
        kind = "a mean" if cell.share is None else f"a share {cell.share}"
        print(
            f"{cell.seed:4}  {cell.tasks:5}  {'Pareto' if cell.is_skewed else 'equal':8}  {kind:12}"
            f" {cell.alike:5}  {found.given:6.1%}  {found.covered or 0:7.1%}"
            + (f"  {found.width:5.2f}  {found.overconfidence:14.1%}" if found.width else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
