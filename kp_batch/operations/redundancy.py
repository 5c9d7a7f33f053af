"""The share of an archive's traces that nearly repeat any earlier one, whatever the caches."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.duck import set_variables, sql
from kp_batch.embedding.vector_store import VectorStore, check_stored, read_vectors
from kp_batch.errors import BusyError, WarehouseError
from kp_batch.log import progress, warn
from kp_batch.novelty.redundancy import wilson_interval
from kp_batch.novelty.similar import resemble_earlier
from kp_batch.planning.scorer import Scorer, without_encoder
from kp_batch.runs.run import Run, last_config
from kp_batch.text import one_line
from kp_batch.vectors import Float32s
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, require_manifest
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_snapshot
from kp_batch.warehouse.publication import publish, writing
from kp_batch.warehouse.redundancy import Redundancy
from kp_batch.warehouse.staging import Staging

_ALL = 50_000  # texts of which each pair is compared; of more, a sample is drawn
_DRAWN = 1_000
_SEED = 0
_VECTORS = 16_384  # in memory at once
_COUNTS = """
    SELECT
        count(*) FILTER (encoder_id = getvariable('encoder_id')),
        count(*) FILTER (encoder_id <> getvariable('encoder_id')),
        count(DISTINCT objective_hash) FILTER (encoder_id = getvariable('encoder_id'))
    FROM published.scores
"""


def redundancy(warehouse: Path, similarity: float) -> Redundancy:
    """Find the share of the traces that nearly repeat any earlier one, and keep it.

    Earlier is in the order of created_at and id; a trace repeats another one of the same text, or
    whose vector is as similar. Those of a text that came before are counted. Of the others all are
    compared with all earlier ones; of more than 50,000, a thousand that are drawn, the same each
    time, and the share is an estimate with its interval.

    It is kept with what is published, until the next publication. No model is needed.

    Args:
        warehouse: the folder of the tables.
        similarity: the least cosine, above 0 and at most 1.

    Raises:
        KpBatchError: the scores are computed without an encoder.
        WarehouseError: it is no warehouse, no trace is scored in it, or vectors are missing.
    """
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        scorer = Scorer.as_published(run)
        if not scorer.has_encoder:
            raise without_encoder(warehouse, "there are no vectors to compare")
        with open_snapshot(run.snapshot, staging) as snapshot:
            result = _Texts.of(snapshot, scorer.encoder_id).redundancy(similarity)
    _keep(warehouse, run.published, result)
    return result


def _keep(warehouse: Path, asked_of: Manifest, result: Redundancy) -> None:
    """Publish it with what it was asked of, unless that is published no more."""
    try:
        with writing(warehouse, wait=False):
            now = require_manifest(warehouse)
            if now.publication == asked_of.publication:
                unchanged = Candidate(warehouse, now.tables, "redundancy")
                publish(unchanged, now.settings, failed=now.failed, redundancy=result)
                return
            reason = "a run published meanwhile"
    except (BusyError, PermissionError) as error:
        reason = one_line(str(error))
    warn(
        f"the redundancy is not kept in {shown(warehouse)} ({reason}); ask again, if the question "
        "redundancy is to show it"
    )


@dataclass(frozen=True)
class _Texts:
    """The texts of an archive by time, the traces that have them, and their vectors."""

    snapshot: OpenSnapshot  # its connection has the variable encoder_id
    encoder_id: str
    places: Path  # of the vectors, by position: `vector_store.PLACES`
    count: int

    @classmethod
    def of(cls, snapshot: OpenSnapshot, encoder_id: str) -> "_Texts":
        """Find the vectors of the texts that have any of an encoder.

        Raises:
            WarehouseError: some are missing.
        """
        set_variables(snapshot.connection, encoder_id=encoder_id)
        snapshot.connection.execute(sql(__name__, "redundancy.sql"))
        folder, places = Layout(snapshot.warehouse).vectors(encoder_id), snapshot.staging.vectors
        VectorStore(folder, snapshot.connection).write_places("first_texts", places)
        chunks = pl.scan_parquet(places, glob=False).select(
            texts=pl.len(), lacking=pl.col("chunk").null_count()
        )
        texts, lacking = chunks.collect().row(0)
        check_stored(folder, lacking, texts)
        return cls(snapshot, encoder_id, places, texts)

    def redundancy(self, similarity: float) -> Redundancy:
        """Compare the texts, or a sample of them, with all earlier ones."""
        traces, other_encoders, objectives = self.snapshot.ask(_COUNTS).row(0)
        if not traces:
            where = shown(self.snapshot.warehouse)
            raise WarehouseError(f"no trace is scored in {where}; run an archive first")
        compared = self.count if self.count <= _ALL else _DRAWN
        hits = self._hits(compared, similarity)
        exact, near = traces - self.count, round(hits / compared * self.count)
        low = high = share = (exact + near) / traces
        if compared < self.count:
            interval = wilson_interval(hits, compared)
            low, high = ((exact + each * self.count) / traces for each in interval)
        return Redundancy(
            similarity=similarity,
            encoder_id=self.encoder_id,
            traces=traces,
            other_encoders=other_encoders,
            exact_repeats=exact,
            near_repeats=near,
            all_repeats=exact + near,
            share=share,
            low=low,
            high=high,
            same_objective=traces - objectives,
            compared=compared,
        )

    def _hits(self, compared: int, similarity: float) -> int:
        """How many of the texts that are compared an earlier one is similar to."""
        draw = np.random.default_rng(_SEED)
        positions = np.sort(draw.choice(self.count, compared, replace=False)).astype(np.int64)
        wanted = pl.scan_parquet(self.places, glob=False).select(pl.all().gather(positions))
        vectors = read_vectors(self._folder, wanted.collect())
        return int(resemble_earlier(positions, vectors, self._parts(), similarity).sum())

    def _parts(self) -> Iterator[Float32s]:
        with (
            pq.ParquetFile(self.places) as file,
            progress("comparing", self.count, "text") as bar,
        ):
            for batch in file.iter_batches(_VECTORS):
                yield read_vectors(self._folder, pl.DataFrame(batch))
                bar.add(len(batch))

    @property
    def _folder(self) -> Path:
        return Layout(self.snapshot.warehouse).vectors(self.encoder_id)
