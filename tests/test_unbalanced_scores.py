"""Balanced accuracy, AUC and the baseline, against scikit-learn and by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.dummy import DummyClassifier
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

from polymargin.metrics import balanced_accuracy, class_frequencies_baseline, one_vs_rest_auc


@pytest.fixture(params=[2, 3, 7])
def scored(request):
    """Return classes of different sizes with probabilities that know a little of them, and weights."""
    rng = np.random.default_rng(request.param)
    index = rng.choice(request.param, 300, p=np.arange(1, request.param + 1) / sum(range(request.param + 1)))
    logits = rng.normal(size=(300, request.param)) + np.eye(request.param)[index]
    return index, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), rng.integers(0, 4, 300) * 1.0


@pytest.mark.parametrize("weighted", [False, True])
def test_against_scikit_learn(scored, weighted):
    index, proba, weights = scored
    given = weights if weighted else None
    expected = balanced_accuracy_score(index, proba.argmax(1), sample_weight=given)
    assert_allclose(balanced_accuracy(index, proba.argmax(1), sample_weight=given), expected)
    scores = proba[:, 1] if proba.shape[1] == 2 else proba
    expected = roc_auc_score(index, scores, sample_weight=given, multi_class="ovr")
    assert_allclose(one_vs_rest_auc(index, proba, sample_weight=given), expected)
    baseline = class_frequencies_baseline(index, sample_weight=given)
    prior = DummyClassifier(strategy="prior").fit(index[:, np.newaxis], index, given)
    expected = log_loss(index, prior.predict_proba(index[:, np.newaxis]), sample_weight=given)
    assert_allclose(baseline.log_loss, expected)
    assert_allclose(baseline.accuracy, prior.score(index[:, np.newaxis], index, given))


def test_classes_that_do_not_occur_are_left_out():
    index, proba = np.array([0, 2, 2]), np.array([[0.8, 0.1, 0.1], [0.3, 0.3, 0.4], [0.2, 0.7, 0.1]])
    assert balanced_accuracy(index, proba.argmax(1)) == 0.75
    # Class 0 is told from the others without fail; class 2 has one tie and one success among two pairs.
    assert one_vs_rest_auc(index, proba) == pytest.approx((1.0 + 0.75) / 2)
    assert one_vs_rest_auc(index[1:], proba[1:]) is None


def test_learned_means_two_standard_errors(scored):
    index, proba, _ = scored
    assert class_frequencies_baseline(
        index, np.log(0.5 * proba + 0.5 * np.eye(proba.shape[1])[index])
    ).learned
    frequencies = np.bincount(index) / index.size
    same = class_frequencies_baseline(index, np.log(np.tile(frequencies, (index.size, 1))))
    assert same.learned is False
    assert same.gain == pytest.approx(0.0, abs=1e-12)
    worse = np.random.default_rng(0).dirichlet(np.ones(proba.shape[1]), index.size)
    assert class_frequencies_baseline(index, np.log(worse)).learned is False
    assert class_frequencies_baseline(index).learned is None


def test_the_standard_error_is_that_of_the_mean():
    index, proba = np.array([0, 1, 1, 1]), np.array([[0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9]])
    found = class_frequencies_baseline(index, np.log(proba))
    gains = np.log(proba[np.arange(4), index]) - np.log([0.25, 0.75, 0.75, 0.75])
    assert_allclose([found.gain, found.standard_error], [gains.mean(), gains.std() / 2])


def test_a_probability_of_zero_is_no_success():
    with np.errstate(divide="ignore"):
        found = class_frequencies_baseline(np.array([0, 1]), np.log([[1.0, 0.0], [1.0, 0.0]]))
    assert found.gain == -np.inf
    assert found.learned is False
