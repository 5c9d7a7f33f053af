"""The table of what limits a run: what it would reject, miss or remove."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from kp_batch.errors import LimitError
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.limits import Measure, exceeded
from kp_batch.planning.changes import Loss, Prunable
from kp_batch.planning.rejects import ReadAnew
from kp_batch.runs.run import Run
from kp_batch.text import count_of, printable
from kp_batch.warehouse.audits import AuditResult, failed_text
from kp_batch.warehouse.run_record import RunCounts

_REMOVED = ("5%", "10")  # exceeding both fails a run without --max-removed
_REJECTED_ANEW = 10  # fewer faulty rows in newly read content fail no run
_READ_ANEW = "newly read row"
_IN_REJECTS = {"max_reject_share", "max_new_rejects", "max_unreadable"}


@dataclass(frozen=True)
class LimitInputs:
    """The values that are limited, in addition to the counts of the run."""

    read: ReadAnew = field(default_factory=ReadAnew)
    loss: Loss = field(default_factory=Loss)
    published: int = 0  # published traces before the run
    # Files that were readable, or missing, in the last run that is done.
    unreadable: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()  # files that are gone since the last done run
    files: int = 0  # files that were there then
    prunable: Prunable = field(default_factory=Prunable)  # if too many files disappeared


def exceeded_limits(
    run: Run, counts: RunCounts, inputs: LimitInputs, failing: Sequence[AuditResult] = ()
) -> LimitError | None:
    """Return why a run with these counts must not publish scores; None if it may.

    A run that forgets traces has no limits.

    Args:
        run: the run.
        counts: the run's counts.
        inputs: the other limited values.
        failing: audits that fail as well.
    """
    see = f"; see: {run.rejects_command}"
    if run.forgets:
        return None
    if counts.accepted == 0:
        codes = _code_counts(counts.rejected_by_code) or "it is empty"
        archive = f"{count_of(counts.rows, 'row')} in {count_of(counts.files, 'file')}"
        none = f"none of the archive's {archive} can be scored ({codes})"
        message = f"{none}; no scores are published{see}"
        return LimitError(message, code="nothing_to_score")
    over = exceeded(_table(run, counts, inputs), run.config)
    if not over:
        return None
    messages = [measure.message(run.config) for measure in over]
    options = [measure.allowance for measure in over]
    if failing:
        messages.append(failed_text(failing))
        options += [f"--allow-audit {result.name}" for result in failing]
    see = see if any(measure.limit in _IN_REJECTS for measure in over) else ""
    message = f"{'; '.join(messages)}; no scores are published{see}; to allow it this once: "
    return LimitError(message + " ".join(options), code=over[0].limit)


def _table(run: Run, counts: RunCounts, inputs: LimitInputs) -> Iterator[Measure]:
    """Return all that is limited: name, part, whole, words, and an example without a trace's id."""
    read, loss = inputs.read, inputs.loss
    rejected = [(counts.rejected, counts.rows, _code_counts(counts.rejected_by_code), "row")]
    if read.rejected >= _REJECTED_ANEW:
        rejected.append((read.rejected, read.rows, read.by_code, _READ_ANEW))
    share = max(ceil(Fraction(100 * part, whole)) for part, whole, *_ in rejected)
    option = f"--max-reject-share {share}%"
    for part, whole, by_code, unit in rejected:
        yield Measure("max_reject_share", part, whole, unit, "rejected", by_code, option)
    anew, example = (read.rejected, read.rows), f"{read.by_code}; {read.example}"
    yield Measure("max_new_rejects", *anew, _READ_ANEW, "rejected", example)
    files, example = (len(inputs.unreadable), counts.files), _such_as(inputs.unreadable)
    yield Measure("max_unreadable", *files, "file", "unreadable", example)
    traces, example = (
        (loss.traces, inputs.published),
        f"such as one of {printable(loss.source_file)}",
    )
    unit, state = "published trace", "to be removed"
    yield Measure("max_removed", *traces, unit, state, example, default=_REMOVED)
    yield _gone(inputs.gone, inputs.files, _allowing_gone(run, inputs))


def _gone(gone: Sequence[str], files: int, option: str = "") -> Measure:
    state = "gone since the last successful run"
    return Measure("max_gone", len(gone), files, "file", state, _such_as(gone), option=option)


def are_too_many_gone(run: Run, scan: ArchiveScan) -> bool:
    """Whether more files have disappeared since the last done run than a run may miss."""
    return _gone(scan.gone, scan.files_before).exceeds(run.config)


def _allowing_gone(run: Run, inputs: LimitInputs) -> str:
    """Return the options that allow it, and what --prune removes, including earlier gone files."""
    count, prunable = len(inputs.gone), inputs.prunable
    # Pruned files count as well: a disk may be missing, and what is pruned is lost.
    if run.config.prune:
        return f"--prune --max-gone {count}, which removes {prunable.words}"
    pruning = f", and --prune to remove {prunable.words}" if prunable.traces else ""
    return f"--max-gone {count}{pruning}"


def _such_as(examples: Sequence[str]) -> str:
    return f"such as {printable(examples[0])}" if examples else ""


def _code_counts(by_code: dict[str, int]) -> str:
    return ", ".join(f"{code} {count:,}" for code, count in by_code.items())
