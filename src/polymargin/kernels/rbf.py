"""The Gaussian kernel exp(-gamma ‖x - z‖²)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms, symmetric, weighted_moments


@dataclass(frozen=True)
class RBF(Kernel):
    """Gaussian kernel exp(-gamma ‖x - z‖²), also called RBF.

    The papers' σ² is 1 / gamma.

    See Also
    --------
    Laplacian, Exponential : Kernels of other distances, which are less smooth.
    Blend : A sum of this kernel and `Laplacian`.

    Examples
    --------
    >>> import numpy as np
    >>> from polymargin.kernels import RBF
    >>> RBF().gram(np.array([[0.0, 0.0], [1.0, 2.0]]), gamma=0.1).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    parts = ("squared distances",)

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the squared Euclidean distances, never negative, zero on the diagonal when Z is None."""
        if Z is None:
            base = symmetric(X.shape[0], self.strips(X))
            np.fill_diagonal(base, 0.0)
            return base
        return self.to_rows(Z)(X)

    def to_rows(self, Z: Any) -> Callable[[Any], Array]:
        """Return what computes the distances of any rows from those of Z."""
        if sparse.issparse(Z):
            own_norms = squared_norms(Z)
            return lambda X: _squared_distances(X, squared_norms(X), Z, own_norms)
        centre = Z.mean(axis=0)
        centred = Z - centre
        norms = squared_norms(centred)

        def distances(X: Any) -> Array:
            if sparse.issparse(X):
                return _squared_distances(X, squared_norms(X), Z, squared_norms(Z))
            X = X - centre
            return _squared_distances(X, squared_norms(X), centred, norms)

        return distances

    def strips(self, X: Any) -> Callable[[slice, slice], Array]:
        """Return a function that computes the distances of some rows of X from others; see `symmetric`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.

        Returns
        -------
        strip : callable (rows, columns) -> ndarray
            Takes two slices of the rows.
        """
        if not sparse.issparse(X):
            # Distances do not see a shift, rounding does: |x|² + |z|² - 2x·z loses the digits of a common mean.
            X = X - X.mean(axis=0)
        norms = squared_norms(X)
        return lambda rows, columns: _squared_distances(X[rows], norms[rows], X[columns], norms[columns])

    def base_diagonal(self, X: Any) -> Array:
        """Return zeros: no row has a distance to itself."""
        return np.zeros(X.shape[0], dtype=X.dtype)

    def apply(self, base: Array, gamma: float) -> Array:
        """Return exp(-gamma base)."""
        exponent = -gamma * base
        return np.exp(exponent, out=exponent)

    def formula(self, parts: Sequence[Any], gamma: float, exp: Callable[[Any], Any]) -> Any:
        """Return exp(-gamma base)."""
        return exp(-gamma * parts[0])

    def smo_arguments(self) -> dict[str, Any]:
        """Return the name."""
        return {"kernel": "rbf"}

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return -gamma base exp(-gamma base)."""
        slope = base * values
        slope *= -gamma
        return slope

    def roundings(self, X: Any, gamma: float) -> float:
        """Return one, or more for sparse rows, which are not centred: distances are then as wrong as ‖x‖² is large."""
        return 1.0 + 2.0 * gamma * float(squared_norms(X).max()) if sparse.issparse(X) else 1.0

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean squared distance between two rows."""
        _, variance = weighted_moments(X, weights)
        distance = 2.0 * float(variance.sum())
        return 1.0 / distance if distance > 0 else 1.0


def _squared_distances(X: Any, norms: Array, Z: Any, Z_norms: Array) -> Array:
    """Return |x|² + |z|² - 2x·z, but nothing below zero."""
    distances = inner_products(X, Z)
    distances *= -2.0
    distances += norms[:, np.newaxis]
    distances += Z_norms
    return np.maximum(distances, 0.0, out=distances)
