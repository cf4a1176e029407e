"""The log-linear pool of the class probabilities of several members.

With the class frequencies π, the pool is p ∝ π Π (p_m/π)^u_m: the evidence of member m beyond the class frequencies is
weighted by u_m. With u = 0 it is the class frequencies, with a single u = 1 that member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

Array = NDArray[Any]

#: The members' weights are shrunk towards equal ones by ½ ridge Σ (u − 1/M)². Between 1 and 64 the mean log-loss of
#: 39 development sets (`benchmarks/devsets.py`) moves by 0.1 %, and 16 is best where there are few rows.
RIDGE = 16.0


def pooled(log_probas: Sequence[Array], weights: Array, log_prior: Array) -> Array:
    """Return the logarithms of the pooled probabilities, shape (n, K)."""
    evidence = np.stack(log_probas, axis=2) - log_prior[:, np.newaxis]
    return log_softmax(log_prior + evidence @ weights, axis=1)


def pool_weights(
    log_probas: Sequence[Array], class_index: Array, sample_weight: Array, log_prior: Array
) -> Array:
    """Return the members' weights u ≥ 0 of least log-loss.

    Parameters
    ----------
    log_probas : sequence of M arrays of shape (n, K)
        Out-of-sample log-probabilities.
    class_index : ndarray of int, shape (n,)
        The classes.
    sample_weight : ndarray of shape (n,)
        Row weights.
    log_prior : ndarray of shape (K,)
        The logarithms of the class frequencies.

    Returns
    -------
    weights : ndarray of shape (M,)

    Examples
    --------
    >>> sure, unsure = np.log([[0.9, 0.1], [0.1, 0.9]] * 50), np.log(np.full((100, 2), 0.5))
    >>> pool_weights([sure, unsure], np.array([0, 1] * 50), np.ones(100), np.log([0.5, 0.5])).round(1)
    array([1.3, 0.5])
    """
    evidence = np.stack(log_probas, axis=2) - log_prior[:, np.newaxis]
    n_members = evidence.shape[2]
    if n_members == 1:
        return np.ones(1)
    equal = 1.0 / n_members
    own = np.arange(class_index.size), class_index

    def loss(u: Array) -> tuple[float, Array]:
        log_p = log_softmax(log_prior + evidence @ u, axis=1)
        mean = np.einsum("nk,nkm->nm", np.exp(log_p), evidence)
        penalty = 0.5 * RIDGE * float(np.square(u - equal).sum())
        return penalty - float(sample_weight @ log_p[own]), sample_weight @ (mean - evidence[own]) + RIDGE * (
            u - equal
        )

    start = np.full(n_members, equal)
    bounds = [(0.0, None)] * n_members
    # Tolerances near rounding: the weights must not depend on the last digits of X.
    options = {"maxiter": 500, "ftol": 0.0, "gtol": 1e-11}
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
