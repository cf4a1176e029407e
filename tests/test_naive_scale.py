"""The oracles of `naive_scale` checked against each other, against identities, and against those of `naive`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize

import naive
import naive_scale
from conftest import blobs

ONE_AGAINST_REST = np.array([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
MIXED = np.array([[1, 1, 0, 1], [-1, 0, 1, 1], [0, -1, -1, -1]])
CUT = (
    "cut",
    [1.0, 0.0, 0.0],
    -1.0,
    1.0,
    ("leaf", 0),
    ("cut", [0.0, 1.0, 0.0], 0.0, 2.0, ("leaf", 1), ("leaf", 2)),
)


def rbf(X, Z):
    return naive.kernel_matrix("rbf", X, Z, gamma=0.2)


def linear(X, Z):
    return naive.kernel_matrix("linear", X, Z)


def problem(n=14, seed=0):
    """Rows, classes and unequal weights, two of them zero."""
    X, y = blobs(n=n, K=3, d=3, seed=seed)
    weights = np.random.default_rng(seed).uniform(0.3, 2.0, size=n)
    weights[[3, 7]] = 0.0
    return X, y, weights


# Landmarks -------------------------------------------------------------------------------------------------


def test_landmark_features_are_nystroem():
    X, _, _ = problem()
    Z = X[:5]
    F = naive_scale.landmark_features(rbf, Z, X)
    assert F.shape == (14, 5)
    assert_allclose(F @ F.T, rbf(X, Z) @ np.linalg.solve(rbf(Z, Z), rbf(Z, X)), atol=1e-12)
    assert_allclose(F[:5] @ F.T, rbf(Z, X), atol=1e-12)


def test_landmarks_twice_change_nothing_and_all_rows_give_the_kernel():
    X, _, _ = problem()
    F, twice = (naive_scale.landmark_features(rbf, Z, X) for Z in (X[:5], X[[0, 1, 2, 3, 4, 0, 2]]))
    assert twice.shape == F.shape
    assert_allclose(twice @ twice.T, F @ F.T, atol=1e-12)
    everything = naive_scale.landmark_features(rbf, X, X)
    assert_allclose(everything @ everything.T, rbf(X, X), atol=1e-10)
    assert naive_scale.landmark_features(linear, X, X).shape == (14, 3)


def test_pivots_and_traces():
    X, _, _ = problem()
    K = rbf(X, X) * np.outer(1 + np.arange(14) / 14, 1 + np.arange(14) / 14)
    pivots, traces = naive_scale.pivoted_cholesky(K, 14)
    assert pivots[0] == 13
    assert sorted(pivots) == list(range(14))
    assert np.all(np.diff(traces) < 0)
    assert_allclose(traces[-1], 0, atol=1e-10)
    # The factor of the permuted matrix has the pivots on its diagonal, from large to small.
    factor = np.linalg.cholesky(K[np.ix_(pivots, pivots)])
    assert np.all(np.diff(np.diag(factor)) < 0)
    for k in range(14):
        assert_allclose(traces[k], np.sum(factor[:, k + 1 :] ** 2), atol=1e-10)
        assert np.all(np.sum(factor[k:, k:] ** 2, axis=1) <= factor[k, k] ** 2 + 1e-10)
    fewer, first = naive_scale.pivoted_cholesky(K, 4)
    assert_array_equal(fewer, pivots[:4])
    assert_allclose(first, traces[:4])


def test_pivots_of_a_smooth_kernel_are_those_of_lapack():
    rng = np.random.default_rng(0)
    X, scale = rng.normal(size=(60, 2)), 1 + rng.random(60)
    K = rbf(0.7 * X, 0.7 * X) * np.outer(scale, scale)
    pivots, traces = naive_scale.pivoted_cholesky(K, 60)
    assert 20 < len(pivots) < 60
    assert traces[-1] < 1e-7
    factor, order, _, _ = dpstrf(K, tol=1e-10 * np.max(np.diag(K)), lower=1)
    assert_array_equal(order[: len(pivots)] - 1, pivots)
    factor = np.tril(factor)
    for k in range(len(pivots)):
        assert_allclose(traces[k], np.trace(K) - np.sum(factor[:, : k + 1] ** 2), atol=1e-12)


def test_pivots_end_with_the_rank():
    X, _, _ = problem()
    pivots, traces = naive_scale.pivoted_cholesky(linear(X, X), 10)
    assert len(pivots) == len(traces) == 3
    assert_allclose(traces[-1], 0, atol=1e-10)
    F = naive_scale.landmark_features(rbf, X[pivots], X)
    _, traces = naive_scale.pivoted_cholesky(rbf(X, X), 1)
    assert np.trace(rbf(X, X) - F @ F.T) < traces[0]


# Machines on features --------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.01, 1.0, 300.0])
def test_feature_machine_minimises_and_equals_the_dual(C):
    X, classes, weights = problem()
    y = np.where(classes == 0, 1.0, -1.0)
    w, b = naive_scale.feature_machine(X, y, weights, C)

    def objective(v):
        return 0.5 * v[:3] @ v[:3] + C / 2 * np.sum(weights * (y - X @ v[:3] - v[3]) ** 2)

    best = minimize(objective, np.zeros(4), tol=1e-12)
    assert objective(np.r_[w, b]) <= best.fun + 1e-12 * abs(best.fun)
    assert_allclose(np.r_[w, b], best.x, atol=1e-4)

    a, bias = naive.lssvm_solve(linear(X, X), y, C, weights)
    assert_allclose(X @ w + b, naive.lssvm_predict(linear(X, X), a, bias), atol=1e-10)
    for groups in (None, np.arange(14) // 3):
        assert_allclose(
            naive_scale.feature_machine_leave_out(X, y, weights, C, groups),
            naive.lssvm_loo_margins(linear(X, X), y, C, weights, groups),
            atol=1e-10,
        )


def test_a_weight_of_two_is_two_rows_and_no_rows_are_zero():
    X, classes, _ = problem()
    y = np.where(classes == 0, 1.0, -1.0)
    w, b = naive_scale.feature_machine(np.r_[X, X[:4]], np.r_[y, y[:4]], None, 0.7)
    w_2, b_2 = naive_scale.feature_machine(X, y, np.r_[2 * np.ones(4), np.ones(10)], 0.7)
    assert_allclose(w, w_2, atol=1e-12)
    assert_allclose(b, b_2, atol=1e-12)
    w, b = naive_scale.feature_machine(X[:0], y[:0], None, 0.7)
    assert_array_equal(np.r_[w, b], np.zeros(4))
    assert_array_equal(naive_scale.feature_machine_leave_out(X, y, None, 0.7, np.zeros(14)), np.zeros(14))


@pytest.mark.parametrize("matrix", [ONE_AGAINST_REST, MIXED])
def test_machines_of_statistics_are_those_of_rows(matrix):
    X, classes, weights = problem()
    C = np.geomspace(0.1, 10, matrix.shape[1])
    stats = naive_scale.class_statistics(X, classes, weights, 3)
    assert [part.shape for part in stats] == [(3,), (3, 3), (3, 3, 3)]
    assert_allclose(stats[2].sum(axis=0), X.T @ (weights[:, None] * X))
    W, b, margins, left_out = naive_scale.codebook_machines(X, classes, weights, matrix, C)
    for k in range(matrix.shape[1]):
        w_k, b_k = naive_scale.machine_from_statistics(stats, matrix[:, k], C[k])
        assert_allclose(w_k, W[:, k], atol=1e-10)
        assert_allclose(b_k, b[k], atol=1e-10)
        y = matrix[classes, k].astype(float)
        seen = weights * (y != 0)
        assert_allclose(left_out[:, k], naive_scale.feature_machine_leave_out(X, y, seen, C[k]), atol=1e-10)
        assert_allclose(left_out[seen == 0, k], margins[seen == 0, k], atol=1e-10)
        assert np.all(np.abs(y - left_out[:, k])[seen > 0] > np.abs(y - margins[:, k])[seen > 0])


def test_one_sided_and_empty_columns_of_statistics():
    X, classes, weights = problem()
    stats = naive_scale.class_statistics(X, classes, weights, 4)
    for column, constant in (([1, 0, 1, 0], 1), ([0, -1, 0, 1], -1), ([0, 0, 0, 1], 0)):
        w, b = naive_scale.machine_from_statistics(stats, column, 2.0)
        assert_allclose(w, 0, atol=1e-12)
        assert_allclose(b, constant, atol=1e-12)


# Trees -----------------------------------------------------------------------------------------------------


def test_routes():
    assert naive_scale.route(("leaf", 7), [1.0]) == {7: 1.0}
    assert naive_scale.route(CUT, [-1.0, 5.0, 0.0]) == {0: 1.0}
    assert naive_scale.route(CUT, [2.0, 9.0, 0.0]) == {2: 1.0}
    assert naive_scale.route(CUT, [0.0, 1.0, 0.0]) == {0: 0.5, 1: 0.25, 2: 0.25}
    leaves = naive_scale.route(CUT, [-0.5, 0.5, 3.0])
    share = 3 * 0.25**2 - 2 * 0.25**3
    assert leaves == pytest.approx({0: 1 - share, 1: share * (1 - share), 2: share**2})
    hard = ("cut", [1.0], 0.0, 0.0, ("leaf", 0), ("leaf", 1))
    assert naive_scale.route(hard, [0.0]) == {0: 1.0}
    assert naive_scale.route(hard, [1e-9]) == {1: 1.0}
    assert naive_scale.leaf_numbers(CUT) == [0, 1, 2]


def test_a_leaf_of_all_classes_is_the_exact_machine():
    X, classes, weights = problem()
    new_X = X[:4] + 0.1
    margins, left_out = naive_scale.leaf_machine_outputs(rbf, X, classes, weights, MIXED, 2.0, new_X)
    for k in range(4):
        y = MIXED[classes, k].astype(float)
        seen = weights * (y != 0)
        a, b = naive.lssvm_solve(rbf(X, X), y, 2.0, seen)
        assert_allclose(margins[:, k], naive.lssvm_predict(rbf(new_X, X), a, b), atol=1e-10)
        assert_allclose(left_out[:, k], naive.lssvm_loo_margins(rbf(X, X), y, 2.0, seen), atol=1e-10)
    # All rows as landmarks: the machines on features are the same.
    F = naive_scale.landmark_features(rbf, X, X)
    _, _, on_features, left_out_of_features = naive_scale.codebook_machines(F, classes, weights, MIXED, 2.0)
    plain, _ = naive_scale.leaf_machine_outputs(rbf, X, classes, weights, MIXED, 2.0, X)
    assert_allclose(on_features, plain, atol=1e-9)
    assert_allclose(left_out_of_features, left_out, atol=1e-9)


def test_columns_that_lose_a_side():
    X = problem()[0][:5]
    a, b = naive_scale.bordered_machine(rbf(X, X), -np.ones(5), np.arange(1.0, 6.0), 3.0)
    assert_allclose(np.r_[a, b], [0, 0, 0, 0, 0, -1], atol=1e-12)
    classes = np.array([0, 0, 0, 0, 1])
    matrix = np.array([[1, 0, 0, -1], [-1, 1, 0, 0], [-1, -1, 1, 1]])
    margins, left_out = naive_scale.leaf_machine_outputs(rbf, X, classes, None, matrix, 3.0, X)
    assert_array_equal(margins[:, 1:], np.tile([1.0, 0.0, -1.0], (5, 1)))
    assert_array_equal(left_out[:, 1], [1, 1, 1, 1, 0])
    assert_array_equal(left_out[:, 2:], np.tile([0.0, -1.0], (5, 1)))
    assert left_out[4, 0] == 1.0
    assert np.all(np.abs(margins[:, 0]) < 1)
    # Machines on features say the same.
    F = naive_scale.landmark_features(rbf, X, X)
    _, _, on_features, left_out_of_features = naive_scale.codebook_machines(F, classes, None, matrix, 3.0)
    assert_allclose(on_features, margins, atol=1e-10)
    assert_allclose(left_out_of_features, left_out, atol=1e-10)


def test_a_tree_of_one_leaf_is_the_leaf_and_equal_leaves_are_one():
    X, classes, weights = problem()
    new_X = X[:4] + 0.1
    expected = naive_scale.leaf_machine_outputs(rbf, X, classes, weights, MIXED, 2.0, new_X)
    arguments = (rbf, X, classes, weights, MIXED, 2.0, new_X)
    for tree, members in ((("leaf", 3), None), (CUT, dict.fromkeys(range(3), range(14)))):
        got = naive_scale.forest_outputs(tree, *arguments, members=members)
        assert_allclose(got[0], expected[0], atol=1e-12)
        assert_allclose(got[1], expected[1], atol=1e-12)


@pytest.mark.parametrize("share_weights", [False, True])
def test_left_out_margins_of_a_tree_are_those_of_trees_without_the_row(share_weights):
    X, classes, weights = problem()
    C = {0: 0.5, 1: 2.0, 2: 7.0}
    arguments = {"weights": weights, "matrix": MIXED, "C": C, "share_weights": share_weights}
    new_X = X[:3] + 0.1
    margins, left_out = naive_scale.forest_outputs(CUT, rbf, X, classes, new_X=new_X, **arguments)
    held = [len(naive_scale.route(CUT, x)) for x in X]
    assert min(held) == 1
    assert max(held) > 1
    for i in range(14):
        rest = [j for j in range(14) if j != i]
        arguments["weights"] = weights[rest]
        again, _ = naive_scale.forest_outputs(CUT, rbf, X[rest], classes[rest], new_X=X[[i]], **arguments)
        assert_allclose(left_out[i], again[0], atol=1e-12)
    assert margins.shape == (3, 4)


def test_margins_of_a_tree_are_sums_over_its_leaves():
    X, classes, weights = problem()
    shares = np.array([[naive_scale.route(CUT, x).get(leaf, 0.0) for leaf in range(3)] for x in X])
    assert_allclose(shares.sum(axis=1), 1, atol=1e-14)
    for share_weights in (False, True):
        margins, left_out, held = np.zeros((14, 4)), np.zeros((14, 4)), np.zeros((14, 1))
        members = {0: np.flatnonzero(shares[:, 0] > 0.5), 1: np.arange(14), 2: np.flatnonzero(shares[:, 2])}
        for leaf, rows in members.items():
            seen = weights[rows] * (shares[rows, leaf] if share_weights else 1.0)
            of_leaf = naive_scale.leaf_machine_outputs(rbf, X[rows], classes[rows], seen, MIXED, 2.0, X)
            margins += shares[:, [leaf]] * of_leaf[0]
            left_out[rows] += shares[rows][:, [leaf]] * of_leaf[1]
            held[rows] += shares[rows][:, [leaf]]
        got = naive_scale.forest_outputs(
            CUT, rbf, X, classes, weights, MIXED, 2.0, X, members=members, share_weights=share_weights
        )
        assert_allclose(got[0], margins, atol=1e-12)
        some = held[:, 0] > 0
        assert np.any(held[some] < 1)
        assert_allclose(got[1][some], (left_out[some] / held[some]), atol=1e-12)


def test_a_row_that_no_leaf_holds_is_a_new_row():
    X, classes, weights = problem()
    arguments = {"weights": weights, "matrix": MIXED, "C": 2.0}
    members = {leaf: range(1, 14) for leaf in range(3)}
    margins, left_out = naive_scale.forest_outputs(
        CUT, rbf, X, classes, new_X=X[[0]], members=members, **arguments
    )
    assert_allclose(left_out[0], margins[0], atol=1e-12)
    # The other row of its group is not to help it.
    groups = np.r_[1, np.arange(1, 14)]
    _, left_out = naive_scale.forest_outputs(
        CUT, rbf, X, classes, new_X=X[[0]], members=members, groups=groups, **arguments
    )
    members = {leaf: range(2, 14) for leaf in range(3)}
    margins, _ = naive_scale.forest_outputs(CUT, rbf, X, classes, new_X=X[[0]], members=members, **arguments)
    assert_allclose(left_out[0], margins[0], atol=1e-12)


# Pools -----------------------------------------------------------------------------------------------------


def test_pools():
    rng = np.random.default_rng(0)
    ps, prior = rng.dirichlet(np.ones(4), size=(3, 6)), rng.dirichlet(np.ones(4))
    log_ps, log_prior = np.log(ps), np.log(prior)
    product = prior * np.prod((ps / prior) ** np.array([0.2, 0.5, 0.9])[:, None, None], axis=0)
    pooled = np.exp(naive_scale.log_linear_pool(log_ps, [0.2, 0.5, 0.9], log_prior))
    assert_allclose(pooled, product / product.sum(axis=1, keepdims=True))
    assert_allclose(naive_scale.log_linear_pool(log_ps, [0, 0, 0], log_prior), np.tile(log_prior, (6, 1)))
    assert_allclose(naive_scale.log_linear_pool(log_ps, [0, 1, 0], log_prior), log_ps[1])
    priors = np.tile(log_prior, (6, 1))
    assert_allclose(np.exp(naive_scale.log_linear_pool(log_ps, [0.2, 0.5, 0.9], priors)), pooled)


def test_pools_with_impossible_classes():
    with np.errstate(divide="ignore"):
        log_ps = np.log([[[0.5, 0.5, 0.0]], [[0.2, 0.8, 0.0]]])
        log_prior = np.log([0.3, 0.7, 0.0])
    pooled = np.exp(naive_scale.log_linear_pool(log_ps, [0.5, 1.0], log_prior))
    pair = np.exp(naive_scale.log_linear_pool(log_ps[:, :, :2], [0.5, 1.0], log_prior[:2]))
    assert_allclose(pooled, np.c_[pair, [0.0]])
