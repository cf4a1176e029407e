"""Further rows for models of landmarks, and their merging: the model of all rows together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from polymargin import LSSVMClassifier
from polymargin.datasets import make_waveform
from polymargin.scale import ScaleSettings

X, Y = make_waveform(900, random_state=0)
APART = np.arange(len(Y))
GIVEN = {"scale": "landmarks", "n_landmarks": X[:40], "kernel": "rbf", "gamma": 0.02}


def in_blocks(model, blocks, X=X, weights=None):
    for rows in blocks:
        given = {} if weights is None else {"sample_weight": weights[rows]}
        model.partial_fit(X[rows], Y[rows], **given)
    return model


@pytest.mark.parametrize(
    "options",
    [
        {"C": 0.5},
        {},
        {"coding": "one-vs-all", "decoding": "bayes", "C": 1.0},
        {"coding": "minimal", "decoding": "hamming"},
        {"coding": "one-vs-all", "decoding": "softmax"},
    ],
    ids=lambda options: str(options.get("decoding", options)),
)
def test_blocks_in_any_order_give_the_model_of_all_rows(options):
    model = LSSVMClassifier(**GIVEN, **options)
    whole = clone(model).fit(X, Y, groups=APART)
    blocks = np.array_split(np.random.default_rng(0).permutation(len(Y)), 9)
    parts = in_blocks(clone(model), blocks)
    assert parts.n_rows_ == len(Y)
    assert_allclose(parts.margins(X), whole.margins(X), atol=1e-9)
    assert_array_equal(parts.predict(X), whole.predict(X))
    if whole.decoder_.probabilistic:
        assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-8)


def test_merged_models_are_the_model_of_all_rows():
    whole = LSSVMClassifier(**GIVEN).fit(X, Y, groups=APART)
    one, other = (
        LSSVMClassifier(**GIVEN).fit(X[rows], Y[rows]) for rows in (slice(0, 300), slice(300, None))
    )
    before = other.predict_proba(X)
    merged = one.merge(other)
    assert merged is one
    assert merged.n_rows_ == len(Y)
    assert_allclose(merged.predict_proba(X), whole.predict_proba(X), atol=1e-8)
    assert_array_equal(other.predict_proba(X), before)


def test_weights_of_further_rows():
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(Y))
    weights[400:420] = 0.0
    model = LSSVMClassifier(**GIVEN, C=1.0)
    whole = clone(model).fit(X, Y, weights, APART)
    parts = in_blocks(clone(model), [slice(0, 400), slice(400, None)], weights=weights)
    assert_allclose(parts.margins(X), whole.margins(X), atol=1e-9)
    assert set(range(400, 420)).isdisjoint(parts.support_)


def test_sparse_rows():
    rows = sparse.csr_array(np.where(np.abs(X) > 2.0, X, 0.0))
    model = LSSVMClassifier(**{**GIVEN, "n_landmarks": rows[:40]}, C=1.0)
    whole = clone(model).fit(rows, Y, groups=APART)
    parts = in_blocks(clone(model), [slice(0, 500), slice(500, None)], rows)
    assert_allclose(parts.margins(rows), whole.margins(rows), atol=1e-9)


def test_the_decoder_s_sample_is_a_fair_sample_of_all_blocks():
    settings = ScaleSettings(decoder_rows=200, sample_rows=200)
    model = in_blocks(LSSVMClassifier(**GIVEN, C=1.0, scaling=settings), [slice(0, 450), slice(450, None)])
    assert model.support_.size == 200
    # Of a fair coin, five standard deviations.
    assert abs((model.support_ < 450).sum() - 100) < 36
    assert_array_equal(Y[model.support_], model.classes_[model.bank_.data.class_index])


def test_the_first_rows_choose_what_is_not_given():
    model = in_blocks(LSSVMClassifier(scale="landmarks", n_landmarks=40), [slice(0, 450), slice(450, None)])
    assert model.score(X, Y) > 0.8
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(1)]).all()


def test_clear_errors():
    with pytest.raises(AttributeError, match="partial_fit") as raised:
        LSSVMClassifier().partial_fit(X, Y)
    assert 'scale="landmarks"' in str(raised.value)
    model = LSSVMClassifier(**GIVEN)
    with pytest.raises(
        ValueError, match=r"every class of classes=\[0, 1, 2\], and has none of \[2\]: gather more"
    ):
        model.partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"classes=\[0, 1\] is not the same as the labels .* \[0, 1, 2\]"):
        model.partial_fit(X, Y, classes=[0, 1])
    model.partial_fit(X[Y < 2], Y[Y < 2], classes=[1, 0])
    with pytest.raises(ValueError, match=r"classes=\[0, 1, 2\] is not the same"):
        model.partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="merged with itself"):
        model.merge(model)
    with pytest.raises(ValueError, match="class 2 was not among"):
        model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="same classes"):
        model.merge(LSSVMClassifier(**GIVEN).fit(X, Y))
    other = LSSVMClassifier(**{**GIVEN, "gamma": 0.03}).fit(X, Y)
    with pytest.raises(ValueError, match="same feature map"):
        LSSVMClassifier(**GIVEN).fit(X, Y).merge(other)
    with pytest.raises(ValueError, match="21"):
        LSSVMClassifier(**GIVEN).fit(X, Y).partial_fit(X[:, :5], Y)
