"""`polymargin compare` beside classifiers of scikit-learn, on samples, and with classes that are many or unbalanced."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from polymargin.cli import app
from polymargin.cli.compare import _NOT_BY_DEFAULT
from polymargin.comparison.repeated import CODINGS, DECODINGS, RepeatedComparison
from polymargin.comparison.standings import classifiers, shown_in_detail, standings
from polymargin.datasets import load
from polymargin.decoders import DECODERS
from polymargin.report import compare_summary
from polymargin.report.page import render_page

QUICK = ("-c", "minimal", "-d", "bayes", "-k", "linear", "--json")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYMARGIN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def iris_file(tmp_path):
    X, y = load_iris(return_X_y=True)
    rows = [
        f"{a},{b},{'red' if c > 3 else 'blue'},{d},k{label}" for (a, b, c, d), label in zip(X, y, strict=True)
    ]
    path = tmp_path / "flowers.csv"
    path.write_text("\n".join(["a,b,c,d,kind", *rows]))
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def ranked():
    """Return a comparison of a few classifiers on some rows of wine, and its ranking."""
    wine = load("wine").take(np.arange(0, 178, 2))
    machines = ["ls-svm", "svc", "random-forest", "logistic", "baseline"]
    comparison = RepeatedComparison(
        wine, machines, ["one-vs-one", "minimal"], ["coupled-softmax", "hamming"], kernel="linear", repeats=1
    )
    return comparison, standings(
        comparison, [row for job in comparison.jobs() for row in comparison.run(job)]
    )


@pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")
def test_other_classifiers_are_those_of_scikit_learn(ranked):
    comparison, ranking = ranked
    found = {standing.method.machine: standing for standing in classifiers(ranking)}
    X, y = comparison.dataset.X, comparison.class_index
    train, test = comparison.split(1)
    scaled = StandardScaler().fit(X[train])
    by_hand = {
        "random-forest": RandomForestClassifier(500, random_state=0),
        "logistic": LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=2000),
        "baseline": DummyClassifier(strategy="prior"),
    }
    for name, model in by_hand.items():
        proba = model.fit(scaled.transform(X[train]), y[train]).predict_proba(scaled.transform(X[test]))
        assert_allclose(found[name].log_loss, [sklearn_log_loss(y[test], proba)], rtol=1e-5)
        assert_allclose(found[name].auc, [roc_auc_score(y[test], proba, multi_class="ovr")], rtol=1e-6)
        expected = balanced_accuracy_score(y[test], proba.argmax(axis=1))
        assert_allclose(found[name].balanced_accuracy, [expected])
    assert found["svc"].log_loss < found["baseline"].log_loss


def test_classifiers_are_ranked_by_themselves(ranked):
    _, ranking = ranked
    first = classifiers(ranking)
    assert {str(standing.method) for standing in first} == {
        "LSSVMClassifier, one-vs-one, coupled-softmax",
        "SVC, tuned and calibrated",
        "random forest",
        "logistic regression",
        "class frequencies (baseline)",
    }
    assert first[-1].method.machine == "baseline"
    assert shown_in_detail(ranking).method == ("ls-svm", "one-vs-one", "coupled-softmax")
    alone = [standing for standing in ranking if standing.method.machine == "ls-svm"]
    assert classifiers(alone) == []
    assert shown_in_detail(alone) is alone[0]
    with pytest.raises(ValueError, match="no model to show"):
        shown_in_detail([standing for standing in ranking if standing.method.machine == "svc"])


def test_the_report_begins_with_the_classifiers(ranked):
    comparison, ranking = ranked
    summary = compare_summary(comparison, ranking)
    page = render_page(summary)
    assert page.index('id="classifiers"') < page.index('id="ranking"')
    first = page[page.index('id="classifiers"') :].partition("</section>")[0]
    names = re.findall(r'<th scope="row"[^>]* data-value="(.*?)">', first)
    losses = [float(text) for text in re.findall(r'class="n bar" data-value="(.*?)"', first)]
    assert len(names) == 5
    assert losses == sorted(losses)
    assert names[0] in summary["text"]["lead"]
    assert summary["best"] == "LSSVMClassifier, one-vs-one, coupled-softmax"
    second = page[page.index('id="ranking"') :].partition("</section>")[0]
    assert second.count('<th scope="row"') == 4
    assert "random forest" not in second


def test_command_compares_classifiers_by_default(iris_file):
    result = run(iris_file, "-r", 1, "--sample", 45)
    assert result.exit_code == 0, result.stderr
    first, second = result.stdout.split("Codings × decoders")
    for name in (
        "AutoKernelClassifier",
        "LSSVMClassifier",
        "SVC, tuned",
        "random forest",
        "class frequencies",
    ):
        assert name in first
    assert "AutoKernelClassifier" not in second
    assert "note: a sample of 45 of the 150 rows (--sample 150 takes all)" in result.stderr


def test_columns_can_be_dropped_and_rows_drawn(iris_file):
    result = run(iris_file, "-r", 1, *QUICK, "--drop", "a", "--drop", "c", "--sample", 60)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["rows"], document["features"]) == (60, 2)
    assert document["notes"] == ["a sample of 60 of the 150 rows (--sample 150 takes all)"]


def test_rows_of_a_sample_keep_their_numbers(iris_file, tmp_path):
    result = run(iris_file, "-r", 4, *QUICK[:-1], "--sample", 60, "--report", tmp_path / "r.html")
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "r.html").read_text()
    section = page[page.index('id="uncertain"') :].partition("</section>")[0]
    lines = iris_file.read_text().splitlines()
    for row, values in re.findall(
        r'<tr><th scope="row">(\d+)</th>.*?class="features">(.*?)</td>', section, re.S
    ):
        cells = lines[int(row) - 1].split(",")  # the header is row 1
        shown = dict(re.findall(r'class="name">(.*?)</span> (.*?)</span>', values))
        assert len(shown) == 4
        for name, cell in zip("abcd", cells, strict=False):
            assert shown[name] == (cell if name == "c" else f"{float(cell):.6g}") or not cell


def test_unbalanced_classes_have_recall_and_area(tmp_path):
    X, y = load_iris(return_X_y=True)
    rows = [f"{a},{b},{k}" for (a, b, *_), k in zip(X, y, strict=True)][40:]
    (tmp_path / "u.csv").write_text("\n".join(["a,b,y", *rows]))
    result = run(tmp_path / "u.csv", "-r", 1, *QUICK[:-1])
    assert "balanced accuracy %" in result.stdout
    assert "AUC" in result.stdout


def test_a_class_of_two_rows_leaves_out_what_is_tuned_in_folds(tmp_path):
    X, y = load_iris(return_X_y=True)
    rows = [f"{a},{b},{k}" for (_, _, a, b), k in zip(X, y, strict=True)][48:120]
    (tmp_path / "two.csv").write_text("\n".join(["a,b,y", *rows]))
    options = ("-m", "ls-svm", "-m", "svc", "-m", "logistic", "-m", "baseline")
    result = run(tmp_path / "two.csv", "-r", 1, *QUICK, *options)
    assert result.exit_code == 0, result.stderr
    assert "svc and logistic left out: the smallest class has 2 rows" in result.stderr
    assert {row["machine"] for row in json.loads(result.stdout)["scores"]} == {"ls-svm", "baseline"}


def test_many_classes_leave_one_vs_one_out(tmp_path):
    X = np.repeat(np.random.default_rng(0).normal(size=(65, 2)) * 5, 3, axis=0)
    X += np.random.default_rng(1).normal(size=X.shape)
    rows = [f"{a},{b},k{i // 3}" for i, (a, b) in enumerate(X)]
    (tmp_path / "m.csv").write_text("\n".join(["a,b,y", *rows]))
    result = run(tmp_path / "m.csv", "-r", 1, "-d", "hamming", "-k", "linear", "--json")
    assert result.exit_code == 0, result.stderr
    assert "65 classes would need 2080 machines with one-vs-one coding, which is left out" in result.stderr
    codings = {row["coding"] for row in json.loads(result.stdout)["scores"]}
    assert codings == {"one-vs-all", "minimal", "ecoc"}
    every = " ".join(f"-c {name}" for name in CODINGS)
    assert f"-c one-vs-one compares this coding alone, {every} all of them" in result.stderr


def test_what_the_help_says_of_codings_and_decoders():
    assert set(DECODERS) - set(DECODINGS) == set(_NOT_BY_DEFAULT)
    found = " ".join(run("--help").stdout.replace("│", " ").split())
    assert f"Only this coding: {', '.join(CODINGS)}." in found
    assert f"all but {', '.join(_NOT_BY_DEFAULT)}." in found


def test_a_table_from_stdin(iris_file):
    options = ("-r", 1, "-t", "kind", *QUICK)
    piped = CliRunner().invoke(app, ["compare", "-", *map(str, options)], input=iris_file.read_bytes())
    assert piped.exit_code == 0, piped.stderr
    found, known = (json.loads(text) for text in (piped.stdout, run(iris_file, *options).stdout))
    assert found["data"] == "stdin"
    assert found["scores"] == known["scores"]
