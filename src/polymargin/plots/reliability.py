"""ReliabilityDisplay: does what is given probability p come true with frequency p?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from polymargin.inspection.honest import honest_rows
from polymargin.metrics import (
    Interval,
    ReliabilityCurve,
    calibration_interval,
    leave_halves_out,
    reliability_curve,
)
from polymargin.plots._matplotlib import axes_for, class_names, keep_inside

Array = NDArray[Any]
Kind = Literal["top-label", "class-wise"]

_HISTOGRAM, _REFERENCE = "histogram of probabilities", "calibrated"
_HISTOGRAM_BINS = np.linspace(0.0, 1.0, 26)
#: Heights of the histogram and of the gap above it, in heights of the diagram.
_HEIGHT, _GAP = 0.36, 0.05


@dataclass(frozen=True)
class Reliability:
    """One curve of a reliability diagram.

    Attributes
    ----------
    label : str or None
        The class, or None for the most probable class of every row.
    curve : ReliabilityCurve
        Promised and observed, bin by bin; its intervals are Wilson's, since a bootstrap of a bin in which all came true
        would have no width.
    error : Interval
        The expected calibration error with its bootstrap interval, see `polymargin.metrics.calibration_interval`.
    probabilities, weights : ndarray of shape (n,)
        The probabilities behind it, for the histogram, and the rows' weights.
    """

    label: str | None
    curve: ReliabilityCurve
    error: Interval
    probabilities: Array
    weights: Array


class ReliabilityDisplay:
    """A reliability diagram: observed frequencies against probabilities, and a histogram of these beneath.

    It is recommended to make it with `from_estimator` or `from_predictions`. Bins hold equal numbers of rows; bars are
    95 % intervals; the legend tells the expected calibration error (ECE) with its interval. Draw a second model into
    the first one's ``ax_`` to compare them.

    Parameters
    ----------
    curves : list of Reliability
        One for the most probable classes or for one class, or one for every class.
    name : str or None
        Of what gave the probabilities, for the legend.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn, after `plot`.
    histogram_ax_ : matplotlib axes
        The histogram's.
    lines_ : list of matplotlib ErrorbarContainer
        The curves.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.plots import ReliabilityDisplay
    >>> model = LSSVMClassifier(kernel="linear").fit(*load_iris(return_X_y=True))
    >>> display = ReliabilityDisplay.from_estimator(model)  # of the training rows, each left out
    >>> int(display.curves[0].curve.count.sum())  # two of the 150 are equal, and stand for each other
    149
    """

    def __init__(self, curves: list[Reliability], *, name: str | None = None):
        self.curves = curves
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        kind: Kind = "top-label",
        pos_label: Any = None,
        n_bins: int | None = 10,
        sample_weight: ArrayLike | None = None,
        n_resamples: int = 200,
        random_state: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the reliability of a fitted classifier's probabilities.

        Parameters
        ----------
        estimator : classifier with `predict_proba`
            Any, a Pipeline too.
        X, y : array-like of shape (n, d) and (n,), or None
            Rows that the classifier has not seen. None for both: the training rows, with the honest probabilities
            ``loo_log_proba_`` that `LSSVMClassifier` and `AutoKernelClassifier` have of them. Of rows that are equal
            half are drawn, which are left out together, see `polymargin.metrics.leave_halves_out`.
        kind : {"top-label", "class-wise"}
            Of the most probable class of every row, or of every class in turn.
        pos_label : label or None
            One class only; its probability is looked at whatever the kind.
        n_bins : int or None
            How many bins at most; None: one for every distinct probability.
        sample_weight : array-like of shape (n,) or None
            Row weights.
        n_resamples : int
            How often to draw for the intervals of the calibration error.
        random_state : int, RandomState instance or None
            For these draws.
        name : str or None
            For the legend; None is the name of the class.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.errorbar``.
        """
        if (X is None) != (y is None):
            raise ValueError("give both X and y, or neither to look at the training rows")
        if X is None:
            rows = honest_rows(estimator)
            weights = rows.weights if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
            cells = np.arange(weights.size) if rows.cells is None else rows.cells
            half = leave_halves_out(
                rows.class_index,
                np.exp(rows.log_proba),
                cells,
                sample_weight=weights,
                random_state=random_state,
            )
            classes, y = rows.classes, rows.classes[rows.class_index[half.rows]]
            proba, sample_weight = half.proba, half.weights
        else:
            classes, proba = estimator.classes_, estimator.predict_proba(X)
        return cls.from_predictions(
            y,  # type: ignore[arg-type]
            proba,
            classes=classes,
            kind=kind,
            pos_label=pos_label,
            n_bins=n_bins,
            sample_weight=sample_weight,
            n_resamples=n_resamples,
            random_state=random_state,
            name=_name(estimator) if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_proba: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        kind: Kind = "top-label",
        pos_label: Any = None,
        n_bins: int | None = 10,
        sample_weight: ArrayLike | None = None,
        n_resamples: int = 200,
        random_state: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the reliability of probabilities.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            True classes.
        y_proba : array-like of shape (n, K) or (n,)
            Class probabilities; of two classes those of the second are enough.
        classes : array-like of shape (K,) or None
            The classes of the columns; None: the different labels of ``y_true``, sorted.
        kind : {"top-label", "class-wise"}
            Of the most probable class of every row, or of every class in turn.
        pos_label : label or None
            One class only; its probability is looked at whatever the kind.
        n_bins : int or None
            How many bins at most; None: one for every distinct probability.
        sample_weight : array-like of shape (n,) or None
            Row weights.
        n_resamples : int
            How often to draw for the intervals of the calibration error.
        random_state : int, RandomState instance or None
            For these draws.
        name : str or None
            Of what gave the probabilities, for the legend.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.errorbar``.

        Returns
        -------
        display : ReliabilityDisplay
            What was drawn.
        """
        if kind not in ("top-label", "class-wise"):
            raise ValueError(f"kind must be 'top-label' or 'class-wise', not {kind!r}")
        proba = np.asarray(y_proba, dtype=np.float64)
        proba = np.column_stack([1.0 - proba, proba]) if proba.ndim == 1 else proba
        known = np.unique(np.asarray(y_true)) if classes is None else np.asarray(classes)
        if proba.shape[1] != known.size:
            raise ValueError(
                f"the probabilities have {proba.shape[1]} columns but there are {known.size} classes: name the "
                "columns' classes with classes="
            )
        index = np.array([_position(known, label) for label in np.asarray(y_true).tolist()])
        asked: list[int | None] = [None]
        if pos_label is not None:
            asked = [_position(known, pos_label)]
        elif kind == "class-wise":
            asked = list(range(known.size))
        weights = (
            np.ones(index.size) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        )
        names = class_names(known)

        def reliability(of: int | None) -> Reliability:
            curve = reliability_curve(index, proba, of=of, n_bins=n_bins, sample_weight=weights)
            values = proba.max(axis=1) if of is None else proba[:, of]
            error = calibration_interval(
                # Of one class, the event against its opposite.
                index if of is None else (index == of).astype(int),
                proba if of is None else np.column_stack([1.0 - values, values]),
                kind="top-label" if of is None else "class-wise",
                n_bins=n_bins,
                n_resamples=n_resamples,
                sample_weight=weights,
                random_state=random_state,
            )
            error = replace(error, estimate=curve.error)
            return Reliability(None if of is None else names[of], curve, error, values, weights)

        return cls([reliability(of) for of in asked], name=name).plot(ax, **kwargs)

    def plot(
        self, ax: Any = None, *, name: str | None = None, ref_line: bool = True, **kwargs: Any
    ) -> ReliabilityDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes or None
            Where to draw, those of another display to compare with it; None for new axes.
        name : str or None
            For the legend, in place of the display's own.
        ref_line : bool
            Whether to draw the diagonal.
        **kwargs
            Handed to ``Axes.errorbar``.

        Returns
        -------
        ReliabilityDisplay
            Itself.
        """
        self.ax_, self.figure_ = axes_for(ax, (5.2, 6.0))
        self.histogram_ax_ = self._histogram_axes()
        if ref_line and _REFERENCE not in self.ax_.get_legend_handles_labels()[1]:
            self.ax_.plot([0, 1], [0, 1], "k:", linewidth=1.0, label=_REFERENCE)
        self.lines_ = [self._draw(one, self.name if name is None else name, kwargs) for one in self.curves]
        whose = "the class"
        if len(self.curves) == 1:
            of = self.curves[0].label
            whose = "the most probable class" if of is None else f"class {of}"
        self.ax_.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
        self.ax_.tick_params(labelbottom=False)
        self.histogram_ax_.set(xlabel=f"probability of {whose}", ylabel="share of rows")
        self.ax_.legend(loc="lower right", fontsize="small", framealpha=0.85)
        return self

    def _histogram_axes(self) -> Any:
        """Return the axes beneath, which another display may have made."""
        for child in self.ax_.child_axes:
            if child.get_label() == _HISTOGRAM:
                return child
        keep_inside(self.ax_, below=_GAP + _HEIGHT)
        bounds = (0.0, -_GAP - _HEIGHT, 1.0, _HEIGHT)
        return self.ax_.inset_axes(bounds, sharex=self.ax_, label=_HISTOGRAM)

    def _draw(self, one: Reliability, name: str | None, kwargs: dict[str, Any]) -> Any:
        curve, error = one.curve, one.error
        who = ", ".join(part for part in (name if len(self.curves) == 1 else None, one.label) if part)
        label = f"{who}{': ' if who else ''}ECE {error.estimate:.3f} ({error.low:.3f}–{error.high:.3f})"
        bars = np.maximum([curve.observed - curve.low, curve.high - curve.observed], 0.0)
        defaults = {"marker": "o", "markersize": 4, "linewidth": 1.2, "elinewidth": 0.8, "capsize": 2}
        line = self.ax_.errorbar(
            curve.predicted, curve.observed, bars, **(defaults | {"label": label} | kwargs)
        )
        share = one.weights / one.weights.sum()
        colour = line.lines[0].get_color()
        self.histogram_ax_.hist(
            one.probabilities, _HISTOGRAM_BINS, weights=share, histtype="step", color=colour, linewidth=1.2
        )
        return line


def _position(classes: Array, label: Any) -> int:
    """Return the column of a class."""
    found = np.flatnonzero(classes == label)
    if found.size != 1:
        raise ValueError(f"{label!r} is none of the classes {classes.tolist()}")
    return int(found[0])


def _name(estimator: Any) -> str:
    """Return the name of the class, of the last step where it is a Pipeline."""
    return type(estimator[-1] if isinstance(estimator, Pipeline) else estimator).__name__
