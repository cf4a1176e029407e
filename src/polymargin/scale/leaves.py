"""Leaves: exact machines of the regions of a tree.

A leaf has the classes that occur among its rows. A column of the codebook with classes on one side only is a constant
there, the bit of that side, and zero without any class: the others are known to be absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads
from polymargin.codebooks import Codebook
from polymargin.codebooks.partial import Restriction
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, Workspace
from polymargin.machines.lssvm_training import BankTraining, select
from polymargin.rows import TrainingRows
from polymargin.scale._places import ON_CPU, Place
from polymargin.scale.tree import Tree

Array = NDArray[Any]


@dataclass(frozen=True)
class Leaf:
    """The machines of a region.

    Attributes
    ----------
    constants : ndarray of shape (L,)
        The output of the columns that have no machine here: ±1, or 0.
    columns : ndarray of int
        The columns that have one.
    bank : LSSVMBank or None
        Their machines, on the classes that occur here; None if there are none.
    """

    constants: Array
    columns: Array
    bank: LSSVMBank | None

    def margins(self, X: Any, place: Place = ON_CPU) -> Array:
        """Return the margins of new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        place : Place
            Where they are computed.

        Returns
        -------
        ndarray of shape (n, L)
        """
        margins = np.tile(self.constants, (X.shape[0], 1))
        if self.bank is not None:
            margins[:, self.columns] = place.margins(self.bank, X)
        return margins


@dataclass(frozen=True)
class LeafTraining:
    """How the machines of a leaf are trained.

    Attributes
    ----------
    kernel : Kernel
        The kernel, fitted to a sample of the training rows.
    codebook : Codebook
        The dichotomies of all classes.
    C, gamma : float or None
        Given parameters; None to select them in every leaf, by the leave-one-out errors of its rows.
    smaller : float
        The factor by which C is smaller than the C of least PRESS.
    criterion : dict
        The other arguments of a selection of C and gamma, but for the pools of columns.
    largest : int
        The largest number of rows: of more, which no cut could separate, a sample is taken.
    seed : int
        Deals the rows of every leaf.
    place : Place
        Where they are trained.
    """

    kernel: Kernel
    codebook: Codebook
    C: float | None
    gamma: float | None
    smaller: float
    criterion: dict[str, Any]
    largest: int
    seed: int = 0
    place: Place = field(default=ON_CPU, metadata={"digest": False})

    def fit(self, rows: TrainingRows) -> tuple[Leaf, Array, Array]:
        """Train the machines of a leaf.

        Parameters
        ----------
        rows : TrainingRows
            The rows of the leaf; their kernel is replaced by this one.

        Returns
        -------
        leaf : Leaf
        exact, honest : ndarray of shape (n, L)
            The leave-one-out margins of the rows, and the same without the shift of the target mean.
        """
        n = rows.class_index.size
        if n > self.largest:
            return self._fit_sample(rows)
        if rows.soft_labels is None:
            present = np.unique(rows.class_index)
        else:
            present = np.flatnonzero(rows.soft_labels.any(axis=0))
        found = Restriction.of(self.codebook, present)
        exact = np.tile(found.constants, (n, 1))
        if found.codebook is None:
            margins = self._without_lonely(rows, exact, exact.copy())
            return Leaf(found.constants, found.columns, None), *margins
        own = replace(
            rows,
            kernel=self.kernel,
            class_index=np.searchsorted(present, rows.class_index),
            soft_labels=None if rows.soft_labels is None else rows.soft_labels[:, present],
        ).shuffled(self.seed)
        workspace = Workspace(own)
        arguments = {**self.criterion, "pools": [np.arange(found.columns.size)]}
        C, gamma = self.C, self.gamma
        if C is None or (gamma is None and own.kernel.tunable):
            Cs, gammas = select(workspace, found.codebook, C=C, gamma=gamma, **arguments)
            C = float(Cs[0]) / (self.smaller if self.C is None else 1.0)
            gamma = float(gammas[0])
        trained = BankTraining.of(own, found.codebook, C=C, gamma=gamma, workspace=workspace, **arguments)
        (bank,) = self.place.train([trained])
        honest = exact.copy()
        exact[:, found.columns], honest[:, found.columns] = bank.loo_margins, bank.honest_margins
        # What prediction does not need is dropped.
        kept = replace(own, dealt=None, groups=None, soft_labels=None)
        bank = replace(bank, data=kept, loo_margins=np.empty((0, found.columns.size)))
        margins = self._without_lonely(rows, exact, honest)
        return Leaf(found.constants, found.columns, bank), *margins

    def _without_lonely(self, rows: TrainingRows, exact: Array, honest: Array) -> tuple[Array, Array]:
        """Return the margins; zero where a row, or its group, has all that a leaf has of the classes of a column."""
        soft, n_classes = rows.soft_labels, self.codebook.n_classes
        has: Array = (np.eye(n_classes)[rows.class_index] if soft is None else soft) > 0.0
        groups = np.arange(len(has)) if rows.groups is None else rows.groups
        owned: dict[int, list[int]] = {}
        for index in np.flatnonzero(has.any(axis=0)):
            owners = np.unique(groups[has[:, index]])
            if owners.size == 1:
                owned.setdefault(int(owners[0]), []).append(int(index))
        for owner, classes in owned.items():
            others = np.setdiff1d(np.flatnonzero(has.any(axis=0)), classes)
            unknown = np.flatnonzero(~self.codebook.matrix[others].any(axis=0))
            own = np.flatnonzero(groups == owner)
            exact[np.ix_(own, unknown)] = honest[np.ix_(own, unknown)] = 0.0
        return exact, honest

    def _fit_sample(self, rows: TrainingRows) -> tuple[Leaf, Array, Array]:
        """Train on a sample of too many rows; the others are new to the machines."""
        rows = rows.shuffled(self.seed)
        sample = rows.deal.sample(self.largest / (2.0 * rows.class_index.size))[: self.largest]
        leaf, exact, honest = self.fit(rows.take(sample))
        all_exact = leaf.margins(rows.X, self.place)
        all_honest = all_exact.copy()
        all_exact[sample], all_honest[sample] = exact, honest
        return leaf, all_exact, all_honest


@dataclass(frozen=True)
class LeafBank:
    """The machines of all leaves of a tree.

    Attributes
    ----------
    kernel : Kernel
        The kernel, fitted to a sample of the training rows.
    tree : Tree
        The regions.
    leaves : sequence of Leaf
        Their machines.
    """

    kernel: Kernel
    tree: Tree
    leaves: Sequence[Leaf]

    def margins(self, X: Any, place: Place = ON_CPU) -> Array:
        """Return the margins of new rows, means over their leaves by the weights of the routing.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        place : Place
            Where they are computed.

        Returns
        -------
        ndarray of shape (n, L)
        """
        margins = np.zeros((X.shape[0], self.leaves[0].constants.size))
        routes = self.tree.route(self.kernel.scaled(X))
        tasks = [
            (leaf, rows, weights)
            for leaf, (rows, weights) in zip(self.leaves, routes, strict=True)
            if rows.size
        ]
        found = in_threads(lambda task: task[0].margins(X[task[1]], place), tasks)
        for (_, rows, weights), z in zip(tasks, found, strict=True):
            margins[rows] += weights[:, np.newaxis] * z
        return margins

    @property
    def C(self) -> Array:
        """The regularisation of every leaf, shape (n_leaves,); NaN where there are no machines."""
        return np.array([np.nan if leaf.bank is None else leaf.bank.C[0] for leaf in self.leaves])

    @property
    def gamma(self) -> Array:
        """The kernel's parameter of every leaf, shape (n_leaves,); NaN where there are no machines."""
        return np.array([np.nan if leaf.bank is None else leaf.bank.gamma[0] for leaf in self.leaves])
