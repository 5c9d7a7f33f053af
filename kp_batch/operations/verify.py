"""Score some traces again, from the archive's files, and compare with what is published.

Each is replayed by itself, with one trace after another in `VectorCache`. This checks the replay in
blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from secrets import randbelow
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from kp_batch.archive.folders import SourceFile
from kp_batch.archive.reading import read_rows
from kp_batch.archive.sources import has_content, stat_file
from kp_batch.archive.validation import reasons
from kp_batch.columns import Rows, cells
from kp_batch.duck import set_variables, sql
from kp_batch.embedding.chunks import damaged_rows
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.precision import Precision
from kp_batch.embedding.vector_store import VectorStore, read_vectors
from kp_batch.errors import DamagedVectorsError, KpBatchError, UnreadableError
from kp_batch.html import Displayed
from kp_batch.ingest.stage import Unreadable, read_with_retries
from kp_batch.log import progress
from kp_batch.novelty.cache import NO_NEIGHBOUR_ROW, VectorCache, novelty
from kp_batch.novelty.cache_settings import CACHE_COLUMNS, CacheSettings, parse_cache_by
from kp_batch.planning.cache_groups import groups_of
from kp_batch.planning.scorer import NO_FINGERPRINT
from kp_batch.rendering import Head, Part, Table
from kp_batch.schemas import FACTS, NOVELTY, OWN_COLUMNS
from kp_batch.scoring.composite import composite, profiles_of, score
from kp_batch.scoring.facts import with_facts
from kp_batch.text import count_of, ten_of
from kp_batch.vectors import Float32s
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_published

# Everything is equal to the bit except vectors, whose last bits depend on the texts embedded with
# them: components of the vectors of one text differed by at most 3e-7.
VECTOR_TOLERANCE: Mapping[Precision, float] = MappingProxyType({"float32": 1e-5, "bf16": 1e-2})
_NO_RUN_DONE: Mapping[str, Any] = {"embedder": "none", "precision": "float32", "cache_by": "none"}
_ARCHIVE_COLUMNS = (*OWN_COLUMNS, "cache_group")  # known from the files, without a replay
_COMPARED = (*_ARCHIVE_COLUMNS, *NOVELTY, "composite", "score")


class Differences(Rows):
    """The greatest difference in each column of the scores, and its trace; null without any."""

    __slots__ = ()
    names = ("column", "max_difference", "tolerance", "trace_id")


@dataclass(frozen=True)
class Verification(Displayed):
    """How some published scores differ from scores computed from scratch."""

    seed: int  # of the sample
    missing: int  # traces of the archive without a score
    sampled: int  # traces in the sample
    checked: int  # of these; the files of the others are gone, unreadable or changed
    differences: Differences
    wrong: str  # differences beyond their tolerance, in words; empty: none

    def _parts(self) -> Iterator[Part]:
        skipped = self.sampled - self.checked
        files = "its file is" if skipped == 1 else "their files are"
        yield Head(
            f"{count_of(self.checked, 'trace')} verified (--seed {self.seed})"
            + (f", {skipped:,} skipped: {files} gone or changed" if skipped else "")
        )
        yield ""
        yield Table(
            cells(self.differences, *Differences.names),
            marked=[place for place, each in enumerate(self.differences) if _is_wrong(each)],
        )


def _is_wrong(row: Mapping[str, Any]) -> bool:
    """Whether a difference is beyond its tolerance, or NaN."""
    greatest = row["max_difference"]
    return greatest is not None and not greatest <= row["tolerance"]


def refuse_wrong(result: Verification) -> Verification:
    """Return the result, or refuse scores that do not verify.

    Raises:
        KpBatchError: the scores do not verify.
    """
    if result.wrong:
        raise KpBatchError(f"the scores do not verify: {result.wrong}")
    return result


@dataclass(frozen=True)
class ScoredTrace:
    """The inputs for the replay of a published trace."""

    encoder_id: str
    cache_id: str
    position: int  # in the timeline, from 0
    first: int  # the position of the first trace of its cache
    text_hash_now: str  # this and the time are as in the archive now
    created_at_now: datetime


@dataclass(frozen=True)
class ReplayedNovelty:
    """The columns of `NOVELTY`, computed again, and the error of the stored vector."""

    novelty: float
    max_similarity: float | None
    nearest_trace_id: str | None
    nearest_age_s: float | None
    cached_vectors: int
    vector: float | None = None  # the largest difference of a component; null: not embedded again


def verify(warehouse: Path, *, traces: int, seed: int | None, embed: bool) -> Verification:
    """Compute some published traces from scratch: facts, text, vector, window and score.

    Args:
        warehouse: the folder of the tables.
        traces: the size of the sample.
        seed: the same seed draws the same traces; None for a new one.
        embed: whether to embed their texts again, and to compare all stored vectors with their
            checksums.

    Returns:
        The differences. If traces were drawn but none could be checked, `wrong` says so.

    Raises:
        DamagedVectorsError: vectors are damaged.
        WarehouseError: there is no warehouse, or vectors are missing.
    """
    seed = randbelow(10**6) if seed is None else seed
    with open_published(warehouse) as snapshot:
        if embed:
            _check_vectors(snapshot)
        settings = snapshot.manifest.settings or _NO_RUN_DONE
        sampled = _sample(snapshot, traces, seed)
        stored = sampled.join(_facts_now(sampled), on=("source_file", "row"), suffix="_now")
        stored = stored.with_columns(cache_group_now=_groups_now(snapshot, stored, settings))
        fresh = _vectors(settings, stored) if embed else {}
        again = _computed_again(snapshot, stored, Reference(snapshot, fresh, stored))
        missing = snapshot.ask(sql(__name__, "unscored.sql")).item()
    tolerance = VECTOR_TOLERANCE[settings["precision"]]
    differences = Differences.of(_differences(stored, again, tolerance))
    return Verification(
        seed=seed,
        missing=missing,
        sampled=len(sampled),
        checked=len(stored),
        differences=differences,
        wrong="; ".join(_wrong(sampled, len(stored), missing, differences)),
    )


@dataclass(frozen=True)
class Reference:
    """Replay one trace at a time: slow, but simple."""

    snapshot: OpenSnapshot  # with the table timeline of sample.sql
    fresh: Mapping[tuple[str, str], Float32s]  # embedded again, by encoder_id and text hash
    traces: pl.DataFrame  # to replay, with the columns of `ScoredTrace`
    places: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])

    def recompute(self, trace: ScoredTrace) -> ReplayedNovelty:
        """Compute a trace's novelty by replaying its window."""
        if trace.encoder_id == NO_FINGERPRINT:
            return ReplayedNovelty(*NO_NEIGHBOUR_ROW)
        settings = CacheSettings.of(trace.cache_id)
        first = max(trace.position - settings.size, trace.first)
        set_variables(self.snapshot.connection, first=first, last=trace.position)
        window = self.snapshot.ask(sql(__name__, "window.sql"))
        vectors = self._vectors(
            trace.encoder_id, [*window.get_column("text_hash"), trace.text_hash_now]
        )
        moments = [*window.get_column("created_at"), trace.created_at_now]
        if not np.isfinite(vectors).all() or moments != sorted(moments):
            return ReplayedNovelty(np.nan, np.nan, None, None, len(window), np.inf)
        cache = VectorCache(settings.size, vectors.shape[1], settings.ttl)
        for vector, moment in zip(vectors[:-1], moments[:-1], strict=True):
            cache.add(vector, moment)
        nearest = cache.nearest(vectors[-1], moments[-1])
        fresh = self.fresh.get((trace.encoder_id, trace.text_hash_now))
        off = None if fresh is None else float(np.abs(fresh - vectors[-1]).max())
        if nearest is None:
            return ReplayedNovelty(*NO_NEIGHBOUR_ROW, off)
        value = float(novelty(nearest.similarity))
        if nearest.position is None or nearest.added_at is None:
            return ReplayedNovelty(value, nearest.similarity, None, None, cache.size, off)
        name = window.item(nearest.position, "trace_id")
        age = (moments[-1] - nearest.added_at).total_seconds()
        return ReplayedNovelty(value, nearest.similarity, name, age, cache.size, off)

    def _vectors(self, encoder_id: str, text_hashes: list[str]) -> Float32s:
        if encoder_id not in self.places:
            self.places[encoder_id] = self._find_vectors(encoder_id)
        rows = pl.DataFrame({"text_hash": text_hashes}, schema={"text_hash": pl.String})
        known = self.places[encoder_id]
        places = rows.join(known, on="text_hash", how="left", maintain_order="left")
        return read_vectors(Layout(self.snapshot.warehouse).vectors(encoder_id), places)

    def _find_vectors(self, encoder_id: str) -> pl.DataFrame:
        """Find the places of the vectors in all windows of an encoder's traces, at once."""
        traces = self.traces.filter(encoder_id=encoder_id)
        reach = max(CacheSettings.of(cache).size for cache in traces.get_column("cache_id"))
        connection, path = self.snapshot.connection, self.snapshot.staging.vectors
        own = traces.select("position", "first", "text_hash_now")
        connection.register("traces", own.to_arrow())
        set_variables(connection, reach=reach)
        connection.execute(sql(__name__, "window_texts.sql"))
        store = VectorStore(Layout(self.snapshot.warehouse).vectors(encoder_id), connection)
        store.write_places("window_texts", path)
        hashes = self.snapshot.ask("SELECT text_hash FROM window_texts ORDER BY position")
        return pl.concat([hashes, pl.read_parquet(path, glob=False)], how="horizontal")


def _check_vectors(snapshot: OpenSnapshot) -> None:
    """Compare the stored vectors of the scores' encoders with their checksums.

    Raises:
        DamagedVectorsError: some differ; the message names their files.
    """
    folders = map(Layout(snapshot.warehouse).vectors, sorted(snapshot.encoder_ids))
    damaged = [(path, len(rows)) for folder in folders for path, rows in damaged_rows(folder)]
    if damaged:
        named = ten_of(f"{count_of(count, 'vector')} in {path}" for path, count in damaged)
        raise DamagedVectorsError(
            f"vectors are damaged: {named}; kp-batch run --restore-vectors makes them again"
        )


def _computed_again(
    snapshot: OpenSnapshot, stored: pl.DataFrame, reference: Reference
) -> pl.DataFrame:
    """Compute the scores of the rows from their current facts and their windows."""
    needed = [field.name for field in fields(ScoredTrace)]
    replayed: list[ReplayedNovelty] = []
    with progress("verifying", len(stored), "trace") as bar:
        for row in stored.select(needed).iter_rows():
            replayed.append(reference.recompute(ScoredTrace(*row)))
            bar.add(1)
    facts = (pl.col(f"{name}_now").alias(name) for name in _ARCHIVE_COLUMNS)
    return (
        stored.select("profile_id", *facts)
        .hstack(pl.DataFrame(replayed, schema={**NOVELTY, "vector": pl.Float64}))
        .with_columns(composite(profiles_of(snapshot.scan("profiles"))))
        .with_columns(score())
    )


def _sample(snapshot: OpenSnapshot, traces: int, seed: int) -> pl.DataFrame:
    """Draw some published traces, each with its position in the timeline; see sample.sql."""
    set_variables(snapshot.connection, traces=traces)
    snapshot.connection.execute("SET VARIABLE seed = ?::VARCHAR", [seed])
    snapshot.connection.execute(sql(__name__, "sample.sql"))
    return snapshot.ask("FROM sampled")


def _wrong(
    sampled: pl.DataFrame, checked: int, missing: int, differences: Differences
) -> Iterator[str]:
    if len(sampled) and not checked:
        yield (
            "nothing could be checked: the files of all drawn traces "
            f"({len(sampled):,}) are gone, unreadable or changed"
        )
    unknown = sampled.filter(pl.col("file_id").is_null()).get_column("trace_id")
    if len(unknown):
        yield (
            f"no known file has the content of {count_of(len(unknown), 'scored trace')} (such as "
            f"{unknown[0]})"
        )
    if missing:
        yield f"no score for {count_of(missing, 'trace')} of the archive"
    for row in filter(_is_wrong, differences):
        yield f"{row['column']} of {row['trace_id']} is off by {row['max_difference']:.3g}"


def _facts_now(sampled: pl.DataFrame) -> pl.DataFrame:
    """Read the facts of the rows again, from their files."""
    schema = {**FACTS, "source_file": pl.String, "text": pl.String}
    del schema["raw"]
    readable = sampled.filter(pl.col("status") == "read").group_by("source_file", "file_id")
    wanted = {(str(path), str(file_id)): rows for (path, file_id), rows in readable}
    read = read_with_retries(
        "verify",
        {file: SourceFile(file[0], 0, 0) for file in wanted},
        lambda file: _facts_in(*file, wanted[file].get_column("row")).select(list(schema)),
    )
    frames = [facts for facts in read if not isinstance(facts, Unreadable)]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def _facts_in(path: str, file_id: str, rows: pl.Series) -> pl.DataFrame:
    """Return the facts of some rows of a file.

    Raises:
        UnreadableError: the file is gone or has changed.
    """
    try:
        source = stat_file(path)
        is_same = has_content(source, file_id)
    except OSError as error:
        raise UnreadableError from error
    if not is_same:
        raise UnreadableError
    wanted = pl.col("row").is_in(rows.implode())
    batches = [with_facts(batch.filter(wanted), reasons()) for batch in read_rows(source)]
    return pl.concat(batches).with_columns(file_id=pl.lit(file_id))


def _groups_now(
    snapshot: OpenSnapshot, stored: pl.DataFrame, settings: Mapping[str, Any]
) -> pl.Series:
    """Return the rows' groups, by their current facts and the keys in their files' paths."""
    now = (pl.col(f"{name}_now").alias(name) for name in CACHE_COLUMNS)
    rows = stored.select("path_keys", *now)
    return groups_of(snapshot, rows, parse_cache_by(settings["cache_by"]))


def _vectors(settings: Mapping[str, Any], rows: pl.DataFrame) -> dict[tuple[str, str], Float32s]:
    """Embed the rows' texts again, and return the vectors by encoder_id and text hash."""
    encoder = load_encoder(settings["embedder"], settings["precision"])
    if encoder is None or rows.is_empty():
        return {}
    texts = rows.filter(pl.col("encoder_id") == encoder.encoder_id).unique("text_hash")
    hashes = texts.get_column("text_hash_now")
    vectors = encoder.encode(texts.get_column("text").to_list())
    return {(encoder.encoder_id, digest): vectors[row] for row, digest in enumerate(hashes)}


def _differences(
    stored: pl.DataFrame, again: pl.DataFrame, tolerance: float
) -> Iterator[dict[str, Any]]:
    """Yield the greatest difference in each column."""
    for name in (*_COMPARED, "vector"):
        now = again.get_column(name)
        off = now if name == "vector" else _off(stored.get_column(name), now)
        worst = off.arg_max()
        greatest = None if worst is None else off[worst]
        yield {
            "column": name,
            "max_difference": greatest,
            "tolerance": tolerance if name == "vector" else 0.0,
            "trace_id": stored.item(worst, "trace_id") if greatest else None,
        }


def _off(was: pl.Series, now: pl.Series) -> pl.Series:
    """Return the difference of each row; 0 or 1 for other types than numbers."""
    differs = was.ne_missing(now).cast(pl.Float64)
    if was.dtype != pl.Float64:
        return differs
    return (was - now).abs().fill_nan(None).fill_null(differs)
