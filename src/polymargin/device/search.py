"""PRESS at full size on a device: the squared leave-one-out errors of some C and gamma, and a search around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.codebooks import Codebook
from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.device.groups import DeviceGroup, device_groups, per_column
from polymargin.device.kernels import DeviceKernel
from polymargin.device.stacks import Stack, stacked
from polymargin.machines.lssvm import FactorisedBlock
from polymargin.rows import TrainingRows
from polymargin.solvers.ridge import left_out_errors

Array = NDArray[Any]

#: The factors of C and gamma that are tried, one after the other.
_STEPS = (4.0, 2.0)


@dataclass(frozen=True)
class RefinedParameters:
    """C and gamma with the smallest PRESS that was found.

    Attributes
    ----------
    C, gamma : ndarray of shape (L,)
        The parameters of every column.
    press : float
        Their PRESS: the sum of the squared leave-one-out errors of all columns, times the weights of the rows.
    start : float
        PRESS of the parameters that the search began with.
    evaluations : int
        The number of factorisations of every group of rows.
    """

    C: Array
    gamma: Array
    press: float
    start: float
    evaluations: int


@with_memory_errors
def press_path(
    data: TrainingRows,
    codebook: Codebook,
    gamma: float | Array | None,
    Cs: ArrayLike,
    device: str | Device | None = None,
    *,
    dtype: str = "float64",
) -> Array:
    """Return the squared leave-one-out error of several C, which share one kernel matrix.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    gamma : float or ndarray of shape (L,), or None
        The kernel's parameter, of all columns or of each; None for a kernel that has none.
    Cs : array-like of shape (P,) or (P, L)
        The values of C: one for all columns, or one for each column.
    device : str, Device or None, default=None
        The device, see `resolve_device`.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the factorisation, see `fit_device_bank`.

    Returns
    -------
    ndarray of shape (P, L)
        The sum of the squares of every column's leave-one-out residuals, times the weights of the rows. Infinity where
        C is too large for the matrix to have a factor.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_all
    >>> from polymargin.kernels import RBF
    >>> rows = TrainingRows(RBF(), np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 1]), np.ones(3))
    >>> press_path(rows, one_vs_all(2), 0.5, [1.0, 10.0]).round(3)
    array([[6.36 ],
           [6.613]])
    """
    gammas = per_column("gamma", gamma if data.kernel.tunable else 1.0, codebook)
    tried = np.stack([per_column("C", C, codebook) for C in np.asarray(Cs, dtype=np.float64)])
    return _Press(data, codebook, resolve_device(device), dtype).of(gammas, tried)


@with_memory_errors
def refine_parameters(
    data: TrainingRows,
    codebook: Codebook,
    C: float | Array,
    gamma: float | Array | None,
    device: str | Device | None = None,
    *,
    max_evaluations: int = 20,
    dtype: str = "float64",
) -> RefinedParameters:
    """Improve C and gamma, which were found on a sample of the rows, by PRESS of all rows.

    C and gamma of all columns are multiplied by 4, ¼, then 2 and ½, as long as PRESS falls.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    C : float or ndarray of shape (L,)
        The regularisation to begin with, of all columns or of each.
    gamma : float or ndarray of shape (L,), or None
        The kernel's parameter to begin with; None for a kernel that has none.
    device : str, Device or None, default=None
        The device, see `resolve_device`.
    max_evaluations : int, default=20
        The largest number of factorisations of every group of rows.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the factorisation, see `fit_device_bank`.

    Returns
    -------
    RefinedParameters

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_all
    >>> from polymargin.kernels import RBF
    >>> X = np.linspace(0.0, 1.0, 20)[:, np.newaxis]
    >>> rows = TrainingRows(RBF(), X, (X[:, 0] > 0.5).astype(int), np.ones(20))
    >>> found = refine_parameters(rows, one_vs_all(2), C=1.0, gamma=1.0)
    >>> found.press < found.start
    True
    """
    tunable = data.kernel.tunable
    first_C = per_column("C", C, codebook)
    first_gamma = per_column("gamma", gamma if tunable else 1.0, codebook)
    press = _Press(data, codebook, resolve_device(device), dtype)
    known: dict[tuple[float, float], float] = {}

    def evaluate(gamma_power: float, C_powers: list[float]) -> None:
        """Compute PRESS where it is not known, for one gamma and several C, as long as the budget lasts."""
        new = [power for power in C_powers if (power, gamma_power) not in known]
        new = new[: max(0, max_evaluations - len(known))]
        if new:
            tried = first_C * np.exp2(new)[:, np.newaxis]
            values = press.of(first_gamma * 2.0**gamma_power, tried).sum(axis=1)
            known.update(zip([(power, gamma_power) for power in new], values.tolist(), strict=True))

    evaluate(0.0, [0.0])
    best = start = (0.0, 0.0)
    for power in np.log2(_STEPS).tolist():
        moved = True
        while moved and len(known) < max_evaluations:
            before = best
            # All C of one gamma share its kernel matrix.
            evaluate(best[1], [best[0] - power, best[0] + power])
            best = min(known, key=known.__getitem__)
            if best == before and tunable:
                for other in (best[1] - power, best[1] + power):
                    evaluate(other, [best[0]])
                best = min(known, key=known.__getitem__)
            moved = best != before
    return RefinedParameters(
        first_C * 2.0 ** best[0], first_gamma * 2.0 ** best[1], known[best], known[start], len(known)
    )


class _Press:
    """PRESS of all groups of rows, which are prepared once for all C and gamma."""

    def __init__(self, data: TrainingRows, codebook: Codebook, device: Device, dtype: str):
        self._dtype, self._kernel = dtype, DeviceKernel(data.kernel, data.X, device)
        self._groups = device_groups(data, codebook, device, dtype, self._kernel)

    def of(self, gammas: Array, Cs: Array) -> Array:
        """Return PRESS of every column for several C, shape (P, L) as Cs is."""
        press = np.full(Cs.shape, np.inf)
        alone: dict[int, list[int]] = {place: list(range(len(Cs))) for place in range(len(self._groups))}
        for stack in stacked(self._groups, self._kernel, gammas, Cs) if self._dtype == "float64" else []:
            groups = [self._groups[place] for place in stack]
            columns = [group.columns[0] for group in groups]
            matrices = Stack(groups, self._kernel, float(gammas[columns[0]]))
            for number, own in enumerate(Cs):
                if not matrices.factorise(1.0 / own[columns]):
                    continue
                for place, group, values in zip(stack, groups, matrices.press(), strict=True):
                    press[number, group.columns] = values[: group.columns.size]
                    alone[place].remove(number)
        for place, numbers in alone.items():
            if numbers:
                press[numbers] = self._alone(self._groups[place], gammas, Cs[numbers], press[numbers])
        return press

    @staticmethod
    def _alone(group: DeviceGroup, gammas: Array, Cs: Array, press: Array) -> Array:
        """Return PRESS with that of a group's columns, where C is not too large."""

        def of_block(block: FactorisedBlock, ridge: float) -> tuple[Array, float, Array]:
            places = np.searchsorted(group.columns, block.columns)
            centred, _ = block.centring.targets(group.targets[:, places])
            solution = block.factor.solve(centred)
            bias = block.centring.bias_direction[:, np.newaxis]
            solution -= bias * (bias.T @ solution)
            errors = left_out_errors(
                block.factor, solution, block.centring, np.array([ridge]), group.left_out
            )
            return block.columns, ridge, np.square(errors).sum(axis=0)

        for columns, ridge, values in group.with_factors(
            gammas[group.columns], 1.0 / Cs[:, group.columns], of_block, skip_indefinite=True
        ):
            for column, value in zip(columns, values, strict=True):
                press[1.0 / Cs[:, column] == ridge, column] = value
        return press
