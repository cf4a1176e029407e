"""How good a fitted model is, by probabilities of rows that it had not learned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Honest", "by_folds", "by_leave_one_out", "scores"]

Array = NDArray[Any]
_FOLDS = 5


@dataclass(frozen=True)
class Honest:
    """What a model says of rows that it had not learned from.

    Attributes
    ----------
    method : str
        How that came about.
    rows : ndarray of int, shape (n,)
        Which rows of the examples.
    predicted : ndarray of int, shape (n,)
        Their predicted classes, as places among the model's classes.
    log_proba : ndarray of shape (n, K) or None
        Their log-probabilities; None if the model gives none.
    cells : ndarray of int, shape (n,), or None
        For leave-one-out probabilities, the same number for rows that the model cannot tell apart.
    """

    method: str
    rows: Array
    predicted: Array
    log_proba: Array | None
    cells: Array | None = None


def by_leave_one_out(classifier: Any, n_rows: int, weights: Array | None) -> Honest | None:
    """Return the leave-one-out probabilities that came with the fit, None where there are none."""
    from polymargin.estimators._honest import training_cells

    log_proba = getattr(classifier, "loo_log_proba_", None)
    if log_proba is None:
        return None
    rows = np.arange(n_rows) if weights is None else np.flatnonzero(weights)
    # Rounding included, label and probability agree.
    return Honest(
        "leave-one-out", rows, np.exp(log_proba).argmax(axis=1), log_proba, training_cells(classifier)
    )


def by_folds(
    model: Any,
    frame: Any,
    labels: Array,
    weights: Array | None,
    seed: int,
    advance: Callable[[int, int], None],
) -> Honest:
    """Fit a pipeline again in stratified folds; rows that are alone in their class are always learned from.

    Parameters
    ----------
    model : Pipeline
        Ends in a step ``classifier``; cloned.
    frame, labels, weights
        The examples.
    seed : int
        Of the folds.
    advance : callable
        Is told how many of how many folds are done.
    """
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold

    classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    alone = counts[index] == 1
    tested = np.flatnonzero(~alone)
    n_folds = int(min(_FOLDS, counts[counts > 1].min(initial=_FOLDS)))
    if tested.size == 0:
        raise ValueError("every class has a single row; nothing can be held out")
    predicted = np.zeros(labels.size, dtype=np.int64)
    log_proba = np.full((labels.size, classes.size), -np.inf) if hasattr(model, "predict_log_proba") else None
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(tested, index[tested])
    for number, (_, held) in enumerate(folds):
        advance(number, n_folds)
        out = tested[held]
        kept = np.delete(np.arange(labels.size), out)
        weighted = {} if weights is None else {"classifier__sample_weight": weights[kept]}
        fold = clone(model).fit(frame.iloc[kept], labels[kept], **weighted)
        predicted[out] = np.searchsorted(classes, fold.predict(frame.iloc[out]))
        if log_proba is not None:
            log_proba[out] = fold.predict_log_proba(frame.iloc[out])
    advance(n_folds, n_folds)
    return Honest(
        f"{n_folds} folds", tested, predicted[tested], None if log_proba is None else log_proba[tested]
    )


def scores(
    class_index: Array,
    predicted: Array,
    log_proba: Array | None,
    weights: Array | None,
    cells: Array | None = None,
) -> dict[str, float]:
    """Return accuracy and, where there are probabilities, log-loss, Brier score and calibration error.

    ``log_loss_of_frequencies`` is that of always predicting the class frequencies of these rows; ``cells`` is
    explained at `Honest`.

    Examples
    --------
    >>> scores(np.array([0, 1]), np.array([0, 0]), np.log([[0.75, 0.25], [0.5, 0.5]]), None)["accuracy"]
    0.5
    """
    from polymargin import metrics

    found = {"accuracy": metrics.accuracy(class_index, predicted, sample_weight=weights)}
    if log_proba is None:
        return found
    proba = np.exp(log_proba)
    shares = np.bincount(class_index, weights, minlength=proba.shape[1])
    shares = shares[shares > 0] / shares.sum()
    return {
        "log_loss": metrics.log_loss(class_index, log_proba, sample_weight=weights),
        "log_loss_of_frequencies": -float(shares @ np.log(shares)),
        **found,
        "brier": metrics.brier_score(class_index, proba, sample_weight=weights),
        "calibration_error": metrics.calibration_error(class_index, proba, sample_weight=weights)
        if cells is None
        else metrics.leave_one_out_calibration_error(class_index, proba, cells, sample_weight=weights),
    }
