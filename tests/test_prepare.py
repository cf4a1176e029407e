"""`polymargin.prepare`: frames of pandas, polars and Arrow with columns of every type, in pipelines and files."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import polymargin
from polymargin import AutoKernelClassifier, LSSVMClassifier, prepare
from polymargin.inspection import feature_relevance
from polymargin.tables import TablePreparation

N = 60
FIXED = {"kernel": "rbf", "C": 5.0, "gamma": 0.05, "selection": None}


def resized(*values):
    return [values[i % len(values)] for i in range(N)]


@pytest.fixture
def frame():
    """A frame with a column of every kind."""
    day = pd.Timestamp("2024-01-31")
    return pd.DataFrame(
        {
            "float": resized(1.5, np.nan, 3.0, 4.5),
            "int": resized(1, 2, 2, 4, 5),
            "nullable": pd.array(resized(1, None, 3), dtype="Int64"),
            "decimal comma": resized("1,5", "2,5", "-", "1.234,5"),
            "dollars": resized("$1,234.50", "$7", None),
            "bool": resized(True, False, False),
            "truth": pd.array(resized(True, None, False), dtype="boolean"),
            "category": pd.Categorical(resized("u", "v", None, "w")),
            "number of a kind": pd.Categorical(resized(1, 2, 10)),
            "text": resized("red", "green", None),
            "string": pd.array(resized("x", None, "y"), dtype="string"),
            "mixed": resized("a", 1, None, 2.5),
            "when": pd.to_datetime(resized(day, day + pd.Timedelta(days=3), None)),
            "moment": pd.to_datetime(resized("2024-01-31T06:00Z", "2024-03-01T18:00Z"), utc=True),
            "day in words": resized("31 January 2024", "1 February 2024"),
            "date object": resized(datetime.date(2024, 1, 31), None, datetime.date(2024, 2, 1)),
            "duration": pd.to_timedelta(resized("1 day", "12 hours")),
            7: resized(0, 1, 2),
            "label": resized("no", "no", "no", "yes", "yes", "yes", "no"),
        }
    )


KINDS = {
    "float": "number",
    "int": "number",
    "nullable": "number",
    "decimal comma": "number",
    "dollars": "number",
    "bool": "number",
    "truth": "number",
    "category": "text",
    "number of a kind": "text",
    "text": "text",
    "string": "text",
    "mixed": "text",
    "when": "date",
    "moment": "time",
    "day in words": "date",
    "date object": "date",
    "duration": "number",
    "7": "number",
}


def standardised(values):
    values = np.asarray(values, dtype=float)
    filled = np.where(np.isnan(values), np.nanmean(values), values)
    return (filled - filled.mean()) / filled.std()


def test_columns_of_every_type(frame):
    prepared = prepare(frame, "label")
    assert prepared.columns == KINDS
    assert prepared.left_out == {}
    X = prepared.fit_transform(frame)
    assert X.dtype == np.float64
    assert np.isfinite(X).all()
    named = dict(zip(prepared.get_feature_names_out(), X.T, strict=True))
    assert len(named) == X.shape[1]
    for name, values in {
        "float": resized(1.5, np.nan, 3.0, 4.5),
        "nullable": resized(1, np.nan, 3),
        "decimal comma": resized(1.5, 2.5, np.nan, 1234.5),
        "dollars": resized(1234.5, 7, np.nan),
        "truth": resized(1, np.nan, 0),
    }.items():
        assert_allclose(named[name], standardised(values), atol=1e-12, err_msg=name)
        assert_array_equal(named[f"{name}_missing"], np.isnan(values))
    assert_allclose(named["duration"], standardised(resized(1.0, 0.5)), atol=1e-12)
    assert_allclose(named["7"], standardised(resized(0, 1, 2)), atol=1e-12)
    for name, values, kinds in (
        ("category", resized("u", "v", None, "w"), "uvw"),
        ("number of a kind", resized("1", "2", "10"), ["1", "2", "10"]),
        ("text", resized("red", "green", None), ["red", "green"]),
        ("mixed", resized("a", "1", None, "2.5"), ["a", "1", "2.5"]),
    ):
        for kind in kinds:
            assert_array_equal(named[f"{name}_{kind}"], [value == kind for value in values])
    first, second = 19_753.0, 19_754.0  # the 31st of January and the 1st of February 2024
    for name in ("day in words", "date object"):
        values = resized(first, second) if name == "day in words" else resized(first, np.nan, second)
        assert_allclose(named[f"{name}_day"], standardised(values), atol=1e-9)
    season = np.sin(2 * np.pi * np.array(resized(first, second)) / 365.2425)
    assert_allclose(named["day in words_season_sin"], standardised(season), atol=1e-9)
    hours = np.sin(2 * np.pi * np.array(resized(0.25, 0.75)))
    assert_allclose(named["moment_hour_sin"], standardised(hours), atol=1e-9)
    assert not named["moment_hour_cos"].any()  # it is zero at six, in the morning and in the evening
    assert "when_hour_sin" not in named


def test_polars_and_arrow_give_the_same(frame):
    polars = pytest.importorskip("polars")
    # What polars and Arrow do not have.
    plain = frame.drop(columns=["mixed", "number of a kind"]).rename(columns=str)
    of_arrow = pa.Table.from_pandas(plain, preserve_index=False)
    of_polars = polars.from_arrow(of_arrow).with_columns(
        polars.col("category").cast(polars.String).cast(polars.Categorical),
        polars.col("string").cast(polars.Enum(["x", "y"])),
    )
    expected = prepare(plain, "label").fit(plain)
    for other in (of_arrow, of_polars):
        prepared = prepare(other, "label").fit(other)
        assert prepared.columns == expected.columns
        assert_allclose(prepared.transform(other), expected.transform(plain), atol=1e-12)
        assert_allclose(expected.transform(other), expected.transform(plain), atol=1e-12)
    model = make_pipeline(prepare(of_polars, "label"), LSSVMClassifier(**FIXED))
    y = of_polars["label"].to_numpy()
    of_pandas = make_pipeline(expected, LSSVMClassifier(**FIXED))
    scores = cross_val_score(of_pandas, plain, plain["label"], cv=3)
    assert_array_equal(cross_val_score(model, of_polars, y, cv=3), scores)
    assert_allclose(
        model.fit(of_polars, y).predict_proba(of_polars[:5]),
        model.fit(plain, plain["label"]).predict_proba(plain[:5]),
        atol=1e-12,
    )


def test_unknown_values_missing_columns_and_another_order(frame):
    prepared = prepare(frame, "label").fit(frame)
    X = prepared.transform(frame)
    assert_array_equal(prepared.transform(frame[frame.columns[::-1]].assign(more=1)), X)
    other = frame.assign(text="blue", category="z", string=None)
    names = prepared.get_feature_names_out()
    of_texts = [j for j, name in enumerate(names) if name.startswith(("text_", "category_", "string_"))]
    changed = prepared.transform(other)
    assert not changed[:, of_texts].any()
    assert_array_equal(np.delete(changed, of_texts, 1), np.delete(X, of_texts, 1))
    # Another type that says the same.
    same = frame.assign(
        int=frame["int"].astype(str), bool=frame["bool"].astype(float), text=frame["text"].astype("category")
    )
    assert_array_equal(prepared.transform(same.assign(**{"number of a kind": resized(1, 2, 10)})), X)
    with pytest.raises(ValueError, match="no column 'dollars'"):
        prepared.transform(frame.drop(columns="dollars"))
    with pytest.raises(
        ValueError,
        match=r"row 1 \(counted from 0\): 'many' in the column 'int', which holds numbers; correct it",
    ):
        prepared.transform(frame.assign(int=resized("1", "many")))
    with pytest.raises(ValueError, match="'tomorrow' in the column 'day in words' is no date"):
        prepared.transform(frame.assign(**{"day in words": "tomorrow"}))
    with pytest.raises(TypeError, match="frame of pandas, polars or pyarrow is needed"):
        prepared.transform(frame.to_numpy())


def test_columns_that_are_left_out(frame):
    frame = frame.assign(
        id=np.random.default_rng(0).permutation(N) + 100,
        name=[f"person {i}" for i in range(N)],
        same=1,
        empty=None,
        many=resized(*(f"t{i}" for i in range(25))),
        items=[[1]] * N,
    )
    with pytest.warns(
        UserWarning, match="columns are left out .*'id': it has a different whole number"
    ) as caught:
        prepared = prepare(frame, "label", max_categories=20)
    assert caught[0].filename == __file__
    assert list(prepared.left_out) == ["items", "id", "name", "same", "empty", "many"]
    assert prepared.columns == KINDS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropped = prepare(frame, "label", drop=["items", "name", "same", "empty", "many"], use=["id"])
    assert dropped.columns == KINDS | {"id": "number"}
    for wrong, words in [
        ({"target": "nobody"}, "no column 'nobody'"),
        ({"drop": ["x"]}, "no column 'x'"),
        ({"drop": ["int"], "use": ["int"]}, "'int' cannot be used"),
    ]:
        with pytest.raises(ValueError, match=words):
            prepare(frame, **wrong)
    with pytest.raises(TypeError, match="collections of names"):
        prepare(frame, drop="int")
    with pytest.raises(TypeError, match="target takes names of columns of the frame, not a Series"):
        prepare(frame, frame["label"])
    with pytest.raises(ValueError, match="has no column 'label'; it has no columns at all"):
        prepare(pd.DataFrame(), "label")
    with pytest.raises(ValueError, match="no column to learn from: 'same': it is constant"):
        prepare(frame[["same"]])


def test_columns_that_are_called_by_whole_numbers():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)))
    assert prepare(frame, 0, drop=[2]).columns == {"1": "number"}


def test_a_word_that_keeps_a_column_from_being_numbers_is_named():
    sizes = pd.Series([f"{i % 40},5" for i in range(N)])
    sizes[7] = "k.A."
    with pytest.warns(UserWarning, match="make what is no number missing: 'k.A.' in 'size'"):
        prepare(pd.DataFrame({"size": sizes, "age": np.arange(N) % 7}), max_categories=20)


def test_values_and_means_are_those_of_the_training_rows(frame):
    prepared = prepare(frame, "label")
    few = frame.iloc[:2]
    X = clone(prepared).fit(few).transform(frame)
    assert X.shape == (N, len(clone(prepared).fit(few).get_feature_names_out()))
    assert "text_green" in clone(prepared).fit(few).get_feature_names_out()
    assert "category_w" not in clone(prepared).fit(few).get_feature_names_out()
    assert_allclose(X[:, 1], (np.array(resized(1, 2, 2, 4, 5)) - 1.5) / 0.5)


def test_names_that_would_come_twice():
    frame = pd.DataFrame({"a": resized("x", "y"), "a_x": resized(1, 2)})
    names = prepare(frame).fit(frame).get_feature_names_out().tolist()
    assert names == ["numbers__a_x", "texts__a_x", "texts__a_y"]


def test_with_the_tools_of_scikit_learn(frame):
    y = frame.pop("label")
    model = make_pipeline(prepare(frame), LSSVMClassifier(kernel="rbf", gamma=0.05, selection=None))
    search = GridSearchCV(model, {"lssvmclassifier__C": [0.1, 10.0]}, cv=3).fit(frame, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert list(search.feature_names_in_) == list(KINDS)
    assert_array_equal(clone(search.best_estimator_).fit(frame, y).predict(frame), search.predict(frame))
    framed = clone(model[0]).set_output(transform="pandas").fit_transform(frame)
    assert framed.columns.tolist() == model[0].fit(frame).get_feature_names_out().tolist()
    with pytest.raises(
        polymargin.persistence.ModelFileError, match=r"GridSearchCV holds folds.*best_estimator_"
    ):
        polymargin.save(search, "search.model")


def test_saved_with_the_model(frame, tmp_path):
    pytest.importorskip("skops", reason="install polymargin with its persist extra")
    y = frame.pop("label")
    model = make_pipeline(prepare(frame), LSSVMClassifier(**FIXED)).fit(frame, y)
    polymargin.save(model, tmp_path / "a.model")
    loaded = polymargin.load(tmp_path / "a.model")
    assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert repr(loaded[0]) == repr(model[0])


def test_the_same_model_as_the_command_line(frame, tmp_path):
    """A file is read as a frame is, and a model of one predicts the rows of the other."""
    pytest.importorskip("skops", reason="install polymargin with its persist extra")
    from typer.testing import CliRunner

    from polymargin.cli import app

    frame = frame[["float", "dollars", "text", "moment", "day in words", "label"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", str(tmp_path / "t.csv"), "-o", str(tmp_path / "t.model"), "-m", "ls-svm", "-k", "rbf"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    loaded = polymargin.load(tmp_path / "t.model")
    ours = make_pipeline(prepare(frame, "label"), clone(loaded[-1])).fit(frame, frame["label"])
    assert_allclose(loaded.predict_proba(frame), ours.predict_proba(frame), atol=1e-8)
    assert loaded[0].columns == ours[0].columns


def test_exported_with_the_model(frame):
    onnxruntime = pytest.importorskip("onnxruntime", reason="install polymargin with its onnx extra")
    pytest.importorskip("skl2onnx", reason="install polymargin with its onnx extra")
    from polymargin.onnx import check, to_onnx

    frame = frame[["float", "dollars", "text", "when", "moment", "label"]]
    model = make_pipeline(prepare(frame, "label"), LSSVMClassifier(**FIXED)).fit(frame, frame["label"])
    converted = to_onnx(model, float64=True)
    assert check(model, converted).largest_difference < 1e-9
    session = onnxruntime.InferenceSession(converted.SerializeToString())
    names = ["float", "dollars", "text", "when", "moment"]
    assert [given.name for given in session.get_inputs()] == names
    typed = model[0]._typed(frame)  # dates are days there
    feeds = {
        name: typed[[name]].fillna("").to_numpy(dtype=object) if name == "text" else typed[[name]].to_numpy()
        for name in names
    }
    assert_allclose(session.run(None, feeds)[1], model.predict_proba(frame), atol=1e-9)


def test_relevance_of_columns_not_of_features(frame):
    frame = frame[["float", "text", "moment", "int", "label"]]
    model = make_pipeline(prepare(frame, "label"), LSSVMClassifier(**FIXED)).fit(frame, frame["label"])
    found = feature_relevance(model)
    assert sorted(found.names) == sorted(["float", "text", "moment", "int"])
    assert_allclose(found.relevance.sum(), 1.0)


def test_errors_name_the_estimator_that_was_called():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="AutoKernelClassifier does not accept missing values") as caught:
        AutoKernelClassifier().fit(X, y)
    assert "LSSVMClassifier" not in str(caught.value)


def test_a_preparation_of_unknown_kinds():
    with pytest.raises(ValueError, match="columns hold 'number'"):
        TablePreparation({"a": "colour"}).fit(pd.DataFrame({"a": [1, 2]}))


def plain(**columns):
    """Return a frame with a number, a label and some further columns."""
    return pd.DataFrame(
        {"size": np.random.default_rng(0).normal(size=N), "label": resized("a", "b")} | columns
    )


def test_intervals_and_periods():
    sizes = plain()["size"].where(np.arange(N) > 0)  # one is missing
    months = pd.period_range("2020-01", periods=N, freq="M")
    frame = plain(
        cut=pd.cut(sizes, 3, labels=None),
        months=months,
        quarters=pd.Categorical(pd.PeriodIndex(resized("2020Q1", "2021Q3"), freq="Q")),
    )
    prepared = prepare(frame, "label")
    assert prepared.columns == {"size": "number", "cut": "text", "months": "date", "quarters": "text"}
    X = prepared.fit_transform(frame)
    names = prepared.get_feature_names_out().tolist()
    bins = [f"cut_{interval}" for interval in frame["cut"].cat.categories]
    assert_array_equal(X[:, [names.index(name) for name in bins]], pd.get_dummies(frame["cut"]).astype(float))
    days = (months.to_timestamp() - pd.Timestamp("1970-01-01")).days
    assert_allclose(X[:, names.index("months_day")], standardised(days))


def test_complex_numbers_are_left_out():
    with pytest.warns(UserWarning, match="'wave': it holds neither numbers nor texts nor dates"):
        assert list(prepare(plain(wave=1j * np.arange(N)), "label").columns) == ["size"]


def test_a_frame_without_rows():
    frame = plain(wave=resized("u", "v"))
    model = make_pipeline(prepare(frame, "label"), LSSVMClassifier(**FIXED)).fit(frame, frame["label"])
    with pytest.raises(ValueError, match="the frame has no rows"):
        model.predict(frame.head(0))


def test_columns_of_several_levels():
    frame = plain().set_axis(pd.MultiIndex.from_tuples([("a", "size"), ("b", "label")]), axis=1)
    with pytest.raises(TypeError, match="MultiIndex have several: flatten them first"):
        prepare(frame, ("b", "label"))


@pytest.mark.parametrize(
    ("labels", "y"),
    [
        (resized("a", "b", "c"), resized("a", "b", "c")),
        (resized(0, 1), resized(0, 1)),
        (resized(0, 1), resized("0", "1")),
        (resized(True, False), resized(1.0, 0.0)),
    ],
)
def test_a_column_that_is_the_labels_is_warned_of(labels, y):
    frame = plain(answer=labels)
    for call in (prepare(frame).fit, prepare(frame).fit_transform):
        with pytest.warns(UserWarning, match="the column 'answer' is equal to the labels y"):
            call(frame, np.array(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(frame, "answer").fit(frame, y)
        prepare(frame).fit(frame)
        prepare(frame).fit(frame, [*y[:-1], y[0] if y[-1] != y[0] else y[1]])
