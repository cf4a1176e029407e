"""The papers' figures and experiments, and the command that runs them."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import polymargin.cli.reproduce as command
from polymargin import papers
from polymargin.cli import app
from polymargin.cli._comparison_table import print_comparison
from polymargin.papers.vangestel2002 import TABLES, _coding_table
from polymargin.reproduction import (
    Figure,
    Key,
    ReproductionError,
    compare_with_paper,
    parse_figures,
    random_split,
    run_experiment,
    standardise,
)
from polymargin.reproduction.provenance import to_toml
from test_reproduction import Toy

runner = CliRunner()

# --- Van Gestel et al. (2002): sums over rows and columns come from another parse of the text than the csv's.

DATASETS = ["bal", "der", "gla", "iri", "led", "nth", "ssd", "veh", "win", "zoo"]
CODINGS = ["one-vs-one", "one-vs-all", "minimal", "ecoc"]
ROW_SUMS = {  # per dataset, of the eight means and of the eight standard deviations
    ("2", "linear"): """705.8/20.1 770.9/11.8 448.6/45.3 663.0/33.8 533.5/26.4
                        708.5/34.4 763.1/22.1 601.3/15.2 785.1/13.1 726.1/41.1""",
    ("2", "rbf"): """727.9/17.6 777.1/7.2 471.0/53.9 759.4/24.5 569.5/21.8
                     769.6/15.2 763.8/23.6 640.9/21.0 784.0/14.0 735.7/33.2""",
    ("3", "linear"): """727.4/16.6 767.6/10.3 432.2/52.2 621.8/36.7 511.7/37.2
                        735.4/24.8 783.2/24.2 599.1/23.9 775.7/18.4 713.3/48.9""",
    ("3", "rbf"): """748.2/15.3 768.0/10.5 503.0/52.7 725.0/36.2 564.6/28.2
                     759.3/19.5 787.8/23.5 650.6/19.2 778.1/17.2 720.5/39.4""",
}
COLUMN_SUMS = {  # per decoding and coding, of the ten means
    ("2", "linear"): "870.6 843.8 795.9 818.1 870.4 852.7 802.1 852.3",
    ("2", "rbf"): "886.7 855.2 867.0 872.8 882.7 880.6 868.0 885.9",
    ("3", "linear"): "881.7 816.2 806.6 829.5 850.1 842.6 812.0 828.7",
    ("3", "rbf"): "891.2 865.9 880.1 882.4 853.1 839.9 900.8 891.7",
}


def figures_of(table):
    return {figure.key: figure for figure in TABLES[table]().paper_figures()}


@pytest.mark.parametrize(("table", "second"), [("2", "bayes"), ("3", "loss")])
def test_figures_have_the_shape_of_the_table(table, second):
    keys = [
        Key.of(dataset=dataset, kernel=kernel, coding=coding, decoding=decoding)
        for kernel in ("linear", "rbf")
        for dataset in DATASETS
        for decoding in ("hamming", second)
        for coding in CODINGS
    ]
    figures = figures_of(table)
    assert list(figures) == keys
    assert len(keys) == 160
    assert all(figure.decimals == 1 and 0 < figure.sd < 12 for figure in figures.values())
    experiment = TABLES[table]()
    fields = list(keys[0])
    assert {cell.only(fields) for job in experiment.jobs() for cell in experiment.cells(job)} == set(keys)


@pytest.mark.parametrize(("table", "kernel"), ROW_SUMS)
def test_figures_add_up_to_the_text(table, kernel):
    figures = [figure for figure in TABLES[table]().paper_figures() if figure.key["kernel"] == kernel]
    means = np.array([figure.mean for figure in figures]).reshape(10, 8)
    deviations = np.array([figure.sd for figure in figures]).reshape(10, 8)
    sums = np.array([pair.split("/") for pair in ROW_SUMS[table, kernel].split()], dtype=float)
    np.testing.assert_allclose(np.c_[means.sum(axis=1), deviations.sum(axis=1)], sums, atol=1e-9)
    columns = np.array(COLUMN_SUMS[table, kernel].split(), dtype=float)
    np.testing.assert_allclose(means.sum(axis=0), columns, atol=1e-9)


@pytest.mark.parametrize(
    ("table", "cell", "mean", "sd"),
    [
        ("2", "bal linear one-vs-one hamming", 87.5, 2.7),
        ("2", "win linear one-vs-one bayes", 98.0, 1.7),
        ("2", "gla rbf ecoc bayes", 66.1, 8.5),
        ("2", "zoo rbf ecoc bayes", 92.9, 3.7),
        ("3", "led linear ecoc loss", 55.2, 8.4),
        ("3", "iri rbf one-vs-one loss", 77.8, 11.3),
        ("3", "veh rbf minimal hamming", 79.4, 2.3),
        ("3", "zoo rbf ecoc loss", 92.6, 4.0),
    ],
)
def test_figures_here_and_there(table, cell, mean, sd):
    key = Key.of(**dict(zip(("dataset", "kernel", "coding", "decoding"), cell.split(), strict=True)))
    figure = figures_of(table)[key]
    assert (figure.mean, figure.sd) == (mean, sd)


@pytest.mark.parametrize("table", ["2", "3"])
def test_figures_are_possible_means_of_ten_test_sets(table):
    experiment = TABLES[table]()
    for figure in experiment.paper_figures():
        hits = figure.mean / 100 * 10 * experiment.protocol["datasets"][figure.key["dataset"]]["n_test"]
        unit = 10 / experiment.protocol["datasets"][figure.key["dataset"]]["n_test"]
        assert abs(hits - round(hits)) * unit <= 0.05 + 1e-9, figure


def test_protocol_is_table_one():
    protocols = [TABLES[table]().protocol for table in ("2", "3")]
    assert [protocol["decodings"][1] for protocol in protocols] == ["bayes", "loss"]
    assert "tables" not in protocols[0]
    sizes = protocols[0]["datasets"]
    assert list(sizes) == DATASETS
    totals = [size["n_train"] + size["n_test"] for size in sizes.values()]
    assert totals == [625, 366, 214, 150, 600, 215, 47, 846, 178, 101]
    for size in sizes.values():
        assert abs(size["n_train"] - 2 * size["n_test"]) <= 2, "two thirds train"


@pytest.fixture
def toy_data(monkeypatch):
    """One dataset of 30 rows in the place of the real ones, and a Table II whose machine is a mean."""
    generator = np.random.default_rng(0)
    y = np.repeat(["p", "q", "r"], 10)
    X = generator.normal(size=(30, 4)) + (y == "q")[:, None] * 5
    X[3, 2] = np.nan
    monkeypatch.setattr(_coding_table, "load_once", lambda dataset: SimpleNamespace(X=X, y=y))
    protocol = TABLES["2"]().protocol | {"datasets": {"win": {"n_train": 20, "n_test": 10}}, "replicates": 2}
    seen = []

    def compare_codings(X_train, y_train, X_test, y_test, *, kernel, codings, decodings, random_state, **_):
        assert X_train.shape == (20, 4)
        assert len(y_test) == len(X_test) == 10
        np.testing.assert_allclose(X_train.std(axis=0), 1)
        assert not np.isnan(X_test).any()
        seen.append((kernel, random_state, X_train.tobytes()))
        accuracy = (90 + len(kernel)) / 100
        return [
            SimpleNamespace(coding=coding, decoding=decoding, accuracy=accuracy)
            for coding in codings
            for decoding in decodings
        ]

    monkeypatch.setattr(_coding_table, "compare_codings", compare_codings)
    return SimpleNamespace(protocol=protocol, seen=seen)


def test_coding_table_runs_every_coding_on_one_split(toy_data, tmp_path):
    report = run_experiment(TABLES["2"](toy_data.protocol), tmp_path)
    assert not report.failures
    assert len(report.rows) == 2 * 2 * 8
    assert {row["value"] for row in report.rows if row["kernel"] == "rbf"} == {93.0}
    splits = {(seed, data) for _, seed, data in toy_data.seen}
    assert len(toy_data.seen) == 4
    assert len(splits) == 2, "both kernels see the same two splits"


def test_coding_table_refuses_data_of_another_size(toy_data, tmp_path):
    toy_data.protocol["datasets"]["win"]["n_test"] = 9
    report = run_experiment(TABLES["2"](toy_data.protocol), tmp_path)
    assert "win has 30 rows instead of 29" in report.failures[0].error


# --- the registry ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", papers.available())
def test_every_paper_has_tables_figures_and_a_readme(name):
    for make in papers.tables(name).values():
        experiment = make()
        assert experiment.name.startswith(name)
        assert experiment.jobs()
        figures = experiment.paper_figures()
        layout = {*experiment.layout.rows, *experiment.layout.columns, *experiment.layout.panels}
        if not figures:  # an experiment of ours beside the paper's
            assert layout < set(experiment.cells(experiment.jobs()[0])[0])
            continue
        fields = list(figures[0].key)
        assert layout == set(fields)
        computed = {cell.only(fields) for job in experiment.jobs() for cell in experiment.cells(job)}
        assert {figure.key for figure in figures} <= computed
        assert experiment.direction(figures[0].key) in ("higher", "lower")
    assert (Path(papers.__file__).parent / name / "README.md").exists()


@pytest.mark.parametrize(
    "name", ["gestel", "Van Gestel", "suykens", "vangestel", "vangestl2002", "van-gestel 2002"]
)
def test_authors_and_misspellings_are_understood(name):
    with pytest.raises(ReproductionError, match=r"did you mean vangestel2002\?"):
        papers.tables(name)


# --- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def toy_paper(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "tables", lambda name: {"1": Toy})
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return runner.invoke(app, ["reproduce", *arguments])


def test_list_names_papers_and_tables():
    for arguments in (["--list"], ["vangestel2002", "--list"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "--table 2  Van Gestel et al. (2002), Table II" in result.stdout


def test_help_has_an_example():
    result = run("--help")
    assert result.exit_code == 0
    assert "polymargin reproduce vangestel2002" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody1900"], "no paper 'nobody1900'; available: vangestel2002"),
        (["nobody1900", "--list"], "no paper 'nobody1900'"),
        (["vangestel2002", "--table", "9"], "has no table '9' here; available: 2, 2-per-bit, 3, usps"),
        (["vangestel2002", "--dataset", "wine"], "no dataset 'wine' in these tables; available: bal"),
        ([], "say which paper: vangestel2002"),
        (["vangestel2002", "--jobs", "0"], "--jobs must be -1 or a number of processes"),
    ],
)
def test_usage_errors_are_one_line(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_json_is_json_and_nothing_else(toy_paper):
    result = run("toy", "--json", "--jobs", "1")
    assert result.exit_code == 0
    (table,) = json.loads(result.stdout)["tables"]
    assert table["jobs"] == {"done": 8, "total": 8, "failed": 0}
    assert table["summary"]["compared"] == 4
    assert table["summary"]["worse"] == 2, "the toy paper claims 9.9 on dataset a"
    assert Path(table["results"]).exists()
    assert Path("polymargin-results/toy/toy.csv").exists()


def test_table_is_printed_with_its_exceptions(toy_paper):
    result = run("toy", "--jobs", "1", "--dataset", "a")
    assert result.exit_code == 0
    assert "0 of 2 cells (0.0 %) are not worse than the paper" in result.stdout
    assert "a plain: " in result.stdout
    assert "9.9 (0.1)" in result.stdout


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_fits_the_terminal(width):
    experiment = TABLES["2"]()
    comparison = compare_with_paper([], experiment.paper_figures(), replicates=10)
    console = Console(width=width, file=StringIO())
    print_comparison(console, experiment.title, comparison, experiment.layout)
    text = console.file.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("one-vs-one") == 4


def test_no_run_computes_nothing(toy_paper):
    result = run("toy", "--no-run")
    assert result.exit_code == 0
    assert "No cell is computed yet." in result.stdout
    assert not Path("polymargin-results").exists()


def test_failures_and_refusals_have_a_status_and_no_traceback(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "tables", lambda name: {"1": lambda: Toy({"fail": ["a/1", "b/2"]})})
    arguments = ("toy", "--jobs", "1", "--results", str(tmp_path))
    result = run(*arguments)
    assert result.exit_code == 1
    assert "1 jobs failed (a/1): ValueError: job a/1 is meant to fail" in result.stderr
    assert "Traceback" not in result.output
    monkeypatch.setattr(command, "tables", lambda name: {"1": Toy})
    result = run(*arguments)
    assert result.exit_code == 1
    assert "--restart" in result.stderr
    assert run(*arguments, "--restart").exit_code == 0
    (tmp_path / "file").touch()
    result = run("toy", "--results", str(tmp_path / "file" / "below"))
    assert result.exit_code == 1
    assert "cannot use the results folder" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
def test_ctrl_c_stops_cleanly(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from test_reproduction import Toy\n"
        "import polymargin.cli.reproduce as command; from polymargin.cli import app\n"
        "command.tables = lambda name: {'1': lambda: Toy({'replicates': 200})}\n"
        "app()"
    )
    command_line = [sys.executable, "-c", code, str(Path(__file__).parent), "reproduce", "toy", "--jobs", "2"]
    process = subprocess.Popen(
        [*command_line, "--results", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TOY_DELAY": "0.05"},
    )
    journal = tmp_path / "toy.jsonl"
    end = time.monotonic() + 30
    while process.poll() is None and not (
        journal.exists() and journal.read_bytes().count(b'"kind": "job"') > 3
    ):
        assert time.monotonic() < end
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and its workers
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "jobs are done and saved; the same command resumes" in stderr
    assert "Traceback" not in stderr
    assert (tmp_path / "toy.csv").exists()


# --- data and figures --------------------------------------------------------------------------------------


def test_split_is_a_partition_and_a_function_of_the_seed():
    y = np.repeat([0, 1, 2], 20)
    train, test = random_split(y, 40, 20, seed=3)
    assert sorted([*train, *test]) == list(range(60))
    np.testing.assert_array_equal(train, random_split(y, 40, 20, seed=3)[0])
    assert not np.array_equal(train, random_split(y, 40, 20, seed=4)[0])


def test_split_is_redrawn_until_every_class_is_there():
    y = np.array(["common"] * 30 + ["rare"])
    for seed in range(30):
        train, _ = random_split(y, 5, 20, seed)
        assert "rare" in y[train]


@pytest.mark.parametrize(
    ("n_train", "n_test", "message"), [(50, 20, "the data have 60"), (2, 20, "all 3 classes")]
)
def test_impossible_splits_are_refused(n_train, n_test, message):
    with pytest.raises(ReproductionError, match=message):
        random_split(np.repeat([0, 1, 2], 20), n_train, n_test, 0)


def test_standardise_by_the_training_rows():
    train = np.array([[1.0, 5.0, np.nan, 0.1], [3.0, 5.0, 2.0, 0.1], [np.nan, 5.0, 4.0, 0.1]])
    test = np.array([[np.nan, 6.0, 3.0, 0.1]])
    new_train, new_test = standardise(train, test)
    np.testing.assert_allclose(new_train.mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(new_train.std(axis=0), [1, 0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(new_test, [[0, 1, 0, 0]], atol=1e-12)
    assert np.isnan(train).sum() == 2, "the input is left alone"


def test_no_deviation_at_all_is_judged_by_the_printed_digits():
    figures = [Figure(Key.of(dataset=name), mean=0.1398, decimals=4) for name in ("a", "b", "c")]
    rows = [
        {"dataset": name, "value": value}
        for name, value in zip("abc", (0.13984, 0.1300, 0.1500), strict=True)
    ]
    comparison = compare_with_paper(rows, figures, replicates=20, better="lower")
    assert [cell.verdict for cell in comparison.cells] == ["same", "better", "worse"]
    assert all(cell["standard_errors"] is None for cell in comparison.as_json()["cells"])


def test_figures_are_parsed_with_their_digits():
    (figure,) = parse_figures(["dataset,mean,sd,n", "waveform,0.0937,,20"])
    assert (figure.mean, figure.n, figure.decimals) == (0.0937, 20, 4)
    assert math.isnan(figure.sd)
    with pytest.raises(ReproductionError, match="line 3: a is there twice"):
        parse_figures(["dataset,mean", "a,1.0", "a,2.0"])
    with pytest.raises(ReproductionError, match="line 2: cannot read"):
        parse_figures(["dataset,mean", "a,1;0"])


def test_toml_survives_odd_strings():
    document = {"a b": 'quote " slash \\ line\n', "yes": True, "x": 1.5, "deep": {"list": [{"n": {"m": 1}}]}}
    assert tomllib.loads(to_toml(document)) == document
