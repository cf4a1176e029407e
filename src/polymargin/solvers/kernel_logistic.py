"""Multinomial kernel logistic regression: Newton's method, and leave-one-out logits without refits.

With the Gram matrix G, row weights s, targets Y (class probabilities, one-hot for labels) and p = softmax(f), minimise

    Σᵢ sᵢ (logsumexp(fᵢ) − yᵢ·fᵢ) + (1/2C) tr(αᵀGα),     f = Gα + 1bᵀ,

where the biases b are not regularised. At the optimum α = C a with aᵢ = sᵢ(yᵢ − pᵢ), and every column of a
sums to zero. Below Q = CG, so that f = Qa + 1bᵀ and the penalty is ½ tr(aᵀQa).

The Hessian couples the classes of a row by Λᵢ = sᵢ(diag(pᵢ) − pᵢpᵢᵀ). With Dₖ = diag(s pₖ) and Eₖ = (Q + Dₖ⁻¹)⁻¹,

    (Q + Λ⁻¹)⁻¹ = blockdiag(Eₖ) − [Eₖ] (Σₖ Eₖ)⁻¹ [Eₖ]ᵀ =: Γ                (Rasmussen and Williams 2006, §3.5),

which needs matrices of n rows only: K + 1 factorisations for a Newton step, one for two classes
(`polymargin.solvers._kernel_logistic_hessian`).

Rows that are equal in X are merged into a cell, whose weight is their sum and whose target is their weighted mean,
which changes the objective by a constant. `Observations` maps rows to cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from polymargin.solvers._kernel_logistic_cavity import Observations, left_out_logits
from polymargin.solvers._kernel_logistic_hessian import INDEFINITE, Hessian, factored
from polymargin.solvers.line_search import backtrack
from polymargin.solvers.status import Status

Array = NDArray[Any]

__all__ = [
    "LogisticSolution",
    "Observations",
    "fit_and_leave_one_out",
    "fit_kernel_logistic",
    "leave_one_out_logits",
    "matrices_needed",
]

#: Relative rounding error of the objective.
_ROUNDING = 1e-13
#: An energy is clearly negative if it is, relatively, below minus this.
_NEGATIVE = 1e-6
#: Number of steps that may gain less than the rounding error; they still reduce the gradient.
_UNSEEN_STEPS = 4
#: The factors of a Hessian serve for further steps as long as each divides the norm of the gradient by this.
_CONTRACTION = 10.0
#: The Hessian is reused for the leave-one-out logits if the norm of the gradient, over the root of the total weight, is
#: below this at the point where it was computed.
_NEAR = 5e-3
#: Factor of the continuation in C where Newton's method does not converge from the default start.
_LADDER = 100.0


@dataclass(frozen=True)
class LogisticSolution:
    """A solution and its certificate.

    Attributes
    ----------
    a : ndarray of shape (n, K)
        The coefficients over C; dual_coef is C a.
    intercept : ndarray of shape (K,)
        The biases; they sum to zero.
    logits : ndarray of shape (n, K)
        f, of the training rows.
    objective : float
        The objective.
    gradient_norm : float
        The norm of its gradient: in the kernel's function space, scaled with √C, for the functions, and plainly for the
        biases. The objective is strongly convex in the functions: where the biases are optimal, it is at most half the
        square of this above the optimum.
    n_iter : int
        Newton steps.
    status : Status

    See Also
    --------
    fit_kernel_logistic : The fit.

    Examples
    --------
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> solution = fit_kernel_logistic(np.outer(x, x), np.eye(2)[[0, 0, 1, 1]], np.ones(4), C=1.0)
    >>> solution.status.name, solution.logits.argmax(axis=1)
    ('CONVERGED', array([0, 0, 1, 1]))
    """

    a: Array
    intercept: Array
    logits: Array
    objective: float
    gradient_norm: float
    n_iter: int
    status: Status

    def scaled(self, factor: float) -> LogisticSolution:
        """Return a start for C times a factor: the same functions.

        Parameters
        ----------
        factor : float
            The new C over the old one.

        Returns
        -------
        LogisticSolution
        """
        return replace(self, a=self.a / factor)

    def extrapolated(self, other: LogisticSolution, share: float) -> LogisticSolution:
        """Return a start beyond this solution, as seen from another one: this + share · (this − other).

        Both are starts for the same C.

        Parameters
        ----------
        other : LogisticSolution
            The solution to go away from.
        share : float
            How far to go.

        Returns
        -------
        LogisticSolution
        """
        return replace(
            self,
            a=self.a + share * (self.a - other.a),
            intercept=self.intercept + share * (self.intercept - other.intercept),
        )

    def transferred(self, gram: Array, weights: Array, C: float) -> LogisticSolution:
        """Return a start for another Gram matrix and C: the same coefficients and the same mean of the logits.

        Parameters
        ----------
        gram : ndarray of shape (n, n)
            The new Gram matrix.
        weights : ndarray of shape (n,)
            Row weights.
        C : float
            The new C.

        Returns
        -------
        LogisticSolution
        """
        shares = weights / weights.sum()
        intercept = shares @ self.logits - C * (gram @ shares) @ self.a
        return replace(self, intercept=intercept - intercept.mean())


def matrices_needed(n_classes: int) -> int:
    """Return how many matrices of n×n numbers a fit with its leave-one-out logits holds at once.

    Parameters
    ----------
    n_classes : int
        K.

    Returns
    -------
    int
    """
    return n_classes + 7


def fit_kernel_logistic(
    gram: Array,
    targets: Array,
    weights: Array,
    C: float,
    *,
    tol: float = 1e-9,
    max_iter: int = 100,
    start: LogisticSolution | None = None,
) -> LogisticSolution:
    """Minimise the objective by Newton's method.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        The Gram matrix, positive semidefinite.
    targets : ndarray of shape (n, K)
        Class probabilities.
    weights : ndarray of shape (n,)
        Positive row weights.
    C : float
        Regularisation, the larger the less.
    tol : float
        The gradient's norm over the root of the total weight at which to stop: the objective is then about tol²/2 per
        row above the optimum.
    max_iter : int
        The most Newton steps; -1 for no limit.
    start : LogisticSolution or None
        Where to begin, see `LogisticSolution.scaled`; None for zero functions and the logarithms of class frequencies.

    Returns
    -------
    LogisticSolution

    Raises
    ------
    numpy.linalg.LinAlgError
        If the Gram matrix is not positive semidefinite.

    See Also
    --------
    fit_and_leave_one_out : With leave-one-out logits.

    References
    ----------
    .. [1] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
    """
    return _fit(gram, targets, weights, C, tol, max_iter, start)[0]


def fit_and_leave_one_out(
    gram: Array,
    rows: Observations,
    C: float,
    *,
    tol: float = 1e-9,
    max_iter: int = 100,
    start: LogisticSolution | None = None,
) -> tuple[LogisticSolution, Array]:
    """Return the solution and the leave-one-out logits of every observation, shape (N, K).

    The factors of the Hessian near the optimum serve for both, so that the logits are off by about the square of what
    the gradient was there (see `_NEAR`); `leave_one_out_logits` has no such error.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        The Gram matrix of the cells.
    rows : Observations
        The rows behind them.
    C, tol, max_iter, start
        As in `fit_kernel_logistic`.

    Returns
    -------
    solution : LogisticSolution
    logits : ndarray of shape (N, K)
        Up to a constant per row.

    See Also
    --------
    leave_one_out_logits : The logits alone, from a solution.
    """
    targets, weights = rows.merged()
    solution, hessian = _fit(gram, targets, weights, C, tol, max_iter, start)
    if hessian is None:
        hessian = factored(_centred(gram, weights, C)[1], softmax(solution.logits, axis=1), weights)
    return solution, left_out_logits(hessian, solution.logits, rows)


def _fit(
    gram: Array,
    targets: Array,
    weights: Array,
    C: float,
    tol: float,
    max_iter: int,
    start: LogisticSolution | None,
) -> tuple[LogisticSolution, Hessian | None]:
    """Return the solution, and the Hessian if it was last computed near it."""
    means, Q = _centred(gram, weights, C)
    begin = None if start is None else (start.a, start.intercept + C * (means @ start.a))
    solution, hessian = _newton(Q, targets, weights, tol, max_iter, begin)
    if solution.status is Status.NO_PROGRESS and start is None and np.trace(Q) > len(Q):
        # Far from the optimum a large C may leave no step that rounding can see: come from smaller ones.
        nearer = fit_kernel_logistic(gram, targets, weights, C / _LADDER, tol=1e-3, max_iter=max_iter)
        begin = nearer.a / _LADDER, nearer.intercept + C / _LADDER * (means @ nearer.a)
        solution, hessian = _newton(Q, targets, weights, tol, max_iter, begin)
    intercept = solution.intercept - C * (means @ solution.a)
    return replace(solution, intercept=intercept - intercept.mean()), hessian


def _centred(gram: Array, weights: Array, C: float) -> tuple[Array, Array]:
    """Return the weighted row means of the Gram matrix, and C times the matrix centred at the rows' mean.

    Since the columns of a sum to zero and the biases are free, this moves the biases and changes nothing else; but what
    all values of the kernel have in common may be large, and costs digits.
    """
    shares = weights / weights.sum()
    means = gram @ shares
    Q = gram - means
    Q -= (means - shares @ means)[:, np.newaxis]
    Q *= C
    return means, Q


def _newton(
    Q: Array, targets: Array, weights: Array, tol: float, max_iter: int, start: tuple[Array, Array] | None
) -> tuple[LogisticSolution, Hessian | None]:
    """Go down from the start (a, b), see `_fit`; the biases are those of the centred matrix."""
    if start is None:
        start = np.zeros_like(targets), np.log(weights @ targets / weights.sum())
    a, b = start
    b = b - b.mean()
    smooth = Q @ a
    total = weights.sum()
    n_iter = unseen = 0
    hessian: Hessian | None = None
    near, squares_before = False, np.inf
    while True:
        f = smooth + b
        value = _objective(f, smooth, a, targets, weights)
        P = softmax(f, axis=1)
        residuals = weights[:, np.newaxis] * (targets - P)
        rest = residuals - a
        bias_gradient = residuals.sum(axis=0)
        energy = float(np.vdot(rest, Q @ rest))
        if energy < -_NEGATIVE * float(np.vdot(rest, rest)) * np.abs(np.diagonal(Q)).max():
            raise np.linalg.LinAlgError(INDEFINITE)
        squares = max(energy, 0.0) + float(bias_gradient @ bias_gradient)
        status = None
        length = 0.0
        if squares <= tol**2 * total:
            status = Status.CONVERGED
        elif n_iter == max_iter:
            status = Status.ITERATION_LIMIT
        else:
            arrived = squares <= _NEAR**2 * total
            if hessian is None or squares * _CONTRACTION**2 > squares_before or (arrived and not near):
                hessian, near = factored(Q, P, weights), arrived
            squares_before = squares
            da, db = hessian.step(rest, a)
            smooth_step = Q @ da
            slope = -float(np.vdot(rest, smooth_step)) - float(bias_gradient @ db)
            along = partial(_along, (f, smooth, a), (smooth_step + db, smooth_step, da), targets, weights)
            length = backtrack(along, value, slope, slack=_ROUNDING * abs(value))
            if length < 1.0 and -slope <= _ROUNDING * abs(value):
                length = (
                    0.0  # where rounding hides what there is to gain, only a whole step is one of Newton's
                )
            unseen = unseen + 1 if -slope <= _ROUNDING * value else 0
            if length == 0.0 or unseen > _UNSEEN_STEPS:
                status = Status.NO_PROGRESS
        if status is not None:
            solution = LogisticSolution(a, b, f, value, float(np.sqrt(squares)), n_iter, status)
            return solution, hessian if near else None
        a = a + length * da
        b = b + length * db
        n_iter += 1
        # Computed anew, or the sum of many steps would gather rounding errors.
        smooth = Q @ a


def leave_one_out_logits(
    gram: Array,
    targets: Array,
    weights: Array,
    C: float,
    solution: LogisticSolution,
    rows: Observations | None = None,
) -> Array:
    """Return approximate leave-one-out logits of every row, shape (N, K), up to a constant per row.

    One Newton step from the optimum without the row, the analogue of the exact formula of least squares, see
    `polymargin.solvers._kernel_logistic_cavity`. A row is left out with all of its weight; other rows that are equal to
    it in X stay, and are taken into account exactly.

    Parameters
    ----------
    gram, targets, weights, C
        As in `fit_kernel_logistic`.
    solution : LogisticSolution
        The optimum.
    rows : Observations or None
        The rows behind the cells that were fitted; None if every cell is one row.

    Returns
    -------
    ndarray of shape (N, K)
    """
    if rows is None:
        rows = Observations(np.arange(len(targets)), targets, weights)
    P = softmax(solution.logits, axis=1)
    hessian = factored(_centred(gram, weights, C)[1], P, weights)
    return left_out_logits(hessian, solution.logits, rows)


def _objective(f: Array, smooth: Array, a: Array, targets: Array, weights: Array) -> float:
    """Return the objective for f = smooth + b, smooth = Qa."""
    shifted = f - f.max(axis=1, keepdims=True)
    others = np.exp(shifted)
    np.put_along_axis(others, f.argmax(axis=1)[:, np.newaxis], 0.0, axis=1)
    # logsumexp(f) − y·f; log1p keeps the digits where a row is fitted well.
    losses = np.log1p(others.sum(axis=1)) - np.einsum("ik,ik->i", targets, shifted)
    return float(weights @ losses + 0.5 * np.vdot(a, smooth))


def _along(point: Sequence[Array], step: Sequence[Array], targets: Array, weights: Array, t: float) -> float:
    """Return the objective at point + t step, both (f, Qa, a)."""
    f, smooth, a = (start + t * change for start, change in zip(point, step, strict=True))
    return _objective(f, smooth, a, targets, weights)
