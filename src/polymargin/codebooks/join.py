"""Several codebooks as one, so that a dichotomy they share is trained once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks._base import Codebook

Array = NDArray[Any]


@dataclass(frozen=True)
class CodebookPart:
    """Where one of the joined codebooks finds its columns.

    Attributes
    ----------
    columns : ndarray of int, shape (L,)
        Column l of the part is column ``columns[l]`` of the joined codebook …
    signs : ndarray of {-1, +1}, shape (L,)
        … times ``signs[l]``.
    """

    columns: Array
    signs: Array


def join(codebooks: Sequence[Codebook], *, merge: bool = True) -> tuple[Codebook, list[CodebookPart]]:
    """Return one codebook with the dichotomies of the given ones, and where each finds its own.

    With ``merge`` a dichotomy that stands in several codebooks is kept once; a column and its complement are the
    same dichotomy. Without it every codebook keeps columns of its own, side by side.

    Parameters
    ----------
    codebooks : sequence of Codebook
        Codebooks of the same number of classes.
    merge : bool
        Whether equal dichotomies become one column.

    Returns
    -------
    joined : Codebook
        All the dichotomies.
    parts : list of CodebookPart
        For each of the codebooks, where its columns are.

    Examples
    --------
    >>> from polymargin.codebooks import ecoc, one_vs_all
    >>> joined, parts = join([one_vs_all(3), ecoc(3)])
    >>> joined.n_columns
    3
    """
    if not merge:
        starts = np.cumsum([0, *(book.n_columns for book in codebooks)])
        parts = [
            CodebookPart(np.arange(start, stop), np.ones(stop - start, dtype=int))
            for start, stop in pairwise(starts)
        ]
        return Codebook(np.concatenate([book.matrix for book in codebooks], axis=1)), parts
    index: dict[bytes, int] = {}
    columns: list[Array] = []
    parts = []
    for book in codebooks:
        positions, signs = [], []
        for column in book.matrix.T:
            # The canonical form begins with -1.
            sign = -int(column[np.flatnonzero(column)[0]])
            canonical = sign * column
            position = index.setdefault(canonical.tobytes(), len(columns))
            if position == len(columns):
                columns.append(canonical)
            positions.append(position)
            signs.append(sign)
        parts.append(CodebookPart(np.array(positions), np.array(signs)))
    return Codebook(np.stack(columns, axis=1)), parts
