"""Leaves that stay on the cluster; the client has the tree, and knows which partition holds which leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import NDArray

from polymargin.cluster.blocks import computed
from polymargin.cluster.workers import are_lost
from polymargin.kernels import Kernel
from polymargin.scale.leaves import Leaf, LeafBank
from polymargin.scale.sources import FittedLeaf
from polymargin.scale.tree import Tree

Array = NDArray[Any]

#: The trained leaves of a partition, by their numbers.
LeafPartition = dict[int, FittedLeaf]
#: So many rows are sent to the cluster at once.
_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class RemoteLeaf:
    """A leaf on the cluster.

    Attributes
    ----------
    partition : Delayed
        The partition that holds it, which is kept there, or computed again if its worker dies.
    number : int
        Its number.
    """

    partition: Delayed
    number: int


@dataclass(frozen=True)
class RoutedRows:
    """The rows of a block that belong to leaves of one partition.

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
    """Sends rows to the partitions of leaves.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    tree : Tree
        The regions.
    partition_of : ndarray of int, shape (n_leaves,)
        The number of the partition of every leaf.
    n_partitions : int
        The number of partitions.
    """

    kernel: Kernel
    tree: Tree
    partition_of: Array
    n_partitions: int

    def __call__(self, X: Array) -> list[RoutedRows]:
        """Return the rows for every partition.

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
        for number in range(self.n_partitions):
            own = [leaf for leaf in np.flatnonzero(self.partition_of == number) if routes[leaf][0].size]
            rows = np.unique(np.concatenate([np.empty(0, dtype=np.intp), *(routes[leaf][0] for leaf in own)]))
            of_leaf = {int(leaf): (np.searchsorted(rows, routes[leaf][0]), routes[leaf][1]) for leaf in own}
            found.append(RoutedRows(X[rows], rows, of_leaf))
        return found


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
    def router(self) -> LeafRouter:
        """What sends rows to the partitions."""
        keys = {partition.key: number for number, partition in enumerate(self.partitions)}
        partition_of = [
            keys[leaf.partition.key] if isinstance(leaf, RemoteLeaf) else -1 for leaf in self.leaves
        ]
        return LeafRouter(self.kernel, self.tree, np.array(partition_of), len(keys))

    @property
    def _remote(self) -> list[RemoteLeaf]:
        """The leaves that are on the cluster; those without rows, whose output is zero, are not."""
        return [leaf for leaf in self.leaves if isinstance(leaf, RemoteLeaf)]

    def margins(self, X: Any) -> Array:
        """Return the margins of new rows, which are sent to the cluster.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, L)
        """
        router, partitions = self.router, self.partitions
        task = delayed(partition_margins, pure=False, traverse=False)
        blocks = []
        for start in range(0, max(X.shape[0], 1), _ROWS_AT_ONCE):
            some = X[start : start + _ROWS_AT_ONCE]
            pairs = zip(partitions, router(some), strict=True)
            # One partition says how many columns there are, even if there are no rows.
            parts = [
                task(partition, delayed(routed, traverse=False))
                for number, (partition, routed) in enumerate(pairs)
                if routed.rows.size or number == 0
            ]
            blocks.append(added_margins(some.shape[0], computed(*parts)))
        return np.concatenate(blocks)

    def gathered(self) -> LeafBank:
        """Return the same machines in memory.

        Returns
        -------
        LeafBank
        """
        task = delayed(_leaves, pure=False, traverse=False)
        found: dict[int, Leaf] = {}
        for part in computed(*map(task, self.partitions)):
            found |= part
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
        raise TypeError(_STAYS)

    def __reduce__(self) -> NoReturn:
        raise TypeError(_STAYS)


_STAYS = "the leaves of this model are on the Dask cluster: call model.gather_leaves() first, to have them in memory"


@dataclass(frozen=True)
class KnownMargins:
    """Stands for the leaves of a model where their margins of the only rows to come are known.

    Attributes
    ----------
    known : ndarray of shape (n, L)
        The margins.
    """

    known: Array

    def margins(self, X: Any) -> Array:
        """Return the margins.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows.

        Returns
        -------
        ndarray of shape (n, L)
        """
        assert X.shape[0] == self.known.shape[0]
        return self.known


def partition_margins(partition: LeafPartition, routed: RoutedRows) -> tuple[Array, Array]:
    """Return the margins of rows by the leaves of a partition, multiplied by the weights of the routing.

    Parameters
    ----------
    partition : dict of int to FittedLeaf
        The leaves.
    routed : RoutedRows
        The rows.

    Returns
    -------
    rows : ndarray of int, shape (m,)
        Their places in the block.
    margins : ndarray of shape (m, L)
    """
    n_columns = next(iter(partition.values())).leaf.constants.size
    margins = np.zeros((routed.rows.size, n_columns))
    for number, (rows, weights) in routed.of_leaf.items():
        margins[rows] += weights[:, np.newaxis] * partition[number].leaf.margins(routed.X[rows])
    return routed.rows, margins


def added_margins(n_rows: int, parts: Any) -> Array:
    """Return the sum of what partitions say of the rows of a block.

    Parameters
    ----------
    n_rows : int
        The number of rows.
    parts : sequence of (ndarray of int, ndarray)
        The margins of some rows by every partition, at least one.

    Returns
    -------
    ndarray of shape (n_rows, L)
    """
    total = np.zeros((n_rows, parts[0][1].shape[1]))
    for rows, margins in parts:
        total[rows] += margins
    return total


def _leaves(partition: LeafPartition) -> dict[int, Leaf]:
    """Return the machines of a partition."""
    return {number: fitted.leaf for number, fitted in partition.items()}


def _parameters(partition: LeafPartition, name: str) -> dict[int, float]:
    """Return a parameter of every leaf of a partition."""
    return {
        number: np.nan if fitted.leaf.bank is None else float(getattr(fitted.leaf.bank, name)[0])
        for number, fitted in partition.items()
    }
