"""Leaves on a cluster: rows are routed block by block, shuffled to the leaves, and trained where they arrive.

A partition holds neighbouring leaves. It is the result of a task, so that the scheduler knows how to compute it again
if the worker that holds it dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from dask.dataframe.shuffle import partitioning_index
from dask.delayed import Delayed
from numpy.typing import NDArray

from polymargin._progress import Count, Progress
from polymargin._threads import blas_threads_for
from polymargin._warnings import warn
from polymargin.cluster.blocks import BlockReader, Blocks, constant, persisted, priorities
from polymargin.cluster.leaf_files import LeafFile
from polymargin.cluster.remote_leaves import RemoteLeaf
from polymargin.cluster.workers import count_workers, current_client, release_memory
from polymargin.kernels import Kernel, Linear
from polymargin.rows import TrainingRows
from polymargin.scale.leaves import LeafTraining
from polymargin.scale.sources import Block, FittedLeaf
from polymargin.scale.tree import Tree

Array = NDArray[Any]

#: The share of a worker's memory that the rows of a partition may take. They are there as a table that arrives, as the
#: same in order, and as what is sent to another worker.
_PARTITION_SHARE = 1.0 / 32.0
#: The bytes that the training of a leaf takes for every pair of its rows, those that overlap included, and the share of
#: a worker's memory that it should take at most.
_BYTES_PER_PAIR, _LEAF_SHARE = 64.0 * 1.5**2, 0.25
#: Partitions are small enough for every worker to have some.
_PARTITIONS_PER_WORKER = 4
#: The columns of the shuffled table besides those of the rows, and their types.
_COLUMNS = {
    "partition": np.float64,  # as which Dask hashes any numbers
    "leaf": np.int64,
    "number": np.int64,
    "class_index": np.int64,
    "sampled": np.int64,
    "weight": np.float64,
    "share": np.float64,
}


@dataclass(frozen=True)
class RowSelection:
    """Which rows belong to a random sample.

    Attributes
    ----------
    share : float
        The share of all rows.
    seed : int
        Chooses them.
    always : ndarray of int
        The numbers of rows that belong to it in any case, ascending.
    """

    share: float
    seed: int
    always: Array

    def of(self, numbers: Array) -> Array:
        """Return whether rows are selected.

        Parameters
        ----------
        numbers : ndarray of int, shape (n,)
            Their numbers.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if self.share >= 1.0:
            return np.ones(numbers.size, dtype=bool)
        return (priorities(numbers, self.seed) < self.share) | np.isin(numbers, self.always)


@dataclass(frozen=True)
class _Router:
    """Makes a table of the rows of a block, once for every leaf that they belong to."""

    reader: BlockReader
    tree: Tree
    kernel: Kernel
    selection: RowSelection
    keys: Array
    dtype: Any

    def __call__(self, X: Any, y: Any, weights: Any, start: int) -> pd.DataFrame:
        numbers, rows = self.reader(X, y, weights, start)
        used = np.flatnonzero(self.selection.of(numbers))
        routes = self.tree.route(self.kernel.scaled(rows.X[used]))
        sizes = [route[0].size for route in routes]
        own = used[np.concatenate([route[0] for route in routes])]
        leaf = np.repeat(np.arange(len(routes)), sizes)
        decoded = self.selection.always
        place = np.minimum(np.searchsorted(decoded, numbers[own]), decoded.size - 1)
        values = {
            "partition": self.keys[leaf],
            "leaf": leaf,
            "number": numbers[own],
            "class_index": rows.class_index[own],
            "sampled": np.where(decoded[place] == numbers[own], place, -1),
            "weight": rows.weights[own],
            "share": np.concatenate([route[1] for route in routes]),
        }
        table = pd.DataFrame(
            rows.X[own].astype(self.dtype, copy=False), columns=_row_columns(rows.X.shape[1]), copy=False
        )
        return pd.concat([pd.DataFrame(values).astype(_COLUMNS), table], axis=1)


def fit_partitions(
    blocks: Blocks,
    reader: BlockReader,
    tree: Tree,
    training: LeafTraining,
    selection: RowSelection,
    *,
    memory: float,
    progress: Progress | None = None,
) -> list[FittedLeaf]:
    """Train the leaves of a tree on the cluster, where they stay.

    Parameters
    ----------
    blocks : Blocks
        The rows.
    reader : BlockReader
        Makes training rows of a block.
    tree : Tree
        The regions.
    training : LeafTraining
        How machines are trained.
    selection : RowSelection
        The rows that are used; those that always are make up the decoder's sample.
    memory : float
        The bytes of the smallest worker.
    progress : callable or None
        Called with every leaf.

    Returns
    -------
    list of FittedLeaf
        In the tree's order, with leaves that are computed on the cluster.
    """
    n_leaves, n_columns = tree.n_leaves, blocks.n_columns
    leaf_rows = training.largest / 4
    if _BYTES_PER_PAIR * leaf_rows**2 > _LEAF_SHARE * memory:
        fitting = int(np.sqrt(_LEAF_SHARE * memory / _BYTES_PER_PAIR))
        warn(
            f"leaves of {leaf_rows:.0f} rows may take more memory than the {memory / 2**20:.0f} MiB that a worker has "
            f"for a task: use scaling=ScaleSettings(leaf_rows={fitting}), or fewer threads per worker"
        )
    row_bytes = blocks.dtype.itemsize * n_columns + 8.0 * len(_COLUMNS)
    table_bytes = row_bytes * blocks.n_rows * min(selection.share, 1.0) * 1.25
    n_partitions = int(np.ceil(table_bytes / (_PARTITION_SHARE * memory)))
    n_partitions = min(max(n_partitions, _PARTITIONS_PER_WORKER * count_workers()), n_leaves)
    # Neighbours together: rows to predict are often neighbours, too.
    keys = _keys(n_partitions)[np.arange(n_leaves) * n_partitions // n_leaves]
    router = constant(_Router(reader, tree, training.kernel, selection, keys, blocks.dtype))
    tables = blocks.map(_routed, router)
    meta = pd.DataFrame(
        {name: np.empty(0, dtype=kind) for name, kind in _COLUMNS.items()}
        | {name: np.empty(0, dtype=blocks.dtype) for name in _row_columns(n_columns)}
    )
    table = dd.from_delayed(tables, meta=meta, verify_meta=False)
    shuffled = table.shuffle(on="partition", npartitions=n_partitions, ignore_index=True)
    shared = constant(training)
    fit = delayed(_fit_partition, pure=False, traverse=False)
    partitions = [fit(part, shared) for part in shuffled.to_delayed()]
    count = Count(progress, "leaves", "leaves")
    count.expect(n_leaves)
    partitions, honest = _kept_there(partitions, count)
    found: dict[int, FittedLeaf] = {}
    for partition, known in zip(partitions, honest, strict=True):
        for number, (n_bytes, *margins) in known.items():
            leaf: Any = RemoteLeaf(partition, number, n_bytes)
            found[number] = FittedLeaf(leaf, *margins)
    for number in set(range(n_leaves)) - set(found):
        # No row of the share that is used came here: the leaf knows of no class.
        none = TrainingRows(Linear(), np.empty((0, n_columns)), np.empty(0, dtype=np.intp), np.empty(0))
        found[number] = FittedLeaf.of(training, Block(none, np.empty(0, dtype=np.intp)), np.empty(0))
    return [found[number] for number in range(n_leaves)]


def _kept_there(partitions: list[Delayed], count: Count) -> tuple[list[Delayed], Sequence[Any]]:
    """Have partitions computed; return them as results that stay, and what comes to the client of each."""
    client = current_client()
    told = delayed(_honest_margins, pure=False, traverse=False)
    kept: list[Delayed] = []
    futures: list[Any] = []
    try:
        kept = persisted(partitions)
        if client is None:
            return kept, [part.compute() for part in map(told, kept)]
        from distributed import as_completed

        futures = client.compute([told(part) for part in kept])
        found = {}
        for future, known in as_completed(futures, with_results=True):
            found[future.key] = known
            count.advance(len(known))
        return kept, [found[future.key] for future in futures]
    except BaseException as error:
        # Interrupts included: what nobody will ask for must not be computed on.
        if client is not None:
            from distributed import futures_of

            client.cancel([*futures, *futures_of(kept)], force=True)
        if type(error).__name__ == "KilledWorker":
            raise MemoryError(
                "workers died again and again while they trained leaves, most likely for want of memory: use smaller "
                "leaves, as by scaling=ScaleSettings(leaf_rows=500), smaller chunks, or workers with more memory"
            ) from error
        raise


def _routed(X: Any, y: Any, weights: Any, start: int, router: _Router) -> pd.DataFrame:
    """Return the table of a block."""
    release_memory()
    return router(X, y, weights, start)


def _fit_partition(table: pd.DataFrame, training: LeafTraining) -> LeafFile:
    """Train the leaves of a partition, each of which goes to a file."""
    dtype = table.dtypes.iloc[-1]
    with blas_threads_for(training.largest / 4):
        found = LeafFile.of(training.kernel, _fitted(table, training), dtype)
    del table
    release_memory()
    return found


def _fitted(table: pd.DataFrame, training: LeafTraining) -> Iterator[tuple[int, FittedLeaf]]:
    """Train one leaf after the other; rows are sorted, as they arrive in any order."""
    order = np.lexsort([table["number"].to_numpy(), table["leaf"].to_numpy()])
    values = {name: table[name].to_numpy()[order] for name in _COLUMNS}
    columns = table.columns[len(_COLUMNS) :]
    numbers, starts = np.unique(values["leaf"], return_index=True)
    bounds = np.append(starts, order.size)
    for number, start, stop in zip(numbers, bounds[:-1], bounds[1:], strict=True):
        own = slice(start, stop)
        X = np.ascontiguousarray(table.iloc[order[own]][columns].to_numpy(dtype=np.float64))
        rows = TrainingRows(training.kernel, X, values["class_index"][own], values["weight"][own])
        yield int(number), FittedLeaf.of(training, Block(rows, values["sampled"][own]), values["share"][own])


def _honest_margins(partition: LeafFile) -> dict[int, tuple[int, Array, Array, Array, Array]]:
    """Return the bytes of the leaves of a partition, and what they say of the decoder's sample."""
    found = {}
    for number in partition:
        leaf = partition.load(number)
        found[number] = partition.n_bytes(number), leaf.sampled, leaf.shares, leaf.exact, leaf.honest
    return found


def _row_columns(n_columns: int) -> list[str]:
    """Return the names of the columns of the rows in the shuffled table."""
    return [f"x{number}" for number in range(n_columns)]


def _keys(n_partitions: int) -> Array:
    """Return a number for every partition that Dask's shuffle, which hashes, sends to a partition of its own.

    Were the hash another one on the workers, leaves would still be together, only less evenly.
    """
    numbers = np.arange(64.0 + 32.0 * n_partitions)
    found, first = np.unique(
        partitioning_index(pd.DataFrame({"partition": numbers}), n_partitions), return_index=True
    )
    return numbers[first] if found.size == n_partitions else numbers[:n_partitions]
