"""Calibration: does what is given probability p come true with frequency p?

All take the true classes as indices into the columns of the probabilities, like `polymargin.metrics.scores`, and
compare in bins of equal mass (`polymargin.metrics._bins`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from polymargin.metrics._bins import BINS, Bins
from polymargin.metrics._checks import checked

__all__ = ["ReliabilityCurve", "calibration_error", "reliability_curve"]

Array = NDArray[Any]
Kind = Literal["top-label", "class-wise"]


@dataclass(frozen=True)
class ReliabilityCurve:
    """What was promised and what came true, bin by bin, in the order of the probabilities.

    Attributes
    ----------
    predicted, observed : ndarray of shape (B,)
        The mean probability of every bin, and how often its event happened.
    count : ndarray of int, shape (B,)
        Rows per bin.
    share : ndarray of shape (B,)
        The bins' shares of all rows, or of their weight; they sum to one.
    low, high : ndarray of shape (B,)
        Wilson's interval for the frequency behind `observed`.
    """

    predicted: Array
    observed: Array
    count: Array
    share: Array
    low: Array
    high: Array

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of observed from predicted, by share."""
        return float(self.share @ np.abs(self.observed - self.predicted))


def reliability_curve(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    of: int | None = None,
    n_bins: int | None = BINS,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
) -> ReliabilityCurve:
    """Compare probabilities with frequencies in bins of equal mass.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Class probabilities.
    of : int or None
        Whose probability: a class's, or the largest of each row (None), whose event is that the label is right.
    n_bins : int or None
        How many bins at most; None: one for every distinct probability.
    sample_weight : array-like of shape (n,) or None
        Row weights; rows of weight zero do not count.
    level : float
        Of the intervals, which with weights take (Σw)² / Σw² for the number of rows.

    Returns
    -------
    ReliabilityCurve

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    >>> curve.predicted, curve.observed, curve.count
    (array([0.6, 0.9]), array([0.5, 1. ]), array([2, 2]))
    """
    index, p, weights = checked(class_index, proba, sample_weight)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")
    if of is None:
        return _curve(p.max(axis=1), p.argmax(axis=1) == index, weights, n_bins, level)
    if not 0 <= of < p.shape[1]:
        raise ValueError(
            f"of must be None or a column of the probabilities, 0 to {p.shape[1] - 1}, not {of!r}"
        )
    return _curve(p[:, of], index == of, weights, n_bins, level)


def calibration_error(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    kind: Kind = "top-label",
    n_bins: int | None = BINS,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the expected calibration error, in bins of equal mass.

    Σ_bins share · abs(observed frequency − mean probability). Chance alone makes it positive: perfect probabilities
    have the mean absolute noise of a bin, which falls with the root of the rows per bin. `calibration_interval` allows
    for it.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Class probabilities.
    kind : {"top-label", "class-wise"}
        Of the largest probability of each row and whether that label is right; or of every class's probability,
        averaged over classes, each with its own bins.
    n_bins : int or None
        How many bins at most; None: one for every distinct probability.
    sample_weight : array-like of shape (n,) or None
        Row weights; rows of weight zero do not count.

    Returns
    -------
    error : float
        From 0 (perfect) to 1.

    See Also
    --------
    calibration_interval : The same with an interval that allows for chance.
    leave_one_out_calibration_error : For leave-one-out probabilities of data with equal rows.

    Examples
    --------
    >>> calibration_error([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    0.1
    """
    if kind not in ("top-label", "class-wise"):
        raise ValueError(f"kind must be 'top-label' or 'class-wise', not {kind!r}")
    index, p, weights = checked(class_index, proba, sample_weight)
    if kind == "top-label":
        return _error(p.max(axis=1), p.argmax(axis=1) == index, weights, n_bins)
    return float(np.mean([_error(p[:, k], index == k, weights, n_bins) for k in range(p.shape[1])]))


def _curve(
    probability: Array, happened: Array, weights: Array, n_bins: int | None, level: float
) -> ReliabilityCurve:
    bins = Bins.of(probability, weights, n_bins)
    predicted, observed = bins.mean(probability), bins.mean(happened)
    rows = np.square(bins.mass) / np.bincount(bins.number, np.square(weights))
    low, high = wilson_interval(observed, rows, level)
    return ReliabilityCurve(predicted, observed, np.bincount(bins.number), bins.share, low, high)


def _error(probability: Array, happened: Array, weights: Array, n_bins: int | None) -> float:
    bins = Bins.of(probability, weights, n_bins)
    return float(bins.share @ np.abs(bins.mean(happened) - bins.mean(probability)))


def wilson_interval(frequency: Array, n: Array, level: float) -> tuple[Array, Array]:
    """Return Wilson's interval for frequencies among n rows."""
    z = float(ndtri(0.5 + level / 2.0))
    centre = (frequency + z**2 / (2 * n)) / (1 + z**2 / n)
    # At a frequency of 0 or 1 rounding may leave a tiny negative number.
    spread = np.maximum(frequency * (1 - frequency), 0.0) / n + z**2 / (4 * n**2)
    half = z * np.sqrt(spread) / (1 + z**2 / n)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)
