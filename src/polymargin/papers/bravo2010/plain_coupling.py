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
    steps : int or None
        How many Newton steps are taken from 1/(1 + exp(−z)); None for as many as it takes.
    """

    def __init__(
        self, method: str | None = None, in_sample: bool = False, *, steps: int | None = None
    ) -> None:
        super().__init__(method, in_sample=in_sample)
        self.steps = steps

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
        if self.steps is None:
            self.sigmoids_ = fit_sigmoids(outputs.margins, targets, sample_weight, smoothing=False)
        else:
            weights: Any = 1.0 if sample_weight is None else sample_weight[:, np.newaxis]
            self.sigmoids_ = newton_sigmoids(outputs.margins, targets, weights * (targets != 0), self.steps)
        return self


def newton_sigmoids(margins: Array, signs: Array, weights: Array, steps: int) -> Sigmoids:
    """Take some Newton steps, undamped, from slope one and intercept zero towards the likeliest sigmoids.

    Examples
    --------
    >>> z = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> newton_sigmoids(z, np.sign(z), np.ones_like(z), 4).slope.round(2)
    array([4.6])
    """
    slope, intercept = np.ones(margins.shape[1]), np.zeros(margins.shape[1])
    for _ in range(steps):
        p = expit(margins * slope + intercept)
        error, curvature = weights * (p - (signs > 0)), weights * p * (1.0 - p)
        by_slope, by_intercept = (error * margins).sum(axis=0), error.sum(axis=0)
        of_slope = (curvature * margins**2).sum(axis=0) + _LEAST_CURVATURE
        of_intercept = curvature.sum(axis=0) + _LEAST_CURVATURE
        of_both = (curvature * margins).sum(axis=0)
        determinant = of_slope * of_intercept - of_both**2
        slope = slope - (of_intercept * by_slope - of_both * by_intercept) / determinant
        intercept = intercept - (of_slope * by_intercept - of_both * by_slope) / determinant
    return Sigmoids(slope, intercept, np.maximum(np.abs(by_slope), np.abs(by_intercept)))
