"""What rounding leaves of the margins, and the warning where that is little."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import LinAlgWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import naive
from conftest import blobs
from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.kernels import Blend, Polynomial, resolve_kernel
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.solvers.centring import centre


def nearly_equal_rows(n=80, seed=0):
    """Rows in pairs that are nearly equal, with labels by chance."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n // 2, 3))
    return np.vstack([rows, rows + 1e-7 * rng.normal(size=rows.shape)]), rng.integers(0, 2, n)


def fitted(kernel, X, y, C, gamma, **more):
    kernel = resolve_kernel(kernel, 2, 1.0) if isinstance(kernel, str) else kernel
    data = TrainingRows(kernel.fitted(X, np.ones(y.size)), X, y, np.ones(y.size))
    return fit_lssvm_bank(data, one_vs_one(int(y.max()) + 1), C=C, gamma=gamma, **more)


def expected_error(function, *args, **more):
    """The relative error that is expected of a bank."""
    return function(*args, **more).rounding_error


def long_margins(kind, X, y, C, gamma):
    """The machine's margins for its own rows, by elimination in extended precision."""
    X, n = X.astype(np.longdouble), y.size
    if kind == "rbf":
        K = np.exp(-np.longdouble(gamma) * np.square(X[:, np.newaxis] - X).sum(axis=2))
    else:
        K = X @ X.T
    M = np.zeros((n + 1, n + 2), dtype=np.longdouble)
    M[:n, :n] = K + np.eye(n) / np.longdouble(C)
    M[:n, n] = M[n, :n] = 1.0
    M[:n, -1] = np.where(y == 0, -1.0, 1.0)
    for i in range(n + 1):
        pivot = i + np.argmax(np.abs(M[i:, i]))
        M[[i, pivot]] = M[[pivot, i]]
        M[i] /= M[i, i]
        others = np.arange(n + 1) != i
        M[others] -= M[others, i : i + 1] * M[i]
    return (K @ M[:n, -1] + M[n, -1]).astype(np.float64)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision")
@pytest.mark.parametrize(
    ("kind", "shift", "C", "gamma", "keep_factors"),
    [
        ("rbf", 0.0, 1e11, 0.1, False),
        ("rbf", 0.0, 1e12, 1.0, False),
        ("linear", 0.0, 1e11, 1.0, False),  # by features
        ("linear", 0.0, 1e11, 1.0, True),
        ("linear", 1e6, 0.1, 1.0, True),
    ],
)
def test_the_estimate_is_of_the_size_of_the_error(kind, shift, C, gamma, keep_factors):
    X, y = nearly_equal_rows()
    X = X + shift
    true = long_margins(kind, X, y, C, gamma)
    options = {"keep_factors": keep_factors}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)
        bank = fitted(kind, X, y, C, gamma, **options)
    sign = bank.codebook.matrix[1, 0]
    error = np.abs(sign * bank.training_margins()[:, 0] - true).max() / np.sqrt(np.mean(true**2))
    estimate = expected_error(fitted, kind, X, y, C, gamma, **options)
    assert error / 3 < estimate < 30 * error


def test_a_machine_at_a_huge_C_warns_once_and_says_what_to_do():
    X, y = nearly_equal_rows(200)
    with pytest.warns(LinAlgWarning) as caught:
        LSSVMClassifier(C=1e10, kernel="rbf", gamma=0.1).fit(X, y)
    assert len(caught) == 1
    assert re.search(r"leave only 3 correct digits.*a smaller C.*StandardScaler", str(caught[0].message))
    assert caught[0].filename == __file__


def test_the_warning_names_the_line_that_called_a_pipeline():
    X, y = nearly_equal_rows(200)
    model = LSSVMClassifier(C=1e10, kernel="rbf", gamma=0.1)
    for search in (
        make_pipeline("passthrough", model),
        GridSearchCV(model, {"C": [1e14]}, cv=2, refit=False),
    ):
        with pytest.warns(LinAlgWarning) as caught:
            search.fit(X, y)
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_pool_warns_once(n_jobs):
    X, y = nearly_equal_rows(200)
    members = [LSSVMClassifier(C=C, kernel="rbf", gamma=0.1) for C in (1e10, 1e12)]
    with pytest.warns(LinAlgWarning) as caught:
        AutoKernelClassifier(members, n_jobs=n_jobs).fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "adaptive"])
def test_one_warning_whatever_was_tried(coding):
    """Machines that are only compared with others, or that a codebook grows by, are not warned of."""
    X, _ = nearly_equal_rows(90)
    y = np.random.default_rng(1).integers(0, 3, 90)
    with pytest.warns(LinAlgWarning) as caught:
        LSSVMClassifier(C=1e12, kernel="poly", gamma="scale", coding=coding).fit(X, y)
    assert len(caught) == 1


def test_a_given_matrix_cannot_be_standardised():
    X, y = nearly_equal_rows()
    K = naive.kernel_matrix("rbf", X, X, gamma=0.1)
    with pytest.warns(LinAlgWarning) as caught:
        LSSVMClassifier(C=1e12, kernel="precomputed").fit(K, y)
    assert "StandardScaler" not in str(caught[0].message)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "laplacian", "exponential", "blend"])
@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_ordinary_machines_do_not_warn(kernel, as_given):
    X, y = blobs(n=90, K=3, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        for more in ({}, {"C": 1.0}, {"C": 1e5}, {"selection": "evidence", "decoding": "bayes"}):
            LSSVMClassifier(kernel=kernel, **more).fit(as_given(X), y)


def test_a_huge_C_is_no_harm_where_the_kernel_matrix_is_well_conditioned():
    X, y = blobs(n=90, K=3, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        LSSVMClassifier(C=1e14, kernel="laplacian", gamma=1.0).fit(X, y)
        LSSVMClassifier(C=1e14, kernel="rbf", gamma=20.0).fit(X, y)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "exponential", "blend", Polynomial(2, centred=True)])
def test_columns_far_from_zero_are_no_harm_to_kernels_that_centre(kernel):
    X, y = blobs(n=60, K=2, seed=4)
    X = np.round(X * 2**20) / 2**20  # so that the shift rounds nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        here = fitted(kernel, X, y, 10.0, 0.2)
        there = fitted(kernel, X + 2.0**20, y, 10.0, 0.2)
    assert_allclose(there.loo_margins, here.loo_margins, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", ["rbf", Blend(), Polynomial(2, centred=True)])
def test_sparse_rows_far_from_zero_lose_digits(kernel):
    """Sparse rows are not centred."""
    X, y = blobs(n=60, K=2, seed=4)
    X = np.round(X * 2**20) / 2**20
    dense = fitted(kernel, X + 2.0**20, y, 10.0, 0.2)
    spoilt = fitted(kernel, sparse.csr_array(X + 2.0**20), y, 10.0, 0.2)
    assert spoilt.rounding_error > 1e-4 > dense.rounding_error
    assert np.abs(spoilt.loo_margins - dense.loo_margins).max() > 1e-6


def test_machines_without_anything_to_say_lose_nothing():
    """Every row is there with both labels: the margins are zero, but for rounding."""
    rows = np.random.default_rng(0).normal(size=(30, 2))
    X, y = np.vstack([rows, rows]), np.repeat([0, 1], 30)
    for kernel in ("rbf", "linear"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", LinAlgWarning)
            bank = fitted(kernel, X, y, 1.0, 0.5)
        assert_allclose(bank.training_margins(), 0.0, atol=1e-12)


@pytest.mark.parametrize("weights", [np.ones(30), np.random.default_rng(1).uniform(0.2, 3.0, 30)])
def test_the_traces(weights):
    X = np.random.default_rng(0).normal(size=(30, 2)) + 3.0
    K = X @ X.T + np.exp(-np.abs(X[:, :1] - X[:, 0]))
    centring, A = centre(K.copy(), weights)
    trace = centring.centred_trace + centring.total * abs(centring.grand_mean)
    assert_allclose(trace, weights @ np.diagonal(K))
    assert_allclose(centring.centred_trace, np.trace(A) - centring.bias_eigenvalue)


def test_of_groups_of_rows_the_worst_is_told():
    """Two classes are nearly equal rows, the third is not."""
    X, y = nearly_equal_rows()
    far = np.random.default_rng(2).normal(size=(20, 3)) + 20.0
    X, y = np.vstack([X, far]), np.append(y, np.full(20, 2))
    assert expected_error(fitted, "rbf", X, y, 1e11, 0.1) > 3e-4
    data = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    Cs = np.array([1e11, 1.0, 1.0])
    assert expected_error(fit_lssvm_bank, data, one_vs_all(3), C=Cs, gamma=0.1) > 3e-4
