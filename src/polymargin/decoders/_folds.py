"""How the rows that a decoder learns from are dealt into folds."""

from __future__ import annotations

import numpy as np

from polymargin.decoders._base import Array


def deal_rows(outputs: Array, class_index: Array, n_folds: int) -> list[Array]:
    """Return the rows of every fold: the rows of every class, in the order of their outputs' size, dealt out in turn.

    Every fold has its share of every class, and of clear and doubtful rows. Copies of a row go to the same fold, even
    if they are of different classes, so that a row of weight two is dealt like the row twice, and one with a soft label
    like one row. Neither the order of the rows nor the numbering of the classes matters: exchanging two classes
    exchanges columns of the outputs, or their signs, which their size does not see.

    Parameters
    ----------
    outputs : ndarray of shape (n, L)
        What the machines say.
    class_index : ndarray of int, shape (n,)
        The classes.
    n_folds : int
        How many folds there are to be, at most.

    Examples
    --------
    >>> [fold.tolist() for fold in deal_rows(np.array([[3.0], [1.0], [3.0], [2.0]]), np.array([0, 0, 0, 0]), 3)]
    [[1], [3], [0, 2]]
    """
    size = np.sqrt(np.einsum("nl,nl->n", outputs, outputs))
    # Different outputs of the same size differ along a direction as odd as this.
    place = outputs @ np.cos(1.0 + np.arange(outputs.shape[1]))
    order = np.lexsort((class_index, place, (size / max(size.max(initial=0.0), 1e-300)).round(6)))
    # Equal but for rounding is equal: machines that are hardly regularised say of copies what rounding leaves.
    same = np.abs(np.diff(size[order])) <= 1e-6 * size[order][1:]
    same &= np.abs(np.diff(place[order])) <= 1e-6 * size[order][1:]
    fresh = np.append(True, ~same)
    group = np.cumsum(fresh) - 1
    of_group = class_index[order][fresh]
    by_class = np.argsort(of_group, kind="stable")
    first = np.searchsorted(of_group[by_class], of_group[by_class])
    fold_of_group = np.empty(by_class.size, dtype=np.intp)
    fold_of_group[by_class] = (np.arange(by_class.size) - first) % n_folds
    fold = np.empty(order.size, dtype=np.intp)
    fold[order] = fold_of_group[group]
    return [rows for number in range(n_folds) if (rows := np.flatnonzero(fold == number)).size]
