"""Table II with wrong labels: whether soft labels correct them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polymargin.papers.gonen2008.synthetic import Draw, Judged, Synthetic
from polymargin.reproduction import Layout

__all__ = ["Table2Noise"]


class Table2Noise(Synthetic):
    """Agreement with the Bayes rule (%) of machines trained and tuned on labels of which a fifth is wrong.

    Uniform noise leaves the most probable class of every point as it is, so the best rule is still the Bayes rule of
    the clean problem, and 100 % could be reached.
    """

    name = "gonen2008-table2-noise"
    title = "R1 to R4 with 20 % wrong labels: agreement with the Bayes rule in %"
    table = "2-noise"
    layout = Layout(rows=("dataset", "kernel"), columns=("method",))
    better = "higher"

    @property
    def columns(self) -> list[dict[str, str]]:
        """The canonical SVM and either family of densities."""
        return [{"method": method} for method in ("canonical", *self.protocol["densities"])]

    def measure(self, draw: Draw, judged: Mapping[str, Judged]) -> list[float]:
        """Return the agreements."""
        bayes = draw.posterior.argmax(axis=1)
        return [100.0 * float(np.mean(judged[c["method"]].predicted == bayes)) for c in self.columns]
