"""Metrics: how good labels and probabilities are, and whether a difference is more than luck."""

from polymargin.metrics.brier import BrierDecomposition, brier_decomposition, refinement
from polymargin.metrics.calibration import ReliabilityCurve, calibration_error, reliability_curve
from polymargin.metrics.cells import HalvesOut, leave_halves_out, leave_one_out_calibration_error
from polymargin.metrics.decomposition import Decomposition, bias_variance_noise
from polymargin.metrics.divergence import Divergence, divergence_from_truth
from polymargin.metrics.intervals import Interval, bootstrap_interval, calibration_interval
from polymargin.metrics.scores import accuracy, brier_score, class_loss, log_loss
from polymargin.metrics.significance import (
    TestResult,
    WinsTiesLosses,
    five_by_two_f_test,
    mcnemar_test,
    sign_test,
    verdict,
    wilcoxon_test,
    wins_ties_losses,
)
from polymargin.metrics.unbalanced import (
    Baseline,
    balanced_accuracy,
    class_frequencies_baseline,
    is_unbalanced,
    one_vs_rest_auc,
)

__all__ = [
    "Baseline",
    "BrierDecomposition",
    "Decomposition",
    "Divergence",
    "HalvesOut",
    "Interval",
    "ReliabilityCurve",
    "TestResult",
    "WinsTiesLosses",
    "accuracy",
    "balanced_accuracy",
    "bias_variance_noise",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_error",
    "calibration_interval",
    "class_frequencies_baseline",
    "class_loss",
    "divergence_from_truth",
    "five_by_two_f_test",
    "is_unbalanced",
    "leave_halves_out",
    "leave_one_out_calibration_error",
    "log_loss",
    "mcnemar_test",
    "one_vs_rest_auc",
    "refinement",
    "reliability_curve",
    "sign_test",
    "verdict",
    "wilcoxon_test",
    "wins_ties_losses",
]
