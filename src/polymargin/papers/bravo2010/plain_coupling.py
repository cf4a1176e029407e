"""Coupling with sigmoids of plain maximum likelihood, as the paper's text may be read."""

from __future__ import annotations

from polymargin.codebooks import Codebook
from polymargin.decoders import Coupling
from polymargin.decoders._base import Array
from polymargin.decoders._platt import fit_sigmoids
from polymargin.outputs import Outputs

__all__ = ["PlainCoupling"]


class PlainCoupling(Coupling):
    """`Coupling` with sigmoids fitted to zeros and ones: "by maximum likelihood", without Platt's smoothed targets.

    Where a pair of classes is separated the likelihood has no maximum and the sigmoid becomes as steep as rounding lets
    it, so the probabilities claim too much. It is here for comparison.
    """

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
        self.sigmoids_ = fit_sigmoids(outputs.margins, targets, sample_weight, smoothing=False)
        return self
