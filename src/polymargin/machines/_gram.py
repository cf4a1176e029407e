"""The Gram matrix of one group of rows, centred, checked, and the evidence computed from it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polymargin._threads import remembered
from polymargin.kernels import Kernel
from polymargin.machines._rows import TrainingRows
from polymargin.selection import evidence
from polymargin.selection.samples import Part
from polymargin.solvers.centring import Centring, centre
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import NotPositiveDefinite
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]

#: Groups of more rows than this are searched coarsely on a sample of this size.
_SAMPLE = 500
#: Products of features below this leave no room for what is divided by them.
_SMALLEST = 1e-290


class RowGroupGram:
    """The rows that some columns of the codebook share, and the Gram matrix among them."""

    def __init__(
        self,
        data: TrainingRows,
        rows: Array,
        columns: Array,
        targets: Array,
        weights: Array | None = None,
        counted: Array | None = None,
    ):
        self.data, self.rows, self.columns = data, rows, columns
        self.targets = targets[np.ix_(rows, columns)].astype(np.float64)
        self.weights = data.weights[rows] if weights is None else weights[rows]
        self.counted = None if counted is None else counted[np.ix_(rows, columns)]
        self._levels: dict[tuple[float, bool], evidence.LevelTwo] = {}

    @remembered
    def base(self) -> Array:
        return self._base_among(self.rows)

    @remembered
    def thin(self) -> ThinMatrix | None:
        """The features of the rows, where they are used and far fewer than the rows."""
        features = self.data.features
        if features is None or not self.worth_features(features.orders.size):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            thin = self._thin_among(self.rows, self.weights)
            square = features.unit * features.unit
            if not (np.isfinite(thin.products).all() and np.isfinite(square)):
                raise ValueError(
                    f"the products of the kernel's features hold infinite or undefined values; {_remedy(self.kernel)}"
                )
            largest = float(np.diagonal(thin.products).max())
            if square < np.finfo(np.float64).tiny or 0.0 < largest < _SMALLEST:
                raise ValueError(
                    f"the products of the kernel's features are too small to compute with; {_remedy(self.kernel)}"
                )
        return thin

    def worth_features(self, n_features: int) -> bool:
        """Tell whether it is quicker to work with so many features than with the kernel matrix.

        Copies of a row are not counted, so that they change nothing.
        """
        return _serve(n_features, self.n_different)

    @property
    def n_different(self) -> int:
        """How many rows there are, copies not counted."""
        return self._different[0].size

    def _thin_among(self, rows: Array, weights: Array) -> ThinMatrix:
        assert self.data.features is not None
        return ThinMatrix(self.data.features.of(rows), weights)

    @remembered
    def _different(self) -> tuple[Array, Array]:
        """The first of every set of equal rows, and which of these each row equals."""
        distinct = self.data.distinct.inverse[self.rows]
        return np.unique(distinct, return_index=True, return_inverse=True)[1:]

    def _base_among(self, rows: Array) -> Array:
        """Return the base matrix among some of the training rows, which is refused if it is no Gram matrix."""
        data = self.data
        base = data.base_among(rows)
        if data.kernel.untrusted or data.whole_base is None or not data.finite:
            check_base(base, data.kernel)
        return base

    def release(self) -> None:
        """Forget the base matrix, the features, and what was computed from them."""
        self.__dict__.pop("base", None)
        self.__dict__.pop("thin", None)
        self._levels.clear()

    def centred(self, gamma: float) -> tuple[Centring, Array]:
        """Return the centring and the centred matrix A for one gamma."""
        shared = self.data.shared_gram_among(self.rows, gamma)
        K = _values(self.kernel, self.base, gamma) if shared is None else shared
        return _centred(self.kernel, K, self.weights)

    @remembered
    def sample(self) -> Array:
        """Positions of a sample of the rows that keeps every class's share and does not depend on their order."""
        # Rows in the order of their mean distance to all rows, within each class: every m-th is a fair sample.
        class_index = self.data.class_index[self.rows]
        order = np.lexsort((self.weights @ self.base, class_index))
        return _evenly(order, class_index[order], _SAMPLE)

    def level_two(self, gamma: float, sample: bool) -> evidence.LevelTwo:
        """Return the evidence of one gamma for the group's columns, on a sample of its rows if there are many."""
        sample &= self.rows.size > _SAMPLE
        if (gamma, sample) not in self._levels:
            part = self.sample if sample else np.arange(self.rows.size)
            base = self.base[np.ix_(part, part)] if sample else self.base
            centring, A = _centred(self.kernel, _values(self.kernel, base, gamma), self.weights[part])
            level = evidence.LevelTwo.of(A, centring, self.targets[part])
            trace = float(np.diagonal(base).real @ self.weights[part])
            _check_spectrum(level.form.eigenvalues, trace, self.data.kernel)
            self._levels[gamma, sample] = level
        return self._levels[gamma, sample]

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.data.kernel

    @remembered
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.weights.sum())

    @property
    def n_features(self) -> int | None:
        """The dimension of the kernel's feature map, where the features are used in place of the kernel matrix."""
        return None if self.thin is None or self.left_out is not None else self.thin.orders.size

    @cached_property
    def left_out(self) -> LeftOut | None:
        """The groups of rows that are left out together; None: every row by itself."""
        return None if self.data.groups is None else LeftOut.of(self.data.groups[self.rows])

    def shift(self, kept: Array) -> Array:
        """Return what leaving a row, or its group, out of some rows does to the mean of their targets, (m, L).

        It is anti-correlated with the row's own target, and is added to its leave-one-out margin; zero elsewhere.
        """
        weights = np.where(kept, self.weights, 0.0)[:, np.newaxis]
        total = float(weights.sum())
        moved = weights * (self.targets - weights[:, 0] @ self.targets / max(total, 1e-300))
        if self.data.groups is not None:
            member = np.unique(self.data.groups[self.rows], return_inverse=True)[1]
            together = np.zeros((int(member.max()) + 1, moved.shape[1] + 1))
            np.add.at(together, member, np.hstack([moved, weights]))
            moved, weights = together[member, :-1], together[member, -1:]
        shift = moved / np.maximum(total - weights, 1e-12 * max(total, 1e-300))
        return np.where(kept[:, np.newaxis], shift, 0.0)

    def _sampled(self, share: float, least_rows: int) -> Array:
        """Return the places of a share of the rows; of groups, some rows of each rather than some groups."""
        if self.data.groups is None:
            return np.flatnonzero(np.isin(self.rows, self.data.deal.sample(share, least_rows)))
        member, sizes = np.unique(self.data.groups[self.rows], return_inverse=True, return_counts=True)[1:]
        order = np.argsort(member, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size) - (np.cumsum(sizes) - sizes)[member[order]]
        mean_size = order.size / sizes.size
        if share * mean_size >= 1.0:
            return np.flatnonzero(rank < np.ceil(share * sizes[member]))
        some = np.isin(self.rows, self.data.deal.sample(share * mean_size, least_rows))
        return np.flatnonzero(some & (rank == 0))

    def part(self, share: float, least_rows: int, by_features: bool) -> Part:
        """Return a sample of this share of every class, or all rows, with their features or the base matrix.

        Equal rows of one class and weight are one row that stands for several.
        """
        kept = np.arange(self.rows.size) if share >= 1.0 else self._sampled(share, least_rows)
        first, inverse, copies = np.unique(
            self._different[1][kept], return_index=True, return_inverse=True, return_counts=True
        )[1:]
        different = kept[np.sort(first)]
        place = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        weights: Array = np.bincount(place[inverse], self.weights[kept])
        if self.data.groups is not None and share < 1.0:
            # Of a group of which some rows are kept, these stand for all.
            groups = self.data.groups[self.rows]
            of_all, of_kept = np.bincount(groups, self.weights), np.bincount(groups[different], weights)
            weights = weights * of_all[groups[different]] / of_kept[groups[different]]
        counts = np.bincount(place[inverse])
        whole = different.size == self.rows.size
        rows = self.rows[different]
        base: Any
        if by_features:
            base = self.thin if whole else self._thin_among(rows, weights)
        else:
            base = self.base if whole else self._base_among(rows)
        return Part(
            base,
            weights,
            self.targets[different],
            None if self.counted is None else self.counted[different],
            None if copies.max() == 1 else counts.astype(np.float64),
            None if self.data.groups is None else LeftOut.of(self.data.groups[rows]),
        )


def _serve(n_features: int, n_rows: int) -> bool:
    """Tell whether so many features of so many rows are quicker to work with than their kernel matrix."""
    return 2 * n_features <= n_rows


def _evenly(order: Array, class_index: Array, size: int) -> Array:
    """Return evenly spaced items of an order that has the classes one after the other, sorted.

    A class too small to be met by chance is represented by its middle row.
    """
    counts = np.unique(class_index, return_counts=True)[1]
    middles = np.cumsum(counts) - (counts + 1) // 2
    evenly = np.linspace(0, order.size - 1, size).round().astype(int)
    return np.sort(order[np.union1d(evenly, middles)])


def check_base(base: Array, kernel: Kernel) -> None:
    """Refuse a matrix that is no Gram matrix."""
    if not np.isfinite(base).all():
        raise ValueError(f"the kernel matrix holds infinite or undefined values; {_remedy(kernel)}")
    if kernel.untrusted and not np.allclose(base, base.T, rtol=1e-6, atol=1e-8 * np.abs(base).max()):
        raise ValueError("the kernel matrix is not symmetric, so it is not a kernel's")
    if kernel.untrusted and base.shape[0] == base.shape[1]:
        # A matrix from outside may have been computed in single precision: only what is clearly negative is refused.
        shifted = np.array(base, order="F")
        shifted[np.diag_indices_from(shifted)] += 1e-7 * max(float(np.trace(np.abs(base))), 1e-300)
        if lapack.dpotrf(shifted, lower=1, overwrite_a=1)[1] != 0:
            raise NotPositiveDefinite(f"the kernel matrix is not positive semi-definite; {_remedy(kernel)}")


def _values(kernel: Kernel, base: Array, gamma: float) -> Array:
    """Return the kernel's values, infinite ones included."""
    with np.errstate(over="ignore", invalid="ignore"):
        return kernel.apply(base, gamma)


def _centred(kernel: Kernel, K: Array, weights: Array) -> tuple[Centring, Array]:
    """Return the centring and the centred matrix A of the kernel's values, which are overwritten."""
    with np.errstate(over="ignore", invalid="ignore"):
        centring, A = centre(K, weights)
    if not np.isfinite(centring.grand_mean):
        raise ValueError(f"the kernel matrix holds infinite or undefined values; {_remedy(kernel)}")
    return centring, A


def _check_spectrum(eigenvalues: Array, trace: float, kernel: Kernel) -> None:
    """Refuse a Gram matrix with clearly negative eigenvalues."""
    # A matrix from outside, of this trace before it was centred, may have been computed in single precision.
    tolerance = 1e-7 * (trace if kernel.untrusted else float(eigenvalues[-1]))
    if eigenvalues[0] < -tolerance:
        raise NotPositiveDefinite(
            f"the kernel matrix is not positive semi-definite: its eigenvalues reach from {eigenvalues[0]:.3g} "
            f"to {eigenvalues[-1]:.3g}; {_remedy(kernel)}"
        )


def _remedy(kernel: Kernel) -> str:
    """Say what to do about a matrix that is no Gram matrix."""
    if kernel.untrusted:
        return "use a positive definite kernel"
    remedy = "scale the features, for example with StandardScaler"
    degree = getattr(kernel, "degree", 1)
    return remedy if float(degree).is_integer() and degree > 0 else "use a whole, positive degree"
