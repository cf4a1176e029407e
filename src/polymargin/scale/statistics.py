"""Statistics of the classes in a feature space: all that least-squares machines need of the rows.

For every class the total weight n = Σ s, the sum Σ sφ and the products Σ sφφᵀ. Every dichotomy of every codebook, with
any C, is a signed sum of them. They add up over blocks of rows, in any order, on any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

Array = NDArray[Any]


def moments(features: Array, shares: Array, counted: Array) -> tuple[Array, Array]:
    """Return weighted sums of the features of rows, and of their products.

    Parameters
    ----------
    features : ndarray of shape (n, D)
        φ of every row.
    shares : ndarray of shape (n, K)
        The weights s of the rows in every sum.
    counted : ndarray of shape (P, n)
        Their weights in every matrix of products.

    Returns
    -------
    sums : ndarray of shape (K, D)
        Σ sφ.
    products : ndarray of shape (P, D, D)
        The lower triangles of Σ sφφᵀ.
    """
    D = features.shape[1]
    products = np.zeros((len(counted), D, D))
    for number, own in enumerate(counted):
        used = np.flatnonzero(own)
        if used.size:
            scaled = features if used.size == own.size else features[used]
            if (own[used] != 1.0).any():
                scaled = scaled * np.sqrt(own[used])[:, np.newaxis]
            # The lower triangle of a row-major matrix is the upper one by columns.
            products[number] = dsyrk(1.0, scaled.T, lower=0).T
    return shares.T @ features, products


@dataclass(frozen=True)
class ClassStatistics:
    """What the classes look like in a feature space of D dimensions.

    Attributes
    ----------
    n_rows : int
        The number of rows.
    weights : ndarray of shape (K,)
        The total weight of every class.
    sums : ndarray of shape (K, D)
        Σ sφ of every class.
    products : ndarray of shape (K, D, D) or (1, D, D)
        Σ sφφᵀ of every class, or of all classes together, which is enough for codebooks without don't cares. The lower
        triangles only.

    Examples
    --------
    >>> one, other = (ClassStatistics.of(np.array([[x]]), np.array([0]), np.ones(1), n_classes=1) for x in (2.0, 3.0))
    >>> (one + other).sums, (one + other).products
    (array([[5.]]), array([[[13.]]]))
    """

    n_rows: int
    weights: Array
    sums: Array
    products: Array

    @classmethod
    def of(
        cls,
        features: Array,
        class_index: Array,
        weights: Array,
        *,
        n_classes: int,
        soft_labels: Array | None = None,
        together: bool = False,
        moments: Callable[[Any, Array, Array], tuple[Array, Array]] = moments,
    ) -> ClassStatistics:
        """Return the statistics of a block of rows.

        Parameters
        ----------
        features : array of shape (n, D)
            φ of every row.
        class_index : ndarray of int, shape (n,)
            Their classes.
        weights : ndarray of shape (n,)
            Their weights s.
        n_classes : int
            K.
        soft_labels : ndarray of shape (n, K) or None
            Class probabilities in place of labels: a row counts for every class with its probability.
        together : bool
            Whether the products of all classes are added up.
        moments : callable (features, shares, counted) -> (sums, products)
            Adds up the features, where they are.

        Returns
        -------
        ClassStatistics
        """
        shares = np.eye(n_classes)[class_index] if soft_labels is None else soft_labels
        shares = shares * weights[:, np.newaxis]
        sums, products = moments(features, shares, weights[np.newaxis] if together else shares.T)
        return cls(class_index.size, shares.sum(axis=0), sums, products)

    @property
    def together(self) -> bool:
        """Whether only the products of all classes together are known."""
        return len(self.products) == 1 < self.weights.size

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        return ClassStatistics(
            self.n_rows + other.n_rows,
            self.weights + other.weights,
            self.sums + other.sums,
            self.products + other.products,
        )

    def add(self, other: ClassStatistics) -> ClassStatistics:
        """Add other statistics to these, in place, and return them.

        Parameters
        ----------
        other : ClassStatistics
            The statistics of other rows.

        Returns
        -------
        ClassStatistics
            These, with arrays that are changed.
        """
        for mine, theirs in (
            (self.weights, other.weights),
            (self.sums, other.sums),
            (self.products, other.products),
        ):
            mine += theirs
        return ClassStatistics(self.n_rows + other.n_rows, self.weights, self.sums, self.products)

    def of_classes(self, classes: Array) -> tuple[float, Array, Array]:
        """Return the weight, the mean and the centred products (both triangles) of some classes together.

        Parameters
        ----------
        classes : ndarray of bool, shape (K,)
            The classes.

        Returns
        -------
        total : float
        mean : ndarray of shape (D,)
        products : ndarray of shape (D, D)
            In Fortran order.
        """
        if self.together and not classes.all():
            raise ValueError(
                "these statistics are those of all classes together, which serve codebooks without don't cares only"
            )
        total = float(self.weights[classes].sum())
        mean = self.sums[classes].sum(axis=0) / total
        lower = self.products[0] if self.together else self.products[classes].sum(axis=0)
        products = np.tril(lower) + np.tril(lower, -1).T
        products -= total * np.outer(mean, mean)
        return total, mean, np.asfortranarray(products)
