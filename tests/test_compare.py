"""The comparison of codings and decoders, its command, and the reader of CSV files."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from polymargin import AutoKernelClassifier, Bayes, LSSVMClassifier, SVMClassifier
from polymargin.cli import app
from polymargin.comparison import compare_codings, predict_codings
from polymargin.comparison.repeated import RepeatedComparison
from polymargin.comparison.standings import standings
from polymargin.datasets import Dataset, load, preprocessor, read_csv
from polymargin.decoders import resolve_decoder
from polymargin.estimators import fit_together
from polymargin.metrics import brier_score, calibration_error, log_loss
from polymargin.papers import _codings

CODINGS = ["one-vs-one", "one-vs-all", "minimal", "ecoc"]


@pytest.fixture(scope="module")
def split():
    return train_test_split(*load_wine(return_X_y=True), random_state=1, test_size=0.4)


DECODINGS = ["coupled-softmax", "softmax", "coupling", "bayes", "hamming", "loss", "argmax"]


@pytest.mark.parametrize(
    "estimator",
    [
        LSSVMClassifier(),
        LSSVMClassifier(selection="evidence", kernel="rbf", shared_parameters=False, random_state=0),
        SVMClassifier(C=None, gamma=None, random_state=0),
        SVMClassifier(C=2.0, class_weight="balanced"),
    ],
    ids=["least squares", "evidence", "svm", "svm, given"],
)
def test_comparison_gives_the_bits_of_the_estimator(split, estimator):
    X_train, X_test, y_train, _ = split
    X_train, X_test = X_train / X_train.std(axis=0), X_test / X_train.std(axis=0)
    decodings = [
        name
        for name in DECODINGS
        if isinstance(estimator, LSSVMClassifier) or not resolve_decoder(name).needs_variances
    ]
    found = predict_codings(
        X_train, y_train, X_test, codings=CODINGS, decodings=decodings, estimator=estimator
    )
    assert {prediction.coding for prediction in found} == set(CODINGS)
    assert {prediction.decoding for prediction in found} == set(decodings)
    for prediction in found:
        alone = clone(estimator).set_params(coding=prediction.coding, decoding=prediction.decoding)
        alone.fit(X_train, y_train)
        assert_array_equal(alone.classes_[prediction.labels], alone.predict(X_test))
        if prediction.log_proba is None:
            assert not hasattr(alone, "predict_proba")
        else:
            assert_array_equal(prediction.log_proba, alone.predict_log_proba(X_test))


def test_codings_may_be_matrices_and_one_name_and_svms_have_no_variances(split):
    X_train, X_test, y_train, y_test = split
    matrix = np.array([[1, -1], [-1, 1], [-1, -1]])
    for codings in ({"mine": matrix}, "minimal"):
        (found,) = predict_codings(X_train, y_train, X_test, codings=codings, decodings="hamming")
        assert found.labels.shape == y_test.shape
    scores = compare_codings(
        X_train, y_train, X_test, y_test, codings="one-vs-one", estimator=SVMClassifier()
    )
    assert [score.decoding for score in scores] == ["coupled-softmax", "softmax", "hamming", "loss"]


def test_estimators_that_are_fitted_together_differ_in_coding_and_decoding_only(split):
    with pytest.raises(ValueError, match="coding and decoding only"):
        fit_together([LSSVMClassifier(), LSSVMClassifier(kernel="rbf")], split[0], split[2])
    with pytest.raises(ValueError, match="coding and decoding only"):
        fit_together([LSSVMClassifier(), SVMClassifier()], split[0], split[2])


def test_estimators_that_are_fitted_together_have_the_same_folds(split):
    for random_state in (np.random.RandomState(0), "zero"):
        models = [
            LSSVMClassifier(random_state=random_state, decoding=name) for name in ("softmax", "coupling")
        ]
        with pytest.raises(ValueError, match="random_state must be a number or None"):
            fit_together(models, split[0], split[2])


def test_order_of_classes_numbers_the_minimal_code(split):
    X_train, X_test, y_train, y_test = split
    common = {"codings": ["minimal"], "decodings": {"plain": Bayes(noise="model")}, "kernel": "linear"}
    one = _codings.compare_codings(X_train, y_train, X_test, y_test, classes=[2, 0, 1], **common)
    relabelled = np.array([1, 2, 0])  # class 2 becomes 0, 0 becomes 1, 1 becomes 2
    other = _codings.compare_codings(X_train, relabelled[y_train], X_test, relabelled[y_test], **common)
    assert_allclose(one[0].log_loss, other[0].log_loss)


def test_decoders_that_cannot_read_a_coding_are_left_out(split):
    scores = compare_codings(
        *[split[i] for i in (0, 2, 1, 3)],
        codings=["one-vs-one", "ecoc"],
        decodings=["votes"],
        estimator=LSSVMClassifier(kernel="linear"),
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


# Repeated splits


@pytest.mark.parametrize(
    ("machine", "coding", "decoding", "make"),
    [
        ("auto", "pool", "pool", lambda seed: AutoKernelClassifier(random_state=seed)),
        (
            "ls-svm",
            "one-vs-all",
            "softmax",
            lambda seed: LSSVMClassifier(coding="one-vs-all", decoding="softmax", random_state=seed),
        ),
        (
            "svm",
            "one-vs-one",
            "coupling",
            lambda seed: SVMClassifier(C=None, gamma=None, decoding="coupling", random_state=seed),
        ),
    ],
)
def test_repeated_comparison_equals_estimators_fitted_by_hand(machine, coding, decoding, make):
    wine = load("wine")
    comparison = RepeatedComparison(wine, [machine], [coding], [decoding], repeats=2, seed=3)
    if machine == "auto":
        comparison = RepeatedComparison(wine, ["auto"], repeats=2, seed=3)
    (found,) = standings(comparison, [row for job in comparison.jobs() for row in comparison.run(job)])
    losses, tested, proba = [], [], []
    splits = StratifiedShuffleSplit(2, test_size=1 / 3, random_state=3).split(wine.X, wine.y)
    for number, (train, test) in enumerate(splits):
        model = make_pipeline(StandardScaler(), make(3 + number)).fit(wine.X[train], wine.y[train])
        losses.append(sklearn_log_loss(wine.y[test], model.predict_proba(wine.X[test])))
        tested.append(test)
        proba.append(model.predict_proba(wine.X[test]))
    assert tuple(found.method) == (machine, coding, decoding)
    # Probabilities are kept in single precision; the features are standardised with another rounding, which a solver
    # with a tolerance amplifies.
    tolerance = 1e-2 if machine == "svm" else 1e-5
    assert_allclose(found.log_loss, losses, rtol=tolerance)
    assert_allclose(np.exp(found.tests.log_proba), np.concatenate(proba), atol=tolerance)
    assert (found.tests.row == np.concatenate(tested)).all()
    assert (found.tests.class_index == wine.y[found.tests.row] - 1).all()
    assert_allclose(
        found.calibration_error,
        calibration_error(wine.y[np.concatenate(tested)] - 1, np.concatenate(proba)),
        atol=tolerance,
    )
    json.dumps(found.as_json(), allow_nan=False)


def test_posterior_machines_compete():
    comparison = RepeatedComparison(
        load("iris"), ["posterior-svm"], decodings=["softmax", "bayes"], repeats=1
    )
    rows = comparison.run(comparison.jobs()[0])
    assert [(row["coding"], row["decoding"]) for row in rows] == [
        ("single", "softmax"),
        ("one-vs-all", "softmax"),
    ]
    assert all(row["value"] > 0.9 for row in rows)


def test_ranking_is_by_log_loss_then_accuracy():
    comparison = RepeatedComparison(
        load("iris"), ["ls-svm"], ["one-vs-one"], ["hamming", "bayes", "softmax"], repeats=1
    )
    found = standings(comparison, comparison.run(comparison.jobs()[0]))
    losses = [math.inf if standing.log_loss is None else standing.log_loss.mean() for standing in found]
    assert losses == sorted(losses)
    assert found[-1].method.decoding == "hamming"
    assert found[-1].calibration_error is None


def test_other_data_or_options_are_another_comparison():
    wine, iris = load("wine"), load("iris")
    digest = RepeatedComparison(wine).digest
    assert (
        RepeatedComparison(wine, repeats=20).digest == digest
    )  # more splits go on with those that are there
    assert RepeatedComparison(wine, ["svm"]).digest == digest
    changed = wine.X.copy()
    changed[0, 0] += 1e-9
    for other in (
        RepeatedComparison(iris),
        RepeatedComparison(wine.take(np.arange(177))),
        RepeatedComparison(type(wine)("wine", changed, wine.y, wine.feature_names, "changed")),
        RepeatedComparison(wine, seed=1),
        RepeatedComparison(wine, kernel="linear"),
        RepeatedComparison(wine, codings=["ecoc"]),
    ):
        assert other.digest != digest


# The command


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYMARGIN_CACHE", str(tmp_path / "cache"))


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
    result = run(iris_file, "-t", "kind", "-m", "ls-svm", "-r", 2, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["data"] == "[b]<i>flowers"
    losses = [row["log_loss"]["mean"] for row in document["scores"] if row["log_loss"]]
    assert losses == sorted(losses)
    assert len(document["scores"]) == 24
    assert document["scores"][0]["accuracy"]["mean"] > 0.85


def test_command_prints_the_table_and_writes_the_report(iris_file, tmp_path):
    report = tmp_path / "report.html"
    result = run(iris_file, "-r", 1, "-c", "one-vs-all", "-k", "linear", "--report", report)
    assert result.exit_code == 0, result.stderr
    assert "one-vs-all" in result.stdout
    assert "[b]<i>flowers: 150 rows, 4 features, 3 classes" in result.stdout
    assert "one-vs-all" in report.read_text()
    # One split has no standard deviation.
    assert "(0.0" not in result.stdout
    assert "±" not in report.read_text().split("<main")[1].split("plotly")[0]
    assert "on the test rows of 1 split: " in report.read_text()
    assert "[b]&lt;i&gt;flowers" in report.read_text()


def test_command_with_several_machines(iris_file):
    result = run(iris_file, "-r", 1, "-m", "svm", "-m", "auto", "-c", "one-vs-one", "--json")
    assert result.exit_code == 0, result.stderr
    scores = json.loads(result.stdout)["scores"]
    assert {(score["machine"], score["decoding"]) for score in scores[:4]} == {
        ("svm", "coupled-softmax"), ("svm", "softmax"), ("svm", "coupling"), ("auto", "pool")
    }  # fmt: skip
    assert {score["decoding"] for score in scores[4:]} == {"hamming", "loss"}
    assert all(score["accuracy"]["mean"] > 0.85 for score in scores)


def test_the_title_says_that_a_pool_has_its_own_kernels(iris_file):
    few = ("-r", 1, "-c", "minimal", "-d", "bayes", "-k", "linear")
    result = run(iris_file, *few, "-m", "ls-svm", "-m", "auto")
    assert result.exit_code == 0, result.stderr
    assert "linear kernel, auto with its own" in " ".join(result.stdout.split())


QUICK = ("-c", "minimal", "-d", "bayes", "-k", "linear", "--json")


def test_command_goes_on_where_it_was_killed(iris_file, tmp_path):
    whole = run(iris_file, "-r", 3, *QUICK, "--journal", tmp_path / "whole")
    torn = run(iris_file, "-r", 3, *QUICK, "--journal", tmp_path / "torn")
    assert whole.exit_code == torn.exit_code == 0
    (journal,) = (tmp_path / "torn").rglob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    jobs = [number for number, line in enumerate(lines) if b'"kind": "job"' in line]
    assert len(jobs) == 3
    journal.write_bytes(b"".join(lines[: jobs[1]]) + lines[jobs[1]][:50])  # killed while it wrote the second
    resumed = run(iris_file, "-r", 3, *QUICK, "--journal", tmp_path / "torn")
    assert "1 of 3 trainings were finished earlier" in resumed.stderr
    assert json.loads(resumed.stdout) == json.loads(whole.stdout)


def test_command_adds_splits_and_begins_afresh(iris_file):
    first = run(iris_file, "-r", 1, *QUICK)
    assert "finished earlier" not in first.stderr
    more = run(iris_file, "-r", 2, *QUICK)
    assert "1 of 2 trainings were finished earlier" in more.stderr
    assert "finished earlier" not in run(iris_file, "-r", 2, *QUICK, "--fresh").stderr
    iris_file.write_text(iris_file.read_text().replace("5.1,", "5.2,"))
    assert "finished earlier" not in run(iris_file, "-r", 2, *QUICK).stderr


def test_command_counts_rows_without_a_label(iris_file):
    lines = iris_file.read_text().splitlines()
    lines[7] = lines[7].rpartition(",")[0] + ","
    lines[9] = lines[9].rpartition(",")[0] + ",NA"
    iris_file.write_text("\n".join(lines))
    result = run(iris_file, "-r", 1, *QUICK)
    assert "2 of 150 rows have no label" in result.stderr
    document = json.loads(result.stdout)
    assert (document["rows"], document["unlabelled"]) == (148, 2)


def test_copies_are_a_note_and_no_python_warning(tmp_path, recwarn):
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.array(["x", "y", "z"])[y])
    pd.concat([frame, frame.iloc[::5]]).to_csv(tmp_path / "copied.csv", index=False)
    options = ["-m", "auto", "-r", 1, "--journal", tmp_path / "journal"]
    result = run(tmp_path / "copied.csv", *options, "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.stderr
    (note,) = [line for line in result.stderr.splitlines() if "copies" in line]
    assert note.startswith("note: 30 of 180 rows are copies of other rows")
    assert "30 of 180 rows are copies of other rows" in (tmp_path / "page.html").read_text()
    assert not [warning for warning in recwarn if "copies" in str(warning.message)]
    document = json.loads(run(tmp_path / "copied.csv", *options, "--json").stdout)
    assert document["notes"] == [note.removeprefix("note: ")]
    frame.to_csv(tmp_path / "plain.csv", index=False)
    assert "copies" not in run(tmp_path / "plain.csv", *options).stderr


def test_command_with_two_classes_has_one_dichotomy(tmp_path):
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "two.csv"
    path.write_text(
        "a,b,y\n" + "\n".join(f"{a},{b},{k}" for (_, _, a, b), k in zip(X[50:], y[50:], strict=True))
    )
    result = run(path, "-r", 1, "-d", "softmax", "--json")
    assert "two classes have one dichotomy" in result.stderr
    assert [score["coding"] for score in json.loads(result.stdout)["scores"]] == ["one-vs-one"]


def test_table_and_page_show_the_same_calibration(iris_file, tmp_path):
    result = run(iris_file, "-r", 2, "-c", "minimal", "-d", "bayes", "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if "bayes" in line]
    calibration = line.split("│")[-2].strip()
    page = (tmp_path / "page.html").read_text()
    assert f"<dt>Calibration error</dt><dd>{calibration}</dd>" in page
    assert f"report: {(tmp_path / 'page.html').resolve()}" in result.stdout


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("wine", "-r", 1, *QUICK, "--journal", tmp_path / "file")
    assert result.exit_code == 1
    assert "choose another --journal" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "no dataset 'nosuch'"),
        (["nosuch.csv"], "no file nosuch.csv"),
        (["wine", "-k", "cosine"], "unknown kernel 'cosine'"),
        (["wine", "-m", "auto", "-k", "poly"], "--kernel poly would change nothing"),
        (["wine", "-m", "knn"], "unknown machine 'knn'"),
        (["wine", "-m", "svm", "-d", "bayes", "-r", "1"], "support vector machines have no variances"),
        (["wine", "-m", "svc", "-m", "baseline"], "name at least one of auto, ls-svm, svm, posterior-svm"),
        (["wine", "-m", "auto", "-m", "svc", "-k", "rbf"], "auto and svc have kernels of their own"),
        (["wine", "--drop", "x"], "there is no column 'x' to drop; there are alcohol"),
        (["wine", "-c", "all-vs-all"], "unknown coding 'all-vs-all'; choose among one-vs-one, one-vs-all"),
        (["wine", "-c", "adaptive"], "compare has no adaptive coding; choose among one-vs-one, one-vs-all"),
        (["wine", "-d", "guess"], "unknown decoding 'guess'"),
        (["wine", "-c", "minimal", "-d", "dag", "-r", "1"], "none of these decoders can read"),
        (["wine", "--target", "x"], "name columns of a file"),
        (["FILE", "--target", "x"], "flowers.csv has no column 'x'"),
        (["wine", "--report", "/no/such/folder/r.html", "-r", "1"], "r.html: there is no folder"),
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
    prepared = preprocessor(data).fit_transform(data.X)
    assert prepared[:, 1].tolist() == [0.0, 1.0, 0.0]  # a number is missing
    assert prepared[:, 2].tolist() == [1.0, 0.0, 1.0]  # "x"; a text that is missing has none
    assert prepared[1, 0] == 0.0


def test_values_that_training_rows_lack_have_no_indicator():
    X = np.array([["a", None, 1.0], [None, None, np.nan], ["b", None, 2.0], ["c", "u", 1.0]], dtype=object)
    data = Dataset("toy", X, np.arange(4) % 2, ("p", "q", "r"), "here", nominal=("p", "q", "r"))
    train = np.array([0, 1, 2])
    prepared = preprocessor(data.take(train)).fit(X[train]).transform(X)
    assert prepared.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    numbers = Dataset("toy", np.array([[1.0], [np.nan], [3.0]]), np.arange(3), ("p",), "here", nominal=("p",))
    assert preprocessor(numbers).fit_transform(numbers.X).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_command_with_missing_categories(tmp_path):
    generator = np.random.default_rng(0)
    colours = generator.choice(["red", "blue", ""], 60)
    sizes = generator.normal(size=60) + (colours == "red")
    lines = [
        f"{size:.3f},{colour},{'p' if colour == 'red' else 'q'}"
        for size, colour in zip(sizes, colours, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["size,colour,kind", *lines, "1.0,green,p", "2.0,green,q"]))
    result = run(tmp_path / "t.csv", "-k", "blend", "-d", "softmax", "-r", 2, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["kernel"] == "blend"
    assert document["scores"][0]["accuracy"]["mean"] > 0.9


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(tmp_path, separator):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n1,x,0\n2,y,1\n".replace(",", separator))
    assert read_csv(path).feature_names == ("a", "b")


def test_one_class(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,u\n2,u\n")
    result = run(path)
    assert result.exit_code != 0
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
