"""Figure 1: the sigmoid of eq. (4) for different slopes M, with B = 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polymargin.reproduction.pictures import new_picture, save_picture

__all__ = ["SLOPES", "draw", "sigmoid"]

Array = NDArray[Any]

#: The paper's own values cannot be read from its text. A useful sigmoid has M < 0, so that p rises with the output.
SLOPES = (-0.5, -1.0, -2.0, -5.0, -20.0)
_COLOURS = ("#56b4e9", "#0072b2", "#2a7f3f", "#e69f00", "#c1272d")


def sigmoid(g: Array, M: float, B: float = 0.0) -> Array:
    """Return Platt's probability 1 / (1 + exp(M g + B)), eq. (4).

    Examples
    --------
    >>> sigmoid(np.array([0.0, 2.0]), M=-1.0).round(3)
    array([0.5  , 0.881])
    """
    return np.asarray(expit(-(M * g + B)))


def draw(path: Path) -> Path:
    """Draw Figure 1: sigmoids that differ by M, B fixed to zero.

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
    figure = new_picture((7.0, 4.4))
    g = np.linspace(-3.0, 3.0, 601)
    axes = figure.subplots()
    for value in (0.0, 0.5, 1.0):
        axes.axhline(value, color="#d0d0d0", linewidth=0.8, zorder=0)
    axes.axvline(0.0, color="#d0d0d0", linewidth=0.8, zorder=0)
    for slope, colour in zip(SLOPES, _COLOURS, strict=True):
        axes.plot(
            g, sigmoid(g, slope), color=colour, linewidth=2.0, label=f"$M$ = {slope:g}".replace("-", "−")
        )
    axes.set(
        xlabel="output of the SVM, $g(x)$",
        ylabel=r"$\hat{P}(y = i \mid g(x))$",
        xlim=(-3, 3),
        ylim=(-0.03, 1.03),
    )
    axes.set_title("Platt's sigmoid $1 / (1 + e^{M g(x) + B})$, $B = 0$", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return save_picture(figure, path)
