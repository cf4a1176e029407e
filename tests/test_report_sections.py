"""What a report says of baselines, many classes, single rows, the plan and the plane of principal components."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from polymargin import AutoKernelClassifier, KernelLogisticClassifier, LSSVMClassifier
from polymargin.datasets import make_waveform
from polymargin.inspection.html import choices
from polymargin.report import fit_summary
from polymargin.report._figures import figures
from polymargin.report._predictions import Predictions, prediction_parts
from polymargin.report.page import render_page
from polymargin.tables import TablePreparation


def summary_of(X, y, **options):
    """Return a quick model of the rows, and its summary."""
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="linear", C=1.0, coding="one-vs-all"))
    model.fit(X, y)
    options = {"title": "rows", "log_proba": model[-1].loo_log_proba_, "classes": model.classes_} | options
    return model, fit_summary(model, X, y, **options)


def section(page, name):
    return page[page.index(f'id="{name}"') :].partition("</section>")[0]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, y, *summary_of(X, y)


def test_scores_stand_beside_the_baseline(iris):
    _, y, model, summary = iris
    proba = np.exp(model[-1].loo_log_proba_)
    scores = summary["scores"]
    assert scores["baseline"]["log_loss"] == pytest.approx(np.log(3))
    assert scores["baseline"]["accuracy"] == pytest.approx(1 / 3)
    assert scores["baseline"]["learned"] is True
    assert scores["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, proba.argmax(axis=1)))
    assert scores["auc"] == pytest.approx(roc_auc_score(y, proba, multi_class="ovr"))
    page = render_page(summary)
    assert 'class="warning"' not in page
    for words in ("Balanced accuracy", "AUC", "class frequencies: 1.0986", "most frequent class: 33.3 %"):
        assert words in page


def test_a_model_that_has_learned_nothing_is_called_so():
    rng = np.random.default_rng(0)
    _, summary = summary_of(rng.normal(size=(80, 3)), rng.integers(0, 3, 80))
    assert summary["scores"]["baseline"]["learned"] is False
    assert "This model has learned nothing measurable" in render_page(summary)


def test_tests_of_the_same_row_are_no_further_evidence():
    rng = np.random.default_rng(1)
    index = rng.integers(0, 2, 40)
    p = np.clip(0.5 + 0.18 * (2 * index - 1) + rng.normal(scale=0.35, size=40), 0.02, 0.98)
    proba = np.column_stack([1 - p, p])

    def learned(times):
        said = Predictions(
            np.tile(index, times),
            np.tile(proba.argmax(axis=1), times),
            np.log(np.tile(proba, (times, 1))),
            np.tile(np.arange(40), times),
            ["a", "b"],
        )
        return prediction_parts(said)["scores"]["baseline"]["learned"]

    assert learned(1) == learned(50)


def test_a_class_that_is_never_predicted_right_is_named():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 6, rng.normal(size=(3, 2))]
    y = np.repeat(["left", "right", "rare"], [60, 60, 3])
    _, summary = summary_of(X, y)
    (rare,) = [row for row in summary["per_class"] if row["class"] == "rare"]
    assert rare["recall"] == 0.0
    assert 'No row of class "rare" is predicted right' in summary["text"]["warning"]


def test_the_confusions_of_many_classes_are_a_heat_map_and_a_list():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(25), 6)
    X = rng.normal(size=(25, 3))[y] * 2 + rng.normal(size=(150, 3))
    model, summary = summary_of(X, y)
    counts = confusion_matrix(y, model[-1].loo_log_proba_.argmax(axis=1))
    assert summary["confusion"]["counts"] == counts.tolist()
    off = counts - np.diag(np.diag(counts))
    listed = summary["confusion"]["most"]
    assert [row["count"] for row in listed] == sorted(off.ravel().tolist(), reverse=True)[: len(listed)]
    for row in listed:
        assert off[int(row["true"]), int(row["predicted"])] == row["count"]
        assert row["share"] == row["count"] / 6
    (view,) = figures(summary)["confusion"]["views"]
    assert view["data"][0]["customdata"] == counts.tolist()
    part = section(render_page(summary), "confusion")
    assert 'class="confusion' not in part
    assert "Most frequent confusions" in part
    assert f"{len(listed)} of {(off > 0).sum()} pairs of classes" in part
    assert "needs JavaScript; its numbers are in the tables below." in section(
        render_page(summary), "codebook"
    )
    summary["model"]["codebook"]["views"][0]["machines"] = 300  # too many for a table
    assert "are in the attribute codebook_ of the model." in section(render_page(summary), "codebook")
    assert "needs JavaScript; its largest numbers off the diagonal are in the table below." in part
    assert (
        f'class "{listed[0]["true"]}" predicted as "{listed[0]["predicted"]}"' in summary["text"]["confusion"]
    )


def test_few_classes_have_a_table(iris):
    *_, summary = iris
    assert "confusion" not in figures(summary)
    assert 'class="confusion"' in section(render_page(summary), "confusion")


def test_listed_rows_show_their_most_relevant_features(iris):
    X, _, _, summary = iris
    order = [row["name"] for row in summary["model"]["relevance"]["rows"]]
    for row in (*summary["uncertain"], *summary["wrong"]):
        assert [cell["name"] for cell in row["features"]] == order
        assert [float(cell["value"]) for cell in row["features"]] == X.iloc[row["row"] - 1][order].tolist()
    assert "others are not" not in render_page(summary)


def test_features_may_be_texts_and_missing_and_need_not_be_shown():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 5)), columns=list("abcde"))
    hostile = "<img src=x onerror=1>"
    X["a"] = np.where(X["b"] > 0, hostile, None)
    y = (X["b"] > 0).to_numpy().astype(int)
    keep = FunctionTransformer(lambda frame: frame[["b", "c", "d", "e"]].to_numpy())
    model = make_pipeline(keep, KernelLogisticClassifier(C=1.0, gamma=0.5)).fit(
        X, y
    )  # which has no relevances
    log_proba = np.log(np.full((40, 2), 0.5))
    summary = fit_summary(model, X, y, title="x", log_proba=log_proba, classes=model.classes_)
    shown = {cell["value"] for row in summary["uncertain"] for cell in row["features"] if cell["name"] == "a"}
    assert shown == {hostile, "?"}
    page = render_page(summary)
    assert hostile not in page
    assert html.escape(hostile)[:12] in page
    assert "first features are shown, 1 other is not" in re.sub(r"\s+", " ", page)


def test_the_plan_and_the_parameters_are_shown(iris):
    _, _, model, summary = iris
    part = section(render_page(summary), "model")
    assert "one-vs-all, 3 classes × 3 machines" in part
    assert ">plan" not in part  # exact machines of few rows
    X, y, _, _ = iris
    model = make_pipeline(LSSVMClassifier(kernel="rbf", scale="landmarks", n_landmarks=20)).fit(X, y)
    summary = fit_summary(
        model, X, y, title="x", log_proba=model.predict_log_proba(X), classes=model.classes_
    )
    part = section(render_page(summary), "model")
    assert html.escape(str(model[-1].plan_).partition(": ")[2], quote=False).replace('"', "&#34;") in part
    assert part.count(">plan<") == 1


def test_plans_of_a_pool_are_told_apart(iris):
    X, y, _, _ = iris
    pool = AutoKernelClassifier(members=["rbf", "laplacian"], metric=None, scale="landmarks", n_landmarks=20)
    model = pool.fit(X, y)
    if len({str(member.plan_) for member in model.members_}) == 1:
        model.members_[1].plan_ = replace(model.members_[1].plan_, n_landmarks=19)
    assert [name for name, _ in choices(model) if name.startswith("plan")] == [
        "plan of rbf, one-vs-one",
        "plan of laplacian, one-vs-one",
    ]


def test_dates_are_written_as_dates():
    X = pd.DataFrame({"day": np.arange(19394.0, 19434.0), "x": np.arange(40) % 7 / 2.0})
    X.loc[3, "day"] += 0.5
    y = np.arange(40) % 2
    X_true = X.assign(day=pd.to_datetime("1970-01-01") + pd.to_timedelta(X["day"], unit="D"))
    preparation = TablePreparation({"day": "time", "x": "number"}, {})
    model = make_pipeline(preparation, LSSVMClassifier(kernel="linear", C=1.0)).fit(X_true, y)
    summary = fit_summary(
        model, X, y, title="x", log_proba=np.log(np.full((40, 2), 0.5)), classes=model.classes_
    )
    shown = {
        row["row"]: cell["value"]
        for row in summary["uncertain"]
        for cell in row["features"]
        if cell["name"] == "day"
    }
    assert shown[1] == "2023-02-06"
    assert shown[4] == "2023-02-09 12:00"


def test_the_search_says_that_a_metric_was_learned_after_it():
    X, y = make_waveform(150, random_state=0)
    X = np.hstack([X, np.random.default_rng(0).normal(size=(150, 20))])
    model = make_pipeline(LSSVMClassifier(kernel="rbf", metric="learned")).fit(X, y)
    assert not model[-1].metric_results_["chosen"][0]
    summary = fit_summary(model, X, y, title="x", log_proba=model[-1].loo_log_proba_, classes=model.classes_)
    text = summary["text"]["tried"]
    assert "before the metric was learned" in text
    assert f"C = {model[-1].C_[0]:.4g}, gamma = {model[-1].gamma_[0]:.4g}" in text
    assert "before the metric" not in summary_of(X, y)[1]["text"].get("tried", "")


def test_a_plane_that_would_mislead_is_left_out(iris):
    X, y = load_digits(return_X_y=True)
    _, summary = summary_of(X[:200], y[:200])
    assert "regions" not in figures(summary)
    found = re.search(r"only (\d+)% of the rows lie on the colour", summary["text"]["regions"])
    assert int(found[1]) < 80
    assert "would mislead" in section(render_page(summary), "regions")
    # Where it is drawn, the text says how many rows agree with it.
    agreement = iris[-1]["model"]["regions"]["agreement"]
    assert agreement >= 0.8
    assert f"For {agreement:.0%} of the rows the two agree" in iris[-1]["text"]["regions"]
