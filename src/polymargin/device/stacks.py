"""Groups of rows of similar size on a device, whose machines are trained together, as one stack of matrices.

A device takes as long to begin a step as for its work on some hundred rows. Groups of few rows are therefore padded to
the size of the largest with rows of weight zero, which change nothing, and every step is one of the whole stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polymargin.device import _adaptors
from polymargin.device.groups import DeviceGroup
from polymargin.device.kernels import DeviceKernel
from polymargin.machines._folds_out import FoldsOut
from polymargin.machines.solved import LEAST_SIGNAL, SolvedBlock, relative_rounding
from polymargin.selection import evidence

Array = NDArray[Any]

#: Groups of more rows than this keep a device busy by themselves: its matrix products are as fast for one matrix.
STACKED_ROWS = 2500
#: The smallest group of a stack has at least this share of the rows of the largest: with fewer, more than half of the
#: work would be that of the padding.
_SIMILAR = 0.8
#: The matrices of a stack, while it is solved; together they take the memory of so many blocks of rows at most.
_MATRICES, _BLOCKS = 12, 8


def stacked(groups: Sequence[DeviceGroup], kernel: DeviceKernel, gammas: Array, Cs: Array) -> list[list[int]]:
    """Return the groups that can be solved as stacks, by their places; each stack has one gamma.

    Parameters
    ----------
    groups : sequence of DeviceGroup
        The groups of rows.
    kernel : DeviceKernel
        The kernel. Without the matrices between all training rows there are no stacks.
    gammas : ndarray of shape (L,)
        The kernel's parameter of every column.
    Cs : ndarray of shape (L,) or (P, L)
        One or several C of every column. The columns of a group of a stack have these, and gamma, in common.

    Returns
    -------
    list of list of int
        Groups that are in no stack are solved one by one.
    """
    if not kernel.keeps_parts:
        return []

    def alike(columns: Array) -> bool:
        first = columns[:1]
        same = gammas[columns] == gammas[first], Cs[..., columns] == Cs[..., first]
        return all(bool(each.all()) for each in same)

    places = [
        place
        for place, group in enumerate(groups)
        if group.rows.size <= STACKED_ROWS and group.left_out is None and alike(group.columns)
    ]
    places.sort(key=lambda place: (gammas[groups[place].columns[0]], -groups[place].rows.size))
    most = _BLOCKS * kernel.device.block_bytes() / (8.0 * _MATRICES)
    stacks: list[list[int]] = []
    for place in places:
        first = groups[stacks[-1][0]] if stacks else groups[place]
        size, largest = groups[place].rows.size, first.rows.size
        together = gammas[groups[place].columns[0]] == gammas[first.columns[0]] and size >= _SIMILAR * largest
        if stacks and together and (len(stacks[-1]) + 1) * float(largest) ** 2 <= most:
            stacks[-1].append(place)
        else:
            stacks.append([place])
    return [stack for stack in stacks if len(stack) > 1]


def solve_stack(
    groups: Sequence[DeviceGroup], kernel: DeviceKernel, gamma: float, ridges: Array, folds: Array | None
) -> list[SolvedBlock] | None:
    """Return the machines of groups of rows, see `polymargin.machines.solved.solve_block`.

    Parameters
    ----------
    groups : sequence of DeviceGroup
        The p groups.
    kernel : DeviceKernel
        The kernel, which keeps the matrices between all training rows.
    gamma : float
        The kernel's parameter.
    ridges : ndarray of shape (p,)
        The ridge 1/C of every group.
    folds : ndarray of int, shape (n,), or None
        The fold of every training row, if machines refitted without each fold are wanted.

    Returns
    -------
    list of SolvedBlock, or None
        None where the groups have to be solved one by one: a matrix has no factor, or a machine has learned nothing.
    """
    stack = Stack(groups, kernel, gamma)
    if not stack.factorise(ridges):
        return None
    machines = stack.machines()
    if machines is None:
        return None
    without = None
    if folds is not None:
        without = stack.without_folds(folds)
        if without is None:
            return None
    found = []
    for place, group in enumerate(groups):
        shape = group.rows.size, group.columns.size
        folds_out = None if without is None else without.of(place, *shape)
        fields = machines.of(place, *shape)
        found.append(SolvedBlock(group.rows, group.columns, **fields, folds=folds_out, block=None))
    return found


class _Machines(NamedTuple):
    """The machines of a stack, with the attributes of `SolvedBlock`; the first axis has the groups."""

    coef: Array
    of_columns: dict[str, Array]
    loo_margins: Array
    rounding_errors: Array

    def of(self, place: int, n_rows: int, n_columns: int) -> dict[str, Any]:
        """Return the attributes of a group."""
        return {
            "coef": self.coef[place, :n_rows, :n_columns].T,
            **{name: values[place, :n_columns] for name, values in self.of_columns.items()},
            "loo_margins": self.loo_margins[place, :n_rows, :n_columns],
            "rounding_error": float(self.rounding_errors[place, :n_columns].max()),
        }


class _Folds(NamedTuple):
    """The machines of a stack without each fold, shapes (F, p, m, l)."""

    margins: Array
    coef: Array

    def of(self, place: int, n_rows: int, n_columns: int) -> FoldsOut:
        """Return those of a group."""
        own = np.s_[:, place, :n_rows, :n_columns]
        return FoldsOut(self.margins[own], np.swapaxes(self.coef[own], 1, 2))


class Stack:
    """Groups on a device, padded to m rows and l columns, and the factors of their centred kernel matrices.

    Parameters
    ----------
    groups : sequence of DeviceGroup
        The p groups.
    kernel : DeviceKernel
        The kernel, which keeps the matrices between all training rows.
    gamma : float
        The kernel's parameter.
    """

    def __init__(self, groups: Sequence[DeviceGroup], kernel: DeviceKernel, gamma: float):
        self.kernel, self.gamma, self.device = kernel, gamma, kernel.device
        p, m = len(groups), max(group.rows.size for group in groups)
        shape = p, m, max(group.columns.size for group in groups)
        self.sizes = np.array([group.rows.size for group in groups])
        self.rows, self.weights = np.zeros((p, m), dtype=np.int64), np.zeros((p, m))
        self.targets = np.zeros(shape)
        for place, group in enumerate(groups):
            size, width = group.targets.shape
            self.rows[place, :size], self.weights[place, :size] = group.rows, group.weights
            self.targets[place, :size, :width] = group.targets
            # Columns that are missing repeat the last one, which is as good as any.
            self.targets[place, :size, width:] = group.targets[:, -1:]
        self.totals = self.weights.sum(axis=1)
        self.roots = np.sqrt(self.weights)
        self.means = np.einsum("pm,pml->pl", self.weights, self.targets) / self.totals[:, np.newaxis]
        self.centred = self.roots[:, :, np.newaxis] * (self.targets - self.means[:, np.newaxis])

        self._centre()

    def _centre(self) -> None:
        """Compute the centred kernel matrices, see `polymargin.solvers.centring`."""
        device, xp = self.device, self.device.xp
        weights, roots = device.to_device(self.weights), device.to_device(self.roots)
        totals = device.to_device(self.totals)
        K = self.kernel.stack(device.to_device(self.rows, "int64"), self.gamma)
        # Padding has kernel values of zero.
        K = xp.where((weights > 0.0)[:, :, None], K, xp.zeros_like(K))
        row_means = (K @ weights[:, :, None])[:, :, 0] / totals[:, None]
        grand_means = xp.sum(row_means * weights, axis=1) / totals
        traces = xp.sum(weights * (xp.linalg.diagonal(K) - 2.0 * row_means), axis=1) + grand_means * totals
        self.row_means = device.to_numpy(row_means)
        self.grand_means, centred_traces = (device.to_numpy(each) for each in (grand_means, traces))
        self.bias_eigenvalues = centred_traces / np.maximum(self.totals - 1.0, 1.0)
        self.bias_eigenvalues[~(self.bias_eigenvalues > 0.0)] = 1.0
        K = K - row_means[:, :, None]
        K = K - row_means[:, None, :]
        K = K + (grand_means + device.to_device(self.bias_eigenvalues / self.totals))[:, None, None]
        K = K * roots[:, :, None]
        self._centred = K * roots[:, None, :]
        # q, the bias direction.
        self.direction = device.to_device(self.roots / np.sqrt(self.totals)[:, np.newaxis])

    def factorise(self, ridges: Array) -> bool:
        """Compute the inverse factors of the centred matrices, and the solutions for the targets.

        Parameters
        ----------
        ridges : ndarray of shape (p,)
            The ridge 1/C of every group.

        Returns
        -------
        bool
            Whether all matrices are positive definite.
        """
        if not np.isfinite(self.grand_means).all():
            return False
        device, xp = self.device, self.device.xp
        self.ridges = ridges
        eye = xp.eye(self.weights.shape[1], dtype=self._centred.dtype, device=device.device)
        try:
            lower = xp.linalg.cholesky(self._centred + device.to_device(ridges)[:, None, None] * eye)
        except Exception as error:
            if not _adaptors.is_not_positive_definite(error):
                raise
            return False
        self.log_diagonal = xp.log(xp.linalg.diagonal(lower))
        self.inverse_lower = _adaptors.solve_triangles(xp, lower, xp.broadcast_to(eye, lower.shape))
        # The eigenvalue that the inverse has along the bias direction.
        self.along_bias = device.to_device(1.0 / (self.bias_eigenvalues + self.ridges))
        right = device.to_device(self.centred)
        half = self.inverse_lower @ right
        solution = xp.matrix_transpose(self.inverse_lower) @ half
        # Solutions are orthogonal to the bias direction, see `solve_block`.
        along = xp.sum(self.direction[:, :, None] * solution, axis=1)
        self.solution = solution - self.direction[:, :, None] * along[:, None, :]
        diagonal = xp.sum(self.inverse_lower * self.inverse_lower, axis=1)
        self.diagonal = diagonal - self.along_bias[:, None] * self.direction * self.direction
        return bool(np.isfinite(device.to_numpy(xp.sum(self.log_diagonal, axis=1))).all())

    def press(self) -> Array:
        """Return the sums of the squared leave-one-out errors, shape (p, l).

        Returns
        -------
        ndarray of shape (p, l)
        """
        xp = self.device.xp
        errors = self.solution / self.diagonal[:, :, None]
        return self.device.to_numpy(xp.sum(errors * errors, axis=1))

    def machines(self) -> _Machines | None:
        """Return the machines; None if one has learned nothing but rounding errors."""
        device, xp = self.device, self.device.xp
        solution, diagonal = device.to_numpy(self.solution), device.to_numpy(self.diagonal)
        real = self.weights > 0.0
        centred, totals, ridges = self.centred, self.totals[:, np.newaxis], self.ridges[:, np.newaxis]
        coef = self.roots[:, :, np.newaxis] * solution
        fit = np.einsum("pml,pml->pl", centred, solution)
        lengths = np.einsum("pml,pml->pl", solution, solution)
        mu, zeta, log_evidence = (np.full(fit.shape, np.nan) for _ in range(3))
        # Padding adds the logarithm of the ridge to every log-determinant, rows of more weight than one repeat it.
        logs = 2.0 * device.to_numpy(xp.sum(self.log_diagonal, axis=1))[:, np.newaxis]
        logs -= (self.weights.shape[1] - self.sizes)[:, np.newaxis] * np.log(ridges)
        logs -= np.log(self.bias_eigenvalues[:, np.newaxis] + ridges)
        repeated = totals - self.sizes[:, np.newaxis]
        inverses = np.where(real, diagonal, 0.0).sum(axis=1)[:, np.newaxis] + repeated / ridges
        known = self.totals > 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            mu[known] = ((totals - 1.0) / fit)[known]
            zeta[known] = (mu / ridges)[known]
            logs += repeated * np.log(ridges)
            log_evidence[known] = evidence.log_evidence(totals, ridges, fit, logs, inverses)[known]
        errors = solution / np.where(real, diagonal, 1.0)[:, :, np.newaxis]
        roots = np.where(real, self.roots, 1.0)[:, :, np.newaxis]
        traces = self.bias_eigenvalues * np.maximum(self.totals - 1.0, 1.0)
        traces += self.totals * np.abs(self.grand_means)
        rounding = 0.5 * np.finfo(np.float64).eps * traces[:, np.newaxis] * np.sqrt(lengths)
        variation = np.square(centred - ridges[:, :, np.newaxis] * solution).sum(axis=1)
        if (np.sqrt(variation) <= LEAST_SIGNAL * rounding).any():
            return None
        squares = np.square(centred).sum(axis=1)
        relative = relative_rounding(rounding, variation, squares, totals * np.square(self.means))
        of_columns = {
            "intercept": self.means - np.einsum("pm,pml->pl", self.row_means, coef),
            "norms": np.sqrt(np.maximum(fit - ridges * lengths, 0.0)),
            "mu": mu,
            "zeta": zeta,
            "log_evidence": log_evidence,
        }
        return _Machines(coef, of_columns, self.targets - errors / roots, relative)

    def without_folds(self, folds: Array) -> _Folds | None:
        """Return the machines refitted without each fold, see `leave_fold_out`; None if a fold leaves too few rows."""
        xp, real = self.device.xp, self.weights > 0.0
        numbers = np.where(real, folds[self.rows], -1)
        P = xp.matrix_transpose(self.inverse_lower) @ self.inverse_lower
        P = P - (self.along_bias[:, None] * self.direction)[:, :, None] * self.direction[:, None, :]
        margins, coef = [], []
        for fold in range(int(folds.max()) + 1):
            found = self._without(P, numbers == fold)
            if found is None:
                return None
            without, errors = found
            kept = real & (numbers != fold)
            roots = np.where(real, self.roots, 1.0)[:, :, np.newaxis]
            margins.append(self.targets - errors / roots + self._shift(kept))
            coef.append(self.roots[:, :, np.newaxis] * without)
        found_all = _Folds(np.stack(margins), np.stack(coef))
        return found_all if np.isfinite(found_all.margins).all() else None

    def _without(self, P: Any, held: Array) -> tuple[Array, Array] | None:
        """Return solutions without a fold, and errors, as `polymargin.solvers.leave_out.leave_fold_out` does."""
        device, xp = self.device, self.device.xp
        p, m = held.shape
        width = max(1, int(held.sum(axis=1).max()))
        # The rows of the fold come first, in their order; of groups with fewer of them others, which do not count.
        places = np.argsort(~held, axis=1, kind="stable")[:, :width]
        counted = np.take_along_axis(held, places, axis=1)
        flat = device.to_device((places + m * np.arange(p)[:, np.newaxis]).ravel(), "int64")
        own = device.to_device(counted.astype(np.float64))
        of_fold = (
            xp.reshape(xp.take(xp.reshape(P, (p * m, m)), flat, axis=0), (p, width, m)) * own[:, :, None]
        )
        turned = xp.reshape(xp.matrix_transpose(of_fold), (p * m, width))
        within = xp.reshape(xp.take(turned, flat, axis=0), (p, width, width)) * own[:, :, None]
        eye = xp.eye(width, dtype=P.dtype, device=device.device)
        try:
            lower = xp.linalg.cholesky(within + (1.0 - own)[:, :, None] * eye)
        except Exception as error:
            if not _adaptors.is_not_positive_definite(error):
                raise
            return None
        n_columns = self.solution.shape[2]
        solution = xp.reshape(
            xp.take(xp.reshape(self.solution, (p * m, n_columns)), flat, axis=0), (p, width, -1)
        )
        half = _adaptors.solve_triangles(xp, lower, xp.concat([of_fold, solution * own[:, :, None]], axis=2))
        half, weighed = half[:, :, :m], half[:, :, m:]
        without = device.to_numpy(self.solution - xp.matrix_transpose(half) @ weighed)
        rest = device.to_numpy(self.diagonal - xp.sum(half * half, axis=1))
        inside = device.to_numpy(_adaptors.solve_triangles(xp, lower, weighed, transposed=True))
        without = np.where(held[:, :, np.newaxis], 0.0, without)
        errors = without / np.maximum(rest, np.finfo(np.float64).tiny)[:, :, np.newaxis]
        errors[held] = inside[counted]
        return without, errors

    def _shift(self, kept: Array) -> Array:
        """Return the leave-one-out shift of the target mean over the kept rows, see `DichotomyGroup.shift`."""
        weights = np.where(kept, self.weights, 0.0)[:, :, np.newaxis]
        totals = np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        moved = weights * (self.targets - (weights * self.targets).sum(axis=1, keepdims=True) / totals)
        return moved / np.maximum(totals - weights, 1e-12 * totals)
