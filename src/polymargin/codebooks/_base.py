"""The codebook: which classes each dichotomy sets against which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

#: How messages number classes and columns.
_COUNTED = " (counted from 0)"


@dataclass(frozen=True)
class ColumnGroup:
    """The columns of a codebook that use the same classes, and hence the same training rows.

    Attributes
    ----------
    classes : ndarray of bool, shape (K,)
        The classes that take part.
    columns : ndarray of int
        The columns of the codebook in which exactly these classes are not "don't care".
    """

    classes: Array
    columns: Array


class Codebook:
    """A K×L matrix over {-1, 0, +1}: row k is the codeword of class k, 0 means "don't care".

    Every output coding is such a matrix. One that cannot work is refused, with the reason.

    Parameters
    ----------
    matrix : array-like of shape (n_classes, n_columns)
        The codewords.

    Attributes
    ----------
    n_classes, n_columns : int
        The number of classes, K, and of dichotomies, L.
    is_dense : bool
        Whether every class takes part in every dichotomy.
    is_pairwise : bool
        Whether every column sets one class against one other, and every pair has its column.
    pairs : tuple of two ndarrays of shape (L,)
        Of a pairwise codebook, the columns of the pairs (0, 1), (0, 2), …, and whether the first class of each is on
        the positive side.
    is_one_vs_all : bool
        Whether every column sets one class against all others, and every class has its column.
    column_groups : list of ColumnGroup
        The columns grouped by the classes they use, in order of first appearance.

    Examples
    --------
    >>> book = Codebook([[-1, -1, 0], [1, 0, -1], [0, 1, 1]])
    >>> book.n_classes, book.n_columns, book.min_distance
    (3, 3, 2.0)
    >>> Codebook([[1, -1], [1, -1], [-1, 1]])
    Traceback (most recent call last):
        ...
    ValueError: no column separates class 0 from class 1: in every column they have equal signs or a 0 (counted from 0)
    """

    def __init__(self, matrix: ArrayLike):
        given = np.asarray(matrix)
        if given.ndim != 2 or 0 in given.shape:
            raise ValueError(
                f"a codebook is a matrix with one row per class and one column per dichotomy, not an array "
                f"of shape {given.shape}"
            )
        if not np.isin(given, (-1, 0, 1)).all():
            raise ValueError("a codebook holds only -1, 0 (don't care) and +1")
        self.matrix: Array = given.astype(np.int8)
        self.matrix.setflags(write=False)
        one_sided = np.flatnonzero((self.matrix.max(axis=0) < 1) | (self.matrix.min(axis=0) > -1))
        if one_sided.size:
            raise ValueError(
                f"column {one_sided[0]}{_COUNTED} has no class on one of its sides: it needs a -1 and a +1"
            )
        idle = np.flatnonzero(~self.matrix.any(axis=1))
        if idle.size:
            raise ValueError(f"class {idle[0]}{_COUNTED} has no bit: its codeword is all don't care")
        plus, minus = (self.matrix == 1).astype(np.float64), (self.matrix == -1).astype(np.float64)
        opposed = plus @ minus.T + minus @ plus.T
        np.fill_diagonal(opposed, 1)
        if not opposed.all():
            i, j = np.argwhere(opposed == 0)[0]
            raise ValueError(
                f"no column separates class {i} from class {j}: in every column they have equal signs or a "
                f"0{_COUNTED}"
            )
        self._describe()

    def _describe(self) -> None:
        """Set what follows from the matrix."""
        plus, minus = self.matrix == 1, self.matrix == -1
        K, L = self.n_classes, self.n_columns = self.matrix.shape
        alone, against_one = plus.sum(axis=0) == 1, minus.sum(axis=0) == 1
        self.is_dense = bool(self.matrix.all())
        self.is_pairwise = bool((alone & against_one).all()) and L == K * (K - 1) // 2
        self.is_one_vs_all = self.is_dense and bool(alone.all()) and L == K
        if self.is_pairwise:
            positive, negative = self.matrix.argmax(axis=0), self.matrix.argmin(axis=0)
            columns = np.lexsort((np.maximum(positive, negative), np.minimum(positive, negative)))
            self.pairs = columns, (positive < negative)[columns]
        groups: dict[bytes, list[int]] = {}
        used = self.matrix != 0
        for column in range(L):
            groups.setdefault(used[:, column].tobytes(), []).append(column)
        self.column_groups = [
            ColumnGroup(used[:, members[0]], np.array(members)) for members in groups.values()
        ]

    @cached_property
    def distances(self) -> Array:
        """Hamming distances between the codewords, shape (K, K); a don't care counts one half."""
        signed = self.matrix.astype(np.float64)
        return 0.5 * (self.n_columns - signed @ signed.T)

    @property
    def min_distance(self) -> float:
        """The smallest Hamming distance between two codewords."""
        off_diagonal = ~np.eye(self.n_classes, dtype=bool)
        return float(self.distances[off_diagonal].min())

    def targets(self, class_index: Array) -> Array:
        """Return the target of every row in every dichotomy, from its class index.

        Parameters
        ----------
        class_index : ndarray of int, shape (n,)
            The class of every row.

        Returns
        -------
        targets : ndarray of shape (n, L)
            -1, 0 or +1.
        """
        return self.matrix[class_index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        return {"matrix": self.matrix}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # What comes back from a file is checked and made read-only like what came in.
        self.__init__(state["matrix"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Codebook({self.n_classes} classes × {self.n_columns} columns)"
