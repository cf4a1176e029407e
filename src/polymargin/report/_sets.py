"""Prediction sets of honest predictions, as plain values: their sizes, their coverage, and which classes share sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.decisions import CalibrationRows, prediction_sets
from polymargin.report._predictions import Predictions
from polymargin.report._sentences import quoted

Array = NDArray[Any]
Section = dict[str, Any]

#: What is shown: the coverages that are asked for, and at which of them classes are looked at.
_COVERAGES, _MAIN = (0.8, 0.9, 0.95, 0.99), 0.9
_LISTED_PAIRS = 6
#: A class that is covered less often by this is named.
_TELLING = 0.05


def set_part(said: Predictions) -> Section | None:
    """Return sizes and coverage of prediction sets; None where there are too few rows for any.

    Half of the rows are judged by the threshold of the other half, and the other way round: rows that have made a
    threshold themselves are covered by it as often as was asked for in any case.
    """
    distinct, place = said.rows
    half = np.random.default_rng(0).permutation(distinct.size)[place] % 2
    found = {coverage: _sets(said, half, coverage) for coverage in _COVERAGES}
    levels = [_level(said, coverage, sets) for coverage, sets in found.items() if sets is not None]
    main = found[_MAIN]
    if main is None:
        return None
    part: Section = {
        "main": _MAIN,
        "levels": levels,
        "classes": _classes(said, main),
        "pairs": _pairs(said, main),
    }
    return part | {"text": _sentences(part, int(said.class_index.size))}


def _sets(said: Predictions, half: Array, coverage: float) -> Array | None:
    """Return the sets of all predictions, shape (n, K); None if a half has too few rows for a threshold."""
    assert said.log_proba is not None
    sets = np.zeros(said.proba.shape, dtype=bool)
    for number in (0, 1):
        own, other = half == number, half != number
        # A row that was tested several times is one observation.
        rows = CalibrationRows(
            said.log_proba[other],
            said.class_index[other],
            None if said.weights is None else said.weights[other],
            said.rows[1][other],
        )
        thresholds = rows.thresholds(coverage)
        if np.isinf(thresholds).any():
            return None
        sets[own] = prediction_sets(said.log_proba[own], thresholds)
    return sets


def _level(said: Predictions, coverage: float, sets: Array) -> Section:
    """Return coverage and sizes of the sets of a coverage."""
    sizes = np.bincount(np.minimum(sets.sum(axis=1), 3), said.weights, minlength=4)
    hit = sets[np.arange(len(sets)), said.class_index]
    return {
        "asked": coverage,
        "found": float(np.average(hit, weights=said.weights)),
        "size": float(np.average(sets.sum(axis=1), weights=said.weights)),
        "shares": (sizes[1:] / sizes.sum()).tolist(),
    }


def _classes(said: Predictions, sets: Array) -> list[Section]:
    """Return coverage and sizes by true class."""
    hit, sizes = sets[np.arange(len(sets)), said.class_index], sets.sum(axis=1)
    found = []
    for k, name in enumerate(said.classes):
        true = said.class_index == k
        if true.any():
            found.append(
                {
                    "class": name,
                    "tests": int(true.sum()),
                    "found": float(hit[true].mean()),
                    "size": float(sizes[true].mean()),
                }
            )
    return found


def _pairs(said: Predictions, sets: Array) -> list[Section]:
    """Return the pairs of classes that are sets of two most often."""
    two = np.flatnonzero(sets.sum(axis=1) == 2)
    pairs, place = np.unique(sets[two], axis=0, return_inverse=True)
    place = place.ravel()
    held = sets[two, said.class_index[two]]
    counts, right = np.bincount(place, minlength=len(pairs)), np.bincount(place, held, minlength=len(pairs))
    return [
        {
            "classes": [said.classes[k] for k in np.flatnonzero(pairs[i])],
            "tests": int(counts[i]),
            "found": float(right[i] / counts[i]),
        }
        for i in np.argsort(-counts, kind="stable")[:_LISTED_PAIRS]
    ]


def _sentences(part: Section, n_tests: int) -> str:
    main = next(level for level in part["levels"] if level["asked"] == part["main"])
    text = (
        f"A prediction set is a list of classes that holds the true one with a stated probability. Asked for "
        f"{part['main']:.0%}, the sets held it in {main['found']:.1%} of {n_tests} held-out predictions, each judged "
        f"by a threshold from other rows; {main['shares'][0]:.0%} of the sets are a single class."
    )
    if main["found"] > part["main"] + 0.02:
        text += " The predicted class is in every set: sets hold the true one at least as often as labels are right."
    least = min(part["classes"], key=lambda row: row["found"])
    if least["found"] < part["main"] - _TELLING and len(part["classes"]) > 1:
        text += (
            f" The coverage is an average: class {quoted(least['class'])} is in {least['found']:.0%} of its sets. "
            "Thresholds for every class, per_class=True or --per-class, mend that, with larger sets."
        )
    return text
