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
    n, n_columns = margins.shape
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    found = np.empty((3, n_columns))
    for column in range(n_columns):
        used = (signs[:, column] != 0) & (weights > 0.0)
        found[:, column] = _fit_one(
            np.asarray(margins[used, column], dtype=np.float64),
            signs[used, column] > 0,
            weights[used],
            smoothing,
        )
        if increasing and found[0, column] < 0.0:
            found[:, column] = _fit_one(
                np.zeros(np.count_nonzero(used)), signs[used, column] > 0, weights[used], smoothing
            )
    return Sigmoids(*found)


def _fit_one(z: Array, positive: Array, weights: Array, smoothing: bool) -> tuple[float, float, float]:
    """Return slope, intercept and gradient norm of one sigmoid."""
    total = weights.sum()
    if not total > 0.0:
        raise ValueError("a column has no row with a positive weight to fit its sigmoid on")
    mean = weights @ z / total
    spread = float(np.sqrt(weights @ np.square(z - mean) / total))
    varies = spread > max(1e-9, 1e-12 * np.abs(z).max(initial=0.0))
    # Standardised, so that the units of the margins do not matter; a margin that never changes says nothing.
    x = (z - mean) / spread if varies else np.zeros_like(z)
    above, below = float(weights[positive].sum()), float(weights[~positive].sum())
    high, low = ((above + 1.0) / (above + 2.0), 1.0 / (below + 2.0)) if smoothing else (1.0, 0.0)
    slope, intercept, norm = _newton(
        x, np.where(positive, high, low), weights / total, np.log((above + 1.0) / (below + 1.0))
    )
    slope = slope / spread if varies else 0.0
    return slope, intercept - slope * mean, norm


def _newton(x: Array, targets: Array, weights: Array, intercept: float) -> tuple[float, float, float]:
    """Minimise the mean cross-entropy over slope and intercept."""
    slope = 0.0

    def loss(a: float, b: float) -> float:
        u = a * x + b
        # −t log p − (1 − t) log(1 − p), without an exponential of anything positive.
        return -float(weights @ (log_expit(-u) + targets * u))

    value = loss(slope, intercept)
    norm = np.inf
    for _ in range(_MAX_ITER):
        p = expit(slope * x + intercept)
        residual = weights * (p - targets)
        g = np.array([residual @ x, residual.sum()])
        norm = float(np.abs(g).max())
        if norm <= _TOL:
            break
        d = weights * p * (1.0 - p)
        # A little on the diagonal, as Lin, Lin and Weng have it: far out there is no curvature left.
        h_aa, h_ab, h_bb = d @ x**2 + 1e-12, d @ x, d.sum() + 1e-12
        determinant = h_aa * h_bb - h_ab**2
        if not determinant > 0.0:
            break
        step = -np.array([h_bb * g[0] - h_ab * g[1], h_aa * g[1] - h_ab * g[0]]) / determinant
        promise = float(g @ step)
        length = 1.0
        while length >= 1e-10:
            trial = loss(slope + length * step[0], intercept + length * step[1])
            if trial <= value + 1e-4 * length * promise:
                break
            length *= 0.5
        else:  # the gain is below the rounding of the loss: this is the minimum
            break
        slope, intercept, value = slope + length * step[0], intercept + length * step[1], trial
    return slope, intercept, norm
