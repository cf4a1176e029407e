"""Bravo, L'Huillier, Lobato and Weber (2010), "Probability Estimation … Combining SVMs and Neural Networks"."""

from collections.abc import Callable
from pathlib import Path

from polymargin.papers.bravo2010.figure1 import draw
from polymargin.papers.bravo2010.partitions import Partitions
from polymargin.papers.bravo2010.tables import Table3, Table4
from polymargin.reproduction import Experiment

__all__ = ["FIGURES", "TABLES"]

TABLES: dict[str, Callable[..., Experiment]] = {"3": Table3, "4": Table4, "scores": Partitions}

FIGURES: dict[str, Callable[[Path], Path]] = {"1": draw}
