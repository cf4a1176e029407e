"""Figures 1 to 6 drawn again: what soft labels do to boundaries, support vectors and error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import shown
from polymargin.datasets import generators
from polymargin.datasets.generators import Gaussians
from polymargin.papers.gonen2008.bias_variance import Parts, decompose
from polymargin.papers.gonen2008.densities import HARD, posteriors
from polymargin.papers.gonen2008.machines import BINARY, SINGLE, Limits, Trained, train_path
from polymargin.papers.gonen2008.neighbourhoods import Effect, neighbourhood_effect
from polymargin.papers.gonen2008.rows import Split
from polymargin.papers.gonen2008.synthetic import (
    Draw,
    candidates,
    choose,
    load_synthetic_protocol,
    outputs,
    train,
)
from polymargin.reproduction.pictures import new_picture, save_picture

__all__ = [
    "FIGURES",
    "KNN",
    "WINDOWS",
    "Panel",
    "draw_figure1",
    "draw_figure2",
    "draw_figure3",
    "draw_figure4",
    "draw_figure5",
    "draw_figure6",
    "r4_panels",
    "toy_panels",
]

Array = NDArray[np.float64]

KNN = ("knn3", "knn5", "knn7", "knn9", "knn11")
WINDOWS = ("win1", "win2", "win4")

#: The paper does not give its toy data. This is one of the draws of two classes, each with one row amid the other,
#: that behave as its caption says: six support vectors with hard labels, four with soft ones.
_TOY_SEED, _TOY_COST, _TOY_DENSITY = 2396, 0.5, "knn7"
_TOY_ROWS = 12
#: Draws of R4 shown in Figures 2 and 3.
_R4_SEED = 4

_COLOURS = ("#0072b2", "#d55e00", "#2a7f3f")
_MARKERS = ("o", "s", "^")


@dataclass(frozen=True)
class Panel:
    """A trained machine, the rows it was trained on, and what to write above."""

    title: str
    kernel: str
    split: Split
    trained: Trained

    def scores(self, points: Array) -> Array:
        """Return one score per class for points of the plane, shape (n, K)."""
        rows = self.split
        there = Split(rows.X, rows.z, points, np.zeros(len(points), dtype=np.intp), rows.n_classes)
        values = outputs(self.trained, there.gram(self.kernel)[1])
        return np.hstack([-values, values]) if values.shape[1] == 1 else values


def toy_panels() -> list[Panel]:
    """Return the two machines of Figure 1; the last two rows are the outliers."""
    generator = np.random.default_rng(_TOY_SEED)
    n = _TOY_ROWS
    left = generator.normal([-1.7, 0.0], [0.7, 1.0], (n, 2))
    right = generator.normal([1.7, 0.0], [0.7, 1.0], (n, 2))
    far = [[side * 1.5 + generator.normal(0, 0.3), generator.normal(0, 0.8)] for side in (1.0, -1.0)]
    X = np.concatenate([left, right, far])
    z = np.array([0] * n + [1] * n + [0, 1])
    split = Split(X, z, X, z, 2)
    panels = []
    for name, density in (("(a) canonical SVM", HARD), ("(b) PPSVM", _TOY_DENSITY)):
        P = posteriors(split, density)
        trained = train_path(BINARY, split.gram("L")[0], P, z, [_TOY_COST], 1e-6, Limits(1e4, 1e4))[0]
        panels.append(Panel(f"{name}: {trained.support.size} support vectors", "L", split, trained))
    return panels


def r4_panels(kernel: str, densities: Mapping[str, str], seed: int = _R4_SEED) -> list[Panel]:
    """Return machines on one draw of R4: 200 rows to train on, 200 to test.

    The paper does not say which C its drawings have. Here all have the one that is best for the canonical SVM on
    validation rows, so that they differ by their labels alone.

    Parameters
    ----------
    kernel : str
        ``"L"`` or ``"P3"``, say.
    densities : mapping of str to str
        Titles by density.
    seed : int
        Which draw.
    """
    protocol = load_synthetic_protocol("2")
    draw = Draw.of(generators()["r4"], protocol, seed)
    cost = choose(candidates(draw.tuning, SINGLE, [kernel], [HARD], protocol), protocol["ties"]).cost
    gram, gram_test = draw.final.gram(kernel)
    panels = []
    for density, title in densities.items():
        P = posteriors(draw.final, density)
        trained = train(SINGLE, gram, P, draw.final.z, [cost], protocol)[0]
        wrong = np.mean(outputs(trained, gram_test).argmax(axis=1) != draw.final.z_new)
        title += f"\n{trained.support.size} support vectors, test error {100 * wrong:.1f} %"
        panels.append(Panel(title, kernel, draw.final, trained))
    return panels


def _grid(low: Array, high: Array, n: int = 300) -> tuple[Array, Array, Array]:
    """Return the coordinates of a grid and its points, shape (n², 2)."""
    x, y = np.linspace(low[0], high[0], n), np.linspace(low[1], high[1], n)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return x, y, points


def _draw_boundary(axes: Any, x: Array, y: Array, scores: Array, **style: Any) -> None:
    """Draw where the largest of the scores changes."""
    n_classes = scores.shape[1]
    for k in range(n_classes if n_classes > 2 else 1):
        lead = scores[:, k] - np.delete(scores, k, axis=1).max(axis=1)
        axes.contour(x, y, lead.reshape(y.size, x.size), levels=[0.0], **style)


def _draw_rows(axes: Any, panel: Panel, size: float) -> None:
    """Draw the training rows, support vectors filled."""
    supports = np.zeros(panel.split.z.size, dtype=bool)
    supports[panel.trained.support] = True
    for k in range(panel.split.n_classes):
        for filled in (False, True):
            rows = panel.split.X[(panel.split.z == k) & (supports == filled)]
            axes.scatter(
                *rows.T,
                s=size,
                marker=_MARKERS[k],
                facecolors=_COLOURS[k] if filled else "white",
                edgecolors=_COLOURS[k],
                linewidths=0.9,
                alpha=1.0 if filled else 0.75,
                zorder=3 if filled else 2,
            )


def _legend(figure: Any, n_classes: int, *, truth: bool) -> None:
    """Explain colours, filling and lines below the panels."""
    from matplotlib.lines import Line2D

    def dots(face: str, edge: str, marker: str, label: str) -> Any:
        return Line2D(
            [], [], linestyle="", marker=marker, markerfacecolor=face, markeredgecolor=edge, label=label
        )

    handles = [dots("white", _COLOURS[k], _MARKERS[k], f"class {k + 1}") for k in range(n_classes)]
    handles.append(dots("#444444", "#444444", "o", "support vector (filled)"))
    handles.append(Line2D([], [], color="black", label="machine's boundary"))
    if not truth:
        handles.append(Line2D([], [], color="black", linestyle=":", label="its margins"))
    else:
        handles.append(Line2D([], [], color="#9a9a9a", linewidth=2.0, label="Bayes boundary"))
        handles.append(Line2D([], [], color="#9a9a9a", linestyle="--", label="Gaussians"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4 if truth else 5, frameon=False)


def draw_figure1(path: Path) -> Path:
    """Draw Figure 1: toy data with two outliers, six support vectors with hard labels, four with soft ones."""
    panels = toy_panels()
    figure = new_picture((9.0, 4.4))
    low, high = panels[0].split.X.min(axis=0) - 0.6, panels[0].split.X.max(axis=0) + 0.6
    x, y, points = _grid(low, high)
    for axes, panel in zip(figure.subplots(1, 2, sharex=True, sharey=True), panels, strict=True):
        scores = panel.scores(points)
        _draw_boundary(axes, x, y, scores, colors="black", linewidths=1.8)
        axes.contour(
            x,
            y,
            scores[:, 1].reshape(y.size, x.size),
            levels=[-1.0, 1.0],
            colors="black",
            linewidths=0.7,
            linestyles=":",
        )
        _draw_rows(axes, panel, 55.0)
        for row, away in zip(panel.split.X[-2:], ((62, 16), (0, 12)), strict=True):
            arrow = {"arrowstyle": "-", "linewidth": 0.6, "shrinkB": 4}
            axes.annotate(
                "outlier", row, away, textcoords="offset points", ha="center", fontsize=9, arrowprops=arrow
            )
        axes.set_title(panel.title, loc="left", fontsize=11)
        axes.set(xlabel="$x_1$", aspect="equal")
    figure.axes[0].set_ylabel("$x_2$")
    _legend(figure, 2, truth=False)
    return save_picture(figure, path)


def _draw_r4(path: Path, panels: Sequence[Panel], shape: tuple[int, int], size: tuple[float, float]) -> Path:
    """Draw machines on R4 with the truth behind them."""
    figure = new_picture(size)
    low, high = panels[0].split.X.min(axis=0) - 0.4, panels[0].split.X.max(axis=0) + 0.4
    x, y, points = _grid(low, high)
    r4 = generators()["r4"]
    truth = r4.log_posterior(points)
    grid = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=True):
        _draw_gaussians(axes, r4)
        _draw_boundary(axes, x, y, truth, colors="#9a9a9a", linewidths=2.0)
        _draw_boundary(axes, x, y, panel.scores(points), colors="black", linewidths=1.4)
        _draw_rows(axes, panel, 20.0)
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    for axes in grid[-1]:
        axes.set_xlabel("$x_1$")
    for axes in grid[:, 0]:
        axes.set_ylabel("$x_2$")
    _legend(figure, 3, truth=True)
    return save_picture(figure, path)


def _draw_gaussians(axes: Any, generator: Any) -> None:
    """Draw the ellipses of one and two standard deviations of each class."""
    from matplotlib.patches import Ellipse

    assert isinstance(generator, Gaussians)
    for mean, variance in zip(generator.means, generator.variances, strict=True):
        for deviations in (1.0, 2.0):
            width, height = 2.0 * deviations * np.sqrt(variance)
            axes.add_patch(Ellipse(mean, width, height, fill=False, linestyle="--", edgecolor="#9a9a9a"))


def draw_figure2(path: Path) -> Path:
    """Draw Figure 2: R4 with a linear kernel, canonical SVM and PPSVM with both densities."""
    titles = {HARD: "(a) canonical SVM", "win1": "(b) PPSVM, window $r_0$", "knn3": "(c) PPSVM, 3 neighbours"}
    return _draw_r4(path, r4_panels("L", titles), (1, 3), (12.5, 5.9))


def draw_figure3(path: Path) -> Path:
    """Draw Figure 3: R4 with a cubic kernel, canonical SVM and PPSVM with 3, 7 and 11 neighbours."""
    titles = {
        HARD: "(a) canonical SVM",
        "knn3": "(b) PPSVM, 3 neighbours",
        "knn7": "(c) PPSVM, 7 neighbours",
        "knn11": "(d) PPSVM, 11 neighbours",
    }
    return _draw_r4(path, r4_panels("P3", titles), (2, 2), (8.6, 10.2))


def draw_figure4(path: Path) -> Path:
    """Draw Figure 4: bias, variance and noise on R4 with a cubic kernel, by neighbourhood (some minutes)."""
    with shown(True) as progress:
        parts = decompose((HARD, *KNN, *WINDOWS), progress=progress)
    return draw_decomposition(path, parts)


def draw_decomposition(path: Path, parts: Mapping[str, Parts]) -> Path:
    """Draw stacked bars of bias and variance: above as in the paper, below for the machines' own labels.

    The noise is the same for all and most of the error, so it is written, not drawn.
    """
    figure = new_picture((10.0, 7.2))
    grid = figure.subplots(2, 2, sharey="row", width_ratios=[len(KNN) + 1, len(WINDOWS) + 1])
    layers = (("bias", "#d55e00"), ("variance", "#56b4e9"))
    for row, kind in enumerate(("soft", "votes")):
        for axes, (name, family) in zip(grid[row], _FAMILIES.items(), strict=True):
            densities = [HARD, *(density for density in family if density in parts)]
            found = [getattr(parts[density], kind) for density in densities]
            places = np.arange(len(densities))
            below = np.zeros(len(densities))
            for label, colour in layers:
                heights = np.array([100.0 * getattr(part, label) for part in found])
                axes.bar(places, heights, 0.62, bottom=below, color=colour, label=label)
                for x, base, height in zip(places, below, heights, strict=True):
                    # Bias is too thin for its number, which stands beside the bar.
                    inside = label == "variance"
                    axes.text(
                        x if inside else x - 0.33,
                        base + height / 2,
                        f"{height:.2f}",
                        ha="center" if inside else "right",
                        va="center" if inside else "bottom",
                        fontsize=8,
                        color="black" if inside else colour,
                    )
                below += heights
            axes.set_xticks(places, [_short(density) for density in densities])
            axes.set_xlim(-0.85, len(densities) - 0.5)
            axes.set_title(
                f"({'abcd'[2 * row + list(_FAMILIES).index(name)]}) {name}", loc="left", fontsize=11
            )
            axes.spines[["top", "right"]].set_visible(False)
    noise = f"% error above the noise of {100.0 * parts[HARD].soft.noise:.1f} %,"
    grid[0, 0].set_ylabel(f"{noise}\nlabels drawn from the softmax")
    grid[1, 0].set_ylabel(f"{noise}\nlabels of the machines")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=3, frameon=False)
    return save_picture(figure, path)


_FAMILIES = {"k-NN": KNN, "windows": WINDOWS}


def _short(density: str) -> str:
    if density == HARD:
        return "canonical"
    number = density[3:]
    return f"k={number}" if density.startswith("knn") else f"r={'' if number == '1' else number}$r_0$"


def draw_effect(path: Path, effects: Mapping[str, Effect], title: str) -> Path:
    """Draw accuracy (above) and support vectors (below) over the neighbourhood, for validation and test."""
    figure = new_picture((9.5, 6.4))
    grid = figure.subplots(2, 2, sharey="row", sharex="col", width_ratios=[len(KNN) + 1, len(WINDOWS) + 1])
    for column, (name, family) in enumerate(_FAMILIES.items()):
        densities = [HARD, *(density for density in family if density in effects)]
        places = np.arange(len(densities))
        chosen = [effects[density] for density in densities]
        for row, quantity in enumerate(("accuracy", "support")):
            axes = grid[row, column]
            folds = np.array([getattr(effect, f"validation_{quantity}") for effect in chosen])
            deviation = folds.std(axis=1, ddof=1) if folds.shape[1] > 1 else np.zeros(len(folds))
            axes.errorbar(
                places,
                folds.mean(axis=1),
                deviation,
                color=_COLOURS[0],
                marker="o",
                capsize=3,
                label="validation, mean ± standard deviation of the folds",
            )
            test = [getattr(effect, f"test_{quantity}") for effect in chosen]
            axes.plot(places, test, color=_COLOURS[1], marker="s", linestyle="--", label="test")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#e6e6e6")
            axes.set_xticks(places, [_short(density) for density in densities], fontsize=9)
        grid[0, column].set_title(f"({'ab'[column]}) {name}", loc="left", fontsize=11)
    grid[0, 0].set_ylabel("accuracy in %")
    grid[1, 0].set_ylabel("support vectors in %")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return save_picture(figure, path)


def draw_figure5(path: Path) -> Path:
    """Draw Figure 5: spambase with a linear kernel, accuracy and support vectors by neighbourhood."""
    with shown(True) as progress:
        effects = neighbourhood_effect("spambase", "L", (HARD, *KNN, *WINDOWS), progress=progress)
    return draw_effect(path, effects, "spambase, linear kernel")


def draw_figure6(path: Path) -> Path:
    """Draw Figure 6: glass with a polynomial kernel of degree 4, accuracy and support vectors by neighbourhood."""
    with shown(True) as progress:
        effects = neighbourhood_effect("glass", "P4", (HARD, *KNN, *WINDOWS), progress=progress)
    return draw_effect(path, effects, "glass, polynomial kernel of degree 4")


FIGURES: dict[str, Callable[[Path], Path]] = {
    "1": draw_figure1,
    "2": draw_figure2,
    "3": draw_figure3,
    "4": draw_figure4,
    "5": draw_figure5,
    "6": draw_figure6,
}
