"""Coupled softmax: its objective solved slowly, its limits, its invariances, and hard cases."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone

import naive
from conftest import blobs
from polymargin import Codebook, LSSVMClassifier
from polymargin.codebooks import ecoc, minimal, one_vs_all, one_vs_one
from polymargin.dealing import Deal
from polymargin.decoders import Bayes, CoupledSoftmax, Coupling
from polymargin.decoders.coupled_softmax import RIDGES
from polymargin.outputs import Nested, Outputs
from polymargin.solvers.softmax import reduced_features
from polymargin.solvers.status import Status
from polymargin.solvers.tempering import contaminated, contamination, temper, tempered

BOOKS = {
    "one-vs-one": one_vs_one(3),
    "one-vs-all": one_vs_all(3),
    "minimal": minimal(3),
    "two classes": one_vs_one(2),
    "two of two": one_vs_all(2),
}
every_book = pytest.mark.parametrize("name", BOOKS)


def classes_of(n, n_classes, seed=0):
    random = np.random.default_rng(seed)
    return np.r_[np.arange(n_classes), random.integers(0, n_classes, n - n_classes)]


def outputs_of(book, index, seed=0, noise=0.8):
    """Outputs that point the right way more often than not; machines speak of classes they do not know too."""
    random = np.random.default_rng(seed)
    margins = 0.6 * book.matrix[index] + noise * random.normal(size=(index.size, book.n_columns))
    margins = margins * np.exp(0.3 * random.normal(size=book.n_columns))
    return Outputs(margins, "leave_one_out", dealt=deal_of(index))


def deal_of(index):
    """Rows in a random order that has nothing to do with the outputs."""
    return Deal.of(np.random.default_rng(9).normal(size=(index.size, 2)), index)


def anchor_by_hand(book, outputs, index, weights, spread):
    """The first guess: the margins themselves, or Platt's sigmoids coupled pair by pair."""
    z, M, K = outputs.margins, book.matrix, book.n_classes
    if book.n_columns == 1:
        return np.column_stack([M[k, 0] * z[:, 0] for k in range(K)]) / spread
    if book.is_one_vs_all:
        owner = [int(np.flatnonzero(M[k] == 1)[0]) for k in range(K)]
        return z[:, owner] / spread
    r = np.empty_like(z)
    for column in range(book.n_columns):
        sides = M[index, column]
        used = sides != 0
        A, B = naive.platt_sigmoid(z[used, column], sides[used] > 0, weights[used])
        r[:, column] = 1 / (1 + np.exp(A * z[:, column] + B))
    p = []
    for row in r:
        R = np.full((K, K), 0.5)
        for column in range(book.n_columns):
            plus, minus = int(M[:, column].argmax()), int(M[:, column].argmin())
            R[plus, minus], R[minus, plus] = row[column], 1 - row[column]
        p.append(naive.couple_pairs(R, "wlw2"))
    return np.log(p)


def spread_by_hand(book, z, weights):
    """The root mean square of all margins; those of one-vs-all about their mean."""
    every = [(w, value) for w, row in zip(weights, z, strict=True) for value in row]
    total = sum(w for w, _ in every)
    mean = sum(w * value for w, value in every) / total if book.is_one_vs_all else 0.0
    return (sum(w * (value - mean) ** 2 for w, value in every) / total) ** 0.5


def targets_by_hand(index, K, weights, smoothing=0.3):
    """So many rows' worth of labels is spread evenly over all classes."""
    share = smoothing / (smoothing + weights.sum())
    return (1 - share) * np.eye(K)[index] + share / K


def proba(decoder, outputs):
    return np.exp(decoder.log_proba(outputs))


# What it minimises -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [3.0, 0.4])
@pytest.mark.parametrize("name", ["one-vs-one", "one-vs-all", "two classes", "two of two"])
def test_it_minimises_the_stated_objective(name, strength):
    book = BOOKS[name]
    K, L = book.n_classes, book.n_columns
    index = classes_of(30, K)
    outputs = outputs_of(book, index)
    weights = np.random.default_rng(1).uniform(0.3, 2.5, index.size)
    decoder = CoupledSoftmax(ridge=strength).fit(book, outputs, index, sample_weight=weights)
    assert decoder.ridge_ == strength
    assert decoder.trust_ == 1.0
    assert decoder.contamination_ == 0.0

    spread = spread_by_hand(book, outputs.margins, weights)
    assert_allclose(decoder.spread_, spread)
    W = anchor_by_hand(book, outputs, index, weights, spread)
    T = targets_by_hand(index, K, weights)
    # About the class frequencies: a coupling counts relative to them, outputs to their mean in units of their spread.
    offset = np.log(weights @ T / weights.sum())
    middle, unit = offset, 1.0
    if book.is_one_vs_all or L == 1:
        middle = weights @ W / weights.sum()
        unit = np.sqrt(weights @ np.mean((W - middle) ** 2, axis=1) / weights.sum())
    W = (W - middle) / unit
    z = outputs.margins / spread
    X, d = np.hstack([z, z**2]), 2 * L

    def objective(parameters):
        # The squares cost three times as much, and the scale is pulled to one a little.
        squares = parameters[L * K : d * K]
        more = strength * float(squares @ squares)
        # What is added to the logits of all rows costs nothing: an intercept without a ridge.
        moved = parameters.copy()
        moved[d * K : -1] += offset
        value = naive.softmax_objective(moved, X, T, weights, strength, 0.0, W, 0.01)
        return value + more + 0.5 * strength * float(np.sum(parameters[d * K : -1] ** 2))

    start = np.zeros(d * K + K + 1)
    start[-1] = 1.0
    found = minimize(objective, start, method="BFGS", options={"gtol": 1e-5})
    assert_allclose(decoder.fit_.objective, found.fun, rtol=1e-6)
    logits = X @ found.x[: d * K].reshape(d, K) + found.x[d * K : -1] + offset + found.x[-1] * W
    expected = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    assert_allclose(proba(decoder, outputs), expected, atol=3e-4)
    # From the library's own solution the slow objective goes down no further.
    fit = decoder.fit_
    intercept = fit.intercept - offset + fit.scale * middle
    own = np.concatenate([fit.coef.ravel(), intercept, [fit.scale * unit]])
    assert_allclose(objective(own), found.fun, rtol=1e-6)
    for step in 1e-3 * np.random.default_rng(2).normal(size=(20, own.size)):
        assert objective(own + step) > objective(own) - 1e-9


@every_book
@pytest.mark.parametrize("noise", [0.3, 0.8, 3.0])
def test_a_chosen_ridge_is_a_given_one_tempered_and_contaminated(name, noise):
    book = BOOKS[name]
    index = classes_of(60, book.n_classes)
    outputs = outputs_of(book, index, noise=noise)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 60)
    chosen = CoupledSoftmax().fit(book, outputs, index, sample_weight=weights)
    assert chosen.ridge_ in max(book.n_classes, book.n_columns) / 2 * np.array(RIDGES)
    assert 0.0 <= chosen.trust_ <= 1.0
    given = CoupledSoftmax(ridge=chosen.ridge_).fit(book, outputs, index, sample_weight=weights)
    counts = np.bincount(index, weights) + 0.5
    log_prior = np.log(counts / counts.sum())
    assert_allclose(chosen.log_prior_, log_prior)
    assert 0.0 < chosen.contamination_ <= 0.5
    expected = tempered(given.log_proba(outputs), log_prior, chosen.trust_)
    expected = contaminated(expected, log_prior, chosen.contamination_)
    assert_allclose(chosen.log_proba(outputs), expected, atol=1e-5)


def test_noise_is_not_trusted():
    trusts = []
    for seed in range(6):
        index = classes_of(60, 3, seed=seed)
        noise = Outputs(
            np.random.default_rng(seed).normal(size=(60, 3)), "leave_one_out", dealt=deal_of(index)
        )
        trusts.append(CoupledSoftmax().fit(one_vs_one(3), noise, index).trust_)
    assert np.median(trusts) < 0.3
    index = classes_of(60, 3)
    assert (
        CoupledSoftmax().fit(one_vs_one(3), outputs_of(one_vs_one(3), index, noise=0.1), index).trust_ > 0.9
    )


@every_book
def test_the_fit_has_a_certificate_and_probabilities_sum_to_one(name):
    book = BOOKS[name]
    index = classes_of(80, book.n_classes)
    outputs = outputs_of(book, index)
    decoder = CoupledSoftmax().fit(book, outputs, index)
    assert decoder.fit_.converged
    assert decoder.fit_.gradient_norm <= 1e-8
    new = Outputs(5.0 * np.random.default_rng(3).normal(size=(200, book.n_columns)), "new")
    for rows in (outputs, new, Outputs(1e6 * new.margins, "new")):
        p = proba(decoder, rows)
        assert p.shape == (len(rows.margins), book.n_classes)
        assert np.isfinite(decoder.log_proba(rows)).all()
        assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert (proba(decoder, outputs).argmax(axis=1) == index).mean() > 0.55


@every_book
def test_outputs_beyond_those_of_the_training_rows_are_not_believed(name):
    book = BOOKS[name]
    L = book.n_columns
    index = classes_of(60, book.n_classes)
    outputs = outputs_of(book, index)
    decoder = CoupledSoftmax().fit(book, outputs, index)
    assert decoder.fit_.coef.shape == (2 * L, book.n_classes)
    new = 4.0 * np.random.default_rng(3).normal(size=(50, L))
    logits = np.empty((50, book.n_classes))
    columns = outputs.margins.T
    inside = np.array(
        [[min(max(z, min(known)), max(known)) for z, known in zip(row, columns, strict=True)] for row in new]
    )
    assert (inside != new).mean() > 0.2
    W = np.log(proba(decoder.coupling_, Outputs(inside, "new"))) if decoder.coupling_ else None
    for i, row in enumerate(inside):
        features = np.r_[row / decoder.spread_, row**2 / decoder.spread_**2]
        guess = book.matrix.clip(min=0 if L > 1 else -1) @ row / decoder.spread_ if W is None else W[i]
        logits[i] = features @ decoder.fit_.coef + decoder.fit_.intercept + decoder.fit_.scale * guess
    counts = np.bincount(index) + 0.5
    softmax = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    expected = (1 - decoder.contamination_) * softmax + decoder.contamination_ * counts / counts.sum()
    assert_allclose(proba(decoder, Outputs(new, "new")), expected, atol=1e-9)


def test_the_squares_of_many_machines_are_left_out():
    index = classes_of(60, 12)
    for n_classes, squared in ((11, True), (12, False)):
        book = one_vs_one(n_classes)
        kept = index < n_classes
        decoder = CoupledSoftmax().fit(book, outputs_of(book, index[kept]), index[kept])
        assert decoder.squares == squared
        assert decoder.fit_.coef.shape[0] == book.n_columns * (2 if squared else 1)


def test_more_machines_than_rows_are_rotated_away(monkeypatch):
    book, index = one_vs_one(12), np.tile(np.arange(12), 5)
    outputs = outputs_of(book, index)
    long = CoupledSoftmax().fit(book, outputs, index)
    monkeypatch.setattr("polymargin.decoders.coupled_softmax._ROTATED", 0)
    rotated = []

    def counted(features):
        rotated.append(features.shape)
        return reduced_features(features)

    monkeypatch.setattr("polymargin.solvers.softmax.reduced_features", counted)
    short = CoupledSoftmax().fit(book, outputs, index)
    # The two folds: all 60 rows are hardly fewer than the 66 machines.
    assert set(rotated) == {(29, 66), (31, 66)}
    assert_allclose(short.log_proba(outputs), long.log_proba(outputs), atol=1e-6)
    assert_allclose(short.cross_log_proba_, long.cross_log_proba_, atol=1e-5)


def test_a_huge_ridge_leaves_coupling_with_a_temperature():
    book = one_vs_one(3)
    index = classes_of(80, 3)
    outputs = outputs_of(book, index)
    decoder = CoupledSoftmax(ridge=1e10).fit(book, outputs, index)
    T = targets_by_hand(index, 3, np.ones(80))
    offset = np.log(T.mean(axis=0))
    W = Coupling().fit(book, outputs, index).log_proba(outputs) - offset

    def loss(scale):
        logits = scale * W + offset
        pull = 0.5 * 0.01 * (scale - 1.0) ** 2
        return pull - np.sum(T * (logits - logsumexp(logits, axis=1, keepdims=True)))

    scale = minimize_scalar(loss, bounds=(0.01, 10.0), method="bounded", options={"xatol": 1e-9}).x
    assert_allclose(decoder.fit_.scale, scale, rtol=1e-5)
    assert abs(scale - 1.0) > 0.01
    expected = np.exp(scale * W + offset)
    assert_allclose(proba(decoder, outputs), expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


def test_a_small_ridge_departs_from_coupling_where_the_outputs_say_so():
    # The machine of classes 0 and 1 tells class 2, which it has never seen; coupling cannot know.
    book = one_vs_one(3)
    index = classes_of(200, 3)
    random = np.random.default_rng(0)
    margins = 0.3 * random.normal(size=(200, 3))
    margins[:, 0] += np.where(index == 2, 3.0, np.where(index == 1, 0.2, -0.2))
    outputs = Outputs(margins, "leave_one_out")
    rows = np.arange(200), index
    free = CoupledSoftmax(ridge=1e-2).fit(book, outputs, index)
    tied = CoupledSoftmax(ridge=1e10).fit(book, outputs, index)
    assert -free.log_proba(outputs)[rows].mean() < 0.6 * -tied.log_proba(outputs)[rows].mean()


@every_book
def test_an_earlier_fit_leaves_no_trace(name):
    book = BOOKS[name]
    index = classes_of(60, book.n_classes)
    outputs, other = outputs_of(book, index), outputs_of(book, index, seed=9, noise=0.1)
    fresh = CoupledSoftmax().fit(book, outputs, index)
    again = CoupledSoftmax().fit(book, other, index).fit(book, outputs, index)
    assert_array_equal(again.log_proba(other), fresh.log_proba(other))
    assert_array_equal(again.cross_log_proba_, fresh.cross_log_proba_)


# Invariances -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", [one_vs_one, one_vs_all, lambda K: ecoc(K, 0)])
def test_renaming_the_classes_permutes_the_probabilities(coding):
    K = 4
    book = coding(K)
    index = classes_of(90, K)
    outputs = outputs_of(book, index)
    order = np.array([2, 0, 3, 1])  # class order[k] becomes class k
    rank = np.argsort(order)
    expected = proba(CoupledSoftmax().fit(book, outputs, index), outputs)[:, order]
    renamed = Codebook(book.matrix[order])
    outputs = replace(outputs, dealt=deal_of(rank[index]))
    found = CoupledSoftmax().fit(renamed, outputs, rank[index])
    assert_allclose(proba(found, outputs), expected, atol=1e-8)


@pytest.mark.parametrize("coding", [one_vs_one, minimal])
def test_neither_the_order_nor_the_signs_of_the_machines_matter(coding):
    book = coding(4)
    index = classes_of(90, 4)
    outputs = outputs_of(book, index)
    order = np.random.default_rng(0).permutation(book.n_columns)
    signs = np.where(np.arange(book.n_columns) % 2, 1, -1)
    expected = proba(CoupledSoftmax().fit(book, outputs, index), outputs)
    turned = Codebook(book.matrix[:, order] * signs)
    same = replace(outputs, margins=outputs.margins[:, order] * signs)
    found = proba(CoupledSoftmax().fit(turned, same, index), same)
    assert_allclose(found, expected, atol=1e-8)


@every_book
def test_a_weight_is_as_many_copies(name):
    book = BOOKS[name]
    index = classes_of(60, book.n_classes)
    outputs = outputs_of(book, index)
    weights = np.random.default_rng(4).integers(1, 5, 60)
    copies = np.repeat(np.arange(60), weights)
    decoder = CoupledSoftmax(ridge=0.7)  # to choose one, rows are dealt into folds
    weighted = clone(decoder).fit(book, outputs, index, sample_weight=weights.astype(float))
    repeated = clone(decoder).fit(book, outputs.rows(copies), index[copies])
    assert_allclose(proba(weighted, outputs), proba(repeated, outputs), atol=1e-8)
    plain = clone(decoder).fit(book, outputs, index)
    assert np.abs(proba(weighted, outputs) - proba(plain, outputs)).max() > 1e-3


@every_book
def test_the_units_of_the_outputs_do_not_matter(name):
    book = BOOKS[name]
    index = classes_of(60, book.n_classes)
    outputs = outputs_of(book, index)
    scaled = replace(outputs, margins=1e3 * outputs.margins)
    expected = proba(CoupledSoftmax().fit(book, outputs, index), outputs)
    assert_allclose(proba(CoupledSoftmax().fit(book, scaled, index), scaled), expected, atol=1e-7)


@every_book
def test_outputs_that_hardly_differ_are_not_blown_up(name):
    book = BOOKS[name]
    index = classes_of(60, book.n_classes)
    silent = Outputs(1e-12 * outputs_of(book, index).margins, "leave_one_out")
    decoder = CoupledSoftmax().fit(book, silent, index)
    assert decoder.spread_ == 0.25
    shares = np.bincount(index) / index.size
    assert_allclose(proba(decoder, silent), np.tile(shares, (index.size, 1)), atol=0.05)


def test_a_first_guess_that_speaks_for_the_other_side_is_dropped():
    book = BOOKS["two classes"]
    index = classes_of(60, 2)
    backwards = Outputs(-outputs_of(book, index).margins, "leave_one_out")
    assert CoupledSoftmax().fit(book, backwards, index).fit_.scale == 0.0


# Priors ----------------------------------------------------------------------------------------------------


@every_book
def test_priors_reweigh_the_probabilities(name):
    book = BOOKS[name]
    K = book.n_classes
    index = np.sort(classes_of(60, K))[::-1] % K
    weights = np.random.default_rng(5).uniform(0.5, 2.0, 60)
    outputs = outputs_of(book, index)
    shares = np.bincount(index, weights) / weights.sum()
    priors = np.arange(1.0, K + 1) / np.arange(1.0, K + 1).sum()
    plain = proba(CoupledSoftmax().fit(book, outputs, index, sample_weight=weights), outputs)
    shifted = CoupledSoftmax().fit(book, outputs, index, sample_weight=weights, priors=priors)
    expected = plain * priors / shares
    assert_allclose(proba(shifted, outputs), expected / expected.sum(axis=1, keepdims=True), rtol=1e-10)
    same = CoupledSoftmax().fit(book, outputs, index, sample_weight=weights, priors=shares)
    assert_allclose(proba(same, outputs), plain, rtol=1e-10)


@pytest.mark.parametrize(
    "decoding", ["coupled-softmax", "softmax", "coupling", Bayes(), Bayes(noise="model")]
)
def test_priors_of_the_estimator_reweigh_every_decoding(decoding):
    X, y = blobs(n=60, K=3, seed=2)
    machine = LSSVMClassifier(C=1.0, kernel="rbf", gamma=0.2, coding="one-vs-all", decoding=decoding)
    plain = clone(machine).fit(X, y).predict_proba(X)
    shares = np.bincount(y) / 60
    for given, priors in (
        ("uniform", np.full(3, 1 / 3)),
        ([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]),
        ("empirical", shares),
    ):
        found = clone(machine).set_params(priors=given).fit(X, y)
        expected = plain * np.array(priors) / shares
        assert_allclose(found.predict_proba(X), expected / expected.sum(axis=1, keepdims=True), atol=1e-9)
        assert_array_equal(found.predict(X), found.predict_proba(X).argmax(axis=1))


# Hard cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_rare_classes_keep_sensible_probabilities(coding):
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(5), [60, 40, 2, 3, 5])
    X = 2.5 * random.normal(size=(5, 3))[y] + random.normal(size=(y.size, 3))
    model = LSSVMClassifier(kernel="rbf", coding=coding).fit(X, y)
    for rows in (X, 10 * random.normal(size=(200, 3)), 1e4 * X):
        p = model.predict_proba(rows)
        assert np.isfinite(model.predict_log_proba(rows)).all()
        assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        assert_array_equal(model.predict(rows), p.argmax(axis=1))
    # On average over the training rows the probabilities are nearly the classes' shares.
    assert_allclose(model.predict_proba(X).mean(axis=0), np.bincount(y) / y.size, atol=0.05)


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_fifty_classes(coding):
    random = np.random.default_rng(1)
    y = np.tile(np.arange(50), 3)
    centres = 4.0 * random.normal(size=(50, 4))
    X = centres[y] + random.normal(size=(150, 4))
    new = centres + random.normal(size=(50, 4))
    model = LSSVMClassifier(C=10.0, kernel="rbf", gamma=0.05, coding=coding).fit(X, y)
    assert model.decoder_.fit_.status is not Status.ITERATION_LIMIT
    p = model.predict_proba(new)
    assert np.isfinite(model.predict_log_proba(new)).all()
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert_array_equal(model.predict(new), p.argmax(axis=1))
    own = p[np.arange(50), np.arange(50)]
    assert np.median(own) > 10 / 50
    assert (p.argmax(axis=1) == np.arange(50)).mean() > 0.5


@every_book
def test_separated_classes_stay_finite(name):
    book = BOOKS[name]
    K = book.n_classes
    index = np.repeat(np.arange(K), 20)
    outputs = Outputs(
        book.matrix[index] + 1e-3 * np.random.default_rng(0).normal(size=(20 * K, 1)), "leave_one_out"
    )
    decoder = CoupledSoftmax().fit(book, outputs, index)
    p = proba(decoder, outputs)
    assert_array_equal(p.argmax(axis=1), index)
    assert np.isfinite(decoder.log_proba(outputs)).all()
    # A third of a row's worth of labels is spread out, so nothing is certain.
    assert 0.9 < p[np.arange(20 * K), index].mean() < 1.0
    bare = CoupledSoftmax(smoothing=0.0).fit(book, outputs, index)
    assert np.isfinite(bare.log_proba(outputs)).all()
    assert (
        bare.log_proba(outputs)[np.arange(20 * K), index].mean() > np.log(p[np.arange(20 * K), index]).mean()
    )


def test_outputs_that_say_nothing_leave_the_class_shares():
    index = np.repeat([0, 1, 2], [30, 60, 90])
    for book in (one_vs_all(3), one_vs_one(3)):
        silent = Outputs(np.zeros((180, 3)), "leave_one_out")
        decoder = CoupledSoftmax(ridge=1e-6, smoothing=0.0).fit(book, silent, index)
        assert_allclose(proba(decoder, silent)[0], [1 / 6, 1 / 3, 1 / 2], atol=1e-3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ridge": -1.0}, "ridge must be None or a number that is not negative, not -1.0"),
        ({"ridge": np.nan}, "ridge must be None or a number"),
        ({"smoothing": -0.1}, "smoothing must not be negative, not -0.1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters, message):
    X, y = blobs(n=30, K=3)
    with pytest.raises(ValueError, match=message):
        LSSVMClassifier(decoding=CoupledSoftmax(**parameters)).fit(X, y)


# Cross-fitting ---------------------------------------------------------------------------------------------


def nested_outputs(book, index, n_folds=5, seed=0):
    """Outputs with those of machines that were trained without a fold: here, the outputs with other noise."""
    outputs = outputs_of(book, index, seed=seed)
    numbers = outputs.dealt.fold_numbers(n_folds)
    noise = 0.3 * np.random.default_rng(seed + 50).normal(size=(n_folds, *outputs.margins.shape))
    return replace(outputs, nested=Nested(numbers, outputs.margins + noise))


def cross_fitted_by_hand(book, outputs, index, weights, ridge):
    """Fold by fold: what is learned from the other folds' outputs, tempered by what the other folds say.

    Return the folds' numbers, log p, the class frequencies of the other folds, tempered log p, and every fold's share.
    """
    nested = outputs.nested is not None
    n_folds = 5 if nested else 2
    numbers = outputs.dealt.fold_numbers(n_folds)
    log_p, log_prior, honest = np.empty((3, index.size, book.n_classes))
    for fold in range(n_folds):
        held = numbers == fold
        margins = outputs.nested.margins[fold] if nested else outputs.margins
        other = CoupledSoftmax(ridge=ridge).fit(
            book, Outputs(margins[~held], "leave_one_out"), index[~held], sample_weight=weights[~held]
        )
        log_p[held] = other.log_proba(Outputs(margins[held], "new"))
        counts = np.bincount(index[~held], weights[~held], minlength=book.n_classes) + 0.5
        log_prior[held] = np.log(counts / counts.sum())
    others = [numbers != fold for fold in range(n_folds)]
    for rest in others:
        trust = temper(log_p[rest], log_prior[rest], index[rest], weights[rest])
        honest[~rest] = tempered(log_p[~rest], log_prior[~rest], trust)
    shares = [contamination(honest[rest], log_prior[rest], index[rest], weights[rest]) for rest in others]
    return numbers, log_p, log_prior, honest, shares


@pytest.mark.parametrize("nested", [False, True])
@every_book
def test_cross_fitted_rows_are_new_to_their_decoder(name, nested):
    """Fold by fold: learned from the other folds' outputs, tempered and contaminated by what the other folds say."""
    book = BOOKS[name]
    index = classes_of(50, book.n_classes)
    outputs = nested_outputs(book, index) if nested else outputs_of(book, index)
    weights = np.random.default_rng(6).uniform(0.5, 2.0, 50)
    decoder = CoupledSoftmax(ridge=0.5)
    found = decoder.cross_fit(book, outputs, index, sample_weight=weights)
    numbers, log_p, log_prior, honest, shares = cross_fitted_by_hand(book, outputs, index, weights, 0.5)
    assert set(numbers) == set(range(len(shares)))
    for fold, share in enumerate(shares):
        held = numbers == fold
        expected = contaminated(honest[held], log_prior[held], share)
        assert_allclose(found[held], expected, atol=1e-4)
    assert_allclose(decoder.trust_, temper(log_p, log_prior, index, weights), atol=1e-4)
    assert_allclose(decoder.contamination_, contamination(honest, log_prior, index, weights), atol=1e-4)


def test_labels_of_a_fold_do_not_count_for_the_fold():
    """With nested outputs and the ridge given, other labels in a fold leave what is learned for it as it is.

    Only how far it is trusted and the contamination, two numbers, are learned from folds whose decoders have seen
    these labels.
    """
    book = one_vs_one(3)
    index = classes_of(60, 3)
    outputs = nested_outputs(book, index)
    held = outputs.nested.numbers == 2
    other = index.copy()
    other[held] = (index[held] + 1) % 3
    one = CoupledSoftmax(ridge=0.5).cross_fit(book, outputs, index)
    two = CoupledSoftmax(ridge=0.5).cross_fit(book, outputs, other)
    counts = np.bincount(index[~held]) + 0.5
    prior = counts / counts.sum()

    def said(log_p, labels):
        """What the outputs say beside the class frequencies, but for the unit, with the contamination undone."""
        share = cross_fitted_by_hand(book, outputs, labels, np.ones(60), 0.5)[-1][2]
        p = (np.exp(log_p[held]) - share * prior) / (1 - share)
        logits = np.log(p / prior)
        logits = logits - logits.mean(axis=1, keepdims=True)
        return logits / np.abs(logits).max()

    assert_allclose(said(one, index), said(two, other), atol=1e-4)
    assert np.abs(one[~held] - two[~held]).max() > 0.2


def test_a_class_of_one_row_is_never_held_out():
    book = one_vs_one(3)
    index = np.repeat([0, 1, 2], [20, 20, 1])
    outputs = outputs_of(book, index)
    log_p = CoupledSoftmax().cross_fit(book, outputs, index)
    counts = np.bincount(index) + 0.5
    assert_allclose(np.exp(log_p[40]), counts / counts.sum())
    assert np.isfinite(log_p).all()
    assert np.abs(log_p[:40] - log_p[40]).max() > 0.1


@pytest.mark.parametrize("n", range(30, 45))
def test_every_row_of_a_class_of_several_is_cross_fitted(n):
    """Not given the class frequencies because all four rows of a class are in one fold."""
    book = one_vs_one(3)
    index = np.repeat([0, 1, 2], [n, n, 4])
    log_p = CoupledSoftmax(ridge=1.0).cross_fit(book, outputs_of(book, index), index)
    counts = np.bincount(index) + 0.5
    as_prior = np.abs(np.exp(log_p) - counts / counts.sum()).max(axis=1) < 1e-9
    assert not as_prior.any()
