"""Leaves that stay on the cluster; the client has the tree, and knows which partition holds which leaf.

Rows go to the leaves: those of a block to some partitions of a worker in one task, which loads one leaf at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import NDArray

from polymargin import _memory
from polymargin.cluster.blocks import computed
from polymargin.cluster.leaf_files import LeafFile
from polymargin.cluster.workers import are_lost, count_workers, holders, release_memory, worker_memory
from polymargin.kernels import Kernel
from polymargin.scale._places import ON_CPU, Place
from polymargin.scale.leaves import Leaf, LeafBank
from polymargin.scale.tree import Tree

Array = NDArray[Any]

#: The share of a worker's memory that the rows may take which are sent to it at once. To load the leaves takes as long
#: for one row as for thousands.
_SENT_SHARE = 1.0 / 96.0
#: The share of a worker's memory that the leaves of one task take at most. Where a worker is busy, or paused, Dask may
#: send a task to another, and its leaves after it.
_HELD_SHARE = 1.0 / 8.0
#: The share of a worker's memory that all its leaves, which are on disk, seem to take at most: Dask writes to disk what
#: seems not to fit.
_WEIGHT_SHARE = 0.25


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
    """The rows of a block that belong to leaves of one holder.

    Attributes
    ----------
    X : ndarray of shape (m, d)
        The rows.
    rows : ndarray of int, shape (m,)
        Their places in the block.
    of_leaf : dict of int to (ndarray of int, ndarray)
        For every leaf its rows among these, and their weights.
    """

    X: Array
    rows: Array
    of_leaf: dict[int, tuple[Array, Array]]


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
            found.append(RoutedRows(X[rows], rows, of_leaf))
        return found


@dataclass(frozen=True)
class Weight:
    """What Dask takes for as large as some leaves, or as a good part of a worker's memory.

    A task that needs it goes to where the leaves are, however busy other workers are; files seem small.

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
    """Some partitions of one worker.

    Attributes
    ----------
    partitions : list of Delayed
        The partitions.
    weight : Delayed
        What keeps the work on them there.
    """

    partitions: list[Delayed]
    weight: Delayed

    @classmethod
    def of_worker(cls, partitions: list[Delayed], n_bytes: list[int]) -> list[Holder]:
        """Return the partitions of a worker, each of so many bytes, a few together, with their weights."""
        memory = worker_memory()
        groups: list[list[Delayed]] = []
        sizes: list[int] = []
        for partition, size in zip(partitions, n_bytes, strict=True):
            if not sizes or sizes[-1] + size > _HELD_SHARE * memory:
                groups.append([])
                sizes.append(0)
            groups[-1].append(partition)
            sizes[-1] += size
        seeming = min(1.0, _WEIGHT_SHARE * memory / max(sum(sizes), 1))
        return [
            cls(group, delayed(_weight, pure=False)(group, int(seeming * size)))
            for group, size in zip(groups, sizes, strict=True)
        ]

    def margins(self, routed: list[Delayed]) -> Delayed:
        """Return a task that computes the margins of rows of several blocks by the leaves of these partitions.

        Parameters
        ----------
        routed : list of Delayed
            The rows of every block that belong to these leaves.

        Returns
        -------
        Delayed
            For every block the places of the rows, and their margins.
        """
        return delayed(_margins, pure=False)(self.partitions, self.weight, routed)


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
        groups: dict[str, list[Delayed]] = {}
        for partition, address in zip(partitions, holders(partitions), strict=True):
            groups.setdefault(address, []).append(partition)
        n_bytes = dict.fromkeys((each.key for each in partitions), 0)
        for leaf in self._remote:
            n_bytes[leaf.partition.key] += leaf.n_bytes
        found = [
            holder
            for group in groups.values()
            for holder in Holder.of_worker(group, [n_bytes[each.key] for each in group])
        ]
        number_of = {each.key: number for number, holder in enumerate(found) for each in holder.partitions}
        holder_of = [
            number_of[leaf.partition.key] if isinstance(leaf, RemoteLeaf) else -1 for leaf in self.leaves
        ]
        return LeafRouter(self.kernel, self.tree, np.array(holder_of), len(found)), found

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
            # One holder says how many columns there are, even if there are no rows.
            tasks = [
                holder.margins([delayed(routed, pure=False, traverse=False)])
                for number, (holder, routed) in enumerate(zip(found, router(some), strict=True))
                if routed.rows.size or number == 0
            ]
            blocks.append(added_margins(some.shape[0], [each[0] for each in computed(*tasks)]))
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


def _weight(partitions: list[LeafFile], n_bytes: int) -> Weight:
    """Return the weight of some partitions, where they are."""
    return Weight(n_bytes)


def _margins(
    partitions: list[LeafFile], weight: Weight, routed: list[RoutedRows]
) -> list[tuple[Array, Array]]:
    """Return the places of the routed rows of every block, and their weighted margins by leaves of some partitions."""
    place = {number: partition for partition in partitions for number in partition}
    wanted = sorted({number for each in routed for number in each.of_leaf}) or [next(iter(place))]
    margins: list[Array] = []
    for number in wanted:
        leaf = place[number].load(number).leaf
        if not margins:
            margins = [np.zeros((each.rows.size, leaf.constants.size)) for each in routed]
        own = [(block, *each.of_leaf[number]) for block, each in enumerate(routed) if number in each.of_leaf]
        if own:
            z = leaf.margins(np.concatenate([routed[block].X[rows] for block, rows, _ in own]))
            ends = np.cumsum([rows.size for _, rows, _ in own])
            for (block, rows, weights), part in zip(own, np.split(z, ends[:-1]), strict=True):
                margins[block][rows] += weights[:, np.newaxis] * part
    release_memory()
    return [(each.rows, found) for each, found in zip(routed, margins, strict=True)]


def added_margins(n_rows: int, parts: Any) -> Array:
    """Return the sum of what the leaves of all workers say of the rows of a block.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    parts : sequence of (ndarray of int, ndarray)
        The margins of some rows by every holder, at least one.

    Returns
    -------
    ndarray of shape (n_rows, L)
    """
    total = np.zeros((n_rows, parts[0][1].shape[1]))
    for rows, margins in parts:
        total[rows] += margins
    return total


def _leaves(partition: LeafFile) -> dict[int, Leaf]:
    """Return the machines of a partition."""
    return {number: partition.load(number).leaf for number in partition}


def _parameters(partition: LeafFile, name: str) -> dict[int, float]:
    """Return a parameter of every leaf of a partition."""
    banks = {number: partition.load(number).leaf.bank for number in partition}
    return {
        number: np.nan if bank is None else float(getattr(bank, name)[0]) for number, bank in banks.items()
    }
