"""``polymargin predict``: tables of any size in, labels and probabilities out."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import polymargin
from polymargin import LSSVMClassifier, tables
from polymargin.cli import app, predict

CLASSES = ['<i>"x"', "a,b", "line\nbreak"]  # sorted


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


@pytest.fixture(scope="module")
def frame():
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X[:, :3], columns=["x", "y", "z"])
    frame["colour"] = np.where(X[:, 3] > 1, "red", "blue")
    frame.loc[::20, "colour"] = None
    frame.loc[::15, "x"] = np.nan
    frame.insert(0, "id", [f"row {i}" for i in range(150)])
    frame["kind"] = np.array(CLASSES)[y]
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory, frame):
    """A folder with a model, its table in two formats, and what the model says from Python."""
    folder = tmp_path_factory.mktemp("predict")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    features = frame[["x", "y", "z", "colour"]]
    model = Pipeline(
        [("prepare", tables.preparation(features)), ("classifier", LSSVMClassifier(kernel="rbf"))]
    ).fit(features, frame["kind"].to_numpy())
    polymargin.save(model, folder / "m.skops", summary={"target": "kind"})
    np.save(folder / "proba.npy", model.predict_proba(features))
    return folder


@pytest.mark.parametrize("source", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("output", ["o.csv", "o.csv.gz", "o.parquet", "o.jsonl"])
def test_formats_and_chunks_give_what_python_gives(folder, tmp_path, source, output):
    out = tmp_path / output
    result = run(folder / "m.skops", folder / source, "-o", out, "--keep", "id", "--chunk-rows", 7)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "150 rows in" in result.stderr
    if output == "o.parquet":
        found = pd.read_parquet(out)
    elif output == "o.jsonl":
        found = pd.DataFrame([json.loads(line) for line in out.read_text().splitlines()])
    else:
        found = pd.read_csv(out)
    proba = np.load(folder / "proba.npy")
    assert list(found) == ["id", "prediction", *(f"p({name})" for name in CLASSES)]
    assert found["id"].tolist() == [f"row {i}" for i in range(150)]
    assert_allclose(found.iloc[:, 2:].to_numpy(), proba, rtol=1e-6, atol=1e-12)
    assert found["prediction"].tolist() == [CLASSES[best] for best in found.iloc[:, 2:].to_numpy().argmax(1)]
    assert [path.name for path in tmp_path.iterdir()] == [output]


def test_stdout_has_nothing_but_the_table(folder):
    result = run(folder / "m.skops", folder / "t.csv", "--no-proba", "--score")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith('prediction\n"')
    assert "accuracy" in result.stderr
    lines = run(folder / "m.skops", folder / "t.csv", "--json").stdout.splitlines()
    assert [sorted(json.loads(line)) for line in lines] == [
        sorted(["prediction", *(f"p({name})" for name in CLASSES)])
    ] * 150


def test_top(folder):
    result = run(folder / "m.skops", folder / "t.csv", "--top", 2, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    proba = np.load(folder / "proba.npy")
    for row, p in zip(rows, proba, strict=True):
        second = np.argsort(-p)[1]
        assert list(row) == ["prediction", "top1", "p1", "top2", "p2"]
        assert row["prediction"] == row["top1"] == CLASSES[p.argmax()]
        assert row["top2"] == CLASSES[second]
        assert_allclose([row["p1"], row["p2"]], [p.max(), p[second]], rtol=1e-6)
    assert (
        len(
            json.loads(run(folder / "m.skops", folder / "t.csv", "--top", 9, "--json").stdout.splitlines()[0])
        )
        == 7
    )


def test_score(folder, frame, tmp_path):
    result = run(
        folder / "m.skops",
        folder / "t.csv",
        "--score",
        "-o",
        tmp_path / "o.csv",
        "--json",
        "--chunk-rows",
        40,
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    proba = np.load(folder / "proba.npy")
    truth = np.array([CLASSES.index(kind) for kind in frame["kind"]])
    assert found["rows"] == 150
    assert_allclose(found["accuracy"], (proba.argmax(1) == truth).mean())
    assert_allclose(found["log_loss"], log_loss(truth, proba), rtol=1e-5)


def test_rows_with_unknown_labels_are_not_scored(folder, frame, tmp_path):
    frame.assign(kind=frame["kind"].where(frame.index > 9, "new")).to_csv(tmp_path / "t.csv", index=False)
    result = run(folder / "m.skops", tmp_path / "t.csv", "--score", "-o", tmp_path / "o.csv")
    assert "10 rows have no label that the model knows" in result.stderr
    assert "140 rows: accuracy" in result.stdout


def test_columns_in_any_order_more_or_unknown_values(folder, frame, tmp_path):
    changed = frame.assign(more="text", colour=["violet"] * 150)[["more", "colour", "z", "y", "x"]]
    changed.to_csv(tmp_path / "t.csv", index=False, sep="\t")
    result = run(folder / "m.skops", tmp_path / "t.csv")
    assert result.exit_code == 0, result.stderr
    model = polymargin.load(folder / "m.skops")
    first = [float(cell) for cell in result.stdout.splitlines()[-1].split(",")[-3:]]
    assert_allclose(first, model.predict_proba(changed.iloc[-1:])[0], rtol=1e-5)


def test_types_do_not_flip_between_chunks(folder, frame, tmp_path):
    """A column of texts that look like numbers in one chunk stays one of texts, and the other way round is an error."""
    numbers = frame.assign(colour=["1"] * 75 + ["red"] * 75)
    numbers.to_csv(tmp_path / "n.csv", index=False)
    assert run(folder / "m.skops", tmp_path / "n.csv", "--chunk-rows", 10).exit_code == 0
    texts = frame.assign(y=[*frame["y"][:120], *["tall"] * 30])
    texts.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "o.csv"
    out.write_text("old")
    result = run(folder / "m.skops", tmp_path / "t.csv", "--chunk-rows", 10, "-o", out)
    assert result.exit_code == 1
    assert "t.csv, row 122: 'tall' in the column 'y', which holds numbers" in result.stderr
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n.csv", "o.csv", "t.csv"]


def test_infinite_numbers_count_as_missing(folder, frame, tmp_path):
    frame.assign(x=np.inf).to_csv(tmp_path / "t.csv", index=False)
    result = run(folder / "m.skops", tmp_path / "t.csv", "-o", tmp_path / "o.csv")
    assert result.exit_code == 0, result.stderr
    assert "column 'x': 150 infinite numbers count as missing" in result.stderr
    expected = polymargin.load(folder / "m.skops").predict_proba(frame.assign(x=np.nan))
    assert_allclose(pd.read_csv(tmp_path / "o.csv").iloc[:, 1:].to_numpy(), expected, rtol=1e-6, atol=1e-12)


def test_interruption_leaves_no_file(folder, tmp_path, monkeypatch):
    calls = []

    def interrupted(model, frame):
        calls.append(len(frame))
        if len(calls) == 3:
            assert not (tmp_path / "o.csv").exists()
            raise KeyboardInterrupt
        return np.zeros(len(frame), dtype=int), None

    monkeypatch.setattr(predict, "_predict", interrupted)
    result = run(
        folder / "m.skops", folder / "t.csv", "-o", tmp_path / "o.csv", "--chunk-rows", 10, "--no-proba"
    )
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "polymargin: interrupted"
    assert calls == [10, 10, 10]
    assert os.listdir(tmp_path) == []


def test_models_made_in_python(tmp_path):
    X, y = load_iris(return_X_y=True)
    names = [f"c{j}" for j in range(4)]
    table = pd.DataFrame(X, columns=names)
    table.assign(label=y).to_csv(tmp_path / "t.csv", index=False)
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="linear", decoding="hamming"))
    polymargin.save(model.fit(table, y), tmp_path / "named.skops")
    result = run(tmp_path / "named.skops", tmp_path / "t.csv", "--score", "--target", "label")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == ["prediction", *map(str, model.predict(table))]
    assert f"accuracy {model.score(table, y):.2%}" in result.stderr
    assert "log-loss" not in result.stderr
    polymargin.save(model.fit(X, y), tmp_path / "nameless.skops")
    without = run(tmp_path / "nameless.skops", tmp_path / "t.csv", "--keep", "label")
    assert without.stdout.splitlines()[1:] == [f"{a},{b}" for a, b in zip(y, model.predict(X), strict=True)]
    assert "fitted on 4 columns without names" in run(tmp_path / "nameless.skops", tmp_path / "t.csv").stderr
    assert "name it by --target" in run(tmp_path / "named.skops", tmp_path / "t.csv", "--score").stderr
    assert "--top needs probabilities" in run(tmp_path / "named.skops", tmp_path / "t.csv", "--top", 2).stderr


def test_names_that_come_twice_in_the_result(folder, frame, tmp_path):
    frame.assign(prediction="mine").to_csv(tmp_path / "t.csv", index=False)
    result = run(folder / "m.skops", tmp_path / "t.csv", "--keep", "prediction", "--no-proba")
    assert result.stdout.startswith("prediction,prediction_2\nmine,")


def test_errors_are_one_line(folder, frame, tmp_path):
    frame.drop(columns=["y", "colour"]).to_csv(tmp_path / "less.csv", index=False)
    (tmp_path / "empty.csv").write_text("id,x,y,z,colour\n")
    (tmp_path / "no.skops").write_text("no model")
    model, data = folder / "m.skops", folder / "t.csv"
    for arguments, words in [
        ([model, tmp_path / "less.csv"], "less.csv lacks 2 of the 4 columns of the model: 'y', 'colour'"),
        ([model, tmp_path / "empty.csv"], "empty.csv has no rows"),
        ([model, tmp_path / "nosuch.csv"], "no file"),
        ([tmp_path / "nosuch.skops", data], "no file"),
        ([tmp_path / "no.skops", data], "cannot be loaded"),
        ([model, data, "--keep", "nosuch"], "has no column 'nosuch'"),
        ([model, data, "-o", "/no/such/folder/o.csv"], "cannot write"),
        ([model, tmp_path / "less.csv", "--score", "--target", "t"], "no column 't' to score against"),
    ]:
        result = run(*arguments)
        assert result.exit_code != 0
        assert result.stdout == ""
        assert result.stderr.count("polymargin:") == 1
        assert words in result.stderr.replace("\n", "")


def test_no_command_replaces_what_it_reads(tmp_path):
    rows = "a,b,kind\n" + "".join(f"{i},{i % 7},{'xy'[i % 2]}\n" for i in range(40))
    data, model = tmp_path / "t.csv", tmp_path / "t.model"
    data.write_text(rows)
    fit = ["fit", str(data), "-m", "ls-svm", "-k", "linear"]
    for arguments in (
        [*fit, "-o", str(data)],
        [*fit, "--report", str(data)],
        [*fit, "-o", str(model), "--report", str(model)],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code != 0
        assert "give another name" in result.stderr
    assert CliRunner().invoke(app, [*fit, "-o", str(model)]).exit_code == 0
    known = model.read_bytes()
    for output in (data, model):
        result = CliRunner().invoke(app, ["predict", str(model), str(data), "-o", str(output)])
        assert result.exit_code != 0
        assert "the command reads it" in result.stderr
    assert data.read_text() == rows
    assert model.read_bytes() == known


def test_prediction_sets(folder, frame, tmp_path):
    model = polymargin.load(folder / "m.skops")
    features = frame[["x", "y", "z", "colour"]]
    sets = polymargin.decisions.predict_set(model, features, 0.99)
    proba = np.load(folder / "proba.npy")
    expected = [
        [CLASSES[k] for k in np.argsort(-p, kind="stable") if chosen[k]]
        for p, chosen in zip(proba, sets, strict=True)
    ]
    assert 1.0 < sets.sum(axis=1).mean() < 2.0
    asked = ["--coverage", 0.99, "--top", 3]
    result = run(folder / "m.skops", folder / "t.csv", *asked, "--json", "--chunk-rows", 40, "--score")
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert list(rows[0]) == ["prediction", "set", "top1", "p1", "top2", "p2", "top3", "p3"]
    assert [row["set"] for row in rows] == expected
    assert all(row["prediction"] == row["set"][0] for row in rows)
    score = json.loads(result.stderr.splitlines()[-1])
    truth = np.searchsorted(CLASSES, frame["kind"])
    assert_allclose(score["coverage"], sets[np.arange(150), truth].mean())
    assert_allclose(score["mean_set_size"], sets.sum(axis=1).mean())
    for name in ("o.csv", "o.parquet"):
        assert run(folder / "m.skops", folder / "t.csv", *asked, "-o", tmp_path / name).exit_code == 0
    assert pd.read_csv(tmp_path / "o.csv")["set"].tolist() == ["|".join(names) for names in expected]
    assert [list(each) for each in pd.read_parquet(tmp_path / "o.parquet")["set"]] == expected
    per_class = run(folder / "m.skops", folder / "t.csv", "--coverage", 0.99, "--per-class", "--json")
    assert "in all sets:" in per_class.stderr
    assert "needs 99 training rows of a class" in per_class.stderr
    assert all(len(json.loads(line)["set"]) == 3 for line in per_class.stdout.splitlines())


def test_decisions(folder, frame, tmp_path):
    proba = np.load(folder / "proba.npy")
    result = run(folder / "m.skops", folder / "t.csv", "--reject", 0.9, "--no-proba", "--json")
    decided = [json.loads(line)["decision"] for line in result.stdout.splitlines()]
    assert decided == [CLASSES[p.argmax()] if p.max() >= 0.9 else None for p in proba]
    assert 0 < decided.count(None) < 75
    costs = pd.DataFrame(1.0 - np.eye(3), index=CLASSES, columns=CLASSES)
    costs["ask"] = 0.1
    costs.iloc[::-1].to_csv(tmp_path / "costs.csv")
    result = run(folder / "m.skops", folder / "t.csv", "--costs", tmp_path / "costs.csv", "--json")
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["decision"] for row in rows] == [name or "ask" for name in decided]  # Chow: 1 - p > 0.1
    assert [row["prediction"] for row in rows] == [CLASSES[p.argmax()] for p in proba]
    costs.rename(columns={"ask": "früh fragen"}).to_csv(  # as an office writes it
        tmp_path / "office.csv", sep=";", decimal=",", encoding="cp1252"
    )
    result = run(folder / "m.skops", folder / "t.csv", "--costs", tmp_path / "office.csv", "--json")
    assert [json.loads(line)["decision"] for line in result.stdout.splitlines()] == [
        name or "früh fragen" for name in decided
    ]


def test_values_that_training_did_not_have_are_named(folder, frame, tmp_path):
    assert "has not seen" not in run(folder / "m.skops", folder / "t.csv", "-o", tmp_path / "o.csv").stderr
    frame.assign(colour=frame["colour"].where(frame["colour"] != "red", "rot")).to_csv(tmp_path / "t.csv")
    said = run(folder / "m.skops", tmp_path / "t.csv", "-o", tmp_path / "o.csv", "--chunk-rows", 40).stderr
    n_red = int((frame["colour"] == "red").sum())
    assert (
        f"column 'colour': {n_red} of 150 rows have a value that the model has not seen, such as 'rot'"
        in " ".join(said.split())
    )
    frame.assign(colour="grün").to_csv(tmp_path / "t.csv")
    said = run(folder / "m.skops", tmp_path / "t.csv", "-o", tmp_path / "o.csv").stderr
    assert "'colour': all rows have a value that the model has not seen, such as 'grün'" in " ".join(
        said.split()
    )


def test_decisions_are_scored(folder, frame, tmp_path):
    proba = np.load(folder / "proba.npy")
    truth = np.searchsorted(CLASSES, frame["kind"])
    scored = (folder / "m.skops", folder / "t.csv", "--score", "-o", tmp_path / "o.csv", "--chunk-rows", 40)
    result = run(*scored, "--reject", 0.9, "--json")
    given, best = proba.max(axis=1) >= 0.9, proba.argmax(axis=1)
    found = json.loads(result.stdout)
    assert found["answered"] == given.mean()
    assert found["accuracy_of_answers"] == (best == truth)[given].mean()
    said = run(*scored, "--reject", 0.9).stdout
    assert f"answers to {given.mean():.2%} of the rows, of which" in " ".join(said.split())
    assert json.loads(run(*scored, "--reject", 1.0, "--json").stdout)["accuracy_of_answers"] is None
    values = np.column_stack([10.0 * np.triu(np.ones((3, 3)), 1) + np.tril(np.ones((3, 3)), -1), [0.5] * 3])
    costs = pd.DataFrame(values, index=CLASSES, columns=[*CLASSES, "ask"])
    costs.iloc[::-1, ::-1].to_csv(tmp_path / "costs.csv")
    found = json.loads(run(*scored, "--costs", tmp_path / "costs.csv", "--json").stdout)
    assert_allclose(found["mean_cost"], values[truth, (proba @ values).argmin(axis=1)].mean())
    assert_allclose(found["mean_cost_of_labels"], values[truth, best].mean())
    assert "mean cost of the decisions" in run(*scored, "--costs", tmp_path / "costs.csv").stdout
    costs[[CLASSES[0], "ask"]].to_csv(tmp_path / "costs.csv")  # not all classes can be decided for
    found = json.loads(run(*scored, "--costs", tmp_path / "costs.csv", "--json").stdout)
    assert "mean_cost" in found
    assert "mean_cost_of_labels" not in found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--coverage", 90], "coverage must be a number between 0 and 1"),
        (["--per-class"], "give --coverage, too"),
        (["--reject", 0.8, "--costs", "costs.csv"], "give the file of --costs a further column"),
        (["--reject", 80], "reject must be a probability"),
        (["--costs", "no.csv"], "no file no.csv"),
        (["--costs", "costs.csv", "--reject", 0.5], "further column"),
        (["--costs", "costs.csv"], "lines of costs must be the classes"),
        (["--costs", "words.csv"], "'much' in the column 'a' of costs is no number"),
    ],
)
def test_decisions_that_cannot_be_made(folder, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "costs.csv").write_text("true,a,b\na,0,1\nb,1,0\n")
    (tmp_path / "words.csv").write_text("true,a,b\na,0.5,1\nb,much,0\n")
    result = run(folder / "m.skops", folder / "t.csv", *options)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
