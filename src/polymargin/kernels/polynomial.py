"""The polynomial kernel (gamma x·z + coef0)^degree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms, weighted_moments


@dataclass(frozen=True)
class Polynomial(Kernel):
    """K(x, z) = (gamma x·z + coef0)^degree; gamma = 1 is the kernel of the papers."""

    degree: float = 3
    coef0: float = 1.0

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the inner products."""
        return inner_products(X, Z)

    def base_diagonal(self, X: Any) -> Array:
        """Return the squared norms."""
        return squared_norms(X)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return (gamma base + coef0)^degree."""
        inner = gamma * base
        inner += self.coef0
        return np.power(inner, self.degree, out=inner)

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return degree gamma base (gamma base + coef0)^(degree - 1)."""
        inner = gamma * base
        return self.degree * inner * np.power(inner + self.coef0, self.degree - 1.0)

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean squared norm of a row."""
        mean, variance = weighted_moments(X, weights)
        size = float(variance.sum() + mean @ mean)
        return 1.0 / size if size > 0 else 1.0
