"""Leaves that stay on the cluster; the client has the tree, and knows which partition holds which leaf.

Rows go to the workers that hold the leaves they belong to. There one partition after the other adds its margins, and
has one leaf in memory at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import NDArray

from polymargin import _memory
from polymargin.cluster.blocks import computed
from polymargin.cluster.leaf_files import LeafFile
from polymargin.cluster.workers import (
    are_lost,
    count_workers,
    holders,
    release_memory,
    worker_memory,
    worker_threads,
)
from polymargin.kernels import Kernel
from polymargin.scale._places import ON_CPU, Place
from polymargin.scale.leaves import Leaf, LeafBank
from polymargin.scale.tree import Tree

Array = NDArray[Any]
#: The sizes of some blocks, the places of some of their rows, and the margins of these by some leaves.
Summed = tuple[list[int], Array, Array]

#: The share of a worker's memory that the rows may take which are sent to it at once. To load the leaves takes as long
#: for one row as for thousands.
_SENT_SHARE = 1.0 / 48.0
#: The share of a worker's memory that a `Weight` seems to take: much more than the rows that are sent to it at once.
#: What seems to take more than 0.6 of it Dask does not keep in memory, where it would displace others.
_WEIGHT_SHARE = 0.7


@dataclass(frozen=True)
class RemoteLeaf:
    """A leaf on the cluster.

    Attributes
    ----------
    partition : Delayed
        The partition that holds it, which is kept there, or computed again if its worker dies.
    number : int
        Its number.
    n_bytes : int
        The bytes that it takes in memory.
    """

    partition: Delayed
    number: int
    n_bytes: int


@dataclass(frozen=True)
class RoutedRows:
    """The rows of some blocks that belong to the leaves of a worker.

    Attributes
    ----------
    X : ndarray of shape (m, d)
        The rows.
    rows : ndarray of int, shape (m,)
        Their places among the rows of the blocks.
    of_leaf : dict of int to (ndarray of int, ndarray)
        For every leaf its rows among these, and their weights.
    sizes : list of int
        The number of rows of every block.
    """

    X: Array
    rows: Array
    of_leaf: dict[int, tuple[Array, Array]]
    sizes: list[int]

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays.

        Without it Dask takes rows for small, makes copies of them on many workers, and does not write them to disk
        where memory is short.
        """
        n_bytes = sum(rows.nbytes + weights.nbytes for rows, weights in self.of_leaf.values())
        return int(self.X.nbytes + self.rows.nbytes + n_bytes)

    @classmethod
    def joined(cls, parts: list[RoutedRows]) -> RoutedRows:
        """Return the rows of several blocks as one.

        Parameters
        ----------
        parts : list of RoutedRows
            The rows of every block.

        Returns
        -------
        RoutedRows
        """
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(sum(part.sizes) for part in parts)])
        firsts = np.cumsum([0, *(part.rows.size for part in parts)])
        of_leaf = {}
        for leaf in sorted({leaf for part in parts for leaf in part.of_leaf}):
            own = [
                (first, *part.of_leaf[leaf])
                for first, part in zip(firsts[:-1], parts, strict=True)
                if leaf in part.of_leaf
            ]
            of_leaf[leaf] = (
                np.concatenate([first + rows for first, rows, _ in own]),
                np.concatenate([weights for _, _, weights in own]),
            )
        return cls(
            np.concatenate([part.X for part in parts]),
            np.concatenate([start + part.rows for start, part in zip(starts[:-1], parts, strict=True)]),
            of_leaf,
            [size for part in parts for size in part.sizes],
        )


@dataclass(frozen=True)
class LeafRouter:
    """Sends rows to the workers that hold leaves.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    tree : Tree
        The regions.
    holder_of : ndarray of int, shape (n_leaves,)
        The number of the holder of every leaf; −1 for leaves without rows, whose output is zero.
    n_holders : int
        The number of holders.
    """

    kernel: Kernel
    tree: Tree
    holder_of: Array
    n_holders: int

    def __call__(self, X: Array) -> list[RoutedRows]:
        """Return the rows for every holder.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Rows.

        Returns
        -------
        list of RoutedRows
        """
        routes = self.tree.route(self.kernel.scaled(X))
        found = []
        for number in range(self.n_holders):
            own = [leaf for leaf in np.flatnonzero(self.holder_of == number) if routes[leaf][0].size]
            rows = np.unique(np.concatenate([np.empty(0, dtype=np.intp), *(routes[leaf][0] for leaf in own)]))
            of_leaf = {int(leaf): (np.searchsorted(rows, routes[leaf][0]), routes[leaf][1]) for leaf in own}
            found.append(RoutedRows(X[rows], rows, of_leaf, [X.shape[0]]))
        return found


@dataclass(frozen=True)
class Weight:
    """What Dask takes for a good part of a worker's memory.

    What needs it is computed where the leaves are, whose files seem small, and rows come there.

    Attributes
    ----------
    n_bytes : int
        The bytes that it seems to take.
    """

    n_bytes: int

    def __sizeof__(self) -> int:
        return self.n_bytes


@dataclass(frozen=True)
class Holder:
    """A worker that holds leaves.

    Attributes
    ----------
    partitions : list of (Delayed, list of int)
        Its partitions, and the numbers of their leaves.
    weight : Delayed
        What keeps tasks there.
    n_bytes : int
        The bytes that it seems to take.
    n_chains : int
        For how many of its partitions a task is ready at a time.
    """

    partitions: list[tuple[Delayed, list[int]]]
    weight: Delayed
    n_bytes: int
    n_chains: int

    @classmethod
    def of(cls, partitions: list[tuple[Delayed, list[int]]]) -> Holder:
        """Return the holder of some partitions.

        Parameters
        ----------
        partitions : list of (Delayed, list of int)
            The partitions, and the numbers of their leaves.

        Returns
        -------
        Holder
        """
        # A weight that needed all partitions would bring all of them to one worker if this one dies.
        n_threads = worker_threads()
        n_bytes = int(_WEIGHT_SHARE * worker_memory() * n_threads)
        return cls(partitions, _weight(partitions[0][0], n_bytes), n_bytes, n_threads + 1)

    def margins(self, routed: list[Delayed], leaves: Collection[int] | None = None) -> list[Delayed]:
        """Return tasks that compute the margins of rows of several blocks by the leaves of this worker.

        Partitions add their margins one after the other, in as many chains as the worker has threads, and one more.
        More chains would be more tasks that Dask sends to another worker, and their leaves with them, if this one is
        paused for want of memory. With fewer it would read more blocks, as it does where a worker has few tasks.

        Parameters
        ----------
        routed : list of Delayed
            The rows of every block that belong to these leaves.
        leaves : collection of int or None
            The leaves that have rows, where that is known.

        Returns
        -------
        list of Delayed
            The sums of the margins of every chain.
        """
        # One of these rows alone: were their tasks computed elsewhere for once, those of other rows would follow.
        weight = _weight(self.weight, self.n_bytes)
        rows = delayed(_arrived, pure=False)(weight, routed)
        task = delayed(_margins, pure=False, traverse=False)
        used = [
            partition
            for partition, numbers in self.partitions
            if leaves is None or any(number in leaves for number in numbers)
        ]
        totals: list[Delayed] = []
        for number, partition in enumerate(used):
            before = totals[number - self.n_chains] if number >= self.n_chains else None
            totals.append(task(weight, partition, rows, before))
        return totals[-self.n_chains :]


def rows_at_once(n_columns: int) -> int:
    """Return how many rows are sent to the leaves at once.

    Parameters
    ----------
    n_columns : int
        d.

    Returns
    -------
    int
    """
    # Rows of the client go by way of the scheduler, which has a few blocks at a time.
    largest = min(_SENT_SHARE * worker_memory() * count_workers(), 4.0 * _memory.BLOCK_BYTES)
    return max(int(largest / (8.0 * n_columns)), 1)


class RemoteLeafBank(LeafBank):
    """The machines of leaves that stay on the cluster.

    A bank like any other, whose margins are computed there. It cannot be pickled or saved: `gathered` makes one that
    can be.

    Parameters
    ----------
    kernel : Kernel
        The kernel, fitted to a sample of the training rows.
    tree : Tree
        The regions.
    leaves : list of RemoteLeaf
        The leaves; of a share of the rows, leaves without rows are here.
    """

    def __init__(self, kernel: Kernel, tree: Tree, leaves: Any):
        super().__init__(kernel, tree, leaves)

    @property
    def partitions(self) -> list[Delayed]:
        """The partitions of the leaves, as results that stay on the cluster."""
        found = list({leaf.partition.key: leaf.partition for leaf in self._remote}.values())
        if are_lost(found):
            raise RuntimeError(
                "the leaves of this model were on a Dask cluster whose client is closed: fit again, and call "
                "gather_leaves() before the client closes"
            )
        return found

    @property
    def n_bytes(self) -> int:
        """The bytes that the leaves take in memory."""
        return sum(leaf.n_bytes for leaf in self._remote)

    def held(self) -> tuple[LeafRouter, list[Holder]]:
        """Return who holds the leaves now, and what sends rows there.

        Returns
        -------
        router : LeafRouter
        holders : list of Holder
            In the order of what the router returns.
        """
        partitions = self.partitions
        leaves: dict[Any, list[int]] = {each.key: [] for each in partitions}
        for leaf in self._remote:
            leaves[leaf.partition.key].append(leaf.number)
        groups: dict[str, list[tuple[Delayed, list[int]]]] = {}
        for partition, address in zip(partitions, holders(partitions), strict=True):
            groups.setdefault(address, []).append((partition, leaves[partition.key]))
        holder_of = np.full(len(self.leaves), -1)
        for number, group in enumerate(groups.values()):
            for _, own in group:
                holder_of[own] = number
        found = [Holder.of(group) for group in groups.values()]
        return LeafRouter(self.kernel, self.tree, holder_of, len(found)), found

    @property
    def _remote(self) -> list[RemoteLeaf]:
        """The leaves that are on the cluster; those without rows, whose output is zero, are not."""
        return [leaf for leaf in self.leaves if isinstance(leaf, RemoteLeaf)]

    def margins(self, X: Any, place: Place = ON_CPU) -> Array:
        """Return the margins of new rows, which are sent to the cluster.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        place : Place
            Not used: workers compute on the CPU.

        Returns
        -------
        ndarray of shape (n, L)
        """
        router, found = self.held()
        size = rows_at_once(X.shape[1])
        blocks = []
        for start in range(0, max(X.shape[0], 1), size):
            some = X[start : start + size]
            # One leaf says how many columns there are, even if there are no rows.
            tasks = [
                task
                for number, (holder, routed) in enumerate(zip(found, router(some), strict=True))
                for task in holder.margins(
                    [delayed(routed, pure=False, traverse=False)],
                    routed.of_leaf or ([] if number else holder.partitions[0][1]),
                )
            ]
            blocks += added_margins(computed(*tasks))
        return np.concatenate(blocks)

    def gathered(self) -> LeafBank:
        """Return the same machines in memory.

        Returns
        -------
        LeafBank

        Raises
        ------
        MemoryError
            If they do not fit there.
        """
        _memory.require(
            self.n_bytes,
            "to have the leaves of this model in memory",
            "leave them on the cluster, or use fewer rows",
        )
        task = delayed(_leaves, pure=False, traverse=False)
        found: dict[int, Leaf] = {}
        # One after the other: what waits to be sent is in the memory of workers.
        for partition in self.partitions:
            found |= computed(task(partition))[0]
        return LeafBank(
            self.kernel,
            self.tree,
            [found[each.number] if isinstance(each, RemoteLeaf) else each for each in self.leaves],
        )

    @property
    def C(self) -> Array:
        """The regularisation of every leaf, shape (n_leaves,); NaN where there are no machines."""
        return self._parameter("C")

    @property
    def gamma(self) -> Array:
        """The kernel's parameter of every leaf, shape (n_leaves,); NaN where there are no machines."""
        return self._parameter("gamma")

    def _parameter(self, name: str) -> Array:
        task = delayed(_parameters, pure=False, traverse=False)
        values = np.full(len(self.leaves), np.nan)
        for part in computed(*(task(partition, name) for partition in self.partitions)):
            values[list(part)] = list(part.values())
        return values

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"the leaves of this model, {self.n_bytes / 2**20:.0f} MiB, are on the Dask cluster: call "
            "model.gather_leaves() first, to have them in memory"
        )

    def __reduce__(self) -> NoReturn:
        self.__getstate__()


@dataclass(frozen=True)
class KnownMargins:
    """Stands for the leaves of a model where their margins of the only rows to come are known.

    Attributes
    ----------
    known : ndarray of shape (n, L)
        The margins.
    """

    known: Array

    def margins(self, X: Any, place: Place = ON_CPU) -> Array:
        """Return the margins.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows.
        place : Place
            Not used.

        Returns
        -------
        ndarray of shape (n, L)
        """
        assert X.shape[0] == self.known.shape[0]
        return self.known


def _weight(there: Delayed, n_bytes: int) -> Delayed:
    """Return a task for a weight where another result is."""
    return delayed(_weight_of, pure=False, traverse=False)(there, n_bytes)


def _weight_of(there: Any, n_bytes: int) -> Weight:
    """Return a weight."""
    return Weight(n_bytes)


def _arrived(weight: Weight, routed: list[RoutedRows]) -> RoutedRows:
    """Return the rows of some blocks, where their leaves are."""
    return RoutedRows.joined(routed)


def _margins(weight: Weight, partition: LeafFile, routed: RoutedRows, total: Summed | None) -> Summed:
    """Add the margins of rows by the leaves of a partition, which are loaded one by one, to those of other leaves."""
    margins = None if total is None else total[2].copy()
    for number in [each for each in partition if each in routed.of_leaf] or list(partition)[:1]:
        leaf = partition.load(number).leaf
        if margins is None:
            margins = np.zeros((routed.rows.size, leaf.constants.size))
        if number in routed.of_leaf:
            rows, weights = routed.of_leaf[number]
            margins[rows] += weights[:, np.newaxis] * leaf.margins(routed.X[rows])
    release_memory()
    assert margins is not None
    return routed.sizes, routed.rows, margins


def added_margins(parts: Sequence[Summed]) -> list[Array]:
    """Return the sum of what all leaves say of the rows of some blocks.

    Parameters
    ----------
    parts : sequence of (list of int, ndarray of int, ndarray)
        The sizes of the blocks, the places of some of their rows, and the margins of these by some leaves.

    Returns
    -------
    list of ndarray of shape (n, L)
        For every block.
    """
    sizes, _, first = parts[0]
    total = np.zeros((sum(sizes), first.shape[1]))
    for _, rows, margins in parts:
        total[rows] += margins
    return np.split(total, np.cumsum(sizes)[:-1])


def _leaves(partition: LeafFile) -> dict[int, Leaf]:
    """Return the machines of a partition."""
    return {number: partition.load(number).leaf for number in partition}


def _parameters(partition: LeafFile, name: str) -> dict[int, float]:
    """Return a parameter of every leaf of a partition."""
    banks = {number: partition.load(number).leaf.bank for number in partition}
    return {
        number: np.nan if bank is None else float(getattr(bank, name)[0]) for number, bank in banks.items()
    }
