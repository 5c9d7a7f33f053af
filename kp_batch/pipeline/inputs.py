"""What an encoder is given: rows of staged files, looked up where they stand, cut into parts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from kp_batch.duck import read_parquet, set_variables, sql
from kp_batch.runs.staging import Staging
from kp_batch.vectors import Int64s

# Bytes of a part: a few long texts are one as well as many short ones.
_PART_BYTES = 64 << 20

Rows = tuple[int, int]  # from the first to the last one, which is excluded


def stage_inputs(
    staging: Staging, files: Sequence[Path], missing: Path, key: str, inputs: Path
) -> None:
    """Stage where each missing input stands; see inputs.sql.

    Args:
        staging: the run's files.
        files: staged ones, at least one, with the columns `bytes` and the key.
        missing: the file of the hashes of what is missing, `text_hash`.
        key: the column of the staged files that has them.
        inputs: the file that is written.
    """
    paths = sorted(map(str, files))
    staged, hashes = read_parquet(*paths, numbered=True), read_parquet(missing)
    query = sql(__name__, "inputs.sql", staged=staged, missing=hashes, key=key)
    with staging.connect() as connection:
        set_variables(connection, staged=paths, inputs=str(inputs))
        connection.execute(query)


def parts_of(inputs: Path, most: int) -> list[Rows]:
    """Cut staged inputs into parts of at most so many rows, fewer where they are large."""
    sizes = pl.read_parquet(inputs, columns=["bytes"], glob=False).to_series()
    least = _PART_BYTES // most
    return list(slices(np.maximum(sizes.to_numpy(), least), least * most))


def slices(sizes: Int64s, most: int) -> Iterator[Rows]:
    """Cut rows into slices, each as large as it may be, as `step.cut` does.

    Args:
        sizes: int64, shape (rows,), positive.
        most: the size of a slice, the sum of its rows'; a row that is larger is one by itself.
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        most_end = ends[first] - sizes[first] + most
        last = max(int(np.searchsorted(ends, most_end, side="right")), first + 1)
        yield first, last
        first = last


def read_inputs(part: Rows, inputs: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read a part of the staged inputs, in their order: the given columns of their files."""
    first, last = part
    places = pl.scan_parquet(inputs, glob=False).slice(first, last - first).collect()
    return pl.concat(
        rows_at(Path(str(path)), rows.get_column("row").to_numpy(), columns)
        for (path,), rows in places.group_by("path", maintain_order=True)
    )


def rows_at(path: Path, rows: Int64s, columns: Sequence[str]) -> pl.DataFrame:
    """Read some rows of a file, looking only at the row groups that hold them.

    Args:
        path: of the file.
        rows: int64, ascending, at least one.
        columns: which ones.
    """
    frames: list[pl.DataFrame] = []
    with pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups)
        counts = [file.metadata.row_group(group).num_rows for group in groups]
        starts = np.cumsum([0, *counts])
        group_of = np.searchsorted(starts, rows, side="right") - 1
        for group in np.unique(group_of):
            table = file.read_row_group(int(group), columns=list(columns))
            frames.append(pl.DataFrame(table)[rows[group_of == group] - starts[group]])
    return pl.concat(frames)
