"""DuckDB: SQL text, the only way to put a value into it, and how much memory DuckDB takes.

Values belong into parameters and variables. Where DuckDB takes none, as in views and names, a text
of SQL has `$names`, which are replaced by SQL of this module, numbers and plain names alone: never
by the content of a file.
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

_WILD = re.compile(r"[*?\[]")  # what DuckDB does not take as it is in the name of a file
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*")
# DuckDB sorts and joins what grows with the archive on disk; with more memory it is hardly faster.
SPILLING_MEMORY_BYTES = 1 << 30
# Each thread holds blocks that cannot be spilled: with four of them, a gigabyte was too little to
# join and sort a million traces.
DUCKDB_THREADS = 2
# Quantiles of twenty million scores, by domain and of all, took 720 MB.
_SCORE_BYTES = 36
_SMALL = RLock()
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class SQL(str):
    """SQL: a text of this package, or made here of values."""

    __slots__ = ()


Value = SQL | str | int | float  # a text that is not SQL has to be a plain name


def sql(module: str, name: str, /, **values: Value) -> SQL:
    """Read a file of SQL.

    Args:
        module: the name of a module in the same folder.
        name: the file's name.
        values: they replace the file's `$names`; without any, the file stays as it is.

    Raises:
        TypeError: a value is neither SQL, nor a finite number, nor a plain name.
    """
    text = files(module.rpartition(".")[0]).joinpath(name).read_text("utf-8")
    return _substituted(text, values) if values else SQL(text)


def statement(text: LiteralString, /, **values: Value) -> SQL:
    """Make SQL of a text in the code, whose `$names` the values replace.

    Raises:
        TypeError: a value is neither SQL, nor a finite number, nor a plain name.
    """
    return _substituted(text, values)


def literal(text: str | Path) -> SQL:
    """Quote a text as a literal of SQL.

    Raises:
        ValueError: it holds a NUL, at which SQL would end.
    """
    return SQL("'" + _without_nul(str(text)).replace("'", "''") + "'")


def identifier(name: str) -> SQL:
    """Quote any name as an identifier of SQL.

    Raises:
        ValueError: it holds a NUL, at which SQL would end.
    """
    return SQL('"' + _without_nul(name).replace('"', '""') + '"')


def joined(parts: Iterable[SQL]) -> SQL:
    """Join texts of SQL with commas."""
    return SQL(", ".join(parts))


def columns(names: Iterable[str], of: LiteralString | None = None) -> SQL:
    """The columns of these names, of a table if one is given."""
    table = f"{of}." if of else ""
    return joined(SQL(f"{table}{identifier(name)}") for name in names)


def escaped(path: str | Path) -> str:
    """The path of a file as DuckDB takes it, which reads patterns."""
    return _WILD.sub(r"[\g<0>]", str(path))


def read_parquet(*paths: str | Path, numbered: bool = False, named: bool = False) -> SQL:
    """The rows of one or more Parquet files, whose names DuckDB takes as they are, not as patterns.

    If numbered, they have the columns file_index and file_row_number; if named, filename.
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

    Arrow, by which they come, has no integers of 128 bits: a HUGEINT, as of `sum`, becomes a
    Decimal(38, 0), and a UHUGEINT the text of its digits.

    Raises:
        duckdb.Error: the query fails; a ConversionException, too, if a HUGEINT has 39 digits.
    """
    import polars as pl

    if any("HUGEINT" in str(dtype) for dtype in rows.types):
        kinds = (SQL(_of_arrow(dtype)) for dtype in rows.types)
        values = joined(
            statement("#$place::$kind AS $name", place=place, kind=kind, name=identifier(name))
            for place, (kind, name) in enumerate(zip(kinds, rows.columns, strict=True), 1)
        )
        rows = rows.project(str(values))  # it takes no subclass of str
    return pl.DataFrame(rows.to_arrow_table())


def _of_arrow(dtype: Any) -> str:  # DuckDB's stubs mix children and sizes
    """The type whose values Arrow has, to the last digit, at any depth."""
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
    """Set variables of a connection, which its SQL has as `getvariable('name')`."""
    for name, value in variables.items():
        connection.execute(statement("SET VARIABLE $name = ?", name=name), [value])


@contextmanager
def small_work() -> Generator["duckdb.DuckDBPyConnection"]:
    """A connection for what needs little memory, to an instance that the whole process has.

    To open an instance takes longer than most questions to it. One thread at a time has it, so that
    the names of attached databases are its own; it detaches them. After an error the next one gets
    another instance.
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
    """The memory of the machine, or the limit of the container where that is less."""
    with small_work() as connection:  # DuckDB reads the limits of cgroups, and takes 80%
        setting = "SELECT current_setting('memory_limit')"
        [(limit,)] = connection.execute(setting).fetchall()
    number, unit = limit.split()
    return int(float(number) * _UNITS[unit] / 0.8)


def duckdb_limit(scores: int = 0) -> int:
    """How many bytes DuckDB may take: for what it can spill, at most a quarter of the memory.

    Args:
        scores: the number of scores whose quantiles it finds, which cannot spill; at most half of
            the memory.
    """
    memory = available_bytes()
    return max(min(SPILLING_MEMORY_BYTES, memory // 4), min(quantile_bytes(scores), memory // 2))


def quantile_bytes(scores: int) -> int:
    """The memory for finding the quantiles of so many scores, about."""
    return scores * _SCORE_BYTES


def duckdb_config(spill: Path, scores: int = 0) -> dict[str, str | bool | int | float | list[str]]:
    """Settings of a connection whose memory is bounded, see `duckdb_limit`, whatever the query.

    What does not fit goes into the folder `spill`, which is made where it is missing.
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
