"""Estimators: the flow as scikit-learn classifiers."""

from typing import TYPE_CHECKING

from polymargin._lazy import attach

if TYPE_CHECKING:
    from polymargin.estimators._flow import fit_together as fit_together
    from polymargin.estimators.auto import AutoKernelClassifier as AutoKernelClassifier
    from polymargin.estimators.kernel_logistic import KernelLogisticClassifier as KernelLogisticClassifier
    from polymargin.estimators.lssvm import LSSVMClassifier as LSSVMClassifier
    from polymargin.estimators.posterior_svm import PosteriorSVMClassifier as PosteriorSVMClassifier
    from polymargin.estimators.svm import SVMClassifier as SVMClassifier
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "_flow": ["fit_together"],
            "auto": ["AutoKernelClassifier"],
            "kernel_logistic": ["KernelLogisticClassifier"],
            "lssvm": ["LSSVMClassifier"],
            "posterior_svm": ["PosteriorSVMClassifier"],
            "svm": ["SVMClassifier"],
        },
    )
