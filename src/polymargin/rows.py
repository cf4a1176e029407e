"""Training rows: features, classes, weights, soft labels and groups, as every bank of machines takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin.dealing import Deal
from polymargin.kernels import Kernel

Array = NDArray[Any]


#: A class can do without some of its rows if at least this part of it is left: with less, the others would count more
#: than four times.
_LEAST_REST = 0.25


@dataclass(frozen=True)
class DistinctRows:
    """The distinct rows of every class, sorted by class.

    Attributes
    ----------
    first : ndarray of int, shape (m,)
        For every distinct row, the first training row that equals it.
    inverse : ndarray of int, shape (n,)
        The distinct row that every training row equals.
    """

    first: Array
    inverse: Array

    def sorted_by(self, *keys: Array) -> DistinctRows:
        """Return the distinct rows sorted by keys of the training rows, each of shape (n,), the first key leading."""
        order = np.lexsort([np.arange(self.first.size), *(key[self.first] for key in reversed(keys))])
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        return DistinctRows(self.first[order], place[self.inverse])


@dataclass(frozen=True)
class TrainingRows:
    """The training set of a bank of machines.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    X : array or sparse matrix of shape (n, d)
        The rows; the Gram matrix itself for a precomputed kernel.
    class_index : ndarray of int, shape (n,)
        The class of every row.
    weights : ndarray of shape (n,)
        Positive row weights, which multiply the losses of the rows.
    soft_labels : ndarray of shape (n, K) or None
        Class probabilities in place of labels, where they are given; the class of a row is then the most probable one.
    groups : ndarray of int, shape (n,), or None
        Rows of one group are one observation: leave-one-out leaves all of them out. None: every row by itself.
    dealt : Deal or None
        The rows in a random order, for folds and samples; None: shuffled as by ``random_state=None``.
    """

    kernel: Kernel
    X: Any
    class_index: Array
    weights: Array
    soft_labels: Array | None = None
    groups: Array | None = None
    dealt: Deal | None = None

    @property
    def deal(self) -> Deal:
        """The rows in a random order, for folds and samples."""
        return self.shuffled().deal if self.dealt is None else self.dealt

    def shuffled(self, random_state: Any = None) -> TrainingRows:
        """Return the same rows with a new random order for folds and samples.

        Parameters
        ----------
        random_state : int, RandomState instance or None
            Seeds the order; None is the same as 0.

        Returns
        -------
        TrainingRows
        """
        ties = [self.weights]
        if self.soft_labels is not None:
            # Maxima and sums over the classes do not depend on the order of the classes.
            ties += [self.soft_labels.max(axis=1), np.square(self.soft_labels).sum(axis=1)]
        deal = Deal.of(
            self.X,
            self.class_index,
            precomputed=self.kernel.precomputed,
            groups=self.groups,
            ties=ties,
            random_state=random_state,
        )
        return replace(self, dealt=deal)

    def take(self, rows: Array) -> TrainingRows:
        """Return a subset of the rows, with the random order that they have among all.

        Parameters
        ----------
        rows : ndarray of int, shape (m,)
            Indices of the rows.

        Returns
        -------
        TrainingRows
        """
        X = self.X[rows]
        return TrainingRows(
            self.kernel,
            X[:, rows] if self.kernel.precomputed else X,
            self.class_index[rows],
            self.weights[rows],
            None if self.soft_labels is None else self.soft_labels[rows],
            None if self.groups is None else self.groups[rows],
            self.deal.take(rows),
        )

    def class_weights(self, n_classes: int) -> Array:
        """Return the total weight of every class; a soft label divides its row among the classes.

        Parameters
        ----------
        n_classes : int
            The number of classes K.

        Returns
        -------
        weights : ndarray of shape (K,)
        """
        if self.soft_labels is not None:
            return self.weights @ self.soft_labels
        return np.bincount(self.class_index, self.weights, minlength=n_classes)

    @property
    def effective_weights(self) -> Array:
        """The weights, scaled to sum to the number of independent observations that they are worth, shape (n,).

        With W the total weight of every group (of every row, where there are none) this number is (ΣW)²/ΣW², Kish's
        effective sample size: the number of rows if all weights are equal, the number of groups if their weights are.
        So the result depends neither on the unit of the weights nor on how often rows are copied.
        """
        W = self.weights if self.groups is None else np.bincount(self.groups, self.weights)
        return self.weights * float(W.sum() / np.square(W).sum())

    def shares_without(self, left_out: Array) -> Array:
        """Return what to multiply the weights by so that other rows of their class stand for some rows, shape (n,).

        Parameters
        ----------
        left_out : ndarray of bool, shape (n,)
            The rows, whose factor is zero. A class of which too little would be left keeps them.

        Returns
        -------
        ndarray of shape (n,)
            The sum of the weights of every class remains.
        """
        total = np.bincount(self.class_index, self.weights)
        rest = np.bincount(self.class_index, np.where(left_out, 0.0, self.weights))
        enough = rest >= _LEAST_REST * total
        factors = np.divide(total, rest, out=np.ones_like(total), where=enough & (rest > 0.0))[
            self.class_index
        ]
        factors[left_out & enough[self.class_index]] = 0.0
        return factors

    def distinct(self) -> DistinctRows:
        """Return the distinct rows of every class: those that differ in content, soft label or weight.

        Their order depends neither on the order of the training rows nor on how often one is repeated. With a
        precomputed kernel, whose rows are not known, and with groups, all rows are kept, in their order.

        Returns
        -------
        DistinctRows

        Examples
        --------
        >>> from polymargin.kernels import Linear
        >>> X = np.array([[2.0], [1.0], [2.0]])
        >>> TrainingRows(Linear(), X, np.array([0, 0, 0]), np.ones(3)).distinct()
        DistinctRows(first=array([0, 1]), inverse=array([0, 1, 0]))
        """
        apart = self.kernel.precomputed or self.groups is not None
        keys = [np.unique(self.weights, return_inverse=True)[1]] if np.ptp(self.weights) else []
        if self.soft_labels is not None:
            keys.append(content_rank(self.soft_labels))
        keys += [np.arange(self.X.shape[0]) if apart else content_rank(self.X), self.class_index]
        number = np.zeros(self.X.shape[0], dtype=np.intp)
        for key in keys:  # the last one leads
            number = np.unique(key, return_inverse=True)[1] * (int(number.max()) + 1) + number
            number = np.unique(number, return_inverse=True)[1]
        _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
        return DistinctRows(first, inverse)

    def contents(self) -> DistinctRows:
        """Return the rows of every class that differ in content or soft label, regardless of weights and groups.

        Hinge machines merge equal rows into one row with a larger box. Otherwise as `distinct`.

        Returns
        -------
        DistinctRows
        """
        return replace(self, weights=np.ones_like(self.weights), groups=None).distinct()


def content_rank(X: Any) -> Array:
    """Return a rank for every row, shape (n,): equal rows have equal ranks, in any order of the rows."""
    if sparse.issparse(X):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        keys = [(X.indices[start:stop].tobytes(), X.data[start:stop].tobytes()) for start, stop in bounds]
        rank = {key: number for number, key in enumerate(sorted(set(keys)))}
        return np.array([rank[key] for key in keys])
    # Equal rows have equal bytes, once -0.0 has become 0.0.
    rows = np.ascontiguousarray(X + 0.0)
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    return np.unique(as_bytes, return_inverse=True)[1].ravel()
