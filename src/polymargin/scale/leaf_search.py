"""The size of leaves: by the log-loss of a decoder that is cross-fitted to their honest outputs.

Large leaves see more neighbours of a row, small ones have a C and a gamma of their own that fit their region. Which is
better depends on the data, so that both are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import Codebook
from polymargin.decoders._base import significant
from polymargin.scale.landmark_search import Judge
from polymargin.scale.sources import FittedLeaf, Sample
from polymargin.scale.tree import Tree

Array = NDArray[Any]


@dataclass(frozen=True)
class GrownLeaves:
    """A tree with its trained leaves.

    Attributes
    ----------
    leaf_rows : int
        The largest number of rows of a leaf.
    tree : Tree
        The regions.
    leaves : sequence of FittedLeaf
        Their machines.
    """

    leaf_rows: int
    tree: Tree
    leaves: Sequence[FittedLeaf]

    def left_out(self, n_rows: int, n_columns: int) -> tuple[Array, Array]:
        """Return the leave-one-out margins of the decoder's sample, and the same without the shift of the target mean.

        Parameters
        ----------
        n_rows, n_columns : int
            The rows of the sample, and the columns of the codebook.

        Returns
        -------
        exact, honest : ndarray of shape (n, L)
        """
        exact, honest = np.zeros((2, n_rows, n_columns))
        # Routing weights of all leaves of a row sum to one.
        for each in self.leaves:
            exact[each.sampled] += each.shares[:, np.newaxis] * each.exact
            honest[each.sampled] += each.shares[:, np.newaxis] * each.honest
        return exact, honest


def search_leaf_rows(
    sizes: Sequence[int],
    grow: Callable[[int], GrownLeaves],
    decoded: Sample,
    codebook: Codebook,
    judge: Judge,
    significance: float,
) -> GrownLeaves:
    """Enlarge leaves while that lowers the honest log-loss.

    Parameters
    ----------
    sizes : sequence of int
        The largest numbers of rows of a leaf, ascending.
    grow : callable (leaf_rows) -> GrownLeaves
        Trains the leaves of a sample.
    decoded : Sample
        The sample.
    codebook : Codebook
        The dichotomies.
    judge : Judge
        The decoder.
    significance : float
        How many standard errors a change must gain.

    Returns
    -------
    GrownLeaves
        Those of the size that is chosen.
    """
    best: GrownLeaves | None = None
    losses = np.empty(0)
    for size in sizes:
        grown = grow(size)
        honest = grown.left_out(decoded.numbers.size, codebook.n_columns)[1]
        tried, weights = judge(codebook, decoded.rows, honest)
        if best is not None and not significant(losses - tried, weights, significance):
            break
        best, losses = grown, tried
    assert best is not None
    return best
