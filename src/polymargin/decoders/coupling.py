"""Coupling: class probabilities from those of the dichotomies (Bravo, L'Huillier, Lobato and Weber 2010, §2)."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, check_pairwise, prior_shift, reweighted
from polymargin.outputs import Outputs
from polymargin.solvers.coupling import METHODS, bradley_terry, couple
from polymargin.solvers.platt import Sigmoids, fit_sigmoids

#: Class probabilities are clipped from below at this value: smaller ones are rounding errors.
SMALLEST_PROBABILITY = 1e-15


class Coupling(ProbabilisticDecoder):
    """Class probabilities by Platt scaling of every machine, followed by coupling.

    A sigmoid per machine, fitted with Platt's smoothed targets, eq. (4), gives the probability of its positive side;
    coupling finds the class probabilities that agree best with these. LIBSVM does the same with ``method="wlw2"``.

    Parameters
    ----------
    method : {None, "wlw2", "wlw1", "ht", "pkpd", "bradley-terry"}, default=None
        For one-vs-one machines: "wlw2" is Wu, Lin and Weng's second method, eq. (8), "wlw1" their first, eq. (5), "ht"
        Hastie and Tibshirani's, eq. (9), with the pairs weighted by their rows, and "pkpd" Price et al.'s formula,
        eq. (10). "bradley-terry" works with any codebook: it extends "ht" to sets of classes. None: "wlw2" for
        one-vs-one, "bradley-terry" for other codebooks.
    in_sample : bool, default=False
        Whether to fit the sigmoids to in-sample outputs rather than to out-of-sample ones.

    Attributes
    ----------
    method_ : str
        The method in use.
    sigmoids_ : Sigmoids
        ``slope`` and ``intercept`` of every machine's sigmoid.
    column_weights_ : ndarray of shape (L,)
        The number, or total weight, of the training rows of every machine.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors), which is added to the log-probabilities; zero unless priors are given.

    See Also
    --------
    CoupledSoftmax : Coupling as the first guess of a softmax.
    polymargin.solvers.coupling.couple, polymargin.solvers.coupling.bradley_terry : The methods.
    polymargin.solvers.platt.fit_sigmoids : The sigmoids.

    References
    ----------
    .. [1] C. Bravo, G. L'Huillier, J. L. Lobato and R. Weber, "Probability Estimation for Multiclass Problems
           Combining SVMs and Neural Networks", Neural Network World, 2010.
    .. [2] T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for Multi-class Classification by Pairwise
           Coupling", Journal of Machine Learning Research 5, 2004.
    .. [3] T. Hastie and R. Tibshirani, "Classification by Pairwise Coupling", Advances in Neural Information
           Processing Systems 10, MIT Press, 1998.
    .. [4] D. Price, S. Knerr, L. Personnaz and G. Dreyfus, "Pairwise Neural Network Classifiers with Probabilistic
           Outputs", Advances in Neural Information Processing Systems 7, MIT Press, 1995.
    .. [5] T.-K. Huang, R. C. Weng and C.-J. Lin, "Generalized Bradley-Terry Models and Multi-class Probability
           Estimates", Journal of Machine Learning Research 7, 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", coding="one-vs-one", decoding=Coupling("wlw2")).fit(X, y)
    >>> model.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    learns = True
    uses_priors = True

    def __init__(self, method: str | None = None, in_sample: bool = False):
        self.method = method
        self.in_sample = in_sample

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError for an unknown method, or one that needs a one-vs-one codebook.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        if self.method not in (None, "bradley-terry", *METHODS):
            raise ValueError(
                f'unknown method {self.method!r}; choose None, {", ".join(map(repr, METHODS))} or "bradley-terry"'
            )
        if self.method in METHODS:
            check_pairwise(codebook, f'coupling by "{self.method}" (unlike by "bradley-terry")')

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Coupling:
        """Fit a sigmoid to the outputs of every machine.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs
            The outputs of the training rows.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            The class probabilities to expect in use; None for those of the training rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        Coupling
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        self.method_ = self.method or ("wlw2" if codebook.is_pairwise else "bradley-terry")
        targets = codebook.targets(class_index)
        self.sigmoids_: Sigmoids = fit_sigmoids(
            outputs.margins, targets, sample_weight, increasing=not self.in_sample
        )
        weights = np.ones(class_index.size) if sample_weight is None else sample_weight
        self.column_weights_ = weights @ (targets != 0)
        self.prior_shift_ = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        return self

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the coupled probabilities, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
        """
        r = self.sigmoids_.proba(outputs.margins)
        if self.method_ == "bradley-terry":
            p = bradley_terry(r, self.codebook_.matrix, self.column_weights_)
        else:
            columns, forward = self.codebook_.pairs
            r = r[:, columns]
            if not forward.all():
                r[:, ~forward] = 1.0 - r[:, ~forward]
            p = couple(r, self.method_, self.column_weights_[columns])
        p = np.maximum(p, SMALLEST_PROBABILITY)
        return reweighted(np.log(p / p.sum(axis=1, keepdims=True)), self.prior_shift_)
