"""What is stored, and what computes it, changes with its version alone.

Each digest is taken from what a small fixed input comes to. If one differs, raise the version that
is named with it, unless that was done; then copy the version and the digest from the message.
`FACTS_VERSION` has its digest in `scoring/test_facts`, and `IMPORTER` in `conversion/test_digests`.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from kp_batch import imports, zstd
from kp_batch.archive.reading import read_rows_with_raw
from kp_batch.archive.sources import discover
from kp_batch.archive.validation import MESSAGES_VERSION, reasons, with_message
from kp_batch.dimensions import DIMENSIONS
from kp_batch.embedding.encoder import ENCODER_VERSION
from kp_batch.embedding.encoders import Hashing
from kp_batch.imports.blocks import Record, pack
from kp_batch.imports.store import STORE_VERSION
from kp_batch.novelty.cache_settings import REPLAY_VERSION
from kp_batch.novelty.replay import replay
from kp_batch.operations.forget import forget
from kp_batch.operations.preview import preview
from kp_batch.schemas import PARTITIONED_BY, TABLES
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.profiles import SCORING_VERSION, parse_profiles
from kp_batch.warehouse.manifest import FORMAT_VERSION
from tests.support.make.odd_rows import write_odd_rows
from tests.support.make.runs import config, two_nights

RUN_JSON = ("config", "inputs", "changes", "counts", "published", "audits")


def shape(value: Any) -> Any:
    """The names and types of a JSON value; keys that are no names, such as ids, are one."""
    if isinstance(value, list):
        return sorted({json.dumps(shape(each)) for each in value})
    if isinstance(value, dict):
        if all(re.fullmatch("[a-z_]+", name) for name in value):
            return {name: shape(each) for name, each in sorted(value.items())}
        return {"*": sorted({json.dumps(shape(each)) for each in value.values()})}
    return type(value).__name__


def warehouse_format(folder: Path) -> Any:
    """Shapes of the files of a warehouse: manifests, lists, tables, vectors, a candidate, a forget.

    What nothing depends on has none: `last-run.json`, `known-warnings.json`, the catalog, Delta's.
    """
    two_nights(folder)
    forget(folder / "warehouse", ["kp:trace:1"])
    preview(config(folder, folder / "archive", max_reject_share=1, preview=True))
    root = folder / "warehouse"
    shapes: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*")):
        name = re.sub(
            r"[0-9a-f]{32,}|\d{8}T\d{6}Z-[0-9a-f]{6}|\d{4}-\d\d-\d\d|-v\d+",
            "*",
            str(path.relative_to(root)),
        )
        if "_delta_log" in name or name in {"last-run.json", "known-warnings.json"}:
            continue
        if path.suffix == ".json":
            shapes.setdefault(name, set()).add(json.dumps(shape(json.loads(path.read_bytes()))))
        elif path.suffix == ".npy":
            read = np.load(path)
            shapes[name] = {repr((read.dtype.descr, read.ndim))}
    runs = pl.concat(map(pl.read_parquet, (root / "runs").glob("*.parquet")))
    for column in RUN_JSON:
        shapes[f"runs.{column}"] = {json.dumps(shape(json.loads(each))) for each in runs[column]}
    tables = {name: repr(schema) for name, schema in TABLES.items()}
    return [{name: sorted(each) for name, each in sorted(shapes.items())}, tables, PARTITIONED_BY]


def vectors_of_hashing(_: Path) -> Any:
    texts = [
        "",
        "a",
        "Fix the import",
        "fix  the import!",
        "\N{GREEK SMALL LETTER ALPHA} \N{CJK UNIFIED IDEOGRAPH-4E2D}" * 9,
        "x" * 5000,
    ]
    return Hashing().encode(texts).tobytes().hex()


def replayed(_: Path) -> Any:
    rng = np.random.default_rng(7)
    # Unit vectors without a rounded norm, so that they are the same on every machine.
    vectors = np.zeros((60, 8), np.float32)
    sides = np.array([(1, 0), (0.6, 0.8), (0.28, 0.96)], np.float32)
    for row in vectors:
        row[rng.choice(8, 2, replace=False)] = rng.choice((-1, 1), 2) * sides[rng.integers(3)]
    vectors[::7] = vectors[3]  # repeats
    vectors[5] = 0
    times = np.sort(rng.integers(0, 40, 60)) * 60_000_000
    both = [
        replay(vectors, times, max_elements=n, ttl=ttl)
        for n, ttl in ((5, None), (50, timedelta(minutes=9)))
    ]
    return [
        [each.novelty.tobytes().hex(), each.nearest.tolist(), each.cached_vectors.tolist()]
        for each in both
    ]


def scored(_: Path) -> Any:
    even = dict.fromkeys(DIMENSIONS, 0.25)
    dated = [even, {"from": "2026-01-06", **even, "novelty": 0.5, "complexity": 0.0}]
    versions = parse_profiles({"code": dated}, "this test")
    grid = [0.0, 0.3, 0.85, 1.0]
    rows = pl.DataFrame({"complexity": grid}).join(pl.DataFrame({"novelty": grid}), how="cross")
    for name in DIMENSIONS[2:]:
        rows = rows.join(pl.DataFrame({name: grid}), how="cross")
    flags = pl.DataFrame({"single_thought": [False, True]})
    for name in ("recovery_bonus", "low_diversity_penalty"):
        flags = flags.join(pl.DataFrame({name: [False, True]}), how="cross")
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (5, 6)]
    domains = pl.DataFrame({"task_domain": ["code", "finance", "other"]})
    rows = rows.join(flags, how="cross").join(domains, how="cross")
    rows = rows.join(pl.DataFrame({"created_at": days}), how="cross")
    rows = rows.with_columns(assign(versions)).with_columns(composite(versions.profiles))
    return rows.select("profile", "profile_id", "composite", score().alias("s")).rows()


def messages(folder: Path) -> Any:
    sources = discover(map(str, write_odd_rows(folder)))
    rows = pl.concat(batch for each in sources for batch in read_rows_with_raw(each, lambda: False))
    faulty = rows.with_columns(reasons=reasons(), message=pl.lit(None, pl.String))
    return with_message(faulty.filter(pl.col("reasons").list.len() > 0))["message"].to_list()


def store_of_imports(_: Path) -> Any:
    schema = files(imports).joinpath("store.sql").read_text("utf-8")
    statements = re.sub(r"--[^\n]*", "", schema)
    with sqlite3.connect(":memory:") as store:
        store.executescript(statements)
    record = Record("unit", 1, 2, 3, 4, b'{"a": 1}', None)
    return [" ".join(statements.split()), zstd.decompress(pack([record])).decode("latin-1")]


STORED: Mapping[str, tuple[Callable[[Path], Any], int, str]] = {
    "FORMAT_VERSION": (warehouse_format, FORMAT_VERSION, "20 c3304d1a92c94d785394f7fdbd3db23e"),
    "ENCODER_VERSION": (vectors_of_hashing, ENCODER_VERSION, "1 7893149c7fc931e825a355d79893d736"),
    "REPLAY_VERSION": (replayed, REPLAY_VERSION, "1 33d6dfd414ff19786b562e96a1d1be92"),
    "SCORING_VERSION": (scored, SCORING_VERSION, "1 c4a9622fcc7123d0c48075e49a25a1d9"),
    "MESSAGES_VERSION": (messages, MESSAGES_VERSION, "7 f83f1f4ff36ca4776445622748602118"),
    "STORE_VERSION": (store_of_imports, STORE_VERSION, "2 f80c8b2e308bc0740d82c057d4e5b739"),
}


@pytest.mark.parametrize("name", STORED)
def test_what_a_version_stands_for_changes_with_it_alone(tmp_path: Path, name: str) -> None:
    made, version, known = STORED[name]
    digest = sha256(json.dumps(made(tmp_path), default=repr).encode()).hexdigest()[:32]
    assert f"{version} {digest}" == known, (
        f"raise {name} unless it was, then copy this version and digest"
    )
