"""Weights scale the loss of a row: their unit does not matter, and a row that is left out is left out whole.

Where C is selected, all weights times a number is the same problem. Where C is given, it is the problem with C times
that number. `loo_margins_`, and with them what a model states of its log-loss, are of refits without the row, whatever
it weighs. Weights and `class_weight` that balance the classes ask for what `priors="uniform"` asks for.
"""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

import naive
from conftest import blobs
from polymargin import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)
from polymargin.datasets import make_waveform

SHIFT = 1.7  # between the means of the rare class and the other, in standard deviations
FACTORS = [0.01, 1.1, 2.0, 100.0]
SELECTING = {
    "LSSVM": LSSVMClassifier,
    "AutoKernel": AutoKernelClassifier,
    "KernelLogistic": KernelLogisticClassifier,
}
GIVEN = {
    "LSSVM": lambda C: LSSVMClassifier(C=C, gamma=0.2, kernel="rbf"),
    "LSSVM one-vs-all": lambda C: LSSVMClassifier(C=C, gamma=0.2, kernel="rbf", coding="one-vs-all"),
    "AutoKernel": lambda C: AutoKernelClassifier(
        [LSSVMClassifier(C=C, gamma=0.2, kernel="rbf"), LSSVMClassifier(C=C, gamma=0.1, kernel="laplacian")]
    ),
    "KernelLogistic": lambda C: KernelLogisticClassifier(C=C, gamma=0.2),
}
X, Y = blobs(120, K=3, d=4, seed=1)
X_NEW = blobs(200, K=3, d=4, seed=2)[0]
RANDOM = np.random.default_rng(0).uniform(0.5, 2.0, Y.size)


# The unit of weights -----------------------------------------------------------------------------------------


WEIGHTS = {"equal": np.ones(Y.size), "random": RANDOM}


@cache
def with_unit_one(name, weights):
    return SELECTING[name]().fit(X, Y, sample_weight=WEIGHTS[weights])


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", SELECTING)
def test_the_unit_of_weights_does_not_matter_where_C_is_selected(name, weights, factor):
    s, one = WEIGHTS[weights], with_unit_one(name, weights)
    other = SELECTING[name]().fit(X, Y, sample_weight=factor * s)
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-6)
    assert_allclose(np.exp(other.loo_log_proba_), np.exp(one.loo_log_proba_), atol=1e-6)


@pytest.mark.parametrize("name", SELECTING)
def test_equal_weights_are_no_weights(name):
    one, other = SELECTING[name]().fit(X, Y), SELECTING[name]().fit(X, Y, sample_weight=np.full(Y.size, 1.1))
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-6)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", GIVEN)
def test_the_unit_of_weights_is_that_of_C_where_C_is_given(name, weights, factor):
    s = WEIGHTS[weights]
    one = GIVEN[name](factor * 0.5).fit(X, Y, sample_weight=s)
    other = GIVEN[name](0.5).fit(X, Y, sample_weight=factor * s)
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-6)
    assert_allclose(np.exp(other.loo_log_proba_), np.exp(one.loo_log_proba_), atol=1e-6)


# Leaving a row out -------------------------------------------------------------------------------------------


WEIGHTINGS = {
    "random": RANDOM,
    "heavy": 1.0 + 20.0 * np.random.default_rng(1).random(Y.size) ** 3,
    "light": np.full(Y.size, 0.03),
    "whole": np.random.default_rng(2).integers(1, 5, Y.size).astype(float),
    "some none": np.random.default_rng(3).integers(0, 3, Y.size).astype(float),
}


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_leave_one_out_leaves_the_whole_row_out(weighting, C):
    s = WEIGHTINGS[weighting]
    rows = np.flatnonzero(s > 0)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.2)
    targets = np.where(Y[:, None] == np.arange(3), 1.0, -1.0)
    expected = np.zeros((rows.size, 3))
    for place, i in enumerate(rows):
        rest = s.copy()
        rest[i] = 0.0
        a, b = naive.lssvm_solve(K, targets, C, rest)
        expected[place] = naive.lssvm_predict(K[i], a, b)
    model = LSSVMClassifier(C=C, gamma=0.2, kernel="rbf", coding="one-vs-all").fit(X, Y, sample_weight=s)
    assert_array_equal(model.support_, rows)
    assert_allclose(model.loo_margins_, expected, atol=1e-8)


def test_approximate_leave_one_out_of_logistic_regression_leaves_the_whole_row_out():
    s = WEIGHTINGS["heavy"]
    model = KernelLogisticClassifier(C=0.5, gamma=0.2).fit(X, Y, sample_weight=s)
    some = np.argsort(s)[-10:]  # the heaviest, where a copy and the row differ most
    exact = []
    for i in some:
        rest = np.delete(np.arange(Y.size), i)
        refit = KernelLogisticClassifier(C=0.5, gamma=0.2).fit(X[rest], Y[rest], sample_weight=s[rest])
        exact.append(refit.predict_log_proba(X[i : i + 1])[0, Y[i]])
    stated = model.loo_log_proba_[some, Y[some]]
    assert_allclose(np.exp(stated), np.exp(exact), atol=0.1)  # one Newton step
    assert abs(np.mean(stated) - np.mean(exact)) < 0.1


# Stated and true log-loss ------------------------------------------------------------------------------------


def cancer(seed):
    return split_of(load_breast_cancer(return_X_y=True), seed)


def wine(seed):
    return split_of(load_wine(return_X_y=True), seed)


def rare(seed, n=1000, n_test=20_000):
    """Two overlapping Gaussians in the plane, 95 % and 5 % of the rows."""
    rng = np.random.default_rng(seed)
    y = np.r_[
        np.repeat([0, 1], [n * 19 // 20, n // 20]), np.repeat([0, 1], [n_test * 19 // 20, n_test // 20])
    ]
    rows = rng.normal(size=(y.size, 2)) + SHIFT * y[:, None] * np.array([1.0, 0.0])
    order = rng.permutation(n)
    return rows[:n][order], y[:n][order], rows[n:], y[n:]


def waveform(seed):
    return *make_waveform(300, random_state=seed), *make_waveform(4000, random_state=100 + seed)


def split_of(data, seed):
    X, X_test, y, y_test = train_test_split(*data, test_size=1 / 3, stratify=data[1], random_state=seed)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), y, scaler.transform(X_test), y_test


def weights_for(kind, y, y_test):
    """Return the weights of training and test rows."""
    if kind == "balanced":
        factors = compute_class_weight("balanced", classes=np.unique(y), y=y)
        return compute_sample_weight("balanced", y), factors[y_test]
    rng = np.random.default_rng(5)
    return (np.full(y.size, 1.1) if kind == "1.1" else rng.uniform(0.5, 2.0, y.size)), np.ones(y_test.size)


def losses_of(model, X_test, y_test):
    return -model.predict_log_proba(X_test)[np.arange(y_test.size), y_test]


def standard_error(losses, weights):
    """Return the standard error of a weighted mean."""
    centred = losses - np.average(losses, weights=weights)
    return np.sqrt(np.sum((weights * centred) ** 2)) / weights.sum()


@pytest.mark.parametrize("kind", ["1.1", "random", "balanced"])
@pytest.mark.parametrize("data", [cancer, waveform, rare])
@pytest.mark.parametrize("name", SELECTING)
def test_stated_and_true_log_loss_agree(name, data, kind):
    X, y, X_test, y_test = rare(0, n=500) if (name, data) == ("KernelLogistic", rare) else data(0)
    s, s_test = weights_for(kind, y, y_test)
    model = SELECTING[name]().fit(X, y, sample_weight=s)
    stated = -model.loo_log_proba_[np.arange(y.size), y]
    if hasattr(model, "loo_log_loss_"):
        assert model.loo_log_loss_ == pytest.approx(np.average(stated, weights=s), rel=1e-6)
    true = losses_of(model, X_test, y_test)
    error = np.hypot(
        max(standard_error(stated, s), true.std() / np.sqrt(y.size)), standard_error(true, s_test)
    )
    assert abs(np.average(stated, weights=s) - np.average(true, weights=s_test)) < 3 * error


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("LSSVM", data) for data in (cancer, wine, rare)),
        ("AutoKernel", wine),
        *(pytest.param("AutoKernel", data, marks=pytest.mark.long) for data in (cancer, rare)),
    ],
)
def test_balanced_weights_cost_little_against_the_priors_they_imply(name, data):
    """Mean of five splits; 0.005 is allowed for the noise of sets that are all but separable."""
    # Ten fits: the pool learns metrics on the smallest set only.
    options = {"metric": None} if name == "AutoKernel" and data is not wine else {}
    weighted, by_priors = [], []
    for seed in range(5):
        X, y, X_test, y_test = data(seed)
        s, s_test = weights_for("balanced", y, y_test)
        model = SELECTING[name](**options).fit(X, y, sample_weight=s)
        weighted.append(np.average(losses_of(model, X_test, y_test), weights=s_test))
        model = SELECTING[name](**options, priors="uniform").fit(X, y)
        by_priors.append(np.average(losses_of(model, X_test, y_test), weights=s_test))
    assert np.mean(weighted) <= 1.1 * np.mean(by_priors) + 0.005


# class_weight ------------------------------------------------------------------------------------------------


WITH_CLASS_WEIGHT = {
    "LSSVM": LSSVMClassifier,
    "AutoKernel": AutoKernelClassifier,
    "KernelLogistic": KernelLogisticClassifier,
    "SVM": lambda **options: SVMClassifier(decoding="coupled-softmax", **options),
    "PosteriorSVM": PosteriorSVMClassifier,
}


def bayes_recall(ratio):
    """Return the recall of the rare class by the best rule where its rows count `ratio` times as much as others.

    Along the first column the log-odds are SHIFT x − SHIFT²/2 + log(ratio / 19).
    """
    threshold = SHIFT / 2 - np.log(ratio / 19) / SHIFT
    return norm.sf(threshold - SHIFT)


@pytest.mark.parametrize("name", WITH_CLASS_WEIGHT)
def test_class_weight_moves_decisions(name):
    X, y, X_test, y_test = rare(0, n=500 if name == "AutoKernel" else 1000)  # the pool takes longer
    recalls = {}
    for weight, ratio in ((None, 1.0), ("balanced", 19.0), ({0: 1.0, 1: 50.0}, 50.0)):
        model = WITH_CLASS_WEIGHT[name](class_weight=weight).fit(X, y)
        predicted = model.predict(X_test)
        assert_array_equal(predicted, model.classes_[model.predict_proba(X_test).argmax(axis=1)])
        recalls[ratio] = (predicted[y_test == 1] == 1).mean()
    assert recalls[1.0] + 0.1 < recalls[19.0]
    assert recalls[19.0] + 0.02 < recalls[50.0]
    if name != "PosteriorSVM":  # whose neighbours smooth the labels of fifty rows away
        for ratio, recall in recalls.items():
            assert recall == pytest.approx(bayes_recall(ratio), abs=0.2)


@pytest.mark.parametrize("name", ["LSSVM", "AutoKernel", "KernelLogistic", "SVM"])
def test_class_weight_is_sample_weight(name):
    """A factor for every row of a class, as in scikit-learn; a class that is not named has one."""
    s = np.where(Y == 2, 3.0, 1.0)
    fixed = {"gamma": 0.2} if name == "SVM" else {}  # its gamma="scale" depends on sample weights
    one = WITH_CLASS_WEIGHT[name](class_weight={2: 3.0}, **fixed).fit(X, Y)
    other = WITH_CLASS_WEIGHT[name](**fixed).fit(X, Y, sample_weight=s)
    assert_allclose(one.predict_proba(X_NEW), other.predict_proba(X_NEW), atol=1e-6)


@pytest.mark.parametrize("name", WITH_CLASS_WEIGHT)
def test_a_class_weight_that_cannot_be_used_is_refused_in_words(name):
    for weight in ({0: -1.0}, {"no such class": 2.0}, "heavy"):
        with pytest.raises(ValueError, match=r"class_weight|class weight"):
            WITH_CLASS_WEIGHT[name](class_weight=weight).fit(X, Y)
