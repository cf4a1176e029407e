"""Folds: which rows are held out together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, check_cv

Array = NDArray[Any]

__all__ = ["fold_numbers", "out_of_fold"]


def out_of_fold(class_index: Array, cv: Any = 5, random_state: Any = None) -> list[Array]:
    """Return the rows of every fold, such that each row is held out exactly once.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        The class of every row.
    cv : int, splitter, or iterable of (train, test) index arrays
        A number of folds has the rows of every class shuffled and dealt out evenly; no more folds are made than the
        largest class has rows. Anything else is as in scikit-learn, and its test sets must divide the rows.
    random_state : int, RandomState instance or None
        For a number of folds; None is the same as 0, so that a fit can be repeated.

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
        n_folds = max(2, min(int(cv), int(np.bincount(class_index).max())))
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


def fold_numbers(folds: Sequence[Array]) -> Array:
    """Return the number of every row's fold, shape (n,)."""
    numbers = np.empty(sum(fold.size for fold in folds), dtype=np.intp)
    for number, fold in enumerate(folds):
        numbers[fold] = number
    return numbers
