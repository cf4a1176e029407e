"""What machines that are fitted to the same rows share: made for a fit, handed on, dropped with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads
from polymargin.kernels import Kernel
from polymargin.kernels._features import Features
from polymargin.rows import DistinctRows, TrainingRows

Array = NDArray[Any]
Result = TypeVar("Result")

#: The base matrix among all rows is computed once and kept if it has at most so many bytes.
KEPT_BYTES = 2.0**29
#: So many rows of the kernel matrix are computed at a time.
_STRIP = 64


class Workspace:
    """What is computed from training rows once, when it is first wanted, and used by every fit to them.

    Parameters
    ----------
    rows : TrainingRows
        The training rows.
    distinct : DistinctRows or None
        Which of them differ, if that is known; None: computed when wanted.
    """

    def __init__(self, rows: TrainingRows, distinct: DistinctRows | None = None):
        self.rows = rows
        self._distinct = distinct
        self._base: Array | None = None
        self._finite: bool | None = None
        self._features: Features | None = None
        self._gram: tuple[float, Array] | None = None
        self._lock = RLock()  # threads may want the same thing at the same time

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process computes what it needs: that is faster than to send matrices.
        return Workspace, (self.rows, self._distinct)

    @property
    def distinct(self) -> DistinctRows:
        """The different rows of every class."""
        with self._lock:
            if self._distinct is None:
                self._distinct = self.rows.distinct()
            return self._distinct

    @property
    def base(self) -> Array | None:
        """The kernel's base matrix among all rows, which must not be changed; None if there are too many rows."""
        rows = self.rows
        if rows.whole_bytes > KEPT_BYTES:
            return None
        with self._lock:
            if self._base is None:
                self._base = rows.kernel.base_among(rows.X, np.arange(rows.X.shape[0]))
            return self._base

    @property
    def finite(self) -> bool:
        """Whether the base matrix among all rows is there and has neither infinite nor undefined entries."""
        base = self.base
        with self._lock:
            if self._finite is None:
                self._finite = base is not None and bool(np.isfinite(base).all())
            return self._finite

    @property
    def features(self) -> Features:
        """The features of all rows, for kernels that have an explicit feature map."""
        with self._lock:
            if self._features is None:
                self._features = self.rows.kernel.features(self.rows.X)
            return self._features

    def gram(self, gamma: float) -> Array | None:
        """Return the kernel's values among all rows, which must not be changed; None if there are too many rows.

        They are kept until another gamma is asked for.
        """
        base = self.base
        if base is None:
            return None
        with self._lock:
            if self._gram is None or self._gram[0] != gamma:
                self._gram = None  # one at a time
                values = np.empty(base.shape[:2])

                def fill(start: int) -> None:
                    values[start : start + _STRIP] = self.rows.kernel.apply(
                        base[start : start + _STRIP], gamma
                    )

                with np.errstate(over="ignore", invalid="ignore"):
                    in_threads(fill, range(0, len(base), _STRIP))
                self._gram = gamma, values
            return self._gram[1]

    def base_among(self, rows: Array) -> Array:
        """Return the base matrix among some of the rows, which must not be changed."""
        whole = self.base
        return self.rows.kernel.base_among(self.rows.X, rows) if whole is None else among(whole, rows)


class SharedWork:
    """What several fits to the same rows share: a workspace for every kernel, and results by name.

    Estimators that differ in coding and decoding only, and are fitted to the same rows, train many of the same
    machines. Each result is computed by whoever needs it first; results do not depend on who that is.

    Parameters
    ----------
    keep : bool, default=True
        Whether results are kept. A single estimator needs each of them once and keeps none.
    """

    def __init__(self, keep: bool = True):
        self._keep = keep
        self._workspaces: dict[tuple[Hashable, Hashable], Workspace] = {}
        self._results: dict[Hashable, Any] = {}

    def workspace(self, rows: TrainingRows, which: Hashable = None) -> Workspace:
        """Return the workspace of the rows with their kernel; `which` tells a sample of the rows from all."""
        key = kernel_key(rows.kernel), which
        if key not in self._workspaces:
            self._workspaces[key] = Workspace(rows)
        return self._workspaces[key]

    def drop(self, kernel: Kernel) -> None:
        """Forget the workspaces of a kernel, unless others may need them."""
        if not self._keep:
            name = kernel_key(kernel)
            self._workspaces = {key: kept for key, kept in self._workspaces.items() if key[0] != name}

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return a result that is known by this key, or compute it."""
        if not self._keep:
            return compute()
        if key not in self._results:
            self._results[key] = compute()
        found: Result = self._results[key]
        return found


def kernel_key(kernel: Kernel) -> Hashable:
    """Return what tells a kernel from others: itself, or, where it holds a function without a hash, its identity."""
    try:
        hash(kernel)
    except TypeError:
        return id(kernel)
    return kernel


def array_key(value: Any) -> Hashable:
    """Return what tells an array, or a number, or None, from others."""
    return value if value is None or np.isscalar(value) else (np.shape(value), np.asarray(value).tobytes())


def among(matrix: Array, rows: Array) -> Array:
    """Return the part of a square matrix that belongs to some rows, in their order; the matrix itself if it is all."""
    if rows.size == len(matrix) and (np.diff(rows) == 1).all():
        return matrix
    return matrix.take(rows, axis=0).take(rows, axis=1)
