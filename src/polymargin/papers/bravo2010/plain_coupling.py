"""Coupling with sigmoids of plain maximum likelihood, to the end or stopped early, as the paper's text may be read."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from polymargin.codebooks import Codebook
from polymargin.decoders import Coupling
from polymargin.decoders._base import Array
from polymargin.decoders._platt import Sigmoids, fit_sigmoids
from polymargin.outputs import Outputs

__all__ = ["PlainCoupling", "newton_sigmoids"]

#: On the diagonal of the curvature: far out there is none left.
_LEAST_CURVATURE = 1e-12


class PlainCoupling(Coupling):
    """`Coupling` with sigmoids fitted to zeros and ones: "by maximum likelihood", without Platt's smoothed targets.

    Where a pair of classes is separated the likelihood has no maximum and the sigmoid becomes as steep as rounding lets
    it, so the probabilities claim too much; unless the fit is stopped early. It is here for comparison.

    Parameters
    ----------
    method, in_sample
        See `Coupling`.
    least_gain : float or None
        The fit of a sigmoid, by Newton steps from 1/(1 + exp(−z)), ends with the first that gains less than this in
        log-likelihood. None fits it to the end.
    """

    def __init__(
        self, method: str | None = None, in_sample: bool = False, *, least_gain: float | None = None
    ) -> None:
        super().__init__(method, in_sample=in_sample)
        self.least_gain = least_gain

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> PlainCoupling:
        """Fit a sigmoid to the outputs of every machine."""
        super().fit(codebook, outputs, class_index, priors=priors, sample_weight=sample_weight)
        assert outputs is not None
        targets = codebook.targets(class_index)
        if self.least_gain is None:
            self.sigmoids_ = fit_sigmoids(outputs.margins, targets, sample_weight, smoothing=False)
        else:
            weights: Any = 1.0 if sample_weight is None else sample_weight[:, np.newaxis]
            used = weights * (targets != 0)
            self.sigmoids_ = newton_sigmoids(outputs.margins, targets, used, self.least_gain)
        return self


def newton_sigmoids(margins: Array, signs: Array, weights: Array, least_gain: float) -> Sigmoids:
    """Take Newton steps from slope one and intercept zero towards the likeliest sigmoids, as long as they gain enough.

    Parameters
    ----------
    margins, signs, weights : ndarray of shape (n, L)
        The outputs of L machines, on which side each row is, and how much it counts there.
    least_gain : float
        The first step that raises a column's log-likelihood by less is its last; one that lowers it is not taken.

    Examples
    --------
    >>> z = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> [newton_sigmoids(z, np.sign(z), np.ones_like(z), gain).slope.round(2).tolist() for gain in (1.0, 0.1)]
    [[1.82], [3.63]]
    """
    positive = signs > 0
    slope, intercept = np.ones(margins.shape[1]), np.zeros(margins.shape[1])
    going = np.ones(margins.shape[1], dtype=bool)

    def loss(slope: Array, intercept: Array) -> Array:
        u = margins * slope + intercept
        return (weights * (np.logaddexp(0.0, u) - positive * u)).sum(axis=0)

    value = loss(slope, intercept)
    while going.any():
        p = expit(margins * slope + intercept)
        error, curvature = weights * (p - positive), weights * p * (1.0 - p)
        by_slope, by_intercept = (error * margins).sum(axis=0), error.sum(axis=0)
        of_slope = (curvature * margins**2).sum(axis=0) + _LEAST_CURVATURE
        of_intercept = curvature.sum(axis=0) + _LEAST_CURVATURE
        of_both = (curvature * margins).sum(axis=0)
        determinant = of_slope * of_intercept - of_both**2
        new_slope = slope - (of_intercept * by_slope - of_both * by_intercept) / determinant
        new_intercept = intercept - (of_slope * by_intercept - of_both * by_slope) / determinant
        new_value = loss(new_slope, new_intercept)
        better = going & (new_value < value)
        slope, intercept = np.where(better, new_slope, slope), np.where(better, new_intercept, intercept)
        going = better & (value - new_value >= least_gain)
        value = np.where(better, new_value, value)
    return Sigmoids(slope, intercept, np.full(slope.size, np.nan))  # at no maximum: nobody asks how near
