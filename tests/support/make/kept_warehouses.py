"""Warehouses that earlier versions made; `warehouse/kept/make.sh` made them."""

import tarfile
from pathlib import Path

from tests.support import ROOT

KEPT = ROOT / "tests" / "warehouse" / "kept"


def kept_warehouse(version: int, state: int, folder: Path) -> Path:
    """Put a kept warehouse, and its archive, into a folder."""
    with tarfile.open(KEPT / f"format-{version}.tar.gz") as kept:
        wanted = [each for each in kept if each.name.startswith(f"./{state}/")]
        kept.extractall(folder, wanted, filter="data")
    return folder / str(state) / "warehouse"
