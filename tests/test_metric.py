"""A metric: widths of the columns, given or learned, and what the machines depend on."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from naive import kernel_matrix
from polymargin import AutoKernelClassifier, LSSVMClassifier, SVMClassifier
from polymargin.estimators._metric import Expansion, relevance, swapped_rows
from polymargin.estimators._metric_choice import MetricChoice
from polymargin.kernels import RBF, Blend, Exponential, Laplacian, Linear, Polynomial, Precomputed, Scaled
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.persistence import load, save
from polymargin.selection import SearchSettings

WIDTHS = np.array([2.0, 0.5, 0.0, 1.0])
KERNELS = [RBF(), Laplacian(), Exponential(), Blend(), Polynomial(2), Polynomial(2, centred=True), Linear()]


def rows(n, seed=0, d=4):
    return np.random.default_rng(seed).normal(size=(n, d))


def noisy_columns(n, n_noise, seed):
    """Two classes that depend on two columns, among columns of noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2 + n_noise))
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(int)
    return X, y


def log_loss(model, X, y):
    return -model.predict_log_proba(X)[np.arange(y.size), y].mean()


@pytest.fixture(scope="module")
def learned():
    X, y = noisy_columns(250, 15, 0)
    return LSSVMClassifier(metric="learned").fit(X, y)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_scaled_kernel_is_the_kernel_of_scaled_columns(kernel, as_sparse):
    X, Z, weights = rows(12), rows(5, 1), np.ones(12)
    convert = sparse.csr_array if as_sparse else np.asarray
    if as_sparse and isinstance(kernel, Polynomial) and kernel.centred:
        convert = sparse.csr_matrix
    scaled = Scaled(kernel, WIDTHS).fitted(convert(X), weights)
    plain = kernel.fitted(X * WIDTHS, weights)
    assert_allclose(scaled.gram(convert(X), gamma=0.3), plain.gram(X * WIDTHS, gamma=0.3), atol=1e-12)
    assert_allclose(
        scaled.gram(convert(Z), convert(X), gamma=0.3),
        plain.gram(Z * WIDTHS, X * WIDTHS, gamma=0.3),
        atol=1e-12,
    )
    assert_allclose(scaled.diagonal(convert(X), 0.3), plain.diagonal(X * WIDTHS, 0.3), atol=1e-12)
    assert scaled.unit_gamma(convert(X), weights) == pytest.approx(plain.unit_gamma(X * WIDTHS, weights))
    assert scaled.name == kernel.name


def test_scaled_kernel_against_the_oracle():
    X, Z = rows(6), rows(3, 1)
    expected = kernel_matrix("rbf", X * WIDTHS, Z * WIDTHS, gamma=0.7)
    assert_allclose(Scaled(RBF(), WIDTHS).gram(X, Z, gamma=0.7), expected, atol=1e-12)


@pytest.mark.parametrize(
    "widths",
    [[[1.0, 2.0]], [], [1.0, -1.0], [1.0, np.nan], [np.inf, 1.0], [0.0, 0.0], ["a", "b"], 3.0],
)
def test_widths_that_cannot_scale_are_refused(widths):
    with pytest.raises(ValueError, match="width"):
        Scaled(RBF(), widths)


def test_scaled_twice():
    X = rows(6)
    twice = Scaled(Scaled(RBF(), WIDTHS), 2.0 * WIDTHS)
    assert_allclose(twice.widths, 2.0 * WIDTHS**2)
    assert_allclose(twice.gram(X), Scaled(RBF(), 2.0 * WIDTHS**2).gram(X))
    with pytest.raises(ValueError, match="4 widths"):
        Scaled(Scaled(RBF(), WIDTHS), np.ones(3))
    with pytest.raises(TypeError, match="kernel object"):
        Scaled("rbf", WIDTHS)


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"rounds": 1.5}, {"damping": -1.0}, {"damping": np.nan}])
def test_settings_of_the_metric_are_checked(settings):
    with pytest.raises(ValueError, match=r"rounds|damping"):
        SearchSettings(**settings)


def test_a_metric_needs_columns():
    with pytest.raises(ValueError, match="precomputed"):
        Scaled(Precomputed(), [1.0])
    K = rows(10) @ rows(10).T
    y = np.arange(10) % 2
    for metric in ("learned", np.ones(10)):
        with pytest.raises(ValueError, match="metric"):
            LSSVMClassifier(kernel="precomputed", metric=metric).fit(K, y)


@pytest.mark.parametrize("estimator", [LSSVMClassifier(), SVMClassifier()], ids=["ls-svm", "svm"])
@pytest.mark.parametrize("metric", [np.ones(3), "learn", -np.ones(4)])
def test_bad_metrics_are_refused_by_estimators(estimator, metric):
    if isinstance(estimator, SVMClassifier) and isinstance(metric, str):
        metric = "learned"
    with pytest.raises(ValueError, match=r"metric|widths"):
        clone(estimator).set_params(metric=metric).fit(rows(30), np.arange(30) % 2)


@pytest.mark.parametrize("gamma", [None, "scale", 0.2])
@pytest.mark.parametrize("kernel", ["rbf", "exponential", "blend", "poly", "linear"])
def test_given_widths_are_scaled_columns_least_squares(kernel, gamma):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    given = LSSVMClassifier(kernel=kernel, gamma=gamma, metric=WIDTHS).fit(X, y)
    scaled = LSSVMClassifier(kernel=kernel, gamma=gamma).fit(X * WIDTHS, y)
    # Folds are dealt by the content of the rows, so that only the machines are the same.
    assert_allclose(given.margins(X), scaled.margins(X * WIDTHS), atol=1e-6)
    assert_allclose(given.metric_, WIDTHS)
    assert scaled.metric_ is None


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "linear"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_given_widths_are_scaled_columns_hinge(kernel, convert):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    given = SVMClassifier(kernel=kernel, metric=WIDTHS, tol=1e-6).fit(convert(X), y)
    scaled = SVMClassifier(kernel=kernel, tol=1e-6).fit(convert(X * WIDTHS), y)
    assert_allclose(given.margins(convert(X)), scaled.margins(convert(X * WIDTHS)), atol=1e-4)


def test_relevance_of_a_linear_machine_is_the_variance_of_its_terms():
    X, y = load_iris(return_X_y=True)
    X = X * [1.0, 10.0, 0.1, 1.0]
    model = LSSVMClassifier(kernel="linear", coding="one-vs-all").fit(X, y)
    slopes = model.bank_.dual_coef @ X
    expected = (slopes**2).sum(axis=0) * X.var(axis=0)
    assert_allclose(model.feature_relevance_, expected / expected.sum(), atol=0.1)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("metric", [None, WIDTHS])
def test_relevance_against_rows_with_one_value_replaced(kernel, metric):
    """Machines of pairs of classes are judged on the rows of their classes."""
    X, y = load_iris(return_X_y=True)
    model = LSSVMClassifier(kernel=kernel, metric=metric).fit(X, y)
    data = model.bank_.data
    rows, others = swapped_rows(data)
    used = model.codebook_.targets(data.class_index[rows]) != 0
    before, expected = model.margins(data.X[rows]), np.zeros(4)
    for j in range(4):
        changed = data.X[rows].copy()
        changed[:, j] = data.X[others, j]
        expected[j] = np.square(model.margins(changed) - before)[used].sum()
    assert_allclose(model.feature_relevance_, expected / expected.sum(), atol=1e-6)


def test_a_column_of_two_values_that_decides_is_relevant():
    """Its gradient says nothing of the step from one value to the other."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(300, 3)), rng.integers(0, 2, 300)])
    y = np.where((X[:, 0] > 0) & (X[:, 3] == 1), 2, X[:, 1] > 0)
    for kernel in ("laplacian", "blend", "rbf", "exponential"):
        shares = LSSVMClassifier(kernel=kernel).fit(StandardScaler().fit_transform(X), y).feature_relevance_
        assert shares[3] > 2.0 * shares[2]


def test_relevance_does_not_depend_on_units():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    widths = np.geomspace(0.1, 10.0, 13)
    one = LSSVMClassifier(kernel="rbf", gamma=0.1, C=10.0).fit(X, y).feature_relevance_
    other = LSSVMClassifier(kernel="rbf", gamma=0.1, C=10.0, metric=1.0 / widths).fit(X * widths, y)
    assert_allclose(other.feature_relevance_, one, atol=1e-9)
    assert one.sum() == pytest.approx(1.0)


def test_a_kernel_that_is_a_function_has_no_relevance():
    X, y = load_iris(return_X_y=True)
    model = LSSVMClassifier(kernel=lambda A, B: A @ B.T).fit(X, y)
    assert not hasattr(model, "feature_relevance_")
    with pytest.raises(ValueError, match="gradient"):
        LSSVMClassifier(kernel=lambda A, B: A @ B.T, metric="learned").fit(X, y)


def test_columns_of_noise_fade(learned):
    X, y = noisy_columns(250, 15, 0)
    new, labels = noisy_columns(2000, 15, 1)
    plain = LSSVMClassifier().fit(X, y)
    assert learned.metric_results_["chosen"].index(True) > 0
    assert learned.feature_relevance_[:2].sum() > 0.85
    assert plain.feature_relevance_[:2].sum() < learned.feature_relevance_[:2].sum()
    assert learned.metric_[:2].min() > learned.metric_[2:].max()
    assert log_loss(learned, new, labels) < 0.9 * log_loss(plain, new, labels)
    folds = learned.feature_relevance_folds_
    assert folds.shape == (SearchSettings().folds, 17)
    assert_allclose(folds.sum(axis=1), 1.0)
    assert_allclose(learned.feature_relevance_std_, folds.std(axis=0, ddof=1))
    assert plain.feature_relevance_folds_ is None
    assert plain.feature_relevance_std_ is None


def test_the_stated_log_loss_of_a_learned_metric_is_true():
    """In the mean: that of 250 rows has a standard error of 0.04."""
    gaps = []
    for seed in range(8):
        model = LSSVMClassifier(metric="learned").fit(*noisy_columns(250, 15, seed))
        new, labels = noisy_columns(4000, 15, 1000 + seed)
        gaps.append(model.loo_log_loss_ - log_loss(model, new, labels))
    assert abs(np.mean(gaps)) < 0.04


@pytest.mark.parametrize("seed", range(5))
def test_no_metric_is_learned_from_noise(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(60, 100)), rng.permutation(np.arange(60) % 2)
    model = LSSVMClassifier(metric="learned").fit(X, y)
    assert model.metric_ is None
    new, labels = rng.normal(size=(2000, 100)), np.arange(2000) % 2
    assert model.loo_log_loss_ > log_loss(model, new, labels) - 0.06
    assert log_loss(model, new, labels) < 0.75


def test_last_digits_unit_and_order_do_not_matter():
    X, y = noisy_columns(150, 6, 0)
    new = noisy_columns(50, 6, 1)[0]
    rng = np.random.default_rng(0)
    order = rng.permutation(150)
    expected = LSSVMClassifier(metric="learned").fit(X, y)
    changes = [
        (X * (1.0 + 1e-9 * rng.normal(size=X.shape)), y, new),
        (3.0 * X, y, 3.0 * new),
        (X[order], y[order], new),
    ]
    for X_changed, y_changed, new_changed in changes:
        model = LSSVMClassifier(metric="learned").fit(X_changed, y_changed)
        assert_allclose(model.predict_proba(new_changed), expected.predict_proba(new), atol=1e-6)


def test_a_constant_column_has_no_relevance():
    X, y = noisy_columns(120, 3, 0)
    X[:, 4] = 7.0
    model = LSSVMClassifier(metric="learned").fit(X, y)
    assert model.feature_relevance_[4] == 0.0
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_all_rows_equal():
    y = np.arange(30) % 3
    model = LSSVMClassifier(metric="learned").fit(np.ones((30, 2)), y)
    assert_allclose(model.predict_proba(np.ones((1, 2))), np.full((1, 3), 1 / 3), atol=0.02)
    assert_allclose(model.feature_relevance_, 0.0)


@pytest.mark.parametrize("parameters", [
    {"coding": "one-vs-all"},
    {"kernel": "exponential"},
    {"kernel": "poly", "degree": 2},
    {"decoding": "bayes"},
    {"decoding": "hamming"},
    {"selection": "evidence", "kernel": "rbf"},
    {"C": 1.0, "gamma": 0.5},
    {"shared_parameters": False},
], ids=str)  # fmt: skip
def test_a_metric_is_learned_with_every_parameter(parameters):
    X, y = noisy_columns(120, 5, 0)
    y = y + (X[:, 1] > 1.0)
    model = LSSVMClassifier(metric="learned", **parameters).fit(X, y)
    assert len(model.metric_results_["loss"]) > 1
    assert model.score(X, y) > 0.7


def test_weights_soft_labels_groups_and_rows_alone_in_their_class():
    X, y = noisy_columns(100, 5, 0)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 100)
    one = LSSVMClassifier(metric="learned").fit(X, y, sample_weight=weights)
    other = LSSVMClassifier(metric="learned").fit(X, y, sample_weight=7.0 * weights)
    assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)
    LSSVMClassifier(metric="learned").fit(X, np.eye(2)[y] * 0.8 + 0.1)
    LSSVMClassifier(metric="learned").fit(X, y, groups=np.arange(100) // 2)
    y[0] = 2
    assert LSSVMClassifier(metric="learned").fit(X, y).score(X, y) > 0.7


def test_a_sample_serves_many_rows():
    X, y = noisy_columns(1200, 15, 0)
    model = LSSVMClassifier(kernel="rbf", metric="learned").fit(X, y)
    assert model.metric_results_["n_rows"][0] < 1200
    # Judged by the other rows, it is better with all rows, too.
    plain, *others = model.metric_results_["loss_on_all_rows"]
    assert np.nanmin(others) < plain
    assert model.metric_ is not None
    new, labels = noisy_columns(3000, 15, 1)
    log_p = model.predict_log_proba(new)
    true = -log_p[np.arange(3000), np.searchsorted(model.classes_, labels)].mean()
    assert abs(model.loo_log_loss_ - true) < 0.03


def test_a_metric_of_a_sample_must_help_on_all_rows():
    judged = [
        SimpleNamespace(losses=np.full(100, loss), loss=loss, weights=np.ones(100)) for loss in (1.0, 0.5)
    ]
    rounds = [SimpleNamespace(judged=each) for each in judged]
    assert MetricChoice(rounds, np.arange(100)).chosen is rounds[1]
    assert MetricChoice(rounds, np.arange(100), on_all=(0.4, 0.3)).chosen is rounds[1]
    assert MetricChoice(rounds, np.arange(100), on_all=(0.4, 0.4)).chosen is None


def test_model_files_keep_the_metric(learned, tmp_path):
    new = noisy_columns(20, 15, 1)[0]
    save(learned, tmp_path / "model.polymargin")
    loaded = load(tmp_path / "model.polymargin")
    assert (loaded.predict_proba(new) == learned.predict_proba(new)).all()
    assert (loaded.metric_ == learned.metric_).all()
    assert_allclose(loaded.feature_relevance_, learned.feature_relevance_, rtol=1e-12)
    assert (loaded.feature_relevance_std_ == learned.feature_relevance_std_).all()


@pytest.mark.parametrize("estimator", [
    LSSVMClassifier(metric="learned"),
    LSSVMClassifier(kernel="poly", degree=2, metric=np.array([2.0, 0.0, *np.ones(11)])),
    SVMClassifier(metric=np.array([2.0, 0.0, *np.ones(11)])),
], ids=["learned", "poly", "svm"])  # fmt: skip
def test_onnx_keeps_the_metric(estimator):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    from polymargin.onnx import to_onnx

    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), clone(estimator)).fit(X, y)
    session = onnxruntime.InferenceSession(to_onnx(model, float64=True).SerializeToString())
    label, found = session.run(None, {"X": X})
    assert (label == model.predict(X)).all()
    if hasattr(model, "predict_proba"):
        assert_allclose(found, model.predict_proba(X), atol=1e-9)


def test_relevance_of_a_machine_without_signal_is_zero():
    X = rows(20)
    model = LSSVMClassifier(kernel="rbf", C=1.0, gamma=1.0, selection=None).fit(X, np.arange(20) % 2)
    machines = Expansion.of(model.bank_)
    assert (relevance(machines) > 0.0).all()
    assert (relevance(replace(machines, coef=np.zeros_like(machines.coef))) == 0.0).all()


def test_relevance_of_a_pool_is_the_mean_by_weights():
    X, y = noisy_columns(120, 3, 0)
    members = [
        LSSVMClassifier(kernel="rbf", C=1.0, gamma=0.1),
        LSSVMClassifier(kernel="linear", C=1.0),
        LSSVMClassifier(kernel=lambda A, B: A @ B.T, C=1.0),
    ]
    pool = AutoKernelClassifier(members).fit(X, y)
    pool.weights_ = np.array([0.5, 1.5, 0.7])
    rbf, linear = (member.feature_relevance_ for member in pool.members_[:2])
    assert_allclose(pool.feature_relevance_, (rbf + 3.0 * linear) / 4.0)
    assert pool.feature_relevance_std_ is None
    pool.weights_ = np.array([0.0, 0.0, 0.7])
    assert_allclose(pool.feature_relevance_, 0.0)
    without = AutoKernelClassifier(members[2:]).fit(X, y)
    with pytest.raises(AttributeError, match="no member of the pool has relevances"):
        _ = without.feature_relevance_
    assert "feature_relevance_" not in dir(without)
    assert "feature_relevance_" in dir(pool)
    assert not hasattr(AutoKernelClassifier(), "feature_relevance_")


def test_spread_of_a_pool_is_that_of_the_members_that_learn_a_metric():
    X, y = noisy_columns(120, 3, 0)
    kernels = ("exponential", "linear")
    pool = AutoKernelClassifier([LSSVMClassifier(kernel=name, metric="learned") for name in kernels]).fit(
        X, y
    )
    pool.weights_ = np.array([0.25, 0.5])
    first, second = (member.feature_relevance_folds_ for member in pool.members_)
    assert_allclose(pool.feature_relevance_folds_, (first + 2.0 * second) / 3.0)
    assert_allclose(pool.feature_relevance_std_, ((first + 2.0 * second) / 3.0).std(axis=0, ddof=1))
    pool.members_[1].feature_relevance_folds_ = None
    assert_allclose(pool.feature_relevance_folds_, first)
    pool.weights_ = np.array([0.0, 0.25])
    assert pool.feature_relevance_std_ is None


def test_relevances_are_not_computed_to_be_listed(monkeypatch, learned):
    def refuse(bank):
        raise AssertionError

    monkeypatch.setattr("polymargin.estimators._lssvm_attributes.relevance", refuse)
    assert "feature_relevance_" in dir(learned)
    assert "feature_relevance_" not in dir(LSSVMClassifier())


def test_the_spread_is_that_of_the_kernel_that_was_chosen():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2] ** 2 + 0.3 * rng.normal(size=150) > 0.5
    model = LSSVMClassifier(metric="learned").fit(X, y)
    assert model.kernel_.name == "poly, degree 2"
    assert model.feature_relevance_std_.shape == (3,)
    assert_allclose(model.feature_relevance_folds_.mean(axis=0), model.feature_relevance_, atol=0.1)


@pytest.mark.parametrize("kernel", ["blend", "poly", "exponential"])
def test_machines_without_a_fold_are_those_of_a_refit(kernel):
    X, y = noisy_columns(90, 2, 1)
    model = LSSVMClassifier(kernel=kernel, C=3.0, gamma=0.2, degree=2).fit(X, y)
    data, codebook = model.bank_.data, model.codebook_
    fixed = {"C": 3.0, "gamma": 0.2, "keep_factors": False}
    bank = fit_lssvm_bank(data, codebook, n_folds=3, keep_fold_coef=True, **fixed)
    assert fit_lssvm_bank(data, codebook, n_folds=3, **fixed).nested.coef is None
    kept = [np.flatnonzero(bank.nested.numbers != fold) for fold in range(3)]
    for rows_kept, machines in zip(kept, Expansion.without_folds(bank, kept), strict=True):
        refitted = fit_lssvm_bank(data.take(rows_kept), codebook, **fixed)
        assert_allclose(machines.coef, refitted.dual_coef, atol=1e-9)


def test_other_rows_of_a_class_stand_for_those_left_out():
    y = np.repeat([0, 1, 2], [6, 6, 8])
    weights = np.arange(1.0, 21.0)
    data = TrainingRows(RBF(), rows(20), y, weights)
    left_out = np.isin(np.arange(20), [0, 1, 12, 13, 14, 15, 16, 17, 18])  # most of the last class
    shares = data.shares_without(left_out)
    assert (shares[:2] == 0.0).all()
    assert (shares[6:] == 1.0).all()  # nothing is left out, or too little would be left
    assert_allclose(np.bincount(y, weights * shares), np.bincount(y, weights))


def test_the_pool_is_weighed_by_rows_that_no_metric_was_learned_from():
    X, y = noisy_columns(1200, 15, 0)
    learned = LSSVMClassifier(kernel="rbf", metric="learned")
    pool = AutoKernelClassifier([learned, "poly"]).fit(X, y)
    leak = pool.members_[0].bank_.leak
    assert 0 < leak.sum() < 1200
    losses = -pool.loo_log_proba_[np.arange(1200), y]
    weights = pool.members_[0].bank_.data.shares_without(leak)
    assert_array_equal(weights == 0.0, leak)
    assert_allclose(pool.loo_log_loss_, weights @ losses / weights.sum())
    assert_allclose(pool.member_losses_[0], pool.members_[0].loo_log_loss_)
