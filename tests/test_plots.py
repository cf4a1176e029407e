"""The displays: the data behind the pictures, and that the pictures show them."""

import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from conftest import blobs, cut_off
from polymargin import AutoKernelClassifier, Codebook, KNNPosterior, LSSVMClassifier, SVMClassifier
from polymargin.codebooks import resolve_codebook
from polymargin.inspection import FeatureRelevance, feature_relevance, selection_surface
from polymargin.kernels import RBF
from polymargin.machines import Workspace
from polymargin.machines._gram import group_grams
from polymargin.selection import CrossValidation, leave_one_out
from polymargin.selection.settings import SearchSettings

matplotlib = pytest.importorskip("matplotlib", reason="install polymargin with its plot extra")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from polymargin.plots import (  # noqa: E402
    CodebookDisplay,
    DecisionRegionDisplay,
    RelevanceDisplay,
    ReliabilityDisplay,
    SelectionDisplay,
    decision_regions,
)

OCTAVES = SearchSettings().octaves


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def data():
    X, y = blobs(n=120, K=3, d=2, seed=3)
    return X, np.array(["ant", "bee", "cow"])[y]


@pytest.fixture(scope="module")
def model(data):
    return LSSVMClassifier(kernel="rbf").fit(*data)


@pytest.fixture(scope="module")
def new():
    X, y = blobs(n=200, K=3, d=2, seed=3, spread=1.3)
    return X, np.array(["ant", "bee", "cow"])[y]


# Reliability


def by_hand(probability, happened, n_bins):
    """Bins of equal size of distinct probabilities."""
    order = np.argsort(probability)
    return (
        part.reshape(n_bins, -1).mean(axis=1) for part in (probability[order], happened[order].astype(float))
    )


def test_reliability_of_the_most_probable_class(model, new):
    X, y = new
    display = ReliabilityDisplay.from_estimator(model, X, y, n_bins=10)
    proba = model.predict_proba(X)
    predicted, observed = by_hand(proba.max(axis=1), model.predict(X) == y, 10)
    (one,) = display.curves
    np.testing.assert_allclose(one.curve.predicted, predicted)
    np.testing.assert_allclose(one.curve.observed, observed)
    np.testing.assert_allclose(
        display.lines_[0].lines[0].get_xydata(), np.column_stack([predicted, observed])
    )
    error = np.abs(predicted - observed).mean()
    assert one.error.estimate == pytest.approx(error)
    assert one.error.low <= error <= one.error.high
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == [
        "calibrated",
        f"LSSVMClassifier: ECE {error:.3f} ({one.error.low:.3f}–{one.error.high:.3f})",
    ]
    assert display.histogram_ax_.get_xlabel() == "probability of the most probable class"


def test_histogram_shows_shares_of_the_rows(model, new):
    display = ReliabilityDisplay.from_estimator(model, *new, pos_label="bee")
    outline = display.histogram_ax_.patches[0].get_xy()
    share = np.histogram(model.predict_proba(new[0])[:, 1], np.linspace(0, 1, 26))[0] / 200
    assert outline[:, 1].max() == pytest.approx(share.max())
    assert display.histogram_ax_.get_xlabel() == "probability of class bee"


def test_reliability_of_every_class(model, new):
    X, y = new
    display = ReliabilityDisplay.from_estimator(model, X, y, kind="class-wise", n_bins=5, n_resamples=20)
    assert [one.label for one in display.curves] == ["ant", "bee", "cow"]
    for k, one in enumerate(display.curves):
        predicted, observed = by_hand(model.predict_proba(X)[:, k], y == model.classes_[k], 5)
        np.testing.assert_allclose(one.curve.predicted, predicted)
        np.testing.assert_allclose(one.curve.observed, observed)
        assert one.error.estimate == pytest.approx(np.abs(predicted - observed).mean())
    single = ReliabilityDisplay.from_estimator(model, X, y, pos_label="cow", n_bins=5, n_resamples=20)
    assert single.curves[0].error == display.curves[2].error


def test_reliability_of_the_training_rows_is_honest(model, data):
    display = ReliabilityDisplay.from_estimator(make_pipeline(model))
    honest = np.exp(model.loo_log_proba_)
    np.testing.assert_array_equal(display.curves[0].probabilities, honest.max(axis=1))
    right = (model.classes_[honest.argmax(axis=1)] == data[1]).mean()
    curve = display.curves[0].curve
    assert curve.share @ curve.observed == pytest.approx(right)
    assert right < model.score(*data) or right < 1.0


def test_reliability_of_the_best_model_of_a_search(data):
    search = GridSearchCV(
        make_pipeline(LSSVMClassifier(kernel="rbf")), {"lssvmclassifier__class_weight": [None]}
    )
    search.fit(*data)
    found = ReliabilityDisplay.from_estimator(search).curves[0]
    honest = np.exp(search.best_estimator_[-1].loo_log_proba_)
    np.testing.assert_array_equal(found.probabilities, honest.max(axis=1))


def test_weights_count_like_copies(model, new):
    X, y = new
    times = np.random.default_rng(0).integers(0, 3, 200)
    weighted = ReliabilityDisplay.from_estimator(model, X, y, sample_weight=times).curves[0].curve
    copied = (
        ReliabilityDisplay.from_estimator(model, np.repeat(X, times, 0), np.repeat(y, times)).curves[0].curve
    )
    np.testing.assert_allclose(weighted.observed, copied.observed)


def test_two_models_in_one_diagram(model, new):
    first = ReliabilityDisplay.from_estimator(model, *new)
    second = ReliabilityDisplay.from_estimator(KNNPosterior().fit(*new), *new, ax=first.ax_, color="red")
    assert second.ax_ is first.ax_
    assert second.histogram_ax_ is first.histogram_ax_
    labels = first.ax_.get_legend_handles_labels()[1]
    assert [label.split(":")[0] for label in labels] == ["calibrated", "LSSVMClassifier", "KNNPosterior"]
    assert second.lines_[0].lines[0].get_color() == "red"


def test_two_classes_and_names():
    y, p = np.array(["no", "yes"] * 20), np.tile([0.3, 0.6, 0.1, 0.9], 10)
    display = ReliabilityDisplay.from_predictions(y, p, pos_label="yes", name="mine")
    np.testing.assert_allclose(display.curves[0].curve.predicted, [0.1, 0.3, 0.6, 0.9])
    np.testing.assert_allclose(display.curves[0].curve.observed, [0.0, 0.0, 1.0, 1.0])
    renamed = display.plot(name="yours", ref_line=False)
    assert renamed.ax_.get_legend_handles_labels()[1][0].startswith("yours, yes: ECE 0.225")


def test_reliability_says_what_is_wrong(model, new):
    X, y = new
    with pytest.raises(ValueError, match="give both X and y"):
        ReliabilityDisplay.from_estimator(model, X)
    with pytest.raises(ValueError, match="'dog' is none of the classes"):
        ReliabilityDisplay.from_estimator(model, X, y, pos_label="dog")
    with pytest.raises(ValueError, match="3 columns but there are 2 classes"):
        ReliabilityDisplay.from_predictions([0, 1], np.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match="no honest probabilities"):
        ReliabilityDisplay.from_estimator(KNNPosterior().fit(X, y))
    with pytest.raises(ValueError, match="kind must be"):
        ReliabilityDisplay.from_predictions([0, 1], [0.1, 0.9], kind="all")
    with pytest.raises(NotFittedError):
        ReliabilityDisplay.from_estimator(LSSVMClassifier())


# Codebook


def shown_labels(ticks):
    return [label.get_text() for label in ticks if label.get_text()]


def test_codebook_of_an_estimator(model):
    display = CodebookDisplay.from_estimator(make_pipeline(model))
    np.testing.assert_array_equal(display.image_.get_array().reshape(3, 3), model.codebook_.matrix)
    assert shown_labels(display.ax_.get_yticklabels()) == ["ant", "bee", "cow"]
    assert shown_labels(display.ax_.get_xticklabels()) == ["0", "1", "2"]
    top, bottom = display.ax_.get_ylim()[::-1]
    assert top < bottom  # the first class is on top
    signs = {text.get_position(): text.get_text() for text in display.ax_.texts}
    assert signs[0.5, 0.5] == "−"
    assert signs[0.5, 1.5] == "+"
    assert (2.5, 0.5) not in signs


@pytest.mark.parametrize(
    ("coding", "K"), [("one-vs-one", 26), ("one-vs-all", 26), ("ecoc", 8), ("one-vs-one", 40)]
)
def test_large_codebooks_are_readable(coding, K):
    display = CodebookDisplay.from_codebook(resolve_codebook(coding, K, 0))
    display.figure_.canvas.draw()
    for labels, side in ((display.ax_.get_yticklabels(), 1), (display.ax_.get_xticklabels(), 0)):
        extents = [label.get_window_extent() for label in labels if label.get_text()]
        intervals = sorted((box.intervaly if side else box.intervalx).tolist() for box in extents)
        assert all(before[1] <= after[0] for before, after in pairwise(intervals))
    assert len(shown_labels(display.ax_.get_yticklabels())) == K


def test_codebook_given_as_matrix():
    _, ax = pyplot.subplots()
    display = CodebookDisplay.from_codebook(
        [[1, 1], [-1, 1], [0, -1]], classes=["x", "y", "z"], ax=ax, alpha=0.5
    )
    assert display.ax_ is ax
    assert display.image_.get_alpha() == 0.5
    assert display.codebook == Codebook([[1, 1], [-1, 1], [0, -1]])
    with pytest.raises(ValueError, match="name the 3 classes"):
        CodebookDisplay.from_codebook(display.codebook, classes=["x"])
    with pytest.raises(ValueError, match="KNNPosterior has no codebook"):
        CodebookDisplay.from_estimator(KNNPosterior(2).fit([[0.0], [1.0]], [0, 1]))


# Selection


def refitted(model, data, C, gamma, **params):
    return LSSVMClassifier(C, kernel="rbf", gamma=gamma, selection=None, **params).fit(*data)


def squared_error(fitted, y):
    targets = fitted.codebook_.targets(np.searchsorted(fitted.classes_, y)).astype(float)
    return np.square(targets - fitted.loo_margins_)[targets != 0].mean()


def test_leave_one_out_surface_is_that_of_refits(model, data):
    surface = selection_surface(model, n_C=5, n_gamma=3)
    expected = [
        [squared_error(refitted(model, data, C, g), data[1]) for C in surface.C] for g in surface.gamma
    ]
    np.testing.assert_allclose(surface.values, expected, rtol=1e-6)
    row, column = np.unravel_index(np.argmin(expected), (3, 5))
    assert surface.best == (surface.C[column], surface.gamma[row])
    assert surface.C[2] == surface.favoured_C[0]
    assert surface.chosen_C[0] == model.C_[0]
    assert surface.gamma[1] == surface.chosen_gamma[0] == model.gamma_[0]
    np.testing.assert_allclose(np.log10(surface.C), np.log10(surface.favoured_C[0]) + np.linspace(-3, 3, 5))


def test_evidence_surface_is_that_of_refits(data):
    model = LSSVMClassifier(kernel="rbf", selection="evidence", decoding="bayes").fit(*data)
    surface = selection_surface(model, n_C=5, n_gamma=3)
    assert surface.criterion == "evidence"
    known = np.isfinite(surface.values)
    expected = [[refitted(model, data, C, g).log_evidence_.sum() for C in surface.C] for g in surface.gamma]
    np.testing.assert_allclose(surface.values[known], np.array(expected)[known], rtol=1e-8)
    # The search leaves out large C, and takes the best of the rest.
    assert known[:, 0].all()
    assert not known[:, -1].any()
    assert surface.best == (surface.chosen_C[0], surface.chosen_gamma[0])
    # Without a floor it goes as far as the digits allow.
    free = model.set_params(noise_floor=0.0).fit(*data)
    assert np.isfinite(selection_surface(free, n_C=5, n_gamma=3).values[:, 2]).all()


def test_gcv_surface_is_the_formula():
    X, y = blobs(n=40, K=2, d=2)
    # The surface is around what was given: a C that is selected may leave the explicit inverse no digits.
    model = LSSVMClassifier(C=1.0, kernel="rbf", gamma=0.5, selection="gcv").fit(X, y)
    surface = selection_surface(model, n_C=3, n_gamma=3)
    n, targets = 40, np.where(y == 1, 1.0, -1.0) * model.codebook_.matrix[1, 0]
    for row, gamma in enumerate(surface.gamma):
        for column, C in enumerate(surface.C):
            system = np.block(
                [
                    [np.zeros((1, 1)), np.ones((1, n))],
                    [np.ones((n, 1)), RBF().gram(X, gamma=gamma) + np.eye(n) / C],
                ]
            )
            solver = np.linalg.inv(system)[:, 1:]
            hat = np.hstack([np.ones((n, 1)), RBF().gram(X, gamma=gamma)]) @ solver
            residuals = targets - hat @ targets
            expected = np.mean(residuals**2) / np.mean(1.0 - np.diagonal(hat)) ** 2
            assert surface.values[row, column] == pytest.approx(expected, rel=1e-6)


def test_parameters_of_their_own(data):
    model = LSSVMClassifier(kernel="rbf", shared_parameters=False).fit(*data)
    together = selection_surface(model, n_C=3, n_gamma=3)
    assert sorted(zip(together.chosen_C, together.chosen_gamma, strict=True)) == sorted(
        zip(model.C_, model.gamma_, strict=True)
    )
    one = selection_surface(model, n_C=3, n_gamma=3, machine=1)
    assert one.chosen_C == model.C_[1]
    fitted = refitted(model, data, one.C[0], one.gamma[2])
    rows = model.codebook_.targets(np.searchsorted(model.classes_, data[1]))[:, 1] != 0
    targets = model.codebook_.targets(np.searchsorted(model.classes_, data[1]))[rows, 1]
    assert one.values[2, 0] == pytest.approx(
        np.square(targets - fitted.loo_margins_[rows, 1]).mean(), rel=1e-6
    )


def test_samples_tell_much_the_same():
    X, y = blobs(n=300, K=2, d=2)
    model = LSSVMClassifier(kernel="rbf").fit(X, y)
    full = selection_surface(model, n_C=7, n_gamma=5)
    model.search = SearchSettings(operations=10 * len(OCTAVES) * 150.0**3)  # for 150 rows
    sampled = selection_surface(model, n_C=7, n_gamma=5)
    assert not np.array_equal(full.values, sampled.values)
    # But for the edge where machines interpolate, which takes all rows.
    np.testing.assert_allclose(np.log(sampled.values)[:, :5], np.log(full.values)[:, :5], atol=0.2)


def test_the_sample_is_that_of_the_search():
    X, y = blobs(n=240, K=3, d=2)
    settings = SearchSettings(operations=10 * len(OCTAVES) * 3 * 60.0**3)
    model = LSSVMClassifier(kernel="rbf", search=settings, random_state=3).fit(X, y)
    surface = selection_surface(model, n_C=3, n_gamma=1)
    groups = group_grams(Workspace(model.bank_.data), model.codebook_, "loo")
    share = leave_one_out._share_within_budget(groups, settings.operations / (10 * len(OCTAVES)))
    kept = model.bank_.data.deal.sample(share, settings.least_rows)
    assert kept.size < 200
    expected = []
    for C in surface.C:
        fixed = LSSVMClassifier(C, kernel="rbf", gamma=float(surface.gamma[0]), selection=None)
        fitted = fixed.fit(X[kept], y[kept])
        targets = fitted.codebook_.targets(y[kept]).astype(float)
        errors = np.square(targets - fitted.loo_margins_)
        # Every machine counts as much as it has rows, not as much as these have in the sample.
        rows = model.codebook_.targets(y) != 0
        means = [errors[targets[:, m] != 0, m].mean() for m in range(3)]
        expected.append(np.average(means, weights=rows.sum(axis=0)))
    np.testing.assert_allclose(surface.values[0], expected, rtol=1e-6)


def test_surface_with_weights_and_groups(data):
    X, y = data
    random = np.random.default_rng(0)
    weights, groups = random.uniform(1.0, 9.0, len(y)), random.integers(0, 25, len(y))
    for given in (
        {"sample_weight": weights},
        {"groups": groups},
        {"sample_weight": weights, "groups": groups},
    ):
        model = LSSVMClassifier(kernel="rbf").fit(X, y, **given)
        surface = selection_surface(model, n_C=5, n_gamma=3)
        assert surface.chosen_C[0] == model.C_[0]  # in the unit of the weights that were given
        counted = given.get("sample_weight", np.ones(len(y)))[:, np.newaxis]
        for row, column in ((0, 1), (1, 2), (2, 3)):
            fixed = LSSVMClassifier(surface.C[column], kernel="rbf", gamma=surface.gamma[row], selection=None)
            fitted = fixed.fit(X, y, **given)
            targets = fitted.codebook_.targets(np.searchsorted(fitted.classes_, y)).astype(float)
            counts = counted * (targets != 0)
            expected = (counts * np.square(targets - fitted.loo_margins_)).sum() / counts.sum()
            assert surface.values[row, column] == pytest.approx(expected, rel=1e-6)


def test_surface_of_soft_labels_and_a_kernel_without_gamma(data):
    X, y = data
    P = 0.1 / 3 + 0.9 * np.eye(3)[np.searchsorted(["ant", "bee", "cow"], y)]
    model = LSSVMClassifier(kernel="linear").fit(X, P)
    surface = selection_surface(model)
    assert surface.values.shape == (1, 25)
    assert np.nanargmin(surface.values) in (11, 12, 13)
    display = SelectionDisplay.from_surface(surface)
    np.testing.assert_array_equal(display.line_.get_xydata(), np.column_stack([surface.C, surface.values[0]]))
    assert display.chosen_.get_xdata() == model.C_[0]
    assert display.image_ is None


def test_a_smaller_C_is_told_from_the_favoured_one(data):
    X, y = data
    doubtful = np.where(np.random.default_rng(0).random(len(y)) < 0.4, np.roll(y, 1), y)
    model = LSSVMClassifier(kernel="rbf").fit(X, doubtful)
    # Without probabilities to compare, nobody takes another C than the errors say.
    favoured = LSSVMClassifier(kernel="rbf", decoding="hamming").fit(X, doubtful)
    assert model.shrinkage_ > favoured.shrinkage_ == 1.0
    np.testing.assert_allclose(model.shrinkage_ * model.C_, favoured.C_, rtol=1e-12)
    surface = selection_surface(favoured, n_C=5, n_gamma=3)
    smaller = replace(surface, chosen_C=surface.chosen_C / 256.0, shrinkage=256.0)
    np.testing.assert_allclose(smaller.favoured_C, favoured.C_[:1])
    for values in (surface.values, surface.values[1:2]):
        gamma = surface.gamma if len(values) > 1 else surface.gamma[1:2]
        plain, told = (
            SelectionDisplay.from_surface(replace(one, values=values, gamma=gamma))
            for one in (surface, smaller)
        )
        assert plain.favoured_ is None
        np.testing.assert_allclose(told.favoured_.get_xydata(), plain.chosen_.get_xydata())
        np.testing.assert_allclose(told.chosen_.get_xdata(), favoured.C_[:1] / 256.0)
        labels = [text.get_text() for text in told.ax_.get_legend().get_texts()]
        assert any("decodes better" in label for label in labels)
        assert any("256 times" in label for label in labels)


def test_selection_is_drawn(model):
    _, ax = pyplot.subplots()
    display = SelectionDisplay.from_estimator(make_pipeline(model), n_C=9, n_gamma=7, ax=ax, cmap="magma")
    assert display.ax_ is ax
    assert display.image_.get_cmap().name == "magma"
    np.testing.assert_array_equal(display.image_.get_array().reshape(7, 9), display.surface.values)
    assert display.chosen_.get_xydata().tolist() == [[model.C_[0], model.gamma_[0]]]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert display.colorbar_.ax.get_ylabel() == "squared leave-one-out error"
    low, high = ax.get_xlim()
    assert low < display.surface.C[0] < display.surface.C[-1] < high


def cross_validation(n_choosers):
    scores = np.random.default_rng(0).random((n_choosers, 1, 3, 4))
    scores[0, 0, 0, 0] = np.nan
    best = [(0, *np.unravel_index(np.nanargmax(s[0]), (3, 4))) for s in scores]
    return CrossValidation(
        C=np.array([0.5, 2.0, 8.0, 32.0]),
        gamma=np.array([0.1, 0.4, 1.6]),
        kernels=[RBF()],
        scores=scores,
        fold_scores=scores[np.newaxis],
        hinge=scores,
        best_index=np.array(best),
        on_edge=np.zeros((n_choosers, 2), dtype=bool),
    )


def test_surface_of_a_cross_validation():
    found = cross_validation(1)
    display = SelectionDisplay.from_surface(found)
    np.testing.assert_array_equal(display.surface.values, found.scores[0, 0])
    assert display.surface.best == (found.best_C[0], found.best_gamma[0])
    assert display.chosen_.get_xydata().tolist() == [[found.best_C[0], found.best_gamma[0]]]
    assert "not searched" in display.ax_.get_legend_handles_labels()[1]
    several = SelectionDisplay.from_surface(cross_validation(3)).surface
    assert several.chosen_C.size == 3


def test_surface_of_support_vector_machines(data):
    model = SVMClassifier(C=None, gamma=None, cv=2).fit(*data)
    surface = selection_surface(model)
    np.testing.assert_array_equal(surface.values, model.selection_.scores[0, 0])
    at = np.flatnonzero(surface.gamma == model.gamma_[0])[0], np.flatnonzero(model.C_[0] == surface.C)[0]
    assert surface.values[at] == np.nanmax(surface.values) == model.selection_.best_score[0]
    with pytest.raises(ValueError, match="judged together"):
        selection_surface(model, machine=0)
    with pytest.raises(ValueError, match="fit with C=None and gamma=None"):
        selection_surface(SVMClassifier().fit(*data))


def test_surface_says_what_is_wrong(model, data):
    with pytest.raises(ValueError, match="from 0 to 2, not 3"):
        selection_surface(model, machine=3)
    with pytest.raises(ValueError, match="at least 1"):
        selection_surface(model, n_C=0)
    pool = AutoKernelClassifier([model]).fit(*data)
    with pytest.raises(ValueError, match="give one of members_"):
        selection_surface(pool)
    with pytest.raises(ValueError, match="LogisticRegression keeps no surface"):
        selection_surface(LogisticRegression().fit(*data))
    assert selection_surface(pool.members_[0], n_C=1, n_gamma=1).values.shape == (1, 1)


# Decision regions


def test_regions_of_two_features(model, data):
    X, y = data
    display = DecisionRegionDisplay.from_estimator(model, X, y, resolution=7, margin=0.0)
    regions = display.regions
    assert (regions.x[0], regions.x[-1]) == (X[:, 0].min(), X[:, 0].max())
    for i, j in ((0, 0), (2, 5), (6, 1)):
        point = [[regions.x[j], regions.y[i]]]
        np.testing.assert_allclose(regions.proba[i, j], model.predict_proba(point)[0])
        colour = 0.55 + 0.45 * (regions.proba[i, j] @ display.colours_)
        np.testing.assert_allclose(display.image_.get_array()[i, j], colour)
    drawn = [points.get_offsets() for points in display.points_]
    for k, name in enumerate(model.classes_):
        np.testing.assert_array_equal(drawn[k], X[y == name])
    assert display.ax_.get_legend_handles_labels()[1] == ["ant", "bee", "cow"]
    assert display.ax_.get_xlabel() == "feature 0"


def test_regions_in_the_plane_of_principal_components():
    X, y = blobs(n=60, K=3, d=4)
    table = pd.DataFrame(X * [1.0, 100.0, 0.01, 1.0] + 5.0, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="linear")).fit(table, y)
    regions = decision_regions(model, table, y, resolution=5)
    scaled = StandardScaler().fit(table)
    pca = PCA(2).fit(scaled.transform(table))
    expected = pca.transform(scaled.transform(table))
    signs = np.sign((expected * regions.points).sum(axis=0))
    np.testing.assert_allclose(regions.points, expected * signs)
    corner = np.array([[regions.x[4], regions.y[0]]]) * signs
    row = pd.DataFrame(scaled.inverse_transform(pca.inverse_transform(corner)), columns=table.columns)
    np.testing.assert_allclose(regions.proba[0, 4], model.predict_proba(row)[0])
    share = 100 * pca.explained_variance_ratio_
    assert regions.axis_names == (f"component 1 ({share[0]:.0f} %)", f"component 2 ({share[1]:.0f} %)")


def test_regions_of_labels_without_probabilities(data):
    X, y = data
    model = Perceptron().fit(X, y)
    regions = decision_regions(model, X, resolution=6)
    grid = np.stack(np.meshgrid(regions.x, regions.y), axis=-1).reshape(-1, 2)
    assert (model.classes_[regions.proba.argmax(axis=2).ravel()] == model.predict(grid)).all()
    assert np.isin(regions.proba, (0.0, 1.0)).all()
    display = DecisionRegionDisplay(regions).plot(s=3)
    np.testing.assert_array_equal(display.points_[0].get_offsets(), X)


def test_regions_from_predictions():
    proba = np.zeros((4, 3, 2))
    proba[:2, :, 0] = proba[2:, :, 1] = 1.0
    display = DecisionRegionDisplay.from_predictions([0, 1, 2], [0, 1, 2, 3], proba, axis_names=("u", "v"))
    assert display.ax_.get_ylabel() == "v"
    assert tuple(display.image_.get_extent()) == (-0.5, 2.5, -0.5, 3.5)
    colours = display.image_.get_array()
    assert (colours[0, 0] == colours[1, 2]).all()
    assert (colours[0, 0] != colours[3, 0]).any()
    with pytest.raises(ValueError, match=r"\(3, 4, K\), not \(4, 3, 2\)"):
        DecisionRegionDisplay.from_predictions([0, 1, 2, 3], [0, 1, 2], proba)


def test_regions_say_what_is_wrong(model, data):
    X, y = data
    with pytest.raises(ValueError, match="all numbers"):
        decision_regions(model, [["a", "b"], ["c", "d"]])
    with pytest.raises(ValueError, match="two or more rows and features"):
        decision_regions(model, X[:, :1])
    with pytest.raises(ValueError, match="none of the classes"):
        decision_regions(model, X, np.full(len(y), "dog"), resolution=3)


# Relevance


def test_relevance_is_drawn_largest_first(data):
    X, y = data
    table = pd.DataFrame(np.column_stack([X, X[:, 0] ** 2]), columns=["a", "b", "$c^2$"])
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf", metric="learned")).fit(table, y)
    display = RelevanceDisplay.from_estimator(model, color="red")
    found = feature_relevance(model)
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(widths, np.sort(found.relevance)[::-1])
    assert shown_labels(display.ax_.get_yticklabels()) == [found.names[j] for j in found.order]
    display.figure_.canvas.draw()  # names are no formulas
    top, bottom = display.ax_.get_ylim()[::-1]
    assert top < bottom
    ends = np.array([line[:, 0] for line in display.bars_.errorbar.lines[2][0].get_segments()])
    std = found.std[found.order]
    np.testing.assert_allclose(ends[:, 1], widths + std)
    np.testing.assert_allclose(ends[:, 0], np.maximum(widths - std, 0.0))
    assert display.bars_.patches[0].get_facecolor()[:3] == (1.0, 0.0, 0.0)
    assert display.ax_.get_xlabel() == "relevance, ± standard deviation over folds"
    assert display.ax_.get_title() == ""


def test_relevance_of_many_columns(model):
    names = tuple(f"long {'name of a column, ' * 20}{j}" for j in range(30))
    found = FeatureRelevance(names, np.arange(30) / 435.0)
    display = RelevanceDisplay(found).plot(n_columns=4)
    assert [bar.get_width() * 435.0 for bar in display.bars_] == pytest.approx([29, 28, 27, 26])
    assert display.bars_.errorbar is None
    assert display.ax_.get_title() == f"4 of 30 columns; the others together {325 / 435:.1%}"
    labels = shown_labels(display.ax_.get_yticklabels())
    assert {len(label) for label in labels} == {40}
    assert len(set(labels)) == 4  # names that differ at their ends can be told apart
    display.figure_.canvas.draw()
    size = display.figure_.bbox.size
    boxes = [label.get_window_extent() for label in (*display.ax_.get_yticklabels(), display.ax_.xaxis.label)]
    assert all((box.min >= 0).all() and (box.max <= size).all() for box in boxes)
    assert display.ax_.get_window_extent().width > size[0] / 3
    assert display.ax_.get_xlabel() == "relevance"
    assert len(RelevanceDisplay(found).plot().bars_) == 20
    assert len(display.plot(n_columns=None).bars_) == 30
    _, ax = pyplot.subplots()
    named = RelevanceDisplay.from_estimator(model, feature_names=["u", "v"], n_columns=1, ax=ax)
    assert named.ax_ is ax
    assert shown_labels(ax.get_yticklabels())[0] in "uv"
    with pytest.raises(ValueError, match="at least 1"):
        display.plot(n_columns=0)


# matplotlib


DISPLAYS = {
    "codebook": lambda model, data, **how: CodebookDisplay.from_codebook(
        model.codebook_, classes=["antelope of the savannah", "bee", "cow"], **how
    ),
    "regions": lambda model, data, **how: DecisionRegionDisplay.from_estimator(
        model, *data, resolution=9, **how
    ),
    "relevance": lambda model, data, **how: RelevanceDisplay.from_estimator(
        model, feature_names=["length of the left wing of the insect", "b"], **how
    ),
    "reliability": lambda model, data, **how: ReliabilityDisplay.from_estimator(model, **how),
    "reliability of classes": lambda model, data, **how: ReliabilityDisplay.from_estimator(
        model, kind="class-wise", n_resamples=5, **how
    ),
    "selection": lambda model, data, **how: SelectionDisplay.from_estimator(model, n_C=5, n_gamma=3, **how),
}


@pytest.mark.parametrize("where", ["own axes", "given axes", "tight", "constrained", "placed", "two rows"])
@pytest.mark.parametrize("name", DISPLAYS)
def test_nothing_is_cut_off(name, where, model, data):
    how = {}
    if where == "placed":
        how["ax"] = pyplot.figure(figsize=(5, 4.2)).add_axes((0.2, 0.2, 0.6, 0.7))
    elif where == "two rows":
        how["ax"] = pyplot.subplots(2, 1, figsize=(5, 8))[1][1]
    elif where != "own axes":
        layout = where if where == "constrained" else None
        how["ax"] = pyplot.subplots(figsize=(5, 4.2), layout=layout)[1]
    display = DISPLAYS[name](model, data, **how)
    if where == "tight":
        display.figure_.tight_layout()
    assert cut_off(display.figure_) <= 0.5
    # There is room left for what is drawn.
    assert display.ax_.get_window_extent().width > 0.25 * display.figure_.bbox.width
    assert display.ax_.get_window_extent().height > 0.2 * display.figure_.bbox.height


def test_axes_with_a_display_keep_to_their_box(model):
    figure, axes = pyplot.subplots(2, 1, figsize=(5, 6))
    box = axes[0].get_window_extent().frozen()
    for _ in range(2):  # the second joins the first
        display = ReliabilityDisplay.from_estimator(model, ax=axes[0])
    figure.canvas.draw()
    assert len(axes[0].child_axes) == 1
    upper, lower = display.ax_.get_window_extent(), display.histogram_ax_.get_window_extent()
    assert upper.y1 == pytest.approx(box.y1)
    assert lower.y0 == pytest.approx(box.y0)
    assert lower.y1 < upper.y0
    assert (upper.x0, upper.x1) == pytest.approx((lower.x0, lower.x1))
    assert box.x0 <= upper.x0 < box.x0 + 5.0
    assert upper.x1 == pytest.approx(box.x1)


def test_displays_can_be_pickled(model):
    figure = ReliabilityDisplay.from_estimator(model, ax=pyplot.subplots()[1]).figure_
    copy = pickle.loads(pickle.dumps(figure))
    assert cut_off(copy) <= 0.5


def test_without_matplotlib_the_message_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"install polymargin with its plot extra"):
        CodebookDisplay.from_estimator(model)


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, polymargin.plots; sys.exit('matplotlib' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
