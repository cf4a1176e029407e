"""The linear kernel x·z."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms
from polymargin.kernels._features import Features


@dataclass(frozen=True)
class Linear(Kernel):
    """K(x, z) = x·z."""

    tunable = False
    parts = ("products",)

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the inner products."""
        return inner_products(X, Z)

    def base_diagonal(self, X: Any) -> Array:
        """Return the squared norms."""
        return squared_norms(X)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return a copy of the base: there is no parameter."""
        return base.copy()

    def formula(self, parts: Sequence[Any], gamma: float, exp: Callable[[Any], Any]) -> Any:
        """Return the inner products: there is no parameter."""
        return parts[0]

    def smo_arguments(self) -> dict[str, Any]:
        """Return the name."""
        return {"kernel": "linear"}

    def feature_terms(self, d: int) -> None:
        """Return None: the features are the columns."""

    def n_features(self, d: int) -> int:
        """Return d."""
        return d

    def features(self, X: Any, unit: float | None = None) -> Features:
        """Return the rows themselves, whatever gamma is."""
        return Features(X, np.zeros(X.shape[1]))
