"""Many two-class problems on one training set: one-vs-one, one-vs-all, any codebook, over a path of C.

Every problem is solved by itself on some rows of one shared Gram source, so the result does not depend on the
number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers.smo import DEFAULT_BUDGET, Solution, _as_source, _Solver
from polymargin.solvers.smo_gram import GramSource, LazyGram, RowPool, SharedGram

Index = NDArray[np.intp]

#: Relative tolerance of the feasibility of a warm start.
_START_ROUNDING = 1e-9


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
    alpha0 : array of shape (n,), optional
        Where to start, zeros if not given. It must be feasible up to rounding, 0 ≤ alpha0 ≤ upper and
        Σ signs alpha0 = 0; on a path, in the first box.

    See Also
    --------
    solve_dichotomies : The solver.

    Examples
    --------
    >>> Dichotomy([1, -1], 10.0, rows=np.array([2, 5])).rows
    array([2, 5])
    """

    signs: ArrayLike
    upper: ArrayLike
    rows: Index | None = None
    linear: ArrayLike | None = None
    alpha0: ArrayLike | None = None


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

    Returns
    -------
    list of L Solution

    See Also
    --------
    solve_dichotomies_path : Several boxes.
    polymargin.solvers.smo_expansion.KernelExpansion : The decision functions.

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
    """Solve every problem in the boxes ``scale * upper``; item [k][l] is for scale k and problem l.

    Each solution starts from the one before, best in ascending order; the parameters are those of
    `solve_dichotomies`.

    Parameters
    ----------
    source, problems, tol, max_iter, n_threads, budget
        As in `solve_dichotomies`.
    scales : sequence of float
        The factors of every ``upper``.

    Returns
    -------
    list of lists of Solution

    See Also
    --------
    solve_dichotomies : One box.
    dichotomy_paths : Paths that may end early.
    """
    paths = dichotomy_paths(source, problems, scales, tol=tol, max_iter=max_iter, n_threads=n_threads,
                            budget=budget)  # fmt: skip
    return [[path[k] for path in paths] for k in range(len(scales))]


def dichotomy_paths(
    source: ArrayLike | GramSource,
    problems: Sequence[Dichotomy],
    scales: Sequence[float],
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_threads: int = 1,
    budget: int = DEFAULT_BUDGET,
    give_up_after: int | None = None,
    solved: Callable[[], None] | None = None,
) -> list[list[Solution]]:
    """Solve every problem in the boxes ``scale * upper``; item [l][k] is for problem l and scale k.

    Parameters
    ----------
    source, problems, scales, tol, max_iter, n_threads, budget
        As in `solve_dichotomies_path`.
    give_up_after : int or None
        A path ends with the first box that is not solved within this many steps; None: no path does.
    solved : callable or None
        Called, in the calling thread, whenever a problem is solved in all boxes.

    Returns
    -------
    list of lists of Solution
        The paths; shorter than ``scales`` where they end early.

    See Also
    --------
    solve_dichotomies_path : The same by scales.

    Examples
    --------
    >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0], [-1.5]])
    >>> problem = Dichotomy([-1, -1, 1, 1, 1], 1.0)
    >>> (path,) = dichotomy_paths(
    ...     LazyGram(x, "linear"), [problem], [0.1, 1.0, 10.0, 100.0], give_up_after=3
    ... )
    >>> [solution.status.name for solution in path]
    ['CONVERGED', 'CONVERGED', 'STEP_LIMIT']
    """
    scales = [float(scale) for scale in scales]
    gram = _plan(_as_source(source), problems, len(scales), n_threads, budget)
    memory = threading.local()

    def solve_one(problem: Dichotomy) -> list[Solution]:
        if not hasattr(memory, "pool"):
            memory.pool = RowPool(budget // n_threads)
        solver = _Solver(gram, problem.rows, problem.signs, problem.upper, problem.linear, memory.pool)
        alpha0 = (
            None if problem.alpha0 is None else _feasible(problem.alpha0, solver.signs, scales[0] * solver.C)
        )
        return solver.path(scales, tol, max_iter, alpha0, give_up_after)

    solved = (lambda: None) if solved is None else solved
    # The largest first: a long problem that starts last would leave the other threads idle.
    order = np.argsort([-np.size(problem.signs) for problem in problems], kind="stable")
    found = Parallel(n_jobs=n_threads, require="sharedmem", return_as="generator", batch_size=1)(
        delayed(solve_one)(problems[k]) for k in order
    )
    paths: dict[int, list[Solution]] = {}
    for k in order:
        paths[int(k)] = next(found)
        solved()
    return [paths[k] for k in range(len(problems))]


def _feasible(
    alpha0: ArrayLike, signs: NDArray[np.float64], upper: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the start as an array, or refuse it."""
    alpha = np.asarray(alpha0, dtype=np.float64)
    if alpha.shape != signs.shape or not np.isfinite(alpha).all():
        raise ValueError(f"alpha0 must be {signs.size} finite values")
    if (alpha < 0.0).any() or (alpha > upper * (1.0 + _START_ROUNDING)).any():
        raise ValueError("alpha0 leaves the box, from zero to upper")
    if abs(signs @ alpha) > _START_ROUNDING * alpha.sum():
        raise ValueError("alpha0 must weigh the same on both sides: the sum of signs * alpha0 is not zero")
    return alpha


def _plan(
    source: GramSource, problems: Sequence[Dichotomy], n_scales: int, n_threads: int, budget: int
) -> GramSource:
    """Return the source to solve from: the whole Gram matrix, where that is less work and fits.

    One fit touches about an eighth of a problem's rows, a path from a small C on most of them. The whole
    matrix comes from BLAS, at about a quarter of the cost per feature, but every entry of it is written to
    memory.
    """
    if not isinstance(source, LazyGram):
        return source
    everyone = np.arange(source.n_rows)
    members = [everyone if problem.rows is None else problem.rows for problem in problems]
    used, first = np.unique(np.concatenate([everyone[:0], *members]), return_index=True)
    touched = (0.12 if n_scales == 1 else 0.6) * sum(float(rows.size) ** 2 for rows in members)
    lazy_work = touched * (1.0 + source.n_features / 16)
    dense_work = used.size**2 * (3.0 + source.n_features / 64)
    if lazy_work < dense_work or source.dtype.itemsize * used.size**2 > budget:
        return source
    # By first appearance: the rows of one class, which take part in the same problems, become neighbours.
    return SharedGram(source, used[np.argsort(first)], n_threads)
