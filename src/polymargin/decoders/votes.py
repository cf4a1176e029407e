"""Max-wins voting among one-vs-one machines."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder, check_pairwise, tie_break
from polymargin.outputs import Outputs


class Votes(Decoder):
    """The class that wins most pairwise comparisons; ties go to the larger sum of outputs.

    See Also
    --------
    Dag : Pairwise comparisons by elimination.
    Coupling : Probabilities from the same machines.

    References
    ----------
    .. [1] J. H. Friedman, "Another Approach to Polychotomous Classification", Stanford University, 1996.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", coding="one-vs-one", decoding=Votes()).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError unless the codebook is one-vs-one.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        check_pairwise(codebook, "voting")

    def scores(self, outputs: Outputs) -> Array:
        """Return the number of comparisons won (a draw counts one half), ties broken, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        return count_votes(self.codebook_, outputs.margins) + tie_break(self.codebook_, outputs.margins, 0.25)


def count_votes(codebook: Codebook, margins: Array) -> Array:
    """Return how many one-vs-one machines decide for every class, shape (n, K); an output of zero is half a vote.

    Parameters
    ----------
    codebook : Codebook
        One-vs-one.
    margins : ndarray of shape (n, L)
        The outputs.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> count_votes(one_vs_one(3), np.array([[-1.0, -2.0, 0.5]]))
    array([[2., 0., 1.]])
    """
    balance = np.sign(margins) @ codebook.matrix.T.astype(np.float64)
    return 0.5 * (balance + codebook.n_classes - 1)
