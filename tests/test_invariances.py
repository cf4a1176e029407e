"""What must not matter does not: order, names, scales, copies; and problems that are hard to compute."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from conftest import blobs
from polymargin import Argmax, Bayes, Codebook, Hamming, Loss, LSSVMClassifier, Votes
from polymargin.codebooks import ecoc, minimal
from polymargin.selection.settings import SearchSettings

X, Y = blobs(n=48, K=4, seed=2, shift=1.3)
X_NEW = blobs(n=60, K=4, seed=8, spread=1.5)[0]

DECODERS = {
    "bayes": Bayes(),
    "model noise": Bayes(noise="model"),
    "hamming": Hamming(),
    "loss": Loss(),
    "hinge": Loss("hinge"),
}
SYMMETRIC = [("one-vs-one", name) for name in [*DECODERS, "votes"]]
SYMMETRIC += [("one-vs-all", name) for name in [*DECODERS, "argmax"]]
symmetric = pytest.mark.parametrize(("coding", "decoding"), SYMMETRIC)


def estimator(coding, decoding, **more):
    decoder = {"votes": Votes(), "argmax": Argmax(), **DECODERS}[decoding]
    return LSSVMClassifier(coding=coding, decoding=decoder, **more)


def scores(model, new=X_NEW):
    return model.predict_proba(new) if hasattr(model, "predict_proba") else model.decision_function(new)


# Order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential", "poly"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "minimal", "ecoc"])
def test_order_of_the_rows(kernel, coding):
    order = np.random.default_rng(0).permutation(len(X))
    one = LSSVMClassifier(kernel=kernel, coding=coding).fit(X, Y)
    other = LSSVMClassifier(kernel=kernel, coding=coding).fit(X[order], Y[order])
    assert_allclose(scores(other), scores(one), atol=1e-8)
    assert_allclose(other.C_, one.C_, rtol=1e-8)
    assert_allclose(other.gamma_, one.gamma_, rtol=1e-10)
    assert_allclose(other.loo_margins_, one.loo_margins_[order], atol=1e-8)


def test_order_of_many_rows():
    """More rows than the sample of the coarse search has."""
    rows, y = blobs(n=700, K=2, d=2, seed=0, shift=0.8)
    order = np.random.default_rng(0).permutation(700)
    one = LSSVMClassifier().fit(rows, y)
    other = LSSVMClassifier().fit(rows[order], y[order])
    assert_allclose(other.predict_proba(rows[:50]), one.predict_proba(rows[:50]), atol=1e-8)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential", "poly"])
def test_order_of_the_features(kernel):
    """The machines and their parameters; only which rows share a fold may depend on the order of the features."""
    order = [2, 0, 1]
    more = {"kernel": kernel, "degree": 2, "search": SearchSettings(smaller=(1.0,)), "decoding": "coupling"}
    one = LSSVMClassifier(**more).fit(X, Y)
    other = LSSVMClassifier(**more).fit(X[:, order], Y)
    assert_allclose(other.C_, one.C_, rtol=1e-9)
    assert_allclose(other.gamma_, one.gamma_, rtol=1e-9)
    assert_allclose(other.loo_margins_, one.loo_margins_, atol=1e-8)
    assert_allclose(scores(other, X_NEW[:, order]), scores(one), atol=1e-8)


# Labels ----------------------------------------------------------------------------------------------------


@symmetric
def test_names_of_the_classes(coding, decoding):
    names = np.array(["a", "b", "c", "d"])
    one, other = estimator(coding, decoding).fit(X, Y), estimator(coding, decoding).fit(X, names[Y])
    assert_array_equal(scores(other), scores(one))
    assert_array_equal(other.predict(X_NEW), names[one.predict(X_NEW)])


@symmetric
@pytest.mark.parametrize("shared", [True, False])
def test_numbers_of_the_classes(coding, decoding, shared):
    """Class k is called new[k]; its scores move to that column and nothing else changes."""
    new = np.array([2, 0, 3, 1])
    one = estimator(coding, decoding, shared_parameters=shared).fit(X, Y)
    other = estimator(coding, decoding, shared_parameters=shared).fit(X, new[Y])
    assert_allclose(scores(other)[:, new], scores(one), atol=1e-8)
    assert_array_equal(other.predict(X_NEW), new[one.predict(X_NEW)])


@pytest.mark.parametrize("book", [minimal(4), ecoc(4)], ids=["minimal", "ecoc"])
@pytest.mark.parametrize("decoding", DECODERS)
def test_numbers_of_the_classes_with_the_codewords_moved_along(book, decoding):
    new = np.array([2, 0, 3, 1])
    moved = np.empty_like(book.matrix)
    moved[new] = book.matrix
    one = estimator(book, decoding).fit(X, Y)
    other = estimator(Codebook(moved), decoding).fit(X, new[Y])
    assert_allclose(scores(other)[:, new], scores(one), atol=1e-8)


def test_priors_belong_to_the_classes():
    new, priors = np.array([2, 0, 3, 1]), np.array([0.1, 0.2, 0.3, 0.4])
    moved = np.empty(4)
    moved[new] = priors
    one = LSSVMClassifier(priors=priors).fit(X, Y)
    other = LSSVMClassifier(priors=moved).fit(X, new[Y])
    assert_allclose(scores(other)[:, new], scores(one), atol=1e-8)


def test_two_classes_are_the_same_with_every_coding():
    rows = Y < 2
    models = [
        LSSVMClassifier(coding=coding).fit(X[rows], Y[rows])
        for coding in ("one-vs-one", "one-vs-all", "minimal", "ecoc")
    ]
    for model in models:
        assert model.codebook_.n_columns == 1
        assert_allclose(scores(model), scores(models[0]), atol=1e-12)
        assert model.decision_function(X_NEW).shape == (len(X_NEW),)


# Scales and offsets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e12])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_scale_of_the_features(scale, kernel, coding):
    """The search begins at the scale of the data, so a common factor changes nothing."""
    one = LSSVMClassifier(kernel=kernel, coding=coding).fit(X, Y)
    other = LSSVMClassifier(kernel=kernel, coding=coding).fit(scale * X, Y)
    assert_allclose(scores(other, scale * X_NEW), scores(one), atol=1e-8)
    power = {"rbf": 2, "laplacian": 1, "exponential": 1}.get(kernel)
    if power is not None:
        assert_allclose(other.gamma_ * scale**power, one.gamma_, rtol=1e-9)
        assert_allclose(other.C_, one.C_, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scale_of_the_features_in_a_polynomial(scale):
    one = LSSVMClassifier(kernel="poly").fit(X, Y)
    other = LSSVMClassifier(kernel="poly").fit(scale * X, Y)
    assert_allclose(scores(other, scale * X_NEW), scores(one), atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "exponential"])
def test_offset_of_the_features(kernel):
    rows, new = np.round(X, 3), np.round(X_NEW, 3)
    one = LSSVMClassifier(kernel=kernel).fit(rows, Y)
    other = LSSVMClassifier(kernel=kernel).fit(rows + 1e6, Y)
    assert_allclose(scores(other, new + 1e6), scores(one, new), atol=1e-8)
    far = LSSVMClassifier(kernel=kernel, C=one.C_[0], gamma=one.gamma_[0]).fit(rows + 1e8, Y)
    assert_allclose(scores(far, new + 1e8), scores(one, new), atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential", "poly"])
def test_a_constant_feature(kernel):
    constant = np.column_stack([X, np.full(len(X), 0.0)])
    one = LSSVMClassifier(kernel=kernel).fit(X, Y)
    other = LSSVMClassifier(kernel=kernel).fit(constant, Y)
    assert_allclose(scores(other, np.column_stack([X_NEW, np.zeros(60)])), scores(one), atol=1e-8)
    if kernel in ("rbf", "laplacian", "exponential", "linear"):
        seven = LSSVMClassifier(kernel=kernel).fit(np.column_stack([X, np.full(len(X), 7.0)]), Y)
        assert_allclose(scores(seven, np.column_stack([X_NEW, np.full(60, 7.0)])), scores(one), atol=1e-7)


# Hard problems ---------------------------------------------------------------------------------------------


def sound(model, new, n_classes):
    proba = model.predict_proba(new)
    assert proba.shape == (len(new), n_classes)
    assert np.isfinite(proba).all()
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    for values in (model.loo_margins_, model.variances(new), model.bank_.norms, model.mu_, model.zeta_):
        assert np.isfinite(values).all()
    assert (model.variances(new) > 0).all()
    return proba


codings = pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "minimal", "ecoc"])
kernels = pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential", "poly"])


@codings
@kernels
def test_copies_of_rows(coding, kernel):
    """A warning says that they are taken for one observation, which weighs three times as much: C is a third."""
    rows, y = np.tile(X, (3, 1)), np.tile(Y, 3)
    with pytest.warns(UserWarning, match="96 of 144 rows are copies"):
        model = LSSVMClassifier(coding=coding, kernel=kernel).fit(rows, y)
    sound(model, X_NEW, 4)
    more = {"coding": coding, "kernel": kernel, "gamma": None if kernel == "linear" else 0.1}
    alone = LSSVMClassifier(C=3.0, **more).fit(X, Y)
    told = LSSVMClassifier(C=1.0, **more).fit(rows, y, groups=np.tile(np.arange(len(X)), 3))
    with pytest.warns(UserWarning, match="copies"):
        found = LSSVMClassifier(C=1.0, **more).fit(rows, y)
    for copied in (told, found):
        expected = np.tile(alone.loo_margins_, (3, 1))[copied.support_]
        assert_allclose(copied.loo_margins_, expected, atol=1e-6)
        assert_allclose(scores(copied), scores(alone), atol=1e-5)
        expected = np.tile(alone.loo_log_proba_, (3, 1))[copied.support_]
        assert_allclose(copied.loo_log_proba_, expected, atol=1e-4)


@codings
@kernels
def test_more_features_than_rows(coding, kernel):
    rows, y = blobs(n=20, K=3, d=100, seed=0, shift=0.5)
    model = LSSVMClassifier(coding=coding, kernel=kernel).fit(rows, y)
    sound(model, blobs(n=20, K=3, d=100, seed=1)[0], 3)
    assert model.score(rows, y) == 1.0


@codings
def test_a_class_of_one_row(coding):
    y = Y.copy()
    y[y == 3] = 0
    y[7] = 3
    model = LSSVMClassifier(coding=coding).fit(X, y)
    sound(model, X_NEW, 4)


@codings
def test_every_class_of_one_row(coding):
    model = LSSVMClassifier(coding=coding).fit(np.arange(3.0)[:, np.newaxis], [0, 1, 2])
    sound(model, np.linspace(-1, 3, 9)[:, np.newaxis], 3)


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "minimal", "ecoc"])
def test_twelve_classes(coding):
    rows, y = blobs(n=120, K=12, d=4, seed=0, shift=3.0, spread=0.5)
    model = LSSVMClassifier(coding=coding, random_state=0).fit(rows, y)
    sound(model, rows, 12)
    assert model.score(rows, y) > 0.9


@kernels
def test_contradictory_labels(kernel):
    """Every row twice, with two labels: nothing can be known, and the probabilities say so."""
    rows = np.random.default_rng(0).normal(size=(30, 2))
    model = LSSVMClassifier(kernel=kernel).fit(np.tile(rows, (2, 1)), np.repeat([0, 1], 30))
    assert_allclose(sound(model, rows, 2), 0.5, atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential"])
def test_rows_that_are_all_equal(kernel):
    rows, y = np.full((30, 2), 3.3), np.repeat([0, 1], [20, 10])
    model = LSSVMClassifier(kernel=kernel, priors="empirical").fit(rows, y)
    proba = sound(model, np.full((1, 2), 3.3), 2)
    assert proba[0, 0] > 0.5


def test_an_outlier_does_not_disturb_the_others():
    far = np.vstack([X, [1e5, 0.0, 0.0]])
    one = LSSVMClassifier(C=1.0, gamma=0.3).fit(X, Y)
    other = LSSVMClassifier(C=1.0, gamma=0.3).fit(far, np.append(Y, 0))
    sound(other, X_NEW, 4)
    assert (other.predict(X_NEW) == one.predict(X_NEW)).mean() > 0.8


def test_new_rows_far_away_are_doubtful():
    """Far from all rows the Gaussian kernel knows nothing: the variance is that of the prior."""
    model = LSSVMClassifier(kernel="rbf", C=1.0, gamma=0.5).fit(X, Y)
    far = np.array([[1e3, 1e3, 1e3], [1e150, 0.0, 0.0]])
    assert np.isfinite(model.predict_proba(far)).all()
    assert (model.variances(far) > model.variances(X).max(axis=0)).all()
    assert_allclose(model.margins(far), np.tile(model.intercept_, (2, 1)))
