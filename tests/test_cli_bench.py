"""``polymargin bench``: a small table of ours against others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from typer.testing import CliRunner

from polymargin._peers import METHODS
from polymargin.cli import app
from polymargin.datasets import load


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_ranking_of_all_methods():
    result = run("iris", "-s", 1, "--sample", 60, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["n_rows"] == 60
    assert {row["method"] for row in document["scores"]} == set(METHODS)
    losses = [row["log_loss"] for row in document["scores"]]
    assert losses == sorted(losses)
    assert [row["method"] for row in document["scores"] if row["accuracy"] < 0.7] == [
        "class frequencies (baseline)"
    ]
    baseline = document["scores"][-1]
    assert (baseline["auc"], round(baseline["balanced_accuracy"], 6)) == (0.5, 0.333333)
    assert all(row["auc"] > 0.9 for row in document["scores"][:-1])
    assert all(row["seconds"] > 0 for row in document["scores"])


@pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")
def test_a_peer_against_scikit_learn_by_hand():
    result = run("iris", "-s", 2, "-m", "logistic regression", "--json", "--seed", 3)
    assert result.exit_code == 0, result.stderr
    data = load("iris")
    X, y = data.X, np.unique(data.y, return_inverse=True)[1]
    losses = []
    for train, test in StratifiedShuffleSplit(2, test_size=1 / 3, random_state=3).split(y, y):
        scaled = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
        model = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=2000)
        losses.append(log_loss(y[test], model.fit(scaled[train], y[train]).predict_proba(scaled[test])))
    assert_allclose(json.loads(result.stdout)["scores"][0]["log_loss"], np.mean(losses), rtol=1e-6)


def test_a_file_and_the_table(tmp_path):
    X, y = load_iris(return_X_y=True)
    rows = [f"{a},{'wide' if b > 3 else 'narrow'},{c},k{k}" for (a, b, c, _), k in zip(X, y, strict=True)]
    path = tmp_path / "[b]f.csv"
    path.write_text("\n".join(["a,b,c,y", *rows]))
    result = run(path, "-s", 1, "-m", "LSSVMClassifier", "-m", "logistic regression")
    assert result.exit_code == 0, result.stderr
    assert "[b]f: 150 rows, 3 columns, 3 classes" in result.stdout
    assert "LSSVMClassifier" in result.stdout


def test_errors_are_one_line(tmp_path):
    single = tmp_path / "s.csv"
    single.write_text("a,y\n" + "".join(f"{i * i},{i % 2}\n" for i in range(20)) + "3,lone\n")
    for arguments, words in [
        (["nosuch"], "no dataset 'nosuch'"),
        (["iris", "-m", "oracle"], "unknown method 'oracle'"),
        ([single], "class"),
    ]:
        result = run(*arguments)
        assert result.exit_code != 0
        assert result.stderr.count("polymargin:") == 1
        assert words in result.stderr
