"""The oracles of `naive` checked against each other, and the formulas of the library checked against the oracles."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import approx_fprime, minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, polynomial_kernel, rbf_kernel

import naive


def problem(n=30, d=3, seed=0, flip=0.15):
    """A small noisy two-class problem: X and y in ±1, with the classes of unequal size."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.4
    y = np.where(X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.3 > 0, 1.0, -1.0)
    return X, np.where(rng.random(n) < flip, -y, y)


def outputs(M, n=12, seed=0):
    """Random margins, variances and priors for a codebook."""
    rng = np.random.default_rng(seed)
    K, L = M.shape
    return rng.normal(size=(n, L)), 0.2 + rng.random((n, L)), rng.dirichlet(5 * np.ones(K))


GRAMS = {
    "linear": {"kind": "linear"},
    "poly": {"kind": "poly", "gamma": 0.5, "degree": 2, "coef0": 0.7},
    "rbf": {"kind": "rbf", "gamma": 0.4},
    "laplacian": {"kind": "laplacian", "gamma": 0.3},
    "exponential": {"kind": "exponential", "gamma": 0.3},
}
every_kernel = pytest.mark.parametrize("name", GRAMS)


# Kernels ---------------------------------------------------------------------------------------------------


def test_kernels_equal_scikit_learn():
    X, Z = problem(8)[0], problem(5, seed=1)[0]
    assert_allclose(naive.kernel_matrix("linear", X, Z), linear_kernel(X, Z), atol=1e-13)
    assert_allclose(
        naive.kernel_matrix("poly", X, Z, gamma=0.5, degree=4, coef0=2.0),
        polynomial_kernel(X, Z, degree=4, gamma=0.5, coef0=2.0),
    )
    assert_allclose(naive.kernel_matrix("rbf", X, Z, gamma=0.3), rbf_kernel(X, Z, gamma=0.3))
    assert_allclose(naive.kernel_matrix("laplacian", X, Z, gamma=0.3), laplacian_kernel(X, Z, gamma=0.3))
    matern = Matern(length_scale=1.0 / 0.3, nu=0.5)
    assert_allclose(naive.kernel_matrix("exponential", X, Z, gamma=0.3), matern(X, Z))


def test_poly2_features_reproduce_the_kernel():
    X, Z = problem(8)[0], problem(5, seed=1)[0]
    product = naive.poly2_features(X, 0.5, 0.7) @ naive.poly2_features(Z, 0.5, 0.7).T
    assert_allclose(product, naive.kernel_matrix("poly", X, Z, gamma=0.5, degree=2, coef0=0.7))


# LS-SVM ----------------------------------------------------------------------------------------------------


@every_kernel
def test_classification_form_equals_regression_form(name):
    X, y = problem()
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    a, b = naive.lssvm_solve(K, y, 3.0)
    alpha, b4 = naive.lssvm_solve_classification_form(K, y, 3.0)
    assert_allclose(alpha * y, a, atol=1e-10)
    assert_allclose(b4, b, atol=1e-10)


def test_solution_minimises_the_weighted_primal():
    X, y = problem()
    s = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    a, b = naive.lssvm_solve(X @ X.T, y, 2.0, s)
    w = X.T @ a

    def cost(p):
        return 0.5 * p[:-1] @ p[:-1] + 1.0 * np.sum(s * (y - X @ p[:-1] - p[-1]) ** 2)

    best = cost(np.append(w, b))
    for direction in np.random.default_rng(2).normal(size=(50, 4)):
        assert cost(np.append(w, b) + 1e-3 * direction) > best
    gradient = approx_fprime(np.append(w, b), cost, 1e-7)
    assert_allclose(gradient, 0.0, atol=1e-4)


def test_weights_are_multiplicities():
    X, y = problem()
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    s = np.random.default_rng(1).integers(0, 4, len(y))
    copies = np.repeat(np.arange(len(y)), s)
    a, b = naive.lssvm_solve(K, y, 2.0, s)
    a_copies, b_copies = naive.lssvm_solve(K[np.ix_(copies, copies)], y[copies], 2.0)
    assert_allclose(b, b_copies)
    assert_allclose(K @ a, K[:, copies] @ a_copies, atol=1e-11)
    assert np.all(a[s == 0] == 0)


def test_solve_without_the_border():
    """(K + I/C)[A v] = [Y 1], b = vᵀY / vᵀ1, a = A - v b, for many columns at once."""
    X, y = problem()
    Y = np.column_stack([y, np.roll(y, 3), np.roll(y, 7)])
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    A = np.linalg.solve(K + np.eye(len(y)) / 5.0, Y)
    v = np.linalg.solve(K + np.eye(len(y)) / 5.0, np.ones(len(y)))
    b_fast = v @ Y / v.sum()
    a, b = naive.lssvm_solve(K, Y, 5.0)
    assert_allclose(b, b_fast)
    assert_allclose(a, A - np.outer(v, b_fast), atol=1e-11)
    a0, b0 = naive.lssvm_solve(K, Y[:, 0], 5.0)
    assert_allclose(a[:, 0], a0)
    assert_allclose(b[0], b0)


@pytest.mark.parametrize("weighted", [False, True])
def test_loo_closed_form(weighted):
    """y - ŷ⁽⁻ⁱ⁾ = a_i / ([K + diag(1/(Cs))]⁻¹_ii - v_i²/1ᵀv) = (y - ŷ)/(1 - h_ii)."""
    X, y = problem()
    Y = np.column_stack([y, np.roll(y, 3)])
    n, C = len(y), 5.0
    s = np.random.default_rng(1).integers(1, 4, n) if weighted else np.ones(n)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    a, b = naive.lssvm_solve(K, Y, C, s)
    inverse = np.linalg.inv(K + np.diag(1.0 / (C * s)))
    v = inverse.sum(axis=1)
    loo = naive.lssvm_loo_margins(K, Y, C, s)
    assert_allclose(Y - a / (np.diag(inverse) - v**2 / v.sum())[:, None], loo, atol=1e-10)

    a_hat, b_hat = naive.lssvm_solve(K, np.eye(n), C, s)
    h = np.diag(naive.lssvm_predict(K, a_hat, b_hat))
    fitted = naive.lssvm_predict(K, a, b)
    assert_allclose(Y - (Y - fitted) / (1 - h)[:, None], loo, atol=1e-10)


# Evidence --------------------------------------------------------------------------------------------------


def test_log_evidence_by_quadrature_over_the_bias():
    X, y = problem(8)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    sigma = K / 0.7 + np.eye(8) / 3.0
    integral, _ = quad(lambda b: multivariate_normal.pdf(y, b * np.ones(8), sigma), -20, 20, epsabs=0)
    assert_allclose(naive.log_evidence(K, y, 0.7, 3.0), np.log(integral), rtol=1e-9)


def test_log_evidence_in_the_primal():
    """MacKay's formula, exact here: n_f/2 log mu + N/2 log zeta - ½ log|H| - J(MP) + 2π terms."""
    X, y = problem()
    (N, d), mu, zeta = X.shape, 0.7, 3.0
    a, b = naive.lssvm_solve(X @ X.T, y, zeta / mu)
    w = X.T @ a
    J = mu / 2 * w @ w + zeta / 2 * np.sum((y - X @ w - b) ** 2)
    G = np.column_stack([X, np.ones(N)])
    H = zeta * G.T @ G + mu * np.diag([1.0] * d + [0.0])
    expected = d / 2 * np.log(mu) + N / 2 * np.log(zeta) - J - 0.5 * np.linalg.slogdet(H)[1]
    expected -= (N - 1) / 2 * np.log(2 * np.pi)
    assert_allclose(naive.log_evidence(X @ X.T, y, mu, zeta), expected)


def test_log_evidence_weights_are_multiplicities():
    X, y = problem(12)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    s = np.random.default_rng(1).integers(0, 4, len(y))
    copies = np.repeat(np.arange(len(y)), s)
    expected = naive.log_evidence(K[np.ix_(copies, copies)], y[copies], 0.7, 3.0)
    assert_allclose(naive.log_evidence(K, y, 0.7, 3.0, s), expected)


@every_kernel
def test_energies_from_the_eigenvalues(name):
    """E_W = ½ Σ λt²/(λ+1/γ)², E_D = ½ Σ (1/γ)² t²/(λ+1/γ)², with t = Uᵀ M y."""
    X, y = problem()
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    M = np.eye(len(y)) - 1.0 / len(y)
    lam, U = np.linalg.eigh(M @ K @ M)
    t = U.T @ M @ y
    for C in (0.01, 1.0, 100.0):
        E_W, E_D = naive.energies(K, y, C)
        assert_allclose(E_W, 0.5 * np.sum(lam * t**2 / (lam + 1 / C) ** 2), rtol=1e-8)
        assert_allclose(E_D, 0.5 * np.sum((1 / C) ** 2 * t**2 / (lam + 1 / C) ** 2), rtol=1e-8)


@every_kernel
def test_level2_cost_is_the_profile_of_the_evidence(name):
    """-½ cost(C) and max over mu of log p(D | mu, mu C) differ by a constant that depends on N alone."""
    X, y = problem()
    N = len(y)
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    constant = (N - 1) / 2 * (np.log((N - 1) / 2) - 1 - np.log(2 * np.pi)) - 0.5 * np.log(N)
    for C in np.logspace(-3, 3, 7):
        mu, zeta = naive.evidence_mu_zeta_given_C(K, y, C)
        profile = naive.log_evidence(K, y, mu, zeta)
        assert_allclose(-0.5 * naive.evidence_level2_cost(K, y, C) + constant, profile, rtol=1e-9)
        for factor in (0.99, 1.01):  # and that mu is the maximum over mu
            assert naive.log_evidence(K, y, mu * factor, zeta * factor) < profile


@pytest.mark.parametrize("name", ["linear", "poly", "rbf"])
def test_brute_force_finds_the_level2_minimum(name):
    """the 2-D maximum is the 1-D minimum; there 2μE_W = γ_eff - 1 and 2ζE_D = N - γ_eff."""
    X, y = problem()
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    mu, zeta, value = naive.evidence_mu_zeta_brute(K, y)
    assert_allclose(naive.log_evidence(K, y, mu, zeta), value)
    one = minimize_scalar(
        lambda g: naive.evidence_level2_cost(K, y, np.exp(g)),
        bounds=np.log(zeta / mu) + np.array([-3, 3]),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert_allclose(np.log(zeta / mu), one.x, atol=1e-4)
    assert_allclose(naive.evidence_mu_zeta_given_C(K, y, np.exp(one.x)), (mu, zeta), rtol=1e-4)
    E_W, E_D = naive.energies(K, y, zeta / mu)
    effective = naive.gamma_eff(K, mu, zeta)
    assert_allclose(2 * mu * E_W, effective - 1, rtol=1e-4)
    assert_allclose(2 * zeta * E_D, len(y) - effective, rtol=1e-4)
    assert_allclose(2 * mu * E_W + 2 * zeta * E_D, len(y) - 1, rtol=1e-6)


@pytest.mark.parametrize("name", ["linear", "poly", "rbf"])
def test_level3_is_the_evidence_plus_the_occam_factors(name):
    """Level 3 at the optimum: log p(D|mu,zeta) - ½ log(γ_eff-1) - ½ log(N-γ_eff) + const(N)."""
    X, y = problem()
    N = len(y)
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    mu, zeta, value = naive.evidence_mu_zeta_brute(K, y)
    effective = naive.gamma_eff(K, mu, zeta)
    constant = (N - 1) / 2 * (1 + np.log(2 * np.pi)) + 0.5 * np.log(N)
    occam = -0.5 * np.log(effective - 1) - 0.5 * np.log(N - effective)
    assert_allclose(naive.evidence_log_model(K, y, mu, zeta), value + occam + constant, atol=1e-5)


def test_gamma_eff_is_the_trace_of_the_hat_matrix():
    X, y = problem()
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    a, b = naive.lssvm_solve(K, np.eye(len(y)), 3.0 / 0.7)
    assert_allclose(np.trace(naive.lssvm_predict(K, a, b)), naive.gamma_eff(K, 0.7, 3.0))


def test_level2_is_flat_when_the_kernel_is_the_identity():
    """A hazard, not a misprint: for K = I signal and noise cannot be told apart and level 3 is unbounded."""
    _, y = problem()
    K = np.eye(len(y))
    costs = [naive.evidence_level2_cost(K, y, C) for C in (1e-3, 1.0, 1e3)]
    assert_allclose(costs, costs[0], rtol=1e-9)
    models = [naive.evidence_log_model(K, y, *naive.evidence_mu_zeta_given_C(K, y, C)) for C in (1, 1e3, 1e6)]
    assert models[0] + 2 < models[1] < models[2] - 2


def test_level3_can_prefer_a_useless_kernel_width():
    """A hazard, not a misprint: -½ log(N - γ_eff) rewards an rbf so narrow that C runs to infinity."""
    X, y = problem()
    best = {}
    for gamma in (0.3, 10.0):
        K = naive.kernel_matrix("rbf", X, X, gamma=gamma)
        C = min(np.logspace(-4, 6, 41), key=lambda C, K=K: naive.evidence_level2_cost(K, y, C))
        mu, zeta = naive.evidence_mu_zeta_given_C(K, y, C)
        best[gamma] = naive.log_evidence(K, y, mu, zeta), naive.evidence_log_model(K, y, mu, zeta)
    assert best[0.3][0] > best[10.0][0] + 0.5  # the evidence itself prefers the sensible width ...
    assert best[0.3][1] < best[10.0][1] - 4  # ... and level 3 the other


def test_level2_is_unbounded_with_consistent_duplicates():
    """A hazard, not a misprint: equal rows with equal labels and a full-rank kernel drive C to infinity."""
    X, y = problem(20)
    X, y = np.vstack([X, X[:4]]), np.append(y, y[:4])
    K = naive.kernel_matrix("rbf", X, X, gamma=2.0)
    costs = [naive.evidence_level2_cost(K, y, C) for C in (1e6, 1e8, 1e10)]
    assert_allclose(np.diff(costs), -4 * np.log(100.0), rtol=0.01)


# Predictive variance ---------------------------------------------------------------------------------------


def features(name, X):
    return X if name == "linear" else naive.poly2_features(X, 0.5, 0.7)


@pytest.mark.parametrize("name", ["linear", "poly"])
def test_printed_variance_needs_the_minus_sign(name):
    X, y = problem()
    X_new = problem(6, seed=9)[0]
    mu, zeta = 0.7, 3.0
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    k_new = naive.kernel_matrix(X=X_new, Z=X, **GRAMS[name])
    k_new_new = np.diag(naive.kernel_matrix(X=X_new, Z=X_new, **GRAMS[name]))
    exact = naive.predictive_variance_primal(features(name, X), features(name, X_new), mu, zeta)
    corrected = naive.predictive_variance_printed(K, k_new, k_new_new, y, mu, zeta, sign=-1)
    printed = naive.predictive_variance_printed(K, k_new, k_new_new, y, mu, zeta, sign=+1)
    assert_allclose(corrected, exact, rtol=1e-8, atol=1e-8)
    assert np.abs(printed - exact).min() > 1e-3
    # What the misprint adds: 4/mu times the mean of K(x, x_i), whose sign is that of the mean.
    assert_allclose(printed - corrected, 4 / mu * k_new.mean(axis=1))
    assert isinstance(naive.predictive_variance_printed(K, k_new[0], k_new_new[0], y, mu, zeta), float)


@every_kernel
def test_centred_variance(name):
    """σ² = 1/(Nζ) + (1/μ)[k̃(x,x) - ζ k̃(x)ᵀ(μI + ζG)⁻¹ k̃(x)]."""
    X, y = problem()
    X_new = problem(6, seed=9)[0]
    N, mu, zeta = len(y), 0.7, 3.0
    K = naive.kernel_matrix(X=X, Z=X, **GRAMS[name])
    k_new = naive.kernel_matrix(X=X_new, Z=X, **GRAMS[name])
    k_new_new = np.diag(naive.kernel_matrix(X=X_new, Z=X_new, **GRAMS[name]))
    M = np.eye(N) - 1.0 / N
    k_tilde = (k_new - K.mean(axis=0)) @ M
    kxx_tilde = k_new_new - 2 * k_new.mean(axis=1) + K.mean()
    middle = np.linalg.solve(mu * np.eye(N) + zeta * M @ K @ M, k_tilde.T)
    centred = 1 / (N * zeta) + (kxx_tilde - zeta * np.sum(k_tilde.T * middle, axis=0)) / mu
    corrected = naive.predictive_variance_printed(K, k_new, k_new_new, y, mu, zeta)
    assert_allclose(centred, corrected, rtol=1e-8)


def test_eigenvectors_solve_eq_13():
    """The symmetric form used for eq. (13) has its eigenvalues and eigenvectors."""
    X, y = problem()
    omega = np.outer(y, y) * naive.kernel_matrix("rbf", X, X, gamma=0.4)
    P = np.eye(len(y)) - np.outer(y, y) / len(y)
    lam, V = np.linalg.eigh(P @ omega @ P)
    keep = lam > 1e-12 * lam.max()
    assert_allclose(P @ omega @ V[:, keep], V[:, keep] * lam[keep], atol=1e-11)
    gram = V[:, keep].T @ omega @ V[:, keep]
    assert_allclose(gram, np.diag(lam[keep]), atol=1e-11)


def test_primal_variance_weights_and_hessian():
    X, y = problem()
    s = np.random.default_rng(1).integers(0, 4, len(y))
    x, mu, zeta = np.array([0.3, -1.0, 2.0]), 0.7, 3.0
    weighted = naive.predictive_variance_primal(X, x, mu, zeta, s)
    assert_allclose(weighted, naive.predictive_variance_primal(np.repeat(X, s, axis=0), x, mu, zeta))

    # The variance is how far the output moves with a pseudo-observation: Sherman-Morrison on H.
    K = X @ X.T
    a, b = naive.lssvm_solve(K, y, zeta / mu)
    before = naive.lssvm_predict(x @ X.T, a, b)
    X1, y1 = np.vstack([X, x]), np.append(y, 5.0)
    a1, b1 = naive.lssvm_solve(X1 @ X1.T, y1, zeta / mu)
    after = naive.lssvm_predict(x @ X1.T, a1, b1)
    variance = naive.predictive_variance_primal(X, x, mu, zeta)
    assert_allclose((after - before) / (5.0 - before), zeta * variance / (1 + zeta * variance))


# Codebooks -------------------------------------------------------------------------------------------------


def test_codebooks():
    assert_array_equal(naive.one_vs_one(3), [[-1, -1, 0], [1, 0, -1], [0, 1, 1]])
    assert_array_equal(naive.one_vs_all(3), [[1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    for K in (2, 3, 4, 5, 6):
        M = naive.exhaustive_columns(K)
        assert M.shape == (K, 2 ** (K - 1) - 1)
        assert len({tuple(c) for c in np.hstack([M, -M]).T}) == 2 * M.shape[1]
        assert np.all(np.abs(M.sum(axis=0)) < K)
        off_diagonal = naive.codebook_distance(M)[~np.eye(K, dtype=bool)]
        assert_array_equal(off_diagonal, 2 ** (K - 2))
    # For three classes the exhaustive code is one-vs-all, up to the sign and the order of the columns.
    ours = {tuple(c * c[0]) for c in naive.one_vs_all(3).T}
    assert ours == {tuple(c) for c in naive.exhaustive_columns(3).T}


def test_codebook_distance():
    assert_array_equal(naive.codebook_distance(naive.one_vs_all(4)), 2 * (1 - np.eye(4)))
    D = naive.codebook_distance(naive.one_vs_one(4))
    assert_array_equal(np.diag(D), 1.5)
    assert_array_equal(D[~np.eye(4, dtype=bool)], 3.5)


# Decoders --------------------------------------------------------------------------------------------------


def test_hamming_by_hand():
    M = naive.one_vs_all(3)
    z = np.array([[0.5, -1, -1], [-0.2, -0.1, -0.9], [0.3, 0.4, -1.0]])
    assert_array_equal(naive.hamming_decode(M, z), [0, 1, 1])


@pytest.mark.parametrize("K", [2, 3, 4, 6])
def test_votes_are_hamming_on_one_vs_one(K):
    M = naive.one_vs_one(K)
    z = np.round(outputs(M, 200)[0], 1)  # with exact zeros and ties among them
    assert_array_equal(naive.votes_decode(M, z), naive.hamming_decode(M, z))
    assert_array_equal(naive.votes_decode(-M, -z), naive.votes_decode(M, z))


def test_dag_agrees_with_votes_where_one_class_beats_all_others():
    M = naive.one_vs_one(4)
    z = outputs(M, 300)[0]
    wins = np.array([[np.sum(M[k] * np.sign(row) > 0) for k in range(4)] for row in z])
    clear = wins.max(axis=1) == 3
    assert 0 < clear.sum() < len(z)
    assert_array_equal(naive.dag_decode(M, z)[clear], naive.votes_decode(M, z)[clear])
    assert_array_equal(naive.dag_decode(M, z)[clear], wins[clear].argmax(axis=1))
    order = np.random.default_rng(0).permutation(M.shape[1])  # the order of the columns does not matter
    assert_array_equal(naive.dag_decode(M[:, order], z[:, order]), naive.dag_decode(M, z))


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic", "exponential"])
def test_loss_decoding(loss):
    for M in (naive.one_vs_all(4), naive.exhaustive_columns(4), naive.one_vs_one(4)):
        z = outputs(M, 20)[0]
        labels, totals = naive.loss_decode(M, z, loss)
        assert_array_equal(labels, totals.argmin(axis=1))
        vectorised = {
            "squared": lambda m: (1 - m) ** 2,
            "hinge": lambda m: np.clip(1 - m, 0, None),
            "logistic": lambda m: np.log1p(np.exp(-m)),
            "exponential": lambda m: np.exp(-m),
        }[loss]
        assert_allclose(totals, vectorised(M[None] * z[:, None, :]).sum(axis=2))
    totals = naive.loss_decode(np.array([[1, 0], [-1, 1]]), np.array([[1.0, 7.0]]), loss)[1]
    at_zero = {"squared": 1, "hinge": 1, "logistic": np.log(2), "exponential": 1}[loss]
    assert_allclose(totals[0, 0], naive.binary_loss(loss, 1.0) + at_zero)


def test_loss_decoding_of_one_vs_all_is_the_largest_margin():
    M = naive.one_vs_all(5)
    z = outputs(M, 50)[0]
    for loss in ("squared", "logistic", "exponential"):
        assert_array_equal(naive.loss_decode(M, z, loss)[0], z.argmax(axis=1))


@pytest.mark.parametrize("M", [naive.one_vs_all(4), naive.exhaustive_columns(4), np.array([[1], [-1]])])
def test_bayes_decoders_agree_without_dont_cares(M):
    z, variance, priors = outputs(M)
    direct = naive.bayes_enumerate(M, z, variance, priors)
    assert_allclose(direct.sum(axis=1), 1)
    assert_allclose(np.exp(naive.bayes_enumerate_log(M, z, variance, priors)), direct)
    assert_allclose(naive.bayes_sequential(M, z, variance, priors), direct)
    assert_allclose(naive.bayes_sequential(M, z, variance, priors, keep_mass=False), direct)
    assert_allclose(naive.bayes_joint(M, z, variance, priors), direct)


def test_bayes_is_loss_decoding_with_equal_priors_and_variances():
    """Seed 000, below eq. (19)."""
    M = naive.exhaustive_columns(4)
    z = outputs(M, 50)[0]
    P = naive.bayes_enumerate(M, z, np.full(z.shape, 0.5), np.full(4, 0.25))
    assert_array_equal(P.argmax(axis=1), naive.loss_decode(M, z, "squared")[0])


def test_bayes_binary_is_a_logistic_of_the_margin():
    """Seed 000 eqs. (10), (11): log odds = 2 z / v + log prior odds."""
    M = np.array([[1], [-1]])
    z, variance, priors = outputs(M)
    P = naive.bayes_enumerate(M, z, variance, priors)
    log_odds = np.log(P[:, 0] / P[:, 1])
    assert_allclose(log_odds, 2 * z[:, 0] / variance[:, 0] + np.log(priors[0] / priors[1]))


def test_bayes_with_dont_cares():
    M = naive.one_vs_one(4)
    z, variance, priors = outputs(M)
    reverse = np.arange(M.shape[1])[::-1]
    args = (M, z, variance, priors)
    reversed_args = (M[:, reverse], z[:, reverse], variance[:, reverse], priors)

    # Eq. (20) as printed does not sum to one; with the mass kept it does.
    assert np.abs(naive.bayes_sequential(*args, keep_mass=False).sum(axis=1) - 1).min() > 0.01
    P = naive.bayes_sequential(*args)
    assert_allclose(P.sum(axis=1), 1)
    # Even so the order of the columns matters; in the joint form it does not.
    assert np.abs(P - naive.bayes_sequential(*reversed_args)).max() > 0.01
    assert_allclose(naive.bayes_joint(*args), naive.bayes_joint(*reversed_args))

    # One column: only the classes that use it change, and they keep their joint mass, in both forms alike.
    one = (M[:, :1], z[:, :1], variance[:, :1], priors)
    P = naive.bayes_sequential(*one)
    assert_allclose(P, naive.bayes_joint(*one))
    assert_allclose(P[:, 2:], np.broadcast_to(priors[2:], (len(z), 2)))
    assert_allclose(P[:, :2].sum(axis=1), priors[:2].sum())


@pytest.mark.parametrize("decode", [naive.bayes_enumerate, naive.bayes_enumerate_log])
def test_enumeration_refuses_dont_cares(decode):
    M = naive.one_vs_one(3)
    with pytest.raises(ValueError, match="don't cares"):
        decode(M, *outputs(M))


def test_log_enumeration_survives_underflow():
    M = naive.one_vs_all(3)
    z = np.array([[0.4, -0.9, -1.2]])
    log_P = naive.bayes_enumerate_log(M, z, np.full((1, 3), 1e-6), np.full(3, 1 / 3))
    assert np.all(np.isfinite(log_P))
    assert log_P.argmax() == 0
