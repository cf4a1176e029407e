"""Sequential minimal optimisation (SMO) for support vector machines with a per-row box and a per-row linear term.

Solves

    minimise over a    ½ aᵀQa − pᵀa      with Q_ij = s_i s_j K_ij,
    subject to         0 ≤ a_i ≤ C_i,    Σ s_i a_i = 0,

for signs s ∈ {−1, +1}; then f(x) = Σ a_i s_i K(x_i, x) + b. With p = 1 this is the C-SVM, class and sample weights
change the box C_i, the soft-label SVM (Gönen, Tanuğur and Alpaydın 2008, eq. 6) changes both. The primal is

    ½|w|² + Σ C_i ξ_i,    ξ_i = max(0, p_i − s_i f(x_i)).

Working sets are chosen by second-order information (Fan, Chen and Lin 2005), the stopping rule is LIBSVM's: the largest
violating pair is below ``tol``. The loops are in `polymargin.solvers._smo_kernels`, many problems on one training set in
`polymargin.solvers.smo_dichotomies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers import _smo_kernels as kernels
from polymargin.solvers.smo_gram import DenseGram, GramSource, LazyGram, RowPool

__all__ = ["DenseGram", "LazyGram", "Solution", "Status", "solve", "solve_path"]

Array = NDArray[np.float64]

#: Bytes of cached Gram rows for one problem, unless told otherwise.
DEFAULT_BUDGET = 1 << 30
#: Relative to the largest K_ii, the least curvature of a step: float64 as in LIBSVM, float32 at its rounding.
_TAU = {4: 2.5e-7, 8: 1e-12}


class Status(Enum):
    """How a run ended; the value is advice to the user."""

    CONVERGED = "converged: the largest KKT violation is below tol"
    ITERATION_LIMIT = "stopped by max_iter before tol was reached: raise max_iter, or scale the features"
    NO_PROGRESS = (
        "stopped because rounding leaves no better step: raise tol, lower C, or scale the features; "
        "if K was given, check that it is positive semidefinite and in float64"
    )


@dataclass(frozen=True)
class Solution:
    """A solution and its certificate.

    Attributes
    ----------
    alpha : array of shape (n,)
        Dual variables, 0 ≤ alpha ≤ upper, exact at the bounds.
    signs : array of shape (n,)
    intercept : float
        b of the decision function.
    status : Status
    n_iter : int
        SMO steps taken.
    objective : float
        Value of ½ aᵀQa − pᵀa: minus the dual objective in its maximising form, as LIBSVM reports it.
    kkt_violation : float
        max F_i − min F_j, over the rows that can go up and down; below tol if converged.
    duality_gap : float
        Primal minus dual objective, never negative up to rounding.
    """

    alpha: Array
    signs: Array
    intercept: float
    status: Status
    n_iter: int
    objective: float
    kkt_violation: float
    duality_gap: float

    @property
    def support(self) -> NDArray[np.intp]:
        """Indices of the support vectors, alpha > 0."""
        return np.flatnonzero(self.alpha)

    @property
    def coefficients(self) -> Array:
        """Signed coefficients s_i a_i of f(x) = Σ s_i a_i K(x_i, x) + b."""
        return self.alpha * self.signs

    @property
    def primal_objective(self) -> float:
        """½|w|² + Σ C_i ξ_i at this solution."""
        return self.duality_gap - self.objective

    def is_optimal(self, eps: float = 1e-3) -> bool:
        """Tell whether no pair of rows violates the optimality conditions by more than eps."""
        return self.kkt_violation <= eps


def solve(
    gram: ArrayLike | GramSource,
    signs: ArrayLike,
    upper: ArrayLike,
    linear: ArrayLike | None = None,
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    alpha0: ArrayLike | None = None,
    budget: int = DEFAULT_BUDGET,
) -> Solution:
    """Solve one problem.

    Parameters
    ----------
    gram : array of shape (n, n), DenseGram or LazyGram
        Symmetric positive semidefinite. With float32 the steps are taken in float32, the result is checked and if
        need be corrected in float64.
    signs : array of shape (n,)
        −1 or +1.
    upper : float or array of shape (n,)
        The box C_i ≥ 0.
    linear : array of shape (n,), optional
        p; ones if not given.
    tol : float
        Largest KKT violation allowed, relative to nothing, as in LIBSVM.
    max_iter : int
        Limit on SMO steps, −1 for none.
    alpha0 : array of shape (n,), optional
        Where to start. It is clipped to the box, and the heavier side is scaled down if Σ s_i a_i ≠ 0.
    budget : int
        Bytes for cached rows of a LazyGram.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 1.0, 3.0])
    >>> solution = solve(np.outer(x, x), np.sign(x), upper=10.0, tol=1e-6)
    >>> solution.alpha, solution.intercept, solution.is_optimal(1e-6)
    (array([0. , 0.5, 0.5, 0. ]), 0.0, True)
    """
    scales, solver = [1.0], _Solver(_as_source(gram), None, signs, upper, linear, RowPool(budget))
    return solver.path(scales, tol, max_iter, alpha0)[0]


def solve_path(
    gram: ArrayLike | GramSource,
    signs: ArrayLike,
    upper: ArrayLike,
    scales: Sequence[float],
    linear: ArrayLike | None = None,
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    budget: int = DEFAULT_BUDGET,
) -> list[Solution]:
    """Solve the same problem in the boxes ``scale * upper``, each from the solution before; best in ascending order.

    The parameters are those of `solve`.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 1.0, 3.0])
    >>> [float(s.alpha.sum()) for s in solve_path(np.outer(x, x), np.sign(x), 1.0, [0.25, 10.0], tol=1e-6)]
    [0.5, 1.0]
    """
    solver = _Solver(_as_source(gram), None, signs, upper, linear, RowPool(budget))
    return solver.path(scales, tol, max_iter, None)


class _Solver:
    """One problem, its working arrays, and the recipe that the jitted loops are the steps of."""

    def __init__(
        self,
        source: GramSource,
        index: NDArray[np.intp] | None,
        signs: ArrayLike,
        upper: ArrayLike,
        linear: ArrayLike | None,
        pool: RowPool,
    ) -> None:
        self.signs = np.ascontiguousarray(signs, dtype=np.float64)
        n = source.n_rows if index is None else index.size
        self.C = np.broadcast_to(np.asarray(upper, dtype=np.float64), (n,))
        if self.signs.shape != (n,) or not (np.abs(self.signs) == 1.0).all():
            raise ValueError(f"signs must be {n} values −1 or +1")
        if not (self.C >= 0.0).all() or not np.isfinite(self.C).all():
            raise ValueError("upper must be finite and not negative")
        p = np.ones(n) if linear is None else np.asarray(linear, dtype=np.float64)
        self.linear = self.signs * p
        self.source, self.index, self.pool = source, index, pool
        self.beta = np.zeros(n)
        self.exact = self.linear.copy()
        self.dtype = source.dtype

    def path(self, scales: Sequence[float], tol: float, max_iter: int, alpha0: ArrayLike | None) -> list[Solution]:
        """Return the solutions for the boxes ``scale * C``."""
        self._allocate(self.source.dtype)
        self._set_box(scales[0])
        if alpha0 is not None:
            self._start(np.asarray(alpha0, dtype=np.float64))
        solutions = []
        for k, scale in enumerate(scales):
            if k > 0:
                self._move_to_box(scales[k - 1], scale)
            status, n_iter = self._minimise(tol, max_iter)
            if status is Status.NO_PROGRESS and self.dtype == np.float32:
                self._allocate(np.float64)
                self._refresh()
                status, more = self._minimise(tol, max_iter if max_iter < 0 else max_iter - n_iter)
                n_iter += more
            solutions.append(self._certify(status, n_iter))
        return solutions

    def _allocate(self, dtype: Any) -> None:
        """Get rows and working arrays in the given precision."""
        self.dtype = np.dtype(dtype)
        self.rows, self.cache = self.pool.lend(self.source, self.index, dtype)
        self.gradient, self.up_mask, self.down_mask = np.empty((3, self.beta.size), dtype=dtype)
        scale = float(np.max(self.rows.diagonal, initial=0.0)) or 1.0
        self.tau = self.dtype.type(_TAU[self.dtype.itemsize] * scale)

    def _set_box(self, scale: float) -> None:
        """Set the bounds of β = s a."""
        self.lower = np.where(self.signs > 0, 0.0, -scale * self.C)
        self.upper = np.where(self.signs > 0, scale * self.C, 0.0)

    def _start(self, alpha: Array) -> None:
        """Start from alpha, made feasible."""
        beta = np.clip(self.signs * alpha, self.lower, self.upper)
        up, down = beta[beta > 0].sum(), -beta[beta < 0].sum()
        if up > down:
            beta[beta > 0] *= down / up
        elif down > up:
            beta[beta < 0] *= up / down
        self.beta[:] = beta
        self._refresh()

    def _move_to_box(self, old: float, new: float) -> None:
        """Scale β into the new box by the factor that is best for the objective; F follows without kernel work."""
        ratio = new / old
        image = self.linear - self.exact  # Kβ
        curvature = self.beta @ image
        best = (self.linear @ self.beta) / curvature if curvature > 0 else 1.0
        at_lower, at_upper = self.beta == self.lower, self.beta == self.upper
        self._set_box(new)
        factor = min(best, ratio)
        self.beta *= factor
        if factor == ratio:
            self.beta[at_lower], self.beta[at_upper] = self.lower[at_lower], self.upper[at_upper]
        np.clip(self.beta, self.lower, self.upper, out=self.beta)
        self.exact -= (factor - 1.0) * image

    def _refresh(self) -> None:
        """Recompute F = c − Kβ in float64."""
        kernels.exact_gradient(self.exact, self.linear, self.beta, self.rows, self.cache)

    def _objective(self) -> float:
        """Return ½βᵀKβ − cᵀβ from the exact gradient."""
        return float(-0.5 * (self.beta @ (self.linear + self.exact)))

    def _minimise(self, tol: float, max_iter: int) -> tuple[Status, int]:
        """Alternate SMO steps on a rounded gradient with a refresh in float64, until the exact one is below tol."""
        period = 10_000 + 10 * self.beta.size
        n_iter = 0
        violation, objective = np.inf, self._objective()
        inner_tol = tol
        while True:
            limit = period if max_iter < 0 else min(period, max_iter - n_iter)
            self.gradient[:] = self.exact
            steps = kernels.descend(
                self.gradient, self.beta, self.lower, self.upper, self.up_mask, self.down_mask, self.tau,
                self.rows, self.cache, inner_tol, limit,
            )  # fmt: skip
            n_iter += steps
            if steps > 0:
                self._refresh()
            last_violation, last_objective = violation, objective
            highest, lowest = kernels.extremes(self.exact, self.beta, self.lower, self.upper)
            violation, objective = highest - lowest, self._objective()
            if violation < tol:
                return Status.CONVERGED, n_iter
            if max_iter >= 0 and n_iter >= max_iter:
                return Status.ITERATION_LIMIT, n_iter
            better = last_objective - objective > 1e-13 * abs(objective)
            if not better and violation > 0.9 * last_violation:
                return Status.NO_PROGRESS, n_iter
            inner_tol = 0.5 * tol if steps < limit else tol

    def _certify(self, status: Status, n_iter: int) -> Solution:
        """Return the solution with its intercept, objective and duality gap."""
        highest, lowest = kernels.extremes(self.exact, self.beta, self.lower, self.upper)
        free = (self.beta > self.lower) & (self.beta < self.upper)
        if free.any():
            intercept = float(self.exact[free].mean())
        elif highest > -kernels.HUGE and lowest < kernels.HUGE:
            intercept = 0.5 * (highest + lowest)
        else:  # one class only
            intercept = highest if highest > -kernels.HUGE else lowest if lowest < kernels.HUGE else 0.0
        # As p_i − s_i f(x_i) = s_i (F_i − b), row by row C_i ξ_i − a_i s_i (F_i − b) ≥ 0 sums up to the gap.
        residual = self.exact - intercept
        slack = np.maximum(self.lower * residual, self.upper * residual)
        return Solution(
            alpha=np.abs(self.beta),
            signs=self.signs,
            intercept=intercept,
            status=status,
            n_iter=n_iter,
            objective=self._objective(),
            kkt_violation=max(0.0, highest - lowest),
            duality_gap=float((slack - self.beta * residual).sum()),
        )


def _as_source(gram: ArrayLike | GramSource) -> GramSource:
    """Wrap a plain matrix."""
    return gram if isinstance(gram, DenseGram | LazyGram) else DenseGram(gram)  # type: ignore[arg-type]
