"""Coupling: Platt's sigmoids, pairwise coupling and its extension to any codebook (Bravo et al. 2010, §2)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import _sigmoid_calibration
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

import naive
from polymargin import LSSVMClassifier
from polymargin.codebooks import Codebook, ecoc, one_vs_all, one_vs_one
from polymargin.decoders import Coupling, resolve_decoder
from polymargin.outputs import Outputs
from polymargin.solvers.coupling import CLIP, _Sides, bradley_terry, couple
from polymargin.solvers.platt import Sigmoids, fit_sigmoids

METHODS = ["wlw2", "wlw1", "ht", "pkpd"]


def square(condensed, n_classes):
    i, k = np.triu_indices(n_classes, 1)
    R = np.zeros((len(condensed), n_classes, n_classes))
    R[:, i, k], R[:, k, i] = condensed, 1.0 - condensed
    return R


def pairwise(p):
    with np.errstate(invalid="ignore"):
        return p[:, :, np.newaxis] / (p[:, :, np.newaxis] + p[:, np.newaxis, :])


def some_pairs(n, n_classes, seed=0):
    """Return condensed pairwise probabilities that no p agrees with."""
    return np.random.default_rng(seed).uniform(0.02, 0.98, (n, n_classes * (n_classes - 1) // 2))


def outputs_of(codebook, class_index, seed=0, noise=0.7):
    random = np.random.default_rng(seed)
    shape = class_index.size, codebook.n_columns
    margins = codebook.targets(class_index) + noise * random.normal(size=shape)
    return Outputs(margins * np.exp(random.normal(size=codebook.n_columns)), "leave_one_out")


# --- pairs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_classes", [2, 3, 4, 7, 12, 30])
def test_every_method_solves_what_defines_it(method, n_classes):
    r = some_pairs(3, n_classes, seed=n_classes)
    p = couple(r, method)
    slow = [naive.couple_pairs(R, method) for R in square(r, n_classes)]
    np.testing.assert_allclose(p, slow, atol=1e-6)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_ht_weighs_the_pairs_by_their_rows():
    sizes = np.array([5.0, 100.0, 20.0, 1.0])
    q = sizes[:, np.newaxis] + sizes
    r = some_pairs(4, 4)
    p = couple(r, "ht", q)
    slow = [naive.couple_pairs(R, "ht", q) for R in square(r, 4)]
    np.testing.assert_allclose(p, slow, atol=1e-6)
    assert np.abs(p - couple(r, "ht")).max() > 1e-3
    np.testing.assert_allclose(couple(r, "ht", q[np.triu_indices(4, 1)]), p)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_classes", [2, 5, 50])
def test_pairs_that_agree_give_back_their_probabilities(method, n_classes):
    p = np.random.default_rng(0).dirichlet(np.full(n_classes, 2.0), 20)
    np.testing.assert_allclose(couple(pairwise(p), method), p, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_the_two_shapes_of_r_are_the_same(method):
    r = some_pairs(40, 5)
    np.testing.assert_allclose(couple(r, method), couple(square(r, 5), method), atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_blocks_do_not_matter(method, monkeypatch):
    r = some_pairs(23, 6)
    whole = couple(r, method)
    monkeypatch.setattr("polymargin.solvers.coupling._BLOCK", 180)
    np.testing.assert_allclose(couple(r, method), whole, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_permuting_the_classes_permutes_the_probabilities(method):
    R = square(some_pairs(10, 6), 6)
    order = np.random.default_rng(1).permutation(6)
    np.testing.assert_allclose(
        couple(R[:, order][:, :, order], method), couple(R, method)[:, order], atol=1e-10
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_classes", [2, 4, 50])
def test_certainty_does_no_harm(method, n_classes):
    random = np.random.default_rng(0)
    n_pairs = n_classes * (n_classes - 1) // 2
    r = np.vstack([random.integers(0, 2, (20, n_pairs)), np.zeros(n_pairs), np.ones(n_pairs)]).astype(float)
    p = couple(r, method)
    assert np.isfinite(p).all()
    assert (p >= 0.0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    # Class 0 wins all its duels in the last row, and the last class in the one before.
    assert p[-1].argmax() == 0
    assert p[-2].argmax() == n_classes - 1
    np.testing.assert_array_equal(p, couple(np.clip(r, CLIP, 1 - CLIP), method))


def test_bad_pairs_are_refused():
    with pytest.raises(ValueError, match="number of pairs"):
        couple(np.full((2, 4), 0.5))
    with pytest.raises(ValueError, match="shape"):
        couple(np.full((2, 4, 3), 0.5))
    with pytest.raises(ValueError, match="unknown method"):
        couple(np.full((2, 3), 0.5), "wlw3")


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_wlw2_is_what_libsvm_makes_of_its_own_sigmoids(load):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = SVC(probability=True, decision_function_shape="ovo", break_ties=False, random_state=0).fit(
            X, y
        )
        proba = model.predict_proba(X)
        A, B = model._probA, model._probB
    # Its sigmoids are for decisions with the lower class on the positive side, as scikit-learn shows them.
    r = 1.0 / (1.0 + np.exp(A * model.decision_function(X) + B))
    # LIBSVM stops its iterations at 0.005/K.
    np.testing.assert_allclose(couple(r, "wlw2"), proba, atol=0.005)
    assert np.median(np.abs(couple(r, "wlw2") - proba)) < 1e-3


# --- any codebook -----------------------------------------------------------------------------------------------

SPARSE = np.array([[1, 1, 0, 1, 0], [-1, 0, 1, 1, 1], [0, -1, 1, -1, -1], [1, -1, -1, 0, 1]])


def test_bradley_terry_for_pairs_is_ht():
    r, book = some_pairs(30, 5), one_vs_one(5)
    order = book.matrix.argmax(axis=0) < book.matrix.argmin(axis=0)
    first = np.minimum(book.matrix.argmax(axis=0), book.matrix.argmin(axis=0))
    second = np.maximum(book.matrix.argmax(axis=0), book.matrix.argmin(axis=0))
    R = square(r, 5)
    columns = np.where(order, R[:, first, second], R[:, second, first])
    np.testing.assert_allclose(bradley_terry(columns, book.matrix, prior=0.0), couple(r, "ht"), atol=1e-8)


@pytest.mark.parametrize("prior", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("matrix", [one_vs_all(5).matrix, ecoc(5, 0).matrix, one_vs_one(4).matrix, SPARSE])
def test_bradley_terry_minimises_its_distance(matrix, prior):
    random = np.random.default_rng(3)
    n_classes, n_columns = matrix.shape
    r = random.uniform(0.1, 0.9, (4, n_columns))
    weights = random.uniform(0.5, 3.0, n_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every row must get to its end
        p = bradley_terry(r, matrix, weights, prior)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    for row in range(4):

        def distance(theta, row=row):
            return naive.bradley_terry_distance(np.exp(theta), r[row], matrix, weights, prior)

        here = distance(np.log(p[row]))
        starts = [np.log(p[row]), np.zeros(n_classes), random.normal(size=n_classes)]
        best = min(
            (minimize(distance, start, method="BFGS", options={"gtol": 1e-9}) for start in starts),
            key=lambda f: f.fun,
        )
        assert here <= best.fun + 1e-8
        if prior > 0.0:
            np.testing.assert_allclose(p[row], np.exp(best.x) / np.exp(best.x).sum(), atol=1e-5)


@pytest.mark.parametrize("matrix", [one_vs_all(6).matrix, ecoc(6, 0).matrix, SPARSE])
def test_dichotomies_that_agree_give_back_their_probabilities(matrix):
    p = np.random.default_rng(0).dirichlet(np.full(len(matrix), 3.0), 50)
    above, below = p @ (matrix > 0), p @ (matrix < 0)
    np.testing.assert_allclose(bradley_terry(above / (above + below), matrix, prior=0.0), p, atol=1e-7)


@pytest.mark.parametrize("matrix", [one_vs_all(50).matrix, ecoc(10, 0).matrix, SPARSE])
def test_certain_dichotomies_do_no_harm(matrix):
    r = np.random.default_rng(0).integers(0, 2, (50, matrix.shape[1])).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every row must get to its end
        p = bradley_terry(r, matrix)
    assert np.isfinite(np.log(p)).all()
    own = (matrix.T > 0).astype(float)[:, 1]
    assert bradley_terry(own[np.newaxis], matrix)[0].argmax() == 1


@pytest.mark.parametrize("prior", [0.0, 0.3])
def test_the_derivatives_of_the_distance(prior):
    random = np.random.default_rng(0)
    r, weights = random.uniform(0.1, 0.9, (1, 5)), random.uniform(0.5, 2.0, 5)
    weights /= weights.mean()
    sides = _Sides(SPARSE, weights, prior)
    theta = random.normal(size=4)
    theta -= np.log(np.exp(theta).sum())

    def distance(theta):
        return naive.bradley_terry_distance(np.exp(theta), r[0], SPARSE, weights, prior)

    def gradient(theta):
        up, down = sides._balance_terms(np.exp(theta - np.log(np.exp(theta).sum()))[np.newaxis], r)
        return (down - up)[0]

    assert sides.value(np.exp(theta)[np.newaxis], r)[0] == pytest.approx(distance(theta), rel=1e-12)
    np.testing.assert_allclose(gradient(theta), approx_fprime(theta, distance), atol=1e-6)
    step = sides._newton(np.exp(theta)[np.newaxis], r, gradient(theta)[np.newaxis])[0]
    assert np.abs(step).max() < 5.0  # not cut
    ahead, behind = gradient(theta + 1e-5 * step), gradient(theta - 1e-5 * step)
    np.testing.assert_allclose((ahead - behind) / 2e-5, -gradient(theta), atol=1e-6)


def test_bradley_terry_of_few_columns_reaches_the_minimum():
    # Three columns for six classes: but for the small prior the distance would be flat in many directions.
    matrix = np.array([[-1, -1, -1], [-1, -1, 1], [-1, 1, -1], [-1, 1, 1], [1, -1, -1], [1, -1, 1]])
    r = np.clip(1 / (1 + np.exp(-4.0 * np.random.default_rng(0).normal(size=(300, 3)))), 1e-7, 1 - 1e-7)
    p = bradley_terry(r, matrix)
    up, down = _Sides(matrix, np.ones(3), 1e-4)._balance_terms(p, r)
    assert np.abs(up - down).max() < 1e-13


def test_bradley_terry_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="one column for each"):
        bradley_terry(np.full((2, 3), 0.5), SPARSE)
    with pytest.raises(ValueError, match="negative"):
        bradley_terry(np.full((2, 5), 0.5), SPARSE, prior=-1.0)


# --- sigmoids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_sigmoid_is_platts(weighted, unit):
    random = np.random.default_rng(0)
    positive = random.uniform(size=60) < 0.3
    f = np.where(positive, 1.0, -0.5) + random.normal(size=60)
    weights = random.uniform(0.1, 3.0, 60) if weighted else None
    A, B = naive.platt_sigmoid(f, positive, weights)
    fit = fit_sigmoids(unit * f[:, np.newaxis], np.where(positive, 1, -1)[:, np.newaxis], weights)
    np.testing.assert_allclose([-unit * fit.slope[0], -fit.intercept[0]], [A, B], rtol=1e-5)
    assert fit.gradient_norm[0] < 1e-8


def test_the_sigmoid_is_scikit_learns():
    random = np.random.default_rng(0)
    positive = random.uniform(size=300) < 0.2
    f = np.where(positive, 1.0, -0.5) + random.normal(size=300)
    weights = random.integers(1, 4, 300).astype(float)
    A, B = _sigmoid_calibration(f, positive, weights)
    fit = fit_sigmoids(f[:, np.newaxis], np.where(positive, 1, -1)[:, np.newaxis], weights)
    np.testing.assert_allclose([-fit.slope[0], -fit.intercept[0]], [A, B], rtol=1e-4)


def test_sigmoids_use_the_rows_of_their_columns_only():
    random = np.random.default_rng(0)
    index = random.integers(0, 4, 100)
    book = one_vs_one(4)
    margins, targets = outputs_of(book, index).margins, book.targets(index)
    together = fit_sigmoids(margins, targets)
    for column in range(book.n_columns):
        used = targets[:, column] != 0
        alone = fit_sigmoids(margins[used, column : column + 1], targets[used, column : column + 1])
        np.testing.assert_allclose(together.slope[column], alone.slope[0])
        np.testing.assert_allclose(together.intercept[column], alone.intercept[0])


def test_sigmoids_of_difficult_margins_are_finite():
    signs = np.array([1, 1, 1, -1, -1, -1])[:, np.newaxis]
    separated = fit_sigmoids(1e3 * signs.astype(float), signs)
    # Nothing in between: the sigmoid passes through Platt's targets.
    np.testing.assert_allclose(separated.proba(np.array([[1e3], [-1e3]])).ravel(), [0.8, 0.2], atol=1e-6)
    constant = fit_sigmoids(np.full((6, 1), 7.0), np.array([1, 1, 1, 1, -1, -1])[:, np.newaxis])
    assert constant.slope[0] == 0.0
    # The mean of the targets, 4 × 5/6 and 2 × 1/4.
    np.testing.assert_allclose(constant.proba(np.array([[7.0]])), (4 * 5 / 6 + 2 / 4) / 6, atol=1e-8)
    lonely = fit_sigmoids(np.array([[2.0], [-1.0]]), np.array([[1], [-1]]))
    assert np.isfinite(lonely.logits(np.array([[-1e9], [1e9]]))).all()
    with pytest.raises(ValueError, match="no row"):
        fit_sigmoids(np.zeros((3, 1)), np.zeros((3, 1)))


@pytest.mark.parametrize("smoothing", [True, False])
def test_sigmoids_of_heavy_tails_reach_the_minimum(smoothing):
    # Margins over many orders of magnitude: full Newton steps would leave for where there is no curvature.
    random = np.random.default_rng(0)
    positive = random.uniform(size=(80, 6)) < 0.3
    z = np.where(positive, 0.5, -0.5) + random.standard_cauchy(size=(80, 6))
    z[:, 3:] = np.sign(z[:, 3:]) * np.exp(3.0 * random.normal(size=(80, 3)))
    fit = fit_sigmoids(z, np.where(positive, 1, -1), smoothing=smoothing)
    N = positive.sum(axis=0)
    high, low = ((N + 1) / (N + 2), 1 / (80 - N + 2)) if smoothing else (1.0, 0.0)
    targets = np.where(positive, high, low)

    def loss(slope, intercept):
        u = slope * z + intercept
        return (np.logaddexp(0.0, u) - targets * u).sum(axis=0)

    least = loss(fit.slope, fit.intercept)
    for factor, shift in ((1.0, 1e-3), (1.0, -1e-3), (1.01, 0.0), (0.99, 0.0)):
        assert (loss(factor * fit.slope, fit.intercept + shift) > least - 1e-10).all()
    assert fit.gradient_norm.max() < 1e-8


def test_probabilities_of_sigmoids_neither_overflow_nor_lose_digits():
    u = np.array([-1e9, -710.0, -600.0, -30.0, -1e-3, 0.0, 1.0, 40.0, 1e9])[:, np.newaxis]
    sigmoid = Sigmoids(np.ones(1), np.zeros(1), np.zeros(1))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        p = sigmoid.proba(u)
    np.testing.assert_allclose(p, expit(u), rtol=1e-12, atol=1e-300)


def test_maximum_likelihood_without_smoothing():
    random = np.random.default_rng(0)
    z = random.normal(size=(80, 1))
    signs = np.where(random.uniform(size=(80, 1)) < expit(2 * z - 0.5), 1, -1)
    fit = fit_sigmoids(z, signs, smoothing=False)
    residual = fit.proba(z) - (signs > 0)
    np.testing.assert_allclose([residual.sum(), (residual * z).sum()], 0.0, atol=1e-6)


# --- the decoder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, "bradley-terry"])
def test_the_decoder_is_sigmoids_then_coupling(method):
    index = np.random.default_rng(0).integers(0, 4, 120)
    book = Codebook(one_vs_one(4).matrix[:, [3, 1, 5, 0, 2, 4]] * np.array([1, -1, 1, -1, -1, 1]))
    outputs = outputs_of(book, index)
    decoder = Coupling(method).fit(book, outputs, index)
    R = np.zeros((120, 4, 4))
    for column in range(6):
        i, k = book.matrix[:, column].argmax(), book.matrix[:, column].argmin()
        used = (index == i) | (index == k)
        A, B = naive.platt_sigmoid(outputs.margins[used, column], index[used] == i)
        R[:, i, k] = 1.0 / (1.0 + np.exp(A * outputs.margins[:, column] + B))
        R[:, k, i] = 1.0 - R[:, i, k]
    p = np.exp(decoder.log_proba(outputs))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    sizes = np.bincount(index)
    q = (sizes[:, np.newaxis] + sizes).astype(float)
    if method != "bradley-terry":
        expected = [naive.couple_pairs(R[i], method, q) for i in range(6)]
        np.testing.assert_allclose(p[:6], expected, atol=1e-5)
    else:
        positive, negative = book.matrix.argmax(axis=0), book.matrix.argmin(axis=0)
        expected = bradley_terry(R[:, positive, negative], book.matrix, q[positive, negative])
        np.testing.assert_allclose(p, expected, atol=1e-6)


def test_the_method_follows_the_codebook():
    index = np.arange(40) % 4
    for book, method in [
        (one_vs_one(4), "wlw2"),
        (one_vs_all(4), "bradley-terry"),
        (ecoc(4, 0), "bradley-terry"),
    ]:
        decoder = resolve_decoder("coupling").fit(book, outputs_of(book, index), index)
        assert decoder.method_ == method
        assert (np.exp(decoder.log_proba(outputs_of(book, index))).argmax(axis=1) == index).mean() > 0.7
    with pytest.raises(ValueError, match="one-vs-one"):
        Coupling("ht").check(one_vs_all(4))
    with pytest.raises(ValueError, match="unknown method"):
        Coupling("libsvm").check(one_vs_one(4))


@pytest.mark.parametrize("book", [one_vs_one(3), one_vs_all(3)])
def test_weight_two_is_the_row_twice(book):
    index = np.random.default_rng(0).integers(0, 3, 50)
    outputs = outputs_of(book, index)
    weights = np.random.default_rng(1).integers(0, 3, 50).astype(float)
    twice = np.repeat(np.arange(50), weights.astype(int))
    priors = np.array([0.5, 0.3, 0.2])
    one = Coupling().fit(book, outputs, index, priors=priors, sample_weight=weights)
    two = Coupling().fit(book, Outputs(outputs.margins[twice], "leave_one_out"), index[twice], priors=priors)
    np.testing.assert_allclose(one.log_proba(outputs), two.log_proba(outputs), atol=1e-7)


def test_priors_carry_the_posteriors_to_another_balance():
    index = np.array([0] * 60 + [1] * 30 + [2] * 10)
    book = one_vs_one(3)
    outputs = outputs_of(book, index)
    plain = Coupling().fit(book, outputs, index)
    even = Coupling().fit(book, outputs, index, priors=np.full(3, 1 / 3))
    expected = np.exp(plain.log_proba(outputs)) / np.array([0.6, 0.3, 0.1])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(even.log_proba(outputs)), expected, atol=1e-12)
    same = Coupling().fit(book, outputs, index, priors=np.array([0.6, 0.3, 0.1]))
    np.testing.assert_allclose(same.log_proba(outputs), plain.log_proba(outputs), atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_many_classes_of_three_rows(method):
    index = np.repeat(np.arange(50), 3)
    book = one_vs_one(50)
    outputs = outputs_of(book, index, noise=0.3)
    log_p = Coupling(method).fit(book, outputs, index).log_proba(outputs)
    assert np.isfinite(log_p).all()
    assert (log_p.argmax(axis=1) == index).mean() > 0.9


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_in_an_estimator_labels_and_probabilities_agree(coding):
    X, y = make_blobs(90, centers=3, cluster_std=1.5, random_state=0)
    model = LSSVMClassifier(kernel="rbf", coding=coding, decoding="coupling").fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert model.score(X, y) > 0.6
    assert clone(model.decoder_).get_params() == {"method": None, "in_sample": False}


def test_scikit_learn_accepts_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(
            LSSVMClassifier(kernel="rbf", coding="one-vs-one", decoding="coupling", C=1.0, gamma=0.1),
            on_skip=None,
        )
