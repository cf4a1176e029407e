"""Groups of rows that columns of a codebook share, and their centred and validated Gram matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin._threads import over_rows
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.kernels._features import Features
from polymargin.machines._workspace import Workspace, among
from polymargin.rows import TrainingRows
from polymargin.selection import evidence
from polymargin.selection.samples import SampledGroup
from polymargin.solvers import _lapack
from polymargin.solvers.centring import Centring, centre
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import NotPositiveDefinite
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]
Selection = Literal["evidence", "loo", "gcv"]

#: Groups of more rows than this are searched coarsely on a sample of this size.
_SAMPLE = 500
#: Features of the kernel's explicit feature map are used where there are at least this many rows for each.
_ROWS_PER_FEATURE = 2
#: Squared feature norms below this are refused: dividing by them would overflow.
_SMALLEST = 1e-290


@dataclass(frozen=True)
class DichotomyGroup:
    """The rows that some columns of the codebook share.

    Attributes
    ----------
    rows : ndarray of int, shape (m,)
        Indices of the training rows.
    columns : ndarray of int, shape (l,)
        The columns of the codebook.
    targets : ndarray of shape (m, l)
        The targets of the rows in every column.
    weights : ndarray of shape (m,)
        The row weights.
    counted : ndarray of shape (m, l) or None
        Which targets generalised cross-validation counts; None: all.
    observations : ndarray of int, shape (m,), or None
        The group of every row, which is left out whole; None: every row by itself.
    """

    rows: Array
    columns: Array
    targets: Array
    weights: Array
    counted: Array | None
    observations: Array | None

    def shift(self, kept: Array) -> Array:
        """Return the leave-one-out shift of the target mean over the kept rows, shape (m, l).

        Leaving a row, or its group, out of the kept rows shifts the mean of the targets away from the row's own target.
        The shift is added to leave-one-out margins to remove that leak; it is zero for rows that are not kept.
        """
        weights = np.where(kept, self.weights, 0.0)[:, np.newaxis]
        total = float(weights.sum())
        moved = weights * (self.targets - weights[:, 0] @ self.targets / max(total, 1e-300))
        if self.observations is not None:
            member = np.unique(self.observations, return_inverse=True)[1]
            together = np.zeros((int(member.max()) + 1, moved.shape[1] + 1))
            np.add.at(together, member, np.hstack([moved, weights]))
            moved, weights = together[member, :-1], together[member, -1:]
        shift = moved / np.maximum(total - weights, 1e-12 * max(total, 1e-300))
        return np.where(kept[:, np.newaxis], shift, 0.0)


def dichotomy_groups(
    rows: TrainingRows, codebook: Codebook, selection: Selection = "evidence"
) -> list[DichotomyGroup]:
    """Return the groups of rows that columns of the codebook share.

    A row with a soft label has the total probability of a dichotomy's classes as its weight there, and the mean of
    their codeword bits as its target. The machine is that of K rows in its place, one of each class, weighted by the
    probabilities.
    """
    # Generalised cross-validation of one-vs-all machines counts the column of a row's own class.
    own_only = selection == "gcv" and codebook.is_one_vs_all
    soft = rows.soft_labels
    if soft is None:
        all_targets = codebook.targets(rows.class_index)
        own = all_targets > 0 if own_only else None
    else:
        all_targets = soft @ codebook.matrix.astype(np.float64)
        own = soft @ (codebook.matrix > 0).astype(np.float64) if own_only else None
    groups = []
    for group in codebook.column_groups:
        weights = rows.weights
        if soft is None:
            used = np.flatnonzero(group.classes[rows.class_index])
            targets = all_targets[np.ix_(used, group.columns)].astype(np.float64)
        else:
            share = soft @ group.classes
            used = np.flatnonzero(share > 0.0)
            targets = all_targets[np.ix_(used, group.columns)] / share[used, np.newaxis]
            weights = weights * share
        groups.append(
            DichotomyGroup(
                used,
                group.columns,
                targets,
                weights[used],
                None if own is None else own[np.ix_(used, group.columns)],
                None if rows.groups is None else rows.groups[used],
            )
        )
    return groups


class GroupGram:
    """A group of rows with its kernel matrix, or with the features that are used in its place.

    Parameters
    ----------
    group : DichotomyGroup
        The rows, their targets and weights.
    workspace : Workspace
        The cache that all groups share.
    by_features : bool
        Whether features are used in place of the kernel matrix, if the group has enough rows.
    """

    def __init__(self, group: DichotomyGroup, workspace: Workspace, by_features: bool = False):
        self.group, self.workspace, self.kernel = group, workspace, workspace.rows.kernel
        self.rows, self.columns, self.targets = group.rows, group.columns, group.targets
        self.weights, self.counted, self.total = group.weights, group.counted, float(group.weights.sum())
        self.left_out = None if group.observations is None else LeftOut.of(group.observations)
        self._features: Features | None = None
        self._matrix_shared = not by_features
        if by_features and self.n_different >= _ROWS_PER_FEATURE * workspace.features.orders.size:
            self._features = workspace.features
        #: Whether the features of the rows are used in place of their kernel matrix.
        self.by_features = self._features is not None
        #: Their number, where the search may use them too.
        self.n_features: int | None = None
        if self._features is not None and self.left_out is None:
            self.n_features = self._features.orders.size

    @cached_property
    def _equals(self) -> Array:
        """The set of equal rows that every row belongs to, shape (m,)."""
        return np.unique(self.workspace.distinct.inverse[self.group.rows], return_inverse=True)[1]

    @property
    def n_different(self) -> int:
        """The number of distinct rows, on which budgets are based, so that copies of rows change nothing."""
        return int(self._equals.max()) + 1

    def thin(self) -> ThinMatrix:
        """Return the centred features of the rows; raise ValueError if they overflow or underflow."""
        assert self._features is not None
        features = self._features
        with np.errstate(over="ignore", invalid="ignore"):
            thin = ThinMatrix(features.of(self.rows), self.weights)
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

    def base(self, rows: Array | None = None) -> Array:
        """Return the base matrix among the group's rows, or given ones; raise if it is not a Gram matrix."""
        rows = self.rows if rows is None else rows
        kernel = self.kernel
        # Where most groups use features, the matrix of all rows is not cached.
        whole = self.workspace.base if self._matrix_shared else None
        base = kernel.base_among(self.workspace.rows.X, rows) if whole is None else among(whole, rows)
        if whole is None or kernel.untrusted or not self.workspace.finite:
            check_base(base, kernel)
        return base

    def centred(self, gamma: float, gram: Array | None = None) -> tuple[Centring, Array]:
        """Return the centring and the centred matrix A for one gamma; `gram`: the kernel matrix of all rows."""
        if gram is None:
            return _centred(self.kernel, _values(self.kernel, self.base(), gamma), self.weights)
        K = among(gram, self.rows)
        return _centred(self.kernel, K.copy() if K is gram else K, self.weights)

    def _sampled(self, share: float, least_rows: int) -> Array:
        """Return positions of a sample of this share of the rows; of every group some rows, not some whole groups."""
        if self.group.observations is None:
            return np.flatnonzero(self.workspace.sampled(share, least_rows)[self.rows])
        member, sizes = np.unique(self.group.observations, return_inverse=True, return_counts=True)[1:]
        order = np.argsort(member, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size) - (np.cumsum(sizes) - sizes)[member[order]]
        mean_size = order.size / sizes.size
        if share * mean_size >= 1.0:
            return np.flatnonzero(rank < np.ceil(share * sizes[member]))
        some = self.workspace.sampled(share * mean_size, least_rows)[self.rows]
        return np.flatnonzero(some & (rank == 0))

    def sample(self, share: float, least_rows: int, by_features: bool | None = None) -> SampledGroup:
        """Return a sample of this share of every class, or all rows, with their features or the base matrix.

        `by_features`: which of the two; None for features if there are some, and fewer than rows. Equal rows of one
        class and weight are merged into one row with a number of copies.
        """
        if by_features is None:
            by_features = self.n_features is not None and self.n_features < share * self.n_different
        observations = self.group.observations
        kept = np.arange(self.rows.size) if share >= 1.0 else self._sampled(share, least_rows)
        first, inverse, copies = np.unique(
            self._equals[kept], return_index=True, return_inverse=True, return_counts=True
        )[1:]
        different = kept[np.sort(first)]
        place = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        weights: Array = np.bincount(place[inverse], self.weights[kept])
        if observations is not None and share < 1.0:
            # The sampled rows of a group carry the weight of the whole group.
            of_all, of_kept = (
                np.bincount(observations, self.weights),
                np.bincount(observations[different], weights),
            )
            weights = weights * of_all[observations[different]] / of_kept[observations[different]]
        counts = np.bincount(place[inverse])
        whole = different.size == self.rows.size
        rows = self.rows[different]
        base: Any
        if not by_features:
            base = self.base(rows)
        elif whole:
            base = self.thin()
        else:
            assert self._features is not None
            base = ThinMatrix(self._features.of(rows), weights)
        return SampledGroup(
            base,
            weights,
            self.targets[different],
            None if self.counted is None else self.counted[different],
            None if copies.max() == 1 else counts.astype(np.float64),
            None if observations is None else LeftOut.of(observations[different]),
        )


class GroupEvidence:
    """The level-two evidence of a group of rows, cached by gamma.

    Parameters
    ----------
    group : GroupGram
        The rows.
    """

    def __init__(self, group: GroupGram):
        self._group, self._base = group, group.base()
        self._levels: dict[tuple[float, bool], evidence.LevelTwo] = {}
        self._sample: Array | None = None

    def level_two(self, gamma: float, sample: bool) -> evidence.LevelTwo:
        """Return the evidence of one gamma for the group's columns, on a sample of its rows if there are many."""
        group = self._group
        sample &= group.rows.size > _SAMPLE
        if (gamma, sample) not in self._levels:
            part = self._sampled() if sample else np.arange(group.rows.size)
            base = self._base[np.ix_(part, part)] if sample else self._base
            K = _values(group.kernel, base, gamma)
            trace = float(np.diagonal(K) @ group.weights[part])
            centring, A = _centred(group.kernel, K, group.weights[part])
            level = evidence.LevelTwo.of(A, centring, group.targets[part])
            _check_spectrum(level.form.eigenvalues, trace, group.kernel)
            self._levels[gamma, sample] = level
        return self._levels[gamma, sample]

    def _sampled(self) -> Array:
        """Return positions of a stratified sample of the rows, which does not depend on their order."""
        if self._sample is None:
            # Systematic sampling: every m-th row, in the order of the mean distance to all rows within each class.
            class_index = self._group.workspace.rows.class_index[self._group.rows]
            order = np.lexsort((self._group.weights @ _one_number(self._base), class_index))
            self._sample = _evenly(order, class_index[order], _SAMPLE)
        return self._sample


def group_grams(
    workspace: Workspace, codebook: Codebook, selection: Selection, *, by_matrix: bool = False
) -> list[GroupGram]:
    """Return the groups of rows that columns share, with features where these are few and allowed."""
    data = workspace.rows
    groups = dichotomy_groups(data, codebook, selection)
    by_features = False
    if not (by_matrix or sparse.issparse(data.X)):
        n_features = data.kernel.n_features(data.X.shape[1])
        if n_features is not None:
            # Copies of a row are not counted; features must pay off for most rows.
            sizes = [int(np.unique(workspace.distinct.inverse[group.rows]).size) for group in groups]
            covered = sum(size for size in sizes if size >= _ROWS_PER_FEATURE * n_features)
            by_features = 2 * covered >= sum(sizes)
    return [GroupGram(group, workspace, by_features) for group in groups]


def _evenly(order: Array, class_index: Array, size: int) -> Array:
    """Return evenly spaced items of an order that has the classes one after the other, sorted.

    A class that is too small to be hit is represented by its middle row.
    """
    counts = np.unique(class_index, return_counts=True)[1]
    middles = np.cumsum(counts) - (counts + 1) // 2
    evenly = np.linspace(0, order.size - 1, size).round().astype(int)
    return np.sort(order[np.union1d(evenly, middles)])


def _one_number(base: Array) -> Array:
    """Return the base matrix, or the first of two where a kernel has two base matrices."""
    return base if base.ndim == 2 else base[..., 0]


def check_base(base: Array, kernel: Kernel) -> None:
    """Raise ValueError or NotPositiveDefinite unless a base matrix is a Gram matrix."""
    finite: list[bool] = []
    over_rows(
        lambda rows: finite.append(bool(np.isfinite(base[rows]).all())), len(base), base.size // len(base)
    )
    if not all(finite):
        raise ValueError(f"the kernel matrix holds infinite or undefined values; {_remedy(kernel)}")
    if kernel.untrusted and not np.allclose(base, base.T, rtol=1e-6, atol=1e-8 * np.abs(base).max()):
        raise ValueError("the kernel matrix is not symmetric, so it is not a kernel's")
    if kernel.untrusted and base.shape[0] == base.shape[1]:
        # A matrix given by the user may be in single precision: only clearly negative eigenvalues are refused.
        shifted = np.array(base, order="F")
        shifted[np.diag_indices_from(shifted)] += 1e-7 * max(float(np.trace(np.abs(base))), 1e-300)
        if not _lapack.factor(shifted):
            raise NotPositiveDefinite(f"the kernel matrix is not positive semi-definite; {_remedy(kernel)}")


def _values(kernel: Kernel, base: Array, gamma: float) -> Array:
    """Return the kernel matrix, without warnings of infinite values."""
    with np.errstate(over="ignore", invalid="ignore"):
        return kernel.apply(base, gamma)


def _centred(kernel: Kernel, K: Array, weights: Array) -> tuple[Centring, Array]:
    """Return the centring and the centred matrix A of a kernel matrix, which is overwritten."""
    with np.errstate(over="ignore", invalid="ignore"):
        centring, A = centre(K, weights)
    if not np.isfinite(centring.grand_mean):
        raise ValueError(f"the kernel matrix holds infinite or undefined values; {_remedy(kernel)}")
    return centring, A


def _check_spectrum(eigenvalues: Array, trace: float, kernel: Kernel) -> None:
    """Raise NotPositiveDefinite if a Gram matrix, of this trace before centring, has clearly negative eigenvalues."""
    if kernel.untrusted:  # a matrix given by the user may have been computed in single precision
        tolerance = 1e-7 * trace
    else:
        tolerance = max(1e-7 * float(eigenvalues[-1]), evidence.ROUNDING * trace)
    if eigenvalues[0] < -tolerance:
        raise NotPositiveDefinite(
            f"the kernel matrix is not positive semi-definite: its eigenvalues reach from {eigenvalues[0]:.3g} "
            f"to {eigenvalues[-1]:.3g}; {_remedy(kernel)}"
        )


def _remedy(kernel: Kernel) -> str:
    """Return the advice for a matrix that is not a Gram matrix."""
    if kernel.untrusted:
        return "use a positive definite kernel"
    remedy = "scale the features, for example with StandardScaler"
    degree = getattr(kernel, "degree", 1)
    return remedy if float(degree).is_integer() and degree > 0 else "use a whole, positive degree"
