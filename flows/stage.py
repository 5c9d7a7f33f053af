"""The files that a run's steps hand to each other, and the SQL that settles their order."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    """One run's working folder, inside the warehouse so that it shares its disk."""

    folder: Path

    @property
    def rows(self) -> Path:
        """Every row of the archive with its facts, in archive order: `FACTS`."""
        return self.folder / "rows.parquet"

    @property
    def timeline(self) -> Path:
        """The accepted traces in replay order: `FACTS` without text and reasons."""
        return self.folder / "timeline.parquet"

    @property
    def superseded(self) -> Path:
        """The rows that another row replaced: source_file, row, trace_id, last_file, last_row."""
        return self.folder / "superseded.parquet"

    @property
    def rejects(self) -> Path:
        """The rows and files that are refused: `REJECTS`."""
        return self.folder / "rejects.parquet"

    def replayed(self, start: int) -> Path:
        """The timeline from row `start` on, with what each trace met in the cache."""
        return self.folder / f"replayed-{start:012d}.parquet"

    def begin(self) -> None:
        """An empty folder; what killed runs left beside it is removed."""
        self.end()
        self.folder.mkdir(parents=True)

    def end(self) -> None:
        """Remove the folder, and those of killed runs."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)
