"""Replays the cache's history as a banded matrix product: every trace's novelty at its time.

Each trace is added and the cache is first in, first out, so trace i is compared with a contiguous
run of the traces before it, its window. A block of traces therefore needs one product with the rows
of all their windows.

A product's last bits vary with its shape, the threads and the library. So it only nominates: every
pair within a band of a row's greatest similarity. `vectors.cosines` decides between them. A change
here that changes a result raises `settings.REPLAY_VERSION`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from kp_batch.arguments import typed
from kp_batch.novelty.cache import novelty
from kp_batch.stopping import look
from kp_batch.vectors import Bools, Float32s, Float64s, Int64s, cosines, is_unit, nonzero

# Rows of one block: an eighth of the widest window, within these bounds. Longer blocks multiply
# faster, but more of their pairs are in no window.
_FEWEST, _MOST = 128, 256
_PAIRS = 256  # compared at once, since they are copied

# float32 products of unit vectors were off by at most 1.3e-6; a band of 1e-5 misses
# no true maximum and nominates few others.
BAND = np.float32(1e-5)
# float64 ones are off by at most `dimensions * 2**-53`, as are cosines: 1e-9 is beyond doubt.
NARROW_BAND = 1e-9
# So many pairs cost as much in a float64 product as one of them by `cosines`.
PAIRS_OF_A_COSINE = 16
# Columns of one product: it stays in a core's cache until it is looked at, and bounds the memory,
# however large the windows are. With 128 rows it is 1 MB.
_COLUMNS = 2_048
_NONE = np.float32(-np.inf)

# Looked at once for equal vectors, since they are copied: 512 x 384 float64 stay in a core's cache.
_ROWS = 512
_FOREVER = 1 << 62  # microseconds: a time that is as long ago still fits into an int64

_Pairs = tuple[Int64s, Int64s]  # of rows and columns


@dataclass(frozen=True)
class Replay:
    """The nearest trace in the cache of each trace. All arrays have one element a trace."""

    max_similarity: Float64s  # NaN where the cache was empty
    nearest: Int64s  # row of the nearest trace; -1 where there is none
    cache_size: Int64s  # vectors in the cache

    @property
    def novelty(self) -> Float64s:
        """Novelty of each trace at its own time; see `cache.novelty`."""
        return novelty(self.max_similarity)


@typed
def replay(
    vectors: Float32s,
    times: npt.ArrayLike,
    *,
    max_elements: int = 1_000,
    ttl: timedelta | None = None,
    block: int = _MOST,
) -> Replay:
    """Compute what `VectorCache` returns for each trace when they come one at a time.

    The result equals the cache's to the bit, whatever the block, the threads and the library. To
    replay a part of a history, begin `max_elements` rows earlier and drop those rows from the
    result.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        times: shape (n,), ascending: whole numbers are microseconds, a datetime64 has its unit.
        max_elements: the cache's capacity, at least 1.
        ttl: the cache's time to live, None for no limit.
        block: the most rows of one matrix product, at least 1; changes the speed, never the result.

    Raises:
        ValueError: lengths differ, times descend or are of another type, a row is neither unit nor
            zero, or max_elements, ttl or block is not positive.

    Returns:
        `max_similarity`, `nearest` (a row, -1 for none), `cache_size` and `novelty`, each of shape
        (n,).

    Examples:
        >>> import numpy as np
        >>> vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
        >>> times = np.array([0, 60_000_000, 120_000_000])
        >>> kp.replay(vectors, times).novelty.round(6)
        array([0.5, 1. , 0.2])
    """
    instants = _microseconds(times)
    if (instants[1:] < instants[:-1]).any():
        raise ValueError("times are ascending; sort the traces by (created_at, id)")
    if max_elements < 1 or (ttl is not None and ttl <= timedelta(0)):
        raise ValueError("max_elements and ttl are positive")
    return replay_windows(vectors, window_starts(instants, max_elements, ttl), block=block)


def _microseconds(times: npt.ArrayLike) -> Int64s:
    """Times as int64 in microseconds; finer ones are cut.

    Raises:
        ValueError: they are of another type, or one is missing or too large.
    """
    own = np.asarray(times)
    if own.ndim != 1 or (own.dtype.kind not in "iuM" and own.size):
        raise ValueError(
            "times are one row of whole numbers, which are microseconds, or of datetime64, got "
            f"{own.dtype} of shape {own.shape}; convert them, as by .astype('datetime64[us]')"
        )
    if own.dtype.kind == "M":
        if np.isnat(own).any():
            raise ValueError(f"the time of row {int(np.isnat(own).argmax())} is missing; drop it")
        own = own.astype("datetime64[us]")
    elif own.size and own.max() > np.iinfo(np.int64).max:
        raise ValueError(f"a time is {own.max()}, too large for microseconds in int64")
    return own.astype(np.int64)


def replay_windows(
    vectors: Float32s,
    starts: Int64s,
    *,
    first: int = 0,
    wanted: Bools | None = None,
    block: int = _MOST,
) -> Replay:
    """Find the nearest trace to each one within its window; see `replay`.

    Args:
        vectors: float32, shape (n, dimensions), unit or zero rows, in replay order.
        starts: int64, shape (n,), ascending: the window of row i is `[starts[i], i)`.
        first: the first row of the result; those before it are only in windows.
        wanted: bool, shape (n,): only these rows' results count, the others' may be anything; None
            for all.
        block: the most rows of one matrix product, at least 1; changes the speed, never the result.

    Raises:
        ValueError: the shapes differ, a row is neither unit nor zero, or block is not positive.
    """
    _check(vectors, starts, block)
    candidates = _Candidates.of(vectors, starts)
    sizes = np.arange(len(starts), dtype=np.int64) - starts
    best = _BestMatches.of(vectors)
    length = min(block, max(int(sizes.max(initial=0)) // 8, _FEWEST))
    rows = np.arange(len(starts)) if wanted is None else np.flatnonzero(wanted)
    for begin, end in _blocks(rows[np.searchsorted(rows, first) :], length):
        for row, column in candidates.nominate(begin, end):
            best.compare(row, column)
    similarity, nearest = _with_zeros(best, candidates.real, starts)
    return Replay(similarity[first:], nearest[first:], sizes[first:])


def _blocks(rows: Int64s, length: int) -> Iterator[tuple[int, int]]:
    """Cut ascending rows into ranges of at most this length, without gaps at their ends."""
    while len(rows):
        count = int(np.searchsorted(rows, rows[0] + length))
        yield int(rows[0]), int(rows[count - 1]) + 1
        rows = rows[count:]


def _check(vectors: Float32s, starts: Int64s, block: int) -> None:
    if vectors.ndim != 2 or vectors.dtype != np.float32 or len(vectors) != len(starts):
        raise ValueError(
            f"vectors are float32 of shape ({len(starts)}, dimensions), "
            f"got {vectors.dtype} of shape {vectors.shape}"
        )
    if block < 1:
        raise ValueError("block is positive")
    odd = ~is_unit(vectors)
    if odd.any():
        raise ValueError(
            f"row {int(odd.argmax())} is neither a unit nor a zero vector; normalise the vectors"
        )


@dataclass(frozen=True)
class _BestMatches:
    """The nearest trace to each by exact cosines, the oldest of equals.

    Pairs are copied into memory that is reused: fresh memory costs more than the arithmetic, and
    makes threads wait for each other.
    """

    vectors: Float32s
    similarity: Float64s
    nearest: Int64s
    pairs: Float32s  # shape (2, _PAIRS, dimensions)
    work: Float64s  # the same shape

    @classmethod
    def of(cls, vectors: Float32s) -> "_BestMatches":
        rows, shape = len(vectors), (2, _PAIRS, vectors.shape[1])
        similarity, nearest = np.full(rows, -np.inf), np.full(rows, -1, dtype=np.int64)
        return cls(vectors, similarity, nearest, np.empty(shape, np.float32), np.empty(shape))

    def compare(self, row: Int64s, column: Int64s) -> None:
        """Compare rows with columns, which ascend, also from one call to the next."""
        exact = np.empty(len(row))
        for start in range(0, len(row), _PAIRS):
            part = slice(start, start + _PAIRS)
            exact[part] = self._cosines(row[part], column[part])
        before = self.similarity[row]
        np.maximum.at(self.similarity, row, exact)
        won = np.flatnonzero((exact > before) & (exact == self.similarity[row]))[::-1]
        self.nearest[row[won]] = column[won]  # of equals the last assigned stays: the oldest

    def _cosines(self, row: Int64s, column: Int64s) -> Float64s:
        left, right = self.pairs[:, : len(row)]
        for rows, out in ((row, left), (column, right)):
            self.vectors.take(rows, axis=0, out=out, mode="clip")  # other modes copy once more
        return cosines(left, right, self.work[:, : len(row)])


def _with_zeros(best: _BestMatches, real: Bools, starts: Int64s) -> tuple[Float64s, Int64s]:
    """Let the similarity 0 of a zero vector beat negative ones; it is nearest to none.

    Where a window has no nearest, all its vectors are zero, or the row is.
    """
    similarity, nearest = best.similarity, best.nearest
    zeros_before = np.concatenate([[0], np.cumsum(~real)])
    has_zero = zeros_before[:-1] > zeros_before[starts]
    beaten = (nearest < 0) | (has_zero & (similarity < 0))
    similarity[beaten] = 0.0
    nearest[beaten] = -1
    similarity[starts == np.arange(len(starts))] = np.nan
    return similarity, nearest


@dataclass(frozen=True)
class _Candidates:
    """Finds, for some rows at a time, the columns that can be nearest to each.

    The columns of row i are its window `[starts[i], i)`.
    """

    vectors: Float32s  # shape (n, dimensions), unit or zero rows
    starts: Int64s  # shape (n,), ascending
    real: Bools  # shape (n,), which vectors are not zero
    twin: Int64s  # shape (n,), see `_previous_equal`

    @classmethod
    def of(cls, vectors: Float32s, starts: Int64s) -> "_Candidates":
        """Compute the fields of some vectors."""
        return cls(vectors, starts, nonzero(vectors), _previous_equal(vectors))

    def nominate(self, first: int, last: int) -> Iterator[_Pairs]:
        """Yield the pairs that may be nearest, of the rows from `first` to before `last`.

        For a row with a nonzero vector in its window these are the true nearest and all as similar,
        of equal vectors only the oldest. Columns ascend, also from one product to the next.
        """
        in_windows, block = self._in_windows(first, last), self.vectors[first:last]
        # Nothing is nearest to a zero vector: no similarity exceeds infinity.
        greatest = np.where(self.real[first:last], _NONE, -_NONE)
        for at in range(0, len(in_windows), _COLUMNS):
            look()
            columns = in_windows[at : at + _COLUMNS]
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

    def _in_windows(self, first: int, last: int) -> Int64s:
        """The rows in a block's windows but zero vectors and those with an older equal in them all.

        Without the latter, repeated texts are cheaper than different ones.
        """
        low = int(self.starts[first])
        oldest = self.twin[low:last] < self.starts[last - 1]
        return np.flatnonzero(self.real[low:last] & oldest) + low

    def _rows(self, rows: Int64s) -> Float32s:
        """The vectors of ascending rows, copied only where the rows are not consecutive."""
        low, high = int(rows[0]), int(rows[-1]) + 1
        return self.vectors[low:high] if high - low == len(rows) else self.vectors[rows]


def _blank_unseen(product: Float32s, columns: Int64s, first: int, starts: Int64s) -> None:
    """Blank, in place, the columns outside each row's window: itself, later and evicted rows.

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
    evicted = slice(0, int(np.searchsorted(columns, starts[-1])))
    product[evicted][columns[evicted, None] < starts] = _NONE


def _narrowed(tile: Float32s, block: Float32s, column: Int64s, row: Int64s) -> _Pairs:
    """Keep the pairs within a far narrower band, where many rows have many columns in common.

    Args:
        tile: the vectors of the columns.
        block: the vectors of the rows.
        column: ascending, counted in the tile.
        row: counted in the block.
    """
    new = np.diff(column, prepend=-1) > 0
    distinct = column[new]
    if len(column) * PAIRS_OF_A_COSINE <= len(distinct) * len(block):
        return column, row
    product = tile[distinct].astype(np.float64) @ block.astype(np.float64).T
    similarity = product[np.cumsum(new) - 1, row]
    greatest = np.full(len(block), -np.inf)
    np.maximum.at(greatest, row, similarity)
    close = similarity > greatest[row] - NARROW_BAND
    return column[close], row[close]


def _previous_equal(vectors: Float32s) -> Int64s:
    """The latest earlier row with an equal vector, -1 where there is none.

    Rows are grouped by their float64 product with one random vector, and neighbours within a group
    are compared. A collision can only hide an equal row, which costs time, never correctness.

    Args:
        vectors: float32, shape (n, dimensions).

    Returns:
        int64, shape (n,).
    """
    direction = np.random.default_rng(0).standard_normal(vectors.shape[1])
    hashes = np.empty(len(vectors), dtype=np.float64)
    for part in _parts(len(vectors)):
        # einsum, unlike a matrix product, sums each row in the same order.
        hashes[part] = np.einsum("ij,j->i", vectors[part].astype(np.float64), direction)
    order = np.argsort(hashes, kind="stable")
    grouped = np.flatnonzero(hashes[order[:-1]] == hashes[order[1:]])
    previous = np.full(len(vectors), -1, dtype=np.int64)
    for part in _parts(len(grouped)):
        earlier, later = order[grouped[part]], order[grouped[part] + 1]
        same = (vectors[earlier] == vectors[later]).all(axis=1)
        previous[later[same]] = earlier[same]
    return previous


def _parts(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _ROWS):
        look()
        yield slice(start, start + _ROWS)


def window_starts(
    times: Int64s, max_elements: int, ttl: timedelta | None, first: Int64s | int = 0
) -> Int64s:
    """The first row of each row's window: that of row i is `[start_i, i)`.

    Formula: `max(i - max_elements, first_i, first j with times[j] > times[i] - ttl)`.

    Args:
        times: int64, shape (n,), microseconds, ascending from `first_i` to i.
        max_elements: the cache's capacity, at least 0.
        ttl: the cache's time to live, None for no limit.
        first: int64, shape (n,), the first row that each window may have, no later than its own.

    Returns:
        int64, shape (n,), ascending where `first` does.
    """
    rows = np.arange(len(times), dtype=np.int64)
    low = np.maximum(rows - max_elements, first)
    if ttl is None:
        return low
    expired = times - min(ttl // timedelta(microseconds=1), _FOREVER)
    high = rows.copy()
    while (open_ := np.flatnonzero(low < high)).size:  # a binary search, of all rows at once
        middle = (low[open_] + high[open_]) // 2
        is_expired = times[middle] <= expired[open_]
        low[open_[is_expired]] = middle[is_expired] + 1
        high[open_[~is_expired]] = middle[~is_expired]
    return low
