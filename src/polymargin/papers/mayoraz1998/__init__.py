"""Mayoraz and Alpaydın (1998), "Support Vector Machines for Multi-Class Classification"."""

from collections.abc import Callable
from pathlib import Path

from polymargin.papers.mayoraz1998.figure1 import draw
from polymargin.papers.mayoraz1998.misnumbered import Misnumbered
from polymargin.papers.mayoraz1998.table1 import Table1
from polymargin.reproduction import Experiment

__all__ = ["FIGURES", "TABLES"]

TABLES: dict[str, Callable[..., Experiment]] = {"1": Table1, "1-misnumbered": Misnumbered}

FIGURES: dict[str, Callable[[Path], Path]] = {"1": draw}
