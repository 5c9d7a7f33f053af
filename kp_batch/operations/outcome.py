"""How a run, or a preview, ended: what `run --json` prints, and what a `Warehouse` returns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.ended import Ended, Status
from kp_batch.html import Displayed
from kp_batch.operations.compare import Comparison, TopChange
from kp_batch.operations.preview import Preview, preview_parts
from kp_batch.parts import Head, Part
from kp_batch.report.run_summary import DomainScores, Summary, summary_parts, with_all_domains
from kp_batch.tables import frame_of_rows
from kp_batch.text import printable
from kp_batch.warehouse.audits import AuditResult, results_parts
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.run_record import RunCounts


@dataclass(frozen=True)
class Outcome(Displayed):
    """What is known of a run, or of a preview, when it ends."""

    status: Status
    reason: str | None  # why it is not done, as on stderr
    code: str | None  # a word for the kind of the reason, which stays when its words change
    started_at: str  # in UTC
    finished_at: str  # likewise
    version: str  # of kp_batch
    warehouse: str | None  # null: it ended before its options were read
    counts: RunCounts | None = None  # null: it failed before its plan was made
    seconds: Mapping[str, float] | None = None  # of each step; null: it was killed, or as above
    audits: Sequence[AuditResult] = ()
    warnings: Sequence[str] = ()  # as on stderr

    def _parts(self) -> Iterator[Part]:
        if self.reason is None and self.counts is not None and self.seconds is not None:
            yield from self._result_parts(self.counts, self.seconds)
        else:
            reason = f": {printable(self.reason)}" if self.reason else ""
            yield Head(f"{self.status.replace('_', ' ')}{reason}")
            yield from results_parts(self.audits)
        if self.warnings:
            yield from ("", Head("warnings:"), *(f"  {printable(text)}" for text in self.warnings))

    def _result_parts(self, counts: RunCounts, seconds: Mapping[str, float]) -> Iterator[Part]:
        raise NotImplementedError


@dataclass(frozen=True)
class RunOutcome(Outcome):
    """Of a run."""

    run_id: str | None = None  # of its row in `runs`; null: it has none, as with nothing to do
    domains: int = 0
    scores: Sequence[DomainScores] = ()  # those of all domains; none where it failed

    def to_polars(self) -> pl.DataFrame:
        """The distribution of the scores: a row for each of `scores`, with its fields."""
        return frame_of_rows(DomainScores, self.scores)

    def _result_parts(self, counts: RunCounts, seconds: Mapping[str, float]) -> Iterator[Part]:
        return summary_parts(
            Summary(
                run_id=self.run_id,
                warehouse=self.warehouse or "",
                counts=counts,
                seconds=seconds,
                domains=self.domains,
                scores=[*self.scores],
                audits=self.audits,
            )
        )


@dataclass(frozen=True)
class PreviewOutcome(Outcome):
    """Of a preview."""

    changes: bool = False
    comparison: Comparison | None = None

    @property
    def moved(self) -> pl.DataFrame:
        """The traces that would move most, as `Comparison.moved`; no row without a comparison."""
        return frame_of_rows(TopChange, self.comparison.movers if self.comparison else ())

    def _result_parts(self, counts: RunCounts, seconds: Mapping[str, float]) -> Iterator[Part]:
        preview = Preview(
            warehouse=self.warehouse or "",
            counts=counts,
            seconds=seconds,
            changes=self.changes,
            comparison=self.comparison,
            audits=(*self.audits,),
        )
        return preview_parts(preview, rest="comparison.by_domain")


@dataclass(frozen=True)
class Awaited:
    """A run, or a preview, that somebody waits for.

    Attributes:
        warehouse: the folder of the tables.
        is_preview: whether it publishes nothing.
        began: when somebody began to wait, in seconds since the epoch.
        warnings: those that were given so far.
    """

    warehouse: Path
    is_preview: bool
    began: float
    warnings: Sequence[str] = ()

    def outcome_of(self, result: Summary | Preview) -> RunOutcome | PreviewOutcome:
        """How it ended, by its result."""
        if isinstance(result, Preview):
            has_work, full = result.changes, result
        else:
            has_work, full = result.run_id is not None, with_all_domains(result)
        return self.outcome(Ended("done" if has_work else "nothing_to_do"), vars(full))

    def outcome(self, ended: Ended, known: Mapping[str, Any]) -> RunOutcome | PreviewOutcome:
        """How it ended, and what else is known of it."""
        kind = PreviewOutcome if self.is_preview else RunOutcome
        head: dict[str, Any] = {
            **asdict(ended),
            "started_at": datetime.fromtimestamp(self.began, UTC).isoformat(),
            "finished_at": datetime.now(UTC).isoformat(),
            "version": version("kp-batch"),
            "warehouse": shown(self.warehouse.absolute()),
            "warnings": tuple(self.warnings),
        }
        names = {field.name for field in fields(kind)}
        values = {name: value for name, value in known.items() if name in names - head.keys()}
        return kind(**head, **values)
