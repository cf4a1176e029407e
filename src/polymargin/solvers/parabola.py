"""The parabola through three points: its lowest point and its curvature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def curvature(places: Array, values: Array) -> float:
    """Return the second derivative of the parabola through three points.

    Parameters
    ----------
    places, values : array-like of shape (3,)
        The points, in the order of their places.

    Returns
    -------
    float

    Examples
    --------
    >>> curvature([0.0, 1.0, 3.0], [0.0, 1.0, 9.0])
    2.0
    """
    slopes = np.diff(values) / np.diff(places)
    return float(2.0 * (slopes[1] - slopes[0]) / (places[2] - places[0]))


def vertex(places: Array, values: Array) -> float:
    """Return the lowest point of the parabola through three points; the middle place if it has none.

    Parameters
    ----------
    places, values : array-like of shape (3,)
        The points, in the order of their places; the middle value is the least.

    Returns
    -------
    float

    Examples
    --------
    >>> vertex([0.0, 1.0, 3.0], [0.25, 0.25, 6.25]), vertex([0.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    (0.5, 1.0)
    """
    bend = curvature(places, values)
    if not 0.0 < bend < np.inf:
        return float(places[1])
    gaps = np.diff(places)
    slopes = np.diff(values) / gaps
    # At the middle place the slope is the mean of those of the chords, the shorter chord counting more.
    slope = (slopes[0] * gaps[1] + slopes[1] * gaps[0]) / (places[2] - places[0])
    return float(places[1] - slope / bend)
