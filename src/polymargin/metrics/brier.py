"""The parts of the Brier score: calibration and refinement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polymargin.metrics._bins import BINS, Bins
from polymargin.metrics._checks import checked
from polymargin.metrics.scores import brier_score

__all__ = ["BrierDecomposition", "brier_decomposition", "refinement"]


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


def brier_decomposition(
    class_index: ArrayLike,
    proba: ArrayLike,
    *,
    n_bins: int | None = BINS,
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

    Returns
    -------
    BrierDecomposition

    References
    ----------
    .. [1] A. H. Murphy, "A New Vector Partition of the Probability Score", Journal of Applied Meteorology 12, 1973.

    Examples
    --------
    >>> parts = brier_decomposition([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    >>> parts.calibration, parts.refinement, parts.brier
    (0.02, 0.25, 0.27)
    """
    index, p, weights = checked(class_index, proba, sample_weight)
    calibration = refined = uncertainty = 0.0
    for k in range(p.shape[1]):
        bins = Bins.of(p[:, k], weights, n_bins)
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
    n_bins: int | None = BINS,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the Brier score that recalibrated probabilities would have.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Class probabilities.
    n_bins : int or None
        The most bins per class, see `brier_decomposition`.
    sample_weight : array-like of shape (n,) or None
        Row weights.

    Returns
    -------
    float

    See Also
    --------
    brier_decomposition : All parts of the Brier score.

    Examples
    --------
    >>> refinement([0, 1, 0, 0], [[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    0.25
    """
    return brier_decomposition(class_index, proba, n_bins=n_bins, sample_weight=sample_weight).refinement
