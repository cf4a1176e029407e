"""SVMClassifier and cross-validation against scikit-learn, which LIBSVM is behind, and against themselves."""

import logging
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import Codebook, Loss, PosteriorSVMClassifier, SVMClassifier, _memory
from polymargin.codebooks import CODINGS, join, one_vs_all, one_vs_one
from polymargin.decoders import DECODERS, resolve_decoder
from polymargin.estimators import _svm_training
from polymargin.folds import training_folds
from polymargin.kernels import resolve_kernel
from polymargin.machines import TrainingRows, _hinge, cross_validate_svm, fit_svm_bank
from polymargin.machines._hinge import SolverOptions
from polymargin.solvers.status import Status, default_step_limit

TIGHT = 1e-6


@pytest.fixture(scope="module")
def problem():
    X, y = blobs(n=150, K=4, d=5, seed=3)
    X_new, _ = blobs(n=80, K=4, d=5, seed=4)
    return X, y, X_new


@parametrize_with_checks([SVMClassifier(), SVMClassifier(coding="one-vs-all", decoding="loss")])
def test_scikit_learn_manners(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


# --- agreement with SVC ------------------------------------------------------------------------------------

KERNELS = [
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": 0.3},
    {"kernel": "rbf"},
    {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 0.2},
    {"kernel": "poly", "gamma": "auto"},
    {"kernel": lambda X, Z: laplacian_kernel(X, Z, gamma=0.2)},
]


@pytest.mark.parametrize("parameters", KERNELS)
def test_same_machines_as_svc(parameters, problem):
    X, y, X_new = problem
    ours = SVMClassifier(2.0, tol=TIGHT, **parameters).fit(X, y)
    theirs = SVC(C=2.0, tol=TIGHT, decision_function_shape="ovo", **parameters).fit(X, y)
    # LIBSVM's first class of a pair is the positive one.
    np.testing.assert_allclose(ours.margins(X_new), -theirs.decision_function(X_new), atol=1e-3)
    assert set(ours.support_) == set(theirs.support_)
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    assert all(status is Status.CONVERGED for status in ours.bank_.status)
    assert (ours.bank_.kkt_violation < TIGHT).all()
    assert (ours.bank_.duality_gap >= -1e-9).all()
    assert (ours.n_iter_ > 0).all()


def same_labels_but_for_ties(ours, theirs, X):
    votes = -np.sign(theirs.decision_function(X)) @ ours.codebook_.matrix.T
    clear = np.sort(votes, axis=1)[:, -1] > np.sort(votes, axis=1)[:, -2]
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])
    # A tie goes to one of the winners.
    chosen = np.searchsorted(ours.classes_, ours.predict(X))
    np.testing.assert_array_equal(votes[np.arange(len(X)), chosen], votes.max(axis=1))


@pytest.mark.slow_without_jit
def test_same_labels_as_svc_except_ties():
    X, y = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in range(10)])[y]
    ours = SVMClassifier(tol=1e-4, n_jobs=2).fit(X[::2], names[::2])
    theirs = SVC(tol=1e-4, decision_function_shape="ovo").fit(X[::2], names[::2])
    same_labels_but_for_ties(ours, theirs, X[1::2])


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 0.5, 3: 4.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_as_in_svc(class_weight, weighted, problem):
    X, y, X_new = problem
    # The classes differ in their mean weight: "balanced" counts rows, as in SVC.
    weights = np.random.default_rng(0).uniform(0.2, 3.0, y.size) * (1 + y) if weighted else None
    ours = SVMClassifier(gamma=0.2, class_weight=class_weight, tol=TIGHT).fit(X, y, weights)
    theirs = SVC(gamma=0.2, class_weight=class_weight, tol=TIGHT, decision_function_shape="ovo")
    theirs.fit(X, y, weights)
    np.testing.assert_allclose(ours.margins(X_new), -theirs.decision_function(X_new), atol=1e-3)


def test_two_classes_as_in_svc(problem):
    X, y, X_new = problem
    labels = np.where(y < 2, "no", "yes")
    ours, theirs = SVMClassifier(tol=TIGHT).fit(X, labels), SVC(tol=TIGHT).fit(X, labels)
    np.testing.assert_allclose(ours.decision_function(X_new), theirs.decision_function(X_new), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X_new), theirs.predict(X_new))
    np.testing.assert_array_equal(ours.support_, np.sort(theirs.support_))
    np.testing.assert_allclose(ours.support_vectors_, X[ours.support_])
    coefficients = theirs.dual_coef_.ravel()[np.argsort(theirs.support_)]
    np.testing.assert_allclose(ours.dual_coef_, coefficients[np.newaxis], atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


def test_precomputed(problem):
    X, y, X_new = problem
    plain = SVMClassifier(gamma=0.2, tol=TIGHT).fit(X, y)
    given = SVMClassifier(kernel="precomputed", tol=TIGHT).fit(rbf_kernel(X, gamma=0.2), y)
    K_new = rbf_kernel(X_new, X, gamma=0.2)
    np.testing.assert_allclose(given.margins(K_new), plain.margins(X_new), atol=1e-4)
    # Rows without weight keep their columns.
    weights = (np.arange(y.size) % 5 > 0).astype(float)
    given.fit(rbf_kernel(X, gamma=0.2), y, weights)
    plain.fit(X, y, weights)
    np.testing.assert_allclose(given.margins(K_new), plain.margins(X_new), atol=1e-4)
    np.testing.assert_array_equal(given.support_, plain.support_)
    assert (weights[given.support_] > 0).all()


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "exponential", "poly"])
def test_sparse_input(kernel, problem):
    X, y, X_new = problem
    X, X_new = np.where(np.abs(X) < 0.7, 0.0, X), np.where(np.abs(X_new) < 0.7, 0.0, X_new)
    dense = SVMClassifier(kernel=kernel, tol=TIGHT).fit(X, y)
    thin = SVMClassifier(kernel=kernel, tol=TIGHT).fit(sparse.csr_matrix(X), y)
    expected = dense.margins(X_new)
    np.testing.assert_allclose(thin.margins(sparse.csr_matrix(X_new)), expected, atol=1e-4)
    np.testing.assert_allclose(thin.margins(X_new), expected, atol=1e-4)
    np.testing.assert_allclose(dense.margins(sparse.csr_matrix(X_new)), expected, atol=1e-9)
    assert sparse.issparse(thin.support_vectors_)


def test_degree_that_is_not_whole():
    X, y = blobs(n=60, K=3, d=4)
    X = np.abs(X)
    ours = SVMClassifier(kernel="poly", degree=1.5, coef0=1.0, gamma=0.2, tol=TIGHT).fit(X, y)
    theirs = SVC(kernel="precomputed", tol=TIGHT, decision_function_shape="ovo")
    theirs.fit((0.2 * X @ X.T + 1.0) ** 1.5, y)
    np.testing.assert_allclose(
        ours.margins(X), -theirs.decision_function((0.2 * X @ X.T + 1.0) ** 1.5), atol=1e-3
    )


# --- codings and decoders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", [*CODINGS, "array"])
@pytest.mark.parametrize("decoding", DECODERS)
def test_every_coding_with_every_decoder(coding, decoding):
    X, y = load_iris(return_X_y=True)
    matrix = [[1, 1, 0], [-1, 1, 1], [0, -1, -1]]
    model = SVMClassifier(coding=matrix if coding == "array" else coding, decoding=decoding, random_state=0)
    decoder = resolve_decoder(decoding)
    if decoder.needs_variances:
        with pytest.raises(ValueError, match="variances, which support vector machines do not have"):
            model.fit(X, y)
        return
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "needs one machine for every" in str(error)  # noqa: PT017
        return
    assert model.score(X, y) > 0.85
    if decoder.probabilistic:
        proba = model.predict_proba(X)
        np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    else:
        assert not hasattr(model, "predict_proba")
    assert model.margins(X).shape == (150, model.codebook_.n_columns)


def test_columns_of_a_joined_codebook_are_the_columns_of_its_parts(problem):
    X, y, X_new = problem
    rows = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    books = [one_vs_one(4), one_vs_all(4)]
    joined, parts = join(books)
    together = fit_svm_bank(rows, joined, C=3.0, gamma=0.1).outputs(X_new)
    for book, part in zip(books, parts, strict=True):
        alone = fit_svm_bank(rows, book, C=3.0, gamma=0.1).outputs(X_new)
        np.testing.assert_allclose(together.part(part).margins, alone.margins, atol=5e-3)


def test_machines_with_parameters_of_their_own(problem):
    X, y, X_new = problem
    rows = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    C, gamma = np.array([1.0, 10.0, 1.0, 5.0]), np.array([0.1, 0.1, 0.5, 0.02])
    options = SolverOptions(tol=TIGHT)
    bank = fit_svm_bank(rows, one_vs_all(4), C=C, gamma=gamma, options=options)
    for column in range(4):
        theirs = SVC(C=C[column], gamma=gamma[column], tol=TIGHT).fit(X, y == column)
        np.testing.assert_allclose(bank.margins(X_new)[:, column], theirs.decision_function(X_new), atol=1e-3)
    K = [rbf_kernel(X[bank.support], gamma=value) for value in gamma]
    norms = [np.sqrt(beta @ K[column] @ beta) for column, beta in enumerate(bank.dual_coef)]
    np.testing.assert_allclose(bank.norms, norms, rtol=1e-4)


# --- honest outputs ----------------------------------------------------------------------------------------


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("book", [one_vs_one(4), one_vs_all(4)], ids=["one-vs-one", "one-vs-all"])
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_honest_outputs_are_out_of_fold(book, kernel, problem):
    X, y, _ = problem
    given = rbf_kernel(X, gamma=0.2) if kernel == "precomputed" else X
    rows = TrainingRows(resolve_kernel(kernel), given, y, np.ones(y.size))
    bank = fit_svm_bank(rows, book, C=2.0, gamma=0.2, options=SolverOptions(tol=TIGHT), random_state=1)
    outputs = bank.training_outputs(honest=True)
    assert outputs.provenance == "out_of_fold"
    np.testing.assert_array_equal(outputs.margins, bank.training_outputs(honest=True).margins)
    targets = book.targets(y)
    for fold in training_folds(rows, 5, 1):
        kept = np.setdiff1d(np.arange(y.size), fold)
        for column in range(book.n_columns):
            train, test = kept[targets[kept, column] != 0], fold[targets[fold, column] != 0]
            theirs = SVC(C=2.0, gamma=0.2, tol=TIGHT).fit(X[train], targets[train, column])
            expected = theirs.decision_function(X[test])
            np.testing.assert_allclose(outputs.margins[test, column], expected, atol=1e-3)
    # A don't care is new to the machine that was trained on everything.
    inside = bank.training_outputs(honest=False)
    assert inside.provenance == "in_sample"
    np.testing.assert_array_equal(outputs.margins[targets == 0], inside.margins[targets == 0])
    with pytest.raises(ValueError, match="no longer has its training rows"):
        bank.without_training().training_outputs(honest=False)


def test_class_with_one_row_can_be_held_out():
    X, y = blobs(n=40, K=3)
    y = np.where(np.arange(y.size) == 7, 3, y)
    rows = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    margins = fit_svm_bank(rows, one_vs_one(4), C=1.0, gamma=0.2).training_outputs(honest=True).margins
    # With only its opponents to learn from, each machine says what it was told.
    targets = one_vs_one(4).targets(y)[7]
    np.testing.assert_array_equal(margins[7][targets != 0], -targets[targets != 0])


def test_rows_count_by_weight_whatever_their_order():
    X, y = blobs(n=50, K=3, d=2)
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, y.size) + (np.arange(y.size) < 3)
    repeated = rng.permutation(np.repeat(np.arange(y.size), weights))
    weighted = SVMClassifier().fit(X, y, weights)
    copied = SVMClassifier().fit(X[repeated], y[repeated])
    np.testing.assert_array_equal(weighted.margins(X), copied.margins(X))
    thin = SVMClassifier().fit(sparse.csr_matrix(X), y, weights)
    again = SVMClassifier().fit(sparse.csr_matrix(X[repeated]), y[repeated])
    np.testing.assert_array_equal(thin.margins(X), again.margins(X))


def test_distinct_rows_take_zero_for_minus_zero():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 1.0]])
    for rows in (X, sparse.csr_matrix(X)):
        data = TrainingRows(resolve_kernel("rbf"), rows, np.array([0, 0, 1]), np.ones(3))
        assert data.distinct().first.size == 2


# --- manners -----------------------------------------------------------------------------------------------


def test_too_few_steps_warn(problem):
    X, y, _ = problem
    with pytest.warns(ConvergenceWarning, match=r"6 of 6 machines stopped by max_iter"):
        model = SVMClassifier(100.0, max_iter=3).fit(X, y)
    assert (model.n_iter_ == 3).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C must be a positive number"),
        ({"C": -1.0}, "C must be a positive number"),
        ({"C": "big"}, "C must be a positive number"),
        ({"gamma": -0.1}, "gamma must be a positive number"),
        ({"gamma": "wide"}, "gamma must be a positive number"),
        ({"kernel": "gauss"}, "unknown kernel 'gauss'"),
        ({"coding": "one-vs-none"}, "unknown coding"),
        ({"coding": [[1, -1], [-1, 1]]}, "2 rows .* 4 classes"),
        ({"decoding": "tarot"}, "unknown decoding"),
        ({"decoding": "bayes"}, "variances"),
        ({"decoding": "votes", "coding": "one-vs-all"}, "one-vs-one"),
        ({"selection": "magic"}, "unknown selection"),
        ({"C": None, "selection": None}, "selection=None leaves nothing"),
        ({"gamma": None, "selection": None}, "selection=None leaves nothing"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"max_iter": -2}, "max_iter must be a number of steps"),
        ({"max_iter": 0.5}, "max_iter must be a number of steps"),
        ({"class_weight": {0: 0.0}}, "class_weight must be positive"),
        ({"class_weight": "heavy"}, "class_weight"),
        ({"C": None, "cv": 1}, "at least 2 folds"),
        ({"kernel": "poly", "degree": 400, "gamma": 10.0}, "scale the features"),
        ({"kernel": lambda X, Z: X[:, :1] * Z[:, 0] + Z[:, 1]}, "not symmetric"),
    ],
)
def test_bad_parameters_say_what_to_do(parameters, message, problem):
    X, y, _ = problem
    with pytest.raises(ValueError, match=message):
        SVMClassifier(**parameters).fit(X, y)


def test_bad_input_says_what_is_wrong(problem):
    X, y, X_new = problem
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        SVMClassifier().fit(broken, y)
    with pytest.raises(ValueError, match="only one class"):
        SVMClassifier().fit(X, np.zeros(y.size))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SVMClassifier().fit(X, y[:-1])
    with pytest.raises(ValueError, match="square"):
        SVMClassifier(kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match="not symmetric"):
        SVMClassifier(kernel="precomputed").fit(np.triu(np.ones((y.size, y.size))), y)
    with pytest.raises(ValueError, match="features"):
        SVMClassifier().fit(X, y).predict(X_new[:, :3])
    with pytest.raises(ValueError, match="two classes or more"):
        cross_validate_svm(X, np.zeros(y.size))
    with pytest.raises(ValueError, match="square"):
        cross_validate_svm(X, y, kernel="precomputed")
    with pytest.raises(ValueError, match="must be positive"):
        cross_validate_svm(X, y, C=[-1.0, 1.0])
    with pytest.raises(ValueError, match="no variances"):
        SVMClassifier().fit(X, y).bank_.outputs(X, variances=True)


def test_what_does_not_fit_into_memory_is_refused_or_computed_row_by_row(problem, monkeypatch):
    X, y, X_new = problem
    plain = SVMClassifier(tol=TIGHT).fit(X, y).margins(X_new)
    monkeypatch.setattr(_memory, "available", lambda: 100_000.0)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    # Of these rows the kernel matrix would be computed in any case, and sparse ones would be made dense.
    monkeypatch.setattr(_hinge, "_FEW_ROWS", 0)
    monkeypatch.setattr(_svm_training, "_FEW_VALUES", 0)
    # Features: rows of the kernel matrix are computed when they are needed.
    np.testing.assert_allclose(SVMClassifier(tol=TIGHT).fit(X, y).margins(X_new), plain, atol=1e-4)
    with pytest.raises(MemoryError, match=r"kernel matrix of 150 rows needs .* fit fewer rows"):
        SVMClassifier().fit(sparse.csr_matrix(X), y)
    with pytest.raises(MemoryError, match="give C and gamma"):
        SVMClassifier(C=None).fit(X, y)


def test_pickle_keeps_support_vectors_only(problem):
    X, y, X_new = problem
    model = SVMClassifier().fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X_new), model.predict(X_new))
    assert model.bank_.vectors.shape[0] == model.support_.size < y.size


def test_decoders_and_codebooks_as_objects(problem):
    X, y, _ = problem
    book = Codebook(one_vs_all(4).matrix)
    model = SVMClassifier(coding=book, decoding=Loss("hinge")).fit(X, y)
    assert model.codebook_ is book
    by_name = SVMClassifier(coding=book, decoding="loss").fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), by_name.decision_function(X))
    assert model.decision_function(X).shape == (y.size, 4)


def test_compilation_is_announced(caplog, monkeypatch, tmp_path):
    class Cold:
        signatures = ()

        class stats:
            cache_path = str(tmp_path)

    monkeypatch.setattr(_hinge._smo_kernels, "descend", Cold)
    with caplog.at_level(logging.INFO, logger="polymargin"):
        _hinge._announce_compilation()
        (tmp_path / "_smo_kernels.descend-101.py311.nbi").touch()
        _hinge._announce_compilation()
    assert [record.getMessage()[:9] for record in caplog.records] == ["compiling"]


def test_least_squares_never_load_numba():
    code = (
        "import sys, polymargin as p; from sklearn.datasets import load_iris; p.SVMClassifier(); "
        "p.LSSVMClassifier(1.0, gamma=1.0).fit(*load_iris(return_X_y=True)); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_kernel_that_is_not_positive_definite_is_refused():
    with pytest.raises(ValueError, match=r"not positive semi-definite.*use a positive definite kernel"):
        SVMClassifier(kernel=lambda A, B: -(A @ B.T)).fit(*load_iris(return_X_y=True))


# --- extreme scales ----------------------------------------------------------------------------------------


OVERLAPPING = blobs(n=30, K=2, d=2, seed=0, shift=0.2)


@pytest.mark.slow_without_jit
def test_a_hopeless_tolerance_ends_with_a_status_and_a_warning():
    """With a huge C on classes that overlap, rounding is far above the tolerance."""
    X, y = OVERLAPPING
    model = SVMClassifier(1e15, kernel="linear")
    with pytest.warns(ConvergenceWarning, match="1 of 1 machines stopped by the default limit of steps"):
        model.fit(X, y)
    assert model.bank_.status == [Status.STEP_LIMIT]
    assert model.n_iter_[0] == 10_000_000 < default_step_limit(30)
    assert np.isfinite(model.decision_function(X)).all()
    with pytest.warns(ConvergenceWarning, match="stopped by max_iter"):
        model.set_params(max_iter=50).fit(X, y)


@pytest.mark.slow_without_jit
def test_the_default_limit_leaves_room_for_slow_problems():
    """A linear kernel and a large C on classes that overlap take hundreds of thousands of steps per row."""
    X, y = blobs(n=12, K=2, d=2, seed=0, shift=0.2)
    model = SVMClassifier(1e6, kernel="linear").fit(X, y)
    assert model.bank_.status == [Status.CONVERGED]
    assert model.n_iter_[0] > 1_000_000


@pytest.mark.parametrize(
    ("C", "scale", "message"),
    [
        (1e100, 1.0, r"C times the largest weight is .*e\+100, .*; lower C"),
        (1.0, 1e150, "the largest kernel value is .*e\\+300, .*; scale the features"),
        (1.0, 1e-150, "the largest kernel value is .*e-300, .*; scale the features"),
        (1e20, 1e10, "C times the largest kernel value is .*scale the features"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        SVMClassifier,
        PosteriorSVMClassifier,
        lambda C, **parameters: PosteriorSVMClassifier(C, machine="one-vs-all", **parameters),
    ],
    ids=["svm", "single", "one-vs-all"],
)
def test_scales_beyond_float64_are_refused(make, C, scale, message):
    X, y = OVERLAPPING
    with pytest.raises(ValueError, match=message):
        make(C, kernel="linear").fit(X * scale, y)


@pytest.mark.parametrize("scale", [1e-150, 1e-50, 1e50, 1e150])
def test_kernels_with_a_unit_of_their_own_take_any_scale(scale):
    X, y = OVERLAPPING
    for model in (SVMClassifier(), PosteriorSVMClassifier(), PosteriorSVMClassifier(machine="one-vs-all")):
        expected = model.fit(X, y).decision_function(X)
        np.testing.assert_allclose(model.fit(X * scale, y).decision_function(X * scale), expected, atol=0.05)


@pytest.mark.parametrize("scale", [1e-10, 1e10, 1e50])
def test_only_the_product_of_C_and_the_kernel_matters(scale):
    X, y = OVERLAPPING
    usual = SVMClassifier(10.0, kernel="linear", tol=TIGHT).fit(X, y)
    other = SVMClassifier(10.0 / scale**2, kernel="linear", tol=TIGHT).fit(X * scale, y)
    assert other.bank_.status == [Status.CONVERGED]
    np.testing.assert_allclose(other.decision_function(X * scale), usual.decision_function(X), atol=1e-3)
