"""Where the soft labels of training rows come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class SoftLabels(Protocol):
    """Gives the class probabilities of the rows that a machine is trained on."""

    def __call__(self, weights: Array) -> Array:
        """Return the soft labels, shape (n, K), of a training set of these row weights.

        Rows of weight zero are held out: nothing may be learned from them, and what is returned for them is not used.
        """
        ...


@dataclass(frozen=True)
class GivenLabels:
    """Soft labels that the user brings."""

    labels: Array

    def __call__(self, weights: Array) -> Array:
        """Return the labels, which depend on no other row."""
        return self.labels


@dataclass(frozen=True)
class DensityLabels:
    """Soft labels estimated from the neighbours of a row among the rows that are not held out.

    The label of a row depends on the classes of its neighbours, so a machine that is not to know some rows must be
    trained on labels that do not know them either.
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
        """Estimate the labels."""
        if np.array_equal(weights, self.weights):
            return self.of_all
        return self.density.soft_labels(self.X, self.class_index, weights, self.n_classes)
