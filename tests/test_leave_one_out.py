"""Selection by leave-one-out errors: the criteria against refits, their slopes, and what the search finds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import naive
from conftest import blobs
from polymargin._progress import Count
from polymargin.codebooks import minimal, one_vs_all, one_vs_one
from polymargin.kernels import RBF, Blend, Exponential, Kernel, Laplacian, Linear, Polynomial, Precomputed
from polymargin.machines import TrainingRows, Workspace, fit_lssvm_bank
from polymargin.machines._gram import group_grams
from polymargin.selection.leave_one_out import choose
from polymargin.selection.press import press
from polymargin.selection.samples import Samples
from polymargin.selection.settings import SearchSettings
from polymargin.solvers.leave_out import LeftOut

KERNELS: dict[str, tuple[Kernel, dict]] = {
    "rbf": (RBF(), {"kind": "rbf"}),
    "laplacian": (Laplacian(), {"kind": "laplacian"}),
    "exponential": (Exponential(), {"kind": "exponential"}),
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


def gram(name, gamma, rows=X):
    return naive.kernel_matrix(X=rows, Z=rows, gamma=gamma, **KERNELS[name][1])


# The kernels' slopes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(),
        Laplacian(),
        Exponential(),
        Blend(0.4, ratio=1.7),
        Polynomial(2, 0.7),
        Polynomial(3),
        Polynomial(1.5, 40.0),
    ],
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
        assert_allclose(value, naive.lssvm_press(gram(name, gamma), TARGETS, 1 / ridge, weights), rtol=1e-8)


def test_press_of_copies_is_that_of_the_rows_one_by_one():
    """A row that stands for several leaves one of them out: of copies the others stay."""
    kernel, copies = RBF(), WEIGHTS["whole"].astype(int)
    each = np.repeat(np.arange(24), copies)
    of_one = WEIGHTS["any"]
    together = press(kernel, kernel.base(X), of_one * copies, TARGETS, 0.3, 0.1, copies=copies.astype(float))
    apart = press(kernel, kernel.base(X[each]), of_one[each], TARGETS[each], 0.3, 0.1)
    expected = naive.lssvm_press(gram("rbf", 0.3, X[each]), TARGETS[each], 10.0, of_one[each])
    assert_allclose(together[0], expected, rtol=1e-8)
    assert_allclose(apart[0], expected, rtol=1e-8)
    assert_allclose(together[1], apart[1], rtol=1e-7)


GROUPS = {
    "of one": np.arange(24),
    "of several sizes": np.random.default_rng(3).integers(0, 9, 24),
    "pairs": np.arange(24) // 2,
    "two": np.arange(24) % 2,
}


@pytest.mark.parametrize("grouping", GROUPS)
@every_weighting
@every_kernel
def test_press_of_groups_and_its_slopes_are_those_of_refits(name, weighting, grouping):
    kernel, weights, groups, h = KERNELS[name][0], WEIGHTS[weighting], GROUPS[grouping], 1e-4

    def value(log_gamma, log_ridge):
        K = gram(name, np.exp(log_gamma))
        return naive.lssvm_press(K, TARGETS, np.exp(-log_ridge), weights, groups)

    u, v = np.log(0.25), np.log(0.3)
    found, slopes = press(
        kernel, kernel.base(X), weights, TARGETS, np.exp(u), np.exp(v), left_out=LeftOut.of(groups)
    )
    size = value(u, v).sum()
    assert_allclose(found, value(u, v), rtol=1e-8)
    of_gamma = (value(u + h, v) - value(u - h, v)).sum() / (2 * h)
    of_ridge = (value(u, v + h) - value(u, v - h)).sum() / (2 * h)
    assert_allclose(slopes / size, np.array([of_gamma, of_ridge]) / size, atol=1e-6)
    for more in ({"with_gamma": False},):
        less, some = press(
            kernel,
            kernel.base(X),
            weights,
            TARGETS,
            np.exp(u),
            np.exp(v),
            left_out=LeftOut.of(groups),
            **more,
        )
        assert_allclose(less, found, rtol=1e-12)
        assert some[0] == 0.0
        assert_allclose(some[1], slopes[1] if "with_gamma" in more else 0.0, rtol=1e-12)


@every_weighting
@every_kernel
def test_the_slopes_of_press_are_its_derivatives(name, weighting):
    kernel, weights, h = KERNELS[name][0], WEIGHTS[weighting], 1e-4

    def value(log_gamma, log_ridge):
        return naive.lssvm_press(gram(name, np.exp(log_gamma)), TARGETS, np.exp(-log_ridge), weights)

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


# The search ------------------------------------------------------------------------------------------------


def problem(kernel, seed=0, n=60, K=3, book=None, weights=None, criterion="loo", groups=None):
    """Groups, one pool of all columns, and the natural gamma."""
    rows, y = blobs(n=n, K=K, seed=seed, shift=1.0)
    weights = np.ones(n) if weights is None else weights
    data = TrainingRows(kernel, rows, y, weights, groups=groups)
    groups = group_grams(Workspace(data), one_vs_one(K) if book is None else book, criterion)
    pool = [(number, np.arange(group.columns.size)) for number, group in enumerate(groups)]
    return groups, pool, kernel.unit_gamma(rows, weights)


def cost_of(groups, pool, criterion, gamma, ridges):
    """The criterion of a pool per unit of weight and column, from all rows, by `Samples` (tested by themselves)."""
    samples = Samples(groups[0].kernel, [group.sample(1.0, 1, by_features=False) for group in groups])
    costs = np.array(
        [samples.path(criterion, gamma, float(ridge)).costs[0] for ridge in np.atleast_1d(ridges)]
    )
    weight = sum(samples.totals[number] * columns.size for number, columns in pool)
    return sum(costs[:, number, columns].sum(axis=1) for number, columns in pool) / weight


def least_of_ridges(groups, pool, criterion, gamma):
    samples = Samples(groups[0].kernel, [group.sample(1.0, 1, by_features=False) for group in groups])
    mask = np.zeros((len(groups), samples.n_columns))
    for number, columns in pool:
        mask[number, columns] = 1.0
    return samples.best_ridge(criterion, gamma, mask, None)[1]


def grid_optimum(groups, pool, criterion, unit, last=6.0):
    """The least value on a fine grid, between the limits of the search."""
    octaves = np.arange(-12, last + 0.5, 0.5)
    return min(least_of_ridges(groups, pool, criterion, unit * 2.0**octave) for octave in octaves)


#: What is chosen is not rounded, all rows are looked at, and the polish goes on to the minimum.
EXACT = SearchSettings(per_octave=10**7, operations=np.inf, converged=1e-7)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "exponential", "poly"])
def test_the_search_finds_the_optimum_of_a_grid(name, seed):
    groups, pool, unit = problem(KERNELS[name][0], seed=seed)
    (choice,) = choose(groups, [pool], criterion="loo", unit=unit, gamma=None, ridge=None)
    reached = cost_of(groups, pool, "loo", choice.gamma, choice.ridge)[0]
    assert reached <= 1.01 * grid_optimum(groups, pool, "loo", unit)


@pytest.mark.parametrize("book", [one_vs_all(3), one_vs_one(3), minimal(3)])
def test_the_search_for_gcv_finds_the_optimum_of_a_grid(book):
    groups, pool, unit = problem(RBF(), book=book, criterion="gcv")
    (choice,) = choose(groups, [pool], criterion="gcv", unit=unit, gamma=None, ridge=None)
    reached = cost_of(groups, pool, "gcv", choice.gamma, choice.ridge)[0]
    # Where rows hardly know each other any more, GCV has spikes half an octave wide, of no interest.
    assert reached <= 1.02 * grid_optimum(groups, pool, "gcv", unit, last=3.5)


def test_steps_down_the_gradient_lower_the_criterion():
    gains = []
    for seed in range(4):
        groups, pool, unit = problem(RBF(), seed=seed)
        values = []
        for steps in (0, 12):
            settings = SearchSettings(
                steps=max(steps, 1), converged=1e-5 if steps else np.inf, per_octave=10**7
            )
            (choice,) = choose(
                groups, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=settings
            )
            values.append(cost_of(groups, pool, "loo", choice.gamma, choice.ridge)[0])
        gains.append(1.0 - values[1] / values[0])
    assert min(gains) >= -1e-9
    assert max(gains) > 1e-4


@pytest.mark.parametrize("weighted", [False, True])
def test_the_search_on_all_rows_ends_at_the_minimum_of_press(weighted):
    weights = np.random.default_rng(4).integers(1, 4, 120).astype(float) if weighted else None
    groups, pool, unit = problem(RBF(), seed=2, n=120, weights=weights)
    few = SearchSettings(operations=1.0, relative=0.0, least_rows=15, per_octave=10**7)
    (some,) = choose(groups, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=few)
    (exact,) = choose(groups, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=EXACT)
    reached = cost_of(groups, pool, "loo", exact.gamma, exact.ridge)[0]
    assert_allclose(-exact.score, reached, rtol=1e-6)
    assert reached < cost_of(groups, pool, "loo", some.gamma, some.ridge)[0]
    for gamma, ridge in ((1.1, 1.0), (1 / 1.1, 1.0), (1.0, 1.2), (1.0, 1 / 1.2)):
        assert cost_of(groups, pool, "loo", exact.gamma * gamma, exact.ridge * ridge)[0] > reached
    assert reached <= (1.0 + 1e-4) * grid_optimum(groups, pool, "loo", unit)


def test_the_search_with_groups_finds_the_minimum_of_refits():
    names = np.random.default_rng(4).integers(0, 20, 50)
    groups, pool, unit = problem(RBF(), seed=2, n=50, book=one_vs_all(3), groups=names)
    (group,) = groups
    (choice,) = choose(groups, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=EXACT)

    def value(gamma, ridge):
        K = naive.kernel_matrix("rbf", group.workspace.rows.X, group.workspace.rows.X, gamma=gamma)
        return naive.lssvm_press(K, group.targets, 1 / ridge, None, names).sum() / 150

    reached = value(choice.gamma, choice.ridge)
    assert_allclose(-choice.score, reached, rtol=1e-6)
    for gamma, ridge in ((1.3, 1.0), (1 / 1.3, 1.0), (1.0, 1.5), (1.0, 1 / 1.5)):
        assert value(choice.gamma * gamma, choice.ridge * ridge) > reached
    coarse = [value(unit * 2.0**octave, 10.0**power) for octave in range(-10, 4, 2) for power in range(-3, 3)]
    assert reached <= (1.0 + 1e-4) * min(coarse)


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_what_is_fixed_stays(criterion):
    groups, pool, unit = problem(RBF())
    more = {"criterion": criterion, "unit": unit}
    (choice,) = choose(groups, [pool], gamma=None, ridge=0.7, **more)
    assert choice.ridge == 0.7
    best = min(cost_of(groups, pool, criterion, unit * 2.0**p, 0.7)[0] for p in np.arange(-10, 6, 0.25))
    assert (
        cost_of(groups, pool, criterion, choice.gamma, 0.7)[0]
        <= (1.001 if criterion == "loo" else 1.05) * best
    )
    (choice,) = choose(groups, [pool], gamma=0.123, ridge=None, **more)
    assert choice.gamma == 0.123
    best = cost_of(groups, pool, criterion, 0.123, np.geomspace(1e-5, 1e4, 200)).min()
    assert cost_of(groups, pool, criterion, 0.123, choice.ridge)[0] <= 1.005 * best
    (choice,) = choose(groups, [pool], gamma=0.123, ridge=0.7, **more)
    assert (choice.gamma, choice.ridge) == (0.123, 0.7)
    assert_allclose(-choice.score, cost_of(groups, pool, criterion, 0.123, 0.7)[0], rtol=1e-6)


@pytest.mark.parametrize("book", [one_vs_one(3), one_vs_all(3)])
def test_pools_are_searched_apart(book):
    groups, pool, unit = problem(RBF(), seed=4, book=book)
    pools = [[(number, columns[[place]])] for number, columns in pool for place in range(columns.size)]
    together = choose(groups, pools, criterion="loo", unit=unit, gamma=None, ridge=None)
    assert len(together) == 3
    assert len({choice.gamma for choice in together}) > 1
    for choice, own in zip(together, pools, strict=True):
        (alone,) = choose(groups, [own], criterion="loo", unit=unit, gamma=None, ridge=None)
        assert (choice.gamma, choice.ridge) == (alone.gamma, alone.ridge)
        reached = cost_of(groups, own, "loo", choice.gamma, choice.ridge)[0]
        assert reached <= 1.02 * grid_optimum(groups, own, "loo", unit)


def test_a_kernel_without_gamma_has_its_ridge_chosen():
    rows, y = blobs(n=50, K=3, seed=4)
    data = TrainingRows(Linear(), rows, y, np.ones(50))
    bank = fit_lssvm_bank(data, one_vs_one(3), C=None, gamma=None, selection="loo", pools=[np.arange(3)])
    assert_array_equal(bank.gamma, 1.0)
    assert np.unique(bank.C).size == 1
    groups = group_grams(Workspace(data), one_vs_one(3), "loo")
    pool = [(number, np.array([0])) for number in range(3)]
    values = cost_of(groups, pool, "loo", 1.0, np.geomspace(1e-5, 1e4, 300))
    assert cost_of(groups, pool, "loo", 1.0, 1 / bank.C[0])[0] <= 1.005 * values.min()


# Settings --------------------------------------------------------------------------------------------------


def test_what_is_chosen_is_rounded_to_a_fraction_of_an_octave():
    groups, pool, unit = problem(RBF(), seed=1)
    for per_octave in (1, 8):
        settings = SearchSettings(per_octave=per_octave)
        (choice,) = choose(
            groups,
            [pool],
            criterion="loo",
            unit=unit,
            gamma=None,
            ridge=None,
            unit_ridge=0.3,
            settings=settings,
        )
        steps = per_octave * np.log2([choice.gamma / unit, choice.ridge / 0.3])
        assert_allclose(steps, steps.round(), atol=1e-9)


def test_a_lattice_of_one_octave_is_where_the_search_starts_and_stays_without_polish():
    groups, pool, unit = problem(RBF(), seed=1)
    for octave in (-3, 2):
        settings = SearchSettings(octaves=(octave,))
        (choice,) = choose(
            groups, [pool], criterion="gcv", unit=unit, gamma=None, ridge=None, settings=settings
        )
        assert_allclose(choice.gamma, unit * 2.0**octave)


def test_a_lattice_whose_best_point_is_on_an_edge_is_extended_up_to_its_limit():
    groups, pool, unit = problem(RBF(), seed=1)
    wide = choose(groups, [pool], criterion="gcv", unit=unit, gamma=None, ridge=None)[0]
    narrow, limited = (
        choose(groups, [pool], criterion="gcv", unit=unit, gamma=None, ridge=None, settings=settings)[0]
        for settings in (SearchSettings(octaves=(4, 6)), SearchSettings(octaves=(4, 6), furthest_octave=4))
    )
    assert_allclose(np.log2(narrow.gamma / wide.gamma), 0.0, atol=0.5)
    assert limited.gamma >= unit * 2.0**3.0


def test_a_tiny_budget_looks_at_few_rows_of_every_class():
    groups, pool, unit = problem(RBF(), seed=1, n=300, K=3)
    sizes = []

    class Watched:
        """A group of rows that tells how many of them are looked at."""

        def __init__(self, group):
            self.group = group

        def __getattr__(self, name):
            return getattr(self.group, name)

        def sample(self, *args):
            part = self.group.sample(*args)
            sizes.append(part.weights.size)
            return part

    watched = [Watched(group) for group in groups]
    settings = SearchSettings(operations=1.0, relative=0.0, least_rows=7)
    choose(watched, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=settings)
    assert set(sizes) == {14}  # seven rows of each of the two classes
    sizes.clear()
    choose(watched, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=EXACT)
    assert set(sizes) <= {group.rows.size for group in groups}


@pytest.mark.parametrize(
    "settings", [SearchSettings(octaves=(0,)), SearchSettings(operations=1e4, relative=0.0)]
)
def test_every_kernel_that_is_counted_is_done(settings):
    groups, pool, unit = problem(RBF(), seed=1)
    count = Count(None, "")
    choose(groups, [pool], criterion="loo", unit=unit, gamma=None, ridge=None, settings=settings, count=count)
    assert count.done == count.total > 1


# Invariances -----------------------------------------------------------------------------------------------


def parameters(rows, y, weights, **more):
    """C and gamma of one-vs-one machines."""
    data = TrainingRows(more.pop("kernel", RBF()), rows, y, weights, groups=more.pop("groups", None))
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
    assert_allclose(found, expected, atol=1e-12)


def test_the_order_of_the_rows_of_a_sample_does_not_matter():
    rows, y = blobs(n=400, K=3, seed=5, shift=1.0)
    order = np.random.default_rng(1).permutation(400)
    settings = SearchSettings(operations=1e6, relative=0.0)
    expected = parameters(rows, y, np.ones(400), selection="loo", settings=settings)
    found = parameters(rows[order], y[order], np.ones(400), selection="loo", settings=settings)
    assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("selection", ["loo", "gcv"])
def test_weights_times_c_divide_C_by_c(selection):
    rows, y = blobs(n=60, K=3, seed=6, shift=1.0)
    weights = np.random.default_rng(2).uniform(0.5, 3.0, 60)
    settings = SearchSettings(converged=1e-8, steps=50)
    expected = parameters(rows, y, weights, selection=selection, settings=settings)
    found = parameters(rows, y, 8.0 * weights, selection=selection, settings=settings)
    # The path of ridges begins elsewhere: within two steps of what the parameters are rounded to.
    assert_allclose(found, expected - [np.log(8.0), 0.0], atol=2.01 * np.log(2.0) / 8)


def test_equal_rows_are_left_out_one_by_one():
    """Copies that nobody calls a group are independent observations: C is larger than where they are groups."""
    rows, y = blobs(n=40, K=2, seed=6, shift=1.0)
    copies = np.repeat(np.arange(40), 3)
    ones = np.ones(120)
    alone = parameters(rows, y, np.ones(40), selection="loo")
    apart = parameters(rows[copies], y[copies], ones, selection="loo")
    together = parameters(rows[copies], y[copies], ones, selection="loo", groups=copies)
    assert_allclose(together, alone - [np.log(3.0), 0.0], atol=1.01 * np.log(2.0) / 8)
    assert apart[0] > together[0] + 1.0
