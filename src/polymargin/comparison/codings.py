"""Comparison: every coding with every decoder, on one split, by the estimators themselves.

Each pair is an estimator with that coding and decoding, fitted by the flow that every estimator follows; what they have
in common is computed once (`polymargin.estimators.fit_together`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from polymargin.codebooks import adaptive_coding, resolve_codebook
from polymargin.decoders import resolve_decoder
from polymargin.decoders._base import can_read
from polymargin.estimators import LSSVMClassifier, fit_together
from polymargin.metrics import accuracy, brier_score, log_loss

Array = NDArray[Any]


@dataclass(frozen=True)
class Prediction:
    """What one coding with one decoder says of new rows.

    Attributes
    ----------
    coding, decoding : str
        Their names.
    labels : ndarray of int, shape (n,)
        The positions of the predicted classes.
    log_proba : ndarray of shape (n, K), or None
        Logarithms of the class probabilities, where the decoder gives any.
    """

    coding: str
    decoding: str
    labels: Array
    log_proba: Array | None


@dataclass(frozen=True)
class Score:
    """How well one coding with one decoder does on test rows.

    Attributes
    ----------
    coding, decoding : str
        Their names.
    accuracy : float
        Share of right labels.
    log_loss, brier : float or None
        Scores of the probabilities, where the decoder gives any.
    """

    coding: str
    decoding: str
    accuracy: float
    log_loss: float | None
    brier: float | None

    @classmethod
    def of(cls, prediction: Prediction, class_index: Array) -> Score:
        """Score a prediction.

        Parameters
        ----------
        prediction : Prediction
            The prediction.
        class_index : ndarray of int, shape (n,)
            The indices of the true classes.

        Returns
        -------
        Score
        """
        log_proba, loss, brier = prediction.log_proba, None, None
        if log_proba is not None:
            loss, brier = log_loss(class_index, log_proba), brier_score(class_index, np.exp(log_proba))
        return cls(
            prediction.coding, prediction.decoding, accuracy(class_index, prediction.labels), loss, brier
        )


def compare_codings(
    X_train: ArrayLike, y_train: ArrayLike, X_test: ArrayLike, y_test: ArrayLike, **options: Any
) -> list[Score]:
    """Fit an estimator with every coding and every decoder, and score them on test rows.

    Parameters
    ----------
    X_train, y_train, X_test, y_test : array-like
        The split, with features already scaled.
    **options
        Those of `predict_codings`.

    Returns
    -------
    list of Score
        In the order of codings, then decodings.

    See Also
    --------
    polymargin.comparison.repeated.RepeatedComparison : Compare on many splits, with several kinds of machines.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_iris(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> scores = compare_codings(X_train, y_train, X_test, y_test, codings=["minimal"], decodings=["bayes"])
    >>> [(score.coding, score.decoding, round(score.accuracy, 2)) for score in scores]
    [('minimal', 'bayes', 0.97)]
    """
    test_index = class_positions(y_test, np.unique(np.asarray(y_train)))
    return [
        Score.of(prediction, test_index)
        for prediction in predict_codings(X_train, y_train, X_test, **options)
    ]


def predict_codings(
    X_train: ArrayLike,
    y_train: ArrayLike,
    X_test: ArrayLike,
    *,
    codings: Sequence[str] | Mapping[str, Any] = ("one-vs-one", "one-vs-all", "minimal", "ecoc"),
    decodings: Sequence[str] | Mapping[str, Any] = ("coupled-softmax", "softmax", "bayes", "hamming", "loss"),
    estimator: Any = None,
) -> list[Prediction]:
    """Fit an estimator with every coding and every decoder, and predict new rows.

    The probabilities are those of the estimator fitted by itself, bit for bit. A decoder that cannot read a coding
    (voting needs one-vs-one) is left out for it.

    Parameters
    ----------
    X_train, y_train, X_test : array-like
        Training rows, their labels and new rows, with features already scaled.
    codings, decodings : sequence of str, or mapping of str to anything the estimator takes
        What is compared.
    estimator : LSSVMClassifier, SVMClassifier or None
        Not fitted; its coding and decoding are replaced. None: `LSSVMClassifier` with its defaults.

    Returns
    -------
    list of Prediction
        In the order of codings, then decodings.

    Examples
    --------
    >>> X, y = [[0.0], [0.1], [0.9], [1.0]], ["a", "a", "b", "b"]
    >>> (prediction,) = predict_codings(X, y, [[0.05], [0.95]], codings=["minimal"], decodings=["hamming"])
    >>> prediction.labels, prediction.log_proba
    (array([0, 1]), None)
    """
    estimator = LSSVMClassifier() if estimator is None else estimator
    labels = np.asarray(y_train)
    n_classes = labels.shape[1] if labels.ndim == 2 else np.unique(labels).size
    models = {}
    for coding, how in named(codings).items():
        adaptive = adaptive_coding(how) is not None
        book = None if adaptive else resolve_codebook(how, n_classes, estimator.random_state)
        for decoding, decoder in named(decodings).items():
            resolved = resolve_decoder(decoder)
            if resolved.needs_variances and not isinstance(estimator, LSSVMClassifier):
                continue
            if book is None or can_read(resolved, book):
                models[coding, decoding] = clone(estimator).set_params(coding=how, decoding=decoder)
    fit_together(list(models.values()), X_train, y_train)
    return [predicted(model, coding, decoding, X_test) for (coding, decoding), model in models.items()]


def predicted(model: Any, coding: str, decoding: str, X: ArrayLike) -> Prediction:
    """Return what a fitted estimator predicts, as positions of classes and, where it has them, log-probabilities."""
    if not hasattr(model, "predict_log_proba"):
        return Prediction(coding, decoding, class_positions(model.predict(X), model.classes_), None)
    log_proba = model.predict_log_proba(X)
    return Prediction(coding, decoding, np.exp(log_proba).argmax(axis=1), log_proba)


def named(choices: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return choices by name."""
    if isinstance(choices, Mapping):
        return dict(choices)
    return {choice: choice for choice in ([choices] if isinstance(choices, str) else choices)}


def class_positions(y: ArrayLike, classes: Array) -> Array:
    """Return the position of every label in `classes`, which must hold them all.

    >>> class_positions(["b", "a", "b"], np.array(["b", "a"]))
    array([0, 1, 0])
    """
    y = np.asarray(y)
    sorter = np.argsort(classes)
    position = np.searchsorted(classes, y, sorter=sorter).clip(max=classes.size - 1)
    index = sorter[position]
    unknown = classes[index] != y
    if unknown.any():
        raise ValueError(f"label {y[unknown].tolist()[0]!r} is not among the classes of the training rows")
    return index
