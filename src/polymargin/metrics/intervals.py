"""Intervals around scores and around the calibration error, by drawing rows and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from polymargin.metrics._bins import BINS
from polymargin.metrics._checks import checked, indices, row_weights
from polymargin.metrics.calibration import Kind, calibration_error

__all__ = ["Interval", "bootstrap_interval", "calibration_interval"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval.

    Attributes
    ----------
    estimate : float
        The estimate.
    low, high : float
        The ends of the interval.
    """

    estimate: float
    low: float
    high: float


class Metric(Protocol):
    """A score of probabilities that takes row weights, such as `brier_score` or `calibration_error`."""

    def __call__(self, class_index: Any, proba: Any, /, *, sample_weight: Any) -> float:
        """Return the score."""
        ...


def bootstrap_interval(
    score: Metric,
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> Interval:
    """Return the basic bootstrap interval of a score that is a mean over rows, by drawing rows with replacement.

    With q the quantiles of the resampled scores it runs from 2 estimate − q_high to 2 estimate − q_low. A calibration
    error is not such a mean, since noise can only raise it: `calibration_interval` is for that.

    Parameters
    ----------
    score : callable
        ``score(class_index, proba, sample_weight=...)``: `brier_score`, `log_loss` (then ``proba`` are logarithms),
        `class_loss`, `accuracy` (then ``proba`` are labels), `refinement`, or a function around one of them.
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, ...)
        What the score takes.
    level : float
        How often such intervals should hold the truth.
    n_resamples : int
        How often to draw.
    sample_weight : array-like of shape (n,) or None
        Row weights; they stay with their rows.
    random_state : int, RandomState instance or None
        For the draws; None is the same as 0.

    Returns
    -------
    Interval

    Examples
    --------
    >>> from polymargin.metrics import brier_score
    >>> p = np.tile([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]], (25, 1))
    >>> found = bootstrap_interval(brier_score, np.tile([0, 1, 1, 0], 25), p)
    >>> round(found.estimate, 3), round(found.low, 1), round(found.high, 1)
    (0.25, 0.2, 0.3)
    """
    _check_resampling(level, n_resamples)
    index, values = indices(class_index), np.asarray(proba)
    weights = row_weights(sample_weight, index.size)
    estimate = float(score(index, values, sample_weight=weights))
    random = check_random_state(0 if random_state is None else random_state)
    resampled = [score(index, values, sample_weight=w) for w in _draws(weights, n_resamples, random)]
    tail = (1.0 - level) / 2.0
    q_low, q_high = np.quantile(resampled, [tail, 1.0 - tail])
    return Interval(estimate, float(2.0 * estimate - q_high), float(2.0 * estimate - q_low))


def calibration_interval(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    kind: Kind = "top-label",
    n_bins: int | None = BINS,
    level: float = 0.95,
    n_resamples: int = 1000,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> Interval:
    """Return `calibration_error` with an interval that allows for what chance alone adds to it.

    Chance adds most to perfect probabilities: as much as the error of labels drawn from the probabilities themselves
    has on average. Far from perfect it adds nothing. So the interval begins below the estimate by that mean and the
    spread of a bootstrap of the rows, and ends above the estimate by that spread alone; it begins at zero where labels
    drawn from the probabilities reach the estimate often enough. It is wide rather than wrong.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Class probabilities.
    kind : str
        The kind of calibration, see `calibration_error`.
    n_bins : int or None
        The number of bins, see `calibration_error`.
    level : float
        The least coverage of the interval.
    n_resamples : int
        The number of draws of rows, and of labels.
    sample_weight : array-like of shape (n,) or None
        Row weights.
    random_state : int, RandomState instance or None
        For the draws; None is the same as 0.

    Returns
    -------
    Interval

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> p = generator.uniform(0.5, 1.0, 400)
    >>> index = (generator.random(400) > p).astype(int)
    >>> found = calibration_interval(index, np.column_stack([p, 1 - p]), n_resamples=200)
    >>> found.estimate > 0.03, found.low
    (True, 0.0)
    """
    _check_resampling(level, n_resamples)
    index, p, weights = checked(class_index, proba, sample_weight)
    random = check_random_state(0 if random_state is None else random_state)

    def error(labels: Array, w: Array) -> float:
        return calibration_error(labels, p, kind=kind, n_bins=n_bins, sample_weight=w)

    estimate = error(index, weights)
    resampled = np.array([error(index, w) for w in _draws(weights, n_resamples, random)])
    by_chance = np.array([error(labels, weights) for labels in _labels(p, n_resamples, random)])
    tail = (1.0 - level) / 2.0
    q_low, q_high = np.quantile(resampled, [tail, 1.0 - tail]) - resampled.mean()
    low = max(estimate - float(by_chance.mean()) + float(q_low), 0.0)
    if estimate <= np.quantile(by_chance, level):
        low = 0.0
    return Interval(estimate, low, min(estimate + float(q_high), 1.0))


def _draws(weights: Array, n_resamples: int, random: np.random.RandomState) -> Iterator[Array]:
    """Yield row weights of samples with replacement, none of weight zero as a whole."""
    even = np.full(weights.size, 1.0 / weights.size)
    for _ in range(n_resamples):
        drawn = weights * random.multinomial(weights.size, even)
        yield drawn if drawn.any() else weights


def _labels(p: Array, n_draws: int, random: np.random.RandomState) -> Iterator[Array]:
    """Yield labels drawn from the probabilities of every row."""
    edges = np.cumsum(p, axis=1)[:, :-1]
    for _ in range(n_draws):
        yield (random.random_sample((len(p), 1)) >= edges).sum(axis=1)


def _check_resampling(level: float, n_resamples: int) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")
    if n_resamples < 2:
        raise ValueError(f"n_resamples must be at least 2, not {n_resamples!r}")
