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
from polymargin.reproduction import ReproductionError

__all__ = ["MEANS", "Boundaries", "boundaries", "draw", "sample"]

Array = NDArray[Any]
#: Scores of K classes for rows of the plane: shape (n, 2) to (n, K).
Scores = Callable[[Array], Array]

#: The paper gives neither. Classes 1 and 2 are neighbours, class 3 is far from both.
MEANS = np.array([[-1.9, -1.3], [1.3, -1.9], [0.4, 6.0]])
COVARIANCE = np.array([[0.40, 0.10], [0.10, 0.55]])
_SEED = 1998
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
    bank = fit_svm_bank(
        TrainingRows(Linear(), X, class_index, np.ones(class_index.size)), codebook, C=_HARD
    )
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
    try:
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise ReproductionError(
            "figures need matplotlib, which is not installed: pip install 'polymargin[plot]'"
        ) from error

    X, class_index = sample()
    figure = Figure(figsize=(8.6, 5.6), layout="constrained")
    axes = figure.subplots()
    handles = []
    for k, (colour, marker) in enumerate(_CLASSES):
        rows = X[class_index == k]
        handles.append(
            axes.scatter(*rows.T, s=18, c=colour, marker=marker, linewidths=0, label=f"class {k + 1}")
        )
    handles.append(
        axes.scatter(*MEANS.T, s=130, c="black", marker="*", edgecolors="white", zorder=4, label="means")
    )
    for name, style, colour, marker, label in _STYLES:
        found = boundaries(X, class_index)[name]
        for direction in found.directions:
            ends = np.stack([found.crossing, found.crossing + 30.0 * direction])
            axes.plot(*ends.T, linestyle=style, color=colour, linewidth=1.8)
        if marker:
            axes.plot(*found.crossing, marker, color=colour, markersize=9, fillstyle="none", markeredgewidth=1.8)
        handles.append(
            Line2D([], [], linestyle=style, color=colour, marker=marker, fillstyle="none", label=label)
        )
    low, high = X.min(axis=0) - 0.6, X.max(axis=0) + 0.6
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    axes.set_title("Three classes, one-vs-all linear machines", loc="left", fontsize=11)
    figure.legend(handles=handles, loc="outside right center", frameon=False, handlelength=3.2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
