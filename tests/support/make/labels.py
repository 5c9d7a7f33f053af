"""Labels planted by known weights, over traces whose dimensions are drawn."""

import numpy as np

from kp_batch.fitting.sample import Sample
from kp_batch.fitting.scoring import ScoreInputs, scores_of
from kp_batch.vectors import Float64s

PUBLISHED = np.array([0.25, 0.35, 0.15, 0.25])
_DAY_US = 86_400_000_000


def drawn_traces(
    random: np.random.Generator, number: int, *, overrides: bool = False
) -> ScoreInputs:
    """Independent uniform dimensions; with overrides, these depend on the dimensions."""
    dimensions = random.random((number, 4))
    conditions = np.zeros((number, 3), bool)
    if overrides:
        conditions[:, 0] = dimensions[:, 0] < 0.1
        conditions[:, 1] = ~conditions[:, 0] & (random.random(number) < 0.2)
        conditions[:, 2] = dimensions[:, 2] + random.normal(0, 0.1, number) < 0.3
    return ScoreInputs(dimensions, conditions)


def sample_of(traces: ScoreInputs, labels: Float64s, *, attempts: int = 1) -> Sample:
    """A label for each trace, a day apart, with so many consecutive attempts at each task."""
    number = len(labels)
    return Sample(
        traces,
        np.tile(PUBLISHED, (number, 1)),
        labels.astype(np.float64),
        np.ones(number),
        np.arange(number) // attempts,
        np.zeros(number, np.int64),
        np.arange(number) * _DAY_US,
        bool(np.isin(labels, (0, 1)).all()),
    )


def planted(
    seed: int,
    number: int = 1_000,
    *,
    noise: float = 0.02,
    overrides: bool = False,
    weights: Float64s | None = None,
) -> tuple[Sample, Float64s]:
    """Numeric labels: the score under weights, by default drawn ones, and noise; these weights."""
    random = np.random.default_rng(seed)
    truth = random.dirichlet(np.full(4, 4.0)) if weights is None else weights
    traces = drawn_traces(random, number, overrides=overrides)
    labels = scores_of(traces, truth) + random.normal(0, noise, number)
    return sample_of(traces, labels), truth
