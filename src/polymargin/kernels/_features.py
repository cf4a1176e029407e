"""Kernels that are sums over a list of features: what those of some rows are."""

from __future__ import annotations

from collections import Counter
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
    """What the kernel compares of two rows: K(x, z) = constant + Σ_j gamma^order_j f_j(x) f_j(z).

    Attributes
    ----------
    values : ndarray of shape (n, D)
        The features f of every row.
    orders : ndarray of shape (D,)
        The power of gamma that goes with each.
    constant : float
        What any two rows have in common.
    """

    values: Array
    orders: Array
    constant: float = 0.0

    def of(self, rows: Array) -> Features:
        """Return the features of some rows."""
        return Features(self.values[rows], self.orders, self.constant)

    def expand(self, coef: Array, gamma: float) -> Array:
        """Return Σᵢ aᵢ K(x, xᵢ) for every row x, shape (n, L), and for every column a of coefficients, shape (n, L)."""
        weights = gamma ** self.orders[:, np.newaxis] * (self.values.T @ coef)
        return self.values @ weights + self.constant * coef.sum(axis=0)


def count_monomials(d: int, degree: int, coef0: float) -> int:
    """Return how many monomials of d variables (x·z + coef0)^degree has, the constant one not counted.

    Examples
    --------
    >>> count_monomials(3, 2, 1.0), count_monomials(3, 2, 0.0)
    (9, 6)
    """
    return comb(d + degree, degree) - 1 if coef0 else comb(d + degree - 1, degree)


def monomials(X: Array, degree: int, coef0: float) -> Features:
    """Return the features of (gamma x·z + coef0)^degree: the products of up to `degree` variables, rightly scaled.

    Examples
    --------
    >>> features = monomials(np.array([[2.0, 3.0]]), 2, 1.0)
    >>> features.values.round(2), features.orders, features.constant
    (array([[2.83, 4.24, 4.  , 8.49, 9.  ]]), array([1, 1, 2, 2, 2]), 1.0)
    >>> float((features.values**2).sum() + features.constant), (2 * 2 + 3 * 3 + 1) ** 2
    (196.0, 196)
    """
    columns = np.ascontiguousarray(X.T)
    parts, orders = [], []
    for order in range(1 if coef0 else degree, degree + 1):
        variables, counts = _products(X.shape[1], order)
        part = columns[variables[0]]
        for others in variables[1:]:
            part *= columns[others]
        part *= np.sqrt(comb(degree, order) * coef0 ** (degree - order) * counts)[:, np.newaxis]
        parts.append(part)
        orders.append(np.full(counts.size, order))
    values = np.ascontiguousarray(np.concatenate(parts).T)
    return Features(values, np.concatenate(orders), float(coef0**degree))


@lru_cache(maxsize=16)
def _products(d: int, order: int) -> tuple[Array, Array]:
    """Return the variables of every product, shape (order, m), and in how many orders they can be written, (m,)."""
    products = list(combinations_with_replacement(range(d), order))
    counts = [
        factorial(order) // prod(factorial(times) for times in Counter(product).values())
        for product in products
    ]
    return np.array(products, dtype=np.intp).T, np.array(counts, dtype=np.float64)
