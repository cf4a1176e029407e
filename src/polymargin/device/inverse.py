"""The inverse of a centred kernel matrix on a device, from which machines are refitted without folds of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin.device import _adaptors
from polymargin.device.arrays import Device
from polymargin.solvers.leave_out import LeftOut, leave_fold_out

Array = NDArray[Any]


@dataclass(frozen=True)
class DeviceInverse:
    """P, the inverse of A + ε without the bias direction, on a device: a `polymargin.solvers.leave_out.WholeInverse`.

    Attributes
    ----------
    device : Device
        The device.
    P : array of shape (n, n)
        The matrix.
    dtype : {"float64", "float32"}
        The type of its numbers.
    """

    device: Device
    P: Any
    dtype: str

    @cached_property
    def _on_cpu(self) -> Array:
        """P as a NumPy array, for groups of rows, which are left out on the CPU."""
        n = int(self.P.shape[0])
        _memory.require(8.0 * n**2, f"the inverse of the kernel matrix of {n} rows", "fit fewer rows")
        return self._to_numpy(self.P)

    @property
    def diagonal(self) -> Array:
        """The diagonal of P, shape (n,)."""
        return self._to_numpy(self.device.xp.linalg.diagonal(self.P))

    def leave_fold_out(
        self, solution: Array, held: Array, left_out: LeftOut | None = None
    ) -> tuple[Array, Array]:
        """Return machines trained without a fold, and their errors; see `polymargin.solvers.leave_out`.

        Parameters
        ----------
        solution : ndarray of shape (n, L)
            The solutions with all rows.
        held : ndarray of bool, shape (n,)
            The rows of the fold.
        left_out : LeftOut or None
            The groups of rows that are left out together, which are dealt with on the CPU.

        Returns
        -------
        solution, errors : ndarray of shape (n, L)
        """
        if left_out is not None and not left_out.single:
            return leave_fold_out(self._on_cpu, solution, held, left_out)
        rows, others = np.flatnonzero(held), np.flatnonzero(~held)
        without, errors = np.zeros_like(solution), np.empty_like(solution)
        if not rows.size:
            return solution.copy(), solution / self.diagonal[:, np.newaxis]
        device, xp, P = self.device, self.device.xp, self.P
        inside, outside = (device.to_device(each, "int64") for each in (rows, others))
        of_rows = xp.take(P, inside, axis=0)
        try:
            lower = xp.linalg.cholesky(xp.take(of_rows, inside, axis=1))
        except Exception as error:
            if not _adaptors.is_not_positive_definite(error):
                raise
            raise np.linalg.LinAlgError("a fold leaves too few rows") from None
        half = _adaptors.solve_triangle(xp, lower, xp.take(of_rows, outside, axis=1))
        all_rows = device.to_device(solution, self.dtype)
        weighed = _adaptors.solve_triangle(xp, lower, xp.take(all_rows, inside, axis=0))
        errors[rows] = self._to_numpy(_adaptors.solve_triangle(xp, lower, weighed, transposed=True))
        without[others] = self._to_numpy(xp.take(all_rows, outside, axis=0) - half.T @ weighed)
        rest = self.diagonal[others] - self._to_numpy(xp.sum(half * half, axis=0))
        errors[others] = without[others] / np.maximum(rest, np.finfo(float).tiny)[:, np.newaxis]
        return without, errors

    def _to_numpy(self, array: Any) -> Array:
        return self.device.to_numpy(array).astype(np.float64, copy=False)
