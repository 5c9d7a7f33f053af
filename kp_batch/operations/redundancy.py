"""Find the share of an archive's traces that nearly repeat any earlier one, in any cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.duck import set_variables, sql
from kp_batch.embedding.vector_store import VectorStore, check_stored, read_vectors
from kp_batch.html import Displayed
from kp_batch.log import progress
from kp_batch.novelty.resemblance import resemble_earlier
from kp_batch.planning.scorer import Scorer, without_encoder
from kp_batch.rendering import Head, Part, Table
from kp_batch.runs.run import Run, last_config, nothing_scored
from kp_batch.text import count_of
from kp_batch.vectors import Float32s
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_snapshot
from kp_batch.warehouse.staging import Staging

MAX_EXACT_TEXTS = 50_000  # compared in all pairs; of more texts, only a sample is
SAMPLE_TEXTS = 1_000
SAMPLE_SEED = 0
_Z = 1.959963984540054  # the normal distribution has 95% within so many deviations
_VECTORS = 16_384  # in memory at once
_COUNTS = """
    SELECT
        count(*) FILTER (encoder_id = getvariable('encoder_id')),
        count(*) FILTER (encoder_id <> getvariable('encoder_id')),
        count(DISTINCT objective_hash) FILTER (encoder_id = getvariable('encoder_id'))
    FROM published.scores
"""


@dataclass(frozen=True)
class Redundancy(Displayed):
    """The traces that repeat an earlier one; the fields are in the order of the JSON.

    `all_repeats = exact_repeats + near_repeats`, and `share = all_repeats / traces`. If only a
    sample was compared, `near_repeats` is an estimate, rounded to whole traces.
    """

    similarity: float  # the lowest cosine of a near repeat
    encoder_id: str  # the encoder of the vectors
    traces: int  # with vectors of this encoder
    other_encoders: int  # traces not counted, because another encoder made their vectors
    exact_repeats: int  # traces with the text of an earlier one
    near_repeats: int  # other traces, similar to an earlier one
    all_repeats: int  # both
    share: float  # of all repeats among the traces: 0..1
    low: float  # the 95% interval of the share; the share itself if all were compared
    high: float
    same_objective: int  # traces with the objective of an earlier one
    compared: int  # traces with a new text that were compared with all earlier ones

    @property
    def is_exact(self) -> bool:
        """Whether all traces were compared, not only a sample."""
        return self.compared == self.traces - self.exact_repeats

    def _parts(self) -> Iterator[Part]:
        about = "" if self.is_exact else "about "
        near = f"near repeats: another text, a similarity from {self.similarity:g}"
        counts = {
            "exact repeats: the same text": (self.exact_repeats, ""),
            near: (self.near_repeats, about),
            "all repeats: these together": (self.all_repeats, about),
            "the same objective": (self.same_objective, ""),
        }
        yield Head(f"{count_of(self.traces, 'trace')}, by {self.encoder_id}")
        rows = [
            {
                "like an earlier one": name,
                "traces": f"{about}{count:,}",
                "share": f"{count / self.traces:.2%}",
            }
            for name, (count, about) in counts.items()
        ]
        yield Table(rows, bars=[(0.0, count / self.traces) for count, _ in counts.values()])
        if not self.is_exact:
            others = self.traces - self.exact_repeats
            yield (
                f"  all repeats: an estimate, with a 95% interval from {self.low:.2%} to "
                f"{self.high:.2%}, because only {self.compared:,} of {others:,} texts were "
                "compared with all earlier ones"
            )
        if self.other_encoders:
            yield f"  not counted: {self.other_encoders:,} with vectors of another encoder"


def redundancy(warehouse: Path, similarity: float) -> Redundancy:
    """Find the share of traces that repeat, or nearly repeat, any earlier one.

    Earlier means in the order of created_at and id. A trace repeats another one if their texts are
    equal, or their vectors this similar. Equal texts are counted. All other texts are compared with
    all earlier ones; above 50,000, only a sample of a thousand is, the same each time, and the
    share is an estimate with its interval.

    No model is needed, and nothing is published.

    Args:
        warehouse: the folder of the tables.
        similarity: the lowest cosine of a near repeat, above 0 and at most 1.

    Raises:
        KpBatchError: the scores are computed without an encoder.
        WarehouseError: there is no warehouse or no scored trace, or vectors are missing.
    """
    with Staging.temporary() as staging:
        run = Run.begin(last_config(warehouse), datetime.now(UTC), staging)
        scorer = Scorer.as_published(run)
        if not scorer.has_encoder:
            raise without_encoder(warehouse, "there are no vectors to compare")
        with open_snapshot(run.snapshot, staging) as snapshot:
            return _Texts.of(snapshot, scorer.encoder_id).redundancy(similarity)


@dataclass(frozen=True)
class _Texts:
    """The texts of an archive by time, the traces that have them, and their vectors."""

    snapshot: OpenSnapshot  # its connection has the variable encoder_id
    encoder_id: str
    places: Path  # of the vectors, by position: `vector_store.PLACES`
    count: int

    @classmethod
    def of(cls, snapshot: OpenSnapshot, encoder_id: str) -> "_Texts":
        """Find the vectors of all texts of an encoder.

        Raises:
            WarehouseError: vectors are missing.
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
            raise nothing_scored(self.snapshot.warehouse)
        compared = self.count if self.count <= MAX_EXACT_TEXTS else SAMPLE_TEXTS
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
        """Count the compared texts that are similar to an earlier one."""
        draw = np.random.default_rng(SAMPLE_SEED)
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


def wilson_interval(hits: int, draws: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share, from a sample.

    It is `(h + z^2 / 2 +- z sqrt(h (n - h) / n + z^2 / 4)) / (n + z^2)` for h hits in n draws.

    Args:
        hits: the number of hits, 0 to `draws`.
        draws: the number of draws, at least 1.
    """
    middle = hits + _Z**2 / 2
    reach = _Z * sqrt(hits * (draws - hits) / draws + _Z**2 / 4)
    low, high = ((middle + side * reach) / (draws + _Z**2) for side in (-1, 1))
    return max(low, 0.0), min(high, 1.0)
