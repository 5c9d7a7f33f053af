"""Asks a catalog by a DuckDB without any other library: a process that has no kp_batch.

Arguments: the catalog, and queries. It writes the version of DuckDB, and for each way to open the
catalog the columns and rows of each answer: as JSON, since DuckDB needs pytz for times in Python.
"""

import json
import sys

import duckdb


def ask(connection: duckdb.DuckDBPyConnection, query: str) -> list[object]:
    """The columns of an answer with their types, and its rows."""
    columns = connection.execute(f"DESCRIBE {query}").fetchall()
    rows = connection.execute(f"SELECT to_json(answer) FROM ({query}) AS answer").fetchall()
    return [[column[:2] for column in columns], *(json.loads(row) for (row,) in rows)]


def main() -> None:
    """Ask the catalog where it is opened, and where it is attached by another name."""
    catalog, *queries = sys.argv[1:]
    answers: list[list[list[object]]] = []
    for name in ("kp", "other"):
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"ATTACH '{catalog}' AS {name} (READ_ONLY)")
            connection.execute(f"USE {name}")
            answers.append([ask(connection, query) for query in queries])
    sys.stdout.write(json.dumps([duckdb.__version__, *answers]))


if __name__ == "__main__":
    main()
