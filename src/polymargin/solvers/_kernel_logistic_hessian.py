"""The Hessian of multinomial kernel logistic regression, factored: Newton steps and the covariances of the logits.

See `polymargin.solvers.kernel_logistic` for the notation. Nothing that tends to infinity is formed where probabilities
tend to zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, solve_triangular

from polymargin.solvers.ridge import symmetric_inverse

Array = NDArray[Any]

__all__ = ["INDEFINITE", "Hessian", "factored"]

INDEFINITE = "the Gram matrix is not positive semidefinite"
#: Probabilities below this count as this much in the Hessian.
_LEAST_PROBABILITY = 1e-12
#: The number of iterative refinements of a step.
_REFINEMENTS = 1


def factored(Q: Array, P: Array, weights: Array) -> Hessian:
    """Return the factored Hessian.

    Parameters
    ----------
    Q : ndarray of shape (n, n)
        C times the centred Gram matrix.
    P : ndarray of shape (n, K)
        The probabilities.
    weights : ndarray of shape (n,)
        Row weights.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the Gram matrix is not positive semidefinite.
    """
    return (_TwoClasses if P.shape[1] == 2 else _Classes)(Q, P, weights)


class Hessian(ABC):
    """The Hessian at some probabilities, factored.

    Attributes
    ----------
    P : ndarray of shape (n, K)
        The probabilities, none of them zero.
    """

    def __init__(self, Q: Array, P: Array, weights: Array):
        self.Q = Q
        P = np.maximum(P, _LEAST_PROBABILITY)
        self.P = P / P.sum(axis=1, keepdims=True)
        self.D = weights[:, np.newaxis] * self.P

    def step(self, rest: Array, a: Array) -> tuple[Array, Array]:
        """Return Newton's step in a and in b: Δa = rest − Λ(QΔa + 1Δb), the columns of a + Δa summing to zero.

        Parameters
        ----------
        rest : ndarray of shape (n, K)
            s(y − p) − a.
        a : ndarray of shape (n, K)
            The present coefficients.
        """
        da, db = self._solved(rest, a.sum(axis=0))
        # Where probabilities are near one, Γ is a small difference: the residual of the solution is solved for again.
        for _ in range(_REFINEMENTS):
            v = self.Q @ da + db
            v -= (self.P * v).sum(axis=1, keepdims=True)
            more_a, more_b = self._solved(rest - da - self.D * v, (a + da).sum(axis=0))
            da, db = da + more_a, db + more_b
        return da, db

    @abstractmethod
    def _solved(self, right: Array, sums: Array) -> tuple[Array, Array]:
        """Return Δa = (I + ΛQ)⁻¹(right − Λ1Δb) and Δb, such that the sums of Δa's columns cancel those given."""

    @abstractmethod
    def covariances(self, sets: Sequence[Array]) -> list[Array]:
        """Return the blocks of some sets of rows in the inverse Hessian, biases included.

        They are defined up to what a constant added to all logits of a row changes. The factors are overwritten.

        Parameters
        ----------
        sets : sequence of ndarray of int, shape (M, S)
            The rows of M sets, which have S rows each.

        Returns
        -------
        list of ndarray of shape (M, S K, S K)
            For each of them; the logits of a row are side by side.
        """


class _Classes(Hessian):
    """The Hessian of three classes or more: Eₖ for every class, and the factor of their sum."""

    def __init__(self, Q: Array, P: Array, weights: Array):
        super().__init__(Q, P, weights)
        n, n_classes = P.shape
        self.E = np.empty((n_classes, n, n))
        total = np.zeros((n, n), order="F")
        for k in range(n_classes):
            roots = np.sqrt(self.D[:, k])
            inverse = symmetric_inverse(_cholesky(_one_plus(Q, roots)))
            inverse *= roots
            inverse *= roots[:, np.newaxis]
            self.E[k] = inverse
            total += inverse
        self.factor = _cholesky(total)
        # Γ(1eₖ), which the biases need: its class c is δ_ck Eₖ1 − E_c (ΣE)⁻¹ Eₖ1.
        sums = self.E.sum(axis=2).T
        solved = self._solve(sums)
        self.bias_response = np.stack([-(E @ solved) for E in self.E], axis=1)
        own = np.arange(n_classes)
        self.bias_response[:, own, own] += sums
        S = self.bias_response.sum(axis=0)
        S = 0.5 * (S + S.T)
        # A constant added to all biases changes nothing: S is singular there, and the answer is sought elsewhere.
        self.bias_system = S + np.trace(S) / n_classes**2

    def _solved(self, right: Array, sums: Array) -> tuple[Array, Array]:
        Q_right = self.Q @ right
        through = np.stack([E @ column for E, column in zip(self.E, Q_right.T, strict=True)], axis=1)
        shared = self._solve(through.sum(axis=1))
        da = right - through + np.stack([E @ shared for E in self.E], axis=1)
        db = np.linalg.solve(self.bias_system, sums + da.sum(axis=0))
        db -= db.mean()
        return da - self.bias_response @ db, db

    def covariances(self, sets: Sequence[Array]) -> list[Array]:
        n, n_classes = self.D.shape
        own = [self._own(rows) for rows in sets]
        U = -(self.Q @ self.bias_response.reshape(n, -1)).reshape(n, n_classes, n_classes)
        k = np.arange(n_classes)
        U[:, k, k] += 1.0
        for number, E in enumerate(self.E):
            # Q E = I − D⁻¹ E
            E /= -self.D[:, number]
            E[np.diag_indices(n)] += 1.0
            E[:] = solve_triangular(self.factor, E, lower=True, check_finite=False)
        found = []
        for rows, of_classes in zip(sets, own, strict=True):
            n_sets, size = rows.shape
            if size == 1:
                blocks = np.einsum("kri,lri->ikl", self.E, self.E, optimize=False)[rows[:, 0]]
            else:
                parts = (self.E[:, :, members].transpose(2, 0, 1).reshape(-1, n) for members in rows)
                blocks = np.stack([part @ part.T for part in parts])
            blocks.reshape(n_sets, size, n_classes, size, n_classes)[:, :, k, :, k] += of_classes
            of_biases = U[rows].reshape(n_sets, -1, n_classes)
            blocks += of_biases @ np.linalg.solve(self.bias_system, np.swapaxes(of_biases, 1, 2))
            found.append(blocks)
        return found

    def _own(self, rows: Array) -> Array:
        """Return Q − QEₖQ = QEₖ/D among the rows of every set, shape (K, M, S, S)."""
        if rows.shape[1] == 1:
            diagonal = np.einsum("ij,kji->ki", self.Q, self.E) / self.D.T
            return diagonal[:, rows[:, 0], np.newaxis, np.newaxis]
        blocks = [
            self.E[:, members] @ self.Q[members].T / self.D.T[:, members, np.newaxis] for members in rows
        ]
        found = np.stack(blocks, axis=1)
        return 0.5 * (found + np.swapaxes(found, 2, 3))

    def _solve(self, right: Array) -> Array:
        return np.asarray(cho_solve((self.factor, True), right, check_finite=False))


class _TwoClasses(Hessian):
    """The Hessian of two classes: that of the difference of their logits, whose prior covariance is 2Q.

    With w = s p₀p₁ and E = (2Q + w⁻¹)⁻¹ a step needs one factorisation, and no inverse.
    """

    def __init__(self, Q: Array, P: Array, weights: Array):
        super().__init__(Q, P, weights)
        self.roots = np.sqrt(weights * self.P[:, 0] * self.P[:, 1])
        self.factor = _cholesky(_one_plus(Q, np.sqrt(2.0) * self.roots))
        self.bias_response = self._through(np.ones(len(Q)))

    def _through(self, v: Array) -> Array:
        """Return Ev."""
        return self.roots * cho_solve((self.factor, True), self.roots * v, check_finite=False)

    def _solved(self, right: Array, sums: Array) -> tuple[Array, Array]:
        shared = right.mean(axis=1)  # zero but for rounding: Λ leaves it alone
        own = 0.5 * (right[:, 1] - right[:, 0])
        own -= self._through(2.0 * (self.Q @ own))
        db = 0.5 * (0.5 * (sums[1] - sums[0]) + own.sum()) / self.bias_response.sum()
        own -= 2.0 * db * self.bias_response
        return np.column_stack([shared - own, shared + own]), np.array([-db, db])

    def covariances(self, sets: Sequence[Array]) -> list[Array]:
        roots = self.roots
        inverse = symmetric_inverse(self.factor)
        # 2Q − 2QE2Q = w⁻¹E 2Q, and 1 − 2QE1 = w⁻¹E1
        of_bias = self.bias_response / np.square(roots)
        signs = np.array([[0.25, -0.25], [-0.25, 0.25]])
        found = []
        for rows in sets:
            if rows.shape[1] == 1:
                variances = 2.0 * np.einsum("ij,j,ji->i", inverse, roots, self.Q) / roots
                among = variances[rows][:, :, np.newaxis]
            else:
                halves = [(inverse[r] * roots) @ self.Q[r].T / roots[r, np.newaxis] for r in rows]
                among = np.stack([half + half.T for half in halves])
            among += of_bias[rows][:, :, np.newaxis] * of_bias[rows][:, np.newaxis] / self.bias_response.sum()
            found.append(np.kron(among, signs))
        return found


def _one_plus(Q: Array, roots: Array) -> Array:
    """Return 1 + diag(roots) Q diag(roots), in Fortran order."""
    B = np.multiply(Q, roots, order="F")
    B *= roots[:, np.newaxis]
    B[np.diag_indices_from(B)] += 1.0
    return B


def _cholesky(A: Array) -> Array:
    """Return the lower Cholesky factor of A, which is overwritten."""
    factor, info = lapack.dpotrf(A, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(INDEFINITE)
    return np.asarray(factor)
