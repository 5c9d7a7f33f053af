"""A real PostgreSQL server, where one is installed, and registries of KnowledgePulse in it."""

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

from adbc_driver_postgresql import dbapi

_FOUND = [shutil.which("postgres"), *Path("/usr/lib/postgresql").glob("*/bin/postgres")]
POSTGRES = next((Path(each).parent for each in _FOUND if each), None)
# As registry/src/store/postgres/db.ts of the registry makes it.
_TABLE = """
CREATE TABLE knowledge_units (
    id TEXT PRIMARY KEY,
    unit_json JSONB NOT NULL,
    visibility TEXT NOT NULL DEFAULT 'private',
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    quarantine_status TEXT,
    search_vector tsvector
)
"""
# As its knowledge-store.ts does it; updated_at is the registry's own clock.
_PUT = """
INSERT INTO knowledge_units (id, unit_json, updated_at)
VALUES ($1, $2::jsonb, now() - $3::interval)
ON CONFLICT (id) DO UPDATE SET
    unit_json = EXCLUDED.unit_json, updated_at = EXCLUDED.updated_at
"""


class Registry:
    """A registry's database, with one connection to it: to connect takes longer than to ask."""

    def __init__(self, url: str) -> None:
        self.url, self._connection = url, dbapi.connect(url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def do(self, sql: str, *values: str) -> None:
        """Change it."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)

    def put(self, unit: Mapping[str, Any], ago: str = "0") -> None:
        """Put a unit in, or in the place of the one of its id."""
        self.do(_PUT, str(unit["id"]), json.dumps(unit), ago)

    def report(self, name: str, status: str) -> None:
        """Say what became of a report on a unit, which leaves updated_at as it is."""
        sql = "UPDATE knowledge_units SET quarantine_status = $2 WHERE id = $1"
        self.do(sql, f"kp:trace:{name}", status)


@contextmanager
def postgres_server() -> Generator[Registry]:
    """Run a server for this machine's users; gives the database that it begins with."""
    assert POSTGRES
    with TemporaryDirectory(prefix="kp-postgres-") as folder:
        user = None
        if os.geteuid() == 0:  # as which it refuses to run
            user = "postgres"
            shutil.chown(folder, user, user)
        data, options = f"{folder}/data", f"-k {folder} -c listen_addresses= -c fsync=off"

        def carry_out(name: str, *args: str) -> None:
            command = [str(POSTGRES / name), "-D", data, *args]
            subprocess.run(
                command, check=True, cwd=folder, user=user, stdout=subprocess.DEVNULL, env={}
            )

        carry_out("initdb", "-A", "trust", "-N", "-U", "kp")
        carry_out("pg_ctl", "start", "-w", "-l", f"{folder}/log", "-o", options)
        try:
            with Registry(_url(folder, "postgres")) as server:
                yield server
        finally:
            carry_out("pg_ctl", "stop", "-w", "-m", "immediate")


@contextmanager
def registry_of(server: Registry) -> Generator[Registry]:
    """Make a registry in a database of its own."""
    name = f"kp_{uuid4().hex}"
    server.do(f"CREATE DATABASE {name}")
    with Registry(server.url.replace("/postgres?", f"/{name}?")) as registry:
        registry.do(_TABLE)
        yield registry


def _url(folder: str, name: str) -> str:
    return f"postgresql://kp@/{name}?host={quote(folder, safe='')}"
