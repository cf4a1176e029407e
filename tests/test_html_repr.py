"""What fitted estimators show in notebooks."""

import html
import re

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from conftest import blobs
from polymargin import (
    AutoKernelClassifier,
    Bayes,
    KernelLogisticClassifier,
    KNNPosterior,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
    WindowPosterior,
)

ESTIMATORS = [
    LSSVMClassifier(kernel="rbf"),
    LSSVMClassifier(kernel="linear", decoding=Bayes()),
    AutoKernelClassifier(
        [LSSVMClassifier(kernel="rbf"), LSSVMClassifier(kernel="linear", coding="one-vs-all")]
    ),
    SVMClassifier(),
    PosteriorSVMClassifier(),
    KernelLogisticClassifier(),
    KNNPosterior(),
    WindowPosterior(2.0),
]
NAMES = np.array(["<script>alert('x')</script>", "a & b", "c"])


@pytest.fixture(scope="module")
def data():
    X, y = blobs(n=60)
    return X, NAMES[y]


def rows(page):
    """The table as a dict; what a browser would show of it."""
    inside = re.search(r'<div class="polymargin-choices">(.*?)</div>', page, re.DOTALL).group(1)
    cells = re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", inside)
    assert "<" not in "".join(text for cell in cells for text in cell)
    return {html.unescape(name): html.unescape(value) for name, value in cells}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_fitted_estimators_show_one_table_and_the_diagram(estimator, data):
    estimator = sklearn.base.clone(estimator)
    own = estimator._repr_html_()
    assert "polymargin-choices" not in own  # not fitted: scikit-learn's own
    estimator.fit(*data)
    for page in (estimator._repr_html_(), estimator._repr_mimebundle_()["text/html"]):
        assert page.count('<div class="polymargin-choices">') == 1
        assert "sk-top-container" in page
        assert "<script>alert" not in page
        table = rows(page)
        assert table["classes"] == "3: <script>alert('x')</script>, a & b, c"
        assert table["training rows"] == "60"
    assert repr(estimator) == estimator._repr_mimebundle_()["text/plain"]


def test_nothing_where_diagrams_are_off(data):
    model = LSSVMClassifier(kernel="linear").fit(*data)
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert set(model._repr_mimebundle_()) == {"text/plain"}


def test_choices_are_those_of_the_estimator(data):
    X, y = data
    model = LSSVMClassifier().fit(X, y)
    table = rows(model._repr_html_())
    assert float(table["C"]) == pytest.approx(model.C_[0], rel=1e-3)
    assert float(table["gamma"]) == pytest.approx(model.gamma_[0], rel=1e-3)
    assert table["kernel"] == model.kernel_.name
    assert table["kernel"] == min(model.kernel_losses_, key=model.kernel_losses_.get)
    assert table["chosen by"] == "squared leave-one-out errors"
    assert ("smaller C" in table) == (model.shrinkage_ != 1.0)
    assert table["coding"] == "one-vs-one, 3 classes × 3 machines"
    assert table["decoding"] == "coupled-softmax"
    assert table["support vectors"] == "60 (all)"
    p = np.exp(model.loo_log_proba_)
    own = p[np.arange(60), np.searchsorted(model.classes_, y)]
    assert float(table["leave-one-out log-loss"]) == pytest.approx(-np.log(own).mean(), rel=1e-3)
    right = np.mean(model.classes_[p.argmax(axis=1)] == y)
    assert table["leave-one-out accuracy"] == f"{right:.1%}"


def tried(page):
    """The tables of what was tried: for each its title, and its rows as dicts."""
    for title, table in re.findall(r"<details><summary>(What was tried.*?)</summary>(.*?)</details>", page):
        cells = [
            [html.unescape(re.sub("</?b>", "", cell)) for cell in re.findall("<td>(.*?)</td>", row)]
            for row in re.findall("<tr>(.*?)</tr>", table)
        ]
        yield title, [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def test_what_was_tried_is_shown(data):
    model = LSSVMClassifier().fit(*data)
    ((title, shown),) = tried(model._repr_html_())
    assert title == "What was tried"
    known, order = model.search_results_, np.argsort(model.search_results_["loss"], kind="stable")
    assert [row["kernel"] for row in shown] == [known["kernel"][n] for n in order]
    assert [row["cross-fitted log-loss"] for row in shown] == [f"{known['loss'][n]:.4g}" for n in order]
    assert [row["chosen"] for row in shown] == ["yes" if known["chosen"][n] else "" for n in order]
    chosen = next(row for row in shown if row["chosen"])
    assert chosen["C"] == f"{model.C_[0]:.4g}"
    assert chosen["gamma"] == f"{model.gamma_[0]:.4g}"
    assert float(chosen["C divided by"]) == model.shrinkage_
    assert "What was tried" not in LSSVMClassifier(2.0, kernel="rbf").fit(*data)._repr_html_()


def test_members_of_a_pool_show_what_each_has_tried(data):
    members = [LSSVMClassifier(), LSSVMClassifier(kernel="linear", coding="one-vs-all")]
    model = AutoKernelClassifier(members).fit(*data)
    first, second = tried(model._repr_html_())
    assert first[0] == f"What was tried by {model.members_[0].kernel_.name}, one-vs-one"
    assert second[0] == "What was tried by linear, one-vs-all"
    assert len(first[1]) == len(model.members_[0].search_results_["loss"])
    assert {row["gamma"] for row in second[1]} == {"–"}


def test_a_C_that_decodes_better_is_named(data):
    model = LSSVMClassifier(kernel="rbf", decoding="hamming").fit(*data)
    assert "smaller C" not in rows(model._repr_html_())
    model.shrinkage_ = 256.0
    assert rows(model._repr_html_())["smaller C"] == "by a factor of 256: its outputs decode better"


def test_what_is_given_was_not_chosen(data):
    model = LSSVMClassifier(2.0, kernel=lambda A, B: A @ B.T, decoding="votes").fit(*data)
    table = rows(model._repr_html_())
    assert table["kernel"] == "<lambda>"
    assert table["C"] == "2"
    assert not {"gamma", "chosen by", "kernels tried", "leave-one-out log-loss"} & set(table)


def test_machines_with_parameters_of_their_own(data):
    model = LSSVMClassifier(kernel="rbf", shared_parameters=False, coding=np.eye(3, dtype=int) * 2 - 1).fit(
        *data
    )
    table = rows(model._repr_html_())
    assert table["C"] == f"{model.C_.min():.4g} to {model.C_.max():.4g}, machine by machine"
    assert table["coding"] == "matrix, 3 classes × 3 machines"


def test_pools_show_their_weights(data):
    members = [LSSVMClassifier(kernel="rbf"), LSSVMClassifier(kernel="linear", coding="one-vs-all")]
    model = AutoKernelClassifier(members).fit(*data)
    table = rows(model._repr_html_())
    assert table["weight of rbf, one-vs-one"] == f"{model.weights_[0]:.2f}"
    assert table["weight of linear, one-vs-all"] == f"{model.weights_[1]:.2f}"
    assert float(table["leave-one-out log-loss"]) == pytest.approx(model.loo_log_loss_, rel=1e-3)


def test_support_vector_machines_show_support_and_cross_validation(data):
    model = SVMClassifier(C=None, gamma=None, cv=2).fit(*data)
    table = rows(model._repr_html_())
    assert table["support vectors"] == f"{model.support_.size} ({model.support_.size / 60:.0%})"
    assert table["cross-validated accuracy"] == f"{model.selection_.best_score[0]:.1%}"
    assert table["chosen by"] == "cross-validation"


def test_soft_labels_have_a_loss_but_no_accuracy(data):
    X, y = data
    P = 0.05 + 0.85 * np.eye(3)[np.unique(y, return_inverse=True)[1]]
    table = rows(LSSVMClassifier(kernel="rbf").fit(X, P)._repr_html_())
    assert "leave-one-out log-loss" in table
    assert "leave-one-out accuracy" not in table


def test_a_new_fit_forgets_the_old_loss(data):
    X, y = data
    model = LSSVMClassifier(kernel="rbf").fit(X, y)
    before = rows(model._repr_html_())["leave-one-out log-loss"]
    model.fit(X[:, :1], y)
    again = LSSVMClassifier(kernel="rbf").fit(X[:, :1], y)
    after = rows(model._repr_html_())["leave-one-out log-loss"]
    assert after == rows(again._repr_html_())["leave-one-out log-loss"] != before


def test_methods_that_are_not_there_are_not_listed(data):
    model = LSSVMClassifier(kernel="linear", decoding="votes").fit(*data)
    assert "predict_proba" not in dir(model)
    assert "predict" in dir(model)
    for other in (model, LSSVMClassifier(kernel="linear", decoding="bayes").fit(*data), LSSVMClassifier()):
        assert not hasattr(other, "loo_log_proba_")
        assert not hasattr(other, "loo_log_loss_")


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.7"),
    reason="scikit-learn 1.7 shows parameters in diagrams",
)
def test_pipelines_show_the_table_of_their_last_step(data):
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf")).fit(*data)
    assert rows(model._repr_html_())["kernel"] == "rbf"
    unfitted = make_pipeline(StandardScaler(), LSSVMClassifier())
    assert "polymargin-choices" not in unfitted._repr_html_()
