"""What each number of `SearchSettings` is worth: the search of `LSSVMClassifier`, changed one thing at a time.

    python benchmarks/search.py [--datasets NAME ...] [--variants VARIANT ...] [--splits 2] [--jobs 1] [--report]

Every variant is `LSSVMClassifier` with one setting changed ("budget" is the two numbers that make it,
"no tempering" concerns the decoder). The datasets are those of ``devsets.py``, which no published figure uses; two
thirds are trained on, standardised. Printed is the geometric mean over datasets of the log-loss relative to the
default, the same for the CPU time of fitting, and the datasets on which a variant does worst and best. Finished results
are kept in ``polymargin-results/search.jsonl``: a run can be stopped and goes on where it was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from _ablation import main  # holds BLAS to one thread
from polymargin import CoupledSoftmax, LSSVMClassifier
from polymargin.selection.settings import DEFAULT

RESULTS = Path("polymargin-results") / "search.jsonl"


class Untempered(CoupledSoftmax):
    """Probabilities as they are learned."""

    def _temper(self, log_p: Any, folds: Any, class_index: Any, weights: Any) -> None:
        self.trust_, self.cross_log_proba_ = 1.0, log_p


def changed(**settings: Any) -> LSSVMClassifier:
    return LSSVMClassifier(search=replace(DEFAULT, **settings))


def budget(factor: float) -> LSSVMClassifier:
    return changed(operations=factor * DEFAULT.operations, relative=factor * DEFAULT.relative)


VARIANTS: dict[str, LSSVMClassifier] = {
    "default": LSSVMClassifier(),
    "no smaller C": changed(smaller=(1.0,)),
    "smaller C by 4, 16, ..., 1024": changed(smaller=tuple(4.0**power for power in range(6))),
    "lattice of gamma from -6 to 2": changed(octaves=tuple(range(-6, 3, 2))),
    "lattice of gamma in single octaves": changed(octaves=tuple(range(-9, 7))),
    "budget × 1/2": budget(0.5),
    "budget × 2": budget(2.0),
    "3 folds": changed(folds=3),
    "10 folds": changed(folds=10),
    "no tempering": LSSVMClassifier(decoding=Untempered()),
}

if __name__ == "__main__":
    main(__doc__, RESULTS, VARIANTS)
