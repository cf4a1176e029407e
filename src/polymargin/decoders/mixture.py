"""Mixture decoding: a linear map from the outputs to the classes (Mayoraz and Alpaydın 1998, §4)."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder
from polymargin.outputs import Outputs

#: Singular values of the outputs below this share of the largest are treated as zero.
_RCOND = 1e-10


class Mixture(Decoder):
    """The class of the largest component of M g, where g holds the outputs of all machines.

    The mixture matrix M (K×L, for any codebook) minimises Σ ‖M g − y‖² over training rows, eq. (7), where y is +1
    for the row's own class and −1 for the others. A scaled `Argmax` is the special case of a diagonal M; a full one
    also uses the outputs of the other machines. Like eq. (7) it has no constant term. The outputs of one-vs-one
    machines are not linear in the class scores: use a `Stack` for them.

    Parameters
    ----------
    in_sample : bool, default=False
        Whether to learn from in-sample outputs rather than from out-of-sample ones.

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
    Least-squares machines are trained on the same targets, so in one-vs-all coding M is close to the identity. (With
    hinge machines it is not.)

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
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs
            The outputs of the training rows.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            Ignored.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

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
