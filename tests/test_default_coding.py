"""The coding of estimators that were given none: one-vs-one, or one-vs-all if classes are many."""

import logging

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from polymargin import AutoKernelClassifier, LSSVMClassifier, SVMClassifier, load, save
from polymargin.cli._models import note_on_many_classes
from polymargin.codebooks import default_coding, one_vs_all, one_vs_one
from polymargin.comparison.repeated import Method, RepeatedComparison, affordable_codings
from polymargin.datasets import Dataset
from polymargin.decoders import Coupling
from polymargin.inspection.members import member_name
from polymargin.scale import ScaleSettings

#: As many classes as have one-vs-one coding, see `codebooks/default.py`.
MOST = 64


def blobs(n_classes, n_rows, seed=0):
    """Return rows of Gaussian classes in two columns."""
    random = np.random.default_rng(seed)
    y = np.tile(np.arange(n_classes), n_rows)
    return 3.0 * random.normal(size=(n_classes, 2))[y] + random.normal(size=(y.size, 2)), y


X, Y = blobs(4, 12)
NEW = blobs(4, 5, seed=1)[0]


@pytest.fixture
def four_are_many(monkeypatch):
    """Let four classes be too many for one-vs-one coding; three are not."""
    monkeypatch.setattr("polymargin.codebooks.default._MOST_CLASSES", 3)


def test_the_rule():
    assert [default_coding(n) for n in (2, 3, 45, MOST)] == 4 * ["one-vs-one"]
    assert [default_coding(n) for n in (MOST + 1, 120, 1000)] == 3 * ["one-vs-all"]


def test_many_classes_without_a_word():
    X, y = blobs(MOST + 1, 2)
    model = LSSVMClassifier(1.0, kernel="rbf", gamma=0.1).fit(X, y)
    assert model.codebook_ == one_vs_all(MOST + 1)
    assert model.coding_ == "one-vs-all"


def test_few_classes_have_one_vs_one_machines():
    model = LSSVMClassifier().fit(X, Y)
    assert model.coding_ == "one-vs-one"
    assert model.coding is None
    given = LSSVMClassifier(coding="one-vs-one").fit(X, Y)
    assert_array_equal(model.predict_log_proba(NEW), given.predict_log_proba(NEW))


@pytest.mark.parametrize(
    "model",
    [
        LSSVMClassifier(),
        LSSVMClassifier(1.0, kernel="linear", decoding="hamming"),
        SVMClassifier(decoding="coupled-softmax", coding=None),
        LSSVMClassifier(kernel="rbf", scale="landmarks", n_landmarks=10),
        LSSVMClassifier(kernel="rbf", scale="leaves", scaling=ScaleSettings(leaf_rows=30, sample_rows=40)),
    ],
    ids=["default", "hamming", "svm", "landmarks", "leaves"],
)
def test_many_classes_have_one_vs_all_machines(model, four_are_many):
    chosen = clone(model).fit(X, Y)
    assert (chosen.coding, chosen.coding_) == (None, "one-vs-all")
    assert chosen.codebook_ == one_vs_all(4)
    given = clone(model).set_params(coding="one-vs-all").fit(X, Y)
    assert_array_equal(chosen.decision_function(NEW), given.decision_function(NEW))
    fewer = clone(model).fit(X[Y < 3], Y[Y < 3])
    assert (fewer.coding_, fewer.codebook_) == ("one-vs-one", one_vs_one(3))
    # The coding of a fit is no longer that of the fit before.
    assert fewer.fit(X, Y).coding_ == "one-vs-all"


@pytest.mark.parametrize("coding", ["one-vs-one", "minimal", one_vs_one(4), "adaptive"], ids=str)
def test_a_coding_that_was_given_is_obeyed(coding, four_are_many):
    model = LSSVMClassifier(1.0, kernel="rbf", gamma=0.1, coding=coding).fit(X, Y)
    assert model.coding_ is coding
    assert not model.codebook_.is_one_vs_all


@pytest.mark.parametrize("decoding", ["votes", "dag", Coupling("wlw2")], ids=str)
def test_decoders_of_pairs_have_pairs(decoding, four_are_many):
    model = LSSVMClassifier(1.0, kernel="rbf", gamma=0.1, decoding=decoding).fit(X, Y)
    assert (model.coding_, model.codebook_) == ("one-vs-one", one_vs_one(4))


def test_svc_stays_svc(four_are_many):
    assert SVMClassifier().fit(X, Y).codebook_ == one_vs_one(4)


def test_members_of_a_pool(four_are_many):
    pool = AutoKernelClassifier(metric=None).fit(X, Y)
    assert [member.coding_ for member in pool.members_] == 3 * ["one-vs-all"]
    assert member_name(pool.members_[0]) == "blend, one-vs-all"
    pairs = AutoKernelClassifier([LSSVMClassifier(coding="one-vs-one"), "linear"]).fit(X, Y)
    assert [member.coding_ for member in pairs.members_] == ["one-vs-one", "one-vs-all"]


def test_further_rows(four_are_many):
    model = LSSVMClassifier(1.0, kernel="rbf", gamma=0.1, scale="landmarks", n_landmarks=X[:8])
    whole = clone(model).fit(X, Y, groups=np.arange(Y.size))
    for rows in (slice(0, 24), slice(24, None)):
        model.partial_fit(X[rows], Y[rows])
    assert model.coding_ == "one-vs-all"
    np.testing.assert_allclose(model.predict_proba(NEW), whole.predict_proba(NEW), atol=1e-8)


def test_files(four_are_many, tmp_path):
    model = LSSVMClassifier().fit(X, Y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert (loaded.coding, loaded.coding_) == (None, "one-vs-all")
    assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))


def test_the_choice_is_told(four_are_many, caplog):
    told = "4 classes: one-vs-all coding, 4 machines; one-vs-one would have 6"
    with caplog.at_level(logging.INFO, "polymargin"):
        LSSVMClassifier(1.0, kernel="linear", verbose=1, coding="one-vs-all").fit(X, Y)
        LSSVMClassifier(1.0, kernel="linear", verbose=1).fit(X[Y < 3], Y[Y < 3])
        assert told not in caplog.text
        LSSVMClassifier(1.0, kernel="linear", verbose=1).fit(X, Y)
    assert told in caplog.text


def test_comparisons(four_are_many):
    assert affordable_codings(3) == ["one-vs-one", *affordable_codings(4)]
    for n_classes, default in ((3, "one-vs-one"), (4, "one-vs-all")):
        rows = n_classes > Y
        dataset = Dataset("blobs", X[rows], Y[rows], ("a", "b"), "made here")
        comparison = RepeatedComparison(dataset, ["ls-svm", "auto"])
        found = [method for method in comparison.methods if comparison.is_default(method)]
        assert found == [Method("ls-svm", default, "coupled-softmax"), Method("auto", "pool", "pool")]


def test_decoders_that_cannot_read_the_default_get_the_other_coding(caplog):
    model = LSSVMClassifier(C=1.0, gamma=0.5, kernel="rbf", decoding="argmax", verbose=1)
    with caplog.at_level(logging.INFO, "polymargin"):
        model.fit(X, Y)
    assert model.coding_ == "one-vs-all"
    # One-vs-one is not an alternative here.
    assert "4 classes: exact" in caplog.text
    assert "one-vs-one" not in caplog.text
    assert note_on_many_classes(model, 4) is None
    assert_array_equal(model.predict(NEW), model.classes_[model.decision_function(NEW).argmax(axis=1)])
