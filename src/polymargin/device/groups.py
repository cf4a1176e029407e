"""The rows that some columns of the codebook share, on a device, with their factorisations one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import Codebook
from polymargin.device.arrays import Device
from polymargin.device.factors import CentredMatrix, DeviceFactor
from polymargin.device.kernels import DeviceKernel
from polymargin.device.refinement import RefinedFactor
from polymargin.machines._gram import DichotomyGroup, dichotomy_groups
from polymargin.machines.lssvm import FactorisedBlock
from polymargin.rows import TrainingRows
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import NotPositiveDefinite

Array = NDArray[Any]
_Result = TypeVar("_Result")
#: The precisions of a factorisation.
DTYPES = ("float64", "float32")


class DeviceGroup:
    """A group of rows on a device.

    Parameters
    ----------
    group : DichotomyGroup
        The rows, their targets and weights.
    kernel : DeviceKernel
        The kernel with all training rows, in double precision.
    dtype : {"float64", "float32"}
        The precision of the factorisations.

    Attributes
    ----------
    group : DichotomyGroup
        The same rows, but those that are left out together one after the other.
    rows, columns, targets, weights : ndarray
        Those of the group.
    left_out : LeftOut or None
        Which rows are left out together.
    """

    def __init__(self, group: DichotomyGroup, kernel: DeviceKernel, dtype: str):
        self.left_out: LeftOut | None = None
        if group.observations is not None:
            order = np.concatenate([block.ravel() for block in LeftOut.of(group.observations).blocks])
            group = _in_order(group, order)
            assert group.observations is not None
            self.left_out = LeftOut.of(group.observations)
        self.group, self._kernel, self._dtype = group, kernel, dtype
        self.rows, self.columns = group.rows, group.columns
        self.targets, self.weights = group.targets, group.weights

    def with_factors(
        self,
        gammas: Array,
        ridges: Array,
        function: Callable[[FactorisedBlock, float], _Result],
        *,
        skip_indefinite: bool = False,
    ) -> list[_Result]:
        """Return what a function returns for every factorisation, only one of which is in memory at a time.

        Parameters
        ----------
        gammas : ndarray of shape (l,)
            The kernel's parameter of every column.
        ridges : ndarray of shape (P, l)
            Several ε of every column. Equal ones of columns with equal gamma share a factorisation, all ε of a gamma
            the kernel matrix.
        function : callable (FactorisedBlock, float) -> object
            The function of a factorisation and its ridge. It must not keep the factorisation.
        skip_indefinite : bool, default=False
            Whether ridges that are too small for the matrix to have a factor are left out.

        Returns
        -------
        list of objects
        """
        self._require_memory()
        found = []
        for gamma in np.unique(gammas).tolist():
            matrix = self._matrix(gamma, self._dtype)
            for ridge in np.unique(ridges[:, gammas == gamma]).tolist():
                if matrix.released:  # for a factor in double precision
                    matrix = self._matrix(gamma, self._dtype)
                columns = self.columns[(gammas == gamma) & (ridges == ridge).any(axis=0)]
                try:
                    # No name is bound to the factor: its memory is free when the function returns.
                    found.append(function(self._block(matrix, columns, ridge), ridge))
                except NotPositiveDefinite:
                    if not skip_indefinite:
                        raise
            matrix.release()
        return found

    def _block(self, matrix: CentredMatrix, columns: Array, ridge: float) -> FactorisedBlock:
        factor: DeviceFactor | RefinedFactor
        if self._dtype == "float64":
            factor = matrix.factor(ridge, columns.size, self.left_out)
        else:
            exact = partial(self._matrix, matrix.gamma, "float64")
            factor = RefinedFactor(matrix, exact, ridge, columns.size, self.left_out)
        return FactorisedBlock(self.rows, columns, matrix.gamma, matrix.centring, factor)

    def _matrix(self, gamma: float, dtype: str) -> CentredMatrix:
        rows = self._kernel.training
        if self.rows.size < len(rows) or (np.diff(self.rows) < 0).any():
            rows = self._kernel.take(self.rows)
        return CentredMatrix(self._kernel, rows, self.weights, gamma, dtype)

    def _require_memory(self) -> None:
        """Raise OutOfDeviceMemory if the matrix of the rows does not fit."""
        n = self.rows.size
        remedy = "fit fewer rows"
        if self._dtype == "float64":
            remedy += ', or choose dtype="float32"'
        if n == len(self._kernel.training) and self.columns.size > 1:  # of several classes
            remedy += ', or coding="one-vs-one", whose machines see two classes at a time'
        n_bytes = float(n) ** 2 * np.dtype(self._dtype).itemsize
        self._kernel.device.require(n_bytes, f"the kernel matrix of {n} rows", remedy)


def device_groups(
    data: TrainingRows,
    codebook: Codebook,
    device: Device,
    dtype: str,
    kernel: DeviceKernel | None = None,
) -> list[DeviceGroup]:
    """Return the groups of rows that columns of the codebook share, on a device.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    device : Device
        The device.
    dtype : {"float64", "float32"}
        The precision of the factorisations.
    kernel : DeviceKernel or None
        The kernel of these rows, if it is on the device already.

    Returns
    -------
    list of DeviceGroup
    """
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}")
    groups = dichotomy_groups(data, codebook)
    if kernel is None:
        kernel = DeviceKernel(data.kernel, data.X, device)
    if len(groups) > 1:
        kernel.keep_parts()
    return [DeviceGroup(group, kernel, dtype) for group in groups]


def per_column(name: str, value: float | Array | None, codebook: Codebook) -> Array:
    """Return a parameter of every column, shape (L,); raise ValueError unless it is finite and positive.

    Parameters
    ----------
    name : str
        What the parameter is called.
    value : float, ndarray of shape (L,) or None
        Its value; None is refused.
    codebook : Codebook
        The columns.

    Returns
    -------
    ndarray of shape (L,)
    """
    given = np.asarray(np.nan if value is None else value, dtype=np.float64)
    if given.shape not in ((), (codebook.n_columns,)) or not (np.isfinite(given) & (given > 0.0)).all():
        raise ValueError(
            f"on a device {name} must be given: a positive number, or one for each of the {codebook.n_columns} columns "
            f"of the codebook; not {value!r}"
        )
    return np.array(np.broadcast_to(given, codebook.n_columns))


def _in_order(group: DichotomyGroup, order: Array) -> DichotomyGroup:
    """Return the group with its rows in another order."""
    parts = {"rows": group.rows, "targets": group.targets, "weights": group.weights}
    for name, values in (("counted", group.counted), ("observations", group.observations)):
        if values is not None:
            parts[name] = values
    return replace(group, **{name: values[order] for name, values in parts.items()})
