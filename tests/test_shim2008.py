"""Shim, Bae and Hwang (2008): figures, draws, one job, the listings, the drawing."""

import os
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import naive
from polymargin import papers
from polymargin.cli import app
from polymargin.papers.shim2008 import FIGURES, TABLES, figure51
from polymargin.papers.shim2008.rows import bandwidths, draw_rows, draw_test_sets
from polymargin.reproduction import Key, ReproductionError, compare_with_paper, read_results

runner = CliRunner()
DATASETS = {"iris": (100, 50), "wine": (120, 58), "glass": (140, 74)}

needs_data = pytest.mark.skipif(
    not os.environ.get("POLYMARGIN_DATA"), reason="set POLYMARGIN_DATA to the folder of datasets"
)


def test_figures_are_those_of_the_table():
    figures = TABLES["5.1"]().paper_figures()
    assert [figure.key["dataset"] for figure in figures] == ["iris"] * 2 + ["wine"] * 2 + ["glass"] * 2
    assert {figure.key["tested_on"] for figure in figures} == {"all rows"}
    means = np.array([figure.mean for figure in figures]).reshape(3, 2)
    assert_allclose(means.sum(axis=0), [0.2718, 0.2598], atol=1e-12)
    assert_allclose(means.sum(axis=1), [0.0380, 0.0697, 0.4239], atol=1e-12)
    assert_allclose(sum(figure.sd for figure in figures), 0.1381, atol=1e-12)
    assert {figure.n for figure in figures} == {1}, "one training set"


@pytest.mark.parametrize("table", TABLES)
def test_protocol_is_section_five(table):
    experiment = TABLES[table]()
    assert experiment.protocol["C"] == 10.0
    assert experiment.protocol["test_sets"] == experiment.replicates == 100
    sizes = experiment.protocol["datasets"]
    assert {name: (size["n_train"], size["n_test"]) for name, size in sizes.items()} == DATASETS
    assert len(experiment.jobs()) == 300
    assert len(experiment.cells(experiment.jobs()[0])) == 4
    assert experiment.direction(experiment.jobs()[0]) == "lower"


def test_printed_deviations_are_those_of_test_sets_drawn_from_all_rows():
    # Of one machine, on n_test of n rows drawn without replacement; drawn with, the deviations would be a fifth larger.
    for figure in TABLES["5.1"]().paper_figures():
        n_train, n_test = DATASETS[figure.key["dataset"]]
        n = n_train + n_test
        drawn_with = np.sqrt(figure.mean * (1 - figure.mean) / n_test)
        drawn_without = drawn_with * np.sqrt((n - n_test) / (n - 1))
        assert abs(figure.sd - drawn_without) < abs(figure.sd - drawn_with)
        if figure.key["method"] == "LSSVM":
            assert_allclose(figure.sd, drawn_without, rtol=0.05)


def test_bandwidths():
    values = bandwidths(TABLES["5.1"]().protocol)
    assert_allclose(values[[0, 1, -1]], [0.1, 0.2, 10.0])
    assert values.size == 100


@needs_data
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dataset", DATASETS)
def test_rows_of_a_run(table, dataset):
    protocol = TABLES[table]().protocol
    rows = draw_rows(protocol, dataset, 3)
    n_train, n_test = DATASETS[dataset]
    assert rows.train.size == n_train
    assert_array_equal(np.sort(np.r_[rows.train, rows.held_out]), np.arange(n_train + n_test))
    assert set(rows.y[rows.train]) == set(rows.y)
    X = rows.X[rows.train]
    match protocol["scaling"][dataset]:
        case "standardise":
            assert_allclose(X.mean(axis=0), 0.0, atol=1e-9)
            assert_allclose(X.std(axis=0), 1.0)
        case "range":
            assert_allclose(X.min(axis=0), 0.0)
            assert_allclose(X.max(axis=0), 1.0)
        case "none":
            assert X.std(axis=0).max() > 1.2 * X.std(axis=0).min()
    tests = draw_test_sets(protocol, dataset, rows.seed)
    assert tests.shape == (100, n_test)
    assert all(np.unique(test).size == n_test for test in tests)
    assert np.unique(tests).size == n_train + n_test, "training rows too"
    again = draw_rows(protocol, dataset, 3)
    assert_array_equal(again.train, rows.train)
    assert not np.array_equal(np.sort(draw_rows(protocol, dataset, 4).train), np.sort(rows.train))


@needs_data
def test_data_of_another_size_are_refused():
    protocol = TABLES["5.1"]().protocol | {"datasets": {"iris": {"n_train": 100, "n_test": 40}}}
    with pytest.raises(ReproductionError, match="iris has 150 rows instead of 140"):
        draw_rows(protocol, "iris", 1)


@needs_data
def test_one_training_set_of_iris():
    experiment = TABLES["5.1"]()
    job = Key.of(dataset="iris", run=1)
    results = experiment.run(job)
    assert [
        Key.from_mapping(row).only(cell) for row, cell in zip(results, experiment.cells(job), strict=True)
    ] == (experiment.cells(job))
    by_cell = {(row["tested_on"], row["method"]): row for row in results}
    # LS-SVM by the bordered system, the paper's (3.2) and (3.5).
    rows = draw_rows(experiment.protocol, "iris", 1)
    ours = by_cell["all rows", "LSSVM"]
    gamma = 1.0 / ours["sigma2_gcv"]
    X, y = rows.X[rows.train], rows.y[rows.train]
    classes = np.unique(y)
    a, b = naive.lssvm_solve(
        naive.kernel_matrix("rbf", X, X, gamma), np.where(y[:, None] == classes, 1.0, -1.0), 10.0
    )
    said = classes[(naive.kernel_matrix("rbf", rows.X, X, gamma) @ a + b).argmax(axis=1)]
    wrong = said != rows.y
    rates = [wrong[test].mean() for test in draw_test_sets(experiment.protocol, "iris", rows.seed)]
    assert_allclose(ours["value"], statistics.fmean(rates))
    assert_allclose(ours["sd_of_test_sets"], statistics.stdev(rates))
    assert_allclose(by_cell["held out", "LSSVM"]["value"], wrong[rows.held_out].mean())
    assert by_cell["held out", "KLogistic"]["value"] < 0.15


def finished(table):
    """Return the rows of our results, which lie in the package."""
    folder = Path(papers.__file__).parent / "shim2008" / "results"
    return read_results((folder / f"{TABLES[table].name}.csv").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("table", TABLES)
def test_our_results_are_complete(table):
    experiment = TABLES[table]()
    found = finished(table)
    expected = [cell for job in experiment.jobs() for cell in experiment.cells(job)]
    fields = list(expected[0])
    assert sorted(str(Key.from_mapping(row).only(fields)) for row in found) == sorted(map(str, expected))


@pytest.mark.parametrize("table", TABLES)
def test_our_rates_are_not_above_the_papers(table):
    experiment = TABLES[table]()
    comparison = compare_with_paper(
        finished(table), experiment.paper_figures(), replicates=experiment.replicates, better="lower"
    )
    assert comparison.n_compared == comparison.n_not_worse == 6
    (training_sets, chosen) = experiment.listings(finished(table))
    assert len(training_sets.rows) == 6
    assert max(float(row[4]) for row in training_sets.rows) < 2.0
    assert [row[0] for row in chosen.rows] == list(DATASETS)


def test_nothing_is_listed_of_nothing():
    assert TABLES["5.1"]().listings([]) == []


@needs_data
def test_curves_say_what_the_paper_says_of_cv():
    curves = figure51.curves()
    for dataset, (low, high) in {"iris": (1.0, 5.0), "wine": (0.7, 1.5), "glass": (1.0, 6.0)}.items():
        assert low <= 1.0 / curves[dataset].best_gamma("cv") <= high


@needs_data
def test_figure_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    assert FIGURES["5.1"](tmp_path / "new" / "figure.svg").read_bytes().startswith(b"<?xml")
    result = runner.invoke(app, ["reproduce", "shim2008", "--figure", "5.1", "--results", str(tmp_path)])
    assert result.exit_code == 0
    assert (tmp_path / "shim2008-figure5.1.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = runner.invoke(app, ["reproduce", "shim2008", "--figure", "5.1", "--results", str(tmp_path)])
    assert result.exit_code == 1
    assert "install polymargin with its plot extra" in result.stderr


def test_command_lists_the_tables():
    listed = runner.invoke(app, ["reproduce", "shim2008", "--list"]).stdout
    assert "--table 5.1  Shim, Bae and Hwang (2008), Table 5.1: misclassification rates" in listed
    assert "--table 5.1-standardised" in listed
    assert "--figure 5.1  Draw Figure 5.1" in listed
