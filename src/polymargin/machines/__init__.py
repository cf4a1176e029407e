"""Machine banks: from kernel, codebook and labels to the decision functions of all dichotomies."""

from typing import TYPE_CHECKING

from polymargin._lazy import attach

# Imported when they are first used: the hinge machines need numba, which least squares never loads.
if TYPE_CHECKING:
    from polymargin.machines._workspace import Workspace as Workspace
    from polymargin.machines.cross_validation import cross_validate_svm as cross_validate_svm
    from polymargin.machines.lssvm import LSSVMBank as LSSVMBank
    from polymargin.machines.lssvm_training import fit_lssvm_bank as fit_lssvm_bank
    from polymargin.machines.single import SingleMachineBank as SingleMachineBank
    from polymargin.machines.single import fit_single_bank as fit_single_bank
    from polymargin.machines.svm import SVMBank as SVMBank
    from polymargin.machines.svm import fit_svm_bank as fit_svm_bank
    from polymargin.rows import TrainingRows as TrainingRows
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "_workspace": ["Workspace"],
            "cross_validation": ["cross_validate_svm"],
            "lssvm": ["LSSVMBank"],
            "lssvm_training": ["fit_lssvm_bank"],
            "single": ["SingleMachineBank", "fit_single_bank"],
            "svm": ["SVMBank", "fit_svm_bank"],
            ".rows": ["TrainingRows"],
        },
    )
