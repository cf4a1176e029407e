"""Bayesian decoding (Van Gestel et al. 2002, §3)."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, prior_shift
from polymargin.outputs import Outputs


class Bayes(ProbabilisticDecoder):
    """Class probabilities by Bayes' rule from the moderated outputs of the machines.

    For a class with bit y, machine l gives x the density N(1 − y z; 0, 1/ζ + σ_z²), eq. (11). Without don't cares the
    posterior is the prior times the product over the machines, eq. (18).

    With don't cares, the output of a machine redistributes probability among the classes it was trained on, and leaves
    their total probability unchanged.

    Parameters
    ----------
    update : {"joint", "sequential"}, default="joint"
        How don't cares are handled. "joint" divides each density by its prior-weighted mean over the classes that the
        machine was trained on, so that the order of the columns does not matter. "sequential" is the paper's eq. (20):
        the posterior is updated machine by machine, and depends on their order. (As printed, eq. (20) does not
        preserve the total probability of these classes; here it is preserved.) Without don't cares the two are the
        same.
    noise : {"honest", "model"}, default="honest"
        The noise variance 1/ζ. "model" is the one that the machine infers from its training rows, as in the paper.
        "honest" is the mean squared residual of the out-of-sample outputs that the decoder is fitted on.

    Attributes
    ----------
    log_priors_ : ndarray of shape (K,)
        Logarithms of the classes' weights before any output is seen. The outputs carry the class frequencies of the
        training rows already, so these are equal, or, where priors are given, the priors over those frequencies.
    noise_ : ndarray of shape (L,) or None
        The out-of-sample noise variances; None for those of the machines.

    See Also
    --------
    Softmax, Coupling : Probabilities that need no variances.

    References
    ----------
    .. [1] T. Van Gestel, J. A. K. Suykens, G. Lanckriet, A. Lambrechts, B. De Moor and J. Vandewalle, "Multiclass
           LS-SVMs: Moderated Outputs and Coding-Decoding Schemes", Neural Processing Letters 15, 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", decoding=Bayes(update="sequential")).fit(X, y)
    >>> model.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    needs_variances = True
    uses_priors = True

    def __init__(self, update: str = "joint", noise: str = "honest"):
        self.update = update
        self.noise = noise

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether the noise is estimated from out-of-sample outputs."""
        return self.noise == "honest"

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Bayes:
        """Store the codebook and the priors, and estimate the noise.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs or None
            The outputs of the training rows, needed for ``noise="honest"``.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            The class probabilities to expect in use; None for those of the training rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        Bayes
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        shift = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        self.log_priors_ = shift - logsumexp(shift)
        self.noise_ = None
        if outputs is not None and self.learns:
            targets = codebook.targets(class_index)
            weights = np.ones(class_index.size) if sample_weight is None else sample_weight
            margins = outputs.margins if outputs.exact is None else outputs.exact
            squares = np.where(targets == 0, 0.0, np.square(targets - margins))
            self.noise_ = (weights @ squares) / (weights @ (targets != 0))
        return self

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError for unknown parameter values.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        if self.update not in ("joint", "sequential"):
            raise ValueError(f'unknown update {self.update!r}; choose "joint" or "sequential"')
        if self.noise not in ("honest", "model"):
            raise ValueError(f'unknown noise {self.noise!r}; choose "honest" or "model"')

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the log-posteriors, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
        """
        noise = outputs.noise if self.noise_ is None else self.noise_
        if outputs.variances is None or noise is None:
            raise ValueError("Bayesian decoding needs outputs with variances: use least-squares machines")
        variances = noise + outputs.variances
        matrix = self.codebook_.matrix
        log_p = np.tile(self.log_priors_, (outputs.margins.shape[0], 1))
        for column in range(self.codebook_.n_columns):
            known = matrix[:, column] != 0
            signs = matrix[known, column].astype(np.float64)
            z, v = outputs.margins[:, [column]], variances[:, [column]]
            # log N(1 - yz; 0, v) up to terms that do not depend on y = ±1: -(1 - yz)²/2v = yz/v + const. It is
            # shifted to 0 on the side of the sign of z, which avoids cancellation for large z²/v.
            density = (signs * z - np.abs(z)) / v
            before = log_p[:, known] if self.update == "sequential" else self.log_priors_[known]
            mass = logsumexp(before, axis=-1, keepdims=True)
            evidence = logsumexp(before + density, axis=-1, keepdims=True)
            log_p[:, known] += density + (mass - evidence)
        # In two steps, so that the sum is one even where all log-probabilities are very negative.
        log_p -= log_p.max(axis=1, keepdims=True)
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        # Clip so that exp() does not underflow.
        return np.maximum(log_p, np.log(np.finfo(np.float64).tiny))
