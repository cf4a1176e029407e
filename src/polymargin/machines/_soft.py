"""Sources of soft labels: given by the user, or estimated from the neighbours of a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class SoftLabels(Protocol):
    """Callable that returns the soft labels of a training set."""

    def __call__(self, weights: Array) -> Array:
        """Return the soft labels, shape (n, K), of a training set with these row weights, shape (n,).

        Rows of weight zero are held out: they must not influence the labels of the others, and their own are not used.
        """
        ...


@dataclass(frozen=True)
class GivenLabels:
    """Soft labels that are given by the user."""

    labels: Array

    def __call__(self, weights: Array) -> Array:
        """Return the labels, which do not depend on the weights."""
        return self.labels


@dataclass(frozen=True)
class DensityLabels:
    """Soft labels estimated from the neighbours of a row among the rows that are not held out.

    The label of a row depends on the classes of its neighbours. To avoid a leak, a machine trained without some rows
    needs labels that are estimated without these rows.
    """

    density: Any
    X: Any
    class_index: Array
    weights: Array
    n_classes: int

    @cached_property
    def of_all(self) -> Array:
        """The soft labels where no row is held out, shape (n, K)."""
        return self.density.soft_labels(self.X, self.class_index, self.weights, self.n_classes)

    def __call__(self, weights: Array) -> Array:
        """Return the labels estimated from the rows of positive weight; cached for the full training set."""
        if np.array_equal(weights, self.weights):
            return self.of_all
        return self.density.soft_labels(self.X, self.class_index, weights, self.n_classes)
