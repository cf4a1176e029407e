"""Estimators: the flow as scikit-learn classifiers."""

from polymargin.estimators.lssvm import LSSVMClassifier
from polymargin.estimators.svm import SVMClassifier

__all__ = ["LSSVMClassifier", "SVMClassifier"]
