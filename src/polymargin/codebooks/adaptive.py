"""Adaptive coding: dichotomies that follow the classes' places in space (Mayoraz and Alpaydın 1998, §6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks._base import Codebook

Array = NDArray[Any]

#: Trains one dichotomy, given as -1, 0 or +1 for every class, and returns its margins for all training rows.
Train = Callable[[Array], Array]


@dataclass(frozen=True)
class Adaptive:
    """The coding that is grown on the data: ``coding=Adaptive(...)``, or "adaptive" for the defaults.

    Column after column begins with the two classes that the columns so far tell apart least, and takes in every
    class that falls on one side of their boundary anyway. So dichotomies are easy to learn and follow the lie of
    the classes, there are fewer than one-vs-one has, and pairs that are hard get more columns than others.

    Parameters
    ----------
    threshold : float, default=0.8
        The share of a class's rows that must fall on one side for the class to join that side; more than ½.
    separation : float, default=1.8
        How far every pair of classes is to be told apart. A column on which a share s of one class and t of the
        other fall on their proper sides contributes s + t − 1: one for a perfect column, nothing for one that
        guesses. So 0.9 asks for one good column or several fair ones; 1.8 for two good ones, so that where one
        errs another may put it right, as in error-correcting codes.
    max_columns : int or None, default=None
        The most columns there may be, at least ⌈log₂ K⌉. None: as many as one-vs-one has.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> LSSVMClassifier(coding=Adaptive(separation=0.9)).fit(*load_iris(return_X_y=True)).codebook_.matrix
    array([[-1, -1,  0],
           [ 1,  1, -1],
           [ 1, -1,  1]], dtype=int8)
    """

    threshold: float = 0.8
    separation: float = 1.8
    max_columns: int | None = None

    def __post_init__(self) -> None:
        if not 0.5 < self.threshold <= 1.0:
            raise ValueError(
                f"threshold must be above 0.5, or a class could join both sides; not {self.threshold}"
            )
        if not self.separation > 0.0:
            raise ValueError(f"separation must be positive, not {self.separation}")


def adaptive_coding(coding: Any) -> Adaptive | None:
    """Return the `Adaptive` that an estimator's ``coding`` parameter stands for, or None if it is another coding.

    Parameters
    ----------
    coding : Any
        What was given to an estimator.

    Returns
    -------
    adaptive : Adaptive or None
        The object that was given, or one with the default parameters for ``"adaptive"``.
    """
    if isinstance(coding, Adaptive):
        return coding
    return Adaptive() if isinstance(coding, str) and coding == "adaptive" else None


def grow_codebook(
    train: Train,
    class_index: Array,
    n_classes: int,
    coding: Adaptive | None = None,
    *,
    weights: Array | None = None,
) -> Codebook:
    """Return a codebook grown on training rows.

    A pair of classes that the columns so far tell apart least begins a column (the paper draws among such pairs;
    here the first is taken). A machine is trained on it, classes that fall on one side join it, and so on until
    no more join. Where that leads to a column that is there already, the pair gets a column to itself, and where
    that is there too, nothing more can be done for it. If the budget ends this early, pairs of classes that no
    column sets against each other get plain columns from a reserve, so that the codebook is always valid.

    Parameters
    ----------
    train : callable
        Given a column, an array of -1, 0, +1 for every class, trains the dichotomy and returns its margins for all
        training rows, shape (n,), honest ones if it can. Not called twice for the same column. While a column
        grows, each call has the classes of the call before and more: a trainer with memory can start warm, as that
        of `SVMClassifier` does.
    class_index : ndarray of int, shape (n,)
        The class of every row; every class has a row.
    n_classes : int
        The number of classes, K.
    coding : Adaptive or None
        The parameters; None for the defaults.
    weights : ndarray of shape (n,) or None
        Row weights, which count in the shares of classes.

    Returns
    -------
    codebook : Codebook
        The columns in the order in which they were grown.

    Examples
    --------
    Three classes on a line; the machine is the midpoint between the means of its two sides.

    >>> x, y = np.array([0.0, 1.0, 5.0, 6.0, 9.0, 10.0]), np.array([0, 0, 1, 1, 2, 2])
    >>> def train(column):
    ...     low, high = (x[column[y] == side].mean() for side in (-1, 1))
    ...     return (high - low) * (x - (low + high) / 2)
    >>> grow_codebook(train, y, 3, Adaptive(separation=1.0)).matrix
    array([[-1, -1],
           [ 1, -1],
           [ 1,  1]], dtype=int8)
    """
    coding = Adaptive() if coding is None else coding
    return _Growth(train, class_index, n_classes, coding, weights).codebook()


class _Growth:
    """A codebook while it grows."""

    def __init__(
        self, train: Train, class_index: Array, n_classes: int, coding: Adaptive, weights: Array | None
    ):
        self.train, self.class_index, self.n_classes, self.coding = train, class_index, n_classes, coding
        self.weights = np.ones(class_index.size) if weights is None else weights
        self.totals = np.bincount(class_index, self.weights, n_classes)
        self.budget = _budget(coding.max_columns, n_classes)
        self.columns: list[Array] = []
        # How far the columns so far tell every two classes apart, and whether any sets them against each other.
        self.apart = np.zeros((n_classes, n_classes))
        self.opposed = np.eye(n_classes, dtype=bool)
        self._shares: dict[bytes, Array] = {}

    def codebook(self) -> Codebook:
        """Grow and return the codebook."""
        # What can still be tried for a pair: a grown column first, then one of its own.
        tries = {
            pair: [self.pair_column, self.grown_column] for pair in combinations(range(self.n_classes), 2)
        }
        while pair := self.least_discriminated([pair for pair, left in tries.items() if left]):
            column = tries[pair].pop()(*pair)
            if any(np.array_equal(column, known) for known in self.columns):
                continue
            if self.completion(self.opposed | _opposed(column), len(self.columns) + 1) is None:
                break
            self.add(column)
        rest = self.completion(self.opposed, len(self.columns))
        assert rest is not None
        return Codebook(np.stack([*self.columns, *rest], axis=1))

    def least_discriminated(self, pairs: list[tuple[int, int]]) -> tuple[int, int] | None:
        """Return the first of the pairs that are told apart least, or None if all are told apart enough."""
        pairs = [pair for pair in pairs if self.apart[pair] < self.coding.separation]
        # Rounded, so that sums of the same shares in another order are a tie.
        return min(pairs, key=lambda pair: (self.opposed[pair], self.apart[pair].round(9)), default=None)

    def pair_column(self, i: int, j: int) -> Array:
        """Return the column of two classes alone."""
        column = np.zeros(self.n_classes, dtype=np.int8)
        column[i], column[j] = -1, 1
        return column

    def grown_column(self, i: int, j: int) -> Array:
        """Return the column of two classes and all that fall on one side of the boundary between them."""
        column = self.pair_column(i, j)
        while True:
            shares = self.shares(column)
            least = self.coding.threshold - 1e-12
            sides = (shares >= least).astype(np.int8) - (1.0 - shares >= least).astype(np.int8)
            joined = np.where(column == 0, sides, column)
            if np.array_equal(joined, column):
                # A column and its complement are the same dichotomy: the first class is negative.
                return -column[np.flatnonzero(column)[0]] * column
            column = joined

    def shares(self, column: Array) -> Array:
        """Return the share of every class's rows that the trained dichotomy puts on its positive side."""
        if column.tobytes() not in self._shares:
            # A margin of zero is half on either side.
            positive = 0.5 * (1.0 + np.sign(self.train(column)))
            shares = np.bincount(self.class_index, self.weights * positive, self.n_classes) / self.totals
            self._shares[column.tobytes()] = shares
            self._shares[(-column).tobytes()] = 1.0 - shares
        return self._shares[column.tobytes()]

    def add(self, column: Array) -> None:
        """Add a column, and count what it tells apart."""
        proper = np.where(column == 1, self.shares(column), 1.0 - self.shares(column))
        gains = np.maximum(proper[:, np.newaxis] + proper - 1.0, 0.0)
        opposed = _opposed(column)
        self.apart += np.where(opposed, gains, 0.0)
        self.opposed |= opposed
        self.columns.append(column)

    def completion(self, opposed: Array, n_columns: int) -> list[Array] | None:
        """Return columns for the pairs that no column opposes, or None if the budget has no room for them."""
        room = self.budget - n_columns
        pairs = np.argwhere(np.triu(~opposed))
        if len(pairs) <= room:
            return [self.pair_column(i, j) for i, j in pairs]
        # Too many for columns of their own: classes opposed already may share a number, and as in minimal
        # coding the binary digits of the numbers are the columns.
        numbers = _colours(~opposed)
        n_digits = int(numbers.max()).bit_length()
        digits = (numbers[:, np.newaxis] >> np.arange(n_digits)[::-1]) & 1
        return list((2 * digits - 1).astype(np.int8).T) if n_digits <= room else None


def _budget(max_columns: int | None, n_classes: int) -> int:
    """Return the most columns there may be."""
    if max_columns is None:
        return n_classes * (n_classes - 1) // 2
    fewest = (n_classes - 1).bit_length()
    if max_columns < fewest:
        raise ValueError(f"max_columns={max_columns} is too few: {n_classes} classes need {fewest} or more")
    return max_columns


def _opposed(column: Array) -> Array:
    """Return which classes a column sets against each other, shape (K, K)."""
    return np.multiply.outer(column, column) == -1


def _colours(adjacent: Array) -> Array:
    """Return a small number for every node of a graph, different for adjacent ones."""
    colours = np.zeros(adjacent.shape[0], dtype=np.intp)
    for node in range(1, colours.size):
        taken = set(colours[:node][adjacent[node, :node]])
        colours[node] = next(colour for colour in range(node + 1) if colour not in taken)
    return colours
