"""Soft labels: an n×K matrix of class probabilities in place of y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows

Array = NDArray[Any]

#: Tolerance of the sum of the probabilities of a row.
TOLERANCE = 1e-6


def are_soft(y: Any) -> bool:
    """Return whether y holds soft labels: a matrix of floating-point numbers with two columns or more.

    Examples
    --------
    >>> are_soft([[0.9, 0.1], [0.5, 0.5]]), are_soft([0.0, 1.0]), are_soft([[1, 0], [0, 1]])
    (True, False, False)
    """
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different lengths
        return False
    return values.ndim == 2 and values.shape[1] >= 2 and values.dtype.kind == "f"


def check_soft_labels(y: Any, n_rows: int, classes: Any = None) -> tuple[Array, Array]:
    """Return the soft labels, rows summing to one exactly, and the classes that the columns stand for, sorted.

    Parameters
    ----------
    y : array-like of shape (n, K)
        Class probabilities.
    n_rows : int
        The number of rows they are for.
    classes : array-like of shape (K,) or None
        Names of the columns; None for those of a DataFrame, else 0, …, K−1.

    Returns
    -------
    soft_labels : ndarray of shape (n, K)
    classes : ndarray of shape (K,)
    """
    P = np.asarray(y, dtype=np.float64)
    if P.shape[0] != n_rows:
        raise ValueError(f"X has {n_rows} rows, but there are soft labels for {P.shape[0]}")
    if not np.isfinite(P).all():
        raise ValueError("soft labels contain NaN or infinity; they must be probabilities")
    if (P < 0.0).any():
        row = int(np.flatnonzero((P < 0.0).any(axis=1))[0])
        raise ValueError(f"soft labels must not be negative; those of row {row} are {P[row].tolist()}")
    sums = P.sum(axis=1)
    if (np.abs(sums - 1.0) > TOLERANCE).any():
        row = int(np.flatnonzero(np.abs(sums - 1.0) > TOLERANCE)[0])
        raise ValueError(
            f"soft labels of every row must sum to one; those of row {row} sum to {sums[row]:.6g}"
        )
    names = _names(column_names(y, classes), P.shape[1])
    order = np.argsort(names, kind="stable")  # as scikit-learn has them, and its scorers expect
    return (P / sums[:, np.newaxis])[:, order], names[order]


def column_names(y: Any, classes: Any) -> Any:
    """Return the names of the columns of soft labels: `classes`, or those of a DataFrame; None if there are none.

    Parameters
    ----------
    y : array-like of shape (n, K)
        Class probabilities.
    classes : array-like of shape (K,) or None
        The parameter ``classes``.

    Returns
    -------
    array-like of shape (K,) or None

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame([[0.9, 0.1]], columns=["ill", "well"]), None)
    ['ill', 'well']
    """
    columns = list(getattr(y, "columns", []))
    if not columns or columns == list(range(len(columns))):
        return classes
    if classes is not None and list(np.asarray(classes).ravel()) != columns:
        raise ValueError(
            f"classes names the columns of the soft labels {np.asarray(classes).tolist()}, but their own names are "
            f"{columns}: leave classes out"
        )
    return columns


def _names(classes: Any, n_columns: int) -> Array:
    """Return the names of the columns."""
    if classes is None:
        return np.arange(n_columns)
    names = np.asarray(classes)
    if names.shape != (n_columns,):
        raise ValueError(
            f"classes must name the {n_columns} columns of the soft labels; it has shape {names.shape}"
        )
    if np.unique(names).size != n_columns:
        raise ValueError(f"classes must name every column differently; it is {names.tolist()}")
    return names


def check_named_classes(named: Any, classes: Array) -> None:
    """Raise ValueError if ``classes=``, which names the columns of soft labels, is not what the labels of y are."""
    given = np.asarray(named).tolist()
    if not isinstance(given, list) or set(given) != set(classes.tolist()):
        raise ValueError(
            f"classes={given!r} names the columns of soft labels, but the labels of y are {classes.tolist()}: leave "
            "classes out, or give these"
        )


def check_learnable(P: Array, classes: Array) -> None:
    """Raise ValueError for soft labels (of rows of positive weight) from which no classifier can be learned."""
    absent = ~P.any(axis=0)
    if absent.any():
        raise ValueError(
            f"class {classes[absent].tolist()[0]!r} has no probability in any row with a positive sample weight: leave "
            "its column out"
        )
    if not np.ptp(P, axis=0).any():
        raise ValueError("all rows have the same soft labels: there is nothing to learn")
    favoured = np.unique(P.argmax(axis=1))
    if favoured.size < 2:
        raise ValueError(
            f"all rows favour one class, {classes[favoured].tolist()[0]!r}; a classifier needs two or more"
        )


@dataclass(frozen=True)
class DecoderRows:
    """Training data of a decoder: outputs (None if it learns nothing), classes, and weights."""

    outputs: Outputs | None
    class_index: Array
    weights: Array


def decoder_rows(data: TrainingRows, outputs: Outputs | None) -> DecoderRows:
    """Return the training data of a decoder.

    A row with a soft label is there once for each class of positive probability, weighted with the probability.
    """
    weights = data.effective_weights
    if data.soft_labels is None:
        return DecoderRows(outputs, data.class_index, weights)
    rows, classes = np.nonzero(data.soft_labels)
    outputs = None if outputs is None else outputs.rows(rows)
    return DecoderRows(outputs, classes, data.soft_labels[rows, classes] * weights[rows])


def one_of_each_row(data: TrainingRows, values: Array) -> Array:
    """Return the values of the training rows from those of `decoder_rows`, which has a soft label several times."""
    if data.soft_labels is None:
        return values
    return values[np.unique(np.nonzero(data.soft_labels)[0], return_index=True)[1]]


def decoder_shares(data: TrainingRows, left_out: Array) -> Array:
    """Return what to multiply the weights of `decoder_rows` by to leave some rows out of a mean.

    See `TrainingRows.shares_without`.
    """
    shares = data.shares_without(left_out)
    return shares if data.soft_labels is None else shares[np.nonzero(data.soft_labels)[0]]


class SoftScoreMixin:
    """The accuracy on soft labels, so that `cross_val_score` works with them."""

    classes_: Array
    predict: Any

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of `predict`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,) or (n_samples, K)
            Their labels, or soft labels if `fit` takes them: the accuracy is then the mean probability of the
            predicted class.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights.

        Returns
        -------
        float
        """
        if not (getattr(self, "takes_soft_labels", True) and are_soft(y)):
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        predicted = np.asarray(self.predict(X))
        P, classes = check_soft_labels(y, predicted.size, getattr(self, "classes", None))
        if classes.tolist() != self.classes_.tolist():
            raise ValueError(
                f"the soft labels are of the classes {classes.tolist()}, not {self.classes_.tolist()}"
            )
        own = P[np.arange(predicted.size), np.searchsorted(classes, predicted)]
        return float(np.average(own, weights=None if sample_weight is None else np.asarray(sample_weight)))
