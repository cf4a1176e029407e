"""The softmax without parameters (Gönen, Tanuğur and Alpaydın 2008, §IV-C)."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, prior_shift, reweighted
from polymargin.outputs import Outputs
from polymargin.solvers.softmax import log_softmax


class PlainSoftmax(ProbabilisticDecoder):
    """Class probabilities p ∝ exp(output of the class's own machine), without learned parameters.

    It needs a machine for every class, or the one machine of two classes, whose output f counts as −f and +f. The
    machines are not trained to give log-probabilities, so these probabilities are only as good as the scale of their
    outputs; `Softmax` learns the scale.

    See Also
    --------
    Softmax : Learns the scale of the outputs.

    References
    ----------
    .. [1] M. Gönen, A. G. Tanuğur and E. Alpaydın, "Multiclass Posterior Probability Support Vector Machines", IEEE
           Transactions on Neural Networks 19, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import SVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = SVMClassifier(coding="one-vs-all", decoding="plain-softmax").fit(StandardScaler().fit_transform(X), y)
    >>> model.predict_proba(StandardScaler().fit_transform(X)[:1]).round(2)
    array([[0.89, 0.05, 0.07]])
    """

    uses_priors = True

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> PlainSoftmax:
        """Store the codebook and, if priors are given, the shift of the log-probabilities to these.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs or None
            The outputs of the training rows, which are not used.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            The class probabilities to expect in use; None for those of the training rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        PlainSoftmax
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        self.shift_ = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        return self

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError unless there is one machine for every class, and no others.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        if not _one_output_per_class(codebook):
            raise ValueError(
                "the softmax without parameters needs one machine for every class, and no others: choose "
                'coding="one-vs-all"'
            )

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the log-softmax of the outputs, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
        """
        matrix = self.codebook_.matrix
        if self.codebook_.n_classes == 2:
            scores = outputs.margins @ matrix.T.astype(np.float64)
        else:
            scores = outputs.margins[:, (matrix == 1).argmax(axis=1)]
        return reweighted(log_softmax(scores), self.shift_)


def _one_output_per_class(codebook: Codebook) -> bool:
    """Return whether every column sets one class against all others, and every class has one column."""
    matrix, K = codebook.matrix, codebook.n_classes
    if K == 2:
        return codebook.n_columns == 1
    alone = ((matrix == 1).sum(axis=0) == 1) & ((matrix == -1).sum(axis=0) == K - 1)
    return bool(alone.all()) and codebook.n_columns == K
