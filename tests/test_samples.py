"""The criteria of the search along a path of ridges, against their definitions: refits, hat matrices and copies."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import naive
from conftest import blobs
from polymargin.codebooks import minimal, one_vs_all, one_vs_one
from polymargin.kernels import RBF, Exponential, Kernel, Laplacian, Linear, Polynomial
from polymargin.machines import TrainingRows, Workspace
from polymargin.machines._gram import group_grams
from polymargin.selection.samples import RIDGE_LIMITS, SampledGroup, Samples
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.thin import ThinMatrix

KERNELS: dict[str, tuple[Kernel, dict]] = {
    "rbf": (RBF(), {"kind": "rbf"}),
    "laplacian": (Laplacian(), {"kind": "laplacian"}),
    "exponential": (Exponential(), {"kind": "exponential"}),
    "poly": (Polynomial(2, 0.7), {"kind": "poly", "degree": 2, "coef0": 0.7}),
    "cubic": (Polynomial(3, 1.0), {"kind": "poly", "degree": 3, "coef0": 1.0}),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)
CRITERIA = pytest.mark.parametrize("criterion", ["loo", "gcv"])

X, Y = blobs(n=24, K=3, seed=1)
TARGETS = np.random.default_rng(0).normal(size=(24, 3)) + np.eye(3)[Y]
WEIGHTS = {
    "ones": np.ones(24),
    "whole": np.random.default_rng(1).integers(1, 4, 24).astype(float),
    "any": np.random.default_rng(2).uniform(0.2, 3.0, 24),
}
RIDGES = np.array([0.01, 0.4, 30.0])


def gram(name, gamma, rows=X):
    return naive.kernel_matrix(X=rows, Z=rows, gamma=gamma, **KERNELS[name][1])


def costs_of(samples, criterion, gamma, ridges=RIDGES):
    """The criterion for several ridges, one by one, shape (R, p, L)."""
    return np.array([samples.path(criterion, gamma, float(ridge)).costs[0] for ridge in ridges])


def expected_cost(criterion, K, targets, ridge, weights, counted=None):
    if criterion == "gcv":
        return naive.lssvm_gcv(K, targets, 1 / ridge, weights, counted)
    counted = np.ones_like(targets) if counted is None else counted
    errors = targets - naive.lssvm_loo_margins(K, targets, 1 / ridge, weights)
    return np.sum(weights[:, None] * counted * errors**2, axis=0)


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
        parts.append(SampledGroup(kernel.base(X[rows]), weights, targets, counted))
        plain.append((X[rows], weights, targets, counted))
    return kernel, parts, plain


@pytest.mark.parametrize("masked", [False, True])
@CRITERIA
@every_kernel
def test_stacked_costs_are_the_definitions_group_by_group(name, criterion, masked):
    kernel, parts, plain = stack(name, masked)
    costs = costs_of(Samples(kernel, parts), criterion, 0.3)
    assert costs.shape == (3, 3, 3)
    for number, (rows, weights, targets, counted) in enumerate(plain):
        width = targets.shape[1]
        for place, ridge in enumerate(RIDGES):
            expected = expected_cost(criterion, gram(name, 0.3, rows), targets, ridge, weights, counted)
            assert_allclose(costs[place, number, :width], expected, rtol=1e-7)
        assert_array_equal(costs[:, number, width:], 0.0)
        alone = costs_of(Samples(kernel, [parts[number]]), criterion, 0.3)
        assert_allclose(costs[:, number, :width], alone[:, 0], rtol=1e-9)


@CRITERIA
def test_the_path_goes_through_what_single_ridges_give(criterion):
    kernel, parts, _ = stack("rbf", masked=False)
    samples = Samples(kernel, parts)
    path = samples.path(criterion, 0.3)
    assert samples.path(criterion, 0.3) is path  # computed once
    assert (np.diff(path.log_ridges) > 0.0).all()
    some = slice(2, None, 7)
    again = costs_of(samples, criterion, 0.3, np.exp(path.log_ridges[some]))
    assert_allclose(path.costs[some], again, rtol=1e-8)
    for number, part in enumerate(parts):
        assert_allclose(path.magnitudes[number], part.weights.sum(), rtol=1e-12)  # of K(x, x) = 1
        assert path.log_ridges[0] <= np.log(2 * RIDGE_LIMITS[0] * path.bias_eigenvalues[number])
        assert path.log_ridges[-1] >= np.log(RIDGE_LIMITS[1] * path.bias_eigenvalues[number]) - 1e-9


@pytest.mark.parametrize("weighting", WEIGHTS)
@CRITERIA
def test_a_row_that_stands_for_copies_is_all_of_them(criterion, weighting):
    """Of several copies one is left out; each has a weight of its own."""
    copies = np.random.default_rng(5).integers(1, 4, 24)
    each = np.repeat(np.arange(24), copies)
    of_one = WEIGHTS[weighting]
    together = Samples(
        RBF(), [SampledGroup(RBF().base(X), of_one * copies, TARGETS, None, copies.astype(float))]
    )
    costs = costs_of(together, criterion, 0.3)[:, 0]
    for place, ridge in enumerate(RIDGES):
        expected = expected_cost(criterion, gram("rbf", 0.3, X[each]), TARGETS[each], ridge, of_one[each])
        assert_allclose(costs[place], expected, rtol=1e-7)


@CRITERIA
def test_features_give_what_the_kernel_matrix_gives(criterion):
    kernel = Polynomial(2, 0.7)
    features = kernel.features(X)
    copies = np.random.default_rng(5).integers(1, 4, 24).astype(float)
    for weights, repeated in ((WEIGHTS["any"], None), (copies * WEIGHTS["any"], copies)):
        thin = SampledGroup(ThinMatrix(features, weights), weights, TARGETS, None, repeated)
        whole = SampledGroup(kernel.base(X), weights, TARGETS, None, repeated)
        found, expected = (costs_of(Samples(kernel, [part]), criterion, 0.3) for part in (thin, whole))
        assert_allclose(found, expected, rtol=1e-6)


@CRITERIA
def test_weights_times_c_with_the_ridge_times_c_are_costs_times_c(criterion):
    weights = WEIGHTS["any"]
    one = Samples(RBF(), [SampledGroup(RBF().base(X), weights, TARGETS)])
    other = Samples(RBF(), [SampledGroup(RBF().base(X), 5.0 * weights, TARGETS)])
    assert_allclose(
        costs_of(other, criterion, 0.3, 5.0 * RIDGES), 5.0 * costs_of(one, criterion, 0.3), rtol=1e-9
    )


@pytest.mark.parametrize("weighting", WEIGHTS)
@every_kernel
def test_groups_are_left_out_together_along_the_path(name, weighting):
    kernel, weights = KERNELS[name][0], WEIGHTS[weighting]
    parts, plain = [], []
    for rows, width, seed in ((slice(0, 24), 3, 0), (slice(4, 17), 1, 1)):
        groups = np.random.default_rng(seed).integers(0, 7, len(X[rows]))
        part = SampledGroup(
            kernel.base(X[rows]), weights[rows], TARGETS[rows, :width], left_out=LeftOut.of(groups)
        )
        parts.append(part)
        plain.append((X[rows], weights[rows], TARGETS[rows, :width], groups))
    samples = Samples(kernel, parts, grouped=True)
    costs = costs_of(samples, "loo", 0.3)
    for number, (rows, s, targets, groups) in enumerate(plain):
        width = targets.shape[1]
        for place, ridge in enumerate(RIDGES):
            expected = naive.lssvm_press(gram(name, 0.3, rows), targets, 1 / ridge, s, groups)
            assert_allclose(costs[place, number, :width], expected, rtol=1e-6)
        assert_array_equal(costs[:, number, width:], 0.0)
    path, plain_path = samples.path("loo", 0.3), Samples(kernel, parts).path("loo", 0.3)
    assert_allclose(path.bias_eigenvalues, plain_path.bias_eigenvalues, rtol=1e-9)
    assert_allclose(path.magnitudes, plain_path.magnitudes, rtol=1e-9)


def test_groups_of_one_row_are_rows():
    part = SampledGroup(RBF().base(X), WEIGHTS["any"], TARGETS)
    grouped = Samples(RBF(), [part._replace(left_out=LeftOut.of(np.arange(24)))], grouped=True)
    single = Samples(RBF(), [part])
    assert_allclose(costs_of(grouped, "loo", 0.3), costs_of(single, "loo", 0.3), rtol=1e-8)


def test_gcv_of_one_vs_all_counts_the_column_of_a_rows_own_class():
    data = TrainingRows(RBF(), X, Y, WEIGHTS["any"])
    (group,) = group_grams(Workspace(data), one_vs_all(3), "gcv")
    targets, part = group.targets, group.sample(1.0, 1, False)
    assert_array_equal(part.counted, Y[:, None] == np.arange(3))
    costs = costs_of(Samples(RBF(), [part]), "gcv", 0.3, [0.2])
    K, H = gram("rbf", 0.3), naive.hat_matrix(gram("rbf", 0.3), 5.0, data.weights)
    residuals = [targets[i, Y[i]] - H[i] @ targets[:, Y[i]] for i in range(24)]
    expected = data.weights @ np.square(residuals) / ((24 - np.trace(H)) / 24) ** 2
    assert_allclose(costs.sum(), expected, rtol=1e-9)
    assert_allclose(
        naive.lssvm_gcv(K, targets, 5.0, data.weights, Y[:, None] == np.arange(3)).sum(), expected
    )
    for book, selection in ((one_vs_all(3), "loo"), (one_vs_one(3), "gcv"), (minimal(3), "gcv")):
        assert all(group.counted is None for group in group_grams(Workspace(data), book, selection))


def test_a_kernel_matrix_that_overflows_is_refused():
    rows = 1e200 * X
    kernel = Polynomial(2, 1.0)
    with np.errstate(over="ignore"):
        base = np.minimum(kernel.base(rows), 1e300)
    with pytest.raises(ValueError, match="StandardScaler"):
        Samples(kernel, [SampledGroup(base, np.ones(24), TARGETS)]).path("loo", 1.0, 1.0)


# Samples of rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_part_holds_equal_rows_once(weighted):
    """Equal rows of one class and weight are one row of the sample, which stands for all of them."""
    each = np.repeat(np.arange(24), np.random.default_rng(0).integers(1, 4, 24))
    each = np.random.default_rng(1).permutation(each)
    weights = np.random.default_rng(2).choice([1.0, 2.0], each.size) if weighted else np.ones(each.size)
    data = TrainingRows(RBF(), X[each], Y[each], weights)
    for group in group_grams(Workspace(data), one_vs_one(3), "loo"):
        part = group.sample(1.0, 1, False)
        rows = each[group.rows]
        keys = {(row, weight) for row, weight in zip(rows, weights[group.rows], strict=True)}
        assert part.weights.size == len(keys) < rows.size
        assert_allclose(part.weights.sum(), weights[group.rows].sum())
        assert part.copies.sum() == rows.size
        costs = costs_of(Samples(RBF(), [part]), "loo", 0.3)[:, 0]
        K = gram("rbf", 0.3, X[rows])
        for place, ridge in enumerate(RIDGES):
            expected = naive.lssvm_press(K, group.targets, 1 / ridge, weights[group.rows])
            assert_allclose(costs[place], expected, rtol=1e-7)


def test_a_part_of_some_rows_is_the_deals_sample():
    rows, y = blobs(n=90, K=3, seed=2)
    data = TrainingRows(RBF(), rows, y, np.ones(90))
    chosen = data.deal.sample(0.3, 4)
    for group in group_grams(Workspace(data), one_vs_one(3), "loo"):
        part = group.sample(0.3, 4, False)
        own = np.intersect1d(group.rows, chosen)
        assert part.copies is None
        assert_allclose(np.sort(part.base, axis=None), np.sort(RBF().base(rows[own]), axis=None), atol=1e-12)
        assert_array_equal(
            np.unique(part.targets, return_counts=True)[1], [(y[own] == k).sum() for k in np.unique(y[own])]
        )


def test_a_part_of_groups_has_some_rows_of_every_group_that_stand_for_all():
    rows, y = blobs(n=90, K=3, seed=2)
    names = np.random.default_rng(0).integers(0, 30, 90)
    number, totals = np.unique(names, return_inverse=True, return_counts=True)[1:]
    data = TrainingRows(RBF(), rows, y, np.ones(90), groups=number)
    (group,) = group_grams(Workspace(data), one_vs_all(3), "loo")
    for share in (0.5, 1.0):
        part = group.sample(share, 2, False)
        sizes = sorted(size for block in part.left_out.blocks for size in [block.shape[1]] * len(block))
        assert sizes == sorted(np.ceil(share * totals).astype(int).tolist())
        weights = sorted(w for block in part.left_out.blocks for w in part.weights[block].sum(axis=1))
        assert_allclose(weights, np.sort(totals))


def test_where_not_every_group_can_have_a_row_some_groups_have_one():
    rows, y = blobs(n=90, K=3, seed=2)
    data = TrainingRows(RBF(), rows, y, np.ones(90), groups=np.arange(90) // 2)
    (group,) = group_grams(Workspace(data), one_vs_all(3), "loo")
    part = group.sample(0.2, 2, False)
    assert 10 < part.weights.size < 35
    assert part.left_out.single
    assert_allclose(part.weights, 2.0)


# The ridge of one gamma ------------------------------------------------------------------------------------


def test_the_ridge_goes_as_far_as_its_limits():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 2))
    exact = rows @ np.array([[1.0], [-2.0]])
    noise = random.normal(size=(60, 1))
    noise -= rows @ np.linalg.lstsq(rows, noise, rcond=None)[0]
    least, largest = RIDGE_LIMITS
    for targets, least_ridge, expected in (
        (exact, least, least),
        (exact, 3e-7, 3e-7),
        (noise, least, largest),
    ):
        samples = Samples(Linear(), [SampledGroup(Linear().base(rows), np.ones(60), targets)], least_ridge)
        scale = float(samples.path("loo", 1.0).bias_eigenvalues[0])
        ridge, cost = samples.best_ridge("loo", 1.0, np.ones((1, 1)), None)
        grid = scale * np.geomspace(least_ridge, largest, 60)
        assert_allclose(ridge / scale, expected, rtol=1e-6)
        assert_allclose(cost, costs_of(samples, "loo", 1.0, grid)[:, 0, 0].min() / 60, rtol=1e-6, atol=1e-13)


def test_a_ridge_inside_the_range_is_the_minimum():
    targets = 3.0 * np.eye(3)[Y] + TARGETS
    samples = Samples(RBF(), [SampledGroup(RBF().base(X), np.ones(24), targets)])
    mask = np.array([[1.0, 0.0, 1.0]])
    for criterion in ("loo", "gcv"):
        ridge, cost = samples.best_ridge(criterion, 0.1, mask, None)
        grid = np.geomspace(1e-5, 1e4, 500)
        assert 1e-4 < ridge < 1e3
        values = (costs_of(samples, criterion, 0.1, grid)[:, 0] @ mask[0]) / 48
        assert_allclose(np.log(ridge), np.log(grid[values.argmin()]), atol=0.25)
        reached = costs_of(samples, criterion, 0.1, [ridge])[0, 0] @ mask[0] / 48
        assert reached <= min(1.002 * values.min(), cost * (1 + 1e-9))
        fixed, of_fixed = samples.best_ridge(criterion, 0.1, mask, 0.37)
        assert fixed == 0.37
        assert_allclose(of_fixed, costs_of(samples, criterion, 0.1, [0.37])[0, 0] @ mask[0] / 48)
