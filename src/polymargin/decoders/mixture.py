"""Mixture decoding: a linear map from the outputs to the classes (Mayoraz and Alpaydın 1998, §4)."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder
from polymargin.outputs import Outputs

#: Directions of the outputs with singular values below this share of the largest are rounding, not outputs.
_RCOND = 1e-10


class Mixture(Decoder):
    """The class of the largest component of M g, where g holds the outputs of all machines.

    The mixture matrix M (K×L, for any codebook) minimises Σ ‖M g − y‖² over training rows, eq. (7), where y is +1
    for the row's own class and −1 for the others. A scaled `Argmax` is the special case of a diagonal M; a full
    one also uses what the other machines say. Like eq. (7) it has no constant term. The outputs of one-vs-one
    machines do not add up to class scores so simply: give them to a `Stack` instead.

    Parameters
    ----------
    in_sample : bool, default=False
        Whether to learn from what the machines say of the rows they were trained on, rather than from honest
        outputs.

    Attributes
    ----------
    matrix_ : ndarray of shape (K, L)
        M; where the outputs are linearly dependent, the one of least norm.

    See Also
    --------
    Argmax : One scale per machine.
    Stack : Any classifier in the place of the matrix.

    References
    ----------
    .. [1] E. Mayoraz and E. Alpaydın, "Support Vector Machines for Multi-Class Classification", IDIAP-RR 98-06, 1998.

    Examples
    --------
    Least-squares machines have these very targets, so in one-vs-all coding little is left to mix. (Hinge machines
    have not.)

    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LSSVMClassifier(coding="one-vs-all", decoding="mixture").fit(StandardScaler().fit_transform(X), y)
    >>> np.allclose(model.decoder_.matrix_, np.eye(3), atol=0.1)
    True
    """

    learns = True

    def __init__(self, in_sample: bool = False):
        self.in_sample = in_sample

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Mixture:
        """Learn the mixture matrix by weighted least squares.

        Parameters
        ----------
        codebook, outputs, class_index, priors, sample_weight
            As in `Decoder.fit`.

        Returns
        -------
        Mixture
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        targets = np.where(class_index[:, np.newaxis] == np.arange(codebook.n_classes), 1.0, -1.0)
        roots = (
            np.ones((class_index.size, 1)) if sample_weight is None else np.sqrt(sample_weight)[:, np.newaxis]
        )
        solution, *_ = np.linalg.lstsq(roots * outputs.margins, roots * targets, rcond=_RCOND)
        self.matrix_ = solution.T
        return self

    def scores(self, outputs: Outputs) -> Array:
        """Return M g of every row, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        return outputs.margins @ self.matrix_.T
