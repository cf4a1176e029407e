"""What cannot work is refused at once, and the message says why and what to do."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.naive_bayes import GaussianNB

from conftest import blobs
from polymargin import AutoKernelClassifier, Bayes, Loss, LSSVMClassifier, SVMClassifier, _memory
from polymargin.codebooks import one_vs_one
from polymargin.estimators._candidates import Trainer
from polymargin.kernels import RBF
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.scale import ScaleSettings

X, Y = blobs(n=30, K=3, seed=0)


def refused(words, model=None, X=X, Y=Y, weights=None, error=ValueError):
    with pytest.raises(error, match=words):
        (LSSVMClassifier() if model is None else model).fit(X, Y, weights)


# Rows and labels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_values_that_are_no_numbers(value, word):
    bad = X.copy()
    bad[3, 1] = value
    refused(f"(?i)contains {word}", X=bad)
    model = LSSVMClassifier().fit(X, Y)
    for use in (model.predict, model.predict_proba, model.decision_function, model.margins, model.variances):
        with pytest.raises(ValueError, match=f"(?i)contains {word}"):
            use(bad)


def test_labels():
    refused("y holds only one class, 1; a classifier needs two or more", Y=np.ones(30, int))
    refused("y holds only one class, 'ant'", Y=np.full(30, "ant"))
    refused("(?i)unknown label type: continuous", Y=np.linspace(0, 1, 30))
    refused("(?i)nan", Y=np.where(Y == 0, np.nan, Y))
    refused(r"inconsistent numbers of samples: \[30, 29\]", Y=Y[:-1])
    refused("y should be a 1d array", Y=np.eye(3, dtype=int)[Y])
    refused("soft labels of every row must sum to one", Y=2.0 * np.eye(3)[Y])


def test_shapes():
    refused("Expected 2D array", X=X[:, 0])
    refused("(?i)dim", X=X[:, :, np.newaxis])
    refused("0 feature", X=X[:, :0])
    refused("0 sample", X=X[:0], Y=Y[:0])
    refused("minimum of 2 is required", X=X[:1], Y=Y[:1])
    refused("could not convert string to float", X=np.full((30, 2), "a"))


def test_frames_of_texts_and_gaps_are_told_of_prepare():
    for column in (["a", "b"] * 15, [None, 1.0] * 15):
        with pytest.raises(ValueError) as caught:
            LSSVMClassifier().fit(pd.DataFrame({"u": X[:, 0], "v": column}), Y)
        assert "make_pipeline(polymargin.prepare(frame), classifier)" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="NaN") as caught:
        LSSVMClassifier().fit(np.where(X > 0, np.nan, X), Y)
    assert not hasattr(caught.value, "__notes__")


def test_new_rows_must_look_like_the_training_rows():
    model = LSSVMClassifier().fit(X, Y)
    for use in (model.predict, model.predict_proba, model.decision_function, model.margins, model.variances):
        with pytest.raises(ValueError, match="X has 2 features, but LSSVMClassifier is expecting 3"):
            use(X[:, :2])
        with pytest.raises(ValueError, match="Expected 2D array"):
            use(X[0])


def test_prediction_before_fit():
    model = LSSVMClassifier()
    for use in (model.predict, model.predict_proba, model.decision_function, model.margins, model.variances):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            use(X)


# Weights ---------------------------------------------------------------------------------------------------


def test_weights():
    refused("(?i)negative values.*sample_weight", weights=np.r_[-1.0, np.ones(29)])
    refused("at least one non-zero|all sample weights are zero", weights=np.zeros(30))
    refused("class 1 has no row with a positive sample weight", weights=(Y != 1).astype(float))
    refused(
        "class 'b' has no row with a positive", Y=np.array(list("abc"))[Y], weights=(Y != 1).astype(float)
    )
    refused("(?i)sample_weight.*nan", weights=np.r_[np.nan, np.ones(29)])
    refused(r"(?i)sample_weight.shape == \(29,\), expected \(30,\)", weights=np.ones(29))


@pytest.mark.parametrize(
    "model",
    [
        LSSVMClassifier(selection="evidence", decoding="bayes"),
        LSSVMClassifier(C=1.0, gamma=1.0, selection=None, decoding="bayes"),
    ],
)
def test_weights_that_sum_to_less_than_two_are_as_good_as_any(model):
    """Only what they are relative to each other counts, and C."""
    C = None if model.C is None else 30.0 * model.C
    small = clone(model).set_params(C=C).fit(X, Y, np.full(30, 1 / 30))
    model.fit(X, Y)
    assert_allclose(small.variances(X), model.variances(X), rtol=1e-6)
    assert_allclose(small.predict_proba(X), model.predict_proba(X), atol=1e-8)


def test_weights_of_a_bank_that_sum_to_less_than_two_have_no_variances():
    data = TrainingRows(RBF(), X, Y, np.full(30, 1 / 30))
    with pytest.raises(ValueError, match=r"sum to 0\.\d+, .* at least 2: .* scale the weights"):
        fit_lssvm_bank(data, one_vs_one(3), C=None, gamma=1.0)
    bank = fit_lssvm_bank(data, one_vs_one(3), C=1.0, gamma=1.0, keep_factors=False)
    assert np.isnan(bank.mu).all()
    with pytest.raises(ValueError, match="sum to two or more"):
        bank.outputs(X, variances=True)


# Parameters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 0.0, -1.0, np.nan, np.inf, "big", True, [1.0]])
def test_C_and_gamma_are_positive_numbers(value):
    refused("C must be a positive number, or None to have it selected; not", LSSVMClassifier(C=value))
    refused('gamma must be a positive number, or "scale", "auto", or None', LSSVMClassifier(gamma=value))


@pytest.mark.parametrize("given", [{}, {"C": 1.0}, {"gamma": 1.0}, {"kernel": "linear"}])
def test_without_selection_everything_must_be_given(given):
    refused("leaves nothing to choose C and gamma: give both", LSSVMClassifier(selection=None, **given))


def test_without_selection_a_kernel_without_gamma_needs_C_alone():
    LSSVMClassifier(selection=None, C=1.0, kernel="linear").fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"coding": "one-vs-two"}, "unknown coding 'one-vs-two'; choose one of one-vs-one, one-vs-all"),
        ({"coding": [[-1], [1]]}, r"2 rows \(codewords\) but y has 3 classes"),
        ({"coding": [[-1, 1], [-1, 1], [1, -1]]}, "no column separates class 0 from class 1"),
        ({"coding": [[-1, 3], [1, 1], [1, -1]]}, "only -1, 0"),
        ({"coding": 3}, "(?i)codebook"),
        ({"decoding": "guess"}, "unknown decoding 'guess'; choose one of hamming, loss, bayes"),
        ({"decoding": None}, "unknown decoding None; choose one of"),
        ({"decoding": Loss}, r"decoding is the class Loss; give an object of it, such as Loss\(\)"),
        ({"scaling": {"leaf_rows": 600}}, r"scaling must be a ScaleSettings\(\.\.\.\) or None, not a dict"),
        ({"search": {"folds": 10}}, r"search must be a SearchSettings\(\.\.\.\) or None, not a dict"),
        ({"decoding": Loss("cubic")}, "unknown loss 'cubic'; choose one of squared"),
        ({"decoding": Bayes("twice")}, "unknown update 'twice'"),
        ({"decoding": "votes", "coding": "one-vs-all"}, 'choose coding="one-vs-one"'),
        ({"decoding": "dag", "coding": "minimal"}, 'choose coding="one-vs-one"'),
        ({"decoding": "argmax", "coding": "one-vs-one"}, 'choose coding="one-vs-all"'),
        ({"kernel": "gauss"}, "unknown kernel 'gauss'; choose one of linear, poly, rbf"),
        ({"kernel": 3}, "unknown kernel 3"),
        ({"selection": "magic"}, "unknown selection 'magic'; choose"),
        ({"priors": "mine"}, "unknown priors 'mine'; choose"),
        ({"priors": [0.5, 0.5]}, "one probability for each of the 3 classes"),
        ({"priors": {"a": 0.5, "b": 0.5}}, r"priors must name the classes \[.*\], not \['a', 'b'\]"),
        ({"priors": [["a"]]}, "priors must be numbers"),
        ({"priors": [0.5, 0.5, 0.5]}, "positive and sum to one"),
        ({"priors": [0.5, 0.7, -0.2]}, "positive and sum to one"),
        ({"priors": [0.5, 0.5, np.nan]}, "positive and sum to one"),
    ],
)
def test_parameters_that_do_not_exist(parameters, words):
    refused(words, LSSVMClassifier(**parameters))


# Kernels ---------------------------------------------------------------------------------------------------


def not_positive(A, B):
    return -(A @ B.T)


def not_symmetric(A, B):
    return A @ B.T + 3.0 * A[:, :1]


def undefined(A, B):
    return np.full((len(A), len(B)), np.nan)


def too_small(A, B):
    return (A @ B.T)[:, :2]


given = pytest.mark.parametrize("parameters", [{}, {"C": 1.0}, {"shared_parameters": False}])


@given
def test_kernels_that_are_none(parameters):
    refused("not positive semi-definite", LSSVMClassifier(kernel=not_positive, **parameters))
    refused("not symmetric", LSSVMClassifier(kernel=not_symmetric, **parameters))
    refused("kernel function returned infinite or undefined", LSSVMClassifier(kernel=undefined, **parameters))
    refused(r"shape \(\d+, 2\) for .* it must return", LSSVMClassifier(kernel=too_small, **parameters))


@given
def test_given_matrices_that_are_no_kernel(parameters):
    model = LSSVMClassifier(kernel="precomputed", **parameters)
    refused(r"must be square, not \(30, 3\)", model)
    refused("not positive semi-definite.*use a positive definite kernel", model, X=-X @ X.T)
    refused("not symmetric", model, X=X @ X.T + X[:, :1])
    refused("(?i)contains nan", model, X=np.full((30, 30), np.nan))
    refused(r"not supported: give X\.toarray", model, X=sparse.csr_matrix(X @ X.T), error=TypeError)
    model.set_params(decoding="loss").fit(X @ X.T + 0.0, Y)
    with pytest.raises(ValueError, match="X has 29 features"):
        model.predict((X @ X.T)[:, :29])


def test_a_function_that_fails_on_new_rows_only():
    def kernel(A, B):
        return A @ B.T if len(A) == len(B) else undefined(A, B)

    model = LSSVMClassifier(kernel=kernel, coding="one-vs-all", decoding="loss").fit(X, Y)
    with pytest.raises(ValueError, match="kernel function returned infinite or undefined"):
        model.predict(X[:3])


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "exponential", "poly"])
def test_features_too_large_for_their_squares(kernel):
    if kernel == "laplacian":
        # Distances are sums here, not squares: nothing overflows.
        LSSVMClassifier(kernel=kernel).fit(1e200 * X, Y)
        return
    refused("infinite or undefined values; scale the features", LSSVMClassifier(kernel=kernel), X=1e200 * X)


def test_polynomials_that_overflow_or_are_undefined():
    fixed = {"C": 1.0, "gamma": 1.0, "selection": None, "kernel": "poly"}
    refused("infinite or undefined values; scale the features", LSSVMClassifier(**fixed), X=1e60 * X)
    refused("infinite or undefined values; use a whole", LSSVMClassifier(degree=2.5, **fixed), X=X - 1.0)
    refused("infinite or undefined values", LSSVMClassifier(coef0=np.nan, **fixed))


# Workers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classifier", [LSSVMClassifier, AutoKernelClassifier, SVMClassifier])
@pytest.mark.parametrize("n_jobs", ["2", 0, 1.5, True])
def test_a_number_of_workers_that_is_none(classifier, n_jobs):
    refused("n_jobs must be a whole number other than 0", classifier(n_jobs=n_jobs))


# Memory ----------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_with_the_number_and_the_remedy(monkeypatch):
    monkeypatch.setattr(_memory, "available", lambda: 1000.0)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    words = r'kernel matrix of 30 rows .* needs \d+\.\d GiB and 0\.0 GiB are free; .*coding="one-vs-one"'
    refused(words, LSSVMClassifier(coding="one-vs-all"), error=MemoryError)


def test_two_classes_are_not_told_to_use_another_coding(monkeypatch):
    monkeypatch.setattr(_memory, "available", lambda: 1000.0)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    with pytest.raises(MemoryError, match="or let the estimator divide them") as error:
        LSSVMClassifier(coding="one-vs-one").fit(X[Y < 2], Y[Y < 2])
    assert "coding" not in str(error.value)


def test_rows_that_do_not_fit_are_refused_before_the_search(monkeypatch):
    def search(*arguments, **options):
        raise AssertionError("searched")

    X, y = blobs(2600, 2)
    monkeypatch.setattr(_memory, "available", lambda: 1e8)
    monkeypatch.setattr(Trainer, "proposal", search)
    with pytest.raises(MemoryError, match="kernel matrix of 2600 rows"):
        LSSVMClassifier(scale="exact", kernel="rbf").fit(X, y)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space")
def test_limits_of_a_shell_count():
    limited = "ulimit -v 4000000; exec " + sys.executable
    told = subprocess.run(
        ["bash", "-c", limited + " -c 'from polymargin import _memory; print(_memory.available())'"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0.0 < float(told.stdout) < 4.09e9  # KiB, less what Python has taken


def test_the_plan_grows_with_the_rows(monkeypatch):
    wanted = []
    monkeypatch.setattr(_memory, "require", lambda n_bytes, *words: wanted.append(n_bytes))
    for coding in ("one-vs-all", "one-vs-one"):
        for decoding in ("bayes", "loss"):
            LSSVMClassifier(C=1.0, gamma=1.0, coding=coding, decoding=decoding).fit(X, Y)
    dense_bayes, dense_loss, pairs_bayes, pairs_loss = wanted
    assert dense_bayes > dense_loss >= 8 * 30**2
    assert pairs_loss < dense_loss
    assert pairs_bayes > pairs_loss


def test_available_memory_is_a_number():
    assert _memory.available() > 2**20
    assert _memory.block_rows(1e12) == 1
    assert _memory.block_rows(1.0) == _memory.BLOCK_BYTES


# After a refusal -------------------------------------------------------------------------------------------


def test_an_estimator_can_be_fitted_after_it_was_refused():
    model = LSSVMClassifier(C=-1.0)
    refused("C must be", model)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.predict(X)
    model.set_params(C=1.0, gamma=0.3).fit(X, Y)
    assert_array_equal(model.predict(X), LSSVMClassifier(C=1.0, gamma=0.3).fit(X, Y).predict(X))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"degree": -1}, "degree must be a number of at least 0, not -1"),
        ({"degree": "3"}, "degree must be a number"),
        ({"coef0": np.nan}, "coef0 must be a finite number, not nan"),
        ({"verbose": "a"}, "verbose must be True, False or a number"),
        ({"cv": 1}, "cv must be at least 2 folds"),
        ({"cv": "a"}, "cv must be a number of folds, a splitter"),
        ({"cv": 1000, "probability": True}, "cv=1000 folds need as many rows, and there are 30"),
        ({"C": np.inf}, "not inf: pass a large number such as 1e6"),
    ],
)
def test_parameters_that_SVC_refuses_although_they_have_no_effect(parameters, words):
    refused(words, SVMClassifier(**parameters))


def test_few_rows_have_fewer_folds():
    SVMClassifier().fit(X[:3], Y[:3])


@pytest.mark.parametrize("model", [LSSVMClassifier, AutoKernelClassifier])
def test_exact_machines_have_no_landmarks(model):
    refused('scale="exact" has no landmarks', model(scale="exact", n_landmarks=5))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"leaf_rows": "x"}, "leaf_rows must be at least 20, a number of rows; not 'x'"),
        ({"sample_rows": None}, "sample_rows must be at least 20, a number of rows"),
        ({"exact_operations": "many"}, "exact_operations must be a number of operations"),
        ({"overlap": "0.1"}, "overlap must lie between 0 and 0.25"),
        ({"memory": "1 GB"}, "memory must be a positive number of bytes"),
    ],
)
def test_scale_settings_that_are_no_numbers(given, words):
    with pytest.raises(ValueError, match=words):
        ScaleSettings(**given)


def test_the_plan_of_a_pool_is_that_of_its_first_machines():
    pool = AutoKernelClassifier(["rbf", "linear"]).fit(X, Y)
    assert pool.plan_ == pool.members_[0].plan_
    other = AutoKernelClassifier([GaussianNB()]).fit(X, Y)
    with pytest.raises(AttributeError, match="only LSSVMClassifier members have one"):
        _ = other.plan_
