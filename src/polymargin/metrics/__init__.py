"""Metrics: how good labels and probabilities are, and whether a difference is more than luck."""

from polymargin.metrics.calibration import (
    BrierDecomposition,
    Divergence,
    Interval,
    ReliabilityCurve,
    bootstrap_interval,
    brier_decomposition,
    calibration_error,
    calibration_interval,
    class_loss,
    divergence_from_truth,
    refinement,
    reliability_curve,
)
from polymargin.metrics.cells import HalvesOut, leave_halves_out, leave_one_out_calibration_error
from polymargin.metrics.decomposition import Decomposition, bias_variance_noise
from polymargin.metrics.scores import accuracy, brier_score, log_loss
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

__all__ = [
    "BrierDecomposition",
    "Decomposition",
    "Divergence",
    "HalvesOut",
    "Interval",
    "ReliabilityCurve",
    "TestResult",
    "WinsTiesLosses",
    "accuracy",
    "bias_variance_noise",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_error",
    "calibration_interval",
    "class_loss",
    "divergence_from_truth",
    "five_by_two_f_test",
    "leave_halves_out",
    "leave_one_out_calibration_error",
    "log_loss",
    "mcnemar_test",
    "refinement",
    "reliability_curve",
    "sign_test",
    "verdict",
    "wilcoxon_test",
    "wins_ties_losses",
]
