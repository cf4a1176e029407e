"""Decisions beside probabilities: prediction sets of a stated coverage, and decisions under costs or with a reject.

The classifiers have them as methods, ``predict_set`` and ``decide``. Here is the mathematics, on arrays of
log-probabilities (`conformal`, `costs`), and both as functions that also take pipelines (`predict_set`, `decide`).
"""

from polymargin.decisions.conformal import CalibrationRows, conformity_scores, prediction_sets
from polymargin.decisions.costs import CostMatrix, decided_labels, expected_costs, least_cost
from polymargin.decisions.pipelines import decide, predict_set

__all__ = [
    "CalibrationRows",
    "CostMatrix",
    "conformity_scores",
    "decide",
    "decided_labels",
    "expected_costs",
    "least_cost",
    "predict_set",
    "prediction_sets",
]
