"""Selection by the evidence: level two and level three against brute force."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.base import clone

import naive
from conftest import blobs
from polymargin import LSSVMClassifier
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.kernels import RBF, resolve_kernel
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.papers._codings import least_squares, predict_codings
from polymargin.selection import evidence
from polymargin.selection.settings import SearchSettings


def problem(n=30, d=3, seed=0, flip=0.2):
    """Two classes that overlap, with labels flipped at random so that the noise has an interior optimum."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.4
    y = (X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.3 > 0).astype(int)
    return X, np.where(rng.random(n) < flip, 1 - y, y)


def rings(n=40, K=2, seed=0):
    """K noisy rings around each other, in which a kernel of a certain width is clearly the best."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    angle, radius = rng.uniform(0, 2 * np.pi, n), 1.0 + y + 0.35 * rng.normal(size=n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def fitted(X, y, kernel="rbf", gamma=0.4, C=None, weights=None, book=None, **more):
    weights = np.ones(len(y)) if weights is None else weights
    data = TrainingRows(resolve_kernel(kernel), X, y, weights)
    return fit_lssvm_bank(data, one_vs_one(2) if book is None else book, C=C, gamma=gamma, **more)


def lowest_ridge(K):
    """The least ridge that is allowed: a share of the mean eigenvalue of the centred kernel matrix."""
    return evidence.RIDGE_RANGE[0] * np.mean(naive.centred_eigenvalues(K))


@pytest.fixture
def free(monkeypatch):
    """Let the ridge go as low as it will: the theory without the floor."""
    monkeypatch.setattr(evidence, "RIDGE_RANGE", (1e-6, 1e6))


def signs(y):
    return 2.0 * y - 1.0


CASES = [("rbf", {"kind": "rbf", "gamma": 0.4}), ("linear", {"kind": "linear"})]
kernels = pytest.mark.parametrize(("kernel", "oracle"), CASES, ids=["rbf", "linear"])


# Level two -------------------------------------------------------------------------------------------------


@kernels
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_stationary(kernel, oracle, seed, free):
    """2 mu E_W = gamma_eff - 1 and 2 zeta E_D = N - gamma_eff where the ridge is above its floor."""
    X, y = problem(seed=seed)
    bank = fitted(X, y, kernel)
    K = naive.kernel_matrix(X=X, Z=X, **oracle)
    mu, zeta = bank.mu[0], bank.zeta[0]
    assert 1.0 / bank.C[0] > 1.01 * lowest_ridge(K)
    E_W, E_D = naive.energies(K, signs(y), bank.C[0])
    effective = naive.gamma_eff(K, mu, zeta)
    assert_allclose(zeta / mu, bank.C[0], rtol=1e-12)
    assert_allclose(2 * mu * E_W, effective - 1.0, rtol=1e-6)
    assert_allclose(2 * zeta * E_D, len(y) - effective, rtol=1e-6)


@kernels
@pytest.mark.parametrize("seed", range(2))
def test_mu_and_zeta_equal_brute_force(kernel, oracle, seed, free):
    X, y = problem(n=20, seed=seed)
    bank = fitted(X, y, kernel)
    mu, zeta, _ = naive.evidence_mu_zeta_brute(naive.kernel_matrix(X=X, Z=X, **oracle), signs(y))
    assert_allclose([bank.mu[0], bank.zeta[0]], [mu, zeta], rtol=1e-5)


def separable(n=24, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=(n, 2)) * 0.3 + 4.0 * y[:, np.newaxis], y


@pytest.mark.parametrize("n", [6, 24, 60])
def test_the_ridge_has_a_floor_where_the_labels_contradict_nothing(n):
    """Without it the noise 1/zeta would go to zero: the evidence has its maximum on the floor."""
    X, y = separable(n)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    bank = fitted(X, y)
    assert_allclose(1.0 / bank.C[0], lowest_ridge(K), rtol=1e-9)
    chosen = naive.evidence_level2_cost(K, signs(y), bank.C[0])
    assert naive.evidence_level2_cost(K, signs(y), 1.5 * bank.C[0]) < chosen
    # Among the ridges that are allowed, the chosen one is the best.
    for C in bank.C[0] * np.geomspace(1e-4, 1.0, 30):
        assert naive.evidence_level2_cost(K, signs(y), C) >= chosen - 1e-9


def test_on_the_floor_the_optimum_is_not_stationary():
    X, y = separable()
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    bank = fitted(X, y)
    E_W, E_D = naive.energies(K, signs(y), bank.C[0])
    effective = naive.gamma_eff(K, bank.mu[0], bank.zeta[0])
    assert abs(2 * bank.mu[0] * E_W - (effective - 1.0)) > 0.1
    # The sum of both conditions holds for the best mu of any ridge.
    assert_allclose(2 * bank.mu[0] * E_W + 2 * bank.zeta[0] * E_D, len(y) - 1.0, rtol=1e-9)


@pytest.mark.parametrize("floor", [None, 1e-6])
@pytest.mark.parametrize("seed", range(6))
def test_the_chosen_ridge_is_the_best_of_all_allowed(seed, floor, monkeypatch):
    if floor is not None:
        monkeypatch.setattr(evidence, "RIDGE_RANGE", (floor, 1e6))
    rng = np.random.default_rng(seed)
    X, y = problem(n=25, seed=seed, flip=rng.choice([0.0, 0.1, 0.3]))
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    bank = fitted(X, y)
    assert 1.0 / bank.C[0] >= lowest_ridge(K) * (1 - 1e-9)
    chosen = naive.evidence_level2_cost(K, signs(y), bank.C[0])
    low, high = evidence.RIDGE_RANGE
    for ridge in lowest_ridge(K) * np.geomspace(1.0, high / low, 300):
        assert naive.evidence_level2_cost(K, signs(y), 1.0 / ridge) >= chosen - 1e-8


def test_the_noise_floor_is_a_parameter():
    X, y = separable()
    level = level_two(naive.kernel_matrix("rbf", X, X, gamma=0.4), y)
    members, scale = [(level, np.array([0]))], level.centring.bias_eigenvalue
    # On separable rows the floor is binding, whatever it is; without one the ridge goes to what the digits allow.
    for floor in (0.5, 0.25, 0.1, 1e-3):
        assert_allclose(evidence.best_ridge(members, floor), floor * scale, rtol=1e-6)
    assert evidence.best_ridge(members) == evidence.best_ridge(members, 0.25)
    assert evidence.best_ridge(members, 0.0) < 1e-6 * scale
    for ridge in (None, 0.3):
        chosen = evidence.choose(
            lambda group, gamma, sample: level,
            [[(0, np.array([0]))]],
            gammas=0.4,
            ridge=ridge,
            noise_floor=0.1,
        )
        assert_allclose(chosen[0].ridge, 0.1 * scale if ridge is None else ridge, rtol=1e-6)
    # Where it is not binding it changes nothing.
    X, y = problem(flip=0.3)
    members = [(level_two(naive.kernel_matrix("rbf", X, X, gamma=0.4), y), np.array([0]))]
    assert_allclose(evidence.best_ridge(members, 0.0), evidence.best_ridge(members), rtol=1e-9)
    for bad in (-0.1, np.nan, 1e7):
        with pytest.raises(ValueError, match="noise_floor must be a number from 0"):
            evidence.best_ridge(members, bad)


#: Rows on which the most evidence is below the default floor, but not at zero.
BELOW = [{"seed": 5, "flip": 0.0}, {"seed": 3, "flip": 0.05}, {"seed": 0, "flip": 0.1}]


@pytest.mark.parametrize("rows", BELOW)
def test_without_a_floor_the_classifier_is_that_of_the_paper(rows):
    """Level two by brute force, where the default floor is binding."""
    X, y = problem(n=24, **rows)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    mu, zeta, _ = naive.evidence_mu_zeta_brute(K, signs(y))
    assert mu / zeta < 0.98 * lowest_ridge(K)
    model = LSSVMClassifier(kernel="rbf", gamma=0.4, selection="evidence", decoding="bayes")
    assert_allclose(1.0 / model.fit(X, y).C_, lowest_ridge(K), rtol=1e-9)
    assert model.mu_[0] != pytest.approx(mu, rel=1e-3)
    floored = model.predict_proba(X)
    model.set_params(noise_floor=0).fit(X, y)
    assert_allclose([model.mu_[0], model.zeta_[0]], [mu, zeta], rtol=1e-5)
    assert_allclose(model.C_, zeta / mu, rtol=1e-5)
    assert np.abs(model.predict_proba(X) - floored).max() > 1e-3
    assert_allclose(model.log_evidence_, naive.evidence_log_model(K, signs(y), mu, zeta), rtol=1e-6)


def test_without_a_floor_gamma_is_the_best_one_for_the_paper():
    """Level three: more evidence than on the floor, and than other gammas have, each with its own best C."""
    X, y = problem(n=40, seed=5, flip=0.0)
    floored = LSSVMClassifier(kernel="rbf", selection="evidence", decoding="bayes").fit(X, y)
    model = clone(floored).set_params(noise_floor=0.0).fit(X, y)
    assert model.log_evidence_[0] > floored.log_evidence_[0]
    for factor in (0.25, 4.0):
        other = clone(model).set_params(gamma=factor * model.gamma_[0]).fit(X, y)
        assert other.log_evidence_[0] < model.log_evidence_[0]


def test_every_kernel_to_choose_from_has_the_floor(monkeypatch):
    """Whether they are compared on all rows or on a sample."""
    X, y = problem(n=60, seed=5, flip=0.0)
    asked = []
    choose = evidence.choose
    monkeypatch.setattr(
        evidence, "choose", lambda *args, **more: asked.append(more["noise_floor"]) or choose(*args, **more)
    )
    for search in (None, SearchSettings(operations=1.0, decided_rows=30, least_rows=10)):
        model = LSSVMClassifier(selection="evidence", noise_floor=0.01, search=search).fit(X, y)
        assert (model.search_results_["n_rows"][0] < 60) == (search is not None)
    assert asked == [0.01] * 4


def test_the_default_floor_of_the_classifier_is_that_of_the_search():
    assert LSSVMClassifier().noise_floor == evidence.RIDGE_RANGE[0]


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf, "0.25", None, True])
def test_the_classifier_refuses_what_is_no_floor(bad):
    X, y = problem()
    with pytest.raises(ValueError, match="noise_floor must be a number from 0"):
        LSSVMClassifier(noise_floor=bad, gamma=0.4, C=1.0).fit(X, y)


def test_other_selections_have_no_floor():
    X, y = problem()
    for selection in ("loo", "gcv"):
        models = [LSSVMClassifier(kernel="rbf", selection=selection, noise_floor=floor) for floor in (0, 100)]
        assert_array_equal(*(model.fit(X, y).predict_proba(X) for model in models))


def test_comparisons_take_a_floor():
    X, y = problem(seed=5, flip=0.0)
    options = {"codings": ["minimal"], "decodings": ["bayes"]}
    (prediction,) = predict_codings(X, y, X, machines=partial(least_squares, noise_floor=0.0), **options)
    model = LSSVMClassifier(
        kernel="rbf", coding="minimal", decoding="bayes", selection="evidence", noise_floor=0
    )
    assert_allclose(prediction.log_proba, model.fit(X, y).predict_log_proba(X), rtol=1e-8)


def test_cost_and_its_derivative():
    X, y = problem()
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    level = level_two(K, y)
    for ridge in (1e-3, 0.1, 1.0, 100.0):
        cost, slope = level.cost(ridge)
        assert_allclose(cost[0] - level.cost(1.0)[0][0], difference_of_costs(K, y, ridge, 1.0), atol=1e-8)
        step = 1e-5
        numeric = (level.cost(ridge * np.exp(step))[0] - level.cost(ridge * np.exp(-step))[0]) / (2 * step)
        assert_allclose(slope, numeric, atol=1e-5 * max(1.0, abs(slope[0])))


def level_two(K, y, weights=None):
    from polymargin.solvers.centring import centre

    centring, A = centre(K.copy(), np.ones(len(y)) if weights is None else weights)
    return evidence.LevelTwo.of(A, centring, signs(y)[:, np.newaxis])


def difference_of_costs(K, y, one, other):
    # Ours has log tᵀ(A + ε)⁻¹t in place of log(E_W + E_D/ε); they differ by the factor 2.
    first, second = (naive.evidence_level2_cost(K, signs(y), 1.0 / ridge) for ridge in (one, other))
    return first - second


# Level three -----------------------------------------------------------------------------------------------


@kernels
@pytest.mark.parametrize("seed", range(4))
def test_log_evidence_equals_the_oracle_up_to_a_constant_in_N(kernel, oracle, seed):
    """Differences between kernels on the same rows, where at least one parameter and one residual are left."""
    X, y = problem(seed=seed)
    ours, theirs = [], []
    for gamma in (0.1, 0.3, 1.0) if kernel == "rbf" else (1.0,):
        for C in (0.3, 3.0):
            bank = fitted(X, y, kernel, gamma=gamma, C=C)
            K = naive.kernel_matrix(X=X, Z=X, **(oracle | {"gamma": gamma}))
            effective = naive.gamma_eff(K, bank.mu[0], bank.zeta[0])
            assert effective - 1 >= 1
            assert len(y) - effective >= 1
            ours.append(bank.log_evidence[0])
            theirs.append(naive.evidence_log_model(K, signs(y), bank.mu[0], bank.zeta[0]))
    constants = np.array(ours) - np.array(theirs)
    assert_allclose(constants, constants[0], atol=1e-8)


def lattice_evidence(X, y, k, weights, book=None, kernel="rbf"):
    """Summed log-evidence of all machines that share one gamma of the lattice and the best common ridge."""
    data = TrainingRows(resolve_kernel(kernel), X, y, weights)
    book = one_vs_one(2) if book is None else book
    gamma = data.kernel.unit_gamma(X, weights) * 2.0 ** (k / 2)
    bank = fit_lssvm_bank(data, book, C=None, gamma=gamma, pools=[np.arange(book.n_columns)])
    return bank.log_evidence.sum(), gamma, bank.C[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_the_chosen_gamma_is_the_best_of_the_lattice(seed, kernel):
    X, y = rings(seed=seed)
    best = max(lattice_evidence(X, y, k, np.ones(40), kernel=kernel) for k in range(-32, 33))
    bank = fitted(X, y, kernel, gamma=None)
    assert_allclose(bank.gamma[0], best[1], rtol=1e-12)
    assert_allclose(bank.C[0], best[2], rtol=1e-9)
    assert_allclose(bank.log_evidence[0], best[0], rtol=1e-9)


def test_gamma_is_searched_for_a_given_C():
    X, y = rings()
    data_unit = resolve_kernel("rbf").unit_gamma(X, np.ones(40))
    every = {k: fitted(X, y, gamma=data_unit * 2.0 ** (k / 2), C=2.0).log_evidence[0] for k in range(-32, 33)}
    bank = fitted(X, y, gamma=None, C=2.0)
    assert_allclose(bank.gamma[0], data_unit * 2.0 ** (max(every, key=every.get) / 2), rtol=1e-12)
    assert_allclose(bank.C, 2.0)


# Shared parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("book", [one_vs_one(3), one_vs_all(3)], ids=["one-vs-one", "one-vs-all"])
@pytest.mark.parametrize("seed", range(2))
def test_shared_ridge_and_gamma_equal_brute_force_over_sums(book, seed):
    X, y = rings(n=42, K=3, seed=seed)
    bank = fitted(X, y, gamma=None, book=book, pools=[np.arange(3)])
    assert np.unique(bank.C).size == np.unique(bank.gamma).size == 1
    best = max(lattice_evidence(X, y, k, np.ones(42), book) for k in range(-20, 21))
    assert_allclose(bank.gamma[0], best[1], rtol=1e-12)
    assert_allclose(bank.C[0], best[2], rtol=1e-9)


@pytest.mark.parametrize("book", [one_vs_one(3), one_vs_all(3)], ids=["one-vs-one", "one-vs-all"])
@pytest.mark.parametrize("seed", range(2))
def test_a_shared_ridge_minimises_the_summed_cost(book, seed, free):
    X, y = blobs(n=27, K=3, seed=seed, shift=0.4)
    bank = fitted(X, y, gamma=0.3, book=book, pools=[np.arange(3)])
    K = naive.kernel_matrix("rbf", X, X, gamma=0.3)

    def summed(log_C):
        total = 0.0
        for bits in book.matrix.T:
            rows = np.flatnonzero(bits[y])
            part = K[np.ix_(rows, rows)]
            total += naive.evidence_level2_cost(part, bits[y[rows]].astype(float), np.exp(log_C))
        return total

    chosen = np.log(bank.C[0])
    found = minimize_scalar(
        summed, bounds=(chosen - 2, chosen + 2), method="bounded", options={"xatol": 1e-9}
    )
    assert_allclose(np.exp(found.x), bank.C[0], rtol=1e-4)
    assert summed(chosen) <= found.fun + 1e-8


def test_pools_are_independent():
    X, y = blobs(n=27, K=3, seed=3)
    book = one_vs_one(3)
    together = fitted(X, y, gamma=None, book=book, pools=[np.array([0, 2]), np.array([1])])
    assert together.gamma[0] == together.gamma[2]
    assert together.C[0] == together.C[2]
    alone = fitted(X, y, gamma=None, book=book)
    assert_allclose([together.C[1], together.gamma[1]], [alone.C[1], alone.gamma[1]], rtol=1e-9)


def test_machines_of_their_own_equal_single_problems():
    """shared_parameters=False: each dichotomy is a two-class problem of its own, with gamma on the common lattice."""
    X, y = blobs(n=30, K=3, seed=4, shift=1.0)
    bank = fitted(X, y, gamma=None, book=one_vs_one(3))
    for column, bits in enumerate(one_vs_one(3).matrix.T):
        rows = np.flatnonzero(bits[y])
        alone = fitted(X[rows], (bits[y[rows]] + 1) // 2, gamma=float(bank.gamma[column]))
        assert_allclose(bank.C[column], alone.C[0], rtol=1e-7)
        assert_allclose(bank.log_evidence[column], alone.log_evidence[0], rtol=1e-8)


# Weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_weights_of_a_bank_are_repeated_rows(shared):
    X, y = blobs(n=24, K=3, seed=5, shift=0.8)
    weights = np.random.default_rng(0).integers(1, 4, 24)
    copies = np.repeat(np.arange(24), weights)
    pools = [np.arange(3)] if shared else None
    banks = [
        fit_lssvm_bank(data, one_vs_one(3), C=None, gamma=None, selection="evidence", pools=pools)
        for data in (
            TrainingRows(RBF(), X, y, weights.astype(float)),
            TrainingRows(RBF(), X[copies], y[copies], np.ones(copies.size), groups=copies),
        )
    ]
    one, other = banks
    for field in ("C", "gamma", "mu", "zeta", "intercept", "log_evidence"):
        assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-7, err_msg=field)
    assert_allclose(one.margins(X), other.margins(X), atol=1e-9)
    variances = [bank.outputs(X, variances=True).variances for bank in banks]
    assert_allclose(*variances, rtol=1e-7)
    first = np.cumsum(weights) - weights
    assert_allclose(one.loo_margins, other.loo_margins[first], atol=1e-8)


@pytest.mark.parametrize("shared", [True, False])
def test_the_unit_of_the_weights_is_that_of_C(shared):
    """A classifier divides weights by their mean: so many rows are there, whatever the weights add up to."""
    X, y = blobs(n=24, K=3, seed=5, shift=0.8)
    weights = np.random.default_rng(0).uniform(0.5, 3.0, 24)
    parameters = {"kernel": "rbf", "selection": "evidence", "decoding": "bayes", "shared_parameters": shared}
    one = LSSVMClassifier(**parameters).fit(X, y, weights)
    other = LSSVMClassifier(**parameters).fit(X, y, 100.0 * weights)
    assert_allclose(100.0 * other.C_, one.C_, rtol=1e-9)
    for field in ("gamma_", "mu_", "zeta_", "intercept_", "log_evidence_", "loo_margins_"):
        assert_allclose(getattr(other, field), getattr(one, field), rtol=1e-7, atol=1e-9, err_msg=field)
    assert_allclose(other.variances(X), one.variances(X), rtol=1e-7)
    assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-9)


def test_the_evidence_of_weighted_rows_equals_the_oracle_of_repeated_rows():
    X, y = problem(n=20, seed=2)
    weights = np.random.default_rng(1).integers(1, 4, 20)
    copies = np.repeat(np.arange(20), weights)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    level = level_two(K, y, weights.astype(float))
    K_copies = K[np.ix_(copies, copies)]
    for ridge in (0.05, 1.0, 20.0):
        ours = level.cost(ridge)[0][0] - level.cost(1.0)[0][0]
        assert_allclose(ours, difference_of_costs(K_copies, y[copies], ridge, 1.0), atol=1e-8)
        assert_allclose(
            level.log_evidence(ridge)[0], level_two(K_copies, y[copies]).log_evidence(ridge)[0], rtol=1e-9
        )
