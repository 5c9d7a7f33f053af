"""A registry of KnowledgePulse in SQLite."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.support.imports.importing import kp_trace


def registry(path: Path, units: list[tuple[str, str, str, str | None]]) -> sqlite3.Connection:
    """A registry that is written to, in WAL mode."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(
        "CREATE TABLE knowledge_units (id TEXT, unit_json TEXT, updated_at TEXT, "
        "quarantine_status TEXT)"
    )
    database.executemany("INSERT INTO knowledge_units VALUES (?, ?, ?, ?)", units)
    database.commit()
    return database


def unit(name: str, status: str | None = None, **changes: Any) -> tuple[str, str, str, str | None]:
    trace = kp_trace(name, **changes)
    return str(trace["id"]), json.dumps(trace), "2026-09-09", status
