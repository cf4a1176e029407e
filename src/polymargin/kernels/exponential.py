"""The exponential kernel exp(-gamma ‖x - z‖), also known as the Matérn kernel of order ½."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms, symmetric, weighted_moments

#: Rows whose squared distance is less than this part of |x|² + |z|² are subtracted from each other: |x|² + |z|² - 2x·z
#: has an error of some roundings of |x|² + |z|², and a square root makes 1e-8 of the 1e-16 that it finds in place of a
#: zero. What is left is an error of at most fifty roundings of the distance.
_NEAR = 0.01
#: The numbers of a block of such differences.
_NUMBERS = 2**16
#: The rows of a strip of distances.
_STRIP = 64


@dataclass(frozen=True)
class Exponential(Kernel):
    """Exponential kernel exp(-gamma ‖x - z‖) of the Euclidean distance, the Matérn kernel of order ½.

    Its functions are continuous but not smooth, as those of the Laplacian kernel are, and unlike those they do not
    depend on the directions of the axes.

    See Also
    --------
    Laplacian : The same of the city-block distance.
    RBF : The same of the squared distance.

    Examples
    --------
    >>> Exponential().gram(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]), gamma=0.2).round(3)
    array([[0.368]])
    """

    parts = ("distances",)

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the Euclidean distances; that of equal rows is zero."""
        if Z is not None:
            return self.to_rows(Z)(X)
        X = X if sparse.issparse(X) else X - X.mean(axis=0)
        norms = squared_norms(X)
        base = symmetric(
            X.shape[0], lambda rows, columns: _distances(X[rows], norms[rows], X[columns], norms[columns])
        )
        np.fill_diagonal(base, 0.0)
        return base

    def to_rows(self, Z: Any) -> Callable[[Any], Array]:
        """Return what computes the distances of any rows from those of Z."""
        # A shift changes no distance, and near the origin fewer rows are near for their size.
        centre = None if sparse.issparse(Z) else Z.mean(axis=0)
        fixed = Z if centre is None else Z - centre
        norms = squared_norms(fixed)

        def distances(X: Any) -> Array:
            if centre is None or not sparse.issparse(X):
                other, other_norms = fixed, norms
                X = X if centre is None else X - centre
            else:
                other, other_norms = Z, squared_norms(Z)
            own_norms = squared_norms(X)
            result = np.empty((X.shape[0], Z.shape[0]), dtype=np.result_type(X.dtype, Z.dtype))
            for start in range(0, X.shape[0], _STRIP):
                rows = slice(start, start + _STRIP)
                result[rows] = _distances(X[rows], own_norms[rows], other, other_norms)
            return result

        return distances

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
        return {"kernel": "exponential"}

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return -gamma base exp(-gamma base)."""
        slope = base * values
        slope *= -gamma
        return slope

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the root of the mean squared distance between two rows."""
        _, variance = weighted_moments(X, weights)
        distance = float(np.sqrt(2.0 * variance.sum()))
        return 1.0 / distance if distance > 0 else 1.0


def _distances(X: Any, norms: Array, Z: Any, Z_norms: Array) -> Array:
    """Return the distances of the rows of X from those of Z, whose squared norms are given, shape (n, m)."""
    squares = inner_products(X, Z)
    squares *= -2.0
    sizes = norms[:, np.newaxis] + Z_norms
    squares += sizes
    sizes *= _NEAR
    left, right = np.nonzero(squares < sizes)
    step = max(1, _NUMBERS // max(1, X.shape[1]))
    for start in range(0, left.size, step):
        i, j = left[start : start + step], right[start : start + step]
        squares[i, j] = squared_norms(_difference(X[i], Z[j]))
    return np.sqrt(squares, out=squares)


def _difference(X: Any, Z: Any) -> Any:
    """Return X - Z, sparse if both are."""
    if sparse.issparse(X) == sparse.issparse(Z):
        return X - Z
    return (X.toarray() if sparse.issparse(X) else X) - (Z.toarray() if sparse.issparse(Z) else Z)
