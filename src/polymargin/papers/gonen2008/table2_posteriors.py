"""How near estimated posteriors come to the true ones on R1 to R4."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from polymargin.papers.gonen2008.densities import posteriors_of_new
from polymargin.papers.gonen2008.synthetic import Draw, Judged, Synthetic
from polymargin.reproduction import Layout

__all__ = ["Table2Posteriors", "jensen_shannon"]

Array = NDArray[np.float64]


def jensen_shannon(P: Array, Q: Array) -> float:
    """Return the mean Jensen–Shannon divergence of rows in bits, from 0 (equal) to 1 (disjoint).

    Unlike the Kullback–Leibler divergence it is finite where a class has no neighbours.

    Examples
    --------
    >>> jensen_shannon(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]]))
    0.5
    """
    middle = 0.5 * (P + Q)
    halves = rel_entr(P, middle).sum(axis=1) + rel_entr(Q, middle).sum(axis=1)
    return float(halves.mean() / (2.0 * np.log(2.0)))


class Table2Posteriors(Synthetic):
    """Mean Jensen–Shannon divergence (bits / 100) between estimated and true posteriors of test rows.

    Columns are the softmax of Section IV-C of the canonical and of both posterior probability SVMs, and the
    densities alone, with the same neighbourhoods as these.
    """

    name = "gonen2008-table2-posteriors"
    title = "R1 to R4: divergence of estimated from true posteriors, in hundredths of a bit"
    table = "2-posteriors"
    layout = Layout(rows=("dataset", "kernel"), columns=("method",))
    better = "lower"

    @property
    def columns(self) -> list[dict[str, str]]:
        """Three machines, two densities."""
        families = list(self.protocol["densities"])
        return [{"method": m} for m in ("canonical", *families, *(f"{family}-alone" for family in families))]

    def measure(self, draw: Draw, judged: Mapping[str, Judged]) -> list[float]:
        """Return the divergences."""
        values = []
        for column in self.columns:
            family, _, alone = column["method"].partition("-")
            machine = judged[family]
            estimate = (
                posteriors_of_new(draw.final, machine.choice.density) if alone else machine.probabilities
            )
            values.append(100.0 * jensen_shannon(draw.posterior, estimate))
        return values
