"""Plots for notebooks, in scikit-learn's manner: displays with `from_estimator`, `plot`, ``ax_`` and ``figure_``.

They need matplotlib: install polymargin with its plot extra; it is imported when they draw.
"""

from polymargin.plots.codebook import CodebookDisplay
from polymargin.plots.regions import DecisionRegionDisplay, DecisionRegions, decision_regions
from polymargin.plots.relevance import RelevanceDisplay
from polymargin.plots.reliability import ReliabilityDisplay
from polymargin.plots.selection import SelectionDisplay

__all__ = [
    "CodebookDisplay",
    "DecisionRegionDisplay",
    "DecisionRegions",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "SelectionDisplay",
    "decision_regions",
]
