"""How rows are dealt: into folds, and into samples, by the random state.

Rows are shuffled, not taken as they stand, so that a sorted table does no harm; and what is drawn must not depend on
the order of the rows, on the units of the columns, on the names of the classes, or on the last digits of X. So the
rows of a class are first put into a canonical order, that of their projection on a random direction, and then shuffled
by the random state. Equal rows of one class are exchangeable, and are dealt like any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from polymargin.kernels._base import weighted_moments

Array = NDArray[Any]


@dataclass(frozen=True)
class Deal:
    """Rows in a random order, class by class.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        The place of every row in the shuffled order of its class; rows of one group share their place.
    class_index : ndarray of int, shape (n,)
        The class that the row, or its group, is dealt with.
    turn : ndarray of int, shape (K,)
        The number of rows (or groups) of the classes before: the classes stand in an order that does not depend on
        their names.
    seed : int
        What the random state gave.
    """

    place: Array
    class_index: Array
    turn: Array
    seed: int

    @classmethod
    def of(
        cls,
        X: Any,
        class_index: Array,
        *,
        precomputed: bool = False,
        groups: Array | None = None,
        random_state: Any = None,
    ) -> Deal:
        """Shuffle the rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            The rows; the Gram matrix if ``precomputed``.
        class_index : ndarray of int, shape (n,)
            Their classes.
        precomputed : bool
            Whether X is a Gram matrix.
        groups : ndarray of shape (n,) or None
            The name of every row's group; rows of one group stay together.
        random_state : int, RandomState instance or None
            None is the same as 0, so that a fit can be repeated.

        Examples
        --------
        >>> deal = Deal.of(np.arange(8.0)[:, np.newaxis], np.repeat([0, 1], 4))
        >>> [fold.tolist() for fold in deal.folds(2)]
        [[2, 3, 6, 7], [0, 1, 4, 5]]
        """
        random = check_random_state(0 if random_state is None else random_state)
        # One number, so that a RandomState instance is advanced by the same amount whatever the rows are.
        seed = int(random.randint(np.iinfo(np.int32).max))
        key = _gram_key(X) if precomputed else _row_key(X, seed)
        n_classes = int(class_index.max()) + 1
        counts = np.bincount(class_index, minlength=n_classes)
        of_classes = np.bincount(class_index, key, minlength=n_classes) / np.maximum(counts, 1)
        if groups is None:
            first, member, of_group = np.arange(class_index.size), np.arange(class_index.size), class_index
        else:
            by_key = np.argsort(key, kind="stable")
            _, first, member = np.unique(groups[by_key], return_index=True, return_inverse=True)
            first = by_key[first]
            member = member[np.argsort(by_key, kind="stable")]
            of_group = _majority(member, class_index, of_classes)
        place = np.empty(first.size, dtype=np.intp)
        turn = np.zeros(n_classes, dtype=np.intp)
        dealt = 0
        for index in np.argsort(of_classes, kind="stable"):
            members = np.flatnonzero(of_group == index)
            order = members[np.argsort(key[first[members]], kind="stable")]
            place[order] = np.random.RandomState(seed).permutation(order.size)
            turn[index], dealt = dealt, dealt + order.size
        return cls(place[member], of_group[member], turn, seed)

    def fold_numbers(self, n_folds: int) -> Array:
        """Return the fold of every row, shape (n,).

        The rows of all classes are shuffled together: folds with the same class frequencies would hide that these are
        not known exactly. Only classes of few rows are dealt out in turn, so that no fold has all of them.
        """
        sizes = np.zeros(self.turn.size, dtype=np.intp)
        np.maximum.at(sizes, self.class_index, self.place + 1)
        position = self.turn[self.class_index] + self.place
        shuffled = np.random.RandomState(self.seed).permutation(int(position.max()) + 1)
        few = sizes[self.class_index] < 2 * n_folds
        return np.where(few, position, shuffled[position]) % n_folds

    def folds(self, n_folds: int) -> list[Array]:
        """Return the rows of every fold that has some."""
        numbers = self.fold_numbers(n_folds)
        return [rows for fold in range(n_folds) if (rows := np.flatnonzero(numbers == fold)).size]

    def sample(self, share: float, least: int = 1) -> Array:
        """Return the rows of a sample, ascending: this share of every class, but at least so many rows or groups.

        Smaller samples are parts of larger ones.
        """
        sizes = np.zeros(self.turn.size, dtype=np.intp)
        np.maximum.at(sizes, self.class_index, self.place + 1)
        kept = np.maximum(np.ceil(share * sizes), least)
        return np.flatnonzero(self.place < kept[self.class_index])

    def take(self, rows: Array) -> Deal:
        """Return the deal of some of the rows, in the same order."""
        return Deal(self.place[rows], self.class_index[rows], self.turn, self.seed)


def _row_key(X: Any, seed: int) -> Array:
    """Return the projection of every row on a random direction, all columns of unit variance, shape (n,)."""
    direction = np.random.RandomState(seed).normal(size=X.shape[1])
    largest = float(abs(X).max()) or 1.0
    mean, variance = weighted_moments(X / largest, np.ones(X.shape[0]))
    scale = np.sqrt(variance)
    varies = scale > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    direction = np.where(varies, direction / np.where(varies, scale, 1.0), 0.0)
    return np.asarray(X @ (direction / largest)).ravel()


def _gram_key(K: Array) -> Array:
    """Return a number for every row of a Gram matrix that moves with the row when rows are exchanged, shape (n,)."""
    sums = K.sum(axis=1)
    spread = float(np.std(sums)) or 1.0
    return K @ np.cos(1.0 + sums / spread)


def _majority(member: Array, class_index: Array, of_classes: Array) -> Array:
    """Return the commonest class of every group, shape (G,); ties are decided by the classes' place in the order."""
    counts = np.zeros((int(member.max()) + 1, of_classes.size))
    np.add.at(counts, (member, class_index), 1.0)
    rank = np.argsort(np.argsort(of_classes, kind="stable"), kind="stable")
    return (counts - 1e-6 * rank).argmax(axis=1)
