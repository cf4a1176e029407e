"""Hamming decoding: the codeword nearest to the signs of the outputs."""

from __future__ import annotations

import numpy as np

from polymargin.decoders._base import Array, Decoder, tie_break
from polymargin.outputs import Outputs


class Hamming(Decoder):
    """The class whose codeword differs from the signs of the outputs in the fewest bits.

    A don't care counts one half (Van Gestel et al. 2002, §5). Among equally near codewords the one wins that
    agrees best with the outputs themselves, Σ_l M_kl z_l: for one-vs-all that is the largest output.

    See Also
    --------
    Loss : Outputs in the place of their signs.
    Bayes : Probabilities from the same codewords.

    References
    ----------
    .. [1] T. Van Gestel, J. A. K. Suykens, G. Lanckriet, A. Lambrechts, B. De Moor and J. Vandewalle, "Multiclass
           LS-SVMs: Moderated Outputs and Coding-Decoding Schemes", Neural Processing Letters 15, 2002.
    .. [2] T. G. Dietterich and G. Bakiri, "Solving Multiclass Learning Problems via Error-Correcting Output Codes",
           Journal of Artificial Intelligence Research 2, 1995.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", coding="ecoc", decoding=Hamming()).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """

    def scores(self, outputs: Outputs) -> Array:
        """Return minus the Hamming distances, ties broken, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        codewords = self.codebook_.matrix.T.astype(np.float64)
        nearness = 0.5 * (np.sign(outputs.margins) @ codewords - self.codebook_.n_columns)
        # Distances move in halves (a don't care, or an output of exactly zero, counts one half).
        return nearness + tie_break(self.codebook_, outputs.margins, 0.25)
