"""A catalog is made anew with each publication: nothing that anybody changed is in the next one."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.make.publications import publish_profile

MADE = (
    "SELECT schema_name, function_name, macro_definition, parameters::VARCHAR, comment "
    "FROM duckdb_functions() WHERE database_name = current_database() "
    "UNION ALL SELECT schema_name, view_name, sql, NULL, comment "
    "FROM duckdb_views() WHERE NOT internal "
    "UNION ALL SELECT schema_name, table_name, column_name, data_type, comment "
    "FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
)


def asked(file: Path, query: str = MADE) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(query).fetchall()


def but_for_rows(catalog: Path) -> list[str]:
    """What is made, without rows, and whatever the publication is called."""
    [(publication,)] = asked(catalog, "SELECT DISTINCT publication FROM manifest")
    made = (repr(row).replace(publication, "") for row in asked(catalog))
    return [row for row in made if "read_parquet" not in row]


@pytest.mark.telling
@pytest.mark.slow
def test_what_somebody_does_to_kp_duckdb_is_in_no_later_one(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    catalog = warehouse / "kp.duckdb"
    publish_profile(warehouse, "one")
    made, size = but_for_rows(catalog), catalog.stat().st_size
    with duckdb.connect(str(catalog)) as connection:
        connection.execute("CREATE OR REPLACE MACRO latest() AS 'mine'")
        connection.execute("CREATE TABLE mine AS FROM range(100_000)")
        connection.execute("INSERT INTO manifest FROM manifest")
    assert but_for_rows(catalog) != made
    for name in ("two", "three", "four"):
        publish_profile(warehouse, name)
        assert asked(catalog, "SELECT name, (SELECT count(*) FROM manifest) FROM profiles") == [
            (name, 1)
        ]
        assert but_for_rows(catalog) == made
        assert catalog.stat().st_size == size
