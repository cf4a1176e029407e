"""Calibration: does what is given probability p come true with frequency p, and how far are we from the truth?

All take the true classes as indices into the columns of the probabilities, like `polymargin.metrics.scores`.

Bins hold equal numbers of rows (of weight, if rows have weights), and rows of equal probability are never parted: a
probability that many rows share is one bin however many rows that is, and constant probabilities make one bin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils import check_random_state

from polymargin.metrics.scores import brier_score, log_loss

__all__ = [
    "BrierDecomposition",
    "Divergence",
    "Interval",
    "ReliabilityCurve",
    "bootstrap_interval",
    "brier_decomposition",
    "calibration_error",
    "calibration_interval",
    "class_loss",
    "divergence_from_truth",
    "refinement",
    "reliability_curve",
]

Array = NDArray[Any]
Kind = Literal["top-label", "class-wise"]

_BINS = 15


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


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval around it."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class BrierDecomposition:
    """Murphy's parts of the Brier score.

    Attributes
    ----------
    calibration : float
        How far the frequencies of the bins are from their mean probabilities, squared; 0 is best.
    refinement : float
        The Brier score that would be left if every bin were given its own frequency; 0 is best.
    uncertainty : float
        The Brier score of the class shares given to all rows alike, which does not depend on the probabilities.
    within : float
        What binning leaves out because probabilities differ within bins; 0 where they do not, may be negative.
    """

    calibration: float
    refinement: float
    uncertainty: float
    within: float

    @property
    def resolution(self) -> float:
        """What the bins know beyond the class shares: uncertainty − refinement."""
        return self.uncertainty - self.refinement

    @property
    def brier(self) -> float:
        """The Brier score: calibration + refinement + within."""
        return self.calibration + self.refinement + self.within


@dataclass(frozen=True)
class Divergence:
    """How far probabilities are from the true posterior.

    Attributes
    ----------
    kl : float
        Mean Kullback–Leibler divergence from the truth in nats: the log-loss lost to it on average.
    absolute : float
        Mean of |estimate − truth| over rows and classes.
    excess_log_loss : float or None
        On the labels at hand, the log-loss minus that of the truth, whose expectation is `kl`; None without labels.
    """

    kl: float
    absolute: float
    excess_log_loss: float | None


class Score(Protocol):
    """A score of probabilities that takes row weights, such as `brier_score` or `calibration_error`."""

    def __call__(self, class_index: Any, proba: Any, /, *, sample_weight: Any) -> float:
        """Return the score."""
        ...


def reliability_curve(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    of: int | None = None,
    n_bins: int | None = _BINS,
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
    index, p, weights = _checked(class_index, proba, sample_weight)
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
    n_bins: int | None = _BINS,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the expected calibration error, in bins of equal mass.

    Σ_bins share · |observed frequency − mean probability|. Chance alone makes it positive: perfect probabilities have
    the mean |noise| of a bin, which falls with the root of the rows per bin. `calibration_interval` allows for it.

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

    Examples
    --------
    >>> calibration_error([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    0.1
    """
    if kind not in ("top-label", "class-wise"):
        raise ValueError(f"kind must be 'top-label' or 'class-wise', not {kind!r}")
    index, p, weights = _checked(class_index, proba, sample_weight)
    if kind == "top-label":
        return _error(p.max(axis=1), p.argmax(axis=1) == index, weights, n_bins)
    return float(np.mean([_error(p[:, k], index == k, weights, n_bins) for k in range(p.shape[1])]))


def brier_decomposition(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    n_bins: int | None = _BINS,
    sample_weight: ArrayLike | None = None,
) -> BrierDecomposition:
    """Split the Brier score into calibration and refinement (Murphy 1973), class by class in bins of equal mass.

    For class k with bins b of share s_b, mean probability p_b and frequency o_b, summed over classes:
    calibration = Σ s_b (p_b − o_b)², refinement = Σ s_b o_b (1 − o_b). With a bin for every distinct probability
    (``n_bins=None``) they sum to the Brier score; with fewer, `BrierDecomposition.within` is the rest.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Class probabilities.
    n_bins : int or None
        How many bins per class at most. None, a bin for every distinct probability, makes sense for few distinct
        values: where all differ every bin is one row, and refinement is zero.
    sample_weight : array-like of shape (n,) or None
        Row weights; rows of weight zero do not count.

    Examples
    --------
    >>> parts = brier_decomposition([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    >>> parts.calibration, parts.refinement, parts.brier
    (0.02, 0.25, 0.27)
    """
    index, p, weights = _checked(class_index, proba, sample_weight)
    calibration = refined = uncertainty = 0.0
    for k in range(p.shape[1]):
        bins = _Bins.of(p[:, k], weights, n_bins)
        predicted, observed = bins.mean(p[:, k]), bins.mean(index == k)
        calibration += float(bins.share @ np.square(predicted - observed))
        refined += float(bins.share @ (observed * (1.0 - observed)))
        overall = float(bins.share @ observed)
        uncertainty += overall * (1.0 - overall)
    whole = brier_score(index, p, sample_weight=weights)
    return BrierDecomposition(calibration, refined, uncertainty, whole - calibration - refined)


def refinement(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    n_bins: int | None = _BINS,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the Brier score that recalibrated probabilities would have, see `brier_decomposition`.

    Examples
    --------
    >>> refinement([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    0.25
    """
    return brier_decomposition(class_index, proba, n_bins=n_bins, sample_weight=sample_weight).refinement


def bootstrap_interval(
    score: Score,
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
    >>> p = np.tile([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]], (25, 1))
    >>> found = bootstrap_interval(brier_score, np.tile([0, 1, 1, 0], 25), p)
    >>> round(found.estimate, 3), round(found.low, 1), round(found.high, 1)
    (0.25, 0.2, 0.3)
    """
    _check_resampling(level, n_resamples)
    index, values = _indices(class_index), np.asarray(proba)
    weights = _weights(sample_weight, index.size)
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
    n_bins: int | None = _BINS,
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
    class_index, proba, kind, n_bins, sample_weight
        See `calibration_error`.
    level : float
        How often such intervals should hold the truth, at least.
    n_resamples : int
        How often to draw rows, and labels.
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
    index, p, weights = _checked(class_index, proba, sample_weight)
    random = check_random_state(0 if random_state is None else random_state)

    def error(labels: Array, row_weights: Array) -> float:
        return calibration_error(labels, p, kind=kind, n_bins=n_bins, sample_weight=row_weights)

    estimate = error(index, weights)
    resampled = np.array([error(index, w) for w in _draws(weights, n_resamples, random)])
    by_chance = np.array([error(labels, weights) for labels in _labels(p, n_resamples, random)])
    tail = (1.0 - level) / 2.0
    q_low, q_high = np.quantile(resampled, [tail, 1.0 - tail]) - resampled.mean()
    low = max(estimate - float(by_chance.mean()) + float(q_low), 0.0)
    if estimate <= np.quantile(by_chance, level):
        low = 0.0
    return Interval(estimate, low, min(estimate + float(q_high), 1.0))


def class_loss(class_index: ArrayLike, proba: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the share of rows whose true class does not have the largest probability (Bravo et al. 2010, §4.3).

    Of classes that share the largest probability the first has it, as in the estimators' labels.

    Examples
    --------
    >>> class_loss([0, 1, 1], [[0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    0.333...
    """
    index, p, weights = _checked(class_index, proba, sample_weight)
    return float(np.average(p.argmax(axis=1) != index, weights=weights))


def divergence_from_truth(
    true_posterior: ArrayLike,
    log_proba: ArrayLike,
    class_index: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> Divergence:
    """Measure estimated probabilities against a known posterior, as the `datasets` generators have it.

    Parameters
    ----------
    true_posterior : array-like of shape (n, K)
        Rows sum to one.
    log_proba : array-like of shape (n, K)
        Logarithms of the estimates. −inf where the truth is not zero makes the divergence infinite.
    class_index : array-like of int, shape (n,), optional
        Labels drawn from the truth, for the excess log-loss.
    sample_weight : array-like of shape (n,) or None
        Row weights.

    Returns
    -------
    Divergence

    Examples
    --------
    >>> found = divergence_from_truth([[0.5, 0.5], [0.9, 0.1]], np.log([[0.5, 0.5], [0.8, 0.2]]))
    >>> found.kl, found.absolute
    (0.0183..., 0.05)
    """
    P = np.asarray(true_posterior, dtype=np.float64)
    logs = np.asarray(log_proba, dtype=np.float64)
    if P.ndim != 2 or P.size == 0 or P.shape != logs.shape:
        raise ValueError(f"truth and estimates must have one shape (n, K), not {P.shape} and {logs.shape}")
    _check_proba(P, "true_posterior")
    with np.errstate(over="ignore"):  # what is too large for a probability is refused
        Q = np.exp(logs)
    _check_proba(Q, "exp(log_proba)")
    weights = _weights(sample_weight, len(P))
    shares = weights / weights.sum()
    log_P = np.log(P, out=np.zeros_like(P), where=P > 0.0)
    lost = np.multiply(P, log_P - logs, out=np.zeros_like(P), where=P > 0.0)
    excess = None
    if class_index is not None:
        index = _indices(class_index)
        _check_classes(index, P)
        impossible = P[np.arange(index.size), index] == 0.0
        if impossible[weights > 0.0].any():
            row = int(np.flatnonzero(impossible & (weights > 0.0))[0])
            raise ValueError(
                f"row {row} has a label that true_posterior says is impossible: are the columns in order?"
            )
        excess = log_loss(index, logs, sample_weight=weights) - log_loss(index, log_P, sample_weight=weights)
    return Divergence(
        kl=max(float(shares @ lost.sum(axis=1)), 0.0),
        absolute=float(shares @ np.abs(P - Q).mean(axis=1)),
        excess_log_loss=excess,
    )


@dataclass(frozen=True)
class _Bins:
    """Which bin each row is in, bins in order and none of them empty."""

    number: Array
    weights: Array
    mass: Array

    @classmethod
    def of(cls, values: Array, weights: Array, n_bins: int | None) -> _Bins:
        """Cut values into bins of equal weight; a distinct value goes where the middle of its weight lies."""
        distinct, place = np.unique(values, return_inverse=True)
        if n_bins is not None:
            if n_bins < 1:
                raise ValueError(f"n_bins must be None or at least 1, not {n_bins!r}")
            mass = np.bincount(place, weights, minlength=distinct.size)
            middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
            _, filled = np.unique(
                np.minimum((middle * n_bins).astype(np.intp), n_bins - 1), return_inverse=True
            )
            place = filled[place]
        return cls(place, weights, np.bincount(place, weights))

    @property
    def share(self) -> Array:
        return self.mass / self.mass.sum()

    def mean(self, values: Array) -> Array:
        """Return the weighted mean of values in every bin."""
        return np.bincount(self.number, self.weights * values) / self.mass


def _curve(
    probability: Array, happened: Array, weights: Array, n_bins: int | None, level: float
) -> ReliabilityCurve:
    bins = _Bins.of(probability, weights, n_bins)
    predicted, observed = bins.mean(probability), bins.mean(happened)
    rows = np.square(bins.mass) / np.bincount(bins.number, np.square(weights))
    low, high = _wilson(observed, rows, level)
    return ReliabilityCurve(predicted, observed, np.bincount(bins.number), bins.share, low, high)


def _error(probability: Array, happened: Array, weights: Array, n_bins: int | None) -> float:
    bins = _Bins.of(probability, weights, n_bins)
    return float(bins.share @ np.abs(bins.mean(happened) - bins.mean(probability)))


def _wilson(frequency: Array, n: Array, level: float) -> tuple[Array, Array]:
    """Return Wilson's interval for frequencies among n rows."""
    z = float(ndtri(0.5 + level / 2.0))
    centre = (frequency + z**2 / (2 * n)) / (1 + z**2 / n)
    # At a frequency of 0 or 1 rounding may leave a tiny negative number.
    spread = np.maximum(frequency * (1 - frequency), 0.0) / n + z**2 / (4 * n**2)
    half = z * np.sqrt(spread) / (1 + z**2 / n)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


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


def _checked(
    class_index: ArrayLike, proba: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return classes, probabilities and weights of the rows that count."""
    index, p = _indices(class_index), np.asarray(proba, dtype=np.float64)
    _check_classes(index, p)
    _check_proba(p, "proba")
    weights = _weights(sample_weight, index.size)
    rows = weights > 0.0
    return (index, p, weights) if rows.all() else (index[rows], p[rows], weights[rows])


def _indices(class_index: ArrayLike) -> Array:
    index = np.asarray(class_index)
    if index.ndim != 1 or index.size == 0 or not np.issubdtype(index.dtype, np.integer):
        raise ValueError(
            "class_index must be a list of whole numbers, the columns of the true classes: "
            "np.searchsorted(model.classes_, y) makes them of labels"
        )
    return index


def _check_classes(index: Array, p: Array) -> None:
    if p.ndim != 2 or len(p) != index.size:
        raise ValueError(f"the probabilities must have shape ({index.size}, K), not {p.shape}")
    if index.min() < 0 or index.max() >= p.shape[1]:
        raise ValueError(f"class_index must lie between 0 and {p.shape[1] - 1}, one column per class")


def _check_proba(p: Array, name: str) -> None:
    if not (p >= 0.0).all() or not np.allclose(p.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError(f"{name} must hold probabilities: none negative, each row with sum one")


def _weights(sample_weight: ArrayLike | None, n: int) -> Array:
    if sample_weight is None:
        return np.ones(n)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have one weight for each of the {n} rows, not shape {weights.shape}"
        )
    if not np.isfinite(weights).all() or (weights < 0.0).any() or not weights.any():
        raise ValueError("sample_weight must be finite and not negative, and not zero for all rows")
    return weights
