"""Columns by their ranks: the map, the kernel of ranks, and estimators that compare ranks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polymargin import AutoKernelClassifier, LSSVMClassifier, SVMClassifier
from polymargin.kernels import RBF, Blend, Exponential, Laplacian, Linear, Polynomial, Precomputed, Scaled
from polymargin.kernels.ranks import KNOTS, STEP, Ranks
from polymargin.persistence import load, save

KERNELS = [RBF(), Laplacian(), Exponential(), Blend(), Polynomial(2), Polynomial(2, centred=True), Linear()]


def columns(n, seed=0):
    """A heavy tail, a column of few values, one of mostly zeros, one of two values, and a normal one."""
    rng = np.random.default_rng(seed)
    return np.column_stack([
        rng.standard_cauchy(n),
        rng.integers(0, 4, n),
        np.where(rng.random(n) < 0.8, 0.0, rng.exponential(size=n)),
        rng.random(n) < 0.03,
        rng.normal(size=n),
    ])  # fmt: skip


def labels(X):
    return (X[:, 0] > 0).astype(int) + (X[:, 2] + 0.3 * X[:, 4] > 0.3)


def ranks_of(X, weights=None):
    return Ranks.of(X, np.ones(X.shape[0]) if weights is None else weights)


def test_ranks_are_interpolated_between_the_means_of_equal_parts():
    x = np.random.default_rng(0).lognormal(sigma=2.0, size=10 * KNOTS)
    knots = np.sort(x).reshape(KNOTS, 10).mean(axis=1)
    new = np.concatenate([x, np.linspace(-1.0, 2.0 * x.max(), 200)])
    found = ranks_of(x[:, np.newaxis])(new[:, np.newaxis])[:, 0]
    expected = STEP * np.interp(new, knots, np.arange(KNOTS))
    assert_allclose(found, expected - STEP * np.interp(0.0, knots, np.arange(KNOTS)), atol=1e-9)
    assert found[: x.size].var() == pytest.approx(1.0, abs=0.02)


def test_equal_values_have_their_mean_rank():
    x = np.repeat([-3.0, 0.0, 5.0, 5.5], 8 * KNOTS // 32)
    found = ranks_of(x[:, np.newaxis])(np.array([[-3.0], [0.0], [5.0], [5.5], [9.0], [-9.0]]))[:, 0]
    # Knots 0 to 7 lie on the first value, 8 to 15 on the second: the ends of the first reach half-way to each other.
    assert_allclose(np.diff(found[:4]), STEP * np.array([8.0, 8.0, 8.0]), atol=1e-9)
    assert found[1] == 0.0
    assert_allclose(found[4] - found[3], 3.5 * STEP)
    assert_allclose(found[0] - found[5], 3.5 * STEP)


def test_ranks_neither_fall_nor_jump():
    X = columns(200)
    ranks = ranks_of(X)
    for j in range(5):
        centres = np.unique(X[:, j])[:, np.newaxis]
        # Around every value, down to far less than the resolution.
        steps = np.concatenate([-np.geomspace(1e-2, 1e-12, 400), [0.0], np.geomspace(1e-12, 1e-2, 400)])
        x = np.sort((centres + steps).ravel())
        rows = np.zeros((x.size, 5))
        rows[:, j] = x
        found = ranks(rows)[:, j]
        assert np.diff(found).min() > -1e-12
        assert np.diff(found).max() < 0.3


def test_noise_does_not_give_equal_values_ranks_of_their_own():
    X = columns(300)
    rng = np.random.default_rng(1)
    for size in (1e-9, 1e-11):
        noisy = X + size * X.std(axis=0) * rng.normal(size=X.shape)
        assert_allclose(ranks_of(noisy)(noisy), ranks_of(X)(X), atol=2e-5)
        assert_allclose(ranks_of(noisy)(X), ranks_of(X)(X), atol=2e-5)


def test_a_weight_is_as_many_rows_and_their_order_does_not_matter():
    X = columns(90)
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 4, 90)
    order = rng.permutation(counts.sum())
    one, other = ranks_of(X, 0.1 * counts), ranks_of(np.repeat(X, counts, axis=0)[order])
    assert_allclose(one(X), other(X), atol=1e-9)


def test_units_do_not_matter():
    X = columns(120)
    for units in (np.geomspace(1e-6, 1e6, 5), 1e250, 1e-250):
        assert_allclose(ranks_of(X * units)(X * units), ranks_of(X)(X), atol=1e-9)
    far = ranks_of(X + 1e6)(X + 1e6)
    found = ranks_of(X)(X)
    assert_allclose(far - far[:1], found - found[:1], atol=1e-3)


def test_an_outlier_is_the_last_and_no_more():
    x = np.append(np.random.default_rng(0).normal(size=319), 50.0)[:, np.newaxis]
    far = x.copy()
    far[-1] = 1e4
    one, other = ranks_of(x)(x), ranks_of(far)(far)
    inside = np.abs(x[:, 0]) < 1.5
    assert_allclose(other[inside], one[inside], atol=1e-3)
    assert other[-1] == pytest.approx(one[-1], abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_a_constant_column_says_nothing(value):
    X = np.column_stack([np.full(40, value), np.arange(40.0)])
    found = ranks_of(X)(np.array([[value, 1.0], [value + 3.0, 1.0]]))
    assert (found[:, 0] == 0.0).all()


def test_few_rows():
    assert_allclose(ranks_of(np.array([[3.0]]))(np.array([[3.0], [4.0]])), 0.0)
    found = ranks_of(np.array([[0.0], [7.0]]))(np.array([[0.0], [7.0]]))
    assert_allclose(found[1], STEP * KNOTS / 2)


@pytest.mark.parametrize("convert", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_sparse_rows_have_the_same_ranks(convert):
    X = columns(100)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 100)
    dense, thin = ranks_of(X, weights), ranks_of(convert(X), weights)
    assert_allclose(thin(convert(X)).toarray(), dense(X), atol=1e-9)
    explicit = sparse.csr_array(X + 1.0)
    explicit.data -= 1.0  # with zeros that are stored
    assert_allclose(ranks_of(explicit, weights)(explicit).toarray(), dense(X), atol=1e-9)
    assert thin(convert(X)).nnz <= np.count_nonzero(X)


def test_rows_are_not_changed():
    X = columns(50)
    kept, thin = X.copy(), sparse.csr_array(X)
    ranks_of(X)(X)
    ranks_of(thin)(thin)
    assert (kept == X).all()
    assert (thin.toarray() == X).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("widths", [None, np.array([2.0, 0.5, 0.0, 1.0, 3.0])])
def test_the_kernel_of_ranks_scales_ranks(kernel, widths):
    X, new, weights = columns(60), columns(20, 1), np.ones(60)
    ranked = Scaled(kernel, widths, "ranks").fitted(X, weights)
    factor = 1.0 if widths is None else widths
    R, N = (factor * ranks_of(X)(rows) for rows in (X, new))
    plain = kernel.fitted(R, weights)
    assert_allclose(ranked.gram(new, X, gamma=0.3), plain.gram(N, R, gamma=0.3), atol=1e-12)
    assert_allclose(ranked.diagonal(new, gamma=0.3), plain.diagonal(N, gamma=0.3), atol=1e-12)
    assert ranked.unit_gamma(X, weights) == plain.unit_gamma(R, weights)
    assert ranked.name == f"{kernel.name}, ranks"


def test_widths_are_those_of_ranks_in_any_order():
    X, widths = columns(40), np.arange(1.0, 6.0)
    expected = Scaled(RBF(), widths, "ranks").fitted(X, np.ones(40)).gram(X)
    for kernel in (
        Scaled(Scaled(RBF(), columns="ranks"), widths),
        Scaled(Scaled(RBF(), widths), columns="ranks"),
        Scaled(Scaled(RBF(), np.sqrt(widths), "ranks"), np.sqrt(widths)),
    ):
        assert isinstance(kernel.kernel, RBF)
        assert_allclose(kernel.fitted(X, np.ones(40)).gram(X), expected, atol=1e-12)


def test_a_fitted_kernel_is_fitted_anew_to_other_rows():
    X, other = columns(40), columns(30, 1)
    kernel = Scaled(RBF(), columns="ranks").fitted(X, np.ones(40)).fitted(other, np.ones(30))
    expected = Scaled(RBF(), columns="ranks").fitted(other, np.ones(30))
    assert (kernel.gram(X) == expected.gram(X)).all()


def test_what_has_no_ranks_is_refused():
    X = columns(20)
    for wrong in ("rank", "names", 3, ["ranks"], np.ones(4)):
        with pytest.raises(ValueError, match="unknown columns"):
            Scaled(RBF(), columns=wrong)
    with pytest.raises(ValueError, match="already"):
        Scaled(Scaled(RBF(), columns="ranks"), columns="ranks")
    with pytest.raises(ValueError, match="fitted first"):
        Scaled(RBF(), columns="ranks").gram(X)
    with pytest.raises(ValueError, match="5 columns"):
        Scaled(RBF(), columns="ranks").fitted(X, np.ones(20)).gram(X[:, :3])
    with pytest.raises(ValueError, match="precomputed"):
        Scaled(Precomputed(), columns="ranks")
    for estimator in (LSSVMClassifier(columns="rank"), SVMClassifier(columns="rank")):
        with pytest.raises(ValueError, match="unknown columns"):
            estimator.fit(X, np.arange(20) % 2)
    with pytest.raises(ValueError, match="precomputed"):
        LSSVMClassifier(kernel="precomputed", columns="ranks").fit(X @ X.T, np.arange(20) % 2)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "blend", "poly", "linear"])
@pytest.mark.parametrize("gamma", ["scale", 0.1])
def test_least_squares_machines_of_ranks(kernel, gamma):
    X, new = columns(150), columns(30, 1)
    y, ranks = labels(X), ranks_of(X)
    model = LSSVMClassifier(C=2.0, kernel=kernel, gamma=gamma, degree=2, columns="ranks").fit(X, y)
    expected = LSSVMClassifier(C=2.0, kernel=kernel, gamma=gamma, degree=2).fit(ranks(X), y)
    # Folds are dealt by the content of the rows, so that only the machines are the same.
    assert_allclose(model.margins(new), expected.margins(ranks(new)), atol=1e-8)
    assert_allclose(np.sort(model.loo_margins_, axis=0), np.sort(expected.loo_margins_, axis=0), atol=1e-8)
    assert model.metric_ is None


def test_kernels_of_ranks_are_compared():
    X = columns(150)
    model = LSSVMClassifier(columns="ranks").fit(X, labels(X))
    assert set(model.kernel_losses_) == {"blend, ranks", "poly, degree 2, ranks"}
    assert clone(model).columns == "ranks"


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_hinge_machines_of_ranks(convert):
    X, new = columns(150), columns(30, 1)
    y, ranks = labels(X), ranks_of(X)
    for kernel in ("rbf", "laplacian", "linear"):
        model = SVMClassifier(kernel=kernel, columns="ranks", tol=1e-6).fit(convert(X), y)
        expected = SVMClassifier(kernel=kernel, tol=1e-6).fit(ranks(X), y)
        assert_allclose(model.margins(convert(new)), expected.margins(ranks(new)), atol=1e-4)


def test_heavy_tails_are_what_ranks_are_for():
    def rows(n, seed):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(n, 4))
        return np.sign(Z) * np.expm1(3.0 * np.abs(Z)), (Z[:, 0] * Z[:, 1] > 0).astype(int)

    (X, y), (new, truth) = rows(300, 0), rows(1000, 1)
    losses = []
    for given in (None, "ranks"):
        model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="laplacian", columns=given)).fit(X, y)
        losses.append(-model.predict_log_proba(new)[np.arange(1000), truth].mean())
    assert losses[1] < 0.8 * losses[0]


def test_last_digits_units_order_and_copies_do_not_matter():
    X, new = columns(150), columns(40, 1)
    y = labels(X)
    rng = np.random.default_rng(0)
    order, units = rng.permutation(150), np.geomspace(1e-3, 1e3, 5)
    model = LSSVMClassifier(kernel="laplacian", columns="ranks")
    expected = clone(model).fit(X, y).predict_proba(new)
    for changed, y_changed, new_changed in (
        (X * (1.0 + 1e-9 * rng.normal(size=X.shape)), y, new),
        (X[order], y[order], new),
        (X * units, y, new * units),
    ):
        found = clone(model).fit(changed, y_changed).predict_proba(new_changed)
        assert_allclose(found, expected, atol=1e-6)
    counts = rng.integers(1, 4, 150)
    weighted = clone(model).fit(X, y, sample_weight=counts, groups=np.arange(150)).predict_proba(new)
    copies = (np.repeat(array, counts, axis=0) for array in (X, y))
    repeated = clone(model).fit(*copies, groups=np.repeat(np.arange(150), counts)).predict_proba(new)
    assert_allclose(weighted, repeated, atol=1e-6)


def test_a_metric_is_learned_for_ranks():
    rng = np.random.default_rng(0)
    X = rng.standard_cauchy(size=(250, 12))
    y = (np.arctan(X[:, 0]) + np.arctan(X[:, 1]) > 0).astype(int)
    model = LSSVMClassifier(kernel="laplacian", columns="ranks", metric="learned").fit(X, y)
    assert model.metric_results_["chosen"].index(True) > 0
    assert model.metric_[:2].min() > model.metric_[2:].max()
    assert model.feature_relevance_[:2].sum() > 0.8
    # The widths can be given to others, which must compare ranks, too.
    ranks, kernel = ranks_of(X), model.kernel_
    assert_allclose(kernel.scaled(X), ranks(X) * model.metric_, atol=1e-12)
    variances = np.square(model.metric_) @ ranks(X).var(axis=0)
    assert variances == pytest.approx(ranks(X).var(axis=0).sum())
    other = SVMClassifier(kernel="laplacian", columns="ranks", metric=model.metric_).fit(X, y)
    assert other.score(X, y) > 0.9


POOL = AutoKernelClassifier(
    ["poly", LSSVMClassifier(kernel="laplacian", coding="one-vs-all", columns="ranks")]
)
MODELS = {
    "laplacian": LSSVMClassifier(kernel="laplacian", columns="ranks"),
    "poly": LSSVMClassifier(kernel=Polynomial(2, centred=True), columns="ranks"),
    "learned metric": LSSVMClassifier(kernel="blend", columns="ranks", metric="learned"),
    "svm": SVMClassifier(columns="ranks", metric=np.array([2.0, 0.0, *np.ones(11)])),
    "pool": POOL,
}
models = pytest.mark.parametrize("estimator", MODELS.values(), ids=list(MODELS))


def wine_with_ties():
    X, y = load_wine(return_X_y=True)
    X[:, 0], X[:, 1] = X[:, 0].round(), X[:, 1] > 2.0
    return np.column_stack([X[:, :12], np.ones(y.size)]), y


@models
def test_model_files_keep_ranks(estimator, tmp_path):
    X, y = wine_with_ties()
    model = make_pipeline(StandardScaler(), clone(estimator)).fit(X[::2], y[::2])
    save(model, tmp_path / "model.polymargin")
    loaded = load(tmp_path / "model.polymargin")
    assert (loaded.predict(X) == model.predict(X)).all()
    if hasattr(model, "predict_proba"):
        assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
        assert_allclose(loaded[-1].feature_relevance_, model[-1].feature_relevance_, rtol=1e-12)


@models
def test_onnx_keeps_ranks(estimator):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    from polymargin.onnx import to_onnx

    X, y = wine_with_ties()
    model = make_pipeline(StandardScaler(), clone(estimator)).fit(X[::2], y[::2])
    session = onnxruntime.InferenceSession(to_onnx(model, float64=True).SerializeToString())
    label, found = session.run(None, {"X": X})
    assert (label == model.predict(X)).all()
    if hasattr(model, "predict_proba"):
        assert_allclose(found, model.predict_proba(X), atol=1e-9)


def test_relevance_of_ranks_is_that_of_the_columns():
    X, y = load_iris(return_X_y=True)
    plain = LSSVMClassifier(kernel="laplacian").fit(X, y).feature_relevance_
    model = LSSVMClassifier(kernel="laplacian", columns="ranks").fit(X, y)
    assert model.feature_relevance_.shape == (4,)
    assert set(np.argsort(model.feature_relevance_)[2:]) == set(np.argsort(plain)[2:]) == {2, 3}


def test_sparse_rows_in_a_pool():
    X = columns(120)
    y = labels(X)
    dense, thin = (clone(POOL).fit(rows, y) for rows in (X, sparse.csr_array(X)))
    assert_allclose(thin.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-4)
