"""Platt's sigmoid: from margins to the probability of the positive side, column by column, on arrays.

Platt (2000) with the numerically safe form and the Newton method with backtracking of Lin, Lin and Weng (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

Array = NDArray[Any]

_MAX_ITER = 100
#: The gradient, per unit of weight and on standardised margins, at which a fit ends.
_TOL = 1e-9


@dataclass(frozen=True)
class Sigmoids:
    """One sigmoid per column: P(+ | z) = 1/(1 + exp(−(slope z + intercept))); Platt's A and B are their negatives."""

    slope: Array
    intercept: Array
    #: The largest entry of the gradient, per unit of weight and on standardised margins.
    gradient_norm: Array

    def logits(self, margins: Array) -> Array:
        """Return the log-odds of the positive side, shape (n, L)."""
        return margins * self.slope + self.intercept

    def proba(self, margins: Array) -> Array:
        """Return the probabilities of the positive side, shape (n, L)."""
        return expit(self.logits(margins))


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
        On which side each row is: +1, −1, or 0 for a row that the column does not use.
    sample_weight : ndarray of shape (n,) or None
        Row weights; weight two counts like the row twice.
    smoothing : bool, default=True
        Whether the targets are Platt's, (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2), rather than one and zero. They keep the
        sigmoid finite where a margin separates the sides.
    increasing : bool, default=False
        Whether a sigmoid that would fall is replaced by the share of the sides: honest margins that speak for the other
        side say nothing that could be trusted.

    Examples
    --------
    >>> z = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> fit_sigmoids(z, np.sign(z)).proba(np.array([[0.0], [3.0]])).round(2)
    array([[0.5 ],
           [0.88]])
    """
    weights = np.ones(margins.shape[0]) if sample_weight is None else np.asarray(sample_weight, np.float64)
    z, positive, w = _used(np.asarray(margins, dtype=np.float64), signs, weights)
    slope, intercept, norm = _fit(z, positive, w, smoothing)
    falling = np.flatnonzero(slope < 0.0) if increasing else np.empty(0, dtype=int)
    if falling.size:
        silent = np.zeros((z.shape[0], falling.size))
        slope[falling], intercept[falling], norm[falling] = _fit(
            silent, positive[:, falling], w[:, falling], smoothing
        )
    return Sigmoids(slope, intercept, norm)


def _used(margins: Array, signs: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return margins, sides and weights of the rows that each column uses, one below the other, shape (m, L).

    Columns that use fewer rows than others are filled up with rows of no weight.
    """
    used = (signs != 0) & (weights > 0.0)[:, np.newaxis]
    if used.all():
        return margins, signs > 0, np.broadcast_to(weights[:, np.newaxis], margins.shape)
    rows = np.argsort(~used, axis=0, kind="stable")[: max(int(used.sum(axis=0).max(initial=0)), 1)]
    known = np.take_along_axis(used, rows, axis=0)
    z = np.where(known, np.take_along_axis(margins, rows, axis=0), 0.0)
    positive = np.take_along_axis(signs, rows, axis=0) > 0
    return z, positive & known, np.where(known, weights[rows], 0.0)


def _fit(z: Array, positive: Array, weights: Array, smoothing: bool) -> tuple[Array, Array, Array]:
    """Return slopes, intercepts and gradient norms, each of shape (L,)."""
    total = weights.sum(axis=0)
    if not (total > 0.0).all():
        raise ValueError("a column has no row with a positive weight to fit its sigmoid on")
    counted = weights > 0.0
    shares = weights / total
    mean = np.einsum("nl,nl->l", shares, z)
    spread = np.sqrt(np.einsum("nl,nl->l", shares, np.square(z - mean)))
    varies = spread > np.maximum(1e-9, 1e-12 * np.abs(z).max(axis=0, initial=0.0, where=counted))
    # Standardised, so that the units of the margins do not matter; a margin that never changes says nothing.
    x = np.where(varies, (z - mean) / np.where(varies, spread, 1.0), 0.0)
    above = np.einsum("nl,nl->l", weights, positive)
    below = total - above
    high, low = ((above + 1.0) / (above + 2.0), 1.0 / (below + 2.0)) if smoothing else (1.0, 0.0)
    slope, intercept, norm = _newton(
        x, np.where(positive, high, low), shares, np.log((above + 1.0) / (below + 1.0))
    )
    slope = np.where(varies, slope / np.where(varies, spread, 1.0), 0.0)
    return slope, intercept - slope * mean, norm


def _newton(x: Array, targets: Array, weights: Array, intercept: Array) -> tuple[Array, Array, Array]:
    """Minimise the mean cross-entropy over slope and intercept, for all columns at once."""
    found = np.zeros((2, intercept.size))
    found[1] = intercept
    norms = np.full(intercept.size, np.inf)
    going = np.arange(intercept.size)

    def loss(theta: Array) -> Array:
        u = theta[0] * x + theta[1]
        # −t log p − (1 − t) log(1 − p), without an exponential of anything positive.
        return -np.einsum("nl,nl->l", weights, log_expit(-u) + targets * u)

    value = loss(found)
    for _ in range(_MAX_ITER):
        theta = found[:, going]
        p = expit(theta[0] * x + theta[1])
        residual = weights * (p - targets)
        g = np.stack([np.einsum("nl,nl->l", residual, x), residual.sum(axis=0)])
        norms[going] = np.abs(g).max(axis=0)
        d = weights * p * (1.0 - p)
        dx = d * x
        # A little on the diagonal, as Lin, Lin and Weng have it: far out there is no curvature left.
        h_aa, h_ab, h_bb = (
            np.einsum("nl,nl->l", dx, x) + 1e-12,
            dx.sum(axis=0),
            d.sum(axis=0) + 1e-12,
        )
        determinant = h_aa * h_bb - h_ab**2
        open_ = (norms[going] > _TOL) & (determinant > 0.0)
        step = -np.stack([h_bb * g[0] - h_ab * g[1], h_aa * g[1] - h_ab * g[0]])
        step /= np.where(open_, determinant, 1.0)
        promise = np.einsum("il,il->l", g, step)
        length = np.where(open_, 1.0, 0.0)
        trial = loss(theta + length * step)
        while (short := open_ & ~(trial <= value + 1e-4 * length * promise)).any():
            length[short] *= 0.5
            # Where the gain is below the rounding of the loss, this is the minimum.
            open_ &= ~short | (length >= 1e-10)
            length[~open_] = 0.0
            trial = loss(theta + length * step)
        found[:, going] = theta + length * step
        if not open_.all():
            going, x, targets, weights = going[open_], x[:, open_], targets[:, open_], weights[:, open_]
            trial = trial[open_]
        value = trial
        if not going.size:
            break
    return found[0], found[1], norms
