"""Estimators: the flow as scikit-learn classifiers."""

from polymargin.estimators.lssvm import LSSVMClassifier

__all__ = ["LSSVMClassifier"]
