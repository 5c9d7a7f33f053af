"""How large a part of the work may be: so many rows, or fewer where rows are large."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

PART_ROWS = 65_536
# Of a part, uncompressed: the rows of tiny traces take less, ids of 10,000 letters far more.
PART_BYTES = 64 << 20


def rows_in_part(paths: Iterable[Path]) -> int:
    """How many rows of some Parquet files are a part: by their mean size, and at least one."""
    groups = [
        metadata.row_group(number)
        for metadata in map(pq.read_metadata, paths)
        for number in range(metadata.num_row_groups)
    ]
    size = sum(group.total_byte_size for group in groups)
    rows = sum(group.num_rows for group in groups)
    return max(min(PART_ROWS, PART_BYTES * rows // max(size, 1)), 1)
