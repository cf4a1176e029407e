"""Ridge solvers: factor the centred matrix A once, then solve for many columns.

Both factors have the same interface. `CholeskyFactor` is for columns that share one ridge ε; `SpectralFactor`
costs about fifteen of them and then serves any number of different ridges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polymargin._threads import over_rows
from polymargin.solvers import _lapack
from polymargin.solvers.centring import Centring, add_outer
from polymargin.solvers.leave_out import LeftOut, WholeInverse, inverse_blocks

Array = NDArray[Any]

#: From this many different ridges on, one eigendecomposition is cheaper than Cholesky factorisations with inverses.
SPECTRAL_FROM = 5
#: Advice for an indefinite matrix, which may also be due to rounding of large values with small differences.
_REMEDY = "use a positive definite kernel, a smaller C, or standardised features (StandardScaler)"


class Factor(Protocol):
    """A factorisation of A + εI for every column's ridge ε.

    See Also
    --------
    CholeskyFactor, SpectralFactor, polymargin.solvers.thin.ThinFactor : The implementations.
    """

    def solve(self, Y: Array) -> Array:
        """Return (A + ε_l I)⁻¹ y_l for every column l, shape (n, L).

        Parameters
        ----------
        Y : ndarray of shape (n, L)
            Right-hand sides.

        Returns
        -------
        ndarray of shape (n, L)
        """

    def inverse_diagonal(self) -> Array:
        """Return the diagonals of (A + ε_l I)⁻¹, shape (n, L).

        Returns
        -------
        ndarray of shape (n, L)
        """

    def inverse_blocks(self, left_out: LeftOut) -> list[Array]:
        """Return the blocks of (A + ε I)⁻¹ that belong to groups of rows, see `LeftOut.errors`.

        Parameters
        ----------
        left_out : LeftOut
            The groups.

        Returns
        -------
        list of ndarray
        """

    def log_determinants(self) -> Array:
        """Return log det(A + ε_l I), shape (L,).

        Returns
        -------
        ndarray of shape (L,)
        """


class WholeFactor(Factor, Protocol):
    """A factorisation that also gives quadratic forms of arbitrary vectors."""

    def quadratic(self, V: Array) -> Array:
        """Return vᵀ(A + ε_l I)⁻¹v for every row v of V, shape (m, L); V may be overwritten.

        Parameters
        ----------
        V : ndarray of shape (m, n)
            Directions, in rows.

        Returns
        -------
        ndarray of shape (m, L)
        """


@runtime_checkable
class InvertibleFactor(Factor, Protocol):
    """A factorisation for one ridge whose whole inverse can be had, for machines that are refitted without folds."""

    def unbiased_inverse(self, centring: Centring, ridge: float) -> Any:
        """Return the inverse without the bias direction, see `polymargin.solvers.leave_out.WholeInverse`.

        Parameters
        ----------
        centring : Centring
            How A is centred.
        ridge : float
            ε.

        Returns
        -------
        WholeInverse, or what has its methods; None where there is no memory for it
        """


class NotPositiveDefinite(np.linalg.LinAlgError):
    """The kernel matrix has a negative eigenvalue that the regularisation does not cover."""


@dataclass(frozen=True)
class CholeskyFactor:
    """A + εI = LLᵀ for one ridge; L is the lower triangle of ``lower``.

    See Also
    --------
    cholesky : The factorisation.

    Examples
    --------
    >>> cholesky(np.diag([1.0, 3.0]), 1.0, n_columns=1).solve(np.ones((2, 1))).ravel()
    array([0.5 , 0.25])
    """

    lower: Array
    n_columns: int

    def solve(self, Y: Array) -> Array:
        """Return (A + εI)⁻¹Y.

        Parameters
        ----------
        Y : ndarray of shape (n, L)
            Right-hand sides.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return _lapack.solve_factored(self.lower, Y)

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of the inverse, the same for every column.

        It costs half as much as the whole inverse: the squares of L⁻¹ are added up.

        Returns
        -------
        ndarray of shape (n, L)
        """
        inverse = _copied(self.lower)
        _lapack.invert_triangle(inverse)
        diagonal = np.einsum("ij,ij->j", inverse, inverse)
        return np.repeat(diagonal[:, np.newaxis], self.n_columns, axis=1)

    def inverse_blocks(self, left_out: LeftOut) -> list[Array]:
        """Return the blocks of the inverse, the same for every column.

        Parameters
        ----------
        left_out : LeftOut
            The groups.

        Returns
        -------
        list of ndarray
        """
        inverse = _copied(self.lower)
        _lapack.invert_triangle(inverse)
        return inverse_blocks(inverse, left_out)

    def unbiased_inverse(self, centring: Centring, ridge: float) -> WholeInverse:
        """Return the inverse without the bias direction.

        Parameters
        ----------
        centring : Centring
            How A is centred.
        ridge : float
            ε.

        Returns
        -------
        WholeInverse
        """
        P = symmetric_inverse(_copied(self.lower))
        add_outer(P, -1.0 / (centring.bias_eigenvalue + ridge), centring.bias_direction)
        return WholeInverse(P)

    def log_determinants(self) -> Array:
        """Return the log-determinant, the same for every column.

        Returns
        -------
        ndarray of shape (L,)
        """
        return np.full(self.n_columns, 2.0 * np.log(np.diagonal(self.lower)).sum())

    def quadratic(self, V: Array) -> Array:
        """Return |L⁻¹v|², the same for every column.

        Parameters
        ----------
        V : ndarray of shape (m, n)
            Directions, in rows.

        Returns
        -------
        ndarray of shape (m, L)
        """
        half, _ = lapack.dtrtrs(self.lower, np.asfortranarray(V.T), lower=1, overwrite_b=1)
        return np.repeat(np.einsum("nm,nm->m", half, half)[:, np.newaxis], self.n_columns, axis=1)


@dataclass(frozen=True)
class SpectralFactor:
    """A = UΛUᵀ, with one ridge per column.

    See Also
    --------
    spectral : The decomposition.

    Examples
    --------
    >>> spectral(np.diag([1.0, 3.0]), np.array([1.0, 5.0])).solve(np.ones((2, 2))).round(3)
    array([[0.5  , 0.167],
           [0.25 , 0.125]])
    """

    eigenvalues: Array
    vectors: Array
    ridges: Array

    @property
    def _inverses(self) -> Array:
        return 1.0 / (self.eigenvalues[:, np.newaxis] + self.ridges)

    def solve(self, Y: Array) -> Array:
        """Return (A + ε_l I)⁻¹ y_l for every column.

        Parameters
        ----------
        Y : ndarray of shape (n, L)
            Right-hand sides.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return self.vectors @ (self._inverses * (self.vectors.T @ Y))

    def inverse_diagonal(self) -> Array:
        """Return the diagonals of the inverses.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return np.square(self.vectors) @ self._inverses

    def inverse_blocks(self, left_out: LeftOut) -> list[Array]:
        """Return the blocks of the inverses, one of every column.

        Parameters
        ----------
        left_out : LeftOut
            The groups.

        Returns
        -------
        list of ndarray
        """
        parts = [self.vectors[rows] for rows in left_out.blocks]
        inverses = self._inverses
        return [np.einsum("gin,gjn,nl->gijl", part, part, inverses, optimize=True) for part in parts]

    def log_determinants(self) -> Array:
        """Return the log-determinants.

        Returns
        -------
        ndarray of shape (L,)
        """
        return np.log(self.eigenvalues[:, np.newaxis] + self.ridges).sum(axis=0)

    def quadratic(self, V: Array) -> Array:
        """Return vᵀ(A + ε_l I)⁻¹v for every row and column.

        Parameters
        ----------
        V : ndarray of shape (m, n)
            Directions, in rows.

        Returns
        -------
        ndarray of shape (m, L)
        """
        return np.square(V @ self.vectors) @ self._inverses


def cholesky(A: Array, ridge: float, n_columns: int) -> CholeskyFactor:
    """Factor A + ridge I for `n_columns` columns; A is kept.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric.
    ridge : float
        ε.
    n_columns : int
        L.

    Returns
    -------
    CholeskyFactor

    Raises
    ------
    NotPositiveDefinite
        If A + ridge I has no Cholesky factor.

    See Also
    --------
    spectral : Many ridges.
    """
    shifted = _copied(A)
    shifted[np.diag_indices_from(shifted)] += ridge
    if not _lapack.factor(shifted):
        _check_size(A, ridge)
        raise NotPositiveDefinite(
            "the kernel matrix is not positive semi-definite: its negative eigenvalues are larger than the "
            f"regularisation 1/C; {_REMEDY}"
        )
    return CholeskyFactor(shifted, n_columns)


def _copied(A: Array) -> Array:
    """Return a copy of a symmetric or triangular matrix in Fortran order; threads share a large one."""
    copy = np.empty(A.shape, order="F")
    over_rows(lambda columns: np.copyto(copy[:, columns], A[:, columns]), A.shape[1], A.shape[0])
    return copy


def _check_size(A: Array, ridge: float) -> None:
    """Raise NotPositiveDefinite if the ridge is lost in the rounding errors of A, whatever its eigenvalues are."""
    rounding = np.finfo(np.float64).eps * float(np.abs(np.diagonal(A)).sum())
    if ridge < rounding:
        raise NotPositiveDefinite(
            f"C = {1.0 / ridge:.3g} is too large to compute with: the regularisation 1/C is lost in the rounding "
            f"errors of the kernel matrix, which are about {rounding:.1g}; use a smaller C"
        )


def symmetric_inverse(lower: Array) -> Array:
    """Return the whole inverse from a Cholesky factor with zeros above its diagonal, which is overwritten.

    Parameters
    ----------
    lower : ndarray of shape (n, n)
        L, in Fortran order.

    Returns
    -------
    ndarray of shape (n, n)
    """
    _lapack.invert_factored(lower)

    # The other half fills the zeros.
    def mirror(rows: slice) -> None:
        lower[: rows.start, rows] = lower[rows, : rows.start].T
        square = lower[rows, rows]
        square += square.T.copy()

    over_rows(mirror, *lower.shape)
    lower[np.diag_indices_from(lower)] *= 0.5
    return lower


def spectral(A: Array, ridges: Array) -> SpectralFactor:
    """Decompose A once for many ridges, one per column.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric.
    ridges : ndarray of shape (L,)
        ε.

    Returns
    -------
    SpectralFactor

    Raises
    ------
    NotPositiveDefinite
        If some A + ridge I is not positive definite.

    See Also
    --------
    cholesky : One ridge.
    """
    eigenvalues, vectors = np.linalg.eigh(A)
    if eigenvalues[0] + ridges.min() <= 0.0:
        _check_size(A, float(ridges.min()))
        raise NotPositiveDefinite(
            f"the kernel matrix is not positive semi-definite: its smallest eigenvalue {eigenvalues[0]:.3g} is "
            f"larger in size than the regularisation 1/C; {_REMEDY}"
        )
    return SpectralFactor(eigenvalues, vectors, ridges)


def unbiased_diagonal(factor: Factor, centring: Centring, ridges: Array) -> Array:
    """Return the diagonals of the inverses of A + ε without the bias direction, shape (n, L).

    Parameters
    ----------
    factor, centring, ridges
        As for `left_out_errors`.

    Returns
    -------
    ndarray of shape (n, L)
    """
    bias = np.square(centring.bias_direction)[:, np.newaxis] / (centring.bias_eigenvalue + ridges)
    return factor.inverse_diagonal() - bias


def left_out_errors(
    factor: Factor,
    solution: Array,
    centring: Centring,
    ridges: Array,
    left_out: LeftOut | None,
    diagonal: Array | None = None,
) -> Array:
    """Return the residuals (times √s) of machines trained without each row, or its group, shape (n, L).

    Parameters
    ----------
    factor : Factor
        The factorisation of A + ε.
    solution : ndarray of shape (n, L)
        ã, its solutions for the centred targets.
    centring : Centring
        How A is centred.
    ridges : ndarray of shape (L,) or (1,)
        ε.
    left_out : LeftOut or None
        The groups of rows that are left out together; None: every row by itself.
    diagonal : ndarray of shape (n, L) or None
        The diagonal of the inverse without the bias direction, if it is known.

    Returns
    -------
    ndarray of shape (n, L)
    """
    if left_out is None or left_out.single:
        return solution / (unbiased_diagonal(factor, centring, ridges) if diagonal is None else diagonal)
    shifted_bias = centring.bias_eigenvalue + ridges
    q = centring.bias_direction
    blocks = factor.inverse_blocks(left_out)
    for rows, P in zip(left_out.blocks, blocks, strict=True):
        bias = q[rows][:, :, np.newaxis] * q[rows][:, np.newaxis, :]
        P -= bias / shifted_bias[0] if P.ndim == 3 else bias[..., np.newaxis] / shifted_bias
    return left_out.errors(blocks, solution)
