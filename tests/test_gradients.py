"""Mean squared gradients of kernel expansions against the formulas, entry by entry, and against finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import naive
from polymargin import LSSVMClassifier, _memory
from polymargin._threads import threads
from polymargin.kernels import (
    RBF,
    Blend,
    Exponential,
    FunctionKernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
)
from polymargin.solvers import _sign_sums_compiled
from polymargin.solvers.gradients import KINK, mean_squared_gradients

KERNELS = {
    "linear": (Linear(), {"kind": "linear"}),
    "poly": (Polynomial(3, 0.7), {"kind": "poly", "degree": 3, "coef0": 0.7}),
    "poly-1": (Polynomial(1, 0.7), {"kind": "poly", "degree": 1, "coef0": 0.7}),
    "rbf": (RBF(), {"kind": "rbf"}),
    "laplacian": (Laplacian(), {"kind": "laplacian"}),
    "exponential": (Exponential(), {"kind": "exponential"}),
    "blend": (Blend(0.4, ratio=1.7), {"kind": "blend", "share": 0.4, "ratio": 1.7}),
}
DISTANCES = ("rbf", "laplacian", "exponential", "blend")
every_kernel = pytest.mark.parametrize("name", KERNELS)


def problem(n=13, m=7, d=4, L=3, seed=0):
    """Return rows, other rows, coefficients with zeros, gammas and weights of every machine."""
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(n, d)) + 0.5, rng.normal(size=(m, d))
    a = rng.normal(size=(n, L))
    a[: n // 2, 0] = 0.0
    a[::3, 2] = 0.0
    return X, Z, a, np.array([0.3, 0.5, 0.3])[:L], rng.uniform(0.1, 2.0, (m, L))


def flats(X, kink):
    """The widths of kinks, as the oracle takes them."""
    spread = X.std(axis=0)
    return {"flat": kink * np.sqrt(2 * np.sum(spread**2)), "flats": kink * spread}


@every_kernel
def test_the_oracle_is_a_derivative(name):
    X, Z, a, gammas, weights = problem()
    _, parameters = KERNELS[name]
    h, d = 1e-5, X.shape[1]
    expected = np.zeros((3, d))
    for k, gamma in enumerate(gammas):
        for j in range(d):
            up, down = (
                naive.kernel_matrix(X=Z + sign * h * np.eye(d)[j], Z=X, gamma=gamma, **parameters) @ a[:, k]
                for sign in (1, -1)
            )
            expected[k, j] = np.average(((up - down) / (2 * h)) ** 2, weights=weights[:, k])
    assert_allclose(
        naive.mean_squared_gradients(X=X, Z=Z, a=a, gamma=gammas, weights=weights, **parameters),
        expected,
        rtol=1e-6,
    )


@every_kernel
@pytest.mark.parametrize("kink", [0.0, KINK, 0.5])
def test_equals_the_oracle(name, kink):
    X, Z, a, gammas, weights = problem()
    # Some rows are equal, some nearly, some in a few columns.
    Z = np.vstack([Z, X[:3], X[3:5] + 1e-4, X[5:7] + np.array([0.0, 1e-5, 0.3, 0.0])])
    weights = np.vstack([weights, weights])
    kernel, parameters = KERNELS[name]
    expected = naive.mean_squared_gradients(
        X=X, Z=Z, a=a, gamma=gammas, weights=weights, **flats(X, kink), **parameters
    )
    assert expected.max(axis=1).min() > 1e-3
    assert_allclose(
        mean_squared_gradients(kernel, X, a, gammas, Z=Z, weights=weights, kink=kink), expected, rtol=1e-9
    )


@pytest.mark.parametrize("kink", [0.0, KINK, 0.5])
@pytest.mark.parametrize("name", ["laplacian", "blend"])
def test_the_compiled_loop_equals_numpy(monkeypatch, name, kink):
    X, Z, a, gammas, weights = problem(n=700, m=300)
    X, Z = (
        1e9 * X,
        1e9 * np.vstack([Z, X[:20]]),
    )  # with equal values, and distances that overflow without a kink
    weights = np.vstack([weights, weights[:20]])
    kernel, _ = KERNELS[name]
    arguments = (kernel, X, a, 1e-9 * gammas)
    small = mean_squared_gradients(*arguments, Z=Z, weights=weights, kink=kink)
    monkeypatch.setattr("polymargin.solvers.gradients._MANY_SIGNS", 0)
    compiled = "polymargin.solvers._sign_sums_compiled.subtract_sign_sums"
    with monkeypatch.context() as counted:
        calls = []
        subtract = _sign_sums_compiled.subtract_sign_sums
        counted.setattr(compiled, lambda *given: (calls.append(1), subtract(*given)))
        large = mean_squared_gradients(*arguments, Z=Z, weights=weights, kink=kink)
    assert calls
    assert small.min() > 0.0
    assert_allclose(large, small, rtol=1e-9)


@every_kernel
def test_at_the_rows_themselves(name):
    X, _, a, _, _ = problem()
    kernel, parameters = KERNELS[name]
    expected = naive.mean_squared_gradients(
        X=X, Z=X, a=a, gamma=np.full(3, 0.4), weights=np.ones((13, 3)), **flats(X, KINK), **parameters
    )
    assert_allclose(mean_squared_gradients(kernel, X, a, 0.4), expected, rtol=1e-9)


@every_kernel
def test_weights(name):
    X, Z, a, gammas, _ = problem()
    kernel, _ = KERNELS[name]
    weights = np.array([2.0, 1.0, 0.0, 3.0, 1.0, 1.0, 0.0])
    weighted = mean_squared_gradients(kernel, X, a, gammas, Z=Z, weights=weights)
    copies = mean_squared_gradients(kernel, X, a, gammas, Z=np.repeat(Z, weights.astype(int), axis=0))
    assert_allclose(weighted, copies, rtol=1e-12)
    assert_allclose(
        mean_squared_gradients(kernel, X, a, gammas, Z=Z, weights=5.0 * weights), weighted, rtol=1e-12
    )


@every_kernel
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_equals_dense(name, form):
    X, Z, a, gammas, weights = problem()
    X, Z = np.maximum(X, 0.0), np.maximum(Z, 0.0)
    kernel, _ = KERNELS[name]
    dense = mean_squared_gradients(kernel, X, a, gammas, Z=Z, weights=weights)
    for left, right in ((form(X), form(Z)), (form(X), Z), (X, form(Z))):
        found = mean_squared_gradients(kernel, left, a, gammas, Z=right, weights=weights)
        assert_allclose(found, dense, rtol=1e-9)


@pytest.mark.parametrize(
    "kernel",
    [
        *(KERNELS[name][0] for name in DISTANCES),
        Polynomial(2, centred=True),
        Polynomial(2.5, 40.0, centred=True),
    ],
)
def test_a_shift_changes_nothing(kernel):
    X, Z, a, gammas, weights = problem()
    shift = np.array([3.0, -20.0, 0.1, 100.0])
    here, there = (
        mean_squared_gradients(
            kernel.fitted(X + move, np.ones(13)), X + move, a, gammas, Z=Z + move, weights=weights
        )
        for move in (0.0, shift)
    )
    assert_allclose(there, here, rtol=1e-9)


@every_kernel
def test_chain_rule(name):
    """A machine of scaled columns, as a function of the columns themselves, is steeper by their factors."""
    X, Z, a, gammas, weights = problem()
    kernel, parameters = KERNELS[name]
    scale, h, d = np.array([1.0, 7.0, 0.2, 1.0]), 1e-5, 4
    found = mean_squared_gradients(kernel, scale * X, a, gammas, Z=scale * Z, weights=weights)
    for k, gamma in enumerate(gammas):
        for j in range(d):
            up, down = (
                naive.kernel_matrix(
                    X=scale * (Z + sign * h * np.eye(d)[j]), Z=scale * X, gamma=gamma, **parameters
                )
                @ a[:, k]
                for sign in (1, -1)
            )
            own = np.average(((up - down) / (2 * h)) ** 2, weights=weights[:, k])
            assert_allclose(found[k, j], own / scale[j] ** 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "power"), [("rbf", 2), ("laplacian", 1), ("exponential", 1), ("poly", 2), ("linear", 0)]
)
@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_unit_of_the_rows(name, power, unit):
    X, _, a, gammas, _ = problem()
    kernel, _ = KERNELS[name]
    scaled = mean_squared_gradients(kernel, unit * X, a, gammas / unit**power)
    expected = mean_squared_gradients(kernel, X, a, gammas) / unit**2 * (unit**4 if name == "linear" else 1.0)
    assert_allclose(scaled, expected, rtol=1e-9)


@every_kernel
def test_blocks_change_nothing_and_threads_not_one_bit(name, monkeypatch):
    X, Z, a, gammas, weights = problem(n=60, m=41)
    a[::2, 1] = 0.0
    kernel, _ = KERNELS[name]
    arguments = {"Z": Z, "weights": weights}
    whole = mean_squared_gradients(kernel, X, a, gammas, **arguments)
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 20_000)
    parts = mean_squared_gradients(kernel, X, a, gammas, **arguments)
    assert_allclose(parts, whole, rtol=1e-12)
    with threads(3):
        assert_array_equal(mean_squared_gradients(kernel, X, a, gammas, **arguments), parts)
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 1)
    assert_allclose(mean_squared_gradients(kernel, X, a, gammas, **arguments), whole, rtol=1e-12)


@every_kernel
def test_the_last_bits_change_nothing(name):
    """Of equal rows and of equal values in columns, which the last bits tell apart."""
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, size=(80, 3)).astype(float)
    a = rng.normal(size=(80, 2))
    kernel, _ = KERNELS[name]
    before, after = (
        mean_squared_gradients(kernel, rows, a, 0.3)
        for rows in (X, X * (1.0 + 1e-9 * rng.normal(size=X.shape)))
    )
    assert_allclose(after, before, rtol=1e-5)


def test_a_machine_of_nothing_is_flat():
    X, _, a, _, _ = problem()
    a[:, 1] = 0.0
    found = mean_squared_gradients(RBF(), X, a, 0.3)
    assert_array_equal(found[1], 0.0)
    assert found[[0, 2]].min() > 0.0


def test_a_constant_column_is_flat():
    X, _, a, _, _ = problem()
    X = np.column_stack([X, np.full(13, 3.3)])
    for name in DISTANCES:
        assert_allclose(mean_squared_gradients(KERNELS[name][0], X, a, 0.3)[:, 4], 0.0, atol=1e-20)


def test_of_a_fitted_machine():
    """The columns that the classes depend on stand out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 6))
    y = (X[:, 1] ** 2 + np.abs(X[:, 4]) > 1.5).astype(int)
    for name in ("rbf", "laplacian", "exponential", "blend"):
        model = LSSVMClassifier(kernel=name).fit(X, y)
        found = mean_squared_gradients(
            model.kernel_, X[model.support_], model.dual_coef_.T, model.gamma_, weights=np.ones(150)
        )
        assert found.shape == (1, 6)
        assert set(np.argsort(found[0])[-2:]) == {1, 4}


@pytest.mark.parametrize("kernel", [Precomputed(), FunctionKernel(lambda A, B: A @ B.T)])
def test_kernels_without_a_gradient(kernel):
    X = np.eye(3)
    with pytest.raises(NotImplementedError, match="does not say its gradient"):
        mean_squared_gradients(kernel, X, np.ones((3, 1)), 1.0)
