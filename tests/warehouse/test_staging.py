"""The connections to DuckDB that the steps of a run have."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from kp_batch.duck import available_bytes
from kp_batch.warehouse.staging import Staging


def instances(*connections: duckdb.DuckDBPyConnection) -> int:
    """How many instances connections are of: a setting of an instance is that of all its own."""
    for number, connection in enumerate(connections, 10):
        connection.execute(f"SET memory_limit = '{number}MB'")
    query = "SELECT current_setting('memory_limit')"
    return len({connection.execute(query).fetchall()[0] for connection in connections})


def test_connections_share_an_instance_and_no_table(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    with staging.connect() as one, staging.connect() as other:
        assert instances(one, other) == 2
    with staging.shared(), staging.connect() as one, staging.connect() as other:
        assert instances(one, other) == 1
        for connection in (one, other):
            connection.execute("CREATE TABLE t AS SELECT 1")
            connection.execute("CREATE SCHEMA published")
            assert connection.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        with staging.connect(scores=available_bytes()) as large:  # which needs a limit of its own
            assert instances(one, large) == 2
    with staging.connect() as one, staging.connect() as other:
        assert instances(one, other) == 2


def test_threads_do_and_what_fails_leaves_the_others(tmp_path: Path) -> None:
    staging = Staging(tmp_path)

    def ask(number: int) -> int:
        with staging.connect() as connection:
            connection.execute(f"CREATE TABLE t AS SELECT {number} AS n")
            [(found,)] = connection.execute("SELECT n FROM t").fetchall()
            return found

    with staging.shared():
        with pytest.raises(duckdb.ConversionException), staging.connect() as connection:
            connection.execute("BEGIN; SELECT 'x'::INTEGER")
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, range(40))) == list(range(40))
        with staging.connect() as connection:
            names = connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    assert len([name for (name,) in names if name.startswith("own")]) <= 2
