"""Figure 1: three classes whose one-vs-all SVMs have outputs in different ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import one_vs_all
from polymargin.decoders import Argmax
from polymargin.kernels import Linear
from polymargin.machines import TrainingRows
from polymargin.outputs import Outputs
from polymargin.reproduction.pictures import new_picture, save_picture

__all__ = ["MEANS", "Boundaries", "boundaries", "draw", "sample"]

Array = NDArray[Any]
#: Scores of K classes for rows of the plane: shape (n, 2) to (n, K).
Scores = Callable[[Array], Array]

#: The paper gives no numbers. In units of the covariance the means are an equilateral triangle; seen with plain
#: distances class 3 lies apart. The seed is one whose rows are as the text says: each class can be cut off by a line.
MEANS = np.array([[0.0, 2.9], [0.0, -2.9], [6.5, 0.0]])
COVARIANCE = np.diag([1.69, 1.0])
_SEED = 27
_PER_CLASS = 50
_HARD = 1e6


@dataclass(frozen=True)
class Boundaries:
    """The decision regions of three linear scores: three rays from one point.

    Attributes
    ----------
    crossing : ndarray of shape (2,)
        Where all three scores are equal.
    directions : ndarray of shape (3, 2)
        Unit vectors along the boundaries of classes 1 and 2, 1 and 3, 2 and 3.
    """

    crossing: Array
    directions: Array

    @classmethod
    def of(cls, scores: Scores) -> Boundaries:
        """Find the boundaries of scores that are linear in x."""
        origin, *axes = scores(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        weights = np.stack(axes, axis=1) - origin[:, np.newaxis]
        crossing = np.linalg.solve(weights[1:] - weights[0], origin[0] - origin[1:])
        directions = []
        for i, j, third in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            normal = weights[i] - weights[j]
            along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
            # The half of the line on which the third class does not win.
            directions.append(along if (weights[third] - weights[i]) @ along < 0.0 else -along)
        return cls(crossing, np.array(directions))


def sample() -> tuple[Array, Array]:
    """Return 50 rows of each of three Gaussians, shape (150, 2), and their classes, shape (150,)."""
    generator = np.random.default_rng(_SEED)
    X = np.concatenate([generator.multivariate_normal(mean, COVARIANCE, _PER_CLASS) for mean in MEANS])
    return X, np.repeat(np.arange(3), _PER_CLASS)


def boundaries(X: Array, class_index: Array) -> dict[str, Boundaries]:
    """Return the boundaries of the figure's five classifiers by name.

    "bayes" is the exact classifier, "svm" the largest of the raw outputs; "norm" divides by ‖w‖ and "deviation" by
    the standard deviation of the outputs; "pseudo-inverse" is three linear perceptrons of least squared error.
    """
    from polymargin.machines.svm import fit_svm_bank

    codebook = one_vs_all(3)
    bank = fit_svm_bank(TrainingRows(Linear(), X, class_index, np.ones(class_index.size)), codebook, C=_HARD)
    trained = bank.training_outputs(honest=False).margins

    def svm(scale: str | None) -> Scores:
        decoder = Argmax(scale).fit(codebook, None, class_index)
        return lambda rows: decoder.scores(Outputs(bank.margins(rows), "new", norms=bank.norms))

    targets = codebook.targets(class_index).astype(np.float64)
    perceptrons, *_ = np.linalg.lstsq(_with_ones(X), targets, rcond=None)
    # Equal covariances and priors: the discriminants m'S⁻¹x - m'S⁻¹m / 2 are linear.
    slopes = np.linalg.solve(COVARIANCE, MEANS.T)
    offsets = -0.5 * np.einsum("kd,dk->k", MEANS, slopes)
    scores: dict[str, Scores] = {
        "bayes": lambda rows: rows @ slopes + offsets,
        "svm": svm(None),
        "pseudo-inverse": lambda rows: _with_ones(rows) @ perceptrons,
        "norm": svm("norm"),
        "deviation": lambda rows: bank.margins(rows) / trained.std(axis=0),
    }
    return {name: Boundaries.of(of_rows) for name, of_rows in scores.items()}


def _with_ones(X: Array) -> Array:
    return np.column_stack([X, np.ones(len(X))])


#: Name, line style, colour, marker of the crossing point and label, drawn in this order; lines as in the paper.
_STYLES: tuple[tuple[str, Any, str, str, str], ...] = (
    ("bayes", "-", "black", "", "Bayes, exact"),
    ("svm", "--", "#c1272d", "x", "SVMs, largest output"),
    ("pseudo-inverse", "-.", "#0072b2", "s", "perceptrons, pseudo-inverse"),
    ("norm", ":", "#2a7f3f", "o", "SVMs, output / ‖w‖"),
    ("deviation", (0, (1, 3)), "#8f4fa8", "^", "SVMs, output / its standard deviation"),
)
_CLASSES = (("#8c8c8c", "o"), ("#e69f00", "s"), ("#56b4e9", "D"))


def draw(path: Path) -> Path:
    """Draw Figure 1: the boundaries of Bayes, raw and normalised SVMs, and perceptrons on three Gaussian classes.

    Parameters
    ----------
    path : Path
        The file to write; its suffix says which format (.png, .svg, .pdf).

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ReproductionError
        If matplotlib is not installed.
    """
    figure = new_picture((10.0, 5.4))
    X, class_index = sample()
    found = boundaries(X, class_index)
    whole, close = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    for axes, size in ((whole, 20.0), (close, 60.0)):
        for k, (colour, marker) in enumerate(_CLASSES):
            rows = X[class_index == k]
            axes.scatter(*rows.T, s=size, c=colour, marker=marker, linewidths=0, label=f"class {k + 1}")
        axes.scatter(*MEANS.T, s=150, c="black", marker="*", edgecolors="white", zorder=4, label="means")
        for name, style, colour, marker, label in _STYLES:
            for direction in found[name].directions:
                ends = np.stack([found[name].crossing, found[name].crossing + 30.0 * direction])
                axes.plot(*ends.T, linestyle=style, color=colour, linewidth=1.8)
            # An empty line for the legend, with the style of the rays and the marker of the crossing.
            axes.plot([], [], marker=marker, linestyle=style, color=colour, fillstyle="none", label=label)
        axes.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    low, high = X.min(axis=0) - 0.6, X.max(axis=0) + 0.6
    whole.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    whole.set_title("Three Gaussian classes, equal covariances", loc="left", fontsize=11)
    for name, _, colour, marker, _ in _STYLES:
        x, y = found[name].crossing
        close.plot(
            x, y, marker=marker, color=colour, markersize=10, fillstyle="none", markeredgewidth=1.8, zorder=3
        )
    x, y = found["bayes"].crossing
    close.set(xlim=(x - 1.9, x + 1.1), ylim=(y - 1.5, y + 1.5))
    close.set_title("Where the boundaries cross", loc="left", fontsize=11)
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, handlelength=4.0)
    return save_picture(figure, path)
