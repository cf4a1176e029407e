"""Metrics: how good labels and probabilities are."""

from polymargin.metrics.scores import accuracy, brier_score, log_loss

__all__ = ["accuracy", "brier_score", "log_loss"]
