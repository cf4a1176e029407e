"""Sources of Gram rows for the SMO solver: a matrix, or features and a kernel.

A source holds all N training rows; a problem uses some of them. `RowPool` joins the two for the jitted
code: it lays out one problem's `RowSource` and a bounded `RowCache`, and reuses its memory from problem to
problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, DTypeLike, NDArray

from polymargin._threads import blas_threads_for
from polymargin.solvers import _smo_rows as kernels
from polymargin.solvers._smo_rows import RowCache, RowSource

Array = NDArray[Any]
#: Scaled features, transposed, shape (d', n), and −½|x|² of their columns.
ScaledFeatures = tuple[Array, Array]

_KINDS = {
    "linear": kernels.LINEAR,
    "poly": kernels.POLY,
    "rbf": kernels.RBF,
    "laplacian": kernels.LAPLACIAN,
    "exponential": kernels.EXPONENTIAL,
}
#: Kernels that a shift of the rows does not change, and that are one on the diagonal.
_OF_DISTANCES = ("rbf", "laplacian", "exponential")
#: Taylor coefficients of 2^x.
_EXP2 = np.array([math.log(2.0) ** k / math.factorial(k) for k in range(13)])
#: Rows per block of a Gram matrix that is computed block by block; fixed, so that nothing depends on threads.
BLOCK_ROWS = 256


class GramSource(Protocol):
    """The interface of Gram matrices, in memory or computed on demand.

    See Also
    --------
    DenseGram, LazyGram, SharedGram : The implementations.
    """

    n_rows: int
    #: Precision of the rows at first, and the error of one kernel value against the same row in float64.
    dtype: np.dtype[Any]
    rounding: float

    @property
    def largest(self) -> float:
        """The largest absolute kernel value."""
        ...

    def problem_rows(self, index: Array | None, dtype: DTypeLike) -> RowSource:
        """Return the row source of the problem on the rows ``index`` (None: all), in the given precision.

        Parameters
        ----------
        index : ndarray of int or None
            The rows of the problem; None: all.
        dtype : dtype
            The precision of the rows.

        Returns
        -------
        RowSource
        """
        ...


class DenseGram:
    """A Gram matrix in memory.

    Parameters
    ----------
    K : array of shape (N, N)
        Symmetric; float32 and float64 are kept, anything else becomes float64.

    See Also
    --------
    LazyGram : Rows are computed when they are needed.

    Examples
    --------
    >>> DenseGram([[2, 1], [1, 2]]).n_rows
    2
    """

    def __init__(self, K: ArrayLike) -> None:
        K = np.asarray(K)
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise ValueError(f"a Gram matrix is square; this one has shape {K.shape}")
        if K.dtype not in (np.float32, np.float64):
            K = K.astype(np.float64)
        # A read-only matrix would be another type to the compiler.
        self.K = np.require(K, requirements=["C", "A", "W"])
        self.n_rows = K.shape[0]
        self.dtype = self.K.dtype
        self.rounding = 0.0  # the given matrix defines the problem

    @property
    def largest(self) -> float:
        """The largest absolute kernel value."""
        return float(max(self.K.max(initial=0.0), -self.K.min(initial=0.0)))

    def problem_rows(self, index: Array | None, dtype: DTypeLike) -> RowSource:
        """Return the row source of the problem on the rows ``index`` (None: all).

        Parameters
        ----------
        index : ndarray of int or None
            The rows of the problem; None: all.
        dtype : dtype
            The precision of the rows.

        Returns
        -------
        RowSource
        """
        K = self.K
        if K.dtype != dtype:
            K, index = (K if index is None else K[np.ix_(index, index)]).astype(dtype), None
        return _dense_rows(K, np.arange(K.shape[0]) if index is None else index)


class SharedGram(DenseGram):
    """A `LazyGram` computed in full for many problems; what float32 cannot solve goes back to its features.

    Parameters
    ----------
    lazy : LazyGram
    order : array of shape (n,)
        The rows to compute, in an order that makes the rows of a problem consecutive as far as possible.
    n_threads : int

    See Also
    --------
    LazyGram : The source of its values.

    Examples
    --------
    >>> lazy = LazyGram([[0.0], [1.0], [2.0]], "linear")
    >>> SharedGram(lazy, np.array([2, 1])).K
    array([[4., 2.],
           [2., 1.]], dtype=float32)
    """

    def __init__(self, lazy: LazyGram, order: Array, n_threads: int = 1) -> None:
        super().__init__(lazy.dense(order, n_threads))
        self.lazy, self.n_rows, self.rounding = lazy, lazy.n_rows, lazy.rounding
        self.place = np.full(lazy.n_rows, -1)
        self.place[order] = np.arange(order.size)

    def problem_rows(self, index: Array | None, dtype: DTypeLike) -> RowSource:
        """Return the row source of the problem on the rows ``index`` (None: all).

        Parameters
        ----------
        index : ndarray of int or None
            The rows of the problem; None: all.
        dtype : dtype
            The precision of the rows.

        Returns
        -------
        RowSource
        """
        if self.dtype != dtype:
            return self.lazy.problem_rows(index, dtype)
        return _dense_rows(self.K, self.place if index is None else self.place[index])


class LazyGram:
    """The Gram matrix of a kernel on the rows of X, of which only the rows that SMO asks for are computed.

    Parameters
    ----------
    X : array of shape (N, d)
    kernel : {"rbf", "linear", "poly", "laplacian", "exponential"}
        exp(-gamma |x - z|²), x·z, (gamma x·z + coef0)^degree, exp(-gamma |x - z|₁), exp(-gamma |x - z|).
    gamma, coef0, degree
        The kernel's parameters; the degree is a whole number.
    dtype : float32 or float64
        Precision of the kernel values. The solver goes on in float64 by itself where float32 is not enough.

    See Also
    --------
    DenseGram : A matrix in memory.
    polymargin.kernels.Kernel.smo_arguments : The arguments for a kernel.

    Examples
    --------
    >>> source = LazyGram([[0.0], [1.0]], "rbf", gamma=0.5)
    >>> source.dense().round(4)
    array([[1.    , 0.6065], [0.6065, 1.    ]], dtype=float32)
    """

    def __init__(
        self,
        X: ArrayLike,
        kernel: str = "rbf",
        *,
        gamma: float = 1.0,
        coef0: float = 0.0,
        degree: int = 3,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if kernel not in _KINDS:
            raise ValueError(f"rows of the kernel {kernel!r} cannot be computed lazily; choose one of "
                             f"{', '.join(_KINDS)}, or pass DenseGram(K)")  # fmt: skip
        if kernel == "poly" and (degree != int(degree) or degree < 1):
            raise ValueError(f"lazy polynomial rows need a whole degree, not {degree}; pass DenseGram(K)")
        self.kind = _KINDS[kernel]
        self.kernel, self.gamma, self.coef0, self.degree = kernel, float(gamma), float(coef0), int(degree)
        X = np.asarray(X, dtype=np.float64)
        # Distances do not see a shift, float32 does.
        self.centre = X.mean(axis=0) if kernel in _OF_DISTANCES else np.zeros(X.shape[1])
        self.n_rows, self.n_features = X.shape
        self.dtype = np.dtype(dtype)
        self._X = X
        self._table, self._half_norms = self._features(X, self.dtype)
        largest = max(1.0, float(-self._half_norms.min(initial=0.0)))
        self.rounding = float(np.finfo(np.float32).eps) * largest if self.dtype == np.float32 else 0.0

    @property
    def largest(self) -> float:
        """The largest absolute kernel value, which is on the diagonal."""
        return float(self._diagonal(self._table).max(initial=0.0))

    def problem_rows(self, index: Array | None, dtype: DTypeLike) -> RowSource:
        """Return the row source of the problem on the rows ``index`` (None: all), with its own copy of X.

        Parameters
        ----------
        index : ndarray of int or None
            The rows of the problem; None: all.
        dtype : dtype
            The precision of the rows.

        Returns
        -------
        RowSource
        """
        if self.dtype != dtype:
            table, half_norms = self._features(self._X if index is None else self._X[index], dtype)
        elif index is None:
            table, half_norms = self._table, self._half_norms
        else:
            table, half_norms = np.take(self._table, index, axis=1), self._half_norms[index]
        diagonal = self._diagonal(table)
        nothing, no_runs = np.empty(0, dtype=np.intp), np.empty((0, 3), dtype=np.intp)
        series = _EXP2.astype(dtype)
        return RowSource(
            self.kind, table, nothing, no_runs, half_norms, diagonal, series, self.coef0, self.degree
        )

    def features(self, X: Array) -> ScaledFeatures:
        """Return new rows in the form that `between` takes.

        Parameters
        ----------
        X : array of shape (m, d)
            New rows.

        Returns
        -------
        tuple of ndarray
        """
        X = np.asarray(X, dtype=np.float64)
        if X.shape[1] != self.n_features:
            raise ValueError(f"the rows have {X.shape[1]} features, the support vectors {self.n_features}")
        return self._features(X, self.dtype)

    def panel(self, rows: Array) -> ScaledFeatures:
        """Return training rows in the form that `between` takes.

        Parameters
        ----------
        rows : ndarray of int
            Which rows.

        Returns
        -------
        tuple of ndarray
        """
        return np.take(self._table, rows, axis=1), self._half_norms[rows]

    def between(self, left: ScaledFeatures, right: ScaledFeatures) -> Array:
        """Return the kernel values between two sets of rows, shape (m, n).

        Parameters
        ----------
        left, right : tuple of ndarray
            See `features` and `panel`.

        Returns
        -------
        ndarray of shape (m, n)
        """
        block = np.empty((left[0].shape[1], right[0].shape[1]), dtype=self.dtype)
        self._write_block(block, left, right)
        return block

    def dense(self, order: Array | None = None, n_threads: int = 1) -> Array:
        """Return the Gram matrix of all rows, or of the rows in ``order``.

        Parameters
        ----------
        order : ndarray of int or None
            The rows; None: all.
        n_threads : int, default=1
            Blocks that are computed at a time.

        Returns
        -------
        ndarray of shape (n, n)
        """
        table, half_norms = (self._table, self._half_norms) if order is None else self.panel(order)
        diagonal, n = self._diagonal(table), table.shape[1]
        K = np.empty((n, n), dtype=self.dtype)

        def write_rows(start: int) -> None:
            """Compute the rows of one block right of the diagonal and mirror them below it."""
            rows = slice(start, min(start + BLOCK_ROWS, n))
            block = np.empty((rows.stop - start, n - start), dtype=self.dtype)
            left, right = (table[:, rows], half_norms[rows]), (table[:, start:], half_norms[start:])
            self._write_block(block, left, right)
            np.fill_diagonal(block, diagonal[rows])
            kernels.mirror_block(K, block, start)

        in_blocks(write_rows, n, n_threads)
        return K

    def _features(self, X: Array, dtype: DTypeLike) -> ScaledFeatures:
        """Return X centred, scaled and transposed, shape (d', m), and −½|x|² of its columns.

        The scale absorbs gamma and, where an exponential follows, the change of base: with x' = x √(2γ
        log₂e), exp(-γ|x − z|²) = 2^(x'·z' − ½|x'|² − ½|z'|²). d' is d rounded up to a multiple of four.
        """
        log2e = 1.0 / math.log(2.0)
        scale = {
            "linear": 1.0,
            "poly": math.sqrt(self.gamma),
            "rbf": math.sqrt(2.0 * self.gamma * log2e),
            "laplacian": self.gamma * log2e,
            "exponential": self.gamma * log2e,
        }[self.kernel]
        table = np.zeros((-(-X.shape[1] // 4) * 4, X.shape[0]), dtype=dtype)
        table[: X.shape[1]] = ((X - self.centre) * scale).T
        half_norms = -0.5 * np.einsum("dn,dn->n", table, table, dtype=np.float64)
        return table, half_norms.astype(dtype)

    def _diagonal(self, table: Array) -> Array:
        """Return K_ii for the scaled features in the columns of ``table``."""
        if self.kernel in _OF_DISTANCES:
            return np.ones(table.shape[1], dtype=table.dtype)
        squares = np.einsum("dn,dn->n", table, table)
        return squares if self.kernel == "linear" else (squares + table.dtype.type(self.coef0)) ** self.degree

    def _write_block(self, block: Array, left: ScaledFeatures, right: ScaledFeatures) -> None:
        """Write the kernel values between two sets of rows into ``block``."""
        if self.kind == kernels.LAPLACIAN:
            kernels.l1_block(block, np.ascontiguousarray(left[0]), np.ascontiguousarray(right[0]))
        elif self.kind == kernels.EXPONENTIAL:
            kernels.l2_block(block, np.ascontiguousarray(left[0]), np.ascontiguousarray(right[0]))
        else:
            np.matmul(left[0].T, right[0], out=block)
        bits = np.empty(block.shape[1], dtype=f"i{block.itemsize}")
        kernels.finish_block(block, left[1], right[1], self.kind, self.coef0, self.degree, bits,
                             _EXP2.astype(block.dtype))  # fmt: skip


class RowPool:
    """One thread's memory for Gram rows, lent to one problem after the other.

    Parameters
    ----------
    budget : int
        Bytes for cached rows: half of them for a problem, half for what `restrict` makes of it. A problem
        gets as many slots as fit, two at least.

    Examples
    --------
    >>> rows, cache = RowPool(1 << 20).lend(LazyGram([[0.0], [1.0]]), None, np.float32)
    >>> cache.rows.shape
    (2, 2)
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._buffer = np.empty(0, dtype=np.uint8)
        self._lent: tuple[GramSource, Array | None, np.dtype[Any], RowSource, RowCache] | None = None

    def lend(self, source: GramSource, index: Array | None, dtype: DTypeLike) -> tuple[RowSource, RowCache]:
        """Return the row source and the cache for one problem; the previous problem's are then void.

        Two consecutive problems on the same rows share the cache.

        Parameters
        ----------
        source : GramSource
            The Gram matrix.
        index : ndarray of int or None
            The rows of the problem; None: all.
        dtype : dtype
            The precision of the rows.

        Returns
        -------
        rows : RowSource
        cache : RowCache
        """
        dtype = np.dtype(dtype)
        if self._lent is not None:
            last_source, last_index, last_dtype, rows, cache = self._lent
            if last_source is source and last_index is index and last_dtype == dtype:
                return rows, cache
        rows = source.problem_rows(index, dtype)
        n = rows.diagonal.size
        is_whole = rows.kind == kernels.DENSE and np.array_equal(rows.index, np.arange(rows.table.shape[0]))
        cache = self._whole(rows) if is_whole else self._empty(n, dtype)
        self._lent = (source, index, dtype, rows, cache)
        return rows, cache

    def _whole(self, rows: RowSource) -> RowCache:
        """Return a cache in which every row is there from the beginning: the Gram matrix itself."""
        n = rows.diagonal.size
        everyone = np.arange(n)
        return RowCache(rows.table, everyone, everyone.copy(), np.zeros(n, dtype=np.int64),
                        np.array([n, 0]), np.empty(0, dtype=f"i{rows.table.itemsize}"))  # fmt: skip

    def _empty(self, n: int, dtype: np.dtype[Any]) -> RowCache:
        """Return an empty cache for rows of length n."""
        slots = int(min(n, max(2, self.budget // max(1, 2 * n * dtype.itemsize))))
        n_bytes = slots * n * dtype.itemsize
        if self._buffer.size < n_bytes:
            self._buffer = np.empty(n_bytes, dtype=np.uint8)
        table = self._buffer[:n_bytes].view(dtype).reshape(slots, n)
        owner, stamp, tally = (np.zeros(size, dtype=np.int64) for size in (slots, slots, 2))
        return RowCache(table, np.full(n, -1), owner, stamp, tally, np.empty(n, dtype=f"i{dtype.itemsize}"))


def restrict(rows: RowSource, cache: RowCache, active: Array) -> tuple[RowSource, RowCache]:
    """Return source and cache for the problem on some of its rows, with all that ``cache`` has of them.

    Parameters
    ----------
    rows : RowSource
        The rows of the problem.
    cache : RowCache
        Their cached Gram rows.
    active : ndarray of int
        The rows to keep.

    Returns
    -------
    rows : RowSource
    cache : RowCache
    """
    if rows.kind == kernels.DENSE:
        index = rows.index[active]
        fewer = rows._replace(index=index, runs=_runs(index))
    else:
        fewer = rows._replace(table=np.take(rows.table, active, axis=1))
    fewer = fewer._replace(half_norms=rows.half_norms[active], diagonal=rows.diagonal[active])
    n = active.size
    capacity = min(n, max(2, cache.rows.size // n))
    slots = cache.slot_of[active]
    owner = np.flatnonzero(slots >= 0)[:capacity]
    known = owner.size
    table = np.empty((capacity, n), dtype=cache.rows.dtype)
    table[:known] = cache.rows[np.ix_(slots[owner], active)]
    slot_of = np.full(n, -1)
    slot_of[owner] = np.arange(known)
    stamp, tally = np.zeros(capacity, dtype=np.int64), np.array([known, 0])
    return fewer, RowCache(table, slot_of, np.resize(owner, capacity), stamp, tally, cache.bits)


def in_blocks(task: Callable[[int], None], n_rows: int, n_threads: int) -> None:
    """Call ``task(start)`` for every block of `BLOCK_ROWS` rows, in threads with one BLAS thread each."""
    with blas_threads_for(0):
        Parallel(n_jobs=n_threads, require="sharedmem")(
            delayed(task)(start) for start in range(0, n_rows, BLOCK_ROWS)
        )


def _dense_rows(K: Array, index: Array) -> RowSource:
    """Return the row source of the problem on the rows ``index`` of a Gram matrix."""
    diagonal = np.ascontiguousarray(K.diagonal()[index])
    series = _EXP2.astype(K.dtype)
    return RowSource(kernels.DENSE, K, index, _runs(index), diagonal, diagonal, series, 0.0, 1)


def _runs(index: Array) -> Array:
    """Return the runs of consecutive numbers in ``index``: where they begin, with which number, how many."""
    begin = np.flatnonzero(np.diff(index, prepend=-2) != 1)
    length = np.diff(begin, append=index.size)
    return np.column_stack([begin, index[begin], length])
