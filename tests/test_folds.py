"""The dealing of rows into folds: what it must balance, and what it must not depend on."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from conftest import blobs
from polymargin.dealing import Deal
from polymargin.folds import fold_numbers, training_folds
from polymargin.kernels import Linear, Precomputed
from polymargin.machines import TrainingRows

X, Y = blobs(n=103, K=4, d=3, seed=5)
ORDER = np.random.default_rng(0).permutation(103)


def numbers(X, y, n_folds=5, *, stratified=True, **options):
    """Return the fold of every row."""
    deal = Deal.of(X, y, **options)
    folds = deal.stratified_folds(n_folds) if stratified else deal.folds(n_folds)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(y.size))
    return fold_numbers(folds)


@pytest.mark.parametrize("n_folds", [2, 3, 5, 10])
def test_every_fold_has_its_share_of_every_class(n_folds):
    number = numbers(X, Y, n_folds)
    for k in range(4):
        assert np.ptp(np.bincount(number[k == Y], minlength=n_folds)) <= 1
    assert np.ptp(np.bincount(number, minlength=n_folds)) <= 1


def test_every_fold_has_its_share_of_every_cell():
    rng = np.random.default_rng(1)
    cells, y = rng.integers(0, 6, 600), rng.integers(0, 2, 600)
    number = numbers(np.eye(6)[cells], y, 5)
    for cell in range(6):
        for k in range(2):
            # A cell covers some whole runs of five rows and part of one at either end.
            assert np.ptp(np.bincount(number[(cells == cell) & (y == k)], minlength=5)) <= 2


def test_the_seed_decides_and_no_seed_is_seed_zero():
    assert_array_equal(numbers(X, Y), numbers(X, Y, random_state=0))
    assert_array_equal(numbers(X, Y), numbers(X, Y, random_state=np.random.RandomState(0)))
    others = [numbers(X[:, :1], Y, random_state=seed) for seed in range(1, 11)]
    together = [(number[:, None] == number).mean() for number in others]
    assert len({number.tobytes() for number in others}) == 10
    # Two rows share a fold about as often as chance has it, and not the same two with every seed.
    np.testing.assert_allclose(together, 0.2, atol=0.02)
    assert (
        np.mean([number[:, None] == number for number in others], axis=0)[~np.eye(103, dtype=bool)].max() < 1
    )


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda X: X * 1e-120,
        lambda X: X * 2.54,
        lambda X: X * (1.0 + 1e-9 * np.random.default_rng(3).normal(size=X.shape)),
        lambda X: X + 1e-9 * np.random.default_rng(3).normal(size=X.shape),
        lambda X: sparse.csr_matrix(X),
    ],
    ids=["tiny", "inches", "relative noise", "absolute noise", "sparse"],
)
@pytest.mark.parametrize("discrete", [False, True])
def test_folds_do_not_depend_on_units_noise_or_storage(change, discrete, stratified):
    # The ties keep equal rows from being exchanged, which would do no harm but could be seen here.
    rows, ties = (X.round() if discrete else X), np.random.default_rng(4).permutation(103)
    expected = numbers(rows[ORDER], Y[ORDER], ties=[ties[ORDER]], stratified=stratified)
    assert_array_equal(numbers(change(rows), Y, ties=[ties], stratified=stratified)[ORDER], expected)


def centred(K):
    return K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()


@pytest.mark.parametrize("given", ["rows", "Gram matrix", "centred Gram matrix"])
def test_folds_do_not_depend_on_the_order_of_rows_or_the_names_of_classes(given):
    names = np.array([2, 0, 3, 1])
    if given == "rows":
        expected, again = numbers(X, Y), numbers(X[ORDER], names[Y][ORDER])
    else:
        K = rbf_kernel(X, gamma=0.3)
        K = centred(K) if given.startswith("centred") else K
        expected = numbers(K, Y, precomputed=True)
        again = numbers(1e9 * K[np.ix_(ORDER, ORDER)], names[Y][ORDER], precomputed=True)
        assert len({numbers(K, Y, precomputed=True, random_state=seed).tobytes() for seed in range(5)}) == 5
    assert_array_equal(again, expected[ORDER])


@pytest.mark.parametrize("stratified", [True, False])
def test_classes_of_one_mean_may_change_names(stratified):
    # Both classes are symmetric around zero: which comes first must not be left to rounding.
    rng = np.random.default_rng(1)
    half = rng.normal(size=(30, 2))
    rows, y = np.concatenate([half[:17], -half[:17], half[17:], -half[17:]]), np.repeat([0, 1], [34, 26])
    order = rng.permutation(60)
    expected = numbers(rows, y, 5, stratified=stratified)
    assert_array_equal(numbers(rows[order], 1 - y[order], 5, stratified=stratified), expected[order])


def test_classes_of_one_size_may_change_names():
    y = np.repeat([0, 1, 2], 20)
    rows = np.random.default_rng(1).integers(0, 2, size=(60, 2)).astype(float)
    cells = rows @ [1, 2] + 4 * y
    tables = [
        np.histogram2d(cells, numbers(rows, np.array(names)[y]), bins=[np.arange(13), np.arange(6)])[0]
        for names in ([0, 1, 2], [2, 0, 1])
    ]
    assert_array_equal(*tables)


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together_and_folds_stay_even(seed):
    rng = np.random.default_rng(seed)
    groups, y = rng.integers(0, 60, 400), rng.choice(3, 400, p=[0.6, 0.3, 0.1])
    rows = rng.normal(size=(400, 2))
    number = numbers(rows, y, 5, groups=groups, random_state=seed)
    names, first, member = np.unique(groups, return_index=True, return_inverse=True)
    assert_array_equal(number[first][member], number)
    assert np.ptp(np.bincount(number[first], minlength=5)) <= 1
    order = rng.permutation(400)
    letters = rng.permutation(names.size)[member].astype(str)
    again = numbers(rows[order], y[order], 5, groups=letters[order], random_state=seed)
    assert_array_equal(again, number[order])


def test_groups_that_share_a_row_may_change_names():
    # The row with the smallest projection belongs to every group.
    rng = np.random.default_rng(0)
    groups, y = np.repeat(np.arange(20), 4), np.repeat([0, 1], 40)
    rows = rng.normal(size=(80, 2))
    rows[::4] = -40.0 * np.sign(np.random.RandomState(Deal.of(rows, y).seed).normal(size=2))
    number = numbers(rows, y, 5, groups=groups)
    assert_array_equal(numbers(rows, y, 5, groups=19 - groups), number)


def test_groups_of_one_class_each_are_dealt_like_rows():
    pairs = np.repeat(np.arange(103), 2)
    number = numbers(X[pairs], Y[pairs], 5, groups=pairs)
    for k in range(4):
        assert np.ptp(np.bincount(number[Y[pairs] == k], minlength=5)) <= 2
    # No fold stays empty, even if some group is larger than the others together.
    giant = np.where(np.arange(103) < 99, 0, np.arange(103))
    assert np.bincount(numbers(X, Y, 5, groups=giant), minlength=5).min() == 1


def test_training_rows_are_told_apart_by_weights_and_soft_labels():
    rng = np.random.default_rng(0)
    rows, weights = np.repeat([[0.0], [1.0]], 20, axis=0), rng.integers(1, 9, 40).astype(float)
    soft = rng.dirichlet([1.0, 1.0], 40)
    y, order = soft.argmax(axis=1), rng.permutation(40)

    def folds(which, kernel=Linear(), X=rows):  # noqa: B008
        data = TrainingRows(kernel, X, y[which], weights[which], soft[which])
        return fold_numbers(training_folds(data, 4, random_state=1))

    everyone = np.arange(40)
    assert_array_equal(folds(order, X=rows[order]), folds(everyone)[order])
    K = rows @ rows.T
    by_gram = folds(everyone, Precomputed(), K)
    assert_array_equal(folds(order, Precomputed(), K[np.ix_(order, order)]), by_gram[order])


def test_rows_that_are_dealt_keep_their_folds():
    data = TrainingRows(Linear(), X, Y, np.ones(103)).shuffled(3)
    expected = numbers(X, Y, 5, random_state=3)
    assert_array_equal(fold_numbers(training_folds(data, 5, random_state=4)), expected)
