"""Posterior probabilities from neighbours: the paper's eqs. (14) and (15)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.gonen2008.rows import Split
from polymargin.reproduction import ReproductionError

__all__ = ["HARD", "posteriors", "posteriors_of_new"]

Array = NDArray[np.float64]

#: Stands for a density where there is none: the canonical SVM.
HARD = "hard"


def posteriors(split: Split, density: str) -> Array:
    """Return P of the training rows, shape (n, K); a row counts as its own neighbour.

    ``"knn5"`` are the five nearest rows, ``"win2"`` those at most 2 r0 away, ``"hard"`` the row alone.
    """
    one_hot = np.eye(split.n_classes)[split.z]
    if density == HARD:
        return one_hot
    kind, number = density[:3], int(density[3:])
    if kind == "knn":
        return _mean_of(one_hot, split.neighbours[:, :number])
    if kind == "win":
        return _inside(one_hot, split.squared, number * split.r0)
    raise ReproductionError(f"no density {density!r}; there are hard, knn3, knn5, … and win1, win2, …")


def posteriors_of_new(split: Split, density: str) -> Array:
    """Return P of the new rows, shape (n_new, K); an empty window gives the frequencies of the classes."""
    one_hot = np.eye(split.n_classes)[split.z]
    number = int(density[3:])
    if density.startswith("knn"):
        return _mean_of(one_hot, split.neighbours_new[:, :number])
    return _inside(one_hot, split.squared_new, number * split.r0)


def _mean_of(one_hot: Array, neighbours: NDArray[np.intp]) -> Array:
    if neighbours.shape[1] == 0:
        raise ReproductionError("at least one neighbour is needed")
    return np.asarray(one_hot[neighbours].mean(axis=1), dtype=np.float64)


def _inside(one_hot: Array, squared: Array, radius: float) -> Array:
    inside = (squared <= radius * radius).astype(np.float64)
    counts = inside @ one_hot
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, counts / np.maximum(total, 1.0), one_hot.mean(axis=0))
