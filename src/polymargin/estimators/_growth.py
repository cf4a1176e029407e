"""Training the columns of an adaptive codebook while it grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import one_vs_one
from polymargin.machines import TrainingRows

if TYPE_CHECKING:  # importing it at run time would load numba with the package
    from polymargin.machines.svm import SVMBank

Array = NDArray[Any]

#: The codebook of one column by itself.
SINGLE = one_vs_one(2)


@dataclass(frozen=True)
class TwoSides:
    """The rows that a column uses, as a problem of two classes.

    Attributes
    ----------
    used, unused : ndarray of int
        Indices of the rows that the column uses, and of those it does not.
    rows : TrainingRows
        The used rows; the class is the side.
    new : array or sparse matrix
        The unused rows, as input of a machine trained on the used ones.
    """

    used: Array
    unused: Array
    rows: TrainingRows
    new: Any

    @classmethod
    def of(cls, data: TrainingRows, column: Array) -> TwoSides:
        """Divide the rows by one column of a codebook."""
        targets = column[data.class_index]
        used, unused = np.flatnonzero(targets), np.flatnonzero(targets == 0)
        new = data.X[unused]
        sides = replace(data.take(used), class_index=(targets[used] > 0).astype(np.intp), soft_labels=None)
        return cls(used, unused, sides, new[:, used] if data.kernel.precomputed else new)

    def margins(self, honest: Array, machine: Callable[[Any], Array]) -> Array:
        """Return the margins of all rows: the given out-of-sample ones of used rows, the machine's of the others."""
        margins = np.empty(self.used.size + self.unused.size)
        margins[self.used] = honest
        if self.unused.size:
            margins[self.unused] = machine(self.new)[:, 0]
        return margins


class WarmColumns:
    """Trains support vector machines on the columns of a growing codebook, with warm starts.

    A column that grows keeps its rows and their sides, and every row stays in its fold. So the solutions of the column
    before, with zeros for new rows, are feasible warm starts, for the machine of all rows and for those without a fold.
    The result is the same up to the solver's tolerance.

    Parameters
    ----------
    train : callable (rows, box_weights, cv, start) -> SVMBank
        Trains the machine of a problem of two classes, with out-of-fold outputs by the folds ``cv``.
    data : TrainingRows
        All rows.
    box_weights : ndarray of shape (n,)
        The box of every row in multiples of C.
    fold_number : ndarray of int, shape (n,)
        The fold of every row.
    """

    def __init__(
        self,
        train: Callable[[TrainingRows, Array, Any, Array], SVMBank],
        data: TrainingRows,
        box_weights: Array,
        fold_number: Array,
    ):
        self.train, self.data, self.box_weights, self.fold_number = train, data, box_weights, fold_number
        # The column before, and the coefficients of its machine and of those without each fold, in multiples of C.
        self.column = np.zeros(int(data.class_index.max()) + 1, dtype=np.int8)
        self.whole = np.zeros(fold_number.size)
        self.without = np.zeros((int(fold_number.max()) + 1, fold_number.size))

    def __call__(self, column: Array) -> Array:
        """Train on a column; return its out-of-sample margins for all rows, shape (n,)."""
        if (self.column != column)[self.column != 0].any():
            # A new column, not an extension of the one before: cold start.
            self.whole[:] = self.without[:] = 0.0
        sides = TwoSides.of(self.data, column)
        used = sides.used
        numbers, fold_number = np.unique(self.fold_number[used], return_inverse=True)
        cv = [
            (np.flatnonzero(fold_number != k), np.flatnonzero(fold_number == k)) for k in range(numbers.size)
        ]
        bank = self.train(sides.rows, self.box_weights[used], cv, self.whole[np.newaxis, used])
        honest = np.empty(used.size)
        held_out = bank.held_out_banks(start=[self.without[[k]][:, used] for k in numbers])
        for number, (fold, without) in zip(numbers, held_out, strict=True):
            honest[fold] = without.margins(sides.rows.X[fold])[:, 0]
            self.without[number] = _coefficients(without, used, self.whole.size)
        self.column, self.whole = column.copy(), _coefficients(bank, used, self.whole.size)
        return sides.margins(honest, bank.margins)


def _coefficients(bank: SVMBank, used: Array, n: int) -> Array:
    """Return the dual coefficients of all rows in the only machine of a bank, in multiples of C, shape (n,)."""
    coefficients = np.zeros(n)
    coefficients[used[bank.support]] = bank.dual_coef[0] / bank.C[0]
    return coefficients
