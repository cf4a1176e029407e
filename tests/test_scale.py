"""LSSVMClassifier for many rows: leaves, landmarks and both, with settings for which a few hundred rows are many."""

import pickle
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import naive_scale
from conftest import blobs
from polymargin import (
    Argmax,
    Bayes,
    LSSVMClassifier,
    Stack,
    _memory,
    save,
)
from polymargin import load as load_model
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.datasets import make_waveform
from polymargin.decoders import CoupledSoftmax, Softmax
from polymargin.decoders._base import check_pairwise
from polymargin.decoders.pooled import Pooled, cross_pooled
from polymargin.inspection.honest import honest_rows
from polymargin.kernels import RBF, Linear, Polynomial, Precomputed
from polymargin.outputs import Outputs
from polymargin.plots import ReliabilityDisplay
from polymargin.scale import ScalePlan, ScaleSettings, plan_scale
from polymargin.scale.bank import ScaledBank
from polymargin.scale.leaf_search import GrownLeaves, search_leaf_rows
from polymargin.scale.sources import FittedLeaf, Sample
from polymargin.solvers.pooling import pool_weights

SMALL = ScaleSettings(leaf_rows=150, sample_rows=300, decoder_rows=600)
DIVIDED = ("leaves", "landmarks", "both")
every_scale = pytest.mark.parametrize("scale", DIVIDED)


def classifier(scale="both", **more):
    """A classifier with given parameters, which is fast."""
    return LSSVMClassifier(
        **{"C": 2.0, "gamma": 0.1, "kernel": "rbf", "scale": scale, "scaling": SMALL, **more}
    )


def selecting(scale="both", **more):
    """A classifier that selects its parameters."""
    return classifier(scale, **{"C": None, "gamma": None, **more})


@cache
def waveform(n=900, seed=0):
    X, y = make_waveform(n, random_state=seed)
    return X / 4.0, y


@cache
def fitted(scale="both", **more):
    """A fit that several tests look at, to 900 rows of waveform."""
    return classifier(scale, **more).fit(*waveform())


X_NEW = waveform(300, seed=7)[0]


def log_loss(model, X, y):
    log_p = model.predict_log_proba(X)
    return -float(log_p[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean())


@parametrize_with_checks(
    [
        LSSVMClassifier(
            1.0,
            gamma="scale",
            scale="both",
            scaling=ScaleSettings(leaf_rows=20, sample_rows=30, decoder_rows=40),
        )
    ]
)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        check(estimator)


# The law of the house --------------------------------------------------------------------------------------

CODINGS = ("one-vs-one", "one-vs-all", "minimal", "ecoc")
LEARNED = {
    "coupled-softmax": {},
    "softmax": {},
    "coupling": {"coding": "one-vs-one"},
    "plain-softmax": {"coding": "one-vs-all"},
}


def agrees(model, X):
    """Label and probability agree, and probabilities are probabilities."""
    proba = model.predict_proba(X)
    assert proba.shape == (X.shape[0], model.classes_.size)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    assert (proba >= 0.0).all()
    assert_array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])
    assert_allclose(np.exp(model.predict_log_proba(X)), proba, rtol=1e-12)


@pytest.mark.parametrize(
    ("scale", "coding"), [*((scale, coding) for scale in DIVIDED for coding in CODINGS), ("both", "adaptive")]
)
def test_label_and_probability_agree(scale, coding):
    X, y = blobs(n=700, K=4, d=3, seed=0)
    model = classifier(scale, coding=coding, random_state=0).fit(X, np.array(list("abcd"))[y])
    for new in (X, 3.0 * X, 1e3 * X):
        agrees(model, new)
    assert model.score(X, np.array(list("abcd"))[y]) > 0.7
    parts = 2 if scale == "both" else 1
    assert model.margins(X).shape == (700, parts * model.codebook_.n_columns)
    assert isinstance(model.bank_, ScaledBank)
    assert model.plan_.scale == scale


@pytest.mark.parametrize("decoding", LEARNED)
@every_scale
def test_decodings_that_learn_probabilities(scale, decoding):
    X, y = waveform()
    model = classifier(scale, decoding=decoding, **LEARNED[decoding])
    if decoding == "plain-softmax" and scale == "both":
        with pytest.raises(ValueError, match='scale="both" pools probabilities'):
            model.fit(X, y)
        return
    agrees(model.fit(X, y), X_NEW)


def test_two_classes():
    X, y = waveform()
    for scale in DIVIDED:
        model = classifier(scale).fit(X[y < 2], y[y < 2])
        agrees(model, X_NEW)
        scores = model.decision_function(X_NEW)
        assert scores.shape == (300,)
        assert_array_equal(model.predict(X_NEW), model.classes_[(scores > 0).astype(int)])


@pytest.mark.parametrize(
    "decoding", ["hamming", "loss", "votes", "dag", Argmax(), Argmax(scale="norm"), "mixture"], ids=str
)
@pytest.mark.parametrize("scale", ["leaves", "landmarks"])
def test_decodings_without_probabilities(scale, decoding):
    X, y = waveform()
    coding = "one-vs-all" if isinstance(decoding, Argmax) or decoding == "mixture" else "one-vs-one"
    model = classifier(scale, decoding=decoding, coding=coding)
    if scale == "leaves" and getattr(decoding, "scale", None) == "norm":
        # Machines of leaves have no common norm.
        with pytest.raises(ValueError, match="norm"):
            model.fit(X, y).predict(X_NEW)
        return
    model.fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert model.score(*waveform(300, seed=7)) > 0.75


@pytest.mark.parametrize("decoding", ["hamming", "votes", "bayes", "dag", "mixture"])
def test_both_needs_probabilities_that_are_learned(decoding):
    coding = "one-vs-all" if decoding == "mixture" else "one-vs-one"
    with pytest.raises(ValueError, match=r'scale="both" pools probabilities.*"leaves" or "landmarks"'):
        classifier(decoding=decoding, coding=coding).fit(*waveform())


def test_leaves_have_no_variances():
    X, y = waveform()
    with pytest.raises(ValueError, match=r'needs variances.*scale="landmarks"'):
        classifier("leaves", decoding="bayes").fit(X, y)
    for scale in ("leaves", "both"):
        with pytest.raises(ValueError, match=r'leaves have no variances: use scale="landmarks"'):
            fitted(scale).variances(X_NEW)


def test_variances_of_landmarks():
    X, y = waveform()
    model = classifier("landmarks", decoding=Bayes()).fit(X, y)
    agrees(model, X_NEW)
    variances = model.variances(X_NEW)
    assert variances.shape == (300, 3)
    assert (variances > 0.0).all()
    # Far from all rows nothing is known.
    assert (model.variances(X_NEW + 100.0) > variances.max(axis=0)).all()


@every_scale
def test_a_precomputed_kernel_cannot_be_divided(scale):
    X, y = waveform()
    with pytest.raises(ValueError, match=r'no rows to divide: use scale="exact"'):
        classifier(scale, kernel="precomputed").fit(X @ X.T, y)
    automatic = LSSVMClassifier(kernel="precomputed", scaling=replace(SMALL, exact_operations=1.0))
    assert automatic.fit(X[:60] @ X[:60].T, y[:60]).plan_.scale == "exact"


# Exact machines, as a limit --------------------------------------------------------------------------------


def test_exact_is_what_it_was():
    X, y = waveform(300)
    one, other = (LSSVMClassifier(kernel="rbf", scale=scale).fit(X, y) for scale in ("exact", "auto"))
    assert_array_equal(one.predict_proba(X_NEW), other.predict_proba(X_NEW))
    assert one.plan_.scale == other.plan_.scale == "exact"
    assert not isinstance(one.bank_, ScaledBank)


def test_a_tree_of_one_leaf_and_landmarks_of_all_rows_are_the_exact_machines():
    X, y = waveform(300)
    settings = ScaleSettings(leaf_rows=300, sample_rows=300, decoder_rows=300)
    exact = classifier("exact", scaling=settings).fit(X, y)
    for scale, more in (
        ("leaves", {}),
        ("landmarks", {"n_landmarks": 300}),
        ("landmarks", {"n_landmarks": X}),
    ):
        model = classifier(scale, scaling=settings, **more).fit(X, y)
        assert_allclose(model.margins(X_NEW), exact.margins(X_NEW), atol=1e-6)
        assert_allclose(model.loo_margins_, exact.loo_margins_, atol=1e-6)
        assert_array_equal(model.support_, exact.support_)


def test_the_forest_is_that_of_the_oracle():
    X, y = waveform(200)
    settings = ScaleSettings(leaf_rows=60, sample_rows=100, decoder_rows=200)
    model = classifier("leaves", scaling=settings).fit(X, y)
    tree = model.bank_.leaves.tree

    def nested(number):
        if number < 0:
            return ("leaf", -1 - number)
        children = [nested(int(child)) for child in tree.children[number]]
        return ("cut", tree.directions[number], tree.low[number], tree.high[number], *children)

    assert tree.n_leaves > 3
    margins, left_out = naive_scale.forest_outputs(
        nested(0), lambda A, B: rbf_kernel(A, B, gamma=0.1), X, y, None, one_vs_one(3).matrix, 2.0, X_NEW[:20]
    )
    assert_allclose(model.margins(X_NEW[:20]), margins, atol=1e-6)
    assert_allclose(model.loo_margins_, left_out, atol=1e-6)


def test_both_pools_leaves_and_landmarks():
    X, y = waveform()
    both, leaves, landmarks = (classifier(scale).fit(X, y) for scale in ("both", "leaves", "landmarks"))
    assert_allclose(
        both.margins(X_NEW), np.hstack([leaves.margins(X_NEW), landmarks.margins(X_NEW)]), atol=1e-9
    )
    assert_allclose(both.loo_margins_, np.hstack([leaves.loo_margins_, landmarks.loo_margins_]), atol=1e-9)
    decoder = both.decoder_
    expected = naive_scale.log_linear_pool(
        [each.predict_log_proba(X_NEW) for each in (leaves, landmarks)], decoder.weights_, decoder.log_prior_
    )
    assert_allclose(both.predict_log_proba(X_NEW), expected, atol=1e-8)


def test_waveform_is_learned_nearly_as_well_as_by_exact_machines():
    X, y = waveform(4000)
    X_test, y_test = waveform(4000, seed=1)
    settings = ScaleSettings(leaf_rows=800, sample_rows=800, decoder_rows=4000)
    exact, both = (classifier(scale, scaling=settings).fit(X, y) for scale in ("exact", "both"))
    of_exact, of_both = (log_loss(model, X_test, y_test) for model in (exact, both))
    assert of_both < 1.03 * of_exact
    assert_allclose(both.loo_log_loss_, of_both, rtol=0.08)
    # The same rows, by other machines.
    assert_allclose(both.loo_log_loss_, exact.loo_log_loss_, rtol=0.03)


# Continuity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["leaves", "both"])
def test_probabilities_are_continuous_across_the_cuts(scale):
    """Wherever they change most between two points, they change as little as one likes between closer ones."""
    model = fitted(scale)
    tree = model.bank_.leaves.tree
    for seed in range(2):
        a, b = waveform()[0][np.random.default_rng(seed).choice(900, 2, replace=False)]
        a, b = a - (b - a), b + (b - a)
        line = a + np.linspace(0.0, 1.0, 201)[:, np.newaxis] * (b - a)
        assert sum(rows.size > 0 for rows, _ in tree.route(line)) > 2
        for _ in range(3):
            points = a + np.linspace(0.0, 1.0, 201)[:, np.newaxis] * (b - a)
            steps = np.abs(np.diff(model.predict_proba(points), axis=0)).max(axis=1)
            a, b = points[steps.argmax()], points[steps.argmax() + 1]
        assert steps.max() < 1e-4


# What changes nothing --------------------------------------------------------------------------------------


@every_scale
def test_what_changes_nothing_about_the_data_changes_no_probability(scale):
    X, y = waveform(700)
    expected = selecting(scale).fit(X, y).predict_proba(X_NEW)
    rng = np.random.default_rng(0)
    order = rng.permutation(700)
    names = np.array(["c", "a", "b"])  # the sorted names are classes 1, 2, 0
    noisy = X * (1.0 + 1e-9 * rng.normal(size=X.shape))
    for rows, labels, new, columns in (
        (X[order], names[y[order]], X_NEW, [1, 2, 0]),
        (3.0 * noisy, y, 3.0 * X_NEW, [0, 1, 2]),
    ):
        found = selecting(scale).fit(rows, labels).predict_proba(new)
        assert_allclose(found, expected[:, columns], atol=1e-6)


@pytest.mark.parametrize("rule", ["kmeans", "cholesky"])
def test_other_landmarks_do_not_depend_on_order_and_names(rule):
    X, y = waveform()
    model = classifier("landmarks", scaling=replace(SMALL, landmarks=rule), n_landmarks=60)
    order = np.random.default_rng(0).permutation(900)
    expected = clone(model).fit(X, y).predict_proba(X_NEW)
    found = model.fit(X[order], np.array(["c", "a", "b"])[y[order]]).predict_proba(X_NEW)
    assert_allclose(found, expected[:, [1, 2, 0]], atol=1e-6)
    assert not np.allclose(expected, classifier("landmarks", n_landmarks=60).fit(X, y).predict_proba(X_NEW))


@every_scale
def test_the_number_of_jobs_changes_no_bit(scale):
    X, y = waveform()
    one, two, again = (classifier(scale, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2, 1))
    assert_array_equal(one.predict_proba(X_NEW), two.predict_proba(X_NEW))
    assert_array_equal(one.predict_proba(X_NEW), again.predict_proba(X_NEW))
    assert_array_equal(one.loo_margins_, two.loo_margins_)


def test_random_state_deals_the_rows():
    X, y = waveform()
    one, other = (classifier("landmarks", random_state=seed, n_landmarks=40).fit(X, y) for seed in (1, 2))
    assert not np.allclose(one.predict_proba(X_NEW), other.predict_proba(X_NEW), atol=1e-6)
    assert not np.array_equal(one.support_, other.support_)


# Weights, groups, soft labels ------------------------------------------------------------------------------


@every_scale
def test_a_row_of_weight_zero_does_not_count(scale):
    X, y = waveform()
    weights = np.ones(900)
    weights[::5] = 0.0
    y_wrong = np.where(weights == 0.0, (y + 1) % 3, y)
    of_zero = classifier(scale).fit(X, y_wrong, sample_weight=weights)
    without = classifier(scale).fit(X[weights > 0.0], y[weights > 0.0])
    assert_allclose(of_zero.predict_proba(X_NEW), without.predict_proba(X_NEW), atol=1e-8)
    assert_array_equal(of_zero.support_, np.flatnonzero(weights)[without.support_])


@every_scale
def test_the_unit_of_the_weights_does_not_matter(scale):
    X, y = waveform(500)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 500)
    one, other = (selecting(scale).fit(X, y, sample_weight=unit * weights) for unit in (1.0, 50.0))
    assert_allclose(one.predict_proba(X_NEW), other.predict_proba(X_NEW), atol=1e-7)
    assert_allclose(one.C_, other.C_ * 50.0, rtol=1e-6)
    plain, weighted = (classifier(scale).fit(X, y, sample_weight=each) for each in (None, weights))
    assert not np.allclose(plain.predict_proba(X_NEW), weighted.predict_proba(X_NEW), atol=1e-3)


@every_scale
def test_class_weights_move_the_probabilities(scale):
    X, y = waveform()
    plain = fitted(scale).predict_proba(X_NEW).mean(axis=0)
    heavy = classifier(scale, class_weight={0: 1.0, 1: 1.0, 2: 10.0}).fit(X, y)
    agrees(heavy, X_NEW)
    assert heavy.predict_proba(X_NEW).mean(axis=0)[2] > plain[2] + 0.05
    by_rows = classifier(scale).fit(X, y, sample_weight=np.where(y == 2, 10.0, 1.0))
    assert_allclose(by_rows.predict_proba(X_NEW), heavy.predict_proba(X_NEW), atol=1e-8)


@every_scale
def test_priors_reweight_the_probabilities(scale):
    priors = np.array([0.7, 0.2, 0.1])
    plain = fitted(scale)
    data = plain.bank_.data
    frequencies = data.class_weights(3) / data.weights.sum()
    expected = plain.predict_proba(X_NEW) * priors / frequencies
    expected /= expected.sum(axis=1, keepdims=True)
    model = classifier(scale, priors=priors).fit(*waveform())
    assert_allclose(model.predict_proba(X_NEW), expected, atol=1e-8)
    agrees(model, X_NEW)


@every_scale
def test_copies_in_groups_are_honest(scale):
    """Of groups of four rows that are nearly equal: the stated loss is that of new groups."""
    X, y = waveform(400)
    copied = np.repeat(np.arange(400), 4)
    nearly = X[copied] + 1e-3 * np.random.default_rng(0).normal(size=(1600, 21))
    model = classifier(scale).fit(nearly, y[copied], groups=copied)
    true = log_loss(model, *waveform(2000, seed=3))
    assert true < 0.55
    assert model.loo_log_loss_ > 0.75 * true
    # All rows of a group are in the decoder's sample, or none.
    assert np.unique(copied[model.support_], return_counts=True)[1].min() == 4


@every_scale
def test_names_of_groups_and_groups_of_one_row_change_nothing(scale):
    X, y = waveform()
    groups = np.random.default_rng(0).integers(0, 300, 900)
    one = classifier(scale).fit(X, y, groups=groups)
    other = classifier(scale).fit(X, y, groups=np.array([f"g{299 - g:03d}" for g in groups]))
    assert_allclose(one.predict_proba(X_NEW), other.predict_proba(X_NEW), atol=1e-8)
    plain, alone = (classifier(scale).fit(X, y, groups=each) for each in (None, np.arange(900)))
    assert_allclose(plain.predict_proba(X_NEW), alone.predict_proba(X_NEW), atol=1e-7)


@every_scale
def test_soft_labels(scale):
    X, y = waveform()
    sure = classifier(scale).fit(X, y)
    one_hot = classifier(scale).fit(X, np.eye(3)[y])
    assert_allclose(one_hot.margins(X_NEW), sure.margins(X_NEW), atol=1e-6)
    assert_allclose(one_hot.predict_proba(X_NEW), sure.predict_proba(X_NEW), atol=1e-5)
    soft = fitted("exact").predict_proba(X)
    unsure = classifier(scale).fit(X, soft)
    agrees(unsure, X_NEW)
    # What is learned from probabilities are probabilities.
    assert np.abs(unsure.predict_proba(X_NEW) - fitted("exact").predict_proba(X_NEW)).mean() < 0.04
    assert np.isfinite(unsure.loo_log_loss_)


# Rows, kernels and metrics ---------------------------------------------------------------------------------


@every_scale
def test_sparse_rows(scale):
    X, y = waveform()
    cut = np.where(X > 0.5, X, 0.0)
    dense, thin = (classifier(scale).fit(rows, y) for rows in (cut, sparse.csr_matrix(cut)))
    new = np.where(X_NEW > 0.5, X_NEW, 0.0)
    assert_allclose(thin.predict_proba(sparse.csr_matrix(new)), dense.predict_proba(new), atol=1e-7)
    assert_allclose(thin.predict_proba(new), dense.predict_proba(new), atol=1e-7)


@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_sparse_rows_have_explicit_features_too(kernel):
    X, y = waveform(400)
    dense, thin = (classifier("landmarks", kernel=kernel).fit(rows, y) for rows in (X, sparse.csr_matrix(X)))
    assert_allclose(thin.predict_proba(sparse.csr_matrix(X_NEW)), dense.predict_proba(X_NEW), atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, lambda rows: rows.tolist()])
def test_landmarks_may_be_given(form):
    X, y = waveform()
    expected = classifier("landmarks", n_landmarks=X[:50]).fit(X, y)
    assert expected.plan_.n_landmarks == expected.bank_.landmarks.features.n_features == 50
    for rows in (X, sparse.csr_matrix(X)):
        found = classifier("landmarks", n_landmarks=form(X[:50])).fit(rows, y)
        assert_allclose(found.predict_proba(X_NEW), expected.predict_proba(X_NEW), atol=1e-7)


@pytest.mark.parametrize(
    "wrong", [0, -3, 2.5, True, "many", np.zeros(5), np.zeros((5, 2)), np.full((5, 21), np.nan)]
)
def test_wrong_landmarks_are_named(wrong):
    with pytest.raises(ValueError, match=r"n_landmarks|landmarks have 2 columns"):
        classifier("landmarks", n_landmarks=wrong).fit(*waveform(100))


def rbf_function(A, B):
    return rbf_kernel(A, B, gamma=0.1)


@every_scale
def test_a_kernel_function_is_as_good_as_a_name(scale):
    X, y = waveform()
    named, function = (
        classifier(scale, C=2.0, kernel=kernel, gamma=gamma).fit(X, y)
        for kernel, gamma in (("rbf", 0.1), (rbf_function, None))
    )
    assert_allclose(function.predict_proba(X_NEW), named.predict_proba(X_NEW), atol=1e-6)
    with pytest.raises(AttributeError, match="only kernels with a name"):
        _ = function.feature_relevance_


@pytest.mark.parametrize("kernel", ["linear", "poly", "laplacian", "exponential", "blend", None])
@pytest.mark.parametrize("scale", ["landmarks", "both"])
def test_every_kernel(scale, kernel):
    X, y = waveform()
    model = selecting(scale, kernel=kernel, columns="ranks" if kernel == "laplacian" else None).fit(X, y)
    agrees(model, X_NEW)
    assert log_loss(model, *waveform(300, seed=7)) < 0.5
    if kernel in ("linear", "poly"):
        # The explicit map leaves nothing out.
        assert model.bank_.landmarks.features.n_features == model.kernel_.n_features(21)
        assert model.bank_.landmarks.error == 0.0


def test_a_learned_metric():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 8))
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=900) > 0).astype(int)
    model = selecting(metric="learned").fit(X, y)
    agrees(model, X)
    assert model.metric_ is not None
    assert set(np.argsort(model.metric_)[-2:]) == {0, 1}
    # The rows that it was learned from do not count for the stated loss.
    leak = model.bank_.leak
    assert 0 < leak.sum() <= 310
    log_p, data = model.loo_log_proba_, model.bank_.data
    losses = -log_p[np.arange(log_p.shape[0]), data.class_index]
    of_classes = [losses[~leak & (data.class_index == k)].mean() for k in (0, 1)]
    shares = np.bincount(data.class_index, data.weights) / data.weights.sum()
    assert_allclose(model.loo_log_loss_, shares @ of_classes, rtol=1e-9)
    assert_array_equal(honest_rows(model).class_index, data.class_index[~leak])
    given = classifier(metric=[1.0, 1.0] + 6 * [0.0]).fit(X, y)
    moved = np.column_stack([X[:, :2], rng.normal(size=(900, 6))])
    assert_allclose(given.predict_proba(moved), given.predict_proba(X), atol=1e-9)


# Few rows, many equal rows, classes of few rows ------------------------------------------------------------


@pytest.mark.parametrize("n_rare", [1, 2, 5])
@every_scale
def test_a_class_of_few_rows(scale, n_rare):
    X, y = waveform(500)
    rare = 0.3 * np.random.default_rng(0).normal(size=(n_rare, 21)) + 3.0
    X, y = np.vstack([X, rare]), np.append(y, np.full(n_rare, 3))
    model = classifier(scale).fit(X, y)
    agrees(model, X_NEW)
    proba = model.predict_proba(X_NEW)
    assert (proba[:, 3] > 0.0).all()
    assert proba[:, 3].mean() < 0.1
    assert np.isfinite(model.loo_log_loss_)


@every_scale
def test_a_rare_class_is_as_probable_as_it_is_frequent(scale):
    """A sample has more of its rows than its share; from these the decoder must not learn its frequency."""

    def rows(n, seed):
        rng = np.random.default_rng(seed)
        labels = rng.choice(3, size=n, p=[0.59, 0.4, 0.01])
        return np.array([[0.0, 0.0], [1.5, 0.0], [0.7, 1.0]])[labels] + rng.normal(size=(n, 2)), labels

    X, y = rows(3000, 0)
    model = classifier(scale, scaling=replace(SMALL, decoder_rows=400)).fit(X, y)
    assert np.bincount(y[model.support_])[2] > 3 * 0.01 * model.support_.size
    data = model.bank_.data
    assert_allclose(data.class_weights(3) / data.weights.sum(), np.bincount(y) / 3000, rtol=0.01)
    assert model.predict_proba(rows(5000, 1)[0])[:, 2].mean() < 0.02


@every_scale
def test_constant_and_equal_rows(scale):
    X, y = waveform(600)
    X = np.column_stack([X, np.full(600, 5.0)])
    agrees(classifier(scale).fit(X, y), X)
    # Half of all rows are equal: more than a leaf may have.
    many = X.copy()
    many[::2] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of likely copies
        model = classifier(scale, scaling=replace(SMALL, leaf_rows=40)).fit(many, y)
    agrees(model, X)
    # Of equal rows the class frequencies are known.
    at_zero = model.predict_proba(np.zeros((1, 22)))[0]
    assert_allclose(at_zero, np.bincount(y[::2]) / 300, atol=0.15)


@every_scale
def test_discrete_columns(scale):
    rng = np.random.default_rng(0)
    level = rng.integers(0, 4, (900, 3))
    X = np.hstack([np.eye(4)[level[:, k]] for k in range(3)])
    y = np.where(rng.random(900) < 0.1, rng.integers(0, 3, 900), level.sum(axis=1) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of likely copies
        model = classifier(scale, gamma=1.0).fit(X, y)
    agrees(model, X)
    assert model.score(X, y) > 0.8


@every_scale
def test_bad_input_is_refused(scale):
    X, y = waveform(200)
    with pytest.raises(ValueError, match="NaN"):
        classifier(scale).fit(np.where(X > 1.0, np.nan, X), y)
    with pytest.raises(ValueError, match="NaN"):
        fitted(scale).predict(np.full((1, 21), np.nan))
    with pytest.raises(ValueError, match=r"one class|number of classes"):
        classifier(scale).fit(X, np.zeros(200))
    with pytest.raises(ValueError, match="features"):
        fitted(scale).predict(X[:, :4])
    with pytest.raises(ValueError, match="unknown scale"):
        classifier("huge").fit(X, y)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"landmarks": "all"}, "unknown rule"),
        ({"leaf_rows": 3}, "leaf_rows must be at least 20"),
        ({"sample_rows": 0}, "sample_rows must be at least 20"),
        ({"decoder_rows": float("nan")}, "decoder_rows must be at least 20"),
        ({"overlap": 0.3}, "overlap must lie between 0 and 0.25"),
        ({"overlap": -0.1}, "overlap must lie between 0 and 0.25"),
        ({"memory": 0.0}, "memory must be a positive number"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ScaleSettings(**wrong)


@pytest.mark.parametrize("selection", ["loo", "loo-exact", "gcv", "evidence"])
@every_scale
def test_every_selection_with_weights(scale, selection):
    """In a leaf the weights of a dichotomy may sum to less than two rows."""
    X, y = waveform(600)
    weights = np.where(np.random.default_rng(0).random(600) < 0.5, 0.05, 2.0)
    model = selecting(scale, selection=selection).fit(X, y, sample_weight=weights)
    agrees(model, X_NEW)
    assert log_loss(model, *waveform(300, seed=7)) < 0.6


@every_scale
def test_parameters_that_are_given(scale):
    X, y = waveform(400)
    model = classifier(scale, selection=None).fit(X, y)
    assert_array_equal(model.C_, np.full(3, 2.0))
    if model.bank_.leaves is not None:
        assert_array_equal(model.bank_.leaves.C, np.full(model.bank_.leaves.tree.n_leaves, 2.0))
    if model.bank_.landmarks is not None:
        assert_array_equal(model.bank_.landmarks.C, np.full(3, 2.0))
    own = selecting(scale, shared_parameters=False).fit(X, y)
    agrees(own, X_NEW)


# Copies and files ------------------------------------------------------------------------------------------


@every_scale
def test_copies_and_files_have_the_same_bits(scale, tmp_path):
    model = fitted(scale)
    expected = model.predict_proba(X_NEW)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X_NEW), expected)
    save(model, tmp_path / "model.skops")
    loaded = load_model(tmp_path / "model.skops")
    assert_array_equal(loaded.predict_proba(X_NEW), expected)
    assert loaded.plan_ == model.plan_
    assert loaded.loo_log_loss_ == model.loo_log_loss_
    copy = clone(model)
    assert copy.get_params()["scaling"] == SMALL
    assert not hasattr(copy, "plan_")
    assert_array_equal(copy.fit(*waveform()).predict_proba(X_NEW), expected)


def test_a_fit_replaces_the_one_before():
    X, y = waveform(400)
    model = classifier("both").fit(X, y)
    model.set_params(scale="exact").fit(X, y)
    assert model.plan_.scale == "exact"
    assert_array_equal(model.predict_proba(X_NEW), classifier("exact").fit(X, y).predict_proba(X_NEW))
    model.set_params(scale="landmarks").fit(X, y)
    assert_array_equal(model.predict_proba(X_NEW), classifier("landmarks").fit(X, y).predict_proba(X_NEW))


# Reports ---------------------------------------------------------------------------------------------------


@every_scale
def test_what_is_known_of_the_rows_of_the_sample(scale):
    X, y = waveform()
    model = fitted(scale)
    assert_allclose(model.support_.size, 600, atol=3)
    assert_array_equal(model.bank_.data.X, X[model.support_])
    assert_array_equal(model.bank_.data.class_index, y[model.support_])
    assert_array_equal(model.n_support_, np.bincount(y[model.support_]))
    known = honest_rows(model)
    assert_array_equal(known.log_proba, model.loo_log_proba_)
    own = model.loo_log_proba_[np.arange(known.class_index.size), known.class_index]
    assert_allclose(model.loo_log_loss_, -np.average(own, weights=known.weights))
    # Honest probabilities are not those of the fitted model.
    assert model.loo_log_loss_ > log_loss(model, X, y)
    assert_allclose(np.exp(model.loo_log_proba_).sum(axis=1), 1.0)
    assert ReliabilityDisplay.from_estimator(model) is not None


@every_scale
def test_a_notebook_shows_the_stated_loss(scale):
    page = fitted(scale)._repr_html_()
    assert "polymargin-choices" in page
    assert f"{fitted(scale).loo_log_loss_:.4g}" in page


def test_relevance_is_that_of_the_sample():
    model = fitted("both")
    relevance = model.feature_relevance_
    assert relevance.shape == (21,)
    assert_allclose(relevance.sum(), 1.0)
    assert relevance[[0, 20]].max() < relevance[[6, 14]].min()  # the ends of the waves are zero


@pytest.mark.parametrize("name", ["dual_coef_", "intercept_"])
def test_attributes_of_exact_machines_only(name):
    with pytest.raises(AttributeError, match=r"exact machines only.*bank_\.leaves"):
        getattr(fitted("both"), name)


def test_parameters_are_those_of_the_sample():
    model = fitted("both")
    for name in ("C_", "gamma_", "mu_", "zeta_", "log_evidence_"):
        assert getattr(model, name).shape == (3,)
    assert model.bank_.pilot.data.class_index.size <= 310


def test_in_a_pipeline():
    X, y = waveform(500)
    model = make_pipeline(StandardScaler(), classifier()).fit(100.0 * X, y)
    assert log_loss(model, 100.0 * X_NEW, waveform(300, seed=7)[1]) < 0.5


# Plans -----------------------------------------------------------------------------------------------------


def plan(counts, kernels=None, *, n_columns=10, book=one_vs_all, scale="auto", **more):
    counts, kernels = np.array(counts), [RBF()] if kernels is None else kernels
    return plan_scale(scale, counts, n_columns, book(counts.size), kernels, **{"pooled": True, **more})


ROOM = {"settings": ScaleSettings(memory=16 * 2**30)}
TIGHT = {"settings": ScaleSettings(memory=2**30)}


@pytest.mark.parametrize(
    ("expected", "reason", "arguments"),
    [
        ("exact", "so few rows", {"counts": [500, 500], **ROOM}),
        ("exact", "so few rows", {"counts": [5000, 5000], **ROOM}),
        ("both", "operations", {"counts": [10_000, 10_000], **ROOM}),
        # Pairs of many classes are small.
        ("exact", "so few rows", {"counts": [1000] * 20, "book": one_vs_one, **ROOM}),
        ("both", "operations", {"counts": [1000] * 20, **ROOM}),
        ("both", "GiB", {"counts": [5000, 5000], **TIGHT}),
        ("landmarks", "variances", {"counts": [10_000, 10_000], "variances": True, "pooled": False, **ROOM}),
        ("leaves", "learns no probabilities", {"counts": [10_000, 10_000], "pooled": False, **ROOM}),
        # An explicit feature map is exact for as many rows as there may be, while they fit into memory.
        ("exact", "so few rows", {"counts": [300_000] * 2, "kernels": [Linear()], **ROOM}),
        ("landmarks", "explicit feature map", {"counts": [50_000_000] * 2, "kernels": [Linear()], **ROOM}),
        ("both", "operations", {"counts": [10_000] * 2, "kernels": [Linear(), RBF()], **ROOM}),
        (
            "both",
            "operations",
            {"counts": [10_000] * 2, "kernels": [Polynomial(3)], "n_columns": 200, **ROOM},
        ),
        ("exact", "precomputed", {"counts": [10_000, 10_000], "kernels": [Precomputed()], **TIGHT}),
        # A device has more room and more time.
        ("exact", "so few rows", {"counts": [20_000] * 2, "device": "gpu", "device_memory": 100e9, **TIGHT}),
        ("both", "GiB", {"counts": [20_000] * 2, "device": "gpu", "device_memory": 1e9, **ROOM}),
    ],
)
def test_plans(expected, reason, arguments):
    found = plan(**arguments)
    assert found.scale == expected
    assert reason in found.reason
    assert found.n_rows == sum(arguments["counts"])
    assert found.has_leaves == (expected in ("leaves", "both"))
    assert found.has_landmarks == (expected in ("landmarks", "both"))
    assert (found.n_landmarks > 0) == found.has_landmarks
    assert (found.n_leaves > 0) == found.has_leaves
    assert found.decoder_rows == (found.n_rows if expected == "exact" else min(20_000, found.n_rows))
    assert str(found.n_rows) in str(found)
    assert found.reason in str(found)


def test_memory_bounds_landmarks_and_leaves():
    plenty, little = (plan([100_000] * 4, book=one_vs_one, **each) for each in (ROOM, TIGHT))
    assert plenty.n_landmarks == 1000
    tiny = plan([100_000] * 4, book=one_vs_one, settings=ScaleSettings(memory=2**24))
    assert 50 <= tiny.n_landmarks < little.n_landmarks <= plenty.n_landmarks
    assert tiny.leaf_share < 0.2 < plenty.leaf_share == 1.0
    assert tiny.n_leaves < plenty.n_leaves
    assert "of all rows" in str(tiny)
    # Many classes have many products; those of dense codebooks are added up.
    assert plan([50_000] * 100, book=one_vs_one, **TIGHT).n_landmarks < 1000
    assert plan([50_000] * 100, **TIGHT).n_landmarks >= 900
    # What is asked for is done.
    assert plan([100_000] * 4, n_landmarks=3000, **TIGHT).n_landmarks == 3000
    assert plan([40, 40], scale="landmarks", n_landmarks=3000).n_landmarks == 80


def test_an_expected_number_of_leaves():
    for n in (900, 3000):
        X, y = waveform(n)
        expected = plan(np.bincount(y), n_columns=21, scale="leaves", settings=SMALL).n_leaves
        assert 0.4 < expected / classifier("leaves").fit(X, y).plan_.n_leaves < 2.5


@pytest.mark.parametrize(
    ("sizes", "arguments"),
    [
        ((1500, 3000, 6000), {"counts": [2000] * 10, "book": one_vs_one, **ROOM}),
        # Larger leaves of so many rows would take too many operations, or too much memory.
        ((1500,), {"counts": [500_000] * 2, **ROOM}),
        ((1500,), {"counts": [2000] * 10, "book": one_vs_one, "worker_memory": 1e9, **ROOM}),
        ((1500, 3000), {"counts": [2000] * 10, "book": one_vs_one, "worker_memory": 6e9, **ROOM}),
        # One leaf has all rows.
        ((1500, 3000), {"counts": [1000] * 2, **ROOM}),
        ((700,), {"counts": [2000] * 10, "settings": ScaleSettings(leaf_rows=700)}),
        ((1500,), {"counts": [2000] * 10, "settings": ScaleSettings(leaf_operations=1e6)}),
    ],
)
def test_sizes_of_leaves_to_try(sizes, arguments):
    assert plan(scale="leaves", **arguments).leaf_rows == sizes


@pytest.mark.parametrize(
    ("losses", "chosen"), [((3, 2, 1), 40), ((2, 1, 1), 20), ((1, 2, 0), 10), ((1, 1, 0), 10)]
)
def test_leaves_are_enlarged_while_that_helps(losses, chosen):
    rows = fitted("leaves").bank_.data
    sample = Sample(np.arange(rows.class_index.size), rows)
    noise = 1e-3 * np.random.default_rng(0).normal(size=(3, rows.class_index.size))
    sizes = (10, 20, 40)

    def judge(codebook, rows, honest):
        number = int(honest[0, 0])
        return losses[number] + noise[number] * (number > 0), np.ones(rows.class_index.size)

    def grow(size):
        number = np.full((sample.numbers.size, 3), float(sizes.index(size)))
        every = FittedLeaf(None, np.arange(len(number)), np.ones(len(number)), number, number)
        return GrownLeaves(size, None, [every])

    found = search_leaf_rows(sizes, grow, sample, one_vs_all(3), judge, 2.0)
    assert found.leaf_rows == chosen


@pytest.mark.parametrize("decoder_rows", [900, 450])
def test_leaves_of_the_chosen_size_are_those_of_that_size(decoder_rows, monkeypatch):
    """Whether sizes were compared on all rows, whose leaves are kept, or on a sample."""
    monkeypatch.setattr("polymargin.scale.plan._LEAF_ROWS", 100)
    settings = replace(SMALL, leaf_rows=None, decoder_rows=decoder_rows)
    chosen = classifier("both", scaling=settings).fit(*waveform())
    size = chosen.plan_.leaf_rows[0]
    assert size in (100, 200, 400)
    given = classifier("both", scaling=replace(settings, leaf_rows=size)).fit(*waveform())
    assert given.plan_.n_leaves == chosen.plan_.n_leaves
    assert_array_equal(given.predict_proba(X_NEW), chosen.predict_proba(X_NEW))


def test_what_was_refused_is_fitted(monkeypatch):
    """A kernel matrix that does not fit into memory."""
    X, y = waveform(2000)
    monkeypatch.setattr(_memory, "available", lambda: 10.0 * 2**20)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 2**20)
    with pytest.raises(MemoryError, match="GiB"):
        LSSVMClassifier(kernel="rbf", scale="exact").fit(X, y)
    small = replace(SMALL, memory=1.0 * 2**20, leaf_rows=100, sample_rows=150)
    model = LSSVMClassifier(kernel="rbf", scaling=small).fit(X, y)
    assert model.plan_.scale == "both"
    assert "GiB" in model.plan_.reason
    assert model.plan_.leaf_share < 1.0
    agrees(model, X_NEW)
    assert log_loss(model, *waveform(300, seed=7)) < 0.45


def test_the_plan_is_told(caplog):
    with caplog.at_level("INFO", logger="polymargin"):
        model = classifier("both", verbose=1).fit(*waveform(400))
    assert "400 rows, 3 classes: about 7 leaves of up to 150 rows and 80 landmarks" in caplog.text
    assert isinstance(model.plan_, ScalePlan)
    assert (model.plan_.n_leaves, model.plan_.leaf_rows) == (model.bank_.leaves.tree.n_leaves, (150,))


# Pools of outputs ------------------------------------------------------------------------------------------


def margins_of_two(n=300, seed=0):
    """The outputs of two kinds of one-vs-all machines, the second ones worse, and the classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    good = np.eye(3)[y] * 2.0 - 1.0 + 0.8 * rng.normal(size=(n, 3))
    return np.hstack([good, good + 1.5 * rng.normal(size=(n, 3))]), y


@pytest.mark.parametrize("decoder", [CoupledSoftmax(), Softmax(), Stack(LogisticRegression())], ids=str)
def test_a_pool_decodes_every_set_by_itself(decoder):
    z, y = margins_of_two()
    book, outputs = one_vs_all(3), Outputs(z, "leave_one_out")
    pool = Pooled(decoder).fit(book, outputs, y)
    assert (pool.weights_ >= 0.0).all()
    new = margins_of_two(50, seed=1)[0]
    alone = [
        clone(decoder)
        .fit(book, Outputs(z[:, part], "leave_one_out"), y)
        .log_proba(Outputs(new[:, part], "new"))
        for part in (slice(0, 3), slice(3, 6))
    ]
    expected = naive_scale.log_linear_pool(alone, pool.weights_, pool.log_prior_)
    assert_allclose(pool.log_proba(Outputs(new, "new")), expected, atol=1e-10)
    assert_allclose(pool.log_prior_, np.log((np.bincount(y) + 0.5) / (300 + 1.5)))
    if not isinstance(decoder, Stack):
        assert pool.weights_[0] > pool.weights_[1]


def test_a_pool_of_one_set_twice_weighs_both_alike():
    z, y = margins_of_two()
    twice = np.hstack([z[:, :3], z[:, :3]])
    pool = Pooled(CoupledSoftmax()).fit(one_vs_all(3), Outputs(twice, "leave_one_out"), y)
    assert_allclose(pool.weights_[0], pool.weights_[1], rtol=1e-6)


def test_priors_and_weights_of_a_pool():
    z, y = margins_of_two()
    book, outputs, new = (
        one_vs_all(3),
        Outputs(z, "leave_one_out"),
        Outputs(margins_of_two(50, seed=1)[0], "new"),
    )
    weights = np.where(y == 0, 3.0, 1.0)
    plain = Pooled(CoupledSoftmax()).fit(book, outputs, y, sample_weight=weights)
    priors = np.array([0.2, 0.3, 0.5])
    shifted = Pooled(CoupledSoftmax()).fit(book, outputs, y, sample_weight=weights, priors=priors)
    expected = np.exp(plain.log_proba(new)) * priors / np.bincount(y, weights) * weights.sum()
    assert_allclose(np.exp(shifted.log_proba(new)), expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    # Weights count like copies, but for the folds.
    copied = np.repeat(np.arange(300), weights.astype(int))
    of_copies = Pooled(CoupledSoftmax()).fit(book, outputs.rows(copied), y[copied])
    assert_allclose(of_copies.log_prior_, plain.log_prior_)


def test_cross_fitted_pools_have_not_seen_the_fold():
    _, y = margins_of_two()
    rng = np.random.default_rng(0)
    honest = [np.log(rng.dirichlet(np.ones(3), 300)) for _ in range(2)]
    numbers = rng.integers(0, 5, 300)
    found = cross_pooled(honest, y, np.ones(300), 3, numbers)
    held = numbers == 2
    counts = np.bincount(y[~held]) + 0.5
    log_prior = np.log(counts / counts.sum())
    u = pool_weights([log_q[~held] for log_q in honest], y[~held], np.ones((~held).sum()), log_prior)
    expected = naive_scale.log_linear_pool([log_q[held] for log_q in honest], u, log_prior)
    assert_allclose(found[held], expected, atol=1e-10)
    changed = np.where(held, (y + 1) % 3, y)
    assert_allclose(cross_pooled(honest, changed, np.ones(300), 3, numbers)[held], found[held], atol=1e-12)
    # With one fold there is nothing to learn from.
    alone = cross_pooled(honest, y, np.ones(300), 3, np.zeros(300, dtype=int))
    assert_allclose(alone, np.tile(np.log((np.bincount(y) + 0.5) / 301.5), (300, 1)))


def test_a_pool_refuses_what_its_decoder_refuses():
    class Picky(CoupledSoftmax):
        def check(self, codebook):
            check_pairwise(codebook, "this decoder")

    Pooled(Picky()).check(one_vs_one(3))
    with pytest.raises(ValueError, match="this decoder needs one machine for every pair"):
        Pooled(Picky()).check(one_vs_all(3))
