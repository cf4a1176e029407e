"""Gönen, Tanuğur and Alpaydın (2008), "Multiclass Posterior Probability Support Vector Machines"."""

from collections.abc import Callable

from polymargin.papers.gonen2008.figures import FIGURES
from polymargin.papers.gonen2008.table2 import Table2, Table2Sparse
from polymargin.papers.gonen2008.table2_noise import Table2Noise
from polymargin.papers.gonen2008.table2_posteriors import Table2Posteriors
from polymargin.papers.gonen2008.table4 import Table4, Table4Fast
from polymargin.papers.gonen2008.table5 import Table5, Table5Fast
from polymargin.papers.gonen2008.table6 import Table6, Table6Fast
from polymargin.papers.gonen2008.table7 import Table7, Table7Fast
from polymargin.reproduction import Experiment

__all__ = ["FAST_TABLES", "FIGURES", "TABLES"]

TABLES: dict[str, Callable[..., Experiment]] = {
    "2": Table2,
    "2-sparse": Table2Sparse,
    "2-noise": Table2Noise,
    "2-posteriors": Table2Posteriors,
    "4": Table4,
    "5": Table5,
    "6": Table6,
    "7": Table7,
}

#: Tables IV to VII with a coarser grid of C.
FAST_TABLES: dict[str, Callable[..., Experiment]] = {
    "4": Table4Fast,
    "5": Table5Fast,
    "6": Table6Fast,
    "7": Table7Fast,
}
