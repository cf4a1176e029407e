"""The log-linear pool: class probabilities of several members, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

Array = NDArray[Any]

#: The members' weights are pulled towards equal shares by ½ ridge Σ (u − 1/M)².
_RIDGE = 1.0
_STEPS = 100


def pooled(log_probas: Sequence[Array], weights: Array) -> Array:
    """Return the logarithms of the normalised Π p_m^u_m, shape (n, K)."""
    return log_softmax(np.tensordot(weights, np.stack(log_probas), axes=1), axis=1)


def pool_weights(log_probas: Sequence[Array], class_index: Array, sample_weight: Array) -> Array:
    """Return the members' weights u ≥ 0 of least log-loss, shape (M,), given what they say of rows honestly.

    Parameters
    ----------
    log_probas : sequence of M arrays of shape (n, K)
        Honest log-probabilities.
    class_index : ndarray of int, shape (n,)
        The classes.
    sample_weight : ndarray of shape (n,)
        Row weights.

    Examples
    --------
    >>> sure, unsure = np.log([[0.9, 0.1], [0.1, 0.9]] * 50), np.log(np.full((100, 2), 0.5))
    >>> pool_weights([sure, unsure], np.array([0, 1] * 50), np.ones(100)).round(1)
    array([2.2, 0.5])
    """
    stacked = np.stack(log_probas, axis=2)
    n_members = stacked.shape[2]
    if n_members == 1:
        return np.ones(1)
    equal = 1.0 / n_members
    own = np.arange(class_index.size), class_index

    def loss(u: Array) -> tuple[float, Array]:
        log_p = log_softmax(stacked @ u, axis=1)
        penalty = 0.5 * _RIDGE * float(np.square(u - equal).sum())
        return penalty - float(sample_weight @ log_p[own]), np.exp(log_p)

    # Newton steps within the bounds, to the end: the problem is convex and small.
    u = np.full(n_members, equal)
    value, p = loss(u)
    for _ in range(_STEPS):
        mean = np.einsum("nk,nkm->nm", p, stacked)
        slope = sample_weight @ (mean - stacked[own]) + _RIDGE * (u - equal)
        spread = np.einsum("n,nk,nkl,nkm->lm", sample_weight, p, stacked, stacked, optimize=True)
        bend = spread - np.einsum("n,nl,nm->lm", sample_weight, mean, mean) + _RIDGE * np.eye(n_members)
        free = (u > 0.0) | (slope < 0.0)
        step = np.zeros(n_members)
        step[free] = -np.linalg.solve(bend[np.ix_(free, free)], slope[free])
        for halvings in range(40):
            new = np.maximum(u + 0.5**halvings * step, 0.0)
            new_value, new_p = loss(new)
            if new_value <= value:
                break
        moved = float(np.abs(new - u).max())
        u, value, p = new, new_value, new_p
        if moved < 1e-13:
            break
    return u
