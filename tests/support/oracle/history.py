"""A warehouse, and what each of its runs should have left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.reader import connect
from tests.support.oracle.accepted_rows import Counted, File, counted, observed
from tests.support.oracle.scoring import DIMENSIONS, Score, Settings, replayed


@dataclass(frozen=True)
class State:
    """What a run should have left that is done."""

    run_id: str
    settings: Settings
    files: Mapping[str, File]
    count: Counted
    scores: list[Score]


@dataclass
class History:
    """The runs over a folder's `archive`.

    Attributes:
        states: of the runs that are done, in their order.
        statuses: of all runs, by id.
    """

    folder: Path
    states: list[State] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    @property
    def last(self) -> State:
        return self.states[-1]

    def fail(self, settings: Settings, **options: Any) -> None:
        """A run that fails, and leaves the state as it was."""
        with pytest.raises(KpBatchError):
            rescore_archive(config_of(self, settings, **options))
        self.statuses[self._newest()] = "failed"

    def run(self, settings: Settings, *, prune: bool = False, **options: Any) -> None:
        """Rescore the archive as it is now."""
        config = config_of(self, settings, prune=prune, **{"max_reject_share": 1, **options})
        before = self.states[-1] if self.states else None
        rescore_archive(config)
        self.statuses[self._newest()] = "done"
        files = observed(before.files if before else {}, self.present(), prune=prune)
        count = counted(files, published=before.count.published if before else {})
        scores = replayed(count.accepted, settings)
        self.states.append(State(self._newest(), settings, files, count, scores))

    def present(self) -> dict[str, bytes]:
        """The files of the archive by their paths."""
        found = [path for path in self.archive.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in found}

    def _newest(self) -> str:
        with connect(self.warehouse) as connection:
            [(run_id,)] = connection.execute(
                "SELECT run_id FROM runs ORDER BY number DESC LIMIT 1"
            ).fetchall()
            return str(run_id)


def config_of(history: History, settings: Settings, **options: Any) -> RescoreConfig:
    return RescoreConfig.model_validate(
        {
            "archive": (str(history.archive),),
            "warehouse": history.warehouse,
            "embedder": settings.embedder,
            "cache_size": settings.cache_size,
            "ttl": ttl_text(settings.ttl),
            "cache_by": "+".join(settings.cache_by) or "none",
            "threshold": settings.threshold,
            "profiles": _file_of(settings, history.folder),
            **options,
        }
    )


def ttl_text(ttl: timedelta | None) -> str:
    return "none" if ttl is None else f"{int(ttl.total_seconds())}s"


def _file_of(settings: Settings, folder: Path) -> str:
    """The profiles as users give them."""
    if not settings.profiles:
        return "default"
    tables = [
        f"[[profiles.{name}]]\n"
        + (f"from = {begin.isoformat()}\n" if begin else "")
        + "\n".join(f"{key} = {value}" for key, value in zip(DIMENSIONS, weights, strict=True))
        for name, versions in settings.profiles.items()
        for begin, weights in versions
    ]
    path = folder / "profiles.toml"
    path.write_text("\n".join(tables))
    return str(path)
