"""Centring: the least-squares machine without its bias.

The unregularised bias of an LS-SVM is projected out. With row weights s, N = Σs, D = diag(√s) and the unit
vector q = √s/√N, the machine is a ridge regression with the matrix

    A = D (K − r1ᵀ − 1rᵀ + g) D + κqqᵀ,     r = Ks/N,  g = sᵀKs/N²,

the Gram matrix of features centred at their weighted mean. A has q as an eigenvector; κ, the mean of the other
eigenvalues, is assigned to it so that A is not singular in this direction, and is removed again analytically.
Targets and solutions are orthogonal to q, so κ never enters a result. A row of weight two counts exactly like
two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import over_rows

Array = NDArray[Any]


@dataclass(frozen=True)
class Centring:
    """Centring of kernel values of training and of new rows.

    Attributes
    ----------
    weights : ndarray of shape (n,)
        The row weights s, all positive.
    total : float
        N, their sum: the number of rows they stand for.
    row_means : ndarray of shape (n,)
        r, the weighted mean of every row of the Gram matrix.
    grand_mean : float
        g, the weighted mean of r.
    bias_eigenvalue : float
        κ, the eigenvalue of A that belongs to q.

    See Also
    --------
    centre : The centring of a Gram matrix.

    Examples
    --------
    >>> centring, A = centre(np.array([[2.0, 0.0], [0.0, 2.0]]), np.ones(2))
    >>> centring.row_means, centring.grand_mean, centring.targets(np.array([[1.0], [3.0]]))[0].ravel()
    (array([1., 1.]), 1.0, array([-1.,  1.]))
    """

    weights: Array
    total: float
    row_means: Array
    grand_mean: float
    bias_eigenvalue: float

    @property
    def roots(self) -> Array:
        """√s, shape (n,)."""
        return np.sqrt(self.weights)

    @property
    def centred_trace(self) -> float:
        """The sum of the eigenvalues of A but for κ."""
        return self.bias_eigenvalue * max(self.total - 1.0, 1.0)

    @property
    def trace(self) -> float:
        """Σ s K(x, x), the trace of DKD before centring, which determines the size of rounding errors."""
        return self.centred_trace + self.total * abs(self.grand_mean)

    @property
    def bias_direction(self) -> Array:
        """The unit vector q, shape (n,)."""
        return np.sqrt(self.weights / self.total)

    def targets(self, Y: Array) -> tuple[Array, Array]:
        """Return D(Y − ȳ), shape (n, L), and the weighted means ȳ, shape (L,).

        Parameters
        ----------
        Y : ndarray of shape (n, L)
            Targets, in columns.

        Returns
        -------
        targets : ndarray of shape (n, L)
        means : ndarray of shape (L,)
        """
        means = self.weights @ Y / self.total
        return np.sqrt(self.weights)[:, np.newaxis] * (Y - means), means

    def cross(self, K_new: Array) -> Array:
        """Return the centred kernel between new rows and training rows, shape (m, n), times √s.

        Parameters
        ----------
        K_new : ndarray of shape (m, n)
            Kernel values between new rows and training rows.

        Returns
        -------
        ndarray of shape (m, n)
        """
        centred = K_new - (K_new @ self.weights / self.total)[:, np.newaxis]
        centred -= self.row_means - self.grand_mean
        centred *= self.roots
        return centred

    def diagonal(self, k_new: Array, K_new: Array) -> Array:
        """Return the centred K(x, x) of new rows, shape (m,), from K(x, x) and K(x, training rows).

        Parameters
        ----------
        k_new : ndarray of shape (m,)
            K(x, x).
        K_new : ndarray of shape (m, n)
            K(x, training rows).

        Returns
        -------
        ndarray of shape (m,)
        """
        return k_new - 2.0 * (K_new @ self.weights / self.total) + self.grand_mean


def centre(K: Array, weights: Array) -> tuple[Centring, Array]:
    """Return the centring of a Gram matrix and the centred matrix A.

    K is overwritten; A is in Fortran order, ready for LAPACK.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        The Gram matrix.
    weights : ndarray of shape (n,)
        The row weights s, all positive.

    Returns
    -------
    centring : Centring
    A : ndarray of shape (n, n)
    """
    total = float(weights.sum())
    row_means = K @ weights / total
    grand_mean = float(row_means @ weights / total)
    roots = np.sqrt(weights)
    weighted = bool((weights != 1.0).any())

    def project(rows: slice) -> None:
        strip = K[rows]
        strip -= row_means[rows, np.newaxis]
        strip -= row_means - grand_mean
        if weighted:
            strip *= roots[rows, np.newaxis]
            strip *= roots

    over_rows(project, *K.shape)
    bias_eigenvalue = float(np.trace(K)) / max(total - 1.0, 1.0)
    if not bias_eigenvalue > 0.0:
        bias_eigenvalue = 1.0
    add_outer(K, bias_eigenvalue / total, roots)
    return Centring(weights, total, row_means, grand_mean, bias_eigenvalue), np.asfortranarray(K.T)


def add_outer(A: Array, factor: float, vector: Array) -> None:
    """Add factor times the vector times its transpose to A, a few rows at a time: a second matrix costs more.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        The matrix, changed in place.
    factor : float
        The factor.
    vector : ndarray of shape (n,)
        The vector.
    """
    same = bool((vector == vector[0]).all())
    # In the order of the memory.
    A = A.T if A.flags.f_contiguous else A

    def add(rows: slice) -> None:
        A[rows] += factor * (vector[0] ** 2 if same else vector[rows, np.newaxis] * vector)

    over_rows(add, *A.shape)
