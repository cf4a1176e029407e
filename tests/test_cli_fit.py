"""``polymargin fit``: tables in, a model and an honest word about it out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss
from typer.testing import CliRunner

import polymargin
from polymargin import _memory
from polymargin.cli import _progress as cli_progress
from polymargin.cli import app
from polymargin.cli import fit as cli_fit
from polymargin.cli._models import make_classifier, note_on_many_classes
from polymargin.cli._quality import by_leave_one_out
from polymargin.cli._scores import quality_lines, warning_lines
from polymargin.cli.fit import _check_rows, _metric_lines
from polymargin.inspection import feature_relevance, honest_rows
from polymargin.persistence import describe


def run(*arguments):
    return CliRunner().invoke(app, ["fit", *map(str, arguments)])


def flowers(n_missing=5):
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X, columns=["sepal length", "<script>", "petal, length", "width"])
    frame["colour"] = np.where(frame["width"] > 1, "red", "blue")
    frame["wild"] = np.arange(150) % 3 == 0
    frame.loc[: n_missing - 1, "colour"] = None
    frame.loc[10:14, "width"] = np.nan
    frame["kind"] = np.array(["setosa", "versicolor", "virginica"])[y]
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table and a model of it."""
    folder = tmp_path_factory.mktemp("fit")
    flowers().to_csv(folder / "flowers.csv", index=False)
    result = run(folder / "flowers.csv", "-m", "ls-svm", "-o", folder / "flowers.skops", "--json")
    assert result.exit_code == 0, result.stderr
    (folder / "flowers.json").write_text(result.stdout)
    return folder


def test_document_says_what_the_model_is(folder):
    document = json.loads((folder / "flowers.json").read_text())
    model = polymargin.load(folder / "flowers.skops")
    classifier = model[-1]
    assert document["classes"] == ["setosa", "versicolor", "virginica"]
    assert document["columns"]["colour"] == "text"
    assert document["columns"]["wild"] == "number"
    assert document["chosen"]["C"] == classifier.C_[0]
    assert document["chosen"]["gamma"] == classifier.gamma_[0]
    assert document["chosen"]["kernel"] == classifier.kernel_.name
    assert describe(folder / "flowers.skops")["summary"]["target"] == "kind"
    quality = document["quality"]
    assert quality["method"] == "leave-one-out"
    y = flowers()["kind"]
    log_proba = classifier.loo_log_proba_
    assert_allclose(quality["log_loss"], sklearn_log_loss(y, np.exp(log_proba)))
    assert_allclose(quality["accuracy"], (classifier.classes_[log_proba.argmax(1)] == y).mean())
    assert_allclose(quality["log_loss_of_frequencies"], np.log(3))
    assert quality["log_loss"] < 0.3


def test_model_works_from_python_on_the_frame_that_pandas_reads(folder):
    model = polymargin.load(folder / "flowers.skops")
    frame = pd.read_csv(folder / "flowers.csv")
    proba = model.predict_proba(frame.assign(more=1)[["more", *frame.columns[::-1]]])
    assert_allclose(proba, model.predict_proba(flowers()))
    assert (model.classes_[proba.argmax(1)] == frame["kind"]).mean() > 0.95
    assert list(model.named_steps) == ["prepare", "classifier"]


def test_people_are_told_the_choice_the_quality_and_the_notes(tmp_path):
    frame = flowers().assign(id=[f"n{i}" for i in range(150)])[["id", *flowers().columns]]
    frame.loc[20:22, "kind"] = None
    frame.to_csv(tmp_path / "f.csv", index=False, sep=";")
    result = run(tmp_path / "f.csv", "-m", "ls-svm", "-k", "rbf", "-o", tmp_path / "f.skops")
    assert result.exit_code == 0, result.stderr
    for words in (
        "f: 147 rows, 6 columns (1 of texts), 3 classes of 'kind'",
        "rbf",
        "one-vs-one",
        "log-loss 0.",
    ):
        assert words in result.stdout
    assert "baseline, the class frequencies: 1.09" in result.stdout
    assert "calibration error" in result.stdout
    assert "3 of 150 rows have no label in 'kind' and are left out ('': 3)" in result.stderr
    assert (
        "not learned from:\n  'id': it has a different text in every row, like an identifier" in result.stdout
    )
    assert "'id'" not in result.stderr
    assert "exact machines" not in result.stderr


def test_auto_is_the_default_and_shows_its_members(tmp_path):
    result = run("wine", "--sample", 60, "-o", tmp_path / "w.skops", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    model = polymargin.load(tmp_path / "w.skops")
    assert document["n_rows"] == 60
    assert document["estimator"] == "AutoKernelClassifier"
    assert [member["weight"] for member in document["chosen"]["members"]] == model[-1].weights_.tolist()
    assert_allclose(document["quality"]["log_loss"], model[-1].loo_log_loss_)
    assert model[-1].verbose == 0


def test_the_runner_up_is_named(folder, tmp_path):
    result = run(folder / "flowers.csv", "-m", "ls-svm", "-o", tmp_path / "m.skops")
    classifier = polymargin.load(folder / "flowers.skops")[-1]
    tried = pd.DataFrame(classifier.search_results_)
    name, loss = tried.loc[tried["chosen"], ["kernel", "loss"]].iloc[0]
    other, least = tried[tried["kernel"] != name].sort_values("loss").iloc[0][["kernel", "loss"]]
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("chosen by")]
    assert line.startswith(f"chosen by the cross-fitted log-loss on 150 rows: {name}")
    assert f"({loss:.4f}); runner-up: {other}" in line
    assert line.endswith(f"({least:.4f})")
    found = json.loads((folder / "flowers.json").read_text())["chosen"]["search_results"]
    assert found["runner_up"]["kernel"] == other
    assert [row["loss"] for row in found["candidates"]] == sorted(classifier.search_results_["loss"])
    assert found["n_rows"] == 150
    given = run(
        folder / "flowers.csv", "-m", "svm", "-k", "linear", "--sample", 60, "-o", tmp_path / "m.skops"
    )
    assert "runner-up" not in given.stdout


def noisy(tmp_path, n=400):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 14)), columns=[f"noise {j}" for j in range(14)])
    frame["[bold]wave"] = rng.normal(size=n)
    frame["colour"] = rng.choice(["blue", "green", "red"], n)
    value = np.sin(2.0 * frame["[bold]wave"]) + 1.5 * (frame["colour"] == "red") + 0.3 * rng.normal(size=n)
    frame["kind"] = np.where(value > 0.5, "up", "down")
    frame.to_csv(tmp_path / "noisy.csv", index=False)
    return tmp_path / "noisy.csv"


def test_columns_that_matter_and_those_that_do_not(tmp_path):
    file = noisy(tmp_path)
    options = [file, "-m", "ls-svm", "--metric", "learned", "-o", tmp_path / "m.skops"]
    document = json.loads(run(*options, "--json").stdout)
    model = polymargin.load(tmp_path / "m.skops")
    assert model[-1].metric == "learned"
    found, expected = document["relevance"], feature_relevance(model)
    assert found["name"] == expected.to_dict()["name"]
    assert_allclose(found["relevance"], expected.to_dict()["relevance"])
    assert_allclose(found["std"], expected.to_dict()["std"])
    assert set(found["name"][:2]) == {"[bold]wave", "colour"}
    assert found["negligible"]
    assert all(name.startswith("noise") for name in found["negligible"])
    assert describe(tmp_path / "m.skops")["summary"]["relevance"] == found
    result = run(*options)
    text = " ".join(result.stdout.split())
    named = [
        f"{name!r} {share:.1%} (± {std:.1%})"
        for name, share, std in zip(found["name"], found["relevance"], found["std"], strict=True)
        if name not in found["negligible"]
    ]
    assert f"depends most on (sensitivity, not cause): {', '.join(named[:5])}" in text
    assert f"hardly depends on: {', '.join(map(repr, found['negligible'][:10]))}" in text
    results = document["chosen"]["metric_results"]
    assert results["chosen"].index(True) > 0
    assert f"learned metric: kept, {results['chosen'].index(True)} round" in text
    assert f"{results['loss'][0]:.4f} without it" in text


def test_a_metric_that_does_not_help_is_said_to_be_dropped(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(60, 30))).assign(kind=rng.permutation(np.arange(60) % 2))
    frame.to_csv(tmp_path / "noise.csv", index=False)
    result = run(
        tmp_path / "noise.csv", "-m", "ls-svm", "--metric", "learned", "-o", tmp_path / "m", "-t", "kind"
    )
    assert result.exit_code == 0, result.stderr
    assert "learned metric: not kept" in result.stdout
    found = {"loss": [0.5], "loss_on_all_rows": [None], "chosen": [True], "n_rows": [60]}
    assert next(_metric_lines({"metric_results": found})).startswith("learned metric: none")
    # Learned from a sample, and no better for all rows.
    found |= {"loss": [0.5, 0.4, 0.3], "loss_on_all_rows": [0.25, None, 0.26], "chosen": [True, False, False]}
    assert next(_metric_lines({"metric_results": found})) == (
        "learned metric: not kept (loss 0.3000, 0.5000 without it, on 60 rows; "
        "0.2600 and 0.2500 with machines of all rows)"
    )


def test_rows_that_a_metric_was_learned_from_are_not_held_out():
    X, y = load_iris(return_X_y=True)
    model = polymargin.LSSVMClassifier(kernel="linear", C=1.0).fit(X, y)
    assert by_leave_one_out(model).method == "leave-one-out"
    assert honest_rows(model).class_index.size == model.support_.size
    seen = np.arange(model.support_.size) % 3 == 0
    model.bank_ = replace(model.bank_, leak=seen)
    found = by_leave_one_out(model)
    assert found.method == f"leave-one-out, without {seen.sum()} rows that a metric was learned from"
    assert found.rows.tolist() == model.support_[~seen].tolist()
    rows = honest_rows(model)
    assert_allclose(rows.log_proba, model.loo_log_proba_[~seen])
    assert_allclose(found.log_proba, rows.log_proba)
    assert rows.class_index.tolist() == y[found.rows].tolist()
    assert rows.cells.size == found.cells.size == (~seen).sum()


def test_the_pool_names_its_columns_and_others_do_not(folder, tmp_path):
    options = [folder / "flowers.csv", "--sample", 60, "-o", tmp_path / "m.skops"]
    result = run(*options)
    assert "depends most on (sensitivity, not cause): '" in result.stdout
    assert "(± " in result.stdout
    assert result.stdout.count("not kept") + result.stdout.count("kept, ") == 2  # of three members
    result = run(*options, "--metric", "none")
    assert "depends most on (sensitivity, not cause): '" in result.stdout
    assert "±" not in result.stdout
    assert "kept" not in result.stdout
    names = set(json.loads(run(*options, "--json").stdout)["relevance"]["name"])
    assert names == {"sepal length", "<script>", "petal, length", "width", "colour", "wild"}
    assert "depends" not in run(*options, "-m", "svm", "-k", "linear").stdout


def test_groups_are_held_out_together(tmp_path):
    frame = flowers().drop(columns=["colour"]).fillna(0.0)
    frame["plant"] = [f"p{i // 3}" for i in range(150)]
    frame[[*frame.columns[:-2], "plant", "kind"]].to_csv(tmp_path / "f.csv", index=False)
    options = ["-m", "ls-svm", "-k", "rbf", "-o", tmp_path / "m.skops", "--json"]
    result = run(tmp_path / "f.csv", "--groups", "plant", *options)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert "plant" not in document["columns"]
    assert document["n_groups"] == 50
    pipeline = polymargin.load(tmp_path / "m.skops")
    again = polymargin.LSSVMClassifier(kernel="rbf", random_state=0)
    again.fit(pipeline[:-1].transform(frame), frame["kind"], groups=frame["plant"])
    assert_allclose(document["quality"]["log_loss"], again.loo_log_loss_)
    single = json.loads(run(tmp_path / "f.csv", "--drop", "plant", *options).stdout)
    assert single["quality"]["log_loss"] != document["quality"]["log_loss"]
    # Folds keep them together, too.
    result = run(tmp_path / "f.csv", "--groups", "plant", *options, "-d", "hamming")
    assert json.loads(result.stdout)["quality"]["method"] == "5 folds"


def test_folds_hold_out_no_part_of_a_group():
    from polymargin.cli._quality import _folds

    random = np.random.default_rng(0)
    groups = random.integers(0, 40, 200)
    index = np.where(groups == 7, 2, random.integers(0, 2, 200))  # all rows of class 2 are one group
    tested, folds = _folds(index, groups, 0)
    assert_allclose(np.sort(np.concatenate(folds)), np.arange(tested.size))
    for held in folds:
        assert not set(groups[tested[held]]) & set(np.delete(groups, tested[held]))
    assert set(np.arange(200)) - set(tested) == set(np.flatnonzero(groups == 7))


def copied(tmp_path, n_copies=30):
    frame = flowers().drop(columns=["colour", "wild"]).fillna(0.0)
    frame.iloc[:, :4] += np.random.default_rng(0).normal(scale=0.01, size=(150, 4))
    frame["plant"] = np.arange(150)
    frame = pd.concat([frame, frame.iloc[::5][:n_copies]])
    frame[[*frame.columns[:4], "plant", "kind"]].to_csv(tmp_path / "copied.csv", index=False)
    return tmp_path / "copied.csv"


@pytest.mark.parametrize("options", [["-k", "linear"], ["-d", "hamming", "-k", "linear"]])
def test_copies_are_a_note(tmp_path, options, recwarn):
    file, page = copied(tmp_path), tmp_path / "page.html"
    report = [] if "hamming" in options else ["--report", page]
    common = [file, "-m", "ls-svm", *options, "-o", tmp_path / "m.skops", "--json"]
    result = run(*common, *report, "--drop", "plant")
    assert result.exit_code == 0, result.stderr
    (note,) = [line for line in result.stderr.splitlines() if "copies" in line]
    assert note.startswith("note: 30 of 180 rows are copies of other rows with the same label")
    assert "--groups" in note
    assert "UserWarning" not in result.stderr
    assert "np.arange" not in note
    assert not [warning for warning in recwarn if "copies" in str(warning.message)]
    assert note.removeprefix("note: ") in json.loads(result.stdout)["notes"]
    if report:
        assert "30 of 180 rows are copies of other rows" in page.read_text()
    # Whoever says what belongs together is not told, whether it is the copies or nothing.
    told = run(*common, "--groups", "plant")
    assert told.exit_code == 0, told.stderr
    assert "copies" not in told.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("svm",),
        ("posterior-svm",),
        ("kernel-logistic",),
        ("ls-svm", "-d", "hamming"),
        ("ls-svm", "-d", "bayes", "-k", "rbf"),
    ],
)
def test_other_models(folder, tmp_path, options):
    result = run(folder / "flowers.csv", "--sample", 60, "-o", tmp_path / "m.skops", "--json", "-m", *options)
    assert result.exit_code == 0, result.stderr
    quality = json.loads(result.stdout)["quality"]
    assert quality["method"] == ("leave-one-out" if options[0] == "kernel-logistic" else "5 folds")
    assert quality["accuracy"] > 0.8
    assert ("log_loss" in quality) == ("hamming" not in options)
    assert polymargin.load(tmp_path / "m.skops").predict(flowers()).shape == (150,)


def test_weights_count_rows(tmp_path):
    frame = flowers()
    random = np.random.default_rng(0)
    weights = random.integers(0, 3, 150)
    frame.insert(0, "w", weights)
    frame.to_csv(tmp_path / "w.csv", index=False)
    options = ["-m", "ls-svm", "-k", "linear", "--json", "--drop", "wild"]
    result = run(tmp_path / "w.csv", "--weight", "w", "-o", tmp_path / "w.skops", *options)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert "w" not in document["columns"]
    assert "wild" not in document["columns"]
    classifier = polymargin.load(tmp_path / "w.skops")[-1]
    y = frame["kind"][weights > 0]
    expected = sklearn_log_loss(y, np.exp(classifier.loo_log_proba_), sample_weight=weights[weights > 0])
    assert_allclose(document["quality"]["log_loss"], expected)


def test_folds_against_scikit_learn(tmp_path, folder):
    """The quality in folds is what fitting and predicting by hand gives."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import Pipeline

    from polymargin import LSSVMClassifier, tables

    result = run(
        folder / "flowers.csv", "-m", "ls-svm", "-d", "bayes", "-k", "linear", "-o", tmp_path / "m", "--json"
    )
    quality = json.loads(result.stdout)["quality"]
    scan = tables.scan_table(tables.open_table(folder / "flowers.csv"))
    data = tables.choose_features(tables.read_examples(scan))
    model = LSSVMClassifier(decoding="bayes", kernel="linear", random_state=0)
    pipeline = Pipeline([("prepare", tables.preparation(data.frame)), ("classifier", model)])
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    proba = cross_val_predict(pipeline, data.frame, data.labels, cv=folds, method="predict_proba")
    assert_allclose(quality["log_loss"], sklearn_log_loss(data.labels, proba), rtol=1e-6)


def test_a_class_with_a_single_row(tmp_path):
    frame = flowers()
    frame.loc[0, "kind"] = "unique"
    frame.to_csv(tmp_path / "f.csv", index=False)
    for model in ("ls-svm", "svm"):
        result = run(tmp_path / "f.csv", "-m", model, "-k", "linear", "-o", tmp_path / "m.skops", "--json")
        assert result.exit_code == 0, result.stderr
        assert "'unique' has a single row" in result.stderr
        assert np.isfinite(json.loads(result.stdout)["quality"]["log_loss"])


def test_report(tmp_path, folder):
    page = tmp_path / "page.html"
    result = run(
        folder / "flowers.csv", "-m", "ls-svm", "-k", "linear", "-o", tmp_path / "m.skops", "--report", page
    )
    assert result.exit_code == 0, result.stderr
    assert f"report: {page}" in result.stdout.replace("\n", "")
    assert "<script>: " not in page.read_text()


def test_more_rows_than_memory_is_refused_before_they_are_read(monkeypatch, folder, tmp_path):
    monkeypatch.setattr(_memory, "available", lambda: 1e5)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    result = run(folder / "flowers.csv", "-m", "kernel-logistic", "-o", tmp_path / "m.skops")
    assert result.exit_code == 1
    assert "--model kernel-logistic on 150 rows needs" in result.stderr
    assert "--sample 10000" in result.stderr


def test_posterior_machines_of_too_many_rows_are_refused(monkeypatch, folder, tmp_path, capsys):
    monkeypatch.setattr(_memory, "available", lambda: 1e9)
    _check_rows("posterior-svm")(5_000)
    assert capsys.readouterr().err == ""
    _check_rows("posterior-svm")(8_000)
    assert "note: --model posterior-svm takes long on 8000 rows" in capsys.readouterr().err
    with pytest.raises(MemoryError, match=r"posterior-svm on 200000 rows needs .*--sample 10000"):
        _check_rows("posterior-svm")(200_000)
    _check_rows("auto")(200_000)


def test_unbalanced_classes_show_recall_and_a_baseline(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = np.where(X[:, 0] + rng.normal(size=300) > 2.4, "rare", "common")
    pd.DataFrame({"x": X[:, 0], "y": y}).to_csv(tmp_path / "u.csv", index=False)
    result = run(tmp_path / "u.csv", "-m", "ls-svm", "-k", "linear", "-o", tmp_path / "u.skops")
    assert result.exit_code == 0, result.stderr
    model = polymargin.load(tmp_path / "u.skops")
    proba = np.exp(model[-1].loo_log_proba_)
    predicted = model.classes_[proba.argmax(axis=1)]
    for words in (
        "u: 300 rows, 1 column, 2 classes",
        f"baseline, always 'common': {np.mean(y == 'common'):.1%}",
        f"balanced accuracy (mean recall) {balanced_accuracy_score(y, predicted):.1%}",
        f"AUC (ROC, one-vs-rest) {roc_auc_score(y == 'rare', proba[:, 1]):.3f}",
        f"recall: 'rare' {np.mean(predicted[y == 'rare'] == 'rare'):.1%}",
    ):
        assert words in result.stdout
    assert "learned nothing" not in result.stdout


def test_noise_is_called_noise(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"]).assign(y=rng.choice(["u", "v"], 90))
    frame.to_csv(tmp_path / "n.csv", index=False)
    result = run(tmp_path / "n.csv", "-m", "ls-svm", "-k", "linear", "-o", tmp_path / "n.skops")
    assert "warning: the model has learned nothing measurable" in result.stdout
    document = run(tmp_path / "n.csv", "-m", "ls-svm", "-k", "linear", "-o", tmp_path / "n.skops", "--json")
    assert json.loads(document.stdout)["quality"]["learned"] is False


def test_a_class_that_is_never_predicted_is_named():
    quality = {"learned": True, "recall": [1.0, 0.0, None], "unbalanced": False}
    (line,) = warning_lines(quality, ["a", "b", "c"])
    assert line.startswith("no row of 'b' is predicted right")


def test_few_rows_of_a_class_are_named_where_nothing_was_learned():
    def said(*class_rows):
        (line,) = warning_lines(
            {"learned": False, "recall": [1.0, 0.0], "class_rows": class_rows}, ["a", "b"]
        )
        return line

    assert said(300, 20).endswith("; there are only 20 rows of 'b', and with more rows this may change")
    assert said(300, 1).endswith("; there is only one row of 'b', and with more rows this may change")
    assert said(300, 40).endswith("(two standard errors)")
    assert said(300, 0).endswith("(two standard errors)")  # a class that is not among these rows


def test_recalls_of_other_classes():
    def line(recall):
        quality = {
            "accuracy": 0.5,
            "most_frequent": 0,
            "accuracy_of_most_frequent": 0.5,
            "balanced_accuracy": 0.5,
        }
        return list(quality_lines({**quality, "unbalanced": True, "recall": recall}, "abcdefgh"))[-1]

    assert line([0.0, 0.1, 0.2, 0.3, 0.4]).endswith("'e' 40.0%")
    assert line([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]).endswith("'e' 40.0%; at least 50.0% for the other class")
    assert line([0.0, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5]).endswith("; at least 50.0% for the other 2 classes")


def test_a_long_fit_says_what_it_fits_and_how_long_it_takes(folder, tmp_path, monkeypatch):
    options = (folder / "flowers.csv", "-m", "ls-svm", "-k", "linear", "-o", tmp_path / "m.skops")
    assert "fitting" not in run(*options).stderr
    monkeypatch.setattr(cli_fit, "_LONG_FIT", 100)
    monkeypatch.setattr(cli_progress, "_SECONDS_BETWEEN_LINES", 1e-4)
    result = run(*options)
    lines = result.stderr.splitlines()
    begun = lines.index("fitting LSSVMClassifier to 150 rows, 6 columns, 3 classes")
    assert "150 rows, 6 columns (" in result.stdout
    assert lines[begun + 1] == "fitting LSSVMClassifier to 150 rows: 0 s so far"


def test_many_classes_have_one_vs_all_machines(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(65, 3)) * 5
    X = np.repeat(centres, 3, axis=0) + rng.normal(size=(195, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=np.repeat([f"k{k:02d}" for k in range(65)], 3))
    frame.to_csv(tmp_path / "m.csv", index=False)
    result = run(tmp_path / "m.csv", "-m", "ls-svm", "-k", "linear", "-o", tmp_path / "m.skops", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["chosen"]["coding"] == "one-vs-all"
    (note,) = document["notes"]
    assert (
        note == "65 classes: one-vs-all coding, 65 machines; one-vs-one would have 2080 (--coding one-vs-one)"
    )
    assert [line for line in result.stderr.splitlines() if "one-vs-all" in line] == [f"note: {note}"]


def test_whether_many_classes_are_noted():
    pool = note_on_many_classes(make_classifier("auto", 0), 65)
    assert pool.endswith("(--model ls-svm --coding one-vs-one)")
    assert note_on_many_classes(make_classifier("svm", 0), 65).endswith("(--coding one-vs-one)")
    assert note_on_many_classes(make_classifier("auto", 0), 64) is None
    # A coding that was given, a decoder of pairs, and models without dichotomies.
    assert note_on_many_classes(make_classifier("ls-svm", 0, coding="one-vs-all"), 65) is None
    assert note_on_many_classes(make_classifier("ls-svm", 0, decoding="votes"), 65) is None
    assert note_on_many_classes(make_classifier("posterior-svm", 0), 65) is None
    assert note_on_many_classes(make_classifier("kernel-logistic", 0), 65) is None


def test_jobs_do_not_change_the_model(folder, tmp_path):
    options = ("-m", "ls-svm", "--seed", 3, "--json")
    quality = []
    for jobs in (1, 2):
        result = run(folder / "flowers.csv", *options, "--jobs", jobs, "-o", tmp_path / "j.skops")
        assert result.exit_code == 0, result.stderr
        quality.append(json.loads(result.stdout)["quality"])
    assert quality[0] == quality[1]
    assert polymargin.load(tmp_path / "j.skops")[-1].n_jobs == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["FILE", "--jobs", "0"], "--jobs must be -1 or a number of workers, not 0"),
        (["FILE", "-m", "kernel-logistic", "--jobs", "2"], "--jobs is not for --model kernel-logistic"),
        (["nosuch"], "no dataset 'nosuch'"),
        (["nosuch.csv"], "no file nosuch.csv"),
        (["FILE", "--target", "x"], "has no column 'x'"),
        (["FILE", "--drop", "x"], "has no column 'x'"),
        (["FILE", "--drop", "kind", "--target", "kind"], "the target 'kind' is dropped"),
        (["FILE", "--weight", "x"], "there is no column 'x' for the weights"),
        (["FILE", "--groups", "x", "-m", "ls-svm"], "there is no column 'x' for the groups"),
        (["FILE", "--groups", "colour", "-m", "ls-svm"], "has no group in the column 'colour'"),
        (["FILE", "--groups", "wild", "--weight", "wild", "-m", "ls-svm"], "both the weights and the groups"),
        (["wine", "--groups", "x", "-m", "ls-svm"], "name columns of a file"),
        (["FILE", "-m", "knn"], "unknown model 'knn'"),
        (["FILE", "-k", "cosine", "-m", "svm"], "unknown kernel 'cosine'"),
        (["FILE", "-c", "ecoc"], "--coding is not for --model auto; choose --model ls-svm or svm"),
        (
            ["FILE", "--metric", "learned", "-m", "svm"],
            "--metric is not for --model svm; choose --model auto or",
        ),
        (
            ["FILE", "-m", "ls-svm", "--metric", "euclidean"],
            "unknown metric 'euclidean'; choose one of learned, none",
        ),
        (["FILE", "-m", "ls-svm", "-d", "guess"], "unknown decoding 'guess'"),
        (["FILE", "-m", "svm", "-d", "bayes"], "needs variances"),
        (["FILE", "-o", "/no/such/folder/m.skops"], "there is no folder"),
        (["FILE", "--report", "/"], "is a folder"),
        (["wine", "--target", "x"], "name columns of a file"),
        (["FILE", "--target", "petal, length", "--drop", "kind"], "continuous number"),
        (["FILE", "--sample", "4"], "too small for 3 classes"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = run(*[folder / "flowers.csv" if argument == "FILE" else argument for argument in arguments])
    assert result.exit_code != 0
    assert words in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("polymargin:")]) == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_python_m_and_help():
    result = subprocess.run(
        [sys.executable, "-m", "polymargin", "fit", "--help"], capture_output=True, text=True, check=True
    )
    assert "polymargin fit" in result.stdout
    assert "flowers.csv --target species" in result.stdout


def test_completion_offers_names_and_files(tmp_path, monkeypatch):
    from polymargin.cli._completion import data_files

    (tmp_path / "wide.csv").touch()
    (tmp_path / "winter").mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_files("wi") == ["wine", "wide.csv", "winter/"]
    assert data_files("nothing/here") == []
