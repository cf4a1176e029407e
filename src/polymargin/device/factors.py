"""The centred kernel matrix on a device, and its Cholesky factor in the same memory.

The factor overwrites the lower triangle; the upper one keeps the matrix, so that another ridge needs no second copy.
All loops are over large blocks, whose work is matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.device import _adaptors
from polymargin.device.arrays import Device
from polymargin.device.inverse import DeviceInverse
from polymargin.device.kernels import DeviceKernel, DeviceRows, fill_symmetric
from polymargin.solvers.centring import Centring
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import NotPositiveDefinite

Array = NDArray[Any]

#: The rows of a block of a factorisation and of a triangular solve.
BLOCK = 1024
#: The largest number of columns of the inverse triangle that are computed together: more do not make the matrix
#: products faster.
_COLUMNS = 4096


class CentredMatrix:
    """The centred kernel matrix A of some rows (see `polymargin.solvers.centring`), in one buffer of n² numbers.

    Parameters
    ----------
    kernel : DeviceKernel
        The kernel, in double precision.
    rows : DeviceRows
        The n rows.
    weights : ndarray of shape (n,)
        Their weights.
    gamma : float
        The kernel's parameter.
    dtype : {"float64", "float32"}
        The type of the numbers of A. Kernel values, means and differences are those of double precision; what is
        stored is rounded once.

    Attributes
    ----------
    centring : Centring
        The centring, with NumPy arrays.
    """

    A: Any

    def __init__(
        self, kernel: DeviceKernel, rows: DeviceRows, weights: Array, gamma: float, dtype: str = "float64"
    ):
        self.kernel, self.rows, self.gamma, self.device = kernel, rows, gamma, kernel.device
        self.weights, self.dtype = weights, dtype
        self._factored = False
        if dtype == "float64":
            self.A = kernel.gram(rows, gamma)
            self._centre(self.A @ self._column(weights))
            self._overwrite_with_centred()
            return
        xp = self.device.xp
        self._centre(kernel.times(rows, gamma, self._column(weights)))
        self.A = xp.empty((len(rows), len(rows)), dtype=getattr(xp, dtype), device=self.device.device)
        for block, values in kernel.strips(rows, gamma):
            centred = self._centred(values, block, slice(block.start, len(rows)))
            fill_symmetric(self.A, block, xp.astype(centred, self.A.dtype))
        self._diagonal = xp.linalg.diagonal(self.A) + 0.0

    def _column(self, values: Array) -> Any:
        return self.device.to_device(values)[:, None]

    def _centre(self, sums: Any) -> None:
        """Make the centring of the weighted sums of the rows of the kernel matrix, shape (n, 1)."""
        total = float(self.weights.sum())
        row_means = self.device.to_numpy(sums)[:, 0] / total
        grand_mean = float(row_means @ self.weights / total)
        if not np.isfinite(grand_mean):
            raise ValueError(
                "the kernel matrix holds infinite or undefined values; scale the features, for example with "
                "StandardScaler"
            )
        values = self.kernel.kernel.formula(
            [
                self.rows.norms if part == "products" else 0.0 * self.rows.norms
                for part in self.kernel.kernel.parts
            ],
            float(self.gamma),
            self.device.xp.exp,
        )
        trace = float(self.weights @ (self.device.to_numpy(values) - 2.0 * row_means + grand_mean))
        bias_eigenvalue = trace / max(total - 1.0, 1.0)
        if not bias_eigenvalue > 0.0:
            bias_eigenvalue = 1.0
        self.centring = Centring(self.weights, total, row_means, grand_mean, bias_eigenvalue)
        self._means = self.device.to_device(row_means)
        self._roots = self.device.to_device(self.centring.roots)

    def _centred(self, values: Any, rows: slice, columns: slice) -> Any:
        """Return some rows and columns of A, from those of the kernel matrix."""
        centring, roots = self.centring, self._roots
        values = values - (self._means[rows, None] - centring.grand_mean)
        values = values - self._means[None, columns]
        values = values + centring.bias_eigenvalue / centring.total
        return values * roots[rows, None] * roots[None, columns]

    def _overwrite_with_centred(self) -> None:
        n = len(self.rows)
        for block in self.kernel.blocks(n, n):
            self.A[block, :] = self._centred(self.A[block, :], block, slice(0, n))
        self._diagonal = self.device.xp.linalg.diagonal(self.A) + 0.0

    @property
    def largest(self) -> float:
        """The largest entry of the diagonal, the largest of the matrix."""
        return float(self.device.xp.max(self._diagonal))

    @property
    def released(self) -> bool:
        """Whether the memory of A was given back."""
        return self.A is None

    def release(self) -> None:
        """Give the memory of A back; the matrix and its factors cannot be used any more."""
        self.A = None

    def times(self, right: Any) -> Any:
        """Return A times a matrix in double precision, whose kernel values are computed once more.

        Parameters
        ----------
        right : array of shape (n, L)
            The matrix.

        Returns
        -------
        array of shape (n, L)
        """
        xp, centring = self.device.xp, self.centring
        means, roots = self._means[:, None], self._roots[:, None]
        scaled = roots * right
        sums = xp.sum(scaled, axis=0, keepdims=True)
        product = self.kernel.times(self.rows, self.gamma, scaled) - means * sums
        product = product - xp.sum(means * scaled, axis=0, keepdims=True) + centring.grand_mean * sums
        return roots * (product + centring.bias_eigenvalue / centring.total * sums)

    def factor(self, ridge: float, n_columns: int, left_out: LeftOut | None) -> DeviceFactor:
        """Return the Cholesky factor of A + ridge I, which takes the place of the factor before it.

        Parameters
        ----------
        ridge : float
            ε.
        n_columns : int
            The number of columns L that share it.
        left_out : LeftOut or None
            The groups of rows that are left out together, which stand one after the other, sorted by size.

        Returns
        -------
        DeviceFactor

        Raises
        ------
        NotPositiveDefinite
            If there is no such factor.
        """
        if self._factored:
            self._restore()
        self._factored = True
        xp, A = self.device.xp, self.A
        for rows in _slices(0, A.shape[0]):
            panel, size = A[rows.start :, rows], rows.stop - rows.start
            if rows.start:
                panel = panel - A[rows.start :, : rows.start] @ A[rows, : rows.start].T
            eye = xp.eye(size, dtype=A.dtype, device=self.device.device)
            lower = self._small_factor(panel[:size, :] + ridge * eye, ridge)
            A[rows, rows] = lower + xp.triu(A[rows, rows], k=1)
            if rows.stop < A.shape[0]:
                A[rows.stop :, rows] = _adaptors.solve_triangle(xp, lower, panel[size:, :].T).T
        factor = DeviceFactor(self.device, A, self.dtype, n_columns, left_out)
        if not np.isfinite(factor.log_determinants()).all():  # not every library raises an error
            raise self._not_positive_definite(ridge)
        return factor

    def _small_factor(self, block: Any, ridge: float) -> Any:
        try:
            return self.device.xp.tril(self.device.xp.linalg.cholesky(block))
        except Exception as error:
            if not _adaptors.is_not_positive_definite(error):
                raise
        raise self._not_positive_definite(ridge)

    def _restore(self) -> None:
        """Write the matrix, which is still above the diagonal, over the factor below it."""
        xp, A = self.device.xp, self.A
        for rows in _slices(0, A.shape[0]):
            above = xp.triu(A[rows, rows], k=1)
            eye = xp.eye(above.shape[0], dtype=A.dtype, device=self.device.device)
            A[rows, rows] = above + above.T + eye * self._diagonal[None, rows]
            A[rows.stop :, rows] = A[rows, rows.stop :].T

    def _not_positive_definite(self, ridge: float) -> NotPositiveDefinite:
        rounding = float(np.finfo(self.dtype).eps) * self.centring.trace
        if ridge < rounding:
            return NotPositiveDefinite(
                f"C = {1.0 / ridge:.3g} is too large to compute with: the regularisation 1/C is lost in the rounding "
                f"errors of the kernel matrix, which are about {rounding:.1g}; use a smaller C"
            )
        return NotPositiveDefinite(
            "the kernel matrix is not positive semi-definite: its negative eigenvalues are larger than the "
            "regularisation 1/C; use a positive definite kernel, a smaller C, or standardised features (StandardScaler)"
        )


class DeviceFactor:
    """A Cholesky factor on a device: a `polymargin.solvers.ridge.Factor`, with NumPy arrays in and out.

    Parameters
    ----------
    device : Device
        The device.
    lower : array of shape (n, n)
        L, in the lower triangle; the upper one is not looked at.
    dtype : {"float64", "float32"}
        The type of its numbers.
    n_columns : int
        The number of columns that share the ridge.
    left_out : LeftOut or None
        The groups of rows that are left out together, which stand one after the other; None: every row by itself.
    """

    def __init__(self, device: Device, lower: Any, dtype: str, n_columns: int, left_out: LeftOut | None):
        self.device, self.lower, self.dtype, self.n_columns = device, lower, dtype, n_columns
        if left_out is None:
            left_out = LeftOut((np.arange(lower.shape[0])[:, np.newaxis],), lower.shape[0])
        self._left_out = left_out

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
        right = self.device.to_device(Y, self.dtype)
        return self.device.to_numpy(self.solved(right)).astype(np.float64, copy=False)

    def solved(self, right: Any) -> Any:
        """Return (A + εI)⁻¹B on the device.

        Parameters
        ----------
        right : array of shape (n, L)
            B, of the factor's own type.

        Returns
        -------
        array of shape (n, L)
        """
        xp, lower = self.device.xp, self.lower
        half = xp.empty(right.shape, dtype=right.dtype, device=self.device.device)
        blocks = list(_slices(0, lower.shape[0]))
        for rows in blocks:
            rest = right[rows, :]
            if rows.start:
                rest = rest - lower[rows, : rows.start] @ half[: rows.start, :]
            half[rows, :] = _adaptors.solve_triangle(xp, xp.tril(lower[rows, rows]), rest)
        for rows in reversed(blocks):
            rest = half[rows, :]
            if rows.stop < lower.shape[0]:
                rest = rest - lower[rows.stop :, rows].T @ half[rows.stop :, :]
            half[rows, :] = _adaptors.solve_triangle(xp, xp.tril(lower[rows, rows]), rest, transposed=True)
        return half

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of the inverse, the same for every column.

        Returns
        -------
        ndarray of shape (n, L)
        """
        diagonal = np.empty(self._left_out.n_rows)
        for rows, block in zip(self._left_out.blocks, self._blocks, strict=True):
            diagonal[rows] = np.diagonal(block, axis1=1, axis2=2)
        return np.repeat(diagonal[:, np.newaxis], self.n_columns, axis=1)

    def inverse_blocks(self, left_out: LeftOut) -> list[Array]:
        """Return the blocks of the inverse that belong to groups of rows, the same for every column.

        Parameters
        ----------
        left_out : LeftOut
            The groups, which are those that the factor was made for.

        Returns
        -------
        list of ndarray
        """
        return [block.copy() for block in self._blocks]

    def unbiased_inverse(self, centring: Centring, ridge: float) -> DeviceInverse | None:
        """Return the whole inverse without the bias direction, for machines that are refitted without folds.

        Parameters
        ----------
        centring : Centring
            How the matrix is centred.
        ridge : float
            ε.

        Returns
        -------
        DeviceInverse or None
            None where there is no memory for it.
        """
        n = self.lower.shape[0]
        # L⁻¹, the inverse, and what is computed of it for a fold.
        if 3.0 * float(n) ** 2 * np.dtype(self.dtype).itemsize > self.device.free_memory():
            return None
        half = self._inverse_columns(0, n)
        P = half.T @ half
        del half
        direction = self.device.to_device(centring.bias_direction, self.dtype)[:, None]
        P -= direction @ (direction.T / (centring.bias_eigenvalue + ridge))
        return DeviceInverse(self.device, P, self.dtype)

    def log_determinants(self) -> Array:
        """Return the log-determinant, the same for every column.

        Returns
        -------
        ndarray of shape (L,)
        """
        diagonal = self.device.to_numpy(self.device.xp.linalg.diagonal(self.lower)).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.full(self.n_columns, 2.0 * np.log(diagonal).sum())

    @cached_property
    def _blocks(self) -> list[Array]:
        """The blocks of the inverse of the groups of every size: inner products of columns of L⁻¹."""
        found = []
        n_bytes = np.dtype(self.dtype).itemsize
        most = self.device.block_bytes() / (3.0 * n_bytes * self.lower.shape[0])
        for rows in self._left_out.blocks:
            n_groups, size = rows.shape
            step = max(1, int(min(most, _COLUMNS)) // size)
            first = int(rows[0, 0])
            parts = []
            for group in range(0, n_groups, step):
                start = first + group * size
                stop = first + min(group + step, n_groups) * size
                parts.append(self._products(self._inverse_columns(start, stop), size))
            found.append(self.device.to_numpy(self.device.xp.concat(parts)).astype(np.float64, copy=False))
        return found

    def _inverse_columns(self, start: int, stop: int) -> Any:
        """Return some columns of L⁻¹, from row `start` on: there are zeros above."""
        xp, lower = self.device.xp, self.lower
        n, size = lower.shape[0], stop - start
        columns = xp.empty((n - start, size), dtype=lower.dtype, device=self.device.device)
        eye = xp.eye(size, dtype=lower.dtype, device=self.device.device)
        for rows in _slices(start, n):
            done = slice(0, rows.start - start)
            rest = -(lower[rows, start : rows.start] @ columns[done, :])
            inside = slice(done.stop, min(rows.stop - start, size))
            if inside.start < inside.stop:  # rows of the unit matrix
                place = slice(0, inside.stop - inside.start)
                rest[place, :] = rest[place, :] + eye[inside, :]
            columns[rows.start - start : rows.stop - start, :] = _adaptors.solve_triangle(
                xp, xp.tril(lower[rows, rows]), rest
            )
        return columns

    def _products(self, columns: Any, size: int) -> Any:
        """Return the inner products of the columns of every group, shape (groups, size, size)."""
        xp = self.device.xp
        if size == 1:
            return xp.sum(columns * columns, axis=0)[:, None, None]
        groups = xp.reshape(columns.T, (-1, size, columns.shape[0]))
        return groups @ xp.matrix_transpose(groups)


def _slices(start: int, stop: int) -> Iterator[slice]:
    """Yield blocks of rows."""
    for first in range(start, stop, BLOCK):
        yield slice(first, min(first + BLOCK, stop))
