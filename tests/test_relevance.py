"""What a model looks at: relevances by the names of the columns of its input, through pipelines."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler

from polymargin import AutoKernelClassifier, LSSVMClassifier, SVMClassifier, load, save
from polymargin.inspection import FeatureRelevance, feature_relevance
from polymargin.tables import preparation


def linear(**parameters):
    return LSSVMClassifier(kernel="linear", C=1.0, **parameters)


@pytest.fixture(scope="module")
def table():
    """A table of numbers and texts, and labels that depend on the texts most."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=160),
            "colour": rng.choice(["blue", "green", "red"], 160).astype(object),
            "width": rng.normal(size=160),
            "a_b": rng.choice(["c", "b_c"], 160).astype(object),
        }
    )
    y = (frame["colour"] == "red") + 0.2 * frame["size"] + 0.2 * rng.normal(size=160) > 0.4
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def learned(table):
    frame, y = table
    return make_pipeline(preparation(frame), LSSVMClassifier(metric="learned")).fit(frame, y)


def test_indicators_are_joined_to_their_column(table, learned):
    frame, _ = table
    found = feature_relevance(learned)
    assert found.names == ("size", "colour", "width", "a_b")
    # The preparation puts numbers first: size, width, then three colours and two values of a_b.
    groups = {"size": [0], "width": [1], "colour": [2, 3, 4], "a_b": [5, 6]}
    own, folds = learned[-1].feature_relevance_, learned[-1].feature_relevance_folds_
    for name, share, spread in zip(found.names, found.relevance, found.std, strict=True):
        assert share == pytest.approx(own[groups[name]].sum())
        assert spread == pytest.approx(np.std(folds[:, groups[name]].sum(axis=1), ddof=1))
    assert found.relevance.sum() == pytest.approx(1.0)
    assert found.order.tolist()[0] == 1
    assert list(frame.columns) == list(found.names)


def test_other_names_and_a_table_of_plain_values(learned):
    found = feature_relevance(learned, ["one", "two", "three", "four"])
    assert found.names == ("one", "two", "three", "four")
    told = found.to_dict()
    assert told["name"][0] == "two"
    assert told["relevance"] == sorted(found.relevance.tolist(), reverse=True)
    assert json.loads(json.dumps(told)) == told
    assert pd.DataFrame(told).shape == (4, 3)
    with pytest.raises(ValueError, match="name 4 columns, not 2"):
        feature_relevance(learned, ["one", "two"])


def test_without_names_columns_are_counted():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = linear().fit(X, X[:, 1] > 0)
    found = feature_relevance(model)
    assert found.names == ("x0", "x1", "x2")
    assert found.std is None
    assert found.to_dict()["std"] == [None] * 3
    assert_allclose(found.relevance, model.feature_relevance_)
    named = linear().fit(pd.DataFrame(X, columns=["u", "v", "w"]), X[:, 1] > 0)
    assert feature_relevance(make_pipeline("passthrough", named)).names == ("u", "v", "w")


@pytest.mark.parametrize("encoder", [
    OneHotEncoder(),
    OneHotEncoder(drop="first"),
    OneHotEncoder(drop="if_binary"),
    OneHotEncoder(sparse_output=False, min_frequency=45),
    OneHotEncoder(sparse_output=False, max_categories=2),
    OneHotEncoder(feature_name_combiner=lambda feature, category: f"{category} of {feature}"),
], ids=["plain", "first", "binary", "frequency", "categories", "names"])  # fmt: skip
def test_all_ways_to_encode(table, encoder):
    frame, y = table
    model = make_pipeline(encoder, linear()).fit(frame[["colour", "a_b"]], y)
    found = feature_relevance(model)
    names = encoder.get_feature_names_out()
    own = model[-1].feature_relevance_
    of_colour = np.array(["colour" in name for name in names])
    assert found.names == ("colour", "a_b")
    assert_allclose(found.relevance, [own[of_colour].sum(), own[~of_colour].sum()])


@pytest.mark.parametrize("as_frames", [False, True])
def test_columns_are_followed_through_steps(table, as_frames):
    frame, y = table
    columns = ColumnTransformer(
        [
            ("scaled", Pipeline([("scale", StandardScaler()), ("pass", "passthrough")]), ["width", "size"]),
            ("texts", OneHotEncoder(sparse_output=False), [1, 3]),
            ("both", PCA(2), ["size", "width"]),
            ("none", "drop", ["a_b"]),
        ],
        remainder="passthrough",
    )
    model = make_pipeline(columns, StandardScaler(), SelectKBest(k=8), linear())
    model.set_output(transform="pandas" if as_frames else "default")
    found = feature_relevance(model.fit(frame, y))
    own = model[-1].feature_relevance_
    expected = dict.fromkeys(("size", "colour", "width", "a_b", "both__pca0", "both__pca1"), 0.0)
    kept = model[:-1].get_feature_names_out()
    for name, share in zip(kept, own, strict=True):
        part, _, rest = name.partition("__")
        source = name if part == "both" else next(column for column in frame if rest.startswith(column))
        expected[source] += share
    present = [name for name in expected if expected[name] > 0.0]
    assert list(found.names) == present
    assert_allclose(found.relevance, [expected[name] for name in present])


def test_columns_by_number_mask_and_slice():
    X = np.random.default_rng(0).normal(size=(80, 5))
    y = X[:, 3] > 0
    steps = make_column_transformer(
        (StandardScaler(), slice(3, 5)),
        ("passthrough", [True, False, False, False, False]),
        (StandardScaler(), [-3]),
    )
    model = make_pipeline(steps, linear()).fit(X, y)
    found = feature_relevance(model)
    assert found.names == ("x0", "x2", "x3", "x4")
    assert_allclose(found.relevance, model[-1].feature_relevance_[[2, 3, 0, 1]])


def test_products_of_columns_stand_for_themselves():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["u", "v"])
    model = make_pipeline(PolynomialFeatures(include_bias=False), linear()).fit(X, X["u"] > 0)
    found = feature_relevance(model, ["U", "V"])
    assert found.names == ("U", "V", "u^2", "u v", "v^2")
    assert_allclose(found.relevance, model[-1].feature_relevance_)


@pytest.mark.parametrize("first", [FunctionTransformer(np.tanh), ColumnTransformer(
    [("texts", StandardScaler(), slice("u", "v"))]
)], ids=["function", "slice"])  # fmt: skip
def test_steps_that_do_not_tell(first):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["u", "v"])
    model = make_pipeline(first, StandardScaler(), linear()).fit(X, X["u"] > 0)
    assert feature_relevance(model).names == ("x0", "x1")
    assert feature_relevance(model, ["U", "V"]).names == ("U", "V")
    with pytest.raises(ValueError, match="name 2 columns, not 3"):
        feature_relevance(model, ["U", "V", "W"])


def test_pools(table):
    frame, y = table
    pool = AutoKernelClassifier([linear(), LSSVMClassifier(kernel="rbf", C=1.0, gamma=0.1)])
    model = make_pipeline(preparation(frame), pool).fit(frame, y)
    found = feature_relevance(model)
    assert found.names == ("size", "colour", "width", "a_b")
    assert found.relevance[1] == pytest.approx(model[-1].feature_relevance_[2:5].sum())
    assert found.std is None


def test_searches_and_thresholds_have_that_of_their_model(table):
    frame, y = table
    model = make_pipeline(preparation(frame), LSSVMClassifier(kernel="linear", C=1.0))
    search = GridSearchCV(model, {"lssvmclassifier__C": [0.01, 1.0]}, cv=2).fit(frame, y)
    expected = feature_relevance(search.best_estimator_)
    for wrapped in (search, FixedThresholdClassifier(search).fit(frame, y), make_pipeline(search)):
        found = feature_relevance(wrapped)
        assert found.names == expected.names == ("size", "colour", "width", "a_b")
        assert_allclose(found.relevance, expected.relevance)
    with pytest.raises(NotFittedError):
        feature_relevance(GridSearchCV(model, {}))
    kept_none = GridSearchCV(model, {"lssvmclassifier__C": [1.0]}, cv=2, refit=False).fit(frame, y)
    with pytest.raises(AttributeError, match="GridSearchCV has no relevances"):
        feature_relevance(kept_none)


def test_model_files_know_it(learned, tmp_path):
    save(learned, tmp_path / "m.skops")
    found, expected = feature_relevance(load(tmp_path / "m.skops")), feature_relevance(learned)
    assert found.names == expected.names
    assert_allclose(found.relevance, expected.relevance, rtol=1e-12)
    assert_allclose(found.std, expected.std)


def test_models_without_relevances_say_so():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] > 0
    for model in (SVMClassifier(), LogisticRegression()):
        with pytest.raises(AttributeError, match=f"{type(model).__name__} has no relevances"):
            feature_relevance(make_pipeline(model).fit(X, y))
    own_kernel = LSSVMClassifier(kernel=lambda A, B: A @ B.T, C=1.0)
    with pytest.raises(AttributeError, match="formula"):
        feature_relevance(own_kernel.fit(X, y))
    with pytest.raises(AttributeError, match="no member of the pool"):
        feature_relevance(AutoKernelClassifier([own_kernel]).fit(X, y))
    with pytest.raises(NotFittedError):
        feature_relevance(LSSVMClassifier())


def test_columns_that_do_not_matter():
    """At most a tenth of an equal share, also with two standard deviations more."""
    names = ("large", "small and certain", "small and uncertain", "medium", "zero")
    relevance = np.array([0.855, 0.015, 0.015, 0.115, 0.0])
    std = np.array([0.0, 0.002, 0.003, 0.0, 0.0])
    assert FeatureRelevance(names, relevance, std).negligible == ("small and certain", "zero")
    assert FeatureRelevance(names, relevance).negligible == (
        "small and certain",
        "small and uncertain",
        "zero",
    )
    assert FeatureRelevance(names, np.zeros(5)).negligible == names


def test_noise_is_said_not_to_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 17))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=500) > 0
    found = feature_relevance(LSSVMClassifier(metric="learned").fit(X, y))
    assert set(found.order[:2].tolist()) == {0, 1}
    assert not {"x0", "x1"} & set(found.negligible)
    assert len(found.negligible) >= 5
