"""The polynomial kernel (gamma x·z + coef0)^degree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from polymargin.kernels._base import Array, Kernel, inner_products, squared_norms, weighted_moments
from polymargin.kernels._features import Features, count_monomials, monomials, terms

#: Of larger ones the monomials are not listed: their sizes would differ too much.
_LARGEST_DEGREE, _LARGEST_COEF0 = 10, 1e6


@dataclass(frozen=True)
class Polynomial(Kernel):
    """K(x, z) = (gamma x·z + coef0)^degree; gamma = 1 is the kernel of the papers.

    A polynomial depends on where the origin is, and far from it all rows look alike: ``centred`` puts the origin at the
    mean of the training rows.

    Parameters
    ----------
    degree : float
        The degree.
    coef0 : float
        The weight of lower degrees; 0 leaves the highest alone.
    centred : bool
        Whether `fitted` is to put the origin at the mean of the rows.
    centre : ndarray of shape (d,), optional
        Where the origin is; at zero if None.

    Examples
    --------
    >>> Polynomial(2).gram(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[144.]])
    """

    parts = ("products",)

    degree: float = 3
    coef0: float = 1.0
    centred: bool = field(default=False, repr=False)
    centre: Array | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name, with the degree."""
        return f"poly, degree {self.degree:g}"

    def fitted(self, X: Any, weights: Array) -> Polynomial:
        """Return the kernel with its origin at the mean of the rows, if it is to be centred."""
        return replace(self, centre=weighted_moments(X, weights)[0]) if self.centred else self

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the inner products."""
        if self.centre is None:
            return inner_products(X, Z)
        Z = X if Z is None else Z
        if not sparse.issparse(X) and not sparse.issparse(Z):
            return inner_products(X - self.centre, Z - self.centre)
        products = inner_products(X, Z)
        products -= np.asarray(X @ self.centre)[:, np.newaxis]
        products -= np.asarray(Z @ self.centre)[np.newaxis, :] - self.centre @ self.centre
        return products

    def to_rows(self, Z: Any) -> Callable[[Any], Array]:
        """Return what computes the inner products of any rows with those of Z."""
        if self.centre is None or sparse.issparse(Z):
            return super().to_rows(Z)
        centre, centred = self.centre, Z - self.centre
        return lambda X: self.base(X, Z) if sparse.issparse(X) else inner_products(X - centre, centred)

    def base_diagonal(self, X: Any) -> Array:
        """Return the squared norms."""
        if self.centre is None:
            return squared_norms(X)
        if not sparse.issparse(X):
            return squared_norms(X - self.centre)
        return squared_norms(X) - 2.0 * np.asarray(X @ self.centre) + self.centre @ self.centre

    def apply(self, base: Array, gamma: float) -> Array:
        """Return (gamma base + coef0)^degree."""
        inner = gamma * base
        inner += self.coef0
        return np.power(inner, self.degree, out=inner)

    def formula(self, parts: Sequence[Any], gamma: float, exp: Callable[[Any], Any]) -> Any:
        """Return (gamma base + coef0)^degree."""
        return (gamma * parts[0] + float(self.coef0)) ** self.degree

    def smo_arguments(self) -> dict[str, Any] | None:
        """Return the name and the constants; None where the degree is not whole, or the kernel is centred."""
        if self.centre is not None or not float(self.degree).is_integer() or self.degree < 1:
            return None
        return {"kernel": "poly", "coef0": self.coef0, "degree": self.degree}

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return degree gamma base (gamma base + coef0)^(degree - 1)."""
        inner = gamma * base
        return self.degree * inner * (inner + self.coef0) ** (self.degree - 1.0)

    def n_features(self, d: int) -> int | None:
        """Return the number of monomials; None where the kernel is no sum over them."""
        whole = 0 < self.degree <= _LARGEST_DEGREE and float(self.degree).is_integer()
        listed = whole and 0.0 <= self.coef0 <= _LARGEST_COEF0
        return count_monomials(d, int(self.degree), self.coef0) if listed else None

    def feature_terms(self, d: int) -> list[tuple[Array, Array]]:
        """Return the monomials of d columns."""
        return list(terms(d, int(self.degree), self.coef0))

    def features(self, X: Any, unit: float | None = None) -> Features:
        """Return the monomials of every row."""
        rows = X if self.centre is None else X - self.centre
        return monomials(rows, int(self.degree), self.coef0, unit)

    def roundings(self, X: Any, gamma: float) -> float:
        """Return one, or more for sparse rows, whose products are centred when they have been rounded."""
        if self.centre is None or not sparse.issparse(X):
            return 1.0
        return 1.0 + self.degree * gamma * float(squared_norms(X).max())

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean squared norm of a row."""
        mean, variance = weighted_moments(X, weights)
        size = float(variance.sum()) + (0.0 if self.centred else float(mean @ mean))
        return 1.0 / size if size > 0 else 1.0
