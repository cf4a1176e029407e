"""A factor in single precision that solves to double precision.

The Cholesky factor of a matrix in single precision takes half the memory and, on most devices, a fraction of the time.
It is the preconditioner of conjugate gradients, whose residuals are computed in double precision with kernel values
that are computed anew: a few rounds give the solution of double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.device.factors import CentredMatrix, DeviceFactor
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import NotPositiveDefinite

Array = NDArray[Any]

#: The residual that is aimed at, and the largest that is accepted, in parts of the targets. The margins are as wrong as
#: the residual is long.
_AIM, _ACCEPTED = 1e-12, 1e-10
#: The largest number of rounds. Where the factor is good for anything, each gains two digits or more.
_ROUNDS = 12
#: The diagonal of the inverse, on which leave-one-out rests, is not refined. Its relative error is about a rounding
#: unit of the largest entry of the matrix over the ridge; more than this is not accepted.
_DIAGONAL_ERROR = 1e-5


class RefinedFactor:
    """A factorisation in single precision with refined solutions, or in double precision where it fails.

    It is a `polymargin.solvers.ridge.Factor`, with NumPy arrays in and out.

    Parameters
    ----------
    matrix : CentredMatrix
        The matrix in single precision.
    exact : callable () -> CentredMatrix
        Computes it in double precision. The memory of the first one is given back before.
    ridge : float
        ε.
    n_columns : int
        The number of columns that share it.
    left_out : LeftOut or None
        See `CentredMatrix.factor`.

    Attributes
    ----------
    dtype : {"float32", "float64"}
        The precision of the factor that is in use.
    """

    def __init__(
        self,
        matrix: CentredMatrix,
        exact: Callable[[], CentredMatrix],
        ridge: float,
        n_columns: int,
        left_out: LeftOut | None,
    ):
        self._exact, self._ridge, self._arguments = exact, ridge, (ridge, n_columns, left_out)
        self._matrix: CentredMatrix | None = matrix
        self._factor: DeviceFactor | None = None
        if matrix.largest * float(np.finfo(np.float32).eps) <= _DIAGONAL_ERROR * ridge:
            try:
                self._factor = matrix.factor(*self._arguments)
            except NotPositiveDefinite:
                self._factor = None
        if self._factor is None:
            self._use_double_precision()

    @property
    def dtype(self) -> str:
        """The precision of the factor that is in use."""
        return self._in_use.dtype

    @property
    def _in_use(self) -> DeviceFactor:
        assert self._factor is not None
        return self._factor

    def _use_double_precision(self) -> None:
        # All references to the memory of the smaller matrix go first.
        if self._matrix is not None:
            self._matrix.release()
        self._matrix = self._factor = None
        self._factor = self._exact().factor(*self._arguments)

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
        if self._matrix is not None:
            solution = self._refined(self._matrix, Y)
            if solution is not None:
                return solution
            self._use_double_precision()
        return self._in_use.solve(Y)

    def _refined(self, matrix: CentredMatrix, Y: Array) -> Array | None:
        """Return the solution by conjugate gradients, of all columns at once; None if they do not converge."""
        device, xp = matrix.device, matrix.device.xp
        factor = self._in_use
        single, double = xp.float32, xp.float64

        def preconditioned(right: Any) -> Any:
            # Small residuals are brought to a size that single precision can hold.
            sizes = xp.sqrt(xp.sum(right * right, axis=0, keepdims=True))
            sizes = xp.where(sizes > 0.0, sizes, xp.ones_like(sizes))
            return sizes * xp.astype(factor.solved(xp.astype(right / sizes, single)), double)

        def dots(left: Any, right: Any) -> Any:
            return xp.sum(left * right, axis=0, keepdims=True)

        def over(left: Any, right: Any) -> Any:
            # A column that is solved exactly has nothing left to divide.
            return xp.where(right > 0.0, left / xp.where(right > 0.0, right, xp.ones_like(right)), 0.0 * left)

        targets = device.to_device(Y)
        solution, residual = xp.zeros_like(targets), targets + 0.0
        sizes = dots(targets, targets)
        direction = step = preconditioned(residual)
        decrease = dots(residual, step)
        for _ in range(_ROUNDS):
            image = matrix.times(direction) + self._ridge * direction
            length = over(decrease, dots(direction, image))
            solution = solution + length * direction
            before, residual = residual, residual - length * image
            if self._largest(over(dots(residual, residual), sizes), device) <= _AIM:
                break
            step = preconditioned(residual)
            # The form of β for preconditioners that are not quite linear, as roundings are not.
            direction = step + over(dots(residual - before, step), decrease) * direction
            decrease = dots(residual, step)
        # What counts is the residual itself, not the one that was carried along.
        residual = targets - matrix.times(solution) - self._ridge * solution
        if not self._largest(over(dots(residual, residual), sizes), device) <= _ACCEPTED:
            return None
        return device.to_numpy(solution)

    @staticmethod
    def _largest(squares: Any, device: Any) -> float:
        """Return the largest length of some, given their squares; NaN if there is one."""
        return float(np.sqrt(device.to_numpy(squares).max()))

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of the inverse, see `DeviceFactor`.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return self._in_use.inverse_diagonal()

    def inverse_blocks(self, left_out: LeftOut) -> list[Array]:
        """Return the blocks of the inverse, see `DeviceFactor`.

        Parameters
        ----------
        left_out : LeftOut
            The groups.

        Returns
        -------
        list of ndarray
        """
        return self._in_use.inverse_blocks(left_out)

    def log_determinants(self) -> Array:
        """Return the log-determinant, see `DeviceFactor`.

        Returns
        -------
        ndarray of shape (L,)
        """
        return self._in_use.log_determinants()
