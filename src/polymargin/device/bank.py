"""Training of exact least-squares machines on a device: the same machines as those of `fit_lssvm_bank`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import Codebook
from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.device.groups import DeviceGroup, device_groups, per_column
from polymargin.device.kernels import DeviceKernel
from polymargin.device.margins import DeviceMargins, DeviceSums
from polymargin.device.stacks import solve_stack, stacked
from polymargin.machines._folds_out import nested_outputs
from polymargin.machines._gram import GroupGram
from polymargin.machines.lssvm import FactorisedBlock, LSSVMBank
from polymargin.machines.solved import SolvedBlock, joined, solve_block
from polymargin.rows import TrainingRows

Array = NDArray[Any]


@with_memory_errors
def fit_device_bank(
    data: TrainingRows,
    codebook: Codebook,
    C: float | Array,
    gamma: float | Array | None,
    device: str | Device | None = None,
    *,
    dtype: str = "float64",
    n_folds: int = 0,
    keep_fold_coef: bool = False,
    kernel: DeviceKernel | None = None,
) -> LSSVMBank:
    """Train the machines of every column of the codebook on a device.

    Parameters
    ----------
    data : TrainingRows
        The training rows; their kernel is not one that is given as a matrix or as a function.
    codebook : Codebook
        The dichotomies.
    C : float or ndarray of shape (L,)
        The regularisation, of all columns or of each.
    gamma : float or ndarray of shape (L,), or None
        The kernel's parameter, of all columns or of each; None for a kernel that has none.
    device : str, Device or None, default=None
        The device, see `resolve_device`.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the factorisation. With "float32" it is a preconditioner: solutions are refined in double
        precision until they are right to ten digits, and where that fails, or C is too large for it, the factorisation
        is one of double precision. Leave-one-out margins then have an error of about 1e-7 C K(x, x), at most 1e-5, and
        the log-evidence of about 1e-4.
    n_folds : int, default=0
        The number of folds of nested outputs, see `polymargin.outputs.Nested`; zero for none. There are none either in
        single precision, and where there is no memory for three more matrices of n² numbers.
    keep_fold_coef : bool, default=False
        Whether nested outputs keep the coefficients of the machines.
    kernel : DeviceKernel or None, default=None
        The kernel of these rows, if it is on the device already.

    Returns
    -------
    LSSVMBank
        The fitted machines, with NumPy arrays. Factorisations are not kept: variances factorise on the CPU.

    Raises
    ------
    OutOfDeviceMemory
        If the memory of the device does not suffice.

    See Also
    --------
    polymargin.machines.fit_lssvm_bank : The same on the CPU, with a search for C and gamma.
    DeviceMargins : The margins of new rows on a device.

    Notes
    -----
    The memory is that of one matrix of n² numbers and a few blocks, for the largest group of n rows that columns share:
    27 GiB for 60 000 rows in double precision. Columns of a group with equal C and gamma share one factorisation. The
    work is 2n³/3 operations for each, half of it for exact leave-one-out.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> from polymargin.kernels import Linear
    >>> rows = TrainingRows(Linear(), np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 2]), np.ones(3))
    >>> bank = fit_device_bank(rows, one_vs_one(3), C=1e6, gamma=None, device="cpu")
    >>> bank.margins(np.array([[0.0], [2.0]])).round(3)
    array([[-1.   , -1.   , -2.   ],
           [ 3.   ,  0.333,  0.   ]])
    """
    place = resolve_device(device)
    Cs = per_column("C", C, codebook)
    gammas = per_column("gamma", gamma if data.kernel.tunable else 1.0, codebook)
    if kernel is None:
        kernel = DeviceKernel(data.kernel, data.X, place)
    groups = device_groups(data, codebook, place, dtype, kernel)
    folds = data.deal.fold_numbers(n_folds) if n_folds else None
    parts = _solved(groups, kernel, Cs, gammas, folds, dtype)
    fields, unused = joined(parts, data.class_index.size, codebook.n_columns)
    bank = LSSVMBank(
        data=data,
        codebook=codebook,
        C=Cs,
        gamma=gammas,
        blocks=None,
        rounding_error=data.kernel.roundings(data.X, float(gammas.max()))
        * max(part.rounding_error for part in parts),
        **fields,
    )
    if folds is not None:
        of_rows = [group.group for group in groups]

        def sums(coef: Array, of_each: Array) -> Array:
            assert kernel is not None
            return place.to_numpy(DeviceSums(kernel, coef, of_each).at(kernel.training))

        nested = nested_outputs(sums, gammas, folds, of_rows, parts, keep_fold_coef)
        bank = replace(bank, nested=nested)
    if unused.any():
        margins = DeviceMargins(bank, kernel=kernel).training_margins()
        np.copyto(bank.loo_margins, margins, where=unused)
    return bank


def _solved(
    groups: list[DeviceGroup],
    kernel: DeviceKernel,
    Cs: Array,
    gammas: Array,
    folds: Array | None,
    dtype: str,
) -> list[SolvedBlock]:
    """Return the machines of all groups: of those with few rows as stacks, of the others one by one."""
    found: dict[int, list[SolvedBlock]] = {}
    for stack in stacked(groups, kernel, gammas, Cs) if dtype == "float64" else []:
        some = [groups[place] for place in stack]
        columns = [group.columns[0] for group in some]
        together = solve_stack(some, kernel, float(gammas[columns[0]]), 1.0 / Cs[columns], folds)
        if together is not None:
            found |= {place: [solved] for place, solved in zip(stack, together, strict=True)}
    for place, group in enumerate(groups):
        if place not in found:
            found[place] = _solved_alone(group, Cs, gammas, folds)
    return [part for place in range(len(groups)) for part in found[place]]


def _solved_alone(group: DeviceGroup, Cs: Array, gammas: Array, folds: Array | None) -> list[SolvedBlock]:
    """Return the machines of a group: its matrices stay on the device, the rest is as on the CPU."""
    ridges = 1.0 / Cs

    def solve(block: FactorisedBlock, ridge: float) -> SolvedBlock:
        return solve_block(
            cast(GroupGram, group), block, np.full(block.columns.size, ridge), folds, keep_factor=False
        )

    return group.with_factors(gammas[group.columns], ridges[np.newaxis, group.columns], solve)
