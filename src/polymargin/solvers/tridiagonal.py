"""Tridiagonal form: after one reduction every ridge costs O(n).

A = Q T Qᵀ with T tridiagonal takes about 4½ Cholesky factorisations, a third of an eigendecomposition. After
that, log det(A + εI), tr(A + εI)⁻¹ and yᵀ(A + εI)⁻¹y for any ε and any column y cost O(n) each. This is what a
search over the regularisation needs, for all the dichotomies that share the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal, lapack

Array = NDArray[Any]


@dataclass(frozen=True)
class Tridiagonal:
    """A symmetric matrix in tridiagonal form with some columns carried along.

    Attributes
    ----------
    diagonal, off_diagonal : ndarray of shape (n,), (n - 1,)
        T.
    columns : ndarray of shape (n, L)
        QᵀY.
    eigenvalues : ndarray of shape (n,)
        The eigenvalues of T, which are those of A, ascending.

    See Also
    --------
    tridiagonalise : The reduction.

    Examples
    --------
    >>> form = tridiagonalise(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [1.0]]))
    >>> form.eigenvalues, form.solve(1.0).round(2).ravel()
    (array([1., 3.]), array([0.25, 0.25]))
    """

    diagonal: Array
    off_diagonal: Array
    columns: Array
    eigenvalues: Array

    def solve(self, ridge: float, columns: Array | slice = slice(None)) -> Array:
        """Return (T + ridge I)⁻¹ QᵀY for the chosen columns, shape (n, L).

        Parameters
        ----------
        ridge : float
            ε.
        columns : ndarray of int or slice
            Which columns.

        Returns
        -------
        ndarray of shape (n, L)
        """
        rhs = self.columns[:, columns]
        *_, solution, info = lapack.dptsv(self.diagonal + ridge, self.off_diagonal, rhs)
        if info != 0:
            raise np.linalg.LinAlgError("the ridge is too small for this matrix")
        return solution


def tridiagonalise(A: Array, Y: Array) -> Tridiagonal:
    """Reduce the symmetric matrix A, shape (n, n), to tridiagonal form and carry Y, shape (n, L), along.

    A is overwritten when it is in Fortran order.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric.
    Y : ndarray of shape (n, L)
        Columns.

    Returns
    -------
    Tridiagonal
    """
    n = A.shape[0]
    lwork = int(lapack.dsytrd_lwork(n, lower=1)[0])
    reflectors, diagonal, off_diagonal, tau, _ = lapack.dsytrd(A, lower=1, lwork=lwork, overwrite_a=1)
    columns = np.array(Y, dtype=np.float64, order="F")
    if n > 1:
        # Q leaves the first coordinate alone; on the others it is a product of reflectors as in a QR.
        inner = reflectors[1:, :-1]
        rest = np.asfortranarray(columns[1:])
        work = int(lapack.dormqr("L", "T", inner, tau, rest, -1)[1][0])
        columns[1:] = lapack.dormqr("L", "T", inner, tau, rest, work)[0]
    return Tridiagonal(diagonal, off_diagonal, columns, eigvalsh_tridiagonal(diagonal, off_diagonal))
