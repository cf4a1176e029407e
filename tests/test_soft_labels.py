"""Soft labels in all estimators: the names of their columns, accuracy, and who takes them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from conftest import blobs
from polymargin import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)

SOFT = [
    LSSVMClassifier(kernel="rbf", C=1.0, gamma=0.5),
    PosteriorSVMClassifier(C=1.0, gamma=0.5),
    KernelLogisticClassifier(C=1.0, gamma=0.5),
    AutoKernelClassifier(members=["rbf", "linear"], metric=None),
]
each_soft = pytest.mark.parametrize("model", SOFT, ids=lambda model: type(model).__name__)


@each_soft
def test_columns_of_a_frame_are_the_classes(model):
    X, y = blobs(n=60, K=3, seed=0)
    P = 0.7 * np.eye(3)[y] + 0.1
    named = clone(model).fit(X, pd.DataFrame(P, columns=["c", "a", "b"]))
    given = clone(model).set_params(classes=["c", "a", "b"]).fit(X, P)
    assert named.classes_.tolist() == given.classes_.tolist() == ["a", "b", "c"]
    assert_allclose(named.predict_proba(X), given.predict_proba(X))
    assert (named.predict(X) == np.array(["c", "a", "b"])[y]).mean() > 0.8
    assert clone(model).fit(X, pd.DataFrame(P)).classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"their own names are \['c', 'a', 'b'\]: leave classes out"):
        clone(model).set_params(classes=["a", "b", "c"]).fit(X, pd.DataFrame(P, columns=["c", "a", "b"]))


@each_soft
def test_classes_and_labels_must_agree(model):
    X, y = blobs(n=60, K=3, seed=0)
    for classes in (["a", "b", "c"], [0, 1], 3):
        with pytest.raises(ValueError, match=r"but the labels of y are \[0, 1, 2\]: leave classes out"):
            clone(model).set_params(classes=classes).fit(X, y)
    assert clone(model).set_params(classes=[2, 0, 1]).fit(X, y).classes_.tolist() == [0, 1, 2]


@each_soft
def test_the_accuracy_on_soft_labels(model):
    X, y = blobs(n=60, K=3, seed=0)
    P = 0.7 * np.eye(3)[y] + 0.1
    fitted = clone(model).fit(X, P)
    assert_allclose(fitted.score(X, P), P[np.arange(60), fitted.predict(X)].mean())
    assert_allclose(fitted.score(X, np.eye(3)[y]), fitted.score(X, y))
    weights = np.arange(60.0)
    assert_allclose(fitted.score(X, np.eye(3)[y], weights), fitted.score(X, y, weights))
    order = np.random.default_rng(0).permutation(60)
    scores = cross_val_score(model, X[order], P[order], cv=2, error_score="raise")
    assert (scores > 0.4).all()
    with pytest.raises(
        ValueError, match=r"soft labels are of the classes \['a', 'b', 'c'\], not \[0, 1, 2\]"
    ):
        fitted.score(X, pd.DataFrame(P, columns=["a", "b", "c"]))


def test_svm_says_who_takes_soft_labels():
    X, y = blobs(n=30, K=3, seed=0)
    with pytest.raises(ValueError, match=r"SVMClassifier takes one label for every row.*LSSVMClassifier"):
        SVMClassifier().fit(X, np.eye(3)[y])
