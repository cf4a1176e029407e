"""Caches shared by machines that are fitted to the same rows; they live as long as the fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads, over_rows
from polymargin.kernels import Kernel
from polymargin.kernels._features import Features
from polymargin.rows import DistinctRows, TrainingRows

Array = NDArray[Any]
Result = TypeVar("Result")

#: The base matrix of all rows is cached if it has at most this many bytes.
KEPT_BYTES = 2.0**29
#: Rows of the kernel matrix that are computed at a time.
_STRIP = 64


class Workspace:
    """Cache of what is computed from training rows: lazily, once, for every fit to them. Thread-safe.

    Parameters
    ----------
    rows : TrainingRows
        The training rows.
    distinct : DistinctRows or None
        Their distinct rows, if known; None to compute them when needed.
    keeps_base : bool or None
        Whether the base matrix among all rows is cached; None: if it is small enough.
    """

    def __init__(
        self, rows: TrainingRows, distinct: DistinctRows | None = None, keeps_base: bool | None = None
    ):
        self.rows = rows
        if keeps_base is None:
            keeps_base = 8.0 * rows.kernel.base_numbers * rows.X.shape[0] ** 2 <= KEPT_BYTES
        #: Whether the base matrix among all rows is cached, and groups of rows take their part of it.
        self.keeps_base = keeps_base
        self._distinct = distinct
        self._base: Array | None = None
        #: Whether the base matrix among all rows is cached and all its entries are finite.
        self.finite = False
        self._features: Features | None = None
        self._gram: tuple[float, Array] | None = None
        self._sample: tuple[float, int, Array] | None = None
        self._lock = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # The matrices are not pickled: to recompute them is faster than to transfer them.
        return Workspace, (self.rows, self._distinct, self.keeps_base)

    @property
    def distinct(self) -> DistinctRows:
        """The different rows of every class."""
        with self._lock:
            if self._distinct is None:
                self._distinct = self.rows.distinct()
            return self._distinct

    @property
    def base(self) -> Array | None:
        """The kernel's base matrix among all rows (read-only); None if it exceeds the cache limit."""
        rows = self.rows
        if not self.keeps_base:
            return None
        with self._lock:
            if self._base is None:
                self._base = rows.kernel.base_among(rows.X, np.arange(rows.X.shape[0]))
                self.finite = bool(np.isfinite(self._base).all())
            return self._base

    @property
    def features(self) -> Features:
        """The features of all rows, for kernels that have an explicit feature map."""
        with self._lock:
            if self._features is None:
                self._features = self.rows.kernel.features(self.rows.X)
            return self._features

    def sampled(self, share: float, least_rows: int) -> Array:
        """Return which rows are in a sample of this share of every class, shape (n,); the last answer is cached.

        Parameters
        ----------
        share : float
            The share.
        least_rows : int
            The least number of rows of a class.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        with self._lock:
            if self._sample is None or self._sample[:2] != (share, least_rows):
                mask = np.zeros(self.rows.class_index.size, dtype=bool)
                mask[self.rows.deal.sample(share, least_rows)] = True
                self._sample = share, least_rows, mask
            return self._sample[2]

    def gram(self, gamma: float) -> Array | None:
        """Return the kernel matrix of all rows; the one of the last gamma is cached.

        Parameters
        ----------
        gamma : float
            The kernel's parameter.

        Returns
        -------
        gram : ndarray of shape (n, n), or None
            Read-only; None if the base matrix exceeds the cache limit.
        """
        base = self.base
        if base is None:
            return None
        with self._lock:
            if self._gram is None or self._gram[0] != gamma:
                self._gram = None  # one at a time
                values, kernel = np.empty(base.shape[:2]), self.rows.kernel
                strips = [slice(start, start + _STRIP) for start in range(0, len(base), _STRIP)]
                with np.errstate(over="ignore", invalid="ignore"):
                    in_threads(lambda rows: np.copyto(values[rows], kernel.apply(base[rows], gamma)), strips)
                self._gram = gamma, values
            return self._gram[1]


class SharedWork:
    """Cache shared by several fits to the same rows: a workspace per kernel, and results by key.

    Estimators that differ in coding and decoding only train many of the same machines. Each result is computed at its
    first use, and does not depend on the order of use.

    Parameters
    ----------
    keep : bool, default=True
        Whether results are cached. A single estimator uses each of them once and needs no cache.
    """

    def __init__(self, keep: bool = True):
        self._keep = keep
        self._workspaces: dict[tuple[Hashable, ...], Workspace] = {}
        self._results: dict[Hashable, Any] = {}

    def workspace(self, rows: TrainingRows, sample: Array | None = None) -> Workspace:
        """Return the workspace of the rows and their kernel, which are a sample of all rows, or all."""
        key = cache_key(rows.kernel, sample)
        if key not in self._workspaces:
            self._workspaces[key] = Workspace(rows)
        return self._workspaces[key]

    def drop(self, kernel: Kernel) -> None:
        """Free the workspaces of a kernel, unless results are shared."""
        if not self._keep:
            (name,) = cache_key(kernel)
            self._workspaces = {key: kept for key, kept in self._workspaces.items() if key[0] != name}

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the cached result of this key, or compute and cache it."""
        if not self._keep:
            return compute()
        if key not in self._results:
            self._results[key] = compute()
        found: Result = self._results[key]
        return found


def cache_key(*values: Any) -> tuple[Hashable, ...]:
    """Return a cache key: arrays by content, and others by themselves, or by identity if they are not hashable."""
    key: list[Hashable] = []
    for value in values:
        if isinstance(value, np.ndarray):
            value = value.shape, value.tobytes()
        try:
            hash(value)
        except TypeError:
            value = id(value)
        key.append(value)
    return tuple(key)


def among(matrix: Array, rows: Array) -> Array:
    """Return the submatrix of some rows and the same columns; the matrix itself (not a copy) if these are all."""
    if rows.size == len(matrix) and (np.diff(rows) == 1).all():
        return matrix
    part = np.empty((rows.size, rows.size, *matrix.shape[2:]), dtype=matrix.dtype)

    def copy(some: slice) -> None:
        part[some] = matrix[rows[some]].take(rows, axis=1)

    over_rows(copy, rows.size, part.size // max(1, rows.size))
    return part
