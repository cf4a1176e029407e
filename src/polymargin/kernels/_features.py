"""Kernels that are sums over a list of features: what those of some rows are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Features:
    """What the kernel compares of two rows: K(x, z) = constant + Σ_j (unit² gamma)^order_j f_j(x) f_j(z).

    Attributes
    ----------
    values : ndarray of shape (n, D)
        The features f of every row.
    orders : ndarray of shape (D,)
        The power of gamma that goes with each.
    constant : float
        What any two rows have in common.
    unit : float
        The unit in which the rows are measured, so that no power of them is too large or too small.
    """

    values: Array
    orders: Array
    constant: float = 0.0
    unit: float = 1.0

    def of(self, rows: Array) -> Features:
        """Return the features of some rows."""
        return Features(self.values[rows], self.orders, self.constant, self.unit)

    def powers(self, gamma: float) -> Array:
        """Return how much each feature counts in the kernel, shape (D,)."""
        return (gamma * self.unit * self.unit) ** self.orders

    def weights(self, coef: Array, gammas: Array) -> Array:
        """Return Σᵢ aᵢ K(·, xᵢ), but for its constant, as weights of features, shape (D, L).

        Parameters
        ----------
        coef : ndarray of shape (n, L)
            The coefficients a, in columns.
        gammas : ndarray of shape (L,)
            The gamma of every column.
        """
        different, which = np.unique(gammas, return_inverse=True)
        powers = np.stack([self.powers(gamma) for gamma in different], axis=1)
        return powers[:, which] * (self.values.T @ coef)


@dataclass(frozen=True)
class FeatureExpansion:
    """Sums of kernel functions in terms of the features of what they are asked about.

    Attributes
    ----------
    weights : ndarray of shape (D, L)
        What every feature counts for.
    constant : ndarray of shape (L,)
        What does not depend on them.
    unit : float
        The unit in which the rows must be measured, see `Features`.
    """

    weights: Array
    constant: Array
    unit: float

    def at(self, features: Features) -> Array:
        """Return the sums at some rows, shape (n, L)."""
        assert features.unit == self.unit
        return features.values @ self.weights + self.constant


def count_monomials(d: int, degree: int, coef0: float) -> int:
    """Return how many monomials of d variables (x·z + coef0)^degree has, the constant one not counted.

    Examples
    --------
    >>> count_monomials(3, 2, 1.0), count_monomials(3, 2, 0.0)
    (9, 6)
    """
    return comb(d + degree, degree) - 1 if coef0 else comb(d + degree - 1, degree)


def monomials(X: Array, degree: int, coef0: float, unit: float | None = None) -> Features:
    """Return the features of (gamma x·z + coef0)^degree: the products of up to `degree` variables, rightly scaled.

    The unit of the rows is of their size if it is not given.

    Examples
    --------
    >>> features = monomials(np.array([[0.5, 0.75]]), 2, 1.0)
    >>> features.values.round(2), features.orders, features.constant, features.unit
    (array([[0.71, 1.06, 0.25, 0.53, 0.56]]), array([1, 1, 2, 2, 2]), 1.0, 1.0)
    >>> float((features.values**2).sum() + features.constant), (0.5**2 + 0.75**2 + 1) ** 2
    (3.28515625, 3.28515625)
    """
    if unit is None:  # a power of two, by which nothing is rounded
        unit = float(2.0 ** np.frexp(np.abs(X).max(initial=0.0))[1])
    columns = np.ascontiguousarray((X / unit).T)
    parts, orders = [], []
    for variables, scales in terms(X.shape[1], degree, coef0):
        part = columns[variables[0]]
        for others in variables[1:]:
            part *= columns[others]
        part *= scales[:, np.newaxis]
        parts.append(part)
        orders.append(np.full(scales.size, len(variables)))
    values = np.ascontiguousarray(np.concatenate(parts).T)
    return Features(values, np.concatenate(orders), float(coef0**degree), unit)


def terms(d: int, degree: int, coef0: float) -> Iterator[tuple[Array, Array]]:
    """Yield, for every order, the variables of its monomials, shape (order, m), and what each is multiplied by, (m,).

    Examples
    --------
    >>> [(variables.tolist(), scales.round(2).tolist()) for variables, scales in terms(2, 2, 1.0)]
    [([[0, 1]], [1.41, 1.41]), ([[0, 0, 1], [0, 1, 1]], [1.0, 1.41, 1.0])]
    """
    for order in range(1 if coef0 else degree, degree + 1):
        variables, counts = _products(d, order)
        yield variables, np.sqrt(comb(degree, order) * coef0 ** (degree - order) * counts)


@lru_cache(maxsize=16)
def _products(d: int, order: int) -> tuple[Array, Array]:
    """Return the variables of every product, shape (order, m), and in how many orders they can be written, (m,)."""
    products = list(combinations_with_replacement(range(d), order))
    counts = [
        factorial(order) // prod(factorial(times) for times in Counter(product).values())
        for product in products
    ]
    return np.array(products, dtype=np.intp).T, np.array(counts, dtype=np.float64)
