"""The dealing of rows into folds: what it must balance, and what it must not depend on."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from conftest import blobs
from polymargin.kernels import Linear, Precomputed
from polymargin.machines import TrainingRows
from polymargin.selection.folds import deal, fold_numbers, training_folds

X, Y = blobs(n=103, K=4, d=3, seed=5)
ORDER = np.random.default_rng(0).permutation(103)


def numbers(*args, **options):
    """Return the fold of every row."""
    folds = deal(*args, **options)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(len(args[1])))
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


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X * 1e-120,
        lambda X: X * 2.54,
        lambda X: X * (1.0 + 1e-9 * np.random.default_rng(3).normal(size=X.shape)),
        lambda X: X + 1e-9 * np.random.default_rng(3).normal(size=X.shape),
        lambda X: sparse.csr_matrix(X),
        lambda X: X.tolist(),
    ],
    ids=["tiny", "inches", "relative noise", "absolute noise", "sparse", "list"],
)
@pytest.mark.parametrize("discrete", [False, True])
def test_folds_do_not_depend_on_units_noise_or_storage(change, discrete):
    # The ties keep equal rows from being exchanged, which would do no harm but could be seen here.
    rows, ties = (X.round() if discrete else X), np.random.default_rng(4).permutation(103)
    expected = numbers(rows[ORDER], Y[ORDER], ties=[ties[ORDER]])
    assert_array_equal(numbers(change(rows), Y, ties=[ties])[ORDER], expected)


@pytest.mark.parametrize("given", ["rows", "Gram matrix"])
def test_folds_do_not_depend_on_the_order_of_rows_or_the_names_of_classes(given):
    names = np.array([2, 0, 3, 1])
    if given == "rows":
        expected, again = numbers(X, Y), numbers(X[ORDER], names[Y][ORDER])
    else:
        K = rbf_kernel(X, gamma=0.3)
        expected = numbers(K, Y, precomputed=True)
        again = numbers(1e9 * K[np.ix_(ORDER, ORDER)], names[Y][ORDER], precomputed=True)
        assert len({numbers(K, Y, precomputed=True, random_state=seed).tobytes() for seed in range(5)}) == 5
    assert_array_equal(again, expected[ORDER])


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
    for group in np.unique(groups):
        assert np.unique(number[groups == group]).size == 1
    shares = np.array([np.bincount(number[y == k], minlength=5) / (y == k).sum() for k in range(3)])
    assert np.abs(shares - 0.2).max() < 0.06
    order = rng.permutation(400)
    letters = rng.permutation(np.unique(groups).size)[np.unique(groups, return_inverse=True)[1]].astype(str)
    again = numbers(rows[order], y[order], 5, groups=letters[order], random_state=seed)
    assert_array_equal(again, number[order])


def test_groups_of_one_class_each_are_dealt_like_rows():
    pairs = np.repeat(np.arange(103), 2)
    number = numbers(X[pairs], Y[pairs], 5, groups=pairs)
    assert np.bincount(number, minlength=5).min() > 0
    for k in range(4):
        assert np.ptp(np.bincount(number[Y[pairs] == k], minlength=5)) <= 2
    # No fold stays empty, even if some group is larger than the others together.
    giant = np.where(np.arange(103) < 99, 0, np.arange(103))
    assert np.bincount(numbers(X, Y, 5, groups=giant), minlength=5).min() == 1


def test_what_cannot_be_dealt_is_refused():
    with pytest.raises(ValueError, match="n_folds must be a whole number of at least 2"):
        deal(X, Y, 1)
    with pytest.raises(ValueError, match="one row for each of the 103 classes"):
        deal(X[:5], Y)
    with pytest.raises(ValueError, match="groups must have one entry for each"):
        deal(X, Y, groups=[0, 1])
    with pytest.raises(ValueError, match="5 folds need as many groups; there are only 2"):
        deal(X, Y, groups=np.arange(103) % 2)


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
