"""Multiclass kernel machines whose class probabilities can be trusted.

    data ──► kernel ──► codebook ──► machines ──► outputs ──► decoder ──► probabilities, labels

The estimators follow scikit-learn's conventions; start with `LSSVMClassifier`, or with `SVMClassifier` if you come
from `SVC`. Codings and decoders are named in their ``coding`` and ``decoding`` parameters or given as objects: a
`Codebook` (or just a matrix) or `Adaptive`, and `Bayes`, `Hamming`, `Loss`, `Argmax`, `Votes`, `Dag`, `Mixture`,
`Stack`. Data to try things on come from `polymargin.datasets`.
"""

from polymargin._version import __version__
from polymargin.codebooks import Adaptive, Codebook
from polymargin.decoders import Argmax, Bayes, Dag, Hamming, Loss, Mixture, Stack, Votes
from polymargin.estimators import LSSVMClassifier, SVMClassifier

__all__ = [
    "Adaptive",
    "Argmax",
    "Bayes",
    "Codebook",
    "Dag",
    "Hamming",
    "LSSVMClassifier",
    "Loss",
    "Mixture",
    "SVMClassifier",
    "Stack",
    "Votes",
    "__version__",
]
