"""Softmax decoding: the convex fit, the hidden layer, and the decoder (Bravo et al. 2010, §3)."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import expit, log_softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

import naive
from polymargin import LSSVMClassifier
from polymargin.codebooks import Codebook, ecoc, one_vs_all, one_vs_one
from polymargin.dealing import Deal
from polymargin.decoders import Softmax, resolve_decoder
from polymargin.decoders._base import prior_shift, reweighted
from polymargin.decoders.softmax import choose_ridge
from polymargin.outputs import Outputs
from polymargin.solvers import _softmax_steps
from polymargin.solvers._softmax_steps import NewtonSteps
from polymargin.solvers.platt import fit_sigmoids
from polymargin.solvers.softmax import fit_softmax, mean_fit, reduced_features, smooth_targets
from polymargin.solvers.softmax_hidden import _Network


def features_of(n=80, d=4, n_classes=3, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    return random.normal(size=(n_classes, d))[y] + random.normal(size=(n, d)), y


def outputs_of(codebook, class_index, seed=0, noise=0.7):
    random = np.random.default_rng(seed)
    shape = class_index.size, codebook.n_columns
    margins = codebook.targets(class_index) + noise * random.normal(size=shape)
    return Outputs(margins * np.exp(random.normal(size=codebook.n_columns)), "leave_one_out")


def some_classes(n, n_classes, seed=0):
    index = np.random.default_rng(seed).integers(0, n_classes, n)
    index[:n_classes] = np.arange(n_classes)
    return index


# --- the convex fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_the_fit_minimises_its_objective(anchored, soft):
    random = np.random.default_rng(0)
    X, y = features_of(n=20, d=3)
    T = random.dirichlet(np.ones(3), 20) if soft else np.eye(3)[y]
    weights = random.uniform(0.2, 2.0, 20)
    ridge = random.uniform(0.1, 3.0, (3, 3))
    W = np.log(random.dirichlet(np.ones(3), 20)) + T if anchored else None
    fit = fit_softmax(
        X, T, sample_weight=weights, ridge=ridge, intercept_ridge=0.5, anchor=W, scale_ridge=2.0, tol=1e-9
    )
    assert fit.converged
    assert fit.gradient_norm <= 1e-9
    found = np.concatenate([fit.coef.ravel(), fit.intercept, [1.0 if fit.scale is None else fit.scale]])
    arguments = X, T, weights, ridge, 0.5, W, 2.0
    assert naive.softmax_objective(found, *arguments) == pytest.approx(fit.objective, rel=1e-10)
    slow = minimize(naive.softmax_objective, np.zeros(13), args=arguments, options={"gtol": 1e-5}).x
    end = 13 if anchored else 12
    np.testing.assert_allclose(found[:end], slow[:end], atol=2e-5)
    expected = X @ fit.coef + fit.intercept + (fit.scale * W if anchored else 0.0)
    np.testing.assert_allclose(fit.log_proba(X, W), log_softmax(expected, axis=1), atol=1e-12)
    if anchored:
        with pytest.raises(ValueError, match="anchor"):
            fit.logits(X)


@pytest.mark.parametrize(
    ("n", "d", "n_classes", "C"), [(200, 5, 4, 1.0), (30, 60, 3, 0.1), (300, 20, 12, 10.0)]
)
def test_the_fit_is_scikit_learns(n, d, n_classes, C):
    X, y = features_of(n, d, n_classes)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, n)
    fit = fit_softmax(X, y, sample_weight=weights, ridge=1.0 / C)
    other = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(fit.coef.T, other.coef_, atol=1e-4)
    np.testing.assert_allclose(np.exp(fit.log_proba(X)), other.predict_proba(X), atol=2e-5)


def test_neither_units_nor_correlation_hinder_the_fit():
    X, y = features_of(300, 6, 5)
    X = np.hstack([X, X @ np.random.default_rng(0).normal(size=(6, 6)) + 1e-4 * X])
    units = np.logspace(-6, 6, 12)
    plain = fit_softmax(X, y, ridge=0.3)
    scaled = fit_softmax(X * units, y, ridge=0.3 * (units**2)[:, np.newaxis])
    assert plain.converged
    assert scaled.converged
    np.testing.assert_allclose(scaled.coef * units[:, np.newaxis], plain.coef, atol=1e-5)


@pytest.mark.parametrize("hidden", [None, 2])
def test_more_outputs_than_rows_are_rotated_away(hidden, monkeypatch):
    index = np.repeat(np.arange(7), 2)
    book = one_vs_one(7)
    outputs = outputs_of(book, index)
    short = Softmax(hidden, ridge=0.5).fit(book, outputs, index)
    monkeypatch.setattr("polymargin.decoders.softmax.reduced_features", lambda X: (X, np.eye(X.shape[1])))
    monkeypatch.setattr("polymargin.solvers.softmax.reduced_features", lambda X: (X, np.eye(X.shape[1])))
    long = Softmax(hidden, ridge=0.5).fit(book, outputs, index)
    np.testing.assert_allclose(short.beta_, long.beta_, atol=1e-5)
    np.testing.assert_allclose(short.log_proba(outputs), long.log_proba(outputs), atol=1e-5)
    if hidden:
        np.testing.assert_allclose(short.output_ @ short.hidden_, short.beta_, atol=1e-10)


def test_single_precision_gives_single_precision():
    X, y = features_of(300, 6, 5)
    double = fit_softmax(X, y)
    single = fit_softmax(X.astype(np.float32), y, tol=1e-5)
    assert single.converged
    np.testing.assert_allclose(single.coef, double.coef, atol=1e-3)


def test_a_start_at_the_solution_needs_no_step():
    X, y = features_of()
    fit = fit_softmax(X, y)
    again = fit_softmax(X, y, start=fit)
    assert again.n_iter == 0
    np.testing.assert_array_equal(again.coef, fit.coef)


def test_a_free_anchor_finds_its_temperature():
    random = np.random.default_rng(0)
    logits = 2.0 * random.normal(size=(4000, 3))
    y = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    fit = fit_softmax(np.empty((4000, 0)), y, anchor=3.0 * logits, intercept_ridge=1.0)
    assert fit.converged
    assert fit.scale == pytest.approx(1 / 3, rel=0.1)
    held = fit_softmax(np.empty((4000, 0)), y, anchor=3.0 * logits, scale_ridge=1e9)
    assert held.scale == pytest.approx(1.0, abs=1e-3)


def test_no_features_leave_the_class_shares():
    fit = fit_softmax(np.empty((10, 0)), np.array([0] * 5 + [1] * 3 + [2] * 2))
    np.testing.assert_allclose(np.exp(fit.log_proba(np.empty((1, 0)))), [[0.5, 0.3, 0.2]], atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_gains_below_the_rounding_of_the_objective_do_not_shorten_steps(seed):
    random = np.random.default_rng(seed)
    X, T, w = random.normal(size=(60, 5)), random.dirichlet(np.ones(4), 60), random.uniform(0.2, 2.0, 60)
    W = np.log(random.dirichlet(np.ones(4), 60)) + T
    fit = fit_softmax(X, T, sample_weight=w, ridge=0.5, anchor=W, scale_ridge=0.1, tol=1e-12)
    assert fit.converged
    assert fit.n_iter <= 6


def test_separated_classes_without_any_ridge_end_and_say_so():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    fit = fit_softmax(X, np.array([0, 0, 1, 1]), ridge=0.0, tol=1e-30, max_iter=30)
    assert not fit.converged
    assert np.isfinite(fit.log_proba(X)).all()


def test_bad_problems_are_refused():
    X, y = features_of(10)
    with pytest.raises(ValueError, match="as many targets"):
        fit_softmax(X, y[:-1])
    with pytest.raises(ValueError, match="shape"):
        fit_softmax(X, y, anchor=np.zeros((10, 2)))
    with pytest.raises(ValueError, match="negative"):
        fit_softmax(X, y, ridge=-1.0)
    with pytest.raises(ValueError, match="positive weight"):
        fit_softmax(X, y, sample_weight=np.zeros(10))


def naive_hessian(A, W, mass, ridge, scale_ridge, P):
    """Row by row: the Jacobian of the logits by (B; s), around the covariance of the class indicators."""
    K, D = ridge.shape
    H = np.diag(np.append(ridge.ravel(), scale_ridge))
    for i, m in enumerate(mass):
        jacobian = np.zeros((K, K * D + 1))
        for k in range(K):
            jacobian[k, k * D : (k + 1) * D] = A[:, i]
        jacobian[:, -1] = 0.0 if W is None else W[:, i]
        H += m * jacobian.T @ (np.diag(P[:, i]) - np.outer(P[:, i], P[:, i])) @ jacobian
    return H


@pytest.mark.parametrize("largest", [0, 100])
@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("ridge", [0.5, 1e-7])
def test_a_step_solves_newtons_equation(largest, anchored, ridge, monkeypatch):
    monkeypatch.setattr("polymargin.solvers._softmax_steps._LARGEST", largest)
    random = np.random.default_rng(0)
    n, D, K = 40, 4, 3
    A, mass, P = random.normal(size=(D, n)), random.uniform(0.1, 2.0, n), random.dirichlet(np.ones(K), n).T
    W = random.normal(size=(K, n)) if anchored else None
    ridges = ridge * random.uniform(1.0, 3.0, (K, D))
    gradient = random.normal(size=K * D + 1)
    gradient[-1] *= anchored
    steps = NewtonSteps(A, W, mass, ridges, 0.7, mass.sum())
    assert steps.kind == (np.float32 if ridge == 0.5 else np.float64)
    H = naive_hessian(A, W, mass, ridges, 0.7, P)
    expected = -np.linalg.solve(H, gradient)
    found = steps(P, gradient, 1e-6)
    # The step along a constant of all logits, which a small ridge hardly holds, is long and hardly matters.
    np.testing.assert_allclose(H @ found, -gradient, atol=1e-4)
    if ridge == 0.5:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("d", "n_classes"), [(4, 3), (30, 8)])
def test_single_precision_steps_end_where_double_precision_steps_do(d, n_classes, monkeypatch):
    X, y = features_of(300, d, n_classes)
    fits = []
    for well_posed in (1e-5, np.inf):
        monkeypatch.setattr("polymargin.solvers._softmax_steps._WELL_POSED", well_posed)
        fits.append(fit_softmax(X, y, ridge=2.0, intercept_ridge=2.0, tol=1e-11))
        assert fits[-1].converged
    np.testing.assert_allclose(fits[0].coef, fits[1].coef, atol=1e-8)


def test_the_preconditioner_is_renewed_where_it_is_slow(monkeypatch):
    # From even odds to near certainty: what the Hessian was at the start says little about it at the end.
    X, y = features_of(300, 20, 12)
    fits = []
    for slow in (0, 30, 10_000):
        monkeypatch.setattr("polymargin.solvers._softmax_steps.SLOW", slow)
        fits.append(fit_softmax(10.0 * X, y, ridge=0.01, tol=1e-10))
        assert fits[-1].converged
        np.testing.assert_allclose(fits[-1].log_proba(X), fits[0].log_proba(X), atol=1e-3)


@pytest.mark.parametrize("has_memory", [True, False])
def test_the_hessian_is_taken_where_conjugate_gradients_are_slow(has_memory, monkeypatch):
    X, y = features_of(300, 20, 12)
    expected = fit_softmax(X, y, ridge=0.1, tol=1e-10)
    taken, step = [], _softmax_steps._ExactSteps.__call__

    def noted(*args):
        taken.append(args)
        return step(*args)

    monkeypatch.setattr(_softmax_steps._ExactSteps, "__call__", noted)
    monkeypatch.setattr(_softmax_steps, "_PATIENCE", 0.02)
    monkeypatch.setattr(_softmax_steps, "_PRODUCTS", 2**24 if has_memory else 0)
    found = fit_softmax(X, y, ridge=0.1, tol=1e-10)
    assert found.converged
    assert (0 < len(taken) < found.n_iter) == has_memory
    np.testing.assert_allclose(found.log_proba(X), expected.log_proba(X), atol=1e-7)


def test_the_mean_of_fits_to_halves_is_near_the_fit_to_all():
    X, y = features_of(400)
    halves = [fit_softmax(X[rows], y[rows]) for rows in (slice(0, 200), slice(200, 400))]
    middle = mean_fit(halves)
    np.testing.assert_allclose(middle.coef, (halves[0].coef + halves[1].coef) / 2)
    np.testing.assert_allclose(middle.intercept, (halves[0].intercept + halves[1].intercept) / 2)
    cold, warm = fit_softmax(X, y), fit_softmax(X, y, start=middle)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-5)


# --- the hidden layer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whitened", [False, True])
def test_the_networks_derivatives(whitened):
    random = np.random.default_rng(0)
    X, y = features_of(30, 4, 5)
    metric = np.linalg.cholesky(X.T @ X) if whitened else None
    network = _Network(X, smooth_targets(y, 5, 0.1), random.uniform(0.5, 2.0, 30), 0.7, 2, metric)
    theta, v = random.normal(size=(2, 4 * 2 + 2 * 5 + 5))
    assert check_grad(lambda t: network.value(t)[0], lambda t: network.value(t)[1], theta) < 1e-5
    difference = (network.value(theta + 1e-6 * v)[1] - network.value(theta - 1e-6 * v)[1]) / 2e-6
    np.testing.assert_allclose(network.curvature(theta, v), difference, atol=1e-6)


def objective(decoder, outputs, index):
    """Return the summed cross-entropy with smoothed targets plus the ridge on the standardised map."""
    share = decoder.smoothing / (decoder.smoothing + index.size)
    n_classes = decoder.beta_.shape[0]
    targets = (1.0 - share) * np.eye(n_classes)[index] + share / n_classes
    log_p = log_softmax(outputs.margins @ decoder.beta_.T + decoder.intercept_, axis=1)
    return -np.sum(targets * log_p) + 0.5 * decoder.ridge_ * np.sum(
        (decoder.beta_ * outputs.margins.std(axis=0)) ** 2
    )


@pytest.mark.parametrize("hidden", [3, 4, 9])
def test_as_many_hidden_units_as_classes_change_nothing(hidden):
    index = some_classes(100, 4)
    book = one_vs_all(4)
    outputs = outputs_of(book, index)
    plain = Softmax(ridge=0.5).fit(book, outputs, index)
    network = Softmax(hidden=hidden, ridge=0.5).fit(book, outputs, index)
    assert objective(network, outputs, index) == pytest.approx(objective(plain, outputs, index), rel=1e-8)
    np.testing.assert_allclose(network.log_proba(outputs), plain.log_proba(outputs), atol=1e-6)
    assert network.hidden_.shape == (hidden, 4)
    assert network.output_.shape == (4, hidden)
    np.testing.assert_allclose(network.output_ @ network.hidden_, network.beta_, atol=1e-10)


def test_fewer_hidden_units_bound_the_rank_and_reach_a_minimum():
    index = some_classes(150, 6)
    book = one_vs_all(6)
    outputs = outputs_of(book, index)
    losses = [
        objective(Softmax(hidden=hidden, ridge=0.5).fit(book, outputs, index), outputs, index)
        for hidden in (1, 2, 3, 5)
    ]
    assert np.all(np.diff(losses) < 0.0)
    narrow = Softmax(hidden=2, ridge=0.5).fit(book, outputs, index)
    assert narrow.status_ == "converged"
    assert np.linalg.matrix_rank(narrow.beta_, tol=1e-8) == 2
    np.testing.assert_allclose(narrow.output_ @ narrow.hidden_, narrow.beta_, atol=1e-10)
    # No other start finds a better network.
    spread, mean = outputs.margins.std(axis=0), outputs.margins.mean(axis=0)
    share = 0.3 / 150.3
    network = _Network(
        (outputs.margins - mean) / spread,
        (1 - share) * np.eye(6)[index] + share / 6,
        np.ones(150),
        0.5,
        2,
        None,
    )
    for seed in range(4):
        start = np.random.default_rng(seed).normal(size=2 * 6 + 2 * 6 + 6)
        other = minimize(network.value, start, jac=True, options={"maxiter": 2000})
        assert losses[1] <= 150 * other.fun + 1e-5


def test_epochs_stop_early():
    index = some_classes(200, 5)
    book = one_vs_all(5)
    outputs = outputs_of(book, index)
    losses = []
    for epochs in (1, 5, 20, 500):
        decoder = Softmax(hidden=8, ridge=0.1, epochs=epochs, in_sample=True, random_state=3).fit(
            book, outputs, index
        )
        losses.append(objective(decoder, outputs, index))
        assert np.isfinite(decoder.log_proba(outputs)).all()
    assert np.all(np.diff(losses) < 0.0)
    end = objective(Softmax(ridge=0.1).fit(book, outputs, index), outputs, index)
    assert losses[-1] == pytest.approx(end, rel=1e-4)
    again, other = (
        Softmax(hidden=8, ridge=0.1, epochs=5, random_state=seed).fit(book, outputs, index) for seed in (3, 4)
    )
    assert objective(again, outputs, index) == losses[1]
    assert objective(other, outputs, index) != losses[1]


# --- the decoder ------------------------------------------------------------------------------------------------


def test_with_two_classes_and_one_machine_it_is_platts_sigmoid():
    random = np.random.default_rng(0)
    z = 3.0 * random.normal(size=(200, 1)) + 1.0
    index = (random.uniform(size=200) < expit(0.8 * z[:, 0] - 1.0)).astype(int)
    book = Codebook([[-1], [1]])
    sigmoid = fit_sigmoids(z, np.where(index, 1, -1)[:, np.newaxis], smoothing=False)
    exact = Softmax(ridge=0.0, smoothing=0.0).fit(book, Outputs(z, "leave_one_out"), index)
    np.testing.assert_allclose(exact.beta_[1] - exact.beta_[0], sigmoid.slope, rtol=1e-6)
    np.testing.assert_allclose(exact.intercept_[1] - exact.intercept_[0], sigmoid.intercept[0], rtol=1e-6)
    near = Softmax(ridge=1e-6, smoothing=0.0).fit(book, Outputs(z, "leave_one_out"), index)
    np.testing.assert_allclose(
        np.exp(near.log_proba(Outputs(z, "new")))[:, 1], sigmoid.proba(z)[:, 0], atol=1e-6
    )


@pytest.mark.parametrize("book", [one_vs_all(4), one_vs_one(4), ecoc(4, 0)])
def test_the_decoder_is_the_fit_on_standardised_outputs(book):
    index = some_classes(90, 4)
    outputs = outputs_of(book, index)
    decoder = Softmax(ridge=0.7, smoothing=0.0).fit(book, outputs, index)
    X = (outputs.margins - outputs.margins.mean(axis=0)) / outputs.margins.std(axis=0)
    other = LogisticRegression(C=1 / 0.7, tol=1e-10, max_iter=10_000).fit(X, index)
    np.testing.assert_allclose(np.exp(decoder.log_proba(outputs)), other.predict_proba(X), atol=1e-5)
    # Eq. (14), analytically.
    exponentials = np.exp(outputs.margins @ decoder.beta_.T + decoder.intercept_)
    np.testing.assert_allclose(
        np.exp(decoder.log_proba(outputs)), exponentials / exponentials.sum(axis=1, keepdims=True)
    )
    assert decoder.beta_.shape == (4, book.n_columns)


def test_the_ridge_is_chosen_by_cross_validation():
    index = some_classes(120, 4)
    book = one_vs_one(4)
    outputs = outputs_of(book, index, noise=1.5)
    decoder = Softmax().fit(book, outputs, index)
    path = decoder.ridge_path_
    X = (outputs.margins - outputs.margins.mean(axis=0)) / outputs.margins.std(axis=0)
    share = 0.3 / 120.3
    targets = (1 - share) * np.eye(4)[index] + share / 4

    def loss(ridge):
        total = 0.0
        for fold in Deal.of(X, index).folds(5):
            kept = np.setdiff1d(np.arange(120), fold)
            total -= np.sum(
                targets[fold] * fit_softmax(X[kept], targets[kept], ridge=ridge).log_proba(X[fold])
            )
        return total / 120

    assert len(path) >= 3
    for ridge, value in path.items():
        assert value == pytest.approx(loss(ridge), rel=2e-3)
    assert loss(decoder.ridge_) <= min(path.values()) + 1e-3
    assert Softmax().fit(book, outputs, index).ridge_ == decoder.ridge_


def test_the_search_for_the_ridge_goes_either_way():
    random = np.random.default_rng(0)
    index = some_classes(60, 3)
    targets, weights = smooth_targets(index, 3, 0.01), np.ones(60)
    blind = random.normal(size=(60, 8))
    noise, path = choose_ridge(blind, targets, weights, Deal.of(blind, index).folds(5))
    assert noise > 10.0
    assert max(path) >= 100.0
    signal = np.eye(3)[index] + 0.05 * random.normal(size=(60, 3))
    clear, path = choose_ridge(signal, targets, weights, Deal.of(signal, index).folds(5))
    assert clear < 0.1


@pytest.mark.parametrize("anchored", [False, True])
def test_an_offset_is_added_to_the_logits_and_not_part_of_the_fit(anchored):
    random = np.random.default_rng(3)
    X, index = random.normal(size=(40, 2)), some_classes(40, 3)
    T, w, offset = smooth_targets(index, 3, 0.05), random.uniform(0.5, 2.0, 40), np.log([0.6, 0.3, 0.1])
    W = random.normal(size=(40, 3)) + np.eye(3)[index] if anchored else None
    more = {"anchor": W, "scale_ridge": 0.2} if anchored else {}
    fit = fit_softmax(X, T, sample_weight=w, ridge=0.7, intercept_ridge=0.9, offset=offset, tol=1e-10, **more)

    def objective(parameters):
        moved = parameters.copy()
        moved[6:9] += offset
        value = naive.softmax_objective(moved, X, T, w, 0.7, 0.0, W, 0.2 if anchored else 0.0)
        return value + 0.45 * np.sum(parameters[6:9] ** 2)

    own = np.concatenate([fit.coef.ravel(), fit.intercept, [fit.scale if anchored else 1.0]])
    found = minimize(objective, np.r_[np.zeros(9), 1.0], method="BFGS", options={"gtol": 1e-7})
    assert objective(own) == pytest.approx(found.fun, rel=1e-9)
    assert fit.objective == pytest.approx(found.fun, rel=1e-9)
    np.testing.assert_allclose(own[:9], found.x[:9], atol=1e-4)
    # An intercept without a ridge takes the offset up.
    free = {"sample_weight": w, "ridge": 0.7, "tol": 1e-10, **more}
    with_offset, without = fit_softmax(X, T, offset=offset, **free), fit_softmax(X, T, **free)
    np.testing.assert_allclose(with_offset.coef, without.coef, atol=1e-6)
    moved = with_offset.intercept + offset - without.intercept
    np.testing.assert_allclose(moved, moved.mean(), atol=1e-6)
    # To say nothing is to say the offset.
    silent = fit_softmax(np.zeros((40, 2)), T, ridge=1.0, intercept_ridge=1e9, offset=offset)
    np.testing.assert_allclose(silent.intercept, 0.0, atol=1e-6)


def test_few_features_have_no_direction_of_rounding():
    X = np.random.default_rng(0).normal(size=(20, 50))
    X -= X.mean(axis=0)
    Y, V = reduced_features(X)
    assert Y.shape == (20, 19)
    np.testing.assert_allclose(Y @ V.T, X, atol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(19), atol=1e-12)
    fit = fit_softmax(X, np.arange(20) % 3, ridge=0.1)
    assert fit.converged
    assert fit.coef.shape == (50, 3)


def test_weight_two_is_the_row_twice():
    index = some_classes(60, 3)
    book = one_vs_all(3)
    outputs = outputs_of(book, index)
    weights = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    weights[:3] = 1.0
    twice = np.repeat(np.arange(60), weights.astype(int))
    copies = Outputs(outputs.margins[twice], "leave_one_out")
    priors = np.array([0.5, 0.3, 0.2])
    for parameters in (  # to choose a ridge, rows are dealt into folds, and copies into different ones
        {"ridge": 0.5},
        {"ridge": 0.5, "hidden": 1},
        {"ridge": 0.5, "hidden": 4, "epochs": 7},
    ):
        one = Softmax(**parameters).fit(book, outputs, index, priors=priors, sample_weight=weights)
        two = Softmax(**parameters).fit(book, copies, index[twice], priors=priors)
        np.testing.assert_allclose(one.log_proba(outputs), two.log_proba(outputs), atol=1e-4)


def test_permuting_the_classes_permutes_the_probabilities():
    index = some_classes(80, 4)
    book = one_vs_one(4)
    outputs = outputs_of(book, index)
    order = np.array([2, 0, 3, 1])  # class k is called order[k]
    renamed = Codebook(book.matrix[np.argsort(order)])
    for hidden in (None, 2):
        one = Softmax(hidden, ridge=1.0).fit(book, outputs, index)
        two = Softmax(hidden, ridge=1.0).fit(renamed, outputs, order[index])
        np.testing.assert_allclose(two.log_proba(outputs)[:, order], one.log_proba(outputs), atol=1e-4)


@pytest.mark.parametrize(
    ("n_classes", "rows", "noise"), [(3, 40, 0.0), (3, 40, 0.01), (50, 3, 0.3), (5, 2, 0.5), (10, 4, 1.0)]
)
@pytest.mark.parametrize("coding", [one_vs_all, one_vs_one])
def test_probabilities_stay_sensible(n_classes, rows, noise, coding):
    index = np.repeat(np.arange(n_classes), rows)
    book = coding(n_classes)
    outputs = outputs_of(book, index, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_p = Softmax().fit(book, outputs, index).log_proba(outputs)
    assert np.isfinite(log_p).all()
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0)
    assert -log_p[np.arange(index.size), index].mean() < np.log(n_classes)
    if noise < 0.1:  # sure, but not beyond what so many rows can tell
        assert 1e-5 < 1.0 - np.exp(log_p).max(axis=1).mean() < 0.05


def test_a_class_of_two_rows_among_many():
    index = np.array([0] * 100 + [1] * 80 + [2] * 2)
    book = one_vs_one(3)
    decoder = Softmax().fit(book, outputs_of(book, index), index)
    p = np.exp(decoder.log_proba(outputs_of(book, index, seed=1)))
    assert 0.002 < p[:, 2].mean() < 0.05


def test_constant_and_repeated_outputs():
    index = some_classes(50, 3)
    clean = outputs_of(one_vs_all(3), index)
    book = Codebook(np.hstack([one_vs_all(3).matrix, one_vs_all(3).matrix[:, :2]]))
    repeated = np.hstack([clean.margins, clean.margins[:, :1], np.full((50, 1), 0.1)])
    decoder = Softmax(ridge=1e-6).fit(book, Outputs(repeated, "leave_one_out"), index)
    plain = Softmax(ridge=1e-6).fit(one_vs_all(3), clean, index)
    np.testing.assert_allclose(decoder.log_proba(Outputs(repeated, "new")), plain.log_proba(clean), atol=1e-3)
    np.testing.assert_allclose(decoder.beta_[:, 4], 0.0, atol=1e-15)


def test_priors_carry_the_posteriors_to_another_balance():
    index = np.array([0] * 60 + [1] * 30 + [2] * 10)
    book = one_vs_all(3)
    outputs = outputs_of(book, index)
    weights = np.where(index == 2, 3.0, 1.0)
    plain = Softmax(ridge=1.0).fit(book, outputs, index, sample_weight=weights)
    even = Softmax(ridge=1.0).fit(book, outputs, index, priors=np.full(3, 1 / 3), sample_weight=weights)
    expected = np.exp(plain.log_proba(outputs)) / np.array([60, 30, 30])
    np.testing.assert_allclose(
        np.exp(even.log_proba(outputs)), expected / expected.sum(axis=1, keepdims=True), atol=1e-12
    )
    same = reweighted(plain.log_proba(outputs), prior_shift(np.array([0.6, 0.3, 0.1]), index, 3))
    np.testing.assert_allclose(same, plain.log_proba(outputs), atol=1e-12)


def test_maximum_likelihood_of_separated_classes_warns():
    index = np.repeat([0, 1], 10)
    outputs = Outputs(np.where(index, 1.0, -1.0)[:, np.newaxis], "leave_one_out")
    decoder = Softmax(ridge=0.0, smoothing=0.0, max_iter=3)
    with pytest.warns(ConvergenceWarning, match="larger ridge"):
        decoder.fit(Codebook([[-1], [1]]), outputs, index)
    assert np.isfinite(decoder.log_proba(outputs)).all()


@pytest.mark.parametrize(
    "parameters",
    [
        {"hidden": 0},
        {"ridge": -1.0},
        {"smoothing": -0.1},
        {"epochs": 5},
        {"epochs": 0, "hidden": 3},
        {"max_iter": 0},
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        Softmax(**parameters).check(one_vs_all(3))


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_in_an_estimator_labels_and_probabilities_agree(coding):
    X, y = make_blobs(90, centers=3, cluster_std=1.5, random_state=0)
    model = LSSVMClassifier(kernel="rbf", coding=coding, decoding="softmax").fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert model.score(X, y) > 0.7
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), p)
    assert clone(model.decoder_).get_params() == resolve_decoder("softmax").get_params()


def test_scikit_learn_accepts_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(
            LSSVMClassifier(kernel="rbf", coding="one-vs-all", decoding="softmax", C=1.0, gamma=0.1),
            on_skip=None,
        )
