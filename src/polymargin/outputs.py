"""Outputs: what the machines say about rows, and how honestly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import Part

Array = NDArray[Any]

#: Where outputs come from. A decoder that learns must not learn from ``in_sample`` outputs unless it is told to.
Provenance = Literal["in_sample", "leave_one_out", "out_of_fold", "new"]


@dataclass(frozen=True)
class Outputs:
    """The outputs of L machines for n rows.

    Attributes
    ----------
    margins : ndarray of shape (n, L)
        z, positive on the side of the classes with codeword bit +1.
    provenance : {"in_sample", "leave_one_out", "out_of_fold", "new"}
        Whether the machines had seen the rows.
    variances : ndarray of shape (n, L) or None
        σ_z², the machine's own uncertainty about z, where it has one.
    noise : ndarray of shape (L,) or None
        1/ζ, the variance of the targets around z, where the machine has one.
    norms : ndarray of shape (L,) or None
        ‖w‖, the norms of the machines' weight vectors, where they are known.
    exact : ndarray of shape (n, L) or None
        Of leave-one-out outputs, the margins as they are. A machine that has learned nothing says the mean of the
        targets; without the row that mean is a little nearer to the other side, so the margins would tell the row's own
        class, backwards, to a decoder that learns from them. ``margins`` are therefore taken back to the mean of all.
    """

    margins: Array
    provenance: Provenance
    variances: Array | None = None
    noise: Array | None = None
    norms: Array | None = None
    exact: Array | None = None

    def part(self, part: Part) -> Outputs:
        """Return the outputs of one of several joined codebooks."""
        return Outputs(
            self.margins[:, part.columns] * part.signs,
            self.provenance,
            None if self.variances is None else self.variances[:, part.columns],
            None if self.noise is None else self.noise[part.columns],
            None if self.norms is None else self.norms[part.columns],
            None if self.exact is None else self.exact[:, part.columns] * part.signs,
        )

    def rows(self, rows: Array) -> Outputs:
        """Return the outputs of some of the rows."""
        return replace(
            self,
            margins=self.margins[rows],
            variances=None if self.variances is None else self.variances[rows],
            exact=None if self.exact is None else self.exact[rows],
        )

    def __post_init__(self) -> None:
        if self.margins.ndim != 2:
            raise ValueError(f"margins must be a matrix of rows × machines, not {np.shape(self.margins)}")
