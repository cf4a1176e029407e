"""Bayesian decoding (Van Gestel et al. 2002, §3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder
from polymargin.outputs import Outputs


class Bayes(ProbabilisticDecoder):
    """Class probabilities by Bayes' rule from the moderated outputs of the machines.

    Machine l says of a class with bit y that x has the density N(1 − y z; 0, 1/ζ + σ_z²), eq. (11). Without don't
    cares the posterior is the prior times the product over the machines, eq. (18).

    With don't cares a machine speaks only of the classes it knows; it may move probability among them but not
    their joint mass.

    Parameters
    ----------
    update : {"joint", "sequential"}, default="joint"
        How don't cares are handled. "joint" divides each density by its mean over the classes the machine knows,
        weighted with the prior, so that the order of the columns does not matter. "sequential" is the paper's
        eq. (20): machine after machine, the classes it knows share out the probability they have by then, and
        the result depends on the order. (As printed, eq. (20) loses that joint mass; here it is kept.)
        Without don't cares the two are the same.
    """

    needs_variances = True

    def __init__(self, update: str = "joint"):
        self.update = update

    def fit(self, codebook: Codebook, outputs: Outputs, class_index: Array, **kwargs: Any) -> Bayes:
        """Store the codebook and the priors, equal unless given."""
        super().fit(codebook, outputs, class_index)
        priors = kwargs.get("priors")
        if priors is None:
            priors = np.full(codebook.n_classes, 1.0 / codebook.n_classes)
        self.log_priors_ = np.log(priors)
        return self

    def check(self, codebook: Codebook) -> None:
        """Refuse an update rule that does not exist."""
        if self.update not in ("joint", "sequential"):
            raise ValueError(f'unknown update {self.update!r}; choose "joint" or "sequential"')

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the log-posteriors, shape (n, K)."""
        if outputs.variances is None or outputs.noise is None:
            raise ValueError("Bayesian decoding needs outputs with variances: use least-squares machines")
        variances = outputs.noise + outputs.variances
        matrix = self.codebook_.matrix
        log_p = np.tile(self.log_priors_, (outputs.margins.shape[0], 1))
        for column in range(self.codebook_.n_columns):
            known = matrix[:, column] != 0
            signs = matrix[known, column].astype(np.float64)
            z, v = outputs.margins[:, [column]], variances[:, [column]]
            # log N(1 - yz; 0, v) without what is the same for y = ±1: -(1 - yz)²/2v = yz/v + const.
            density = signs * z / v
            before = log_p[:, known] if self.update == "sequential" else self.log_priors_[known]
            mass = logsumexp(before, axis=-1, keepdims=True)
            evidence = logsumexp(before + density, axis=-1, keepdims=True)
            log_p[:, known] += density + (mass - evidence)
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        # No probability is so small that its logarithm could not be taken again.
        return np.maximum(log_p, np.log(np.finfo(np.float64).tiny))
