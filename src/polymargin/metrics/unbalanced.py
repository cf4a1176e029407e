"""Scores for classes of different sizes, and the baseline of a model that predicts the class frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

__all__ = ["Baseline", "balanced_accuracy", "class_frequencies_baseline", "is_unbalanced", "one_vs_rest_auc"]

Array = NDArray[Any]

#: The log-loss is better than the baseline's if it is lower by so many standard errors: by chance, one time in 44.
_TELLING = 2.0
#: From this ratio of the largest class to the smallest on, accuracy is mostly that of the largest class.
_UNBALANCED = 3.0


def balanced_accuracy(class_index: Array, predicted: Array, *, sample_weight: Array | None = None) -> float:
    """Return the mean recall of the classes that occur.

    Parameters
    ----------
    class_index, predicted : ndarray of int, shape (n,)
        True and predicted classes.
    sample_weight : ndarray of shape (n,) or None
        Row weights.

    Returns
    -------
    accuracy : float
        From 0 to 1; predicting one of K classes always has 1/K.

    See Also
    --------
    sklearn.metrics.balanced_accuracy_score : The same, which warns of predicted classes that do not occur.

    Examples
    --------
    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]))
    0.5
    """
    total = np.bincount(class_index, sample_weight)
    hits = np.bincount(class_index, (class_index == predicted) * _weights(class_index, sample_weight))
    return float((hits[total > 0] / total[total > 0]).mean())


def one_vs_rest_auc(class_index: Array, proba: Array, *, sample_weight: Array | None = None) -> float | None:
    """Return the area under the ROC curve, the mean over the classes of each class against all others.

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
    area : float or None
        From 0 to 1; 0.5 is chance. Classes that do not occur are left out; None if fewer than two occur.

    See Also
    --------
    sklearn.metrics.roc_auc_score : With ``multi_class="ovr"`` the same where all classes occur.

    Examples
    --------
    >>> one_vs_rest_auc(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]))
    0.5
    """
    proba = np.asarray(proba)
    kept = _weights(class_index, sample_weight) > 0.0
    index, shown = class_index[kept], proba[kept]
    weights = None if sample_weight is None else sample_weight[kept]
    present = np.unique(index)
    if present.size < 2:
        return None
    areas = [roc_auc_score(index == k, shown[:, k], sample_weight=weights) for k in present]
    return float(np.mean(areas))


def is_unbalanced(class_index: Array) -> bool:
    """Tell whether the largest class that occurs has three times as many rows as the smallest, or more.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        Classes of rows.

    Returns
    -------
    unbalanced : bool
        Whether accuracy says little about the smaller classes.

    Examples
    --------
    >>> is_unbalanced(np.array([0, 0, 1])), is_unbalanced(np.array([0, 0, 0, 1]))
    (False, True)
    """
    counts = np.unique(class_index, return_counts=True)[1]
    return bool(counts.max() >= _UNBALANCED * counts.min())


@dataclass(frozen=True)
class Baseline:
    """Scores of predicting the class frequencies for every row, beside those of a model.

    Attributes
    ----------
    log_loss, accuracy : float
        Of the class frequencies as probabilities, and of always predicting the most frequent class.
    most_frequent : int
        That class.
    gain, standard_error : float or None
        How much lower the model's log-loss is, and the standard error of that over the rows.

    Examples
    --------
    >>> baseline = class_frequencies_baseline(np.array([0, 0, 0, 1]), np.log([[0.7, 0.3]] * 4))
    >>> baseline.accuracy, baseline.learned
    (0.75, False)
    """

    log_loss: float
    accuracy: float
    most_frequent: int
    gain: float | None = None
    standard_error: float | None = None

    @property
    def learned(self) -> bool | None:
        """Whether the model's log-loss is lower by two standard errors or more; None if it has none."""
        if self.gain is None or self.standard_error is None:
            return None
        return bool(self.gain > _TELLING * self.standard_error)


def class_frequencies_baseline(
    class_index: Array, log_proba: Array | None = None, *, sample_weight: Array | None = None
) -> Baseline:
    """Return the scores of the frequencies of the classes among these rows.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        True classes.
    log_proba : ndarray of shape (n, K) or None
        Logarithms of a model's class probabilities of the same rows, to compare with.
    sample_weight : ndarray of shape (n,) or None
        Row weights.

    Returns
    -------
    Baseline

    Examples
    --------
    >>> class_frequencies_baseline(np.array([0, 1])).log_loss
    0.693...
    """
    weights = _weights(class_index, sample_weight)
    shares = np.bincount(class_index, weights) / weights.sum()
    with np.errstate(divide="ignore"):
        logs = np.log(shares)
    losses = -logs[class_index]
    counted = weights > 0.0
    loss = float(np.average(losses[counted], weights=weights[counted]))
    top = int(shares.argmax())
    if log_proba is None:
        return Baseline(loss, float(shares[top]), top)
    gains = losses[counted] + np.asarray(log_proba)[np.arange(class_index.size), class_index][counted]
    weights = weights[counted] / weights.sum()
    gain = float(weights @ gains)
    error = float(np.sqrt(np.square(weights) @ np.square(gains - gain))) if np.isfinite(gain) else 0.0
    return Baseline(loss, float(shares[top]), top, gain, error)


def _weights(class_index: Array, sample_weight: Array | None) -> Array:
    return np.ones(class_index.size) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
