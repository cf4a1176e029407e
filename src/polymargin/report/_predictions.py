"""Calibration, confusion and single rows of out-of-sample predictions, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.metrics import (
    accuracy,
    balanced_accuracy,
    brier_score,
    calibration_error,
    class_frequencies_baseline,
    is_unbalanced,
    leave_halves_out,
    leave_one_out_calibration_error,
    log_loss,
    one_vs_rest_auc,
    reliability_curve,
)
from polymargin.metrics.calibration import wilson_interval

Array = NDArray[Any]
Section = dict[str, Any]

_LEVEL = 0.95
_HISTOGRAM_BINS = 20
_LISTED_ROWS = 12
_LISTED_CONFUSIONS = 15
#: The total number of labels that are drawn for the calibration error by chance.
_CHANCE_WORK, _CHANCE_DRAWS = 2_000_000, 100


@dataclass(frozen=True)
class Predictions:
    """Predictions of rows by models that were not fitted on them.

    Attributes
    ----------
    class_index, labels : ndarray of int, shape (n,)
        The positions of the true and of the predicted classes.
    log_proba : ndarray of shape (n, K), or None
        Logarithms of the class probabilities, where there are any.
    row : ndarray of int, shape (n,)
        The numbers that the rows are called by; one that was tested several times is there as often.
    classes : list of K str
        The classes' names.
    weights : ndarray of shape (n,), or None
        How much the rows count in scores and curves; the tables of counts take every row for one.
    cells : ndarray of int, shape (n,), or None
        If the probabilities leave one row out at a time: the same number for rows that are equal in X.
    """

    class_index: Array
    labels: Array
    log_proba: Array | None
    row: Array
    classes: list[str]
    weights: Array | None = None
    cells: Array | None = None

    @cached_property
    def for_calibration(self) -> Predictions:
        """The predictions that calibration is judged by: of equal rows half, which are left out together."""
        if self.cells is None:
            return self
        half = leave_halves_out(self.class_index, self.proba, self.cells, sample_weight=self.weights)
        if half.whole:
            return replace(self, cells=None)
        with np.errstate(divide="ignore"):
            log_proba = np.log(half.proba)
        return Predictions(
            self.class_index[half.rows],
            half.proba.argmax(axis=1),
            log_proba,
            self.row[half.rows],
            self.classes,
            half.weights,
        )

    @cached_property
    def proba(self) -> Array:
        """The class probabilities, shape (n, K)."""
        assert self.log_proba is not None
        return np.exp(self.log_proba)

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """The different rows, and which of them every prediction is about."""
        return np.unique(self.row, return_inverse=True)


def prediction_parts(predictions: Predictions) -> Section:
    """Return all parts of a summary that predictions give; None where they need probabilities that are not there."""
    known = predictions.log_proba is not None
    return {
        "scores": _scores(predictions),
        "confusion": _confusion(predictions),
        "per_class": _per_class(predictions),
        "reliability": _reliability(predictions) if known else None,
        "histograms": _histograms(predictions) if known else None,
        "uncertain": _uncertain(predictions) if known else None,
        "wrong": _wrong(predictions) if known else None,
    }


def _scores(said: Predictions) -> Section:
    part: Section = {
        "predictions": int(said.class_index.size),
        "rows": int(said.rows[0].size),
        "accuracy": accuracy(said.class_index, said.labels, sample_weight=said.weights),
        "balanced_accuracy": balanced_accuracy(said.class_index, said.labels, sample_weight=said.weights),
        "unbalanced": is_unbalanced(said.class_index),
        "baseline": _baseline(said),
    }
    if said.log_proba is not None:
        part |= {
            "log_loss": log_loss(said.class_index, said.log_proba, sample_weight=said.weights),
            "auc": one_vs_rest_auc(said.class_index, said.proba, sample_weight=said.weights),
            "brier": brier_score(said.class_index, said.proba, sample_weight=said.weights),
            "calibration_error": _stated_calibration_error(said),
            "calibration_by_chance": _calibration_by_chance(said.for_calibration),
        }
    return part


def _baseline(said: Predictions) -> Section:
    """Return the scores of the class frequencies, and whether the model's log-loss is better by more than chance."""
    found = class_frequencies_baseline(said.class_index, said.log_proba, sample_weight=said.weights)
    if found.standard_error is not None:
        # Tests of the same row are not independent.
        error = found.standard_error * float(np.sqrt(said.row.size / said.rows[0].size))
        found = replace(found, standard_error=error)
    return {
        "log_loss": found.log_loss,
        "accuracy": found.accuracy,
        "most_frequent": said.classes[found.most_frequent],
        "learned": found.learned,
    }


def _stated_calibration_error(said: Predictions) -> float:
    if said.cells is None:
        return _calibration_error(said, said.class_index)
    return leave_one_out_calibration_error(
        said.class_index, said.proba, said.cells, sample_weight=said.weights
    )


def _calibration_error(said: Predictions, class_index: Array) -> float:
    return calibration_error(class_index, said.proba, sample_weight=said.weights)


def _calibration_by_chance(said: Predictions) -> float:
    """Return the mean calibration error of labels that are drawn from the probabilities themselves.

    A row that was tested several times has the same random number in all of its tests.
    """
    random = np.random.default_rng(0)
    edges = np.cumsum(said.proba, axis=1)[:, :-1]
    distinct, place = said.rows
    draws = int(np.clip(_CHANCE_WORK // said.class_index.size, 5, _CHANCE_DRAWS))
    found = [
        _calibration_error(said, (random.random(distinct.size)[place, np.newaxis] >= edges).sum(axis=1))
        for _ in range(draws)
    ]
    return float(np.mean(found))


def _reliability(said: Predictions) -> Section:
    """Return the curves of the largest probability and of every class's, with intervals."""
    said = said.for_calibration
    # Tests of the same row are not independent: the intervals count different rows.
    share = said.rows[0].size / said.row.size
    views = []
    for of in (None, *range(len(said.classes))):
        curve = reliability_curve(
            said.class_index, said.proba, of=of, sample_weight=said.weights, level=_LEVEL
        )
        low, high = curve.low, curve.high
        if share < 1.0:
            low, high = wilson_interval(curve.observed, np.maximum(curve.count * share, 1.0), _LEVEL)
        views.append(
            {
                "name": "largest probability" if of is None else f"probability of {said.classes[of]}",
                "predicted": curve.predicted.tolist(),
                "observed": curve.observed.tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
                "count": curve.count.tolist(),
                "error": curve.error,
            }
        )
    return {"level": _LEVEL, "views": views}


def _histograms(said: Predictions) -> Section:
    """Return histograms of the probabilities, of events that occurred and of events that did not."""
    edges = np.linspace(0.0, 1.0, _HISTOGRAM_BINS + 1)

    def view(name: str, probability: Array, happened: Array, yes: str, no: str) -> Section:
        return {
            "name": name,
            "series": [
                {"name": label, "counts": np.histogram(probability[chosen], edges)[0].tolist()}
                for label, chosen in ((yes, happened), (no, ~happened))
            ],
        }

    # By rounding a probability may be slightly above one.
    p = np.clip(said.proba, 0.0, 1.0)
    views = [
        view(
            "largest probability",
            p.max(axis=1),
            said.class_index == said.labels,
            "label right",
            "label wrong",
        )
    ]
    for k, name in enumerate(said.classes):
        views.append(
            view(
                f"probability of {name}", p[:, k], said.class_index == k, "of this class", "of other classes"
            )
        )
    return {"edges": edges.tolist(), "views": views}


def _confusion(said: Predictions) -> Section:
    n_classes = len(said.classes)
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(counts, (said.class_index, said.labels), 1)
    off = counts - np.diag(np.diag(counts))
    most = np.argsort(-off, axis=None, kind="stable")[:_LISTED_CONFUSIONS]
    pairs = zip(*np.unravel_index(most, off.shape), strict=True)
    return {
        "counts": counts.tolist(),
        "wrong": int(off.sum()),
        "pairs": int((off > 0).sum()),
        "most": [
            {
                "true": said.classes[true],
                "predicted": said.classes[predicted],
                "count": int(off[true, predicted]),
                "share": float(off[true, predicted] / counts[true].sum()),
            }
            for true, predicted in pairs
            if off[true, predicted]
        ],
    }


def _per_class(said: Predictions) -> list[Section]:
    found = []
    for k, name in enumerate(said.classes):
        true, told = said.class_index == k, said.labels == k
        hits = int((true & told).sum())
        part: Section = {
            "class": name,
            "tests": int(true.sum()),
            "recall": hits / int(true.sum()) if true.any() else None,
            "precision": hits / int(told.sum()) if told.any() else None,
            "f1": 2 * hits / int(true.sum() + told.sum()) if (true | told).any() else None,
        }
        if said.log_proba is not None:
            part["log_loss"] = log_loss(said.class_index[true], said.log_proba[true]) if true.any() else None
            judged = said.for_calibration
            part["calibration_error"] = reliability_curve(
                judged.class_index, judged.proba, of=k, sample_weight=judged.weights
            ).error
        found.append(part)
    return found


def _uncertain(said: Predictions) -> list[Section]:
    """Return the rows whose largest probability, averaged over their tests, is smallest."""
    distinct, place = said.rows
    tests = np.bincount(place)
    mean = np.stack([np.bincount(place, column) for column in said.proba.T], axis=1) / tests[:, np.newaxis]
    true = np.zeros(distinct.size, dtype=np.int64)
    true[place] = said.class_index
    order = np.argsort(mean, axis=1)
    first, second = order[:, -1], order[:, -2]
    listed = np.argsort(mean.max(axis=1), kind="stable")[:_LISTED_ROWS]
    return [
        {
            "row": int(distinct[i]),
            "tests": int(tests[i]),
            "true": said.classes[true[i]],
            "first": said.classes[first[i]],
            "first_probability": float(mean[i, first[i]]),
            "second": said.classes[second[i]],
            "second_probability": float(mean[i, second[i]]),
        }
        for i in listed
    ]


def _wrong(said: Predictions) -> list[Section]:
    """Return the rows that were labelled wrong at least once, by how sure the wrong label was."""
    distinct, place = said.rows
    tests, wrong = np.bincount(place), said.labels != said.class_index
    times = np.bincount(place, wrong)
    at = np.flatnonzero(wrong)
    sure = said.proba[at, said.labels[at]]
    found: dict[int, Section] = {}
    for test, probability in sorted(zip(at.tolist(), sure.tolist(), strict=True), key=lambda pair: -pair[1]):
        row = int(place[test])
        if row in found:
            continue
        if len(found) == _LISTED_ROWS:
            break
        found[row] = {
            "row": int(distinct[row]),
            "tests": int(tests[row]),
            "wrong": int(times[row]),
            "true": said.classes[said.class_index[test]],
            "true_probability": float(said.proba[test, said.class_index[test]]),
            "said": said.classes[said.labels[test]],
            "said_probability": probability,
        }
    return list(found.values())
