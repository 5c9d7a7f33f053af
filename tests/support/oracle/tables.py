"""What the law compares: the tables that are there, and those that the documentation states.

Which rows count is in `accepted_rows`; they are scored here one at a time, by the formulas as
they are written down.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from kp_batch.archive.validation import reject_message
from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import load_encoder
from kp_batch.novelty.cache import VectorCache
from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.warehouse.reader import connect
from tests.support.oracle.accepted_rows import Counted, File, Row, counted, moment_of
from tests.support.oracle.scoring import facts, group_of, text_of

_QUERIES = {
    "scores": "SELECT * EXCLUDE (run_id) FROM scores ORDER BY created_at, trace_id",
    "rejects": 'SELECT * EXCLUDE (run_id) FROM rejects ORDER BY source_file, "row", reasons',
    "profiles": "FROM profiles ORDER BY ALL",
}


def tables(warehouse: Path) -> dict[str, pl.DataFrame]:
    """The published tables, but for who stated their rows."""
    with connect(warehouse) as connection:
        return {
            name: pl.DataFrame(connection.sql(query).to_arrow_table())
            for name, query in _QUERIES.items()
        }


def assert_lawful(
    config: RescoreConfig,
    files: Mapping[str, File],
    forgotten: AbstractSet[str] = frozenset(),
    published: Mapping[str, Any] = MappingProxyType({}),
    *,
    has_raw: bool = True,
) -> Counted:
    """The tables are those that the documentation states; gives what it counts.

    Args:
        config: of the run that has just ended.
        files: of the archive, by their paths, as the run left them.
        forgotten: the ids that are.
        published: the contents that were before the run, see `Counted.published`.
        has_raw: whether all rejected rows have their JSON.
    """
    stored, count = tables(config.warehouse), counted(files, forgotten, published)
    _assert_equal(stored["scores"].to_dicts(), [*_scores(config, count.accepted)], "trace_id")
    wanted = [
        {"profile_id": profile.profile_id, **vars(profile), "valid_from": _begins(config, profile)}
        for profile in sorted(config.profiles.profiles, key=lambda each: each.profile_id)
    ]
    _assert_equal(stored["profiles"].to_dicts(), wanted, "profile_id")
    assert_rejects(stored["rejects"], count, has_raw=has_raw)
    return count


def intact(files: Mapping[str, File], present: Mapping[str, bytes]) -> set[str]:
    """The files that are there as the run left them."""
    return {path for path, file in files.items() if file.content == present.get(path, b"")}


def _assert_equal(rows: list[dict[str, Any]], wanted: list[dict[str, Any]], key: str) -> None:
    assert [row[key] for row in rows] == [row[key] for row in wanted]
    for row, other in zip(rows, wanted, strict=True):
        off = {name: (row[name], other[name]) for name in row if row[name] != other[name]}
        assert not off, f"{row[key]}: {off}"


def assert_rejects(table: pl.DataFrame, count: Counted, *, has_raw: bool) -> None:
    """The rejects are those that count, with their JSON, whatever has become of their files."""
    wanted = {(row.source_file, row.row, row.trace_id, row.reasons): row for row in count.rejected}
    rows = {
        (row["source_file"], row["row"], row["trace_id"], tuple(row["reasons"])): row
        for row in table.iter_rows(named=True)
    }
    assert len(rows) == len(table)
    assert rows.keys() == wanted.keys(), f"rejects: {sorted(map(str, rows.keys() ^ wanted.keys()))}"
    for each, row in rows.items():
        _assert_reported(row, wanted[each], has_raw=has_raw)


def _assert_reported(reject: Mapping[str, Any], row: Row, *, has_raw: bool) -> None:
    raw, message = reject["raw"], reject["message"]
    if row.row is None:
        assert (raw, bool(message)) == (None, True)
    elif row.reasons == ("superseded",):
        reason = "the row that superseded it is in the archive no more"
        if row.later:
            path, number = row.later
            reason = f"the same id stands with other content in {path}, row {number}"
        assert (raw, reason in message) == (None, True)
    else:
        assert raw or not has_raw, f"no JSON of {reject}"
        value = json.loads(json.dumps(row.value), parse_constant=str.lower)  # JSON has no NaN
        assert not raw or json.loads(raw) == value, f"other JSON than {row.value}: {reject}"
        assert message == reject_message(row.reasons, row.row, raw)


def _scores(config: RescoreConfig, rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Score the traces one at a time, in the order of the replay."""
    encoder = load_encoder(config.embedder, config.precision)
    settings = CacheSettings(config.cache_size, config.ttl)
    texts = [text_of(row.value) for row in rows]
    vectors = encoder.encode(texts) if encoder else None
    dimensions = encoder.dimensions if encoder else 1
    groups = [group_of(row, config.cache_by) for row in rows]
    caches = {group: VectorCache(settings.size, dimensions, settings.ttl) for group in groups}
    added: dict[str | None, list[Row]] = {group: [] for group in groups}
    for number, (row, group) in enumerate(zip(rows, groups, strict=True)):
        now, nearest, cache = moment_of(row.value), None, caches[group]
        cache.evict_expired(now)
        size = cache.size if encoder else 0
        if vectors is not None:
            nearest = cache.nearest(vectors[number], now)
            cache.add(vectors[number], now)
        place = nearest.position if nearest else None
        near = None if place is None else added[group][place].value
        added[group].append(row)
        yield {
            **facts(row.value),
            **_weighted(config, row.value, nearest.similarity if nearest else None),
            "trace_id": row.value["id"],
            "created_at": now,
            "max_similarity": nearest and nearest.similarity,
            "nearest_trace_id": near["id"] if near else None,
            "nearest_age_s": (now - moment_of(near)).total_seconds() if near else None,
            "cache_size": size,
            "cache_warming_up": encoder is not None
            and size < settings.size
            and (settings.ttl is None or now < moment_of(added[group][0].value) + settings.ttl),
            "cache_group": group,
            "text_hash": hashlib.sha256(texts[number].encode()).hexdigest(),
            "source_file": row.source_file,
            "encoder_id": encoder.encoder_id if encoder else "none",
            "cache_id": settings.cache_id if encoder else "none",
        }


def _in_force(config: RescoreConfig, domain: str, moment: datetime) -> WeightProfile:
    """The last weights of the domain's name that have begun, else of default."""
    versions = config.profiles.versions
    return next(
        profile
        for begin, profile in [*reversed(versions.get(domain, ())), *reversed(versions["default"])]
        if begin is None or begin <= moment
    )


def _begins(config: RescoreConfig, profile: WeightProfile) -> list[datetime | None]:
    return [begin for begin, each in config.profiles.versions[profile.name] if each == profile]


def _weighted(
    config: RescoreConfig, trace: Mapping[str, Any], similarity: float | None
) -> dict[str, Any]:
    row = facts(trace)
    novelty = 0.5 if similarity is None else min(1.0, max(0.0, 1 - similarity))
    weights = _in_force(config, row["task_domain"], moment_of(trace))
    composite = (
        row["complexity"] * weights.complexity
        + novelty * weights.novelty
        + row["tool_diversity"] * weights.tool_diversity
        + row["outcome_confidence"] * weights.outcome_confidence
    )
    score = 0.1 if row["single_thought"] else composite
    score = min(1.0, score + 0.1) if row["recovery_bonus"] else score
    score = max(0.0, score - 0.1) if row["low_diversity_penalty"] else score
    return {
        "profile": weights.name,
        "profile_id": weights.profile_id,
        "novelty": novelty,
        "composite": composite,
        "score": score,
        "meets_threshold": score >= config.threshold,
    }


def assert_same(one: Path, other: Path, but: Collection[str] = ("run_id",)) -> None:
    """Equal in every column but some."""
    tables_of_one, expected = tables(one), tables(other)
    assert tables_of_one.keys() == expected.keys()
    for name, table in tables_of_one.items():
        without = [column for column in table.columns if column not in but]
        assert table.select(without).equals(expected[name].select(without)), name
