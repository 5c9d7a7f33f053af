"""Nominates the pairs of traces that can be nearest, by matrix products.

A product's last bits vary with its shape, the threads and the library. So it nominates every pair
within a band of a row's greatest similarity, and `vectors.cosines` decides between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kp_batch.novelty.twins import previous_equal
from kp_batch.vectors import Bools, Float32s, Int64s, nonzero

# float32 products of unit vectors were off by at most 1.3e-6; a band of 1e-5 misses
# no true maximum and nominates few others.
BAND = np.float32(1e-5)
# float64 ones are off by at most `dimensions * 2**-53`, as are cosines: 1e-9 is beyond doubt.
_NARROW_BAND = 1e-9
# So many pairs cost as much in a float64 product as one of them by `cosines`.
_PAIRS_OF_A_COSINE = 16
# Columns of one product: it stays in a core's cache until it is looked at, and bounds the memory,
# however large the windows are. With 128 rows it is 1 MB.
_COLUMNS = 2_048
_NONE = np.float32(-np.inf)

Pairs = tuple[Int64s, Int64s]


@dataclass(frozen=True)
class Candidates:
    """Finds, for some rows at a time, what can be nearest to each.

    Row i meets rows `[starts[i], i)`, the columns of its products.
    """

    vectors: Float32s  # shape (n, dimensions), unit or zero rows
    starts: Int64s  # shape (n,), ascending
    real: Bools  # shape (n,), which vectors are not zero
    twin: Int64s  # shape (n,), see `previous_equal`

    @classmethod
    def of(cls, vectors: Float32s, starts: Int64s) -> "Candidates":
        """Look at the vectors; see the fields."""
        return cls(vectors, starts, nonzero(vectors), previous_equal(vectors))

    def nominate(self, first: int, last: int) -> Iterator[Pairs]:
        """Yield what may be nearest to the rows from `first` to `last`, which is excluded.

        Of each row that meets a nonzero vector the true nearest is among it, and all that are as
        similar, of equal vectors the oldest alone. Columns ascend, from one product to the next.
        """
        met, block = self._met(first, last), self.vectors[first:last]
        # Nothing is nearest to a zero vector: no similarity exceeds infinity.
        greatest = np.where(self.real[first:last], _NONE, -_NONE)
        for at in range(0, len(met), _COLUMNS):
            columns = met[at : at + _COLUMNS]
            tile = self._rows(columns)
            product = tile @ block.T  # the other way round it takes a tenth longer
            _blank_unseen(product, columns, first, self.starts[first:last])
            np.maximum(greatest, product.max(axis=0), out=greatest)
            # flatnonzero is several times as fast as nonzero where hits are this rare.
            hits = np.flatnonzero(product > greatest - BAND)
            column, row = np.divmod(hits, len(block))
            oldest = self.twin[columns[column]] < self.starts[row + first]
            column, row = _narrowed(tile, block, column[oldest], row[oldest])
            yield row + first, columns[column]

    def _met(self, first: int, last: int) -> Int64s:
        """What a block meets, but for zero vectors and what equals an older one for all its rows.

        Leaving these out makes repeated texts cheaper than different ones.
        """
        low = int(self.starts[first])
        oldest = self.twin[low:last] < self.starts[last - 1]
        return np.flatnonzero(self.real[low:last] & oldest) + low

    def _rows(self, rows: Int64s) -> Float32s:
        """The vectors of ascending rows, which are copied only where they are not neighbours."""
        low, high = int(rows[0]), int(rows[-1]) + 1
        return self.vectors[low:high] if high - low == len(rows) else self.vectors[rows]


def _blank_unseen(product: Float32s, columns: Int64s, first: int, starts: Int64s) -> None:
    """Blank, in place, the columns outside each row's window: itself, later and dropped rows.

    Only the two triangles in which the block's rows differ are compared.

    Args:
        product: shape (columns, rows).
        columns: ascending.
        first: of the block's rows.
        starts: of the block's rows.
    """
    rows = np.arange(first, first + len(starts))
    later = slice(int(np.searchsorted(columns, first)), None)
    product[later][columns[later, None] >= rows] = _NONE
    gone = slice(0, int(np.searchsorted(columns, starts[-1])))
    product[gone][columns[gone, None] < starts] = _NONE


def _narrowed(tile: Float32s, block: Float32s, column: Int64s, row: Int64s) -> Pairs:
    """Leave the pairs within a far narrower band, where many rows have many columns in common.

    Args:
        tile: the vectors of the columns.
        block: the vectors of the rows.
        column: ascending, counted in the tile.
        row: counted in the block.
    """
    new = np.diff(column, prepend=-1) > 0
    held = column[new]
    if len(column) * _PAIRS_OF_A_COSINE <= len(held) * len(block):
        return column, row
    product = tile[held].astype(np.float64) @ block.astype(np.float64).T
    similarity = product[np.cumsum(new) - 1, row]
    greatest = np.full(len(block), -np.inf)
    np.maximum.at(greatest, row, similarity)
    close = similarity > greatest[row] - _NARROW_BAND
    return column[close], row[close]
