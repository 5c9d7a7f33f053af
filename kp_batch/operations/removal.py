"""Removes files that nothing needs any more, for vacuum and forget."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from kp_batch.contracts import TABLES
from kp_batch.embedding.store import VectorStore
from kp_batch.staging import Staging
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.relations import relation, scan
from kp_batch.warehouse.tables import DeltaTables, remove_unneeded


def restored_tables(warehouse: Path, published: Manifest) -> DeltaTables:
    """Restore every table to what is published; remove those that only killed runs wrote."""
    tables = DeltaTables(warehouse, published.tables, "upkeep")
    for name in TABLES:
        if tables.undo_unpublished(name):
            shutil.rmtree(Layout(warehouse).table(name))
    return tables


def published_rows(warehouse: Path, name: str, published: Manifest) -> pl.DataFrame:
    """All rows of a published table."""
    return scan(warehouse, name, published.tables.get(name)).collect()


def remove_files(warehouse: Path, names: Iterable[str], manifests: list[dict[str, int]]) -> int:
    """Remove the files of tables that none of the manifests needs; returns how many."""
    return sum(
        remove_unneeded(warehouse, name, {each[name] for each in manifests if name in each})
        for name in names
    )


def keep_vectors(warehouse: Path, published: Manifest) -> int:
    """Keep only the vectors of texts that an accepted row of known content has."""
    layout = Layout(warehouse)
    facts = relation(warehouse, "facts", published.tables.get("facts"))
    accepted = f"(FROM {facts} WHERE len(reasons) = 0)"
    staging = Staging(layout.staging("upkeep"))
    staging.begin()
    try:
        with staging.connect() as connection:
            stores = [VectorStore(each, connection) for each in layout.all_vectors.glob("*")]
            return sum(store.keep(accepted) for store in stores)
    finally:
        staging.end()
