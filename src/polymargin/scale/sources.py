"""Where the training rows of a fit to many rows are: the interface, and rows in memory.

A `RowSource` draws samples, adds up statistics of all blocks of rows, and trains the leaves of a tree.
`polymargin.scale.streaming` has one for files, `polymargin.cluster` one for Dask collections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count, Progress
from polymargin._threads import blas_threads_for, in_threads
from polymargin.rows import TrainingRows
from polymargin.scale.feature_maps import FeatureMap
from polymargin.scale.leaves import Leaf, LeafTraining
from polymargin.scale.statistics import ClassStatistics
from polymargin.scale.tree import Tree

Array = NDArray[Any]


@dataclass(frozen=True)
class Block:
    """Some of the training rows.

    Attributes
    ----------
    rows : TrainingRows
        The rows.
    sampled : ndarray of int, shape (n,)
        The place of every row in the decoder's sample; −1 for rows that are not in it.
    """

    rows: TrainingRows
    sampled: Array


@dataclass(frozen=True)
class FittedLeaf:
    """A leaf, and what its machines say of the rows of the decoder's sample that are in it.

    Attributes
    ----------
    leaf : Leaf
        The machines.
    sampled : ndarray of int, shape (m,)
        The places of these rows in the decoder's sample.
    shares : ndarray of shape (m,)
        The weights by which they were routed here.
    exact, honest : ndarray of shape (m, L)
        Their leave-one-out margins, and the same without the shift of the target mean.
    """

    leaf: Leaf
    sampled: Array
    shares: Array
    exact: Array
    honest: Array

    @classmethod
    def of(cls, training: LeafTraining, block: Block, shares: Array) -> FittedLeaf:
        """Train a leaf.

        Parameters
        ----------
        training : LeafTraining
            How.
        block : Block
            Its rows.
        shares : ndarray of shape (n,)
            The weights by which they were routed here.

        Returns
        -------
        FittedLeaf
        """
        leaf, exact, honest = training.fit(block.rows)
        known = np.flatnonzero(block.sampled >= 0)
        return cls(leaf, block.sampled[known], shares[known], exact[known], honest[known])


@dataclass(frozen=True)
class Sample:
    """A sample of the training rows.

    Attributes
    ----------
    numbers : ndarray of int, shape (n,)
        The numbers of the rows among all, ascending.
    rows : TrainingRows
        The rows.
    """

    numbers: Array
    rows: TrainingRows


class RowSource(Protocol):
    """Where the training rows are: in memory, in files, or on a cluster."""

    @property
    def class_counts(self) -> Array:
        """The number of rows of every class, shape (K,)."""

    def sample(self, n_rows: int) -> Sample:
        """Return a random sample of about so many rows, with some of every class; smaller ones are parts of larger."""

    def add_up(
        self,
        of_block: BlockStatistics,
        n_values: int,
        progress: Progress | None = None,
    ) -> ClassStatistics:
        """Return the sum of the statistics of all blocks of rows, of which n_values numbers a row are computed."""

    def fit_leaves(
        self,
        tree: Tree,
        training: LeafTraining,
        share: float,
        decoded: Sample,
        progress: Progress | None,
    ) -> Sequence[FittedLeaf]:
        """Return the trained leaves of a share of the rows and all of the decoder's sample, in the tree's order."""


@dataclass(frozen=True)
class MemoryRows:
    """Training rows in memory.

    Attributes
    ----------
    rows : TrainingRows
        The rows.
    n_classes : int
        K.
    least_rows : int
        The least number of rows of every class in a sample.
    """

    rows: TrainingRows
    n_classes: int
    least_rows: int = 20

    @property
    def class_counts(self) -> Array:
        """The number of rows of every class, shape (K,)."""
        return np.bincount(self.rows.class_index, minlength=self.n_classes)

    def sample(self, n_rows: int) -> Sample:
        """Return a stratified sample.

        Parameters
        ----------
        n_rows : int
            How many rows.

        Returns
        -------
        Sample
        """
        n = self.rows.class_index.size
        if n <= n_rows:
            return Sample(np.arange(n), self.rows)
        numbers = self.rows.deal.sample(n_rows / n, self.least_rows)
        return Sample(numbers, self.rows.take(numbers))

    def add_up(
        self,
        of_block: BlockStatistics,
        n_values: int,
        progress: Progress | None = None,
    ) -> ClassStatistics:
        """Return the sum of the statistics of all blocks of rows.

        Parameters
        ----------
        of_block : BlockStatistics
            The statistics of a block.
        n_values : int
            The numbers that are computed of a row.
        progress : callable or None
            Called with every few blocks.

        Returns
        -------
        ClassStatistics
        """
        return of_block.in_blocks(self.rows, progress)

    def fit_leaves(
        self,
        tree: Tree,
        training: LeafTraining,
        share: float,
        decoded: Sample,
        progress: Progress | None,
    ) -> Sequence[FittedLeaf]:
        """Return the trained leaves.

        Parameters
        ----------
        tree : Tree
            The regions.
        training : LeafTraining
            How machines are trained.
        share : float
            The share of the rows that are used.
        decoded : Sample
            The decoder's sample, all of which is used.
        progress : callable or None
            Called with every leaf.

        Returns
        -------
        list of FittedLeaf
        """
        rows, n = self.rows, self.rows.class_index.size
        sampled = np.full(n, -1)
        sampled[decoded.numbers] = np.arange(decoded.numbers.size)
        used = np.arange(n) if share >= 1.0 else np.union1d(rows.deal.sample(share), decoded.numbers)
        routes = tree.route(training.kernel.scaled(rows.X[used]))
        count = Count(progress, "leaves", "leaves")
        count.expect(len(routes))

        def fitted(route: tuple[Array, Array]) -> FittedLeaf:
            own = used[route[0]]
            found = FittedLeaf.of(training, Block(rows.take(own), sampled[own]), route[1])
            count.advance()
            return found

        with blas_threads_for(training.largest / 4):
            return in_threads(fitted, routes)


@dataclass(frozen=True)
class BlockStatistics:
    """What is computed of a block of rows: the statistics of its classes in a feature space.

    Attributes
    ----------
    features : FeatureMap
        The feature map.
    n_classes : int
        K.
    together : bool
        Whether the products of all classes are added up.
    """

    features: FeatureMap
    n_classes: int
    together: bool

    def __call__(self, rows: TrainingRows) -> ClassStatistics:
        """Return the statistics of a block.

        Parameters
        ----------
        rows : TrainingRows
            The block.

        Returns
        -------
        ClassStatistics
        """
        return self.features.statistics(rows, self.n_classes, self.together)

    def in_blocks(self, rows: TrainingRows, progress: Progress | None = None) -> ClassStatistics:
        """Return the statistics of many rows in memory, computed in blocks.

        Parameters
        ----------
        rows : TrainingRows
            The rows.

        Returns
        -------
        ClassStatistics
        """
        n = rows.class_index.size
        blocks = [np.arange(each.start, each.stop) for each in self.features.blocks(n)]
        total: ClassStatistics | None = None
        count = Count(progress, "statistics of the classes", "blocks")
        count.expect(len(blocks))
        # A few blocks at a time: the statistics of each are as large as those of all.
        for start in range(0, len(blocks), 4):
            for part in in_threads(lambda some: self(rows.take(some)), blocks[start : start + 4]):
                total = part if total is None else total.add(part)
                count.advance()
        assert total is not None
        return total
