"""Machine banks: from kernel, codebook and labels to the decision functions of all dichotomies."""

from polymargin.machines._rows import TrainingRows
from polymargin.machines.lssvm import LSSVMBank, fit_lssvm_bank

__all__ = ["LSSVMBank", "TrainingRows", "fit_lssvm_bank"]
