"""SQL text for DuckDB, the only way to put values into it, and DuckDB's memory.

Values belong in parameters and variables. Where DuckDB takes neither, as in views and names, SQL
has `$names`. Only SQL of this package, numbers and plain names replace these, never the content of
a file.
"""

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from string import Template
from threading import RLock
from typing import TYPE_CHECKING, Any, LiteralString

from kp_batch.stopping import stopped_by

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_WILD = re.compile(r"[*?\[]")  # characters that DuckDB reads as patterns in file names
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*")
# DuckDB spills large sorts and joins to disk; with more memory it is hardly faster.
SPILLING_MEMORY_BYTES = 1 << 30
# Each thread holds blocks that cannot be spilled: with four of them, a gigabyte was too little to
# join and sort a million traces.
DUCKDB_THREADS = 2
# Quantiles of twenty million scores, by domain and overall, took 720 MB.
_SCORE_BYTES = 36
_SMALL = RLock()
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class SQL(str):
    """SQL: a text of this package, or one made here from values."""

    __slots__ = ()


Value = SQL | str | int | float  # a text that is not SQL must be a plain name


def sql(module: str, name: str, /, **values: Value) -> SQL:
    """Read a file of SQL.

    Args:
        module: the name of a module in the same folder.
        name: the file's name.
        values: values for the file's `$names`; without any, the file stays as it is.

    Raises:
        TypeError: a value is neither SQL, nor a finite number, nor a plain name.
    """
    text = files(module.rpartition(".")[0]).joinpath(name).read_text("utf-8")
    return _substituted(text, values) if values else SQL(text)


def statement(text: LiteralString, /, **values: Value) -> SQL:
    """Make SQL from a text in the code, and replace its `$names` by values.

    Raises:
        TypeError: a value is neither SQL, nor a finite number, nor a plain name.
    """
    return _substituted(text, values)


def literal(text: str | Path) -> SQL:
    """Quote a text as a literal of SQL.

    Raises:
        ValueError: the text contains a NUL, which would end the SQL.
    """
    return SQL("'" + _without_nul(str(text)).replace("'", "''") + "'")


def identifier(name: str) -> SQL:
    """Quote any name as an identifier of SQL.

    Raises:
        ValueError: the name contains a NUL, which would end the SQL.
    """
    return SQL('"' + _without_nul(name).replace('"', '""') + '"')


def joined(parts: Iterable[SQL]) -> SQL:
    """Join texts of SQL with commas."""
    return SQL(", ".join(parts))


def columns(names: Iterable[str], of: LiteralString | None = None) -> SQL:
    """Return a list of columns for SQL, of a table if one is given."""
    table = f"{of}." if of else ""
    return joined(SQL(f"{table}{identifier(name)}") for name in names)


def escaped(path: str | Path) -> str:
    """Return a file's path for DuckDB, which would otherwise read it as a pattern."""
    return _WILD.sub(r"[\g<0>]", str(path))


def read_parquet(*paths: str | Path, numbered: bool = False, named: bool = False) -> SQL:
    """Return SQL for the rows of Parquet files, with their names escaped.

    If numbered, rows have the columns file_index and file_row_number; if named, filename.
    """
    return statement(
        "read_parquet([$paths], hive_partitioning = false, file_row_number = $numbered, "
        "filename = $named)",
        paths=joined(literal(escaped(path)) for path in paths),
        numbered="true" if numbered else "false",
        named="true" if named else "false",
    )


def frame_of(rows: "duckdb.DuckDBPyRelation") -> "pl.DataFrame":
    """Run a query and return its rows.

    They come through Arrow, which has no integers of 128 bits. A HUGEINT, such as a `sum`, becomes
    a Decimal(38, 0), and a UHUGEINT the text of its digits.

    Raises:
        duckdb.Error: the query fails; a ConversionException if a HUGEINT has 39 digits.
    """
    import polars as pl

    if any("HUGEINT" in str(dtype) for dtype in rows.types):
        kinds = (SQL(_of_arrow(dtype)) for dtype in rows.types)
        values = joined(
            statement("#$place::$kind AS $name", place=place, kind=kind, name=identifier(name))
            for place, (kind, name) in enumerate(zip(kinds, rows.columns, strict=True), 1)
        )
        rows = rows.project(str(values))  # a subclass of str is refused
    return pl.DataFrame(rows.to_arrow_table())


def _of_arrow(dtype: Any) -> str:  # DuckDB's stubs mix children and sizes
    """Return a type whose values Arrow keeps to the last digit, at any depth."""
    match dtype.id:
        case "hugeint":
            return "DECIMAL(38,0)"
        case "uhugeint":
            return "VARCHAR"
        case "list" | "array":
            kind, *size = (child for _, child in dtype.children)
            return f"{_of_arrow(kind)}[{''.join(map(str, size))}]"
        case "map":
            return f"MAP({', '.join(_of_arrow(child) for _, child in dtype.children)})"
        case "struct":
            members = (f"{identifier(name)} {_of_arrow(child)}" for name, child in dtype.children)
            return f"STRUCT({', '.join(members)})"
        case _:
            return str(dtype)


def set_variables(connection: "duckdb.DuckDBPyConnection", /, **variables: object) -> None:
    """Set variables of a connection, which its SQL reads by `getvariable('name')`."""
    for name, value in variables.items():
        connection.execute(statement("SET VARIABLE $name = ?", name=name), [value])


@contextmanager
def small_work() -> Generator["duckdb.DuckDBPyConnection"]:
    """Yield a connection for work that needs little memory, to one instance of the whole process.

    Opening an instance takes longer than most queries. One thread at a time has the connection, so
    the names of its attached databases are its own; it detaches them. After an error the next
    caller gets a new instance.
    """
    with _SMALL:
        instance = _small_instance()
        try:
            with instance.cursor() as connection, stopped_by(connection.interrupt):
                yield connection
        except BaseException:
            _small_instance.cache_clear()
            instance.close()
            raise


@cache
def _small_instance() -> "duckdb.DuckDBPyConnection":
    import duckdb

    return duckdb.connect()


@cache
def available_bytes() -> int:
    """Return the memory of the machine, or the container's limit if that is less."""
    with small_work() as connection:  # DuckDB respects cgroups, and takes 80%
        setting = "SELECT current_setting('memory_limit')"
        [(limit,)] = connection.execute(setting).fetchall()
    number, unit = limit.split()
    return int(float(number) * _UNITS[unit] / 0.8)


def duckdb_limit(scores: int = 0) -> int:
    """Return how many bytes DuckDB may take: usually a quarter of the memory at most.

    Args:
        scores: the number of scores in quantiles, which cannot spill; they raise the limit, to half
            of the memory at most.
    """
    memory = available_bytes()
    quantiles = scores * _SCORE_BYTES
    return max(min(SPILLING_MEMORY_BYTES, memory // 4), min(quantiles, memory // 2))


def duckdb_config(spill: Path, scores: int = 0) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of a connection with bounded memory; see `duckdb_limit`.

    What does not fit goes into the folder `spill`, which is made if it is missing.
    """
    limit = f"{duckdb_limit(scores)}B"
    return {"memory_limit": limit, "temp_directory": str(spill), "threads": DUCKDB_THREADS}


def _substituted(text: str, values: dict[str, Value]) -> SQL:
    for name, value in values.items():
        if not _is_safe(value):
            raise TypeError(f"the value of ${name} is no SQL, number or plain name: {value!r}")
    return SQL(Template(text).substitute(values))


def _is_safe(value: object) -> bool:
    if isinstance(value, SQL):
        return True
    if isinstance(value, str):
        return _PLAIN.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"a NUL in a name or text: {text!r}")
    return text
