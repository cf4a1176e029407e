"""The prediction sets of a report: against sets that are made row by row."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_softmax

from polymargin.report._predictions import Predictions
from polymargin.report._sets import set_part

CLASSES = ["a", "b", "<b>c</b>"]


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * [2.0, 1.0, 0.5]
    y = (rng.random((400, 1)) > np.exp(log_softmax(logits, axis=1)).cumsum(axis=1)[:, :2]).sum(axis=1)
    log_p = log_softmax(logits, axis=1)
    return Predictions(y, log_p.argmax(axis=1), log_p, np.arange(1, 401), CLASSES)


def slow_sets(said, coverage):
    """Return the sets of the rows, each by the scores of the half that it is not in."""
    half = np.random.default_rng(0).permutation(400) % 2
    thresholds = []
    for other in (1, 0):
        scores = sorted(-said.log_proba[j, said.class_index[j]] for j in range(400) if half[j] == other)
        thresholds.append(scores[int(np.ceil(201 * coverage - 1e-9)) - 1])
    sets = []
    for i in range(400):
        q = thresholds[half[i]]
        sets.append({k for k in range(3) if -said.log_proba[i, k] <= q or k == said.labels[i]})
    return sets


def test_sizes_coverage_and_pairs_are_those_of_slow_sets(predictions):
    part = set_part(predictions)
    assert [level["asked"] for level in part["levels"]] == [0.8, 0.9, 0.95, 0.99]
    for level in part["levels"]:
        sets = slow_sets(predictions, level["asked"])
        hit = [k in each for k, each in zip(predictions.class_index, sets, strict=True)]
        assert_allclose(level["found"], np.mean(hit))
        assert_allclose(level["size"], np.mean([len(each) for each in sets]))
        assert_allclose(
            level["shares"], [np.mean([len(each) == size for each in sets]) for size in (1, 2, 3)]
        )
        if level["asked"] != part["main"]:
            continue
        counts = Counter(tuple(sorted(each)) for each in sets if len(each) == 2)
        assert {tuple(row["classes"]): row["tests"] for row in part["pairs"]} == {
            (CLASSES[i], CLASSES[j]): count for (i, j), count in counts.items()
        }
        for k, row in enumerate(part["classes"]):
            of_class = [h for h, c in zip(hit, predictions.class_index, strict=True) if c == k]
            assert_allclose(row["found"], np.mean(of_class))
    json.dumps(part)
    assert f"{part['levels'][1]['found']:.1%}" in part["text"]


def test_too_few_rows_have_no_sets(predictions):
    few = Predictions(
        predictions.class_index[:12],
        predictions.labels[:12],
        predictions.log_proba[:12],
        np.arange(12),
        CLASSES,
    )
    assert set_part(few) is None
