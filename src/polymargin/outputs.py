"""Outputs of the machines, with their provenance.

Throughout the package *honest* means out-of-sample: an honest output of a row comes from machines that were trained
without this row (leave-one-out) or without its fold (out-of-fold), and an honest probability from a decoder that was
not fitted to it either (cross-fitting).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import CodebookPart
from polymargin.dealing import Deal

Array = NDArray[Any]

#: Where outputs come from. A decoder learns from ``in_sample`` outputs only if its parameter ``in_sample`` is set.
Provenance = Literal["in_sample", "leave_one_out", "out_of_fold", "new"]
#: What the probabilities of a row may sum to more or less than one, through rounding in single precision.
_SUM_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Nested:
    """Outputs of machines trained without a fold of the rows, for every fold.

    Attributes
    ----------
    numbers : ndarray of int, shape (n,)
        The fold of every row.
    margins : ndarray of shape (F, n, L)
        For every fold: of its rows, the margins of machines trained without the fold; of the other rows, those of
        machines trained without the fold and without the row. A decoder fitted to the latter is independent of the
        labels in the fold.
    coef : ndarray of shape (F, L, n) or None
        The coefficients of the machines without each fold, where they were asked for.
    """

    numbers: Array
    margins: Array
    coef: Array | None = None

    def part(self, part: CodebookPart) -> Nested:
        """Return the outputs of one of several joined codebooks."""
        return Nested(self.numbers, self.margins[:, :, part.columns] * part.signs)

    def rows(self, rows: Array) -> Nested:
        """Return the outputs of some of the rows."""
        return Nested(self.numbers[rows], self.margins[:, rows])


@dataclass(frozen=True)
class Outputs:
    """The outputs of L machines for n rows.

    Attributes
    ----------
    margins : ndarray of shape (n, L)
        z, positive on the side of the classes with codeword bit +1.
    provenance : {"in_sample", "leave_one_out", "out_of_fold", "new"}
        Whether the machines were trained on the rows.
    variances : ndarray of shape (n, L) or None
        σ_z², the posterior variances of z, for machines that have them.
    noise : ndarray of shape (L,) or None
        1/ζ, the noise variances of the targets around z, for machines that have them.
    norms : ndarray of shape (L,) or None
        ‖w‖, the norms of the machines' weight vectors, where they are known.
    exact : ndarray of shape (n, L) or None
        The unchanged leave-one-out margins, where ``margins`` has the leave-one-out shift of the target mean removed:
        the shift is anti-correlated with the row's label, a leak that a learned decoder would exploit.
    dealt : Deal or None
        The rows in a random order, from which a decoder that cross-fits takes its folds; None: shuffled by itself.
    nested : Nested or None
        Of leave-one-out outputs, those of machines that were trained without a fold of the rows.
    """

    margins: Array
    provenance: Provenance
    variances: Array | None = None
    noise: Array | None = None
    norms: Array | None = None
    exact: Array | None = None
    dealt: Deal | None = None
    nested: Nested | None = None

    def deal(self, class_index: Array) -> Deal:
        """Return the rows, which are of these classes, in a random order."""
        return Deal.of(self.margins, class_index) if self.dealt is None else self.dealt

    def held_out(self, class_index: Array, n_folds: int) -> Iterator[tuple[Outputs, Array, Array]]:
        """Yield, for every fold, outputs of all rows, a mask of the rows to learn from, and the rows of the fold.

        Where there are nested outputs, the machines have not seen the labels of the fold. A row that is the only one
        of its class is never held out.
        """
        plain = replace(self, nested=None)
        if self.nested is None:
            numbers = self.deal(class_index).fold_numbers(n_folds)
        else:
            numbers = self.nested.numbers
        alone = np.bincount(class_index)[class_index] == 1
        for fold in range(int(numbers.max()) + 1):
            held = (numbers == fold) & ~alone
            kept = ~held
            if held.any() and np.unique(class_index[kept]).size == np.unique(class_index).size:
                margins = self.margins if self.nested is None else self.nested.margins[fold]
                yield replace(plain, margins=margins, exact=None), kept, np.flatnonzero(held)

    def part(self, part: CodebookPart) -> Outputs:
        """Return the outputs of one of several joined codebooks."""
        return Outputs(
            self.margins[:, part.columns] * part.signs,
            self.provenance,
            None if self.variances is None else self.variances[:, part.columns],
            None if self.noise is None else self.noise[part.columns],
            None if self.norms is None else self.norms[part.columns],
            None if self.exact is None else self.exact[:, part.columns] * part.signs,
            self.dealt,
            None if self.nested is None else self.nested.part(part),
        )

    def rows(self, rows: Array) -> Outputs:
        """Return the outputs of some of the rows."""
        return replace(
            self,
            margins=self.margins[rows],
            variances=None if self.variances is None else self.variances[rows],
            exact=None if self.exact is None else self.exact[rows],
            dealt=None if self.dealt is None else self.dealt.take(rows),
            nested=None if self.nested is None else self.nested.rows(rows),
        )

    def __post_init__(self) -> None:
        if self.margins.ndim != 2:
            raise ValueError(f"margins must be a matrix of rows × machines, not {np.shape(self.margins)}")


def wrong_sum(log_proba: Array) -> tuple[int, float] | None:
    """Return the first row whose probabilities do not sum to one, and their sum; None if there is none.

    Parameters
    ----------
    log_proba : ndarray of shape (n, K)
        Log-probabilities.

    Returns
    -------
    tuple of int and float, or None

    Examples
    --------
    >>> wrong_sum(np.log([[0.5, 0.5], [0.5, 0.25]])), wrong_sum(np.log([[0.5, 0.5]]))
    ((1, 0.75), None)
    """
    with np.errstate(over="ignore"):
        sums = np.exp(np.asarray(log_proba, dtype=np.float64)).sum(axis=1)
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) <= _SUM_TOLERANCE))
    return (int(wrong[0]), float(sums[wrong[0]])) if wrong.size else None
