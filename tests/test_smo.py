"""The SMO solver against LIBSVM, against a general QP solver, and against its own certificates."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs, make_moons
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from polymargin.solvers._smo_rows import load_row
from polymargin.solvers.smo import DenseGram, LazyGram, Solution, solve, solve_path
from polymargin.solvers.smo_dichotomies import Dichotomy, _plan, solve_dichotomies, solve_dichotomies_path
from polymargin.solvers.smo_expansion import KernelExpansion
from polymargin.solvers.smo_gram import RowPool, SharedGram
from polymargin.solvers.status import Status
from smo_pairs import one_vs_one, solve_one_vs_one, solve_one_vs_one_path

# ------------------------------------------------------------------------------------------------ data


def bundled(loader, limit=200):
    X, y = loader(return_X_y=True)
    return StandardScaler().fit_transform(X)[:limit], np.where(y[:limit] == y[0], 1.0, -1.0)


def moons(noise=0.25, n=160):
    X, y = make_moons(n, noise=noise, random_state=3)
    return X, 2.0 * y - 1.0


def unbalanced():
    X, y = make_blobs([190, 10], n_features=4, cluster_std=2.5, random_state=1)
    return X, 2.0 * y - 1.0


def duplicated():
    """Every row three times, one of the three with the wrong label for a third of the rows."""
    X, y = moons(n=30)
    flipped = np.where(np.arange(30) % 3 == 0, -y, y)
    return np.vstack([X, X, X]), np.concatenate([y, y, flipped])


DATA = {
    "iris": lambda: bundled(load_iris),
    "wine": lambda: bundled(load_wine),
    "cancer": lambda: bundled(load_breast_cancer, 300),
    "moons": moons,
    "unbalanced": unbalanced,
    "duplicated": duplicated,
}


def weights_for(kind, y):
    if kind == "sample":
        return np.random.default_rng(0).uniform(0.0, 2.0, y.size)
    if kind == "balanced":
        return np.where(y > 0, y.size / (2 * (y > 0).sum()), y.size / (2 * (y < 0).sum()))
    return np.ones(y.size)


#: Enough where nothing is compiled.
SMALL = ("iris", "wine", "duplicated")
PROBLEMS = [
    pytest.param(
        data,
        C,
        gamma,
        weights,
        marks=() if data in SMALL and C < 1e6 else pytest.mark.slow_without_jit,
    )
    for data in DATA
    for C, gamma, weights in [
        (1e-6, 0.1, None),
        (0.1, 1.0, None),
        (1.0, 0.1, "sample"),
        (1.0, 0.5, "balanced"),
        (10.0, 0.1, None),
        (100.0, 1.0, "sample"),
        (1e6, 1.0, None),
    ]
]


def libsvm(X, y, C, gamma, weights, tol):
    return SVC(C=C, gamma=gamma, tol=tol, cache_size=50).fit(X, y, sample_weight=weights)


def libsvm_coefficients(model, n):
    """Signed dual coefficients, shape (n,), such that f = K beta + intercept."""
    beta = np.zeros(n)
    beta[model.support_] = model.dual_coef_[0]
    return beta


def dual(K, beta, y, p=1.0):
    return 0.5 * beta @ K @ beta - (p * y) @ beta


def assert_certified(solution: Solution, K, y, upper, p=1.0, tol=1e-3):
    """Check feasibility, the KKT conditions and the gap from scratch, in float64."""
    upper = np.broadcast_to(upper, y.shape)
    assert (solution.alpha >= 0).all()
    assert (solution.alpha <= upper).all()
    assert abs(solution.alpha @ y) <= 1e-9 * max(1.0, solution.alpha.sum())
    f = K @ solution.coefficients
    violation = p * y - f
    up = np.where(y > 0, solution.alpha < upper, solution.alpha > 0)
    down = np.where(y > 0, solution.alpha > 0, solution.alpha < upper)
    worst = violation[up].max(initial=-np.inf) - violation[down].min(initial=np.inf)
    # A float32 gradient is checked against float32 kernel values: allow their rounding.
    rounding = 1e-6 * (1.0 + solution.alpha.sum())
    assert worst <= tol + rounding
    primal = 0.5 * solution.coefficients @ f + upper @ np.maximum(0.0, p - y * (f + solution.intercept))
    scale = 1.0 + abs(primal) + 1e5 * rounding * upper.sum()
    assert solution.objective == pytest.approx(dual(K, solution.coefficients, y, p), abs=1e-5 * scale)
    assert solution.primal_objective == pytest.approx(primal, abs=1e-5 * scale)
    assert solution.duality_gap >= -1e-9 * scale


# ------------------------------------------------------------------------------------------- LIBSVM


@pytest.mark.parametrize(("data", "C", "gamma", "weights"), PROBLEMS)
def test_dual_objective_and_decisions_equal_libsvm(data, C, gamma, weights):
    X, y = DATA[data]()
    weights = weights_for(weights, y)
    K = rbf_kernel(X, gamma=gamma)
    tight = 1e-6 if C < 1e6 else 1e-4
    for tol, sources in [
        (1e-3, [K, K.astype(np.float32), LazyGram(X, gamma=gamma)]),
        (tight, [K, LazyGram(X, gamma=gamma), LazyGram(X, gamma=gamma, dtype=np.float64)]),
    ]:
        model = libsvm(X, y, C, gamma, weights, tol)
        theirs = libsvm_coefficients(model, y.size)
        for source in sources:
            ours = solve(source, y, C * weights, tol=tol)
            assert ours.status is Status.CONVERGED
            assert ours.is_optimal(tol)
            value, reference = dual(K, ours.coefficients, y), dual(K, theirs, y)
            # LIBSVM rounds kernel values to float32, which at C = 1e6 costs it up to 1e-3 of the objective.
            if C < 1e6:
                assert value == pytest.approx(reference, rel=1e-5)
            elif getattr(source, "dtype", None) != np.float32 or isinstance(source, LazyGram):
                assert value <= reference + 1e-5 * abs(reference)
            if C < 1e6 and tol < 1e-3:
                f = K @ ours.coefficients + ours.intercept
                free = (ours.alpha > 0) & (ours.alpha < C * weights)
                shift = 0.0 if free.any() else model.intercept_[0] - ours.intercept  # b is not unique then
                assert f + shift == pytest.approx(model.decision_function(X), abs=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "poly", "laplacian", "exponential"])
def test_other_kernels(kernel):
    X, y = moons()
    K = {
        "linear": lambda: X @ X.T,
        "poly": lambda: polynomial_kernel(X, gamma=0.5, coef0=1.0, degree=3),
        "laplacian": lambda: laplacian_kernel(X, gamma=0.5),
        "exponential": lambda: np.exp(-0.5 * cdist(X, X)),
    }[kernel]()
    source = LazyGram(X, kernel, gamma=0.5, coef0=1.0, degree=3)
    assert source.dense() == pytest.approx(K, rel=1e-4, abs=1e-5)
    reference = dual(K, libsvm_coefficients(SVC(kernel="precomputed", C=1, tol=1e-6).fit(K, y), y.size), y)
    for gram in (K, source):
        solution = solve(gram, y, 1.0, tol=1e-5)
        assert solution.status is Status.CONVERGED
        assert dual(K, solution.coefficients, y) == pytest.approx(reference, rel=1e-5)
        assert_certified(solution, K, y, 1.0, tol=1e-5)


def test_a_small_row_cache_changes_nothing():
    X, y = moons()
    source = LazyGram(X, gamma=1.0)
    roomy, tight = (solve(source, y, 10.0, budget=budget) for budget in (1 << 20, 8 * y.size * 4))
    assert np.array_equal(roomy.alpha, tight.alpha)
    assert roomy.n_iter == tight.n_iter


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "exponential", "poly"])
def test_a_kernel_value_has_the_same_bits_in_every_problem(kernel):
    """Otherwise a solution would depend on which rows a thread had cached before."""
    X = np.random.default_rng(0).normal(size=(131, 7))
    source = LazyGram(X, kernel, gamma=0.3)

    def row(index):
        rows, cache = RowPool(1 << 20).lend(source, index, np.float32)
        return cache.rows[load_row(2, rows, cache)].copy()

    whole = row(None)
    for stop in (3, 8, 17, 40, 99):
        assert np.array_equal(row(np.arange(stop)), whole[:stop])
    index = np.concatenate([[0, 1, 2], np.arange(3, 131)[::-1]])
    assert np.array_equal(row(index), whole[index])


def test_rows_far_from_the_origin_keep_their_precision():
    X, y = moons()
    near, far = solve(LazyGram(X), y, 1.0, tol=1e-5), solve(LazyGram(X + 1e4), y, 1.0, tol=1e-5)
    assert far.objective == pytest.approx(near.objective, rel=1e-5)


# ----------------------------------------------------------------------------------- a general QP


def oracle(K, s, upper, p):
    """Minimise the dual by SLSQP: slow and obvious."""
    n = s.size
    Q = np.outer(s, s) * K
    result = minimize(
        lambda a: 0.5 * a @ Q @ a - p @ a,
        np.zeros(n),
        jac=lambda a: Q @ a - p,
        bounds=list(zip(np.zeros(n), upper, strict=True)),
        constraints=[{"type": "eq", "fun": lambda a: s @ a, "jac": lambda a: s}],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert result.success, result.message
    return result.fun


@pytest.mark.parametrize("seed", range(6))
def test_linear_term_and_box_per_row(seed):
    rng = np.random.default_rng(seed)
    n = 24
    X = rng.normal(size=(n, 3))
    soft = rng.uniform(-1.0, 1.0, n)  # the soft-label SVM: p = |y|, box C/|y|
    s, p, upper = np.sign(soft), np.abs(soft), 2.0 / np.abs(soft)
    K = rbf_kernel(X, gamma=0.3)
    expected = oracle(K, s, upper, p)
    for source in (K, LazyGram(X, gamma=0.3)):
        solution = solve(source, s, upper, p, tol=1e-6)
        assert_certified(solution, K, s, upper, p, tol=1e-6)
        assert solution.objective == pytest.approx(expected, rel=1e-5)


# ------------------------------------------------------------------------------------- properties


@st.composite
def problems(draw):
    """Small problems with ties, duplicates, zero boxes and all scales of C."""
    n = draw(st.integers(2, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.integers(-3, 4, size=(n, draw(st.integers(1, 3)))).astype(float)
    s = np.where(rng.random(n) < draw(st.floats(0.1, 0.9)), 1.0, -1.0)
    upper = 10.0 ** draw(st.integers(-6, 4)) * rng.choice([0.0, 0.5, 1.0, 2.0], n, p=[0.05, 0.15, 0.7, 0.1])
    p = rng.choice([1.0, 0.5, 0.25], n) if draw(st.booleans()) else np.ones(n)
    return X, s, upper, p, draw(st.sampled_from([0.01, 0.3, 3.0]))


@settings(max_examples=80, deadline=None)
@given(problems(), st.booleans())
def test_every_solution_is_feasible_and_optimal(problem, lazy):
    X, s, upper, p, gamma = problem
    K = rbf_kernel(X, gamma=gamma)
    solution = solve(LazyGram(X, gamma=gamma) if lazy else K, s, upper, p)
    assert solution.status is Status.CONVERGED
    assert_certified(solution, K, s, upper, p)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_dual_only_improves(problem):
    X, s, upper, p, gamma = problem
    K = rbf_kernel(X, gamma=gamma)
    values = [solve(K, s, upper, p, max_iter=k).objective for k in (0, 1, 2, 3, 5, 8, 13, 50, 200)]
    assert values[0] == 0.0
    assert all(b <= a + 1e-10 * (1.0 + abs(a)) for a, b in pairwise(values))


@pytest.mark.slow_without_jit
@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(problem, seed):
    X, s, upper, p, gamma = problem
    order = np.random.default_rng(seed).permutation(s.size)
    K = rbf_kernel(X, gamma=gamma)
    one = solve(K, s, upper, p, tol=1e-8)
    two = solve(K[np.ix_(order, order)], s[order], upper[order], p[order], tol=1e-8)
    assert two.objective == pytest.approx(one.objective, rel=1e-6, abs=1e-9)
    f = K @ one.coefficients
    assert K[order] @ (np.eye(s.size)[order].T @ two.coefficients) == pytest.approx(f[order], abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 1000))
def test_a_warm_start_ends_where_a_cold_start_does(problem, seed):
    X, s, upper, p, gamma = problem
    K = rbf_kernel(X, gamma=gamma)
    alpha0 = np.random.default_rng(seed).uniform(-0.2, 1.2, s.size) * upper  # not even feasible
    cold, warm = solve(K, s, upper, p, tol=1e-6), solve(K, s, upper, p, tol=1e-6, alpha0=alpha0)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-5, abs=1e-9)
    again = solve(K, s, upper, p, tol=1e-6, alpha0=cold.alpha)
    assert again.n_iter <= 2
    assert again.objective == pytest.approx(cold.objective, rel=1e-6, abs=1e-12)


def test_rows_of_one_class_only():
    solution = solve(np.eye(3), np.ones(3), 1.0)
    assert solution.status is Status.CONVERGED
    assert solution.support.size == 0
    assert solution.intercept == 1.0


def test_problems_without_rows_or_without_a_class():
    X, y = np.arange(10.0).reshape(5, 2), np.array([0, 0, 2, 2, 2])
    machines = solve_one_vs_one(X, y, 5, 1.0, gamma=0.1)
    assert all(solution.status is Status.CONVERGED for solution in machines.solutions)
    assert machines.decision_values(X).shape == (5, 10)
    nothing = solve_one_vs_one(X, np.zeros(5), 2, 1.0)
    assert nothing.decision_values(X).tolist() == [[1.0]] * 5


def test_limits_are_reported():
    X, y = moons()
    solution = solve(LazyGram(X), y, 100.0, max_iter=5)
    assert solution.status is Status.ITERATION_LIMIT
    assert solution.n_iter == 5
    assert not solution.is_optimal(1e-3)
    assert "max_iter" in solution.status.value


@pytest.mark.slow_without_jit
def test_float32_rounding_is_overcome():
    """A tolerance that float32 steps cannot reach is reached in float64."""
    X, y = duplicated()
    solution = solve(LazyGram(X, gamma=1.0), y, 1e4, tol=1e-7)
    assert solution.status is Status.CONVERGED
    assert solution.is_optimal(1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(3), [1, -1], 1.0), "signs"),
        ((np.eye(2), [1, 0], 1.0), "signs"),
        ((np.eye(2), [1, -1], -1.0), "upper"),
        ((np.eye(2), [1, -1], np.inf), "upper"),
        ((np.ones((2, 3)), [1, -1], 1.0), "square"),
        ((np.eye(2), [1, -1], 1.0, [1.0]), "linear"),
        ((np.eye(2), [1, -1], 1.0, [1.0, np.nan]), "linear"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        solve(*arguments)


def test_bad_scales_are_refused():
    with pytest.raises(ValueError, match="scales"):
        solve_path(np.eye(2), [1, -1], 1.0, [0.0, 1.0])


def test_bad_kernels_are_refused():
    with pytest.raises(ValueError, match="sigmoid"):
        LazyGram(np.eye(2), "sigmoid")
    with pytest.raises(ValueError, match="degree"):
        LazyGram(np.eye(2), "poly", degree=2.5)


# ------------------------------------------------------------------------------------------- path


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("scales", [np.logspace(-3, 4, 8), np.logspace(3, -2, 6)])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_path_equals_its_points(scales, lazy):
    X, y = moons()
    K = rbf_kernel(X, gamma=1.0)
    source = LazyGram(X, gamma=1.0) if lazy else K
    weights = weights_for("sample", y)
    path = solve_path(source, y, weights, scales, tol=1e-6)
    for scale, solution in zip(scales, path, strict=True):
        alone = solve(source, y, scale * weights, tol=1e-6)
        assert_certified(solution, K, y, scale * weights, tol=1e-6)
        assert solution.objective == pytest.approx(alone.objective, rel=1e-5)


# ------------------------------------------------------------------------------------ dichotomies


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(y.size)
    return StandardScaler().fit_transform(X)[order], y[order]


@pytest.mark.parametrize("dense", [False, True])
def test_one_vs_one_equals_svc(wine, dense):
    X, y = wine
    train, test = slice(0, 120), slice(120, None)
    model = SVC(C=10, gamma=0.05, tol=1e-6, decision_function_shape="ovo").fit(X[train], y[train])
    expected = model.decision_function(X[test])
    if dense:
        K = rbf_kernel(X[train], gamma=0.05)
        ours = solve_one_vs_one(K, y[train], 3, 10.0, kernel="precomputed", tol=1e-6)
        values = ours.evaluate(rbf_kernel(X[test], X[train], gamma=0.05))
    else:
        ours = solve_one_vs_one(X[train], y[train], 3, 10.0, gamma=0.05, tol=1e-6)
        values = ours.decision_values(X[test])
    assert values == pytest.approx(expected, abs=1e-3)
    assert set(ours.expansion.support) == set(model.support_)


@pytest.mark.parametrize("lazy", [False, True])
def test_threads_change_nothing(wine, lazy):
    X, y = wine
    source = LazyGram(X, gamma=0.05) if lazy else DenseGram(rbf_kernel(X, gamma=0.05).astype(np.float32))
    problems = one_vs_one(y, 3) + [Dichotomy(np.where(y == k, 1.0, -1.0), 1.0) for k in range(3)]
    runs = [solve_dichotomies_path(source, problems, [0.1, 10.0], n_threads=k) for k in (1, 2, 4)]
    for run in runs[1:]:
        for ours, first in zip(chain(*run), chain(*runs[0]), strict=True):
            assert np.array_equal(ours.alpha, first.alpha)
            assert ours.intercept == first.intercept


def test_a_codebook_with_any_rows(wine):
    """One-vs-all, a pair and a three-row problem side by side, each as if it were alone."""
    X, y = wine
    K = rbf_kernel(X, gamma=0.05)
    few = np.array([int(np.flatnonzero(y == k)[0]) for k in (0, 1, 2)])
    problems = [
        Dichotomy(np.where(y == 0, 1.0, -1.0), 1.0),
        *one_vs_one(y, 3, C=5.0)[:1],
        Dichotomy([1, -1, -1], [1.0, 2.0, 3.0], few, [1.0, 0.5, 0.5]),
    ]
    solutions = solve_dichotomies(K, problems, tol=1e-6)
    expansion = KernelExpansion.join(y.size, problems, solutions)
    values = expansion.evaluate(K)
    for column, (problem, solution) in enumerate(zip(problems, solutions, strict=True)):
        rows = np.arange(y.size) if problem.rows is None else problem.rows
        alone = solve(K[np.ix_(rows, rows)], problem.signs, problem.upper, problem.linear, tol=1e-6)
        assert solution.objective == pytest.approx(alone.objective, rel=1e-9)
        assert values[:, column] == pytest.approx(K[:, rows] @ solution.coefficients + solution.intercept)


def test_a_shared_gram_gives_the_same_path(wine):
    """A path of many problems on many features is solved from the whole Gram matrix."""
    X, y = wine
    X = np.repeat(X, 12, axis=1)  # wide enough for BLAS to pay
    scales = [0.1, 1.0, 1e5]
    problems = one_vs_one(y, 3)
    lazy = LazyGram(X, gamma=0.005)
    assert isinstance(_plan(lazy, problems, len(scales), 1, 1 << 30), SharedGram)
    assert _plan(lazy, problems, len(scales), 1, 1000) is lazy  # it does not fit
    assert _plan(lazy, problems, 1, 1, 1 << 30) is lazy  # one fit touches few rows
    path = solve_one_vs_one_path(X, y, 3, 1.0, scales, gamma=0.005, tol=1e-5, n_threads=2)
    for scale, machines in zip(scales, path, strict=True):
        for problem, solution in zip(problems, machines.solutions, strict=True):
            alone = solve_dichotomies(lazy, [Dichotomy(problem.signs, scale, problem.rows)], tol=1e-5)[0]
            assert solution.is_optimal(1e-5)
            assert solution.objective == pytest.approx(alone.objective, rel=1e-5)


def test_decision_values_do_not_depend_on_threads(wine):
    X, y = wine
    source = LazyGram(X, gamma=0.05)
    problems = one_vs_one(y, 3)
    expansion = KernelExpansion.join(y.size, problems, solve_dichotomies(source, problems))
    new = np.repeat(X, 4, axis=0)
    one, two = (expansion.decision_values(source, new, n_threads=k) for k in (1, 2))
    assert np.array_equal(one, two)
    assert one == pytest.approx(expansion.evaluate(np.repeat(rbf_kernel(X, gamma=0.05), 4, axis=0)), abs=1e-4)
