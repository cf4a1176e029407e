"""Loss-based decoding (Allwein, Schapire and Singer 2000)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder
from polymargin.outputs import Outputs

#: Losses of a margin m = y z.
LOSSES: dict[str, Callable[[Array], Array]] = {
    "squared": lambda m: np.square(1.0 - m),
    "hinge": lambda m: np.maximum(1.0 - m, 0.0),
    "logistic": lambda m: np.logaddexp(0.0, -m),
    "exponential": lambda m: np.exp(np.clip(-m, None, 700.0)),
}


class Loss(Decoder):
    """The class whose codeword has the smallest total loss; a don't care costs the loss at zero.

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic", "exponential"}, default="squared"
        "squared" is the loss the least-squares machines are trained with, "hinge" that of the SVM.

    See Also
    --------
    Hamming : Signs in the place of outputs.

    References
    ----------
    .. [1] E. L. Allwein, R. E. Schapire and Y. Singer, "Reducing Multiclass to Binary: A Unifying Approach for Margin
           Classifiers", Journal of Machine Learning Research 1, 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", coding="one-vs-one", decoding=Loss("hinge")).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """

    def __init__(self, loss: str = "squared"):
        self.loss = loss

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError for an unknown loss.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        if self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; choose one of {', '.join(LOSSES)}")

    def scores(self, outputs: Outputs) -> Array:
        """Return minus the total losses, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        loss, margins, matrix = LOSSES[self.loss], outputs.margins, self.codebook_.matrix
        total = loss(margins) @ (matrix.T == 1) + loss(-margins) @ (matrix.T == -1)
        at_zero = float(loss(np.zeros(1))[0])
        return -(total + at_zero * (matrix == 0).sum(axis=1))
