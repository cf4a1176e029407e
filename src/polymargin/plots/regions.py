"""DecisionRegionDisplay: how the classes divide a plane, with colours blended by their probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from polymargin.plots._matplotlib import axes_for, class_colours, class_names

Array = NDArray[Any]


@dataclass(frozen=True)
class DecisionRegions:
    """Class probabilities on a grid in a plane.

    Attributes
    ----------
    x, y : ndarray of shape (m,)
        The grid's coordinates.
    proba : ndarray of shape (m, m, K)
        The probabilities at (y, x); of labels without probabilities, ones and zeros.
    classes : ndarray of shape (K,)
        The classes.
    points : ndarray of shape (n, 2)
        The rows in the plane.
    labels : ndarray of int, shape (n,), or None
        Their classes, as positions in ``classes``.
    axis_names : tuple of two str
        What the coordinates are.
    """

    x: Array
    y: Array
    proba: Array
    classes: Array
    points: Array
    labels: Array | None
    axis_names: tuple[str, str]


@dataclass(frozen=True)
class _Plane:
    """The plane centre + scale · (coordinates @ directions) in the space of the features."""

    centre: Array
    scale: Array
    directions: Array
    axis_names: tuple[str, str]

    def coordinates(self, X: Array) -> Array:
        return ((X - self.centre) / self.scale) @ self.directions.T

    def rows(self, coordinates: Array) -> Array:
        return self.centre + self.scale * (coordinates @ self.directions)


def decision_regions(
    estimator: Any, X: Any, y: ArrayLike | None = None, *, resolution: int = 120, margin: float = 0.1
) -> DecisionRegions:
    """Evaluate a fitted classifier on a grid.

    Of two features the grid is the plane itself. Of more it is the plane through the mean of the rows along their first
    two principal components, every feature taken in units of its standard deviation: the prediction shown is
    that of rows that are average in all other directions.

    Parameters
    ----------
    estimator : classifier
        Fitted; a Pipeline too. Without `predict_proba` its labels are shown.
    X : array-like of shape (n, d)
        Rows, for example the training rows; numbers only.
    y : array-like of shape (n,) or None
        Their classes.
    resolution : int
        Points of the grid along each axis.
    margin : float
        How far the grid reaches beyond the rows, as a share of their range.

    Returns
    -------
    DecisionRegions

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> regions = decision_regions(LSSVMClassifier(kernel="linear").fit(X, y), X, y, resolution=10)
    >>> regions.proba.shape, regions.axis_names
    ((10, 10, 3), ('component 1 (73 %)', 'component 2 (23 %)'))
    """
    rows = _numbers(X)
    if resolution < 2:
        raise ValueError(f"resolution must be at least 2, not {resolution!r}")
    plane = _plane(rows, _feature_names(X, rows.shape[1]))
    points = plane.coordinates(rows)
    low, high = points.min(axis=0), points.max(axis=0)
    reach = margin * np.where(high > low, high - low, 1.0)
    x, y_axis = np.linspace(low - reach, high + reach, resolution).T
    grid = np.stack(np.meshgrid(x, y_axis), axis=-1).reshape(-1, 2)
    proba = _probabilities(estimator, _as_given(plane.rows(grid), X))
    classes = np.asarray(estimator.classes_)
    labels = None if y is None else _positions(classes, y)
    return DecisionRegions(
        x, y_axis, proba.reshape(resolution, resolution, -1), classes, points, labels, plane.axis_names
    )


def _numbers(X: Any) -> Array:
    dense = X.toarray() if sparse.issparse(X) else X
    try:
        rows = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("decision regions need features that are all numbers") from error
    if rows.ndim != 2 or rows.shape[0] < 2 or rows.shape[1] < 2 or not np.isfinite(rows).all():
        raise ValueError(
            f"decision regions need two or more rows and features without gaps, not {rows.shape}"
        )
    return rows


def _feature_names(X: Any, n_features: int) -> list[str]:
    names = getattr(X, "columns", None)
    return (
        [f"feature {number}" for number in range(n_features)]
        if names is None
        else [str(name) for name in names]
    )


def _plane(rows: Array, names: list[str]) -> _Plane:
    """Return the plane of two features, or of the first two principal components."""
    if rows.shape[1] == 2:
        return _Plane(np.zeros(2), np.ones(2), np.eye(2), (names[0], names[1]))
    centre, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    _, spread, directions = np.linalg.svd((rows - centre) / scale, full_matrices=False)
    # The sign of a component is arbitrary; its largest entry is made positive, so that pictures can be compared.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, np.newaxis], axis=1)
    directions = (directions * np.sign(largest))[:2]
    share = 100.0 * np.square(spread) / max(float(np.square(spread).sum()), 1e-300)
    return _Plane(
        centre, scale, directions, (f"component 1 ({share[0]:.0f} %)", f"component 2 ({share[1]:.0f} %)")
    )


def _as_given(rows: Array, X: Any) -> Any:
    """Return rows as the pandas table that X is, with its columns' names, if it is one."""
    return type(X)(rows, columns=X.columns) if hasattr(X, "iloc") else rows


def _probabilities(estimator: Any, rows: Any) -> Array:
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(rows))
    return np.eye(len(estimator.classes_))[
        _positions(np.asarray(estimator.classes_), estimator.predict(rows))
    ]


def _positions(classes: Array, labels: ArrayLike) -> Array:
    found = np.asarray(labels)[:, np.newaxis] == classes
    if not found.any(axis=1).all():
        raise ValueError(f"y holds labels that are none of the classes {classes.tolist()}")
    return found.argmax(axis=1)


class DecisionRegionDisplay:
    """The regions of the classes in a plane: colours are blended by the class probabilities, lines part the labels.

    It is recommended to make it with `from_estimator` or `from_predictions`.

    Parameters
    ----------
    regions : DecisionRegions
        What to draw.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn, after `plot`.
    image_ : matplotlib AxesImage
        The regions.
    points_ : list of matplotlib PathCollection
        The rows, class by class.
    colours_ : ndarray of shape (K, 3)
        The classes' colours.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.plots import DecisionRegionDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LSSVMClassifier(kernel="linear").fit(X, y)
    >>> display = DecisionRegionDisplay.from_estimator(model, X, y, resolution=20)
    >>> display.ax_.get_xlabel()
    'component 1 (73 %)'
    """

    def __init__(self, regions: DecisionRegions):
        self.regions = regions

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        resolution: int = 120,
        margin: float = 0.1,
        ax: Any = None,
        **kwargs: Any,
    ) -> DecisionRegionDisplay:
        """Draw what a fitted classifier says of a plane, see `decision_regions`.

        Parameters
        ----------
        estimator : classifier
            Fitted; a Pipeline too. Without `predict_proba` its labels are shown.
        X : array-like of shape (n, d)
            Rows, for example the training rows; numbers only.
        y : array-like of shape (n,) or None
            Their classes.
        resolution : int
            Points of the grid along each axis.
        margin : float
            How far the grid reaches beyond the rows, as a share of their range.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.scatter``, which draws the rows.

        Returns
        -------
        display : DecisionRegionDisplay
            What was drawn.
        """
        regions = decision_regions(estimator, X, y, resolution=resolution, margin=margin)
        return cls(regions).plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        proba: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        axis_names: tuple[str, str] = ("", ""),
        ax: Any = None,
        **kwargs: Any,
    ) -> DecisionRegionDisplay:
        """Draw probabilities on a grid.

        Parameters
        ----------
        x, y : array-like of shape (m,) and (l,)
            The grid's coordinates, evenly spaced.
        proba : array-like of shape (l, m, K)
            The class probabilities at (y, x).
        classes : array-like of shape (K,) or None
            The names of the classes; None for 0, …, K−1.
        axis_names : tuple of two str
            What the coordinates are.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Of no use here, since there are no rows.
        """
        p = np.asarray(proba, dtype=np.float64)
        across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if p.ndim != 3 or p.shape[:2] != (up.size, across.size):
            raise ValueError(
                f"proba must have the shape (len(y), len(x), K) = ({up.size}, {across.size}, K), not {p.shape}"
            )
        names = np.arange(p.shape[2]) if classes is None else np.asarray(classes)
        regions = DecisionRegions(across, up, p, names, np.empty((0, 2)), None, axis_names)
        return cls(regions).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> DecisionRegionDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.scatter``, which draws the rows.

        Returns
        -------
        DecisionRegionDisplay
            Itself.
        """
        regions = self.regions
        self.ax_, self.figure_ = axes_for(ax, (6.0, 4.8))
        self.colours_ = class_colours(regions.classes.size)
        x, y = regions.x, regions.y
        step_x, step_y = 0.5 * (x[1] - x[0]), 0.5 * (y[1] - y[0])
        self.image_ = self.ax_.imshow(
            self.blended,
            extent=(x[0] - step_x, x[-1] + step_x, y[0] - step_y, y[-1] + step_y),
            origin="lower",
            aspect="auto",
            interpolation="bilinear",
        )
        self._part_labels()
        self._draw_points(kwargs)
        self.ax_.set(xlabel=regions.axis_names[0], ylabel=regions.axis_names[1])
        return self

    @property
    def blended(self) -> Array:
        """The colours of the grid, shape (m, m, 3): the classes' own, mixed by probability, in a lighter tone."""
        pale = 0.55 + 0.45 * class_colours(self.regions.classes.size)
        return np.clip(self.regions.proba @ pale, 0.0, 1.0)

    def _part_labels(self) -> None:
        """Draw a line around the region of every class."""
        proba = self.regions.proba
        for k in range(proba.shape[2]):
            ahead = proba[:, :, k] - np.delete(proba, k, axis=2).max(axis=2)
            if ahead.min() < 0.0 < ahead.max():
                self.ax_.contour(
                    self.regions.x, self.regions.y, ahead, levels=[0.0], colors="white", linewidths=1.0
                )

    def _draw_points(self, kwargs: dict[str, Any]) -> None:
        """Draw the rows, or, where there are none, name the colours."""
        regions = self.regions
        defaults = {"s": 18, "linewidths": 0.5, "edgecolors": "white"}
        self.points_ = []
        if regions.labels is None and len(regions.points):
            self.points_ = [self.ax_.scatter(*regions.points.T, **(defaults | {"color": "#333333"} | kwargs))]
        for k, name in enumerate(class_names(regions.classes)):
            rows = np.empty((0, 2)) if regions.labels is None else regions.points[regions.labels == k]
            options = defaults | {"color": self.colours_[k], "label": name} | kwargs
            self.points_.append(self.ax_.scatter(*rows.T, **options))
        columns = int(np.ceil(regions.classes.size / 12))
        self.ax_.legend(
            fontsize="small", framealpha=0.85, ncols=columns, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
