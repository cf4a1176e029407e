"""Platt's sigmoid: from margins to the probability of the positive side, column by column, on arrays.

Platt (2000) with the numerically safe form and the Newton method with backtracking of Lin, Lin and Weng (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads, row_parts
from polymargin.solvers.line_search import backtrack_rows, rounding_of

Array = NDArray[Any]

#: The most Newton steps; ten are usual.
_MAX_ITER = 100
#: The gradient, per unit of weight and on standardised margins, at which a fit ends.
_TOL = 1e-9
#: What a row takes in a fit, in multiplications of a matrix product, roughly: some ten steps of some thirty operations.
_OPERATIONS = 300.0
#: Exponents are clipped at this value: larger ones overflow, or nearly so.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Sigmoids:
    """One sigmoid per column: P(+ | z) = 1/(1 + exp(−(slope z + intercept))); Platt's A and B are their negatives.

    Parameters
    ----------
    slope, intercept : ndarray of shape (L,)
        The sigmoids.
    gradient_norm : ndarray of shape (L,)
        The largest entries of the gradients, per unit of weight and on standardised margins.

    See Also
    --------
    fit_sigmoids : The fit.

    Examples
    --------
    >>> Sigmoids(np.array([2.0]), np.array([0.0]), np.array([0.0])).proba(np.array([[0.0], [1.0]])).round(2)
    array([[0.5 ],
           [0.88]])
    """

    slope: Array
    intercept: Array
    gradient_norm: Array

    def logits(self, margins: Array) -> Array:
        """Return the log-odds of the positive side, shape (n, L).

        Parameters
        ----------
        margins : ndarray of shape (n, L)
            The outputs.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return margins * self.slope + self.intercept

    def proba(self, margins: Array) -> Array:
        """Return the probabilities of the positive side, shape (n, L).

        Parameters
        ----------
        margins : ndarray of shape (n, L)
            The outputs.

        Returns
        -------
        ndarray of shape (n, L)
        """
        # 1/(1 + exp(−u)) in one array; NumPy's exponential is vectorised, which SciPy's expit is not.
        p = self.logits(margins)
        np.negative(p, out=p)
        np.exp(np.minimum(p, _LARGEST_EXPONENT, out=p), out=p)
        p += 1.0
        return np.reciprocal(p, out=p)


def fit_sigmoids(
    margins: Array,
    signs: Array,
    sample_weight: Array | None = None,
    smoothing: bool = True,
    increasing: bool = False,
) -> Sigmoids:
    """Fit one sigmoid per column by maximum likelihood.

    Parameters
    ----------
    margins : ndarray of shape (n, L)
        The outputs of L machines.
    signs : ndarray of shape (n, L)
        The side of every row: +1, −1, or 0 for a row that the column does not use.
    sample_weight : ndarray of shape (n,) or None
        Row weights; weight two counts like the row twice.
    smoothing : bool, default=True
        Whether the targets are Platt's, (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2), rather than one and zero. They keep the
        sigmoid finite where a margin separates the sides.
    increasing : bool, default=False
        Whether a decreasing sigmoid is replaced by the frequency of the sides: out-of-sample margins that are
        negatively correlated with the side are uninformative.

    Returns
    -------
    Sigmoids

    See Also
    --------
    polymargin.solvers.coupling.couple : Class probabilities from those of the machines.

    References
    ----------
    .. [1] J. C. Platt, "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
           Methods", Advances in Large Margin Classifiers, MIT Press, 2000.
    .. [2] H.-T. Lin, C.-J. Lin and R. C. Weng, "A Note on Platt's Probabilistic Outputs for Support Vector Machines",
           Machine Learning 68, 2007.

    Examples
    --------
    >>> z = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> fit_sigmoids(z, np.sign(z)).proba(np.array([[0.0], [3.0]])).round(2)
    array([[0.5 ],
           [0.88]])
    """
    weights = np.ones(margins.shape[0]) if sample_weight is None else np.asarray(sample_weight, np.float64)
    z, positive, w = rows_used(np.asarray(margins, dtype=np.float64), signs, weights)

    def of_columns(some: slice) -> tuple[Array, Array, Array]:
        slope, intercept, norm = _fit(z[some], positive[some], w[some], smoothing)
        falling = np.flatnonzero(slope < 0.0) if increasing else np.empty(0, dtype=int)
        if falling.size:
            silent = np.zeros((falling.size, z.shape[1]))
            slope[falling], intercept[falling], norm[falling] = _fit(
                silent, positive[some][falling], w[some][falling], smoothing
            )
        return slope, intercept, norm

    parts = in_threads(of_columns, row_parts(z.shape[0], _OPERATIONS * z.shape[1]))
    return Sigmoids(*map(np.concatenate, zip(*parts, strict=True)))


def rows_used(margins: Array, signs: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return margins, sides and weights of the rows that each column uses, side by side, shape (L, m).

    Columns that use fewer rows than others are filled up with rows of no weight.

    Parameters
    ----------
    margins, signs : ndarray of shape (n, L)
        As for `fit_sigmoids`.
    weights : ndarray of shape (n,)
        Row weights.

    Returns
    -------
    margins : ndarray of shape (L, m)
    positive : ndarray of bool, shape (L, m)
    weights : ndarray of shape (L, m)
    """
    used = ((signs != 0) & (weights > 0.0)[:, np.newaxis]).T
    counts = used.sum(axis=1)
    filled = np.arange(max(int(counts.max(initial=0)), 1)) < counts[:, np.newaxis]
    packed = np.zeros(filled.shape), np.zeros(filled.shape, dtype=bool), np.zeros(filled.shape)
    for kept, values in zip(
        packed, (margins.T, signs.T > 0, np.broadcast_to(weights, used.shape)), strict=True
    ):
        kept[filled] = values[used]
    return packed


def _fit(z: Array, positive: Array, weights: Array, smoothing: bool) -> tuple[Array, Array, Array]:
    """Return slopes, intercepts and gradient norms, each of shape (L,)."""
    total = weights.sum(axis=1)
    if not (total > 0.0).all():
        raise ValueError("a column has no row with a positive weight to fit its sigmoid on")
    shares = weights / total[:, np.newaxis]
    mean = np.einsum("lm,lm->l", shares, z)
    x = z - mean[:, np.newaxis]
    spread = np.sqrt(np.einsum("lm,lm->l", shares, np.square(x)))
    varies = spread > np.maximum(1e-9, 1e-12 * np.abs(z).max(axis=1, initial=0.0))
    # Standardised, so that the units of the margins do not matter; a constant margin is uninformative.
    spread[~varies] = 1.0
    x *= (varies / spread)[:, np.newaxis]
    above = np.einsum("lm,lm->l", weights, positive)
    below = total - above
    high, low = (
        ((above + 1.0) / (above + 2.0), 1.0 / (below + 2.0)) if smoothing else (np.ones(1), np.zeros(1))
    )
    targets = np.where(positive, high[:, np.newaxis], low[:, np.newaxis])
    flat = np.stack([np.zeros_like(mean), np.log((above + 1.0) / (below + 1.0))])
    (slope, intercept), norm = newton_steps(x, targets, shares, flat)
    slope = np.where(varies, slope / spread, 0.0)
    return slope, intercept - slope * mean, norm


def newton_steps(
    x: Array, targets: Array, weights: Array, theta: Array, least_gain: Array | None = None
) -> tuple[Array, Array]:
    """Minimise the mean cross-entropies, all columns at once, from ``theta``: slopes and intercepts, shape (2, L).

    Return where they are least, and the largest entries of the gradients there. A column whose step gains less than its
    ``least_gain``, shape (L,), takes no other.

    Parameters
    ----------
    x, targets, weights : ndarray of shape (L, m)
        The margins, the probabilities to reach, and the weights, of which those of a column sum to one.
    theta : ndarray of shape (2, L)
        Where to start: slopes and intercepts.
    least_gain : ndarray of shape (L,) or None
        A column whose step gains less takes no other; None: no such limit.

    Returns
    -------
    theta : ndarray of shape (2, L)
    norm : ndarray of shape (L,)
        The largest entries of the gradients.

    References
    ----------
    .. [1] H.-T. Lin, C.-J. Lin and R. C. Weng, "A Note on Platt's Probabilistic Outputs for Support Vector Machines",
           Machine Learning 68, 2007.
    """
    powers = np.stack([np.square(x), x, np.ones_like(x)], axis=1)
    signs = 2.0 * targets - 1.0

    columns, lengths, step = np.arange(len(x)), np.zeros(len(x)), np.zeros_like(theta)
    found: tuple[Array, Array, Array]

    def losses(length: float, searching: Array) -> Array:
        """Return the losses of some columns at this length of their steps.

        All columns are evaluated together, those with an accepted length again: to copy a subset would take longer.
        `found` is set to the losses, shape (L,), gradients, shape (2, L), and tanh u/2 = 2p − 1, shape (L, m), of all.
        """
        nonlocal found
        lengths[columns[searching]] = length
        half = 0.5 * (theta + lengths * step)[:, :, np.newaxis]
        h = x * half[0] + half[1]
        size = np.abs(h)
        small = np.exp(-2.0 * size)
        tangent = np.copysign((1.0 - small) / (1.0 + small), h)
        gradient = 0.5 * (powers[:, 1:] @ (weights * (tangent - signs))[..., np.newaxis])[..., 0].T
        # log(1 + exp u) − t u, without an exponential of anything positive.
        value = np.einsum("lm,lm->l", weights, size - signs * h + np.log1p(small))
        found = value, gradient, tangent
        return value[columns[searching]]

    losses(0.0, columns)
    going = np.ones(len(x), dtype=bool)
    for _ in range(_MAX_ITER):
        value, gradient, tangent = found
        # p (1 − p). A little on the diagonal, as Lin, Lin and Weng have it: far out there is no curvature left.
        curvatures = weights - weights * np.square(tangent)
        h_aa, h_ab, h_bb = 0.25 * (powers @ curvatures[..., np.newaxis])[..., 0].T
        h_aa, h_bb = h_aa + 1e-12, h_bb + 1e-12
        determinant = h_aa * h_bb - h_ab * h_ab
        going &= (np.abs(gradient).max(axis=0) > _TOL) & (determinant > 0.0)
        if not going.any():
            break
        g_a, g_b = gradient
        step = np.stack([h_ab * g_b - h_bb * g_a, h_ab * g_a - h_aa * g_b])
        step /= np.where(going, determinant, np.inf)
        columns, lengths = np.flatnonzero(going), np.zeros(going.size)
        slopes = (g_a * step[0] + g_b * step[1])[columns]
        reached, _ = backtrack_rows(losses, value[columns], slopes, slack=rounding_of(value[columns]))
        going[columns] = reached > 0.0
        if not going[columns].all():
            losses(0.0, np.flatnonzero(reached == 0.0))
        theta = theta + lengths * step
        if least_gain is not None:
            going &= value - found[0] >= least_gain
    return theta, np.abs(found[1]).max(axis=0)
