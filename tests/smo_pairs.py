"""One-vs-one by SMO: every pair of classes, one fit or a path of C, all decision values together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers.smo import DEFAULT_BUDGET, Solution
from polymargin.solvers.smo_dichotomies import Dichotomy, solve_dichotomies_path
from polymargin.solvers.smo_expansion import KernelExpansion
from polymargin.solvers.smo_gram import DenseGram, GramSource, LazyGram

Array = NDArray[np.float64]


def one_vs_one(y: ArrayLike, n_classes: int, C: ArrayLike = 1.0) -> list[Dichotomy]:
    """Return the problems of all pairs of classes, a positive against b > a negative.

    Parameters
    ----------
    y : array of shape (N,)
        Class indices 0 … n_classes − 1.
    n_classes : int
    C : float or array of shape (N,)
        The box of each row.

    Examples
    --------
    >>> [problem.rows.tolist() for problem in one_vs_one([0, 1, 2, 1], 3)]
    [[0, 1, 3], [0, 2], [1, 3, 2]]
    """
    y = np.asarray(y)
    C = np.broadcast_to(np.asarray(C, dtype=np.float64), y.shape)
    members = [np.flatnonzero(y == k) for k in range(n_classes)]
    problems = []
    for a, b in combinations(range(n_classes), 2):
        rows = np.concatenate([members[a], members[b]])
        signs = np.where(y[rows] == a, 1.0, -1.0)
        problems.append(Dichotomy(signs, C[rows], rows))
    return problems


@dataclass(frozen=True)
class PairwiseMachines:
    """One-vs-one: problems, solutions and their joint expansion, in the order of `one_vs_one`."""

    source: GramSource
    problems: list[Dichotomy]
    solutions: list[Solution]
    expansion: KernelExpansion

    def decision_values(self, X: ArrayLike, n_threads: int = 1) -> Array:
        """Return all pairwise decision values of new rows, shape (m, n_classes (n_classes − 1)/2)."""
        if not isinstance(self.source, LazyGram):
            raise TypeError("these machines were fitted on a precomputed Gram matrix: call evaluate(K)")
        return self.expansion.decision_values(self.source, X, n_threads)

    def evaluate(self, K: ArrayLike) -> Array:
        """Return all pairwise decision values from kernel values against the training rows, shape (m, N)."""
        return self.expansion.evaluate(K)


def solve_one_vs_one(
    X: ArrayLike,
    y: ArrayLike,
    n_classes: int,
    C: ArrayLike = 1.0,
    **options: Any,
) -> PairwiseMachines:
    """Solve all pairs of classes; see `solve_one_vs_one_path` for the options.

    Examples
    --------
    >>> machines = solve_one_vs_one([[0.0], [1.0], [2.0]], [0, 1, 2], 3, 10.0, kernel="linear")
    >>> machines.decision_values([[0.0], [2.0]]).round(3)
    array([[ 1.,  1.,  3.],
           [-3., -1., -1.]])
    """
    return solve_one_vs_one_path(X, y, n_classes, C, [1.0], **options)[0]


def solve_one_vs_one_path(
    X: ArrayLike,
    y: ArrayLike,
    n_classes: int,
    C: ArrayLike,
    scales: Sequence[float],
    *,
    kernel: str = "rbf",
    gamma: float = 1.0,
    coef0: float = 0.0,
    degree: int = 3,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_threads: int = 1,
    budget: int = DEFAULT_BUDGET,
) -> list[PairwiseMachines]:
    """Solve all pairs of classes in the boxes ``scale * C``.

    Parameters
    ----------
    X : array of shape (N, d), or the Gram matrix (N, N) if ``kernel="precomputed"``
    y : array of shape (N,)
        Class indices 0 … n_classes − 1.
    n_classes : int
    C : float or array of shape (N,)
    scales : sequence of float
        Factors of C, best in ascending order.
    kernel, gamma, coef0, degree
        See `polymargin.solvers.smo_gram.LazyGram`.
    tol, max_iter, n_threads, budget
        See `solve_dichotomies`.

    Returns
    -------
    list of PairwiseMachines, one for each scale
    """
    source: GramSource
    if kernel == "precomputed":
        source = DenseGram(X)
    else:
        source = LazyGram(X, kernel, gamma=gamma, coef0=coef0, degree=degree)
    problems = one_vs_one(y, n_classes, C)
    path = solve_dichotomies_path(source, problems, scales, tol=tol, max_iter=max_iter, n_threads=n_threads,
                                  budget=budget)  # fmt: skip
    return [
        PairwiseMachines(
            source, problems, solutions, KernelExpansion.join(source.n_rows, problems, solutions)
        )
        for solutions in path
    ]
