"""Multiclass kernel machines whose class probabilities can be trusted.

    data ──► kernel ──► codebook ──► machines ──► outputs ──► decoder ──► probabilities, labels

The estimators follow scikit-learn's conventions; start with `LSSVMClassifier`. Codings and decoders are named in
its ``coding`` and ``decoding`` parameters or given as objects: a `Codebook` (or just a matrix), and `Bayes`,
`Hamming`, `Loss`, `Argmax`, `Votes`, `Dag`. Data to try things on come from `polymargin.datasets`.
"""

from polymargin._version import __version__
from polymargin.codebooks import Codebook
from polymargin.decoders import Argmax, Bayes, Dag, Hamming, Loss, Votes
from polymargin.estimators import LSSVMClassifier

__all__ = [
    "Argmax",
    "Bayes",
    "Codebook",
    "Dag",
    "Hamming",
    "LSSVMClassifier",
    "Loss",
    "Votes",
    "__version__",
]
