"""Argmax decoding: the largest output of one-vs-all machines, made comparable (Mayoraz and Alpaydın 1998, §3)."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder
from polymargin.outputs import Outputs

#: The scales that are learned from the outputs of training rows.
_LEARNED = ("mean", "least-squares")


class Argmax(Decoder):
    """The class whose own machine has the largest output; needs a machine for every class.

    The outputs g of machines trained apart need not be in the same range, so each may be multiplied by a scale π
    of its own first.

    Parameters
    ----------
    scale : {None, "norm", "mean", "least-squares"}, default=None
        None compares the outputs as they are. "norm" is π = 1/‖w‖, eqs. (3)–(4): outputs become distances to the
        machines' boundaries. "mean" divides by the mean of y g, so that E[y g] = 1. "least-squares" is the π that
        minimises Σ(π g − y)², eq. (6). (In the paper the factor of eq. (3) multiplies, while its π_μ is the mean
        that g is *divided* by.)
    in_sample : bool, default=False
        Whether "mean" and "least-squares" learn from in-sample outputs rather than from out-of-sample ones. (The paper
        allows both.)

    Attributes
    ----------
    scale_ : ndarray of shape (L,) or None
        The learned scales; None where nothing is learned. A machine that does no better than chance on the rows
        (π ≤ 0, which would turn it around) or has no boundary (w = 0) keeps the scale it has, π = 1.

    See Also
    --------
    Mixture : A full matrix in the place of one scale per machine.
    Hamming : The nearest codeword, for any codebook.

    References
    ----------
    .. [1] E. Mayoraz and E. Alpaydın, "Support Vector Machines for Multi-Class Classification", IDIAP-RR 98-06, 1998.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LSSVMClassifier(kernel="rbf", coding="one-vs-all", decoding=Argmax(scale="least-squares"))
    >>> model.fit(StandardScaler().fit_transform(X), y).decoder_.scale_.shape
    (3,)
    """

    def __init__(self, scale: str | None = None, in_sample: bool = False):
        self.scale = scale
        self.in_sample = in_sample

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether the scale is learned from the outputs of the training rows."""
        return self.scale in _LEARNED

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Argmax:
        """Store the codebook and learn the scales.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs or None
            The outputs of the training rows, needed if the scales are learned.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            Ignored.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        Argmax
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        self.scale_ = None
        if self.learns:
            assert outputs is not None
            targets = codebook.targets(class_index).astype(np.float64)
            weights = np.ones(class_index.size) if sample_weight is None else sample_weight
            agreement = weights @ (targets * outputs.margins)
            if self.scale == "mean":
                self.scale_ = positive_ratio(weights @ np.abs(targets), agreement)
            else:
                self.scale_ = positive_ratio(
                    agreement, weights @ np.where(targets == 0, 0.0, np.square(outputs.margins))
                )
        return self

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError for an unknown scale, or if some class has no machine of its own.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        if self.scale not in (None, "norm", *_LEARNED):
            raise ValueError(
                f'unknown scale {self.scale!r}; choose None, "norm", {", ".join(map(repr, _LEARNED))}'
            )
        if codebook.n_classes > 2 and not one_vs_rest(codebook).any(axis=1).all():
            raise ValueError('argmax needs one machine for every class: choose coding="one-vs-all"')

    def scores(self, outputs: Outputs) -> Array:
        """Return every class's own output, scaled, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        if self.scale == "norm":
            margins = over_norms(outputs)
        else:
            margins = outputs.margins if self.scale_ is None else outputs.margins * self.scale_
        if self.codebook_.n_classes == 2:
            return margins @ self.codebook_.matrix.T.astype(np.float64)
        return margins[:, one_vs_rest(self.codebook_).argmax(axis=1)]


def over_norms(outputs: Outputs) -> Array:
    """Return the margins times π_w = 1/‖w‖, eqs. (3)–(4): signed distances to the machines' boundaries.

    Parameters
    ----------
    outputs : Outputs
        The outputs of the machines for n rows. They must carry ``norms``.

    Returns
    -------
    ndarray of shape (n, L)
    """
    if outputs.norms is None:
        raise ValueError('scale="norm" needs machines that know the norms of their weights')
    return outputs.margins * positive_ratio(np.ones_like(outputs.norms), outputs.norms)


def positive_ratio(above: Array, below: Array) -> Array:
    """Return above/below where it is a positive number and one elsewhere.

    Parameters
    ----------
    above, below : ndarray
        Arrays of one shape.

    Returns
    -------
    ndarray
    """
    valid = (above > 0.0) & (below > 0.0)
    return np.divide(above, below, out=np.ones_like(below), where=valid)


def one_vs_rest(codebook: Codebook) -> Array:
    """Return whether column l sets class k alone against all others, shape (K, L).

    Parameters
    ----------
    codebook : Codebook
        The codebook.

    Returns
    -------
    ndarray of bool, shape (K, L)
    """
    # One +1 and K - 1 times -1: no other column with a +1 has this sum.
    one_vs_rest = codebook.matrix.sum(axis=0) == 2 - codebook.n_classes
    return (codebook.matrix == 1) & one_vs_rest
