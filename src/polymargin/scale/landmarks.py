"""Which rows are landmarks: drawn at random, next to the centres of k-means, or greedily."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin.kernels import Kernel
from polymargin.rows import TrainingRows
from polymargin.scale.settings import LandmarkRule

Array = NDArray[Any]

#: Greedy pivots end where no row has more than this part of its K(x, x) left.
_NOTHING_LEFT = 1e-10


def choose_landmarks(rows: TrainingRows, gamma: float, n_landmarks: int, rule: LandmarkRule) -> Array:
    """Return the rows of a sample that are to be landmarks, ascending.

    Parameters
    ----------
    rows : TrainingRows
        A sample of the training rows, with the kernel.
    gamma : float
        The kernel's parameter.
    n_landmarks : int
        Their number; fewer if the sample has fewer rows, or "cholesky" finds that fewer explain all of it.
    rule : {"uniform", "kmeans", "cholesky"}
        How they are chosen, see `polymargin.scale.ScaleSettings`.

    Returns
    -------
    ndarray of int
    """
    n = rows.class_index.size
    if n <= n_landmarks:
        return np.arange(n)
    # Landmarks may be of one group; rows in the order of the deal, class by class in turn, are a stratified sample in
    # an order that does not depend on the given one.
    deal = rows.deal if rows.groups is None else replace(rows, groups=None).shuffled(rows.deal.seed).deal
    position = deal.place / np.bincount(rows.class_index)[rows.class_index]
    order = np.lexsort([deal.turn[rows.class_index], position])
    if rule == "uniform":
        chosen = np.arange(n_landmarks)
    elif rule == "cholesky":
        chosen = pivoted_cholesky(rows.kernel, gamma, rows.X[order], n_landmarks)[0]
    else:
        from sklearn.cluster import MiniBatchKMeans  # slow to import
        from sklearn.metrics import pairwise_distances_argmin

        scaled = rows.kernel.scaled(rows.X[order])
        centres = MiniBatchKMeans(n_landmarks, n_init=1, random_state=deal.seed).fit(scaled)
        chosen = np.unique(pairwise_distances_argmin(centres.cluster_centers_, scaled))
    return np.sort(order[chosen])


def pivoted_cholesky(kernel: Kernel, gamma: float, X: Any, n_pivots: int) -> tuple[Array, Array]:
    """Choose rows greedily, each time the one that those before explain least.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    gamma : float
        Its parameter.
    X : array or sparse matrix of shape (n, d)
        Rows.
    n_pivots : int
        How many to choose; fewer are chosen if they explain all rows.

    Returns
    -------
    pivots : ndarray of int, shape (r,)
        The rows, in the order of their choice.
    errors : ndarray of shape (r,)
        The trace of K − K_:P K_PP⁻¹ K_P: after each choice: an upper bound of the error of the kernel matrix in any
        unitarily invariant norm.

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> pivoted_cholesky(Linear(), 1.0, np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), 3)
    (array([1, 2]), array([4., 0.]))
    """
    residual = np.array(kernel.diagonal(X, gamma), dtype=np.float64)
    least = _NOTHING_LEFT * float(residual.max())
    to_rows = kernel.to_rows(X)
    factors = np.empty((min(n_pivots, residual.size), residual.size))
    pivots: list[int] = []
    errors: list[float] = []
    for number in range(len(factors)):
        pivot = int(residual.argmax())
        if residual[pivot] <= least:
            break
        row = X[[pivot]] if sparse.issparse(X) else X[pivot : pivot + 1]
        column = kernel.apply(to_rows(row), gamma)[0].astype(np.float64)
        column -= factors[:number, pivot] @ factors[:number]
        column /= np.sqrt(residual[pivot])
        factors[number] = column
        residual = np.maximum(residual - np.square(column), 0.0)
        residual[pivot] = 0.0
        pivots.append(pivot)
        errors.append(float(residual.sum()))
    return np.array(pivots, dtype=np.intp), np.array(errors)
