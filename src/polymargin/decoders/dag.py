"""The decision directed acyclic graph (Platt, Cristianini and Shawe-Taylor 2000)."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder, check_pairwise
from polymargin.outputs import Outputs


class Dag(Decoder):
    """Decision graph of pairwise comparisons: first against last class, the loser is eliminated, until one is left.

    See Also
    --------
    Votes : Counts all pairwise comparisons.

    References
    ----------
    .. [1] J. C. Platt, N. Cristianini and J. Shawe-Taylor, "Large Margin DAGs for Multiclass Classification", Advances
           in Neural Information Processing Systems 12, MIT Press, 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", coding="one-vs-one", decoding=Dag()).fit(X, y)
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
        check_pairwise(codebook, "the decision graph")

    def scores(self, outputs: Outputs) -> Array:
        """Return the round in which each class is eliminated, shape (n, K); the winner has the last.

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        matrix = self.codebook_.matrix
        n_rows, n_classes = outputs.margins.shape[0], self.codebook_.n_classes
        plus, minus = (matrix == 1).argmax(axis=0), (matrix == -1).argmax(axis=0)
        duel = np.zeros((n_classes, n_classes), dtype=np.intp)
        sign = np.zeros((n_classes, n_classes))
        columns = np.arange(self.codebook_.n_columns)
        duel[plus, minus] = duel[minus, plus] = columns
        sign[plus, minus], sign[minus, plus] = 1.0, -1.0

        scores = np.empty((n_rows, n_classes))
        rows = np.arange(n_rows)
        first = np.zeros(n_rows, dtype=np.intp)
        last = np.full(n_rows, n_classes - 1)
        for turn in range(n_classes - 1):
            first_wins = sign[first, last] * outputs.margins[rows, duel[first, last]] >= 0.0
            loser = np.where(first_wins, last, first)
            scores[rows, loser] = turn
            last -= first_wins
            first += ~first_wins
        scores[rows, first] = n_classes - 1
        return scores
