"""Rows dealt into folds and samples: at random, in the same way whatever does not matter, groups together."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from conftest import blobs
from polymargin.dealing import Deal
from polymargin.kernels import RBF
from polymargin.machines import TrainingRows

X, Y = blobs(n=120, K=4, seed=0)
GROUPS = np.random.default_rng(1).integers(0, 45, 120)


def dealt(X=X, y=Y, **more):
    """The folds and a sample, as numbers of the rows."""
    deal = Deal.of(X, y, **more)
    return deal.fold_numbers(5), deal.sample(0.3, 4)


# What does not matter --------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, GROUPS])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_rows_does_not_matter(groups, seed):
    order = np.random.default_rng(seed).permutation(120)
    numbers, sample = dealt(groups=groups)
    other = None if groups is None else groups[order]
    found, drawn = dealt(X[order], Y[order], groups=other)
    assert_array_equal(found, numbers[order])
    assert_array_equal(np.sort(order[drawn]), sample)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: 1e9 * X,
        lambda X: 1e-9 * X,
        lambda X: X * [1.0, 1000.0, 1e-3],
        lambda X: X + np.array([5.0, -30.0, 1e3]),
        lambda X: X * (1.0 + 1e-13 * np.random.default_rng(0).normal(size=X.shape)),
        lambda X: np.column_stack([X, np.full(len(X), 3.0)]),
        sparse.csr_matrix,
    ],
    ids=["large", "small", "units", "offsets", "last digits", "constant", "sparse"],
)
def test_units_offsets_and_last_digits_do_not_matter(change):
    numbers, sample = dealt()
    found, drawn = dealt(change(X))
    assert_array_equal(found, numbers)
    assert_array_equal(drawn, sample)


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_the_names_of_the_classes_and_of_the_groups_do_not_matter(groups):
    names = np.array([2, 0, 3, 1])
    numbers, sample = dealt(groups=groups)
    other = None if groups is None else 1000 - 7 * groups
    found, drawn = dealt(y=names[Y], groups=other)
    assert_array_equal(found, numbers)
    assert_array_equal(drawn, sample)


def test_the_rows_of_a_gram_matrix_are_dealt_whatever_their_order():
    K = RBF().gram(X, gamma=0.2)
    order = np.random.default_rng(0).permutation(120)
    numbers, sample = dealt(K, precomputed=True)
    found, drawn = dealt(K[np.ix_(order, order)], Y[order], precomputed=True)
    assert_array_equal(found, numbers[order])
    assert_array_equal(np.sort(order[drawn]), sample)
    # Another unit and a scale of the kernel do not matter either.
    assert_array_equal(dealt(1e6 * K, precomputed=True)[0], numbers)


def test_the_random_state_matters():
    assert_array_equal(dealt()[0], dealt(random_state=0)[0])
    assert (dealt(random_state=1)[0] != dealt(random_state=0)[0]).mean() > 0.5
    state = np.random.RandomState(5)
    first, second = dealt(random_state=state)[0], dealt(random_state=state)[0]
    assert (first != second).mean() > 0.5
    assert_array_equal(first, dealt(random_state=np.random.RandomState(5))[0])


def test_a_sorted_table_does_no_harm():
    """Neither folds nor samples follow the order of the rows along a line."""
    line = np.linspace(0.0, 1.0, 400)[:, None]
    deal = Deal.of(line, np.zeros(400, dtype=int))
    for fold in deal.folds(5):
        assert abs(line[fold].mean() - 0.5) < 0.15
        assert np.diff(fold).max() > 5
        assert np.unique(np.diff(fold)).size > 3
    assert abs(line[deal.sample(0.25)].mean() - 0.5) < 0.15


# Folds -----------------------------------------------------------------------------------------------------


def test_folds_are_a_division_of_all_rows():
    deal = Deal.of(X, Y)
    folds = deal.folds(5)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(120))
    assert {fold.size for fold in folds} == {24}
    for number, fold in enumerate(folds):
        assert_array_equal(np.flatnonzero(deal.fold_numbers(5) == number), fold)


def test_the_frequencies_of_large_classes_differ_from_fold_to_fold():
    """As those of independent rows do; folds of equal frequencies would say that these are known exactly."""
    y = np.repeat([0, 1], [300, 300])
    rows = np.random.default_rng(0).normal(size=(600, 2))
    spreads = []
    for seed in range(30):
        numbers = Deal.of(rows, y, random_state=seed).fold_numbers(5)
        spreads.append(np.var(np.bincount(numbers[y == 0], minlength=5)))
    # Hypergeometric: 120 of 600 rows, half of them of the class.
    assert_allclose(np.mean(spreads), 120 * 0.25 * 480 / 599, rtol=0.4)


@pytest.mark.parametrize("size", range(2, 10))
def test_no_fold_has_all_rows_of_a_small_class(size):
    y = np.r_[np.zeros(60, dtype=int), np.ones(size, dtype=int), np.full(30, 2)]
    rows = np.random.default_rng(0).normal(size=(y.size, 2))
    for seed in range(20):
        counts = np.bincount(Deal.of(rows, y, random_state=seed).fold_numbers(5)[y == 1], minlength=5)
        assert counts.max() <= -(-size // 5)


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_no_fold_has_all_rows_of_any_class(n_folds):
    """Else the rows of the fold have no decoder that knows the class."""
    for size in range(2, 13):
        for n in range(20, 60):
            y = np.repeat([0, 1, 2], [n, n, size])
            numbers = Deal.of(np.random.default_rng(n).normal(size=(y.size, 2)), y).fold_numbers(n_folds)
            assert np.unique(numbers[y == 2]).size > 1, (size, n)


def test_rows_of_a_group_share_their_fold():
    numbers = Deal.of(X, Y, groups=GROUPS).fold_numbers(5)
    for name in np.unique(GROUPS):
        assert np.unique(numbers[name == GROUPS]).size == 1
    sizes = np.bincount([numbers[name == GROUPS][0] for name in np.unique(GROUPS)])
    assert np.ptp(sizes) <= 1


def test_equal_rows_are_dealt_like_any_others():
    rows, y = np.repeat(X[:10], 12, axis=0), np.zeros(120, dtype=int)
    numbers = Deal.of(rows, y).fold_numbers(5)
    assert_array_equal(np.bincount(numbers), 24)
    assert all(np.unique(numbers[12 * k : 12 * k + 12]).size >= 3 for k in range(10))


def test_one_row_of_every_class():
    numbers = Deal.of(np.arange(4.0)[:, None], np.arange(4)).fold_numbers(5)
    assert np.unique(numbers).size == 4


# Samples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_samples_are_nested_and_keep_the_shares(groups):
    y = (
        Y
        if groups is None
        else Y[np.unique(groups, return_index=True)[1]][np.unique(groups, return_inverse=True)[1]]
    )
    deal = Deal.of(X, y, groups=groups)
    before = np.array([], dtype=int)
    for share in (0.01, 0.1, 0.3, 0.31, 0.7, 1.0):
        sample = deal.sample(share)
        assert_array_equal(sample, np.sort(sample))
        assert set(before) <= set(sample)
        before = sample
        for k in range(4):
            units = np.arange(120) if groups is None else groups
            of_class, drawn = np.unique(units[y == k]).size, np.unique(units[sample][y[sample] == k]).size
            assert drawn == np.ceil(share * of_class)
        if groups is not None:
            assert set(groups[sample]).isdisjoint(np.delete(groups, sample))
    assert_array_equal(before, np.arange(120))


def test_a_sample_has_the_least_number_of_every_class():
    y = np.repeat(np.arange(4), [2000, 597, 5, 1])
    rows = np.random.default_rng(0).normal(size=(y.size, 3))
    for share, least in ((0.001, 20), (0.02, 20), (0.5, 1)):
        counts = np.bincount(y[Deal.of(rows, y).sample(share, least)])
        expected = [min(max(np.ceil(share * n), least), n) for n in (2000, 597, 5, 1)]
        assert_array_equal(counts, expected)


def test_what_is_taken_of_a_deal_keeps_its_order():
    deal = Deal.of(X, Y)
    sample = deal.sample(0.5)
    part = deal.take(sample)
    for share in (0.2, 0.5):
        assert set(sample[part.sample(share)]) <= set(sample)
        assert set(sample[part.sample(0.2)]) <= set(deal.sample(0.2))
    assert_array_equal(np.sort(np.concatenate(part.folds(4))), np.arange(sample.size))


# Training rows ---------------------------------------------------------------------------------------------


def test_training_rows_that_are_taken_keep_all_they_have():
    weights = np.random.default_rng(0).uniform(size=120)
    soft = np.random.default_rng(1).dirichlet(np.ones(4), 120)
    data = TrainingRows(RBF(), X, Y, weights, soft, GROUPS)
    rows = np.array([5, 3, 100])
    part = data.take(rows)
    for field in ("X", "class_index", "weights", "soft_labels", "groups"):
        assert_array_equal(getattr(part, field), getattr(data, field)[rows])
    assert_array_equal(part.deal.place, data.deal.place[rows])


def test_effective_weights_sum_to_the_number_of_independent_rows():
    """Kish: the number of equally weighted observations whose mean would have the same variance."""
    random = np.random.default_rng(0)
    weights = random.uniform(0.1, 4.0, 120)
    ones = np.ones(120)
    assert_allclose(TrainingRows(RBF(), X, Y, ones).effective_weights, 1.0)
    assert_allclose(TrainingRows(RBF(), X, Y, 0.01 * ones).effective_weights, 1.0)
    data = TrainingRows(RBF(), X, Y, weights)
    found = data.effective_weights
    assert_allclose(found / weights, found[0] / weights[0])
    shares = weights / weights.sum()
    assert_allclose(
        found.sum(), 1.0 / sum(share**2 for share in shares)
    )  # 1 over the variance of the mean of N(0, 1)
    assert_allclose(TrainingRows(RBF(), X, Y, 7.0 * weights).effective_weights, found)
    groups = TrainingRows(RBF(), X, Y, weights, groups=GROUPS).effective_weights
    totals = [weights[name == GROUPS].sum() for name in np.unique(GROUPS)]
    assert_allclose(groups.sum(), sum(totals) ** 2 / sum(total**2 for total in totals))
    # Copies in groups are worth what the rows are worth, weighted by how often they are copied.
    each = np.repeat(np.arange(120), 3)
    copied = TrainingRows(RBF(), X[each], Y[each], weights[each], groups=each).effective_weights
    assert_allclose(np.bincount(each, copied), found)
    assert TrainingRows(RBF(), X, Y, np.r_[1e9, np.ones(119)]).effective_weights.sum() == pytest.approx(
        1.0, rel=1e-6
    )


def test_rows_of_different_weight_or_in_groups_are_not_merged():
    rows, y = np.repeat(X[:5], 4, axis=0), np.repeat(Y[:5], 4)
    weights = np.tile([1.0, 1.0, 2.0, 2.0], 5)
    assert TrainingRows(RBF(), rows, y, np.ones(20)).distinct().first.size == 5
    assert TrainingRows(RBF(), rows, y, weights).distinct().first.size == 10
    assert TrainingRows(RBF(), rows, y, np.ones(20), groups=np.arange(20) // 2).distinct().first.size == 20
    soft = np.tile(np.array([[0.5, 0.5], [0.5, 0.5], [0.6, 0.4], [0.6, 0.4]]), (5, 1))
    assert TrainingRows(RBF(), rows, np.zeros(20, dtype=int), np.ones(20), soft).distinct().first.size == 10
