"""Bins of equal mass.

Bins hold equal numbers of rows (of weight, if rows have weights), and rows of equal probability are never parted: a
probability that many rows share is one bin however many rows that is, and constant probabilities make one bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: How many bins there are at most, unless a number is given.
BINS = 15


@dataclass(frozen=True)
class Bins:
    """Which bin each row is in, bins in order and none of them empty."""

    number: Array
    weights: Array
    mass: Array

    @classmethod
    def of(cls, values: Array, weights: Array, n_bins: int | None) -> Bins:
        """Cut values into bins of equal weight; a distinct value goes where the middle of its weight lies."""
        distinct, place = np.unique(values, return_inverse=True)
        if n_bins is not None:
            if n_bins < 1:
                raise ValueError(f"n_bins must be None or at least 1, not {n_bins!r}")
            mass = np.bincount(place, weights, minlength=distinct.size)
            middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
            _, filled = np.unique(
                np.minimum((middle * n_bins).astype(np.intp), n_bins - 1), return_inverse=True
            )
            place = filled[place]
        return cls(place, weights, np.bincount(place, weights))

    @property
    def share(self) -> Array:
        return self.mass / self.mass.sum()

    def mean(self, values: Array) -> Array:
        """Return the weighted mean of values in every bin."""
        return np.bincount(self.number, self.weights * values) / self.mass
