"""Calibration from leave-one-out probabilities where rows are equal in X: cells of several rows.

A leave-one-out probability leans against the row's own label: of equal rows, those of a class are given a little less
of it than the others. Bins that sort rows by probability then separate a cell by its labels, and the calibration error
is far too large. Bins of whole cells err the other way: the mean of the leave-one-out probabilities of a cell is about
the frequency of its classes, however noisy that is, so that an overfitted model looks perfect.

Neither happens if half of a cell's rows are left out together: they have one probability, which does not depend on
their labels, and cells of two rows are as they were. It follows from the leave-one-out probabilities if these are
linear in the labels of the cell, as of least squares and of frequencies: with the leverage H of a row and the labels y,

    p⁻ⁱ = (p − H yᵢ) / (1 − H),     p⁻ᴳ = (p − H Σ_G yᵢ) / (1 − |G| H),

where H / (1 − H) is minus the slope of the regression of p⁻ⁱ on yᵢ within the cell. The model of the other half is a
little worse than that of all rows, and only half of the rows are judged: the calibration error is rather too large than
too small, by up to about 1.4 times where cells are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from polymargin.metrics._bins import BINS
from polymargin.metrics._checks import checked
from polymargin.metrics.calibration import Kind, calibration_error

__all__ = ["HalvesOut", "leave_halves_out", "leave_one_out_calibration_error"]

Array = NDArray[Any]


@dataclass(frozen=True)
class HalvesOut:
    """Half of the rows of every cell, with the probabilities that do without them.

    Attributes
    ----------
    rows : ndarray of int, shape (m,)
        The rows.
    proba : ndarray of shape (m, K)
        Their class probabilities.
    weights : ndarray of shape (m,)
        Their weights: every cell keeps its own.
    whole : bool
        Whether these are all rows, since no two are equal.
    """

    rows: Array
    proba: Array
    weights: Array
    whole: bool


def leave_halves_out(
    class_index: ArrayLike,
    proba: ArrayLike,
    cells: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> HalvesOut:
    """Draw half of the rows of every cell; return them with the probabilities that leave all of them out.

    A row that is alone in its cell stays, with its leave-one-out probability. Probabilities that differ by nothing but
    the row's own label, as of a model that is constant, make all rows one cell.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Leave-one-out class probabilities.
    cells : array-like of int, shape (n,)
        A number for every row, the same for rows that are equal in X.
    sample_weight : array-like of shape (n,) or None
        Row weights; rows of weight zero are left out.
    random_state : int, RandomState instance or None
        For the halves; None is the same as 0.

    Returns
    -------
    HalvesOut

    Examples
    --------
    >>> half = leave_halves_out([0, 0, 1, 1], [[1 / 3, 2 / 3]] * 2 + [[2 / 3, 1 / 3]] * 2, [0, 0, 0, 0])
    >>> half.rows.size, bool((half.proba == half.proba[0]).all())
    (2, True)
    """
    index, p, weights = checked(class_index, proba, sample_weight)
    kept = np.arange(len(np.asarray(cells)))
    if sample_weight is not None:
        kept = np.flatnonzero(np.asarray(sample_weight))
    cell = np.unique(np.asarray(cells)[kept], return_inverse=True)[1].ravel()
    if cell.shape != index.shape:
        raise ValueError(f"cells must have one number for each of the {index.size} rows")
    labels = np.eye(p.shape[1])[index]
    if _is_constant(labels, p, weights):
        cell = np.zeros_like(cell)
    if cell.max() + 1 == cell.size:
        return HalvesOut(kept, p, weights, whole=True)
    random = check_random_state(0 if random_state is None else random_state)
    size = np.bincount(cell)
    drawn = np.maximum((size + random.randint(0, 2, size.size)) // 2, 1)
    order = np.lexsort((random.random_sample(cell.size), cell))
    rank = np.arange(cell.size) - (np.cumsum(size) - size)[cell[order]]
    out = np.sort(order[rank < drawn[cell[order]]])
    left_out = np.zeros(cell.size, dtype=bool)
    left_out[out] = True
    without = _without(labels, p, cell, left_out)
    # Where one row is left out, its probability is known.
    known = drawn[cell[out]] == 1
    found = np.where(known[:, np.newaxis], p[out], without[cell[out]])
    total, of_drawn = np.bincount(cell, weights), np.bincount(cell, weights * left_out)
    return HalvesOut(kept[out], found, weights[out] * (total / of_drawn)[cell[out]], whole=False)


def leave_one_out_calibration_error(
    class_index: ArrayLike,
    proba: ArrayLike,
    cells: ArrayLike,
    *,
    kind: Kind = "top-label",
    n_bins: int | None = BINS,
    sample_weight: ArrayLike | None = None,
    n_rounds: int = 20,
    random_state: Any = None,
) -> float:
    """Return the calibration error of leave-one-out probabilities, the mean over several halves of the cells.

    Where no two rows are equal it is `calibration_error`.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Leave-one-out class probabilities.
    cells : array-like of int, shape (n,)
        A number for every row, the same for rows that are equal in X.
    kind : {"top-label", "class-wise"}
        See `calibration_error`.
    n_bins : int or None
        How many bins at most; None: one for every distinct probability.
    sample_weight : array-like of shape (n,) or None
        Row weights; rows of weight zero are left out.
    n_rounds : int
        How often to draw the halves.
    random_state : int, RandomState instance or None
        For the halves; None is the same as 0.

    Returns
    -------
    error : float
        The calibration error.

    See Also
    --------
    leave_halves_out : What is drawn in every round.
    calibration_error : For probabilities of new rows.

    Examples
    --------
    >>> index = np.repeat([0, 1], [30, 70])  # equal rows, and the frequencies of the 99 others
    >>> p = (np.array([30, 70]) - np.eye(2)[index]) / 99
    >>> calibration_error(index, p) > 0.3, leave_one_out_calibration_error(index, p, np.zeros(100)) < 0.15
    (True, True)
    """
    random = check_random_state(0 if random_state is None else random_state)
    index, errors = np.asarray(class_index), []
    for _ in range(n_rounds):
        half = leave_halves_out(index, proba, cells, sample_weight=sample_weight, random_state=random)
        errors.append(
            calibration_error(
                index[half.rows], half.proba, kind=kind, n_bins=n_bins, sample_weight=half.weights
            )
        )
        if half.whole:
            break  # all rounds are the same
    return float(np.mean(errors))


def _is_constant(labels: Array, p: Array, weights: Array) -> bool:
    """Tell whether probabilities differ more by the row's own label, which they lean against, than otherwise."""
    shares = weights / weights.sum()
    mean, frequencies = shares @ p, shares @ labels
    if float(shares @ ((p - mean) * (labels - frequencies)).sum(axis=1)) >= 0.0:
        return False
    of_class = (labels * shares[:, np.newaxis]).T @ p / np.maximum(frequencies, 1e-300)[:, np.newaxis]
    between = float(frequencies @ np.square(of_class - mean).sum(axis=1))
    within = float(shares @ np.square(p - labels @ of_class).sum(axis=1))
    return between >= within


def _without(labels: Array, p: Array, cell: Array, left_out: Array) -> Array:
    """Return the probabilities of every cell without the rows that are left out of it, shape (cells, K)."""
    size = np.bincount(cell)

    def sums(values: Array) -> Array:
        return np.stack([np.bincount(cell, column, size.size) for column in values.T], axis=1)

    frequencies, mean = sums(labels) / size[:, np.newaxis], sums(p) / size[:, np.newaxis]
    apart = labels - frequencies[cell]
    shift = -np.bincount(cell, ((p - mean[cell]) * apart).sum(axis=1))
    spread = np.bincount(cell, np.square(apart).sum(axis=1))
    # H / (1 − H) in units of what it is if the other rows of the cell determine the probability alone.
    mixed = (size > 1) & (spread > 1e-9)
    share = np.zeros(size.size)
    share[mixed] = np.clip(shift[mixed] / spread[mixed] * (size[mixed] - 1), 0.0, 1.0)
    if mixed.any():
        # A cell of one class shows no shift: that of the others.
        share[~mixed] = np.average(share[mixed], weights=size[mixed])
    ratio = share / np.maximum(size - 1, 1)
    leverage = (ratio / (1.0 + ratio))[:, np.newaxis]
    whole = (1.0 - leverage) * mean + leverage * frequencies
    gone = sums(labels * left_out[:, np.newaxis])
    rest = np.maximum(1.0 - leverage * gone.sum(axis=1, keepdims=True), 1e-9)
    found = np.clip((whole - leverage * gone) / rest, 0.0, 1.0)
    # Equal probabilities stay equal: rounding must not sort the cells.
    return np.round(found / found.sum(axis=1, keepdims=True), 12)
