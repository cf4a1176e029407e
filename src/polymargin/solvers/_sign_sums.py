"""Sums of signs, of which the gradients of the Laplacian kernel consist; `_sign_sums_compiled` does many faster."""

from __future__ import annotations

from typing import Any

import numpy as np

#: The columns of phi of one pass: with at most 256 rows, what a pass works on stays in the cache.
_CHUNK = 512


def subtract_sign_sums(gradients: Any, phi: Any, Z: Any, X: Any, a: Any, steepness: Any) -> None:
    """Subtract Σ_i a_li φ_mi sign(z_mj - x_ji) from the gradients (L, m, d) of some machines; signs have no jump.

    Parameters
    ----------
    gradients : ndarray of shape (L, m, d)
        Modified in place.
    phi : ndarray of shape (m, n)
        A factor for every two rows.
    Z : ndarray of shape (m, d)
        The rows at which the gradients are taken.
    X : ndarray of shape (d, n)
        The rows of the expansion, transposed.
    a : ndarray of shape (L, n)
        The coefficients of the machines.
    steepness : ndarray of shape (d,)
        The slope of the straight line between -1 and 1 that a sign is, of every column.
    """
    for start in range(0, phi.shape[1], _CHUNK):
        some = slice(start, start + _CHUNK)
        factors, coefficients = phi[:, some], a[:, some].T
        signs = np.empty(factors.shape)
        for j, steep in enumerate(steepness):
            np.subtract(Z[:, j, np.newaxis], X[j, some], out=signs)
            with np.errstate(over="ignore"):  # the steepest of signs, of distant values
                signs *= steep
            np.clip(signs, -1.0, 1.0, out=signs)
            signs *= factors
            gradients[:, :, j] -= (signs @ coefficients).T
