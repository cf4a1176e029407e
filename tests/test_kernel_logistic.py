"""Kernel logistic regression against general optimisers, scikit-learn and brute-force refits."""

from contextlib import contextmanager

import numpy as np
import pytest
import threadpoolctl
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import KernelLogisticClassifier, _memory
from polymargin.estimators import kernel_logistic as estimator_module
from polymargin.selection import log_loss as selection
from polymargin.solvers.kernel_logistic import (
    Observations,
    fit_and_leave_one_out,
    fit_kernel_logistic,
    leave_one_out_logits,
)
from polymargin.solvers.status import Status

X, Y = blobs(n=60, K=3, d=2, seed=1, spread=1.5)
X_NEW = blobs(n=40, K=3, d=2, seed=2, spread=2.0)[0]


def objective(alpha, b, K, T, C, weights):
    """The objective, written down."""
    f = K @ alpha + b
    loss = -np.sum(weights[:, None] * T * log_softmax(f, axis=1))
    return loss + sum(alpha[:, k] @ K @ alpha[:, k] for k in range(T.shape[1])) / (2 * C)


def by_scipy(K, T, C, weights):
    """Minimise over weights in the space of the kernel's eigenvectors, by a general optimiser."""
    values, vectors = np.linalg.eigh(K)
    Phi = vectors * np.sqrt(np.maximum(values, 0.0))
    n, n_classes = T.shape

    def fun(parameters):
        W, b = parameters[: n * n_classes].reshape(n, n_classes), parameters[n * n_classes :]
        f = Phi @ W + b
        rest = weights[:, None] * (softmax(f, axis=1) - T)
        value = -np.sum(weights[:, None] * T * log_softmax(f, axis=1)) + np.sum(W**2) / (2 * C)
        return value, np.concatenate([(Phi.T @ rest + W / C).ravel(), rest.sum(axis=0)])

    start = np.zeros(n * n_classes + n_classes)
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(fun, start, jac=True, method="L-BFGS-B", options=options)
    return best.fun, Phi @ best.x[: n * n_classes].reshape(n, n_classes) + best.x[n * n_classes :]


def centred(f):
    return f - f.mean(axis=-1, keepdims=True)


# --- the solver --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("C", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("kind", ["labels", "soft", "weighted"])
def test_solution_is_that_of_a_general_optimiser(n_classes, C, kind):
    rows, y = blobs(n=30, K=n_classes, d=2, seed=3, spread=1.5)
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.ones(n_classes), 30) if kind == "soft" else np.eye(n_classes)[y]
    weights = rng.uniform(0.2, 3.0, 30) if kind == "weighted" else np.ones(30)
    K = rbf_kernel(rows, gamma=0.5)
    found = fit_kernel_logistic(K, T, weights, C)
    best, f = by_scipy(K, T, C, weights)
    assert found.status is Status.CONVERGED
    assert_allclose(found.objective, objective(C * found.a, found.intercept, K, T, C, weights), rtol=1e-10)
    assert found.objective <= best + 1e-9
    assert_allclose(found.objective, best, rtol=1e-6)
    assert_allclose(found.logits, C * K @ found.a + found.intercept, atol=1e-9)
    assert_allclose(softmax(found.logits, axis=1), softmax(f, axis=1), atol=2e-4)
    # The conditions of optimality.
    assert_allclose(found.a, weights[:, None] * (T - softmax(found.logits, axis=1)), atol=1e-7)
    assert_allclose(found.a.sum(axis=0), 0.0, atol=1e-9)
    assert_allclose(found.a.sum(axis=1), 0.0, atol=1e-9)
    assert_allclose(found.intercept.sum(), 0.0, atol=1e-9)


@pytest.mark.parametrize("C", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("gamma", [1e-4, 0.05, 10.0])
def test_separable_rows_and_a_large_C(C, gamma):
    rows, y = load_wine(return_X_y=True)
    K = rbf_kernel(StandardScaler().fit_transform(rows)[::3], gamma=gamma)
    T = np.eye(3)[y[::3]]
    found = fit_kernel_logistic(K, T, np.ones(len(K)), C)
    assert found.status is Status.CONVERGED
    assert_allclose(found.a, T - softmax(found.logits, axis=1), atol=1e-8)


def test_a_start_gets_to_the_same_place():
    K, T, weights = rbf_kernel(X, gamma=0.3), np.eye(3)[Y], np.ones(60)
    first = fit_kernel_logistic(K, T, weights, 10.0)
    assert fit_kernel_logistic(K, T, weights, 10.0, start=first).n_iter == 0
    start = first.scaled(5.0)
    assert_allclose(50.0 * K @ start.a + start.intercept, first.logits, atol=1e-9)
    near = fit_kernel_logistic(K, T, weights, 50.0, start=start)
    far = fit_kernel_logistic(K, T, weights, 50.0)
    assert_allclose(near.logits, far.logits, atol=1e-6)
    assert near.n_iter < far.n_iter


def test_limits_and_refusals():
    K, T = rbf_kernel(X, gamma=0.3), np.eye(3)[Y]
    stopped = fit_kernel_logistic(K, T, np.ones(60), 10.0, max_iter=2)
    assert stopped.status is Status.ITERATION_LIMIT
    assert stopped.n_iter == 2
    assert stopped.gradient_norm > 1e-6
    with pytest.raises(np.linalg.LinAlgError):
        fit_kernel_logistic(K - 5.0 * np.eye(60), T, np.ones(60), 10.0)


def test_gradient_norm_bounds_the_error_of_the_objective():
    K, T, weights = rbf_kernel(X, gamma=0.3), np.eye(3)[Y], np.ones(60)
    best = fit_kernel_logistic(K, T, weights, 30.0).objective
    gaps = [fit_kernel_logistic(K, T, weights, 30.0, max_iter=steps) for steps in (1, 2, 3, 4)]
    for found in gaps:
        assert 0.0 < found.objective - best <= 0.5 * found.gradient_norm**2


# --- leave-one-out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "gamma"), [(load_iris, 0.2), (load_wine, 0.05)])
@pytest.mark.parametrize(("C", "logit_error", "proba_error"), [(1.0, 1e-3, 2e-4), (10.0, 3e-3, 1e-3)])
def test_leave_one_out_is_nearly_that_of_refits(load, gamma, C, logit_error, proba_error):
    rows, y = load(return_X_y=True)
    K = rbf_kernel(StandardScaler().fit_transform(rows), gamma=gamma)
    n = len(y)
    T, weights = np.eye(3)[y], np.ones(n)
    found = fit_kernel_logistic(K, T, weights, C)
    approximate = leave_one_out_logits(K, T, weights, C, found)
    left_out = range(0, n, 6)
    exact, plain = [], []
    for i in left_out:
        rest = np.delete(np.arange(n), i)
        refit = fit_kernel_logistic(K[np.ix_(rest, rest)], T[rest], weights[rest], C)
        exact.append(C * K[i, rest] @ refit.a + refit.intercept)
        plain.append(found.logits[i])
    some = approximate[::6]
    error = np.abs(centred(some) - centred(np.array(exact))).mean()
    assert error < logit_error
    assert error < 0.05 * np.abs(centred(np.array(plain)) - centred(np.array(exact))).mean()
    assert np.abs(softmax(some, axis=1) - softmax(np.array(exact), axis=1)).mean() < proba_error


def test_a_row_is_left_out_with_all_of_its_weight():
    K, T = rbf_kernel(X, gamma=0.3), np.eye(3)[Y]
    weights = 1.0 + 2.0 * (np.arange(60) % 3 == 0)
    found = fit_kernel_logistic(K, T, weights, 2.0)
    approximate = leave_one_out_logits(K, T, weights, 2.0, found)
    for i in (0, 3, 4):
        rest = np.delete(np.arange(60), i)
        refit = fit_kernel_logistic(K[np.ix_(rest, rest)], T[rest], weights[rest], 2.0)
        exact = 2.0 * K[i, rest] @ refit.a + refit.intercept
        moved = np.abs(centred(found.logits[i]) - centred(exact)).max()
        assert_allclose(centred(approximate[i]), centred(exact), atol=0.1 * moved)


def test_equal_rows_are_one_cell():
    # As separate rows of the matrix, and as one cell with the mean of their targets.
    cell = np.repeat(np.arange(20), np.arange(20) % 3 + 1)
    y = np.random.default_rng(0).integers(0, 3, cell.size)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, cell.size)
    K = rbf_kernel(X[:20], gamma=0.3)
    rows = Observations(cell, np.eye(3)[y], weights)
    targets, totals = rows.merged()
    few = fit_kernel_logistic(K, targets, totals, 20.0)
    many = fit_kernel_logistic(K[np.ix_(cell, cell)], rows.targets, weights, 20.0)
    assert_allclose(few.objective, many.objective, rtol=1e-9)
    assert_allclose(few.logits[cell], many.logits, atol=1e-7)


@pytest.mark.parametrize("C", [0.1, 10.0, 1e4])
def test_leave_one_out_in_a_cell_takes_the_other_rows_exactly(C):
    # Cells far apart know nothing of each other but for the biases: leaving a row out counts the others of its cell.
    counts = np.array([[30, 1, 0], [5, 20, 2], [3, 3, 40]])
    cell = np.repeat(np.arange(3), counts.sum(axis=1))
    y = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    rows = Observations(cell, np.eye(3)[y], np.ones(cell.size))
    solution, logits = fit_and_leave_one_out(np.eye(3), rows, C)
    again = leave_one_out_logits(np.eye(3), *rows.merged(), C, solution, rows)
    assert_allclose(softmax(logits, axis=1), softmax(again, axis=1), atol=1e-4)
    for i in range(0, cell.size, 7):
        rest = np.arange(cell.size) != i
        left = Observations(cell[rest], rows.targets[rest], rows.weights[rest])
        refit = fit_kernel_logistic(np.eye(3), *left.merged(), C)
        p = softmax(refit.logits[cell[i]])
        assert_allclose(softmax(again[i]), p, atol=0.01)
        assert abs(np.log(softmax(again[i])[y[i]] / p[y[i]])) < 0.1


def test_leave_one_out_is_a_newton_step():
    # From the optimum of all rows, one step of the problem without the row: by dense matrices, for one row.
    rows, y = blobs(n=14, K=3, d=2, seed=6, spread=1.5)
    K, T, C, i = rbf_kernel(rows, gamma=0.4), np.eye(3)[y], 5.0, 4
    found = fit_kernel_logistic(K, T, np.ones(14), C)
    values, vectors = np.linalg.eigh(K)
    Phi = np.column_stack([vectors * np.sqrt(np.maximum(values, 0.0)), np.ones(14)])
    penalty = np.diag([1.0 / C] * 14 + [1e-12])
    P = softmax(found.logits, axis=1)
    H, gradient = np.kron(penalty, np.eye(3)), np.zeros(45)
    for j in range(14):
        if j != i:
            H += np.kron(np.outer(Phi[j], Phi[j]), np.diag(P[j]) - np.outer(P[j], P[j]))
    # The gradient of the rest at the optimum is minus that of the row itself.
    gradient = -np.kron(Phi[i], P[i] - T[i])
    moved = np.linalg.lstsq(H, -gradient, rcond=1e-13)[0].reshape(15, 3)
    expected = found.logits[i] + Phi[i] @ moved
    approximate = leave_one_out_logits(K, T, np.ones(14), C, found)[i]
    assert_allclose(centred(approximate), centred(expected), atol=1e-6)


# --- the estimator -----------------------------------------------------------------------------------------


@parametrize_with_checks([KernelLogisticClassifier(), KernelLogisticClassifier(C=1.0, gamma=0.1)])
def test_scikit_learn_manners(estimator, check):
    check(estimator)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_linear_kernel_is_multinomial_logistic_regression(n_classes):
    rows, y = X[n_classes > Y], Y[n_classes > Y]
    model = KernelLogisticClassifier(2.0, kernel="linear").fit(rows, y)
    # With two classes scikit-learn has one function for the difference, whose penalty is half as large for the same.
    C = 2.0 if n_classes > 2 else 4.0
    other = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(rows, y)
    assert_allclose(model.predict_proba(X_NEW), other.predict_proba(X_NEW), atol=1e-5)
    coefficients = model.dual_coef_ @ rows
    if n_classes > 2:
        assert_allclose(coefficients, other.coef_, atol=1e-4)
        assert_allclose(model.intercept_, other.intercept_ - other.intercept_.mean(), atol=1e-4)
    else:
        assert_allclose(coefficients[1] - coefficients[0], other.coef_[0], atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_label_and_probability_agree(n_classes):
    y = np.array(["a", "b", "c"])[Y]
    model = KernelLogisticClassifier(5.0, gamma=0.5).fit(X[n_classes > Y], y[n_classes > Y])
    for new in (X_NEW, 1e3 * X_NEW):
        proba = model.predict_proba(new)
        assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        assert_array_equal(model.predict(new), model.classes_[proba.argmax(axis=1)])
        assert_allclose(np.exp(model.predict_log_proba(new)), proba, rtol=1e-12)
        scores = model.decision_function(new)
        if n_classes == 2:
            assert_allclose(scores, np.log(proba[:, 1] / proba[:, 0]), atol=1e-9)
        else:
            assert_allclose(softmax(scores, axis=1), proba, rtol=1e-9)


def test_attributes():
    model = KernelLogisticClassifier().fit(X, Y)
    assert model.dual_coef_.shape == (3, 60)
    assert model.loo_log_proba_.shape == (60, 3)
    assert_allclose(np.exp(model.loo_log_proba_).sum(axis=1), 1.0)
    assert model.n_features_in_ == 2
    assert model.n_iter_ > 0
    assert model.status_.startswith("converged")
    assert model.gradient_norm_ <= 1e-9 * np.sqrt(60)
    f = rbf_kernel(X_NEW, X, gamma=model.gamma_) @ model.dual_coef_.T + model.intercept_
    assert_allclose(model.decision_function(X_NEW), f, atol=1e-8)
    assert_allclose(model.dual_coef_.T, model.C_ * (np.eye(3)[Y] - model.predict_proba(X)), atol=1e-5)
    assert_array_equal(model.support_, np.arange(60))


def test_other_kernels_and_kinds_of_input():
    plain = KernelLogisticClassifier(3.0, gamma=0.2).fit(X, Y)
    weights = (np.arange(60) % 5 > 0).astype(float)
    given = KernelLogisticClassifier(3.0, kernel="precomputed")
    gram, gram_new = rbf_kernel(X, gamma=0.2), rbf_kernel(X_NEW, X, gamma=0.2)
    assert_allclose(given.fit(gram, Y).predict_proba(gram_new), plain.predict_proba(X_NEW), atol=1e-7)
    given.fit(gram, Y, weights)
    without = KernelLogisticClassifier(3.0, gamma=0.2).fit(X[weights > 0], Y[weights > 0])
    assert_allclose(given.predict_proba(gram_new), without.predict_proba(X_NEW), atol=1e-7)
    assert_array_equal(given.support_, np.flatnonzero(weights))
    function = KernelLogisticClassifier(3.0, kernel=lambda A, B: rbf_kernel(A, B, gamma=0.2)).fit(X, Y)
    assert_allclose(function.predict_proba(X_NEW), plain.predict_proba(X_NEW), atol=1e-7)
    thin = KernelLogisticClassifier(3.0, gamma=0.2).fit(sparse.csr_matrix(X), Y)
    assert_allclose(thin.predict_proba(sparse.csr_matrix(X_NEW)), plain.predict_proba(X_NEW), atol=1e-7)
    cubic = KernelLogisticClassifier(3.0, kernel="poly", gamma=1.0, degree=2).fit(X, Y)
    by_hand = KernelLogisticClassifier(3.0, kernel=lambda A, B: (A @ B.T + 1.0) ** 2).fit(X, Y)
    assert_allclose(cubic.predict_proba(X_NEW), by_hand.predict_proba(X_NEW), atol=1e-7)
    for gamma, value in (("scale", 1 / (2 * X.var())), ("auto", 0.5)):
        assert_allclose(KernelLogisticClassifier(1.0, gamma=gamma).fit(X, Y).gamma_, value)


def test_weight_two_is_a_row_twice():
    copies = np.repeat(np.arange(60), np.arange(60) % 3)
    few = KernelLogisticClassifier(4.0, gamma=0.3).fit(X, Y, np.arange(60) % 3)
    many = KernelLogisticClassifier(4.0, gamma=0.3).fit(X[copies], Y[copies])
    assert_allclose(few.predict_proba(X_NEW), many.predict_proba(X_NEW), atol=1e-6)
    assert_allclose(few.objective_, many.objective_, rtol=1e-9)
    # Copies of a row are one row of more weight, the one that support_ names.
    kept = copies[many.support_]
    assert_array_equal(np.unique(kept), np.flatnonzero(np.arange(60) % 3))
    residuals = np.eye(3)[Y[kept]] - many.predict_proba(X[kept])
    assert_allclose(many.dual_coef_.T, 4.0 * (kept % 3)[:, np.newaxis] * residuals, atol=1e-5)


@pytest.mark.parametrize("factor", [1.1, 1e-3, 1e3])
def test_all_weights_times_a_constant(factor):
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 60)
    one = KernelLogisticClassifier().fit(X, Y, weights)
    other = KernelLogisticClassifier().fit(X, Y, factor * weights)
    assert_allclose(other.C_ * factor, one.C_, rtol=1e-9)
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-6)
    assert_allclose(np.exp(other.loo_log_proba_), np.exp(one.loo_log_proba_), atol=1e-6)
    # With a given C it is the same as C times the constant.
    one = KernelLogisticClassifier(3.0 * factor, gamma=0.3).fit(X, Y, weights)
    other = KernelLogisticClassifier(3.0, gamma=0.3).fit(X, Y, factor * weights)
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-8)
    assert_allclose(other.dual_coef_, one.dual_coef_, atol=1e-6 * np.abs(one.dual_coef_).max())
    assert_allclose(np.exp(other.loo_log_proba_), np.exp(one.loo_log_proba_), atol=1e-8)


def test_soft_labels():
    hard = KernelLogisticClassifier(4.0, gamma=0.3).fit(X, Y)
    P = np.eye(3)[Y]
    assert_allclose(
        KernelLogisticClassifier(4.0, gamma=0.3).fit(X, P).predict_proba(X), hard.predict_proba(X)
    )
    # A soft label is the row once for each class, weighted with its probability.
    P = np.random.default_rng(1).dirichlet([0.5, 0.5, 0.5], 60)
    soft = KernelLogisticClassifier(4.0, gamma=0.3, classes=["x", "y", "z"]).fit(X, P)
    divided = KernelLogisticClassifier(4.0, gamma=0.3).fit(
        np.repeat(X, 3, axis=0), np.tile(["x", "y", "z"], 60), P.ravel()
    )
    assert_allclose(soft.predict_proba(X_NEW), divided.predict_proba(X_NEW), atol=1e-6)
    assert_array_equal(soft.classes_, ["x", "y", "z"])
    assert KernelLogisticClassifier().fit(X, P).loo_log_proba_.shape == (60, 3)


def test_selection_finds_what_a_grid_finds():
    model = KernelLogisticClassifier().fit(X, Y)

    def loss(C, gamma):
        fitted = KernelLogisticClassifier(C, gamma=gamma).fit(X, Y)
        return -fitted.loo_log_proba_[np.arange(60), Y].mean()

    chosen = loss(model.C_, model.gamma_)
    grid = [
        loss(C, gamma)
        for C in model.C_ * 10.0 ** np.arange(-2, 3)
        for gamma in model.gamma_ * 4.0 ** np.arange(-2, 3)
    ]
    assert chosen <= min(grid) * 1.02
    # With one of them given, the other is chosen.
    assert KernelLogisticClassifier(7.0).fit(X, Y).C_ == 7.0
    assert KernelLogisticClassifier(gamma=0.7).fit(X, Y).gamma_ == 0.7
    assert KernelLogisticClassifier(kernel="linear").fit(X, Y).C_ > 0.0


def test_it_learns():
    rows, y = load_wine(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    model = KernelLogisticClassifier().fit(rows[::2], y[::2])
    assert model.score(rows[1::2], y[1::2]) > 0.95
    assert log_loss(y[1::2], model.predict_proba(rows[1::2])) < 0.15


def test_many_rows_are_sampled_and_the_sample_does_not_depend_on_their_order(monkeypatch):
    monkeypatch.setattr(selection, "SAMPLED", (30, 45))
    seen = []
    choose = selection.choose

    def spy(kernel, few, more, **parameters):
        seen.append((few, more))
        return choose(kernel, few, more, **parameters)

    monkeypatch.setattr(estimator_module.log_loss, "choose", spy)
    order = np.random.default_rng(0).permutation(60)
    first = KernelLogisticClassifier().fit(X, Y)
    second = KernelLogisticClassifier().fit(X[order], Y[order])
    assert_allclose(first.C_, second.C_)
    assert_allclose(first.gamma_, second.gamma_)
    for few, more in seen:
        assert 30 <= few.rows.weights.size <= 33
        assert 45 <= more.rows.weights.size <= 48
        assert (few.rows.targets.sum(axis=0) > 0).all()
    # Nor on the last digits of the rows.
    near = KernelLogisticClassifier().fit(X * (1.0 + 1e-9 * np.random.default_rng(1).normal(size=X.shape)), Y)
    assert_allclose(near.predict_proba(X_NEW), first.predict_proba(X_NEW), atol=1e-5)
    other = KernelLogisticClassifier(random_state=1).fit(X, Y)
    assert np.isfinite(other.C_)
    assert not np.array_equal(seen[3][0].base, seen[0][0].base)


# --- what it learns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_classes", "d", "seed"), [(40, 3, 20, 9), (40, 3, 20, 33), (30, 2, 2, 19)])
def test_nothing_is_learned_from_noise(n, n_classes, d, seed):
    # The least leave-one-out log-loss of these is at a large C, and is chance: on new rows it is 0.2 to 0.8 worse.
    random = np.random.default_rng(seed)
    rows, y = random.normal(size=(n, d)), random.integers(0, n_classes, n)
    model = KernelLogisticClassifier().fit(rows, y)
    frequencies = np.bincount(y) / n
    proba = model.predict_proba(random.normal(size=(2000, d)))
    excess = np.log(frequencies) - np.log(proba).mean(axis=0)
    assert frequencies @ excess < 0.12


def test_noise_of_many_classes():
    excess = []
    for seed in range(20, 24):
        random = np.random.default_rng(seed)
        rows, y = random.normal(size=(100, 20)), random.integers(0, 8, 100)
        proba = KernelLogisticClassifier().fit(rows, y).predict_proba(random.normal(size=(500, 20)))
        frequencies = np.bincount(y) / 100
        excess.append(frequencies @ (np.log(frequencies) - np.log(proba).mean(axis=0)))
    assert max(excess) < 0.06


def sampling_error(frequencies, counts):
    """The standard deviation of the frequencies, one row more of every class counted."""
    p = (frequencies * counts[:, None] + 1.0) / (counts[:, None] + frequencies.shape[1])
    return np.sqrt(p * (1.0 - p) / counts[:, None])


@pytest.mark.parametrize("n", [100, 1000, 3000])
def test_one_binary_feature(n):
    random = np.random.default_rng(n)
    x = (random.random(n) < 0.5).astype(int)
    y = (random.random(n) < np.where(x == 1, 0.8, 0.2)).astype(int)
    model = KernelLogisticClassifier().fit(x[:, None], y)
    counts = np.bincount(x)
    frequencies = np.stack([np.bincount(x, y == k) for k in (0, 1)], axis=1) / counts[:, None]
    proba = model.predict_proba([[0.0], [1.0]])
    assert (np.abs(proba - frequencies) < 2.0 * sampling_error(frequencies, counts)).all()
    # What it states is what the frequencies of the other rows have.
    others = (frequencies * counts[:, None])[x] - np.eye(2)[y]
    stated = -model.loo_log_proba_[np.arange(n), y].mean()
    assert abs(stated + np.log(others / others.sum(axis=1, keepdims=True))[np.arange(n), y].mean()) < 0.02


@pytest.mark.parametrize("n", [200, 1000, 3000])
def test_a_table_of_sixteen_cells(n):
    random = np.random.default_rng(n)
    truth = random.dirichlet([1.0, 1.0, 1.0], 16)
    cell = random.integers(0, 16, n)
    y = (random.random((n, 1)) > np.cumsum(truth[cell], axis=1)[:, :-1]).sum(axis=1)
    table = (np.arange(16)[:, None] >> np.arange(4)) & 1
    proba = KernelLogisticClassifier().fit(table[cell], y).predict_proba(table)
    counts = np.bincount(cell, minlength=16)
    frequencies = np.stack([np.bincount(cell, y == k, 16) for k in range(3)], axis=1) / counts[:, None]
    deviations = (proba - frequencies) / sampling_error(frequencies, counts)
    assert np.abs(deviations).max() < 4.0
    assert np.sqrt(np.square(deviations).mean()) < 1.5
    divergence = (truth * np.log(truth / proba)).sum(axis=1).mean()
    smoothed = (frequencies * counts[:, None] + 1.0) / (counts[:, None] + 3.0)
    assert divergence < 1.5 * (truth * np.log(truth / smoothed)).sum(axis=1).mean()


def test_all_rows_equal():
    y = np.repeat([0, 1, 2], [10, 20, 30])
    order = np.random.default_rng(0).permutation(60)
    model = KernelLogisticClassifier().fit(np.ones((60, 2)), y[order])
    assert_allclose(model.predict_proba(np.ones((2, 2))), np.tile([1 / 6, 1 / 3, 1 / 2], (2, 1)), atol=1e-8)
    left = np.array([10, 20, 30]) - np.eye(3)[y[order]]
    assert_allclose(np.exp(model.loo_log_proba_), left / 59, atol=1e-6)


def test_blas_has_one_thread_while_few_rows_are_fitted():
    seen = []

    def kernel(A, B):
        info = threadpoolctl.threadpool_info()
        seen.extend(library["num_threads"] for library in info if library["user_api"] == "blas")
        return rbf_kernel(A, B)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        KernelLogisticClassifier(kernel=kernel).fit(X, Y)
    assert seen
    assert set(seen) == {1}


def test_rows_too_far_for_a_polynomial_are_refused():
    model = KernelLogisticClassifier(1.0, kernel="poly", gamma=1.0).fit(X, Y)
    far = X_NEW[:4].copy()
    far[2] = 1e200
    for use in (model.predict, model.predict_proba, model.predict_log_proba, model.decision_function):
        with pytest.raises(ValueError, match="row 2 of X is so far from the training rows"):
            use(far)
    assert np.isfinite(model.predict_log_proba(1e40 * X_NEW)).all()


def test_progress_is_shown(monkeypatch):
    steps = []

    @contextmanager
    def told(verbose):
        assert verbose == 1
        yield steps.append

    monkeypatch.setattr(estimator_module, "shown", told)
    KernelLogisticClassifier(verbose=1).fit(X[:20], Y[:20])
    assert str(steps[0]) == f"choosing C and gamma: 0 of {selection.N_KERNELS} kernels"
    assert steps[-1].done == steps[-1].total


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C must be a positive number, or None to have it selected"),
        ({"gamma": -1.0}, "gamma must be a positive number"),
        ({"gamma": "wide"}, "gamma must be a positive number"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"kernel": "sinc"}, "unknown kernel"),
        ({"kernel": lambda A, B: -(A @ B.T)}, "not positive semi-definite"),
        ({"kernel": "precomputed"}, "must be square"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        KernelLogisticClassifier(**parameters).fit(X, Y)


def test_bad_rows():
    model = KernelLogisticClassifier(1.0, gamma=1.0)
    with pytest.raises(ValueError, match="only one class, 0"):
        model.fit(X, np.zeros(60, dtype=int))
    with pytest.raises(ValueError, match=r"all sample weights are zero|at least one non-zero"):
        model.fit(X, Y, np.zeros(60))
    with pytest.raises(ValueError, match="class 2 has no row with a positive sample weight"):
        model.fit(X, Y, (Y < 2).astype(float))
    with pytest.raises(ValueError, match="must sum to one"):
        model.fit(X, np.full((60, 3), 0.5))
    with pytest.raises(ValueError, match="scale the features"):
        KernelLogisticClassifier(1.0, kernel="poly", gamma=1.0).fit(1e120 * X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_what_cannot_fit_into_memory_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(_memory, "available", lambda: 1e4)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    with pytest.raises(MemoryError, match="the Hessian of 60 rows and 3 classes needs"):
        KernelLogisticClassifier(1.0, gamma=1.0).fit(X, Y)


def test_stopping_early_warns():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = KernelLogisticClassifier(10.0, gamma=0.5, max_iter=1).fit(X, Y)
    assert model.n_iter_ == 1
    assert model.status_.startswith("stopped by max_iter")
