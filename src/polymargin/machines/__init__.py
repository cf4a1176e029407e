"""Machine banks: from kernel, codebook and labels to the decision functions of all dichotomies."""

from typing import Any

from polymargin.machines._workspace import Workspace
from polymargin.machines.lssvm import LSSVMBank
from polymargin.machines.lssvm_training import fit_lssvm_bank
from polymargin.rows import TrainingRows

__all__ = [
    "LSSVMBank",
    "SVMBank",
    "SingleMachineBank",
    "TrainingRows",
    "Workspace",
    "cross_validate_svm",
    "fit_lssvm_bank",
    "fit_single_bank",
    "fit_svm_bank",
]


def __getattr__(name: str) -> Any:
    """Import the hinge machines when they are wanted: they need numba, which least squares never loads."""
    if name in ("SVMBank", "fit_svm_bank"):
        from polymargin.machines import svm

        return getattr(svm, name)
    if name in ("SingleMachineBank", "fit_single_bank"):
        from polymargin.machines import single

        return getattr(single, name)
    if name == "cross_validate_svm":
        from polymargin.machines import cross_validation

        return cross_validation.cross_validate_svm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
