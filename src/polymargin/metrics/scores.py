"""Proper scores of class probabilities, and accuracy.

All take the true classes as indices into the columns of the probabilities, so that a class absent from the rows
at hand needs no special care.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.metrics._checks import checked

Array = NDArray[Any]


def accuracy(class_index: Array, predicted: Array, *, sample_weight: Array | None = None) -> float:
    """Return the share of rows, or of their weight, whose predicted class index is right.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        True classes.
    predicted : ndarray of int, shape (n,)
        Predicted classes.
    sample_weight : ndarray of shape (n,) or None
        Row weights.

    Returns
    -------
    accuracy : float
        From 0 to 1.

    Examples
    --------
    >>> accuracy(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]))
    0.75
    """
    return float(np.average(class_index == predicted, weights=sample_weight))


def log_loss(class_index: Array, log_proba: Array, *, sample_weight: Array | None = None) -> float:
    """Return the mean of minus the log-probability of the true class; 0 is perfect.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        True classes.
    log_proba : ndarray of shape (n, K)
        Logarithms of the class probabilities.
    sample_weight : ndarray of shape (n,) or None
        Row weights.

    Returns
    -------
    loss : float
        In nats; infinite if a true class has probability zero.

    Examples
    --------
    >>> log_loss(np.array([0, 1]), np.log([[0.5, 0.5], [0.5, 0.5]]))
    0.693...
    """
    log_proba, class_index = np.asarray(log_proba, dtype=np.float64), np.asarray(class_index)
    if (log_proba > 1e-9).any():
        raise ValueError(
            "log_loss takes the logarithms of probabilities, which are never positive: give predict_log_proba(X) or "
            "np.log(proba)"
        )
    losses = -log_proba[np.arange(class_index.size), class_index]
    if sample_weight is not None:  # a row that does not count may have lost infinitely much
        losses = np.where(sample_weight > 0.0, losses, 0.0)
    return float(np.average(losses, weights=sample_weight))


def brier_score(class_index: Array, proba: Array, *, sample_weight: Array | None = None) -> float:
    """Return the mean squared distance between the probabilities and the truth, from 0 (perfect) to 2.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        True classes.
    proba : ndarray of shape (n, K)
        Class probabilities.
    sample_weight : ndarray of shape (n,) or None
        Row weights.

    Returns
    -------
    score : float
        The Brier score.

    See Also
    --------
    brier_decomposition : Its parts, calibration and refinement.

    Examples
    --------
    >>> brier_score(np.array([0, 1]), np.array([[0.5, 0.5], [0.5, 0.5]]))
    0.5
    """
    proba = np.asarray(proba, dtype=np.float64)
    truth = np.eye(proba.shape[1])[np.asarray(class_index)]
    return float(np.average(np.square(proba - truth).sum(axis=1), weights=sample_weight))


def class_loss(class_index: ArrayLike, proba: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the share of rows whose true class does not have the largest probability (Bravo et al. 2010, §4.3).

    Ties go to the first class, as in the estimators' labels.

    Parameters
    ----------
    class_index : array-like of int, shape (n,)
        True classes.
    proba : array-like of shape (n, K)
        Class probabilities.
    sample_weight : array-like of shape (n,) or None
        Row weights.

    Returns
    -------
    loss : float
        From 0 to 1.

    Examples
    --------
    >>> class_loss([0, 1, 1], [[0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    0.333...
    """
    index, p, weights = checked(class_index, proba, sample_weight)
    return float(np.average(p.argmax(axis=1) != index, weights=weights))
