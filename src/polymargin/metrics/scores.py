"""Proper scores of class probabilities, and accuracy.

All take the true classes as indices into the columns of the probabilities, so that a class absent from the rows
at hand needs no special care.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def accuracy(class_index: Array, predicted: Array) -> float:
    """Return the share of rows whose predicted class index is right."""
    return float(np.mean(class_index == predicted))


def log_loss(class_index: Array, log_proba: Array) -> float:
    """Return the mean of minus the log-probability of the true class; 0 is perfect.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        True classes.
    log_proba : ndarray of shape (n, K)
        Logarithms of the class probabilities.

    Examples
    --------
    >>> log_loss(np.array([0, 1]), np.log([[0.5, 0.5], [0.5, 0.5]]))
    0.693...
    """
    return float(-log_proba[np.arange(class_index.size), class_index].mean())


def brier_score(class_index: Array, proba: Array) -> float:
    """Return the mean squared distance between the probabilities and the truth, from 0 (perfect) to 2.

    Examples
    --------
    >>> brier_score(np.array([0, 1]), np.array([[0.5, 0.5], [0.5, 0.5]]))
    0.5
    """
    truth = np.eye(proba.shape[1])[class_index]
    return float(np.square(proba - truth).sum(axis=1).mean())
