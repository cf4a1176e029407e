"""Coupling: from probabilities of dichotomies to class probabilities, many rows at once, on arrays.

r_ik estimates P(class i | class i or k). Four methods for pairs, in the numbering of Bravo et al. (2010), §2.4, and one
for any codebook:

- ``wlw1``, eqs. (5) and (7): Wu, Lin and Weng's first, the stationary state of a Markov chain. (Eq. (7) has K + 1 in
  print where the chain needs K − 1.)
- ``wlw2``, eq. (8): Wu, Lin and Weng's second, min Σ (r_ki p_i − r_ik p_k)², which LIBSVM uses.
- ``ht``, eq. (9): Hastie and Tibshirani's least Kullback–Leibler distance. (In print its first term lacks the factor
  r_ik.)
- ``pkpd``, eq. (10): the formula of Price, Knerr, Personnaz and Dreyfus, normalised.
- `bradley_terry`: the same distance as ``ht`` for dichotomies between sets of classes (Huang, Weng and Lin 2006).

All r are first moved into [1e-7, 1 − 1e-7], as LIBSVM does, so that zeros and ones do no harm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from polymargin._threads import in_threads
from polymargin.solvers.line_search import backtrack_rows, rounding_of

Array = NDArray[Any]

#: No probability of a dichotomy is nearer to zero or one.
CLIP = 1e-7
#: Numbers in a block of rows; small enough for the caches.
_BLOCK = 200_000
#: The most Newton steps; rows that still move are warned of.
MAX_ITER = 200
#: The gradient, per unit of weight, at which a row is done.
TOL = 1e-11
#: The longest step in the logarithm of a probability, and the largest part of a probability that a step may remove.
LONGEST_STEP, LARGEST_CUT = 5.0, 0.9


def couple(r: Array, method: str = "wlw2", weights: Array | None = None) -> Array:
    """Return class probabilities, shape (n, K), from pairwise probabilities.

    Parameters
    ----------
    r : ndarray of shape (n, K, K) or (n, K (K − 1)/2)
        r_ik, off the diagonal and with r_ik + r_ki = 1; or condensed, r_ik of the pairs i < k in the order (0, 1),
        (0, 2), …, (1, 2), …
    method : {"wlw2", "wlw1", "ht", "pkpd"}, default="wlw2"
        The method, see `polymargin.solvers.coupling`.
    weights : ndarray of shape (K, K) or (K (K − 1)/2,), or None
        The q_ik of "ht", the number of rows of the two classes; None: all equal. The others have no weights.

    Returns
    -------
    ndarray of shape (n, K)

    See Also
    --------
    bradley_terry : Coupling for any codebook.
    polymargin.solvers.platt.fit_sigmoids : Probabilities of dichotomies from margins.

    References
    ----------
    .. [1] T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for Multi-class Classification by Pairwise
           Coupling", Journal of Machine Learning Research 5, 2004.
    .. [2] T. Hastie and R. Tibshirani, "Classification by Pairwise Coupling", Advances in Neural Information
           Processing Systems 10, MIT Press, 1998.
    .. [3] D. Price, S. Knerr, L. Personnaz and G. Dreyfus, "Pairwise Neural Network Classifiers with Probabilistic
           Outputs", Advances in Neural Information Processing Systems 7, MIT Press, 1995.
    .. [4] C. Bravo, G. L'Huillier, J. L. Lobato and R. Weber, "Probability Estimation for Multiclass Problems
           Combining SVMs and Neural Networks", Neural Network World, 2010.

    Examples
    --------
    >>> p = np.array([[0.5, 0.3, 0.2]])
    >>> couple(p[:, :, None] / (p[:, :, None] + p[:, None, :])).round(3)
    array([[0.5, 0.3, 0.2]])
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    r = np.asarray(r, dtype=np.float64)
    # K from K (K − 1)/2 pairs.
    n_classes = round(0.5 + np.sqrt(0.25 + 2.0 * r.shape[1])) if r.ndim == 2 else r.shape[-1]
    if r.ndim == 2 and (n_classes < 2 or n_classes * (n_classes - 1) // 2 != r.shape[1]):
        raise ValueError(f"{r.shape[1]} is not the number of pairs of any number of classes")
    if r.ndim not in (2, 3) or (r.ndim == 3 and r.shape[1:] != (n_classes, n_classes)):
        raise ValueError(f"pairwise probabilities have the shape (n, K, K) or (n, K(K-1)/2), not {r.shape}")
    above = _pairs(n_classes)
    if r.ndim == 3:
        r = r[:, *above]
    if weights is not None and weights.ndim == 2:
        weights = weights[above]
    p = np.empty((r.shape[0], n_classes))
    block = max(1, _BLOCK // n_classes**2)

    def of_block(first: int) -> None:
        part = r[first : first + block].clip(CLIP, 1.0 - CLIP)
        if method == "ht":
            p[first : first + block] = _hastie_tibshirani(part, n_classes, weights)
        else:
            # Without what rounding leaves below zero.
            found = np.maximum(METHODS[method](part, n_classes), 0.0)
            p[first : first + block] = found / found.sum(axis=1, keepdims=True)

    in_threads(of_block, range(0, len(r), block))
    return p


@lru_cache
def _pairs(n_classes: int) -> tuple[Array, Array]:
    """Return the first and the second classes of all pairs, in order."""
    return np.triu_indices(n_classes, 1)


@lru_cache
def _places(n_classes: int) -> tuple[Array, Array, Array]:
    """Return which pair is where in a K×K matrix, and which classes are first and second in which pairs, (K, P) each.

    On the diagonal there is no pair; the first will do.
    """
    i, k = _pairs(n_classes)
    places = np.zeros((n_classes, n_classes), dtype=np.intp)
    places[i, k] = places[k, i] = np.arange(i.size)
    classes = np.arange(n_classes)[:, np.newaxis]
    return places, (classes == i).astype(np.float64), (classes == k).astype(np.float64)


def _square(condensed: Array, n_classes: int, mirror: Callable[[Array], Array]) -> Array:
    """Return (n, K, K) matrices from the part above their diagonals."""
    square = np.zeros((len(condensed), n_classes, n_classes))
    i, k = _pairs(n_classes)
    square[:, i, k] = condensed
    square[:, k, i] = mirror(condensed)
    return square


def _wu_lin_weng_1(r: Array, n_classes: int) -> Array:
    """Eqs. (5) and (7): Q p = p, where the columns of Q sum to one; p is not normalised."""
    r = _square(r, n_classes, mirror=lambda above: 1.0 - above)
    # I − Q times K − 1, which has eᵀ for a left null vector, so that adding e eᵀ fixes the sum of p alone.
    system = 1.0 - r
    diagonal = np.arange(n_classes)
    system[:, diagonal, diagonal] = n_classes - r.sum(axis=2)
    return np.linalg.solve(system, np.ones((*system.shape[:2], 1)))[..., 0]


def _wu_lin_weng_2(r: Array, n_classes: int) -> Array:
    """Eq. (8): min pᵀ Q p with Q_ii = Σ_s r_si², Q_ik = −r_ki r_ik, subject to Σ p = 1; p is not normalised."""
    # Q p = const · e. Q may be singular (where the r agree with some p, they do Q p = 0) but Q + e eᵀ is not, and the
    # solution of (Q + e eᵀ) p = e differs by a factor. It is never negative (Wu, Lin and Weng, theorem 2).
    places, is_first, is_second = _places(n_classes)
    against = 1.0 - r
    system = np.take(1.0 - r * against, places, axis=1)
    diagonal = np.arange(n_classes)
    system[:, diagonal, diagonal] = 1.0 + np.square(against) @ is_first.T + np.square(r) @ is_second.T
    return np.linalg.solve(system, np.ones((*system.shape[:2], 1)))[..., 0]


def _price(r: Array, n_classes: int) -> Array:
    """Eq. (10), not normalised."""
    r = _square(r, n_classes, mirror=lambda above: 1.0 - above)
    diagonal = np.arange(n_classes)
    r[:, diagonal, diagonal] = 1.0
    return 1.0 / ((1.0 / r).sum(axis=2) - 1.0 - (n_classes - 2))


def _hastie_tibshirani(r: Array, n_classes: int, weights: Array | None) -> Array:
    """Eq. (9) by Newton's method in θ = log p, in which it is convex: ν_ik = 1/(1 + exp(θ_k − θ_i))."""
    _, is_first, is_second = _places(n_classes)
    differences = is_first - is_second
    diagonal = np.arange(n_classes)
    q = np.ones(r.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    q = q / q.sum()

    def value(theta: Array, r: Array) -> Array:
        d = theta @ differences
        # −r log ν − (1 − r) log(1 − ν) in one logarithm.
        return -(log_expit(d) - (1.0 - r) * d) @ q

    # Where the r agree with some p, this is it.
    theta = (np.log(r) - np.log1p(-r)) @ differences.T / n_classes
    active = np.arange(len(r))
    current = value(theta, r)
    for _ in range(MAX_ITER):
        nu = expit(theta[active] @ differences)
        gradient = (q * (nu - r[active])) @ differences.T
        moving = np.abs(gradient).max(axis=1) > TOL
        if not moving.any():
            break
        active, nu, gradient = active[moving], nu[moving], gradient[moving]
        bends = _square(q * nu * (1.0 - nu), n_classes, mirror=lambda above: above)
        hessian = 1.0 / n_classes**2 - bends  # the constant in θ does not matter
        hessian[:, diagonal, diagonal] += bends.sum(axis=2)
        step = -np.linalg.solve(hessian, gradient[..., np.newaxis])[..., 0]
        lengths, current[active] = backtrack_rows(
            partial(_along, value, theta[active], step, r[active]),
            current[active],
            np.einsum("ij,ij->i", gradient, step),
            slack=rounding_of(current[active]),
        )
        theta[active] += lengths[:, np.newaxis] * step
        active = active[lengths > 0.0]
    return np.exp(theta - logsumexp(theta, axis=1, keepdims=True))


def _along(
    value: Callable[[Array, Array], Array], start: Array, step: Array, r: Array, length: float, rows: Array
) -> Array:
    """Return the values of some rows at start + length · step."""
    return value(start[rows] + length * step[rows], r[rows])


#: The methods for pairs; "ht" takes weights too.
METHODS: dict[str, Callable[..., Array]] = {
    "wlw2": _wu_lin_weng_2,
    "wlw1": _wu_lin_weng_1,
    "ht": _hastie_tibshirani,
    "pkpd": _price,
}


def bradley_terry(r: Array, matrix: Array, weights: Array | None = None, prior: float = 1e-4) -> Array:
    """Return class probabilities, shape (n, K), from the probabilities of the dichotomies of any codebook.

    They minimise Σ_l n_l KL(r_l ‖ ρ_l) − δ Σ_k log p_k, where ρ_l = Σ_{k∈+} p_k / Σ_{k∈±} p_k is the probability of
    column l under p, the n_l have mean one and δ is the prior. If a column has several classes on a side, the minimum
    without the prior may be at p_k = 0; a small δ prevents this and makes the solution of a dense code unique. For
    pairs and δ = 0 this is "ht".

    Every step is, row by row, the best of two of Newton's, in p and in log p, and of Huang, Weng and Lin's (2006),
    which never fails to gain.

    Parameters
    ----------
    r : ndarray of shape (n, L)
        The probability of the positive side, for every column.
    matrix : ndarray of shape (K, L)
        The codebook, over {−1, 0, +1}.
    weights : ndarray of shape (L,) or None
        n_l, such as the number of rows a column was trained on; None: all equal.
    prior : float, default=1e-4
        δ.

    Returns
    -------
    ndarray of shape (n, K)

    See Also
    --------
    couple : Coupling for pairs of classes.

    References
    ----------
    .. [1] T.-K. Huang, R. C. Weng and C.-J. Lin, "Generalized Bradley-Terry Models and Multi-class Probability
           Estimates", Journal of Machine Learning Research 7, 2006.

    Examples
    --------
    >>> p = np.array([[0.5, 0.3, 0.2]])
    >>> bradley_terry(p, 2 * np.eye(3) - 1, prior=0.0).round(3)
    array([[0.5, 0.3, 0.2]])
    """
    r = np.clip(np.asarray(r, dtype=np.float64), CLIP, 1.0 - CLIP)
    n_classes, n_columns = matrix.shape
    if r.ndim != 2 or r.shape[1] != n_columns:
        raise ValueError(f"r must have one column for each of the {n_columns} of the codebook, not {r.shape}")
    if prior < 0.0:
        raise ValueError("the prior cannot be negative")
    n_l = np.ones(n_columns) if weights is None else np.asarray(weights, dtype=np.float64)
    sides = _Sides(matrix, n_l / n_l.mean(), prior)
    p = np.empty((len(r), n_classes))
    block = max(1, _BLOCK // (n_classes * (n_columns + n_classes)))

    def of_block(first: int) -> int:
        p[first : first + block], left = sides.solve(r[first : first + block])
        return left

    unfinished = sum(in_threads(of_block, range(0, len(r), block)))
    if unfinished:
        warnings.warn(
            f"the class probabilities of {unfinished} of {len(r)} rows still moved after {MAX_ITER} steps",
            ConvergenceWarning,
            stacklevel=2,
        )
    return p


class _Sides:
    """The distance of `bradley_terry`, in θ = log p."""

    def __init__(self, matrix: Array, weights: Array, prior: float):
        self.plus = (matrix > 0).astype(np.float64)
        self.minus = (matrix < 0).astype(np.float64)
        self.weights, self.prior = weights, prior

    def _shares(self, p: Array) -> tuple[Array, Array, Array]:
        above, below = p @ self.plus, p @ self.minus
        return above, below, above + below

    def value(self, p: Array, r: Array) -> Array:
        above, below, both = self._shares(p)
        distances = np.log(both) - r * np.log(above) - (1.0 - r) * np.log(below)
        smooth = p.shape[1] * np.log(p.sum(axis=1)) - np.log(p).sum(axis=1)
        return distances @ self.weights + self.prior * smooth

    def _balance_terms(self, p: Array, r: Array) -> tuple[Array, Array]:
        """Return the positive and the negative terms of the gradient of every class, equal at a stationary point."""
        above, below, both = self._shares(p)
        up = (self.weights * r / above) @ self.plus.T + (self.weights * (1.0 - r) / below) @ self.minus.T
        down = (self.weights / both) @ (self.plus + self.minus).T
        return p * up + self.prior, p * (down + self.prior * p.shape[1])

    def _newton(self, p: Array, r: Array, gradient: Array) -> Array:
        """Return the Newton steps in θ, NaN where there are none."""
        above, below, both = self._shares(p)
        n_classes = p.shape[1]
        hessian = np.zeros((len(p), n_classes, n_classes))
        diagonal = np.arange(n_classes)
        for mask, mass, factor in (
            (self.plus + self.minus, both, self.weights),
            (self.plus, above, -self.weights * r),
            (self.minus, below, -self.weights * (1.0 - r)),
        ):
            # The covariance of the indicator of a class within the side, for every column.
            within = p[:, :, np.newaxis] * mask / mass[:, np.newaxis, :]
            weighted = within * np.broadcast_to(factor, r.shape)[:, np.newaxis, :]
            hessian -= weighted @ within.transpose(0, 2, 1)
            hessian[:, diagonal, diagonal] += weighted.sum(axis=2)
        hessian[:, diagonal, diagonal] += self.prior * n_classes * p
        hessian -= self.prior * n_classes * p[:, :, np.newaxis] * p[:, np.newaxis, :]
        hessian += 1.0 / n_classes**2  # the constant in θ does not matter
        try:
            step = -np.linalg.solve(hessian, gradient[..., np.newaxis])[..., 0]
        except np.linalg.LinAlgError:
            return np.full_like(p, np.nan)
        longest = np.abs(step).max(axis=1, keepdims=True)
        step *= np.minimum(1.0, LONGEST_STEP / np.maximum(longest, 1e-300))
        return step

    def _newton_on_simplex(self, p: Array, r: Array, gradient: Array) -> Array:
        """Return p after a Newton step in p itself.

        There all terms are convex but Σ n_l log Σ_{k∈±} p_k, which is taken for linear. Far from the solution, where
        Newton's method in θ meets negative curvature, this is the step that gains.
        """
        above, below, _ = self._shares(p)
        hessian = np.tile(max(self.prior, 1e-12) * np.eye(p.shape[1]), (len(p), 1, 1))
        for mask, mass, factor in (
            (self.plus, above, self.weights * r),
            (self.minus, below, self.weights * (1.0 - r)),
        ):
            within = p[:, :, np.newaxis] * mask / mass[:, np.newaxis, :]
            hessian += (within * factor[:, np.newaxis, :]) @ within.transpose(0, 2, 1)
        # In u = dp/p, subject to Σ p u = 0.
        solutions = np.linalg.solve(hessian, np.stack([gradient, p], axis=2))
        free, along = solutions[..., 0], solutions[..., 1]
        u = along * ((p * free).sum(axis=1) / (p * along).sum(axis=1))[:, np.newaxis] - free
        furthest = np.maximum(-u.min(axis=1, keepdims=True), 1e-300)
        return _floored(p * (1.0 + np.minimum(1.0, LARGEST_CUT / furthest) * u))

    def solve(self, r: Array) -> tuple[Array, int]:
        """Return p of every row, and how many rows are not at a stationary point yet."""
        p = np.full((len(r), self.plus.shape[0]), 1.0 / self.plus.shape[0])
        active = np.arange(len(r))
        for _ in range(MAX_ITER):
            q, s = p[active], r[active]
            up, down = self._balance_terms(q, s)
            gradient = down - up
            # Huang, Weng and Lin's step never lets the distance grow. Newton's come last: of equals the last is taken,
            # and near the end it is Newton's in θ that doubles the digits.
            best = _floored(q * up / down)
            values = self.value(best, s)
            in_theta = _floored(q * np.exp(self._newton(q, s, gradient)))
            for trial in (self._newton_on_simplex(q, s, gradient), in_theta):
                reached = self.value(trial, s)
                wins = reached <= values + rounding_of(values)
                best[wins], values[wins] = trial[wins], reached[wins]
            p[active] = best
            # A row that was near enough has taken one more step, from there to what rounding allows.
            active = active[np.abs(gradient).max(axis=1) > TOL * self.weights.size]
            if not active.size:
                break
        return p, active.size


def _floored(p: Array) -> Array:
    """Return normalised rows in which no class falls to zero."""
    p = np.maximum(p, 1e-300)
    return p / p.sum(axis=1, keepdims=True)
