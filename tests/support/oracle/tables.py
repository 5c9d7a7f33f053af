"""What the law compares: the tables that are there, and those that the documentation states.

Which rows count is in `accepted_rows`, and what they score in `scoring`.
"""

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
from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.warehouse.reader import connect
from tests.support.oracle.accepted_rows import Counted, File, Row, counted
from tests.support.oracle.scoring import DIMENSIONS, Settings, replayed, weights_at

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
        reason = "the row that superseded it is no longer in the archive"
        if row.later:
            path, number = row.later
            reason = f"the same id has other content in {path}, row {number}"
        assert (raw, reason in message) == (None, True)
    else:
        assert raw or not has_raw, f"no JSON of {reject}"
        value = json.loads(json.dumps(row.value), parse_constant=str.lower)  # JSON has no NaN
        assert not raw or json.loads(raw) == value, f"other JSON than {row.value}: {reject}"
        assert message == reject_message(row.reasons, row.row, raw)


def _scores(config: RescoreConfig, rows: list[Row]) -> Iterator[dict[str, Any]]:
    """The rows of the view scores, with the names of what made them."""
    settings = _settings(config)
    encoder = load_encoder(config.embedder)
    cache = CacheSettings(config.cache_size, config.ttl)
    for row in replayed(rows, settings):
        name, weights = weights_at(settings, row["task_domain"], row["created_at"])
        yield row | {
            "profile_id": WeightProfile(name, *weights).profile_id,
            "encoder_id": encoder.encoder_id if encoder else "none",
            "cache_id": cache.cache_id if encoder else "none",
        }


def _settings(config: RescoreConfig) -> Settings:
    versions = {
        name: [(begin, tuple(getattr(each, part) for part in DIMENSIONS)) for begin, each in own]
        for name, own in config.profiles.versions.items()
    }
    return Settings(
        config.embedder,
        config.cache_size,
        config.ttl,
        tuple(config.cache_by),
        config.threshold,
        versions,
    )


def _begins(config: RescoreConfig, profile: WeightProfile) -> list[datetime | None]:
    return [begin for begin, each in config.profiles.versions[profile.name] if each == profile]


def assert_same(one: Path, other: Path, but: Collection[str] = ("run_id",)) -> None:
    """Equal in every column but some."""
    tables_of_one, expected = tables(one), tables(other)
    assert tables_of_one.keys() == expected.keys()
    for name, table in tables_of_one.items():
        without = [column for column in table.columns if column not in but]
        assert table.select(without).equals(expected[name].select(without)), name
