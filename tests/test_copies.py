"""Copies of rows are one observation: `groups` says so, a warning where they are likely and nothing was said.

Rows are split into training and test rows first, then the training rows are copied, exactly or up to noise of a
thousandth of each column's standard deviation. With the number of the original row for groups, the fit is as good as
without copies and what it states of itself is true.

The sets have at most 300 rows before copying, to keep this file short. ``benchmarks/trust.py`` copies no rows; it
measures on all sets, with up to 2000 rows, whether what a fit states of itself is true.
"""

import os
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import naive
from conftest import blobs
from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.datasets import load, make_waveform
from tables_of_cells import led7, titanic, two_columns

ESTIMATORS = {"LSSVM": LSSVMClassifier, "AutoKernel": AutoKernelClassifier}
FILES = ("vehicle", "wdbc", "vowel")
MOST = 300  # training rows before copying
COPYING = {
    "twice": (2, 0.0),
    "five times": (5, 0.0),
    "near-copies, twice": (2, 1e-3),
    "near-copies, five": (5, 1e-3),
}
CASES = [
    (name, copying)
    for name in ("waveform drawn", *FILES)
    for copying in COPYING
    if (name, copying) != ("vowel", "near-copies, five")  # 1500 rows, eleven classes: slow
]
#: The pool takes seconds with many rows or classes. Exact copies are merged, so that twice is as good as five times.
OF_THE_POOL = [
    *((name, "twice") for name in ("waveform drawn", *FILES)),
    *((name, "near-copies, twice") for name in ("waveform drawn", "wdbc")),
]
QUICK_OF_THE_POOL = {("vehicle", "twice"), ("wdbc", "near-copies, twice")}


def with_estimators(of_the_pool):
    pool = (
        pytest.param("AutoKernel", *case, marks=[] if case in QUICK_OF_THE_POOL else [pytest.mark.long])
        for case in of_the_pool
    )
    return [*(("LSSVM", *case) for case in CASES), *pool]


def needs_file(name):
    if not os.environ.get("POLYMARGIN_DATA"):
        pytest.skip("set POLYMARGIN_DATA to the folder of datasets")
    return load(name)


def split(name):
    """Return standardised training rows without copies, test rows and their labels."""
    if name == "waveform drawn":
        (X, y), (X_test, y_test) = make_waveform(MOST, random_state=0), make_waveform(4000, random_state=1)
    else:
        data = needs_file(name)
        codes = np.unique(data.y, return_inverse=True)[1]
        X, X_test, y, y_test = train_test_split(
            data.X.astype(float), codes, train_size=MOST, stratify=codes, random_state=0
        )
    _, first = np.unique(X, axis=0, return_index=True)  # a set may have copies of its own
    X, y = X[np.sort(first)], y[np.sort(first)]
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), y, scaler.transform(X_test), y_test


def copied(X, y, times, noise):
    """Return every row several times, in random order, with noise, and the number of the original row."""
    rng = np.random.default_rng(0)
    number = rng.permutation(np.repeat(np.arange(y.size), times))
    moved = X[number]
    if noise > 0:
        moved = moved + noise * X.std(axis=0) * rng.normal(size=moved.shape)
    return moved, y[number], number


def losses(model, X, y):
    """Return the loss of every row."""
    return -model.predict_log_proba(X)[np.arange(y.size), y]


def quietly(model, *arguments, **named):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(*arguments, **named)


_plain = {}


def without_copies(name, estimator):
    """Return the loss of every test row by a fit without copies."""
    if (name, estimator) not in _plain:
        X, y, X_test, y_test = split(name)
        _plain[name, estimator] = losses(quietly(ESTIMATORS[estimator](), X, y), X_test, y_test)
    return _plain[name, estimator]


@pytest.mark.parametrize(
    ("estimator", "name", "copying"), with_estimators([*OF_THE_POOL, ("wdbc", "near-copies, five")])
)
def test_with_groups_copies_change_nothing(estimator, name, copying):
    X, y, X_test, y_test = split(name)
    X_many, y_many, number = copied(X, y, *COPYING[copying])
    model = ESTIMATORS[estimator]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # somebody who gives groups knows
        model.fit(X_many, y_many, groups=number)
    test = losses(model, X_test, y_test)
    plain = without_copies(name, estimator)
    # Exact copies change nothing. Noise may change which of several C is chosen: at most two standard errors.
    chance = 2.0 * (test - plain).std() / np.sqrt(test.size) if COPYING[copying][1] else 0.0
    assert test.mean() <= max(1.02 * plain.mean(), plain.mean() + chance)
    kept = y_many[model.support_]  # of exact copies in one group, the first
    stated = -model.loo_log_proba_[np.arange(kept.size), kept]
    assert stated.mean() == pytest.approx(model.loo_log_loss_, rel=1e-9)
    # There are as many independent losses as rows without copies.
    error = max(test.std(), stated.std()) * np.sqrt(1 / y.size + 1 / y_test.size)
    if name != "vowel":  # eleven classes in 300 rows: what is learned from four fifths of them is much less
        assert abs(model.loo_log_loss_ - test.mean()) < 3 * error


@pytest.mark.parametrize(("estimator", "name", "copying"), with_estimators(OF_THE_POOL))
def test_without_groups_a_warning_and_caution(estimator, name, copying):
    X, y, X_test, y_test = split(name)
    X_many, y_many, _ = copied(X, y, *COPYING[copying])
    model = ESTIMATORS[estimator]()
    with pytest.warns(UserWarning, match="groups") as caught:
        model.fit(X_many, y_many)
    (message,) = [str(w.message) for w in caught if "groups" in str(w.message)]  # once, not for every member
    numbers = [int(re.sub(r"\D", "", text)) for text in re.findall(r"\d+(?:[ ,_]\d{3})*", message)]
    more, all_of_them = y_many.size - y.size, y_many.size  # copies of earlier rows, or rows that have a copy
    assert any(min(abs(n - more), abs(n - all_of_them)) <= 0.1 * more for n in numbers), message
    assert losses(model, X_test, y_test).mean() <= 1.5 * without_copies(name, estimator).mean()


def integers():
    """Return small counts in three columns, whose rows coincide often, and labels that depend on them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    return rng.poisson(2.0 + 2.0 * y[:, None], (400, 3)).astype(float), y


def sample_of(table, n):
    cell, y = table.draw(n, seed=0)
    return table.X[cell], y


def letter():
    data = needs_file("letter")
    rows, _ = train_test_split(np.arange(len(data.y)), train_size=1500, stratify=data.y, random_state=0)
    return StandardScaler().fit_transform(data.X[rows].astype(float)), data.y[rows]


HONEST = {
    "16 cells, one-hot": lambda: sample_of(two_columns(True), 800),
    "16 cells, integers": lambda: sample_of(two_columns(False), 800),
    "led7": lambda: sample_of(led7(), 1000),
    "Titanic": lambda: sample_of(titanic(), 1000),
    "iris": lambda: load_iris(return_X_y=True),  # two rows are equal
    "integers": integers,
    "continuous": lambda: make_waveform(300, random_state=0),
}


def check_no_warning(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert not [str(w.message) for w in caught if "groups" in str(w.message)]


#: Rows are looked at before anything is selected, so that a machine with given parameters does.
QUICK = LSSVMClassifier(C=1.0, kernel="rbf", gamma=0.1, coding="one-vs-all", decoding="argmax")


@pytest.mark.parametrize("name", HONEST)
def test_no_warning_where_rows_coincide_by_chance(name):
    check_no_warning(QUICK, *HONEST[name]())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_warning_with_the_defaults(estimator):
    check_no_warning(ESTIMATORS[estimator](), *HONEST["Titanic"]())


def test_no_warning_on_letter():
    """Sixteen columns of integers from 0 to 15: some of the 1500 rows are equal, of the same class."""
    check_no_warning(QUICK, *letter())


# What groups mean ------------------------------------------------------------------------------------------


def refitted_without_groups(X, targets, groups, C, gamma):
    """Margins (n, L) of every row from a dense solve without the rows of its group."""
    K = naive.kernel_matrix("rbf", X, X, gamma=gamma)
    margins = np.zeros(targets.shape)
    for group in np.unique(groups):
        out, rest = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        a, b = naive.lssvm_solve(K[np.ix_(rest, rest)], targets[rest], C)
        margins[out] = naive.lssvm_predict(K[np.ix_(out, rest)], a, b)
    return margins


X_SMALL, Y_SMALL = blobs(60, seed=3)
GROUPS = {
    "every row": np.arange(60),
    "random": np.random.default_rng(0).integers(0, 12, 60),
    "unequal": np.minimum(np.random.default_rng(1).geometric(0.25, 60), 8),
    "two": np.arange(60) % 2,
    "texts": np.array([f"patient {number % 7}" for number in range(60)]),
}


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_leaves_the_group_out(name, n_classes):
    rows = np.flatnonzero(n_classes > Y_SMALL)
    X, y, groups = X_SMALL[rows], Y_SMALL[rows], GROUPS[name][rows]
    model = LSSVMClassifier(C=1, gamma=0.1, kernel="rbf", coding="one-vs-all").fit(X, y, groups=groups)
    assert_allclose(model.C_, 1.0)
    if n_classes == 2:  # one machine, positive for the one class or for the other
        targets = np.where(y == 0, 1.0, -1.0)[:, None]
        expected = refitted_without_groups(X, targets, groups, 1.0, 0.1)
        sign = np.sign((expected * model.loo_margins_).sum())
        assert_allclose(sign * model.loo_margins_, expected, atol=1e-8)
    else:
        targets = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
        expected = refitted_without_groups(X, targets, groups, 1.0, 0.1)
        assert_allclose(model.loo_margins_, expected, atol=1e-8)


def test_groups_of_one_are_no_groups():
    plain = LSSVMClassifier().fit(X_SMALL, Y_SMALL)
    model = LSSVMClassifier().fit(X_SMALL, Y_SMALL, groups=np.arange(60))
    assert_allclose(model.predict_proba(X_SMALL), plain.predict_proba(X_SMALL), atol=1e-9)
    assert model.loo_log_loss_ == pytest.approx(plain.loo_log_loss_, abs=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_names_of_groups_do_not_matter(estimator):
    groups = GROUPS["random"]
    names = np.array([f"session {number:02d}" for number in range(12)])[::-1][groups]
    one = ESTIMATORS[estimator]().fit(X_SMALL, Y_SMALL, groups=groups)
    other = ESTIMATORS[estimator]().fit(X_SMALL, Y_SMALL, groups=names)
    assert_allclose(other.predict_proba(X_SMALL), one.predict_proba(X_SMALL), atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("groups", [np.arange(59), np.zeros((60, 2)), np.r_[np.nan, np.ones(59)]])
def test_groups_that_cannot_be_used_are_refused_in_words(estimator, groups):
    with pytest.raises(ValueError, match="groups"):
        ESTIMATORS[estimator]().fit(X_SMALL, Y_SMALL, groups=groups)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_single_group_is_refused_in_words(estimator):
    with pytest.raises(ValueError, match="group"):
        ESTIMATORS[estimator]().fit(X_SMALL, Y_SMALL, groups=np.zeros(60))
