"""Base classes of decoders, which turn the outputs of the machines into scores, probabilities and labels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone

from polymargin.codebooks import Codebook
from polymargin.outputs import Outputs, wrong_sum

Array = NDArray[Any]

#: Number of folds in which a decoder is cross-fitted.
FOLDS = 5


class Decoder(BaseEstimator):
    """Turns outputs into one score per class; the largest score is the label.

    A decoder follows the conventions of scikit-learn: parameters are set in the constructor, `fit` stores the codebook
    and what is learned.

    See Also
    --------
    ProbabilisticDecoder : A decoder whose scores are log-probabilities.
    resolve_decoder : The decoder of a name.

    Examples
    --------
    A decoder that counts the outputs that agree with a class in sign:

    >>> from polymargin import LSSVMClassifier
    >>> from sklearn.datasets import load_iris
    >>> class Agreement(Decoder):
    ...     def scores(self, outputs):
    ...         return np.sign(outputs.margins) @ self.codebook_.matrix.T
    >>> X, y = load_iris(return_X_y=True)
    >>> LSSVMClassifier(kernel="rbf", decoding=Agreement()).fit(X, y).predict(X[:2])
    array([0, 0])
    """

    #: Whether `log_proba` exists.
    probabilistic: ClassVar[bool] = False
    #: Whether outputs must carry variances.
    needs_variances: ClassVar[bool] = False
    #: Whether probabilities are those under the priors that `fit` is given.
    uses_priors: ClassVar[bool] = False
    #: Whether `fit` learns from the outputs of the training rows; if not, it is called with ``outputs=None``.
    learns: bool = False  # a property where it depends on parameters
    #: Whether it learns from in-sample outputs rather than from out-of-sample ones.
    in_sample: bool = False

    codebook_: Codebook

    @property
    def learns_probabilities(self) -> bool:
        """Whether it learns probabilities from margins alone, so that it can be cross-fitted on out-of-sample outputs.

        Variances are never out-of-sample: those of a row are computed with the row in the training set.
        """
        return self.probabilistic and self.learns and not self.needs_variances

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Decoder:
        """Learn from the outputs of training rows.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs or None
            The outputs of the training rows, out-of-sample unless ``in_sample``; None if nothing is learned.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            The class probabilities to expect in use; None for the decoder's default.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        Decoder
            The fitted decoder.
        """
        self.check(codebook)
        self.codebook_ = codebook
        return self

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError if this decoder cannot be used with a codebook.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """

    def scores(self, outputs: Outputs) -> Array:
        """Return one score per class, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        raise NotImplementedError(f"{type(self).__name__} is a Decoder and must define scores(outputs)")


class ProbabilisticDecoder(Decoder):
    """A decoder whose scores are log-probabilities, so that label and probability agree.

    See Also
    --------
    Decoder : The interface of all decoders.
    Softmax, Coupling, CoupledSoftmax, Bayes, PlainSoftmax, Stack : The probabilistic decoders of the package.

    Examples
    --------
    A decoder that ignores the outputs and returns the class frequencies:

    >>> from polymargin.codebooks import Codebook
    >>> from polymargin.outputs import Outputs
    >>> class Frequencies(ProbabilisticDecoder):
    ...     def fit(self, codebook, outputs, class_index, *, priors=None, sample_weight=None):
    ...         super().fit(codebook, outputs, class_index)
    ...         self.log_p_ = self._prior_log_proba(codebook, class_index, sample_weight)[:1]
    ...         return self
    ...
    ...     def log_proba(self, outputs):
    ...         return np.repeat(self.log_p_, len(outputs.margins), axis=0)
    >>> decoder = Frequencies().fit(Codebook([[1], [-1]]), None, np.array([0, 0, 1]))
    >>> np.exp(decoder.log_proba(Outputs(np.zeros((1, 1)), "new")))
    array([[0.625, 0.375]])
    """

    probabilistic = True

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the class probabilities, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
        """
        raise NotImplementedError(
            f"{type(self).__name__} is a ProbabilisticDecoder and must define log_proba(outputs)"
        )

    def scores(self, outputs: Outputs) -> Array:
        """Return the log-probabilities.

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        return self.log_proba(outputs)

    def cross_fit(
        self, codebook: Codebook, outputs: Outputs, class_index: Array, *, sample_weight: Array | None = None
    ) -> Array:
        """Return cross-fitted log-probabilities: of every fold, by a decoder fitted on the other folds.

        The machines are not trained again: their outputs are out-of-sample already.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs
            Out-of-sample outputs of the training rows.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        log_proba : ndarray of shape (n, K)
            Class frequencies for rows that are in no fold.
        """
        log_p = self._prior_log_proba(codebook, class_index, sample_weight)
        for held, kept, fold in outputs.held_out(class_index, FOLDS):
            fitted = fit_decoder(
                clone(self),
                codebook,
                held.rows(kept),
                class_index[kept],
                sample_weight=None if sample_weight is None else sample_weight[kept],
            )
            assert isinstance(fitted, ProbabilisticDecoder)
            left_out = held.rows(fold)
            log_p[fold] = one_per_class(fitted, fitted.log_proba(left_out), left_out)
        return log_p

    def _prior_log_proba(self, codebook: Codebook, class_index: Array, sample_weight: Array | None) -> Array:
        """Return the logarithms of the smoothed class frequencies, repeated for every row, shape (n, K)."""
        counts = np.bincount(class_index, sample_weight, minlength=codebook.n_classes) + 0.5
        return np.tile(np.log(counts / counts.sum()), (class_index.size, 1))


def fit_decoder(
    decoder: Decoder,
    codebook: Codebook,
    outputs: Outputs | None,
    class_index: Array,
    *,
    priors: Array | None = None,
    sample_weight: Array | None = None,
) -> Decoder:
    """Fit a decoder, which may be one that was written elsewhere; raise ValueError if that stores no codebook.

    Parameters
    ----------
    decoder : Decoder
        Not fitted.
    codebook, outputs, class_index, priors, sample_weight
        See `Decoder.fit`.

    Returns
    -------
    Decoder
        The fitted decoder.
    """
    fitted = decoder.fit(codebook, outputs, class_index, priors=priors, sample_weight=sample_weight)
    if not isinstance(fitted, Decoder) or not hasattr(fitted, "codebook_"):
        raise ValueError(
            f"{type(decoder).__name__}.fit must call super().fit(codebook, outputs, class_index), which stores the "
            "codebook, and return self"
        )
    return fitted


def one_per_class(decoder: Decoder, values: Array, outputs: Outputs) -> Array:
    """Return what a decoder made of outputs if that is a number for every row and class, else raise ValueError.

    Parameters
    ----------
    decoder : Decoder
        Fitted; it may be one that was written elsewhere. The probabilities of a probabilistic one must sum to one.
    values : array
        Its scores or log-probabilities.
    outputs : Outputs
        The outputs of the machines for n rows.

    Returns
    -------
    array of shape (n, K)
        The values, unchanged.
    """
    wanted = (outputs.margins.shape[0], decoder.codebook_.n_classes)
    found = getattr(values, "shape", None)
    if found != wanted:
        raise ValueError(
            f"{type(decoder).__name__} returned {'no array' if found is None else f'an array of shape {tuple(found)}'} "
            f"for {wanted[0]} rows and {wanted[1]} classes; it must return a number for each of them: shape {wanted}"
        )
    if decoder.probabilistic:
        wrong = wrong_sum(values)
        if wrong is not None:
            raise ValueError(
                f"{type(decoder).__name__}.log_proba must return log-probabilities; those of row {wrong[0]} are of "
                f"probabilities that sum to {wrong[1]:.6g}, not 1: normalise them, for example with "
                "scipy.special.log_softmax(values, axis=1)"
            )
    return values


def significant(gains: Array, weights: Array, standard_errors: float) -> bool:
    """Return whether the weighted mean of the gains exceeds this many of its standard errors.

    Parameters
    ----------
    gains, weights : ndarray of shape (n,)
        The gain of every row in log-loss, and the weights of the rows.
    standard_errors : float
        How many standard errors.

    Returns
    -------
    bool

    Examples
    --------
    >>> significant(np.array([1.0, 2.0, 3.0]), np.ones(3), 2.0), significant(np.array([-1.0, 2.0]), np.ones(2), 2.0)
    (True, False)
    """
    total = weights.sum()
    mean = weights @ gains / total
    return bool(mean > standard_errors * (np.sqrt(weights @ np.square(gains - mean)) / total))


def tie_break(codebook: Codebook, margins: Array, size: float) -> Array:
    """Return the classes' agreement Σ_l M_kl z_l scaled into (-size, size), shape (n, K).

    Added to a score that moves in steps of at least 2 size, it decides ties and nothing else. In one-vs-all
    coding it lets the largest output win, as Van Gestel et al. 2002, §5 do.

    Parameters
    ----------
    codebook : Codebook
        The codebook behind the outputs.
    margins : ndarray of shape (n, L)
        The outputs.
    size : float
        Half of the smallest step of the score.

    Returns
    -------
    ndarray of shape (n, K)
    """
    agreement = margins @ codebook.matrix.T.astype(np.float64)
    largest = np.abs(agreement).max(axis=1, keepdims=True)
    return 0.99 * size * np.divide(agreement, largest, out=np.zeros_like(agreement), where=largest > 0)


def can_read(decoder: Decoder, codebook: Codebook) -> bool:
    """Tell whether a decoder can read a codebook.

    Parameters
    ----------
    decoder : Decoder
        The decoder.
    codebook : Codebook
        The codebook.

    Returns
    -------
    bool
    """
    try:
        decoder.check(codebook)
    except ValueError:
        return False
    return True


def check_pairwise(codebook: Codebook, name: str) -> None:
    """Raise ValueError unless the codebook is one-vs-one.

    Parameters
    ----------
    codebook : Codebook
        The codebook.
    name : str
        The decoder or method that needs it, for the message.
    """
    if not codebook.is_pairwise:
        raise ValueError(f'{name} needs one machine for every pair of classes: choose coding="one-vs-one"')


def prior_shift(
    priors: Array | None, class_index: Array, n_classes: int, sample_weight: Array | None = None
) -> Array:
    """Return log(priors / training priors), shape (K,), which carries posteriors to another class balance.

    The training priors are the weighted class frequencies of the rows that a decoder was fitted to. The shift is zero
    if no priors are given, and for classes without a row.

    Parameters
    ----------
    priors : ndarray of shape (K,) or None
        The class probabilities to expect in use; None for no shift.
    class_index : ndarray of int, shape (n,)
        The classes of the training rows.
    n_classes : int
        K.
    sample_weight : ndarray of shape (n,) or None
        Row weights.

    Returns
    -------
    ndarray of shape (K,)

    Examples
    --------
    >>> prior_shift(np.array([0.5, 0.5]), np.array([0, 0, 0, 1]), 2).round(3)
    array([-0.405,  0.693])
    """
    if priors is None:
        return np.zeros(n_classes)
    shares = np.bincount(class_index, sample_weight, minlength=n_classes).astype(np.float64)
    shares /= shares.sum()
    known = shares > 0.0
    return np.log(np.where(known, priors, 1.0)) - np.log(np.where(known, shares, 1.0))


def reweighted(log_p: Array, shift: Array) -> Array:
    """Return log-posteriors under other priors: log p + shift, normalised, shape (n, K).

    Parameters
    ----------
    log_p : ndarray of shape (n, K)
        Log-posteriors.
    shift : ndarray of shape (K,)
        See `prior_shift`.

    Returns
    -------
    ndarray of shape (n, K)
    """
    if not shift.any():
        return log_p
    shifted = log_p + shift
    return shifted - logsumexp(shifted, axis=1, keepdims=True)
