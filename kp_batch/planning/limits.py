"""Checks that a run does not reject, miss or remove too much."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import polars as pl

from kp_batch.errors import LimitError
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.ingest.stage import content_of
from kp_batch.planning.changes import Loss, Prunable
from kp_batch.runs.limits import is_beyond
from kp_batch.runs.record import RunCounts
from kp_batch.runs.run import Run
from kp_batch.text import be, count_of, printable

_REMOVED_SHARE, _REMOVED = "5%", 10  # more than both fail a run without --max-removed
_INPUTS = pl.List(pl.Struct({"file_id": pl.String}))
_REJECTED_ANEW = 10  # fewer faulty rows among those read anew fail no run


@dataclass(frozen=True)
class ReadAnew:
    """The rows of content that no run which is done has read before."""

    rows: int = 0
    rejected: int = 0
    by_code: str = ""  # its codes with their numbers, the most frequent first
    example: str = ""  # the first rejected row, in words


@dataclass(frozen=True)
class LimitInputs:
    """The values that limits are set to, besides the counts of the run; without changes, none."""

    read: ReadAnew = field(default_factory=ReadAnew)
    loss: Loss = field(default_factory=Loss)
    published: int = 0  # traces, before the run
    # Files that the last done run found readable or not at all.
    unreadable: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()  # files that went since the last done run
    files: int = 0  # that were there then
    prunable: Prunable = field(default_factory=Prunable)  # of all gone, if too many went


@dataclass(frozen=True)
class _Excess:
    """An exceeded limit, by the name of its setting, and the option that allows as much."""

    limit: str
    message: str
    option: str
    is_rejected: bool = False  # whether it is in `rejects`


def read_anew(run: Run, scan: ArchiveScan) -> ReadAnew:
    """Count the rows that a scan has staged and that count, and the rejected ones among them."""
    if not scan.facts:
        return ReadAnew()
    # A cut file that has lost traces is read, but its last content counts.
    counting = pl.scan_parquet(run.staging.table("files"), glob=False).select("file_id").unique()
    facts = pl.scan_parquet([*scan.facts], glob=False).select("file_id", "row", "reasons")
    facts = facts.join(counting, on="file_id", how="semi").join(
        _read_before(run), left_on=content_of("file_id"), right_on="content", how="anti"
    )
    rejected = facts.filter(pl.col("reasons").list.len() > 0).collect(engine="streaming")
    codes = rejected.get_column("reasons").explode().value_counts(sort=True, name="rows")
    rows_by_code = codes.sort("rows", "reasons", descending=[True, False]).iter_rows()
    rows = facts.select(pl.len()).collect().item()
    example = _first(run, rejected) if len(rejected) else ""
    return ReadAnew(rows, len(rejected), _code_counts(dict(rows_by_code)), example)


def _first(run: Run, rejected: pl.DataFrame) -> str:
    """The first rejected row, by the path of its file, in words."""
    files = pl.read_parquet(run.staging.table("files"), glob=False)
    placed = rejected.join(files.select("file_id", "source_file"), on="file_id")
    file, row = placed.sort("source_file", "row").select("source_file", "row").row(0)
    return f"such as {printable(file)}, row {row:,}"


def _read_before(run: Run) -> pl.LazyFrame:
    """The contents of runs that are done, whatever was rolled back or pruned since."""
    done = run.snapshot.scan("runs").filter(status="done")
    files = done.select(pl.col("inputs").str.json_decode(_INPUTS).list.explode()).unnest("inputs")
    return files.select(content=content_of("file_id")).drop_nulls().unique()


def exceeded_limits(run: Run, counts: RunCounts, inputs: LimitInputs) -> LimitError | None:
    """Why a run with these counts must not publish any scores; None if it may.

    A run that forgets traces has no limits.
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
    exceeded = [
        *(*_rejected(run, counts, inputs), *_new_rejects(run, inputs)),
        *_unreadable(run, counts, inputs),
        *(*_removed(run, inputs), *_gone(run, inputs)),
    ]
    if not exceeded:
        return None
    messages = "; ".join(excess.message for excess in exceeded)
    options = " ".join(excess.option for excess in exceeded)
    see = see if any(excess.is_rejected for excess in exceeded) else ""
    message = f"{messages}; no scores are published{see}; to allow it this once: {options}"
    return LimitError(message, code=exceeded[0].limit)


def _rejected(run: Run, counts: RunCounts, inputs: LimitInputs) -> Iterator[_Excess]:
    """Of all rows, and of those that are read anew."""
    limit, read = run.config.max_reject_share, inputs.read
    parts = [("", counts.rejected, counts.rows, _code_counts(counts.rejected_by_code))]
    if read.rejected >= _REJECTED_ANEW:
        parts.append(("of what is read anew, ", read.rejected, read.rows, read.by_code))
    over = [part for part in parts if is_beyond(limit, *part[1:3])]
    if over:
        where, rejected, rows, codes = over[0]
        least = max(ceil(Fraction(100 * part, whole)) for _, part, whole, _ in over)
        yield _Excess(
            "max_reject_share",
            f"{where}{_of(rejected, rows, 'row')} rejected, more than --max-reject-share {limit} "
            f"allows ({codes})",
            f"--max-reject-share {least}%",
            is_rejected=True,
        )


def _new_rejects(run: Run, inputs: LimitInputs) -> Iterator[_Excess]:
    limit, read = run.config.max_new_rejects, inputs.read
    if limit is not None and is_beyond(limit, read.rejected, read.rows):
        yield _Excess(
            "max_new_rejects",
            f"of what is read anew, {_of(read.rejected, read.rows, 'row')} rejected, more than "
            f"--max-new-rejects {limit} allows ({read.by_code}; {read.example})",
            f"--max-new-rejects {read.rejected}",
            is_rejected=True,
        )


def _unreadable(run: Run, counts: RunCounts, inputs: LimitInputs) -> Iterator[_Excess]:
    limit, count = run.config.max_unreadable, len(inputs.unreadable)
    if limit is not None and is_beyond(limit, count, counts.files):
        yield _Excess(
            "max_unreadable",
            f"{_of(count, counts.files, 'file')} unreadable, more than --max-unreadable {limit} "
            f"allows (such as {printable(inputs.unreadable[0])})",
            f"--max-unreadable {count}",
            is_rejected=True,
        )


def _removed(run: Run, inputs: LimitInputs) -> Iterator[_Excess]:
    limit, loss = run.config.max_removed, inputs.loss
    allowed = f"--max-removed {limit} allows"
    if limit is None:
        limit = _REMOVED_SHARE if loss.traces > _REMOVED else "100%"
        allowed = f"{limit} and more than {_REMOVED}, the default of --max-removed"
    if is_beyond(limit, loss.traces, inputs.published):
        yield _Excess(
            "max_removed",
            f"{_of(loss.traces, inputs.published, 'published trace')} to be removed, more than "
            f"{allowed} (such as one of {printable(loss.source_file)})",
            f"--max-removed {loss.traces}",
        )


def are_too_many_gone(run: Run, scan: ArchiveScan) -> bool:
    """Whether more files went since the last done run than a run may miss."""
    limit = run.config.max_gone
    return limit is not None and is_beyond(limit, len(scan.gone), scan.files_before)


def _gone(run: Run, inputs: LimitInputs) -> Iterator[_Excess]:
    limit, count = run.config.max_gone, len(inputs.gone)
    if limit is not None and is_beyond(limit, count, inputs.files):
        yield _Excess(
            "max_gone",
            f"{_of(count, inputs.files, 'file')} gone since the last run that is done, more than "
            f"--max-gone {limit} allows (such as {printable(inputs.gone[0])})",
            _allowing_gone(run, count, inputs.prunable),
        )


def _allowing_gone(run: Run, count: int, prunable: Prunable) -> str:
    """The options that allow so many, and what --prune takes, also of files that went before."""
    # Pruned ones count as well: a disk may be away, and what is pruned is lost.
    if run.config.prune:
        return f"--prune --max-gone {count}, which removes {prunable.words.rstrip(',')}"
    pruning = f", and --prune if {prunable.words} are to go" if prunable.traces else ""
    return f"--max-gone {count}{pruning}"


def _code_counts(by_code: dict[str, int]) -> str:
    return ", ".join(f"{code} {count:,}" for code, count in by_code.items())


def _of(part: int, total: int, unit: str) -> str:
    return f"{part:,} of {count_of(total, unit)} {be(part)}"
