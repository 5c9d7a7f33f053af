"""One run: its settings, its name and start, what was published then, its working files."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from uuid import uuid4

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.staging import Staging
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, read_manifest


@dataclass(frozen=True)
class Run:
    """What is known of a run when it begins; what it does is in its plan."""

    config: RescoreConfig
    run_id: str
    started_at: datetime
    published: Manifest  # when it began
    tables: Mapping[str, int]  # the versions that it builds upon
    staging: Staging

    @classmethod
    def begin(cls, config: RescoreConfig, now: datetime, staging: Staging | None = None) -> "Run":
        """A new run, named by its start so that names sort by time.

        Args:
            config: its settings.
            now: the time, in UTC.
            staging: its working files; inside the warehouse unless given, since they take its disk.
        """
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}"
        published = read_manifest(config.warehouse) or Manifest(config.threshold, {})
        where = staging or Staging(Layout(config.warehouse).staging(run_id))
        return cls(config, run_id, now, published, published.tables, where)

    def in_range(self, day: str) -> pl.Expr:
        """Whether a column's day is one that `--since` and `--until` let be restated."""
        since, until = self.config.since or date.min, self.config.until or date.max
        return pl.col(day).is_between(pl.lit(since), pl.lit(until))
