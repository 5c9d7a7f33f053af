"""Score one trace at a time, as the live engine does: in sessions, which have their own caches."""

import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kp_batch.archive.file_formats.json import rows_from_objects
from kp_batch.archive.validation import fault_sentence, reasons
from kp_batch.arguments import typed
from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import load_encoder
from kp_batch.embedding.precision import Precision
from kp_batch.errors import SettingError, TraceError
from kp_batch.forked import refuse_forked
from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.novelty.resemblance import Similar, most_similar, similar_row
from kp_batch.operations.live_cache import Group, LiveCache, SessionTrace
from kp_batch.operations.score import NOT_NEEDED, Neighbours, Scored, scored
from kp_batch.operations.warehouse_cache import PublishedCaches
from kp_batch.scoring.facts import with_facts
from kp_batch.scoring.profiles import ProfileVersions, extended_profiles
from kp_batch.settings import field_of
from kp_batch.stopping import interruptible
from kp_batch.text import count_of, in_utc
from kp_batch.vectors import Float32s, unit
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.bucket.mirror import refresh

_NEIGHBOURS = 5
_beginning = threading.Lock()


@typed
class Session:
    """Score traces one by one, each against the traces before it. Writes nothing.

    If the `id` of a trace is still in the cache, the trace replaces itself at its old time, and is
    compared with the same traces as before. So a cell of a notebook that runs twice has the same
    result. A trace without `id` is always new.

    Several threads may use a session. Memory holds twice as many vectors as the cache, some 2 kB
    each.

    Args:
        warehouse: a `Warehouse`, its folder or its URL. The session takes the warehouse's
            settings, and begins with its caches, without traces dated in the future. None: an
            empty cache, and the default settings.
        embedder: see `score`.
        precision: see `score`.
        profiles: weights that replace or extend the built-in ones: a TOML file, or its tables by
            name; None: those of the warehouse, or else the built-in ones.
        cache_size: see `score`.
        ttl: how long a vector stays in the cache, as for `score`; `"none"`: no limit.
        group: values that choose one of several caches instead of the trace's own, such as
            `{"host": "a"}`; the value None chooses the cache of traces without a value.

    Raises:
        SettingError: a setting is invalid, or is already set by the warehouse.
        WarehouseError: the warehouse is missing or has no scores.
        EncoderError: the files of the model are missing.

    Examples:
        >>> session = kp.Session(embedder="hashing")
        >>> [round(session.evaluate(trace).score, 3) for _ in range(2)]
        [0.564, 0.564]
        >>> in_the_warehouse = kp.Session(wh)
        >>> in_the_warehouse.evaluate(trace).neighbours[0]["trace_id"]
        'kp:trace:...'
    """

    @interruptible
    def __init__(  # noqa: PLR0913 (each is a setting)
        self,
        warehouse: str | PathLike[str] | None = None,
        *,
        embedder: str | None = None,
        precision: Precision | None = None,
        profiles: ProfileVersions | Mapping[str, Any] | str | PathLike[str] | None = None,
        cache_size: int | None = None,
        ttl: timedelta | str | None = None,
        group: Mapping[str, str | None] | None = None,
    ) -> None:
        refuse_forked()
        given = {
            "embedder": embedder,
            "precision": precision,
            "cache_size": cache_size,
            "ttl": ttl,
            "profiles": extended_profiles(profiles) if isinstance(profiles, Mapping) else profiles,
        }
        own = {name: value for name, value in given.items() if value is not None}
        self._published = _published(warehouse, own, group or {})
        self._config = _config(self._published, own)
        self._encoder = load_encoder(self._config.embedder, self._config.precision)
        self._settings = CacheSettings(self._config.cache_size, self._config.ttl)
        self._lock = threading.Lock()
        self._caches: dict[Group, LiveCache] = {}
        self._forget()

    @interruptible
    def evaluate(self, trace: Mapping[str, Any], now: datetime | None = None) -> Scored:
        """Score a trace and add it to the cache.

        Args:
            trace: a trace as a mapping; `id` and `created_at` are optional.
            now: the time of a new trace, in UTC if it has no zone; None: the wall clock.

        Returns:
            The `score`, 0 to 1; its parts (`breakdown`); the score under each profile
            (`by_profile`); and the most similar traces (`neighbours`, `max_similarity`), as in
            `kp-batch score --json`.

        Raises:
            TraceError: the trace cannot be scored; `reasons` has the codes of its faults.
            EncoderError: the model cannot be loaded.
            WarehouseError: the tables with which the session began are gone.
            ValueError: `now` is before an earlier trace.

        Examples:
            >>> again = session.evaluate(trace | {"id": "again"})
            >>> near = again.neighbours.to_polars()
            >>> near.select("trace_id", pl.col("similarity").round(4)).rows()
            [('new', 1.0)]
        """
        facts = _facts_of(trace)
        trace_id = facts.item(0, "trace_id") or ""
        with self._lock:  # the clock is read inside, or another thread's later call could be first
            moment = datetime.now(UTC) if now is None else in_utc(now)
            cache = self._cache(facts)
            if self._place_of(trace_id) is None:
                _check_clock(moment, self._last, cache.newest)
            entry, neighbours = self._meet(facts, moment, trace_id)
            result = self._score(facts, entry.created_at, neighbours)
            self._keep(entry)
        return result

    @interruptible
    def compare_profiles(self, trace: Mapping[str, Any]) -> dict[str, float]:
        """Score a trace under every current profile. The cache does not change.

        A trace whose `id` is in the cache is scored at its place. Any other trace is scored at the
        time of the last trace.

        Args:
            trace: see `evaluate`.

        Returns:
            The scores, 0 to 1, by profile.

        Raises:
            TraceError, EncoderError: as for `evaluate`.

        Examples:
            >>> list(session.compare_profiles(trace))
            ['default', 'finance', 'code', 'medical', 'customer_service']
        """
        facts = _facts_of(trace)
        trace_id = facts.item(0, "trace_id") or ""
        with self._lock:
            moment = self._last or datetime.now(UTC)
            entry, neighbours = self._meet(facts, moment, trace_id)
        return self._score(facts, entry.created_at, neighbours).by_profile

    def reset(self) -> None:
        """Return to the cache with which the session began. The model stays loaded.

        Examples:
            >>> session.reset()
        """
        with self._lock:
            self._forget()

    def __repr__(self) -> str:
        of = f"{self._published.snapshot.warehouse}, " if self._published else ""
        settings = f"{self._config.embedder}, {self._settings.cache_id}"
        return f"Session({of}{settings}, {count_of(self._came, 'trace')})"

    def _score(self, facts: pl.DataFrame, moment: datetime, neighbours: Neighbours) -> Scored:
        [result] = scored(facts, self._config.profiles, moment, lambda _: [neighbours])
        return result

    def _meet(
        self, facts: pl.DataFrame, moment: datetime, trace_id: str
    ) -> tuple[SessionTrace, Neighbours]:
        """Compare a trace with its cache at this moment, or at its old place."""
        known, cache = self._place_of(trace_id), self._cache(facts)
        place, time = (known.place, known.created_at) if known else (self._came, moment)
        met = cache.traces_at(place, time, trace_id, self._known) if self._encoder else []
        text, digest = facts.select("text", "text_hash").row(0)
        read_before = (entry for entry in (known, *met) if entry and entry.text_hash == digest)
        same = next(read_before, None)
        vector = same.vector if same else self._vector(text)
        cached = [np.stack([entry.vector for entry in met])] if met else []
        [nearby] = most_similar([vector], cached, _NEIGHBOURS)
        similar = Similar(similar_row(time, vars(met[row]), each) for row, each in nearby.nearest)
        domain, group = facts.item(0, "task_domain"), self._group(facts)
        entry = SessionTrace(place, time, trace_id, domain, digest, vector, group)
        return entry, (nearby.max_similarity, similar)

    def _vector(self, text: str) -> Float32s:
        """Return the vector of a text; without an encoder, a zero vector."""
        return unit(self._encoder.encode([text])[0]) if self._encoder else np.zeros(1, np.float32)

    def _keep(self, entry: SessionTrace) -> None:
        """Put a trace into its cache, at its place."""
        if before := self._place_of(entry.trace_id):
            self._caches[before.group].came.remove(before)
        else:
            self._came, self._last = self._came + 1, entry.created_at
        if entry.trace_id:
            self._known[entry.trace_id] = entry
        for gone in self._caches[entry.group].add(entry):
            if self._known.get(gone.trace_id) is gone:
                del self._known[gone.trace_id]

    def _place_of(self, trace_id: str) -> SessionTrace | None:
        """Return the earlier trace of this id, if its cache still holds it."""
        known = self._known.get(trace_id)
        return known if known and self._caches[known.group].has(known) else None

    def _group(self, facts: pl.DataFrame) -> Group:
        return self._published.group_values(facts) if self._published else ()

    def _cache(self, facts: pl.DataFrame) -> LiveCache:
        """Return the cache of a trace; the first of a group reads it from the warehouse."""
        group = self._group(facts)
        if group not in self._caches:
            before = [*self._entries_before(facts, group)] if self._published else []
            self._caches[group] = LiveCache(self._settings, before)
        return self._caches[group]

    def _entries_before(self, facts: pl.DataFrame, group: Group) -> Iterator[SessionTrace]:
        if self._published and self._encoder:
            rows, vectors = self._published.load(facts, self._encoder.encoder_id)
            columns = rows.select("created_at", "trace_id", "task_domain", "text_hash").rows()
            for place, (row, vector) in enumerate(zip(columns, vectors, strict=True), -len(rows)):
                created_at, trace_id, domain, digest = row
                yield SessionTrace(place, created_at, trace_id, domain, digest, vector, group)

    def _forget(self) -> None:
        self._caches = {group: replace(cache, came=[]) for group, cache in self._caches.items()}
        self._known: dict[str, SessionTrace] = {}
        self._came = 0
        self._last: datetime | None = None


@typed
def evaluate_value(trace: Mapping[str, Any], now: datetime | None = None) -> float:
    """Score a trace against the traces that this process scored before.

    Each call adds the trace's vector to the process's cache: 1,000 vectors, no time to live. So the
    same trace scores less the second time. `reset` empties the cache. Novelty is 0.5 for the first
    trace, and always without sentence-transformers.

    Args:
        trace: see `Session.evaluate`.
        now: see `Session.evaluate`.

    Returns:
        The score, 0 to 1.

    Raises:
        TraceError, EncoderError, ValueError: as for `Session.evaluate`.

    Examples:
        >>> [round(kp.evaluate_value(trace), 3) for _ in range(2)]
        [0.564, 0.414]
    """
    return _engine().evaluate(_without_id(trace), now).score


@typed
def compare_profiles(trace: Mapping[str, Any]) -> dict[str, float]:
    """Score a trace under every built-in profile. The cache does not change.

    Call this before `evaluate_value`, or the trace is compared with itself.

    Args:
        trace: see `Session.evaluate`.

    Returns:
        The scores, 0 to 1, by profile.

    Raises:
        TraceError, EncoderError: as for `evaluate_value`.

    Examples:
        >>> kp.compare_profiles(trace)
        {...'code': 0.5...}
    """
    return _engine().compare_profiles(_without_id(trace))


def reset() -> None:
    """Forget all traces that `evaluate_value` scored. The model stays loaded.

    Examples:
        >>> kp.reset()
    """
    _engine().reset()


def _engine() -> Session:
    """Return the session of the process, in which no trace has an id."""
    with _beginning:
        return process_session()


@cache
def process_session() -> Session:
    """Return the session of the process, made for its first trace; see `_engine`."""
    if find_spec("sentence_transformers") is None:
        warnings.warn("sentence-transformers is not installed: every novelty is 0.5", stacklevel=5)
        return Session(embedder="none")
    return Session()


def _without_id(trace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the trace as the live engine takes it; other types are refused later."""
    return {**trace, "id": None} if isinstance(trace, Mapping) else trace


def _published(
    warehouse: str | PathLike[str] | None,
    given: Mapping[str, Any],
    group: Mapping[str, str | None],
) -> PublishedCaches | None:
    """Return the caches that a session begins with; None for an empty one."""
    if warehouse is None:
        if group:
            raise SettingError("group needs a warehouse; name it")
        return None
    if fixed := [name for name in given if name != "profiles"]:
        raise SettingError(
            f"the warehouse has its own {' and '.join(fixed)}; leave out these settings, or the "
            "warehouse"
        )
    folder = Path(folder_of(fspath(warehouse)))
    refresh(folder)
    return PublishedCaches.of(folder, datetime.now(UTC), group)


def _config(published: PublishedCaches | None, given: Mapping[str, Any]) -> RescoreConfig:
    """Return the settings of a session: the warehouse's, with other weights if given."""
    own = RescoreConfig.checked({"warehouse": "", **given}, field_of)
    if published is None:
        return own
    return published.config.model_copy(update={"profiles": own.profiles} if given else {})


def _check_clock(moment: datetime, *earlier: datetime | None) -> None:
    for time in earlier:
        if time and moment < time:
            raise ValueError(f"the clock runs backwards: {moment} after {time}")


def _facts_of(trace: Mapping[str, Any]) -> pl.DataFrame:
    refuse_forked()
    frame = with_facts(rows_from_objects("", [(0, trace)]), reasons())
    faults = [code for code in frame.item(0, "reasons") if code not in NOT_NEEDED]
    if faults:
        sentences = "; ".join(f"{code}: {fault_sentence(code, trace)}" for code in faults)
        raise TraceError(f"the trace cannot be scored ({sentences})", tuple(faults))
    return frame
