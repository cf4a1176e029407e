"""What users of SVC find in SVMClassifier: its parameters, attributes and scores, compared with SVC itself."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from conftest import blobs
from polymargin import (
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)
from polymargin.kernels import Linear, Scaled
from polymargin.machines import _hinge

TIGHT = 1e-6
PAGE = Path(__file__).parent.parent / "docs" / "coming_from_svc.md"
X, Y = blobs(n=150, K=4, d=5, seed=3)
X_NEW = blobs(n=300, K=4, d=5, seed=4)[0]
TWO = np.where(Y < 2, "no", "yes")


def parameters_of(svc):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return svc.get_params()


# Parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [Y, TWO], ids=["four", "two"])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
def test_parameters_of_svc_make_the_same_machine(kernel, y):
    theirs = SVC(kernel=kernel, gamma=0.05, tol=TIGHT, class_weight="balanced")
    ours = SVMClassifier(**parameters_of(theirs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the sigmoid kernel
        ours.fit(X, y)
    theirs.fit(X, y)
    np.testing.assert_array_equal(ours.predict(X_NEW), theirs.predict(X_NEW))
    np.testing.assert_allclose(ours.decision_function(X_NEW), theirs.decision_function(X_NEW), atol=1e-3)
    np.testing.assert_array_equal(ours.class_weight_, theirs.class_weight_)
    assert (ours.fit_status_, ours.shape_fit_) == (theirs.fit_status_, theirs.shape_fit_)


@pytest.mark.parametrize("y", [Y, TWO], ids=["four", "two"])
def test_pairwise_decision_function_has_the_signs_of_svc(y):
    ours = SVMClassifier(tol=TIGHT, decision_function_shape="ovo").fit(X, y)
    theirs = SVC(tol=TIGHT, decision_function_shape="ovo").fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X_NEW), theirs.decision_function(X_NEW), atol=1e-4)
    learned = SVMClassifier(tol=TIGHT, decision_function_shape="ovo", probability=True).fit(X, y)
    np.testing.assert_array_equal(learned.decision_function(X_NEW), ours.decision_function(X_NEW))


@pytest.mark.parametrize("decoding", [None, "votes"])
def test_labels_are_those_of_the_largest_score_unless_ties_are_left(decoding):
    # Many ties: three classes that beat each other in a circle.
    X, y = load_iris(return_X_y=True)
    X, y = X[:, :2], np.random.default_rng(0).permutation(y)
    theirs = SVC(tol=TIGHT, gamma=5.0).fit(X, y)
    ours = SVMClassifier(tol=TIGHT, gamma=5.0, decoding=decoding).fit(X, y)
    grid = np.random.default_rng(1).uniform(X.min(axis=0), X.max(axis=0), (4000, 2))
    best = ours.classes_[ours.decision_function(grid).argmax(axis=1)]
    np.testing.assert_array_equal(ours.predict(grid), best)
    np.testing.assert_array_equal(ours.predict(grid), theirs.set_params(break_ties=True).predict(grid))
    ours.set_params(break_ties=False)
    np.testing.assert_array_equal(ours.predict(grid), theirs.set_params(break_ties=False).predict(grid))
    assert (ours.predict(grid) != best).any()


def test_the_cache_changes_nothing_but_time():
    one, other = SVMClassifier().fit(X, Y), SVMClassifier(cache_size=0.01, shrinking=False).fit(X, Y)
    np.testing.assert_array_equal(one.decision_function(X_NEW), other.decision_function(X_NEW))
    assert _hinge.SolverOptions(cache_size=0.01).budget == int(0.01 * 2**20)
    assert _hinge.SolverOptions().budget > 2**20


def test_the_sigmoid_kernel_warns_where_it_is_not_positive_definite():
    with pytest.warns(UserWarning, match=r'not positive definite on these rows.*kernel="rbf"'):
        SVMClassifier(kernel="sigmoid", gamma=1.0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SVMClassifier(kernel="sigmoid", gamma=1e-4).fit(X, Y)  # all but linear
    for other in (LSSVMClassifier, KernelLogisticClassifier, PosteriorSVMClassifier):
        with pytest.raises(ValueError, match=r'"sigmoid" is not positive definite.*choose "rbf"'):
            other(kernel="sigmoid").fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"probability": "yes"}, "probability must be True or False, not 'yes'"),
        (
            {"probability": True, "decoding": "votes"},
            "probability=True, but decoding='votes' gives no prob.*leave",
        ),
        ({"break_ties": None}, "break_ties must be True or False"),
        ({"shrinking": 3}, "shrinking must be True or False"),
        ({"cache_size": 0}, "cache_size must be a positive number, of megabytes"),
        ({"decision_function_shape": "all"}, "must be 'ovr' or 'ovo', not 'all'"),
        ({"decision_function_shape": "ovo", "coding": "one-vs-all"}, 'choose coding="one-vs-one"'),
    ],
)
def test_contradictions_and_unknown_values_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        SVMClassifier(**parameters).fit(X, Y)


# Probabilities -----------------------------------------------------------------------------------------------


def test_probability_is_the_calibrated_decoding():
    ours = SVMClassifier(probability=True).fit(X, Y)
    named = SVMClassifier(decoding="coupled-softmax").fit(X, Y)
    proba = ours.predict_proba(X_NEW)
    np.testing.assert_array_equal(proba, named.predict_proba(X_NEW))
    np.testing.assert_array_equal(ours.predict(X_NEW), ours.classes_[proba.argmax(axis=1)])
    given = SVMClassifier(probability=True, decoding="coupling").fit(X, Y)
    assert type(given.decoder_).__name__ == "Coupling"


@pytest.mark.parametrize(
    "model",
    [
        SVMClassifier(),
        SVMClassifier(decoding="hamming"),
        SVMClassifier(coding="ecoc", decoding="loss"),
        SVMClassifier(decoding="dag", probability=True),
        LSSVMClassifier(decoding="hamming"),
        PosteriorSVMClassifier(decoding="argmax"),
        PosteriorSVMClassifier(decoding="hamming", machine="one-vs-all"),
    ],
    ids=repr,
)
def test_advice_on_probabilities_works(model):
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(X)
    advice = str(caught.value).partition("; ")[2]
    asked = {"decoding": None} if "leave decoding out" in advice else {}
    asked |= {"probability": True} if "probability=True" in advice else {}
    named = re.search(r'set decoding="([a-z-]+)"', advice)
    for parameters in (asked, {"decoding": named[1]} if named else {}):
        if parameters:
            changed = model.set_params(**parameters).fit(X, Y)
            assert changed.predict_proba(X_NEW).shape == (300, 4)
    assert asked or named


def test_parameters_that_were_changed_after_fit_need_another_fit():
    model = SVMClassifier().fit(X, Y)
    model.set_params(probability=True)
    assert hasattr(model, "predict_proba")
    with pytest.raises(NotFittedError, match="fitted with probability=False: call fit again"):
        model.predict_proba(X)
    fitted = SVMClassifier(probability=True).fit(X, Y).set_params(probability=False)
    assert fitted.predict_proba(X).shape == (150, 4)


# Attributes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("y", [Y, TWO], ids=["four", "two"])
def test_weights_of_columns_are_those_of_svc(y, container):
    rows = container(np.where(np.abs(X) < 0.7, 0.0, X))
    ours = SVMClassifier(kernel="linear", tol=TIGHT).fit(rows, y)
    theirs = SVC(kernel="linear", tol=TIGHT).fit(rows, y)
    assert sparse.issparse(ours.coef_) == sparse.issparse(ours.dual_coef_) == sparse.issparse(rows)
    dense = [each.toarray() if sparse.issparse(each) else each for each in (ours.coef_, theirs.coef_)]
    np.testing.assert_allclose(dense[0], dense[1], atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)
    np.testing.assert_array_equal(ours.support_, np.sort(theirs.support_))
    with pytest.raises(ValueError, match="read-only"):
        ours.coef_[0, 0] = 1.0
    with pytest.raises(AttributeError):
        ours.coef_ = dense[0]


@pytest.mark.parametrize(
    "kernel", ["linear", Scaled(Linear(), [1.0, 2.0, 0.5, 0.0, 3.0])], ids=["plain", "scaled"]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda **options: SVMClassifier(coding="one-vs-all", **options),
        lambda **options: LSSVMClassifier(C=1.0, **options),
        PosteriorSVMClassifier,
        lambda **options: PosteriorSVMClassifier(machine="one-vs-all", **options),
    ],
    ids=["svm", "ls-svm", "single", "posterior"],
)
def test_margins_are_linear_in_the_columns(make, kernel):
    model = make(kernel=kernel).fit(X, Y)
    np.testing.assert_allclose(X_NEW @ model.coef_.T + model.intercept_, model.margins(X_NEW), atol=1e-9)


@pytest.mark.parametrize("estimator", [SVMClassifier, LSSVMClassifier])
def test_machines_that_are_not_linear_have_no_weights_of_columns(estimator):
    with pytest.raises(AttributeError, match=r"not fitted yet|has no attribute"):
        _ = estimator(kernel="linear").coef_
    with pytest.raises(AttributeError, match=r'only available with kernel="linear": .* the rbf kernel'):
        _ = estimator(C=1.0, kernel="rbf").fit(X, Y).coef_
    with pytest.raises(AttributeError, match="linear in the ranks only"):
        _ = estimator(C=1.0, kernel="linear", columns="ranks").fit(X, Y).coef_


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
def test_few_sparse_rows_give_the_machines_of_dense_ones(kernel):
    rows = np.where(np.abs(X) < 0.7, 0.0, X)
    dense = SVMClassifier(kernel=kernel, probability=True).fit(rows, Y)
    thin = SVMClassifier(kernel=kernel, probability=True).fit(sparse.csc_array(rows), Y)
    np.testing.assert_array_equal(thin.dual_coef_.toarray(), dense.dual_coef_)
    np.testing.assert_allclose(
        thin.predict_proba(sparse.csr_array(X_NEW)), dense.predict_proba(X_NEW), atol=1e-9
    )


# Class weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", ["balanced", {1: 50.0}], ids=str)
def test_recall_of_a_rare_class_moves_as_that_of_svc(weight):
    """One class of three in a hundred rows: votes move as SVC's, and so do labels of learned probabilities."""
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.05).astype(int)
    rows = rng.normal(size=(3000, 2)) + 1.7 * y[:, None] * [1.0, 0.0]
    train, test = slice(600), slice(600, None)

    def recalls(model):
        predicted = model.fit(rows[train], y[train]).predict(rows[test])
        return [(predicted[y[test] == k] == k).mean() for k in (0, 1)]

    theirs = recalls(SVC(class_weight=weight))
    assert recalls(SVMClassifier(class_weight=weight)) == pytest.approx(theirs, abs=0.01)
    before, after = (
        recalls(SVMClassifier(probability=True)),
        recalls(SVMClassifier(probability=True, class_weight=weight)),
    )
    assert before[1] + 0.3 < after[1]
    assert after[1] > theirs[1] - 0.1


def test_weights_of_classes_reach_probabilities_as_priors():
    """Weights shift the probabilities of classes by their factor; priors that are given replace these."""
    model = SVMClassifier(probability=True, class_weight={0: 4.0}).fit(X, Y)
    expected = np.bincount(Y).astype(float) * [4.0, 1.0, 1.0, 1.0]
    shift = np.log(expected / expected.sum() / (np.bincount(Y) / Y.size))
    np.testing.assert_allclose(model.decoder_.prior_shift_, shift, atol=1e-12)
    plain = SVMClassifier(probability=True).fit(X, Y)
    assert not plain.decoder_.prior_shift_.any()
    uniform = SVMClassifier(probability=True, class_weight={0: 4.0}, priors="uniform").fit(X, Y)
    np.testing.assert_allclose(
        uniform.decoder_.prior_shift_, np.log(0.25 / (np.bincount(Y) / Y.size)), atol=1e-12
    )


# The page ----------------------------------------------------------------------------------------------------


def test_the_page_runs_and_names_every_parameter():
    text = PAGE.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert code.count("assert") >= 4
    exec(compile(code, str(PAGE), "exec"), {})
    named = set(re.findall(r"`([a-z_A-Z0-9]+)[`=]", text))
    assert set(parameters_of(SVC())) <= named
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        fitted = SVC().fit(StandardScaler().fit_transform(X), Y)
        attributes = {name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")}
    assert attributes - named <= {"feature_names_in_"}
