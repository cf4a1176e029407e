"""How rows are dealt: into folds, and into samples, by the random state.

Rows are shuffled, not taken as they stand, so that a sorted table does no harm; and what is drawn must not depend on
the order of the rows, on the units of the columns, on the names of the classes, or on the last digits of X. So the
rows of a class are first put into a canonical order, that of their projection on a random direction, and then shuffled
by the random state. Rows whose projections are equal up to rounding are told apart by their weights and soft labels;
those that have these in common are exchangeable, and are dealt like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from polymargin.kernels._base import weighted_moments

Array = NDArray[Any]

#: Keys that differ by less than this part of their range are equal up to rounding.
_SAME = 1e-7


@dataclass(frozen=True)
class Deal:
    """Rows in a random order, class by class.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        The place of every row in the shuffled order of its class; rows of one group share their place.
    sorted_place : ndarray of int, shape (n,)
        The place of every row in the order of its class before it was shuffled: rows of one region are neighbours.
    class_index : ndarray of int, shape (n,)
        The class that the row, or its group, is dealt with.
    turn : ndarray of int, shape (K,)
        The number of rows (or groups) of the classes before: the classes stand in an order that does not depend on
        their names.
    seed : int
        What the random state gave.
    """

    place: Array
    sorted_place: Array
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
        ties: Sequence[Array] = (),
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
        ties : sequence of ndarray of shape (n,)
            What distinguishes rows with the same projection, such as their weights.
        random_state : int, RandomState instance or None
            None is the same as 0, so that a fit can be repeated.

        Examples
        --------
        >>> deal = Deal.of(np.arange(8.0)[:, np.newaxis], np.repeat([0, 1], 4))
        >>> [fold.tolist() for fold in deal.folds(2)]
        [[0, 4, 5, 7], [1, 2, 3, 6]]
        """
        random = check_random_state(0 if random_state is None else random_state)
        # One number, so that a RandomState instance is advanced by the same amount whatever the rows are.
        seed = int(random.randint(np.iinfo(np.int32).max))
        key = _gram_key(X, class_index, seed) if precomputed else _row_key(X, seed)
        rank = _ranks(key, ties)
        # The classes in an order that does not depend on their names: by their mean keys, sizes and rows.
        n_classes = int(class_index.max()) + 1
        sizes = np.bincount(class_index, minlength=n_classes)
        means = _ranks(np.bincount(class_index, key, minlength=n_classes) / np.maximum(sizes, 1))
        rows = [np.sort(rank[class_index == index]).tolist() for index in range(n_classes)]
        classes = np.array(
            sorted(range(n_classes), key=lambda index: (means[index], sizes[index], rows[index]))
        )
        if groups is None:
            member, of_group, sorted_groups = np.arange(key.size), class_index, np.lexsort([key, rank])
        else:
            member = np.unique(groups, return_inverse=True)[1]
            of_group, sorted_groups = _majority(member, class_index, classes), _group_order(member, rank)
        place, sorted_place = np.empty((2, of_group.size), dtype=np.intp)
        turn = np.zeros(classes.size, dtype=np.intp)
        dealt = 0
        for index in classes:
            order = sorted_groups[of_group[sorted_groups] == index]
            sorted_place[order] = np.arange(order.size)
            place[order] = np.random.RandomState(seed).permutation(order.size)
            turn[index], dealt = dealt, dealt + order.size
        return cls(place[member], sorted_place[member], of_group[member], turn, seed)

    def fold_numbers(self, n_folds: int) -> Array:
        """Return the fold of every row, shape (n,).

        The rows of all classes are shuffled together: folds with the same class frequencies would hide that these are
        not known exactly. Only classes of few rows are dealt out in turn, so that no fold has all of them.
        """
        position = self.turn[self.class_index] + self.place
        shuffled = np.random.RandomState(self.seed).permutation(int(position.max()) + 1)
        numbers = shuffled[position] % n_folds
        counts = np.zeros((self.turn.size, n_folds))
        np.add.at(counts, (self.class_index, numbers), 1.0)
        few = (self._sizes() < 2 * n_folds) | ((counts > 0.0).sum(axis=1) == 1)
        return np.where(few[self.class_index], position % n_folds, numbers)

    def folds(self, n_folds: int) -> list[Array]:
        """Return the rows of every fold that has some."""
        numbers = self.fold_numbers(n_folds)
        return [rows for fold in range(n_folds) if (rows := np.flatnonzero(numbers == fold)).size]

    def stratified_folds(self, n_folds: int) -> list[Array]:
        """Return the rows of every fold that has some: every class and every region is dealt evenly.

        Every run of ``n_folds`` neighbours of a class (rows or groups) is dealt in random order, one to each fold. This
        is for the cross-validation of machines that do not learn the class frequencies.

        Examples
        --------
        >>> deal = Deal.of(np.arange(8.0)[:, np.newaxis], np.repeat([0, 1], 4), groups=np.arange(8) // 2)
        >>> [fold.tolist() for fold in deal.stratified_folds(2)]
        [[0, 1, 6, 7], [2, 3, 4, 5]]
        """
        sizes, turn = self._sizes()[self.class_index], self.turn[self.class_index]
        run, seat = np.divmod(self.sorted_place, n_folds)
        n_runs = int((turn // n_folds + run).max()) + 1
        hands = np.random.RandomState(self.seed).random_sample((n_runs, n_folds)).argsort(axis=1)
        # What is left of a class goes to the folds after those that got the rest of the class before.
        numbers = np.where(
            run < sizes // n_folds, hands[turn // n_folds + run, seat], (turn + seat) % n_folds
        )
        return [rows for fold in range(n_folds) if (rows := np.flatnonzero(numbers == fold)).size]

    def sample(self, share: float, least: int = 1) -> Array:
        """Return the rows of a sample, ascending: this share of every class, but at least so many rows or groups.

        Smaller samples are parts of larger ones.
        """
        kept = np.maximum(np.ceil(share * self._sizes()), least)
        return np.flatnonzero(self.place < kept[self.class_index])

    def take(self, rows: Array) -> Deal:
        """Return the deal of some of the rows, in the same order."""
        return Deal(self.place[rows], self.sorted_place[rows], self.class_index[rows], self.turn, self.seed)

    def _sizes(self) -> Array:
        """Return the number of rows or groups of every class, shape (K,)."""
        sizes = np.zeros(self.turn.size, dtype=np.intp)
        np.maximum.at(sizes, self.class_index, self.place + 1)
        return sizes


def _row_key(X: Any, seed: int) -> Array:
    """Return the projection of every row on a random direction, all columns of unit variance, shape (n,)."""
    direction = np.random.RandomState(seed).normal(size=X.shape[1])
    largest = max(float(X.max()), -float(X.min())) or 1.0
    mean, variance = weighted_moments(X, np.ones(X.shape[0]), largest)
    scale = np.sqrt(variance)
    varies = scale > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    direction = np.where(varies, direction / np.where(varies, scale, 1.0), 0.0)
    return np.asarray(X @ (direction / largest)).ravel()


def _gram_key(K: Array, class_index: Array, seed: int) -> Array:
    """Return a number for every row of a Gram matrix that moves with the row when rows are exchanged, shape (n,).

    A random combination of statistics: K(x, x), the means of K(x, z) over all rows z and over those of the row's own
    class, the mean of its square, and the mean of K(x, z) where rows z are weighted by their own means. (The mean over
    all rows alone would be nothing but rounding where the matrix is centred.)
    """
    n = class_index.size
    K = K / (float(np.abs(K).max(initial=0.0)) or 1.0)
    own = np.eye(int(class_index.max()) + 1)[class_index]
    overall, of_own = K.mean(axis=1), np.einsum("ij,ij->i", K @ (own / np.maximum(own.sum(axis=0), 1.0)), own)
    squares = np.einsum("ij,ij->i", K, K) / n
    statistics = np.column_stack([K.diagonal(), overall, of_own, squares, K @ (overall + of_own) / n])
    return statistics @ np.random.RandomState(seed).normal(size=statistics.shape[1])


def _ranks(key: Array, ties: Sequence[Array] = ()) -> Array:
    """Return the place of every row in the order of its key and then of the ties, shape (n,).

    Rows whose keys, up to rounding, and ties are equal share a place.
    """
    same = max(_SAME * float(np.ptp(key)), 1e-12 * float(np.abs(key).max()))
    order = np.argsort(key, kind="stable")
    rank = np.empty(key.size, dtype=np.intp)
    rank[order] = np.cumsum(np.diff(key[order], prepend=key[order[0]]) > same)
    for tie in ties:
        values = np.unique(tie, return_inverse=True)[1]
        rank = np.unique(rank * (int(values.max()) + 1) + values, return_inverse=True)[1]
    return rank


def _group_order(member: Array, rank: Array) -> Array:
    """Return the groups in an order that does not depend on their names, shape (G,): by the ranks of their rows."""
    order = np.lexsort([rank, member])
    ranks = [part.tolist() for part in np.split(rank[order], np.flatnonzero(np.diff(member[order])) + 1)]
    return np.array(sorted(range(len(ranks)), key=ranks.__getitem__))


def _majority(member: Array, class_index: Array, classes: Array) -> Array:
    """Return the commonest class of every group, shape (G,); of equally common ones the first in the given order."""
    counts = np.zeros((int(member.max()) + 1, classes.size))
    np.add.at(counts, (member, class_index), 1.0)
    return classes[counts[:, classes].argmax(axis=1)]
