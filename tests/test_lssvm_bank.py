"""The bank of least-squares machines against dense solves, refits and the primal."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import naive
from conftest import blobs
from polymargin import Codebook
from polymargin.codebooks import ecoc, minimal, one_vs_all, one_vs_one
from polymargin.kernels import RBF, resolve_kernel
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.solvers import ridge as ridge_solvers
from polymargin.solvers.centring import centre
from polymargin.solvers.ridge import cholesky, spectral
from polymargin.solvers.tridiagonal import tridiagonalise

KERNELS = {
    "linear": ("linear", {"kind": "linear"}, 1.0),
    "poly": ("poly", {"kind": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.7}, 0.3),
    "rbf": ("rbf", {"kind": "rbf", "gamma": 0.4}, 0.4),
    "laplacian": ("laplacian", {"kind": "laplacian", "gamma": 0.3}, 0.3),
    "exponential": ("exponential", {"kind": "exponential", "gamma": 0.3}, 0.3),
}
CODINGS = {
    "one-vs-one": one_vs_one,
    "one-vs-all": one_vs_all,
    "minimal": minimal,
    "ecoc": ecoc,
    "mixed": lambda K: Codebook([[-1, 0, 1, 1], [1, -1, 0, 1], [0, 1, -1, -1], [1, 1, 1, 0]]),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)
every_coding = pytest.mark.parametrize("coding", CODINGS)

X, Y_INDEX = blobs(n=32, K=4, seed=1)
X_NEW = blobs(n=9, K=4, seed=2)[0]
WEIGHTS = {
    "ones": np.ones(len(X)),
    "whole": np.random.default_rng(3).integers(1, 4, len(X)).astype(float),
    "fractions": np.random.default_rng(4).uniform(0.2, 1.0, len(X)),
    "any": np.random.default_rng(5).uniform(0.2, 3.0, len(X)),
}
every_weighting = pytest.mark.parametrize("weighting", WEIGHTS)


def bank_for(name="rbf", coding="one-vs-one", C=2.0, weighting="ones", book=None, **more):
    kernel, _, gamma = KERNELS[name]
    data = TrainingRows(resolve_kernel(kernel, 2, 0.7), X, Y_INDEX, WEIGHTS[weighting])
    book = CODINGS[coding](4) if book is None else book
    return fit_lssvm_bank(data, book, C=C, gamma=gamma, **more), book


def dichotomies(book):
    """The rows and targets of every column."""
    for column, bits in enumerate(book.matrix.T):
        rows = np.flatnonzero(bits[Y_INDEX])
        yield column, rows, bits[Y_INDEX[rows]].astype(float)


# Coefficients ----------------------------------------------------------------------------------------------


@every_kernel
@every_coding
@every_weighting
@pytest.mark.parametrize("C", [0.03, 2.0, 300.0])
def test_coefficients_bias_and_norm_equal_the_dense_solve(name, coding, weighting, C):
    bank, book = bank_for(name, coding, C, weighting)
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS[name][1])
    for column, rows, y in dichotomies(book):
        part = K[np.ix_(rows, rows)]
        a, b = naive.lssvm_solve(part, y, C, WEIGHTS[weighting][rows])
        scale = np.abs(a).max()
        assert_allclose(bank.dual_coef[column, rows], a, atol=1e-8 * scale)
        assert_allclose(bank.intercept[column], b, rtol=1e-8, atol=1e-8)
        assert_allclose(bank.norms[column], np.sqrt(a @ part @ a), rtol=1e-7)
        unused = np.setdiff1d(np.arange(len(X)), rows)
        assert_array_equal(bank.dual_coef[column, unused], 0.0)
    assert_array_equal(bank.C, C)
    assert_array_equal(bank.gamma, KERNELS[name][2])


@every_kernel
@every_coding
def test_margins_of_new_rows(name, coding):
    bank, book = bank_for(name, coding)
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS[name][1])
    K_new = naive.kernel_matrix(X=X_NEW, Z=X, **KERNELS[name][1])
    margins = bank.margins(X_NEW)
    for column, rows, y in dichotomies(book):
        a, b = naive.lssvm_solve(K[np.ix_(rows, rows)], y, 2.0)
        assert_allclose(margins[:, column], naive.lssvm_predict(K_new[:, rows], a, b), atol=1e-8)
    outputs = bank.outputs(X_NEW, variances=True)
    assert_array_equal(outputs.margins, margins)
    assert outputs.provenance == "new"
    assert_allclose(outputs.noise, 1.0 / bank.zeta)


def test_mu_and_zeta_of_a_given_C_are_the_level_two_optimum():
    bank, book = bank_for("rbf", "one-vs-all")
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS["rbf"][1])
    for column, _, y in dichotomies(book):
        mu, zeta = naive.evidence_mu_zeta_given_C(K, y, 2.0)
        assert_allclose([bank.mu[column], bank.zeta[column]], [mu, zeta], rtol=1e-8)


# Leave-one-out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "rbf"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
@every_weighting
@pytest.mark.parametrize("C", [0.03, 30.0])
def test_leave_one_out_margins_equal_refits(name, coding, weighting, C):
    bank, book = bank_for(name, coding, C, weighting)
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS[name][1])
    for column, rows, y in dichotomies(book):
        part, s = K[np.ix_(rows, rows)], WEIGHTS[weighting][rows]
        refits = naive.lssvm_loo_margins(part, y, C, s)
        assert_allclose(bank.loo_margins[rows, column], refits, atol=1e-8)
        shift = naive.shift_of_the_mean(y, s)
        assert_allclose(bank.honest_margins[rows, column], refits + shift, atol=1e-8)


@pytest.mark.parametrize("name", ["linear", "poly", "rbf"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "mixed"])
@pytest.mark.parametrize("weighting", ["ones", "any"])
def test_rows_of_a_group_are_left_out_together(name, coding, weighting):
    # Groups of one to five rows; some hold rows of several classes.
    groups = np.random.default_rng(7).integers(0, 14, len(X))
    assert set(np.bincount(groups)) >= {1, 2, 3}
    kernel, oracle, gamma = KERNELS[name]
    data = TrainingRows(resolve_kernel(kernel, 2, 0.7), X, Y_INDEX, WEIGHTS[weighting], groups=groups)
    book = CODINGS[coding](4)
    K = naive.kernel_matrix(X=X, Z=X, **oracle)
    for keep_factors in (True, False):
        bank = fit_lssvm_bank(data, book, C=3.0, gamma=gamma, keep_factors=keep_factors)
        for column, rows, y in dichotomies(book):
            part, s = K[np.ix_(rows, rows)], WEIGHTS[weighting][rows]
            refits = naive.lssvm_loo_margins(part, y, 3.0, s, groups[rows])
            assert_allclose(bank.loo_margins[rows, column], refits, atol=1e-8)
            shift = naive.shift_of_the_mean(y, s, groups[rows])
            assert_allclose(bank.honest_margins[rows, column], refits + shift, atol=1e-8)


def test_groups_of_machines_with_ridges_of_their_own():
    """Many ridges share one eigendecomposition."""
    groups = np.random.default_rng(7).integers(0, 14, len(X))
    data = TrainingRows(resolve_kernel("rbf"), X, Y_INDEX, WEIGHTS["any"], groups=groups)
    book, Cs = ecoc(4), np.geomspace(0.1, 50.0, ecoc(4).n_columns)
    assert book.n_columns >= ridge_solvers.SPECTRAL_FROM
    bank = fit_lssvm_bank(data, book, C=Cs, gamma=np.full(book.n_columns, 0.4))
    assert {type(block.factor).__name__ for block in bank.blocks} == {"SpectralFactor"}
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS["rbf"][1])
    for column, rows, y in dichotomies(book):
        refits = naive.lssvm_loo_margins(K, y, Cs[column], WEIGHTS["any"], groups)
        assert_allclose(bank.loo_margins[rows, column], refits, atol=1e-8)


def test_weights_times_c_are_C_times_c():
    one, _ = bank_for("rbf", "one-vs-one", C=6.0, weighting="any")
    data = TrainingRows(resolve_kernel("rbf"), X, Y_INDEX, 3.0 * WEIGHTS["any"])
    other = fit_lssvm_bank(data, one_vs_one(4), C=2.0, gamma=0.4)
    for field in ("dual_coef", "intercept", "norms", "loo_margins", "honest_margins"):
        assert_allclose(getattr(other, field), getattr(one, field), rtol=1e-9, atol=1e-9)


@every_coding
def test_rows_a_dichotomy_does_not_use_are_new_to_it(coding):
    bank, book = bank_for("rbf", coding)
    in_sample = bank.margins(X)
    unused = book.targets(Y_INDEX) == 0
    assert_allclose(bank.loo_margins[unused], in_sample[unused], rtol=0, atol=1e-13)
    assert np.isfinite(bank.loo_margins).all()
    honest, known = bank.training_outputs(honest=True), bank.training_outputs(honest=False)
    assert honest.provenance == "leave_one_out"
    assert known.provenance == "in_sample"
    assert_array_equal(honest.exact, bank.loo_margins)
    assert_allclose(known.margins, in_sample, rtol=0, atol=1e-13)
    assert_array_equal(honest.margins[unused], bank.loo_margins[unused])


@every_coding
def test_outputs_for_decoders_do_not_tell_the_labels_of_machines_that_learn_nothing(coding):
    """Had the row not been there, the mean of the targets would be on the other side; decoders see the mean of all."""
    bank, book = bank_for("rbf", coding, C=1e-12)
    targets = book.targets(Y_INDEX)
    for column in range(book.n_columns):
        used = targets[:, column] != 0
        left_out = bank.loo_margins[used, column]
        assert len(set(left_out.round(6))) == 2  # one for either side
        means = np.full(used.sum(), targets[used, column].mean())
        assert_allclose(bank.training_outputs(honest=True).margins[used, column], means, atol=1e-6)


# Variances -------------------------------------------------------------------------------------------------


FEATURES = {"linear": lambda Z: Z, "poly": lambda Z: naive.poly2_features(Z, 0.3, 0.7)}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "mixed"])
@every_weighting
@pytest.mark.parametrize("C", [0.03, 2.0, 300.0])
def test_variances_equal_the_primal(name, coding, weighting, C):
    bank, book = bank_for(name, coding, C, weighting)
    features = FEATURES[name]
    variances = bank.outputs(X_NEW, variances=True).variances
    for column, rows, _ in dichotomies(book):
        exact = naive.predictive_variance_primal(
            features(X[rows]), features(X_NEW), bank.mu[column], bank.zeta[column], WEIGHTS[weighting][rows]
        )
        assert_allclose(variances[:, column], exact, rtol=1e-8)


@every_kernel
@every_coding
def test_a_bank_without_factors_gives_the_same_variances(name, coding):
    kept, _ = bank_for(name, coding, weighting="any")
    lean, _ = bank_for(name, coding, weighting="any", keep_factors=False)
    assert lean.blocks is None
    assert_allclose(
        lean.outputs(X_NEW, variances=True).variances,
        kept.outputs(X_NEW, variances=True).variances,
        rtol=1e-10,
    )


def test_a_bank_without_factors_and_a_row_whose_coefficient_is_zero():
    # A row at a margin of exactly ±1 has coefficient zero and takes part all the same.
    lean, _ = bank_for("rbf", "one-vs-one", keep_factors=False)
    before = lean.outputs(X_NEW, variances=True).variances
    lean.dual_coef[:, 5] = 0.0
    assert_allclose(lean.outputs(X_NEW, variances=True).variances, before, rtol=1e-12)


@pytest.mark.parametrize("name", ["linear", "rbf"])
@pytest.mark.parametrize("seed", range(3))
def test_misprint_in_equation_12(name, seed):
    """Seed 000 eq. (12): + (2/N) mu⁻¹ θᵀY must be −. Ours is the corrected one; as printed it is no variance."""
    X, y_index = blobs(n=20, K=2, seed=seed)
    y = 2.0 * y_index - 1.0
    new = blobs(n=6, K=2, seed=seed + 10)[0]
    kernel, oracle, gamma = KERNELS[name]
    data = TrainingRows(resolve_kernel(kernel), X, y_index, np.ones(20))
    bank = fit_lssvm_bank(data, one_vs_one(2), C=2.0, gamma=gamma)
    ours = bank.outputs(new, variances=True).variances[:, 0]
    K, K_new = naive.kernel_matrix(X=X, Z=X, **oracle), naive.kernel_matrix(X=new, Z=X, **oracle)
    own = np.diag(naive.kernel_matrix(X=new, Z=new, **oracle))
    corrected, printed = (
        naive.predictive_variance_printed(K, K_new, own, y, bank.mu[0], bank.zeta[0], sign=sign)
        for sign in (-1, +1)
    )
    assert_allclose(ours, corrected, rtol=1e-8)
    assert (ours > 0).all()
    # θᵀY = Σ K(x, x_i), which is positive for the Gaussian kernel: there the printed formula is always too large.
    theta_y = K_new.sum(axis=1)
    assert_allclose(printed - ours, 4.0 / (20 * bank.mu[0]) * theta_y, rtol=1e-7)
    assert (np.abs(printed - ours) / ours).max() > 0.3


def test_equation_12_as_printed_can_be_negative():
    X, y_index = blobs(n=20, K=2, seed=0)
    X = X - X.mean(axis=0) + 2.0
    data = TrainingRows(resolve_kernel("linear"), X, y_index, np.ones(20))
    bank = fit_lssvm_bank(data, one_vs_one(2), C=2.0, gamma=None)
    new = np.array([[-4.0, -4.0, -4.0]])
    printed = naive.predictive_variance_printed(
        X @ X.T, new @ X.T, np.diag(new @ new.T), 2.0 * y_index - 1.0, bank.mu[0], bank.zeta[0], sign=+1
    )
    assert printed[0] < 0 < bank.outputs(new, variances=True).variances[0, 0]


# Solvers ---------------------------------------------------------------------------------------------------


def centred_matrix(name="rbf", weighting="any"):
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS[name][1])
    return centre(K.copy(), WEIGHTS[weighting])


@every_kernel
@every_weighting
def test_centring_is_the_gram_matrix_of_centred_features(name, weighting):
    K = naive.kernel_matrix(X=X, Z=X, **KERNELS[name][1])
    s = WEIGHTS[weighting]
    centring, A = centre(K.copy(), s)
    projector = np.eye(len(X)) - np.outer(np.ones(len(X)), s / s.sum())
    q = np.sqrt(s / s.sum())
    expected = np.sqrt(np.outer(s, s)) * (projector @ K @ projector.T)
    assert_allclose(
        A - centring.bias_eigenvalue * np.outer(q, q), expected, atol=1e-10 * np.abs(expected).max()
    )
    assert_allclose(A @ q, centring.bias_eigenvalue * q, atol=1e-10 * np.abs(A).max())
    assert A.flags.f_contiguous
    assert centring.bias_eigenvalue > 0


@every_kernel
def test_cholesky_and_spectral_factors_agree(name):
    _, A = centred_matrix(name)
    rng = np.random.default_rng(0)
    Y, V = rng.normal(size=(len(X), 3)), rng.normal(size=(5, len(X)))
    before = A.copy()
    ridges = np.array([1e-2, 0.7, 50.0])
    decomposed = spectral(A, ridges)
    for column, ridge in enumerate(ridges):
        factor = cholesky(A, ridge, 1)
        exact = np.linalg.inv(A + ridge * np.eye(len(X)))
        size = np.abs(exact).max()
        for one in (factor, decomposed):
            mine = 0 if one is factor else column
            y = Y[:, [column]] if one is factor else Y
            assert_allclose(one.solve(y)[:, mine], exact @ Y[:, column], atol=1e-9 * size)
            assert_allclose(one.inverse_diagonal()[:, mine], np.diag(exact), atol=1e-9 * size)
            assert_allclose(
                one.quadratic(V.copy())[:, mine], np.diag(V @ exact @ V.T), atol=1e-9 * size * len(X)
            )
            logdet = np.linalg.slogdet(A + ridge * np.eye(len(X)))[1]
            assert_allclose(one.log_determinants()[mine], logdet, rtol=1e-9)
    assert_array_equal(A, before)


def test_the_spectral_path_gives_the_same_machines(monkeypatch):
    import polymargin.machines.lssvm as module

    book = ecoc(4)
    overlapping, y_index = blobs(n=len(X), K=4, seed=1, shift=0.6)
    data = TrainingRows(resolve_kernel("rbf"), overlapping, y_index, WEIGHTS["any"])
    assert ridge_solvers.SPECTRAL_FROM == module.SPECTRAL_FROM
    banks = []
    for threshold in (1, 1000):
        monkeypatch.setattr(module, "SPECTRAL_FROM", threshold)
        # gamma is given and C inferred for every machine: one kernel, many ridges.
        banks.append(fit_lssvm_bank(data, book, C=None, gamma=0.3))
    one, other = banks
    kinds = [{type(block.factor).__name__ for block in bank.blocks} for bank in banks]
    assert kinds == [{"SpectralFactor"}, {"CholeskyFactor"}]
    assert len(np.unique(one.C)) > 1
    assert_array_equal(one.C, other.C)
    for field in ("dual_coef", "intercept", "norms", "mu", "zeta", "log_evidence", "loo_margins"):
        assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-8, atol=1e-9)
    assert_allclose(
        one.outputs(X_NEW, variances=True).variances,
        other.outputs(X_NEW, variances=True).variances,
        rtol=1e-8,
    )


@given(st.integers(2, 12), st.integers(1, 4), st.floats(1e-3, 1e3), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_tridiagonal_form_equals_the_dense_solve(n, L, ridge, seed):
    rng = np.random.default_rng(seed)
    root, Y = rng.normal(size=(n, max(1, n - 2))), rng.normal(size=(n, L))
    A = np.asfortranarray(root @ root.T)
    exact = np.linalg.solve(A + ridge * np.eye(n), Y)
    eigenvalues = np.linalg.eigvalsh(A)
    form = tridiagonalise(A.copy(order="F"), Y)
    assert_allclose(form.eigenvalues, eigenvalues, atol=1e-10 * (1 + eigenvalues[-1]))
    # The columns are QᵀY: quadratic forms are what can be compared.
    assert_allclose(form.columns.T @ form.solve(ridge), Y.T @ exact, rtol=1e-7, atol=1e-9)
    solution = form.solve(ridge, np.array([L - 1]))
    assert_allclose(solution.T @ solution, exact[:, [-1]].T @ exact[:, [-1]], rtol=1e-7, atol=1e-9)


# Extremes --------------------------------------------------------------------------------------------------


def test_two_rows_are_enough():
    data = TrainingRows(resolve_kernel("rbf"), np.array([[0.0], [1.0]]), np.array([0, 1]), np.ones(2))
    bank = fit_lssvm_bank(data, one_vs_one(2), C=1.0, gamma=1.0)
    K = naive.kernel_matrix("rbf", data.X, data.X, gamma=1.0)
    a, b = naive.lssvm_solve(K, np.array([-1.0, 1.0]), 1.0)
    assert_allclose(bank.dual_coef[0], a)
    assert_allclose(bank.intercept[0], b, atol=1e-15)
    # What is left after leaving one out is one row, which says its own label everywhere.
    assert_allclose(bank.loo_margins[:, 0], [1.0, -1.0])


@every_kernel
def test_rows_that_are_all_equal_say_the_mean_label(name):
    kernel, _, gamma = KERNELS[name]
    data = TrainingRows(resolve_kernel(kernel), np.full((9, 2), 7.3), np.repeat([0, 1], [6, 3]), np.ones(9))
    for C in (1.0, None):
        bank = fit_lssvm_bank(data, one_vs_one(2), C=C, gamma=gamma)
        assert_allclose(bank.margins(np.full((1, 2), 7.3)), -1 / 3, rtol=1e-6)
        assert np.isfinite(bank.norms).all()
        assert np.isfinite(bank.outputs(np.full((1, 2), 7.3), variances=True).variances).all()


def test_a_rare_class_is_never_lost_from_the_sample_of_the_search(monkeypatch):
    """Many rows are searched coarsely on a sample; a class of one row must be in it, whatever its number."""
    import polymargin.machines._gram as module

    monkeypatch.setattr(module, "_SAMPLE", 20)
    rng = np.random.default_rng(0)
    for before in range(25, 30):
        y = np.repeat([0, 1, 2], [before, 1, 59 - before])
        rows = rng.normal(size=(60, 2)) + y[:, np.newaxis]
        data = TrainingRows(resolve_kernel("rbf"), rows, y, np.ones(60))
        with np.errstate(all="raise", under="ignore"):
            bank = fit_lssvm_bank(data, one_vs_all(3), C=None, gamma=None, pools=[np.arange(3)])
        assert np.isfinite(bank.log_evidence).all()
        assert np.isfinite(bank.loo_margins).all()


def test_a_given_matrix_in_single_precision_is_a_kernel():
    """Rounding to single precision makes eigenvalues slightly negative; the ridge stays above them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 2))
    y = (rows[:, 0] + 0.5 * rng.normal(size=120) > 0).astype(int)
    exact = naive.kernel_matrix("rbf", rows, rows, gamma=0.01)
    banks = [
        fit_lssvm_bank(
            TrainingRows(resolve_kernel("precomputed"), K, y, np.ones(120)), one_vs_one(2), C=None, gamma=None
        )
        for K in (exact, exact.astype(np.float32).astype(np.float64))
    ]
    margins = [bank.margins(exact) for bank in banks]
    assert_allclose(margins[1], margins[0], atol=0.02)


def test_a_linear_machine_of_columns_far_from_zero_is_that_of_columns_about_zero():
    """Its margins are small sums of huge terms: the coefficients must add up to zero, not nearly."""
    rows, classes = blobs(n=60, K=2, seed=4)
    rows, far = np.round(rows * 2**20) / 2**20, 2.0**14  # so that the shift rounds nothing
    here, there = (
        fit_lssvm_bank(
            TrainingRows(resolve_kernel("linear"), X, classes, np.ones(60)), one_vs_one(2), C=1e-2, gamma=1.0
        )
        for X in (rows, rows + far)
    )
    assert_allclose(there.margins(rows + far), here.margins(rows), rtol=0, atol=1e-6)


class CountedRBF(RBF):
    """Counts how often it looks at the training rows."""

    prepared = 0

    def to_rows(self, Z):
        self.prepared += 1
        return super().to_rows(Z)


@pytest.mark.parametrize("gamma", [0.4, np.array([0.4, 0.4, 0.4, 0.2, 0.4, 0.3])])
def test_one_row_after_the_other_costs_its_own_work_only(gamma):
    kernel, book = CountedRBF(), one_vs_one(4)
    data = TrainingRows(kernel, X, Y_INDEX, np.ones(len(X)))
    bank = fit_lssvm_bank(data, book, C=2.0, gamma=gamma)
    kernel.prepared = 0
    together = bank.margins(X_NEW)
    one_by_one = np.vstack([bank.margins(X_NEW[[row]]) for row in range(len(X_NEW))])
    assert_allclose(one_by_one, together, rtol=1e-12)
    assert kernel.prepared == 1
    K = [RBF().gram(X_NEW, X, value) for value in np.broadcast_to(gamma, 6)]
    expected = [values @ coef + b for values, coef, b in zip(K, bank.dual_coef, bank.intercept, strict=True)]
    assert_allclose(together, np.transpose(expected), rtol=1e-10)


def test_what_is_kept_for_new_rows_is_not_stored():
    bank, _ = bank_for("rbf")
    before = pickle.dumps(bank)
    margins = bank.margins(X_NEW)
    assert pickle.dumps(bank) == before
    assert_array_equal(pickle.loads(before).margins(X_NEW), margins)
