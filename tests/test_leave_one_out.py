"""Selection by leave-one-out errors: the criteria against refits, their slopes, and what the search finds."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import naive
from conftest import blobs
from polymargin._progress import Count
from polymargin.codebooks import minimal, one_vs_all, one_vs_one
from polymargin.kernels import RBF, Blend, Kernel, Laplacian, Linear, Polynomial, Precomputed
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.machines._gram import RowGroupGram
from polymargin.machines.lssvm import row_groups
from polymargin.selection import leave_one_out
from polymargin.selection.leave_one_out import choose, search
from polymargin.selection.press import press
from polymargin.selection.samples import Part, Samples

KERNELS: dict[str, tuple[Kernel, dict]] = {
    "rbf": (RBF(), {"kind": "rbf"}),
    "laplacian": (Laplacian(), {"kind": "laplacian"}),
    "poly": (Polynomial(2, 0.7), {"kind": "poly", "degree": 2, "coef0": 0.7}),
    "cubic": (Polynomial(3, 1.0), {"kind": "poly", "degree": 3, "coef0": 1.0}),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)

X, Y = blobs(n=24, K=3, seed=1)
TARGETS = np.random.default_rng(0).normal(size=(24, 3)) + np.eye(3)[Y]
WEIGHTS = {
    "ones": np.ones(24),
    "whole": np.random.default_rng(1).integers(1, 4, 24).astype(float),
    "any": np.random.default_rng(2).uniform(0.2, 3.0, 24),
}
every_weighting = pytest.mark.parametrize("weighting", WEIGHTS)


# Slow and obvious ------------------------------------------------------------------------------------------


def refitted_residuals(K, targets, C, weights):
    """What is wrong about each row when one of its copies is left out: a row of weight s goes on with s − 1."""
    residuals = np.empty_like(targets)
    for i in range(len(K)):
        less = weights.copy()
        less[i] = max(weights[i] - 1.0, 0.0)
        a, b = naive.lssvm_solve(K, targets, C, less)
        residuals[i] = targets[i] - naive.lssvm_predict(K[i], a, b)
    return residuals


def refitted_press(K, targets, C, weights, counted=None):
    """The weighted sum of the squares, column by column."""
    counted = np.ones_like(targets) if counted is None else counted
    return np.sum(weights[:, None] * counted * refitted_residuals(K, targets, C, weights) ** 2, axis=0)


def hat_matrix(K, C, weights):
    """The matrix that takes the targets to what the machine says of its own rows."""
    a, b = naive.lssvm_solve(K, np.eye(len(K)), C, weights)
    return naive.lssvm_predict(K, a, b)


def explicit_gcv(K, targets, C, weights, counted=None):
    """Shim et al. (2008), eq. (4.5), times N: squared residuals over the squared mean of one minus the leverages."""
    counted = np.ones_like(targets) if counted is None else counted
    H, N = hat_matrix(K, C, weights), weights.sum()
    squares = np.sum(weights[:, None] * counted * (targets - H @ targets) ** 2, axis=0)
    return squares / ((N - np.trace(H)) / N) ** 2


def gram(name, gamma, rows=X):
    return naive.kernel_matrix(X=rows, Z=rows, gamma=gamma, **KERNELS[name][1])


# The kernels' slopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [RBF(), Laplacian(), Blend(0.4, ratio=1.7), Polynomial(2, 0.7), Polynomial(3), Polynomial(1.5, 40.0)],
)
def test_the_slope_of_a_kernel_is_its_derivative_in_log_gamma(kernel):
    base, gamma, h = kernel.base(X), 0.3, 1e-5
    before = base.copy()
    values = kernel.apply(base, gamma)
    kept = values.copy()
    slope = kernel.slope(base, values, gamma)
    differences = (kernel.apply(base, gamma * np.exp(h)) - kernel.apply(base, gamma * np.exp(-h))) / (2 * h)
    assert_allclose(slope, differences, rtol=1e-7, atol=1e-8 * np.abs(values).max())
    assert np.abs(slope).max() > 0.01
    assert_array_equal(base, before)
    assert_array_equal(values, kept)
    assert not np.shares_memory(slope, values)
    assert not np.shares_memory(slope, base)


@pytest.mark.parametrize("kernel", [Linear(), Precomputed()])
def test_a_kernel_without_gamma_has_no_slope(kernel):
    values = kernel.apply(kernel.base(X @ X.T if kernel.precomputed else X), 1.0)
    assert_array_equal(kernel.slope(values, values, 1.0), 0.0)


# PRESS and its slopes --------------------------------------------------------------------------------------


@every_weighting
@every_kernel
def test_press_is_that_of_refits(name, weighting):
    kernel, weights = KERNELS[name][0], WEIGHTS[weighting]
    for gamma, ridge in ((0.1, 0.5), (0.7, 0.02)):
        value, _ = press(kernel, kernel.base(X), weights, TARGETS, gamma, ridge)
        assert_allclose(value, refitted_press(gram(name, gamma), TARGETS, 1 / ridge, weights), rtol=1e-8)


def test_press_of_a_weight_is_that_of_copies():
    kernel, weights = RBF(), WEIGHTS["whole"]
    twice = np.repeat(np.arange(24), weights.astype(int))
    of_weights = press(kernel, kernel.base(X), weights, TARGETS, 0.3, 0.1)
    of_copies = press(kernel, kernel.base(X[twice]), np.ones(twice.size), TARGETS[twice], 0.3, 0.1)
    assert_allclose(of_weights[0], of_copies[0], rtol=1e-9)
    assert_allclose(of_weights[1], of_copies[1], rtol=1e-7)


@every_weighting
@every_kernel
def test_the_slopes_of_press_are_its_derivatives(name, weighting):
    kernel, weights, h = KERNELS[name][0], WEIGHTS[weighting], 1e-4

    def value(log_gamma, log_ridge):
        return refitted_press(gram(name, np.exp(log_gamma)), TARGETS, np.exp(-log_ridge), weights)

    u, v = np.log(0.25), np.log(0.3)
    scale = value(u, v)
    of_columns = np.column_stack([value(u + h, v) - value(u - h, v), value(u, v + h) - value(u, v - h)]) / (
        2 * h
    )
    for columns in ([0], [1], [0, 1, 2]):
        targets, size = TARGETS[:, columns], scale[columns].sum()
        _, slopes = press(kernel, kernel.base(X), weights, targets, np.exp(u), np.exp(v))
        assert_allclose(slopes / size, of_columns[columns].sum(axis=0) / size, atol=1e-6)
        assert (np.abs(slopes) > 1e-3).all()
    same, without = press(kernel, kernel.base(X), weights, TARGETS, np.exp(u), np.exp(v), with_gamma=False)
    assert_allclose(same, scale, rtol=1e-8)
    assert without[0] == 0.0
    assert_allclose(without[1], slopes[1], rtol=1e-12)


def test_press_leaves_what_it_is_given_and_refuses_what_rounding_would_decide():
    kernel = RBF()
    base = kernel.base(X)
    before = base.copy()
    press(kernel, base, np.ones(24), TARGETS, 0.3, 0.1)
    assert_array_equal(base, before)
    with pytest.raises(np.linalg.LinAlgError, match="too small"):
        press(kernel, base, np.ones(24), TARGETS, 0.3, 1e-12, least_ridge=1e-9)


# Stacks of samples -----------------------------------------------------------------------------------------


def stack(name, masked):
    """Three groups of different sizes and numbers of columns: a part for `Samples`, and what the oracles want."""
    kernel = KERNELS[name][0]
    random = np.random.default_rng(3)
    parts, plain = [], []
    for rows, width, weighting in (
        (slice(0, 24), 2, "any"),
        (slice(3, 12), 3, "ones"),
        (slice(5, 20), 1, "whole"),
    ):
        targets, weights = TARGETS[rows, :width], WEIGHTS[weighting][rows]
        counted = random.random(targets.shape) < 0.6 if masked else None
        parts.append(Part(kernel.base(X[rows]), weights, targets, counted))
        plain.append((X[rows], weights, targets, counted))
    return kernel, parts, plain


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("criterion", ["loo", "gcv"])
@every_kernel
def test_stacked_costs_are_the_definitions_group_by_group(name, criterion, masked):
    kernel, parts, plain = stack(name, masked)
    gamma, ridges = 0.3, np.array([0.01, 0.4, 30.0])
    costs = Samples(kernel, parts).costs(criterion, gamma, ridges)
    assert costs.shape == (3, 3, 3)
    oracle = refitted_press if criterion == "loo" else explicit_gcv
    for number, (rows, weights, targets, counted) in enumerate(plain):
        width = targets.shape[1]
        for place, ridge in enumerate(ridges):
            expected = oracle(gram(name, gamma, rows), targets, 1 / ridge, weights, counted)
            assert_allclose(costs[place, number, :width], expected, rtol=1e-7)
        assert_array_equal(costs[:, number, width:], 0.0)
        alone = Samples(kernel, [parts[number]]).costs(criterion, gamma, ridges)
        assert_allclose(costs[:, number, :width], alone[:, 0], rtol=1e-9)


def test_gcv_of_a_weight_is_that_of_copies():
    weights = WEIGHTS["whole"]
    twice = np.repeat(np.arange(24), weights.astype(int))
    ridges = np.array([0.05, 1.0])
    for criterion in ("loo", "gcv"):
        of_weights = Samples(RBF(), [Part(RBF().base(X), weights, TARGETS)])
        of_copies = Samples(RBF(), [Part(RBF().base(X[twice]), np.ones(twice.size), TARGETS[twice])])
        assert_allclose(
            of_weights.costs(criterion, 0.3, ridges), of_copies.costs(criterion, 0.3, ridges), rtol=1e-9
        )


def test_gcv_of_one_vs_all_counts_the_column_of_a_rows_own_class():
    data = TrainingRows(RBF(), X, Y, WEIGHTS["any"])
    targets, (group,) = row_groups(data, one_vs_all(3), "gcv")
    part = group.few(1000)
    assert_array_equal(part.counted, Y[:, None] == np.arange(3))
    costs = Samples(RBF(), [part]).costs("gcv", 0.3, np.array([0.2]))
    K, H = gram("rbf", 0.3), hat_matrix(gram("rbf", 0.3), 5.0, data.weights)
    residuals = [targets[i, Y[i]] - H[i] @ targets[:, Y[i]] for i in range(24)]
    total = np.sum(data.weights)
    expected = data.weights @ np.square(residuals) / ((total - np.trace(H)) / total) ** 2
    assert_allclose(costs.sum(), expected, rtol=1e-9)
    assert_allclose(explicit_gcv(K, targets, 5.0, data.weights, Y[:, None] == np.arange(3)).sum(), expected)
    for book, selection in ((one_vs_all(3), "loo"), (one_vs_one(3), "gcv"), (minimal(3), "gcv")):
        assert all(group.counted is None for group in row_groups(data, book, selection)[1])


def test_a_kernel_matrix_that_overflows_is_refused():
    rows = 1e200 * X
    kernel = Polynomial(2, 1.0)
    with np.errstate(over="ignore"):
        base = np.minimum(kernel.base(rows), 1e300)
    with pytest.raises(ValueError, match="StandardScaler"):
        Samples(kernel, [Part(base, np.ones(24), TARGETS)]).costs("loo", 1.0, np.array([1.0]))


# The ridge of one gamma ------------------------------------------------------------------------------------


def test_the_ridge_goes_as_far_as_its_limits():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 2))
    exact = rows @ np.array([[1.0], [-2.0]])
    noise = random.normal(size=(60, 1))
    noise -= rows @ np.linalg.lstsq(rows, noise, rcond=None)[0]
    least, largest = leave_one_out.RIDGE_LIMITS
    for targets, least_ridge, expected in (
        (exact, least, least),
        (exact, 3e-7, 3e-7),
        (noise, least, largest),
    ):
        samples = Samples(Linear(), [Part(Linear().base(rows), np.ones(60), targets)], least_ridge)
        scale = float(samples.spectra(1.0).lifts[0])
        ridge, cost = samples.best_ridge("loo", 1.0, np.ones((1, 1)), None)
        grid = scale * np.geomspace(least_ridge, largest, 200)
        assert_allclose(ridge / scale, expected, rtol=1e-6)
        assert_allclose(cost, samples.costs("loo", 1.0, grid)[:, 0, 0].min() / 60, rtol=1e-6, atol=1e-13)


def test_a_ridge_inside_the_range_is_the_minimum():
    targets = 3.0 * np.eye(3)[Y] + TARGETS
    samples = Samples(RBF(), [Part(RBF().base(X), np.ones(24), targets)])
    mask = np.array([[1.0, 0.0, 1.0]])
    for criterion in ("loo", "gcv"):
        ridge, cost = samples.best_ridge(criterion, 0.1, mask, None)
        grid = np.geomspace(1e-5, 1e4, 500)
        assert 1e-4 < ridge < 1e3
        values = (samples.costs(criterion, 0.1, grid)[:, 0] @ mask[0]) / 48
        assert_allclose(np.log(ridge), np.log(grid[values.argmin()]), atol=0.25)
        reached = samples.costs(criterion, 0.1, np.array([ridge]))[0, 0] @ mask[0] / 48
        assert reached <= min(1.002 * values.min(), cost * (1 + 1e-9))
        fixed, of_fixed = samples.best_ridge(criterion, 0.1, mask, 0.37)
        assert fixed == 0.37
        assert_allclose(of_fixed, samples.costs(criterion, 0.1, np.array([0.37]))[0, 0] @ mask[0] / 48)


# The search ------------------------------------------------------------------------------------------------


def problem(kernel, seed=0, n=60, K=3, book=None, weights=None, criterion="loo"):
    """Groups and one pool of all columns, and the lattice of gamma."""
    rows, y = blobs(n=n, K=K, seed=seed, shift=1.0)
    weights = np.ones(n) if weights is None else weights
    data = TrainingRows(kernel, rows, y, weights)
    groups = row_groups(data, one_vs_one(K) if book is None else book, criterion)[1]
    pool = [(number, np.arange(group.columns.size)) for number, group in enumerate(groups)]
    unit = kernel.unit_gamma(rows, weights)
    return groups, pool, lambda point: unit * 2.0 ** (point / 2)


def cost_of(groups, pool, criterion, gamma, ridges):
    """The criterion of a pool per unit of weight and column, from all rows."""
    samples = Samples(groups[0].kernel, [group.few(10**6) for group in groups])
    costs = samples.costs(criterion, gamma, np.atleast_1d(ridges))
    weight = sum(samples.totals[number] * columns.size for number, columns in pool)
    return sum(costs[:, number, columns].sum(axis=1) for number, columns in pool) / weight


def grid_optimum(groups, pool, criterion, lattice):
    """The least value on a fine grid, between the limits of the search."""
    return min(
        cost_of(groups, pool, criterion, lattice(point), np.geomspace(1e-6, 1e5, 89)).min()
        for point in np.arange(-24, 12.5, 1.0)
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly"])
def test_the_search_finds_the_optimum_of_a_grid(name, seed):
    groups, pool, lattice = problem(KERNELS[name][0], seed=seed)
    (choice,) = choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None)
    reached = cost_of(groups, pool, "loo", choice.gamma, choice.ridge)[0]
    assert_allclose(-choice.score, reached, rtol=1e-6)
    assert reached <= 1.02 * grid_optimum(groups, pool, "loo", lattice)


@pytest.mark.parametrize("book", [one_vs_all(3), one_vs_one(3), minimal(3)])
def test_the_search_for_gcv_finds_the_optimum_of_a_grid(book):
    groups, pool, lattice = problem(RBF(), book=book, criterion="gcv")
    (choice,) = choose(groups, [pool], criterion="gcv", gammas=lattice, ridge=None)
    reached = cost_of(groups, pool, "gcv", choice.gamma, choice.ridge)[0]
    assert reached <= 1.02 * grid_optimum(groups, pool, "gcv", lattice)


def test_steps_down_the_gradient_lower_the_criterion():
    gains = []
    for seed in range(4):
        groups, pool, lattice = problem(RBF(), seed=seed)
        starts = search(groups, [pool], criterion="loo", gammas=lattice, ridge=None, count=Count(None, ""))
        (coarse,) = choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None, polish=None)
        assert starts[0].choice == coarse
        (fine,) = choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None)
        values = [cost_of(groups, pool, "loo", c.gamma, c.ridge)[0] for c in (coarse, fine)]
        gains.append(1.0 - values[1] / values[0])
        (again,) = choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None, starts=starts)
        assert_allclose([again.gamma, again.ridge], [fine.gamma, fine.ridge], rtol=1e-6)
    assert min(gains) >= -1e-9
    assert max(gains) > 1e-4


@pytest.mark.parametrize("copied", [False, True])
def test_steps_on_all_rows_end_at_the_minimum_of_press(monkeypatch, copied):
    monkeypatch.setattr(
        leave_one_out, "_OPERATIONS", 3.0 * 30**3
    )  # thirty rows of each group, where it does not count
    weights = np.random.default_rng(4).integers(1, 4, 120).astype(float) if copied else None
    groups, pool, lattice = problem(RBF(), seed=2, n=120, weights=weights)
    (some,) = choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None)
    (exact,) = choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None, polish="all")
    assert (exact.gamma, exact.ridge) != (some.gamma, some.ridge)
    reached = cost_of(groups, pool, "loo", exact.gamma, exact.ridge)[0]
    assert_allclose(-exact.score, reached, rtol=1e-6)
    assert reached < cost_of(groups, pool, "loo", some.gamma, some.ridge)[0]
    for gamma, ridge in ((1.1, 1.0), (1 / 1.1, 1.0), (1.0, 1.2), (1.0, 1 / 1.2)):
        assert cost_of(groups, pool, "loo", exact.gamma * gamma, exact.ridge * ridge)[0] > reached
    assert reached <= (1.0 + 1e-4) * grid_optimum(groups, pool, "loo", lattice)


def test_steps_that_rounding_forbids_are_counted_too():
    groups, pool, lattice = problem(RBF(), seed=1)
    count = Count(None, "")
    starts = search(groups, [pool], criterion="loo", gammas=lattice, ridge=None, count=count)
    steep = replace(starts[0], choice=replace(starts[0].choice, ridge=1e-300))
    (choice,) = choose(
        groups, [pool], criterion="loo", gammas=lattice, ridge=None, starts=[steep], count=count
    )
    assert choice == steep.choice
    assert count.done == count.total > 1


def test_steps_on_all_rows_look_at_every_group(monkeypatch):
    monkeypatch.setattr(leave_one_out, "_GROUPS", 2)
    groups, pool, lattice = problem(RBF(), seed=1, n=80, K=4)
    seen, affordable = [], RowGroupGram.affordable

    def watched(group, operations):
        part = affordable(group, operations)
        seen.append((groups.index(group), part.weights.size))
        return part

    monkeypatch.setattr(RowGroupGram, "affordable", watched)
    choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None)
    assert 0 < len(seen) <= 2
    seen.clear()
    choose(groups, [pool], criterion="loo", gammas=lattice, ridge=None, polish="all")
    assert seen == [(number, group.rows.size) for number, group in enumerate(groups)]


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_what_is_fixed_stays(criterion):
    groups, pool, lattice = problem(RBF())
    (choice,) = choose(groups, [pool], criterion=criterion, gammas=lattice, ridge=0.7)
    assert_allclose(choice.ridge, 0.7, rtol=1e-14)
    best = min(cost_of(groups, pool, criterion, lattice(p), 0.7)[0] for p in np.arange(-20, 10, 0.5))
    assert cost_of(groups, pool, criterion, choice.gamma, 0.7)[0] <= 1.02 * best
    (choice,) = choose(groups, [pool], criterion=criterion, gammas=0.123, ridge=None)
    assert_allclose(choice.gamma, 0.123, rtol=1e-14)
    best = cost_of(groups, pool, criterion, 0.123, np.geomspace(1e-5, 1e4, 200)).min()
    assert cost_of(groups, pool, criterion, 0.123, choice.ridge)[0] <= 1.005 * best
    (choice,) = choose(groups, [pool], criterion=criterion, gammas=0.123, ridge=0.7)
    assert (choice.gamma, choice.ridge) == (0.123, 0.7)
    assert_allclose(-choice.score, cost_of(groups, pool, criterion, 0.123, 0.7)[0], rtol=1e-6)


@pytest.mark.parametrize("book", [one_vs_one(3), one_vs_all(3)])
def test_pools_are_searched_apart(book):
    groups, pool, lattice = problem(RBF(), seed=3, book=book)
    pools = [[(number, columns[[place]])] for number, columns in pool for place in range(columns.size)]
    together = choose(groups, pools, criterion="loo", gammas=lattice, ridge=None)
    assert len(together) == 3
    assert len({round(float(np.log(choice.gamma)), 3) for choice in together}) > 1
    for choice, own in zip(together, pools, strict=True):
        (alone,) = choose(groups, [own], criterion="loo", gammas=lattice, ridge=None)
        assert_allclose([choice.gamma, choice.ridge], [alone.gamma, alone.ridge], rtol=1e-6)
        reached = cost_of(groups, own, "loo", choice.gamma, choice.ridge)[0]
        assert reached <= 1.02 * grid_optimum(groups, own, "loo", lattice)


def test_a_kernel_without_gamma_has_its_ridge_chosen():
    rows, y = blobs(n=50, K=3, seed=4)
    data = TrainingRows(Linear(), rows, y, np.ones(50))
    bank = fit_lssvm_bank(data, one_vs_one(3), C=None, gamma=None, selection="loo", pools=[np.arange(3)])
    assert_array_equal(bank.gamma, 1.0)
    assert np.unique(bank.C).size == 1
    groups = row_groups(data, one_vs_one(3))[1]
    pool = [(number, np.array([0])) for number in range(3)]
    values = cost_of(groups, pool, "loo", 1.0, np.geomspace(1e-5, 1e4, 300))
    assert cost_of(groups, pool, "loo", 1.0, 1 / bank.C[0])[0] <= 1.005 * values.min()


def parameters(rows, y, weights, **more):
    """C and gamma of one-vs-one machines."""
    data = TrainingRows(more.pop("kernel", RBF()), rows, y, weights)
    book = more.pop("book", one_vs_one(int(y.max()) + 1))
    pools = [np.arange(book.n_columns)]
    bank = fit_lssvm_bank(data, book, C=None, gamma=None, pools=pools, keep_factors=False, **more)
    return np.log([bank.C[0], bank.gamma[0]])


@pytest.mark.parametrize("selection", ["loo", "gcv"])
@pytest.mark.parametrize("n", [60, 400])
def test_the_order_of_the_rows_does_not_matter(selection, n):
    rows, y = blobs(n=n, K=3, seed=5, shift=1.0)
    weights = np.random.default_rng(0).uniform(0.5, 3.0, n)
    order = np.random.default_rng(1).permutation(n)
    expected = parameters(rows, y, weights, selection=selection)
    found = parameters(rows[order], y[order], weights[order], selection=selection)
    assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("selection", "polish"), [("loo", "some"), ("loo", "all"), ("gcv", None)])
@pytest.mark.parametrize("n", [60, 140])
def test_a_weight_is_as_many_copies(selection, polish, n):
    rows, y = blobs(n=n, K=3, seed=6, shift=1.0)
    weights = np.random.default_rng(2).integers(1, 4, n)
    copies = np.random.default_rng(3).permutation(np.repeat(np.arange(n), weights))
    expected = parameters(rows, y, weights.astype(float), selection=selection, polish=polish)
    found = parameters(rows[copies], y[copies], np.ones(copies.size), selection=selection, polish=polish)
    assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_a_heavy_class_is_as_many_copies(seed):
    rows, y = blobs(n=80, K=4, seed=seed, shift=1.5)
    weights = np.where(y == seed % 4, 12, 1)
    copies = np.repeat(np.arange(80), weights)
    expected = parameters(rows, y, weights.astype(float), selection="loo")
    found = parameters(rows[copies], y[copies], np.ones(copies.size), selection="loo")
    assert_allclose(found, expected, atol=1e-5)
