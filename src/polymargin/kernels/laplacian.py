"""The Laplacian kernel exp(-gamma |x - z|₁)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics.pairwise import manhattan_distances

from polymargin.kernels._base import Array, Kernel, weighted_moments


class Laplacian(Kernel):
    """K(x, z) = exp(-gamma Σ_j |x_j - z_j|)."""

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the city-block distances."""
        return manhattan_distances(X, X if Z is None else Z)

    def base_diagonal(self, X: Any) -> Array:
        """Return zeros: no row has a distance to itself."""
        return np.zeros(X.shape[0], dtype=X.dtype)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return exp(-gamma base)."""
        exponent = -gamma * base
        return np.exp(exponent, out=exponent)

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean city-block distance that normal features of these variances would have."""
        _, variance = weighted_moments(X, weights)
        distance = 2.0 / np.sqrt(np.pi) * float(np.sqrt(variance).sum())
        return 1.0 / distance if distance > 0 else 1.0
