"""Shim, Bae and Hwang (2008), "Multiclass Classification via Least Squares Support Vector Machine Regression"."""

from collections.abc import Callable
from pathlib import Path

from polymargin.papers.shim2008.figure51 import draw
from polymargin.papers.shim2008.table51 import Standardised, Table51
from polymargin.reproduction import Experiment

__all__ = ["FIGURES", "TABLES"]

TABLES: dict[str, Callable[..., Experiment]] = {"5.1": Table51, "5.1-standardised": Standardised}

FIGURES: dict[str, Callable[[Path], Path]] = {"5.1": draw}
