"""What a kernel is to the rest of the library: a base matrix and an elementwise map.

A Gram matrix is computed in two steps. The *base* (inner products or distances) costs the BLAS work and does
not depend on the kernel's parameter; the *map* turns it into kernel values for one ``gamma``. A search over
``gamma`` therefore pays for the base once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.sparsefuncs import mean_variance_axis

from polymargin._memory import block_rows
from polymargin._threads import ENTRIES, in_threads, over_rows
from polymargin.kernels._features import Features

Array = NDArray[Any]

#: The rows of a strip of a symmetric matrix, and what of their square is above its diagonal.
_STRIP = 64
_ABOVE = np.tri(_STRIP, k=-1, dtype=bool).T


class Kernel(ABC):
    """A kernel function K(x, z) = apply(base(x, z), gamma)."""

    #: Whether the kernel has a ``gamma`` that a selection rule may choose.
    tunable: ClassVar[bool] = True
    #: Whether X is the Gram matrix itself.
    precomputed: ClassVar[bool] = False
    #: Whether the Gram matrix comes from outside and must be checked.
    untrusted: ClassVar[bool] = False
    #: Whether every Gram matrix is positive semi-definite. Only `SVMClassifier` takes a kernel of which it is not.
    positive_definite: ClassVar[bool] = True
    #: Which matrices between rows the kernel is a function of: "products", "squared distances", "distances",
    #: "city-block distances".
    #: Empty where `formula` does not exist, and a model cannot be exported.
    parts: ClassVar[tuple[str, ...]] = ()
    #: The numbers of an entry of the base matrix.
    base_numbers: ClassVar[int] = 1
    #: What is subtracted from all rows before "products" are taken; None: nothing.
    centre: Array | None = None

    @property
    def name(self) -> str:
        """What the kernel is called: as in the estimators' parameters, with what tells it from others of the name.

        Examples
        --------
        >>> from polymargin.kernels import RBF, Polynomial
        >>> RBF().name, Polynomial(2).name
        ('rbf', 'poly, degree 2')
        """
        return type(self).__name__.lower()

    def scaled(self, X: Any) -> Any:
        """Return the rows as the kernel compares them: with scaled columns or ranks, if it has a metric.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.

        Returns
        -------
        X : array-like or sparse matrix of shape (n, d)
            The rows themselves, but for `Scaled`.
        """
        return X

    @abstractmethod
    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the base matrix, shape (n, m), between the rows of X and of Z (X itself when None).

        The result is a new array that the caller may overwrite; with Z=None it is exactly symmetric. Where ``apply``
        needs two numbers of two rows its shape is (n, m, 2).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        Z : array-like or sparse matrix of shape (m, d), optional
            The other rows; X itself if None.

        Returns
        -------
        base : ndarray of shape (n, m) or (n, m, 2)
            What ``apply`` needs to know of every two rows.
        """

    @abstractmethod
    def base_diagonal(self, X: Any) -> Array:
        """Return the base of each row with itself.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.

        Returns
        -------
        base : ndarray of shape (n,) or (n, 2)
            The diagonal of the base matrix.
        """

    @abstractmethod
    def apply(self, base: Array, gamma: float) -> Array:
        """Return the kernel values for ``base``.

        Parameters
        ----------
        base : ndarray
            Some entries of the base matrix.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        values : ndarray
            A new array, with one number for every two rows.
        """

    def to_rows(self, Z: Any) -> Callable[[Any], Array]:
        """Return a function that computes ``base(X, Z)`` of any X; what depends on Z alone is computed once.

        Parameters
        ----------
        Z : array-like or sparse matrix of shape (m, d)
            The rows that others are compared with.

        Returns
        -------
        base : callable (X) -> ndarray of shape (n, m)
            The base matrix between the rows of X and of Z.
        """
        return lambda X: self.base(X, Z)

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return the derivative of the kernel values in log gamma; zero where there is no gamma.

        Parameters
        ----------
        base : ndarray
            Some entries of the base matrix.
        values : ndarray of the shape of base
            Their kernel values, which `apply` has returned for the same gamma.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        slope : ndarray of the shape of base
            A new array.
        """
        return np.zeros_like(values)

    def roundings(self, X: Any, gamma: float) -> float:
        """Return the expected error of kernel values among the rows, in rounding units of the largest value.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        float
        """
        return 1.0

    def n_features(self, d: int) -> int | None:
        """Return the dimension of the explicit feature map for rows of d columns; None if there is none.

        Parameters
        ----------
        d : int
            The number of columns.

        Returns
        -------
        n_features : int or None
            The number of features that `features` returns.
        """
        return None

    def features(self, X: Any, unit: float | None = None) -> Features:
        """Return the explicit feature map of every row, whose dimension is `n_features`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        unit : float, optional
            The unit in which the features are given; by default one of their size.

        Returns
        -------
        features : Features
            The features, and their unit.
        """
        raise NotImplementedError(f"{self!r} has no list of features")

    def feature_terms(self, d: int) -> list[tuple[Array, Array]] | None:
        """Return the monomials of the explicit feature map; None if the features are the columns themselves.

        Parameters
        ----------
        d : int
            The number of columns.

        Returns
        -------
        terms : list of (ndarray of int, ndarray), or None
            For every order of products: the columns that are multiplied, shape (order, m), and the factors of the
            products, shape (m,). The centre is subtracted from the columns first.
        """
        raise NotImplementedError(f"{self!r} has no list of features")

    def formula(self, parts: Sequence[Any], gamma: float, exp: Callable[[Any], Any]) -> Any:
        """Return the kernel values from the matrices that `parts` names, by arithmetic that any arrays understand.

        `apply` is the same in NumPy, faster. This serves arrays that are no NumPy arrays, such as tensors of a graph.

        Parameters
        ----------
        parts : sequence of arrays
            A matrix for every one of `parts`.
        gamma : float
            The kernel's parameter.
        exp : callable
            The exponential function of such arrays.
        """
        raise NotImplementedError(f"{self!r} has no formula")

    def smo_arguments(self) -> dict[str, Any] | None:
        """Return the keyword arguments with which `polymargin.solvers.smo_gram.LazyGram` computes rows of this kernel.

        None where it cannot. A subclass that is another function of two rows must say so here, and in `parts`.
        """
        return None

    def base_among(self, X: Any, rows: Array) -> Array:
        """Return the symmetric base matrix among some of the training rows, in double precision.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        rows : ndarray of shape (m,)
            The indices of some rows.

        Returns
        -------
        base : ndarray of shape (m, m)
            Their base matrix.
        """
        base = self.base(X[rows])
        return base.astype(np.result_type(base, np.float64), copy=False)

    def fitted(self, X: Any, weights: Array) -> Kernel:
        """Return the kernel for these training rows: itself, unless it depends on them, as a centred polynomial does.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        weights : ndarray of shape (n,)
            The weights of the rows.

        Returns
        -------
        kernel : Kernel
            The kernel to use for these rows, and for new ones.
        """
        return self

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return the value of gamma that is natural for the scale of X: the origin of every search.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        weights : ndarray of shape (n,)
            The weights of the rows.

        Returns
        -------
        gamma : float
            Positive.
        """
        return 1.0

    def gram(self, X: Any, Z: Any = None, gamma: float = 1.0) -> Array:
        """Return the Gram matrix K(X, Z).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        Z : array-like or sparse matrix of shape (m, d), optional
            The other rows; X itself if None.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        values : ndarray of shape (n, m)
            The kernel values.
        """
        return self.apply(self.base(X, Z), gamma)

    def diagonal(self, X: Any, gamma: float = 1.0) -> Array:
        """Return K(x, x) of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The rows.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        values : ndarray of shape (n,)
            The diagonal of the Gram matrix.
        """
        return self.apply(self.base_diagonal(X), gamma)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def symmetric(n: int, strip: Callable[[slice, slice], Array], entry: tuple[int, ...] = ()) -> Array:
    """Return a symmetric matrix, shape (n, n), from its strips on and above the diagonal; threads share them.

    Parameters
    ----------
    n : int
        The number of rows.
    strip : callable (rows, columns) -> ndarray
        Returns the entries of some rows and columns; rounding may differ on the two sides of the diagonal.
    entry : tuple of int, default=()
        The shape of an entry; empty for a number.

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> symmetric(3, lambda rows, columns: np.subtract.outer(x[rows], x[columns]) ** 2)
    array([[0., 1., 4.],
           [1., 0., 1.],
           [4., 1., 0.]])
    """
    matrix = np.empty((n, n, *entry))

    def fill(start: int) -> None:
        rows = slice(start, min(start + _STRIP, n))
        entries = strip(rows, slice(start, n))
        matrix[rows, start:] = entries
        matrix[rows.stop :, rows] = entries[:, entries.shape[0] :].swapaxes(0, 1)
        square = entries[:, : entries.shape[0]]
        above = _ABOVE[: square.shape[0], : square.shape[0]].reshape(*square.shape[:2], *(1 for _ in entry))
        np.copyto(matrix[rows, rows], square.swapaxes(0, 1), where=above)

    in_threads(fill, range(0, n, _STRIP))
    return matrix


def in_strips(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return a function of arrays of one shape, entry by entry, a few rows at a time: what is small stays in the cache.

    Examples
    --------
    >>> in_strips(np.add, np.eye(2), np.ones((2, 2)))
    array([[2., 1.],
           [1., 2.]])
    """
    shape = arrays[0].shape
    if np.prod(shape) <= ENTRIES:
        return function(*arrays)
    result = np.empty(shape)

    def compute(rows: slice) -> None:
        result[rows] = function(*(array[rows] for array in arrays))

    over_rows(compute, shape[0], int(np.prod(shape[1:])))
    return result


def inner_products(X: Any, Z: Any = None) -> Array:
    """Return the matrix of inner products as a dense array; sparse input is welcome."""
    if Z is None:
        Z = X
    return safe_sparse_dot(X, Z.T, dense_output=True)


def squared_norms(X: Any) -> Array:
    """Return the squared Euclidean norm of every row, shape (n,)."""
    if hasattr(X, "multiply"):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def weighted_moments(X: Any, weights: Array, unit: float = 1.0) -> tuple[Array, Array]:
    """Return the weighted mean and variance of every column of X in this unit, each of shape (d,).

    A row of weight two counts exactly like two rows.
    """
    if hasattr(X, "multiply"):
        X = X if unit == 1.0 else X / unit
        mean, variance = mean_variance_axis(X, axis=0, weights=np.asarray(weights, dtype=X.dtype))
        return np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    share = weights / weights.sum()
    mean, variance = np.empty((2, X.shape[1]))
    step = block_rows(8.0 * len(X))  # of columns: copies of large tables would take their memory again
    for start in range(0, X.shape[1], step):
        columns = slice(start, start + step)
        part = X[:, columns] if unit == 1.0 else X[:, columns] / unit
        mean[columns] = share @ part
        variance[columns] = share @ np.square(part - mean[columns])
    return mean, variance
