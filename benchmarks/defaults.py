"""What the defaults of `LSSVMClassifier` and `AutoKernelClassifier` are worth, changed one thing at a time.

    python benchmarks/defaults.py [--datasets NAME ...] [--variants VARIANT ...] [--splits 2] [--jobs 1] [--report]

Every variant changes one parameter of a base: one-vs-one machines with the kernel "blend", C and gamma by leave-one-out
errors, decoded by the coupled softmax. The base does not try smaller values of C, because that needs a decoder that
learns from honest outputs: a variant with another decoder would change two things. To try them is a variant by itself,
and so is the choice between two kernels, without smaller C too; the estimators with all their defaults come last, and
change more than one thing. Datasets, figures and results are as in ``search.py``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression

from _ablation import main  # holds BLAS to one thread
from polymargin import AutoKernelClassifier, CoupledSoftmax, Coupling, LSSVMClassifier, Stack
from polymargin.kernels import Polynomial
from polymargin.selection.settings import DEFAULT

RESULTS = Path("polymargin-results") / "defaults.jsonl"
NO_SMALLER_C = replace(DEFAULT, smaller=(1.0,))


def base(**changes: Any) -> LSSVMClassifier:
    return LSSVMClassifier(**{"kernel": "blend", "search": NO_SMALLER_C, **changes})


VARIANTS: dict[str, Any] = {
    "base": base(),
    "smaller C is tried": base(search=None),
    "kernel: chosen": base(kernel=None),
    "kernel: rbf": base(kernel="rbf"),
    "kernel: laplacian": base(kernel="laplacian"),
    "kernel: poly 2, centred": base(kernel=Polynomial(2, centred=True)),
    "kernel: linear": base(kernel="linear"),
    "coding: one-vs-all": base(coding="one-vs-all"),
    "coding: ecoc": base(coding="ecoc", random_state=0),
    "selection: gcv": base(selection="gcv"),
    "selection: evidence": base(selection="evidence"),
    "selection: each machine its own": base(shared_parameters=False),
    "decoder: softmax": base(decoding="softmax"),
    "decoder: coupling (WLW2)": base(decoding=Coupling("wlw2")),
    "decoder: coupled softmax, smoothing 3": base(decoding=CoupledSoftmax(smoothing=3.0)),
    "decoder: coupled softmax, ridge 10": base(decoding=CoupledSoftmax(ridge=10.0)),
    "decoder: multinomial logistic": base(decoding=Stack(LogisticRegression(max_iter=2000))),
    "decoder: Bayes": base(decoding="bayes"),
    "LSSVMClassifier()": LSSVMClassifier(),
    "AutoKernelClassifier()": AutoKernelClassifier(),
}

if __name__ == "__main__":
    main(__doc__, RESULTS, VARIANTS)
