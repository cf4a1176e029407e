"""The centred matrix of a kernel with an explicit feature map of dimension D < n: A = GGᵀ, with O(nD²) operations.

G = F diag(g): F holds the features of the rows, centred at their weighted mean and multiplied by √s
(`polymargin.solvers.centring`), and g² are the powers of gamma that go with them. With M = GᵀG + ε the inverse of A +
ε, but for the bias direction q, is (1 − GM⁻¹Gᵀ − qqᵀ)/ε. FᵀF serves every gamma and every ridge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymargin.solvers import _lapack
from polymargin.solvers.centring import Centring
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import symmetric_inverse

if TYPE_CHECKING:
    from polymargin.kernels._features import Features

Array = NDArray[Any]

#: The least ridge, in multiples of the trace before centring: below, the coefficients cancel in every output.
_LEAST_RIDGE = 1e-14
#: The least value of one minus a leverage: below, it is dominated by the rounding error of the leverage.
_LEAST_REST = 1e-7


class ThinMatrix:
    """The features of some rows, centred: a matrix A for every gamma.

    Parameters
    ----------
    features : Features
        The features of the rows.
    weights : ndarray of shape (n,)
        The row weights s.

    See Also
    --------
    polymargin.kernels.Kernel.features : The features.

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> X = np.array([[0.0], [1.0], [5.0]])
    >>> ThinMatrix(Linear().features(X), np.ones(3)).products
    array([[14.]])
    """

    def __init__(self, features: Features, weights: Array):
        self.weights, self.total = weights, float(weights.sum())
        self.orders, self.powers, self._constant = features.orders, features.powers, features.constant
        self.means = weights @ features.values / self.total
        self.rows = features.values - self.means
        if (weights != 1.0).any():
            self.rows *= np.sqrt(weights)[:, np.newaxis]
        #: FᵀF, shape (D, D).
        self.products: Array = self.rows.T @ self.rows

    def scales(self, gamma: float) -> Array:
        """Return what the features are multiplied by, shape (D,).

        Parameters
        ----------
        gamma : float
            The kernel's parameter.

        Returns
        -------
        ndarray of shape (D,)
        """
        return np.sqrt(self.powers(gamma))

    def bias_eigenvalue(self, gamma: float) -> float:
        """Return κ, the mean eigenvalue of A.

        Parameters
        ----------
        gamma : float
            The kernel's parameter.

        Returns
        -------
        float
        """
        trace = float(self.powers(gamma) @ np.diagonal(self.products))
        bias_eigenvalue = trace / max(self.total - 1.0, 1.0)
        return bias_eigenvalue if bias_eigenvalue > 0.0 else 1.0

    def magnitude(self, gamma: float) -> float:
        """Return the weighted sum of K(x, x), from before centring.

        Parameters
        ----------
        gamma : float
            The kernel's parameter.

        Returns
        -------
        float
        """
        own = np.diagonal(self.products) + self.total * np.square(self.means)
        return float(self.powers(gamma) @ own) + self.total * abs(self._constant)

    def centring(self, gamma: float) -> Centring:
        """Return how kernel values are centred.

        Parameters
        ----------
        gamma : float
            The kernel's parameter.

        Returns
        -------
        Centring
        """
        scaled = self.powers(gamma) * self.means
        among_means = float(scaled @ self.means)
        roots = np.sqrt(self.weights)
        row_means = self.rows @ scaled / roots + (among_means + self._constant)
        return Centring(
            self.weights, self.total, row_means, among_means + self._constant, self.bias_eigenvalue(gamma)
        )

    def lower(self, gamma: float, ridge: float) -> Array:
        """Return the Cholesky factor L of M, in Fortran order.

        Parameters
        ----------
        gamma : float
            The kernel's parameter.
        ridge : float
            ε.

        Returns
        -------
        ndarray of shape (D, D)
        """
        scales = self.scales(gamma)
        M = np.asfortranarray((scales[:, np.newaxis] * self.products * scales).T)
        M[np.diag_indices_from(M)] += ridge
        if not _lapack.factor(M):
            raise np.linalg.LinAlgError("the ridge is too small for this matrix")
        return M

    def factor(self, gamma: float, ridge: float, n_columns: int) -> ThinFactor | None:
        """Return the factorisation of A + ε; None where rounding or overflow would decide what comes of it.

        Parameters
        ----------
        gamma : float
            The kernel's parameter.
        ridge : float
            ε.
        n_columns : int
            L.

        Returns
        -------
        ThinFactor or None
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scales = self.scales(gamma)
            if not ridge > _LEAST_RIDGE * self.magnitude(gamma):
                return None
            try:
                lower = self.lower(gamma, ridge)
            except np.linalg.LinAlgError:
                return None
            inverse = np.array(lower, order="F")
            _lapack.invert_triangle(inverse)
            half = self.rows @ (scales[:, np.newaxis] * inverse.T)
            rest = 1.0 - np.einsum("nd,nd->n", half, half) - self.weights / self.total
        if not rest.min() > _LEAST_REST:
            return None
        return ThinFactor(self, scales, lower, rest, self.bias_eigenvalue(gamma), ridge, n_columns)


@dataclass(frozen=True)
class ThinFactor:
    """A + εI for one ridge, by the Cholesky factor of M; see `polymargin.solvers.ridge.Factor`.

    See Also
    --------
    ThinMatrix.factor : The factorisation.

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> matrix = ThinMatrix(Linear().features(np.array([[0.0], [1.0], [5.0]])), np.ones(3))
    >>> matrix.factor(1.0, 1.0, n_columns=1).solve(np.array([[-1.0], [0.0], [1.0]])).round(3).ravel()
    array([-0.333,  0.333,  0.   ])
    """

    matrix: ThinMatrix
    scales: Array
    lower: Array
    rest: Array
    bias_eigenvalue: float
    ridge: float
    n_columns: int

    def solve(self, Y: Array) -> Array:
        """Return (A + εI)⁻¹Y for columns that are orthogonal to the bias direction.

        Parameters
        ----------
        Y : ndarray of shape (n, L)
            Right-hand sides.

        Returns
        -------
        ndarray of shape (n, L)
        """
        rows, scales = self.matrix.rows, self.scales[:, np.newaxis]

        def explained(columns: Array) -> Array:
            return _lapack.solve_factored(self.lower, scales * columns)

        weights = explained(rows.T @ Y)
        solution = (Y - rows @ (scales * weights)) / self.ridge
        # The weights are Gᵀ times the solution: what rounding adds to that is as large as 1/ε, and is taken out again.
        wrong = weights - scales * (rows.T @ solution)
        return solution + rows @ (scales * _lapack.solve_factored(self.lower, wrong))

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of the inverse, the same for every column.

        Returns
        -------
        ndarray of shape (n, L)
        """
        bias = self.matrix.weights / self.matrix.total
        diagonal = self.rest / self.ridge + bias / (self.bias_eigenvalue + self.ridge)
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
        half = _lapack.solve_factored(self.lower, self.scales[:, np.newaxis] * self.matrix.rows.T)
        half *= self.scales[:, np.newaxis]
        q = np.sqrt(self.matrix.weights / self.matrix.total)
        bias = 1.0 / (self.bias_eigenvalue + self.ridge) - 1.0 / self.ridge
        blocks = []
        for rows in left_out.blocks:
            block = np.einsum("gid,dgj->gij", self.matrix.rows[rows], half[:, rows], optimize=True)
            block /= -self.ridge
            block += bias * q[rows][:, :, np.newaxis] * q[rows][:, np.newaxis, :]
            block[:, np.arange(rows.shape[1]), np.arange(rows.shape[1])] += 1.0 / self.ridge
            blocks.append(block)
        return blocks

    def log_determinants(self) -> Array:
        """Return the log-determinant, the same for every column.

        Returns
        -------
        ndarray of shape (L,)
        """
        n, D = self.matrix.rows.shape
        of_features = 2.0 * np.log(np.diagonal(self.lower)).sum()
        value = of_features + (n - 1 - D) * np.log(self.ridge) + np.log(self.bias_eigenvalue + self.ridge)
        return np.full(self.n_columns, value)


def leverage_products(matrix: ThinMatrix, gamma: float, ridge: float) -> Array:
    """Return diag(g) M⁻¹ diag(g), shape (D, D), g the scales: the leverages are its quadratic forms in F.

    Parameters
    ----------
    matrix : ThinMatrix
        The features.
    gamma : float
        The kernel's parameter.
    ridge : float
        ε.

    Returns
    -------
    ndarray of shape (D, D)
    """
    scales = matrix.scales(gamma)
    inverse = symmetric_inverse(matrix.lower(gamma, ridge))
    inverse *= scales[:, np.newaxis]
    inverse *= scales
    return inverse
