"""The Gaussian kernel exp(-gamma |x - z|²)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms, weighted_moments


class RBF(Kernel):
    """K(x, z) = exp(-gamma |x - z|²); the papers' σ² is 1 / gamma."""

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the squared Euclidean distances, never negative, zero on the diagonal when Z is None."""
        symmetric = Z is None
        if symmetric:
            Z = X
        if not sparse.issparse(X) and not sparse.issparse(Z):
            # Distances do not see a shift, rounding does: |x|² + |z|² - 2x·z loses the digits of a common mean.
            centre = Z.mean(axis=0)
            X, Z = (X - centre, None) if symmetric else (X - centre, Z - centre)
            Z = X if Z is None else Z
        base = inner_products(X, Z)
        base *= -2.0
        base += squared_norms(X)[:, np.newaxis]
        base += squared_norms(Z)[np.newaxis, :]
        np.maximum(base, 0.0, out=base)
        if symmetric:
            np.fill_diagonal(base, 0.0)
            # The two sums above round differently on the two sides of the diagonal.
            base += base.T.copy()
            base *= 0.5
        return base

    def base_diagonal(self, X: Any) -> Array:
        """Return zeros: no row has a distance to itself."""
        return np.zeros(X.shape[0], dtype=X.dtype)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return exp(-gamma base)."""
        exponent = -gamma * base
        return np.exp(exponent, out=exponent)

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return -gamma base exp(-gamma base)."""
        slope = base * values
        slope *= -gamma
        return slope

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean squared distance between two rows."""
        _, variance = weighted_moments(X, weights)
        distance = 2.0 * float(variance.sum())
        return 1.0 / distance if distance > 0 else 1.0
