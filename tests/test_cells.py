"""The calibration error that is stated of leave-one-out probabilities, against that of fresh rows."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polymargin import KernelLogisticClassifier, LSSVMClassifier
from polymargin.cli._quality import by_leave_one_out, scores
from polymargin.inspection.honest import training_cells
from polymargin.metrics import calibration_error, leave_halves_out, leave_one_out_calibration_error
from polymargin.plots import ReliabilityDisplay
from polymargin.report import fit_summary

mpl.use("Agg")


def frequencies_without_the_row(cell, y, n_classes=2, shrunk=0.0):
    """Of every row, the class frequencies of the other rows of its cell, and of every cell those of all its rows."""
    counts = np.stack([np.bincount(cell, y == k) for k in range(n_classes)], axis=1)
    prior = shrunk * np.bincount(y) / y.size
    left = counts[cell] - np.eye(n_classes)[y] + prior
    whole = counts + prior
    return left / left.sum(axis=1, keepdims=True), whole / whole.sum(axis=1, keepdims=True)


def one_column_in_tens(random, n=500):
    x = np.clip(np.round(random.normal(50, 20, n) / 10), 0, 10).astype(int)
    return x[:, None] * 10.0, 1 / (1 + np.exp(-(10.0 * np.arange(11) - 50) / 25)), x


def nominal_table(random, n=500):
    X = random.integers(0, 2, (n, 4))
    return X.astype(float), np.random.default_rng(5).beta(1.5, 1.5, 16), X @ [1, 2, 4, 8]


def fresh_error(random, truth, cell, proba_of_cells, n=20_000, batch=None):
    """The calibration error on fresh rows: of n of them, or the mean over batches."""
    new = random.choice(cell, n)
    y = (random.random(n) < truth[new]).astype(int)
    parts = [slice(None)] if batch is None else [slice(i, i + batch) for i in range(0, n, batch)]
    return np.mean([calibration_error(y[part], proba_of_cells[new[part]]) for part in parts])


@pytest.mark.parametrize("rows", [one_column_in_tens, nominal_table])
@pytest.mark.parametrize("model", ["frequencies", "shrunk", "kernel logistic"])
def test_what_is_stated_is_what_fresh_rows_show(rows, model):
    stated, true, measured, sorted_by_labels = [], [], [], []
    for seed in range(4):
        random = np.random.default_rng(seed)
        X, truth, cell = rows(random)
        cell = np.unique(cell, return_inverse=True)[1]
        truth = (
            truth[: cell.max() + 1] if rows is nominal_table else truth[np.unique(X[:, 0] / 10).astype(int)]
        )
        y = (random.random(500) < truth[cell]).astype(int)
        if model == "kernel logistic":
            fitted = KernelLogisticClassifier().fit(X / 20, y)
            loo = np.exp(fitted.loo_log_proba_)
            first = np.unique(cell, return_index=True)[1]
            of_cells = fitted.predict_proba(X[first] / 20)
        else:
            loo, of_cells = frequencies_without_the_row(cell, y, shrunk=20.0 if model == "shrunk" else 0.0)
        stated.append(leave_one_out_calibration_error(y, loo, cell))
        sorted_by_labels.append(calibration_error(y, loo))
        true.append(fresh_error(random, truth, cell, of_cells))
        measured.append(fresh_error(random, truth, cell, of_cells, batch=500))
    # Chance adds to the error of as many fresh rows, and half of the rows of a cell are fewer.
    assert np.mean(true) < np.mean(stated) < 1.7 * np.mean(measured)
    assert np.mean(sorted_by_labels) > 2.0 * np.mean(measured)


def test_noise_in_cells_of_two_does_not_look_calibrated():
    random = np.random.default_rng(0)
    cell, y = np.repeat(np.arange(250), 2), random.integers(0, 2, 500)
    loo, of_cells = frequencies_without_the_row(cell, y, shrunk=0.02)
    true = fresh_error(random, np.full(250, 0.5), cell, of_cells)
    assert true > 0.2
    assert leave_one_out_calibration_error(y, loo, cell) > true
    # The mean over the rows of a cell would look perfect.
    mean = np.repeat((loo[::2] + loo[1::2]) / 2, 2, axis=0)
    assert calibration_error(y, mean) < 0.02
    # Of a model that hardly learns from one row nothing is wrong.
    loo, of_cells = frequencies_without_the_row(cell, y, shrunk=20.0)
    assert leave_one_out_calibration_error(y, loo, cell) < 0.1


def test_a_model_that_is_constant_is_one_cell():
    random = np.random.default_rng(0)
    y = (random.random(500) < 0.3).astype(int)
    loo, _ = frequencies_without_the_row(np.zeros(500, dtype=int), y)
    # Nearly constant: what rows differ by is less than what leaving one out does.
    loo = loo + 1e-5 * random.normal(size=(500, 1)) * [1, -1]
    assert calibration_error(y, loo) > 0.3
    assert leave_one_out_calibration_error(y, loo, np.arange(500)) < 0.06


def test_different_rows_are_as_they_are():
    random = np.random.default_rng(0)
    p = random.random((300, 1)) * [1, -1] + [0, 1]
    y = (random.random(300) > p[:, 0]).astype(int)
    weights = random.uniform(0.0, 2.0, 300) * (random.random(300) < 0.9)
    half = leave_halves_out(y, p, np.arange(300), sample_weight=weights)
    assert half.whole
    assert_array_equal(half.rows, np.flatnonzero(weights))
    assert_array_equal(half.proba, p[half.rows])
    expected = calibration_error(y, p, sample_weight=weights)
    assert leave_one_out_calibration_error(y, p, np.arange(300), sample_weight=weights) == expected


def test_halves_of_frequencies_are_frequencies():
    random = np.random.default_rng(0)
    cell = random.integers(0, 12, 400)
    y = random.integers(0, 3, 400)
    loo, _ = frequencies_without_the_row(cell, y, 3)
    half = leave_halves_out(y, loo, cell, random_state=3)
    size = np.bincount(cell)
    assert (np.abs(np.bincount(cell[half.rows]) - size / 2) <= 0.5).all()
    assert_allclose(np.bincount(cell[half.rows], half.weights), size)
    rest = np.delete(np.arange(400), half.rows)
    for row, p in zip(half.rows, half.proba, strict=True):
        others = y[rest[cell[rest] == cell[row]]]
        assert_allclose(p, np.bincount(others, minlength=3) / others.size, atol=1e-9)


def test_cells_that_do_not_fit():
    with pytest.raises(ValueError, match="cells must have one number for each of the 2 rows"):
        leave_halves_out([0, 1], [[0.5, 0.5]] * 2, [0, 0, 1])


def test_the_command_line_the_report_and_the_plot():
    random = np.random.default_rng(0)
    X, truth, cell = one_column_in_tens(random)
    y = (random.random(500) < truth[cell]).astype(int)
    frame = pd.DataFrame(X, columns=["age"])
    model = make_pipeline(StandardScaler(), KernelLogisticClassifier()).fit(frame, y)
    honest = by_leave_one_out(model[-1])
    assert_array_equal(
        np.unique(honest.cells[np.unique(cell, return_index=True)[1]]).size, np.unique(cell).size
    )
    assert calibration_error(y, np.exp(honest.log_proba)) > 0.3
    stated = scores(y, honest.predicted, honest.log_proba, None, honest.cells)["calibration_error"]
    assert stated < 0.12
    summary = fit_summary(
        model, frame, y, title="tens", log_proba=honest.log_proba, classes=model.classes_, cells=honest.cells
    )
    assert summary["scores"]["calibration_error"] == stated
    assert summary["scores"]["rows"] == 500
    assert summary["reliability"]["views"][0]["error"] < 0.15
    assert max(part["calibration_error"] for part in summary["per_class"]) < 0.15
    assert "too cautious" not in summary["text"]["reliability"]


def test_a_reliability_diagram_of_equal_rows():
    random = np.random.default_rng(0)
    x = np.repeat([0.0, 1.0], 200)
    y = (random.random(400) < np.where(x > 0, 0.8, 0.2)).astype(int)
    model = LSSVMClassifier(1.0, gamma=1.0, kernel="rbf", decoding="softmax").fit(x[:, None], y)
    assert_array_equal(training_cells(model), x)
    curve = ReliabilityDisplay.from_estimator(model, n_resamples=10).curves[0]
    # Half of the rows, one probability for each cell.
    assert curve.curve.count.sum() == 200
    assert_allclose(curve.weights.sum(), 400.0)
    assert np.unique(curve.probabilities).size <= 2
