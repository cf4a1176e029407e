"""Folds of the training rows for cross-validation and out-of-fold outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from polymargin.rows import TrainingRows

Array = NDArray[Any]

__all__ = ["fold_numbers", "training_folds"]


def training_folds(data: TrainingRows, cv: Any = 5, random_state: Any = None) -> list[Array]:
    """Return the rows of every fold; each row is held out exactly once.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    cv : int, splitter, or iterable of (train, test) index arrays
        For a number, the rows of every class are dealt evenly into as many random folds, see
        `polymargin.dealing.Deal`, and the rows of a group stay together; no more folds are made than the largest class
        has rows, or groups. Anything else is as in scikit-learn, and its test sets must divide the rows; a splitter is
        given the groups, or the numbers of the rows where every row is a group of its own.
    random_state : int, RandomState instance or None
        For a number of folds, where the rows have not been dealt yet; None is the same as 0.

    Returns
    -------
    folds : list of ndarray of int
        The indices of the rows of every fold.

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> rows = TrainingRows(Linear(), np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 0, 1, 1]), np.ones(4))
    >>> [fold.tolist() for fold in training_folds(rows, 2)]
    [[0, 3], [1, 2]]
    """
    check_folds(cv)
    if isinstance(cv, Integral):
        largest = _observations_of_largest_class(data)
        if largest < 2:
            raise ValueError(
                f"every class has only one {'row' if data.groups is None else 'group'}, so none can be held out: give "
                'more of them, or choose a decoding that does not learn, such as "argmax"'
            )
        dealt = data if data.dealt is not None else data.shuffled(random_state)
        return dealt.deal.stratified_folds(min(int(cv), largest))
    n = data.class_index.size
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some of them, which is allowed.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        groups = data.groups
        if groups is None:  # also where the groups were exact copies, which are one row each by now
            groups = np.arange(n)
            warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
        splits = check_cv(cv, data.class_index, classifier=True).split(data.X, data.class_index, groups)
        folds = [np.asarray(test) for _, test in splits]
    held_out = np.bincount(np.concatenate(folds), minlength=n)
    if held_out.size != n or not (held_out == 1).all():
        raise ValueError("the test sets of cv must hold out every row exactly once")
    return folds


def check_folds(cv: Any) -> None:
    """Raise ValueError for a parameter ``cv`` that can stand for no folds.

    Parameters
    ----------
    cv : object
        What was given.
    """
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        if cv < 2:
            raise ValueError(f"cv must be at least 2 folds, not {cv}")
    elif isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise ValueError(f"cv must be a number of folds, a splitter or a list of splits, not {cv!r}")


def _observations_of_largest_class(data: TrainingRows) -> int:
    """Return the number of rows, or of groups, of the largest class."""
    classes = data.class_index
    if data.groups is not None:
        classes = np.unique(np.column_stack([data.groups, classes]), axis=0)[:, 1]
    return int(np.bincount(classes).max())


def fold_numbers(folds: Sequence[Array]) -> Array:
    """Return the fold of every row.

    Parameters
    ----------
    folds : sequence of ndarray of int
        The rows of every fold; together all n rows.

    Returns
    -------
    numbers : ndarray of int, shape (n,)
        The index of the fold of every row.
    """
    numbers = np.empty(sum(fold.size for fold in folds), dtype=np.intp)
    for number, fold in enumerate(folds):
        numbers[fold] = number
    return numbers
