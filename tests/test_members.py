"""Members of a pool that are no bare LSSVMClassifier: fitted in folds, pooled, kept and exported as the others are."""

import contextlib
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import AutoKernelClassifier, KernelLogisticClassifier, LSSVMClassifier, SVMClassifier
from polymargin.decoders._base import FOLDS
from polymargin.inspection import honest_rows, searches
from polymargin.inspection.members import member_name
from polymargin.kernels import Polynomial
from polymargin.solvers.pooling import pool_weights

X, Y = blobs(n=70, K=3, seed=0, shift=1.2)
X_NEW = blobs(n=200, K=3, seed=7, spread=2.0)[0]


def quick():
    return LSSVMClassifier(C=1.0, kernel="linear", coding="one-vs-all")


def ranks(member=None):
    """A member on rank-transformed columns."""
    return make_pipeline(
        QuantileTransformer(output_distribution="normal", n_quantiles=20),
        LSSVMClassifier(C=1.0, kernel="rbf", gamma=0.3) if member is None else member,
    )


def forest():
    return RandomForestClassifier(20, max_depth=4)


def boosted():
    return HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5)


@parametrize_with_checks(
    [AutoKernelClassifier(["linear", GaussianNB()]), AutoKernelClassifier([GaussianNB()])]
)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # variances of zero
        check(estimator)


# Out-of-fold probabilities ---------------------------------------------------------------------------------


def smoothed(p, counts):
    """(n p + π)/(n + 1) with the class frequencies π."""
    prior = (counts + 0.5) / (counts + 0.5).sum()
    return np.log((counts.sum() * p + prior) / (counts.sum() + 1))


def out_of_fold(member, model, weights=None):
    """What a member says of every row when fitted without the row's fold, by hand."""
    numbers = model._data.deal.fold_numbers(FOLDS)
    w = np.ones(70) if weights is None else weights
    effective = w * w.sum() / np.square(w).sum()
    log_p = np.empty((70, 3))
    for fold in range(FOLDS):
        kept, held = numbers != fold, numbers == fold
        given = {} if weights is None else {"sample_weight": weights[kept]}
        fitted = clone(member).fit(X[kept], Y[kept], **given)
        log_p[held] = smoothed(fitted.predict_proba(X[held]), np.bincount(Y[kept], effective[kept]))
    return log_p


MEMBERS = {
    "boosting": boosted(),
    "forest": forest(),
    "ranks": ranks(),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "neighbours": KNeighborsClassifier(3),
    "hinge": SVMClassifier(decoding="coupled-softmax", gamma=0.3),
    "kernel logistic": KernelLogisticClassifier(C=1.0, gamma=0.3),
    "search": GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3),
    "pool": AutoKernelClassifier([quick(), GaussianNB()]),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_enter_by_their_out_of_fold_probabilities(name):
    given = MEMBERS[name]
    model = AutoKernelClassifier([quick(), given]).fit(X, Y)
    assert not hasattr(given, "classes_")
    # What has no random state is given that of the pool.
    seeded = clone(given).set_params(
        **{
            key: 0
            for key, value in given.get_params().items()
            if key.endswith("random_state") and value is None
        }
    )
    honest = [model.members_[0].loo_log_proba_, out_of_fold(seeded, model)]
    expected = pool_weights(honest, Y, np.ones(70), model.log_prior_)
    assert_allclose(model.weights_, expected, atol=1e-6)
    own = [-log_p[np.arange(70), Y].mean() for log_p in honest]
    assert_allclose(model.member_losses_, own, rtol=1e-9)
    # Then it is fitted to all rows.
    alone = clone(seeded).fit(X, Y)
    assert_allclose(model.members_[1].predict_proba(X_NEW), alone.predict_proba(X_NEW), atol=1e-9)
    product = np.tile(model.log_prior_, (200, 1))
    for weight, log_p in zip(
        model.weights_,
        (
            model.members_[0].predict_log_proba(X_NEW),
            smoothed(alone.predict_proba(X_NEW), np.bincount(Y).astype(float)),
        ),
        strict=True,
    ):
        product += weight * (log_p - model.log_prior_)
    p = np.exp(product)
    assert_allclose(model.predict_proba(X_NEW), p / p.sum(axis=1, keepdims=True), atol=1e-9)
    assert model.loo_log_proba_.shape == (70, 3)


def test_a_pool_of_no_kernel_member():
    rows = X.copy()
    model = AutoKernelClassifier([forest(), GaussianNB()]).fit(rows, Y)
    before = honest_rows(model)
    rows[:] = 0.0  # the caller's array
    assert_array_equal(honest_rows(model).cells, before.cells)
    assert before.accuracy > 0.5
    assert searches(model) == []
    assert "weight of RandomForestClassifier" in model._repr_html_()
    assert "support vectors" not in model._repr_html_()
    with pytest.raises(AttributeError, match="only LSSVMClassifier members whose kernel has a name"):
        _ = model.feature_relevance_


def test_a_member_that_only_memorises_is_not_believed():
    # A tree that is grown to the end is certain of every training row, and right.
    random = np.random.default_rng(0)
    rows, y = random.normal(size=(200, 3)), random.integers(0, 2, 200)
    model = AutoKernelClassifier([quick(), DecisionTreeClassifier(), KNeighborsClassifier(1)]).fit(rows, y)
    assert (model.members_[1].predict(rows) == y).all()
    assert model.weights_[1:].max() < 0.1
    assert model.loo_log_loss_ > 0.9 * np.log(2)


def test_probabilities_of_zero_are_smoothed():
    model = AutoKernelClassifier([DecisionTreeClassifier(max_depth=3), KNeighborsClassifier(1)]).fit(X, Y)
    log_p = model.predict_log_proba(1e3 * X_NEW)
    assert np.isfinite(log_p).all()
    assert np.isfinite(model.member_losses_).all()
    prior = (np.bincount(Y) + 0.5) / 71.5
    assert_allclose(np.exp(model._log_proba(model.members_[1], X_NEW)).min(axis=0), prior / 71.0)


def test_names_are_kernels():
    model = AutoKernelClassifier(["blend", "poly", "rbf", "laplacian", "exponential", "linear"]).fit(X, Y)
    kernels = ["blend", Polynomial(2, centred=True), "rbf", "laplacian", "exponential", "linear"]
    assert [member.kernel for member in model.members_] == kernels
    assert {member.coding_ for member in model.members_} == {"one-vs-one"}


@pytest.mark.parametrize("metric", ["learned", None])
def test_default_members(metric):
    default = AutoKernelClassifier(metric=metric).fit(X, Y)
    named = [
        LSSVMClassifier(kernel="blend", metric=metric),
        "poly",
        LSSVMClassifier(kernel="laplacian", coding="one-vs-all", columns="ranks", metric=metric),
    ]
    assert_array_equal(
        AutoKernelClassifier(named).fit(X, Y).predict_proba(X_NEW), default.predict_proba(X_NEW)
    )
    if metric == "learned":
        assert_array_equal(
            AutoKernelClassifier().fit(X, Y).predict_proba(X_NEW), default.predict_proba(X_NEW)
        )


def test_a_metric_of_the_pool_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match='metric must be "learned" or None'):
        AutoKernelClassifier(metric="mahalanobis").fit(X, Y)


# Weights, groups, classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [3, 1])
def test_weights_reach_every_step_that_takes_them(n_columns):
    rows, new = X[:, :n_columns], X_NEW[:, :n_columns]
    weights = (1 + np.arange(70) % 3).astype(float)
    member = make_pipeline(StandardScaler(), LogisticRegression())
    model = AutoKernelClassifier([quick(), member]).fit(rows, Y, weights)
    alone = clone(member).fit(
        rows, Y, standardscaler__sample_weight=weights, logisticregression__sample_weight=weights
    )
    assert_allclose(model.members_[1].predict_proba(new), alone.predict_proba(new), atol=1e-12)
    copies = np.repeat(np.arange(70), weights.astype(int))
    repeated = AutoKernelClassifier([quick(), member]).fit(rows[copies], Y[copies], groups=copies)
    assert_allclose(model.weights_, repeated.weights_, atol=1e-6)
    assert_allclose(model.predict_proba(new), repeated.predict_proba(new), atol=1e-6)


def test_weighted_out_of_fold_probabilities():
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 70)
    model = AutoKernelClassifier([quick(), GaussianNB()]).fit(X, Y, weights)
    honest = [model.members_[0].loo_log_proba_, out_of_fold(GaussianNB(), model, weights)]
    effective = weights * weights.sum() / np.square(weights).sum()
    assert_allclose(model.weights_, pool_weights(honest, Y, effective, model.log_prior_), atol=1e-6)


@pytest.mark.parametrize(
    "member", [KNeighborsClassifier(3), make_pipeline(StandardScaler(), KNeighborsClassifier(3))]
)
def test_members_that_take_no_weights(member):
    pool = AutoKernelClassifier([GaussianNB(), member])
    with pytest.raises(
        ValueError, match=r"(?s)the rows are weighted, but fit of the member .* takes no sample_weight"
    ):
        pool.fit(X, Y, 1.0 + np.arange(70) % 2)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        clone(pool).set_params(class_weight={0: 2.0}).fit(X, Y)
    # Equal weights are no weights, and copies are merged without having been weighted.
    plain = pool.fit(X, Y).predict_proba(X_NEW)
    assert_allclose(clone(pool).fit(X, Y, np.full(70, 2.0)).predict_proba(X_NEW), plain, atol=1e-9)
    copies = np.concatenate([np.arange(70), np.arange(30)])
    assert clone(pool).fit(X[copies], Y[copies], groups=copies).support_.size == 70


def test_rows_without_weight_do_not_count():
    weights = (np.arange(70) % 3 > 0).astype(float)
    kept = weights > 0
    given = [quick(), KNeighborsClassifier(3), forest()]
    model = AutoKernelClassifier(given).fit(X, Y, weights)
    expected = AutoKernelClassifier(given).fit(X[kept], Y[kept])
    assert_allclose(model.predict_proba(X_NEW), expected.predict_proba(X_NEW), atol=1e-9)


def test_class_weights_and_priors():
    given = [quick(), GaussianNB()]
    factors = np.array([3.0, 1.0, 0.5])
    model = AutoKernelClassifier(given, class_weight=dict(enumerate(factors))).fit(X, Y)
    expected = AutoKernelClassifier(given).fit(X, Y, factors[Y])
    assert_array_equal(model.predict_proba(X_NEW), expected.predict_proba(X_NEW))
    shifted = AutoKernelClassifier(given, priors=[0.1, 0.2, 0.7]).fit(X, Y).predict_proba(X_NEW)
    p = AutoKernelClassifier(given).fit(X, Y).predict_proba(X_NEW) * [0.1, 0.2, 0.7] / np.bincount(Y)
    assert_allclose(shifted, p / p.sum(axis=1, keepdims=True), atol=1e-10)


def test_groups_are_held_out_together():
    seen = []

    class Spy(GaussianNB):
        def fit(self, X, y):
            seen.append({tuple(row) for row in X.round(1)})
            return super().fit(X, y)

    random = np.random.default_rng(0)
    near = X.repeat(2, axis=0) + 1e-3 * random.normal(size=(140, 3))
    groups = np.arange(140) // 2
    model = AutoKernelClassifier([quick(), Spy()]).fit(near, Y.repeat(2), groups=groups)
    numbers = model._data.deal.fold_numbers(FOLDS)
    assert len(seen) == FOLDS + 1
    for fold in range(FOLDS):
        assert not set(groups[numbers == fold]) & set(groups[numbers != fold])
        assert seen[fold] == {tuple(row) for row in near[numbers != fold].round(1)}
    # A nearest neighbour that is a copy is of no use.
    neighbours = AutoKernelClassifier([KNeighborsClassifier(1)])
    random_labels = random.integers(0, 2, 70).repeat(2)
    honest = clone(neighbours).fit(near, random_labels, groups=groups)
    leaking = clone(neighbours).fit(near, random_labels, groups=np.arange(140))
    assert honest.member_losses_[0] > 2.0 > 0.7 > leaking.member_losses_[0]


def test_groups_reach_kernel_machines_in_pipelines():
    groups = np.arange(70) // 2
    model = AutoKernelClassifier([ranks()]).fit(X, Y, groups=groups)
    assert_array_equal(model.members_[0][-1].bank_.data.groups, groups)


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(3),
        np.array([-1.0, 0.0, 7.0]),
        np.array(["a", "b", "cc"]),
        np.array(["a", "b", "cc"], dtype=object),
    ],
)
def test_a_class_that_a_fold_has_alone(labels):
    # One row of the third class: without its fold, members have never heard of it.
    keep = np.r_[np.flatnonzero(Y < 2), np.flatnonzero(Y == 2)[:1]]
    y = labels[Y[keep]]
    model = AutoKernelClassifier([quick(), GaussianNB(var_smoothing=0.1), forest()]).fit(X[keep], y)
    assert_array_equal(model.classes_, labels)
    p = model.predict_proba(X_NEW)
    assert p.shape == (200, 3)
    assert_allclose(p.sum(axis=1), 1.0)
    assert set(model.predict(X_NEW)) <= set(labels.tolist())
    # Of the lone row, the members know nothing but the share of a class that was not seen.
    counts = np.append(np.bincount(Y[keep])[:2], 0.0)
    numbers = model._data.deal.fold_numbers(FOLDS)
    kept = numbers != numbers[-1]
    counts = np.bincount(Y[keep][kept], minlength=3)
    prior = (counts + 0.5) / (counts.sum() + 1.5)
    alone = AutoKernelClassifier([GaussianNB(var_smoothing=0.1)]).fit(X[keep], y)
    assert_allclose(np.exp(alone.loo_log_proba_[-1, 2]), prior[2], rtol=1e-9)


def test_two_rows_and_two_classes():
    model = AutoKernelClassifier([GaussianNB(var_smoothing=1.0)]).fit([[0.0], [1.0]], ["no", "yes"])
    assert_allclose(np.exp(model.loo_log_proba_), [[0.25, 0.75], [0.75, 0.25]])
    assert model.predict([[1.1]])[0] == "yes"


# What is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member",
    [SVC(), LinearSVC(), SVMClassifier(decoding="votes"), make_pipeline(StandardScaler(), LinearSVC())],
)
def test_members_without_probabilities_are_refused(member):
    with pytest.raises(TypeError, match="members must have predict_proba"):
        AutoKernelClassifier([quick(), member]).fit(X, Y)


def test_soft_labels_are_for_kernel_members():
    with pytest.raises(ValueError, match=r"soft labels are for pools of LSSVMClassifier .* GaussianNB\(\)"):
        AutoKernelClassifier([quick(), GaussianNB()]).fit(X, np.eye(3)[Y])


class Strange(ClassifierMixin, BaseEstimator):
    """Gives probabilities that are none."""

    def __init__(self, value=np.nan):
        self.value = value

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        if self.value == 1.0:
            return np.ones((len(X), 5))
        return np.tile([self.value, 0.0, max(0.0, -3.0 * self.value)], (len(X), 1))


@pytest.mark.parametrize("value", [np.nan, 1.0, 0.0, -0.5])
def test_probabilities_that_are_none(value):
    message = "must give a number for each" if value == 1.0 else "undefined or negative numbers, or zero for"
    with pytest.raises(ValueError, match=rf"predict_proba of the member Strange.*{message}"):
        AutoKernelClassifier([quick(), Strange(value)]).fit(X, Y)


def test_precomputed_kernels():
    gram = np.exp(-0.2 * np.square(X[:, np.newaxis] - X[np.newaxis]).sum(axis=2))
    new = np.exp(-0.2 * np.square(X_NEW[:, np.newaxis] - X[np.newaxis]).sum(axis=2))
    weights = (np.arange(70) % 4 > 0).astype(float)
    hinge = SVMClassifier(kernel="precomputed", decoding="softmax", random_state=0)
    model = AutoKernelClassifier([LSSVMClassifier(C=2.0, kernel="precomputed"), hinge]).fit(gram, Y, weights)
    assert_allclose(model.predict_proba(new).sum(axis=1), 1.0)
    kept = np.flatnonzero(weights)
    alone = clone(hinge).fit(gram[np.ix_(kept, kept)], Y[kept])
    assert_allclose(
        model._log_proba(model.members_[1], new),
        smoothed(alone.predict_proba(new[:, kept]), np.bincount(Y[kept]).astype(float)),
        atol=1e-9,
    )
    numbers = model._data.deal.fold_numbers(FOLDS)
    losses = []
    for fold in range(FOLDS):
        train, test = kept[numbers != fold], kept[numbers == fold]
        p = clone(hinge).fit(gram[np.ix_(train, train)], Y[train]).predict_proba(gram[np.ix_(test, train)])
        log_p = smoothed(p, np.bincount(Y[train]).astype(float))
        losses.extend(-log_p[np.arange(test.size), Y[test]])
    assert_allclose(model.member_losses_[1], np.mean(losses), rtol=1e-7)
    with pytest.raises(ValueError, match="either all members or none"):
        AutoKernelClassifier([LSSVMClassifier(kernel="precomputed"), GaussianNB()]).fit(gram, Y)


# The same whatever the jobs, input and format --------------------------------------------------------------


def all_kinds():
    return [quick(), boosted(), forest(), ranks()]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_the_number_of_jobs_does_not_show(backend):
    expected = AutoKernelClassifier(all_kinds()).fit(X, Y)
    with joblib.parallel_config(backend=backend):
        model = AutoKernelClassifier(all_kinds(), n_jobs=2).fit(X, Y)
    for one in (model, pickle.loads(pickle.dumps(model)), clone(model).fit(X, Y)):
        for name in ("weights_", "member_losses_", "loo_log_proba_"):
            assert_array_equal(getattr(one, name), getattr(expected, name))
        assert_array_equal(one.predict_proba(X_NEW), expected.predict_proba(X_NEW))
    other = AutoKernelClassifier(all_kinds(), random_state=1).fit(X, Y)
    assert np.abs(other.predict_proba(X_NEW) - expected.predict_proba(X_NEW)).max() > 1e-4


def test_random_states_that_are_given_are_kept():
    model = AutoKernelClassifier([RandomForestClassifier(5, random_state=3), forest()], random_state=8).fit(
        X, Y
    )
    assert [member.random_state for member in model.members_] == [3, 8]
    assert_array_equal(
        model.members_[0].predict_proba(X_NEW),
        RandomForestClassifier(5, random_state=3).fit(X, Y).predict_proba(X_NEW),
    )


def test_pandas_and_sparse_rows():
    given = [quick(), forest(), LogisticRegression()]
    expected = AutoKernelClassifier(given).fit(X, Y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AutoKernelClassifier(given).fit(frame, pd.Series(Y))
        assert_array_equal(model.predict_proba(frame), expected.predict_proba(X))
    thin = AutoKernelClassifier(given).fit(sparse.csr_matrix(X), Y)
    assert_allclose(thin.predict_proba(sparse.csr_matrix(X_NEW)), expected.predict_proba(X_NEW), atol=1e-5)


def test_parameters_can_be_set():
    model = AutoKernelClassifier(["rbf", forest()])
    assert clone(model).get_params()["members"][0] == "rbf"
    assert clone(model).members[1].max_depth == 4
    model.set_params(members=[GaussianNB()]).fit(X, Y)
    assert [type(member) for member in model.members_] == [GaussianNB]


def test_progress_counts_all_members(monkeypatch):
    from polymargin.estimators import auto

    steps = []
    monkeypatch.setattr(auto, "shown", lambda verbose: contextlib.nullcontext(steps.append))
    AutoKernelClassifier([quick(), GaussianNB()]).fit(X, Y)
    assert [str(step) for step in steps] == [f"members: {done} of 2 members" for done in range(3)]


def test_members_are_named_in_diagrams_and_reports():
    pytest.importorskip("jinja2")
    from polymargin.report._model import model_parts

    model = AutoKernelClassifier([forest(), ranks(), LSSVMClassifier(kernel="rbf")]).fit(X, Y)
    names = ["RandomForestClassifier", "QuantileTransformer, rbf, one-vs-one", "rbf, one-vs-one"]
    assert [member_name(member) for member in model.members_] == names
    page = model._repr_html_()
    for name in names:
        assert f"weight of {name}<" in page
    assert "What was tried by rbf, one-vs-one" in page
    parts = model_parts(make_pipeline(StandardScaler(), model).fit(X, Y), X, Y, ["a", "b", "c"])
    assert {row["name"] for row in parts["members"]} == set(names)
    assert [row["loss"] for row in parts["members"]] == sorted(row["loss"] for row in parts["members"])
    assert parts["surface"]["of"] == "rbf, one-vs-one"
    assert len(parts["codebook"]["views"]) == 1
    alone = make_pipeline(AutoKernelClassifier([forest(), GaussianNB()])).fit(X, Y)
    parts = model_parts(alone, X, Y, ["a", "b", "c"])
    assert parts["codebook"] is None
    assert parts["tried"] is None
    assert "selects C and gamma" in parts["surface"]["missing"]


def test_members_are_named_by_the_command_line():
    pytest.importorskip("typer")
    from polymargin.cli._models import chosen
    from polymargin.cli.fit import _chosen_table

    facts = chosen(AutoKernelClassifier([GaussianNB(), quick()]).fit(X, Y))
    assert [member["kernel"] for member in facts["members"]] == ["GaussianNB", "linear"]
    assert _chosen_table("AutoKernelClassifier", facts).row_count == 2


def test_model_files(tmp_path):
    from polymargin import load, save
    from polymargin.persistence import ModelFileError, describe

    kept = [quick(), ranks(), LogisticRegression(), GaussianNB(), KernelLogisticClassifier(C=1.0, gamma=0.3)]
    model = AutoKernelClassifier(kept).fit(X, Y)
    save(model, tmp_path / "pool.model")
    loaded = load(tmp_path / "pool.model")
    assert_array_equal(loaded.predict_proba(X_NEW), model.predict_proba(X_NEW))
    assert honest_rows(loaded).accuracy == honest_rows(model).accuracy
    told = describe(tmp_path / "pool.model")["training"]["members"]
    assert [member["model"] for member in told] == [
        "LSSVMClassifier",
        "Pipeline(QuantileTransformer, LSSVMClassifier)",
        "LogisticRegression",
        "GaussianNB",
        "KernelLogisticClassifier",
    ]
    only = AutoKernelClassifier([GaussianNB()]).fit(X, Y)
    save(only, tmp_path / "only.model")
    assert_array_equal(load(tmp_path / "only.model").predict_proba(X_NEW), only.predict_proba(X_NEW))

    with pytest.raises(ModelFileError, match=r"members_\[0\].* is of the type sklearn.tree"):
        save(AutoKernelClassifier([forest()]).fit(X, Y), tmp_path / "refused.model")

    class Own(GaussianNB):
        pass

    with pytest.raises(ModelFileError, match=r"model.members\[1\]"):
        save(AutoKernelClassifier([quick(), Own()]).fit(X, Y), tmp_path / "refused.model")


def onnx_outputs(model, rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    from polymargin.onnx import to_onnx

    session = onnxruntime.InferenceSession(to_onnx(model, float64=True).SerializeToString())
    return session.run(None, {"X": rows})


@pytest.mark.parametrize("names", [np.arange(3), np.array(["a", "b", "c"])])
def test_onnx(names):
    uniform = make_pipeline(
        QuantileTransformer(n_quantiles=20), LSSVMClassifier(C=1.0, kernel="rbf", gamma=3.0)
    )
    members = [
        quick(),
        forest(),
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), LSSVMClassifier(C=1.0, kernel="rbf", gamma=0.3)),
        uniform,
        KernelLogisticClassifier(C=1.0, gamma=0.3),
    ]
    model = make_pipeline(StandardScaler(), AutoKernelClassifier(members)).fit(X, names[Y])
    label, p = onnx_outputs(model, X_NEW)
    # skl2onnx has the values of trees in float32.
    assert_allclose(p, model.predict_proba(X_NEW), atol=1e-5)
    assert_array_equal(label, model.predict(X_NEW))
    exact = AutoKernelClassifier([members[0], members[4]]).fit(X, names[Y])
    assert_allclose(onnx_outputs(exact, X_NEW)[1], exact.predict_proba(X_NEW), atol=1e-10)


def test_members_that_cannot_be_exported_are_named():
    pytest.importorskip("skl2onnx")
    from polymargin.onnx import to_onnx

    with pytest.raises(
        ValueError, match="cannot convert QuantileTransformer, rbf, one-vs-one, a member of the pool"
    ):
        to_onnx(AutoKernelClassifier([quick(), ranks()]).fit(X, Y))
    strange = AutoKernelClassifier([quick(), GaussianNB()]).fit(X, Y)
    strange.members_[1] = Strange(1.0).fit(X, Y)
    with pytest.raises(ValueError, match="cannot convert Strange, a member of the pool") as raised:
        to_onnx(strange)
    assert "export a pool without this member" in str(raised.value)


def test_reasons_are_told_in_a_line():
    pytest.importorskip("skl2onnx")
    from polymargin.onnx.estimators import _reason

    long = ValueError("Unable to create a node with attributes={'class_ids': [0,\n 0,\n 0]}.")
    long.__cause__ = TypeError("Expected an int, got a boolean.\nMore of it.")
    assert _reason(long) == "Expected an int, got a boolean"
    assert _reason(ValueError()) == "ValueError"


def test_a_member_that_says_nothing_changes_little():
    without = AutoKernelClassifier([quick()]).fit(X, Y)
    silent = AutoKernelClassifier([quick(), DummyClassifier()]).fit(X, Y)
    assert abs(silent.loo_log_loss_ - without.loo_log_loss_) < 0.02


def test_default_stands_for_the_default_members():
    X, y = blobs(40, 3)
    default = AutoKernelClassifier(metric=None).fit(X, y)
    named = AutoKernelClassifier(["default", "linear"], metric=None).fit(X, y)
    assert [str(member) for member in named.members_[:3]] == [str(member) for member in default.members_]
    assert named.members_[3].kernel == "linear"
    assert_array_equal(named.members_[0].predict_proba(X), default.members_[0].predict_proba(X))
