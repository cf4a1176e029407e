"""The ranking of what competed on repeated splits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.comparison.repeated import OWN, Method, RepeatedComparison, unpacked
from polymargin.metrics import (
    accuracy,
    balanced_accuracy,
    brier_score,
    calibration_error,
    log_loss,
    one_vs_rest_auc,
)
from polymargin.reproduction import Row

__all__ = ["Standing", "Tests", "classifiers", "shown_in_detail", "standings"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Tests:
    """The predictions of a method for the test rows of all splits; a row tested in several splits is there as often.

    Attributes
    ----------
    row : ndarray of int, shape (n,)
        Which row of the dataset was tested, counted from 0.
    class_index, labels : ndarray of int, shape (n,)
        The positions of its true and of its predicted class.
    log_proba : ndarray of shape (n, K), or None
        The logarithms of its class probabilities, where the decoder gives any.
    """

    row: Array
    class_index: Array
    labels: Array
    log_proba: Array | None


@dataclass(frozen=True)
class Standing:
    """How a method did.

    Attributes
    ----------
    method : Method
        What competed.
    is_default : bool
        Whether it is a classifier as it is without a choice of coding and decoding.
    accuracy, balanced_accuracy, log_loss, brier, auc : ndarray of shape (splits,), or None
        The scores of its splits; those of probabilities only where there are any. ``auc`` is the area under the ROC
        curve, each class against the others.
    calibration_error : float or None
        Of the largest probability, over the tests of all splits together: one split has too few rows for it.
    tests : Tests
        What it predicted.
    """

    method: Method
    is_default: bool
    accuracy: Array
    balanced_accuracy: Array
    log_loss: Array | None
    brier: Array | None
    auc: Array | None
    calibration_error: float | None
    tests: Tests

    def as_json(self) -> dict[str, Any]:
        """Return names and scores as plain values."""
        return {
            "model": self.method.model,
            "default": self.is_default,
            **{name: value or None for name, value in self.method._asdict().items()},
            "accuracy": _mean_sd(self.accuracy),
            "balanced_accuracy": _mean_sd(self.balanced_accuracy),
            "log_loss": _mean_sd(self.log_loss),
            "brier": _mean_sd(self.brier),
            "auc": _mean_sd(self.auc),
            "calibration_error": self.calibration_error,
        }


def standings(comparison: RepeatedComparison, rows: Iterable[Row]) -> list[Standing]:
    """Rank the methods of finished rows, the least mean log-loss first, those without probabilities by accuracy.

    Parameters
    ----------
    comparison : RepeatedComparison
        What was run.
    rows : iterable of Row
        What its jobs returned.

    Examples
    --------
    >>> from polymargin.datasets import load
    >>> comparison = RepeatedComparison(load("iris"), ["ls-svm"], ["minimal"], ["bayes"], repeats=2)
    >>> rows = [row for job in comparison.jobs() for row in comparison.run(job)]
    >>> (best,) = standings(comparison, rows)
    >>> str(best.method), best.tests.row.size
    ('LSSVMClassifier, minimal, bayes', 100)
    """
    by_method: dict[Method, list[Row]] = {}
    for row in rows:
        by_method.setdefault(Method(row["machine"], row["coding"], row["decoding"]), []).append(row)
    found = [_standing(comparison, method, group) for method, group in by_method.items()]
    return sorted(
        found,
        key=lambda standing: (
            math.inf if standing.log_loss is None else standing.log_loss.mean(),
            -standing.accuracy.mean(),
        ),
    )


def classifiers(ranking: Sequence[Standing]) -> list[Standing]:
    """Return the classifiers as they are without a choice of coding and decoding; none if only one was compared.

    To take the best of many codings and decoders by their scores on the test rows is to choose by these rows, so that
    its score is a little too good. These are not chosen.

    Parameters
    ----------
    ranking : sequence of Standing
        What `standings` returned.
    """
    found = [standing for standing in ranking if standing.is_default]
    return found if len({standing.method.machine for standing in ranking}) > 1 else []


def shown_in_detail(ranking: Sequence[Standing]) -> Standing:
    """Return the method whose predictions a report shows: the best of this package's.

    Parameters
    ----------
    ranking : sequence of Standing
        What `standings` returned; of its classifiers, if several were compared, else of all methods.
    """
    for standing in (*classifiers(ranking), *ranking):
        if standing.method.machine in OWN:
            return standing
    raise ValueError(f"none of the methods is one of {', '.join(OWN.values())}: there is no model to show")


def _standing(comparison: RepeatedComparison, method: Method, rows: Sequence[Row]) -> Standing:
    splits = [_tests(comparison, row) for row in rows]
    whole = Tests(
        np.concatenate([tests.row for tests in splits]),
        np.concatenate([tests.class_index for tests in splits]),
        np.concatenate([tests.labels for tests in splits]),
        None if splits[0].log_proba is None else np.concatenate([tests.log_proba for tests in splits]),
    )
    right = np.array([accuracy(tests.class_index, tests.labels) for tests in splits])
    recall = np.array([balanced_accuracy(tests.class_index, tests.labels) for tests in splits])
    is_default = comparison.is_default(method)
    if whole.log_proba is None:
        return Standing(method, is_default, right, recall, None, None, None, None, whole)
    given = [(tests, tests.log_proba) for tests in splits if tests.log_proba is not None]
    areas = [one_vs_rest_auc(tests.class_index, np.exp(log_proba)) for tests, log_proba in given]
    return Standing(
        method,
        is_default,
        right,
        recall,
        np.array([log_loss(tests.class_index, log_proba) for tests, log_proba in given]),
        np.array([brier_score(tests.class_index, np.exp(log_proba)) for tests, log_proba in given]),
        None if None in areas else np.array(areas, dtype=np.float64),
        calibration_error(whole.class_index, np.exp(whole.log_proba)),
        whole,
    )


def _tests(comparison: RepeatedComparison, row: Row) -> Tests:
    _, test = comparison.split(int(row["split"]))
    log_proba = None
    if row["log_proba"] is not None:
        # What a journal rounds to 32 bits must not come back as a probability above one.
        log_proba = np.minimum(unpacked(row["log_proba"], "<f4").astype(np.float64), 0.0)
        log_proba = log_proba.reshape(test.size, comparison.classes.size)
    return Tests(test, comparison.class_index[test], unpacked(row["labels"], "<i4"), log_proba)


def _mean_sd(values: Array | None) -> dict[str, float] | None:
    if values is None:
        return None
    return {"mean": float(values.mean()), "sd": float(values.std(ddof=1)) if values.size > 1 else 0.0}
