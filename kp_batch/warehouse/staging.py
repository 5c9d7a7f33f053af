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
# The text of an accepted row, with its size in UTF-8.
TEXTS = pl.Schema({"text_hash": pl.String, "text": pl.String, "bytes": pl.Int64})


@dataclass(frozen=True)
class Staging:
    """One run's working folder, inside the warehouse so that it shares its disk.

    The warehouse's only writer removes it there: see `publication.writing`. A command that changes
    no warehouse has a temporary one elsewhere.

    Files that one step writes part by part are named by the part: a part that is done again
    replaces its own files.
    """

    folder: Path

    @classmethod
    @contextmanager
    def temporary(cls) -> Generator[Self]:
        """Make a folder where temporary files go, and remove it at the end."""
        with TemporaryDirectory() as folder:
            staging = cls(Path(folder))
            staging.make()
            yield staging

    def facts(self, part: str) -> Path:
        """The rows of some content that was read: `FACTS`."""
        return self.folder / "facts" / f"{part}.parquet"

    def texts(self, part: str) -> Path:
        """The texts of some content that was read: `TEXTS`."""
        return self.folder / "texts" / f"{part}.parquet"

    @property
    def fetched(self) -> Path:
        """The folder of the objects that were fetched from a bucket."""
        return self.folder / "fetched"

    def table(self, name: str) -> Path:
        """A small table as the run will leave it: `files`, `rejects`, `profiles` or its `runs`."""
        return self.folder / f"{name}.parquet"

    @property
    def to_forget(self) -> Path:
        """The ids of the traces that the run forgets, `trace_id`; other runs have no such file."""
        return self.folder / "to_forget.parquet"

    @property
    def window_rows(self) -> Path:
        """The traces around the changes, by group, in replay order, and which are replayed."""
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
        """The hashes of the texts that have no vector: `text_hash`."""
        return self.folder / "missing.parquet"

    @property
    def texts_to_reread(self) -> Path:
        """Those of them whose texts this run has not read, ascending: NumPy, S64."""
        return self.folder / "texts_to_reread.npy"

    @property
    def to_embed(self) -> Path:
        """The place of each missing text: see inputs.sql."""
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
        """The same of all spans, in time order, whatever the groups."""
        return self.folder / "replayed.parquet"

    def fresh(self, name: str) -> Path:
        """Make an empty folder in place of the one of that name, if any."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    @contextmanager
    def shared(self) -> Generator[None]:
        """Have all of its connections in this process share one instance of DuckDB meanwhile.

        It begins with the first of them.
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
        """DuckDB in UTC, with an empty database, for as many scores as `duckdb_limit` is given.

        It spills to this folder beyond its limit.
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
                with suppress(duckdb.Error):  # of an instance that has failed
                    connection.execute("USE memory")
                    connection.execute(statement("DETACH $name", name=name))

    def _instance(self, scores: int = 0) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(config=duckdb_config(self.folder / "spill", scores))

    def make(self) -> None:
        """Make the folders, whose texts nobody else may read."""
        note_leftover(self.folder)
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        for name in ("facts", "texts", "fetched", "replayed"):
            (self.folder / name).mkdir(exist_ok=True)
