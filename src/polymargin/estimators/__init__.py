"""Estimators: the flow as scikit-learn classifiers."""

from polymargin.estimators._flow import fit_together
from polymargin.estimators.auto import AutoKernelClassifier
from polymargin.estimators.kernel_logistic import KernelLogisticClassifier
from polymargin.estimators.lssvm import LSSVMClassifier
from polymargin.estimators.posterior_svm import PosteriorSVMClassifier
from polymargin.estimators.svm import SVMClassifier

__all__ = [
    "AutoKernelClassifier",
    "KernelLogisticClassifier",
    "LSSVMClassifier",
    "PosteriorSVMClassifier",
    "SVMClassifier",
    "fit_together",
]
