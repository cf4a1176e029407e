"""Inputs that a careless user has: features far from the origin, few different rows, hardly any rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.ensemble import AdaBoostClassifier
from sklearn.metrics import get_scorer, log_loss
from sklearn.preprocessing import StandardScaler

from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.kernels import Polynomial
from polymargin.metrics import log_loss as log_loss_of_logarithms

X, Y = load_iris(return_X_y=True)
doors = pytest.mark.parametrize("door", [LSSVMClassifier, AutoKernelClassifier])


@doors
@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_where_the_origin_is_does_not_matter(door, offset):
    model = door().fit(X[::2] + offset, Y[::2])
    assert log_loss(Y[1::2], model.predict_proba(X[1::2] + offset)) < 0.15


@doors
def test_a_raw_column_beside_standardised_ones(door):
    years = np.random.default_rng(0).integers(2000, 2020, 150)
    rows = np.column_stack([StandardScaler().fit_transform(X), years])
    model = door().fit(rows[::2], Y[::2])
    assert log_loss(Y[1::2], model.predict_proba(rows[1::2])) < 0.8


@doors
@pytest.mark.parametrize("seed", range(3))
def test_few_different_rows_and_no_rule(door, seed):
    random = np.random.default_rng(seed)
    cells, y = np.eye(2)[random.integers(0, 2, 90)], random.permutation(np.arange(90) % 3)
    assert_allclose(door().fit(cells, y).predict_proba(np.eye(2)), 1 / 3, atol=0.1)


@doors
def test_constant_features_give_the_class_frequencies(door):
    model = door().fit(np.ones((30, 3)), np.arange(30) % 3)
    assert_allclose(model.predict_proba(np.ones((1, 3))), 1 / 3, atol=0.05)


def test_two_rows_say_nothing():
    assert_allclose(LSSVMClassifier().fit([[0.0], [1.0]], [0, 1]).predict_proba([[0.5]]), 0.5, atol=1e-6)


def test_a_centred_polynomial_does_not_see_a_shift():
    model = LSSVMClassifier(kernel=Polynomial(2, centred=True), C=1.0, gamma=0.1)
    moved = LSSVMClassifier(kernel=Polynomial(2, centred=True), C=1.0, gamma=0.1)
    assert_allclose(
        model.fit(X, Y).predict_proba(X), moved.fit(X + 100.0, Y).predict_proba(X + 100.0), atol=1e-6
    )


def test_weights_that_sum_to_one_are_welcome():
    AdaBoostClassifier(LSSVMClassifier(kernel="rbf"), n_estimators=2).fit(X, Y)


def test_scorers_read_soft_labels_with_names_in_any_order():
    names = np.array(["z", "b", "a"])
    model = LSSVMClassifier(kernel="rbf", classes=names).fit(X, np.eye(3)[Y])
    assert get_scorer("neg_log_loss")(model, X, names[Y]) > -0.2


def test_probabilities_in_place_of_logarithms_are_refused():
    with pytest.raises(ValueError, match="takes the logarithms"):
        log_loss_of_logarithms(np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]]))


@doors
def test_rows_out_of_this_world_are_refused_not_decoded(door):
    rows = StandardScaler().fit_transform(X)
    model = door().fit(rows, Y)
    far = rows[:3] * [[1.0], [1e200], [1.0]]
    with pytest.raises(ValueError, match="row 1 of X is so far from the training rows"):
        door_with_polynomial(door).fit(rows, Y).predict_proba(far)
    assert np.isfinite(model.predict_proba(rows * 1e3)).all()


def door_with_polynomial(door):
    member = LSSVMClassifier(kernel=Polynomial(2, centred=True))
    return member if door is LSSVMClassifier else AutoKernelClassifier([member])
