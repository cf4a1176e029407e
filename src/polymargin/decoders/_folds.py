"""How the rows that a decoder learns from are dealt into folds."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from polymargin.decoders._base import Array


def deal_rows(features: Array, class_index: Array, n_folds: int, random_state: Any = None) -> list[Array]:
    """Return the rows of every fold: the rows of every class, shuffled and dealt out evenly.

    Copies of a row go to the same fold, even if they are of different classes, and the order of the rows does not
    matter, so that a row of weight two is dealt like the row twice, and one with a soft label like one row.

    Examples
    --------
    >>> [fold.tolist() for fold in deal_rows(np.array([[3.0], [1.0], [3.0], [2.0]]), np.array([0, 0, 0, 0]), 3)]
    [[1], [0, 2], [3]]
    """
    random = random_from(random_state)
    # Rows that differ at all differ along a direction as odd as this, except by rounding.
    place = features @ np.cos(1.0 + np.arange(features.shape[1]))
    order = np.lexsort((class_index, place))
    fresh = np.diff(place[order], prepend=-np.inf) > 1e-9 * np.abs(place).max(initial=0.0)
    group = np.cumsum(fresh) - 1
    # The groups of one class after those of another, each class in an order of its own.
    shuffled = np.lexsort((random.uniform(size=fresh.sum()), class_index[order][fresh]))
    fold = np.empty(shuffled.size, dtype=np.intp)
    fold[shuffled] = np.arange(shuffled.size) % n_folds
    of_row = np.empty(order.size, dtype=np.intp)
    of_row[order] = fold[group]
    return [rows for number in range(n_folds) if (rows := np.flatnonzero(of_row == number)).size]


def random_from(random_state: Any) -> Any:
    """Return a generator; None is the same as 0."""
    return check_random_state(0 if random_state is None else random_state)
