"""Gönen et al. (2008): Table II's figures and small jobs of it, the numbers behind Figures 1 to 6, the drawings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import SVC

from polymargin.datasets import generators, load
from polymargin.papers.gonen2008.bias_variance import decompose
from polymargin.papers.gonen2008.figures import (
    FIGURES,
    draw_decomposition,
    draw_effect,
    r4_panels,
    toy_panels,
)
from polymargin.papers.gonen2008.neighbourhoods import neighbourhood_effect
from polymargin.papers.gonen2008.synthetic import (
    Draw,
    TunedMachine,
    candidates,
    choose,
    class_probabilities,
    labels_of,
    load_synthetic_protocol,
)
from polymargin.papers.gonen2008.table2 import Table2, Table2Sparse
from polymargin.papers.gonen2008.table2_noise import Table2Noise
from polymargin.papers.gonen2008.table2_posteriors import Table2Posteriors, jensen_shannon
from polymargin.reproduction import Key, derive_seed


def small(table="2", **changes):
    """A protocol for a quick trial."""
    return {
        **load_synthetic_protocol(table),
        "draws": 1,
        "costs": [0.1, 10.0],
        "kernels": {"linear": ["L"]},
        "densities": {"knn": ["knn5"], "windows": ["win2"]},
        "n_test": 100,
        **changes,
    }


def test_paper_figures_are_points_of_200_rows():
    figures = Table2().paper_figures()
    cells = {
        cell.only(["dataset", "kernel", "density", "metric"])
        for job in Table2().jobs()
        for cell in Table2().cells(job)
    }
    assert len(figures) == 48
    assert {figure.key for figure in figures} == cells
    assert all(figure.mean * 2 == int(figure.mean * 2) for figure in figures)
    by_key = {str(figure.key): figure.mean for figure in figures}
    assert by_key["r1/linear/knn/support"] == -86.0
    assert by_key["r2/poly/windows/support"] == -19.5
    assert by_key["r3/poly/windows/support"] == 30.0
    assert by_key["r4/linear/knn/accuracy"] == 10.0
    # "PPSVMs achieve greater accuracy with fewer support vectors": worse only on R1, more vectors three times.
    assert sum(f.mean < 0 for f in figures if f.key["metric"] == "accuracy") == 2
    assert sum(f.mean > 0 for f in figures if f.key["metric"] == "support") == 3


def test_directions_and_protocols():
    table = Table2()
    cell = table.cells(table.jobs()[0])
    assert [table.direction(key) for key in cell] == ["higher", "lower"] * 2
    assert Table2Sparse().protocol["ties"] == "sparsest"
    assert table.protocol["ties"] == "first"
    assert Table2Noise().protocol["label_noise"] == 0.2
    assert table.protocol["label_noise"] == 0.0
    assert len(table.protocol["costs"]) == 13
    assert table.protocol["draws"] >= 30


def test_draw_moves_labels_but_not_those_of_the_test():
    protocol = small(label_noise=0.2, n_train=2000, n_validation=2000)
    noisy = Draw.of(generators()["r4"], protocol, 7)
    X, y = generators()["r4"].sample(4100, random_state=7)
    assert (X[:4000] == noisy.final.X).all()
    assert (noisy.tuning.X_new == X[2000:4000]).all()
    assert (noisy.final.z_new == y[4000:]).all()
    moved = noisy.final.z != y[:4000]
    assert moved.mean() == pytest.approx(0.2, abs=0.02)
    # Both other classes are as likely.
    assert np.mean((noisy.final.z - y[:4000])[moved] % 3 == 1) == pytest.approx(0.5, abs=0.06)
    assert noisy.posterior == pytest.approx(generators()["r4"].posterior(X[4000:]))
    only = Draw.of(generators()["r4"], {**protocol, "retrain": False, "label_noise": 0.0}, 7)
    assert only.final.z.size == 2000
    assert (only.final.z == y[:2000]).all()


def test_choice_of_equals():
    found = [
        TunedMachine("L", "hard", 0.1, 0.7, 3),
        TunedMachine("L", "hard", 1.0, 0.8, 9),
        TunedMachine("L", "hard", 10.0, 0.8, 5),
        TunedMachine("L", "hard", 100.0, 0.8, 5),
    ]
    assert choose(found, "first").cost == 1.0
    assert choose(found, "sparsest").cost == 10.0


def test_softmax_of_outputs():
    values = np.array([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0]])
    for row, probabilities in zip(values, class_probabilities(values), strict=True):
        total = sum(math.exp(v) for v in row)
        assert probabilities == pytest.approx([math.exp(v) / total for v in row])
    one = np.array([[0.7], [-0.2], [300.0]])
    assert class_probabilities(one) == pytest.approx(class_probabilities(np.hstack([-one, one])))
    assert labels_of(one).tolist() == [1, 0, 1]
    assert labels_of(values).tolist() == [2, 0]


@pytest.mark.parametrize("kernel", ["L", "P2", "R2"])
def test_canonical_candidates_are_libsvm(kernel):
    draw = Draw.of(generators()["r2"], small(), 3)
    found = candidates(draw.tuning, "binary", [kernel], ["hard"], small(tol=1e-6))
    gram, gram_new = draw.tuning.gram(kernel)
    for choice in found:
        model = SVC(C=choice.cost, kernel="precomputed", tol=1e-6).fit(gram, draw.tuning.z)
        assert choice.accuracy == pytest.approx(np.mean(model.predict(gram_new) == draw.tuning.z_new))
        assert abs(choice.n_support - model.support_.size) <= 1


@pytest.mark.parametrize("dataset", ["r1", "r4"])
def test_one_neighbour_changes_nothing(dataset):
    """The canonical SVM is k-NN with k = 1, says the paper."""
    machine = "binary" if dataset == "r1" else "single"
    table = Table2(small(datasets={dataset: machine}, densities={"knn": ["knn1"], "windows": ["win0"]}))
    (job,) = table.jobs()
    assert [row["value"] for row in table.run(job)] == [0.0, 0.0, 0.0, 0.0]


def test_table2_is_the_difference_of_two_machines():
    """Table II's cell from the outside: the canonical machine of LIBSVM beside the accuracy of the other."""
    protocol = small(datasets={"r2": "binary"}, costs=[1.0], tol=1e-6)
    table = Table2(protocol)
    (job,) = table.jobs()
    rows = table.run(job)
    assert [row["density"] for row in rows] == ["knn", "knn", "windows", "windows"]
    draw = Draw.of(generators()["r2"], protocol, derive_seed(protocol["seed"], "r2", 1))
    canonical = SVC(C=1.0, kernel="linear", tol=1e-6).fit(draw.final.X, draw.final.z)
    before = canonical.score(draw.final.X_new, draw.final.z_new)
    after = table.judged(job, draw)["knn"]
    right = [p == z for p, z in zip(after.predicted, draw.final.z_new, strict=True)]
    assert rows[0]["value"] == pytest.approx(100 * (sum(right) / len(right) - before))
    assert rows[1]["value"] == pytest.approx(after.support - canonical.support_.size / 2, abs=0.5)
    assert rows == table.run(job)


def test_noise_and_posteriors_measure_against_the_truth():
    table = Table2Noise(small("2-noise", datasets={"r4": "single"}))
    job = Key.of(dataset="r4", kernel="linear", draw=1)
    values = {row["method"]: row["value"] for row in table.run(job)}
    assert list(values) == ["canonical", "knn", "windows"]
    assert all(50.0 < value <= 100.0 for value in values.values())
    table = Table2Posteriors(small("2-posteriors", datasets={"r1": "binary"}))
    values = {row["method"]: row["value"] for row in table.run(Key.of(dataset="r1", kernel="linear", draw=1))}
    assert list(values) == ["canonical", "knn", "windows", "knn-alone", "windows-alone"]
    assert all(0.0 < value < 100.0 for value in values.values())


def test_jensen_shannon_by_hand():
    generator = np.random.default_rng(0)
    P, Q = generator.dirichlet(np.ones(3), (2, 20))
    P[0], Q[0] = [1, 0, 0], [0, 0.5, 0.5]
    total = 0.0
    for p, q in zip(P, Q, strict=True):
        for a, b in zip(p, q, strict=True):
            m = (a + b) / 2
            total += sum(0.5 * v * math.log2(v / m) for v in (a, b) if v > 0)
    assert jensen_shannon(P, Q) == pytest.approx(total / 20)
    assert jensen_shannon(P[:1], Q[:1]) == pytest.approx(1.0)


def test_decomposition_of_libsvm_machines():
    """Figure 4 for the canonical SVM with one C: bias, variance and noise row by row from LIBSVM's labels."""
    protocol = small(costs=[1.0], tol=1e-6)
    found = decompose(
        ["hard", "knn3"],
        dataset="r2",
        kernel="P2",
        n_sets=5,
        n_train=40,
        n_test_sets=2,
        n_test=60,
        protocol=protocol,
    )
    r2 = generators()["r2"]
    X_test, _ = r2.sample(120, random_state=derive_seed(protocol["seed"], "test", "r2"))
    votes = np.zeros((120, 2))
    soft = np.zeros((120, 2))
    for number in range(5):
        X, z = r2.sample(40, random_state=derive_seed(protocol["seed"], "train", "r2", number))
        model = SVC(C=1.0, kernel="poly", degree=2, gamma=1.0, coef0=1.0, tol=1e-6).fit(X, z)
        f = model.decision_function(X_test)
        votes[np.arange(120), (f > 0).astype(int)] += 1 / 5
        soft += np.column_stack([1 / (1 + np.exp(2 * f)), 1 / (1 + np.exp(-2 * f))]) / 5
    P = r2.posterior(X_test)
    for Q, parts in ((votes, found["hard"].votes), (soft, found["hard"].soft)):
        bias = variance = noise = 0.0
        for p, q in zip(P, Q, strict=True):
            best, favoured = p.max(), q.argmax()
            bias += (best - p[favoured]) * q[favoured] / 120
            variance += (best - p[1 - favoured]) * q[1 - favoured] / 120
            noise += (1 - best) / 120
        assert (parts.bias, parts.variance, parts.noise) == pytest.approx((bias, variance, noise), abs=1e-5)
    assert found["knn3"].soft.noise == pytest.approx(found["hard"].soft.noise)
    assert found["knn3"].soft.variance != found["hard"].soft.variance


def test_neighbourhood_effect_of_libsvm_machines():
    """Figures 5 and 6 for the canonical SVM with two C: 5x2 folds and the test third by scikit-learn."""
    protocol = small("figures", costs=[0.001, 0.1], tol=1e-6)
    effect = neighbourhood_effect("wdbc", "L", ["hard", "win1"], folds=[1, 2], protocol=protocol)["hard"]
    data = load("wdbc")
    z = np.unique(data.y, return_inverse=True)[1]
    rest, test = train_test_split(
        np.arange(z.size), test_size=1 / 3, stratify=z, random_state=derive_seed(protocol["seed"], "wdbc")
    )
    folds = StratifiedKFold(2, shuffle=True, random_state=derive_seed(protocol["seed"], "wdbc", 0))

    def fit(train, new, C):
        mean, deviation = data.X[train].mean(axis=0), data.X[train].std(axis=0)
        model = SVC(C=C, kernel="linear", tol=1e-6).fit((data.X[train] - mean) / deviation, z[train])
        right = np.mean(model.predict((data.X[new] - mean) / deviation) == z[new])
        return 100 * right, 100 * model.support_.size / train.size

    results = {
        C: [fit(rest[train], rest[new], C) for train, new in folds.split(rest, z[rest])] for C in (0.001, 0.1)
    }
    best = max(results, key=lambda C: sum(accuracy for accuracy, _ in results[C]))
    assert effect.cost == best
    assert effect.validation_accuracy == pytest.approx([accuracy for accuracy, _ in results[best]])
    assert effect.validation_support == pytest.approx([share for _, share in results[best]], abs=0.6)
    assert (effect.test_accuracy, effect.test_support) == pytest.approx(fit(rest, test, best), abs=0.6)


def test_toy_data_do_what_the_caption_says():
    canonical, soft = toy_panels()
    assert (canonical.trained.support.size, soft.trained.support.size) == (6, 4)
    outliers = set(range(24, 26))
    assert outliers <= set(canonical.trained.support.tolist())
    assert not outliers & set(soft.trained.support.tolist())
    # Both leave the outliers on the wrong side; the soft machine's boundary is nearer to the true, upright one.
    slopes = []
    for panel in (canonical, soft):
        wrong = np.flatnonzero(panel.scores(panel.split.X).argmax(axis=1) != panel.split.z)
        assert set(wrong.tolist()) == outliers
        origin, right, up = panel.scores(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))[:, 1]
        slopes.append(abs((up - origin) / (right - origin)))
    assert slopes[1] < 0.5 * slopes[0]


def test_more_neighbours_fewer_support_vectors():
    panels = r4_panels("L", {"hard": "", "knn3": "", "knn7": "", "knn11": ""})
    counts = [panel.trained.support.size for panel in panels]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]
    assert f"{counts[0]} support vectors" in panels[0].title


@pytest.mark.parametrize("number", ["1", "2"])
def test_drawings(tmp_path, number):
    pytest.importorskip("matplotlib")
    written = FIGURES[number](tmp_path / "new" / f"figure{number}.png")
    assert written.read_bytes().startswith(b"\x89PNG")
    assert written.stat().st_size > 20_000


def test_drawings_of_numbers(tmp_path):
    pytest.importorskip("matplotlib")
    parts = decompose(
        ["hard", "knn3", "win1"],
        dataset="r2",
        n_sets=2,
        n_train=30,
        n_test_sets=1,
        n_test=50,
        protocol=small(),
    )
    assert draw_decomposition(tmp_path / "4.svg", parts).read_text().startswith("<?xml")
    effects = neighbourhood_effect(
        "wine", "L", ["hard", "knn3", "win1"], folds=[1, 2], protocol=small("figures", costs=[0.1])
    )
    assert draw_effect(tmp_path / "5.svg", effects, "wine, linear kernel").read_text().startswith("<?xml")


def test_every_figure_has_a_line_for_the_command():
    assert list(FIGURES) == list("123456")
    assert all((draw.__doc__ or "").startswith(f"Draw Figure {number}:") for number, draw in FIGURES.items())
