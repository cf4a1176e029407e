"""Adaptive coding: codebooks grown on the data (Mayoraz and Alpaydın 1998, §6)."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from polymargin import LSSVMClassifier, SVMClassifier
from polymargin.codebooks import (
    Adaptive,
    Codebook,
    adaptive_coding,
    grow_codebook,
    one_vs_one,
    resolve_codebook,
)
from polymargin.decoders import Stack
from polymargin.estimators import _growth
from polymargin.folds import training_folds
from polymargin.machines import TrainingRows, fit_svm_bank
from polymargin.machines._hinge import SolverOptions
from polymargin.machines.svm import SVMBank
from polymargin.solvers.smo_dichotomies import Dichotomy, solve_dichotomies, solve_dichotomies_path
from polymargin.solvers.status import Status


def gaussians(n_classes, seed=0, spread=1.0, rows=12):
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), rows)
    centres = 4.0 * random.normal(size=(n_classes, 2))
    return centres[y] + spread * random.normal(size=(y.size, 2)), y


class Discriminant:
    """Trains columns by linear least squares and remembers them."""

    def __init__(self, X, y):
        self.X, self.y, self.seen = np.c_[X, np.ones(len(X))], y, []

    def __call__(self, column):
        self.seen.append(column.copy())
        targets = column[self.y].astype(float)
        used = targets != 0
        return self.X @ np.linalg.lstsq(self.X[used], targets[used], rcond=None)[0]


def on_a_line(*places, rows=10):
    """Return rows of classes on a line, each class spread over a unit around its place."""
    x = np.concatenate([place + np.linspace(-0.5, 0.5, rows) for place in places])
    return x[:, np.newaxis], np.repeat(np.arange(len(places)), rows)


ONCE = Adaptive(separation=1.0)


# --- what §6 says -----------------------------------------------------------------------------------------------


def test_three_classes_in_a_row():
    """Class 2 lies beyond class 1 and joins it against class 0; then 0 lies beyond 1 as seen from 2."""
    train = Discriminant(*on_a_line(0, 4, 8))
    book = grow_codebook(train, train.y, 3, ONCE)
    np.testing.assert_array_equal(book.matrix, [[-1, -1], [1, -1], [1, 1]])
    # The pair, then the pair with the class that joined it; and so for the second column.
    expected = [[-1, 1, 0], [-1, 1, 1], [0, -1, 1], [-1, -1, 1]]
    np.testing.assert_array_equal(train.seen, expected)


def test_a_class_across_the_boundary_is_left_out():
    train = Discriminant(*on_a_line(0, 8, 4))  # class 2 lies between the others
    book = grow_codebook(train, train.y, 3, ONCE)
    np.testing.assert_array_equal(book.matrix, [[-1, -1, -1], [1, 1, 1], [0, 1, -1]])


def test_a_class_joins_the_side_where_a_large_part_of_it_falls():
    X, y = on_a_line(0, 8, 4.3)  # 8 of the 10 rows of class 2 fall on the side of class 1
    low, high = (
        grow_codebook(Discriminant(X, y), y, 3, Adaptive(threshold=t, separation=1.0)) for t in (0.8, 0.85)
    )
    assert low.matrix[2, 0] == 1
    assert high.matrix[2, 0] == 0


def test_joined_classes_bring_in_others():
    """A class joins only after the machine was trained again with one that joined before it."""
    answers = {
        (-1, 1, 0, 0): [-1, 1, 1, 0],  # class 2 falls on the positive side, class 3 on the boundary
        (-1, 1, 1, 0): [-1, 1, 1, -1],  # now class 3 is on the negative side
    }
    y = np.arange(4)
    seen = []

    def train(column):
        seen.append(tuple(column.tolist()))
        return np.array(answers.get(seen[-1], column), dtype=float)

    book = grow_codebook(train, y, 4, ONCE)
    assert seen[:3] == [(-1, 1, 0, 0), (-1, 1, 1, 0), (-1, 1, 1, -1)]
    np.testing.assert_array_equal(book.matrix[:, 0], [-1, 1, 1, -1])


def test_the_least_discriminated_pair_is_next():
    X, y = on_a_line(0, 3, 3.8, 9, 10, 20)  # classes 1 and 2 overlap
    train = Discriminant(X, y)
    book = grow_codebook(train, y, 6, Adaptive(separation=1.0))
    shares = []
    for column in book.matrix.T:
        positive = Discriminant(X, y)(column) > 0
        shares.append(np.array([positive[y == k].mean() for k in range(6)]))
    # Go through the columns again and see that each begins with one of the worst pairs of its time.
    apart, opposed = np.zeros((6, 6)), np.zeros((6, 6), dtype=bool)
    for column, share in zip(book.matrix.T, shares, strict=True):
        proper = np.where(column == 1, share, 1 - share)
        now = np.multiply.outer(column, column) == -1
        if not opposed[np.triu_indices(6, 1)].all():
            assert (now & ~opposed).any()  # a pair that nothing sets apart is worse than any other
        opposed |= now
        apart += np.where(now, np.maximum(proper[:, np.newaxis] + proper - 1, 0), 0)
    assert opposed[np.triu_indices(6, 1)].all()
    # Every pair is told apart, or else has had a column of its own.
    own = {tuple(np.flatnonzero(c)) for c in book.matrix.T if np.count_nonzero(c) == 2}
    for i, j in np.argwhere(np.triu(apart < 1.0, 1)):
        assert (i, j) in own or book.n_columns == 15


# --- always a valid codebook ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", range(2, 13))
@pytest.mark.parametrize("coding", [Adaptive(), ONCE, Adaptive(0.6, 0.5), Adaptive(1.0, 3.0)], ids=repr)
def test_any_number_of_classes(n_classes, coding):
    for seed, spread in ((0, 0.5), (1, 3.0)):
        X, y = gaussians(n_classes, seed, spread)
        train = Discriminant(X, y)
        book = grow_codebook(train, y, n_classes, coding)
        assert isinstance(book, Codebook)  # which has checked that every pair of classes is set apart
        assert book.n_classes == n_classes
        assert book.n_columns <= n_classes * (n_classes - 1) // 2
        # No dichotomy twice, not even upside down, neither in the book nor in training.
        for columns in (book.matrix.T, np.array(train.seen)):
            signed = [tuple(-column[np.flatnonzero(column)[0]] * column) for column in columns]
            assert len(set(signed)) == len(signed)
        assert grow_codebook(Discriminant(X, y), y, n_classes, coding) == book


@pytest.mark.parametrize("n_classes", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("spread", [0.3, 4.0])
def test_the_budget_is_kept(n_classes, spread):
    X, y = gaussians(n_classes, 3, spread)
    fewest = (n_classes - 1).bit_length()
    for budget in range(fewest, n_classes * (n_classes - 1) // 2 + 3):
        book = grow_codebook(Discriminant(X, y), y, n_classes, Adaptive(separation=5.0, max_columns=budget))
        assert book.n_columns <= budget
    with pytest.raises(ValueError, match=f"{n_classes} classes need {fewest} or more"):
        grow_codebook(Discriminant(X, y), y, n_classes, Adaptive(max_columns=fewest - 1))


def test_what_the_budget_cuts_off_is_completed_by_pairs():
    """A machine that leaves all other classes on the boundary grows nothing but pairs."""
    y = np.arange(4)
    book = grow_codebook(lambda column: column.astype(float), y, 4, Adaptive(separation=9.0))
    assert {tuple(np.flatnonzero(c)) for c in book.matrix.T} == {
        tuple(np.flatnonzero(c)) for c in one_vs_one(4).matrix.T
    }


def test_useless_machines_end_too():
    y = np.repeat(np.arange(5), 3)
    for margins in (np.zeros(15), np.ones(15), -np.ones(15), np.resize([1.0, -1.0], 15)):
        book = grow_codebook(lambda column, margins=margins: margins, y, 5)
        assert book.n_columns <= 10


def test_weights_count_in_the_shares():
    X, y = on_a_line(0, 8, 4.3)
    weights = np.ones(y.size)
    weights[y == 2] = np.where(X[y == 2, 0] > 4, 1.0, 3.0)  # the two rows across the boundary count more
    coding = Adaptive(threshold=0.8, separation=1.0)

    def first_bits(weights):
        return grow_codebook(Discriminant(X, y), y, 3, coding, weights=weights).matrix[:, 0]

    np.testing.assert_array_equal(first_bits(None), [-1, 1, 1])
    np.testing.assert_array_equal(first_bits(weights), [-1, 1, 0])


@pytest.mark.parametrize("bad", [{"threshold": 0.5}, {"threshold": 1.1}, {"separation": 0.0}])
def test_parameters_are_checked(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Adaptive(**bad)


def test_names():
    assert adaptive_coding("adaptive") == Adaptive()
    assert adaptive_coding(ONCE) is ONCE
    assert adaptive_coding("ecoc") is None
    assert adaptive_coding(one_vs_one(3)) is None
    assert adaptive_coding(one_vs_one(3).matrix) is None
    for coding in ("adaptive", ONCE):
        with pytest.raises(ValueError, match="grown on training rows"):
            resolve_codebook(coding, 3)


# --- in an estimator --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_the_estimator_grows_its_codebook(n_classes):
    X, y = gaussians(n_classes, 1, 1.5)
    model = LSSVMClassifier(coding="adaptive").fit(X, y)
    assert model.codebook_.n_classes == n_classes
    assert model.score(X, y) > 0.6
    # The same codebook given as a matrix makes the same machines.
    given = LSSVMClassifier(coding=model.codebook_.matrix).fit(X, y)
    np.testing.assert_array_equal(given.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_order_of_rows_does_not_matter(order):
    X, y = gaussians(6, 2, 1.5)
    shuffled = np.random.default_rng(order).permutation(y.size)
    books = [
        LSSVMClassifier(coding="adaptive").fit(X[i], y[i]).codebook_ for i in (np.arange(y.size), shuffled)
    ]
    assert books[0] == books[1]


def test_margins_are_honest_for_used_rows_and_new_for_others():
    X, y = gaussians(3, 0, 2.0)
    model = LSSVMClassifier(C=2.0, gamma=0.3)
    rows = TrainingRows(model._kernels[0], X, y, np.ones(y.size))
    margins = model._dichotomy_margins(rows, np.array([-1, 0, 1]))
    pair = LSSVMClassifier(C=2.0, gamma=0.3).fit(X[y != 1], y[y != 1])
    np.testing.assert_allclose(margins[y != 1], pair.loo_margins_[:, 0])
    np.testing.assert_allclose(margins[y == 1], pair.margins(X[y == 1])[:, 0])


def test_gamma_is_that_of_all_rows(monkeypatch):
    X, y = gaussians(3)
    used = []
    fit = LSSVMClassifier._fit_machines
    monkeypatch.setattr(
        LSSVMClassifier,
        "_fit_machines",
        lambda self, *given: (fit(self, *given), used.append(self.bank_.gamma[0]))[0],
    )
    LSSVMClassifier(C=1.0, gamma="scale", coding="adaptive").fit(X, y)
    assert len(used) > 2
    assert len(set(used)) == 1


@pytest.mark.parametrize("make", [LSSVMClassifier, SVMClassifier])
def test_precomputed_and_sparse_rows_grow_the_same(make):
    X, y = gaussians(5, 4, 1.5)
    K = np.exp(-0.5 * np.square(X[:, np.newaxis] - X).sum(axis=2))
    settings = {"C": 1.0, "coding": "adaptive", "decoding": "loss"}
    weights = np.where(np.arange(y.size) % 5 == 0, 0.0, 1.0)
    if make is SVMClassifier:  # a Gram matrix has no features by which a number of folds could be dealt alike
        settings["cv"] = list(StratifiedKFold(4).split(X, y))
    plain = make(gamma=0.5, **settings).fit(X, y, weights)
    given = make(kernel="precomputed", **settings).fit(K, y, weights)
    thin = make(gamma=0.5, **settings).fit(sparse.csr_array(X), y, weights)
    assert plain.codebook_ == given.codebook_ == thin.codebook_
    np.testing.assert_array_equal(plain.predict(X), given.predict(K))


@pytest.mark.parametrize(
    "decoding", ["bayes", "hamming", "loss", "mixture", Stack(LogisticRegression())], ids=str
)
def test_every_decoder_of_general_codebooks_reads_it(decoding):
    X, y = gaussians(5, 5, 1.0)
    model = LSSVMClassifier(coding="adaptive", decoding=decoding).fit(X, y)
    assert model.score(X, y) > 0.8


def test_clone_and_pickle():
    X, y = gaussians(4)
    model = LSSVMClassifier(coding=Adaptive(threshold=0.9)).fit(X, y, np.linspace(0.5, 1.5, y.size))
    assert clone(model).coding == Adaptive(threshold=0.9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("decoding", ["bayes", Stack(LogisticRegression())], ids=str)
def test_scikit_learn_accepts_it(decoding):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(
            LSSVMClassifier(1.0, gamma="scale", coding="adaptive", decoding=decoding),
            on_skip=None,
        )


# --- warm starts ------------------------------------------------------------------------------------------------


@pytest.fixture
def growth(monkeypatch):
    """Record the machines of growing columns, and start them cold when told to."""

    class Recorded(_growth.WarmColumns):
        cold = False

        def __init__(self, train, *arguments):
            super().__init__(self.recorded(train), *arguments)

        def recorded(self, train):
            def train_and_remember(rows, box_weights, cv, start):
                starts.append(start)
                banks.append(train(rows, box_weights, cv, None if Recorded.cold else start))
                return banks[-1]

            return train_and_remember

        def __call__(self, column):
            if Recorded.cold:
                self.column[:] = 0
                self.whole[:] = self.without[:] = 0.0
            margins.append(super().__call__(column))
            columns.append(column.copy())
            return margins[-1]

    starts, banks, margins, columns = [], [], [], []
    Recorded.starts, Recorded.banks, Recorded.margins, Recorded.columns = starts, banks, margins, columns
    monkeypatch.setattr("polymargin.estimators._svm_training.WarmColumns", Recorded)

    def forget():
        for record in (starts, banks, margins, columns):
            record.clear()

    Recorded.forget = forget
    return Recorded


WARM = [
    {"kernel": "poly", "degree": 2, "coef0": 1.0},
    {"kernel": "rbf", "C": 30.0},
    {"kernel": "rbf", "class_weight": "balanced"},
    {"kernel": "rbf", "C": 0.3},  # no power of two: multiples of C are rounded
]


@pytest.mark.parametrize(
    ("parameters", "n_jobs"),
    [
        pytest.param(parameters, n_jobs, marks=[pytest.mark.long] if (k + n_jobs) % 2 else [])
        for k, parameters in enumerate(WARM)
        for n_jobs in (1, 2)
    ],
    ids=str,
)
def test_warm_machines_are_the_cold_ones(parameters, n_jobs, growth):
    X, y = gaussians(6, 2, 1.5, rows=20)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, y.size)
    model = SVMClassifier(coding="adaptive", tol=1e-7, n_jobs=n_jobs, **parameters)
    warm = model.fit(X, y, weights).codebook_
    warm_margins, warm_columns = np.array(growth.margins), np.array(growth.columns)
    assert sum(start.any() for start in growth.starts) > 5
    growth.forget()
    growth.cold = True
    assert model.fit(X, y, weights).codebook_ == warm
    np.testing.assert_array_equal(growth.columns, warm_columns)
    np.testing.assert_allclose(growth.margins, warm_margins, atol=1e-4)
    assert not any(start.any() for start in growth.starts)


def test_warm_starts_save_steps(growth, monkeypatch):
    """Steps over many machines, of all rows and out of fold; single machines may take longer."""
    steps = {}
    hold_out = SVMBank.held_out_banks

    def counted(self, **given):
        banks = hold_out(self, **given)
        steps["out of fold", growth.cold] += sum(int(bank.n_iter.sum()) for _, bank in banks)
        return banks

    monkeypatch.setattr(SVMBank, "held_out_banks", counted)
    for growth.cold in (True, False):
        steps["out of fold", growth.cold] = 0
        growth.forget()
        for seed in range(4):
            X, y = gaussians(6, seed, 1.5, rows=30)
            SVMClassifier(kernel="poly", degree=2, coef0=1.0, coding="adaptive").fit(X, y)
        steps["all", growth.cold] = sum(int(bank.n_iter.sum()) for bank in growth.banks)
    assert steps["all", False] < steps["all", True]
    assert steps["out of fold", False] < steps["out of fold", True]


def test_a_column_starts_from_the_one_it_grew_from(growth):
    X, y = gaussians(6, 2, 1.5, rows=20)
    SVMClassifier(coding="adaptive").fit(X, y)
    before = np.zeros(6)
    for column, start, bank in zip(growth.columns, growth.starts, growth.banks, strict=True):
        grown = before.any() and (column[before != 0] == before[before != 0]).all()
        assert start.any() == grown
        used = np.flatnonzero(column[y])
        assert start.shape == (1, used.size)
        # Feasible: on the proper side, in the box, with sum zero, and zero for classes that joined.
        assert (start[0] * column[y[used]] >= 0).all()
        assert (np.abs(start) <= 1).all()
        assert start.sum() == pytest.approx(0.0, abs=1e-9)
        assert not start[0, before[y[used]] == 0].any()
        assert bank.status == [Status.CONVERGED]
        before = column


def test_nothing_of_the_growth_is_left_in_the_estimator():
    X, y = gaussians(5, 1, 1.5)
    grown = SVMClassifier(coding="adaptive", n_jobs=2).fit(X, y)
    given = SVMClassifier(coding=grown.codebook_.matrix).fit(X, y)
    assert vars(grown).keys() == vars(given).keys()
    np.testing.assert_array_equal(grown.margins(X), given.margins(X))
    np.testing.assert_array_equal(grown.n_iter_, given.n_iter_)
    again = SVMClassifier(coding="adaptive").fit(X, y)
    assert again.codebook_ == grown.codebook_
    np.testing.assert_array_equal(again.margins(X), grown.margins(X))


def test_columns_may_differ_in_the_parameters_they_choose(growth):
    X, y = gaussians(4, 3, 2.0, rows=15)
    model = SVMClassifier(None, gamma=None, coding="adaptive", cv=3).fit(X, y)
    assert len({float(bank.C[0]) for bank in growth.banks}) > 1
    assert any(start.any() for start in growth.starts)
    assert all(bank.status == [Status.CONVERGED] for bank in growth.banks)
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 5.0, 2: 0.2}])
def test_class_weights_enter_the_growth(class_weight):
    X, y = gaussians(4, 0, 2.5)
    X, y = X[6:], y[6:]  # the first class has fewer rows
    model = SVMClassifier(gamma=0.1, class_weight=class_weight, tol=1e-6)
    rows = model._training_rows(X, y, None)
    train = model._column_trainer(clone(model), rows, None)
    margins = [train(np.array(column)) for column in ([-1, 1, 0, 0], [-1, 1, -1, 0])]
    factors = model._class_weights(rows)[y]
    for column, found in zip(([-1, 1, 0, 0], [-1, 1, -1, 0]), margins, strict=True):
        targets = np.array(column)[y]
        used = targets != 0
        whole = SVC(gamma=0.1, tol=1e-6).fit(X[used], targets[used], factors[used])
        np.testing.assert_allclose(found[~used], whole.decision_function(X[~used]), atol=1e-3)
        for fold in training_folds(rows, 5):
            known = np.setdiff1d(np.flatnonzero(used), fold)
            machine = SVC(gamma=0.1, tol=1e-6).fit(X[known], targets[known], factors[known])
            test = fold[used[fold]]
            np.testing.assert_allclose(found[test], machine.decision_function(X[test]), atol=1e-3)


def test_given_folds_hold_while_the_codebook_grows(growth):
    """Rows that belong together, here the even and the odd ones, are held out together."""
    X, y = gaussians(4, 0, 2.0)
    even = np.arange(y.size) % 2 == 0
    splits = [(np.flatnonzero(even), np.flatnonzero(~even)), (np.flatnonzero(~even), np.flatnonzero(even))]
    weights = np.where(np.arange(y.size) == 7, 0.0, 1.0)  # a row that is not there
    SVMClassifier(gamma=0.1, tol=1e-6, coding="adaptive", cv=splits).fit(X, y, weights)
    there = np.flatnonzero(weights)
    targets = growth.columns[0][y[there]]
    for train, test in splits:
        train, test = (np.isin(there, rows) & (targets != 0) for rows in (train, test))
        machine = SVC(gamma=0.1, tol=1e-6).fit(X[there[train]], targets[train])
        expected = machine.decision_function(X[there[test]])
        np.testing.assert_allclose(growth.margins[0][test], expected, atol=1e-3)


def test_copies_of_rows_in_classes_that_join(growth):
    """A row of one class that is also one of another, on the same side: one row in a larger box."""
    X, y = on_a_line(0, 4, 4.5, 8)
    X = np.round(X)
    model = SVMClassifier(0.7, kernel="linear", coding=Adaptive(threshold=0.6), tol=1e-6).fit(X, y)
    assert any(start.any() for start in growth.starts)
    assert all(bank.status == [Status.CONVERGED] for bank in growth.banks)
    assert model.codebook_.n_classes == 4


@pytest.mark.parametrize("parameters", [{}, {"C": None, "cv": 3}], ids=str)
def test_classes_of_one_row(parameters):
    """Two such classes may be held out together, which leaves their machine nothing to learn from."""
    y = np.r_[np.zeros(12, int), np.arange(1, 8)]
    X = np.random.default_rng(2).normal(size=(y.size, 2)) + 3 * y[:, np.newaxis]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = SVMClassifier(coding="adaptive", **parameters).fit(X, y)
    assert model.codebook_.n_classes == 8


def test_starts_of_the_solver():
    X, y = gaussians(2, 0, 3.0, rows=30)
    K, signs = X @ X.T, 2.0 * y - 1.0
    cold = solve_dichotomies(K, [Dichotomy(signs, 1.0)], tol=1e-6)[0]
    warm = solve_dichotomies(K, [Dichotomy(signs, 1.0, alpha0=cold.alpha)], tol=1e-6)[0]
    assert cold.n_iter > 0
    assert warm.n_iter == 0
    np.testing.assert_array_equal(warm.alpha, cold.alpha)
    # What multiplication and division took off the bounds is put back.
    rounded = solve_dichotomies(K, [Dichotomy(signs, 1.0, alpha0=cold.alpha * (1 - 1e-13))], tol=1e-6)[0]
    np.testing.assert_array_equal(rounded.alpha == 1.0, cold.alpha == 1.0)
    # On a path it is the first box that counts.
    half = solve_dichotomies(K, [Dichotomy(signs, 0.5)], tol=1e-6)[0].alpha
    first, second = solve_dichotomies_path(K, [Dichotomy(signs, 1.0, alpha0=half)], [0.5, 1.0], tol=1e-6)
    assert first[0].n_iter == 0
    np.testing.assert_allclose(second[0].objective, cold.objective, rtol=1e-6)


@pytest.mark.parametrize(
    ("alpha0", "message"),
    [
        ([0.5, 0.5], "3 finite values"),
        ([np.nan, 0.0, 0.0], "3 finite values"),
        ([1.5, 1.5, 0.0], "leaves the box"),
        ([-0.5, 0.0, 0.5], "leaves the box"),
        ([0.5, 0.2, 0.2], "sum of signs"),
    ],
)
def test_starts_that_are_not_feasible_are_refused(alpha0, message):
    with pytest.raises(ValueError, match=message):
        solve_dichotomies(np.eye(3), [Dichotomy([1, -1, -1], 1.0, alpha0=alpha0)])


def test_a_bank_starts_where_another_ended():
    X, y = gaussians(4, 0, 2.0)
    rows = TrainingRows(SVMClassifier()._kernels[0], X, y, np.ones(y.size))
    options = SolverOptions(tol=1e-6)
    C = np.linspace(0.3, 3.0, 6)
    cold = fit_svm_bank(rows, one_vs_one(4), C=C, gamma=0.1, options=options)
    start = np.zeros((6, y.size))
    start[:, cold.support] = cold.dual_coef / C[:, np.newaxis]
    warm = fit_svm_bank(rows, one_vs_one(4), C=C, gamma=0.1, options=options, start=start)
    assert cold.n_iter.sum() > 100
    assert warm.n_iter.sum() < 10
    np.testing.assert_allclose(warm.margins(X), cold.margins(X), atol=1e-5)
