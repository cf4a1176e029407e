"""The sigmoid kernel tanh(gamma x·z + coef0), which is not positive definite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms, weighted_moments


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """K(x, z) = tanh(gamma x·z + coef0), for support vector machines only.

    It is not positive definite, so it is no inner product of features, and the problem of a machine may have several
    local minima. With a small gamma and a negative coef0 it is nearly positive definite, up to a constant, and
    resembles the RBF kernel (Lin and Lin 2003), which is to be preferred.

    Parameters
    ----------
    coef0 : float
        The constant.

    References
    ----------
    .. [1] H.-T. Lin and C.-J. Lin, "A Study on Sigmoid Kernels for SVM and the Training of non-PSD Kernels by SMO-type
       Methods", National Taiwan University, 2003.

    Examples
    --------
    >>> Sigmoid().gram(np.array([[1.0], [2.0]]), gamma=0.5).round(2)
    array([[0.46, 0.76],
           [0.76, 0.96]])
    """

    positive_definite = False

    coef0: float = 0.0

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the inner products."""
        return inner_products(X, Z)

    def base_diagonal(self, X: Any) -> Array:
        """Return the squared norms."""
        return squared_norms(X)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return tanh(gamma base + coef0)."""
        inner = gamma * base
        inner += self.coef0
        return np.tanh(inner, out=inner)

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean squared norm of a row."""
        mean, variance = weighted_moments(X, weights)
        size = float(variance.sum() + mean @ mean)
        return 1.0 / size if size > 0 else 1.0
