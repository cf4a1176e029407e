"""A possible cause of the table's errors of 60 to 70 %: outputs that are read as those of other classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.decoders import Argmax, Decoder, Mixture
from polymargin.outputs import Outputs
from polymargin.papers.mayoraz1998.table1 import Table1
from polymargin.reproduction import Key

__all__ = ["Misnumbered", "NextClass"]


class NextClass(Argmax):
    """`Argmax` with an error: the output of each machine is the score of the class after its own."""

    def scores(self, outputs: Outputs) -> NDArray[Any]:
        """Return the scores of `Argmax` one class late, shape (n, K)."""
        return np.roll(super().scores(outputs), 1, axis=1)


class Misnumbered(Table1):
    """The table's vowel and soybean, where in some of the ten runs each machine is taken for the next class's.

    The mixture matrix is learned from outputs and labels, so it does not matter to it which machine is whose.
    """

    name = "mayoraz1998-table1-misnumbered"
    title = "Mayoraz and Alpaydın (1998), Section 5, machines misnumbered in some runs: test error in %"
    table = "1-misnumbered"

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(protocol)
        datasets = self.protocol["datasets"]
        self.protocol["datasets"] = {name: datasets[name] for name in self.protocol["misnumbered_runs"]}

    def decoders(self, job: Key) -> dict[str, Decoder]:
        """Return the paper's decoders; in a misnumbered run, those that depend on the numbers of machines are wrong."""
        if int(job["run"]) > self.protocol["misnumbered_runs"][job["dataset"]][job["degree"]]:
            return super().decoders(job)
        return {
            "none": NextClass(),
            "pi_w": NextClass("norm"),
            "pi_star": NextClass("least-squares", in_sample=True),
            "M": Mixture(in_sample=True),
        }
