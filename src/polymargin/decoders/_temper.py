"""Tempering: how far probabilities are to be trusted, compared with the class frequencies.

p_u ∝ p^u π^(1−u) lies between the class frequencies π (u = 0) and the probabilities themselves (u = 1). The log-loss is
convex in u.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

Array = NDArray[Any]

_STEPS = 50


def tempered(log_p: Array, log_prior: Array, u: float) -> Array:
    """Return log p_u, shape (n, K).

    Examples
    --------
    >>> log_p, log_prior = np.log([[0.9, 0.1]]), np.log([0.5, 0.5])
    >>> np.exp(tempered(log_p, log_prior, 0.5)).round(2)
    array([[0.75, 0.25]])
    """
    return log_softmax(u * (log_p - log_prior) + log_prior, axis=1)


def temper(log_p: Array, log_prior: Array, class_index: Array, weights: Array) -> float:
    """Return the u in [0, 1] of least log-loss, by Newton's method.

    Parameters
    ----------
    log_p : ndarray of shape (n, K)
        Log-probabilities of rows that they were not learned from.
    log_prior : ndarray of shape (K,) or (n, K)
        The logarithms of the class frequencies among the rows that they were learned from.
    class_index, weights : ndarray of shape (n,)
        The classes and weights of the rows.

    Examples
    --------
    Sure, and right four times out of five:

    >>> log_p = np.log(np.tile([[0.999, 0.001]], (100, 1)))
    >>> u = temper(log_p, np.log([0.5, 0.5]), np.array([0, 0, 0, 0, 1] * 20), np.ones(100))
    >>> np.exp(tempered(log_p[:1], np.log([0.5, 0.5]), u)).round(2)
    array([[0.8, 0.2]])
    """
    evidence = log_p - log_prior
    own = evidence[np.arange(class_index.size), class_index]

    def slopes(u: float) -> tuple[float, float]:
        p = np.exp(log_softmax(u * evidence + log_prior, axis=1))
        mean = np.einsum("nk,nk->n", p, evidence)
        square = np.einsum("nk,nk->n", p, np.square(evidence))
        return float(weights @ (mean - own)), float(weights @ (square - np.square(mean)))

    low, high = 0.0, 1.0
    if slopes(high)[0] <= 0.0:
        return high
    if slopes(low)[0] >= 0.0:
        return low
    u = 0.5
    for _ in range(_STEPS):
        slope, bend = slopes(u)
        low, high = (u, high) if slope < 0.0 else (low, u)
        step = u - slope / bend if bend > 0.0 else 0.5 * (low + high)
        new = step if low < step < high else 0.5 * (low + high)
        if abs(new - u) < 1e-12:
            break
        u = new
    return u
