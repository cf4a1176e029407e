"""Folds: which rows are held out together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import check_random_state

Array = NDArray[Any]

__all__ = ["deal", "fold_numbers", "out_of_fold", "training_folds"]

#: Projections that differ by less than this part of their range are equal up to noise.
_SAME = 1e-7


def deal(
    X: Any,
    class_index: ArrayLike,
    n_folds: int = 5,
    *,
    precomputed: bool = False,
    ties: Sequence[ArrayLike] = (),
    groups: ArrayLike | None = None,
    random_state: Any = None,
) -> list[Array]:
    """Deal rows into stratified random folds that do not depend on the order of the rows.

    The rows of a class are sorted by their projection on a random direction, and every run of ``n_folds`` of them is
    dealt in random order, one row to each fold. So every fold has its share of each class and of each region, equal
    rows are spread over the folds like any others, and the folds do not depend on the order of the rows, the unit of
    X or the names of the classes. A change of X by rounding at most exchanges rows with the same projection.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Rows, or whatever else distinguishes them; the Gram matrix of shape (n, n) if ``precomputed``.
    class_index : array-like of int, shape (n,)
        The class of every row.
    n_folds : int, default=5
        The number of folds, at least two. No fold is empty if there are as many rows, or groups.
    precomputed : bool, default=False
        Whether X is a Gram matrix. Its rows are sorted by statistics that do not change when rows and columns are
        permuted together.
    ties : sequence of array-like of shape (n,), default=()
        What distinguishes rows with the same projection, such as their weights.
    groups : array-like of shape (n,) or None, default=None
        Rows of one group go to the same fold. Groups are dealt one by one, the largest first, each to the fold that
        keeps the shares of the classes in the folds most even.
    random_state : int, RandomState instance or None, default=None
        Seed of the direction and of the deal; None is the same as 0.

    Returns
    -------
    list of ndarray of int
        The rows of every fold, ascending. Every row is in exactly one of them.

    Examples
    --------
    >>> X, y = np.array([[3.0], [1.0], [2.0], [7.0], [6.0], [5.0]]), np.array([0, 0, 0, 1, 1, 1])
    >>> [fold.tolist() for fold in deal(X, y, 3)]
    [[0, 3], [2, 5], [1, 4]]
    >>> order = np.array([5, 3, 1, 0, 2, 4])
    >>> [sorted(order[fold].tolist()) for fold in deal(X[order], y[order], 3)]
    [[0, 3], [2, 5], [1, 4]]
    >>> [fold.tolist() for fold in deal(X, y, 3, groups=["a", "a", "b", "b", "c", "c"])]
    [[0, 1], [4, 5], [2, 3]]
    """
    classes = np.unique(np.asarray(class_index), return_inverse=True)[1].ravel()
    if not isinstance(n_folds, Integral) or isinstance(n_folds, bool) or n_folds < 2:
        raise ValueError(f"n_folds must be a whole number of at least 2, not {n_folds!r}")
    X = X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[0] != classes.size:
        raise ValueError(
            f"X must have one row for each of the {classes.size} classes given, not shape {X.shape}"
        )
    rng = check_random_state(0 if random_state is None else random_state)
    key = _gram_key(X, classes, rng) if precomputed else _row_key(X, rng)
    place = _places(key, ties)
    classes = _canonical_classes(classes, place)
    if groups is None:
        number = _deal_rows(classes, np.lexsort((key, place, classes)), int(n_folds), rng)
    else:
        number = _deal_groups(classes, place, np.asarray(groups), int(n_folds), rng)
    return [np.flatnonzero(number == fold) for fold in range(int(n_folds))]


def _row_key(X: Any, rng: np.random.RandomState) -> Array:
    """Return the projection of every row on a random direction, shape (n,)."""
    scale = float(abs(X).max()) if min(X.shape) else 0.0
    return (X @ (rng.standard_normal(X.shape[1]) / (scale or 1.0))).ravel()


def _gram_key(K: Array, classes: Array, rng: np.random.RandomState) -> Array:
    """Return a random combination of statistics of the rows of a Gram matrix, shape (n,).

    The statistics are K(x, x), the mean of K(x, z) over all rows z and over those of the row's own class, the mean of
    its square, and the mean of K(x, z) where rows z are weighted by their own means.
    """
    n = classes.size
    K = K / (float(np.abs(K).max(initial=0.0)) or 1.0)
    own = np.eye(int(classes.max(initial=0)) + 1)[classes]
    means = K @ np.column_stack([np.full(n, 1.0 / n), own / own.sum(axis=0)])
    overall, of_own = means[:, 0], means[np.arange(n), 1 + classes]
    squares = np.einsum("ij,ij->i", K, K) / n
    statistics = np.column_stack([K.diagonal(), overall, of_own, squares, K @ (overall + of_own) / n])
    return statistics @ rng.standard_normal(statistics.shape[1])


def _places(key: Array, ties: Sequence[ArrayLike]) -> Array:
    """Return the place of every row in the order of its key and then of the ties, shape (n,).

    Rows whose keys and ties are equal, up to rounding of the keys, share a place.
    """
    order = np.argsort(key, kind="stable")
    largest, spread = float(np.abs(key).max(initial=0.0)), float(np.ptp(key)) if key.size else 0.0
    same = max(_SAME * spread, 1e-12 * largest)
    place = np.empty(key.size, dtype=np.intp)
    place[order] = np.cumsum(np.diff(key[order], prepend=key[order][:1]) > same)
    for tie in ties:
        values = np.asarray(tie)
        order = np.lexsort((values, place))
        new = (np.diff(place[order], prepend=0) != 0) | (
            np.diff(values[order], prepend=values[order][:1]) != 0
        )
        place = place.copy()
        place[order] = np.cumsum(new)
    return place


def _canonical_classes(classes: Array, place: Array) -> Array:
    """Renumber the classes by their size, the largest first, then by the places of their rows."""
    members = [np.sort(place[classes == k]) for k in range(int(classes.max(initial=-1)) + 1)]
    order = sorted(range(len(members)), key=lambda k: (-members[k].size, members[k].tobytes()))
    rank = np.empty(len(members), dtype=np.intp)
    rank[order] = np.arange(len(members))
    return rank[classes]


def _deal_rows(classes: Array, order: Array, n_folds: int, rng: np.random.RandomState) -> Array:
    """Return the fold of every row: each run of n_folds rows of a class, in the given order, is dealt at random."""
    number = np.empty(classes.size, dtype=np.intp)
    filled = np.zeros(n_folds, dtype=np.intp)
    for rows in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        n_runs, left = divmod(rows.size, n_folds)
        hands = rng.random_sample((n_runs + 1, n_folds)).argsort(axis=1)
        # The folds with the fewest rows get the rest, so that the sizes of the folds differ by one at most.
        fewest = hands[-1][np.argsort(filled[hands[-1]], kind="stable")[:left]]
        number[rows] = np.append(hands[:-1].ravel(), rng.permutation(fewest))
        filled += np.bincount(number[rows], minlength=n_folds)
    return number


def _deal_groups(
    classes: Array, place: Array, groups: Array, n_folds: int, rng: np.random.RandomState
) -> Array:
    """Return the fold of every row, the same for the rows of a group."""
    if groups.shape != classes.shape:
        raise ValueError(f"groups must have one entry for each of the {classes.size} rows")
    names, group = np.unique(groups, return_inverse=True)
    if names.size < n_folds:
        raise ValueError(f"{n_folds} folds need as many groups; there are only {names.size}")
    n_classes = int(classes.max()) + 1
    counts = np.zeros((names.size, n_classes))
    np.add.at(counts, (group, classes), 1.0)
    totals = counts.sum(axis=0)
    # Large groups first: small ones can still even out the folds. Ties are broken by content, not by name.
    order = np.lexsort((np.bincount(group, place), *counts.T, -counts.sum(axis=1)))
    dealt, filled = np.zeros((n_folds, n_classes)), np.zeros(n_folds)
    fold_of = np.empty(names.size, dtype=np.intp)
    preference = np.arange(n_folds)
    for rank, g in enumerate(order):
        if rank % n_folds == 0:
            preference = rng.permutation(n_folds)
        # The squared deviation of the shares grows by Σ (2 dealt·count + count²)/total²: only dealt differs by fold.
        cost = (dealt * (counts[g] / totals**2)).sum(axis=1)
        empty = np.flatnonzero(filled == 0)
        open_folds = empty if names.size - rank <= empty.size else np.arange(n_folds)
        best = open_folds[np.lexsort((preference[open_folds], filled[open_folds], cost[open_folds]))[0]]
        fold_of[g] = best
        dealt[best] += counts[g]
        filled[best] += counts[g].sum()
    return fold_of[group]


def out_of_fold(
    class_index: Array,
    cv: Any = 5,
    random_state: Any = None,
    *,
    X: Any = None,
    precomputed: bool = False,
    ties: Sequence[ArrayLike] = (),
) -> list[Array]:
    """Return the rows of every fold, such that each row is held out exactly once.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        The class of every row.
    cv : int, splitter, or iterable of (train, test) index arrays
        For a number, the rows of every class are dealt evenly into as many random folds; no more folds are made than
        the largest class has rows. Anything else is as in scikit-learn, and its test sets must divide the rows.
    random_state : int, RandomState instance or None
        For a number of folds; None is the same as 0, so that a fit can be repeated.
    X : array-like or sparse matrix of shape (n, d), or None
        The rows. With them, a number of folds is dealt by `deal`, which does not depend on the order of the rows;
        otherwise by scikit-learn's ``StratifiedKFold``.
    precomputed, ties
        See `deal`.

    Returns
    -------
    list of ndarray of int

    Examples
    --------
    >>> [fold.tolist() for fold in out_of_fold(np.array([0, 0, 0, 1, 1, 1]), 3)]
    [[2, 4], [1, 5], [0, 3]]
    """
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        if cv < 2:
            raise ValueError(f"cv must be at least 2 folds, not {cv}")
        largest = int(np.bincount(class_index).max())
        if largest < 2:
            raise ValueError(
                "every class has only one row, so none can be held out: give more rows, or choose a decoding that does "
                "not learn"
            )
        n_folds = min(int(cv), largest)
        if X is not None:
            return deal(
                X, class_index, n_folds, precomputed=precomputed, ties=ties, random_state=random_state
            )
        cv = StratifiedKFold(n_folds, shuffle=True, random_state=0 if random_state is None else random_state)
    elif not hasattr(cv, "split") and not isinstance(cv, Iterable):
        raise ValueError(f"cv must be a number of folds, a splitter or a list of splits, not {cv!r}")
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some of them, which does no harm.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        splits = check_cv(cv, class_index, classifier=True).split(
            np.zeros((class_index.size, 1)), class_index
        )
        folds = [np.asarray(test) for _, test in splits]
    held_out = np.bincount(np.concatenate(folds), minlength=class_index.size)
    if held_out.size != class_index.size or not (held_out == 1).all():
        raise ValueError("the test sets of cv must hold out every row exactly once")
    return folds


def training_folds(data: Any, cv: Any = 5, random_state: Any = None) -> list[Array]:
    """Return the rows of every fold of the rows that machines are trained on.

    Parameters
    ----------
    data : TrainingRows
        The training rows. Rows with the same features but different weights or soft labels are told apart by these.
    cv, random_state
        See `out_of_fold`.

    Returns
    -------
    list of ndarray of int

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> from polymargin.machines import TrainingRows
    >>> rows = TrainingRows(Linear(), np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 0, 1, 1]), np.ones(4))
    >>> [fold.tolist() for fold in training_folds(rows, 2)]
    [[1, 2], [0, 3]]
    """
    ties = [data.weights]
    if data.soft_labels is not None:
        # Sums and maxima over the classes do not depend on the names of the classes.
        ties += [data.soft_labels.max(axis=1), np.square(data.soft_labels).sum(axis=1)]
    return out_of_fold(
        data.class_index, cv, random_state, X=data.X, precomputed=data.kernel.precomputed, ties=ties
    )


def fold_numbers(folds: Sequence[Array]) -> Array:
    """Return the number of every row's fold, shape (n,)."""
    numbers = np.empty(sum(fold.size for fold in folds), dtype=np.intp)
    for number, fold in enumerate(folds):
        numbers[fold] = number
    return numbers
