"""LSSVMClassifier as a scikit-learn estimator, and the law of the house: label and probability agree."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import naive
from conftest import blobs
from polymargin import (
    Argmax,
    Bayes,
    Codebook,
    Dag,
    Hamming,
    Loss,
    LSSVMClassifier,
    Votes,
    _memory,
    save,
)
from polymargin import load as load_model
from polymargin.comparison import compare_codings
from polymargin.inspection import selection_surface
from polymargin.metrics import accuracy
from polymargin.selection.settings import SearchSettings


@parametrize_with_checks(
    [
        LSSVMClassifier(),
        LSSVMClassifier(coding="one-vs-all"),
        LSSVMClassifier(coding="ecoc", decoding="hamming", random_state=0),
        LSSVMClassifier(kernel="linear", coding="minimal"),
        LSSVMClassifier(shared_parameters=False),
        LSSVMClassifier(C=1.0, gamma=0.5, selection=None, decoding=Loss("hinge")),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        check(estimator)


X, Y = blobs(n=60, K=4, seed=0, shift=1.2)
X_NEW = blobs(n=300, K=4, seed=7, spread=2.0)[0]

CONFIGURATIONS = {
    "default": LSSVMClassifier(),
    "one-vs-all": LSSVMClassifier(coding="one-vs-all"),
    "minimal": LSSVMClassifier(coding="minimal", kernel="linear"),
    "ecoc": LSSVMClassifier(coding="ecoc", random_state=0),
    "sequential": LSSVMClassifier(decoding=Bayes(update="sequential")),
    "model noise": LSSVMClassifier(decoding=Bayes(noise="model"), coding="one-vs-all"),
    "priors": LSSVMClassifier(priors=[0.1, 0.2, 0.3, 0.4]),
    "empirical": LSSVMClassifier(priors="empirical", kernel="laplacian"),
    "own parameters": LSSVMClassifier(shared_parameters=False, kernel="poly"),
    "sure": LSSVMClassifier(C=1e6, gamma=5.0, selection=None),
    "unsure": LSSVMClassifier(C=1e-9, gamma=1e-3, selection=None),
}
HARD = {
    "hamming": LSSVMClassifier(decoding="hamming"),
    "loss": LSSVMClassifier(decoding="loss", coding="one-vs-all"),
    "argmax": LSSVMClassifier(decoding=Argmax(), coding="one-vs-all"),
    "votes": LSSVMClassifier(decoding=Votes()),
    "dag": LSSVMClassifier(decoding=Dag()),
}


# The law of the house --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_label_and_probability_agree(name, n_classes):
    rows = n_classes > Y
    model = clone(CONFIGURATIONS[name])
    if name == "priors" and n_classes == 2:
        model.set_params(priors=[0.3, 0.7])
    model.fit(X[rows], Y[rows])
    for new in (X_NEW, 1e3 * X_NEW, X[rows]):
        proba = model.predict_proba(new)
        assert proba.shape == (len(new), n_classes)
        assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        assert (proba >= 0).all()
        predicted = model.predict(new)
        assert_array_equal(predicted, model.classes_[proba.argmax(axis=1)])
        assert_allclose(np.exp(model.predict_log_proba(new)), proba, rtol=1e-12)
        scores = model.decision_function(new)
        if n_classes == 2:
            assert scores.shape == (len(new),)
            assert_array_equal(predicted, model.classes_[(scores > 0).astype(int)])
        else:
            assert_array_equal(predicted, model.classes_[scores.argmax(axis=1)])


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", HARD)
def test_decoders_without_probabilities_offer_none(name, n_classes):
    model = clone(HARD[name])
    assert not hasattr(model, "predict_proba")
    rows = n_classes > Y
    model.fit(X[rows], Y[rows])
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "predict_log_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(X)
    assert 'gives no probabilities; set decoding="coupled-softmax"' in str(caught.value)
    scores = model.decision_function(X_NEW)
    winners = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    assert_array_equal(model.predict(X_NEW), model.classes_[winners])


def test_whether_there_are_probabilities_follows_the_parameter():
    assert hasattr(LSSVMClassifier(), "predict_proba")
    assert hasattr(LSSVMClassifier(decoding=Bayes()), "predict_proba")
    assert not hasattr(LSSVMClassifier(decoding=Hamming()), "predict_proba")


# What it learns --------------------------------------------------------------------------------------------


def test_it_learns():
    for load in (load_iris, load_wine):
        rows, y = load(return_X_y=True)
        model = make_pipeline(StandardScaler(), LSSVMClassifier())
        proba = cross_val_predict(model, rows, y, method="predict_proba", cv=4)
        assert accuracy(y, proba.argmax(axis=1)) > 0.94
        assert sklearn_log_loss(y, proba) < 0.2


def test_attributes():
    model = LSSVMClassifier(kernel="rbf", coding="one-vs-all").fit(X, Y)
    n, L = len(X), 4
    for name in ("C_", "gamma_", "mu_", "zeta_", "log_evidence_", "intercept_"):
        assert getattr(model, name).shape == (L,), name
        assert np.isfinite(getattr(model, name)).all(), name
    assert model.dual_coef_.shape == (L, n)
    assert model.loo_margins_.shape == (n, L)
    assert_array_equal(model.n_support_, np.bincount(Y))
    assert_array_equal(model.support_, np.arange(n))
    assert model.n_features_in_ == 3
    assert model.margins(X_NEW).shape == model.variances(X_NEW).shape == (len(X_NEW), L)
    K = rbf_kernel(X_NEW, X, gamma=model.gamma_[0])
    assert_allclose(model.margins(X_NEW), K @ model.dual_coef_.T + model.intercept_, atol=1e-9)


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.2])
def test_gamma_by_name(gamma):
    model = LSSVMClassifier(gamma=gamma).fit(X, Y)
    expected = {"scale": 1 / (3 * X.var()), "auto": 1 / 3}.get(gamma, gamma)
    assert_allclose(model.gamma_, expected)
    assert_allclose(LSSVMClassifier(gamma=gamma).fit(sparse.csr_matrix(X), Y).gamma_, expected)


def test_decoders_in_the_estimator_equal_the_oracles():
    model = LSSVMClassifier(decoding=Bayes(noise="model")).fit(X, Y)
    z, v = model.margins(X_NEW), model.variances(X_NEW) + 1.0 / model.zeta_
    expected = naive.bayes_joint(model.codebook_.matrix, z[:50], v[:50], np.full(4, 0.25))
    assert_allclose(model.predict_proba(X_NEW[:50]), expected, atol=1e-10)
    hamming = LSSVMClassifier(decoding="hamming").fit(X, Y)
    assert_array_equal(hamming.predict(X_NEW), naive.hamming_decode(hamming.codebook_.matrix, z))


def test_comparison_refuses_labels_it_has_not_seen():
    with pytest.raises(ValueError, match="label 9 is not among the classes of the training rows"):
        compare_codings(X, Y, X, np.full(60, 9), codings=["minimal"], decodings=["loss"])


# Kinds of input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "exponential", "poly"])
def test_sparse_rows(kernel):
    rows = np.maximum(X, 0.0)
    dense = LSSVMClassifier(kernel=kernel).fit(rows, Y)
    thin = LSSVMClassifier(kernel=kernel).fit(sparse.csc_matrix(rows), Y)
    new = np.maximum(X_NEW, 0.0)
    assert_allclose(thin.predict_proba(sparse.csr_array(new)), dense.predict_proba(new), atol=1e-7)
    assert_allclose(thin.predict_proba(new), dense.predict_proba(new), atol=1e-7)


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = LSSVMClassifier().fit(frame, pandas.Series(Y))
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert_allclose(model.predict_proba(frame), LSSVMClassifier().fit(X, Y).predict_proba(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["c", "b", "a"]])


NAMES = {
    "strings": np.array(["ant", "bee", "cat", "dog"]),
    "objects": np.array(["ant", "bee", "cat", "dog"], dtype=object),
    "integers": np.array([-7, 0, 3, 1000]),
    "floats": np.array([-1.0, 0.0, 2.0, 5.0]),
}


@pytest.mark.parametrize("kind", NAMES)
def test_labels_of_any_kind(kind):
    names = NAMES[kind]
    model = LSSVMClassifier().fit(X, names[Y])
    assert_array_equal(model.classes_, names)
    predicted = model.predict(X_NEW)
    assert predicted.dtype == names.dtype
    assert_array_equal(predicted, names[LSSVMClassifier().fit(X, Y).predict(X_NEW)])


def test_boolean_labels():
    rows = Y < 2
    model = LSSVMClassifier().fit(X[rows], Y[rows] == 1)
    assert model.classes_.dtype == bool
    assert model.predict(X_NEW).dtype == bool


FIXED = {"C": 2.0, "gamma": 0.3, "kernel": "rbf"}


def test_a_weight_of_whole_copies_gives_the_machines_of_the_copies():
    """With C given, losses add up; what is left out, and what the decoder learns from it, differ."""
    weights = np.random.default_rng(0).integers(0, 3, 60)
    weights[:4] = 1
    copies = np.repeat(np.arange(60), weights)
    one = LSSVMClassifier(**FIXED).fit(X, Y, weights)
    other = LSSVMClassifier(**FIXED).fit(X[copies], Y[copies], groups=np.arange(copies.size))
    assert_allclose(one.margins(X_NEW), other.margins(X_NEW), atol=1e-9)
    together = LSSVMClassifier(**FIXED).fit(X[copies], Y[copies], groups=copies)
    place = np.cumsum(weights > 0) - 1  # of every row among those of positive weight
    assert_allclose(together.loo_margins_, one.loo_margins_[place[copies[together.support_]]], atol=1e-8)
    assert np.abs(other.loo_margins_ - one.loo_margins_[place[copies]]).max() > 0.1
    assert_array_equal(one.support_, np.flatnonzero(weights))
    assert one.dual_coef_.shape[1] == np.count_nonzero(weights)


def test_a_weight_of_zero_is_no_row():
    weights = np.random.default_rng(0).integers(0, 2, 60).astype(float)
    weights[:8] = 1.0
    kept = np.flatnonzero(weights)
    one, other = LSSVMClassifier().fit(X, Y, weights), LSSVMClassifier().fit(X[kept], Y[kept])
    assert_allclose(one.predict_proba(X_NEW), other.predict_proba(X_NEW), atol=1e-9)
    assert_allclose(one.loo_margins_, other.loo_margins_, atol=1e-9)


def test_light_rows_count_less():
    light = LSSVMClassifier(kernel="rbf").fit(X, Y, np.where(Y == 0, 0.2, 1.0))
    plain = LSSVMClassifier(kernel="rbf").fit(X, Y)
    assert light.predict_proba(X_NEW)[:, 0].mean() < 0.8 * plain.predict_proba(X_NEW)[:, 0].mean()


@pytest.mark.parametrize("decoding", ["coupled-softmax", "softmax", "bayes", "loss"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "adaptive"])
def test_weights_times_c_change_nothing(coding, decoding):
    """Where C is selected; a given C is divided by c. ``C_`` is in the user's units."""
    weights = np.random.default_rng(0).uniform(0.3, 2.0, 60)
    more = {"coding": coding, "decoding": decoding, "kernel": "rbf"}
    for factor in (1e-3, 16.0, 1000.0):
        one, other = (
            LSSVMClassifier(**more).fit(X, Y, weights),
            LSSVMClassifier(**more).fit(X, Y, factor * weights),
        )
        assert_allclose(other.C_ * factor, one.C_, rtol=1e-9)
        given = LSSVMClassifier(**more, C=2.0 / factor, gamma=0.3).fit(X, Y, factor * weights)
        known = LSSVMClassifier(**more, C=2.0, gamma=0.3).fit(X, Y, weights)
        assert_allclose(given.C_, 2.0 / factor, rtol=1e-12)
        for found, expected in ((other, one), (given, known)):
            assert_allclose(found.loo_margins_, expected.loo_margins_, atol=1e-7)
            scores = [model.decision_function(X_NEW) for model in (found, expected)]
            assert_allclose(*scores, rtol=1e-6, atol=1e-6)


def test_small_weights_have_evidence_and_variances():
    """Weights that sum to one, as boosting has them, are as good as any."""
    weights = np.full(60, 1 / 60)
    model = LSSVMClassifier(C=60.0, gamma=0.3, selection=None, decoding="loss").fit(X, Y, weights)
    plain = LSSVMClassifier(C=1.0, gamma=0.3, selection=None, decoding="loss").fit(X, Y)
    assert_allclose(model.margins(X_NEW), plain.margins(X_NEW), atol=1e-10)
    assert_allclose(model.mu_, plain.mu_)
    assert_allclose(model.variances(X_NEW), plain.variances(X_NEW))


def test_an_adaptive_codebook_grows_on_margins_without_the_group():
    """Every row three times: with groups the codebook is that of the rows, whose margins are the same."""
    each = np.repeat(np.arange(60), 3)
    settings = {"coding": "adaptive", "decoding": "hamming", "gamma": 0.3, "kernel": "rbf"}
    alone = LSSVMClassifier(C=3.0, **settings).fit(X, Y)
    together = LSSVMClassifier(C=1.0, **settings).fit(X[each], Y[each], groups=each)
    assert_array_equal(together.codebook_.matrix, alone.codebook_.matrix)
    assert_allclose(together.loo_margins_, alone.loo_margins_[each[together.support_]], atol=1e-7)


# Search settings -------------------------------------------------------------------------------------------


def test_search_settings_are_those_of_the_search():
    plain = LSSVMClassifier(kernel="rbf").fit(X, Y)
    same = LSSVMClassifier(kernel="rbf", search=SearchSettings()).fit(X, Y)
    assert_array_equal(same.predict_proba(X_NEW), plain.predict_proba(X_NEW))
    unit = 2.0 * 60 / 59 / (2.0 * X.var(axis=0).sum())
    one = LSSVMClassifier(kernel="rbf", selection="gcv", search=SearchSettings(octaves=(3,))).fit(X, Y)
    two = LSSVMClassifier(kernel="rbf", selection="gcv", search=SearchSettings(octaves=(1,))).fit(X, Y)
    assert_allclose(one.gamma_ / two.gamma_, 4.0)
    assert_allclose(np.log2(one.gamma_[0] / unit), 3.0, atol=1.2)
    path = LSSVMClassifier(kernel="rbf", search=SearchSettings(smaller=(1.0,))).fit(X, Y)
    assert path.shrinkage_ == 1.0
    assert path.search_results_ is None


def test_a_tiny_budget_still_learns():
    rows, y = make_moons(400, noise=0.2, random_state=0)
    settings = SearchSettings(operations=1.0, relative=0.0, decided_rows=60, least_rows=20)
    model = LSSVMClassifier(search=settings).fit(rows, y)
    assert set(model.search_results_["n_rows"]) == {60}
    assert model.loo_margins_.shape == (400, 1)
    assert model.score(*make_moons(1000, noise=0.2, random_state=1)) > 0.93


# Kernels from outside --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_precomputed_equals_the_kernel(weighted):
    weights = np.random.default_rng(1).integers(0, 3, 60) if weighted else None
    if weighted:
        weights[:4] = 1
    # Rows that are not known are dealt into other folds, by which smaller C are judged and the decoder learns.
    only = SearchSettings(smaller=(1.0,))
    direct = LSSVMClassifier(gamma=0.3, search=only).fit(X, Y, weights)
    given = LSSVMClassifier(kernel="precomputed", search=only).fit(rbf_kernel(X, gamma=0.3), Y, weights)
    K_new = rbf_kernel(X_NEW, X, gamma=0.3)
    assert_allclose(given.C_, direct.C_, rtol=1e-8)
    assert_allclose(given.loo_margins_, direct.loo_margins_, atol=1e-8)
    assert_allclose(given.variances(K_new), direct.variances(X_NEW), rtol=1e-7)
    for decoding in ("bayes", "coupling"):
        direct = LSSVMClassifier(2.0, gamma=0.3, decoding=decoding).fit(X, Y, weights)
        given = LSSVMClassifier(2.0, kernel="precomputed", decoding=decoding)
        given.fit(rbf_kernel(X, gamma=0.3), Y, weights)
        assert_allclose(given.predict_proba(K_new), direct.predict_proba(X_NEW), atol=1e-8)


def test_precomputed_does_not_depend_on_the_order_of_the_rows():
    K, order = rbf_kernel(X, gamma=0.3), np.random.default_rng(0).permutation(60)
    K_new = rbf_kernel(X_NEW, X, gamma=0.3)
    one = LSSVMClassifier(kernel="precomputed").fit(K, Y)
    other = LSSVMClassifier(kernel="precomputed").fit(K[np.ix_(order, order)], Y[order])
    assert_allclose(other.predict_proba(K_new[:, order]), one.predict_proba(K_new), atol=1e-7)


def test_precomputed_without_a_constant_diagonal():
    K = X @ X.T
    words = r"precomputed kernel does not give .* choose a decoding without"
    with pytest.raises(ValueError, match=words):
        LSSVMClassifier(kernel="precomputed", decoding="bayes").fit(K, Y)
    loss = LSSVMClassifier(kernel="precomputed", decoding="loss").fit(K, Y)
    with pytest.raises(ValueError, match=words):
        loss.variances(K)
    # With what was selected: the rows are dealt differently, so the selection differs slightly.
    direct = LSSVMClassifier(loss.C_[0], kernel="linear", decoding="loss").fit(X, Y)
    assert_allclose(loss.margins(X_NEW @ X.T), direct.margins(X_NEW), atol=1e-6)
    assert_array_equal(loss.predict(X_NEW @ X.T), direct.predict(X_NEW))


def test_precomputed_in_cross_validation():
    K = rbf_kernel(X, gamma=0.3)
    more = {"search": SearchSettings(smaller=(1.0,)), "decoding": "coupling"}
    given = cross_val_score(LSSVMClassifier(kernel="precomputed", **more), K, Y, cv=3)
    assert_allclose(given, cross_val_score(LSSVMClassifier(gamma=0.3, **more), X, Y, cv=3))


def named_laplacian(A, B):
    return laplacian_kernel(A, B, gamma=0.2)


def test_a_function_equals_the_kernel():
    direct = LSSVMClassifier(kernel="laplacian", gamma=0.2).fit(X, Y)
    given = LSSVMClassifier(kernel=named_laplacian).fit(X, Y)
    assert_allclose(given.predict_proba(X_NEW), direct.predict_proba(X_NEW), atol=1e-9)
    again = pickle.loads(pickle.dumps(given))
    assert_array_equal(again.predict_proba(X_NEW), given.predict_proba(X_NEW))


# Tools of scikit-learn -------------------------------------------------------------------------------------


def test_grid_search_reaches_into_the_decoder():
    search = GridSearchCV(
        LSSVMClassifier(C=1.0, gamma=0.3, coding="one-vs-all", decoding=Loss()),
        {"decoding__loss": ["squared", "hinge"], "C": [0.1, 1.0]},
        cv=3,
    ).fit(X, Y)
    assert search.best_estimator_.decoder_.loss == search.best_params_["decoding__loss"]
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()


def test_the_given_decoder_is_left_alone():
    decoder = Bayes()
    model = LSSVMClassifier(decoding=decoder).fit(X, Y)
    assert model.decoding is decoder
    assert not hasattr(decoder, "codebook_")
    again = clone(model)
    assert not hasattr(again, "bank_")
    assert_array_equal(again.fit(X, Y).predict_proba(X), model.predict_proba(X))


def test_a_codebook_as_coding():
    matrix = [[-1, 0, 1], [1, -1, 0], [0, 1, -1], [1, 1, 1]]
    for coding in (matrix, np.array(matrix), Codebook(matrix)):
        model = clone(LSSVMClassifier(coding=coding)).fit(X, Y)
        assert_array_equal(model.codebook_.matrix, matrix)


def test_pipeline_and_pickle():
    model = make_pipeline(StandardScaler(), LSSVMClassifier(coding="ecoc", random_state=0)).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(X_NEW), model.predict_proba(X_NEW))


def test_fitting_twice_gives_the_same_and_forgets_the_first():
    model = LSSVMClassifier(coding="ecoc", random_state=0).fit(X, Y)
    first = model.predict_proba(X_NEW)
    model.fit(X[Y < 2, :2], Y[Y < 2])
    assert model.n_features_in_ == 2
    assert model.predict_proba(X_NEW[:, :2]).shape[1] == 2
    assert_array_equal(model.fit(X, Y).predict_proba(X_NEW), first)


# Ways to predict -------------------------------------------------------------------------------------------


def test_many_threads_give_the_same():
    model = LSSVMClassifier().fit(X, Y)
    alone = [model.predict_proba(X_NEW[i : i + 20]) for i in range(0, 300, 20)]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda i: model.predict_proba(X_NEW[i : i + 20]), list(range(0, 300, 20)) * 4)
        )
    for number, proba in enumerate(together):
        assert_array_equal(proba, alone[number % len(alone)])


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_blocks_give_the_same_as_all_at_once(coding, monkeypatch):
    model = LSSVMClassifier(coding=coding).fit(X, Y)
    at_once = model.predict_proba(X_NEW)
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 8.0 * 4 * 60 * 7)
    assert _memory.block_rows(8.0 * 4 * 60) == 7
    assert_allclose(model.predict_proba(X_NEW), at_once, atol=1e-12)
    one_by_one = np.vstack([model.predict_proba(row[np.newaxis]) for row in X_NEW[:20]])
    assert_allclose(one_by_one, at_once[:20], atol=1e-12)


def test_test_rows_do_not_influence_each_other_or_the_model():
    train, test, y_train, _ = train_test_split(X, Y, random_state=0, stratify=Y)
    model = LSSVMClassifier().fit(train, y_train)
    before = model.predict_proba(test)
    model.predict_proba(1e9 * test)
    assert_array_equal(model.predict_proba(test), before)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_last_steps_of_loo_exact_look_at_all_rows(kernel):
    X, y = make_moons(900, noise=0.35, random_state=0)

    def press(model):
        targets = model.codebook_.targets((y == model.classes_[1]).astype(int))
        return float(np.square(targets - model.loo_margins_).sum())

    fixed = {"kernel": kernel, "degree": 3, "decoding": "loss"}
    quick = LSSVMClassifier(**fixed).fit(X, y)
    exact = LSSVMClassifier(**fixed, selection="loo-exact").fit(X, y)
    shared = LSSVMClassifier(**fixed, selection="loo-exact", n_jobs=2).fit(X, y)
    assert_allclose([shared.C_, shared.gamma_], [exact.C_, exact.gamma_], rtol=1e-9)
    least = press(exact)
    assert least <= (1.0 + 1e-3) * press(quick)
    for C, gamma in ((1.2, 1.0), (1 / 1.2, 1.0), (1.0, 1.1), (1.0, 1 / 1.1)):
        near = LSSVMClassifier(float(exact.C_[0]) * C, gamma=float(exact.gamma_[0]) * gamma, **fixed)
        assert press(near.fit(X, y)) > (1.0 - 1e-4) * least
    surface = selection_surface(exact)
    assert surface.criterion == "loo"


def test_loo_exact_gives_probabilities_and_says_how_it_chose(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = LSSVMClassifier(selection="loo-exact").fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.9
    assert "squared leave-one-out errors of all rows" in model._repr_html_()
    save(model, tmp_path / "model.pmm")
    again = load_model(tmp_path / "model.pmm")
    assert again.selection == "loo-exact"
    assert_allclose(again.predict_proba(X), model.predict_proba(X))


def test_search_results_are_in_the_unit_of_the_weights():
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)
    plain = LSSVMClassifier(kernel="rbf").fit(X, y)
    heavy = LSSVMClassifier(kernel="rbf").fit(X, y, sample_weight=np.full(150, 8.0))
    assert_allclose(heavy.search_results_["C"], np.divide(plain.search_results_["C"], 8.0))
    chosen = heavy.search_results_["chosen"].index(True)
    assert heavy.search_results_["C"][chosen] == heavy.C_[0]
