"""Scores of a fitted model on rows that it was not fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # importing pandas at run time would make every command slow to start
    from polymargin.tables import Examples

__all__ = ["Honest", "by_folds", "by_leave_one_out", "scores"]

Array = NDArray[Any]
_FOLDS = 5


@dataclass(frozen=True)
class Honest:
    """Predictions of rows by models that were not fitted on them.

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
        For leave-one-out probabilities, the same number for rows with equal features.
    """

    method: str
    rows: Array
    predicted: Array
    log_proba: Array | None
    cells: Array | None = None


def by_leave_one_out(classifier: Any) -> Honest | None:
    """Return the leave-one-out probabilities that came with the fit, None where there are none."""
    from polymargin.inspection.honest import training_cells, unseen_rows

    log_proba = getattr(classifier, "loo_log_proba_", None)
    if log_proba is None:
        return None
    kept, cells = unseen_rows(classifier), training_cells(classifier)
    seen = len(log_proba) - kept.size
    log_proba = log_proba[kept]
    # Rounding included, label and probability agree. Of exact copies in one group, the first stands for all.
    return Honest(
        "leave-one-out" + (f", without {seen} rows that a metric was learned from" if seen else ""),
        classifier.support_[kept],
        np.exp(log_proba).argmax(axis=1),
        log_proba,
        None if cells is None else cells[kept],
    )


def by_folds(model: Any, examples: Examples, seed: int, advance: Callable[[int, int], None]) -> Honest:
    """Fit a pipeline again in stratified folds, which keep groups together, and rows with their likely copies.

    Classes with a single row, or a single group, are never held out.

    Parameters
    ----------
    model : Pipeline
        Ends in a step ``classifier``, fitted; cloned.
    examples : Examples
        What it was fitted on.
    seed : int
        Of the folds.
    advance : callable
        Called with the number of folds done and of all folds.
    """
    from sklearn.base import clone

    frame, labels = examples.frame, examples.labels
    classes, index = np.unique(labels, return_inverse=True)
    groups = examples.groups if examples.groups is not None else _copies(model, frame, index)
    tested, folds = _folds(index, groups, seed)
    predicted = np.full(labels.size, -1, dtype=np.int64)
    log_proba = np.full((labels.size, classes.size), -np.inf) if hasattr(model, "predict_log_proba") else None
    for number, held in enumerate(folds):
        advance(number, len(folds))
        out = tested[held]
        kept = np.delete(np.arange(labels.size), out)
        # A fold that would hold out a whole class is left out.
        if np.unique(index[kept]).size < classes.size:
            continue
        given = {"sample_weight": examples.weights, "groups": examples.groups}
        given = {f"classifier__{name}": values[kept] for name, values in given.items() if values is not None}
        with warnings.catch_warnings():
            # The fit to all rows has given this warning.
            warnings.filterwarnings("ignore", r"\d+ of \d+ rows are copies", UserWarning)
            fold = clone(model).fit(frame.iloc[kept], labels[kept], **given)
        predicted[out] = np.searchsorted(classes, fold.predict(frame.iloc[out]))
        if log_proba is not None:
            log_proba[out] = fold.predict_log_proba(frame.iloc[out])
    advance(len(folds), len(folds))
    tested = np.flatnonzero(predicted >= 0)
    if tested.size == 0:
        raise ValueError("no fold leaves rows of every class to learn from; nothing can be held out")
    return Honest(
        f"{len(folds)} folds", tested, predicted[tested], None if log_proba is None else log_proba[tested]
    )


def _copies(model: Any, frame: Any, index: Array) -> Array | None:
    """Return the row that each is a likely copy of, None if there are no copies; the fit has warned of them."""
    from polymargin.estimators._copies import find_copies

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_copies(model[:-1].transform(frame), index)


def _folds(index: Array, groups: Array | None, seed: int) -> tuple[Array, list[Array]]:
    """Return the rows that can be held out, and the places among them of every fold."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    members = np.arange(index.size) if groups is None else np.unique(groups, return_inverse=True)[1]
    pairs = np.unique(np.stack([index, members]), axis=1)
    counts = np.bincount(pairs[0])  # the groups of every class
    # The only group of a class is not held out, nor are its rows of other classes.
    needed = pairs[1][counts[pairs[0]] == 1]
    tested = np.flatnonzero(~np.isin(members, needed))
    if tested.size == 0:
        raise ValueError(
            f"every class has a single {'row' if groups is None else 'group'}; nothing can be held out"
        )
    n_folds = int(min(_FOLDS, counts[counts > 1].min(initial=_FOLDS)))
    if groups is None:
        splits = StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(tested, index[tested])
    else:
        splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
        splits = splitter.split(tested, index[tested], members[tested])
    return tested, [held for _, held in splits]


def scores(
    class_index: Array,
    predicted: Array,
    log_proba: Array | None,
    weights: Array | None,
    cells: Array | None = None,
) -> dict[str, Any]:
    """Return the scores of predictions, and those of the class frequencies as a baseline.

    `auc` is the area under the ROC curve, the mean over the classes of each against the others; `recall` has the share
    of every class that is predicted right, None where it does not occur, and `class_rows` its number of rows. `learned`
    tells whether the log-loss is lower than the baseline's by two standard errors. ``cells`` is explained at `Honest`.

    Examples
    --------
    >>> scores(np.array([0, 1]), np.array([0, 0]), np.log([[0.75, 0.25], [0.5, 0.5]]), None)["accuracy"]
    0.5
    """
    from polymargin import metrics

    baseline = metrics.class_frequencies_baseline(class_index, log_proba, sample_weight=weights)
    recall = _recall(class_index, predicted, weights, None if log_proba is None else log_proba.shape[1])
    found: dict[str, Any] = {
        "accuracy": metrics.accuracy(class_index, predicted, sample_weight=weights),
        "accuracy_of_most_frequent": baseline.accuracy,
        "most_frequent": baseline.most_frequent,
        "balanced_accuracy": metrics.balanced_accuracy(class_index, predicted, sample_weight=weights),
        "recall": recall,
        "class_rows": np.bincount(class_index, minlength=len(recall)).tolist(),
        "unbalanced": metrics.is_unbalanced(class_index),
    }
    if log_proba is None:
        return found
    proba = np.exp(log_proba)
    return {
        "log_loss": metrics.log_loss(class_index, log_proba, sample_weight=weights),
        "log_loss_of_frequencies": baseline.log_loss,
        "learned": baseline.learned,
        **found,
        "auc": metrics.one_vs_rest_auc(class_index, proba, sample_weight=weights),
        "brier": metrics.brier_score(class_index, proba, sample_weight=weights),
        "calibration_error": metrics.calibration_error(class_index, proba, sample_weight=weights)
        if cells is None
        else metrics.leave_one_out_calibration_error(class_index, proba, cells, sample_weight=weights),
    }


def _recall(
    class_index: Array, predicted: Array, weights: Array | None, n_classes: int | None
) -> list[float | None]:
    """Return the share of every class, of its weight, that is predicted right."""
    size = n_classes or int(max(class_index.max(), predicted.max())) + 1
    given = np.ones(class_index.size) if weights is None else weights
    total = np.bincount(class_index, given, minlength=size)
    hits = np.bincount(class_index, given * (class_index == predicted), minlength=size)
    return [float(hit / all_) if all_ > 0 else None for hit, all_ in zip(hits, total, strict=True)]
