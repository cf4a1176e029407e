"""How much machines depend on every column: what their outputs change by if another row's value is put into it.

The mean of ½ (f(z) - f(z with z_j replaced))² is the numerator of the column's total Sobol index, by Jansen's estimator
(M. J. W. Jansen 1999, Analysis of variance designs for model output, Computer Physics Communications 117). For a linear
machine it is the variance that the column contributes. Unlike gradients it is as true of columns of few values, such as
indicators, and of rough kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from polymargin._threads import in_threads
from polymargin.kernels import Kernel

__all__ = ["swap_effects"]

Array = NDArray[Any]


def swap_effects(
    kernel: Kernel,
    X: Array,
    coefficients: Array,
    gamma: Array,
    Z: Array,
    replacements: Array,
    weights: Array,
) -> Array:
    """Return the mean of ½ (f_l(z) - f_l(z with z_j replaced))² over rows z, shape (L, d).

    The matrices between rows of which the kernel is a function are computed once; a column changes them entry by entry.

    Parameters
    ----------
    kernel : Kernel
        A kernel with a formula, as it was fitted.
    X : ndarray of shape (n, d)
        The rows of the expansions f_l(z) = Σ_i a_il k(x_i, z).
    coefficients : ndarray of shape (n, L)
        a.
    gamma : ndarray of shape (L,)
        The parameter of the kernel, of every machine.
    Z : ndarray of shape (m, d)
        The rows z.
    replacements : ndarray of shape (m, d)
        The values put in their place, column by column.
    weights : ndarray of shape (m, L)
        The weights of these rows for every machine.

    Returns
    -------
    ndarray of shape (L, d)

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> X, one = np.array([[0.0, 1.0], [2.0, 1.0]]), np.ones((2, 1))
    >>> swap_effects(Linear(), X, np.array([[5.0], [3.0]]), np.ones(1), X, X[::-1], one)
    array([[72.,  0.]])
    """
    centre = np.zeros(X.shape[1]) if kernel.centre is None else kernel.centre
    whole = [_matrix(kind, Z, X, centre) for kind in kernel.parts]
    effects = np.empty((coefficients.shape[1], X.shape[1]))
    gammas = {float(value): np.flatnonzero(gamma == value) for value in np.unique(gamma)}
    before = {value: _values(kernel, whole, value) for value in gammas}

    def replace_column(j: int) -> None:
        changed = replacements[:, j] != Z[:, j]
        effects[:, j] = 0.0
        if not changed.any():
            return
        old, new, x = Z[changed, j, np.newaxis], replacements[changed, j, np.newaxis], X[:, j]
        parts = [
            matrix[changed] + _change(kind, old, new, x, centre[j])
            for kind, matrix in zip(kernel.parts, whole, strict=True)
        ]
        for value, machines in gammas.items():
            difference = _values(kernel, parts, value) - before[value][changed]
            change = difference @ coefficients[:, machines]
            effects[machines, j] = 0.5 * np.einsum(
                "ml,ml->l", np.square(change), weights[changed][:, machines]
            )

    in_threads(replace_column, range(X.shape[1]))
    return effects / weights.sum(axis=0)[:, np.newaxis]


def _matrix(kind: str, Z: Array, X: Array, centre: Array) -> Array:
    """Return a matrix of a kernel's parts; distances are squared."""
    if kind == "products":
        return (Z - centre) @ (X - centre).T
    return cdist(Z, X, "cityblock" if kind == "city-block distances" else "sqeuclidean")


def _change(kind: str, old: Array, new: Array, x: Array, centre: float) -> Array:
    """Return what a matrix changes by if the values of a column are replaced."""
    if kind == "products":
        return (new - old) * (x - centre)
    if kind == "city-block distances":
        return np.abs(new - x) - np.abs(old - x)
    return np.square(new - x) - np.square(old - x)


def _values(kernel: Kernel, parts: list[Array], gamma: float) -> Array:
    """Return the kernel's values from its parts, whose distances are squared."""
    given = [
        np.sqrt(np.maximum(matrix, 0.0)) if kind == "distances" else matrix
        for kind, matrix in zip(kernel.parts, parts, strict=True)
    ]
    return np.asarray(kernel.formula(given, gamma, np.exp))
