"""Which rows are left out together: single rows, or groups of rows that are one observation.

With P the inverse of A + ε without the bias direction (`polymargin.solvers.centring`) and ã = Pt, the residuals of the
rows G of a group, of a machine trained without them, are P_GG⁻¹ ã_G (times √s). For a group of one row this is ãᵢ/Pᵢᵢ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin.solvers import _lapack

Array = NDArray[Any]


@dataclass(frozen=True)
class LeftOut:
    """The groups of rows that are left out together, sorted by their size.

    Attributes
    ----------
    blocks : tuple of ndarray of int, shape (G_s, s)
        The rows of every group of s rows, one array per size s.
    n_rows : int
        The number of rows.

    Examples
    --------
    >>> LeftOut.of(np.array([7, 8, 7])).blocks
    (array([[1]]), array([[0, 2]]))
    """

    blocks: tuple[Array, ...]
    n_rows: int

    @classmethod
    def of(cls, groups: Array) -> LeftOut:
        """Return the groups from the name of every row's group, shape (n,).

        Parameters
        ----------
        groups : ndarray of shape (n,)
            The group of every row.

        Returns
        -------
        LeftOut
        """
        number, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
        order = np.argsort(number, kind="stable")
        starts = np.cumsum(sizes) - sizes
        blocks = tuple(
            order[starts[sizes == size][:, np.newaxis] + np.arange(size)] for size in np.unique(sizes)
        )
        return cls(blocks, groups.size)

    @property
    def single(self) -> bool:
        """Whether every row is left out by itself."""
        return len(self.blocks) == 1 and self.blocks[0].shape[1] == 1

    def errors(self, P_blocks: list[Array], solution: Array) -> Array:
        """Return the residuals (times √s) of the machines trained without each row's group, shape (n, L).

        Parameters
        ----------
        P_blocks : list of ndarray of shape (G_s, s, s) or (G_s, s, s, L)
            P_GG of every group, in the order of `blocks`; with a last axis where the columns have ridges of their own.
        solution : ndarray of shape (n, L)
            ã.

        Returns
        -------
        ndarray of shape (n, L)
        """
        errors = np.empty_like(solution)
        for rows, P in zip(self.blocks, P_blocks, strict=True):
            if P.ndim == 3:
                errors[rows] = np.linalg.solve(P, solution[rows])
                continue
            for column in range(solution.shape[1]):
                errors[rows, column] = np.linalg.solve(P[..., column], solution[rows, column, np.newaxis])[
                    ..., 0
                ]
        return errors

    def blocks_of(self, P: Array) -> list[Array]:
        """Return P_GG of every group from the whole matrix.

        Parameters
        ----------
        P : ndarray of shape (n, n)
            The matrix.

        Returns
        -------
        list of ndarray
        """
        return [P[rows[:, :, np.newaxis], rows[:, np.newaxis, :]] for rows in self.blocks]

    def outer(self, errors: Array, adjoint: Array) -> Any:
        """Return the block-diagonal matrix of the symmetric part of Σ_l e_l u_lᵀ within groups, sparse, (n, n).

        Parameters
        ----------
        errors, adjoint : ndarray of shape (n, L)
            e and u, in columns.

        Returns
        -------
        scipy.sparse.csr_array
        """
        rows, columns, values = [], [], []
        for places in self.blocks:
            product = np.einsum("gil,gjl->gij", errors[places], adjoint[places])
            values.append((0.5 * (product + product.swapaxes(1, 2))).ravel())
            shape = product.shape
            rows.append(np.broadcast_to(places[:, :, np.newaxis], shape).ravel())
            columns.append(np.broadcast_to(places[:, np.newaxis, :], shape).ravel())
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array(entries, shape=(self.n_rows, self.n_rows))


def inverse_blocks(inverse_triangle: Array, left_out: LeftOut) -> list[Array]:
    """Return the blocks of (LLᵀ)⁻¹ from L⁻¹: the inner products of its columns.

    Parameters
    ----------
    inverse_triangle : ndarray of shape (n, n)
        L⁻¹.
    left_out : LeftOut
        The groups.

    Returns
    -------
    list of ndarray
    """
    blocks = []
    for rows in left_out.blocks:
        columns = inverse_triangle[:, rows]
        blocks.append(np.einsum("ngi,ngj->gij", columns, columns, optimize=True))
    return blocks


@dataclass(frozen=True)
class WholeInverse:
    """P, the inverse of A + ε without the bias direction, as a whole: of machines that are refitted without folds.

    Attributes
    ----------
    P : ndarray of shape (n, n)
        The matrix.
    """

    P: Array

    @property
    def diagonal(self) -> Array:
        """The diagonal of P, shape (n,)."""
        return np.diagonal(self.P)

    def leave_fold_out(
        self, solution: Array, held: Array, left_out: LeftOut | None = None
    ) -> tuple[Array, Array]:
        """Return machines trained without a fold, and their errors; see `leave_fold_out`.

        Parameters
        ----------
        solution, held, left_out
            As for `leave_fold_out`.

        Returns
        -------
        solution, errors : ndarray of shape (n, L)
        """
        return leave_fold_out(self.P, solution, held, left_out)


def leave_fold_out(
    P: Array, solution: Array, held: Array, left_out: LeftOut | None = None
) -> tuple[Array, Array]:
    """Return machines trained without a fold of rows, and how they err, inside the fold and left out outside of it.

    Without the rows A, the inverse among the other rows B is P_BB − P_BA P_AA⁻¹ P_AB and the solution is
    ã_B − P_BA P_AA⁻¹ ã_A; so leaving a row out of a machine that has not seen A costs no refit either.

    Parameters
    ----------
    P : ndarray of shape (n, n)
        The inverse of A + ε without the bias direction.
    solution : ndarray of shape (n, L)
        ã.
    held : ndarray of bool, shape (n,)
        The rows of the fold A.
    left_out : LeftOut or None
        The groups, none of which is divided by the fold, that are left out together; None: every row by itself.

    Returns
    -------
    solution : ndarray of shape (n, L)
        ã of the machines trained without the fold, zero in it.
    errors : ndarray of shape (n, L)
        Residuals (times √s): in the fold those of these machines; of every other row those of the machines trained
        without the fold and without the row (or its group).
    """
    rows, others = np.flatnonzero(held), np.flatnonzero(~held)
    lower = np.asfortranarray(P[np.ix_(rows, rows)])
    if not _lapack.factor(lower):
        raise np.linalg.LinAlgError("the rows of a fold have no inverse")
    half = _lapack.solve_triangle(lower, P[np.ix_(rows, others)])
    weighed = _lapack.solve_triangle(lower, solution[rows])
    without = np.zeros_like(solution)
    without[others] = solution[others] - half.T @ weighed
    errors = np.empty_like(solution)
    errors[rows] = _lapack.solve_triangle(lower, weighed, transposed=True)
    if left_out is None:
        rest = np.diagonal(P)[others] - np.einsum("an,an->n", half, half)
        errors[others] = without[others] / np.maximum(rest, np.finfo(float).tiny)[:, np.newaxis]
        return without, errors
    place = np.full(held.size, -1)
    place[others] = np.arange(others.size)
    for blocks in left_out.blocks:
        outside = blocks[~held[blocks[:, 0]]]
        if outside.size:
            part = half[:, place[outside]]
            block = P[outside[:, :, np.newaxis], outside[:, np.newaxis, :]]
            block = block - np.einsum("agi,agj->gij", part, part, optimize=True)
            errors[outside] = np.linalg.solve(block, without[outside])
    return without, errors
