"""The trial of a much smaller C, and that honest probabilities stay honest where classes overlap."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from polymargin import AutoKernelClassifier, CoupledSoftmax, LSSVMClassifier
from polymargin.datasets import generators
from polymargin.estimators import _shrinkage
from polymargin.estimators._shrinkage import FACTOR, cross_loss, promising, shrunk, worth_shrinking


def noisy(n=300, seed=0):
    return generators()["waveform"].sample(n, random_state=seed)


def log_loss(model, X, y):
    return -model.predict_log_proba(X)[np.arange(y.size), y].mean()


def test_noise_calls_for_a_smaller_C_and_it_pays():
    gains = []
    for seed in range(3):
        X, y = noisy(seed=seed)
        model = LSSVMClassifier(kernel="rbf").fit(X, y)
        larger = LSSVMClassifier(kernel="rbf", C=model.C_[0] * FACTOR, gamma=model.gamma_[0]).fit(X, y)
        new = generators()["waveform"].sample(4000, random_state=100 + seed)
        assert model.shrinkage_ == FACTOR
        gains.append(log_loss(larger, *new) - log_loss(model, *new))
    assert np.mean(gains) > 0.005


def test_the_smaller_C_is_taken_only_if_it_decodes_better():
    X, y = noisy()
    model = LSSVMClassifier(kernel="rbf").fit(X, y)
    bank = model.bank_
    larger = LSSVMClassifier(kernel="rbf", C=bank.C[0] * FACTOR, gamma=bank.gamma[0]).fit(X, y)
    losses = {}
    for fitted in (model, larger):
        log_p = fitted.decoder_.cross_log_proba_
        losses[fitted.C_[0]] = -log_p[np.arange(y.size), y].mean()
        assert_allclose(cross_loss(fitted.decoder_, fitted.bank_.data), losses[fitted.C_[0]])
    assert losses[model.C_[0]] < losses[larger.C_[0]]
    again = shrunk(larger.bank_)
    assert_allclose(again.C, bank.C)
    assert_allclose(again.dual_coef, bank.dual_coef, atol=1e-10)


def test_small_clear_classes_keep_their_C():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = LSSVMClassifier().fit(X, y)
    assert model.shrinkage_ == 1.0
    assert not worth_shrinking(model.decoder_, model.bank_.data)
    # A decoder that has nothing to compare with cannot say.
    X, y = noisy(120)
    for decoding in (CoupledSoftmax(ridge=1.0), "softmax", "bayes"):
        model = LSSVMClassifier(decoding=decoding).fit(X, y)
        assert model.shrinkage_ == 1.0
        assert not worth_shrinking(model.decoder_, model.bank_.data)


@pytest.mark.parametrize("parameters", [{"C": 1.0}, {"selection": "evidence"}, {"selection": "gcv"}])
def test_only_what_leave_one_out_selected_is_shrunk(parameters):
    assert LSSVMClassifier(kernel="rbf", **parameters).fit(*noisy(150)).shrinkage_ == 1.0


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_of_many_rows_a_sample_is_asked(monkeypatch, smaller_is_better):
    X, y = noisy(400)
    bank = LSSVMClassifier(kernel="rbf", C=2.0, gamma=0.02).fit(X, y).bank_
    sizes, losses = [], iter([0.3, 0.2] if smaller_is_better else [0.2, 0.3])
    train = _shrinkage.fit_lssvm_bank

    def counted(data, codebook, *, C, **parameters):
        sizes.append((data.class_index.size, C[0]))
        return train(data, codebook, C=C, **parameters)

    monkeypatch.setattr(_shrinkage, "fit_lssvm_bank", counted)
    monkeypatch.setattr(_shrinkage, "cross_loss", lambda decoder, data: next(losses))
    assert promising(bank, CoupledSoftmax())  # of few rows, all will be asked
    assert sizes == []
    monkeypatch.setattr(_shrinkage, "_ASKED", 200)
    assert promising(bank, CoupledSoftmax()) == smaller_is_better
    assert [C for _, C in sizes] == [2.0, 2.0 / FACTOR]
    assert all(200 <= size <= 210 for size, _ in sizes)


@pytest.mark.parametrize("n", [120, 300])
def test_overlapping_classes_are_not_told_by_leave_one_out_outputs(n):
    """Six classes along one feature: many machines, little to learn, and the labels of neighbours all around."""
    stated, true, best = [], [], []
    for seed in range(3):
        random = np.random.default_rng(seed)
        y, y_new = random.integers(0, 6, n), random.integers(0, 6, 3000)
        X, X_new = (random.normal(size=(index.size, 1)) + 0.35 * index[:, np.newaxis] for index in (y, y_new))
        logits = -0.5 * (X_new - 0.35 * np.arange(6)) ** 2
        truth = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        for model in (LSSVMClassifier(), AutoKernelClassifier()):
            model.fit(X, y)
            stated.append(model.loo_log_loss_)
            true.append(log_loss(model, X_new, y_new))
            best.append(-truth[np.arange(3000), y_new].mean())
    assert np.mean(true) < np.mean(best) + 0.08
    assert np.mean(stated) > np.mean(true) - 0.12


def test_jobs_do_not_change_anything():
    X, y = noisy(200)
    for make in (LSSVMClassifier, AutoKernelClassifier):
        one, two = make().fit(X, y), make(n_jobs=2).fit(X, y)
        np.testing.assert_array_equal(one.predict_proba(X[:50]), two.predict_proba(X[:50]))
