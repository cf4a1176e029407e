"""Inspection of fitted estimators: what was tried and chosen, and the quality on rows that were held out.

`selection_surface` computes the criterion that C and gamma were selected by, `searches` lists the candidates that were
compared, `honest_rows` gives the cross-fitted probabilities of the training rows, `feature_relevance` says how much a
model depends on every column, and `polymargin.inspection.html` adds a table of choices to scikit-learn's HTML diagram.
"""

from typing import TYPE_CHECKING

from polymargin._lazy import attach

# Imported when they are first used: every estimator needs the table in `html`, hardly any the rest.
if TYPE_CHECKING:
    from polymargin.inspection.honest import HonestRows as HonestRows
    from polymargin.inspection.honest import honest_rows as honest_rows
    from polymargin.inspection.relevance import FeatureRelevance as FeatureRelevance
    from polymargin.inspection.relevance import feature_relevance as feature_relevance
    from polymargin.inspection.surface import SelectionSurface as SelectionSurface
    from polymargin.inspection.surface import selection_surface as selection_surface
    from polymargin.inspection.tried import Tried as Tried
    from polymargin.inspection.tried import searches as searches
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "honest": ["HonestRows", "honest_rows"],
            "relevance": ["FeatureRelevance", "feature_relevance"],
            "surface": ["SelectionSurface", "selection_surface"],
            "tried": ["Tried", "searches"],
        },
    )
