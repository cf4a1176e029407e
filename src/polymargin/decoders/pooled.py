"""Pooled: several sets of outputs of one codebook, each decoded by itself, in a log-linear pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.base import clone

from polymargin.codebooks import Codebook
from polymargin.decoders._base import FOLDS, Array, ProbabilisticDecoder, fit_decoder, prior_shift, reweighted
from polymargin.outputs import Outputs
from polymargin.solvers.pooling import pool_weights, pooled


class Pooled(ProbabilisticDecoder):
    """The probabilities of several kinds of machines for the same dichotomies, as leaves and landmarks are, in a pool.

    The outputs have P·L columns: those of the first kind of machines, then those of the second, and so on. Each set is
    decoded by a decoder of its own, and the pool is the normalised π Π (p/π)^u with the class frequencies π and the
    weights u ≥ 0 of least cross-fitted log-loss.

    Parameters
    ----------
    decoder : ProbabilisticDecoder
        The decoder of every set, which learns probabilities; it is cloned.
    n_parts : int
        P, the number of sets.

    Attributes
    ----------
    decoders_ : list of ProbabilisticDecoder
        The fitted decoders.
    weights_ : ndarray of shape (P,)
        The weights u.
    log_prior_ : ndarray of shape (K,)
        The logarithms of the class frequencies.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors); zero unless priors are given.
    cross_log_proba_ : ndarray of shape (n, K)
        The cross-fitted log-probabilities of the training rows.

    See Also
    --------
    CoupledSoftmax : The decoder that is pooled by default.

    Examples
    --------
    >>> from polymargin.codebooks import Codebook
    >>> from polymargin.decoders import CoupledSoftmax
    >>> z = np.repeat([1.0, -1.0], 20)[:, np.newaxis] + np.random.default_rng(0).normal(size=(40, 2))
    >>> y = np.repeat([0, 1], 20)
    >>> decoder = Pooled(CoupledSoftmax(), 2).fit(Codebook([[1], [-1]]), Outputs(z, "out_of_fold"), y)
    >>> bool((np.exp(decoder.log_proba(Outputs(z, "new"))).argmax(axis=1) == y).mean() > 0.7)
    True
    """

    learns = True

    def __init__(self, decoder: ProbabilisticDecoder, n_parts: int = 2):
        self.decoder = decoder
        self.n_parts = n_parts

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError if the decoder cannot be used with a codebook.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind each set of outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        self.decoder.check(codebook)

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Pooled:
        """Fit the decoders, and weigh them.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind each set of outputs.
        outputs : Outputs
            The outputs of the training rows, P·L columns.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            The class probabilities to expect in use; None for those of the training rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        Pooled
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        weights = np.ones(class_index.size) if sample_weight is None else sample_weight
        self.prior_shift_ = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        self.decoders_: list[ProbabilisticDecoder] = []
        honest = []
        for part in self._parts(outputs):
            decoder = fit_decoder(
                clone(self.decoder), codebook, part, class_index, sample_weight=sample_weight
            )
            assert isinstance(decoder, ProbabilisticDecoder)
            known = getattr(decoder, "cross_log_proba_", None)
            if known is None:
                known = clone(self.decoder).cross_fit(
                    codebook, part, class_index, sample_weight=sample_weight
                )
            self.decoders_.append(decoder)
            honest.append(known)
        self.log_prior_ = self._prior_log_proba(codebook, class_index, weights)[0]
        self.weights_ = pool_weights(honest, class_index, weights, self.log_prior_)
        numbers = outputs.deal(class_index).fold_numbers(FOLDS)
        self.cross_log_proba_ = cross_pooled(honest, class_index, weights, codebook.n_classes, numbers)
        return self

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the pooled class probabilities.

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows, P·L columns.

        Returns
        -------
        ndarray of shape (n, K)
        """
        parts = [
            decoder.log_proba(part)
            for decoder, part in zip(self.decoders_, self._parts(outputs), strict=True)
        ]
        return reweighted(pooled(parts, self.weights_, self.log_prior_), self.prior_shift_)

    def _parts(self, outputs: Outputs) -> list[Outputs]:
        """Return the outputs of every kind of machines."""
        exact = [None] * self.n_parts if outputs.exact is None else np.split(outputs.exact, self.n_parts, 1)
        return [
            replace(outputs, margins=margins, exact=of_part, noise=None, norms=None)
            for margins, of_part in zip(np.split(outputs.margins, self.n_parts, 1), exact, strict=True)
        ]


def cross_pooled(
    honest: list[Array], class_index: Array, weights: Array, n_classes: int, numbers: Array
) -> Array:
    """Return log-probabilities of rows by pools whose weights come from other folds.

    Parameters
    ----------
    honest : list of ndarray of shape (n, K)
        The out-of-sample log-probabilities of the rows by every member.
    class_index : ndarray of int, shape (n,)
        The classes of the rows.
    weights : ndarray of shape (n,)
        Their weights.
    n_classes : int
        K.
    numbers : ndarray of int, shape (n,)
        Their folds.

    Returns
    -------
    log_proba : ndarray of shape (n, K)
        The class frequencies if there is one fold only.
    """
    counts = np.bincount(class_index, weights, minlength=n_classes) + 0.5
    log_p = np.tile(np.log(counts / counts.sum()), (class_index.size, 1))
    for fold in range(int(numbers.max()) + 1):
        held, kept = numbers == fold, numbers != fold
        if not (held.any() and kept.any()):
            continue
        counts = np.bincount(class_index[kept], weights[kept], minlength=n_classes) + 0.5
        log_prior = np.log(counts / counts.sum())
        u = pool_weights([log_q[kept] for log_q in honest], class_index[kept], weights[kept], log_prior)
        log_p[held] = pooled([log_q[held] for log_q in honest], u, log_prior)
    return log_p
