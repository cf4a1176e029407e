"""Training rows in the form of the SMO solver, for the banks of hinge machines and their cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polymargin import _memory
from polymargin._progress import Count, Progress, Step, logger
from polymargin._warnings import warn
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.machines._gram import check_base
from polymargin.machines._soft import SoftLabels
from polymargin.rows import TrainingRows
from polymargin.solvers import _smo_kernels
from polymargin.solvers.smo import Solution
from polymargin.solvers.smo_dichotomies import Dichotomy, dichotomy_paths
from polymargin.solvers.smo_gram import DenseGram, GramSource, LazyGram

Array = NDArray[Any]

#: Budget in bytes of Gram matrices and cached Gram rows, if that much is free; further rows are computed when needed.
GRAM_BUDGET = 2 * _memory.GIB
#: Of up to so many rows the kernel matrix is computed as a whole and in float64, which takes a millisecond: a kernel
#: then gives the same machines by name and as a function. Elsewhere they agree within the tolerance of the solver.
_FEW_ROWS = 200
#: A soft target closer to zero than this is on neither side, and its row is not used.
_NO_SIDE = 1e-9
#: Float32 is used if the largest kernel value is in this range, which leaves room for sums and differences.
_SINGLE = (1e-30, 1e30)
#: The ranges in which the solvers accept the box C, the largest kernel value k, and C k.
_LARGEST_BOX, _KERNEL_VALUES = 1e25, (1e-200, 1e200)


@dataclass(frozen=True)
class SolverOptions:
    """Options of the solver, see `polymargin.solvers.smo.solve`.

    Attributes
    ----------
    tol : float
        Tolerance of the optimality conditions.
    max_iter : int
        Limit of steps; -1 for the solver's own.
    n_threads : int
        Number of threads.
    cache_size : float or None
        Megabytes of kernel values to keep; None: up to `GRAM_BUDGET`.
    """

    tol: float = 1e-3
    max_iter: int = -1
    n_threads: int = 1
    cache_size: float | None = None

    @property
    def budget(self) -> int:
        """Bytes of kernel values to keep, at most half of the memory that is free."""
        wanted = GRAM_BUDGET if self.cache_size is None else self.cache_size * 2**20
        return int(min(wanted, 0.5 * _memory.available()))


class HingeRows:
    """The distinct rows of every class, sorted by class, and the dichotomies to be solved on them.

    Copies of a row are merged into one row with a larger box. This is faster, and makes the machines independent of
    the order of the training rows and of whether a row is repeated or weighted.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    box_weights : ndarray of shape (n,)
        The box of every training row in multiples of C.
    leading : ndarray of shape (n,) or None
        The first sort key within a class, such as the fold: rows of the same problems should be contiguous.
    labels : SoftLabels or None
        Soft labels, the same for copies of a row in the same class; None for the classes of the rows.

    Attributes
    ----------
    first, inverse : ndarray of int
        See `polymargin.rows.DistinctRows`.
    class_index : ndarray of shape (m,)
        The class of every distinct row.
    """

    def __init__(
        self,
        data: TrainingRows,
        codebook: Codebook,
        box_weights: Array,
        leading: Array | None = None,
        labels: SoftLabels | None = None,
    ):
        rows = data.contents() if leading is None else data.contents().sorted_by(data.class_index, leading)
        self.kernel, self.codebook, self.box_weights = data.kernel, codebook, box_weights
        self.first, self.inverse = rows.first, rows.inverse
        self.class_index = data.class_index[self.first]
        self._data, self._labels = data, labels

    def boxes(self, held_out: Array | None = None) -> Array:
        """Return the box of every distinct row in multiples of C, zero if all its copies are held out, shape (m,)."""
        return np.bincount(self.inverse, _without(self.box_weights, held_out), minlength=self.first.size)

    def soft_labels(self, held_out: Array | None = None) -> Array | None:
        """Return the soft labels of the distinct rows, shape (m, K), or None if labels are hard.

        They are estimated without the held-out rows.
        """
        if self._labels is None:
            return None
        weights = _without(self._data.weights, held_out)
        labels = self._labels(weights)
        # The label of a distinct row is that of its first copy that is not held out.
        representative = self.first.copy()
        kept = np.flatnonzero(weights)[::-1]
        representative[self.inverse[kept]] = kept
        return labels[representative]

    def dichotomies(
        self,
        C: Array,
        columns: Sequence[int] | Array | None = None,
        held_out: Array | None = None,
        start: Array | None = None,
    ) -> list[Dichotomy]:
        """Return the problems of some columns of the codebook, without the training rows that are held out.

        Parameters
        ----------
        C : ndarray of shape (L,)
            The regularisation of every column.
        columns : sequence of int, or None
            The columns; None for all.
        held_out : ndarray of int or None
            Training rows to leave out.
        start : ndarray of shape (L, n) or None
            Warm start: dual coefficients of the training rows, in multiples of C.

        Returns
        -------
        list of Dichotomy
        """
        box = self.boxes(held_out)
        labels = self.soft_labels(held_out)
        known_rows: dict[bytes, Array] = {}
        problems = []
        for column in range(self.codebook.n_columns) if columns is None else columns:
            word = self.codebook.matrix[:, column].astype(np.float64)
            targets = word[self.class_index] if labels is None else labels @ word
            used = (np.abs(targets) > _NO_SIDE) & (box > 0.0)
            # The solver's cache of Gram rows serves the next problem if its array of rows is the same object.
            pattern = used.tobytes()
            if pattern not in known_rows:
                known_rows[pattern] = np.flatnonzero(used)
            rows = known_rows[pattern]
            signs, sizes = np.sign(targets[rows]), np.abs(targets[rows])
            upper = C[column] * box[rows]
            alpha0 = None
            if start is not None:
                beta = np.bincount(self.inverse, start[column], minlength=self.first.size)
                alpha0 = C[column] * signs * beta[rows]
            if labels is None:
                problems.append(Dichotomy(signs, upper, rows, alpha0=alpha0))
            else:
                problems.append(Dichotomy(signs, upper / sizes, rows, linear=sizes, alpha0=alpha0))
        return problems

    def base(self) -> Array:
        """Return the kernel's validated base matrix among the distinct rows, in float64."""
        base = self.kernel.base_among(self._data.X, self.first)
        check_base(base, self.kernel)
        return base

    def require_gram(self, n_matrices: int, remedy: str) -> None:
        """Raise MemoryError if this many Gram matrices do not fit into memory."""
        n = self.first.size
        _memory.require(8.0 * n_matrices * n**2, f"the kernel matrix of {n} rows", remedy)

    def source(self, gamma: float) -> GramSource:
        """Return the solver's source of Gram rows: computed on demand if it has the kernel, else the Gram matrix."""
        if self.first.size > _FEW_ROWS and lazy_kernel(self.kernel, self._data.X):
            return lazy_gram(self.kernel, self._data.X[self.first], gamma)
        self.require_gram(3, "fit fewer rows, or give dense features and a named kernel of whole degree")
        gram = dense_gram(self.kernel, self.base(), gamma)
        if not self.kernel.positive_definite:
            _warn_unless_convex(gram.K, self.kernel)
        return gram


def lazy_kernel(kernel: Kernel, *rows: Any) -> bool:
    """Return whether the solver can compute this kernel between these rows itself."""
    return kernel.smo_arguments() is not None and all(isinstance(X, np.ndarray) for X in rows)


def lazy_gram(kernel: Kernel, X: Array, gamma: float, dtype: Any = None) -> LazyGram:
    """Return a Gram matrix whose rows are computed on demand, in float32 if its range suffices."""
    with np.errstate(over="ignore"):
        largest = float(np.max(kernel.diagonal(X, gamma), initial=0.0))
    if not np.isfinite(largest):
        raise ValueError(
            "the kernel matrix holds infinite values; scale the features, for example with StandardScaler"
        )
    if dtype is None:
        dtype = np.float32 if _SINGLE[0] < largest < _SINGLE[1] else np.float64
    arguments = kernel.smo_arguments()
    assert arguments is not None
    return LazyGram(kernel.scaled(X), gamma=gamma, dtype=dtype, **arguments)


def dense_gram(kernel: Kernel, base: Array, gamma: float) -> DenseGram:
    """Return the Gram matrix for one gamma."""
    with np.errstate(over="ignore", invalid="ignore"):
        K = kernel.apply(base, gamma)
    if not np.isfinite(K).all():
        raise ValueError(
            "the kernel matrix holds infinite or undefined values; scale the features, for example with "
            "StandardScaler, or use a whole, positive degree"
        )
    return DenseGram(K)


def _warn_unless_convex(K: Array, kernel: Kernel) -> None:
    """Warn if a machine with this kernel matrix has no convex problem: if it is not positive semi-definite, centred."""
    means = K.mean(axis=0)
    centred = np.array(K - means - means[:, np.newaxis] + means.mean(), order="F")
    # What rounding alone makes negative does not count, as in `check_base`.
    centred[np.diag_indices_from(centred)] += 1e-7 * max(float(np.trace(np.abs(K))), 1e-300)
    if lapack.dpotrf(centred, lower=1, overwrite_a=1)[1] != 0:
        warn(
            f"the {kernel.name} kernel is not positive definite on these rows: as with SVC, the solution is a "
            "stationary point, perhaps not the best one, and duality gaps mean nothing; a smaller gamma is safer, or "
            'kernel="rbf"'
        )


def solve_paths(
    source: GramSource,
    problems: Sequence[Dichotomy],
    scales: Sequence[float] | Array,
    options: SolverOptions,
    count: Count,
    each: float = 1.0,
    give_up_after: int | None = None,
) -> list[list[Solution]]:
    """Solve the problems in the boxes ``scale * upper``; item [l][k] is for problem l and scale k.

    A path ends with the first box that takes more than ``give_up_after`` steps. Every solved problem advances the count
    by ``each``.
    """
    largest_box = max((float(np.max(problem.upper, initial=0.0)) for problem in problems), default=0.0)
    check_scale(largest_box * max(scales), source.largest)
    _announce_compilation(count.progress)
    return dichotomy_paths(
        source,
        problems,
        list(scales),
        tol=options.tol,
        max_iter=options.max_iter,
        n_threads=options.n_threads,
        budget=options.budget,
        give_up_after=give_up_after,
        solved=lambda: count.advance(each),
    )


def check_scale(box: float, kernel_value: float) -> None:
    """Raise ValueError if C or the kernel values are beyond the range in which float64 is accurate enough.

    Parameters
    ----------
    box : float
        The largest bound of a dual variable: C times class and sample weights.
    kernel_value : float
        The largest absolute kernel value.

    Examples
    --------
    >>> check_scale(1e3, 1.0)
    >>> check_scale(1e100, 1.0)
    Traceback (most recent call last):
        ...
    ValueError: C times the largest weight is 1e+100, beyond the 1e+25 that can be computed with; lower C
    """
    if not box <= _LARGEST_BOX:
        raise ValueError(
            f"C times the largest weight is {box:.3g}, beyond the {_LARGEST_BOX:g} that can be computed with; lower C"
        )
    if kernel_value != 0.0 and not _KERNEL_VALUES[0] <= kernel_value <= _KERNEL_VALUES[1]:
        raise ValueError(
            f"the largest kernel value is {kernel_value:.3g}, outside the range from {_KERNEL_VALUES[0]:g} to "
            f"{_KERNEL_VALUES[1]:g} that can be computed with; scale the features, for example with StandardScaler"
        )
    if box * kernel_value > _LARGEST_BOX:
        raise ValueError(
            f"C times the largest kernel value is {box * kernel_value:.3g}, beyond the {_LARGEST_BOX:g} that can be "
            "computed with; scale the features, for example with StandardScaler, or lower C"
        )


def weight_norms(solutions: Sequence[Solution], problems: Sequence[Dichotomy] | None = None) -> Array:
    """Return ‖w‖ = √(βᵀKβ) of every machine from its objective ½‖w‖² − Σpa; p is the linear term, by default one."""
    terms: list[Any] = [None] * len(solutions)
    if problems is not None:
        terms = [problem.linear for problem in problems]
    sums = [
        solution.alpha.sum() if linear is None else linear @ solution.alpha
        for solution, linear in zip(solutions, terms, strict=True)
    ]
    squares = [2.0 * (solution.objective + total) for solution, total in zip(solutions, sums, strict=True)]
    return np.sqrt(np.maximum(squares, 0.0))


def _without(weights: Array, held_out: Array | None) -> Array:
    """Return the weights with zeros for the held-out rows."""
    if held_out is not None:
        weights = weights.copy()
        weights[held_out] = 0.0
    return weights


def _announce_compilation(progress: Progress | None = None) -> None:
    announce_compilation(_smo_kernels, "descend", progress)


def announce_compilation(module: Any, name: str, progress: Progress | None = None) -> None:
    """Report that the solver is being compiled, if this jitted function has not been compiled or cached yet."""
    function = getattr(module, name)
    # With NUMBA_DISABLE_JIT the function is plain Python, and nothing is compiled.
    if not hasattr(function, "signatures") or function.signatures:
        return
    if function.stats.cache_path:
        written = Path(module.__file__).stat().st_mtime
        stored = Path(function.stats.cache_path).glob(f"{module.__name__.rpartition('.')[2]}.{name}-*.nbi")
        # A cache file older than the source belongs to an earlier version and is not used.
        if any(index.stat().st_mtime >= written for index in stored):
            return
    if progress is not None:
        progress(Step("compiling the solver (once)"))
    else:
        logger.info("compiling the solver; this takes ten to twenty seconds, the first time only")
