"""Keeps in the user's cache what all catalogs of a warehouse have in common, to be copied.

DuckDB takes 150 ms of a processor to bind the statements that create it, and 2 ms to copy it. What
is kept was made by exactly these statements and this version of DuckDB, and from nothing that is in
a warehouse; where it is missing or was changed, it is made anew.
"""

import base64
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import duckdb

from kp_batch.duck import literal, small_work, statement
from kp_batch.files import note_leftover, read_cache, write_cache

_DIGITS = 2  # of the names in the cache, so that it holds 256 files of 80 kB at the most


@contextmanager
def new_database(path: Path) -> Generator[duckdb.DuckDBPyConnection]:
    """Create a database, as kp, which is in use; it is on the disk, as a whole, at the end."""
    with small_work() as connection:
        # Clients of DuckDB 1.4 and later can open this format; the newest needs 2.0.
        attach = "ATTACH $path AS kp (STORAGE_VERSION 'v1.4.0')"
        connection.execute(statement(attach, path=literal(path)))
        connection.execute("USE kp")
        connection.execute("BEGIN")  # each statement would wait for the disk
        yield connection
        connection.execute("COMMIT")
        connection.execute("USE memory")
        connection.execute("DETACH kp")


@contextmanager
def template(path: Path, statements: Sequence[str]) -> Generator[None]:
    """Attach the database that these statements create in kp, as template, until the end.

    Args:
        path: its file is beside this one.
        statements: they depend on nothing else, and create no rows.
    """
    file = template_beside(path)
    note_leftover(file)
    made_by = "\0".join((duckdb.__version__, *statements)).encode()
    name = f"catalog-{sha256(made_by).hexdigest()[:_DIGITS]}"
    try:
        digest, _, content = (read_cache(name) or "").partition("\n")
        if digest == _digest(made_by, content):
            file.write_bytes(zlib.decompress(base64.b64decode(content)))
        else:  # it is missing or damaged, or of another warehouse or version
            with new_database(file) as connection:
                for each in statements:
                    connection.execute(each)
            content = base64.b64encode(zlib.compress(file.read_bytes(), 1)).decode()
            write_cache(name, f"{_digest(made_by, content)}\n{content}")
        with small_work() as connection:
            attach = "ATTACH $file AS template (READ_ONLY)"
            connection.execute(statement(attach, file=literal(file)))
            yield
            connection.execute("DETACH template")
    finally:
        file.unlink(missing_ok=True)


def template_beside(path: Path) -> Path:
    """Where the template of a catalog is while the catalog is built."""
    return path.with_name(f"{path.name}.template")


def _digest(made_by: bytes, content: str) -> str:
    return sha256(made_by + content.encode()).hexdigest()
