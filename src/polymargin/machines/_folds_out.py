"""Machines trained without a fold of the rows, from the factorisation of all: the nested outputs of a bank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymargin.machines._gram import DichotomyGroup, GroupGram
from polymargin.outputs import Nested
from polymargin.solvers.leave_out import LeftOut, WholeInverse
from polymargin.solvers.ridge import left_out_errors
from polymargin.solvers.thin import ThinMatrix

if TYPE_CHECKING:
    from polymargin.machines.lssvm import FactorisedBlock
    from polymargin.machines.solved import SolvedBlock

Array = NDArray[Any]


@dataclass(frozen=True)
class FoldsOut:
    """The machines of a block of columns, refitted without each fold of the rows.

    Attributes
    ----------
    margins : ndarray of shape (F, m, l)
        See `Nested`.
    coef : ndarray of shape (F, l, m)
        The coefficients of the machines.
    """

    margins: Array
    coef: Array

    @classmethod
    def from_inverse(
        cls, group: GroupGram, block: FactorisedBlock, folds: Array, solution: Array, inverse: WholeInverse
    ) -> FoldsOut | None:
        """Compute them from the inverse of the full matrix; return None if a fold leaves too few rows.

        Parameters
        ----------
        group : GroupGram
            The group of rows of the block.
        block : FactorisedBlock
            Columns with one ridge.
        folds : ndarray of int, shape (n,)
            The fold of every training row.
        solution : ndarray of shape (m, l)
            The dual solution of the machines trained on all rows.
        inverse : WholeInverse
            The inverse with the bias direction projected out.

        Returns
        -------
        FoldsOut or None
        """
        numbers = folds[block.rows]
        found = []
        for fold in range(int(folds.max()) + 1):
            held = numbers == fold
            try:
                without, errors = inverse.leave_fold_out(solution, held, group.left_out)
            except np.linalg.LinAlgError:
                return None
            found.append(_machines(group.group, block, held, without, errors))
        return cls(*(np.stack(parts) for parts in zip(*found, strict=True)))

    @classmethod
    def by_features(
        cls, group: GroupGram, block: FactorisedBlock, folds: Array, ridge: float
    ) -> FoldsOut | None:
        """Refit the machines in feature space without each fold; return None if rounding errors are too large."""
        numbers = folds[block.rows]
        found = []
        for fold in range(int(folds.max()) + 1):
            held = numbers == fold
            refitted = _refitted(group, block, held, ridge)
            if refitted is None:
                return None
            found.append(_machines(group.group, block, held, *refitted))
        return cls(*(np.stack(parts) for parts in zip(*found, strict=True)))

    def with_constants(
        self, group: DichotomyGroup, block: FactorisedBlock, folds: Array | None, columns: Array
    ) -> FoldsOut:
        """Return the same with some machines replaced by the mean of the targets of the rows outside each fold.

        Parameters
        ----------
        group : DichotomyGroup
            The rows of the block.
        block : FactorisedBlock
            The columns.
        folds : ndarray of int, shape (n,)
            The fold of every training row.
        columns : ndarray of int
            Which of the block's columns.

        Returns
        -------
        FoldsOut
        """
        assert folds is not None
        margins, coef = self.margins.copy(), self.coef.copy()
        targets = group.targets[:, np.searchsorted(group.columns, block.columns[columns])]
        for fold in range(len(margins)):
            shares = np.where(folds[block.rows] != fold, group.weights, 0.0)
            shares /= max(float(shares.sum()), 1e-300)
            margins[fold][:, columns] = shares @ targets
            coef[fold][columns] = 0.0
        return FoldsOut(margins, coef)


def _machines(
    group: DichotomyGroup, block: FactorisedBlock, held: Array, solution: Array, errors: Array
) -> tuple[Array, Array]:
    """Return the margins of the rows, shape (m, l), and the coefficients, (l, m), of machines without a fold."""
    places = np.searchsorted(group.columns, block.columns)
    roots = np.sqrt(group.weights)[:, np.newaxis]
    margins = group.targets[:, places] - errors / roots + group.shift(~held)[:, places]
    return margins, (roots * solution).T


def _refitted(
    group: GroupGram, block: FactorisedBlock, held: Array, ridge: float
) -> tuple[Array, Array] | None:
    """Return the solution without the held-out rows and the errors at all rows, computed in feature space."""
    kept = np.flatnonzero(~held)
    if kept.size == 0:
        return None
    features = group.workspace.features
    thin = ThinMatrix(features.of(block.rows[kept]), group.weights[kept])
    factor = thin.factor(block.gamma, ridge, block.columns.size)
    if factor is None:
        return None
    places = np.searchsorted(group.columns, block.columns)
    targets = group.targets[:, places]
    centring = thin.centring(block.gamma)
    centred, means = centring.targets(targets[kept])
    solution = factor.solve(centred)
    without, errors = np.zeros(targets.shape), np.zeros(targets.shape)
    without[kept] = solution
    observations = group.group.observations
    left_out = None if observations is None else LeftOut.of(observations[kept])
    try:
        errors[kept] = left_out_errors(factor, solution, centring, np.array([ridge]), left_out)
    except np.linalg.LinAlgError:  # without the fold and one more group nothing is left
        return None
    # At the mean of the training features the machine predicts the mean of the targets.
    scaled = thin.powers(block.gamma)[:, np.newaxis] * (thin.rows.T @ solution)
    new = features.values[block.rows[held]] - thin.means
    errors[held] = np.sqrt(group.weights[held])[:, np.newaxis] * (targets[held] - means - new @ scaled)
    return without, errors


def nested_outputs(
    kernel_sums: Callable[[Array, Array], Array],
    gamma: Array,
    folds: Array,
    groups: Sequence[DichotomyGroup],
    parts: Sequence[SolvedBlock],
    keep_coef: bool,
) -> Nested | None:
    """Return the nested outputs of all machines; None if some are not known, or not finite.

    Parameters
    ----------
    kernel_sums : callable (ndarray of shape (M, n), ndarray of shape (M,)) -> ndarray of shape (n, M)
        Returns the kernel expansions at the training rows of sets of coefficients, with the gamma of each.
    gamma : ndarray of shape (L,)
        The kernel parameter of every machine.
    folds : ndarray of int, shape (n,)
        The fold of every row.
    groups : sequence of DichotomyGroup
        The groups of rows that columns share.
    parts : sequence of SolvedBlock
        The machines, with those refitted without each fold.
    keep_coef : bool
        Whether the coefficients of the machines are kept.

    Returns
    -------
    Nested or None
    """
    without = [(part.rows, part.columns, part.folds) for part in parts if part.folds is not None]
    if len(without) < len(parts):
        return None
    n, n_columns, n_folds = folds.size, gamma.size, int(folds.max()) + 1
    margins = np.empty((n_folds, n, n_columns))
    coef = np.zeros((n_folds, n_columns, n))
    for rows, columns, part in without:
        coef[:, columns[:, np.newaxis], rows] = part.coef
    if any(group.rows.size < n for group in groups):
        # A row that a dichotomy does not use is out-of-sample for its machine.
        sums = kernel_sums(coef.reshape(-1, n), np.tile(gamma, n_folds))
        sums = np.moveaxis(sums.reshape(n, n_folds, n_columns), 1, 0)
        biases = np.empty((n_folds, n_columns))
        for group in groups:
            own = sums[:, group.rows[:, np.newaxis], group.columns]
            for fold in range(n_folds):
                kept = folds[group.rows] != fold
                shares = np.where(kept, group.weights, 0.0)
                shares /= max(float(shares.sum()), 1e-300)
                biases[fold, group.columns] = shares @ (group.targets - own[fold])
        np.add(sums, biases[:, np.newaxis], out=margins)
    for rows, columns, part in without:
        margins[:, rows[:, np.newaxis], columns] = part.margins
    return Nested(folds, margins, coef if keep_coef else None) if np.isfinite(margins).all() else None
