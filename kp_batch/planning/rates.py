"""Estimates the time of a plan from the rates of the last runs."""

from collections.abc import Callable, Mapping, Sequence

from kp_batch.run_record import RunCounts, RunRecord

# By the name of each step, the count that its time grows with.
_RATED: Mapping[str, Callable[[RunCounts], int]] = {
    "embed": lambda counts: counts.embedded,
    "replay": lambda counts: counts.replayed,
    "write": lambda counts: counts.partitions,
}
_RUNS_RATED = 5


def estimated_seconds(embedder: str, counts: RunCounts, done: Sequence[RunRecord]) -> float | None:
    """Estimate the time of the steps to come.

    Args:
        embedder: of the run to come; the rates are those of runs with the same.
        counts: what it has to do.
        done: the runs that are done, in the order in which they started.

    Returns:
        Seconds; None where no rates are known for it.
    """
    last = done[-_RUNS_RATED:]
    rated = [record for record in last if record.embedder == embedder]
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
