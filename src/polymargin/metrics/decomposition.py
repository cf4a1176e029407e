"""Where a classifier's error comes from: Breiman's bias, variance and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Decomposition", "bias_variance_noise"]


@dataclass(frozen=True)
class Decomposition:
    """Parts of the expected error, each a probability from 0 to 1.

    Attributes
    ----------
    bias : float
        Lost because the class that is favoured on average is not the most probable one.
    variance : float
        Lost because other classes than the favoured one are chosen at times.
    noise : float
        The Bayes error, which no classifier avoids.
    """

    bias: float
    variance: float
    noise: float

    @property
    def error(self) -> float:
        """The sum of the three: the expected error."""
        return self.bias + self.variance + self.noise


def bias_variance_noise(true_posterior: ArrayLike, mean_posterior: ArrayLike) -> Decomposition:
    """Decompose the error of classifiers that differ by their training set (Breiman 1999; Gönen et al. 2008, eq. 16).

    With P the true posterior, Q the mean over training sets of the estimated one, z* = argmax P and ẑ = argmax Q,

        bias     = mean of [P(z*) − P(ẑ)] Q(ẑ),
        variance = mean of Σ_{m ≠ ẑ} [P(z*) − P(m)] Q(m),
        noise    = mean of 1 − P(z*).

    The sum telescopes to the mean of 1 − Σ_m P(m) Q(m): exactly the expected error of a classifier that *draws* its
    label from the estimated posterior of a random training set. If the estimates are hard votes (one-hot), that is
    the mean error of the classifiers themselves; if they are soft, it is not the error of their argmax, and flat
    estimates raise the variance although the labels may not vary at all. No part is ever negative.

    Parameters
    ----------
    true_posterior, mean_posterior : array-like of shape (n, K)
        Rows sum to one.

    Returns
    -------
    Decomposition

    Examples
    --------
    >>> parts = bias_variance_noise([[0.9, 0.1], [0.6, 0.4]], [[0.8, 0.2], [0.3, 0.7]])
    >>> parts.bias, parts.variance, parts.noise, parts.error
    (0.07, 0.08, 0.25, 0.4)
    """
    P, Q = _rows(true_posterior, "true_posterior"), _rows(mean_posterior, "mean_posterior")
    if P.shape != Q.shape:
        raise ValueError(f"the posteriors must have one shape, not {P.shape} and {Q.shape}")
    best = P.max(axis=1, keepdims=True)
    lost = (best - P) * Q
    favoured = lost[np.arange(len(P)), Q.argmax(axis=1)]
    bias = float(favoured.mean())
    variance = float((lost.sum(axis=1) - favoured).mean())
    return Decomposition(bias, max(variance, 0.0), float((1.0 - best).mean()))


def _rows(posterior: ArrayLike, name: str) -> NDArray[np.float64]:
    rows = np.asarray(posterior, dtype=float)
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"{name} must have shape (n, K), not {rows.shape}")
    if not (rows >= 0.0).all() or not np.allclose(rows.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError(f"{name} must hold probabilities: no row negative, each with sum one")
    return rows
