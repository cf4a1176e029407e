"""matplotlib, imported when something is drawn: axes to draw on, and colours for classes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Axes keep at least this share of the width and of the height of their box.
_LEAST = 0.3


def matplotlib_part(name: str) -> Any:
    """Return a module of matplotlib, or say what to install."""
    try:
        return import_module(f"matplotlib.{name}")
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: install polymargin with its plot extra"
        ) from error


def axes_for(ax: Any, figsize: tuple[float, float]) -> tuple[Any, Any]:
    """Return the given axes, which are kept inside their figure, or new ones where there are none, and their figure."""
    pyplot = matplotlib_part("pyplot")
    if ax is None:
        figure, ax = pyplot.subplots(figsize=figsize, layout="constrained")
        # Room for the names of axes that hang below others.
        figure.get_layout_engine().set(h_pad=0.1)
    keep_inside(ax)
    return ax, ax.figure


def keep_inside(ax: Any, below: float = 0.0) -> None:
    """Make axes smaller where their names or their legend would leave the figure, which then cuts them off.

    Parameters
    ----------
    ax : matplotlib axes
        Those of a display.
    below : float
        How much room their box must have beneath them for axes that hang there, in heights of the axes.
    """
    locator = ax.get_axes_locator()
    if not isinstance(locator, Inside):
        locator = Inside(ax, locator)
        ax.set_axes_locator(locator)
    locator.below = max(locator.below, below)
    ax.apply_aspect(locator(ax, None))


class Inside:
    """A locator, which matplotlib asks for the place of axes: as much of their box as lets all of them be seen.

    Where the figure has a layout (constrained, tight), that makes the room, and the place is the box.

    Parameters
    ----------
    ax : matplotlib axes
        Whose place it is.
    whole : callable or None
        The locator of the box; None for the position that the axes have.
    """

    def __init__(self, ax: Any, whole: Any = None):
        self.ax, self.whole, self.below = ax, whole, 0.0
        self._place: Any = None

    def __call__(self, ax: Any, renderer: Any) -> Any:
        """Return the place of the axes in their figure."""
        if self._place is not None:  # while it is measured
            return self._place
        Bbox = matplotlib_part("transforms").Bbox
        box = ax.get_position(original=True) if self.whole is None else self.whole(ax, renderer)
        if renderer is not None and ax.figure.get_layout_engine() is None:
            left, bottom, right, top = self._overhang(ax, renderer, self._upper(box))
            width, height = box.width - left - right, box.height - bottom - top
            if width > _LEAST * box.width and height > _LEAST * box.height:
                box = Bbox.from_bounds(box.x0 + left, box.y0 + bottom, width, height)
        return self._upper(box)

    def get_subplotspec(self) -> Any:
        """Return the cell of the axes, which `Figure.tight_layout` asks the locator for."""
        return self.ax.get_subplotspec() if self.whole is None else None

    def _upper(self, box: Any) -> Any:
        """Return the upper part of a box, above what hangs below the axes."""
        height = box.height / (1.0 + self.below)
        from_bounds = matplotlib_part("transforms").Bbox.from_bounds
        return from_bounds(box.x0, box.y1 - height, box.width, height)

    def _overhang(self, ax: Any, renderer: Any, place: Any) -> Any:
        """Return by how much the axes' texts leave the figure on every side, in shares of the figure."""
        self._place = place
        try:
            tight = ax.get_tightbbox(renderer)
        finally:
            self._place = None
        figure = ax.figure
        outer = tight.padded(0.05 * figure.dpi).transformed(figure.transSubfigure.inverted())
        return (max(0.0, over) for over in (-outer.x0, -outer.y0, outer.x1 - 1.0, outer.y1 - 1.0))


def class_colours(n_classes: int) -> Array:
    """Return a colour for every class, shape (K, 3)."""
    colormaps = matplotlib_part("pyplot").colormaps
    if n_classes <= 10:
        return np.asarray(colormaps["tab10"].colors)[:n_classes]
    return np.asarray(colormaps["turbo"](np.linspace(0.02, 0.98, n_classes)))[:, :3]


def class_names(classes: Any) -> list[str]:
    """Return the classes as text."""
    return [str(name) for name in np.asarray(classes).tolist()]
