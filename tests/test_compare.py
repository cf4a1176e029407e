"""The comparison of codings and decoders, its command, and the reader of CSV files."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.model_selection import train_test_split
from typer.testing import CliRunner

from polymargin import Bayes, LSSVMClassifier
from polymargin.cli import app
from polymargin.comparison import compare_codings
from polymargin.datasets import preprocessor, read_csv
from polymargin.metrics import brier_score, log_loss

CODINGS = ["one-vs-one", "one-vs-all", "minimal", "ecoc"]


@pytest.fixture(scope="module")
def split():
    return train_test_split(*load_wine(return_X_y=True), random_state=1, test_size=0.4)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("decoding", ["bayes", "hamming", "loss"])
def test_comparison_equals_one_estimator_after_another(split, shared, decoding):
    X_train, X_test, y_train, y_test = split
    X_train, X_test = X_train / X_train.std(axis=0), X_test / X_train.std(axis=0)
    scores = compare_codings(
        X_train,
        y_train,
        X_test,
        y_test,
        codings=CODINGS,
        decodings=[decoding],
        shared_parameters=shared,
        random_state=0,
    )
    assert [score.coding for score in scores] == CODINGS
    for score in scores:
        model = LSSVMClassifier(
            kernel="rbf",
            coding=score.coding,
            decoding=decoding,
            selection="evidence",
            shared_parameters=shared,
            random_state=0,
        ).fit(X_train, y_train)
        assert score.accuracy == model.score(X_test, y_test)
        if decoding == "bayes":
            proba = model.predict_proba(X_test)
            assert_allclose(score.log_loss, sklearn_log_loss(y_test, proba), rtol=1e-6)
            assert_allclose(score.brier, brier_score(y_test, proba), rtol=1e-6)
        else:
            assert score.log_loss is None
            assert score.brier is None


def test_order_of_classes_numbers_the_minimal_code(split):
    X_train, X_test, y_train, y_test = split
    common = {"codings": ["minimal"], "decodings": {"plain": Bayes(noise="model")}, "kernel": "linear"}
    one = compare_codings(X_train, y_train, X_test, y_test, classes=[2, 0, 1], **common)
    relabelled = np.array([1, 2, 0])  # class 2 becomes 0, 0 becomes 1, 1 becomes 2
    other = compare_codings(X_train, relabelled[y_train], X_test, relabelled[y_test], **common)
    assert_allclose(one[0].log_loss, other[0].log_loss)


def test_decoders_that_cannot_read_a_coding_are_left_out(split):
    scores = compare_codings(
        *[split[i] for i in (0, 2, 1, 3)],
        codings=["one-vs-one", "ecoc"],
        decodings=["votes"],
        kernel="linear",
    )
    assert [score.coding for score in scores] == ["one-vs-one"]


def test_unknown_test_label_is_refused(split):
    X_train, X_test, y_train, y_test = split
    with pytest.raises(ValueError, match="label 7 is not among the classes"):
        compare_codings(X_train, y_train, X_test, np.full_like(y_test, 7))


def test_scores():
    index = np.array([0, 1, 1])
    proba = np.array([[0.8, 0.2], [0.4, 0.6], [0.9, 0.1]])
    assert_allclose(log_loss(index, np.log(proba)), sklearn_log_loss(index, proba))
    assert_allclose(brier_score(index, proba), np.mean([0.08, 0.32, 1.62]))


# The command


@pytest.fixture
def iris_file(tmp_path):
    X, y = load_iris(return_X_y=True)
    rows = [
        f"{a},{b},{'red' if c > 3 else 'blue'},{d},k{label}" for (a, b, c, d), label in zip(X, y, strict=True)
    ]
    rows[3] = rows[3].replace("blue", "")
    path = tmp_path / "[b]<i>flowers.csv"
    path.write_text("\n".join(["a,b,c,d,kind", *rows]))
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_command_on_a_csv(iris_file):
    result = run(iris_file, "--target", "kind", "-r", 2, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["data"] == "[b]<i>flowers"
    losses = [row["log_loss"]["mean"] for row in document["scores"] if row["log_loss"]]
    assert losses == sorted(losses)
    assert len(document["scores"]) == 24
    assert document["scores"][0]["accuracy"]["mean"] > 0.9


def test_command_prints_the_table_and_writes_the_report(iris_file, tmp_path):
    report = tmp_path / "report.html"
    result = run(iris_file, "-r", 1, "-c", "one-vs-all", "-k", "linear", "--report", report)
    assert result.exit_code == 0, result.stderr
    assert "one-vs-all" in result.stdout
    assert "[b]<i>flowers: 150 rows, 4 features, 3 classes" in result.stdout
    assert "one-vs-all" in report.read_text()
    assert "[b]&lt;i&gt;flowers" in report.read_text()


def test_command_with_support_vector_machines(iris_file):
    result = run(iris_file, "-r", 1, "-m", "svm", "-c", "one-vs-one", "--json")
    assert result.exit_code == 0, result.stderr
    scores = json.loads(result.stdout)["scores"]
    assert {score["decoding"] for score in scores[:3]} == {"coupled-softmax", "softmax", "coupling"}
    assert {score["decoding"] for score in scores[3:]} == {"hamming", "loss"}
    assert all(score["accuracy"]["mean"] > 0.9 for score in scores)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "no dataset 'nosuch'"),
        (["nosuch.csv"], "no file nosuch.csv"),
        (["wine", "-k", "cosine"], "unknown kernel 'cosine'"),
        (["wine", "-m", "knn"], "unknown machine 'knn'"),
        (["wine", "-m", "svm", "-d", "bayes", "-r", "1"], "support vector machines have no variances"),
        (["wine", "-c", "all-vs-all"], "unknown coding 'all-vs-all'"),
        (["wine", "-d", "guess"], "unknown decoding 'guess'"),
        (["wine", "-c", "minimal", "-d", "dag", "-r", "1"], "none of these decoders can read"),
        (["wine", "--target", "x"], "--target names a column of a CSV file"),
        (["FILE", "--target", "x"], "flowers.csv has no column 'x'"),
        (["wine", "--report", "/no/such/folder/r.html", "-r", "1"], "cannot write the report"),
    ],
)
def test_errors_are_one_line(iris_file, arguments, words):
    result = run(*[iris_file if argument == "FILE" else argument for argument in arguments])
    assert result.exit_code != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("polymargin:")]) == 1


# Reading CSV files


def test_missing_values_and_types(tmp_path):
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wt") as stream:
        stream.write("﻿n,c,y\n1,x,0\n?,NA,1\n3,y,\n4.5,x,1\n")
    data = read_csv(path)
    assert data.feature_names == ("n", "c")
    assert data.nominal == ("c",)
    assert data.y.tolist() == [0, 1, 1]  # a row without a label is left out
    assert data.X[:, 1].tolist() == ["x", None, "x"]
    assert np.isnan(data.X[1, 0])
    assert preprocessor(data).fit(data.X).transform(data.X).shape == (3, 3)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(tmp_path, separator):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n1,x,0\n2,y,1\n".replace(",", separator))
    assert read_csv(path).feature_names == ("a", "b")


def test_one_class(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,u\n2,u\n")
    result = run(path)
    assert result.exit_code == 1
    assert "has only one class" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n", "needs a header row and data"),
        ("a,b\n1,2\n1\n", "row 3: 1 fields where the header has 2"),
        ("a,a\n1,2\n", "more than one column 'a'"),
    ],
)
def test_bad_files(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_csv(path)


def test_not_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xff\xfe\x00a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"t\.csv is not a CSV file"):
        read_csv(path)
