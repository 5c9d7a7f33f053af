"""Estimates the time of a plan from the rates of the last runs."""

from collections.abc import Callable, Mapping, Sequence

from kp_batch.config import RescoreConfig
from kp_batch.run_record import RunCounts, RunRecord

# By the name of each step, the count that its time grows with.
_RATED: Mapping[str, Callable[[RunCounts], int]] = {
    "embed": lambda counts: counts.embedded,
    "replay": lambda counts: counts.replayed,
    "write": lambda counts: counts.partitions,
}
_RUNS_RATED = 5


def estimated_seconds(
    config: RescoreConfig, counts: RunCounts, done: Sequence[RunRecord]
) -> float | None:
    """Estimate the time of the steps to come.

    Args:
        config: of the run to come; the rates are those of runs with its encoder.
        counts: what it has to do.
        done: the runs that are done, in the order in which they started.

    Returns:
        Seconds; None where no rates are known for it.
    """
    last = done[-_RUNS_RATED:]
    asked = (config.embedder, config.precision)
    rated = [record for record in last if (record.embedder, record.precision) == asked]
    if not last:
        return None
    estimate = 0.0
    for step, units in _RATED.items():
        to_do = units(counts)
        did = [(units(each.counts), each.seconds.get(step, 0.0)) for each in rated if each.counts]
        known = sum(number for number, _ in did)
        if to_do and not known:
            return None
        spent = sum(seconds for number, seconds in did if number)
        estimate += spent / known * to_do if known else 0.0
    return estimate
