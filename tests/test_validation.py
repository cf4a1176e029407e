"""Training rows and labels are checked in one place, with messages that say what to do."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from conftest import blobs
from polymargin import KernelLogisticClassifier, LSSVMClassifier, PosteriorSVMClassifier, SVMClassifier
from polymargin.estimators._validation import check_labels, check_rows, scale_gamma

X, Y = blobs(n=30, K=3, seed=0)
CLASSIFIERS = [LSSVMClassifier, SVMClassifier, PosteriorSVMClassifier, KernelLogisticClassifier]
every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS)


@every_classifier
def test_missing_and_mixed_labels(classifier):
    names = np.array(["a", "b", "c"], dtype=object)[Y]
    for missing in (None, np.nan, pd.NA, pd.NaT):
        y = names.copy()
        y[4] = missing
        with pytest.raises(ValueError, match=r"the label of row 4 is missing \(.*\): leave such rows out"):
            classifier().fit(X, y)
    y = names.copy()
    y[4] = 3
    with pytest.raises(
        ValueError, match=r"labels of different types, int and str, .* make them all of one type"
    ):
        classifier().fit(X, y)


def test_labels_that_are_fine():
    for y in ([1, 2.5, True], ["a", "b"], np.array(["a", np.str_("b")], dtype=object), pd.Series(["a", "b"])):
        check_labels(y)
    y = np.array(["a", "b", "c"], dtype=object)[Y]
    model = KernelLogisticClassifier(1.0, gamma=0.1).fit(X, y)
    assert_array_equal(model.classes_, ["a", "b", "c"])


@pytest.mark.parametrize("classifier", [SVMClassifier, PosteriorSVMClassifier])
def test_no_class_has_a_row_to_hold_out(classifier):
    with pytest.raises(ValueError, match="every class has only one row, so none can be held out"):
        classifier(decoding="softmax").fit(X[:5], np.arange(5))


@every_classifier
@pytest.mark.parametrize("factor", [1e155, 1e307, 1e-200])
def test_features_whose_squares_are_no_numbers(classifier, factor):
    rows = (X - X.mean(axis=0)) / np.abs(X).max() * factor
    with pytest.raises(ValueError, match="scale the features"):
        classifier(gamma="scale", kernel="rbf", C=1.0).fit(rows, Y)


def test_gamma_of_constant_features():
    assert scale_gamma(np.full((5, 2), 3.0), np.ones(5)) == 1.0
    assert scale_gamma(np.zeros((5, 2)), np.ones(5)) == 1.0
    assert scale_gamma(X, np.ones(30)) == pytest.approx(1.0 / (3 * X.var()))


@pytest.mark.parametrize(
    "model",
    [
        LSSVMClassifier(1.0, gamma=0.3, decoding="softmax"),
        SVMClassifier(gamma=0.3, decoding="softmax"),
        PosteriorSVMClassifier(gamma=0.3, density=None),
        KernelLogisticClassifier(1.0, gamma=0.3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_was_fitted_decides_whether_new_rows_are_a_matrix(model):
    model = clone(model).set_params(kernel="rbf").fit(X, Y)
    expected = model.predict_proba(X)
    assert_array_equal(model.set_params(kernel="precomputed").predict_proba(X), expected)
    gram = rbf_kernel(X, gamma=0.3)
    expected = model.fit(gram, Y).predict_proba(gram)
    assert_array_equal(model.set_params(kernel="rbf").predict_proba(gram), expected)


def test_errors_name_the_estimator_that_was_called():
    class Caller(KernelLogisticClassifier):
        pass

    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="Caller does not accept missing values"):
        check_rows(Caller(), bad, Y, None, precomputed=False)


def test_rows_of_weight_zero_are_left_out():
    weights = (np.arange(30) % 5 > 0).astype(float)
    checked = check_rows(LSSVMClassifier(), X, Y, weights, precomputed=False)
    assert_array_equal(checked.support, np.flatnonzero(weights))
    assert_array_equal(checked.X, X[weights > 0])
    assert_array_equal(checked.class_index, Y[weights > 0])
    matrix = check_rows(LSSVMClassifier(), X @ X.T, Y, weights, precomputed=True).X
    assert_array_equal(matrix, (X @ X.T)[weights > 0][:, weights > 0])
