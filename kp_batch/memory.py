"""How much memory there is, on the machine or in the container, and how much of it DuckDB takes."""

from pathlib import Path

import duckdb

# DuckDB sorts and joins what grows with the archive on disk; with more memory it is hardly faster.
_MOST_FOR_DUCKDB = 1 << 30
_SHARE_FOR_DUCKDB = 4  # a quarter: Polars, the vectors and the model take the rest
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def available_bytes() -> int:
    """The memory of the machine, or the limit of the container where that is less."""
    with duckdb.connect() as connection:  # it reads the limits of cgroups, and takes four fifths
        setting = "SELECT current_setting('memory_limit')"
        [(told,)] = connection.execute(setting).fetchall()
    number, unit = told.split()
    return int(float(number) * _UNITS[unit] / 0.8)


def duckdb_config(spill: Path) -> dict[str, str | bool | int | float | list[str]]:
    """Settings of a connection whose memory is bounded, whatever it is asked.

    Args:
        spill: the folder where it keeps what does not fit; made where it is missing.
    """
    limit = min(_MOST_FOR_DUCKDB, available_bytes() // _SHARE_FOR_DUCKDB)
    return {"memory_limit": f"{limit}B", "temp_directory": str(spill)}
