"""Gönen et al. (2008), the real data: the grid against obvious loops, two stages, the figures as typed."""

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC
from typer.testing import CliRunner

from polymargin.cli import app
from polymargin.papers.gonen2008 import FAST_TABLES, TABLES
from polymargin.papers.gonen2008._real_table import pack, table_protocol
from polymargin.papers.gonen2008.choice import choose
from polymargin.papers.gonen2008.densities import HARD, posteriors, posteriors_of_new
from polymargin.papers.gonen2008.listings import Results, run_test, unpack
from polymargin.papers.gonen2008.machines import BINARY, ONE_VS_ALL, SINGLE, Limits, predict, train_path
from polymargin.papers.gonen2008.rows import FOLDS, TEST, evaluation_split, load_rows
from polymargin.papers.gonen2008.table5 import Table5
from polymargin.papers.gonen2008.table7 import Table7
from polymargin.papers.gonen2008.validation import Grid, judge
from polymargin.reproduction import ReproductionError, RunInterrupted, run_experiment
from polymargin.solvers import single_machine, smo

PACKAGE = "polymargin.papers.gonen2008"
LIMITS = Limits(1e4, 1e4)
DENSITIES = ("knn3", "win2")
COSTS = (0.03, 1.0, 30.0)


def tiny(table="5", **changes):
    """A protocol that is done in seconds: iris alone, few kernels, densities and C."""
    iris = {"iris": {"n": 150, "n_classes": 3, "n_features": 4}}
    return table_protocol(table, False) | {
        "datasets": iris,
        "kernels": ["L", "P2", "R2"],
        "densities": ["knn3", "win2"],
        "log10_C": [-1, 1],
    } | changes  # fmt: skip


@pytest.fixture(scope="module")
def iris():
    return evaluation_split("iris", 3, 2008)


@pytest.fixture(scope="module")
def two_classes(iris):
    """The two classes of iris that overlap, as a split of their own."""
    keep, keep_new = iris.z > 0, iris.z_new > 0
    return type(iris)(iris.X[keep], iris.z[keep] - 1, iris.X_new[keep_new], iris.z_new[keep_new] - 1, 2)


# --- oracles -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _r0_of(rows):
    X = np.array(rows)
    total = 0.0
    for i in range(len(X)):
        total += min(np.linalg.norm(X[i] - X[j]) for j in range(len(X)) if j != i)
    return total / len(X)


def naive_r0(X):
    return _r0_of(tuple(map(tuple, X)))


def naive_posteriors(X, z, K, density, rows, own):
    """Count classes among neighbours, one row at a time; `own` says that rows are the training rows themselves."""
    P, r0 = np.zeros((len(rows), K)), naive_r0(X)
    for i, x in enumerate(rows):
        distance = [np.linalg.norm(x - other) for other in X]
        if density == HARD:
            members = [i]
        elif density.startswith("knn"):
            order = sorted(range(len(X)), key=lambda j, i=i: (-1.0 if own and i == j else distance[j], j))
            members = order[: int(density[3:])]
        else:
            members = [j for j in range(len(X)) if distance[j] <= int(density[3:]) * r0]
        for j in members or range(len(X)):
            P[i, z[j]] += 1.0
        P[i] /= P[i].sum()
    return P


def naive_kernel(name, x, y, r0):
    if name == "L":
        return x @ y
    if name[0] == "P":
        return (x @ y + 1.0) ** int(name[1:])
    return np.exp(-(np.linalg.norm(x - y) ** 2) / (int(name[1:]) * r0) ** 2)


def naive_binary(gram, y, C, tol):
    """Eq. (6), derived from nothing: coefficients and bias."""
    rows = [i for i in range(len(y)) if y[i] != 0.0]
    beta = np.zeros(len(y))
    solution = smo.solve(
        gram[np.ix_(rows, rows)], np.sign(y[rows]), C / np.abs(y[rows]), np.abs(y[rows]), tol=tol
    )
    beta[rows] = solution.coefficients
    return beta, solution.intercept


# --- rows and densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["iris", "wine"])
def test_thirds_and_halves_are_stratified_and_disjoint(dataset):
    _, z = load_rows(dataset)
    whole = evaluation_split(dataset, TEST, 2008)
    assert whole.z.size + whole.z_new.size == z.size
    assert whole.z_new.size == -(-z.size // 3)
    for share in (np.bincount(whole.z_new) / np.bincount(z), np.bincount(whole.z) / np.bincount(z) / 2):
        np.testing.assert_allclose(share, 1 / 3, atol=0.02)
    sizes = []
    for fold in FOLDS:
        split = evaluation_split(dataset, fold, 2008)
        assert split.z.size + split.z_new.size == whole.z.size
        assert np.abs(np.bincount(split.z) - np.bincount(split.z_new)).max() <= 1
        np.testing.assert_allclose(split.X.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(split.X.std(axis=0), 1.0)
        sizes.append((split.z.size, split.z_new.size))
    assert all(sizes[2 * k] == sizes[2 * k + 1][::-1] for k in range(5)), "the halves change places"


def test_folds_are_parts_of_the_two_thirds_and_differ():
    """Undo the scaling: all ten training halves lie in the two thirds, and no two are the same."""
    X, _ = load_rows("wine")
    found = []
    for fold in FOLDS:
        split = evaluation_split("wine", fold, 2008)
        # a standardised row is a linear image of the raw one, so ranks of a column survive
        assert split.X.shape[1] == X.shape[1]
        found.append(np.sort(split.X[:, 0]).round(6).tolist())
    assert len({tuple(column) for column in found}) == len(FOLDS)
    assert evaluation_split("wine", 1, 2008).X.tolist() == evaluation_split("wine", 1, 2008).X.tolist()
    assert evaluation_split("wine", 1, 2009).X.tolist() != evaluation_split("wine", 1, 2008).X.tolist()


@pytest.mark.parametrize("density", [HARD, *DENSITIES, "win4"])
def test_densities_are_counts_of_neighbours(iris, density):
    assert iris.r0 == pytest.approx(naive_r0(iris.X))
    P = posteriors(iris, density)
    np.testing.assert_allclose(P, naive_posteriors(iris.X, iris.z, 3, density, iris.X, own=True), atol=1e-12)
    if density != HARD:
        naive = naive_posteriors(iris.X, iris.z, 3, density, iris.X_new, own=False)
        np.testing.assert_allclose(posteriors_of_new(iris, density), naive, atol=1e-12)


def test_an_empty_window_gives_the_frequencies(iris):
    far = type(iris)(iris.X, iris.z, iris.X_new + 1e3, iris.z_new, 3)
    expected = np.bincount(iris.z) / iris.z.size
    np.testing.assert_allclose(posteriors_of_new(far, "win4"), np.tile(expected, (far.z_new.size, 1)))


def test_unknown_names_are_refused(iris):
    with pytest.raises(ReproductionError, match="no kernel 'X3'; there are L, P2"):
        iris.gram("X3")
    with pytest.raises(ReproductionError, match="no density 'abc3'; there are hard, knn3"):
        posteriors(iris, "abc3")


# --- the grid ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["L", "P3", "R1", "R4"])
@pytest.mark.parametrize("machine", [BINARY, SINGLE, ONE_VS_ALL])
def test_the_grid_is_what_obvious_loops_give(iris, two_classes, machine, kernel):
    tol = 1e-7
    split = two_classes if machine == BINARY else iris
    # Coefficients are unique if the Gram matrix is regular: no row twice, and an RBF.
    split = replace(split, X=split.X + 1e-2 * np.random.default_rng(0).normal(size=split.X.shape))
    ambiguous = 0 if kernel[0] == "R" else 1
    K, r0 = split.n_classes, naive_r0(split.X)
    gram = np.array([[naive_kernel(kernel, x, y, r0) for y in split.X] for x in split.X])
    rows = np.array([[naive_kernel(kernel, x, y, r0) for y in split.X] for x in split.X_new])
    judged = judge(split, kernel, Grid(machine, (HARD, *DENSITIES), COSTS, tol, LIMITS))
    assert list(judged) == [HARD, *DENSITIES]
    for density, found in judged.items():
        P = naive_posteriors(split.X, split.z, K, density, split.X, own=True)
        for c, C in enumerate(COSTS):
            if machine == SINGLE:
                solution = single_machine.solve(gram, single_machine.required_margins(P, split.z), C, tol=tol)
                beta, b = solution.beta, solution.biases
            else:
                columns = [1] if machine == BINARY else range(K)
                pairs = [naive_binary(gram, 2.0 * P[:, m] - 1.0, C, tol) for m in columns]
                beta, b = np.array([pair[0] for pair in pairs]).T, np.array([pair[1] for pair in pairs])
            outputs = rows @ beta + b
            classes = (outputs[:, 0] > 0).astype(int) if machine == BINARY else outputs.argmax(axis=1)
            where = f"{density}, C = {C}"
            assert found.correct[c] == (classes == split.z_new).sum(), where
            assert abs(found.support[c] - np.any(beta != 0.0, axis=1).sum()) <= ambiguous, where
            assert found.capped[c] == 0, where


def test_hard_labels_are_the_svm_of_libsvm(two_classes):
    gram, rows = two_classes.gram("R2")
    grid = Grid(BINARY, (HARD,), (0.1, 1.0, 10.0), 1e-6, LIMITS)
    judged = judge(two_classes, "R2", grid)[HARD]
    for c, C in enumerate(grid.costs):
        peer = SVC(C=C, kernel="precomputed", tol=1e-6).fit(gram, two_classes.z)
        assert judged.correct[c] == (peer.predict(rows) == two_classes.z_new).sum()
        assert judged.support[c] == peer.support_.size


@pytest.mark.parametrize("kernel", ["L", "P4", "R1"])
@pytest.mark.parametrize("density", [HARD, "knn3", "win2"])
def test_what_smo_leaves_unsolved_the_other_solver_solves(two_classes, kernel, density):
    """Two classes with margins 2|y| and boxes C/|y| are eq. (6): same coefficients, same outputs."""
    gram, rows = two_classes.gram(kernel)
    P = posteriors(two_classes, density)
    by_smo, by_cycles = (
        train_path(BINARY, gram, P, two_classes.z, [0.1, 5.0], 1e-9, Limits(steps, 1e4)) for steps in (1e4, 0)
    )
    for one, other in zip(by_smo, by_cycles, strict=True):
        assert one.n_capped == other.n_capped == 0
        f, g = (rows @ machines.coefficients + machines.biases for machines in (one, other))
        np.testing.assert_allclose(f, g, atol=2e-3 * np.abs(f).max())


@pytest.mark.parametrize("kernel", ["P3", "R1"])
def test_once_no_alpha_is_at_its_bound_a_larger_c_changes_nothing(iris, kernel):
    gram, _ = iris.gram(kernel)
    P = posteriors(iris, "knn3")
    margins = single_machine.required_margins(P, iris.z)
    costs = [1e-2, 1e2, 1e4, 1e5, 1e6]
    path = train_path(SINGLE, gram, P, iris.z, costs, 1e-9, LIMITS)
    reused = [later is earlier for earlier, later in pairwise(path)]
    assert reused[-1], "nothing was at its bound"
    assert not reused[0]
    for C, machines in zip(costs, path, strict=True):
        solution = single_machine.solve(gram, margins, C, tol=1e-9)
        f, g = gram @ machines.coefficients + machines.biases, gram @ solution.beta + solution.biases
        np.testing.assert_allclose(f - f.mean(axis=1)[:, None], g - g.mean(axis=1)[:, None], atol=1e-4)


def test_labels_of_one_side_need_no_solver_and_zeros_ask_for_nothing():
    gram = np.eye(4)
    P = np.array([[0.1, 0.9], [0.3, 0.7], [0.5, 0.5], [0.4, 0.6]])
    (machines,) = train_path(BINARY, gram, P, np.array([1, 1, 0, 0]), [1.0], 1e-6, LIMITS)
    assert not machines.support.size
    assert machines.biases[0] == pytest.approx(0.8)
    (nothing,) = train_path(BINARY, gram, np.full((4, 2), 0.5), np.array([1, 1, 0, 0]), [1.0], 1e-6, LIMITS)
    assert nothing.biases[0] == 0.0
    P[2:] = [[0.5, 0.5], [1.0, 0.0]]
    (machines,) = train_path(BINARY, gram, P, np.array([1, 1, 0, 0]), [1.0], 1e-6, LIMITS)
    assert 2 not in machines.support


def test_windows_that_hold_everything_give_the_most_frequent_class(iris):
    """All rows have the same label: the machine is its biases, and the solver must see that at once."""
    labels = np.tile([0.2, 0.5, 0.3], (iris.z.size, 1))
    gram, rows = iris.gram("L")
    for machine in (SINGLE, ONE_VS_ALL):
        path = train_path(machine, gram, labels, iris.z, [1e-6, 1.0, 1e6], 1e-3, Limits(30, 30))
        for machines, classes in zip(path, predict(rows, path), strict=True):
            assert (machines.n_capped, machines.support.size) == (0, 0)
            assert (classes == 1).all()


def test_a_limit_that_stops_a_solve_is_counted(iris):
    judged = judge(iris, "L", Grid(SINGLE, (HARD,), (1e-3, 1e3), 1e-9, Limits(0.0, 0.02)))[HARD]
    assert judged.capped == (1, 1)


def test_equal_labels_are_trained_once(iris, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return train_path(*arguments)

    monkeypatch.setattr("polymargin.papers.gonen2008.validation.train_path", counted)
    spread = type(iris)(iris.X, np.arange(iris.z.size) % 3, iris.X_new, iris.z_new, 3)
    judged = judge(spread, "R1", Grid(SINGLE, (HARD, "knn1", "knn3"), (1.0,), 1e-3, LIMITS))
    assert len(calls) == 2
    assert judged[HARD] == judged["knn1"] != judged["knn3"]


# --- choosing ----------------------------------------------------------------------------------------------


def grid_rows(**packed):
    """Rows of a validation on ten folds of ten rows: name is kernel_density, value (correct, support) of each C."""
    rows = []
    for name, (correct, support) in packed.items():
        kernel, density = name.split("_")
        for fold in reversed(FOLDS):
            rows.append(
                {
                    "kernel": kernel, "density": density, "fold": str(fold), "correct": correct,
                    "support": support, "capped": "0 0", "n_train": 10, "n_new": 10,
                }
            )  # fmt: skip
    return rows


def test_the_best_mean_accuracy_wins_then_fewer_support_vectors_then_smaller_c():
    rows = grid_rows(L_hard=("7 8", "9 5"), R1_hard=("8 8", "5 5"), P2_knn3=("9 9", "5 4"))
    best = choose(rows, [1.0, 10.0], ["L", "P2", "R1"], soft=False)
    assert (best.kernel, best.C) == ("R1", 1.0), "of three equals the smaller C"
    soft = choose(rows, [1.0, 10.0], ["L", "P2", "R1"], soft=True)
    assert (soft.kernel, soft.density, soft.C) == ("P2", "knn3", 10.0), "of two equals the sparser"
    np.testing.assert_allclose(soft.accuracies, 90.0)
    np.testing.assert_allclose(soft.support, 40.0)
    rows = grid_rows(R1_hard=("8 1", "5 5"), L_hard=("8 1", "5 5"))
    assert choose(rows, [1.0, 10.0], ["L", "R1"], soft=False).kernel == "L", (
        "the order of the protocol is last"
    )


def test_the_mean_is_over_folds_and_the_folds_keep_their_order():
    rows = grid_rows(L_hard=("0 5", "1 1"))
    for row in rows:
        row["correct"] = f"{row['fold']} 5"
    best = choose(rows, [1.0, 10.0], ["L"], soft=False)
    assert best.C == 1.0
    np.testing.assert_allclose(best.accuracies, 10.0 * np.array(FOLDS))


# --- two stages --------------------------------------------------------------------------------------------


def without_seconds(rows):
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return run_experiment(Table5(tiny()), folder), folder


def test_a_table_is_what_was_chosen_trained_again(whole):
    report, _ = whole
    results = Results(report.rows)
    assert not report.failures
    split = evaluation_split("iris", TEST, 2008)
    for method in ("svm", "ppsvm"):
        chosen = results.row("iris", method)
        gram, rows = split.gram(chosen["kernel"])
        P = posteriors(split, chosen["density"])
        solution = single_machine.solve(gram, single_machine.required_margins(P, split.z), chosen["C"])
        right = (rows @ solution.beta + solution.biases).argmax(axis=1) == split.z_new
        assert results.test("iris", method, "accuracy") == pytest.approx(100 * right.mean())
        assert results.right("iris", method).tolist() == right.tolist()
        assert results.test("iris", method, "support") == pytest.approx(100 * solution.support.size / 100)
        assert chosen["train_seconds"] > 0
        for fold in (1, 10):
            part = evaluation_split("iris", fold, 2008)
            grid = Grid(SINGLE, (chosen["density"],), (chosen["C"],), 1e-3, Limits(30, 30))
            judged = judge(part, chosen["kernel"], grid)[chosen["density"]]
            ours = results.folds("iris", method, "accuracy").ravel()[fold - 1]
            assert ours == pytest.approx(100 * judged.correct[0] / part.z_new.size, abs=2.1)
    assert results.row("iris", "svm")["density"] == HARD
    density = posteriors_of_new(split, results.row("iris", "ppsvm")["density"]).argmax(axis=1)
    assert results.test("iris", "density", "accuracy") == pytest.approx(100 * (density == split.z_new).mean())


def test_no_configuration_is_better_than_the_chosen_one(whole):
    report, folder = whole
    with open(folder / "gonen2008-table5-validation.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 10 * 3 * 3
    means = {}
    for row in rows:
        for c, correct in enumerate(row["correct"].split()):
            key = (row["density"] != HARD, row["kernel"], row["density"], c)
            means.setdefault(key, []).append(int(correct) / int(row["n_new"]))
    results = Results(report.rows)
    for method, soft in (("svm", False), ("ppsvm", True)):
        best = max(np.mean(values) for key, values in means.items() if key[0] == soft)
        assert results.folds("iris", method, "accuracy").mean() == pytest.approx(100 * best)


def test_interrupted_in_either_stage_and_resumed(whole, tmp_path):
    report, _ = whole
    for stop in (7, 29, 30):

        def interrupt(now, stop=stop):
            if now.job is not None and now.done == stop and "validation" in now.experiment:
                raise KeyboardInterrupt

        with pytest.raises(RunInterrupted):
            run_experiment(Table5(tiny()), tmp_path, progress=interrupt)
    seen = []
    again = run_experiment(Table5(tiny()), tmp_path, progress=seen.append)
    assert [now.job for now in seen if "validation" in now.experiment] == [None], (
        "the first stage was finished"
    )
    assert without_seconds(again.rows) == without_seconds(report.rows)
    seen.clear()
    last = run_experiment(Table5(tiny()), tmp_path, progress=seen.append)
    assert all(now.job is None for now in seen), "nothing is left to do"
    assert last.rows == again.rows


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills a process group")
def test_killed_and_resumed_by_workers(whole, tmp_path):
    report, _ = whole
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_gonen2008 import Table5, run_experiment, tiny\n"
        "run_experiment(Table5(tiny()), sys.argv[2])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)], env=os.environ
    )
    journal = tmp_path / "gonen2008-table5-validation.jsonl"
    end = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b'"kind": "job"') >= 3):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
    process.kill()
    assert process.wait() in (-signal.SIGKILL, 0)
    again = run_experiment(Table5(tiny()), tmp_path, n_jobs=2)
    assert without_seconds(again.rows) == without_seconds(report.rows)


def test_data_of_another_size_are_refused(tmp_path):
    protocol = tiny(kernels=["L"])
    protocol["datasets"] = {"iris": {"n": 149, "n_classes": 3, "n_features": 4}}
    report = run_experiment(Table5(protocol), tmp_path)
    assert report.done == 0
    assert len(report.failures) == 10
    assert "iris has n = 150 instead of 149" in report.failures[0].error


def test_table_vii_counts_by_hand(tmp_path):
    """Two sets of rows written by hand, one-vs-all better by 2 points and with twice the support vectors."""
    table = Table7({"5": tiny("5"), "6": tiny("6")})
    for source, accuracy, support, seconds in zip(
        table.requires(), (90.0, 92.0), (20.0, 40.0), (3.0, 1.0), strict=True
    ):
        rows = []
        for job in source.jobs():
            for cell in source.cells(job):
                wobble = 0.1 * (int(cell["fold"]) % 2)
                value = accuracy + wobble if cell["metric"] == "accuracy" else support
                right = np.arange(100) < (90 if accuracy == 90.0 else 92)
                rows.append(cell.asdict() | {"value": value, "right": pack(right)})
                rows[-1] |= {"train_seconds": seconds, "predict_seconds": 1.0}
        table.given[source.name] = rows
    (job,) = table.jobs()
    counts = {
        tuple(row[n] for n in ("method", "phase", "metric", "test", "outcome")): row["value"]
        for row in table.run(job)
    }
    for key, value in counts.items():
        metric, test, outcome = key[2:]
        expected = {"accuracy": "win", "support": "loss", "train": "win", "predict": "tie"}[metric]
        if test in ("mcnemar", "wilcoxon"):
            expected = "tie"  # two of a hundred rows, one dataset: never significant
        assert value == (outcome == expected), key
    text = table.listings(table.run(job))[0].rows
    assert text[0][1:] == ("1-0-0 / 0-8-2", "", "1-0-0 / 5-0-5", "T / T")


def test_right_rows_are_packed_without_loss():
    right = np.random.default_rng(0).random(77) < 0.7
    assert unpack(pack(right)).tolist() == right.tolist()


# --- the paper's figures -----------------------------------------------------------------------------------


def typed(filename):
    return list(csv.DictReader(files(PACKAGE).joinpath(filename).read_text(encoding="utf-8").splitlines()))


def printed(table):
    return {
        (row["dataset"], row["method"], row["phase"], row["metric"]): float(row["mean"])
        for row in typed(f"table{table}.csv")
    }


#: Where the printed figures say something else than the paper's count: the paper counts a win at equal digits
#: (twonorm in IV; one of dna, iris and vowel in V), and overlooks that on wine the density is better (V).
CONTRADICTIONS = {
    ("4", "validation accuracy"): "9-1-0",
    ("5", "validation accuracy"): "4-3-3",
    ("5", "density validation"): "9-0-1",
}


@pytest.mark.parametrize("table", ["4", "5", "6"])
def test_the_typed_figures_give_the_papers_counts(table):
    figures = printed(table)
    datasets = list(dict.fromkeys(key[0] for key in figures))
    assert len(datasets) == 10
    assert len(figures) == 100
    assert set(table_protocol(table, False)["datasets"]) == set(datasets)
    for row in typed("tests.csv"):
        if row["table"] != table or row["test"] not in ("direct", "wilcoxon"):
            continue
        first, second = row["column"].split()
        other, phase, metric = (
            ("density", second, "accuracy") if first == "density" else ("svm", first, second)
        )
        ours, theirs = ([figures[d, m, phase, metric] for d in datasets] for m in ("ppsvm", other))
        outcome = run_test(row["test"], ours, theirs, "lower" if metric == "support" else "higher")
        expected = row["outcome"]
        if row["test"] == "direct":
            expected = CONTRADICTIONS.get((table, row["column"]), expected)
        assert outcome.text == expected, row


def test_the_typed_figures_give_the_counts_of_table_vii():
    single, one_vs_all = printed("5"), printed("6")
    datasets = list(dict.fromkeys(key[0] for key in single))
    counts = {}
    for row in typed("table7.csv"):
        counts.setdefault((row["method"], row["phase"], row["metric"], row["test"]), []).append(row["mean"])
    for (method, phase, metric, test), outcome in counts.items():
        values = [int(value) for value in outcome]
        assert sum(values) == (1 if test == "wilcoxon" else 10)
        if test == "direct" and metric in ("accuracy", "support"):
            better = "lower" if metric == "support" else "higher"
            ours, theirs = (
                [table[d, method, phase, metric] for d in datasets] for table in (one_vs_all, single)
            )
            assert run_test("direct", ours, theirs, better).text == "-".join(outcome)


@pytest.mark.parametrize("table", ["4", "5", "6"])
def test_choices_are_typed_for_every_machine(table):
    protocol = table_protocol(table, False)
    choices = [row for row in typed("choices.csv") if row["table"] == table]
    assert [row["dataset"] for row in choices] == [d for d in protocol["datasets"] for _ in range(2)]
    assert {row["kernel"] for row in choices} <= set(protocol["kernels"])
    assert {row["density"] for row in choices} <= {HARD, *protocol["densities"]}
    assert [row["density"] == HARD for row in choices] == [True, False] * 10


# --- the command -------------------------------------------------------------------------------------------


def test_fast_is_coarser_has_its_own_results_and_says_so(tmp_path, monkeypatch):
    assert set(FAST_TABLES) <= set(TABLES)
    for number, make in FAST_TABLES.items():
        fast, full = make(), TABLES[number]()
        assert fast.name == f"{full.name}-fast"
        assert "fast" in fast.title
        assert "coarser grid of C" in fast.title
    fast, full = FAST_TABLES["5"](), TABLES["5"]()
    assert set(fast.protocol["log10_C"]) < set(full.protocol["log10_C"]) == set(range(-6, 7))
    assert {**fast.protocol, "log10_C": 0} == {**full.protocol, "log10_C": 0}
    monkeypatch.setattr(
        "polymargin.papers.gonen2008._real_table.table_protocol",
        lambda table, fast: tiny(table, kernels=["L"]),
    )
    arguments = [
        "reproduce",
        "gonen2008",
        "--table",
        "5",
        "--fast",
        "--jobs",
        "1",
        "--results",
        str(tmp_path),
    ]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "Fast: a coarser grid than the paper's" in result.stdout
    assert "C: 10^-1, 10^1" in result.stdout
    assert "PPSVM's wins-ties-losses" in result.stdout
    assert "L / R(2r0)" in result.stdout, "the paper's kernel beside ours"


def test_papers_without_a_fast_protocol_refuse_it():
    result = CliRunner().invoke(app, ["reproduce", "vangestel2002", "--fast"])
    assert result.exit_code == 2
    assert "vangestel2002 has no fast protocol: leave --fast out" in result.stderr
