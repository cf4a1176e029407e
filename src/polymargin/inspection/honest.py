"""The honest, that is out-of-sample, probabilities of the training rows, with their classes and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from polymargin.inspection.members import kernel_members, training_rows
from polymargin.rows import content_rank

Array = NDArray[Any]


@dataclass(frozen=True)
class HonestRows:
    """Out-of-sample probabilities of an estimator's training rows.

    Attributes
    ----------
    classes : ndarray of shape (K,)
        The class labels.
    class_index : ndarray of int, shape (n,)
        The classes of the rows.
    log_proba : ndarray of shape (n, K)
        Their log-probabilities.
    weights : ndarray of shape (n,)
        Their weights.
    cells : ndarray of int, shape (n,), or None
        The same number for rows that are equal in X; None if the rows are not known.
    """

    classes: Array
    class_index: Array
    log_proba: Array
    weights: Array
    cells: Array | None = None

    @property
    def accuracy(self) -> float:
        """The share of rows, by weight, whose most probable class is their own."""
        return float(np.average(self.log_proba.argmax(axis=1) == self.class_index, weights=self.weights))


def honest_rows(estimator: Any) -> HonestRows:
    """Return the leave-one-out probabilities of an estimator, of the last step of a Pipeline, or of a search's best.

    Parameters
    ----------
    estimator : LSSVMClassifier, AutoKernelClassifier, Pipeline or search
        The fitted estimator.

    Returns
    -------
    HonestRows

    Raises
    ------
    ValueError
        If it has none, or was fitted with soft labels, which have no class to compare with.
    """
    estimator = _last(estimator)
    check_is_fitted(estimator)
    log_proba = getattr(estimator, "loo_log_proba_", None)
    data = training_rows(estimator)
    if log_proba is None or data is None:
        raise ValueError(
            f"{type(estimator).__name__} has no honest probabilities of its training rows: LSSVMClassifier with a "
            "decoding that learns and AutoKernelClassifier do; else give rows that it has not seen"
        )
    if data.soft_labels is not None:
        raise ValueError("rows with soft labels have no class to compare with: give rows that have")
    kept, cells = unseen_rows(estimator), training_cells(estimator)
    return HonestRows(
        estimator.classes_,
        data.class_index[kept],
        log_proba[kept],
        data.weights[kept],
        None if cells is None else cells[kept],
    )


def _last(estimator: Any) -> Any:
    """Return the classifier at the end of pipelines, and inside searches."""
    if isinstance(estimator, Pipeline):
        return _last(estimator[-1])
    return _last(estimator.best_estimator_) if hasattr(estimator, "best_estimator_") else estimator


def unseen_rows(classifier: Any) -> Array:
    """Return the training rows whose leave-one-out probabilities are honest, as places in ``support_``.

    A metric that was learned from a part of the rows has seen their labels. They are left out as in ``loo_log_loss_``,
    which keeps those of a class of which too little would be left.
    """
    banks: list[Any] = [getattr(member, "bank_", None) for member in kernel_members(classifier)]
    leaks = [bank.leak for bank in banks if getattr(bank, "leak", None) is not None]
    if not leaks:
        return np.arange(len(classifier.support_))
    return np.flatnonzero(training_rows(classifier).shares_without(np.logical_or.reduce(leaks)))


def training_cells(classifier: Any) -> Array | None:
    """Return a number for every training row of a fitted classifier, the same for rows that are equal in X.

    None if the rows are not known, as with a precomputed kernel. A model that was loaded has them, too.
    """
    data = training_rows(classifier)
    if data is not None:
        rows, kernel = data.X, data.kernel
    else:
        rows, kernel = getattr(classifier, "_rows", None), getattr(classifier, "kernel_", None)
    return None if rows is None or kernel is None or kernel.precomputed else content_rank(rows)
