"""`predict_set` and `decide` of the estimators: honest probabilities, weights, priors, groups and many rows."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import naive
import polymargin
from conftest import blobs
from polymargin import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
    decisions,
)
from polymargin.datasets import make_r4
from polymargin.decoders import CoupledSoftmax, ProbabilisticDecoder
from polymargin.scale import ScaleSettings

GIVEN = {"C": 1.0, "kernel": "rbf", "gamma": 0.3}
MODELS = {
    "lssvm": LSSVMClassifier(**GIVEN),
    "pool": AutoKernelClassifier(
        [LSSVMClassifier(**GIVEN), LSSVMClassifier(C=1.0, kernel="linear", coding="one-vs-all")]
    ),
    "svm": SVMClassifier(**GIVEN, decoding="coupled-softmax"),
    "posterior": PosteriorSVMClassifier(**GIVEN, decoding="coupled-softmax"),
    "logistic": KernelLogisticClassifier(**GIVEN),
}
each_model = pytest.mark.parametrize("name", MODELS)
X, INDEX = blobs(90, 3, 2, seed=4)
Y = np.array(["a", "b", "c"])[INDEX]
NEW = blobs(60, 3, 2, seed=4)[0] + 0.3


@pytest.fixture(scope="module")
def fitted():
    return {name: clone(model).fit(X, Y) for name, model in MODELS.items()}


# Sets ----------------------------------------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("score", ["lac", "aps"])
@pytest.mark.parametrize("per_class", [False, True])
def test_sets_follow_from_the_honest_probabilities(fitted, name, score, per_class):
    model = fitted[name]
    if name in ("svm", "posterior"):
        honest = model.decoder_.cross_log_proba_
    else:
        honest = model.loo_log_proba_
    sets = model.predict_set(NEW, 0.8, per_class=per_class, score=score, allow_empty=True)
    assert sets.dtype == bool
    slow = [
        naive.conformal_set(honest, INDEX, row, Fraction("0.8"), score, per_class)
        for row in model.predict_log_proba(NEW)
    ]
    assert_array_equal(sets, slow)
    # The probabilities by which sets are made are those of rows held out: more cautious than those of the fit.
    seen = naive_log_loss(model.predict_log_proba(X))
    assert seen < naive_log_loss(honest)


def naive_log_loss(log_p):
    return -np.mean([row[k] for row, k in zip(log_p, INDEX, strict=True)])


@each_model
def test_the_predicted_label_is_in_every_set(fitted, name):
    model = fitted[name]
    places = np.searchsorted(model.classes_, model.predict(NEW))
    for options in ({}, {"per_class": True}, {"score": "aps"}):
        for coverage in (0.05, 0.5, 0.8):
            sets = model.predict_set(NEW, coverage, **options)
            assert sets[np.arange(len(NEW)), places].all()
    empty = model.predict_set(NEW, 0.05, allow_empty=True)
    assert not empty.all(axis=1).any()
    assert (~empty.any(axis=1)).any()


@each_model
def test_saved_models_have_the_same_sets_and_decisions(fitted, name, tmp_path):
    pytest.importorskip("skops")
    model = fitted[name]
    polymargin.save(model, tmp_path / "m.model")
    loaded = polymargin.load(tmp_path / "m.model")
    assert_array_equal(loaded.predict_set(NEW, 0.8), model.predict_set(NEW, 0.8))
    assert_array_equal(
        loaded.predict_set(NEW, 0.8, per_class=True), model.predict_set(NEW, 0.8, per_class=True)
    )
    assert_array_equal(loaded.decide(NEW, reject=0.9), model.decide(NEW, reject=0.9))


def test_coverage_of_real_fits_on_new_rows():
    """Twenty fits to eighty rows: coverage of a thousand new rows each, within four standard errors."""
    found = []
    for seed in range(20):
        rows, y = make_r4(1080, random_state=seed)
        if np.unique(y[:80]).size < 3:
            continue
        model = LSSVMClassifier(C=1.0, kernel="rbf", gamma=0.5, coding="one-vs-all").fit(rows[:80], y[:80])
        sets = model.predict_set(rows[80:], 0.9, allow_empty=True)
        found.append(sets[np.arange(1000), y[80:]].mean())
    error = np.std(found) / len(found) ** 0.5
    assert error < 0.01
    assert 0.9 - 4 * error < np.mean(found) < 0.9 + 1 / 81 + 4 * error


@each_model
def test_too_few_rows_are_warned_of(name):
    keep = np.r_[np.flatnonzero(INDEX == 0)[:6], np.flatnonzero(INDEX > 0)]
    model = clone(MODELS[name]).fit(X[keep], Y[keep])
    with pytest.warns(
        UserWarning, match=r"classes are in all sets: 'a'; .* needs 9 rows or more of every class"
    ):
        sets = model.predict_set(NEW, 0.9, per_class=True)
    assert sets[:, 0].all()
    assert not sets[:, 1].all()
    with pytest.warns(UserWarning, match="all classes are in all sets: a coverage of 0.999 needs 999 rows"):
        assert model.predict_set(NEW, 0.999).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LSSVMClassifier(**GIVEN, decoding="hamming"), "'hamming' learns no probabilities"),
        (LSSVMClassifier(**GIVEN, decoding="bayes"), "'bayes' learns no probabilities"),
        (LSSVMClassifier(**GIVEN, decoding=CoupledSoftmax(in_sample=True)), "leave in_sample=False"),
        (SVMClassifier(**GIVEN), "probability=False learns no probabilities.*set probability=True"),
        (SVMClassifier(**GIVEN, decoding="hamming"), 'set decoding="coupled-softmax"'),
        (SVMClassifier(**GIVEN, decoding="softmax"), "keeps no probabilities of rows held out"),
    ],
)
def test_estimators_without_honest_probabilities_say_what_to_do(model, message):
    for each in (model, clone(model).fit(X, Y)):
        assert not hasattr(each, "predict_set")
        with pytest.raises(AttributeError) as caught:
            each.predict_set(NEW)
        assert re.search(f"no attribute 'predict_set': .*{message}", str(caught.value))


def test_what_is_refused(fitted):
    model = fitted["lssvm"]
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        model.predict_set(NEW, 90)
    with pytest.raises(ValueError, match='choose "lac" or "aps"'):
        model.predict_set(NEW, score="raps")
    with pytest.raises(NotFittedError):
        LSSVMClassifier().predict_set(NEW)
    with pytest.raises(NotFittedError):
        LSSVMClassifier().decide(NEW)
    old = clone(MODELS["logistic"]).fit(X, Y)
    del old._kept_calibration
    with pytest.raises(AttributeError, match="saved by an older version"):
        old.predict_set(NEW)


def test_a_second_fit_forgets_the_first():
    model = clone(MODELS["svm"]).fit(X, Y)
    model.set_params(decoding="hamming").fit(X, Y)
    assert model._kept_calibration is None
    assert not hasattr(model, "predict_set")


# The rows that count -------------------------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("class_weight", [{"a": 7.0, "c": 0.3}, "balanced"])
def test_class_weight_does_not_change_whose_coverage_is_meant(name, class_weight):
    model = clone(MODELS[name]).set_params(class_weight=class_weight).fit(X, Y)
    rows = model.calibration_rows_
    assert_allclose(rows.weights, rows.weights[0], rtol=1e-9)
    soft = name != "svm"
    if soft:  # the same of soft labels, which divide the rows among the classes
        P = 0.9 * np.eye(3)[INDEX] + 0.1 / 3
        model = clone(MODELS[name]).set_params(class_weight=class_weight, classes=["a", "b", "c"]).fit(X, P)
        assert_allclose(
            model.calibration_rows_.weights.reshape(90, 3).sum(axis=1),
            model.calibration_rows_.weights[:3].sum(),
        )


@pytest.mark.parametrize("name", ["lssvm", "pool", "svm"])
def test_priors_are_the_class_frequencies_that_are_meant(name):
    priors = {"a": 0.2, "b": 0.1, "c": 0.7}
    if name == "svm":
        model = clone(MODELS[name]).set_params(priors=priors)
    else:
        model = clone(MODELS[name]).set_params(priors=priors, class_weight="balanced")
    rows = model.fit(X, Y).calibration_rows_
    shares = np.bincount(rows.class_index, rows.weights)
    assert_allclose(shares / shares.sum(), [0.2, 0.1, 0.7], rtol=1e-6)
    # What rows are judged by is what is predicted, re-weighted to the priors.
    plain = clone(model).set_params(priors=None).fit(X, Y).calibration_rows_
    ratio = np.exp(rows.log_proba - plain.log_proba)
    odds = ratio / ratio[:, :1]
    assert_allclose(odds, np.broadcast_to(odds[:1], odds.shape), rtol=1e-6)


@pytest.mark.parametrize("name", ["lssvm", "logistic", "svm"])
def test_sample_weights_count(name):
    weights = np.where(np.arange(90) % 3 == 0, 2.0, 0.5)
    weights[5] = 0.0
    rows = clone(MODELS[name]).fit(X, Y, sample_weight=weights).calibration_rows_
    kept = np.flatnonzero(weights)
    assert_allclose(rows.weights / rows.weights.sum(), weights[kept] / weights.sum())
    assert_array_equal(rows.class_index, INDEX[kept])


def test_groups_count_as_one_observation():
    groups = np.arange(90) // 3
    model = clone(MODELS["lssvm"]).fit(X, Y, groups=groups)
    assert_array_equal(np.unique(model.calibration_rows_.groups, return_counts=True)[1], np.full(30, 3))
    with pytest.warns(UserWarning, match="needs 49 rows .* there are 30, as rows of one group"):
        assert model.predict_set(NEW, 0.98).all()


@pytest.mark.parametrize("name", ["lssvm", "posterior", "logistic"])
def test_hard_labels_as_soft_ones(name):
    soft = clone(MODELS[name]).set_params(classes=["a", "b", "c"])
    if name == "posterior":
        hard = clone(soft).set_params(density=None).fit(X, Y)
    else:
        hard = clone(soft).fit(X, Y)
    soft.fit(X, np.eye(3)[INDEX])
    assert_allclose(soft.calibration_rows_.thresholds(0.8), hard.calibration_rows_.thresholds(0.8), rtol=1e-5)


def test_rows_that_a_metric_was_learned_from_do_not_count(fitted):
    model = clone(MODELS["lssvm"]).fit(X, Y)
    leak = np.arange(90) % 2 == 0
    model.bank_ = replace(model.bank_, leak=leak)
    rows = model.calibration_rows_
    assert_array_equal(rows.weights == 0.0, leak)
    q = decisions.CalibrationRows(model.loo_log_proba_[~leak], INDEX[~leak])
    assert_allclose(rows.thresholds(0.7, per_class=True), q.thresholds(0.7, per_class=True))


# Many rows, other arrays ---------------------------------------------------------------------------------

SETTINGS = ScaleSettings(leaf_rows=150, sample_rows=300, decoder_rows=600)


@pytest.fixture(scope="module")
def many():
    rows, y = make_r4(3000, random_state=0)
    model = LSSVMClassifier(
        **GIVEN, scale="both", n_landmarks=60, scaling=SETTINGS, class_weight="balanced", coding="one-vs-all"
    )
    return model.fit(rows[:1500], y[:1500]), rows[1500:], y[1500:]


def test_many_rows(many):
    model, rows, y = many
    assert len(model.calibration_rows_.weights) == model.support_.size < 1500
    for per_class in (False, True):
        sets = model.predict_set(rows, 0.9, per_class=per_class, allow_empty=True)
        hit = sets[np.arange(y.size), y]
        shares = [hit[y == k].mean() for k in range(3)] if per_class else [hit.mean()]
        assert np.all(np.abs(np.array(shares) - 0.9) < 0.04)
    # class_weight="balanced" is taken out by the counts of all rows, not by those of the sample.
    calibration = model.calibration_rows_
    shares = np.bincount(calibration.class_index, calibration.weights)
    assert_allclose(
        shares / shares.sum(), np.bincount(make_r4(3000, random_state=0)[1][:1500]) / 1500, rtol=5e-3
    )


def test_dask_arrays_are_answered_lazily(many):
    da = pytest.importorskip("dask.array")
    model, rows, _ = many
    lazy = da.from_array(rows[:50], chunks=(20, 2))
    sets = model.predict_set(lazy, 0.95)
    assert isinstance(sets, da.Array)
    assert sets.shape == (50, 3)
    assert sets.dtype == bool
    assert_array_equal(sets.compute(), model.predict_set(rows[:50], 0.95))
    for options in ({"reject": 0.9}, {"costs": 1 - np.eye(3)}, {}):
        decided = model.decide(lazy, **options)
        assert isinstance(decided, da.Array)
        assert decided.shape == (50,)
        assert_array_equal(decided.compute(), model.decide(rows[:50], **options))


def test_pipelines_and_searches():
    pipeline = make_pipeline(StandardScaler(), LSSVMClassifier(**GIVEN)).fit(X, Y)
    rows = pipeline[0].transform(NEW)
    for model in (
        pipeline,
        make_pipeline(pipeline),
        GridSearchCV(pipeline, {"lssvmclassifier__C": [1.0]}, cv=2).fit(X, Y),
    ):
        assert_array_equal(decisions.predict_set(model, NEW, 0.8), pipeline[-1].predict_set(rows, 0.8))
        decided = decisions.decide(model, NEW, reject=0.7, rejected="?")
        assert_array_equal(decided, pipeline[-1].decide(rows, reject=0.7, rejected="?"))
    assert_array_equal(decisions.predict_set(pipeline[-1], rows, 0.8), pipeline[-1].predict_set(rows, 0.8))
    for call in (decisions.predict_set, decisions.decide):
        with pytest.raises(AttributeError, match=f"no {call.__name__}: .*set probability=True"):
            call(make_pipeline(SVMClassifier(**GIVEN)).fit(X, Y), NEW)
        other = "CalibrationRows" if call is decisions.predict_set else "predict_proba: .*decided_labels"
        with pytest.raises(AttributeError, match=rf"GaussianNB is no classifier of polymargin; .*{other}"):
            call(make_pipeline(GaussianNB()).fit(X, Y), NEW)
        unkept = GridSearchCV(pipeline, {"lssvmclassifier__C": [1.0]}, cv=2, refit=False).fit(X, Y)
        with pytest.raises(
            AttributeError, match="GridSearchCV has no best_estimator_; fit it with refit=True"
        ):
            call(unkept, NEW)


class Own(ProbabilisticDecoder):
    """A decoder as users write them: it learns, and knows nothing of priors."""

    learns = True

    def fit(self, codebook, outputs, class_index, *, priors=None, sample_weight=None):
        super().fit(codebook, outputs, class_index)
        self.scale_ = 2.0 / np.abs(outputs.margins).mean()
        return self

    def log_proba(self, outputs):
        return log_softmax(self.scale_ * outputs.margins @ self.codebook_.matrix.T, axis=1)


@pytest.mark.parametrize("per_class", [False, True])
def test_a_decoder_of_the_user(per_class):
    model = LSSVMClassifier(**GIVEN, decoding=Own()).fit(X, Y)
    sets = model.predict_set(NEW, 0.9, per_class=per_class)
    thresholds = decisions.CalibrationRows(
        model.loo_log_proba_, np.searchsorted(model.classes_, Y)
    ).thresholds(0.9, per_class=per_class)
    assert_array_equal(sets, decisions.prediction_sets(model.predict_log_proba(NEW), thresholds))


# Decisions -----------------------------------------------------------------------------------------------


@each_model
def test_decisions_agree_with_the_probabilities(fitted, name):
    model = fitted[name]
    p = model.predict_proba(NEW)
    assert_array_equal(model.decide(NEW), model.predict(NEW))
    assert_array_equal(model.decide(NEW, costs=1 - np.eye(3)), model.predict(NEW))
    costs = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [9.0, 9.0, 0.0]])
    slow = [naive.least_expected_cost(row, costs.tolist()) for row in p]
    assert_array_equal(model.decide(NEW, costs=costs), model.classes_[slow])
    assert (model.decide(NEW, costs=costs) == "c").sum() > (model.predict(NEW) == "c").sum()
    rejected = model.decide(NEW, reject=0.8)
    assert_array_equal([label is None for label in rejected], p.max(axis=1) < 0.8)
    assert 0 < sum(label is None for label in rejected) < len(NEW)
    kept = p.max(axis=1) >= 0.8
    assert_array_equal(rejected[kept], model.predict(NEW)[kept])


def test_decisions_need_probabilities():
    model = SVMClassifier(**GIVEN).fit(X, Y)
    assert not hasattr(model, "decide")
    with pytest.raises(AttributeError) as caught:
        model.decide(NEW)
    assert "made by probabilities: probability=False gives no probabilities" in str(caught.value)


def test_nothing_is_written_to_the_model(fitted):
    """Threads may ask at the same time."""
    before = dict(fitted["lssvm"].__dict__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted["lssvm"].predict_set(NEW, 0.8)
        fitted["lssvm"].decide(NEW, reject=0.5)
    assert fitted["lssvm"].__dict__.keys() == before.keys()
