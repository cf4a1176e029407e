"""Coupling with sigmoids of plain maximum likelihood, to the end or stopped early, as the paper's text may be read."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders import Coupling
from polymargin.decoders._base import Array
from polymargin.outputs import Outputs
from polymargin.solvers.platt import Sigmoids, fit_sigmoids, newton_steps, rows_used

__all__ = ["PlainCoupling", "early_sigmoids"]


class PlainCoupling(Coupling):
    """`Coupling` with sigmoids fitted to zeros and ones: "by maximum likelihood", without Platt's smoothed targets.

    Where a pair of classes is separated the likelihood has no maximum and the sigmoid becomes as steep as rounding lets
    it, so the probabilities are overconfident, unless the fit is stopped early. For comparison only.

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
            weights = np.ones(len(targets)) if sample_weight is None else sample_weight
            self.sigmoids_ = early_sigmoids(outputs.margins, targets, weights, self.least_gain)
        return self


def early_sigmoids(margins: Array, signs: Array, weights: Array, least_gain: float) -> Sigmoids:
    """Take Newton steps from slope one and intercept zero towards the likeliest sigmoids, as long as they gain enough.

    Parameters
    ----------
    margins, signs : ndarray of shape (n, L)
        The outputs of L machines, and on which side each row is; zero for a row that a machine does not use.
    weights : ndarray of shape (n,)
        Row weights.
    least_gain : float
        The first step that raises a column's log-likelihood by less is its last.

    Examples
    --------
    >>> z = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> [early_sigmoids(z, np.sign(z), np.ones(4), gain).slope.round(2).tolist() for gain in (1.0, 0.1)]
    [[1.82], [3.63]]
    """
    z, positive, used = rows_used(margins, signs, weights)
    total = used.sum(axis=1)
    start = np.stack([np.ones(len(z)), np.zeros(len(z))])
    (slope, intercept), norm = newton_steps(
        z, positive.astype(np.float64), used / total[:, np.newaxis], start, least_gain / total
    )
    return Sigmoids(slope, intercept, norm)
