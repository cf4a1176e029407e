"""The examples of the gallery run, draw something, and what they tell is true."""

import re
import runpy
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
pytest.importorskip("pandas", reason="install polymargin with its tables extra")

from matplotlib import pyplot as plt

from conftest import cut_off

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = {path.stem.removeprefix("plot_"): path for path in sorted(EXAMPLES.glob("*/plot_*.py"))}
ADVICE = "ignore:FigureCanvasAgg is non-interactive:UserWarning"


@pytest.fixture(scope="module")
def run_figures():
    """By how many pixels the figures of the examples that were run are cut off."""
    return {}


@pytest.fixture(scope="module")
def ran(run_figures):
    """What an example prints, and how many figures it draws, by its name; each is run once."""
    known, drawn = {}, run_figures

    def run(name, capsys):
        if name not in known:
            plt.close("all")
            runpy.run_path(str(SCRIPTS[name]), run_name="__main__")
            drawn[name] = [cut_off(plt.figure(number)) for number in plt.get_fignums()]
            known[name] = capsys.readouterr().out, len(drawn[name])
            plt.close("all")
        return known[name]

    return run


def numbers_after(text, word):
    return [float(number) for number in re.findall(rf"(?:{word})\s+(\d+\.\d+)", text)]


def test_there_are_enough_and_all_are_in_the_gallery():
    assert len(SCRIPTS) >= 12
    assert {path.parent.parent for path in SCRIPTS.values()} == {EXAMPLES}
    assert not [path for path in EXAMPLES.rglob("*.py") if not path.name.startswith("plot_")]


@pytest.mark.filterwarnings(ADVICE, "error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_and_draws(name, ran, run_figures, capsys):
    if name == "onnx":
        pytest.importorskip("onnxruntime", reason="install polymargin with its onnx extra")
        pytest.importorskip("skl2onnx", reason="install polymargin with its onnx extra")
    text, figures = ran(name, capsys)
    assert figures >= 1
    assert max(run_figures[name]) <= 0.5, "names or legends leave the figure"
    assert "nan" not in text


@pytest.mark.filterwarnings(ADVICE)
class TestWhatTheyTell:
    def test_migration_keeps_the_labels_and_improves_the_probabilities(self, ran, capsys):
        text, _ = ran("from_svc", capsys)
        assert "SVC's label to 100.0% of the rows" in text
        searched, same, chosen = numbers_after(text, "log-loss")
        assert chosen < same < searched

    def test_expected_loss_of_the_table_is_near_the_one_found(self, ran, capsys):
        text, _ = ran("table", capsys)
        expected, found = map(float, re.search(r"log-loss: (\S+) expected.*, (\S+) on", text).groups())
        assert abs(expected - found) < 0.15
        for row in re.findall(r"^\d+ +([\d. ]+)", text, re.MULTILINE):
            assert sum(map(float, row.split())) == pytest.approx(1.0, abs=0.02)

    def test_votes_tell_more_than_the_majority(self, ran, capsys):
        votes, majority = numbers_after(ran("soft_labels", capsys)[0], "votes|majority")
        assert votes < majority

    def test_own_codebook_has_rows_of_its_own(self, ran, capsys):
        text, _ = ran("own_codebook", capsys)
        rows = [int(number) for number in re.search(r"\[(.*)\]", text).group(1).split(", ")]
        assert rows[0] == rows[3] == rows[1] + rows[2]
        assert "no column separates class 0 from class 1" in text

    def test_own_decoder_learns_and_is_good(self, ran, capsys):
        text, _ = ran("own_decoder", capsys)
        assert "learned from outputs that are leave-one-out" in text
        assert max(numbers_after(text, "log-loss")) < 0.15

    def test_the_least_squares_model_has_the_best_probabilities(self, ran, capsys):
        losses = numbers_after(ran("reliability", capsys)[0], "log-loss")
        assert len(losses) == 3
        assert losses[2] == min(losses)

    def test_left_out_margins_look_like_those_of_new_rows(self, ran, capsys):
        seen, left_out, new = numbers_after(ran("leave_one_out", capsys)[0], "standard deviation")
        assert abs(left_out - new) < 0.25 * new < 0.5 * (new - seen)

    def test_priors_that_are_true_help_and_weights_buy_recall(self, ran, capsys):
        text, _ = ran("class_weights", capsys)
        plain, weighted, uniform, without, told = numbers_after(text, "log-loss")
        assert plain < min(weighted, uniform)
        assert told < without
        recalls = [int(share) for share in re.findall(r"rare class (\d+)%", text)]
        assert recalls[0] < min(recalls[1:])

    def test_groups_make_the_stated_loss_true(self, ran, capsys):
        pairs = re.findall(r"log-loss (\S+) stated, (\S+) on", ran("groups", capsys)[0])
        alone, together = [abs(float(stated) - float(found)) for stated, found in pairs]
        assert together < 0.3 * alone

    def test_copies_are_found_and_do_no_harm(self, ran, capsys):
        text, _ = ran("copies", capsys)
        assert "300 of 450 rows are copies" in text
        (rows, rows_new), (found, found_new), (taken, taken_new) = [
            (float(stated), float(new))
            for stated, new in re.findall(r"log-loss (\S+) stated, (\S+) on", text)
        ]
        assert found == pytest.approx(rows, abs=0.03)
        assert found_new == pytest.approx(rows_new, abs=0.03)
        assert taken < 0.1 < 0.5 < taken_new

    def test_a_learned_metric_ignores_noise(self, ran, capsys):
        text, _ = ran("relevance", capsys)
        plain, learned = numbers_after(text, "log-loss")
        assert learned < plain
        assert int(re.search(r"noise together: (\d+)%", text).group(1)) < 10

    def test_the_pool_is_better_than_its_members(self, ran, capsys):
        *members, pool = numbers_after(ran("pool_members", capsys)[0], "log-loss")
        assert pool < min(members)

    def test_more_landmarks_come_nearer_to_exact(self, ran, capsys):
        few, some, many = numbers_after(ran("many_rows", capsys)[0], r"landmarks\s+excess log-loss")
        assert few > some >= many - 0.002

    def test_the_periodic_kernel_has_one_midnight(self, ran, capsys):
        ends = re.findall(r"at 0 h (\S+), at 24 h (\S+)", ran("own_kernel", capsys)[0])
        (start, end), (other_start, other_end) = [tuple(map(float, pair)) for pair in ends]
        assert start == end
        assert abs(other_start - other_end) > 0.1

    def test_sets_hold_the_label_and_rejects_are_doubtful(self, ran, capsys):
        text, _ = ran("prediction_sets", capsys)
        marginal, per_class = [
            tuple(map(float, found))
            for found in re.findall(r"coverage (\S+), lowest (\S+), mean size (\S+)", text)
        ]
        assert abs(marginal[0] - 0.95) < 0.03
        assert per_class[1] > marginal[1]
        assert per_class[2] > marginal[2] > 1.0
        before, after = numbers_after(text, "accuracy(?: of these)?")
        assert after > max(before, 0.9)
        probable, cheapest = numbers_after(text, "mean cost")
        assert cheapest < probable

    def test_onnx_gives_the_same(self, ran, capsys):
        pytest.importorskip("onnxruntime", reason="install polymargin with its onnx extra")
        assert ran("onnx", capsys)[0].count("True") == 2
