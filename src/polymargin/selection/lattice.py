"""Search for gamma on a lattice of values, from coarse to fine, extended where the best lies on an edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count

Array = NDArray[Any]


@dataclass(frozen=True)
class ChosenParameters:
    """Parameters chosen for a pool of columns, and their score: the larger the better."""

    gamma: float
    ridge: float
    score: float


#: The columns that share their parameters: for each group of rows, some of its columns (positions in the group).
Pool = Sequence[tuple[int, Array]]

#: gamma is searched on the lattice unit · 2^(k/2): on these points with a sample of the rows first, then with more
#: rows at steps of two and of one from the best. A best point on an edge moves the range, within the limit, as long
#: as a step gains more than the least gain: a kernel so wide that it is as good as linear gains nothing any more.
COARSE, STEPS, LIMIT = range(-16, 9, 4), (2, 1), 32
#: Number of kernels tried for a pool if the range is not extended: all coarse ones, then three, then two more.
N_KERNELS = len(COARSE) + 5


def search(
    attempt: Callable[[int, bool], ChosenParameters], *, least_gain: Callable[[float], float], count: Count
) -> ChosenParameters:
    """Return the best choice on the lattice.

    Parameters
    ----------
    attempt : callable (point, sample) -> ChosenParameters
        The best choice with gamma at a point of the lattice, scored on a sample of the rows or on all.
    least_gain : callable float -> float
        The least gain, given the best score so far, for which the range is extended further.
    count : Count
        The progress count; its total grows where the range is extended.
    """
    sampled: dict[int, ChosenParameters] = {}
    best = climb(lambda point: attempt(point, True), sampled, COARSE, COARSE.step, least_gain, count)
    exact: dict[int, ChosenParameters] = {}
    for step in STEPS:
        points = (best - step, best, best + step)
        best = climb(lambda point: attempt(point, False), exact, points, step, least_gain, count)
    return exact[best]


def climb(
    attempt: Callable[[int], ChosenParameters],
    tried: dict[int, ChosenParameters],
    points: Sequence[int],
    step: int,
    least_gain: Callable[[float], float],
    count: Count,
) -> int:
    """Try the points, extend the range by steps while the best lies on an edge, and return the best."""
    while True:
        for point in points:
            if point not in tried:
                tried[point] = attempt(point)
        best = max(tried, key=lambda point: tried[point].score)
        inner = min((point for point in tried if point != best), key=lambda point: abs(point - best))
        gain = tried[best].score - tried[inner].score
        edge = best in (min(tried), max(tried))
        if not edge or abs(best) >= LIMIT or gain < least_gain(tried[best].score):
            return best
        points = [point for point in (best - step, best + step) if point not in tried]
        count.expect(len(points))


def rounded(value: float) -> float:
    """Return the value rounded to eight digits, so that scores equal up to rounding are ties."""
    return float(f"{value:.8g}")


def log_grid(low: float, high: float, per_decade: int = 3) -> Array:
    """Return logarithms from low to high, evenly spaced."""
    return np.linspace(low, high, 1 + per_decade * round((high - low) / np.log(10.0)))
