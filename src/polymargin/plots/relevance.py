"""RelevanceDisplay: how much a model depends on every column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.inspection import FeatureRelevance, feature_relevance
from polymargin.inspection.relevance import shortened
from polymargin.plots._matplotlib import axes_for

Array = NDArray[Any]

#: Inches of a new figure for every character of the longest name, in matplotlib's own size of letters.
_CHARACTER = 0.085


class RelevanceDisplay:
    """The relevance of the columns as horizontal bars, the largest on top, with their standard deviation over folds.

    It is recommended to make it with `from_estimator`. A relevance is a sensitivity of the fitted model, not a cause,
    see `polymargin.inspection.feature_relevance`.

    Parameters
    ----------
    relevance : FeatureRelevance
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn, after `plot`.
    bars_ : matplotlib BarContainer
        The bars; its ``errorbar`` is None where the spread was not measured.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.plots import RelevanceDisplay
    >>> model = LSSVMClassifier(metric="learned").fit(*load_iris(return_X_y=True, as_frame=True))
    >>> display = RelevanceDisplay.from_estimator(model)
    >>> display.relevance.relevance.sum().round(6)
    np.float64(1.0)
    """

    def __init__(self, relevance: FeatureRelevance):
        self.relevance = relevance

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        feature_names: Sequence[str] | None = None,
        n_columns: int | None = 20,
        ax: Any = None,
        **kwargs: Any,
    ) -> RelevanceDisplay:
        """Draw what a fitted estimator depends on.

        Parameters
        ----------
        estimator : LSSVMClassifier, AutoKernelClassifier, or a Pipeline or search that ends in one
            Fitted.
        feature_names : sequence of str or None
            The names of the columns of its input; None: those that it was fitted with.
        n_columns : int or None
            The largest number of columns to draw, most relevant first; None for all.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.barh``.
        """
        return cls(feature_relevance(estimator, feature_names)).plot(ax, n_columns=n_columns, **kwargs)

    def plot(self, ax: Any = None, *, n_columns: int | None = 20, **kwargs: Any) -> RelevanceDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes or None
            Where to draw; None for new axes, as large as bars and names need.
        n_columns : int or None
            The largest number of columns to draw, most relevant first; None for all.
        **kwargs
            Handed to ``Axes.barh``.

        Returns
        -------
        RelevanceDisplay
            Itself.
        """
        if n_columns is not None and n_columns < 1:
            raise ValueError(f"n_columns must be at least 1, or None for all, not {n_columns}")
        found, order = self.relevance, self.relevance.order
        shown, others = order[:n_columns], order[order.size if n_columns is None else n_columns :]
        shares = found.relevance[shown]
        names = [shortened(found.names[j]) for j in shown]
        width = 5.0 + _CHARACTER * max(map(len, names), default=0)
        self.ax_, self.figure_ = axes_for(ax, (width, float(np.clip(1.2 + 0.26 * shown.size, 2.0, 40.0))))
        options: dict[str, Any] = {"color": "#2166ac", "height": 0.7}
        if found.std is not None:
            std = found.std[shown]
            # A share is not negative.
            options["xerr"] = np.array([np.minimum(std, shares), std])
            options["error_kw"] = {"elinewidth": 1.2, "capsize": 2, "ecolor": "#444444"}
        self.bars_ = self.ax_.barh(np.arange(shown.size), shares, **(options | kwargs))
        self.ax_.set_yticks(np.arange(shown.size), names, parse_math=False)
        self.ax_.invert_yaxis()
        spread = "" if found.std is None else ", ± standard deviation over folds"
        self.ax_.set(xlabel=f"relevance{spread}")
        self.ax_.set_xlim(left=0.0)
        if others.size:
            rest = found.relevance[others].sum()
            self.ax_.set_title(
                f"{shown.size} of {order.size} columns; the others together {rest:.1%}", fontsize="small"
            )
        return self
