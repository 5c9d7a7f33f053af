"""Warehouses that `warehouse/kept/make.sh` made by the versions that wrote their formats."""

import tarfile
from pathlib import Path

import polars as pl

from kp_batch.warehouse.snapshot import PublishedSnapshot
from tests.support import ROOT

Frames = dict[str, pl.DataFrame]


def unpacked(version: int, state: int, folder: Path) -> Path:
    """Put a kept warehouse, and its archive, into a folder."""
    with tarfile.open(ROOT / "tests" / "warehouse" / "kept" / f"format-{version}.tar.gz") as kept:
        wanted = [each for each in kept if each.name.startswith(f"./{state}/")]
        kept.extractall(folder, wanted, filter="data")
    return folder / str(state) / "warehouse"


def frames_of(snapshot: PublishedSnapshot) -> Frames:
    tables = snapshot.manifest.tables
    return {name: snapshot.scan(name).collect() for name in tables}


def same(first: pl.DataFrame, second: pl.DataFrame) -> bool:
    """Whether two frames have the same rows, in any order."""
    if first.is_empty() or second.is_empty():
        return first.is_empty() == second.is_empty()
    rows = [first, second.select(first.columns)]
    texts = [sorted(map(repr, frame.iter_rows())) for frame in rows]
    return texts[0] == texts[1]
