"""The rows of the experiments: the third for testing, the ten folds, and what every machine on a fold shares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.model_selection import StratifiedKFold, train_test_split

from polymargin.datasets import load_for
from polymargin.reproduction import ReproductionError, derive_seed, standardise

__all__ = ["FOLDS", "TEST", "Split", "evaluation_split", "load_rows"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: The ten folds are numbered 1 … 10; 1 and 2 are the two halves of the first replication.
FOLDS = tuple(range(1, 11))
#: Stands for a fold's number where the machine is trained on the whole two thirds.
TEST = 0


@dataclass(frozen=True)
class Split:
    """Standardised training and test rows, and what is computed from them once.

    Attributes
    ----------
    X, z : array of shape (n, d) and (n,)
        Training rows and their classes 0 … K−1.
    X_new, z_new : array of shape (m, d) and (m,)
        Validation or test rows.
    n_classes : int
    """

    X: Array
    z: Index
    X_new: Array
    z_new: Index
    n_classes: int

    @cached_property
    def squared(self) -> Array:
        """‖x_i − x_j‖² among the training rows."""
        return np.asarray(cdist(self.X, self.X, "sqeuclidean"), dtype=np.float64)

    @cached_property
    def squared_new(self) -> Array:
        """‖x − x_j‖² from the new rows (n_new, n) to the training rows."""
        return np.asarray(cdist(self.X_new, self.X, "sqeuclidean"), dtype=np.float64)

    @cached_property
    def inner(self) -> Array:
        """x_i·x_j among the training rows."""
        return self.X @ self.X.T

    @cached_property
    def inner_new(self) -> Array:
        """x·x_j from the new rows to the training rows."""
        return self.X_new @ self.X.T

    @cached_property
    def r0(self) -> float:
        """The mean distance of a training row to its nearest neighbour."""
        others = self.squared.copy()
        np.fill_diagonal(others, np.inf)
        return float(np.sqrt(others.min(axis=1)).mean())

    @cached_property
    def neighbours(self) -> Index:
        """The training rows by their distance from each training row: itself, then the nearest, ties by number."""
        order = self.squared.copy()
        np.fill_diagonal(order, -1.0)
        return _nearest(order)

    @cached_property
    def neighbours_new(self) -> Index:
        """The nearest training rows of each new row, ties by number."""
        return _nearest(self.squared_new)

    def gram(self, kernel: str) -> tuple[Array, Array]:
        """Return K(x_i, x_j) among the training rows, and from the new rows to the training rows.

        ``"L"`` is linear, ``"P2"`` the polynomial (x·y + 1)², ``"R4"`` the RBF exp(−‖x − y‖²/s²) with s = 4 r0.
        """
        if kernel[0] == "R":
            return _apply(kernel, self.squared, self.r0), _apply(kernel, self.squared_new, self.r0)
        return _apply(kernel, self.inner, self.r0), _apply(kernel, self.inner_new, self.r0)

    def kernel_rows(self, kernel: str, columns: Index) -> Array:
        """Return K from the new rows to some of the training rows, computed from the features."""
        some = self.X[columns]
        base = cdist(self.X_new, some, "sqeuclidean") if kernel[0] == "R" else self.X_new @ some.T
        return _apply(kernel, base, self.r0)


def _apply(kernel: str, base: Array, r0: float) -> Array:
    """Return a kernel of inner products, or for the RBF of squared distances."""
    family, number = kernel[0], int(kernel[1:] or 0)
    if family == "L":
        return base
    if family == "P":
        return np.asarray((base + 1.0) ** number, dtype=np.float64)
    if family == "R":
        return np.asarray(np.exp(base / -((number * r0) ** 2)), dtype=np.float64)
    raise ReproductionError(f"no kernel {kernel!r}; there are L, P2, P3, … and R1, R2, …")


def _nearest(distances: Array, most: int = 64) -> Index:
    """Return the numbers of the nearest columns of each row, at most so many, ties by number."""
    return np.argsort(distances, axis=1, kind="stable")[:, :most]


@lru_cache(maxsize=4)
def load_rows(dataset: str) -> tuple[Array, Index]:
    """Return a dataset's features, and its classes numbered from zero."""
    data = load_for("gonen2008", dataset)
    return np.asarray(data.X, dtype=float), np.unique(data.y, return_inverse=True)[1]


@lru_cache(maxsize=1)
def evaluation_split(dataset: str, fold: int, seed: int) -> Split:
    """Return one of the ten folds, or for ``TEST`` the two thirds and the third, standardised by the training rows.

    Which rows these are depends on the dataset, the fold and the seed alone, so that all machines use the same.
    """
    X, z = load_rows(dataset)
    everyone = np.arange(z.size)
    rest, test = train_test_split(
        everyone, test_size=1 / 3, stratify=z, random_state=derive_seed(seed, dataset)
    )
    train, new = rest, test
    if fold != TEST:
        replication, half = divmod(fold - 1, 2)
        halves = StratifiedKFold(2, shuffle=True, random_state=derive_seed(seed, dataset, replication))
        train, new = list(halves.split(rest, z[rest]))[half]
        train, new = rest[train], rest[new]
    X_train, X_new = standardise(X[train], X[new])
    return Split(X_train, z[train], X_new, z[new], int(z.max()) + 1)
