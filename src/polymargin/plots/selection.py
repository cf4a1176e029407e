"""SelectionDisplay: the criterion over C and gamma, and what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.inspection import SelectionSurface, selection_surface
from polymargin.plots._matplotlib import axes_for, matplotlib_part

Array = NDArray[Any]

#: Contours lie this far above the least error (shares of it), and this many nats below the largest evidence.
_SHARES, _NATS = (0.02, 0.1, 0.5), (3.0, 10.0, 30.0)
#: Colours tell apart what is at most this many times the least error, this many nats below the evidence.
_TIMES, _NATS_BELOW = 4.0, 150.0


class SelectionDisplay:
    """A criterion over C and gamma, with a star at what was chosen; a curve over C where there is one gamma.

    Where a smaller C was taken because its outputs decode better, a ring is at what the criterion favours.

    It is recommended to make it with `from_estimator` or `from_surface`.

    Parameters
    ----------
    surface : SelectionSurface
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn, after `plot`.
    image_ : matplotlib QuadMesh or None
        The surface; None where there is a curve.
    line_ : matplotlib Line2D or None
        The curve; None where there is a surface.
    chosen_ : matplotlib Line2D
        The star, or stars, where machines have parameters of their own.
    favoured_ : matplotlib Line2D or None
        The ring, or rings; None where what the criterion favours was taken.
    colorbar_ : matplotlib Colorbar or None
        Beside a surface.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.plots import SelectionDisplay
    >>> model = LSSVMClassifier(kernel="rbf").fit(*load_iris(return_X_y=True))
    >>> display = SelectionDisplay.from_estimator(model, n_C=9, n_gamma=5)
    >>> display.surface.values.shape
    (5, 9)
    """

    image_: Any
    line_: Any
    favoured_: Any
    colorbar_: Any

    def __init__(self, surface: SelectionSurface):
        self.surface = surface

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_C: int = 25,
        n_gamma: int = 17,
        machine: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> SelectionDisplay:
        """Draw what a fitted estimator chose from, see `polymargin.inspection.selection_surface`.

        Parameters
        ----------
        estimator : LSSVMClassifier, SVMClassifier, or a Pipeline that ends in one
            Fitted.
        n_C, n_gamma : int
            How many values of each.
        machine : int or None
            Whose criterion, a column of the codebook; None: of all machines together.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.pcolormesh``, or to ``Axes.plot`` where there is a single gamma.
        """
        surface = selection_surface(estimator, n_C=n_C, n_gamma=n_gamma, machine=machine)
        return cls(surface).plot(ax, **kwargs)

    @classmethod
    def from_surface(cls, surface: Any, *, ax: Any = None, **kwargs: Any) -> SelectionDisplay:
        """Draw a surface.

        Parameters
        ----------
        surface : SelectionSurface or CrossValidation
            Of `polymargin.inspection.selection_surface` or `polymargin.machines.cross_validate_svm`.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            As in `from_estimator`.
        """
        if not isinstance(surface, SelectionSurface):
            surface = SelectionSurface.from_cross_validation(surface)
        return cls(surface).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> SelectionDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.pcolormesh``, or to ``Axes.plot`` where there is a single gamma.

        Returns
        -------
        SelectionDisplay
            Itself.
        """
        self.ax_, self.figure_ = axes_for(ax, (6.4, 4.4))
        self.image_ = self.line_ = self.favoured_ = self.colorbar_ = None
        if self.surface.gamma.size == 1:
            self._plot_curve(kwargs)
        else:
            self._plot_surface(kwargs)
        self.ax_.set(xscale="log", xlabel="C")
        self.ax_.legend(
            loc="best" if self.image_ is None else "upper left", fontsize="small", framealpha=0.85
        )
        return self

    def _plot_curve(self, kwargs: dict[str, Any]) -> None:
        surface = self.surface
        values = surface.values[0]
        (self.line_,) = self.ax_.plot(surface.C, values, **({"marker": ".", "label": surface.label} | kwargs))
        self._mark(lambda C: np.interp(np.log(C), np.log(surface.C), values))
        if not surface.greater_is_better and np.nanmax(values) > 3.0 * np.nanmin(values) > 0.0:
            self.ax_.set_yscale("log")
        self.ax_.set_ylabel(surface.label)

    def _plot_surface(self, kwargs: dict[str, Any]) -> None:
        surface = self.surface
        cells = _borders(surface.C), _borders(surface.gamma)
        options = {"rasterized": True} | self._colours() | kwargs
        self.image_ = self.ax_.pcolormesh(*cells, surface.values, **options)
        # Before the contours, which would end the axes in the middle of cells and place their labels by the scale.
        limits = {"xlim": cells[0][[0, -1]], "ylim": cells[1][[0, -1]]}
        self.ax_.set(xscale="log", yscale="log", ylabel="gamma", **limits)
        contours = self._contours()
        if surface.C.size > 1 and contours:
            lines = self.ax_.contour(
                surface.C,
                surface.gamma,
                np.ma.masked_invalid(surface.values),
                levels=sorted(contours),
                colors="black",
                linewidths=0.7,
                linestyles="solid",
            )
            self.ax_.clabel(lines, fmt=contours, fontsize=7)
        if np.isnan(surface.values).any():
            self.ax_.set_facecolor("#d0d0d0")
            self.ax_.scatter([], [], marker="s", color="#d0d0d0", label="not searched")
        self._mark(lambda C: surface.chosen_gamma)
        self.colorbar_ = self.figure_.colorbar(self.image_, ax=self.ax_, label=surface.label)
        if isinstance(self.image_.norm, matplotlib_part("colors").LogNorm):
            ticks = np.geomspace(self.image_.norm.vmin, self.image_.norm.vmax, 5)
            self.colorbar_.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
            self.colorbar_.minorticks_off()

    def _mark(self, height: Callable[[Array], Array]) -> None:
        """Draw a star at every choice, and a ring at what the criterion favours where that is something else."""
        surface, several = self.surface, self.surface.chosen_C.size > 1
        label = f"chosen: C = {surface.chosen_C[0]:.3g}"
        if surface.gamma.size > 1:
            label += f", gamma = {surface.chosen_gamma[0]:.3g}"
        if several:
            label = "chosen, machine by machine"
        if surface.shrinkage != 1.0:
            label += " (decodes better)"
            of = "" if several else f": C = {surface.favoured_C[0]:.3g}"
            (self.favoured_,) = self.ax_.plot(
                surface.favoured_C,
                height(surface.favoured_C),
                linestyle="none",
                marker="o",
                markersize=9,
                markerfacecolor="none",
                markeredgecolor="#d7191c",
                markeredgewidth=1.5,
                label=f"favoured{of}, {surface.shrinkage:g} times larger",
                zorder=5,
            )
        (self.chosen_,) = self.ax_.plot(
            surface.chosen_C,
            height(surface.chosen_C),
            linestyle="none",
            marker="*",
            markersize=10 if several else 15,
            color="#d7191c",
            markeredgecolor="white",
            label=label,
            zorder=5,
        )

    @property
    def _best(self) -> float:
        values = self.surface.values
        return float(np.nanmax(values) if self.surface.greater_is_better else np.nanmin(values))

    def _colours(self) -> dict[str, Any]:
        """Return the colours: bright is good, and what is far from good is all the same."""
        finite = self.surface.values[np.isfinite(self.surface.values)]
        match self.surface.criterion:
            case "evidence":
                return {"cmap": "viridis", "vmin": max(float(finite.min()), self._best - _NATS_BELOW)}
            case "cv":
                return {"cmap": "viridis", "vmin": float(np.quantile(finite, 0.1))}
        largest = min(float(finite.max()), _TIMES * self._best)
        LogNorm = matplotlib_part("colors").LogNorm
        return {"cmap": "viridis_r", "norm": LogNorm(self._best, max(largest, 1.01 * self._best))}

    def _contours(self) -> dict[float, str]:
        """Return the heights of the contours, and what is written on them."""
        match self.surface.criterion:
            case "evidence":
                return {self._best - nats: f"−{nats:g} nats" for nats in _NATS}
            case "cv":  # a coarse grid of shares of the rows, which jump about
                return {}
        return {self._best * (1.0 + share): f"+{100 * share:g} %" for share in _SHARES}


def _borders(values: Array) -> Array:
    """Return the borders of cells around values, shape (n + 1,), half-way in their logarithms."""
    if values.size == 1:
        return values[0] * np.array([0.5, 2.0])
    logs = np.log(values)
    between = 0.5 * (logs[1:] + logs[:-1])
    return np.exp(np.r_[2.0 * logs[0] - between[0], between, 2.0 * logs[-1] - between[-1]])
