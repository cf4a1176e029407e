"""The linear kernel x·z."""

from __future__ import annotations

from typing import Any

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms


class Linear(Kernel):
    """K(x, z) = x·z."""

    tunable = False

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the inner products."""
        return inner_products(X, Z)

    def base_diagonal(self, X: Any) -> Array:
        """Return the squared norms."""
        return squared_norms(X)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return a copy of the base: there is no parameter."""
        return base.copy()
