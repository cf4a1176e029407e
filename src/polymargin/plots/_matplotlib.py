"""matplotlib, imported when something is drawn: axes to draw on, and colours for classes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def matplotlib_part(name: str) -> Any:
    """Return a module of matplotlib, or say what to install."""
    try:
        return import_module(f"matplotlib.{name}")
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: install polymargin with its plot extra"
        ) from error


def axes_for(ax: Any, figsize: tuple[float, float]) -> tuple[Any, Any]:
    """Return the given axes, or new ones where there are none, and their figure."""
    pyplot = matplotlib_part("pyplot")
    if ax is None:
        figure, ax = pyplot.subplots(figsize=figsize, layout="constrained")
        # Room for the names of axes that hang below others.
        figure.get_layout_engine().set(h_pad=0.1)
    return ax, ax.figure


def class_colours(n_classes: int) -> Array:
    """Return a colour for every class, shape (K, 3)."""
    colormaps = matplotlib_part("pyplot").colormaps
    if n_classes <= 10:
        return np.asarray(colormaps["tab10"].colors)[:n_classes]
    return np.asarray(colormaps["turbo"](np.linspace(0.02, 0.98, n_classes)))[:, :3]


def class_names(classes: Any) -> list[str]:
    """Return the classes as text."""
    return [str(name) for name in np.asarray(classes).tolist()]
