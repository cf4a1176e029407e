"""The single-machine solver against a general QP solver, against LIBSVM, and against its own certificates."""

from __future__ import annotations

import os
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import SVC

from conftest import blobs
from polymargin import PosteriorSVMClassifier
from polymargin.solvers import _single_machine_kernels, single_machine
from polymargin.solvers._single_machine_graph import circulation, max_mean_cycle, potentials
from polymargin.solvers._single_machine_interior import InteriorPoint
from polymargin.solvers._smo_kernels import HUGE
from polymargin.solvers.single_machine import (
    Margins,
    SingleMachineSolution,
    required_margins,
    solve,
    solve_path,
)
from polymargin.solvers.status import Status

# ------------------------------------------------------------------------------------------------ data

KERNELS = {
    "rbf": lambda X: rbf_kernel(X, gamma=0.25),
    "cubic": lambda X: polynomial_kernel(X, degree=3, gamma=1.0, coef0=1.0),
    "linear": linear_kernel,
}


def problem(n=60, K=3, kernel="rbf", soft=False, seed=0):
    """Return the Gram matrix and the margins of a small problem; soft labels are those of 7 neighbours."""
    X, y = blobs(n, K, d=4, seed=seed, spread=1.5)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    P = np.eye(K)[y]
    if soft:
        squares = ((X[:, None] - X) ** 2).sum(axis=2)
        P = P[np.argsort(squares, axis=1)[:, :7]].mean(axis=1)
    return KERNELS[kernel](X), required_margins(P, y)


def flat(margins):
    """Return the rows and the other classes of all variables α_im, and the K equalities as a matrix."""
    d, z = margins
    rows, others = np.nonzero(np.arange(d.shape[1]) != z[:, None])
    A = np.zeros((d.shape[1], rows.size))
    A[z[rows], np.arange(rows.size)] += 1.0
    A[others, np.arange(rows.size)] -= 1.0
    return rows, others, A


def qp_objective(gram, margins, upper):
    """Return the dual optimum as a general QP solver finds it."""
    qpsolvers = pytest.importorskip("qpsolvers")
    pytest.importorskip("piqp")
    rows, others, A = flat(margins)
    d = margins.required[rows, others]
    H = gram[np.ix_(rows, rows)] * (A.T @ A)
    box = {"lb": np.zeros(d.size), "ub": np.broadcast_to(upper, margins.classes.shape)[rows]}
    alpha = qpsolvers.solve_qp(H, -d, A=A[:-1], b=np.zeros(A.shape[0] - 1), solver="piqp", **box)
    return d @ alpha - 0.5 * alpha @ H @ alpha


def check_certificate(solution: SingleMachineSolution, gram, margins, upper):
    """Check feasibility, and the reported figures against their definitions."""
    d, z = margins
    n, K = d.shape
    upper = np.broadcast_to(upper, n)
    own = (np.arange(n), z)
    alpha, beta = solution.alpha, solution.beta
    assert (alpha >= 0.0).all()
    assert (alpha <= upper[:, None]).all()
    assert (alpha[own] == 0.0).all()
    expected = -alpha
    expected[own] = alpha.sum(axis=1)
    np.testing.assert_allclose(beta, expected, rtol=1e-14)
    assert np.abs(beta.sum(axis=0)).max() <= 1e-10 * max(upper.max(), alpha.sum())
    quadratic = np.sum(beta * (gram @ beta))
    dual = np.sum(alpha * np.where(np.arange(K) == z[:, None], 0.0, d)) - 0.5 * quadratic
    assert solution.objective == pytest.approx(dual, rel=1e-9, abs=1e-12)
    F = gram @ beta + solution.biases
    slack = np.maximum(0.0, d - (F[own][:, None] - F))
    slack[own] = 0.0
    primal = 0.5 * quadratic + np.sum(upper[:, None] * slack)
    assert solution.primal_objective <= primal * (1.0 + 1e-9) + 1e-12
    assert solution.duality_gap >= -1e-9 * abs(primal)
    assert solution.biases.sum() == pytest.approx(0.0, abs=1e-9 * (1.0 + np.abs(solution.biases).max()))


# --------------------------------------------------------------------------------- against other solvers

PROBLEMS = [
    (K, kernel, soft, C)
    for K in (2, 3, 5, 8)
    for kernel in ("rbf", "cubic")
    for soft in (False, True)
    for C in (1e-3, 1.0, 1e3)
] + [(3, "linear", soft, C) for soft in (False, True) for C in (0.01, 10.0)]


@pytest.mark.parametrize(("K", "kernel", "soft", "C"), PROBLEMS)
def test_the_optimum_is_that_of_a_general_qp_solver(K, kernel, soft, C):
    gram, margins = problem(60, K, kernel, soft, seed=K)
    solution = solve(gram, margins, C, tol=1e-6)
    assert solution.status is Status.CONVERGED
    assert solution.is_optimal(1e-6)
    assert solution.objective == pytest.approx(qp_objective(gram, margins, C), rel=1e-5)
    check_certificate(solution, gram, margins, C)


def test_sample_weights_change_the_box():
    gram, margins = problem(60, 4, soft=True)
    weight = np.random.default_rng(0).uniform(0.0, 3.0, 60)
    weight[:5] = 0.0
    solution = solve(gram, margins, 2.0, tol=1e-7, sample_weight=weight)
    assert solution.objective == pytest.approx(qp_objective(gram, margins, 2.0 * weight), rel=1e-5)
    check_certificate(solution, gram, margins, 2.0 * weight)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("kernel", ["rbf", "cubic"])
def test_two_classes_with_hard_labels_are_the_c_svm(kernel, C):
    gram, margins = problem(80, 2, kernel)
    z = margins.classes
    solution = solve(gram, margins, C, tol=1e-10)
    svc = SVC(kernel="precomputed", C=C, tol=1e-9).fit(gram, z)
    alpha = np.zeros(z.size)
    alpha[svc.support_] = np.abs(svc.dual_coef_[0])
    np.testing.assert_allclose(solution.alpha.sum(axis=1), alpha, atol=1e-5 * C)
    F = gram @ solution.beta + solution.biases
    np.testing.assert_allclose(F[:, 1] - F[:, 0], 2.0 * svc.decision_function(gram), rtol=1e-5, atol=1e-4)


def test_the_dual_is_the_papers():
    """Eq. (13), written out as printed with its triple sum, at a feasible point."""
    gram, margins = problem(12, 3, soft=True)
    z = margins.classes
    solution = solve(gram, margins, 1.0)
    alpha, A = solution.alpha, solution.alpha.sum(axis=1)
    printed = np.sum(alpha * margins.required)
    for i in range(12):
        for j in range(12):
            printed -= 0.5 * (z[i] == z[j]) * A[i] * A[j] * gram[i, j]
            for m in range(3):
                printed += (alpha[i, m] * alpha[j, z[i]] - 0.5 * alpha[i, m] * alpha[j, m]) * gram[i, j]
    assert solution.objective == pytest.approx(printed, rel=1e-10)


# ------------------------------------------------------------------------------------------- properties

cases = st.fixed_dictionaries(
    {
        "n": st.integers(9, 40),
        "K": st.integers(2, 6),
        "kernel": st.sampled_from(sorted(KERNELS)),
        "soft": st.booleans(),
        "seed": st.integers(0, 10_000),
    }
)
costs = st.floats(-3.0, 3.0).map(lambda exponent: 10.0**exponent)


@settings(max_examples=40, deadline=None)
@given(case=cases, C=costs, steps=st.integers(0, 60))
def test_every_iterate_is_feasible_and_the_dual_never_falls(case, C, steps):
    gram, margins = problem(**case)
    early, later = (solve(gram, margins, C, tol=1e-9, max_iter=k) for k in (steps, steps + 1))
    check_certificate(early, gram, margins, C)
    assert later.objective >= early.objective - 1e-9 * abs(early.objective)
    final = solve(gram, margins, C, tol=1e-6)
    check_certificate(final, gram, margins, C)
    assert final.objective >= later.objective - 1e-6 * abs(final.objective)


@settings(max_examples=30, deadline=None)
@given(case=cases, C=costs, seed=st.integers(0, 100))
def test_the_order_of_rows_and_classes_does_not_matter(case, C, seed):
    gram, margins = problem(**case)
    rng = np.random.default_rng(seed)
    rows, names = rng.permutation(case["n"]), rng.permutation(case["K"])
    d, z = margins
    shuffled = Margins(d[rows][:, np.argsort(names)], names[z[rows]])
    one = solve(gram, margins, C, tol=1e-7)
    two = solve(gram[np.ix_(rows, rows)], shuffled, C, tol=1e-7)
    assert one.objective == pytest.approx(two.objective, rel=3e-7)
    # Strong convexity in w: |F − F'|² ≤ 2 K_ii · (gap + gap').
    bound = np.sqrt(8.0 * gram.diagonal().max() * 2e-7 * max(one.primal_objective, 1e-12))
    F, shuffled_F = (gram @ one.beta)[rows], (gram[np.ix_(rows, rows)] @ two.beta)[:, names]
    assert np.abs(F - shuffled_F).max() <= bound


@settings(max_examples=30, deadline=None)
@given(case=cases, C=costs, other=costs, seed=st.integers(0, 100))
def test_a_warm_start_ends_where_a_cold_one_does(case, C, other, seed):
    """From another C, other labels and classes, and from noise."""
    gram, margins = problem(**case)
    _, relabelled = problem(**{**case, "soft": not case["soft"], "seed": case["seed"] + 1})
    noise = C * np.random.default_rng(seed).normal(size=margins.required.shape)
    cold = solve(gram, margins, C, tol=1e-6)
    for start in (solve(gram, margins, other).alpha, solve(gram, relabelled, C).alpha, noise):
        warm = solve(gram, margins, C, tol=1e-6, alpha0=start)
        check_certificate(warm, gram, margins, C)
        assert warm.objective == pytest.approx(cold.objective, rel=3e-6)


@pytest.mark.slow_without_jit
def test_a_path_is_its_single_solutions_with_fewer_steps():
    gram, margins = problem(150, 3)
    C = np.logspace(-2, 3, 11)
    path = solve_path(gram, margins, C, tol=1e-5)
    single = [solve(gram, margins, value, tol=1e-5) for value in C]
    for one, other in zip(path, single, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=3e-5)
    assert sum(s.n_iter for s in path) < sum(s.n_iter for s in single)
    assert all(a.objective < b.objective for a, b in pairwise(path))
    downwards = solve_path(gram, margins, C[::-1], tol=1e-5)
    for one, other in zip(downwards[::-1], single, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=3e-5)


def test_a_solution_is_a_good_start_for_softer_labels():
    gram, hard = problem(150, 3)
    _, soft = problem(150, 3, soft=True)
    mixed = Margins(0.7 * hard.required + 0.3 * soft.required, hard.classes)
    cold = solve(gram, mixed, 1.0)
    warm = solve(gram, mixed, 1.0, alpha0=solve(gram, hard, 1.0).alpha)
    assert warm.n_iter < cold.n_iter


# ------------------------------------------------------------------------------------ the graph of classes


def naive_best_mean(gains):
    """Return the largest mean gain over all simple cycles, by trying them."""
    from itertools import permutations

    K = gains.shape[0]
    return max(
        np.mean([gains[a, b] for a, b in zip(order, (*order[1:], order[0]), strict=True)])
        for size in range(2, K + 1)
        for chosen in combinations(range(K), size)
        for order in permutations(chosen)
    )


@settings(max_examples=50, deadline=None)
@given(K=st.integers(2, 5), seed=st.integers(0, 1000))
def test_the_best_cycle_and_its_potentials(K, seed):
    gains = np.random.default_rng(seed).normal(size=(K, K))
    np.fill_diagonal(gains, -HUGE)
    cycle = np.empty(K + 1, dtype=np.int64)
    length, mean = max_mean_cycle(gains, cycle)
    assert mean == pytest.approx(naive_best_mean(gains))
    members = cycle[:length]
    assert mean == pytest.approx(gains[members, np.roll(members, -1)].mean())
    b, worst = potentials(gains)
    assert worst == pytest.approx(mean)
    assert (b[:, None] - b >= gains - mean - 1e-12)[~np.eye(K, dtype=bool)].all()


def test_a_graph_without_cycles():
    gains = np.full((3, 3), -HUGE)
    gains[0, 1], gains[1, 2] = 1.0, 2.0
    assert max_mean_cycle(gains, np.empty(4, dtype=np.int64))[0] == 0
    b, _ = potentials(gains)
    assert b[0] - b[1] >= 1.0 - 1e-12
    assert b[1] - b[2] >= 2.0 - 1e-12


def test_cycles_of_four_classes_are_found():
    """Class a's row may only raise the flow to class a + 1, so that no shorter cycle exists."""
    d = np.full((4, 4), -1e3)
    d[np.arange(4), (np.arange(4) + 1) % 4] = 2.0
    margins = Margins(d, np.arange(4))
    solution = solve(np.eye(4), margins, 0.5, tol=1e-8)
    assert solution.objective == pytest.approx(qp_objective(np.eye(4), margins, 0.5), rel=1e-6)
    np.testing.assert_allclose(solution.alpha.sum(axis=1), 0.5)


@settings(max_examples=50, deadline=None)
@given(K=st.integers(2, 6), seed=st.integers(0, 1000), density=st.floats(0.0, 1.0))
def test_a_repaired_flow_is_conserved_and_not_larger(K, seed, density):
    rng = np.random.default_rng(seed)
    flow = rng.exponential(size=(K, K)) * (rng.random((K, K)) < density)
    np.fill_diagonal(flow, 0.0)
    repaired = circulation(flow)
    assert (repaired >= 0.0).all()
    assert (repaired <= flow).all()
    np.testing.assert_allclose(repaired.sum(axis=0), repaired.sum(axis=1), atol=1e-12 * (1.0 + flow.sum()))
    balanced = flow + flow.T
    np.testing.assert_allclose(circulation(balanced), balanced, rtol=1e-12)


# ----------------------------------------------------------------------------------------- odd problems


def test_a_class_without_rows_gets_no_flow():
    gram, (d, z) = problem(40, 3)
    margins = Margins(np.column_stack([d, np.full(40, 2.0)]), z)
    solution = solve(gram, margins, 1.0, tol=1e-6)
    assert solution.status is Status.CONVERGED
    assert not solution.alpha[:, 3].any()
    assert solution.objective == pytest.approx(solve(gram, Margins(d, z), 1.0, tol=1e-6).objective, rel=1e-5)


@pytest.mark.parametrize("labels", [np.eye(2)[np.zeros(5, dtype=int)], np.full((5, 3), 1 / 3)])
def test_one_class_or_no_preference_needs_no_machine(labels):
    solution = solve(np.eye(5), labels, 1.0)
    assert solution.status is Status.CONVERGED
    assert not solution.alpha.any()
    assert solution.objective == 0.0
    assert solution.support.size == 0


@pytest.mark.parametrize("kernel", [linear_kernel, rbf_kernel])
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
def test_one_soft_label_for_all_rows_needs_biases_alone(kernel, C):
    """b = 2P satisfies every margin of every class exactly; only rounding could make a machine of it."""
    X, z = blobs(60, K=4, seed=3)
    label = np.array([0.7003, 0.2101, 0.0601, 0.0295])
    solution = solve(kernel(X), required_margins(np.tile(label, (60, 1)), z), C, max_iter=1000)
    assert solution.status is Status.CONVERGED
    assert (solution.n_iter, solution.support.size) == (0, 0)
    assert solution.relative_gap == 0.0
    np.testing.assert_allclose(solution.biases - solution.biases.mean(), 2 * label - 0.5, atol=1e-12)


def test_labels_that_contradict_the_class_ask_for_less_than_nothing():
    P = np.array([[0.2, 0.8], [0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    margins = required_margins(P, [0, 0, 1, 1])
    np.testing.assert_allclose(margins.required[np.arange(4), [1, 1, 0, 0]], [-1.2, 1.6, 0.8, -0.4])
    gram = linear_kernel(np.array([[1.0], [-1.0], [1.5], [-0.5]]))
    solution = solve(gram, margins, 5.0, tol=1e-9)
    assert solution.objective == pytest.approx(qp_objective(gram, margins, 5.0), rel=1e-5)


def test_copies_of_rows_with_other_labels():
    gram, (_, z) = problem(30, 3)
    twice = np.tile(gram, (2, 2))
    margins = required_margins(np.eye(3)[np.r_[z, (z + 1) % 3]])
    solution = solve(twice, margins, 10.0, tol=1e-6)
    assert solution.status is Status.CONVERGED
    assert solution.objective == pytest.approx(qp_objective(twice, margins, 10.0), rel=1e-5)


def test_a_read_only_float32_matrix_is_fine():
    gram, margins = problem(30, 3)
    small = gram.astype(np.float32)
    small.flags.writeable = False
    assert solve(small, margins, 1.0).objective == pytest.approx(
        solve(gram, margins, 1.0).objective, rel=1e-2
    )


def test_max_iter_says_what_to_do():
    gram, margins = problem(60, 3)
    solution = solve(gram, margins, 100.0, max_iter=5, tol=1e-9)
    assert solution.status is Status.ITERATION_LIMIT
    assert "raise max_iter" in solution.status.value
    assert solution.n_iter == 5


def test_bad_input_is_refused():
    gram, margins = problem(30, 3)
    with pytest.raises(ValueError, match="square"):
        solve(gram[:, :5], margins, 1.0)
    with pytest.raises(ValueError, match="Gram matrix has 20 rows"):
        solve(gram[:20, :20], margins, 1.0)
    with pytest.raises(ValueError, match="C must be positive"):
        solve(gram, margins, 0.0)
    with pytest.raises(ValueError, match="alpha0 must have shape"):
        solve(gram, margins, 1.0, alpha0=np.zeros(30))
    with pytest.raises(ValueError, match="sample_weight"):
        solve(gram, margins, 1.0, sample_weight=-np.ones(30))
    with pytest.raises(ValueError, match="one-hot"):
        solve(gram, margins.classes, 1.0)
    with pytest.raises(ValueError, match="whole numbers from 0 to 1"):
        required_margins(np.eye(2), [0, 2])
    with pytest.raises(ValueError, match="sums to one"):
        required_margins(np.ones((3, 2)))


@pytest.mark.parametrize("kernel", ["rbf", "cubic"])
def test_a_tolerance_below_rounding_ends_with_the_best_there_is(kernel):
    gram, margins = problem(60, 4, kernel, soft=True)
    solution = solve(gram, margins, 1e3, tol=1e-30)
    assert solution.status in (Status.NO_PROGRESS, Status.CONVERGED)  # the gap may happen to be zero
    assert solution.relative_gap <= 1e-8


def test_an_indefinite_matrix_ends_somewhere_feasible():
    gram, margins = problem(40, 3)
    gram = gram - 0.5 * np.eye(40)
    check_certificate(solve(gram, margins, 1.0, tol=1e-6, max_iter=10_000), gram, margins, 1.0)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(("K", "kernel", "C"), [(2, "linear", 1e3), (4, "rbf", 10.0), (4, "cubic", 1e-2)])
def test_the_interior_point_alone_comes_close(K, kernel, C, soft):
    gram, margins = problem(60, K, kernel, soft)
    weight = np.r_[0.0, np.linspace(0.5, 2.0, 59)]
    solver = single_machine._Solver(gram, margins, weight)
    solver.upper = C * solver.weight
    interior = InteriorPoint(solver.gram, solver.order, solver.starts, solver.classes, solver.upper)
    assert interior.is_possible
    assert (interior.V is None) == (kernel == "rbf")
    alpha = interior.maximise(solver.d, tol=1e-8)
    assert (alpha >= 0.0).all()
    assert (alpha <= solver.upper).all()
    start = np.empty(alpha.T.shape)
    start[solver.order] = alpha.T
    solver._start(start)
    expected = qp_objective(gram, margins, C * weight)
    assert solver._bounds()[0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow_without_jit
def test_the_interior_point_is_asked_where_the_rest_is_slow(monkeypatch):
    calls = []
    original = InteriorPoint.maximise
    monkeypatch.setattr(InteriorPoint, "maximise", lambda *a: calls.append(a) or original(*a))
    gram, margins = problem(300, 4, "linear")
    solution = solve(gram, margins, 1e5, tol=1e-6)
    assert solution.status is Status.CONVERGED
    assert calls
    check_certificate(solution, gram, margins, 1e5)
    assert solution.objective == pytest.approx(qp_objective(gram, margins, 1e5), rel=1e-5)


def test_newton_steps_are_taken_where_cycles_are_slow(monkeypatch):
    calls = []
    original = single_machine.newton_on_face
    monkeypatch.setattr(single_machine, "newton_on_face", lambda *a: calls.append(original(*a)) or calls[-1])
    gram, margins = problem(150, 3, "cubic")
    solution = solve(gram, margins, 100.0, tol=1e-8)
    assert solution.status is Status.CONVERGED
    assert any(calls)


@pytest.mark.parametrize(("kernel", "C"), [("rbf", 0.1), ("cubic", 1e-3)])
def test_rounding_of_the_steps_is_less_than_is_allowed_for(kernel, C):
    """A run of cycle steps alone: what it says of itself against what follows from α afresh."""
    gram, margins = problem(200, 3, kernel, soft=True)
    solver = single_machine._Solver(gram, margins, None)
    solver.run(C, 1e-4, -1, None)
    steps, drift = solver.steps_since_refresh, solver._drift()
    dual, primal, *_ = solver._bounds()
    assert steps > 100
    assert 0.0 < drift <= 1e-3 * 1e-4 * primal
    solver._refresh()
    assert solver._drift() == 0.0
    exact_dual, exact_primal, *_ = solver._bounds()
    assert abs((primal - dual) - (exact_primal - exact_dual)) <= drift


def test_a_tolerance_near_rounding_is_met_by_a_fresh_gap(monkeypatch):
    calls = []
    original = single_machine._Solver._refresh
    monkeypatch.setattr(single_machine._Solver, "_refresh", lambda self: calls.append(1) or original(self))
    gram, margins = problem(60, 3)
    assert solve(gram, margins, 1.0, tol=1e-3).status is Status.CONVERGED
    assert not calls
    assert solve(gram, margins, 1.0, tol=1e-11).status is Status.CONVERGED
    assert calls


def test_the_reported_primal_objective_is_nearly_the_least_of_all_scales():
    gram, margins = problem(60, 3, "cubic", soft=True)
    d, z = margins
    own = (np.arange(60), z)
    solution = solve(gram, margins, 1.0, max_iter=20)
    G = gram @ solution.beta
    F = G + solution.biases
    lead = F[own][:, None] - F
    others = np.arange(3) != z[:, None]

    def primal(s):
        return 0.5 * s**2 * np.sum(solution.beta * G) + np.sum(np.maximum(0.0, d - s * lead)[others])

    least = min(primal(s) for s in np.linspace(0.0, 3.0, 30_001))
    assert least < 0.999 * primal(1.0)  # the scale matters here
    assert solution.primal_objective == pytest.approx(least, abs=2e-3 * solution.duality_gap)


# --------------------------------------------------------------------------------------- the first fit


@pytest.mark.parametrize("verbose", [0, 1])
def test_compilation_is_announced(verbose, caplog, monkeypatch, tmp_path):
    """In the log at level INFO, or where progress is shown, before the solver is first called."""

    class Cold:
        signatures = ()

        class stats:
            cache_path = str(tmp_path)

        def __call__(self, *args):
            assert len(caplog.records) == 1
            return compiled(*args)

    compiled = _single_machine_kernels.ascend
    monkeypatch.setattr(_single_machine_kernels, "ascend", Cold())
    left_over = tmp_path / "_single_machine_kernels.ascend-1.py311.nbi"
    left_over.touch()
    os.utime(left_over, (0, 0))  # of an earlier version
    X, y = blobs(30, 3)
    model = PosteriorSVMClassifier(decoding="argmax", verbose=verbose)
    with caplog.at_level("INFO", logger="polymargin"):
        model.fit(X, y)
        assert [record.getMessage()[:20] for record in caplog.records] == ["compiling the solver"]
        os.utime(left_over)  # now it is up to date, and there is nothing to wait for
        caplog.clear()
        monkeypatch.setattr(Cold, "__call__", lambda self, *args: compiled(*args))
        model.fit(X, y)
    assert not caplog.records
