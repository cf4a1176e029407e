"""The report: summaries against independent counts, and a page that shows text as text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from polymargin import AutoKernelClassifier, KernelLogisticClassifier, LSSVMClassifier, PosteriorSVMClassifier
from polymargin.comparison.repeated import RepeatedComparison
from polymargin.comparison.standings import standings
from polymargin.datasets import read_csv
from polymargin.inspection import feature_relevance
from polymargin.metrics import calibration_error, reliability_curve
from polymargin.report import compare_summary, fit_summary, write_page
from polymargin.report._figures import figures, plain
from polymargin.report._predictions import Predictions, prediction_parts
from polymargin.report._sentences import with_sentences
from polymargin.report.page import _script_json, render_page
from polymargin.tables import preparation

HOSTILE = [
    "<script>window.x=1</script>",
    '"><img src=x onerror="window.x=1">',
    "{{7*7}} %{x} <b>b</b> &lt;i&gt; @ink \u2028",
]


@pytest.fixture(scope="module")
def fitted():
    X, y = load_iris(return_X_y=True, as_frame=True)
    labels = np.array(["a", "b", "c"])[y]
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf")).fit(X, labels)
    summary = fit_summary(
        model,
        X,
        labels,
        title="iris",
        log_proba=model[-1].loo_log_proba_,
        classes=model.classes_,
        notes=["a note"],
    )
    return model, labels, summary


@pytest.fixture(scope="module")
def hostile_summary():
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X[:, 2:], columns=HOSTILE[:2])
    labels = np.array(HOSTILE)[y]
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="linear")).fit(frame, labels)
    honest = model[-1].loo_log_proba_
    return fit_summary(
        model, frame, labels, title=HOSTILE[0], log_proba=honest, classes=model.classes_, notes=HOSTILE
    )


def test_numbers_of_a_fit_are_those_of_the_metrics(fitted):
    model, labels, summary = fitted
    index, log_proba = np.searchsorted(model.classes_, labels), model[-1].loo_log_proba_
    proba = np.exp(log_proba)
    predicted = proba.argmax(axis=1)
    assert_allclose(summary["scores"]["log_loss"], -np.mean([log_proba[i, k] for i, k in enumerate(index)]))
    assert_allclose(summary["scores"]["calibration_error"], calibration_error(index, proba))
    assert summary["confusion"]["counts"] == confusion_matrix(index, predicted).tolist()
    precision, recall, f1, support = precision_recall_fscore_support(index, predicted)
    for k, row in enumerate(summary["per_class"]):
        assert_allclose([row["precision"], row["recall"], row["f1"]], [precision[k], recall[k], f1[k]])
        assert (row["class"], row["tests"]) == (model.classes_[k], support[k])
    view = summary["reliability"]["views"][2]
    curve = reliability_curve(index, proba, of=1)
    assert view["name"] == "probability of b"
    for name in ("predicted", "observed", "low", "high", "count"):
        assert_allclose(view[name], getattr(curve, name))
    right, wrong = (series["counts"] for series in summary["histograms"]["views"][0]["series"])
    assert (sum(right), sum(wrong)) == ((predicted == index).sum(), (predicted != index).sum())
    assert summary["model"]["codebook"]["views"][0]["matrix"] == model[-1].codebook_.matrix.tolist()
    assert_allclose(summary["model"]["surface"]["chosen_C"], model[-1].C_[:1])


def test_a_summary_is_plain(fitted, hostile_summary):
    for summary in (fitted[-1], hostile_summary):
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def predictions(proba, class_index, row):
    proba = np.asarray(proba)
    classes = [f"c{k}" for k in range(proba.shape[1])]
    labels = proba.argmax(axis=1)
    return Predictions(np.asarray(class_index), labels, np.log(proba), np.asarray(row), classes)


def test_rows_that_were_tested_several_times():
    said = predictions(
        [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3], [0.05, 0.95], [0.45, 0.55]],
        [1, 1, 1, 0, 1, 0],
        [7, 7, 7, 9, 12, 15],
    )
    parts = prediction_parts(said)
    assert [(row["row"], row["wrong"], row["tests"]) for row in parts["wrong"]] == [(7, 2, 3), (15, 1, 1)]
    surest = parts["wrong"][0]
    assert (surest["true"], surest["said"]) == ("c1", "c0")
    assert_allclose([surest["said_probability"], surest["true_probability"]], [0.9, 0.1])
    assert [row["row"] for row in parts["uncertain"]] == [15, 7, 9, 12]
    assert_allclose(parts["uncertain"][1]["first_probability"], (0.9 + 0.6 + 0.2) / 3)
    assert parts["scores"]["predictions"] == 6
    assert parts["scores"]["rows"] == 4


def test_intervals_count_different_rows():
    random = np.random.default_rng(0)
    p = random.uniform(0.5, 1.0, 200)
    proba, index = np.column_stack([p, 1 - p]), (random.random(200) > p).astype(int)
    once = prediction_parts(predictions(proba, index, np.arange(200)))["reliability"]["views"][0]
    thrice = prediction_parts(
        predictions(np.tile(proba, (3, 1)), np.tile(index, 3), np.tile(np.arange(200), 3))
    )["reliability"]["views"][0]
    assert_allclose(thrice["low"], once["low"])
    assert_allclose(thrice["high"], once["high"])
    assert sum(thrice["count"]) == 3 * sum(once["count"])


def test_weights_count_like_copies(fitted):
    model, labels, summary = fitted
    X, log_proba = load_iris(as_frame=True).data, model[-1].loo_log_proba_
    weights = 1.0 + (np.arange(len(labels)) % 2)
    copies = np.repeat(np.arange(len(labels)), weights.astype(int))
    options = {"title": "iris", "classes": model.classes_}
    weighted = fit_summary(model, X, labels, log_proba=log_proba, sample_weight=weights, **options)
    copied = fit_summary(model, X.iloc[copies], labels[copies], log_proba=log_proba[copies], **options)
    for name in ("accuracy", "log_loss", "brier", "calibration_error"):
        assert_allclose(weighted["scores"][name], copied["scores"][name])
    assert weighted["scores"]["log_loss"] != summary["scores"]["log_loss"]


def _text(proba, index, fitted):
    summary = fitted[-1] | {"classes": ["c0", "c1"]}
    return with_sentences(summary | prediction_parts(predictions(proba, index, np.arange(len(index)))))[
        "text"
    ]


def test_sentences_tell_calibrated_from_overconfident(fitted):
    random = np.random.default_rng(1)
    p = random.uniform(0.5, 1.0, 2000)
    index = (random.random(2000) > p).astype(int)
    assert "no sign of miscalibration" in _text(np.column_stack([p, 1 - p]), index, fitted)["reliability"]
    sure = p**0.2
    assert (
        "the probabilities are overconfident"
        in _text(np.column_stack([sure, 1 - sure]), index, fitted)["reliability"]
    )
    unsure = 0.5 + 0.3 * (p - 0.5)
    assert (
        "the probabilities are underconfident"
        in _text(np.column_stack([unsure, 1 - unsure]), index, fitted)["reliability"]
    )


def test_row_numbers_are_lines_of_the_file(tmp_path):
    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
    labels[[3, 4]] = ""  # rows without a label do not shift the numbers of those after them
    labels[30] = "virginica"
    path = tmp_path / "flowers.csv"
    lines = [",".join(map(str, [*row, label])) for row, label in zip(X, labels, strict=True)]
    path.write_text("a,b,c,d,kind\n" + "\n".join(lines))
    comparison = RepeatedComparison(read_csv(path), ["ls-svm"], ["one-vs-all"], ["softmax"], repeats=4)
    rows = [row for job in comparison.jobs() for row in comparison.run(job)]
    summary = compare_summary(comparison, standings(comparison, rows))
    first = summary["wrong"][0]
    assert lines[first["row"] - 2] == lines[30]  # the header is row 1
    assert first["true"] == "virginica"
    assert first["wrong"] == first["tests"]
    assert summary["scores"]["predictions"] == 4 * comparison.split(1)[1].size
    assert "header is row 1" in summary["text"]["rows"]
    assert any("2" in note for note in summary["notes"])


def test_pools_and_machines_without_a_surface():
    X, y = load_iris(return_X_y=True)
    estimators = (
        AutoKernelClassifier(),
        PosteriorSVMClassifier(decoding="plain-softmax"),
        KernelLogisticClassifier(C=1.0, gamma=0.5),
    )
    for estimator in estimators:
        model = make_pipeline(StandardScaler(), estimator).fit(X, y)
        summary = fit_summary(
            model, X, y, title="iris", log_proba=model.predict_log_proba(X), classes=model.classes_
        )
        page = render_page(summary)
        assert "regions" in figures(summary)
        if isinstance(estimator, AutoKernelClassifier):
            assert "Members of the pool" in page
            names = {row["name"] for row in summary["model"]["members"]}
            assert names == {
                "blend, one-vs-one",
                "laplacian, ranks, one-vs-all",
                "poly, degree 2, one-vs-one",
            }
        else:
            assert ('id="codebook"' in page) == isinstance(estimator, PosteriorSVMClassifier)
            assert "There is no picture of the search" in summary["text"]["surface"]


def test_what_was_tried_is_a_table():
    X, y = load_iris(return_X_y=True)
    for estimator in (LSSVMClassifier(), AutoKernelClassifier(), LSSVMClassifier(decoding="hamming")):
        model = make_pipeline(StandardScaler(), estimator).fit(X, y)
        summary = fit_summary(
            model, X, y, title="iris", log_proba=np.log(np.full((150, 3), 1 / 3)), classes=model.classes_
        )
        found, page = summary["model"]["tried"], render_page(summary)
        members = getattr(model[-1], "members_", [model[-1]])
        assert sorted(row["loss"] for row in found["rows"]) == sorted(
            loss for member in members for loss in member.search_results_["loss"]
        )
        assert sum(row["chosen"] for row in found["rows"]) == len(members)
        assert "What was tried" in page
        section = page[page.index('id="tried"') :].partition("</section>")[0]
        assert section.count('data-value="yes"') == len(members)
        assert 'class="best"' not in section  # the candidate that was chosen need not have the least loss
        assert all(f">{row['loss']:.4f}<" in section for row in found["rows"])
        by = (
            "mean squared leave-one-out error"
            if members[0].decoding == "hamming"
            else "cross-fitted log-loss"
        )
        assert by in summary["text"]["tried"]
        assert ("Members of the pool" in page) == isinstance(estimator, AutoKernelClassifier)
    given = make_pipeline(LSSVMClassifier(2.0, kernel="rbf", gamma=0.1)).fit(X, y)
    summary = fit_summary(
        given, X, y, title="iris", log_proba=given.predict_log_proba(X), classes=given.classes_
    )
    assert 'id="tried"' not in render_page(summary)


def test_what_the_model_looks_at():
    X, y = load_iris(return_X_y=True, as_frame=True)
    X = X.assign(colour=np.array(["<red>", "blue"], dtype=object)[(X.iloc[:, 3] > 1).astype(int)])
    model = make_pipeline(preparation(X), LSSVMClassifier(kernel="rbf", metric="learned")).fit(X, y)
    options = {"title": "iris", "log_proba": model[-1].loo_log_proba_, "classes": model.classes_}
    summary = fit_summary(model, X, y, **options)
    found, expected = summary["model"]["relevance"], feature_relevance(model)
    assert {row["name"] for row in found["rows"]} == set(X.columns)
    assert_allclose([row["relevance"] for row in found["rows"]], np.sort(expected.relevance)[::-1])
    (bars,) = figures(summary)["relevance"]["views"][0]["data"]
    assert_allclose(bars["x"], np.sort(expected.relevance)[::-1])
    assert_allclose(bars["error_x"]["array"], expected.std[expected.order])
    page = render_page(summary)
    section = page[page.index('id="relevance"') :].partition("</section>")[0]
    assert "not a cause" in section
    assert f"{expected.names[expected.order[0]]} has the largest share" in summary["text"]["relevance"]
    assert section.count('<th scope="row">') == 5
    assert 'href="#relevance"' in page
    # Names that the page is given count, also of a model that was fitted to numbers alone.
    plain_model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf")).fit(
        X.iloc[:, :4].to_numpy(), y
    )
    with pytest.warns(UserWarning, match="fitted without feature names"):
        summary = fit_summary(plain_model, X.iloc[:, :4], y, **options)
    assert {row["name"] for row in summary["model"]["relevance"]["rows"]} == set(X.columns[:4])
    assert "error_x" not in figures(summary)["relevance"]["views"][0]["data"][0]
    assert "folds" not in summary["text"]["relevance"]


def test_many_columns_are_counted_and_steps_need_not_tell_names():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 30))
    y = (X[:, 0] > 0).astype(int)
    halves = FunctionTransformer(lambda rows: np.asarray(rows)[:, :25])
    model = make_pipeline(halves, LSSVMClassifier(kernel="linear", C=1.0)).fit(X, y)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(30)])
    summary = fit_summary(
        model, frame, y, title="x", log_proba=model[-1].loo_log_proba_, classes=model.classes_
    )
    found = summary["model"]["relevance"]
    assert found["rows"][0]["name"] == "x0"
    assert "20 of 25 columns are drawn" in render_page(summary)
    assert_allclose(found["drawn_share"], np.sort(model[-1].feature_relevance_)[5:].sum())


def test_models_without_relevances_have_no_such_section(fitted):
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(KernelLogisticClassifier(C=1.0, gamma=0.5)).fit(X, y)
    summary = fit_summary(
        model, X, y, title="iris", log_proba=model.predict_log_proba(X), classes=model.classes_
    )
    assert summary["model"]["relevance"] is None
    assert 'id="relevance"' not in render_page(summary)
    assert 'id="relevance"' in render_page(fitted[-1])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_smaller_C_is_told_from_the_favoured_one(kernel):
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(LSSVMClassifier(kernel=kernel, C=2.0)).fit(X, y)
    for shrinkage in (1.0, 256.0):
        model[-1].shrinkage_ = shrinkage
        summary = fit_summary(
            model, X, y, title="iris", log_proba=model.predict_log_proba(X), classes=model.classes_
        )
        *others, star = figures(summary)["surface"]["views"][0]["data"]
        assert star["x"] == [2.0]
        assert [len(other["x"]) for other in others] == ([25, 1] if shrinkage > 1.0 else [25])
        assert ("would choose a 256 times larger C (the ring)" in summary["text"]["surface"]) == (
            shrinkage > 1.0
        )
    assert others[-1]["x"] == [512.0]
    assert others[-1]["marker"]["symbol"] == "circle-open"
    assert "256 times larger" in render_page(summary)


def test_decoders_without_probabilities_have_a_page():
    comparison = RepeatedComparison(
        _iris(), ["ls-svm"], ["one-vs-one"], ["hamming"], kernel="linear", repeats=1
    )
    summary = compare_summary(comparison, standings(comparison, comparison.run(comparison.jobs()[0])))
    assert summary["reliability"] is None
    page = render_page(summary)
    assert 'id="confusion"' in page
    assert 'id="reliability"' not in page


def _iris():
    from polymargin.datasets import load

    return load("iris")


# The page


def test_hostile_text_is_text(hostile_summary):
    page = render_page(hostile_summary)
    scripts = re.findall(r"<script[^>]*>", page)
    assert scripts == ['<script type="application/json" id="figures">', "<script>", "<script>"]
    assert "<img" not in page.replace("'<img", "")  # plotly.js has one in a string
    for text in HOSTILE:
        assert html.escape(text, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
    assert "49 " not in re.search(r"<h1>(.*?)</h1>", page).group(1)


def test_json_in_a_script_cannot_leave_it():
    text = _script_json({"name": "</script><!--\u2028\u2029&"})
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {"name": "</script><!--\u2028\u2029&"}


def test_labels_of_figures_are_no_markup(hostile_summary):
    drawn = figures(hostile_summary)
    ticks = drawn["codebook"]["layout"]["yaxis"]["ticktext"]
    legend = [trace["name"] for trace in drawn["regions"]["views"][0]["data"] if "name" in trace]
    axes = [drawn["regions"]["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
    columns = drawn["relevance"]["layout"]["yaxis"]["ticktext"]
    assert len(columns) == 2
    for text in (*ticks, *legend, *axes, *columns, *drawn["regions"]["views"][0]["data"][0]["text"][0]):
        assert "<" not in text
        assert ">" not in text
    assert html.unescape(plain("<b>&lt;")) == "<b>&lt;"


def test_the_page_allows_its_own_scripts_and_no_network(hostile_summary):
    page = render_page(hostile_summary)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"(script|connect|img|font)-src[^;]*(http|\*)", policy)
    for script in re.findall(r"<script>(.*?)</script>", page, re.S):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    markup = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    assert not re.search(r'(src|href)="(?!#|data:,")', markup)


def test_writing_is_all_or_nothing(fitted, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    assert write_page(fitted[-1], path) == path.resolve()
    assert path.read_text(encoding="utf-8") == render_page(fitted[-1])
    path.write_text("old")

    def refuse(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no space"):
        write_page(fitted[-1], path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_an_unknown_kind_is_refused(fitted):
    with pytest.raises(ValueError, match='"fit" or "compare"'):
        render_page(fitted[-1] | {"kind": "other"})


def test_a_missing_library_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("polymargin.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match=r"install polymargin with its report extra"):
        __import__("polymargin.report")
