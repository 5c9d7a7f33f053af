"""Finds nearest vectors by cosine: a matrix product nominates, the exact cosine decides.

The last bits of a matrix product vary with its shape, the threads and the library. So it only
nominates every pair within a band of a query's greatest similarity. `vectors.cosines` decides
between them. The result is the same to the bit, however the vectors are cut into tiles and the
queries into blocks. A change here that changes a result raises `settings.REPLAY_VERSION`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from kp_batch.stopping import raise_if_unwanted
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s, cosines, nonzero

# Rows (queries) of one product: an eighth of the widest window, within these bounds. Longer blocks
# multiply faster, but more of their pairs lie outside all windows.
MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 128, 256
# Columns of one product: it stays in a core's cache until it is searched, and bounds the memory for
# windows of any size: 2 MB with 256 queries.
BLOCK_COLUMNS = 2_048
BATCH_PAIRS = 256  # compared at once, since they are copied
# Searched at once for equal vectors, since they are copied: 512 x 384 float64 fit a core's cache.
_ROWS = 512

# float32 products of unit vectors were off by at most 1.3e-6. A band of 1e-5 misses no true maximum
# and nominates few others.
BAND = np.float32(1e-5)
# float64 products are off by at most `dimensions * 2**-53`, and so are cosines: 1e-9 is safe.
_NARROW_BAND = 1e-9
# In a float64 product, this many pairs cost as much as one pair by `cosines`.
PAIRS_PER_COSINE = 16
_NONE = np.float32(-np.inf)
_END = np.iinfo(np.int64).max

_Pairs = tuple[Int64s, Int64s]  # of queries and columns


@dataclass(frozen=True)
class Windows:
    """The columns that each query is compared with: `[first, end)`, except for `without`.

    Each array has shape (queries,); `first` and `end` ascend.
    """

    first: Int64s
    end: Int64s
    without: Int64s | None = None  # a column, or -1
    wanted: Bools | None = None  # which queries to search for; None for all

    @classmethod
    def all(cls, queries: int, without: Int64s | None = None) -> "Windows":
        """All columns."""
        return cls(np.zeros(queries, np.int64), np.full(queries, _END), without)


@dataclass(frozen=True)
class Matches:
    """The columns nearest to each query."""

    columns: Int64s  # shape (queries, k), the nearest first; -1 where there are fewer
    cosines: Float64s  # the same shape; -inf where there are fewer
    met: Int64s  # shape (queries,), columns in its window
    zeros: Int64s  # shape (queries,), zero vectors among these

    @property
    def found(self) -> Bools:
        """Which queries have a column: bool, shape (queries,)."""
        return self.columns[:, 0] >= 0

    @property
    def max_similarity(self) -> Float64s:
        """As `VectorCache.max_cosine_similarity`, NaN for None: float64, shape (queries,).

        The similarity 0 of a zero vector beats negative ones. If no column is nearest, all vectors
        of the window are zero, or the query is.
        """
        best = self.cosines[:, 0]
        beaten = ~self.found | ((self.zeros > 0) & (best < 0))
        return np.where(self.met == 0, np.nan, np.where(beaten, 0.0, best))

    def joined(self, earlier: "Matches") -> "Matches":
        """Combine with the result for earlier columns, for k = 1."""
        wins = earlier.cosines >= self.cosines
        return Matches(
            np.where(wins, earlier.columns, self.columns),
            np.where(wins, earlier.cosines, self.cosines),
            self.met + earlier.met,
            self.zeros + earlier.zeros,
        )


def nearest(
    queries: Float32s,
    tiles: Iterable[Float32s],
    k: int = 1,
    bound: float | None = None,
    windows: Windows | None = None,
) -> Matches:
    """Find the k columns with the greatest cosine to each query; among equals, the first.

    Zero vectors are never nearest, and have no nearest column.

    With a bound, any k columns that reach it will do, and the search for a query ends when it has
    them. A column reaches the bound by its cosine, or because it equals the query: rounding may
    leave the cosine of equal vectors below 1, so it counts as at least 1.

    Args:
        queries: float32, shape (queries, dimensions), unit or zero rows.
        tiles: the columns in their order, some at a time: float32, shape (columns, dimensions),
            unit or zero rows.
        k: at least 1.
        bound: the smallest cosine that is enough, above 0 and at most 1.
        windows: the columns that each query is compared with; None for all.
    """
    own = windows or Windows.all(len(queries))
    is_open = nonzero(queries) & (own.first < own.end)
    if own.wanted is not None:
        is_open &= own.wanted
    search = _Search(queries, k, bound, own, is_open)
    begin = 0
    for tile in tiles:
        for start in range(0, len(tile), BLOCK_COLUMNS):
            search.meet(tile[start : start + BLOCK_COLUMNS], begin + start)
        begin += len(tile)
    return search.matches(begin)


@dataclass(frozen=True)
class _Tile:
    """Some consecutive columns."""

    vectors: Float32s
    begin: int  # the number of the first
    real: Bools  # which are not zero
    twin: Int64s  # the number of the latest earlier equal one in the tile, -1 for none


@dataclass
class _Search:
    """The nearest columns of some queries, among the columns compared so far.

    Pairs are copied into memory that is reused: new memory costs more than the arithmetic, and
    makes threads wait for each other.
    """

    queries: Float32s
    k: int
    bound: float | None
    windows: Windows
    is_open: Bools  # the queries that are still compared
    zeros: list[Int64s] = field(default_factory=list[Int64s])  # columns

    def __post_init__(self) -> None:
        count, dimensions = self.queries.shape
        self.columns = np.full((count, self.k), -1, dtype=np.int64)
        self.cosines = np.full((count, self.k), -np.inf)
        self.pairs = np.empty((2, BATCH_PAIRS, dimensions), np.float32)
        self.work = np.empty((2, BATCH_PAIRS, dimensions))
        widest = int((self.windows.end - self.windows.first).max(initial=0))
        self.at_once = min(max(widest // 8, MIN_BLOCK_ROWS), MAX_BLOCK_ROWS)

    def meet(self, vectors: Float32s, begin: int) -> None:
        """Compare the queries with more columns, `begin` the number of the first."""
        real = nonzero(vectors)
        self.zeros.append(begin + np.flatnonzero(~real))
        low = int(np.searchsorted(self.windows.end, begin, "right"))
        high = int(np.searchsorted(self.windows.first, begin + len(vectors)))
        if not (open_ := low + np.flatnonzero(self.is_open[low:high])).size:
            return
        # Of equal columns only the oldest of a window counts, so repeats are cheap.
        are_dropped = self.k == 1 and self.windows.without is None
        twin = _previous_equal(vectors) if are_dropped else np.full(len(vectors), -1)
        twin[twin >= 0] += begin
        tile = _Tile(vectors, begin, real, twin)
        for rows in _blocks(open_, self.at_once):
            raise_if_unwanted()
            self._compare(tile, *self._nominated(tile, rows))

    def matches(self, count: int) -> Matches:
        """The result over all columns."""
        zeros = np.concatenate([np.empty(0, np.int64), *self.zeros])
        every = np.arange(count)
        return Matches(self.columns, self.cosines, self._number(every), self._number(zeros))

    def _number(self, columns: Int64s) -> Int64s:
        """Return how many of some columns are in each window."""
        own = self.windows
        low, high = np.searchsorted(columns, own.first), np.searchsorted(columns, own.end)
        number = np.maximum(high - low, 0)
        if own.without is None:
            return number
        is_inside = (own.without >= own.first) & (own.without < own.end)
        return number - (is_inside & np.isin(own.without, columns))

    def _nominated(self, tile: _Tile, rows: Int64s) -> _Pairs:
        """Return the pairs of a block of queries and a tile's columns that may be the nearest.

        They include the true nearest, and all as similar; of equal vectors only the oldest.
        """
        columns = self._in_windows(tile, rows)
        # Copied only where they are not consecutive.
        vectors, block = _taken(tile.vectors, columns), _taken(self.queries, rows)
        product = vectors @ block.T  # the other way round it takes a tenth longer
        self._blank_outside(product, tile.begin + columns, rows)
        least = np.maximum(_kth_greatest(product, self.k), self.cosines[rows, -1])
        least = np.maximum(least, -1 if self.bound is None else self.bound).astype(np.float32)
        # flatnonzero is several times as fast as nonzero if hits are this rare.
        column, row = np.divmod(np.flatnonzero(product > least - BAND), max(len(block), 1))
        is_oldest = tile.twin[columns[column]] < self.windows.first[rows[row]]
        column, row = column[is_oldest], row[is_oldest]
        if self.k == 1:
            column, row = self._narrowed(vectors, block, column, row)
        return rows[row], columns[column]

    def _in_windows(self, tile: _Tile, rows: Int64s) -> Int64s:
        """Return the columns in a block's windows, counted in the tile.

        Zero vectors are left out, and so are vectors with an older equal one in all windows.
        """
        first, last = self.windows.first[rows[[0, -1]]]
        low, high = max(int(first) - tile.begin, 0), int(self.windows.end[rows[-1]]) - tile.begin
        is_oldest = tile.twin[low:high] < last
        return low + np.flatnonzero(tile.real[low:high] & is_oldest)

    def _blank_outside(self, product: Float32s, columns: Int64s, rows: Int64s) -> None:
        """Blank, in place, what lies outside each query's window.

        Only the two triangles in which the block's windows differ are compared.

        Args:
            product: shape (columns, rows).
            columns: ascending.
            rows: the block's.
        """
        first, end = self.windows.first[rows], self.windows.end[rows]
        later = slice(int(np.searchsorted(columns, end[0])), None)
        product[later][columns[later, None] >= end] = _NONE
        earlier = slice(0, int(np.searchsorted(columns, first[-1])))
        product[earlier][columns[earlier, None] < first] = _NONE
        if self.windows.without is not None:
            product[columns[:, None] == self.windows.without[rows]] = _NONE

    def _narrowed(self, tile: Float32s, block: Float32s, column: Int64s, row: Int64s) -> _Pairs:
        """Keep the pairs within a far narrower band, where many rows have many columns in common.

        Args:
            tile: the vectors of the columns.
            block: the vectors of the rows.
            column: ascending, counted in the tile.
            row: counted in the block.
        """
        new = np.diff(column, prepend=-1) > 0
        distinct = column[new]
        if len(column) * PAIRS_PER_COSINE <= len(distinct) * len(block):
            return column, row
        product = tile[distinct].astype(np.float64) @ block.astype(np.float64).T
        similarity = product[np.cumsum(new) - 1, row]
        greatest = np.full(len(block), -np.inf)
        np.maximum.at(greatest, row, similarity)
        if self.bound is not None:  # equal vectors reach it with any cosine
            greatest = np.minimum(greatest, 1 - float(BAND))
        close = similarity > greatest[row] - _NARROW_BAND
        return column[close], row[close]

    def _compare(self, tile: _Tile, row: Int64s, column: Int64s) -> None:
        """Compare some pairs by their exact cosines."""
        exact = np.empty(len(row))
        for start in range(0, len(row), BATCH_PAIRS):
            part = slice(start, start + BATCH_PAIRS)
            exact[part] = self._cosines(tile, row[part], column[part])
        reach = slice(None) if self.bound is None else exact >= self.bound
        self._keep(row[reach], tile.begin + column[reach], exact[reach])

    def _cosines(self, tile: _Tile, row: Int64s, column: Int64s) -> Float64s:
        left, right = self.pairs[:, : len(row)]
        # Other modes copy once more.
        self.queries.take(row, axis=0, out=left, mode="clip")
        tile.vectors.take(column, axis=0, out=right, mode="clip")
        exact = cosines(left, right, self.work[:, : len(row)])
        return exact if self.bound is None else np.maximum(exact, (left == right).all(axis=1))

    def _keep(self, row: Int64s, column: Int64s, exact: Float64s) -> None:
        """Keep the k greatest of each row, the first among equals."""
        own = np.unique(row)
        rows = np.concatenate([np.repeat(own, self.k), row])
        columns = np.concatenate([self.columns[own].ravel(), column])
        found = np.concatenate([self.cosines[own].ravel(), exact])
        order = np.lexsort((columns, -found, rows))
        rank = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])
        best = order[rank < self.k].reshape(-1, self.k)
        self.columns[own], self.cosines[own] = columns[best], found[best]
        if self.bound is not None:
            self.is_open[own] = self.columns[own, -1] < 0


def _blocks(rows: Int64s, length: int) -> Iterator[Int64s]:
    """Cut ascending rows into parts, each within a range of this length."""
    while len(rows):
        count = int(np.searchsorted(rows, rows[0] + length))
        yield rows[:count]
        rows = rows[count:]


def _taken(vectors: Float32s, rows: Int64s) -> Float32s:
    """The vectors of ascending rows, copied only where the rows are not consecutive."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return vectors[int(rows[0]) : int(rows[-1]) + 1]
    return vectors[rows]


def _kth_greatest(product: Float32s, k: int) -> Float32s:
    """The k-th greatest of each column; -inf where there are fewer: shape (columns,)."""
    if len(product) < k:
        return np.full(product.shape[1], _NONE)
    if k == 1:
        return product.max(axis=0)
    return np.partition(product, len(product) - k, axis=0)[len(product) - k]


def _previous_equal(vectors: Float32s) -> Int64s:
    """Return the latest earlier row with an equal vector, or -1: int64, shape (n,).

    Rows are grouped by their float64 product with one random vector, and neighbours within a group
    are compared. A collision can only hide an equal row, which costs time, not correctness.
    """
    direction = np.random.default_rng(0).standard_normal(vectors.shape[1])
    hashes = np.empty(len(vectors), dtype=np.float64)
    for start in range(0, len(vectors), _ROWS):
        part = slice(start, start + _ROWS)
        # einsum, unlike a matrix product, sums each row in the same order.
        hashes[part] = np.einsum("ij,j->i", vectors[part].astype(np.float64), direction)
    order = np.argsort(hashes, kind="stable")
    grouped = np.flatnonzero(hashes[order[:-1]] == hashes[order[1:]])
    previous = np.full(len(vectors), -1, dtype=np.int64)
    for start in range(0, len(grouped), _ROWS):
        group = grouped[start : start + _ROWS]
        earlier, later = order[group], order[group + 1]
        same = (vectors[earlier] == vectors[later]).all(axis=1)
        previous[later[same]] = earlier[same]
    return previous
