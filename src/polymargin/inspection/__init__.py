"""Inspection of fitted estimators: what was tried and chosen, and the quality on rows that were held out.

`selection_surface` computes the criterion that C and gamma were selected by, `searches` lists the candidates that were
compared, `honest_rows` gives the cross-fitted probabilities of the training rows, `feature_relevance` says how much a
model depends on every column, and `polymargin.inspection.html` adds a table of choices to scikit-learn's HTML diagram.
"""

from polymargin.inspection.honest import HonestRows, honest_rows
from polymargin.inspection.relevance import FeatureRelevance, feature_relevance
from polymargin.inspection.surface import SelectionSurface, selection_surface
from polymargin.inspection.tried import Tried, searches

__all__ = [
    "FeatureRelevance",
    "HonestRows",
    "SelectionSurface",
    "Tried",
    "feature_relevance",
    "honest_rows",
    "searches",
    "selection_surface",
]
