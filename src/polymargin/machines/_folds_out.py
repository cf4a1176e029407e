"""Machines trained without a fold of the rows, from the factorisation of all: the nested outputs of a bank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymargin.machines._gram import RowGroupGram
from polymargin.machines._rows import TrainingRows
from polymargin.outputs import Nested
from polymargin.solvers.centring import add_outer
from polymargin.solvers.leave_out import LeftOut, leave_fold_out
from polymargin.solvers.ridge import CholeskyFactor, left_out_errors, symmetric_inverse
from polymargin.solvers.thin import ThinMatrix

if TYPE_CHECKING:
    from polymargin.machines.lssvm import Block, LSSVMBank

Array = NDArray[Any]


@dataclass
class FoldsOut:
    """Collects the machines of all groups of rows, for every fold.

    Attributes
    ----------
    data : TrainingRows
        The training rows.
    numbers : ndarray of int, shape (n,)
        The fold of every row.
    margins : ndarray of shape (F, n, L)
        See `Nested`; not a number where a dichotomy does not use the row.
    coef : ndarray of shape (F, L, n)
        The coefficients of the machines.
    complete : bool
        Whether all machines could be had.
    """

    data: TrainingRows
    numbers: Array
    margins: Array
    coef: Array
    complete: bool = True

    @classmethod
    def of(cls, data: TrainingRows, n_columns: int, n_folds: int) -> FoldsOut:
        """Begin with nothing."""
        numbers = data.deal.fold_numbers(n_folds)
        n, n_folds = numbers.size, int(numbers.max()) + 1
        margins = np.full((n_folds, n, n_columns), np.nan)
        return cls(data, numbers, margins, np.zeros((n_folds, n_columns, n)))

    def add(self, group: RowGroupGram, block: Block, solution: Array, ridges: Array) -> Array | None:
        """Take the machines of a block without every fold; columns with ridges of their own have no common inverse.

        Return the inverse without the bias direction, shape (m, m), where it was computed.
        """
        factor = block.factor
        if isinstance(factor, CholeskyFactor):
            P = symmetric_inverse(np.array(factor.lower, order="F"))
            add_outer(P, -1.0 / (block.centring.lift + float(ridges[0])), block.centring.bias_direction)
            for fold in range(len(self.margins)):
                held = self.numbers[block.rows] == fold
                try:
                    without, errors = leave_fold_out(P, solution, held, group.left_out)
                except np.linalg.LinAlgError:
                    self.complete = False
                    break
                self._store(group, block, fold, held, without, errors)
            return P
        by_features = group.thin is not None
        folds = range(len(self.margins)) if by_features else []
        refitted = all(self._refit(group, block, fold, float(ridges[0])) for fold in folds)
        self.complete &= by_features and refitted
        return None

    def _store(
        self, group: RowGroupGram, block: Block, fold: int, held: Array, without: Array, errors: Array
    ) -> None:
        places = np.searchsorted(group.columns, block.columns)
        roots = np.sqrt(group.weights)[:, np.newaxis]
        margins = group.targets[:, places] - errors / roots + group.shift(~held)[:, places]
        self.margins[fold][np.ix_(block.rows, block.columns)] = margins
        self.coef[fold][np.ix_(block.columns, block.rows)] = (roots * without).T

    def _refit(self, group: RowGroupGram, block: Block, fold: int, ridge: float) -> bool:
        """Train machines with few features again without the fold; return whether rounding allows it."""
        held = self.numbers[block.rows] == fold
        kept = np.flatnonzero(~held)
        if kept.size == 0 or self.data.features is None:
            return False
        thin = ThinMatrix(self.data.features.of(block.rows[kept]), group.weights[kept])
        factor = thin.factor(block.gamma, ridge, block.columns.size)
        if factor is None:
            return False
        places = np.searchsorted(group.columns, block.columns)
        targets = group.targets[:, places]
        centred, means = thin.centring(block.gamma).targets(targets[kept])
        solution = factor.solve(centred)
        without, errors = np.zeros(targets.shape), np.zeros(targets.shape)
        without[kept] = solution
        groups = self.data.groups
        left_out = None if groups is None else LeftOut.of(groups[block.rows[kept]])
        centring = thin.centring(block.gamma)
        try:
            errors[kept] = left_out_errors(factor, solution, centring, np.array([ridge]), left_out)
        except np.linalg.LinAlgError:  # without the fold and one more group nothing is left
            return False
        # The machine at its rows' mean says the mean of the targets.
        scaled = thin.powers(block.gamma)[:, np.newaxis] * (thin.rows.T @ solution)
        features = self.data.features.values[block.rows[held]] - thin.means
        errors[held] = np.sqrt(group.weights[held])[:, np.newaxis] * (
            targets[held] - means - features @ scaled
        )
        self._store(group, block, fold, held, without, errors)
        return True

    def outputs(self, groups: list[RowGroupGram], bank: LSSVMBank) -> Nested | None:
        """Return the nested outputs, with the margins of rows that a dichotomy does not use."""
        if not self.complete:
            return None
        unused = np.isnan(self.margins[0])
        if unused.any():
            n_folds, n_columns, n = self.coef.shape
            sums = bank.kernel_sums(self.coef.reshape(-1, n), np.tile(bank.gamma, n_folds))
            sums = np.moveaxis(sums.reshape(n, n_folds, n_columns), 1, 0)
            for group in groups:
                rest = np.setdiff1d(np.arange(n), group.rows)
                for fold in range(n_folds):
                    kept = self.numbers[group.rows] != fold
                    shares = np.where(kept, group.weights, 0.0)
                    shares /= max(float(shares.sum()), 1e-300)
                    of_fold = sums[fold]
                    bias = shares @ (group.targets - of_fold[np.ix_(group.rows, group.columns)])
                    self.margins[fold][np.ix_(rest, group.columns)] = (
                        of_fold[np.ix_(rest, group.columns)] + bias
                    )
        return Nested(self.numbers, self.margins) if np.isfinite(self.margins).all() else None
