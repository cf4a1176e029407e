"""Kernel matrices on a device, in strips that bound the memory.

A kernel's `formula` says how its values follow from matrices between rows, the `parts`. Here these matrices are
computed with the array API standard. A shift of all rows, which changes no distance, comes first: |x|² + |z|² - 2x·z
would lose the digits of a common mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polymargin.device import _adaptors
from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.device.metric import compared, with_plain_numbers
from polymargin.kernels import Kernel

#: Where two rows are nearer than this root of a rounding unit says, the square root of |x|² + |z|² - 2x·z has lost too
#: many digits, and the rows are subtracted from each other.
_NEAR = 8.0
#: The numbers of a block of such differences.
_DIFFERENCES = 2**24
#: The matrices between all training rows are kept if they take at most this part of the memory that is free: the kernel
#: matrix of the largest group of rows, with its factor, needs the rest.
_KEPT_SHARE = 0.5
#: The temporaries of a strip, in matrices of its size, beside those of the base.
_TEMPORARIES = 4


@dataclass(frozen=True)
class DeviceRows:
    """Rows on a device, as a kernel compares them: with its metric, and shifted.

    Attributes
    ----------
    values : array of shape (n, d)
        The rows.
    norms : array of shape (n,)
        Their squared norms.
    places : array of int, shape (n,), or None
        Their places among the training rows; None for new rows.
    """

    values: Any
    norms: Any
    places: Any = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __getitem__(self, rows: slice) -> DeviceRows:
        places = None if self.places is None else self.places[rows]
        return DeviceRows(self.values[rows, :], self.norms[rows], places)


class DeviceKernel:
    """A fitted kernel on a device.

    Parameters
    ----------
    kernel : Kernel
        The kernel, as it was fitted: not one that is given as a matrix or as a function.
    X : array, sparse matrix or device array of shape (n, d)
        The training rows, whose mean is subtracted from all rows where the kernel is one of distances.
    device : Device
        The device.
    dtype : {"float64", "float32"}, default="float64"
        The type of the numbers.

    Attributes
    ----------
    training : DeviceRows
        The training rows.
    """

    def __init__(self, kernel: Kernel, X: Any, device: Device, dtype: str = "float64"):
        if not kernel.parts:
            raise ValueError(
                f"{kernel!r} cannot be computed on a device: choose rbf, laplacian, exponential, blend, poly "
                "or linear, or fit on the CPU"
            )
        self.kernel, self.device, self.dtype = with_plain_numbers(kernel), device, dtype
        rows = compared(self.kernel, X, self.device)
        xp = device.xp
        self._shift = xp.mean(rows, axis=0)
        if "products" in kernel.parts:
            self._shift = device.to_device(
                np.zeros(rows.shape[1]) if kernel.centre is None else kernel.centre
            )
        places = xp.arange(rows.shape[0], dtype=xp.int64, device=device.device)
        self.training = replace(self._shifted(rows), places=places)
        self._kept: list[Any] | None = None

    def keep_parts(self) -> None:
        """Compute the matrices between all training rows once, for all uses to come, if the memory allows it."""
        n = len(self.training)
        n_bytes = float(np.dtype(self.dtype).itemsize) * len(self.kernel.parts) * float(n) ** 2
        if self._kept is not None or n_bytes > _KEPT_SHARE * self.device.free_memory():
            return
        kept = [self.empty(n, n) for _ in self.kernel.parts]
        for block in self.blocks(n, n):
            right = self.training[slice(block.start, n)]
            for matrix, part in zip(kept, self.parts(self.training[block], right, 0), strict=True):
                fill_symmetric(matrix, block, part)
        self._kept = kept

    @property
    def keeps_parts(self) -> bool:
        """Whether the matrices between all training rows are kept, see `keep_parts`."""
        return self._kept is not None

    def stack(self, rows: Any, gamma: float) -> Any:
        """Return the symmetric matrices among some sets of training rows, from the matrices that are kept.

        Parameters
        ----------
        rows : array of int, shape (p, m)
            The indices of the rows of every set.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        array of shape (p, m, m)
        """
        assert self._kept is not None
        xp, n = self.device.xp, len(self.training)
        index = xp.reshape(rows[:, :, None] * n + rows[:, None, :], (-1,))
        shape = (*rows.shape, rows.shape[1])
        parts = [xp.reshape(xp.take(xp.reshape(each, (-1,)), index), shape) for each in self._kept]
        return self.values(parts, gamma)

    def rows(self, X: Any) -> DeviceRows:
        """Return new rows on the device, as the kernel compares them.

        Parameters
        ----------
        X : array, sparse matrix or device array of shape (m, d)
            The rows.

        Returns
        -------
        DeviceRows
        """
        n_columns = int(self.training.values.shape[1])
        if len(X.shape) != 2 or X.shape[1] != n_columns:
            raise ValueError(
                f"the training rows have {n_columns} columns, but the new rows have shape {tuple(X.shape)}"
            )
        return self._shifted(compared(self.kernel, X, self.device))

    def take(self, rows: Any) -> DeviceRows:
        """Return some of the training rows.

        Parameters
        ----------
        rows : ndarray of int, shape (m,)
            Their indices.

        Returns
        -------
        DeviceRows
        """
        xp, index, training = self.device.xp, self.device.to_device(rows, "int64"), self.training
        return DeviceRows(
            *(xp.take(part, index, axis=0) for part in (training.values, training.norms, training.places))
        )

    def parts(self, left: DeviceRows, right: DeviceRows, same_from: int | None = None) -> list[Any]:
        """Return the matrices between rows that the kernel is a function of, each of shape (n, m).

        Parameters
        ----------
        left, right : DeviceRows
            The rows.
        same_from : int or None, default=None
            If the left rows are among the right ones, the place of the first of them: their distances to themselves
            are exactly zero.

        Returns
        -------
        list of arrays
        """
        if self._kept is not None and left.places is not None and right.places is not None:
            take = self.device.xp.take
            return [take(take(matrix, left.places, axis=0), right.places, axis=1) for matrix in self._kept]
        found = []
        for part in self.kernel.parts:
            if part == "products":
                found.append(left.values @ right.values.T)
            elif part == "city-block distances":
                found.append(
                    _adaptors.cityblock(self.device.xp, self.device.device, left.values, right.values)
                )
            else:
                found.append(self._distances(left, right, same_from, root=part == "distances"))
        return found

    def values(self, parts: list[Any], gamma: float) -> Any:
        """Return the kernel's values from the matrices of `parts`.

        Parameters
        ----------
        parts : list of arrays of shape (n, m)
            The matrices.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        array of shape (n, m)
        """
        return self.kernel.formula(parts, float(gamma), self.device.xp.exp)

    def block_rows(self, n_columns: int) -> int:
        """Return how many rows of a kernel matrix with so many columns make a block.

        Parameters
        ----------
        n_columns : int
            The columns.

        Returns
        -------
        int
        """
        numbers = max(n_columns, 1) * (_TEMPORARIES + 2 * len(self.kernel.parts))
        if self._kept is not None:
            numbers += len(self.training)
        per_row = np.dtype(self.dtype).itemsize * numbers
        return max(1, int(self.device.block_bytes() / per_row))

    def blocks(self, n_rows: int, n_columns: int) -> Iterator[slice]:
        """Yield slices of rows whose blocks of the kernel matrix bound the memory.

        Parameters
        ----------
        n_rows, n_columns : int
            The shape of the matrix.

        Yields
        ------
        slice
        """
        step = self.block_rows(n_columns)
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def strips(self, rows: DeviceRows, gamma: float) -> Iterator[tuple[slice, Any]]:
        """Yield the symmetric matrix among rows, on and above its diagonal.

        Parameters
        ----------
        rows : DeviceRows
            The rows.
        gamma : float
            The kernel's parameter.

        Yields
        ------
        rows : slice
            Some rows, from `start` to `stop`.
        values : array of shape (stop - start, n - start)
            Their values with all rows from `start` on.
        """
        for block in self.blocks(len(rows), len(rows)):
            right = rows[slice(block.start, len(rows))]
            yield block, self.values(self.parts(rows[block], right, 0), gamma)

    def gram(self, rows: DeviceRows, gamma: float) -> Any:
        """Return the symmetric matrix among rows.

        Parameters
        ----------
        rows : DeviceRows
            The rows.
        gamma : float
            The kernel's parameter.

        Returns
        -------
        array of shape (n, n)
        """
        n = len(rows)
        matrix = self.empty(n, n)
        for block, values in self.strips(rows, gamma):
            fill_symmetric(matrix, block, values)
        return matrix

    def times(self, rows: DeviceRows, gamma: float, right: Any) -> Any:
        """Return the symmetric matrix among rows times another one, without storing it.

        Parameters
        ----------
        rows : DeviceRows
            The n rows.
        gamma : float
            The kernel's parameter.
        right : array of shape (n, L)
            The other matrix.

        Returns
        -------
        array of shape (n, L)
        """
        xp = self.device.xp
        product = xp.zeros_like(right)
        for block, values in self.strips(rows, gamma):
            product[block, :] = product[block, :] + values @ right[block.start :, :]
            beyond = values[:, block.stop - block.start :]
            product[block.stop :, :] = product[block.stop :, :] + beyond.T @ right[block, :]
        return product

    def empty(self, *shape: int) -> Any:
        """Return an array whose entries are not set.

        Parameters
        ----------
        *shape : int
            Its shape.

        Returns
        -------
        array of this shape
        """
        xp = self.device.xp
        return xp.empty(shape, dtype=getattr(xp, self.dtype), device=self.device.device)

    def _shifted(self, rows: Any) -> DeviceRows:
        xp = self.device.xp
        # Only what is near zero may lose digits.
        rows = xp.astype(rows - self._shift, getattr(xp, self.dtype), copy=False)
        return DeviceRows(rows, xp.sum(rows * rows, axis=1))

    def _distances(self, left: DeviceRows, right: DeviceRows, same_from: int | None, root: bool) -> Any:
        """Return the squared distances, or the distances themselves."""
        xp = self.device.xp
        sizes = left.norms[:, None] + right.norms[None, :]
        squares = sizes + (-2.0 * left.values) @ right.values.T
        if root:
            near = squares < _NEAR * float(xp.finfo(squares.dtype).eps) ** 0.5 * sizes
            del sizes
            if same_from is not None:
                self._set_diagonal(near, same_from, False)
            squares = self._recomputed(squares, near, left, right)
        squares = xp.clip(squares, min=0.0)
        if same_from is not None:
            self._set_diagonal(squares, same_from, 0.0)
        return xp.sqrt(squares) if root else squares

    def _set_diagonal(self, matrix: Any, start: int, value: float | bool) -> None:
        """Set the entries (i, start + i) of a matrix."""
        xp, device, n = self.device.xp, self.device.device, matrix.shape[0]
        columns = slice(start, start + n)
        fill = xp.full((), value, dtype=matrix.dtype, device=device)
        matrix[:, columns] = xp.where(xp.eye(n, dtype=xp.bool, device=device), fill, matrix[:, columns])

    def _recomputed(self, squares: Any, near: Any, left: DeviceRows, right: DeviceRows) -> Any:
        """Return the squared distances, those of near rows from their differences."""
        xp = self.device.xp
        i, j = xp.nonzero(near)
        if not i.shape[0]:
            return squares
        exact = xp.empty(i.shape, dtype=squares.dtype, device=self.device.device)
        step = max(1, _DIFFERENCES // left.values.shape[1])
        for start in range(0, i.shape[0], step):
            some = slice(start, min(start + step, i.shape[0]))
            difference = xp.take(left.values, i[some], axis=0) - xp.take(right.values, j[some], axis=0)
            exact[some] = xp.sum(difference * difference, axis=1)
        # Every entry is told the number of its pair, those of other pairs that of the last one before them.
        flat = xp.reshape(near, (-1,))
        number = xp.clip(xp.cumulative_sum(xp.astype(flat, xp.int64)) - 1, min=0)
        return xp.reshape(xp.where(flat, xp.take(exact, number), xp.reshape(squares, (-1,))), squares.shape)


@with_memory_errors
def kernel_matrix(
    kernel: Kernel,
    X: Any,
    Z: Any = None,
    *,
    gamma: float = 1.0,
    device: str | Device | None = None,
    dtype: str = "float64",
) -> Any:
    """Return the Gram matrix of a fitted kernel on a device.

    Parameters
    ----------
    kernel : Kernel
        The kernel, as it was fitted.
    X : array, sparse matrix or device array of shape (n, d)
        The rows.
    Z : array, sparse matrix or device array of shape (m, d), optional
        The other rows; X itself if None.
    gamma : float, default=1.0
        The kernel's parameter.
    device : str, Device or None, default=None
        The device, see `resolve_device`.
    dtype : {"float64", "float32"}, default="float64"
        The type of the numbers.

    Returns
    -------
    array of shape (n, m)
        On the device.

    Examples
    --------
    >>> from polymargin.kernels import RBF
    >>> kernel_matrix(RBF(), np.array([[0.0], [1.0]]), gamma=np.log(2.0))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    place = resolve_device(device)
    on_device = DeviceKernel(kernel, X if Z is None else Z, place, dtype)
    if Z is None:
        return on_device.gram(on_device.training, gamma)
    rows = on_device.rows(X)
    matrix = on_device.empty(len(rows), len(on_device.training))
    for block in on_device.blocks(*matrix.shape):
        matrix[block, :] = on_device.values(on_device.parts(rows[block], on_device.training), gamma)
    return matrix


def fill_symmetric(matrix: Any, block: slice, values: Any) -> None:
    """Set some rows of a symmetric matrix from the diagonal on, and the columns of the same numbers below it.

    Parameters
    ----------
    matrix : array of shape (n, n)
        The matrix, changed in place.
    block : slice
        The rows, from `start` to `stop`.
    values : array of shape (stop - start, n - start)
        Their entries in the columns from `start` on.
    """
    matrix[block, block.start :] = values
    matrix[block.stop :, block] = values[:, block.stop - block.start :].T
