"""The Laplacian kernel exp(-gamma ‖x - z‖₁)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from polymargin.kernels._base import Array, Kernel, symmetric, weighted_moments


@dataclass(frozen=True)
class Laplacian(Kernel):
    """Laplacian kernel exp(-gamma ‖x - z‖₁), of the sum of the differences of the columns.

    See Also
    --------
    RBF : The same of the squared Euclidean distance, which is smoother.
    Exponential : The same of the Euclidean distance.
    Blend : A sum of this kernel and `RBF`.

    Examples
    --------
    >>> import numpy as np
    >>> from polymargin.kernels import Laplacian
    >>> Laplacian().gram(np.array([[0.0, 0.0], [1.0, 2.0]]), gamma=0.5).round(3)
    array([[1.   , 0.223],
           [0.223, 1.   ]])
    """

    parts = ("city-block distances",)

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the city-block distances."""
        return symmetric(X.shape[0], self.strips(X)) if Z is None else _distances(X, Z)

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
        return lambda rows, columns: _distances(X[rows], X[columns])

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
        return {"kernel": "laplacian"}

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return -gamma base exp(-gamma base)."""
        slope = base * values
        slope *= -gamma
        return slope

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean city-block distance that normal features of these variances would have."""
        largest = float(abs(X).max()) or 1.0  # its square could overflow
        _, variance = weighted_moments(X / largest, weights)
        distance = 2.0 / np.sqrt(np.pi) * largest * float(np.sqrt(variance).sum())
        return 1.0 / distance if distance > 0 else 1.0


def _distances(X: Any, Z: Any) -> Array:
    """Return the city-block distances, shape (n, m)."""
    if sparse.issparse(X) or sparse.issparse(Z):
        from sklearn.metrics.pairwise import manhattan_distances  # slow to import

        return manhattan_distances(_short_indices(X), _short_indices(Z))
    return cdist(X, Z, "cityblock")


def _short_indices(X: Any) -> Any:
    """Return a sparse matrix with the short indices that scikit-learn's distances want, anything else as it is."""
    if not sparse.issparse(X) or (X.format == "csr" and X.indices.dtype == X.indptr.dtype == np.int32):
        return X
    X = X.tocsr()
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return type(X)(parts, shape=X.shape)
