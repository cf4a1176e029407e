"""The criteria of `leave_one_out` along a path of ridges, for samples of all groups of rows: the lattice stage.

One eigendecomposition of a group's matrix for each gamma serves every ridge ε = 1/C. Groups of similar size are
decomposed as one stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin._threads import FEW_ROWS, in_threads, n_threads
from polymargin.kernels import Kernel
from polymargin.selection.lattice import log_grid
from polymargin.selection.press import CANCELLED
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.parabola import vertex
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]
Criterion = Literal["loo", "gcv"]

#: The ridge is searched between these multiples of the mean eigenvalue, with this many values per decade.
RIDGE_LIMITS, PER_DECADE = (1e-9, 1e4), 2
#: Matrices of one stack are padded to the size of the largest: the smallest has at least this share of its rows.
_SIMILAR = 0.8
#: Groups of fewer rows than this share a stack regardless of their sizes.
_SMALL = 48
#: The sum of m³ from which on a stack is large enough: its Python code takes a thirtieth of the time of its
#: eigendecompositions, and several threads are better off with several stacks.
_ENOUGH = 3e7
#: The operations of an eigendecomposition of m rows, in multiples of m³.
EIGEN = 10.0
#: The share of the free memory for the eigenvectors of several gammas.
_MEMORY_SHARE = 0.1


class SampledGroup(NamedTuple):
    """A sample of a group of rows, or the whole group, with the targets of its columns.

    Attributes
    ----------
    base : ndarray of shape (m, m), or ThinMatrix
        The kernel's base matrix among them, or their features.
    weights : ndarray of shape (m,)
        Their weights.
    targets : ndarray of shape (m, L)
        The columns' targets.
    counted : ndarray of shape (m, L) or None
        The weights of the residuals in the criterion; None: all equal.
    copies : ndarray of shape (m,) or None
        The number of equal rows, of equal weight, that each row represents, one of which is left out; None: one.
    left_out : LeftOut or None
        The groups of rows that are left out together; None: every row by itself.
    """

    base: Any
    weights: Array
    targets: Array
    counted: Array | None = None
    copies: Array | None = None
    left_out: LeftOut | None = None


class Path(NamedTuple):
    """The criterion of every group and column along a path of ridges.

    Attributes
    ----------
    log_ridges : ndarray of shape (R,)
        The logarithms of the ridges, ascending.
    costs : ndarray of shape (R, p, L)
        The criterion, summed over rows.
    bias_eigenvalues, magnitudes : ndarray of shape (p,)
        The mean eigenvalue of every group's matrix, which is also that of the bias direction, and the trace of the
        kernel matrix before centring.
    """

    log_ridges: Array
    costs: Array
    bias_eigenvalues: Array
    magnitudes: Array


class Samples:
    """Samples of the rows of several groups, and the criterion for any gamma along a path of ridges.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    groups : sequence of SampledGroup
        The sampled rows of every group: m of them, for L columns, with the kernel's base matrix or their features.
    least_ridge : float
        The least ridge to consider, in multiples of the mean eigenvalue.
    grouped : bool
        Whether PRESS leaves the rows of a group out together, where there are groups; see `SampledGroup.left_out`.
    ridges : ndarray of shape (R,) or None
        The path of ridges, ascending; None for one that covers the limits of all groups.
    """

    def __init__(
        self,
        kernel: Kernel,
        groups: Sequence[SampledGroup],
        least_ridge: float = RIDGE_LIMITS[0],
        *,
        grouped: bool = False,
        ridges: Array | None = None,
    ):
        self.kernel, self.groups, self.least_ridge = kernel, groups, least_ridge
        self.grouped, self.ridges = grouped, ridges
        self.n_columns = max(part.targets.shape[1] for part in groups)
        self.totals = np.array([float(part.weights.sum()) for part in groups])
        # The groups of every stack: of similar size, all with features or none.
        thin = np.array([isinstance(part.base, ThinMatrix) for part in groups])
        sizes = np.array([part.weights.size for part in groups])
        self._stacks: list[list[int]] = []
        for number in np.lexsort((-sizes, thin)):
            first = self._stacks[-1][0] if self._stacks else number
            similar = sizes[number] >= _SIMILAR * sizes[first] or sizes[first] <= _SMALL
            enough = self._stacks and len(self._stacks[-1]) * float(sizes[first]) ** 3 > _ENOUGH
            if self._stacks and thin[number] == thin[first] and similar and not (enough or grouped):
                self._stacks[-1].append(int(number))
            else:
                self._stacks.append([int(number)])
        self._paths: dict[tuple[Criterion, float, float | None], Path] = {}

    def path(self, criterion: Criterion, gamma: float, ridge: float | None = None) -> Path:
        """Return the criterion of every group, at one ridge if it is given; cached."""
        key = criterion, gamma, ridge
        if key not in self._paths:
            self.compute(criterion, [gamma], ridge)
        return self._paths[key]

    def gammas_at_once(self) -> int:
        """Return for how many gammas threads share the work: for one where matrices are large, or memory is short."""
        sizes = [part.weights.size for part in self.groups]
        if max(sizes) > FEW_ROWS:
            return 1
        n_bytes = 24.0 * sum(
            float(size) ** 2 for size in sizes
        )  # kernel matrices, eigenvectors, copies of the base
        return max(1, min(n_threads(), int(_MEMORY_SHARE * _memory.available() / n_bytes)))

    def compute(self, criterion: Criterion, gammas: Sequence[float], ridge: float | None = None) -> None:
        """Compute the paths of several gammas; threads share the eigendecompositions of all of them.

        Parameters
        ----------
        criterion : {"loo", "gcv"}
            The criterion.
        gammas : sequence of float
            The kernel parameters.
        ridge : float or None
            The ridge, if it is given.
        """
        gammas = [gamma for gamma in gammas if (criterion, gamma, ridge) not in self._paths]
        with np.errstate(over="ignore", invalid="ignore"):
            tasks = [(gamma, numbers) for gamma in gammas for numbers in self._stacks]
            decomposed = in_threads(self._decomposed, tasks, [self._work(numbers) for _, numbers in tasks])
            per_gamma = len(self._stacks)
            for place, gamma in enumerate(gammas):
                of_gamma = decomposed[place * per_gamma : (place + 1) * per_gamma]
                self._paths[criterion, gamma, ridge] = self._path_of(criterion, of_gamma, ridge)

    def _work(self, numbers: list[int]) -> float:
        """Return the rows of a matrix whose solution takes as long as the eigendecompositions of a stack."""
        size = self.groups[numbers[0]].weights.size
        return size if size > FEW_ROWS else min(FEW_ROWS, (EIGEN * len(numbers)) ** (1 / 3) * size)

    def _decomposed(self, task: tuple[float, list[int]]) -> tuple[list[int], _Stack, _Spectra]:
        """Decompose the matrices of a stack for one gamma."""
        gamma, numbers = task
        stack = _Stack(self.kernel, [self.groups[number] for number in numbers], self.grouped)
        return numbers, stack, stack.spectra(gamma)

    def _path_of(
        self,
        criterion: Criterion,
        decomposed: list[tuple[list[int], _Stack, _Spectra]],
        ridge: float | None,
    ) -> Path:
        """Return the path of a gamma from the eigendecompositions of all stacks."""
        n_groups = len(self.groups)
        bias_eigenvalues, magnitudes = np.empty(n_groups), np.empty(n_groups)
        for numbers, _, spectra in decomposed:
            bias_eigenvalues[numbers], magnitudes[numbers] = spectra.bias_eigenvalues, spectra.magnitudes
        if ridge is not None:
            grid = np.log([ridge])
        elif self.ridges is not None:
            grid = np.log(self.ridges)
        else:  # the limits of every group, and of all together
            limits = [self._limits(bias_eigenvalues, magnitudes)]
            limits += [self._limits(bias_eigenvalues[[n]], magnitudes[[n]]) for n in range(n_groups)]
            grid = log_grid(min(low for low, _ in limits), max(high for _, high in limits), PER_DECADE)
        ridges, costs = np.exp(grid), np.zeros((grid.size, n_groups, self.n_columns))
        sizes = [self._work(numbers) for numbers, *_ in decomposed]
        found = in_threads(lambda part: part[1].costs(criterion, part[2], ridges), decomposed, sizes)
        for (numbers, *_), of_stack in zip(decomposed, found, strict=True):
            costs[:, numbers, : of_stack.shape[2]] = of_stack
        return Path(grid, costs, bias_eigenvalues, magnitudes)

    def best_ridge(
        self, criterion: Criterion, gamma: float, mask: Array, ridge: float | None
    ) -> tuple[float, float]:
        """Return the ridge that minimises the criterion over the masked (p, L) columns, and the least value."""
        path = self.path(criterion, gamma, ridge)
        weight = float((mask * self.totals[:, np.newaxis]).sum())
        costs = np.einsum("rpl,pl->r", path.costs, mask) / weight
        if ridge is not None:
            return ridge, float(costs[0])
        used = mask.any(axis=1)
        low, high = self._limits(path.bias_eigenvalues[used], path.magnitudes[used])
        inside = (path.log_ridges >= low - 1e-9) & (path.log_ridges <= high + 1e-9)
        grid, costs = path.log_ridges[inside], costs[inside]
        best = int(np.argmin(costs))
        if not 0 < best < grid.size - 1:
            return float(np.exp(grid[best])), float(costs[best])
        around = slice(best - 1, best + 2)
        lowest = vertex(grid[around], np.log(np.maximum(costs[around], 1e-300)))
        return float(np.exp(lowest)), float(costs[best])

    def _limits(self, bias_eigenvalues: Array, magnitudes: Array) -> tuple[float, float]:
        """Return the logarithms of the least and the largest ridge to consider."""
        scale = float(np.mean(bias_eigenvalues))
        low = float(np.log(max(self.least_ridge * scale, CANCELLED * float(magnitudes.max()))))
        return low, max(float(np.log(RIDGE_LIMITS[1] * scale)), low + np.log(10.0))


class _Spectra(NamedTuple):
    """The eigendecompositions of a stack of centred matrices, or of their features' products."""

    eigenvalues: Array
    vectors: Array
    loadings: Array
    bias_eigenvalues: Array
    magnitudes: Array


class _Stack:
    """Groups as one stack of matrices.

    Smaller groups are padded with rows of weight zero and columns that do not count, which does not change the result.
    """

    def __init__(self, kernel: Kernel, groups: Sequence[SampledGroup], grouped: bool):
        self.kernel = kernel
        self._left_out = groups[0].left_out if grouped else None
        p, m = len(groups), max(part.weights.size for part in groups)
        n_columns = max(part.targets.shape[1] for part in groups)
        self._weights = np.zeros((p, m))
        self._copies = np.ones((p, m))
        self._counted = np.zeros((p, m, n_columns))
        targets = np.zeros((p, m, n_columns))
        for number, part in enumerate(groups):
            size, width = part.targets.shape
            self._weights[number, :size] = part.weights
            if part.copies is not None:
                self._copies[number, :size] = part.copies
            targets[number, :size, :width] = part.targets
            self._counted[number, :size, :width] = 1.0 if part.counted is None else part.counted
        self.totals = self._weights.sum(axis=1)
        self._roots = np.sqrt(self._weights)
        shares = self._weights / self.totals[:, np.newaxis]
        means = np.einsum("pm,pml->pl", shares, targets)
        self._targets = self._roots[:, :, np.newaxis] * (targets - means[:, np.newaxis])
        self._direction = np.sqrt(shares)
        self._counted *= self._weights[:, :, np.newaxis]
        #: Whether nothing had to be padded, and whether in addition all weights are one.
        self._full = bool((self._weights > 0.0).all())
        self._plain = bool((self._weights == 1.0).all())
        self._thin = [part.base for part in groups if isinstance(part.base, ThinMatrix)]
        if self._thin:
            self._rows = np.zeros((p, m, self._thin[0].orders.size))
            for number, matrix in enumerate(self._thin):
                self._rows[number, : matrix.rows.shape[0]] = matrix.rows
        elif p == 1:
            self._base = groups[0].base[np.newaxis]
        else:
            self._base = np.zeros((p, m, m, *groups[0].base.shape[2:]), dtype=groups[0].base.dtype)
            for number, part in enumerate(groups):
                size = part.weights.size
                self._base[number, :size, :size] = part.base

    def spectra(self, gamma: float) -> _Spectra:
        """Decompose the centred kernel matrices of all groups for one gamma, or their features."""
        if self._thin:
            return self._of_features(gamma)
        K = self.kernel.apply(self._base, gamma)
        if not self._full:
            K *= (self._weights > 0.0)[:, :, np.newaxis]  # padding has kernel values of zero
        row_means = (K @ self._weights[:, :, np.newaxis])[:, :, 0] / self.totals[:, np.newaxis]
        _check_finite(row_means)
        magnitudes = np.einsum("pi,pi->p", np.abs(np.einsum("pii->pi", K)), self._weights)
        grand_means = np.einsum("pi,pi->p", row_means, self._weights) / self.totals
        K -= row_means[:, :, np.newaxis]
        K -= (row_means - grand_means[:, np.newaxis])[:, np.newaxis, :]
        if not self._plain:
            K *= self._roots[:, :, np.newaxis]
            K *= self._roots[:, np.newaxis, :]
        bias_eigenvalues = np.einsum("pii->p", K) / np.maximum(self.totals - 1.0, 1.0)
        bias_eigenvalues[~(bias_eigenvalues > 0.0)] = 1.0
        K += (bias_eigenvalues[:, np.newaxis] * self._direction)[:, :, np.newaxis] * self._direction[
            :, np.newaxis
        ]
        eigenvalues, vectors = np.linalg.eigh(K)
        loadings = np.swapaxes(vectors, 1, 2) @ self._targets
        return _Spectra(np.maximum(eigenvalues, 0.0), vectors, loadings, bias_eigenvalues, magnitudes)

    def _of_features(self, gamma: float) -> _Spectra:
        """Decompose GᵀG, which has the same eigenvalues but for zeros (`polymargin.solvers.thin`)."""
        scales = np.stack([matrix.scales(gamma) for matrix in self._thin])[:, :, np.newaxis]
        products = scales * np.stack([matrix.products for matrix in self._thin]) * np.swapaxes(scales, 1, 2)
        _check_finite(products)
        bias_eigenvalues = np.array([matrix.bias_eigenvalue(gamma) for matrix in self._thin])
        magnitudes = np.array([matrix.magnitude(gamma) for matrix in self._thin])
        eigenvalues, vectors = np.linalg.eigh(products)
        turned = self._rows @ (scales * vectors)
        loadings = np.swapaxes(turned, 1, 2) @ self._targets
        return _Spectra(np.maximum(eigenvalues, 0.0), turned, loadings, bias_eigenvalues, magnitudes)

    def costs(self, criterion: Criterion, spectra: _Spectra, ridges: Array) -> Array:
        """Return the criterion, summed over rows, for several ridges, groups and columns, shape (R, p, L)."""
        if self._left_out is not None:
            return self._grouped_costs(self._left_out, spectra, ridges)
        p, m, n_columns = self._targets.shape
        inverses = 1.0 / (spectra.eigenvalues[:, :, np.newaxis] + ridges)
        loaded = inverses[:, :, :, np.newaxis] * spectra.loadings[:, :, np.newaxis, :]
        solution = (spectra.vectors @ loaded.reshape(p, inverses.shape[1], -1)).reshape(
            p, m, ridges.size, n_columns
        )
        # The residuals times √s, shape (p, m, R, L), and one minus the leverages, shape (p, m, R).
        rest = np.square(spectra.vectors) @ inverses
        bias = np.square(self._direction)[:, :, np.newaxis]
        if self._thin:
            residuals, rest = self._targets[:, :, np.newaxis, :] - solution, 1.0 - rest - bias
        else:
            rest -= bias / (spectra.bias_eigenvalues[:, np.newaxis] + ridges)[:, np.newaxis, :]
            residuals, rest = ridges[:, np.newaxis] * solution, ridges * rest
        residuals /= np.where(self._roots > 0.0, self._roots, 1.0)[:, :, np.newaxis, np.newaxis]
        if criterion == "loo":
            copies = self._copies[:, :, np.newaxis]
            residuals *= (copies / np.maximum(copies - 1.0 + rest, 1e-300))[:, :, :, np.newaxis]
            return np.einsum("pml,pmrl->rpl", self._counted, np.square(residuals))
        repeated = self._copies.sum(axis=1) - self._copies.shape[1]
        n_rows = (self._weights > 0.0).sum(axis=1) + repeated
        rest_sum = np.einsum("pmr,pm->rp", rest, self._weights > 0.0) + repeated
        squares = np.einsum("pml,pmrl->rpl", self._counted, np.square(residuals))
        return squares / np.square(np.maximum(rest_sum / n_rows, 1e-150))[:, :, np.newaxis]

    def _grouped_costs(self, left_out: LeftOut, spectra: _Spectra, ridges: Array) -> Array:
        """Return PRESS where groups of rows are left out together, shape (R, 1, L)."""
        vectors, eigenvalues, loadings = spectra.vectors[0], spectra.eigenvalues[0], spectra.loadings[0]
        q = self._direction[0]
        costs = np.empty((ridges.size, 1, loadings.shape[1]))
        parts = [vectors[rows] for rows in left_out.blocks]
        for place, ridge in enumerate(ridges):
            inverses = 1.0 / (eigenvalues + ridge)
            solution = vectors @ (inverses[:, np.newaxis] * loadings)
            blocks = []
            for rows, part in zip(left_out.blocks, parts, strict=True):
                bias = (
                    q[rows][:, :, np.newaxis]
                    * q[rows][:, np.newaxis, :]
                    / (spectra.bias_eigenvalues[0] + ridge)
                )
                blocks.append((part * inverses) @ part.swapaxes(1, 2) - bias)
            try:
                errors = left_out.errors(blocks, solution)
            except np.linalg.LinAlgError:
                costs[place] = np.inf
                continue
            costs[place, 0] = np.einsum("nl,nl->l", errors, errors)
        return costs


def _check_finite(values: Array) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            "the kernel matrix holds infinite or undefined values; scale the features, for example with "
            "StandardScaler"
        )
