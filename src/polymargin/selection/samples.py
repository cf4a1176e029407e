"""The criteria of `leave_one_out` on small samples of all groups of rows at once: the coarse search.

One batch of eigendecompositions for each gamma serves every ridge ε = 1/C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polymargin.kernels import Kernel
from polymargin.selection.lattice import log_grid
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]
Criterion = Literal["loo", "gcv"]

#: The ridge is searched between these multiples of the mean eigenvalue, so many values a decade.
RIDGE_LIMITS, PER_DECADE = (1e-9, 1e4), 2
#: The ridge is not less than this times the trace before centring: what centring takes away leaves its rounding behind.
CANCELLED = 1e-12


class Part(NamedTuple):
    """Some of the rows that some columns of the codebook share.

    Attributes
    ----------
    base : ndarray of shape (m, m), or ThinMatrix
        The kernel's base matrix among them, or their features.
    weights : ndarray of shape (m,)
        Their weights.
    targets : ndarray of shape (m, L)
        The columns' targets.
    counted : ndarray of shape (m, L) or None
        How much each residual counts; None: all the same.
    copies : ndarray of shape (m,) or None
        How many rows each stands for, one of which is left out; None: the weights. (They differ where a soft label
        gives a column a part of a row.)
    """

    base: Any
    weights: Array
    targets: Array
    counted: Array | None = None
    copies: Array | None = None


class Samples:
    """Small samples of the rows of several groups, and the criterion for any gamma and ridge.

    The groups are one stack of matrices: those with fewer rows or columns are filled up with rows of no weight and
    columns that do not count, which changes nothing.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    groups : sequence of Part
        The sampled rows of every group: m of them, for L columns. They come with the kernel's base matrix, or they all
        come with their features.
    least_ridge : float
        The least ridge to consider, in multiples of the mean eigenvalue.
    """

    def __init__(self, kernel: Kernel, groups: Sequence[Part], least_ridge: float = RIDGE_LIMITS[0]):
        self.kernel, self.least_ridge = kernel, least_ridge
        p, m = len(groups), max(part.weights.size for part in groups)
        self.n_columns = n_columns = max(part.targets.shape[1] for part in groups)
        self._weights = np.zeros((p, m))
        self._copies = np.ones((p, m))
        self._counted = np.zeros((p, m, n_columns))
        targets = np.zeros((p, m, n_columns))
        for number, part in enumerate(groups):
            size, width = part.targets.shape
            self._weights[number, :size] = part.weights
            self._copies[number, :size] = np.maximum(
                part.weights if part.copies is None else part.copies, 1.0
            )
            targets[number, :size, :width] = part.targets
            self._counted[number, :size, :width] = 1.0 if part.counted is None else part.counted
        self.totals = self._weights.sum(axis=1)
        self._roots = np.sqrt(self._weights)
        shares = self._weights / self.totals[:, np.newaxis]
        means = np.einsum("pm,pml->pl", shares, targets)
        self._targets = self._roots[:, :, np.newaxis] * (targets - means[:, np.newaxis])
        self._direction = np.sqrt(shares)
        self._counted *= self._weights[:, :, np.newaxis]
        #: Whether nothing had to be filled up, and whether all rows have weight one besides.
        self._full = bool((self._weights > 0.0).all())
        self._plain = bool((self._weights == 1.0).all())
        self._known: dict[float, _Spectra] = {}
        self._thin = [part.base for part in groups if isinstance(part.base, ThinMatrix)]
        if self._thin:
            self._rows = np.zeros((p, m, self._thin[0].orders.size))
            for number, matrix in enumerate(self._thin):
                self._rows[number, : matrix.rows.shape[0]] = matrix.rows
        else:
            self._base = np.zeros((p, m, m), dtype=groups[0].base.dtype)
            for number, part in enumerate(groups):
                size = part.weights.size
                self._base[number, :size, :size] = part.base

    def spectra(self, gamma: float) -> _Spectra:
        """Return the decomposition of all groups for one gamma, computed once."""
        if gamma not in self._known:
            with np.errstate(over="ignore", invalid="ignore"):
                found = self._of_features(gamma) if self._thin else self._of_matrices(gamma)
            self._known[gamma] = found
        return self._known[gamma]

    def _of_matrices(self, gamma: float) -> _Spectra:
        """Decompose the centred kernel matrices."""
        K = self.kernel.apply(self._base, gamma)
        if not self._full:
            K *= (self._weights > 0.0)[:, :, np.newaxis]  # what fills up has no kernel
        row_means = (K @ self._weights[:, :, np.newaxis])[:, :, 0] / self.totals[:, np.newaxis]
        _check_finite(row_means)
        magnitudes = np.einsum("pi,pi->p", np.abs(np.einsum("pii->pi", K)), self._weights)
        grand_means = np.einsum("pi,pi->p", row_means, self._weights) / self.totals
        K -= row_means[:, :, np.newaxis]
        K -= (row_means - grand_means[:, np.newaxis])[:, np.newaxis, :]
        if not self._plain:
            K *= self._roots[:, :, np.newaxis]
            K *= self._roots[:, np.newaxis, :]
        lifts = np.einsum("pii->p", K) / np.maximum(self.totals - 1.0, 1.0)
        lifts[~(lifts > 0.0)] = 1.0
        K += (lifts[:, np.newaxis] * self._direction)[:, :, np.newaxis] * self._direction[:, np.newaxis]
        eigenvalues, vectors = np.linalg.eigh(K)
        loadings = np.swapaxes(vectors, 1, 2) @ self._targets
        return _Spectra(
            np.maximum(eigenvalues, 0.0), vectors, np.square(vectors), loadings, lifts, magnitudes
        )

    def _of_features(self, gamma: float) -> _Spectra:
        """Decompose GᵀG, which has the same eigenvalues but for zeros (`polymargin.solvers.thin`)."""
        scales = np.stack([matrix.scales(gamma) for matrix in self._thin])[:, :, np.newaxis]
        products = scales * np.stack([matrix.products for matrix in self._thin]) * np.swapaxes(scales, 1, 2)
        _check_finite(products)
        lifts = np.array([matrix.lift(gamma) for matrix in self._thin])
        magnitudes = np.array([matrix.magnitude(gamma) for matrix in self._thin])
        eigenvalues, vectors = np.linalg.eigh(products)
        turned = self._rows @ (scales * vectors)
        loadings = np.swapaxes(turned, 1, 2) @ self._targets
        return _Spectra(np.maximum(eigenvalues, 0.0), turned, np.square(turned), loadings, lifts, magnitudes)

    def costs(self, criterion: Criterion, gamma: float, ridges: Array) -> Array:
        """Return the criterion, summed over rows, for several ridges, groups and columns, shape (R, p, L)."""
        residuals, rest = self._residuals(gamma, ridges)
        # Residuals over √s and one minus leverages, of a row of weight s; where s > 1 one of s rows is left out.
        residuals /= np.where(self._roots > 0.0, self._roots, 1.0)[:, :, np.newaxis, np.newaxis]
        if criterion == "loo":
            copies = self._copies[:, :, np.newaxis]
            residuals *= (copies / np.maximum(copies - 1.0 + rest, 1e-300))[:, :, :, np.newaxis]
            return np.einsum("pml,pmrl->rpl", self._counted, np.square(residuals))
        repeated = self.totals - (self._weights > 0.0).sum(axis=1)
        rest_sum = np.einsum("pmr,pm->rp", rest, self._weights > 0.0) + repeated
        squares = np.einsum("pml,pmrl->rpl", self._counted, np.square(residuals))
        return squares / np.square(np.maximum(rest_sum / self.totals, 1e-150))[:, :, np.newaxis]

    def _residuals(self, gamma: float, ridges: Array) -> tuple[Array, Array]:
        """Return the residuals times √s, shape (p, m, R, L), and one minus the leverages, shape (p, m, R)."""
        spectra = self.spectra(gamma)
        p, m, n_columns = self._targets.shape
        inverses = 1.0 / (spectra.eigenvalues[:, :, np.newaxis] + ridges)
        loaded = inverses[:, :, :, np.newaxis] * spectra.loadings[:, :, np.newaxis, :]
        solution = (spectra.vectors @ loaded.reshape(p, inverses.shape[1], -1)).reshape(
            p, m, ridges.size, n_columns
        )
        diagonal = spectra.squares @ inverses
        bias = np.square(self._direction)[:, :, np.newaxis]
        if self._thin:
            return self._targets[:, :, np.newaxis, :] - solution, 1.0 - diagonal - bias
        diagonal -= bias / (spectra.lifts[:, np.newaxis] + ridges)[:, np.newaxis, :]
        return ridges[:, np.newaxis] * solution, ridges * diagonal

    def best_ridge(
        self, criterion: Criterion, gamma: float, mask: Array, ridge: float | None
    ) -> tuple[float, float]:
        """Return the ridge that minimises the criterion over the masked (p, L) columns, and the least value."""
        weight = float((mask * self.totals[:, np.newaxis]).sum())

        def total(log_ridges: Array) -> Array:
            costs = self.costs(criterion, gamma, np.exp(log_ridges))
            return np.einsum("rpl,pl->r", costs, mask) / weight

        if ridge is not None:
            return ridge, float(total(np.log([ridge]))[0])
        scale = float(np.mean(self.spectra(gamma).lifts[mask.any(axis=1)]))
        magnitude = float(self.spectra(gamma).magnitudes[mask.any(axis=1)].max())
        low = float(np.log(max(self.least_ridge * scale, CANCELLED * magnitude)))
        high = max(float(np.log(RIDGE_LIMITS[1] * scale)), low + np.log(10.0))
        grid = log_grid(low, high, PER_DECADE)
        step = grid[1] - grid[0]
        costs = total(grid)
        best = int(np.argmin(costs))
        if not 0 < best < grid.size - 1:
            return float(np.exp(grid[best])), float(costs[best])
        below, middle, above = np.log(np.maximum(costs[best - 1 : best + 2], 1e-300))
        bend = below - 2.0 * middle + above
        shift = 0.5 * (below - above) / bend if bend > 0.0 else 0.0
        return float(np.exp(grid[best] + shift * step)), float(costs[best])


def _check_finite(values: Array) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            "the kernel matrix holds infinite or undefined values; scale the features, for example with "
            "StandardScaler"
        )


class _Spectra:
    """The eigendecompositions of a stack of centred matrices, or of their features' products."""

    def __init__(
        self,
        eigenvalues: Array,
        vectors: Array,
        squares: Array,
        loadings: Array,
        lifts: Array,
        magnitudes: Array,
    ) -> None:
        self.eigenvalues, self.vectors, self.squares = eigenvalues, vectors, squares
        self.loadings, self.lifts, self.magnitudes = loadings, lifts, magnitudes
