"""What the works on a warehouse tell: values, whose fields stand in the order of their JSON.

Nothing heavy is imported here: the command line takes these from the process that does the work.
"""

from dataclasses import dataclass
from typing import Any, Literal

from kp_batch.reasons import Reason
from kp_batch.unread import Unread

Quantiles = tuple[float, float, float, float, float]  # 0.05, 0.25, 0.5, 0.75, 0.95


@dataclass(frozen=True)
class DomainMoves:
    """How the scores of one domain moved, over the traces that both runs scored."""

    task_domain: str | None  # of the second run; null: all domains
    traces: int
    first_mean: float  # of the scores, 0..1, as are the quantiles
    second_mean: float
    mean_absolute_change: float  # of a score: how far it rose or fell
    first_quantiles: Quantiles
    second_quantiles: Quantiles
    stability_index: float  # of populations, over ten bins of equal width; 0: as they were
    rank_correlation: float | None  # Spearman's, -1..1; null where all scores of a run are one
    rose: int  # traces; a score rises or falls whatever the thresholds are
    fell: int
    stayed: int
    now_reach: int  # traces below the first run's threshold that reach the second's
    now_reach_by_threshold: int  # of these: would not, had the threshold stayed
    no_longer_reach: int  # traces that reached the first run's threshold and are below the second's
    no_longer_reach_by_threshold: int  # of these: would reach it still, had the threshold stayed
    from_facts: float  # mean change of a score by the traces' own facts; the four sum to all of it
    from_novelty: float
    from_weights: float
    from_overrides: float
    single_thoughts: int  # traces that are a single thought in either run


@dataclass(frozen=True)
class Mover:
    """How the score of one trace moved."""

    trace_id: str
    task_domain: str  # of the second run
    first_score: float  # 0..1
    second_score: float
    change: float  # the second score less the first
    single_thought: Literal["first", "second"] | None  # in which run; null: in neither
    from_facts: float  # change by the trace's own facts; the four sum to `change`
    from_novelty: float
    from_weights: float
    from_overrides: float
    objective: str | None  # its first 200 characters, read again from the archive
    unread: Unread | None  # why it is null: what has become of the trace's file


@dataclass(frozen=True)
class Comparison:
    """How the scores moved from one run to another."""

    first: str  # run_id
    second: str  # run_id
    changes: tuple[Reason, ...]  # what differs between the two: `files_new` etc. is the archive
    first_threshold: float  # 0..1
    second_threshold: float
    in_both: int  # traces
    only_in_first: int
    only_in_second: int
    domains: tuple[DomainMoves, ...]  # all domains first, then each; empty: no trace is in both
    movers: tuple[Mover, ...]  # the traces that moved most, the first one most; none that stayed


@dataclass(frozen=True)
class Difference:
    """How far one column of the scores is off, at the most."""

    column: str  # of `scores`, or `vector`: the stored one, by its components
    greatest: float  # in the column's unit; 0 or 1 where it is no number; infinite for no vector
    tolerance: float  # the greatest that is none yet
    trace_id: str | None  # which trace shows it; null where nothing is off


@dataclass(frozen=True)
class Verification:
    """How some published scores differ from the same ones computed from scratch."""

    seed: int  # of the choice of traces
    missing: int  # traces of the archive that have no score
    sampled: int  # traces
    checked: int  # of these; the others' files are gone, unreadable or changed
    differences: tuple[Difference, ...]  # one a column
    wrong: str  # what is beyond tolerance, in words; empty: nothing


@dataclass(frozen=True)
class Setting:
    """One setting of a warehouse."""

    name: str  # of `config.SETTINGS`, or `weights of` a profile
    value: Any  # a JSON value
    run_id: str  # of the run that set it


@dataclass(frozen=True)
class VacuumResult:
    """How many of each were removed, or would be."""

    files: int  # of tables
    facts: int  # rows, of replaced files
    raw_rows: int  # the JSON of rejects
    vectors: int
    lost: tuple[str, ...] = ()  # the runs that --as-of could read until now, the first one first
    readable: tuple[str, ...] = ()  # those that it still can


@dataclass(frozen=True)
class ForgetResult:
    """What was forgotten, or would be, and what that takes."""

    run_id: str | None  # of the run that replayed the others; null: there was none
    traces: int  # scored
    rows: int  # rejected
    replaced: int  # ids that stand only in content which counts no more
    before: int  # ids that were forgotten before
    unseen: int  # ids that no row has ever had
    unseen_named: str  # a few of them, and which ones may be meant
    replayed: int  # traces
    restated: int  # traces
    partitions: int  # days that are written anew
    vectors: int  # that are removed
    lost: tuple[str, ...]  # the runs that --as-of could read until now, the first one first
    refusal: str = ""  # why it would not be done, in words; empty: it would
    finishes: bool = False  # whether what an earlier one left is removed, too


@dataclass(frozen=True)
class Imported:
    """What an import has come to."""

    traces: int  # new ones, changed ones, and those that were read again with them
    files: int  # of the sources
    files_read: int  # of these: new or changed ones
    files_changed: int  # of the archive
    left: int  # traces that stay as they were: a file that told of them is gone or damaged
    refused: dict[str, int]  # by reason; see `_refused.jsonl` in the archive
    waiting: dict[str, int]  # likewise; see `_waiting.jsonl`
    standing: dict[str, int]  # how many are `refused` and `waiting` in all, of earlier imports too
    passed_over: dict[str, int]  # what is no agent's trace, by what it is
    unmapped_domains: dict[str, int]  # values that the map of domains lacks
    rules: dict[str, Any]


@dataclass(frozen=True)
class ExportResult:
    """What an export has written, and what it has left out."""

    chosen: int  # traces that meet the conditions; the others are these, by what became of them
    exported: int
    private: int
    similar: int  # to a better one
    unread: dict[Unread, int]  # not in their files any more as they were scored, by what is wrong
    unread_files: tuple[str, ...]  # the first few of these files
    beyond: int = 0  # the best ones that were asked for
    conditions: tuple[str, ...] = ()  # that a chosen trace meets, in words
