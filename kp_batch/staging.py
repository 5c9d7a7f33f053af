"""The files that the steps of a run hand to each other."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from kp_batch.contracts import FACTS

STAGED_ROWS = pl.Schema({**FACTS, "text": pl.String})


@dataclass(frozen=True)
class Staging:
    """One run's working folder, inside the warehouse so that it shares its disk."""

    folder: Path

    @property
    def rows(self) -> Path:
        """The rows of all content that was read: `STAGED_ROWS`."""
        return self.folder / "rows.parquet"

    @property
    def timeline(self) -> Path:
        """The traces around what changed, in replay order: see timeline.sql."""
        return self.folder / "timeline.parquet"

    @property
    def rejects(self) -> Path:
        """The rows and files that are refused: `REJECTS`."""
        return self.folder / "rejects.parquet"

    def replayed(self, first: int) -> Path:
        """The novelty of the span from row `first` of the timeline on: `NOVELTY`, and the rows."""
        return self.folder / f"replayed-{first:012d}.parquet"

    def connect(self) -> duckdb.DuckDBPyConnection:
        """DuckDB in UTC, which spills here what does not fit into its memory."""
        connection = duckdb.connect(
            config={"memory_limit": "2GB", "temp_directory": str(self.folder / "spill")}
        )
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def begin(self) -> None:
        """Make an empty folder; remove what killed runs left beside it."""
        self.end()
        self.folder.mkdir(parents=True)

    def end(self) -> None:
        """Remove the folder, and those of killed runs."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)
