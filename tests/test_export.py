"""``polymargin export``: the file, what is printed, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

import polymargin
from polymargin import LSSVMClassifier, SVMClassifier
from polymargin.cli import app
from polymargin.tables import preparation

onnxruntime = pytest.importorskip("onnxruntime", reason="install polymargin with its onnx extra")
pytest.importorskip("skl2onnx", reason="install polymargin with its onnx extra")
pytest.importorskip("skops", reason="install polymargin with its persist extra")
from polymargin.onnx import initial_types, to_onnx  # noqa: E402

FIXED = {"C": 5.0, "gamma": 0.1, "kernel": "rbf", "selection": None}


@pytest.fixture(scope="module")
def table():
    """Flowers with a missing number, a missing text, and names that no programmer would choose."""
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X, columns=["sepal length (cm)", "sepal.width", "label", "größe"])
    colours = np.array(["red", "blue", "light blue"], dtype=object)
    frame["colour"] = colours[(y + np.arange(150) // 7) % 3]
    frame.loc[3, "sepal.width"] = np.nan
    frame.loc[5, "colour"] = None
    return frame, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def model_file(table, tmp_path_factory):
    frame, labels = table
    model = make_pipeline(preparation(frame), LSSVMClassifier(**FIXED)).fit(frame, labels)
    path = tmp_path_factory.mktemp("models") / "flowers.skops"
    polymargin.save(model, path)
    return path


def export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def feeds(session, frame):
    """Return what goes in, and the rows that it stands for."""
    given, rows = {}, frame.copy()
    for tensor in session.get_inputs():
        if tensor.type == "tensor(string)":
            given[tensor.name] = frame[[tensor.name]].fillna("").to_numpy(dtype=object)
        else:
            dtype = np.float32 if tensor.type == "tensor(float)" else np.float64
            given[tensor.name] = frame[[tensor.name]].to_numpy(dtype=dtype)
            rows[tensor.name] = given[tensor.name].astype(np.float64)
    return given, rows


@pytest.mark.parametrize(("options", "limit"), [((), 1e-5), (("--float64",), 1e-9)])
def test_a_table_of_numbers_and_texts(table, model_file, tmp_path, options, limit):
    frame, _ = table
    path = tmp_path / "flowers.onnx"
    done = export(model_file, "-o", path, *options)
    assert done.exit_code == 0, done.output
    assert "100% of the labels equal" in done.output
    session = onnxruntime.InferenceSession(path)
    frame = frame.rename(columns={"label": "label1"})  # an output is called "label"
    assert [tensor.name for tensor in session.get_inputs()] == list(frame)
    given, rows = feeds(session, frame)
    rows = rows.rename(columns={"label1": "label"})
    labels, proba = session.run(None, given)
    model = polymargin.load(model_file)
    np.testing.assert_allclose(proba, model.predict_proba(rows), atol=limit)
    np.testing.assert_array_equal(labels, model.predict(rows))
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == model.classes_.tolist()


def test_dictionaries_operator_set_and_json(table, model_file, tmp_path):
    path = tmp_path / "flowers.onnx"
    done = export(model_file, "-o", path, "--zipmap", "--opset", "15", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["opset"] == 15
    assert document["bytes"] == path.stat().st_size
    assert document["inputs"][0] == {"name": "sepal length (cm)", "type": "float", "shape": [None, 1]}
    assert document["inputs"][-1]["type"] == "string"
    assert document["classes"] == ["setosa", "versicolor", "virginica"]
    assert document["check"]["largest_difference"] < 1e-6
    session = onnxruntime.InferenceSession(path)
    given, rows = feeds(session, table[0][:2])
    proba = polymargin.load(model_file).predict_proba(rows)
    for dictionary, row in zip(session.run(None, given)[1], proba, strict=True):
        np.testing.assert_allclose([dictionary[name] for name in document["classes"]], row, atol=1e-6)


def test_the_file_is_named_after_the_model(model_file):
    assert export(model_file).exit_code == 0
    assert model_file.with_suffix(".onnx").is_file()


def test_a_model_without_names_and_without_probabilities(tmp_path):
    X, y = load_iris(return_X_y=True)
    polymargin.save(make_pipeline(StandardScaler(), SVMClassifier()).fit(X, y), tmp_path / "svm.skops")
    done = export(tmp_path / "svm.skops", "--json")
    document = json.loads(done.output)
    assert document["inputs"] == [{"name": "X", "type": "float", "shape": [None, 4]}]
    assert document["check"]["largest_difference"] < 1e-6
    assert document["check"]["equal_labels"] == 1.0


def test_what_is_wrong_is_said_in_one_line(model_file, tmp_path):
    X, y = load_iris(return_X_y=True)
    odd = tmp_path / "odd.skops"
    polymargin.save(make_pipeline(AdditiveChi2Sampler(), LSSVMClassifier(**FIXED)).fit(X, y), odd)
    gram = tmp_path / "gram.skops"
    polymargin.save(LSSVMClassifier(kernel="precomputed", C=1.0).fit(X @ X.T, y), gram)
    damaged = tmp_path / "damaged.skops"
    damaged.write_bytes(model_file.read_bytes()[:-100])
    for arguments, message in (
        ([model_file, "-o", tmp_path / "model.bin"], "does not end in .onnx"),
        ([tmp_path / "nothing.skops"], "no file"),
        ([model_file, "-o", tmp_path / "nowhere" / "model.onnx"], "nowhere"),
        ([model_file, "-o", tmp_path / "old.onnx", "--opset", "9"], "13 or newer"),
        ([model_file, "-o", tmp_path / "new.onnx", "--opset", "999"], "999"),
        ([gram], "precomputed"),
        ([odd], "AdditiveChi2Sampler"),
        ([damaged], "damaged.skops"),
    ):
        done = export(*arguments)
        assert done.exit_code != 0
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*.onnx"))


def test_inputs_of_transformers_of_columns(table):
    frame, labels = table
    frame = frame.assign(unused=1.0).dropna()
    labels = labels[frame.index]
    columns = ColumnTransformer(
        [("n", StandardScaler(), ["label", "größe"]), ("t", OneHotEncoder(sparse_output=False), ["colour"])]
    )
    model = make_pipeline(columns, LSSVMClassifier(**FIXED)).fit(frame, labels)
    kinds = {name: type(kind).__name__ for name, kind in initial_types(model)}
    assert kinds == {"label": "FloatTensorType", "größe": "FloatTensorType", "colour": "StringTensorType"}
    by_number = ColumnTransformer(
        [("n", StandardScaler(), slice(0, 2)), ("t", OneHotEncoder(sparse_output=False), [4])]
    )
    model = make_pipeline(by_number, LSSVMClassifier(**FIXED)).fit(frame.to_numpy(dtype=object), labels)
    assert [name for name, _ in initial_types(model)] == [f"x{j}" for j in range(6)]
    session = onnxruntime.InferenceSession(to_onnx(model, float64=True).SerializeToString())
    given = {
        tensor.name: frame.iloc[:, [place]].to_numpy(dtype=object if "string" in tensor.type else np.float64)
        for place, tensor in enumerate(session.get_inputs())
    }
    expected = model.predict_proba(frame.to_numpy(dtype=object))
    np.testing.assert_allclose(session.run(None, given)[1], expected, atol=1e-9)
