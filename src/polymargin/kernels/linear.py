"""The linear kernel x·z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms
from polymargin.kernels._features import Features


@dataclass(frozen=True)
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

    def n_features(self, d: int) -> int:
        """Return d."""
        return d

    def features(self, X: Any, unit: float | None = None) -> Features:
        """Return the rows themselves, whatever gamma is."""
        return Features(X, np.zeros(X.shape[1]))
