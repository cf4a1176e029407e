"""All decision functions of a set of dichotomies, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers.smo import Solution
from polymargin.solvers.smo_dichotomies import Dichotomy
from polymargin.solvers.smo_gram import BLOCK_ROWS, LazyGram, in_blocks

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class CoefficientBlock:
    """Where the coefficients are not zero: some support vectors, and the functions that they enter.

    Examples
    --------
    >>> CoefficientBlock(slice(0, 2), np.array([0]), np.ones((2, 1))).coefficients.shape
    (2, 1)
    """

    rows: slice
    columns: Index
    coefficients: Array  # (rows, columns)


@dataclass(frozen=True)
class KernelExpansion:
    """All decision functions f_l(x) = Σ_i B_il K(x_i, x) + b_l over the union of their support vectors.

    Attributes
    ----------
    support : array of shape (S,)
        Rows of the training set, those that take part in the same problems side by side.
    intercepts : array of shape (L,)
        b.
    blocks : list of CoefficientBlock
        B, float64. Rows of one class take part in the same problems, so in one-vs-one B has one block of K
        − 1 columns for each of the K classes; in one-vs-all it is one block.

    See Also
    --------
    polymargin.solvers.smo_dichotomies.solve_dichotomies : The solutions that are joined.

    Examples
    --------
    >>> block = CoefficientBlock(slice(0, 2), np.array([0]), np.array([[1.0], [-1.0]]))
    >>> KernelExpansion(np.array([0, 2]), np.array([0.5]), [block]).evaluate([[3.0, 9.0, 1.0]])
    array([[2.5]])
    """

    support: Index
    intercepts: Array
    blocks: list[CoefficientBlock]

    @classmethod
    def join(
        cls, n_rows: int, problems: Sequence[Dichotomy], solutions: Sequence[Solution]
    ) -> KernelExpansion:
        """Join the solutions of ``problems`` on a training set of n_rows rows.

        Parameters
        ----------
        n_rows : int
            N, the rows of the training set.
        problems : sequence of L Dichotomy
            The problems.
        solutions : sequence of L Solution
            Their solutions.

        Returns
        -------
        KernelExpansion

        Examples
        --------
        >>> from polymargin.solvers.smo_dichotomies import solve_dichotomies
        >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
        >>> problems = [Dichotomy([1, 1, -1, -1], 10.0), Dichotomy([1, -1], 10.0, rows=np.array([2, 3]))]
        >>> solutions = solve_dichotomies(x @ x.T, problems)
        >>> KernelExpansion.join(4, problems, solutions).evaluate(x[1:] @ x.T).round(3)
        array([[ 1.,  3.],
               [-1.,  1.],
               [-3., -1.]])
        """
        everyone = np.arange(n_rows)
        members = [everyone if problem.rows is None else problem.rows for problem in problems]
        is_support = np.zeros(n_rows, dtype=bool)
        for rows, solution in zip(members, solutions, strict=True):
            is_support[rows[solution.support]] = True
        support = np.flatnonzero(is_support)
        place = np.cumsum(is_support) - 1

        takes_part = np.zeros((support.size, len(members)), dtype=bool)
        dense = np.zeros(takes_part.shape)
        for column, (rows, solution) in enumerate(zip(members, solutions, strict=True)):
            takes_part[place[rows[is_support[rows]]], column] = True
            dense[place[rows[solution.support]], column] = solution.coefficients[solution.support]

        patterns, group = np.unique(np.packbits(takes_part, axis=1), axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(group.ravel(), minlength=len(patterns))).tolist()
        blocks = []
        for start, stop in zip([0, *ends], ends, strict=False):
            columns = np.flatnonzero(takes_part[order[start]])
            blocks.append(
                CoefficientBlock(slice(start, stop), columns, dense[np.ix_(order[start:stop], columns)])
            )
        return cls(support[order], np.array([solution.intercept for solution in solutions]), blocks)

    @property
    def coefficients(self) -> Array:
        """B as one matrix, shape (S, L)."""
        dense = np.zeros((self.support.size, self.intercepts.size))
        for block in self.blocks:
            dense[block.rows, block.columns] = block.coefficients
        return dense

    def evaluate(self, K: ArrayLike) -> Array:
        """Return the decision values, shape (m, L), from K of shape (m, N), against all training rows.

        Parameters
        ----------
        K : array of shape (m, N)
            Kernel values.

        Returns
        -------
        ndarray of shape (m, L)
        """
        K = np.asarray(K)
        values = np.tile(self.intercepts, (K.shape[0], 1))
        for block in self.blocks:
            _add_block(values, K[:, self.support[block.rows]], block)
        return values

    def decision_values(self, source: LazyGram, X: ArrayLike, n_threads: int = 1) -> Array:
        """Return the decision values of new rows, shape (m, L): each kernel value is computed once.

        Parameters
        ----------
        source : LazyGram
            The training rows and the kernel.
        X : array of shape (m, d)
            New rows.
        n_threads : int, default=1
            Blocks of rows that are worked on at a time.

        Returns
        -------
        ndarray of shape (m, L)
        """
        X = np.asarray(X, dtype=np.float64)
        values = np.tile(self.intercepts, (X.shape[0], 1))
        panels = [source.panel(self.support[block.rows]) for block in self.blocks]

        def evaluate_rows(start: int) -> None:
            rows = slice(start, start + BLOCK_ROWS)
            new = source.features(X[rows])
            for block, panel in zip(self.blocks, panels, strict=True):
                _add_block(values[rows], source.between(new, panel), block)

        in_blocks(evaluate_rows, X.shape[0], n_threads)
        return values


def _add_block(values: Array, K: NDArray[Any], block: CoefficientBlock) -> None:
    """Add what one block contributes, from kernel values K, to ``values`` in place; sums are in float64."""
    product = K.astype(np.float64, copy=False) @ block.coefficients
    if block.columns.size == values.shape[1]:
        values += product
    else:
        values[:, block.columns] += product
