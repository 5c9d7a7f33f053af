"""The files that the steps of a run pass to each other."""

import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Self

import duckdb
import polars as pl

from kp_batch.duck import duckdb_config, duckdb_limit, statement
from kp_batch.files import note_leftover
from kp_batch.stopping import stopped_by

# By folder; see `Staging.shared`.
_SHARED: dict[Path, Callable[[], duckdb.DuckDBPyConnection]] = {}
_NUMBERS = count()
# The text of an accepted row, and its size in UTF-8.
TEXTS = pl.Schema({"text_hash": pl.String, "text": pl.String, "bytes": pl.Int64})


@dataclass(frozen=True)
class Staging:
    """One run's working folder, inside the warehouse so that it shares its disk.

    The warehouse's only writer removes it there; see `publication.writing`. A command that changes
    no warehouse has a temporary one elsewhere.

    Files that a step writes in parts are named by the part: a repeated part replaces its own files.
    """

    folder: Path

    @classmethod
    @contextmanager
    def temporary(cls) -> Generator[Self]:
        """Make a working folder among temporary files, and remove it at the end."""
        with TemporaryDirectory() as folder:
            staging = cls(Path(folder))
            staging.make()
            yield staging

    def facts(self, part: str) -> Path:
        """The rows of content that was read: `FACTS`."""
        return self.folder / "facts" / f"{part}.parquet"

    def texts(self, part: str) -> Path:
        """The texts of content that was read: `TEXTS`."""
        return self.folder / "texts" / f"{part}.parquet"

    @property
    def fetched(self) -> Path:
        """The folder of objects that were fetched from a bucket."""
        return self.folder / "fetched"

    def table(self, name: str) -> Path:
        """A small table as the run will leave it: `files`, `rejects`, `profiles` or its `runs`."""
        return self.folder / f"{name}.parquet"

    @property
    def to_forget(self) -> Path:
        """The ids of the traces to forget, `trace_id`; only a run that forgets has this file."""
        return self.folder / "to_forget.parquet"

    @property
    def window_rows(self) -> Path:
        """The traces around the changes, by group, in replay order, and which to replay."""
        return self.folder / "window_rows.parquet"

    @property
    def timeline(self) -> Path:
        """All traces of the days on which anything differs: `timeline.TIMELINE`."""
        return self.folder / "timeline.parquet"

    @property
    def replay(self) -> Path:
        """The traces that take part in the replay, by group, in replay order: `timeline.REPLAY`."""
        return self.folder / "replay.parquet"

    @property
    def vectors(self) -> Path:
        """The place of the vector of each of these rows: `vector_store.PLACES`."""
        return self.folder / "vectors.parquet"

    @property
    def workload(self) -> Path:
        """How many traces to replay, rescore and reweight, by domain and day."""
        return self.folder / "workload.parquet"

    @property
    def missing(self) -> Path:
        """The hashes of texts without a vector: `text_hash`."""
        return self.folder / "missing.parquet"

    @property
    def texts_to_reread(self) -> Path:
        """The missing texts that this run has not read, as ascending hashes: NumPy, S64."""
        return self.folder / "texts_to_reread.npy"

    @property
    def to_embed(self) -> Path:
        """The place of each missing text; see inputs.sql."""
        return self.folder / "to_embed.parquet"

    @property
    def scores(self) -> Path:
        """All scores after the run: domain, score, and the ids of encoder, cache and profile."""
        return self.folder / "scores.parquet"

    def replayed(self, first: int) -> Path:
        """The novelty of the traces of a span, from row `first` of `replay`: `replay.REPLAYED`."""
        return self.folder / "replayed" / f"{first:012d}.parquet"

    @property
    def replayed_in_order(self) -> Path:
        """The novelty of all spans, in order of time over all groups."""
        return self.folder / "replayed.parquet"

    def fresh(self, name: str) -> Path:
        """Make an empty folder of that name, and remove an older one."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    @contextmanager
    def shared(self) -> Generator[None]:
        """Let all connections of this process to the folder share one instance of DuckDB.

        The instance begins with the first connection.
        """
        with ExitStack() as instances:
            begun, alone = cache(lambda: instances.enter_context(self._instance())), Lock()

            def instance() -> duckdb.DuckDBPyConnection:
                with alone:
                    return begun()

            _SHARED[self.folder] = instance
            try:
                yield
            finally:
                del _SHARED[self.folder]

    @contextmanager
    def connect(self, scores: int = 0) -> Generator[duckdb.DuckDBPyConnection]:
        """Connect to DuckDB in UTC, with an empty database, and memory for so many scores.

        See `duckdb_limit`. It spills to this folder beyond its limit.
        """
        is_within_limit = duckdb_limit(scores) == duckdb_limit()
        shared = _SHARED.get(self.folder) if is_within_limit else None
        with (
            shared().cursor() if shared else self._instance(scores) as connection,
            stopped_by(connection.interrupt),
        ):
            connection.execute("SET TimeZone = 'UTC'")
            name = f"own{next(_NUMBERS)}"
            connection.execute(statement("ATTACH ':memory:' AS $name", name=name))
            connection.execute(statement("USE $name", name=name))
            try:
                yield connection
            finally:
                with suppress(duckdb.Error):  # the instance may have failed
                    connection.execute("USE memory")
                    connection.execute(statement("DETACH $name", name=name))

    def _instance(self, scores: int = 0) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(config=duckdb_config(self.folder / "spill", scores))

    def make(self) -> None:
        """Make the folders; nobody else may read their texts."""
        note_leftover(self.folder)
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        for name in ("facts", "texts", "fetched", "replayed"):
            (self.folder / name).mkdir(exist_ok=True)
