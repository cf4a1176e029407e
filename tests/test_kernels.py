"""Kernels against the entry-by-entry oracle, and their numerics: symmetry, digits, sparse input, memory."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

import naive
from polymargin import (
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    Softmax,
    SVMClassifier,
    _memory,
)
from polymargin.kernels import (
    RBF,
    Blend,
    Exponential,
    FunctionKernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    resolve_kernel,
)
from polymargin.kernels._base import weighted_moments
from polymargin.solvers.smo_gram import LazyGram

KERNELS = {
    "linear": (Linear(), {"kind": "linear"}, 1.0),
    "poly": (Polynomial(3, 1.0), {"kind": "poly", "gamma": 0.5, "degree": 3, "coef0": 1.0}, 0.5),
    "poly-5": (Polynomial(5, 0.3), {"kind": "poly", "gamma": 0.2, "degree": 5, "coef0": 0.3}, 0.2),
    "rbf": (RBF(), {"kind": "rbf", "gamma": 0.4}, 0.4),
    "laplacian": (Laplacian(), {"kind": "laplacian", "gamma": 0.3}, 0.3),
    "exponential": (Exponential(), {"kind": "exponential", "gamma": 0.3}, 0.3),
    "blend": (Blend(0.4, ratio=1.7), {"kind": "blend", "gamma": 0.3, "share": 0.4, "ratio": 1.7}, 0.3),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def rows(n, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 0.5


@every_kernel
def test_equals_the_oracle(name):
    kernel, oracle, gamma = KERNELS[name]
    X, Z = rows(13), rows(7, seed=1)
    assert_allclose(kernel.gram(X, Z, gamma), naive.kernel_matrix(X=X, Z=Z, **oracle), rtol=1e-12)
    K = naive.kernel_matrix(X=X, Z=X, **oracle)
    assert_allclose(kernel.gram(X, gamma=gamma), K, rtol=1e-12)
    assert_allclose(kernel.diagonal(X, gamma), np.diag(K), rtol=1e-12)
    some = np.array([2, 5, 11])
    assert_allclose(kernel.apply(kernel.base_among(X, some), gamma), K[np.ix_(some, some)], rtol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    "kernel", [*(kernel for kernel, _, _ in KERNELS.values()), Polynomial(2, centred=True)]
)
def test_what_is_kept_of_the_training_rows_changes_no_digit(kernel, form):
    X, Z = rows(13), rows(7, seed=1)
    kernel = kernel.fitted(Z, np.ones(7))
    to_rows = kernel.to_rows(form(Z))
    for _ in range(2):
        assert_array_equal(to_rows(X), kernel.base(X, form(Z)))
        assert_array_equal(to_rows(sparse.csr_array(X)), kernel.base(sparse.csr_array(X), form(Z)))
        assert_allclose(to_rows(X), kernel.base(X, Z), rtol=1e-10, atol=1e-12)


@every_kernel
def test_single_precision(name):
    kernel, oracle, gamma = KERNELS[name]
    X, Z = rows(13).astype(np.float32), rows(7, seed=1).astype(np.float32)
    assert_allclose(kernel.gram(X, Z, gamma), naive.kernel_matrix(X=X, Z=Z, **oracle), rtol=2e-5, atol=1e-6)
    K = kernel.gram(X, gamma=gamma)
    assert_array_equal(K, K.T)


@every_kernel
@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_equals_dense(name, container):
    kernel, _, gamma = KERNELS[name]
    X, Z = np.maximum(rows(13), 0.0), np.maximum(rows(7, seed=1), 0.0)
    dense, dense_new = kernel.gram(X, gamma=gamma), kernel.gram(X, Z, gamma)
    X_sparse, Z_sparse = container(X), container(Z)
    K = kernel.gram(X_sparse, gamma=gamma)
    assert isinstance(K, np.ndarray)
    assert_array_equal(K, K.T)
    assert_allclose(K, dense, rtol=1e-12)
    # Rows to predict may be dense where the training rows were sparse, and the other way round.
    for A, B in [(X_sparse, Z_sparse), (X, Z_sparse), (X_sparse, Z)]:
        assert_allclose(kernel.gram(A, B, gamma), dense_new, rtol=1e-12)
    assert_allclose(kernel.diagonal(X_sparse, gamma), np.diag(dense), rtol=1e-12)


@every_kernel
def test_exactly_symmetric_and_the_input_is_left_alone(name):
    kernel, _, gamma = KERNELS[name]
    X = rows(60, 17) * 10.0 ** np.random.default_rng(2).integers(-3, 4, size=17)
    before = X.copy()
    base = kernel.base(X)
    assert_array_equal(base, base.swapaxes(0, 1))
    for layout in (np.asfortranarray(X), X[:, ::2], X[::-1], np.repeat(X, 2, axis=1)[:, ::2]):
        other = kernel.base(layout)
        assert_array_equal(other, other.swapaxes(0, 1))
    kept = base.copy()
    K = kernel.apply(base, gamma)
    assert_array_equal(K, K.T)
    assert_array_equal(base, kept)
    assert_array_equal(X, before)


values = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(arrays(float, st.tuples(st.integers(1, 8), st.integers(1, 3)), elements=values))
@settings(max_examples=60, deadline=None)
def test_distances_are_never_negative(X):
    for kernel in (RBF(), Laplacian(), Exponential()):
        for base in (kernel.base(X), kernel.base(X, X[::-1].copy())):
            assert (base >= 0).all()
        assert_array_equal(np.diag(kernel.base(X)), 0.0)
        assert (kernel.gram(X, gamma=1e-3) <= 1.0).all()


@pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Exponential()], ids=repr)
def test_a_huge_offset_keeps_the_digits(kernel):
    X, Z = rows(30), rows(9, seed=1)
    # What is left of X after the offset is exact in binary, so the distances are those of the rounded rows.
    X_far, Z_far = X + 1e8, Z + 1e8
    X_near, Z_near = X_far - 1e8, Z_far - 1e8
    assert_allclose(kernel.gram(X_far, Z_far, 0.4), kernel.gram(X_near, Z_near, 0.4), rtol=1e-7)
    assert_allclose(kernel.gram(X_far, gamma=0.4), kernel.gram(X_near, gamma=0.4), rtol=1e-7)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_distances_of_nearly_equal_rows_keep_their_digits(form):
    """|x|² + |z|² - 2x·z would leave an error of 1e-8 |x|."""
    X = rows(30, 5)
    X = np.vstack([X, X, X + 1e-9, X + 1e-5, X + 1e-2])
    expected = naive.kernel_matrix("exponential", X, X)
    new = X[::7] + 1e-7
    expected_new = naive.kernel_matrix("exponential", new, X)
    for shift in (0.0, 16.0):
        assert_allclose(Exponential().gram(form(X + shift)), expected, atol=2e-14)
        for other in (form(X + shift), X + shift):
            for these in (form(new + shift), new + shift):
                assert_allclose(Exponential().gram(these, other), expected_new, atol=2e-14)
        assert_array_equal(Exponential().base(form(X + shift))[:30, 30:60].diagonal(), 0.0)
        assert_array_equal(Exponential().base(form(X + shift), X + shift).diagonal(), 0.0)


@every_kernel
def test_no_temporary_of_rows_by_rows_by_features(name):
    kernel, _, gamma = KERNELS[name]
    X = rows(800, 200)
    tracemalloc.start()
    try:
        kernel.gram(X, gamma=gamma)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Four matrices of 800×800 (five, where the base has two numbers) and two copies of X; one of 800×800×200 would be
    # 1 GB.
    assert peak < (5 if name == "blend" else 4) * 8 * 800**2 + 2 * 8 * 800 * 200


PARTS = {
    "products": lambda X, Z: X @ Z.T,
    "squared distances": lambda X, Z: ((X[:, None] - Z) ** 2).sum(axis=2),
    "distances": lambda X, Z: np.sqrt(((X[:, None] - Z) ** 2).sum(axis=2)),
    "city-block distances": lambda X, Z: np.abs(X[:, None] - Z).sum(axis=2),
}


@every_kernel
def test_the_declared_formula_is_the_kernel(name):
    kernel, _, gamma = KERNELS[name]
    X, Z = rows(9), rows(5, seed=1)
    parts = [PARTS[part](X, Z) for part in kernel.parts]
    np.testing.assert_allclose(kernel.formula(parts, gamma, np.exp), kernel.gram(X, Z, gamma), rtol=1e-12)


@every_kernel
def test_the_declared_smo_form_is_the_kernel(name):
    kernel, _, gamma = KERNELS[name]
    arguments = kernel.smo_arguments()
    assert (arguments is None) == (name == "blend")
    if arguments is not None:
        X = rows(9)
        lazy = LazyGram(X, gamma=gamma, dtype=np.float64, **arguments)
        np.testing.assert_allclose(lazy.dense(), kernel.gram(X, gamma=gamma), rtol=1e-12)


@pytest.mark.parametrize(
    "kernel", [Precomputed(), FunctionKernel(np.add), Polynomial(2.5), Polynomial(2, centre=np.ones(4))]
)
def test_what_smo_cannot_compute_is_not_declared(kernel):
    assert kernel.smo_arguments() is None


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, 0.7), Polynomial(3, 0.0)])
def test_the_declared_terms_are_the_features(kernel):
    X = rows(9, d=3)
    features = kernel.features(X)
    terms = kernel.feature_terms(3)
    listed = [X] if terms is None else [np.prod((X / features.unit)[:, v], axis=1) * s for v, s in terms]
    np.testing.assert_allclose(np.hstack(listed), features.values, rtol=1e-14)


def test_the_parts_of_a_blend_have_the_same_width():
    X, weights = rows(40, 6), np.random.default_rng(1).uniform(0.5, 2.0, 40)
    kernel = Blend().fitted(X, weights)
    rough, smooth = Laplacian().unit_gamma(X, weights), RBF().unit_gamma(X, weights)
    gamma = kernel.unit_gamma(X, weights)
    expected = 0.3 * Laplacian().gram(X, gamma=rough) + 0.7 * RBF().gram(X, gamma=smooth)
    assert_allclose(kernel.gram(X, gamma=gamma), expected, rtol=1e-12)
    assert kernel == Blend()  # what it has learned from rows is not a parameter


@pytest.mark.parametrize("name", ["exponential", "blend"])
@pytest.mark.parametrize(
    "estimator",
    [
        LSSVMClassifier(
            C=2.0, gamma=0.2, decoding=Softmax(ridge=1.0)
        ),  # no folds: a Gram matrix is dealt differently
        LSSVMClassifier(C=2.0, gamma=0.2, coding="one-vs-all", decoding="bayes"),
        SVMClassifier(C=2.0, gamma=0.2, decoding="plain-softmax", coding="one-vs-all", tol=1e-6),
        PosteriorSVMClassifier(C=2.0, gamma=0.2, density=None, decoding="plain-softmax", tol=1e-6),
        KernelLogisticClassifier(C=2.0, gamma=0.2),
    ],
    ids=["ls-svm", "ls-svm, bayes", "svm", "posterior svm", "kernel logistic"],
)
def test_every_machine_takes_every_kernel(estimator, name):
    X, new = rows(45), rows(20, seed=1)
    y = (X[:, :2] > 0.5) @ [1, 1]
    model = clone(estimator).set_params(kernel=name).fit(X, y)
    ratio = Laplacian().unit_gamma(X, np.ones(45)) / RBF().unit_gamma(X, np.ones(45))
    oracle = {"kind": name, "gamma": 0.2, "share": 0.3, "ratio": ratio}
    given = clone(estimator).set_params(kernel="precomputed").fit(naive.kernel_matrix(X=X, Z=X, **oracle), y)
    expected = given.predict_proba(naive.kernel_matrix(X=new, Z=X, **oracle))
    assert_allclose(model.predict_proba(new), expected, atol=1e-6)  # the solvers' tolerance


def test_names():
    kernels = [
        RBF(), Laplacian(), Exponential(), Linear(), Blend(), Precomputed(), Polynomial(2.0),
        Polynomial(2.5, centred=True), FunctionKernel(naive.kernel_matrix),
        FunctionKernel(partial(naive.kernel_matrix, "rbf")),
    ]  # fmt: skip
    assert [kernel.name for kernel in kernels] == [
        "rbf", "laplacian", "exponential", "linear", "blend", "precomputed", "poly, degree 2",
        "poly, degree 2.5", "kernel_matrix", "partial",
    ]  # fmt: skip


def test_precomputed_is_what_was_given():
    K = rows(6, 6) @ rows(6, 6).T
    kernel = Precomputed()
    assert_array_equal(kernel.gram(K), K)
    assert kernel.gram(K) is not K
    assert_array_equal(kernel.base_among(K, np.array([1, 4])), K[np.ix_([1, 4], [1, 4])])
    assert_array_equal(kernel.diagonal(K), np.diag(K))
    with pytest.raises(ValueError, match="new rows"):
        kernel.diagonal(K[:2])


def test_a_function_is_a_kernel():
    X, Z = rows(13), rows(7, seed=1)
    kernel = FunctionKernel(lambda A, B: naive.kernel_matrix("rbf", A, B, gamma=0.4))
    assert_allclose(kernel.gram(X, Z), RBF().gram(X, Z, 0.4), rtol=1e-12)
    assert_allclose(kernel.diagonal(X), 1.0)


def test_a_function_is_checked():
    X, Z = rows(5), rows(3, seed=1)
    with pytest.raises(ValueError, match=r"shape \(5,\) for 5 and 3 rows; it must return \(5, 3\)"):
        FunctionKernel(lambda A, B: A[:, 0]).gram(X, Z)
    with pytest.raises(ValueError, match="kernel function returned infinite or undefined"):
        FunctionKernel(lambda A, B: np.full((len(A), len(B)), np.nan)).gram(X, Z)


@pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Exponential(), Blend(), Polynomial()], ids=repr)
def test_unit_gamma_follows_the_scale_and_the_weights(kernel):
    X = rows(20)
    weights = np.random.default_rng(3).integers(1, 4, 20).astype(float)
    unit = kernel.unit_gamma(X, weights)
    power = 1 if isinstance(kernel, (Laplacian, Exponential)) else 2
    assert_allclose(kernel.unit_gamma(1e12 * X, weights), unit * 1e-12**power, rtol=1e-10)
    assert_allclose(kernel.unit_gamma(1e-12 * X, weights), unit * 1e12**power, rtol=1e-10)
    copies = np.repeat(X, weights.astype(int), axis=0)
    assert_allclose(kernel.unit_gamma(copies, np.ones(len(copies))), unit, rtol=1e-12)
    assert_allclose(kernel.unit_gamma(sparse.csr_matrix(X), weights), unit, rtol=1e-12)
    assert kernel.unit_gamma(np.zeros((4, 2)), np.ones(4)) == 1.0


def test_names_are_resolved():
    assert isinstance(resolve_kernel("rbf"), RBF)
    assert isinstance(resolve_kernel("laplacian"), Laplacian)
    assert isinstance(resolve_kernel("exponential"), Exponential)
    assert isinstance(resolve_kernel("linear"), Linear)
    assert isinstance(resolve_kernel("precomputed"), Precomputed)
    assert isinstance(resolve_kernel("blend"), Blend)
    assert resolve_kernel("poly", 4, 0.5) == Polynomial(4, 0.5)
    kernel = RBF()
    assert resolve_kernel(kernel) is kernel
    with pytest.raises(ValueError, match=r"unknown kernel 'gauss'; choose one of linear, poly, rbf"):
        resolve_kernel("gauss")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: None, "returned NoneType; it must return a dense array of real numbers"),
        (lambda A, B: "rbf", "returned str; it must return a dense array"),
        (lambda A, B: (A @ B.T).astype(str), "returned ndarray of type <U.*; it must return a dense array"),
        (lambda A, B: (A @ B.T).astype(complex), "returned ndarray of type complex128"),
        (lambda A, B: np.full((len(A), len(B)), None), "infinite or undefined values"),
        (lambda A, B: [[1.0], [1.0, 2.0]], "returned a list that is no array"),
        (lambda A, B: 1.0, r"returned an array of shape \(\) for . and . rows; it must return"),
        (
            lambda A, B: (A @ B.T)[:, :-1],
            r"returned an array of shape \((4, 3|1, 0)\) for . and . rows; it must return",
        ),
    ],
)
@pytest.mark.parametrize("estimator", [SVMClassifier, LSSVMClassifier])
def test_kernel_functions_that_return_no_dense_matrix_are_refused(function, message, estimator):
    rows = np.arange(8.0).reshape(4, 2)
    with pytest.raises(ValueError, match=message):
        estimator(C=1.0, kernel=function, coding="one-vs-one", decoding="hamming").fit(rows, [0, 1, 0, 1])


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        lambda K: K.astype(np.float32),
        lambda K: K.astype(object),
        sparse.csr_matrix,
        sparse.csr_array,
    ],
)
def test_kernel_functions_may_return_whatever_holds_numbers(convert):
    rows = np.arange(8.0).reshape(4, 2)
    kernel = FunctionKernel(lambda A, B: convert(A @ B.T))
    np.testing.assert_array_equal(kernel.gram(rows), rows @ rows.T)
    np.testing.assert_array_equal(kernel.diagonal(rows), np.diagonal(rows @ rows.T))


@pytest.mark.parametrize("unit", [1.0, 8.0])
def test_moments_of_large_tables_are_those_of_their_columns(unit, monkeypatch):
    X = np.random.default_rng(0).normal(3.0, 2.0, (50, 7))
    weights = np.arange(1.0, 51.0)
    whole = weighted_moments(X, weights, unit)
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 8 * 50 * 2)  # two columns at a time
    assert_allclose(weighted_moments(X, weights, unit), whole, rtol=1e-14)
    assert_allclose(whole[0], np.average(X / unit, axis=0, weights=weights), rtol=1e-14)
    assert_allclose(whole[1], np.average(np.square(X / unit - whole[0]), axis=0, weights=weights), rtol=1e-13)
    assert_allclose(weighted_moments(sparse.csr_matrix(X), weights, unit), whole, rtol=1e-12)
