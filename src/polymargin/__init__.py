"""Multiclass kernel machines whose class probabilities can be trusted.

    data ──► kernel ──► codebook ──► machines ──► outputs ──► decoder ──► probabilities, labels

The estimators follow scikit-learn's conventions; start with `LSSVMClassifier`, or with `SVMClassifier` if you come
from `SVC`; `PosteriorSVMClassifier` is for noisy or soft labels. Codings and decoders are named in their ``coding``
and ``decoding`` parameters or given as objects: a `Codebook` (or just a matrix) or `Adaptive`, and `Bayes`, `Hamming`,
`Loss`, `Argmax`, `Votes`, `Dag`, `Mixture`, `Stack`, `PlainSoftmax`. Data to try things on come from
`polymargin.datasets`.
"""

from polymargin._version import __version__
from polymargin.codebooks import Adaptive, Codebook
from polymargin.decoders import (
    Argmax,
    Bayes,
    CoupledSoftmax,
    Coupling,
    Dag,
    Hamming,
    Loss,
    Mixture,
    PlainSoftmax,
    Softmax,
    Stack,
    Votes,
)
from polymargin.densities import KNNPosterior, WindowPosterior
from polymargin.estimators import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)
from polymargin.persistence import load, save

__all__ = [
    "Adaptive",
    "Argmax",
    "AutoKernelClassifier",
    "Bayes",
    "Codebook",
    "CoupledSoftmax",
    "Coupling",
    "Dag",
    "Hamming",
    "KNNPosterior",
    "KernelLogisticClassifier",
    "LSSVMClassifier",
    "Loss",
    "Mixture",
    "PlainSoftmax",
    "PosteriorSVMClassifier",
    "SVMClassifier",
    "Softmax",
    "Stack",
    "Votes",
    "WindowPosterior",
    "__version__",
    "load",
    "save",
]
