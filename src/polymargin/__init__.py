"""Multiclass kernel machines whose class probabilities can be trusted.

    data ──► kernel ──► codebook ──► machines ──► outputs ──► decoder ──► probabilities, labels

The estimators follow scikit-learn's conventions; start with `LSSVMClassifier`, or with `SVMClassifier` if you come
from `SVC`; `PosteriorSVMClassifier` estimates soft labels. Codings and decoders are named in their ``coding``
and ``decoding`` parameters or given as objects: a `Codebook` (or just a matrix) or `Adaptive`, and `Bayes`, `Hamming`,
`Loss`, `Argmax`, `Votes`, `Dag`, `Mixture`, `Stack`, `PlainSoftmax`. Data to try things on come from
`polymargin.datasets`.
"""

from typing import TYPE_CHECKING

from polymargin._lazy import attach
from polymargin._version import __version__ as __version__

# Imported when they are first used; a new name stands in both blocks. Folders that need an extra are not among them:
# `import polymargin.tables` says what is missing.
if TYPE_CHECKING:
    from polymargin import codebooks as codebooks
    from polymargin import datasets as datasets
    from polymargin import decoders as decoders
    from polymargin import densities as densities
    from polymargin import estimators as estimators
    from polymargin import inspection as inspection
    from polymargin import kernels as kernels
    from polymargin import metrics as metrics
    from polymargin import persistence as persistence
    from polymargin import plots as plots
    from polymargin import scale as scale
    from polymargin import selection as selection
    from polymargin.codebooks import Adaptive as Adaptive
    from polymargin.codebooks import Codebook as Codebook
    from polymargin.decoders import Argmax as Argmax
    from polymargin.decoders import Bayes as Bayes
    from polymargin.decoders import CoupledSoftmax as CoupledSoftmax
    from polymargin.decoders import Coupling as Coupling
    from polymargin.decoders import Dag as Dag
    from polymargin.decoders import Hamming as Hamming
    from polymargin.decoders import Loss as Loss
    from polymargin.decoders import Mixture as Mixture
    from polymargin.decoders import PlainSoftmax as PlainSoftmax
    from polymargin.decoders import Softmax as Softmax
    from polymargin.decoders import Stack as Stack
    from polymargin.decoders import Votes as Votes
    from polymargin.densities import KNNPosterior as KNNPosterior
    from polymargin.densities import WindowPosterior as WindowPosterior
    from polymargin.estimators import AutoKernelClassifier as AutoKernelClassifier
    from polymargin.estimators import KernelLogisticClassifier as KernelLogisticClassifier
    from polymargin.estimators import LSSVMClassifier as LSSVMClassifier
    from polymargin.estimators import PosteriorSVMClassifier as PosteriorSVMClassifier
    from polymargin.estimators import SVMClassifier as SVMClassifier
    from polymargin.persistence import load as load
    from polymargin.persistence import save as save
    from polymargin.tables import prepare as prepare
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "codebooks": ["Adaptive", "Codebook"],
            "decoders": [
                "Argmax",
                "Bayes",
                "CoupledSoftmax",
                "Coupling",
                "Dag",
                "Hamming",
                "Loss",
                "Mixture",
                "PlainSoftmax",
                "Softmax",
                "Stack",
                "Votes",
            ],
            "densities": ["KNNPosterior", "WindowPosterior"],
            "estimators": [
                "AutoKernelClassifier",
                "KernelLogisticClassifier",
                "LSSVMClassifier",
                "PosteriorSVMClassifier",
                "SVMClassifier",
            ],
            "persistence": ["load", "save"],
            "tables": ["prepare"],
        },
        submodules=[
            "codebooks",
            "datasets",
            "decoders",
            "densities",
            "estimators",
            "inspection",
            "kernels",
            "metrics",
            "persistence",
            "plots",
            "scale",
            "selection",
        ],
    )
    __all__ = sorted([*__all__, "__version__"])
