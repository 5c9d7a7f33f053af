"""How much memory there is, on the machine or in the container, and how much of it DuckDB takes."""

from functools import cache
from pathlib import Path

import duckdb

# DuckDB sorts and joins what grows with the archive on disk; with more memory it is hardly faster.
_MOST_FOR_DUCKDB = 1 << 30
# Quantiles of twenty million scores, by domain and of all, took 720 MB.
_SCORE_BYTES = 36
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@cache  # to open DuckDB takes longer than most questions to it
def available_bytes() -> int:
    """The memory of the machine, or the limit of the container where that is less."""
    with duckdb.connect() as connection:  # it reads the limits of cgroups, and takes four fifths
        setting = "SELECT current_setting('memory_limit')"
        [(told,)] = connection.execute(setting).fetchall()
    number, unit = told.split()
    return int(float(number) * _UNITS[unit] / 0.8)


def duckdb_limit(most: int = _MOST_FOR_DUCKDB, scores: int = 0) -> int:
    """How many bytes DuckDB may take.

    Args:
        most: where it can spill; not more than a quarter of the memory.
        scores: of which it finds quantiles, which it cannot spill; not more than half of it.
    """
    there_is = available_bytes()
    return max(min(most, there_is // 4), min(bytes_of_quantiles(scores), there_is // 2))


def bytes_of_quantiles(scores: int) -> int:
    """What finding their quantiles takes, about."""
    return scores * _SCORE_BYTES


def duckdb_config(spill: Path, scores: int = 0) -> dict[str, str | bool | int | float | list[str]]:
    """Settings of a connection whose memory is bounded, whatever it is asked.

    Args:
        spill: the folder where it keeps what does not fit; made where it is missing.
        scores: see `duckdb_limit`.
    """
    return {"memory_limit": f"{duckdb_limit(scores=scores)}B", "temp_directory": str(spill)}
