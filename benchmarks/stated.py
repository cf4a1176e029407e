"""The log-loss that fit states, and the one on new rows, where there are many columns.

    python benchmarks/stated.py [--draws 12] [--write]

Problems of `make_classification` with 15 informative columns, standardised; 5000 new rows of each draw. ``--write``
writes the table of ``benchmarks/results/stated.csv``.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from _tables import write_table  # noqa: E402
from polymargin import AutoKernelClassifier, LSSVMClassifier  # noqa: E402

RESULT = Path(__file__).parent / "results" / "stated.csv"
#: Training rows, columns, classes.
PROBLEMS = ((800, 20, 3), (800, 60, 2), (800, 60, 5))
HEADINGS = ["rows, columns, classes", "", "stated by fit", "on new rows", "larger by"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = [HEADINGS]
    for n, n_columns, K in PROBLEMS:
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(arguments.draws):
            X, y = make_classification(n + 5000, n_columns, n_informative=15, n_classes=K, random_state=seed)
            X = StandardScaler().fit(X[:n]).transform(X)
            for model in (LSSVMClassifier(), AutoKernelClassifier()):
                fitted = model.fit(X[:n], y[:n])
                losses = (fitted.loo_log_loss_, log_loss(y[n:], fitted.predict_proba(X[n:])))
                found.setdefault(f"{type(model).__name__}()", []).append(losses)
        for name, pairs in found.items():
            stated, new = np.transpose(pairs)
            ratio = np.log(stated / new)
            error = 100.0 * ratio.std(ddof=1) / np.sqrt(ratio.size)
            larger = f"{100.0 * np.expm1(ratio.mean()):.0f} ± {error:.0f} %"
            lines.append(
                [f"{n}, {n_columns}, {K}", name, f"{stated.mean():.3f}", f"{new.mean():.3f}", larger]
            )
            print("  ".join(lines[-1]), flush=True)
    if arguments.write:
        write_table(RESULT, lines)


if __name__ == "__main__":
    main()
