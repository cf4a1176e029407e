"""Margins of new rows on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._device_arrays import is_device_array
from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.device.kernels import DeviceKernel
from polymargin.machines.lssvm import LSSVMBank

Array = NDArray[Any]


@dataclass(frozen=True)
class _Term:
    """Machines with one gamma: the rows they use (None: all), and their coefficients, shape (rows, machines)."""

    gamma: float
    machines: Array
    used: Any
    coef: Any


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

    def __init__(self, bank: LSSVMBank, device: str | Device | None = None, *, dtype: str = "float64"):
        self.device, self._dtype = resolve_device(device), dtype
        self._kernel = DeviceKernel(bank.kernel, bank.data.X, self.device, dtype)
        self._terms = []
        for gamma in np.unique(bank.gamma):
            machines = np.flatnonzero(bank.gamma == gamma)
            used = np.flatnonzero(bank.dual_coef[machines].any(axis=0))
            coef = self.device.to_device(bank.dual_coef[np.ix_(machines, used)].T, dtype)
            rows = None if used.size == bank.dual_coef.shape[1] else self.device.to_device(used, "int64")
            self._terms.append(_Term(float(gamma), machines, rows, coef))
        self._intercept = self.device.to_device(bank.intercept, dtype)
        # The columns of all terms, one after the other, in the order of the codebook.
        order = np.argsort(np.concatenate([term.machines for term in self._terms]))
        self._order = self.device.to_device(order, "int64")

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
        xp = self.device.xp
        rows, training = self._kernel.rows(X), self._kernel.training
        margins = self._kernel.empty(len(rows), self._intercept.shape[0])
        for block in self._kernel.blocks(len(rows), len(training)):
            parts = self._kernel.parts(rows[block], training)
            sums = [self._sums(parts, term) for term in self._terms]
            together = sums[0] if len(sums) == 1 else xp.take(xp.concat(sums, axis=1), self._order, axis=1)
            margins[block, :] = together + self._intercept
        if is_device_array(X):
            return margins
        return self.device.to_numpy(margins).astype(np.float64, copy=False)

    def _sums(self, parts: list[Any], term: _Term) -> Any:
        """Return Σ aᵢ K(x, xᵢ) of the machines of a term."""
        if term.used is not None:
            parts = [self.device.xp.take(part, term.used, axis=1) for part in parts]
        return self._kernel.values(parts, term.gamma) @ term.coef
