"""The softmax of a decoder on a device against that of the CPU, for every array library that is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from polymargin.device import Device, OutOfDeviceMemory, fit_softmax
from polymargin.device import softmax as on_device
from polymargin.solvers._softmax_problem import Problem, SoftmaxData
from polymargin.solvers.softmax import newton


@pytest.fixture(params=["exact steps", "conjugate gradients"])
def steps(request, monkeypatch):
    if request.param == "conjugate gradients":
        monkeypatch.setattr(on_device, "_LARGEST", 0)
    return request.param


X = np.random.default_rng(0).normal(size=(60, 5)) * [1.0, 30.0, 1.0, 0.01, 1.0]
WEIGHTS = np.random.default_rng(1).uniform(0.2, 2.0, 60)


def problem(kind=np.float64, **changes):
    """Return the problem of 60 rows of 4 classes, with everything a problem may have, but for some changes."""
    random = np.random.default_rng(2)
    T = random.dirichlet(np.ones(4), 60)
    given = {
        "features": X,
        "targets": T,
        "weights": WEIGHTS,
        "ridge": np.array([[0.5], [0.1], [2.0], [0.5], [1.0]]),
        "intercept_ridge": 0.7,
        "anchor": np.log(random.dirichlet(np.ones(4), 60)) + T,
        "scale_ridge": 0.1,
        "offset": np.log([0.1, 0.2, 0.3, 0.4]),
    }
    given |= changes
    arrays = ("features", "targets", "weights", "anchor", "offset")
    cast = {name: None if given[name] is None else given[name].astype(kind) for name in arrays}
    return SoftmaxData(**(given | cast))


PROBLEMS = {
    "everything": {},
    "no anchor": {"anchor": None, "scale_ridge": 0.0},
    "no offset": {"offset": None},
    "one ridge": {"ridge": 0.3},
    "a ridge of every coefficient": {"ridge": np.random.default_rng(1).uniform(0.1, 2.0, (5, 4))},
    "no ridge on some": {"ridge": np.array([[0.5], [0.0], [2.0], [0.0], [1.0]]), "intercept_ridge": 0.0},
    "no features": {"features": np.empty((60, 0)), "ridge": 1.0},
    "no weights on some": {"weights": WEIGHTS * (np.arange(60) % 3 > 0)},
    "zero, constant and repeated": {"features": X[:, [0, 0, 2, 2, 2]] * [0, 0, 1, 1, 1] + [0, 3, 0, 0, 0]},
    "a constant anchor": {"anchor": np.ones((60, 4))},
}


def gradient_norm(data, fit):
    """Return the norm of the gradient at a fit, computed from the formula of the objective."""
    features, w, total = data.features, data.weights, data.weights.sum()
    logits = fit.logits(features, data.anchor) + (0.0 if data.offset is None else data.offset)
    targets = w[:, np.newaxis] * data.targets
    residuals = np.exp(log_softmax(logits, axis=1)) * targets.sum(axis=1, keepdims=True) - targets
    of_coef = features.T @ residuals + data.ridge * fit.coef
    of_intercept = residuals.sum(axis=0) + data.intercept_ridge * fit.intercept
    sizes = np.sqrt(w @ np.square(features) / total)
    norms = [np.abs(of_intercept).max(), *(np.abs(of_coef).max(axis=1) / np.where(sizes > 0.0, sizes, 1.0))]
    if data.anchor is not None:
        spread = (data.anchor - data.anchor.mean(axis=1, keepdims=True)).std()
        of_scale = np.vdot(data.anchor, residuals) + data.scale_ridge * (fit.scale - 1.0)
        norms.append(abs(of_scale) / (spread or 1.0))
    return max(norms) / total


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_fit_is_that_of_the_cpu(device, steps, name):
    data = problem(**PROBLEMS[name])
    expected, found = newton(Problem(data), None, 1e-9, 100), fit_softmax(data, tol=1e-9, device=device)
    assert found.converged
    assert gradient_norm(data, found) < 2e-9
    assert found.gradient_norm == pytest.approx(gradient_norm(data, found), abs=1e-11)
    assert found.objective == pytest.approx(expected.objective, rel=1e-10)
    assert type(found.coef) is np.ndarray
    assert found.coef.dtype == np.float64
    assert (found.scale is None) == (data.anchor is None)
    # Without a ridge a constant of all logits is free.
    for one, other in ((found.coef, expected.coef), (found.intercept, expected.intercept)):
        centred = (each - each.mean(axis=-1, keepdims=True) for each in (one, other))
        np.testing.assert_allclose(*centred, rtol=1e-7, atol=1e-7)
    logits = (each.log_proba(data.features, data.anchor) for each in (found, expected))
    np.testing.assert_allclose(*logits, atol=1e-7)


def test_a_start_at_the_solution_needs_no_step(device, steps):
    data = problem()
    fit = fit_softmax(data, tol=1e-9, device=device)
    again = fit_softmax(data, fit, tol=1e-9, device=device)
    assert again.n_iter == 0
    np.testing.assert_array_equal(again.coef, fit.coef)
    assert fit_softmax(data, fit, tol=1e-9, max_iter=0, device=device).converged


def test_features_in_single_precision(device):
    expected = newton(Problem(problem()), None, 1e-9, 100)
    found = fit_softmax(problem(np.float32), tol=1e-5, device=device)
    assert found.converged
    assert found.coef.dtype == np.float64
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-3, atol=1e-3)


def test_weak_ridges_need_double_precision(device, monkeypatch):
    monkeypatch.setattr(on_device, "_LARGEST", 0)
    data = problem(ridge=1e-6, intercept_ridge=1e-6, weights=np.full(60, 100.0))
    found = fit_softmax(data, tol=1e-9, device=device)
    assert found.converged
    assert gradient_norm(data, found) < 2e-9


def test_the_hessian_is_summed_over_blocks_of_rows(device, monkeypatch):
    data = problem()
    whole = fit_softmax(data, tol=1e-9, device=device)
    monkeypatch.setattr(Device, "block_bytes", lambda self: 8.0 * 24 * 7)
    assert len(on_device.DeviceProblem(data, device)._parts) == 9
    parts = fit_softmax(data, tol=1e-9, device=device)
    np.testing.assert_allclose(parts.coef, whole.coef, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("failing", ["raises", "nan"])
def test_without_a_factor_the_diagonal_will_do(device, failing, monkeypatch):
    data = problem()
    expected = fit_softmax(data, tol=1e-9, device=device)

    def no_factor(xp, matrix):
        return None if failing == "raises" else matrix * float("nan")

    monkeypatch.setattr(on_device, "_cholesky", no_factor)
    found = fit_softmax(data, tol=1e-9, device=device)
    assert found.converged
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-6, atol=1e-7)


def test_matrices_without_a_factor_are_noticed(device):
    matrix = device.to_device(-np.eye(3))
    factor = on_device._cholesky(device.xp, matrix)
    assert factor is None or np.isnan(device.to_numpy(factor)).any()


@pytest.mark.parametrize("slow", [0, 30, 10_000])
def test_the_shared_inverse_is_renewed_where_it_is_slow(device, slow, monkeypatch):
    monkeypatch.setattr(on_device, "_LARGEST", 0)
    monkeypatch.setattr(on_device, "SLOW", slow)
    data = problem(ridge=0.01, features=10.0 * X)
    found = fit_softmax(data, tol=1e-9, device=device)
    assert found.converged
    assert gradient_norm(data, found) < 2e-9


def test_separated_classes_without_any_ridge_end_and_say_so(device, steps):
    line = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    data = SoftmaxData(line, np.eye(2)[[0, 0, 1, 1]], np.ones(4), 0.0, 0.0, None, 0.0)
    fit = fit_softmax(data, tol=1e-30, max_iter=30, device=device)
    assert not fit.converged
    assert np.isfinite(fit.log_proba(line)).all()


def test_memory_that_runs_out_is_named(device, monkeypatch):
    def full(*args):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(on_device.DeviceProblem, "value", full)
    with pytest.raises(OutOfDeviceMemory, match="has run out"):
        fit_softmax(problem(), device=device)
