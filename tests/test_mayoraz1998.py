"""Mayoraz and Alpaydın (1998): figures, splits, one small job, the drawing."""

import os
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from polymargin.cli import app
from polymargin.codebooks import one_vs_all
from polymargin.decoders import Argmax, Mixture
from polymargin.outputs import Outputs
from polymargin.papers.mayoraz1998 import FIGURES, TABLES
from polymargin.papers.mayoraz1998.figure1 import Boundaries, boundaries, sample
from polymargin.papers.mayoraz1998.misnumbered import NextClass
from polymargin.reproduction import Key

runner = CliRunner()

DATASETS = ["glass", "dermatology", "vowel", "soybean"]
PAPER = ["none", "pi_w", "pi_star", "M"]

needs_data = pytest.mark.skipif(
    not os.environ.get("POLYMARGIN_DATA"), reason="set POLYMARGIN_DATA to the folder of datasets"
)


def figures_of(table):
    return {figure.key: figure for figure in TABLES[table]().paper_figures()}


def test_figures_have_the_shape_of_the_table():
    keys = [
        Key.of(dataset=dataset, degree=degree, decoding=decoding)
        for dataset in DATASETS
        for degree in (2, 3)
        for decoding in PAPER
    ]
    assert list(figures_of("1")) == keys
    assert list(figures_of("1-misnumbered")) == keys[16:]
    experiment = TABLES["1"]()
    assert len(experiment.jobs()) == 4 * 2 * 10
    assert [cell["decoding"] for cell in experiment.cells(experiment.jobs()[0])][:4] == PAPER
    assert experiment.direction(keys[0]) == "lower"


@pytest.mark.parametrize(
    ("cell", "mean", "sd"),
    [
        ("glass 2 none", 35.7, 13.5),
        ("glass 3 M", 45.2, 10.8),
        ("dermatology 2 pi_w", 4.1, 2.0),
        ("vowel 2 pi_star", 69.9, 40.5),
        ("vowel 3 M", 10.5, 3.2),
        ("soybean 2 M", 29.2, 11.2),
        ("soybean 3 pi_star", 71.6, 34.8),
    ],
)
def test_figures_here_and_there(cell, mean, sd):
    key = Key.of(**dict(zip(("dataset", "degree", "decoding"), cell.split(), strict=True)))
    figure = figures_of("1")[key]
    assert (figure.mean, figure.sd) == (mean, sd)


def test_figures_add_up_to_the_text():
    means = np.array([figure.mean for figure in figures_of("1").values()]).reshape(8, 4)
    np.testing.assert_allclose(means.sum(axis=0), [356.7, 347.6, 350.3, 185.5], atol=1e-9)
    sums = [138.2, 151.8, 16.1, 16.6, 234.2, 195.8, 244.0, 243.4]
    np.testing.assert_allclose(means.sum(axis=1), sums, atol=1e-9)


@needs_data
@pytest.mark.parametrize(("dataset", "folds"), [("glass", 10), ("vowel", 2)])
def test_folds_of_a_repetition_hold_out_every_row_once(dataset, folds):
    experiment = TABLES["1"]()
    jobs = [Key.of(dataset=dataset, degree=2, run=run) for run in range(1, 11)]
    splits = [experiment.split(job) for job in jobs]
    n = experiment.protocol["datasets"][dataset]["n"]
    assert sum(split.y_test.size for split in splits) == n * 10 // folds
    for split in splits:
        assert split.X_train.shape[0] + split.X_test.shape[0] == n
        assert set(split.y_train) == set(split.classes)
        np.testing.assert_allclose(split.X_train.mean(axis=0), 0.0, atol=1e-10)
    assert len({split.seed for split in splits}) == 10 // folds


@needs_data
def test_one_fold_of_glass():
    experiment = TABLES["1"]()
    (first, *_) = experiment.jobs()
    rows = experiment.run(first)
    assert [row["decoding"] for row in rows] == experiment.protocol["decodings"]
    for row in rows:
        assert row["dataset"] == "glass"
        assert 0.0 <= row["value"] < 75.0, "the largest class has a third of the rows"


@needs_data
def test_misnumbered_machines_ruin_the_argmax_and_not_the_mixture():
    experiment = TABLES["1-misnumbered"]()
    job = Key.of(dataset="vowel", degree=3, run=1)
    errors = {row["decoding"]: row["value"] for row in experiment.run(job)}
    assert min(errors["none"], errors["pi_w"], errors["pi_star"]) > 90.0
    assert errors["M"] < 20.0
    honest = {
        row["decoding"]: row["value"] for row in experiment.run(Key.of(dataset="vowel", degree=3, run=7))
    }
    assert max(honest.values()) < 20.0


def test_next_class_is_one_late_and_the_mixture_does_not_care():
    generator = np.random.default_rng(0)
    index = generator.integers(0, 4, 60)
    book = one_vs_all(4)
    outputs = Outputs(book.targets(index) + 0.1 * generator.normal(size=(60, 4)), "in_sample")
    right = Argmax().fit(book, None, index).scores(outputs).argmax(axis=1)
    late = NextClass().fit(book, None, index).scores(outputs).argmax(axis=1)
    np.testing.assert_array_equal(right, index)
    np.testing.assert_array_equal(late, (index + 1) % 4)
    rolled = Outputs(np.roll(outputs.margins, 1, axis=1), "in_sample")
    for read in (outputs, rolled):
        mixed = Mixture(in_sample=True).fit(book, read, index).scores(read).argmax(axis=1)
        np.testing.assert_array_equal(mixed, index)


# --- Figure 1 ----------------------------------------------------------------------------------------------


def test_boundaries_of_three_linear_scores():
    weights = np.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0]])
    found = Boundaries.of(lambda rows: rows @ weights.T + [0.0, 0.0, -2.0])
    np.testing.assert_allclose(found.crossing, [2.0, 0.0], atol=1e-12)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found.directions, [[-1, 0], [half, half], [half, -half]], atol=1e-12)


def test_figure_says_what_the_paper_says():
    crossing = {name: found.crossing for name, found in boundaries(*sample()).items()}

    def off(name):
        return np.linalg.norm(crossing[name] - crossing["bayes"])

    assert off("pseudo-inverse") < 0.1, "matches closely the optimal one"
    assert off("svm") > 1.0, "quite different from the optimal Bayes decision"
    assert max(off("norm"), off("deviation")) < 0.3
    assert np.linalg.norm(crossing["norm"] - crossing["deviation"]) < 0.2, "superposes"


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_figure_is_drawn(tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    written = FIGURES["1"](tmp_path / "new" / f"figure{suffix}")
    assert written.read_bytes().startswith(start)


def test_command_draws_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    result = runner.invoke(app, ["reproduce", "mayoraz1998", "--figure", "1", "--results", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.split() == [str(tmp_path / "mayoraz1998-figure1.png")]
    assert (tmp_path / "mayoraz1998-figure1.png").stat().st_size > 10_000


def test_command_lists_figures_and_refuses_unknown_ones(tmp_path):
    assert "--figure 1  Draw Figure 1" in runner.invoke(app, ["reproduce", "mayoraz1998", "--list"]).stdout
    for paper, available in (("mayoraz1998", "1"), ("vangestel2002", "none")):
        result = runner.invoke(app, ["reproduce", paper, "--figure", "9"])
        assert result.exit_code == 2
        assert f"{paper} has no figure '9' here; available: {available}" in result.stderr


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = runner.invoke(app, ["reproduce", "mayoraz1998", "--figure", "1", "--results", str(tmp_path)])
    assert result.exit_code == 1
    assert "install polymargin with its plot extra" in result.stderr
