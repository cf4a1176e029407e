"""Multinomial kernel logistic regression: Newton's method, and leave-one-out logits without refits.

With the Gram matrix G, row weights s, targets Y (class probabilities, one-hot for labels) and p = softmax(f), minimise

    Σᵢ sᵢ (logsumexp(fᵢ) − yᵢ·fᵢ) + (1/2C) tr(αᵀGα),     f = Gα + 1bᵀ,

where the biases b are not regularised. At the optimum α = C a with aᵢ = sᵢ(yᵢ − pᵢ), and every column of a
sums to zero. Below Q = CG, so that f = Qa + 1bᵀ and the penalty is ½ tr(aᵀQa).

The Hessian couples the classes of a row by Λᵢ = sᵢ(diag(pᵢ) − pᵢpᵢᵀ). With Dₖ = diag(s pₖ) and Eₖ = (Q + Dₖ⁻¹)⁻¹,

    (Q + Λ⁻¹)⁻¹ = blockdiag(Eₖ) − [Eₖ] (Σₖ Eₖ)⁻¹ [Eₖ]ᵀ =: Γ                (Rasmussen and Williams 2006, §3.5),

which needs matrices of n rows only: K + 1 factorisations for a Newton step. Nothing that tends to infinity is formed
where probabilities tend to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import softmax

from polymargin.solvers import _lapack
from polymargin.solvers.ridge import symmetric_inverse

Array = NDArray[Any]

__all__ = ["Solution", "Status", "fit_kernel_logistic", "leave_one_out_logits", "matrices_needed"]

#: Probabilities below this count as this much in the Hessian.
_LEAST_PROBABILITY = 1e-12
#: A step is halved at most so often, until the objective falls by this share of what its slope promises.
_HALVINGS, _SHARE = 40, 1e-4
#: What rounding may add to the objective, relatively.
_ROUNDING = 1e-13
#: An energy is clearly negative if it is, relatively, below minus this.
_NEGATIVE = 1e-6
_INDEFINITE = "the Gram matrix is not positive semidefinite"
#: So many steps may gain less than that; they still bring the gradient down.
_UNSEEN_STEPS = 4
#: How often a step is refined.
_REFINEMENTS = 1
#: By this factor C rises to where Newton's method cannot begin.
_LADDER = 100.0


class Status(Enum):
    """How a run ended; the value is advice to the user."""

    CONVERGED = "converged: the gradient is below tol"
    ITERATION_LIMIT = (
        "stopped by max_iter before tol was reached: raise max_iter, lower C, or scale the features"
    )
    NO_PROGRESS = "stopped because rounding leaves no better step: raise tol, lower C, or scale the features"


@dataclass(frozen=True)
class Solution:
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
        What is minimised.
    gradient_norm : float
        The norm of its gradient: in the kernel's function space, scaled with √C, for the functions, and plainly for the
        biases. The objective is strongly convex in the functions: where the biases are optimal, it is at most half the
        square of this above the optimum.
    n_iter : int
        Newton steps.
    status : Status
    """

    a: Array
    intercept: Array
    logits: Array
    objective: float
    gradient_norm: float
    n_iter: int
    status: Status

    def scaled(self, factor: float) -> Solution:
        """Return a start for C times a factor: the same functions."""
        return replace(self, a=self.a / factor)


def matrices_needed(n_classes: int) -> int:
    """Return how many matrices of n×n numbers a fit with its leave-one-out logits holds at once."""
    return n_classes + 7


def fit_kernel_logistic(
    gram: Array,
    targets: Array,
    weights: Array,
    C: float,
    *,
    tol: float = 1e-9,
    max_iter: int = 100,
    start: Solution | None = None,
) -> Solution:
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
    start : Solution or None
        Where to begin, see `Solution.scaled`; None for zero functions and the logarithms of the class frequencies.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the Gram matrix is not positive semidefinite.
    """
    means, Q = _centred(gram, weights, C)
    begin = None if start is None else (start.a, start.intercept + C * (means @ start.a))
    solution = _newton(Q, targets, weights, tol, max_iter, begin)
    if solution.status is Status.NO_PROGRESS and start is None and np.trace(Q) > len(Q):
        # Far from the optimum a large C may leave no step that rounding can see: come from smaller ones.
        nearer = fit_kernel_logistic(gram, targets, weights, C / _LADDER, tol=1e-3, max_iter=max_iter)
        begin = nearer.a / _LADDER, nearer.intercept + C / _LADDER * (means @ nearer.a)
        solution = _newton(Q, targets, weights, tol, max_iter, begin)
    intercept = solution.intercept - C * (means @ solution.a)
    return replace(solution, intercept=intercept - intercept.mean())


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
) -> Solution:
    """Go down from the start (a, b), see `fit_kernel_logistic`; the biases are those of the centred matrix."""
    if start is None:
        start = np.zeros_like(targets), np.log(weights @ targets / weights.sum())
    a, b = start
    b = b - b.mean()
    smooth = Q @ a
    total = weights.sum()
    n_iter = unseen = 0
    while True:
        f = smooth + b
        value = _objective(f, smooth, a, targets, weights)
        P = softmax(f, axis=1)
        pull = weights[:, np.newaxis] * (targets - P)
        rest = pull - a
        bias_gradient = pull.sum(axis=0)
        energy = float(np.vdot(rest, Q @ rest))
        if energy < -_NEGATIVE * float(np.vdot(rest, rest)) * np.abs(np.diagonal(Q)).max():
            raise np.linalg.LinAlgError(_INDEFINITE)
        squares = max(energy, 0.0) + float(bias_gradient @ bias_gradient)
        status = None
        length = 0.0
        if squares <= tol**2 * total:
            status = Status.CONVERGED
        elif n_iter == max_iter:
            status = Status.ITERATION_LIMIT
        else:
            da, db = _Hessian(Q, P, weights).step(rest, a)
            smooth_step = Q @ da
            slope = -float(np.vdot(rest, smooth_step)) - float(bias_gradient @ db)
            along = partial(_along, (f, smooth, a), (smooth_step + db, smooth_step, da), targets, weights)
            length = _length(value, slope, along)
            unseen = unseen + 1 if -slope <= _ROUNDING * value else 0
            if length == 0.0 or unseen > _UNSEEN_STEPS:
                status = Status.NO_PROGRESS
        if status is not None:
            return Solution(a, b, f, value, float(np.sqrt(squares)), n_iter, status)
        a = a + length * da
        b = b + length * db
        n_iter += 1
        # Computed anew, or the sum of many steps would gather rounding errors.
        smooth = Q @ a


def _length(value: float, slope: float, objective: Callable[[float], float]) -> float:
    """Return how far to go along a step: all the way, or half as often as need be; zero if it is no use."""
    length = 1.0
    for _ in range(_HALVINGS):
        if objective(length) <= value + _SHARE * length * slope + _ROUNDING * abs(value):
            # Where rounding hides what there is to gain, only a whole step is one of Newton's.
            return length if length == 1.0 or -slope > _ROUNDING * abs(value) else 0.0
        length *= 0.5
    return 0.0


def leave_one_out_logits(gram: Array, targets: Array, weights: Array, C: float, solution: Solution) -> Array:
    """Return what would be said of every row had it not been there, shape (n, K), up to a constant per row.

    One Newton step from the optimum without the row: with Σᵢ the K×K block of (Q⁻¹ + Λ)⁻¹, biases included,

        f⁽⁻ⁱ⁾ = fᵢ − (I − Σᵢ Λᵢ)⁻¹ Σᵢ sᵢ(yᵢ − pᵢ),

    the analogue of the exact formula of least squares. (Of a row of weight s > 1 one of s rows is left out.)

    Parameters
    ----------
    gram, targets, weights, C
        As in `fit_kernel_logistic`.
    solution : Solution
        The optimum.
    """
    P = softmax(solution.logits, axis=1)
    covariances = _Hessian(_centred(gram, weights, C)[1], P, weights).covariances()
    taken = np.minimum(weights, 1.0)[:, np.newaxis]
    curvatures = -P[:, :, np.newaxis] * P[:, np.newaxis, :]
    k = np.arange(P.shape[1])
    curvatures[:, k, k] += P
    curvatures *= taken[:, :, np.newaxis]
    pull = taken * (targets - P)
    moved = np.einsum("ikl,il->ik", covariances, pull)
    system = np.eye(P.shape[1]) - covariances @ curvatures
    return solution.logits - np.linalg.solve(system, moved[:, :, np.newaxis])[:, :, 0]


class _Hessian:
    """The Hessian of the objective, factored: Eₖ for every class, and their sum.

    Parameters
    ----------
    Q : ndarray of shape (n, n)
        C times the Gram matrix.
    P : ndarray of shape (n, K)
        The probabilities.
    weights : ndarray of shape (n,)
        Row weights.
    """

    def __init__(self, Q: Array, P: Array, weights: Array):
        self.Q = Q
        n, n_classes = P.shape
        P = np.maximum(P, _LEAST_PROBABILITY)
        self.P = P / P.sum(axis=1, keepdims=True)
        self.D = weights[:, np.newaxis] * self.P
        self.E = np.empty((n_classes, n, n))
        total = np.zeros((n, n), order="F")
        for k in range(n_classes):
            roots = np.sqrt(self.D[:, k])
            B = np.asfortranarray(Q * roots)
            B *= roots[:, np.newaxis]
            B[np.diag_indices(n)] += 1.0
            inverse = symmetric_inverse(_cholesky(B))
            inverse *= roots
            inverse *= roots[:, np.newaxis]
            self.E[k] = inverse
            total += inverse
        self.factor = _cholesky(total)
        # Γ(1eₖ), which the biases need: its class c is δ_ck Eₖ1 − E_c (ΣE)⁻¹ Eₖ1.
        sums = self.E.sum(axis=2).T
        solved = self._solve(sums)
        self.bias_response = np.stack([-(E @ solved) for E in self.E], axis=1)
        own = np.arange(n_classes)
        self.bias_response[:, own, own] += sums
        S = self.bias_response.sum(axis=0)
        S = 0.5 * (S + S.T)
        # A constant added to all biases changes nothing: S is singular there, and the answer is sought elsewhere.
        self.bias_system = S + np.trace(S) / n_classes**2

    def step(self, rest: Array, a: Array) -> tuple[Array, Array]:
        """Return Newton's step in a and in b: Δa = rest − Λ(QΔa + 1Δb), the columns of a + Δa summing to zero.

        Parameters
        ----------
        rest : ndarray of shape (n, K)
            s(y − p) − a.
        a : ndarray of shape (n, K)
            Where we are.
        """
        da, db = self._solved(rest, a.sum(axis=0))
        # Where probabilities are near one, Γ is a small difference: what the factors leave over is solved for again.
        for _ in range(_REFINEMENTS):
            v = self.Q @ da + db
            v -= (self.P * v).sum(axis=1, keepdims=True)
            more_a, more_b = self._solved(rest - da - self.D * v, (a + da).sum(axis=0))
            da, db = da + more_a, db + more_b
        return da, db

    def _solved(self, right: Array, sums: Array) -> tuple[Array, Array]:
        """Return Δa = (I + ΛQ)⁻¹(right − Λ1Δb) and Δb, such that the sums of Δa's columns cancel those given."""
        pushed = self.Q @ right
        through = np.stack([E @ column for E, column in zip(self.E, pushed.T, strict=True)], axis=1)
        shared = self._solve(through.sum(axis=1))
        da = right - through + np.stack([E @ shared for E in self.E], axis=1)
        db = np.linalg.solve(self.bias_system, sums + da.sum(axis=0))
        db -= db.mean()
        return da - self.bias_response @ db, db

    def covariances(self) -> Array:
        """Return the K×K blocks of every row of the inverse Hessian, biases included, shape (n, K, K).

        E is overwritten.
        """
        n, n_classes = self.D.shape
        own = np.einsum("ij,kji->ik", self.Q, self.E) / self.D
        U = -(self.Q @ self.bias_response.reshape(n, -1)).reshape(n, n_classes, n_classes)
        k = np.arange(n_classes)
        U[:, k, k] += 1.0
        for number, E in enumerate(self.E):
            # Q E = I − D⁻¹ E
            E /= -self.D[:, number]
            E[np.diag_indices(n)] += 1.0
            E[:] = solve_triangular(self.factor, E, lower=True, check_finite=False)
        blocks = np.einsum("kri,lri->ikl", self.E, self.E, optimize=False)
        blocks[:, k, k] += own
        blocks += U @ np.linalg.solve(self.bias_system, np.swapaxes(U, 1, 2))
        return blocks

    def _solve(self, right: Array) -> Array:
        return np.asarray(cho_solve((self.factor, True), right, check_finite=False))


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


def _cholesky(A: Array) -> Array:
    """Return the lower Cholesky factor of A, which is overwritten."""
    if not _lapack.factor(A):
        raise np.linalg.LinAlgError(_INDEFINITE)
    return A
