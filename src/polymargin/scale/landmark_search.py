"""Gamma and C of landmark machines: by the log-loss of a decoder that is cross-fitted to their honest outputs.

What is best for exact machines of a sample is not best for landmarks of all rows. Landmarks represent a smoother kernel
more closely, and with more rows the outputs that decode best are those of a smaller C: they grow with the logit of the
class probabilities, where outputs of a large C saturate at ±1. (Waveform, 100 000 rows: gamma and C of the sample have
an excess of 0.015 over the true posterior, an eighth of gamma and 1/4096 of the C of least PRESS 0.0024.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from numpy.typing import NDArray

from polymargin.codebooks import Codebook, one_vs_all
from polymargin.decoders._base import significant
from polymargin.rows import TrainingRows
from polymargin.scale.feature_maps import FeatureMap
from polymargin.scale.landmark_bank import LandmarkBank, choose_ridge, features_of, fit_landmark_bank
from polymargin.scale.statistics import ClassStatistics

Array = NDArray[Any]

#: The number of rows on which gamma is chosen: of some thousand rows the log-losses are known to one per cent.
_ROWS = 8000
#: Gamma is divided by this, at most so many times.
_GAMMA_STEP, _GAMMA_STEPS = 8.0, 3
#: C is divided by this on the sample, and by the smaller step with all rows, at most so many times.
_C_STEP, _C_STEPS, _FINE_STEP = 16.0, 12, 4.0
#: Codebooks with more groups of columns are searched with one-vs-all machines, which share one factorisation.
_MOST_GROUPS = 10


class Judge(Protocol):
    """Judges honest outputs by a decoder that is cross-fitted to them."""

    def __call__(self, codebook: Codebook, rows: TrainingRows, honest: Array) -> tuple[Array, Array]:
        """Return the log-loss of every row, and the weights of the rows."""

    def can_read(self, codebook: Codebook) -> bool:
        """Return whether the decoder can read outputs of a codebook."""


@dataclass(frozen=True)
class Searched:
    """What was found.

    Attributes
    ----------
    features : FeatureMap
        The feature map, with its gamma.
    smaller : float
        The factor by which C is smaller than the C of least PRESS.
    C : float or None
        This C on the sample; None if it was not searched.
    """

    features: FeatureMap
    smaller: float
    C: float | None = None


@dataclass(frozen=True)
class _Machines:
    """Machines in a feature space, for any C, with their losses."""

    statistics: ClassStatistics
    features: FeatureMap
    codebook: Codebook
    rows: TrainingRows
    judge: Judge

    @cached_property
    def phi(self) -> Array:
        """The features of the rows."""
        return features_of(self.features, self.rows.X)

    @cached_property
    def ridge(self) -> float:
        """The ridge of least PRESS."""
        return choose_ridge(self.statistics, self.rows, self.phi)

    def losses(self, C: float) -> tuple[Array, Array]:
        """Return the losses of the rows, and their weights."""
        honest = fit_landmark_bank(
            self.statistics, self.features, self.codebook, C, self.rows, self.phi, measure_error=False
        )[2]
        return self.judge(self.codebook, self.rows, honest)

    def follow(self, start: float, step: float, significance: float) -> tuple[float, Array, Array]:
        """Divide C while that lowers the log-loss, or else multiply it; return C, losses and weights.

        The steps follow the mean to its least value, which must then be better than the start by more than chance: a
        long way down may have steps that are not.
        """
        first, weights = self.losses(start)
        best, losses = start, first
        for factor in (1.0 / step, step):
            for _ in range(_C_STEPS):
                tried, _ = self.losses(best * factor)
                if weights @ tried >= weights @ losses:
                    break
                best, losses = best * factor, tried
            if best != start or start * self.ridge >= 1.0:
                break
        if best != start and not significant(first - losses, weights, significance):
            return start, first, weights
        return best, losses, weights


def _searched_codebook(codebook: Codebook, judge: Judge) -> Codebook | None:
    """Return the codebook by which C is searched; None if the decoder cannot read it."""
    if len(codebook.column_groups) > _MOST_GROUPS:
        codebook = one_vs_all(codebook.n_classes)
    return codebook if judge.can_read(codebook) else None


def search_feature_map(
    make: Callable[[float], FeatureMap],
    statistics_of: Callable[[FeatureMap, TrainingRows], ClassStatistics],
    gamma: float,
    rows: TrainingRows,
    codebook: Codebook,
    judge: Judge,
    *,
    significance: float,
    fixed_gamma: bool,
) -> Searched:
    """Choose gamma, and how much smaller C is than the C of least PRESS, on a sample.

    Parameters
    ----------
    make : callable (gamma) -> FeatureMap
        Makes a feature map.
    statistics_of : callable (feature map, TrainingRows) -> ClassStatistics
        The statistics of rows.
    gamma : float
        The kernel's parameter to begin with.
    rows : TrainingRows
        A sample of the rows, with the kernel.
    codebook : Codebook
        The dichotomies.
    judge : Judge
        The decoder.
    significance : float
        How many standard errors a change must gain.
    fixed_gamma : bool
        Whether gamma is given.

    Returns
    -------
    Searched
    """
    searched = _searched_codebook(codebook, judge)
    features = make(gamma)
    if searched is None:
        return Searched(features, 1.0)
    n = rows.class_index.size
    if n > _ROWS:
        rows = rows.take(rows.deal.sample(_ROWS / n))

    def follow(features: FeatureMap, smaller: float) -> tuple[Searched, Array, Array]:
        machines = _Machines(statistics_of(features, rows), features, searched, rows, judge)
        C, losses, weights = machines.follow(1.0 / (machines.ridge * smaller), _C_STEP, significance)
        return Searched(features, 1.0 / (machines.ridge * C), C), losses, weights

    found, losses, weights = follow(features, 1.0)
    for _ in range(0 if fixed_gamma or not rows.kernel.tunable else _GAMMA_STEPS):
        gamma /= _GAMMA_STEP
        other, lower, _ = follow(make(gamma), found.smaller)
        # A smoother kernel is as safe: it need not be better by more than chance.
        if weights @ lower >= weights @ losses:
            break
        found, losses = other, lower
    return found


def fit_searched(
    found: Searched,
    statistics: ClassStatistics,
    codebook: Codebook,
    rows: TrainingRows,
    judge: Judge | None,
    *,
    significance: float,
    **options: Any,
) -> tuple[LandmarkBank, Array, Array]:
    """Train landmark machines of all rows, with a C that is searched around the one of a sample.

    Parameters
    ----------
    found : Searched
        The feature map, and C on a sample.
    statistics : ClassStatistics
        The statistics of all rows.
    codebook : Codebook
        The dichotomies.
    rows : TrainingRows
        The decoder's sample.
    judge : Judge or None
        The decoder; None if it learns no probabilities.
    significance : float
        How many standard errors a change must gain.
    **options
        Further arguments of `polymargin.scale.landmark_bank.fit_landmark_bank`.

    Returns
    -------
    bank : LandmarkBank
    exact, honest : ndarray of shape (n, L)
        The leave-one-out margins of the sample, and the same without the shift of the target mean.
    """
    phi = features_of(found.features, rows.X)
    searched = None if judge is None else _searched_codebook(codebook, judge)
    if judge is None or searched is None or found.C is None:
        C = 1.0 / (choose_ridge(statistics, rows, phi) * found.smaller)
    else:
        # From the C of the sample, not from that of least PRESS, which hardly depends on C where there are many rows
        # for every feature, and may be far from where the log-loss is least.
        machines = _Machines(statistics, found.features, searched, rows, judge)
        machines.__dict__.update(phi=phi)
        C = machines.follow(found.C, _FINE_STEP, significance)[0]
    return fit_landmark_bank(statistics, found.features, codebook, C, rows, phi, **options)
