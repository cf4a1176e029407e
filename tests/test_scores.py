"""Scores with weights, against scikit-learn's and copies of rows."""

import math

import numpy as np
import pytest
from sklearn.metrics import log_loss as sklearn_log_loss

from polymargin.metrics import accuracy, brier_score, class_loss, log_loss
from posteriors import problem


def test_class_loss_is_the_error_rate():
    index, p, weights = problem(9)
    assert class_loss(index, p) == pytest.approx(1.0 - accuracy(index, p.argmax(axis=1)))
    weighted = 1.0 - accuracy(index, p.argmax(axis=1), sample_weight=weights)
    assert class_loss(index, p, sample_weight=weights) == pytest.approx(weighted)
    assert class_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]]) == 0.5, "the first of equals has it"


def test_weighted_scores():
    index, p, weights = problem(10)
    expected = sklearn_log_loss(index, p, sample_weight=weights, labels=[0, 1, 2])
    assert log_loss(index, np.log(p), sample_weight=weights) == pytest.approx(expected)
    y, q = np.repeat(index, weights), np.repeat(p, weights, axis=0)
    assert brier_score(index, p, sample_weight=weights) == pytest.approx(brier_score(y, q))
    assert accuracy(index, p.argmax(axis=1), sample_weight=weights) == pytest.approx(
        np.mean(y == q.argmax(axis=1))
    )
    logs = np.array([[math.log(0.5), math.log(0.5)], [0.0, -np.inf]])
    assert log_loss(np.array([0, 1]), logs, sample_weight=np.array([1.0, 0.0])) == pytest.approx(math.log(2))
