"""A codebook among some of its classes, where the others are known to be absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks._base import Codebook

Array = NDArray[Any]


class PartialCodebook(Codebook):
    """The columns of a codebook that have both sides among some of its classes.

    It need not separate all of these classes: a column of the whole codebook that does may have one side only here.

    Parameters
    ----------
    matrix : ndarray of shape (k, l)
        The bits.
    """

    def __init__(self, matrix: Array):
        self.matrix = np.asarray(matrix, dtype=np.int8)
        self.matrix.setflags(write=False)
        self._describe()


@dataclass(frozen=True)
class Restriction:
    """A codebook among the classes that are present.

    Attributes
    ----------
    constants : ndarray of shape (L,)
        The bit that all present classes of a column have in common, ±1, if they are on one side; else zero.
    columns : ndarray of int, shape (l,)
        The columns with present classes on both sides.
    codebook : PartialCodebook or None
        These columns; None if there are none.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> found = Restriction.of(one_vs_one(3), np.array([0, 2]))
    >>> found.constants, found.columns, found.codebook.matrix.tolist()
    (array([-1.,  0.,  1.]), array([1]), [[-1], [1]])
    """

    constants: Array
    columns: Array
    codebook: PartialCodebook | None

    @classmethod
    def of(cls, codebook: Codebook, present: Array) -> Restriction:
        """Restrict a codebook to some classes.

        Parameters
        ----------
        codebook : Codebook
            The codebook.
        present : ndarray of int
            The classes, ascending.

        Returns
        -------
        Restriction
        """
        bits = codebook.matrix[present]
        plus, minus = (bits == 1).any(axis=0), (bits == -1).any(axis=0)
        columns = np.flatnonzero(plus & minus)
        partial = PartialCodebook(bits[:, columns]) if columns.size else None
        return cls(plus.astype(np.float64) - minus, columns, partial)
