"""What a sweep tells: values, whose fields stand in the order of their JSON; see `results`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What the scores of one domain are with one combination of cache size, ttl and threshold.

    Beside each stands the combination in force, the warehouse's own.
    """

    task_domain: str | None  # null: all domains
    cache_size: int  # vectors
    ttl: str  # none, 90m, 12h, 7d
    threshold: float  # 0..1
    in_force: bool  # whether this is the combination in force
    traces: int
    mean_novelty: float  # 0..1
    mean_score: float  # 0..1
    mean_change: float  # of a score, from the cache in force to this one
    rank_correlation: float | None  # Spearman's; null where all scores of one cache are one
    worth_sharing: int  # traces that reach the threshold
    now_reach: int  # of these: below the threshold in force, with the cache in force
    no_longer_reach: int  # traces that reach the threshold in force, and not this one


@dataclass(frozen=True)
class Sweep:
    """What a run would make of the scores, with each of some combinations."""

    encoder_id: str  # in force, as are the weights
    traces: int
    outcomes: tuple[Outcome, ...]  # all domains first, then each; by cache size, ttl and threshold
