"""Rows of Dask collections, as fits to many rows take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin._progress import Progress
from polymargin.cluster.blocks import BlockReader, Blocks, computed, computed_in_turn, constant, reduced
from polymargin.cluster.labels import summarise_labels
from polymargin.cluster.leaf_partitions import RowSelection, fit_partitions
from polymargin.cluster.remote_leaves import RemoteLeafBank
from polymargin.cluster.workers import release_memory, worker_memory
from polymargin.rows import TrainingRows
from polymargin.scale.leaves import LeafTraining
from polymargin.scale.sources import BlockStatistics, FittedLeaf, Sample
from polymargin.scale.statistics import ClassStatistics
from polymargin.scale.tree import Tree

Array = NDArray[Any]


@dataclass(frozen=True)
class DaskRows:
    """Training rows in a Dask array or dataframe, a `polymargin.scale.sources.RowSource`.

    What is sampled, and what is computed, depends on the rows, their order and the seed. How they are divided into
    blocks, and how many workers there are, changes the order in which numbers are added up, and nothing else.

    Attributes
    ----------
    blocks : Blocks
        The rows.
    classes : ndarray of shape (K,)
        The class labels, ascending.
    class_counts : ndarray of int, shape (K,)
        The number of rows of every class, without those of weight zero.
    reader : BlockReader
        Makes training rows of a block.
    first : ndarray of int
        The numbers of the rows that are in every sample: some of every class.
    weight_unit : float
        What the weights were divided by, so that their mean is one.
    seed : int
        Chooses samples.
    drawn_rows : int
        How many rows are drawn at first: smaller samples are parts of these, without another pass.
    worker_memory : float
        The bytes of the smallest worker.
    """

    #: Leaves stay on the cluster.
    leaf_bank: ClassVar[type] = RemoteLeafBank

    blocks: Blocks
    classes: Array
    class_counts: Array
    reader: BlockReader
    first: Array
    weight_unit: float
    seed: int
    drawn_rows: int = 1
    worker_memory: float = field(default_factory=worker_memory)

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        class_factors: Callable[[Array, Array], Array] | None = None,
        seed: int = 0,
        drawn_rows: int = 1,
        least_rows: int = 20,
    ) -> DaskRows:
        """Look at the labels of a collection.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame
            The rows.
        y : dask.array.Array, dask.dataframe.Series or DataFrame of one column
            The labels.
        sample_weight : dask.array.Array, dask.dataframe.Series or None
            The weights of the rows.
        class_factors : callable (labels, counts) -> factors, or None
            What the weights of the rows of every class are multiplied by.
        seed : int
            Chooses samples.
        drawn_rows : int
            How many rows are drawn at first.
        least_rows : int
            The least number of rows of every class in a sample.

        Returns
        -------
        DaskRows
        """
        blocks = Blocks.of(X, y, sample_weight)
        found = summarise_labels(blocks, seed, least_rows)
        if found.labels.size < 2:
            raise ValueError(
                f"y holds only one class, {found.labels.tolist()[0]!r}; a classifier needs two or more"
            )
        absent = found.counts == 0
        if absent.any():
            raise ValueError(
                f"class {found.labels[absent].tolist()[0]!r} has no row with a positive sample weight"
            )
        factors = np.ones(found.labels.size)
        if class_factors is not None:
            factors = class_factors(found.labels, found.counts)
        unit = float(factors @ found.weights / found.counts.sum())
        return cls(
            blocks,
            found.labels,
            found.counts,
            BlockReader(found.labels, factors / unit),
            np.sort(np.concatenate(found.first)),
            unit,
            seed,
            drawn_rows,
        )

    @property
    def n_rows(self) -> int:
        """The number of rows that count."""
        return int(self.class_counts.sum())

    def sample(self, n_rows: int) -> Sample:
        """Return a random sample of about so many rows, with some of every class; smaller ones are parts of larger.

        Parameters
        ----------
        n_rows : int
            How many rows.

        Returns
        -------
        Sample
        """
        share = n_rows / self.n_rows
        known = self._drawn
        if share > self.drawn_rows / self.n_rows:
            known = self._draw(share)
        kept = self._selection(share).of(known.numbers)
        rows = known.rows if kept.all() else _taken(known.rows, kept)
        return Sample(known.numbers[kept], rows.shuffled(self.seed))

    def whole(self) -> tuple[Array, Array, Array]:
        """Return all rows, their labels and their weights: for few rows, which are fitted on the client.

        Returns
        -------
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,)
        weights : ndarray of shape (n,)
        """
        _memory.require(
            16.0 * self.n_rows * self.blocks.n_columns,
            f"{self.n_rows} rows on the client",
            'leave them on the cluster: use scale="both", "leaves" or "landmarks"',
        )
        rows = self._draw(1.0).rows
        # Class weights are multiplied in again by the fit that follows.
        weights = rows.weights / self.reader.factors[rows.class_index]
        return rows.X, self.classes[rows.class_index], weights

    def add_up(
        self, of_block: BlockStatistics, n_values: int, progress: Progress | None = None
    ) -> ClassStatistics:
        """Return the sum of the statistics of all blocks of rows.

        Parameters
        ----------
        of_block : BlockStatistics
            The statistics of some rows.
        n_values : int
            The numbers that are computed of a row.
        progress : callable or None
            Not used: the blocks are one computation.

        Returns
        -------
        ClassStatistics
        """
        parts = self.blocks.map(_statistics, constant(self.reader), constant(of_block), n_values)
        found = [part for part in computed(reduced(parts, _added)) if part is not None]
        return found[0]

    def fit_leaves(
        self,
        tree: Tree,
        training: LeafTraining,
        share: float,
        decoded: Sample,
        progress: Progress | None,
    ) -> Sequence[FittedLeaf]:
        """Return the trained leaves, which stay on the cluster.

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
            Their leaves are `RemoteLeaf` objects.
        """
        selection = replace(self._selection(share), always=decoded.numbers)
        return fit_partitions(
            self.blocks,
            self.reader,
            tree,
            training,
            selection,
            memory=self.worker_memory,
            progress=progress,
        )

    @cached_property
    def _drawn(self) -> Sample:
        """The rows that are drawn at first."""
        return self._draw(self.drawn_rows / self.n_rows)

    def _draw(self, share: float) -> Sample:
        """Return a share of the rows, and the first ones of every class, in the order of their numbers."""
        tasks = self.blocks.map(_selected, constant(self.reader), constant(self._selection(share)))
        found = list(computed_in_turn(tasks, 8.0 * share * self.n_rows * self.blocks.n_columns))
        rows = [part[1] for part in found]
        whole = TrainingRows(
            rows[0].kernel,
            np.concatenate([each.X for each in rows]),
            np.concatenate([each.class_index for each in rows]),
            np.concatenate([each.weights for each in rows]),
        )
        numbers = np.concatenate([part[0] for part in found])
        del found, rows
        release_memory()
        return Sample(numbers, whole)

    def _selection(self, share: float) -> RowSelection:
        """Return which rows make up a share of all."""
        return RowSelection(share, self.seed, self.first)


def _taken(rows: TrainingRows, kept: Array) -> TrainingRows:
    """Return some rows, without a random order, which is that of others."""
    return TrainingRows(rows.kernel, rows.X[kept], rows.class_index[kept], rows.weights[kept])


def _selected(
    X: Any, y: Any, weights: Any, start: int, reader: BlockReader, selection: RowSelection
) -> tuple[Array, TrainingRows]:
    """Return the rows of a block that are selected, and their numbers."""
    numbers, rows = reader(X, y, weights, start)
    kept = selection.of(numbers)
    return numbers[kept], _taken(rows, kept)


def _statistics(
    X: Any,
    y: Any,
    weights: Any,
    start: int,
    reader: BlockReader,
    of_block: BlockStatistics,
    n_values: int,
) -> ClassStatistics | None:
    """Return the statistics of a block, some rows at a time: their features take more memory than the rows."""
    _, rows = reader(X, y, weights, start)
    total: ClassStatistics | None = None
    for some in _memory.row_blocks(rows.class_index.size, n_values):
        part = of_block(TrainingRows(rows.kernel, rows.X[some], rows.class_index[some], rows.weights[some]))
        total = part if total is None else total.add(part)
    return total


def _added(one: ClassStatistics | None, other: ClassStatistics | None) -> ClassStatistics | None:
    """Return the sum of the statistics of two sets of rows, which may be empty."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
