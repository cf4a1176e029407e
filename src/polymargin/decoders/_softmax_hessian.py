"""The Newton step of a small softmax problem, solved directly: the whole Hessian, factored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[Any]

#: Up to this many coefficients the Hessian is cheaper than conjugate gradients.
LARGEST = 100


def newton_step(
    A: Array, W: Array | None, mass: Array, ridge: Array, scale_ridge: float, P: Array, gradient: Array
) -> Array | None:
    """Return −H⁻¹ gradient, shape (D K + 1,), or None if rounding leaves no positive definite H.

    H is the Hessian of Σ_i m_i log Σ_k exp z_ik + ½ Σ λ_jk B_jk² + ½ λ_s s², z = A B + s W, over (B, s).

    Parameters
    ----------
    A : ndarray of shape (n, D)
        Features.
    W : ndarray of shape (n, K) or None
        The anchor.
    mass : ndarray of shape (n, 1)
        Row weights m.
    ridge : ndarray of shape (D, K)
        λ of the coefficients.
    scale_ridge : float
        λ_s of the anchor's scale.
    P : ndarray of shape (n, K)
        The class probabilities.
    gradient : ndarray of shape (D K + 1,)
        The gradient.
    """
    n_classes, size = ridge.shape[1], ridge.size
    H = np.zeros((size + 1, size + 1), order="F")
    weighted = mass * P
    for k in range(n_classes):
        for other in range(k, n_classes):
            curvature = weighted[:, k] * ((k == other) - P[:, other])
            block = A.T @ (curvature[:, np.newaxis] * A)
            H[k:size:n_classes, other:size:n_classes] = block
            H[other:size:n_classes, k:size:n_classes] = block
    diagonal = np.arange(size + 1)
    H[diagonal[:-1], diagonal[:-1]] += ridge.ravel()
    H[size, size] = 1.0
    if W is not None:
        pull = weighted * (W - np.einsum("ik,ik->i", P, W)[:, np.newaxis])
        H[size, :size] = H[:size, size] = (A.T @ pull).ravel()
        H[size, size] = scale_ridge + np.vdot(pull, W)
    # A unit diagonal, because features may come in any units, and a little more: adding a constant to all logits
    # changes nothing, and where no ridge says so either, rounding must not decide.
    curvatures = H[diagonal, diagonal]
    units = np.sqrt(np.where(curvatures > 0.0, curvatures, 1.0))
    H /= units
    H /= units[:, np.newaxis]
    H[diagonal, diagonal] += 1e-12
    _, step, info = lapack.dposv(H, -gradient / units, lower=1)
    return step / units if info == 0 else None
