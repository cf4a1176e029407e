"""Which rows `find_copies` takes for copies: copied tables, near-copies, and tables whose rows coincide by chance."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris

from conftest import blobs
from polymargin.estimators._copies import find_copies
from tables_of_cells import led7, titanic, two_columns

X, Y = blobs(n=150, K=3, d=4, seed=0)


def same_division(one, other):
    """Whether two lists of names divide the rows in the same way."""
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))


def found(X, y):
    with pytest.warns(UserWarning, match="pass groups=np.arange"):
        groups = find_copies(X, y)
    assert groups.shape == (len(y),)
    return groups


def found_none(X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_copies(X, y) is None


def copied(times, noise=0.0, seed=0, X=X, y=Y):
    rng = np.random.default_rng(seed)
    number = rng.permutation(np.repeat(np.arange(y.size), times))
    return X[number] + noise * X.std(axis=0) * rng.normal(size=(number.size, X.shape[1])), y[number], number


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("times", [2, 5])
def test_every_row_several_times(times, noise):
    rows, y, number = copied(times, noise)
    groups = found(rows, y)
    if noise < 1e-3:
        assert same_division(groups, number)
        return
    # Of near-copies a few may be missed, or taken together.
    assert abs(np.unique(groups).size - 150) <= 15
    pairs = [np.unique(groups[number == k]).size == 1 for k in range(150)]
    assert np.mean(pairs) > 0.9


def test_the_warning_says_how_many():
    rows, y, _ = copied(2)
    with pytest.warns(UserWarning, match="150 of 300 rows are copies of other rows"):
        find_copies(rows, y)
    rows, y, _ = copied(2, 1e-6)
    with pytest.warns(UserWarning, match="150 of 300 rows are copies, or nearly copies, of other rows"):
        find_copies(rows, y)


def test_some_rows_twice():
    """Copies of a tenth of the rows are found; copies of one in a hundred are not worth a warning."""
    tenth = np.r_[np.arange(150), np.arange(15)]
    assert same_division(found(X[tenth], Y[tenth]), tenth)
    few = np.r_[np.arange(150), [0]]
    found_none(X[few], Y[few])


def test_copies_with_other_labels_are_observations():
    rows, _, _ = copied(2)
    found_none(rows, np.random.default_rng(0).integers(0, 3, 300))


def test_the_order_of_the_rows_does_not_matter():
    for noise in (0.0, 1e-6):
        rows, y, number = copied(3, noise)
        order = np.random.default_rng(1).permutation(y.size)
        assert same_division(found(rows[order], y[order]), number[order])


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_unit_does_not_matter(scale):
    for noise in (0.0, 1e-6):
        rows, y, number = copied(2, noise)
        assert same_division(found(scale * rows, y), number)


def test_sparse_rows():
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((150, 30)) < 0.2, rng.normal(size=(150, 30)), 0.0)
    dense[:, 0] = 1.0 + np.arange(150)
    number = rng.permutation(np.repeat(np.arange(150), 2))
    groups = found(sparse.csr_matrix(dense[number]), Y[number])
    assert same_division(groups, number)
    assert_array_equal(np.unique(groups), np.unique(found(dense[number], Y[number])))
    found_none(sparse.csr_matrix(dense), Y)


# Coincidences ----------------------------------------------------------------------------------------------


def sample_of(table, n, seed=0):
    cell, y = table.draw(n, seed=seed)
    return table.X[cell], y


def survived(n, seed=0):
    """Class, sex and age as in Titanic, of whom nobody but children and women of two classes is saved."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.integers(1, 4, n), rng.integers(0, 2, n), rng.random(n) < 0.1]).astype(float)
    return rows, ((rows[:, 1] == 1) & (rows[:, 0] < 3) | (rows[:, 2] == 1)).astype(int)


def counts(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.poisson(2.0 + 2.0 * y[:, None], (n, 3)).astype(float), y


def one_column(n, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 40, (n, 1)).astype(float)
    return rows, (rows[:, 0] > 20).astype(int)


def votes(n, seed=0):
    """Many yes and no columns that go together: whole rows coincide, and so do rows but for one column."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return (rng.random((n, 16)) < np.where(y[:, None] == 1, 0.93, 0.07)).astype(float), y


BY_CHANCE = {
    "16 cells, one-hot": lambda seed: sample_of(two_columns(True), 800, seed),
    "16 cells, integers": lambda seed: sample_of(two_columns(False), 800, seed),
    "led7": lambda seed: sample_of(led7(), 1000, seed),
    "Titanic": lambda seed: sample_of(titanic(), 1000, seed),
    "Titanic, without noise": lambda seed: survived(1000, seed),
    "small counts": lambda seed: counts(400, seed),
    "one column of integers": lambda seed: one_column(400, seed),
    "votes": lambda seed: votes(400, seed),
    "continuous": lambda seed: blobs(n=300, K=3, d=2, seed=seed),
    "one continuous column": lambda seed: blobs(n=300, K=3, d=1, seed=seed),
    "rounded": lambda seed: (
        np.round(blobs(n=300, K=3, d=2, seed=seed)[0], 1),
        blobs(n=300, K=3, d=2, seed=seed)[1],
    ),
    "two columns of iris, rounded": lambda seed: (
        load_iris().data[:, [(2, 3), (0, 2), (0, 1)][seed]],
        load_iris().target,
    ),
    "all equal": lambda seed: (np.ones((60, 3)), np.arange(60) % 2),
    "few rows": lambda seed: (np.arange(6.0)[:, None], np.arange(6) % 2),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", BY_CHANCE)
def test_rows_that_coincide_by_chance_are_no_copies(name, seed):
    found_none(*BY_CHANCE[name](seed))


@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize("d", [1, 2])
def test_copies_of_rows_of_few_columns(d, times):
    rows, y, number = copied(times, X=X[:, :d])
    assert same_division(found(rows, y), number)


@pytest.mark.parametrize("name", ["small counts", "votes"])
def test_tables_of_integers_without_coincidences_that_are_copied(name):
    """Wide tables of integers, in which no two rows are equal: copies of all rows are told from chance."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    wide = (
        rng.poisson(3.0 + 2.0 * y[:, None], (200, 12))
        if name == "small counts"
        else rng.random((200, 40)) < 0.5
    )
    number = rng.permutation(np.repeat(np.arange(200), 2))
    assert same_division(found(wide[number].astype(float), y[number]), number)


def test_near_copies_are_told_from_clusters():
    """Tight clusters of a class are no copies: their rows have many neighbours at like distances."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 60)
    found_none(100.0 * np.eye(3)[y] + rng.normal(size=(180, 3)), y)
    found_none(np.cumsum(rng.normal(size=(200, 2)), axis=0), np.arange(200) // 100)


@pytest.mark.parametrize("shift", [0.5, 8.0], ids=["overlapping", "separated"])
@pytest.mark.parametrize("n", [45, 100, 300])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_continuous_rows_are_hardly_ever_taken_for_copies(d, n, shift):
    """Independent rows: a false alarm must be rare, however few the columns and the rows are."""
    alarms = 0
    for seed in range(50):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alarms += find_copies(*blobs(n=n, K=2, d=d, seed=seed, shift=shift)) is not None
    assert alarms <= 1
