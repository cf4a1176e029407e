"""Kernels with few features: the features, and machines that are solved by them in place of the kernel matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import naive
from conftest import blobs
from polymargin import KernelLogisticClassifier, LSSVMClassifier, _memory
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.kernels import RBF, Blend, Linear, Polynomial
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.selection.press import press, press_of_features
from polymargin.selection.samples import SampledGroup, Samples
from polymargin.solvers.thin import ThinMatrix

X, Y = blobs(n=60, K=3, seed=4)
X = X[:, :2]
WEIGHTS = {
    "ones": np.ones(60),
    "whole": np.random.default_rng(1).integers(1, 4, 60).astype(float),
    "any": np.random.default_rng(2).uniform(0.2, 3.0, 60),
}
every_weighting = pytest.mark.parametrize("weighting", WEIGHTS)
KERNELS = {
    "linear": Linear(),
    "poly": Polynomial(2, 0.7),
    "centred": Polynomial(2, centred=True),
    "cubic": Polynomial(3, 1.0),
    "homogeneous": Polynomial(2, 0.0),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def kernel_of(name):
    return KERNELS[name].fitted(X, np.ones(60))


# The features ----------------------------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("gamma", [0.3, 2.0])
def test_the_kernel_is_the_sum_over_its_features(name, gamma):
    kernel = kernel_of(name)
    features = kernel.features(X)
    assert features.values.shape == (60, kernel.n_features(2))
    K = (features.values * features.powers(gamma)) @ features.values.T + features.constant
    assert_allclose(K, kernel.gram(X, gamma=gamma), rtol=1e-12, atol=1e-14 * np.abs(K).max())
    coef = np.random.default_rng(0).normal(size=(60, 4))
    expanded = features.values @ features.weights(coef, np.full(coef.shape[1], gamma))
    expanded += features.constant * coef.sum(axis=0)
    assert_allclose(expanded, K @ coef, rtol=1e-10, atol=1e-12 * np.abs(K).max())
    part = features.of(np.array([3, 1]))
    assert_array_equal(part.values, features.values[[3, 1]])


@pytest.mark.parametrize(("degree", "coef0"), [(1, 1.0), (2, 1.0), (3, 0.5), (4, 0.0)])
def test_monomials_of_five_variables(degree, coef0):
    kernel, rows = Polynomial(degree, coef0), np.random.default_rng(0).normal(size=(7, 5))
    features = kernel.features(rows)
    assert features.values.shape[1] == kernel.n_features(5)
    expected = (0.4 * rows @ rows.T + coef0) ** degree
    values = (features.values * features.powers(0.4)) @ features.values.T + features.constant
    assert_allclose(values, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(),
        Blend(),
        *(Polynomial(degree) for degree in (1.5, -1.0, 0, 1100)),
        Polynomial(2, -1.0),
        Polynomial(3, 1e120),
    ],
)
def test_other_kernels_have_no_list_of_features(kernel):
    assert kernel.n_features(3) is None
    if not isinstance(kernel, Polynomial):
        with pytest.raises(NotImplementedError, match="no list of features"):
            kernel.features(X)


# PRESS -----------------------------------------------------------------------------------------------------


@every_weighting
@every_kernel
def test_press_of_features_is_press(name, weighting):
    kernel, weights = kernel_of(name), WEIGHTS[weighting]
    features = kernel.features(X)
    matrix = ThinMatrix(features, weights)
    targets = np.random.default_rng(5).normal(size=(60, 3))
    for copies in (None, np.maximum(weights, 1.5)):
        for gamma, ridge in ((0.1, 0.5), (0.7, 0.02)):
            value, slopes = press_of_features(matrix, targets, gamma, ridge, copies=copies)
            expected, of_kernel = press(kernel, kernel.base(X), weights, targets, gamma, ridge, copies=copies)
            assert_allclose(value, expected, rtol=1e-9)
            assert_allclose(slopes, of_kernel, rtol=1e-7, atol=1e-9 * expected.sum())


def test_press_of_features_refuses_what_rounding_would_decide():
    features = Linear().features(X)
    matrix = ThinMatrix(features, np.ones(60))
    with pytest.raises(np.linalg.LinAlgError, match="too small"):
        press_of_features(matrix, np.ones((60, 1)), 1.0, 1e-12, least_ridge=1e-9)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("criterion", ["loo", "gcv"])
@every_kernel
def test_stacks_of_features_cost_what_stacks_of_matrices_do(name, criterion, masked):
    kernel, random = kernel_of(name), np.random.default_rng(3)
    by_features, by_matrices = [], []
    for rows, width, weighting in (
        (slice(0, 60), 2, "any"),
        (slice(3, 40), 3, "ones"),
        (slice(5, 50), 1, "whole"),
    ):
        weights, features = WEIGHTS[weighting][rows], kernel.features(X[rows])
        targets = random.normal(size=(weights.size, width))
        counted = random.random(targets.shape) < 0.6 if masked else None
        matrix = ThinMatrix(features, weights)
        by_features.append(SampledGroup(matrix, weights, targets, counted))
        by_matrices.append(SampledGroup(kernel.base(X[rows]), weights, targets, counted))
    thin, whole = Samples(kernel, by_features), Samples(kernel, by_matrices)
    for ridge in (0.01, 0.4, 30.0):
        costs = thin.path(criterion, 0.3, ridge).costs
        assert_allclose(costs, whole.path(criterion, 0.3, ridge).costs, rtol=1e-8)
    mask = (costs[0] > 0.0).astype(float)
    assert_allclose(
        thin.best_ridge(criterion, 0.3, mask, None), whole.best_ridge(criterion, 0.3, mask, None), rtol=1e-6
    )


def test_a_search_by_features_finds_what_one_by_matrices_finds(monkeypatch):
    for coding in ("one-vs-one", "one-vs-all"):
        thin, whole = banks(monkeypatch, "poly", coding, None, gamma=None, selection="loo")
        assert_allclose(thin.C, whole.C, rtol=1e-6)
        assert_allclose(thin.gamma, whole.gamma, rtol=1e-6)


# Machines --------------------------------------------------------------------------------------------------


def banks(monkeypatch, name, coding, C, weighting="ones", rows=X, gamma=0.6, **more):
    """The same machines by features and by the kernel matrix."""
    kernel = KERNELS[name].fitted(rows, WEIGHTS[weighting])
    gamma = 1.0 if name == "linear" else gamma
    book = one_vs_one(3) if coding == "one-vs-one" else one_vs_all(3)

    def bank():
        data = TrainingRows(kernel, rows, Y, WEIGHTS[weighting])
        return fit_lssvm_bank(data, book, C=C, gamma=gamma, keep_factors=False, **more)

    thin = bank()
    assert thin.expansion is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(kernel), "n_features", lambda self, d: None)
        whole = bank()
    assert whole.expansion is None
    return thin, whole


@pytest.mark.parametrize("C", [0.05, 3.0, np.array([0.1, 2.0, 2.0])], ids=["small", "large", "of each"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
@every_weighting
@every_kernel
def test_machines_by_features_are_those_by_the_kernel_matrix(monkeypatch, name, coding, weighting, C):
    thin, whole = banks(monkeypatch, name, coding, C, weighting)
    for attribute in ("dual_coef", "intercept", "norms", "mu", "zeta", "log_evidence", "loo_margins"):
        expected = getattr(whole, attribute)
        scale = np.abs(expected).max()
        assert_allclose(getattr(thin, attribute), expected, rtol=1e-8, atol=1e-9 * scale, err_msg=attribute)
    assert_allclose(thin.training_margins(), whole.training_margins(), rtol=1e-8, atol=1e-9)
    assert_allclose(thin.margins(X[:5] + 0.1), whole.margins(X[:5] + 0.1), rtol=1e-8, atol=1e-9)


def test_machines_by_features_are_the_dense_solve():
    kernel = Polynomial(2, 0.7)
    bank = fit_lssvm_bank(
        TrainingRows(kernel, X, Y, np.ones(60)), one_vs_all(3), C=2.0, gamma=0.6, keep_factors=False
    )
    assert bank.expansion is not None
    K = naive.kernel_matrix(X=X, Z=X, kind="poly", gamma=0.6, degree=2, coef0=0.7)
    targets = 2.0 * np.eye(3)[Y] - 1.0
    a, b = naive.lssvm_solve(K, targets, 2.0, np.ones(60))
    assert_allclose(bank.dual_coef, a.T, rtol=1e-8)
    assert_allclose(bank.intercept, b, rtol=1e-8)
    for row in (0, 17, 59):
        others = np.arange(60) != row
        a, b = naive.lssvm_solve(K[np.ix_(others, others)], targets[others], 2.0, np.ones(59))
        assert_allclose(bank.loo_margins[row], naive.lssvm_predict(K[row, others], a, b), rtol=1e-8)


# New rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
@every_weighting
@every_kernel
def test_new_rows_are_asked_by_their_features(monkeypatch, name, coding, weighting, soft):
    labels = np.random.default_rng(3).dirichlet(np.ones(3), 60) if soft else None
    data = TrainingRows(kernel_of(name), X, Y, WEIGHTS[weighting], labels)
    book = one_vs_one(3) if coding == "one-vs-one" else one_vs_all(3)
    gammas = np.ones(3) if name == "linear" else np.array([0.2, 0.7, 0.2])
    bank = fit_lssvm_bank(data, book, C=np.array([0.5, 3.0, 20.0]), gamma=gammas, keep_factors=False)
    # In blocks, and far away, where the features have another unit.
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 2000)
    for new in (X + 0.3, 40.0 * X, 1e-3 * X, X[:1]):
        margins = bank.margins(new)
        expected = bank._margins_from_base(bank.kernel.base(new, X))
        assert_allclose(margins, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())
        assert_array_equal(margins, bank.margins(new))
        assert_array_equal(margins, bank.outputs(new, variances=True).margins)
    assert_allclose(bank.training_margins(), bank.margins(X), rtol=1e-8, atol=1e-9)
    assert_array_equal(bank.margins(sparse.csr_array(X)), bank.margins(X))


def test_new_rows_of_many_features_are_asked_by_the_kernel(monkeypatch):
    def no_features(kernel, X):
        raise AssertionError("features are not wanted here")

    wide = np.random.default_rng(0).normal(size=(60, 31))
    bank = fit_lssvm_bank(TrainingRows(Linear(), wide, Y, np.ones(60)), one_vs_one(3), C=1.0, gamma=1.0)
    monkeypatch.setattr(Linear, "features", no_features)
    assert_allclose(bank.margins(wide), bank.training_margins(), rtol=1e-9)


@pytest.mark.parametrize("degree", [2, 3])
def test_a_row_that_is_very_far_away_does_not_touch_the_others(degree):
    bank = fit_lssvm_bank(
        TrainingRows(Polynomial(degree), X, Y, np.ones(60)),
        one_vs_one(3),
        C=1.0,
        gamma=0.5,
        keep_factors=False,
    )
    assert bank.expansion is not None
    new = X[:6].copy()
    new[3, 1] = 1e300
    with np.errstate(over="ignore", invalid="ignore"):
        margins = bank.margins(new)
    assert not np.isfinite(margins[3]).all()
    others = np.arange(6) != 3
    assert_allclose(margins[others], bank.margins(X[:6])[others], rtol=1e-12)


@pytest.mark.parametrize(("kernel", "distance"), [(Linear(), 1e4), (Polynomial(2), 100.0)])
def test_a_class_that_is_far_away_costs_the_others_no_digits(kernel, distance):
    rows = X.copy()
    rows[Y == 2] = 1e-3 * rows[Y == 2] + distance
    near = Y < 2
    given = {"C": 1e5, "gamma": 0.3, "keep_factors": False}
    of_three = fit_lssvm_bank(TrainingRows(kernel, rows, Y, np.ones(60)), one_vs_one(3), **given)
    alone = TrainingRows(kernel, rows[near], Y[near], np.ones(int(near.sum())))
    of_two = fit_lssvm_bank(alone, one_vs_one(2), **given)
    assert of_three.expansion is not None
    assert_allclose(of_three.margins(X)[:, 0], of_two.margins(X)[:, 0], atol=1e-8)


def test_machines_solved_by_matrices_answer_by_the_kernel():
    data = TrainingRows(Linear(), X, Y, np.ones(60))
    bank = fit_lssvm_bank(data, one_vs_one(3), C=1.0, gamma=1.0, keep_factors=True)
    assert bank.expansion is None
    quick = fit_lssvm_bank(data, one_vs_one(3), C=1.0, gamma=1.0, keep_factors=False)
    assert quick.expansion is not None
    assert_allclose(bank.margins(X + 1.0), quick.margins(X + 1.0), rtol=1e-9)


def test_a_large_offset_costs_new_rows_no_digits():
    # Coefficients of equal rows of both classes are as large as C: what they leave of the offset must not count.
    rows = np.concatenate([X[:30], X[:30]]) + 1e4
    classes = np.repeat([0, 1], 30)
    data = TrainingRows(Linear(), rows, classes, np.ones(60))
    bank = fit_lssvm_bank(data, one_vs_one(2), C=1e4, gamma=1.0, keep_factors=False)
    assert_allclose(bank.margins(rows), 0.0, atol=1e-3)


def test_variances_of_machines_by_features_are_those_of_the_whole_factors(monkeypatch):
    thin, whole = banks(monkeypatch, "poly", "one-vs-one", 2.0)
    new = X[:7] + 0.2
    assert_allclose(
        thin.outputs(new, variances=True).variances, whole.outputs(new, variances=True).variances, rtol=1e-7
    )


@pytest.mark.parametrize("C", [1e3, 1e6])
def test_a_small_ridge_costs_no_more_digits_than_with_the_kernel_matrix(monkeypatch, C):
    # Coefficients of the size of C cancel in every margin.
    thin, whole = banks(monkeypatch, "poly", "one-vs-all", C)
    design = np.column_stack([np.ones(60), thin.data.kernel.features(X).values])
    scales = np.append(1.0, np.sqrt(thin.kernel.features(thin.data.X).powers(0.6)))
    design *= scales
    ridge = np.diag(np.append(0.0, np.full(scales.size - 1, C**-0.5)))
    targets = np.vstack([2.0 * np.eye(3)[Y] - 1.0, np.zeros((scales.size, 3))])
    expected = design @ np.linalg.lstsq(np.vstack([design, ridge]), targets, rcond=None)[0]
    error, usual = (np.abs(bank.training_margins() - expected).max() for bank in (thin, whole))
    assert error < 1e-11 * C
    assert error < 10.0 * usual


def test_a_row_that_stands_alone_is_left_to_the_kernel_matrix(monkeypatch):
    # The machine follows an outlier so closely that one minus its leverage is lost in rounding.
    rows = X.copy()
    rows[0] = 300.0
    thin, whole = banks(monkeypatch, "centred", "one-vs-all", 1.0, rows=rows, gamma=1.0)
    assert_array_equal(thin.loo_margins, whole.loo_margins)


def test_memory_for_the_kernel_matrix_is_planned_where_features_do_not_do(monkeypatch):
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    rows = X.copy()
    rows[0] = 3e5
    needed = []
    monkeypatch.setattr(
        _memory, "require", lambda n_bytes, purpose, remedy: needed.append((n_bytes, purpose))
    )
    LSSVMClassifier(1.0, gamma=1.0, kernel="linear", coding="one-vs-all").fit(X, Y)
    assert [purpose.split()[0] for _, purpose in needed] == ["2"]
    LSSVMClassifier(1.0, gamma=1.0, kernel="linear", coding="one-vs-all").fit(rows, Y)
    assert "the kernel matrix of 60 rows, among them" in needed[-1][1]
    assert needed[-1][0] > 5 * needed[0][0]


@pytest.mark.parametrize("C", [1e15, 1e18, 1e30])
def test_a_C_that_leaves_no_digits_is_refused(C):
    with pytest.raises(np.linalg.LinAlgError, match=r"C = 1e\+.. is too large.*use a smaller C$"):
        LSSVMClassifier(C, gamma=1.0, kernel="linear").fit(X, Y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("degree", [2, 3, 5])
def test_the_unit_of_the_features_does_not_matter(degree):
    kernel = Polynomial(degree, centred=True)
    plain = LSSVMClassifier(kernel=kernel).fit(X, Y).predict_proba(X)
    for unit in (2.0**-100, 2.0**40, 2.0**100):
        scaled = LSSVMClassifier(kernel=kernel).fit(unit * X, Y).predict_proba(unit * X)
        assert_allclose(scaled, plain, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "classifier", [LSSVMClassifier(kernel="linear"), KernelLogisticClassifier(1.0, gamma=1.0)]
)
def test_the_model_does_not_see_what_becomes_of_the_rows(classifier):
    rows = X.copy()
    model = classifier.fit(rows, Y)
    before = model.predict_proba(X)
    rows *= 2.0
    assert_array_equal(model.predict_proba(X), before)


def test_many_rows_of_few_features_need_no_kernel_matrix(monkeypatch):
    rows, labels = blobs(n=3000, K=3, seed=0)
    whole = Linear.base

    def base(self, X, Z=None):
        assert X.shape[0] <= 1000, "a kernel matrix of all rows"
        return whole(self, X, Z)

    monkeypatch.setattr(Linear, "base", base)
    model = LSSVMClassifier(kernel="linear", coding="one-vs-all").fit(rows, labels)
    monkeypatch.undo()
    assert model.score(rows, labels) > 0.8


def test_rows_of_many_features_and_sparse_rows_keep_the_kernel_matrix():
    from scipy import sparse

    for rows in (np.random.default_rng(0).normal(size=(60, 40)), sparse.csr_array(X)):
        data = TrainingRows(Linear(), rows, Y, np.ones(60))
        bank = fit_lssvm_bank(data, one_vs_one(3), C=1.0, gamma=1.0, keep_factors=False)
        assert bank.expansion is None


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_features_that_overflow_are_refused():
    rows = X * 1e200
    with pytest.raises(ValueError, match=r"infinite or undefined.*StandardScaler"):
        LSSVMClassifier(C=1.0, gamma=1.0, kernel="poly", degree=2, selection="loo").fit(rows, Y)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("kernel", ["poly", Polynomial(2, centred=True), "linear"])
def test_scales_that_leave_no_numbers_are_refused(kernel):
    for scale, words in ((1e160, "infinite or undefined"), (1e-160, "too small to compute with")):
        with pytest.raises(ValueError, match=rf"{words}.*StandardScaler"):
            LSSVMClassifier(kernel=kernel, degree=2).fit(scale * X, Y)


def test_memory_for_features_is_planned(monkeypatch):
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(_memory, "available", lambda: 100.0)
    with pytest.raises(MemoryError, match=r"2 features of 60 rows.* needs .* fit fewer rows"):
        LSSVMClassifier(kernel="linear", C=1.0).fit(X, Y)
