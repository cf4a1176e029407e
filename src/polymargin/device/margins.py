"""Margins of new rows on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._device_arrays import is_device_array
from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.device.kernels import DeviceKernel, DeviceRows
from polymargin.machines.lssvm import LSSVMBank

Array = NDArray[Any]


@dataclass(frozen=True)
class _Term:
    """Machines with one gamma: the rows they use (None: all), and their coefficients, shape (rows, machines)."""

    gamma: float
    machines: Array
    used: Any
    coef: Any


class DeviceSums:
    """Kernel expansions Σ aᵢ K(x, xᵢ) over training rows on a device.

    Parameters
    ----------
    kernel : DeviceKernel
        The kernel, with the training rows.
    coef : ndarray of shape (M, n)
        The coefficients a of every expansion.
    gammas : ndarray of shape (M,)
        The kernel's parameter of each.
    """

    def __init__(self, kernel: DeviceKernel, coef: Array, gammas: Array):
        self._kernel, device, self._terms = kernel, kernel.device, []
        for gamma in np.unique(gammas):
            machines = np.flatnonzero(gammas == gamma)
            used = np.flatnonzero(coef[machines].any(axis=0))
            on_device = device.to_device(coef[np.ix_(machines, used)].T, kernel.dtype)
            rows = None if used.size == coef.shape[1] else device.to_device(used, "int64")
            self._terms.append(_Term(float(gamma), machines, rows, on_device))
        # The columns of all terms, one after the other, in the order of the coefficients.
        self._n_columns = len(coef)
        order = np.argsort(np.concatenate([term.machines for term in self._terms]))
        self._order = device.to_device(order, "int64")

    def at(self, rows: DeviceRows) -> Any:
        """Return the sums at some rows.

        Parameters
        ----------
        rows : DeviceRows
            The rows.

        Returns
        -------
        array of shape (m, M)
        """
        xp, training = self._kernel.device.xp, self._kernel.training
        found = self._kernel.empty(len(rows), self._n_columns)
        for block in self._kernel.blocks(len(rows), len(training)):
            parts = self._kernel.parts(rows[block], training)
            sums = [self._of_term(parts, term) for term in self._terms]
            found[block, :] = (
                sums[0] if len(sums) == 1 else xp.take(xp.concat(sums, axis=1), self._order, axis=1)
            )
        return found

    def _of_term(self, parts: list[Any], term: _Term) -> Any:
        if term.used is not None:
            parts = [self._kernel.device.xp.take(part, term.used, axis=1) for part in parts]
        return self._kernel.values(parts, term.gamma) @ term.coef


class DeviceMargins:
    """Fitted machines on a device, for the margins of many new rows.

    Training rows and coefficients are moved to the device once.

    Parameters
    ----------
    bank : LSSVMBank
        The fitted machines; their kernel is not one that is given as a matrix or as a function.
    device : str, Device or None, default=None
        The device, see `resolve_device`.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the computation.
    kernel : DeviceKernel or None, default=None
        The kernel with the training rows, if it is on the device already.

    See Also
    --------
    polymargin.machines.LSSVMBank.margins : The same on the CPU.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_all
    >>> from polymargin.kernels import RBF
    >>> from polymargin.machines import TrainingRows, fit_lssvm_bank
    >>> rows = TrainingRows(RBF(), np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 2]), np.ones(3))
    >>> bank = fit_lssvm_bank(rows, one_vs_all(3), C=10.0, gamma=1.0)
    >>> new = np.array([[0.5], [4.0]])
    >>> np.allclose(DeviceMargins(bank, "cpu").margins(new), bank.margins(new))
    True
    """

    def __init__(
        self,
        bank: LSSVMBank,
        device: str | Device | None = None,
        *,
        dtype: str = "float64",
        kernel: DeviceKernel | None = None,
    ):
        if kernel is None:
            kernel = DeviceKernel(bank.kernel, bank.data.X, resolve_device(device), dtype)
        self.device, self._kernel = kernel.device, kernel
        self._sums = DeviceSums(kernel, bank.dual_coef, bank.gamma)
        self._intercept = self.device.to_device(bank.intercept, kernel.dtype)

    @with_memory_errors
    def margins(self, X: Any) -> Any:
        """Return the decision values z of every machine for new rows.

        Parameters
        ----------
        X : array, sparse matrix or device array of shape (m, d)
            New rows.

        Returns
        -------
        margins : array of shape (m, L)
            Positive on the side of the classes with codeword bit +1. For a device array it is an array on the device
            of the machines, else a NumPy array.
        """
        margins = self._sums.at(self._kernel.rows(X)) + self._intercept
        return margins if is_device_array(X) else self._to_numpy(margins)

    @with_memory_errors
    def training_margins(self) -> Array:
        """Return the decision values z of every machine for the training rows.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return self._to_numpy(self._sums.at(self._kernel.training) + self._intercept)

    def _to_numpy(self, margins: Any) -> Array:
        return self.device.to_numpy(margins).astype(np.float64, copy=False)
