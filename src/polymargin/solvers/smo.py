"""Sequential minimal optimisation (SMO) for support vector machines, with a box and a linear term per row.

Solves

    minimise over a    ½ aᵀQa − pᵀa      with Q_ij = s_i s_j K_ij,
    subject to         0 ≤ a_i ≤ C_i,    Σ s_i a_i = 0,

for signs s ∈ {−1, +1}; then f(x) = Σ a_i s_i K(x_i, x) + b. With p = 1 this is the C-SVM, class and sample
weights change the box C_i, the soft-label SVM (Gönen, Tanuğur and Alpaydın 2008, eq. 6) changes both. The
primal is

    ½|w|² + Σ C_i ξ_i,    ξ_i = max(0, p_i − s_i f(x_i)).

Working sets are chosen by second-order information (Fan, Chen and Lin 2005). The stopping rule is LIBSVM's:
the largest violating pair is below ``tol``. The loops are in `polymargin.solvers._smo_kernels`, the Gram
rows come from `polymargin.solvers.smo_gram`, many problems on one training set are in
`polymargin.solvers.smo_dichotomies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers import _smo_kernels as kernels
from polymargin.solvers.smo_gram import DenseGram, GramSource, LazyGram, RowPool, restrict
from polymargin.solvers.status import Status, default_step_limit

__all__ = ["DenseGram", "LazyGram", "Solution", "solve", "solve_path"]

Array = NDArray[np.float64]

#: Bytes of cached Gram rows for one problem, unless told otherwise.
DEFAULT_BUDGET = 1 << 30
#: Relative to the largest K_ii, the least curvature of a step: float64 as in LIBSVM, float32 at its rounding.
_TAU = {4: 2.5e-7, 8: 1e-12}
#: The default limit of steps where, with coefficients at their bounds, rounding exceeds the tolerance. Classes that can
#: be separated take fewer steps, others would take forever.
_STEPS_IN_NOISE = 10_000_000
#: Rounds of steps without progress before giving up; float32 gives up soon, for float64 to take over.
_PATIENCE = {4: 2, 8: 10}


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

    See Also
    --------
    solve : The solver.

    Examples
    --------
    >>> import numpy as np
    >>> solution = solve(np.eye(2), [1, -1], upper=10.0)
    >>> solution.support, solution.coefficients, solution.status.name
    (array([0, 1]), array([ 1., -1.]), 'CONVERGED')
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
        """Tell whether no pair of rows violates the optimality conditions by more than eps.

        Parameters
        ----------
        eps : float, default=1e-3
            The violation allowed.

        Returns
        -------
        bool
        """
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
        Symmetric positive semidefinite. With float32 the steps are taken in float32, the result is checked
        and, if need be, corrected in float64.
    signs : array of shape (n,)
        −1 or +1.
    upper : float or array of shape (n,)
        The box C_i ≥ 0.
    linear : array of shape (n,), optional
        p; ones if not given.
    tol : float
        Largest KKT violation allowed, relative to nothing, as in LIBSVM.
    max_iter : int
        Limit on SMO steps; −1 for `polymargin.solvers.status.default_step_limit`.
    alpha0 : array of shape (n,), optional
        Where to start. It is clipped to the box, and the heavier side is scaled down if Σ s_i a_i ≠ 0.
    budget : int
        Bytes for cached rows of a LazyGram.

    Returns
    -------
    Solution

    See Also
    --------
    solve_path : Several boxes.
    polymargin.solvers.smo_dichotomies.solve_dichotomies : Many problems on one training set.

    References
    ----------
    .. [1] R.-E. Fan, P.-H. Chen and C.-J. Lin, "Working Set Selection Using Second Order Information for Training
           Support Vector Machines", Journal of Machine Learning Research 6, 2005.
    .. [2] M. Gönen, A. G. Tanuğur and E. Alpaydın, "Multiclass Posterior Probability Support Vector Machines", IEEE
           Transactions on Neural Networks 19, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 1.0, 3.0])
    >>> solution = solve(np.outer(x, x), np.sign(x), upper=10.0, tol=1e-6)
    >>> solution.alpha, solution.intercept, solution.is_optimal(1e-6)
    (array([0. , 0.5, 0.5, 0. ]), 0.0, True)
    """
    solver = _Solver(_as_source(gram), None, signs, upper, linear, RowPool(budget))
    return solver.path([1.0], tol, max_iter, alpha0)[0]


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
    """Solve the same problem in the boxes ``scale * upper``, each from the solution before.

    It is fastest for ascending scales. The parameters are those of `solve`.

    Parameters
    ----------
    gram, signs, upper, linear, tol, max_iter, budget
        As in `solve`.
    scales : sequence of float
        The factors of ``upper``.

    Returns
    -------
    list of Solution
        One for each scale.

    See Also
    --------
    solve : One box.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 1.0, 3.0])
    >>> [float(s.alpha.sum()) for s in solve_path(np.outer(x, x), np.sign(x), 1.0, [0.25, 10.0], tol=1e-6)]
    [0.5, 1.0]
    """
    solver = _Solver(_as_source(gram), None, signs, upper, linear, RowPool(budget))
    return solver.path(scales, tol, max_iter)


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
        self.source, self.pool = source, pool
        self.index = None if index is None else np.ascontiguousarray(index, dtype=np.intp)
        n = source.n_rows if self.index is None else self.index.size
        self.signs = np.ascontiguousarray(signs, dtype=np.float64)
        self.C = np.broadcast_to(np.asarray(upper, dtype=np.float64), (n,))
        if self.signs.shape != (n,) or not (np.abs(self.signs) == 1.0).all():
            raise ValueError(f"signs must be {n} values −1 or +1")
        if not (self.C >= 0.0).all() or not np.isfinite(self.C).all():
            raise ValueError("upper must be finite and not negative")
        p = np.ones(n) if linear is None else np.asarray(linear, dtype=np.float64)
        if p.shape != (n,) or not np.isfinite(p).all():
            raise ValueError(f"linear must be {n} finite values")
        self.linear = self.signs * p
        self.edge = self.signs * self.C  # the bound of β other than zero
        self.beta = np.zeros(n)
        self.exact = self.linear.copy()
        self.dtype = source.dtype

    def path(
        self,
        scales: Sequence[float],
        tol: float,
        max_iter: int,
        alpha0: ArrayLike | None = None,
        give_up_after: int | None = None,
    ) -> list[Solution]:
        """Return the solutions for the boxes ``scale * C``; the first that takes too many steps is the last."""
        if not all(scale > 0.0 for scale in scales):
            raise ValueError("scales must be positive")
        self._allocate(self.source.dtype)
        self._set_box(scales[0])
        if alpha0 is not None:
            self._start(np.asarray(alpha0, dtype=np.float64))
        solutions = []
        for k, scale in enumerate(scales):
            if k > 0:
                self._move_to_box(scales[k - 1], scale)
            if self._gradient_rounding() > tol:
                self._promote()
            steps = max_iter if max_iter >= 0 else self._default_limit(tol)
            steps = steps if give_up_after is None else min(steps, give_up_after)
            status, n_iter = self._minimise(tol, steps)
            if self.dtype == np.float32 and (status is Status.NO_PROGRESS or self._gradient_rounding() > tol):
                self._promote()
                status, more = self._minimise(tol, steps - n_iter)
                n_iter += more
            stopped = status is Status.ITERATION_LIMIT
            if stopped and max_iter < 0:
                status = Status.STEP_LIMIT
            solutions.append(self._certify(status, n_iter))
            if stopped and give_up_after is not None:
                break
        return solutions

    def _allocate(self, dtype: Any) -> None:
        """Get rows and working arrays in the given precision."""
        self.dtype = np.dtype(dtype)
        self.rows, self.cache = self.pool.lend(self.source, self.index, dtype)
        self.work = np.empty((3, self.beta.size), dtype=dtype)  # gradient and masks
        scale = float(np.max(self.rows.diagonal, initial=0.0)) or 1.0
        self.tau = self.dtype.type(_TAU[self.dtype.itemsize] * scale)

    def _set_box(self, scale: float) -> None:
        """Set the bounds of β = s a."""
        self.upper = scale * np.maximum(self.edge, 0.0)
        self.lower = scale * np.minimum(self.edge, 0.0)

    def _start(self, alpha: Array) -> None:
        """Start from alpha, made feasible."""
        beta = np.clip(self.signs * alpha, self.lower, self.upper)
        edge = self.upper + self.lower  # one of the two is zero
        at_edge = np.abs(edge - beta) <= 1e-12 * np.abs(edge)
        beta[at_edge] = edge[at_edge]
        up, down = beta[beta > 0].sum(), -beta[beta < 0].sum()
        # Rounding is left alone: to repair it would lift coefficients off their bounds.
        if up - down > 1e-12 * up:
            beta[beta > 0] *= down / up
        elif down - up > 1e-12 * down:
            beta[beta < 0] *= up / down
        self.beta[:] = beta
        self._refresh()

    def _move_to_box(self, old: float, new: float) -> None:
        """Carry β over into the new box; F follows without kernel work.

        While most of the mass sits at the bound, the next solution is close to the scaled one; later, when
        most of it is free, close to the same one.
        """
        bounded = np.flatnonzero((self.beta != 0.0) & ((self.beta == self.lower) | (self.beta == self.upper)))
        mass, bounded_mass = np.abs(self.beta).sum(), np.abs(self.beta[bounded]).sum()
        factor = new / old if new < old or bounded_mass > 0.8 * mass else 1.0
        self._set_box(new)
        if factor != 1.0:
            self.beta *= factor
            self.beta[bounded] = new * self.edge[bounded]
            np.clip(self.beta, self.lower, self.upper, out=self.beta)  # a rounding error at most
            self.exact -= (factor - 1.0) * (self.linear - self.exact)  # Kβ = c − F

    def _refresh(self) -> None:
        """Recompute F = c − Kβ in float64."""
        kernels.exact_gradient(self.exact, self.linear, self.beta, self.rows, self.cache)

    def _gradient_rounding(self) -> float:
        """Return the typical error of F = c − Kβ that comes from rounded kernel values."""
        return float(self.source.rounding * np.linalg.norm(self.beta)) if self.dtype == np.float32 else 0.0

    def _default_limit(self, tol: float) -> int:
        """Return the limit of steps in the current box where none is given."""
        largest = float(np.max(self.rows.diagonal, initial=0.0))
        rounding = np.finfo(np.float64).eps * largest * float(np.max(self.upper - self.lower, initial=0.0))
        return _STEPS_IN_NOISE if rounding > tol else default_step_limit(self.beta.size)

    def _promote(self) -> None:
        """Go on in float64."""
        self._allocate(np.float64)
        self._refresh()

    def _summarise(self) -> tuple[float, float, float, float]:
        """Return max F, min F, the objective and the intercept, all from the exact F."""
        return kernels.summarise(self.exact, self.linear, self.beta, self.lower, self.upper)

    def _minimise(self, tol: float, max_iter: int) -> tuple[Status, int]:
        """Alternate SMO steps on a rounded F with a refresh in float64, until the exact F satisfies tol."""
        patience = _PATIENCE[self.dtype.itemsize]
        n_iter = idle = 0
        best_violation, best_objective = np.inf, self._summarise()[2]
        inner_tol, limit = tol, self.beta.size + 1000
        active = None
        while True:
            limit = min(limit, max_iter - n_iter)
            steps = self._descend(active, inner_tol, limit)
            n_iter += steps
            if steps > 0:
                self._refresh()
            highest, lowest, objective, _ = self._summarise()
            violation = highest - lowest
            if violation < tol:
                return Status.CONVERGED, n_iter
            if n_iter >= max_iter:
                return Status.ITERATION_LIMIT, n_iter
            noise = 1e-14 * abs(self.linear @ self.beta)
            progress = objective < best_objective - noise or violation < 0.9 * best_violation
            idle = 0 if progress else idle + 1
            if idle >= patience:
                return Status.NO_PROGRESS, n_iter
            best_violation, best_objective = min(violation, best_violation), min(objective, best_objective)
            if steps < limit and violation < 2.0 * tol:  # below tol, but only as the rounded gradient sees it
                inner_tol *= 0.5
            active = self._active_rows(highest, lowest)
            limit = 10_000 + 10 * self.beta.size

    def _active_rows(self, highest: float, lowest: float) -> NDArray[np.intp] | None:
        """Return the rows that may still move, or None if shrinking the problem to them would not pay.

        A row at its bound is shrunk if its gradient F lies beyond the extremes of F over the rows that can move.
        """
        stuck = ((self.beta == self.upper) & (self.exact > highest)) | (
            (self.beta == self.lower) & (self.exact < lowest)
        )
        active = np.flatnonzero(~stuck)
        return active if active.size < 0.5 * self.beta.size else None

    def _descend(self, active: NDArray[np.intp] | None, tol: float, limit: int) -> int:
        """Take SMO steps on all rows, or on the active ones only; F is out of date afterwards."""
        if active is None:
            beta, lower, upper, exact = self.beta, self.lower, self.upper, self.exact
            rows, cache = self.rows, self.cache
        else:
            beta, exact = self.beta[active], self.exact[active]
            lower, upper = self.lower[active], self.upper[active]
            rows, cache = restrict(self.rows, self.cache, active)
        gradient, up_mask, down_mask = (work[: beta.size] for work in self.work)
        gradient[:] = exact
        steps = kernels.descend(
            gradient, beta, lower, upper, up_mask, down_mask, self.tau, rows, cache, tol, limit
        )
        if active is not None:
            self.beta[active] = beta
        return int(steps)

    def _certify(self, status: Status, n_iter: int) -> Solution:
        """Return the solution with its intercept, objective and duality gap."""
        highest, lowest, objective, intercept = self._summarise()
        gap = kernels.duality_gap(self.exact, self.beta, self.lower, self.upper, intercept)
        return Solution(
            alpha=np.abs(self.beta),
            signs=self.signs,
            intercept=intercept,
            status=status,
            n_iter=n_iter,
            objective=objective,
            kkt_violation=max(0.0, highest - lowest),
            duality_gap=gap,
        )


def _as_source(gram: ArrayLike | GramSource) -> GramSource:
    """Wrap a plain matrix."""
    return gram if isinstance(gram, DenseGram | LazyGram) else DenseGram(gram)  # type: ignore[arg-type]
