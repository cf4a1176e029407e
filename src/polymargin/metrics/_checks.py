"""Checks of what metrics are given: classes, probabilities and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def checked(
    class_index: ArrayLike, proba: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return classes, probabilities and weights of the rows that count."""
    index, p = indices(class_index), np.asarray(proba, dtype=np.float64)
    check_classes(index, p)
    check_proba(p, "proba")
    weights = row_weights(sample_weight, index.size)
    rows = weights > 0.0
    return (index, p, weights) if rows.all() else (index[rows], p[rows], weights[rows])


def indices(class_index: ArrayLike) -> Array:
    index = np.asarray(class_index)
    if index.ndim != 1 or index.size == 0 or not np.issubdtype(index.dtype, np.integer):
        raise ValueError(
            "class_index must be a list of whole numbers, the columns of the true classes: "
            "np.searchsorted(model.classes_, y) makes them of labels"
        )
    return index


def check_classes(index: Array, p: Array) -> None:
    if p.ndim != 2 or len(p) != index.size:
        raise ValueError(f"the probabilities must have shape ({index.size}, K), not {p.shape}")
    if index.min() < 0 or index.max() >= p.shape[1]:
        raise ValueError(f"class_index must lie between 0 and {p.shape[1] - 1}, one column per class")


def check_proba(p: Array, name: str) -> None:
    if not (p >= 0.0).all() or not np.allclose(p.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError(f"{name} must hold probabilities: none negative, each row with sum one")


def row_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    if sample_weight is None:
        return np.ones(n)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have one weight for each of the {n} rows, not shape {weights.shape}"
        )
    if not np.isfinite(weights).all() or (weights < 0.0).any() or not weights.any():
        raise ValueError("sample_weight must be finite and not negative, and not zero for all rows")
    return weights
