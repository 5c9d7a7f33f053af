"""Find the traces of a whole archive, earlier and later, that are most similar to one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from kp_batch.columns import Rows, cells
from kp_batch.duck import read_parquet, set_variables, sql, statement
from kp_batch.embedding.chunks import Hashes, whole_chunks
from kp_batch.embedding.encoder import Encoder
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.vector_store import VectorStore
from kp_batch.errors import WarehouseError
from kp_batch.html import Displayed
from kp_batch.novelty.nearest import nearest
from kp_batch.novelty.resemblance import Similar, similar_row
from kp_batch.operations.explain import find_trace
from kp_batch.operations.score import Unscored, each_line, line_head
from kp_batch.operations.warehouse_cache import stored_vectors, vectors_of
from kp_batch.planning.scorer import NO_FINGERPRINT, without_encoder
from kp_batch.rendering import Head, Part, Table, as_text
from kp_batch.runs.run import last_config
from kp_batch.text import count_of, moment_text, printable, shortened
from kp_batch.vectors import Float32s, Float64s, Int64s
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_published
from kp_batch.warehouse.run_record import last_done

_NO_VECTORS = "there are no vectors to compare"
_NAME, _ID = 30, 60  # characters
_LINES = 10  # shown in a notebook
_MORE = 8  # times as many vectors to search, if too few of them are of traces
_ACCEPTED = "(SELECT text_hash, created_at FROM published.facts WHERE len(reasons) = 0)"
_MISSING = """
    SELECT count(*) FROM published.scores SEMI JOIN $missing USING (text_hash)
    WHERE encoder_id = getvariable('encoder_id')
"""


class NearestTraces(Rows):
    """The most similar traces first, then the oldest; later traces have a negative age."""

    __slots__ = ()
    names = (*Similar.names, "is_same_text", "score")


class NearestOfLines(Rows):
    """The nearest traces of several new ones, each with the line of the new one."""

    __slots__ = ()
    names = (*NearestTraces.names, "line")


@dataclass(frozen=True)
class SimilarTraces(Displayed):
    """The traces of an archive most similar to one; the fields are in the order of the JSON."""

    line: int | None  # of the file, from 1; null: a trace of the archive
    trace_id: str | None
    task_domain: str
    created_at: str  # ISO 8601, UTC; for a trace of a file, the time of the comparison
    encoder_id: str
    compared: int  # traces
    other_encoders: int  # traces not compared, because another encoder made their vectors
    missing: int  # traces not compared, because their vectors are not stored any more
    is_zero: bool  # whether its vector is zero, to which none is similar
    nearest: NearestTraces

    def _parts(self) -> Iterator[Part]:
        return similar_parts(self)


SimilarLine = SimilarTraces | Unscored


class SimilarLines(Displayed, list[SimilarLine]):
    """The nearest traces of new ones, or why some cannot be compared."""

    def to_polars(self) -> pl.DataFrame:
        """Return a row for each of the nearest traces, with the columns of `NearestOfLines`."""
        found = (each for each in self if isinstance(each, SimilarTraces))
        rows = ({**row, "line": each.line} for each in found for row in each.nearest)
        return NearestOfLines(rows).to_polars()

    def _parts(self) -> Iterator[Part]:
        for result in self[:_LINES]:
            if isinstance(result, Unscored):
                yield Head(_refusal(result))
            else:
                yield from similar_parts(result)
            yield ""
        if (more := len(self) - _LINES) > 0:
            yield f"  {more:,} more: see to_polars()"


def similar_to_trace(warehouse: Path, name: str, most: int) -> SimilarTraces:
    """Find the traces of the archive most similar to one of them, by its encoder's vectors.

    Args:
        warehouse: the folder of the tables, which does not change.
        name: the name of the trace; see `find_trace`.
        most: the maximum number of similar traces.

    Raises:
        KpBatchError: the trace was scored without an encoder.
        WarehouseError: there is no warehouse or no such trace, or its vector is missing.
    """
    with open_published(warehouse) as snapshot:
        row = find_trace(snapshot, name)
        encoder_id = row["encoder_id"]
        if encoder_id == NO_FINGERPRINT:
            raise without_encoder(warehouse, _NO_VECTORS)
        vector = stored_vectors(snapshot, encoder_id, [row["text_hash"]]).get(row["text_hash"])
        if vector is None:
            raise WarehouseError(
                f"the vector of {row['trace_id']} is not in {shown(warehouse)}; kp-batch run "
                "--restore-vectors makes it again, and changes no score"
            )
        asked = _Asked(row, vector, row["created_at"])
        [found] = _VectorSearch(snapshot, encoder_id, most).similar([asked])
        return found


def similar_to_lines(
    warehouse: Path, file: IO[bytes], moment: datetime, most: int
) -> Iterator[SimilarLine]:
    """Find the traces of the archive most similar to each of some new ones.

    Args:
        warehouse: the folder of the tables, which does not change.
        file: traces; see `score_lines`. Traces of the archive with their ids are left out.
        moment: the time from which ages count, with a time zone.
        most: the maximum number of similar traces for each.

    Yields:
        A result for each line that is not blank, in order.

    Raises:
        UnreadableError: it is not JSON at all.
        KpBatchError: the warehouse has no encoder.
        WarehouseError: there is no warehouse, or no scores in it.
        EncoderError: the model cannot be found.
    """
    config = last_config(warehouse)
    encoder = load_encoder(config.embedder, config.precision)
    if encoder is None:
        raise without_encoder(warehouse, _NO_VECTORS)
    with open_published(warehouse) as snapshot:
        archive = _VectorSearch(snapshot, encoder.encoder_id, most)
        yield from each_line(
            file, lambda facts: archive.similar(_asked(snapshot, encoder, facts, moment))
        )


@dataclass(frozen=True)
class _Asked:
    """A trace to find similar ones for."""

    row: Mapping[str, Any]  # with its trace_id, task_domain and text_hash
    vector: Float32s
    moment: datetime  # from which ages count
    line: int | None = None


def _asked(
    snapshot: OpenSnapshot, encoder: Encoder, facts: pl.DataFrame, moment: datetime
) -> list[_Asked]:
    vectors = vectors_of(snapshot, encoder, facts)
    rows = facts.select("row", "trace_id", "task_domain", "text_hash").to_dicts()
    return [
        _Asked(row, vector, moment, row["row"] + 1)
        for row, vector in zip(rows, vectors, strict=True)
    ]


@dataclass(frozen=True)
class _Stored:
    """The vectors of a store with their hashes, in the order of the store."""

    hashes: Sequence[Hashes]
    vectors: Sequence[Float32s]  # mapped into memory

    def frame(self, rows: Int64s, cosines: Float64s) -> pl.DataFrame:
        """Return the `hash` of some rows, and their `similarity`, the cosine.

        If a hash recurs, the first row counts, as for `VectorStore`.
        """
        firsts = np.cumsum([0, *map(len, self.hashes)])
        parts = np.searchsorted(firsts, rows, "right") - 1
        hashes = [
            self.hashes[part][row - firsts[part]] for part, row in zip(parts, rows, strict=True)
        ]
        found = pl.DataFrame(
            {"row": rows, "hash": np.array(hashes).astype(str), "similarity": cosines}
        )
        return found.sort("row").drop("row").unique("hash", keep="first", maintain_order=True)


@dataclass(frozen=True)
class _VectorSearch:
    """Find traces by the stored vectors of an encoder.

    This reads the store in its own order, because finding the place of each trace would take
    longest. Some of its vectors may belong to no trace any more; then it searches more of them.
    """

    snapshot: OpenSnapshot
    encoder_id: str
    most: int

    def similar(self, asked: Sequence[_Asked]) -> Iterator[SimilarTraces]:
        """Find the nearest traces of each."""
        most = self.most + 2  # with its own, and one that shows that all as similar are there
        found = nearest(np.stack([each.vector for each in asked]), self._stored.vectors, most)
        for each, columns, cosines in zip(asked, found.columns, found.cosines, strict=True):
            yield self._result(each, self._nearest(each, columns, cosines))

    @cached_property
    def _stored(self) -> _Stored:
        parts = list(whole_chunks(self._folder))
        return _Stored([hashes for hashes, _ in parts], [vectors for _, vectors in parts])

    @property
    def _folder(self) -> Path:
        return Layout(self.snapshot.warehouse).vectors(self.encoder_id)

    @cached_property
    def _store(self) -> VectorStore:
        return VectorStore(self._folder, self.snapshot.connection)

    def _nearest(self, asked: _Asked, columns: Int64s, cosines: Float64s) -> list[dict[str, Any]]:
        """Return the rows of the nearest traces, with their similarity, from rows of the store."""
        rows = columns[columns >= 0]
        hashes = self._stored.frame(rows, cosines[: len(rows)])
        traces = self._traces(asked, hashes) if rows.size else []
        # Traces that are as similar as the last row, or less, may have vectors that were not found.
        is_certain = len(traces) == self.most and traces[-1]["similarity"] > cosines[-1]
        if is_certain or len(rows) < len(columns):
            return traces
        more = nearest(asked.vector[None], self._stored.vectors, len(columns) * _MORE)
        return self._nearest(asked, more.columns[0], more.cosines[0])

    def _traces(self, asked: _Asked, hashes: pl.DataFrame) -> list[dict[str, Any]]:
        """Return the most similar traces whose vectors have some hashes, the oldest first."""
        snapshot, path = self.snapshot, self.snapshot.staging.folder / "texts.parquet"
        snapshot.connection.register("hashes", hashes.to_arrow())
        self._store.write_rows_of("hashes", statement(_ACCEPTED), path)
        snapshot.connection.unregister("hashes")
        texts = read_parquet(path)
        days = snapshot.ask(
            statement("SELECT DISTINCT day_of(created_at) AS day FROM $texts", texts=texts)
        )
        scores = snapshot.scores_of(days.get_column("day"))
        set_variables(
            snapshot.connection,
            trace_id=asked.row["trace_id"],
            encoder_id=self.encoder_id,
            most=self.most,
        )
        rows = snapshot.ask(sql(__name__, "similar.sql", scores=scores, texts=texts))
        return rows.to_dicts()

    def _result(self, asked: _Asked, traces: Iterable[Mapping[str, Any]]) -> SimilarTraces:
        numbers = self._numbers
        return SimilarTraces(
            line=asked.line,
            trace_id=asked.row["trace_id"],
            task_domain=asked.row["task_domain"],
            created_at=asked.moment.isoformat(),
            encoder_id=self.encoder_id,
            compared=numbers.get(self.encoder_id, 0) - self._missing,
            other_encoders=sum(numbers.values()) - numbers.get(self.encoder_id, 0),
            missing=self._missing,
            is_zero=not asked.vector.any(),
            nearest=NearestTraces(
                {
                    **similar_row(asked.moment, trace, trace["similarity"]),
                    "is_same_text": trace["text_hash"] == asked.row["text_hash"],
                    "score": trace["score"],
                }
                for trace in traces
            ),
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """How many traces have vectors of each encoder."""
        last = last_done(self.snapshot.runs())
        return dict(last.fingerprints["encoder_id"]) if last else {}

    @cached_property
    def _missing(self) -> int:
        """How many traces have no vector; usually none, which the facts alone show."""
        path = self.snapshot.staging.missing
        if not self._store.write_missing(statement(_ACCEPTED), path):
            return 0
        set_variables(self.snapshot.connection, encoder_id=self.encoder_id)
        return int(self.snapshot.ask(statement(_MISSING, missing=read_parquet(path))).item())


def similar_text(result: SimilarLine) -> str:
    """Format the nearest traces of one for a terminal."""
    if isinstance(result, Unscored):
        return f"{_refusal(result)}\n"
    return as_text([*similar_parts(result), ""])


def _refusal(result: Unscored) -> str:
    head = line_head(result.line, result.trace_id)
    return f"{head} cannot be compared: {printable(result.message)}"


def similar_parts(result: SimilarTraces) -> Iterator[Part]:
    """Return the text of the nearest traces of one."""
    if result.line is None:
        yield Head(f"trace {shortened(result.trace_id or '', _ID)}")
        domain = shortened(result.task_domain, _NAME)
        yield f"  made {moment_text(result.created_at)}, {domain}"
    else:
        head = line_head(result.line, result.trace_id)
        yield Head(f"{head}, {shortened(result.task_domain, _NAME)}")
    yield f"the nearest of {count_of(result.compared, 'trace')}, by {result.encoder_id}"
    if result.other_encoders:
        yield f"  not compared: {result.other_encoders:,} that have vectors of another encoder"
    if result.missing:
        yield (
            f"  not compared: {result.missing:,} whose vectors are missing; kp-batch run "
            "--restore-vectors makes them again"
        )
    if result.is_zero:
        yield "  its text has nothing to compare: its vector is zero, and similar to none"
    shown = ("similarity", "trace_id", "task_domain", "score", "age_s", "is_same_text")
    yield Table(cells(result.nearest, *shown))
