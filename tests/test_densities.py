"""The density estimators against eqs. (14) and (15) written out as loops."""

import pickle
import subprocess
import sys
import warnings
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import KNNPosterior, WindowPosterior, _memory
from polymargin.densities import mean_nearest_distance


@parametrize_with_checks([KNNPosterior(), WindowPosterior()])
def test_scikit_learn_manners(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no window of radius", UserWarning)
        check(estimator)


def knn_by_loops(X, y, K, k, new=None):
    """Return k_j/k of new rows, or of the training rows, which come first among their own neighbours."""
    rows = X if new is None else new
    P = np.zeros((len(rows), K))
    for i, x in enumerate(rows):
        order = sorted(range(len(X)), key=lambda j: (not (new is None and j == i), np.sum((x - X[j]) ** 2)))
        for j in order[:k]:
            P[i, y[j]] += 1 / k
    return P


def window_by_loops(X, y, K, r, new=None):
    P = np.zeros((len(X if new is None else new), K))
    for i, x in enumerate(X if new is None else new):
        inside = 0
        for j in range(len(X)):
            if np.sqrt(np.sum((x - X[j]) ** 2)) <= r:
                P[i, y[j]] += 1
                inside += 1
        P[i] = P[i] / inside if inside else np.bincount(y, minlength=K) / len(y)
    return P


# --- the equations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 30])  # trees, and inner products
@pytest.mark.parametrize("k", [1, 4, 11, 60])
def test_eq_15(k, d):
    X, y = blobs(n=60, K=3, d=d, seed=k)
    new = blobs(n=40, K=3, d=d, seed=99)[0]
    model = KNNPosterior(k).fit(X, y)
    assert_allclose(model.training_proba(), knn_by_loops(X, y, 3, k), atol=1e-12)
    assert_allclose(model.predict_proba(new), knn_by_loops(X, y, 3, k, new), atol=1e-12)
    peer = KNeighborsClassifier(k).fit(X, y)
    assert_allclose(model.predict_proba(new), peer.predict_proba(new), atol=1e-12)


@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("multiple", [1.0, 2.0, 4.0, None])
def test_eq_14(multiple, d):
    X, y = blobs(n=60, K=3, d=d, seed=5)
    new = np.vstack([blobs(n=40, K=3, d=d, seed=99)[0], np.full((1, d), 1e3)])
    r0 = np.mean([min(np.linalg.norm(X[i] - X[j]) for j in range(60) if j != i) for i in range(60)])
    assert mean_nearest_distance(X) == pytest.approx(r0, rel=1e-12)
    model = WindowPosterior(None if multiple is None else multiple * r0).fit(X, y)
    assert model.r0_ == pytest.approx(r0, rel=1e-12)
    assert model.radius_ == pytest.approx((2.0 if multiple is None else multiple) * r0, rel=1e-12)
    assert_allclose(model.training_proba(), window_by_loops(X, y, 3, model.radius_), atol=1e-12)
    proba = model.predict_proba(new)
    assert_allclose(proba, window_by_loops(X, y, 3, model.radius_, new), atol=1e-12)
    assert_allclose(proba[-1], np.bincount(y) / 60)  # an empty window
    assert_allclose(model.class_prior_, np.bincount(y) / 60)


def test_rows_exactly_on_the_edge_are_inside():
    rng = np.random.default_rng(0)
    lattice, y = rng.integers(0, 5, (80, 3)).astype(float), rng.integers(0, 3, 80)
    expected = window_by_loops(lattice, y, 3, 2.0)
    assert_allclose(WindowPosterior(2.0).fit(lattice, y).training_proba(), expected, atol=1e-12)
    # The same lattice far from the origin and in another unit: the edge is met only up to rounding.
    moved = 1000.0 + lattice / 3.0
    assert_allclose(WindowPosterior(2.0 / 3.0).fit(moved, y).training_proba(), expected, atol=1e-12)
    wide = np.hstack([moved, np.full((80, 20), 7.0)])  # searched by inner products
    assert_allclose(WindowPosterior(2.0 / 3.0).fit(wide, y).training_proba(), expected, atol=1e-12)


# --- ties and copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_ties_are_shared_as_the_mean_over_all_orders_of_the_rows(k):
    X = np.array([[0.0], [0.0], [1.0], [-1.0], [1.0], [2.0]])
    y = np.array([0, 1, 1, 2, 0, 2])
    orders = [np.array(order) for order in permutations(range(6))]
    new = np.array([[0.0], [0.5], [-1.0]])
    mean_new = np.mean([knn_by_loops(X[o], y[o], 3, k, new) for o in orders], axis=0)
    mean_own = np.mean([knn_by_loops(X[o], y[o], 3, k)[np.argsort(o)] for o in orders], axis=0)
    model = KNNPosterior(k).fit(X, y)
    assert_allclose(model.predict_proba(new), mean_new, atol=1e-12)
    assert_allclose(model.training_proba(), mean_own, atol=1e-12)
    if k == 1:
        assert_array_equal(model.training_proba(), np.eye(3)[y])  # the row itself, whatever its copies are


@pytest.mark.parametrize("model", [KNNPosterior(4), WindowPosterior(0.9), WindowPosterior()])
def test_weight_two_is_the_row_twice_in_any_order(model):
    rng = np.random.default_rng(2)
    X, y = rng.integers(0, 4, (40, 2)) / 2.0, rng.integers(0, 3, 40)
    weights = rng.integers(0, 4, 40)
    weights[:3], y[:3] = 1, [0, 1, 2]
    repeated = rng.permutation(np.repeat(np.arange(40), weights))
    new = rng.normal(size=(30, 2))
    weighted = model.fit(X, y, weights)
    proba, own = weighted.predict_proba(new), weighted.training_proba()
    copied = model.fit(X[repeated], y[repeated])
    assert_array_equal(copied.predict_proba(new), proba)
    assert_array_equal(copied.training_proba(), own[repeated])
    assert_array_equal(own[weights == 0], weighted.predict_proba(X[weights == 0]))
    assert mean_nearest_distance(X, weights) == pytest.approx(mean_nearest_distance(X[repeated]), rel=1e-12)


def test_small_weights_reach_further():
    X, y = np.arange(6.0)[:, np.newaxis], np.array([0, 0, 1, 1, 1, 1])
    # Halves: two neighbours of weight one are four rows.
    proba = KNNPosterior(2).fit(X, y, np.full(6, 0.5)).predict_proba([[-1.0]])
    assert_allclose(proba, [[0.5, 0.5]])


@pytest.mark.parametrize("model", [KNNPosterior(7), WindowPosterior(1.5)])
def test_sparse_rows(model):
    X, y = blobs(n=80, K=3, d=6, seed=1)
    X = np.where(np.abs(X) < 0.8, 0.0, X)
    dense = model.fit(X, y)
    expected = dense.training_proba(), dense.predict_proba(X[:20] + 0.1)
    thin = model.fit(sparse.csr_matrix(X), y)
    assert_allclose(thin.training_proba(), expected[0], atol=1e-12)
    assert_allclose(thin.predict_proba(sparse.csr_matrix(X[:20] + 0.1)), expected[1], atol=1e-12)
    assert_allclose(thin.predict_proba(X[:20] + 0.1), expected[1], atol=1e-12)


@pytest.mark.parametrize("model", [KNNPosterior(7), WindowPosterior(1.5)])
def test_blocks_do_not_matter(model, monkeypatch):
    X, y = blobs(n=80, K=3, d=4, seed=1)
    whole = model.fit(X, y).training_proba()
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 10_000)
    assert_array_equal(model.fit(X, y).training_proba(), whole)


# --- manners -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [KNNPosterior(6), WindowPosterior()])
def test_labels_are_those_of_the_largest_probability(model):
    X, y = blobs(n=100, K=4, d=2, seed=3, spread=2.0)
    model.fit(X, np.array(list("dbca"))[y])
    new = blobs(n=200, K=4, d=2, seed=8, spread=3.0)[0]
    proba = model.predict_proba(new)
    assert_allclose(proba.sum(axis=1), 1.0)
    assert_array_equal(model.predict(new), model.classes_[proba.argmax(axis=1)])
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(new), proba)
    class_index = np.array([3, 1, 2, 0])[y]
    assert_array_equal(model.soft_labels(X, class_index, np.ones(100), 4), model.training_proba())


def test_windows_that_hold_only_their_own_row_warn():
    X, y = blobs(n=30, K=3, d=3)
    with pytest.warns(
        UserWarning, match=r"so the soft labels are the hard ones; raise radius \(the nearest two"
    ):
        model = WindowPosterior(1e-6).fit(X, y)
    assert_array_equal(model.training_proba(), np.eye(3)[y])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Copies in different classes are softened by the smallest window.
        WindowPosterior(1e-6).fit(np.vstack([X, X]), np.r_[y, (y + 1) % 3])
        WindowPosterior().fit(X, y)


def test_bad_input_says_what_to_do():
    X, y = blobs(n=30, K=3)
    with pytest.raises(
        ValueError, match=r"n_neighbors=31 is more than the 30 training rows.*lower n_neighbors"
    ):
        KNNPosterior(31).fit(X, y)
    with pytest.raises(
        ValueError, match=r"more than 15, the sum of the sample weights.*number of copies.*scale"
    ):
        KNNPosterior(16).fit(X, y, np.full(30, 0.5))
    for k in (0, -1, 2.0, True, "five", None):
        with pytest.raises(ValueError, match="n_neighbors must be a positive whole number"):
            KNNPosterior(k).fit(X, y)
    for radius in (0, -1.0, np.nan, np.inf, True, "wide"):
        with pytest.raises(ValueError, match="radius must be a positive number, or None"):
            WindowPosterior(radius).fit(X, y)
    with pytest.raises(ValueError, match="class 1 has no row with a positive sample weight"):
        KNNPosterior().fit(X, y, (y != 1).astype(float))
    with pytest.raises(ValueError, match=r"at least one non-zero|all sample weights are zero"):
        KNNPosterior().fit(X, y, np.zeros(30))
    with pytest.raises(ValueError, match="give at least two"):
        mean_nearest_distance(X[:1])


def test_the_scale_of_weights_matters():
    """Why too small weights are refused, not rescaled: weight two is two rows, and these fill the neighbourhood."""
    X, y = blobs(n=40, K=3, d=2, seed=4, spread=3.0)
    once, twice = (KNNPosterior(5).fit(X, y, np.full(40, weight)).training_proba() for weight in (1.0, 2.0))
    repeated = KNNPosterior(5).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2)).training_proba()
    assert_allclose(twice, repeated[::2])
    assert np.abs(twice - once).max() > 0.2
    # Few rows of large weight are enough for many neighbours.
    assert_allclose(KNNPosterior(60).fit(X, y, np.full(40, 2.0)).training_proba().sum(axis=1), 1.0)


def test_equal_rows_have_neighbours_at_distance_zero():
    X, y = np.ones((6, 2)), np.array([0, 0, 0, 1, 1, 2])
    assert mean_nearest_distance(X) == 0.0
    model = WindowPosterior().fit(X, y)
    assert model.radius_ == 0.0
    assert_allclose(model.training_proba(), np.tile([1 / 2, 1 / 3, 1 / 6], (6, 1)))


def test_densities_never_load_numba():
    code = (
        "import sys, polymargin as p; from sklearn.datasets import load_iris; p.PosteriorSVMClassifier(); "
        "p.KNNPosterior().fit(*load_iris(return_X_y=True)).training_proba(); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
