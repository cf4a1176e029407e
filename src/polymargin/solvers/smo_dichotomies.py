"""Many two-class problems on one training set: one-vs-one, one-vs-all, any codebook, over a path of C.

Every problem is solved by itself on some rows of one shared Gram source, so the result does not depend on the number
of threads. The solutions make one `Expansion`, which evaluates all decision functions together.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from polymargin.solvers.smo import DEFAULT_BUDGET, Solution, _as_source, _Solver
from polymargin.solvers.smo_gram import DenseGram, GramSource, LazyGram, RowPool

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Rows evaluated at once: a block of kernel values stays in the cache of a core.
_EVALUATE_ROWS = 256


@dataclass(frozen=True)
class Dichotomy:
    """One two-class problem on some rows of a training set.

    Parameters
    ----------
    signs : array of shape (n,)
        −1 or +1.
    upper : float or array of shape (n,)
        The box.
    rows : array of shape (n,), optional
        Which rows of the training set take part; all of them if not given.
    linear : array of shape (n,), optional
        The linear term p, ones if not given.
    """

    signs: ArrayLike
    upper: ArrayLike
    rows: Index | None = None
    linear: ArrayLike | None = None


def solve_dichotomies(
    source: ArrayLike | GramSource,
    problems: Sequence[Dichotomy],
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_threads: int = 1,
    budget: int = DEFAULT_BUDGET,
) -> list[Solution]:
    """Solve every problem; the result is the same for any number of threads.

    Parameters
    ----------
    source : array of shape (N, N), DenseGram or LazyGram
    problems : sequence of L Dichotomy
    tol, max_iter
        See `polymargin.solvers.smo.solve`.
    n_threads : int
        Problems solved at a time.
    budget : int
        Bytes for cached Gram rows, all threads together.

    Examples
    --------
    >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
    >>> signs = np.array([[1, -1], [-1, -1], [-1, 1], [-1, 1]])
    >>> problems = [Dichotomy(signs[:, 0], 10.0), Dichotomy(signs[1:, 1], 10.0, rows=np.array([1, 2, 3]))]
    >>> [solution.support.tolist() for solution in solve_dichotomies(LazyGram(x, "linear"), problems)]
    [[0, 1], [0, 1]]
    """
    paths = solve_dichotomies_path(source, problems, [1.0], tol=tol, max_iter=max_iter, n_threads=n_threads,
                                   budget=budget)  # fmt: skip
    return paths[0]


def solve_dichotomies_path(
    source: ArrayLike | GramSource,
    problems: Sequence[Dichotomy],
    scales: Sequence[float],
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_threads: int = 1,
    budget: int = DEFAULT_BUDGET,
) -> list[list[Solution]]:
    """Solve every problem in the boxes ``scale * upper``; item [k][l] is the solution at scale k of problem l.

    Each solution starts from the one before, best in ascending order; the parameters are those of
    `solve_dichotomies`.
    """
    gram = _as_source(source)
    scales = [float(scale) for scale in scales]
    memory = threading.local()

    def solve_one(problem: Dichotomy) -> list[Solution]:
        if not hasattr(memory, "pool"):
            memory.pool = RowPool(budget // n_threads)
        solver = _Solver(gram, problem.rows, problem.signs, problem.upper, problem.linear, memory.pool)
        return solver.path(scales, tol, max_iter, None)

    if n_threads == 1:
        paths = [solve_one(problem) for problem in problems]
    else:
        # The largest first: a long problem that starts last would leave the other threads idle.
        order = np.argsort([-np.size(problem.signs) for problem in problems], kind="stable")
        with ThreadPoolExecutor(n_threads) as threads:
            futures = {int(k): threads.submit(solve_one, problems[k]) for k in order}
            paths = [futures[k].result() for k in range(len(problems))]
    return [list(solutions) for solutions in zip(*paths, strict=True)] if paths else [[] for _ in scales]


def one_vs_one(y: ArrayLike, n_classes: int, C: ArrayLike = 1.0) -> list[Dichotomy]:
    """Return the n_classes (n_classes − 1)/2 pairwise problems, class a positive against class b > a negative.

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
class Expansion:
    """All decision functions f_l(x) = Σ_i B_il K(x_i, x) + b_l over the union of their support vectors.

    Attributes
    ----------
    support : array of shape (S,)
        Rows of the training set, those that take part in the same problems side by side.
    coefficients : array of shape (S, L)
        B, float64.
    intercepts : array of shape (L,)
    blocks : list of (slice, array)
        Where B is not zero: ranges of support vectors and the columns that they enter.
    """

    support: Index
    coefficients: Array
    intercepts: Array
    blocks: list[tuple[slice, Index]]

    @classmethod
    def join(cls, n_rows: int, problems: Sequence[Dichotomy], solutions: Sequence[Solution]) -> Expansion:
        """Join the solutions of ``problems`` on a training set of n_rows rows.

        Examples
        --------
        >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
        >>> problems = one_vs_one([0, 0, 1, 2], 3, C=10.0)
        >>> solutions = solve_dichotomies(LazyGram(x, "linear"), problems)
        >>> Expansion.join(4, problems, solutions).evaluate(x[[1, 2, 3]] @ x.T)
        array([[ 1. ,  1. ,  2. ],
               [-1. ,  0. ,  1. ],
               [-3. , -1. , -1. ]])
        """
        everyone = np.arange(n_rows)
        dense = np.zeros((n_rows, len(problems)))
        takes_part = np.zeros((n_rows, len(problems)), dtype=bool)
        for column, (problem, solution) in enumerate(zip(problems, solutions, strict=True)):
            rows = everyone if problem.rows is None else problem.rows
            dense[rows, column] = solution.coefficients
            takes_part[rows, column] = True
        # Rows of one class take part in the same problems, so in one-vs-one B has K blocks of K − 1 columns.
        support = np.flatnonzero(dense.any(axis=1))
        packed = np.packbits(takes_part[support], axis=1)
        patterns, group = np.unique(packed, axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        support = support[order]
        ends = np.cumsum(np.bincount(group.ravel(), minlength=len(patterns)))
        blocks = [
            (slice(int(start), int(stop)), np.flatnonzero(takes_part[support[start]]))
            for start, stop in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)
            if stop > start
        ]
        intercepts = np.array([solution.intercept for solution in solutions])
        return cls(support, dense[support], intercepts, blocks)

    def evaluate(self, K: ArrayLike) -> Array:
        """Return the decision values, shape (m, L), from kernel values K of shape (m, N) against all training rows."""
        K = np.asarray(K)
        values = np.tile(self.intercepts, (K.shape[0], 1))
        for rows, columns in self.blocks:
            self._add_block(values, K[:, self.support[rows]], rows, columns)
        return values

    def decision_values(self, source: LazyGram, X: ArrayLike, n_threads: int = 1) -> Array:
        """Return the decision values of new rows, shape (m, L), one kernel evaluation per row and support vector."""
        X = np.asarray(X, dtype=np.float64)
        values = np.tile(self.intercepts, (X.shape[0], 1))
        panels = [(source.panel(self.support[rows]), rows, columns) for rows, columns in self.blocks]

        def evaluate_rows(start: int) -> None:
            rows = slice(start, start + _EVALUATE_ROWS)
            left = source.features(X[rows])
            for panel, support, columns in panels:
                self._add_block(values[rows], source.between(left, panel), support, columns)

        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as threads:
            list(threads.map(evaluate_rows, range(0, X.shape[0], _EVALUATE_ROWS)))
        return values

    def _add_block(self, values: Array, K: NDArray[Any], rows: slice, columns: Index) -> None:
        """Add K B, for one block of B, to ``values`` in place."""
        product = K.astype(np.float64, copy=False) @ self.coefficients[rows][:, columns]
        if columns.size == values.shape[1]:
            values += product
        else:
            values[:, columns] += product
