"""Estimated class probabilities against the true ones, on the four synthetic problems of Gönen et al. (2008).

    python benchmarks/posteriors.py [--draws 10] [--rows 300]

Everything is fitted on the same draws of training rows and compared on 5000 other rows: the mean Kullback–Leibler
divergence from the true posterior to the estimate, and the mean absolute difference, with standard errors over the
draws. Counting estimators give zeros, whose divergence is infinite, so every estimate is mixed with one part in a
thousand of the uniform distribution first. The machines have C = 1, gamma = "scale", and soft labels from 15 neighbours
or windows of four times r0.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from polymargin import KNNPosterior, PosteriorSVMClassifier, WindowPosterior  # noqa: E402
from polymargin.datasets import generators  # noqa: E402
from polymargin.densities import mean_nearest_distance  # noqa: E402

#: The part of the uniform distribution in every estimate.
MIX = 1e-3


def methods(X: Any) -> dict[str, Callable[[], Any]]:
    wide = 4.0 * mean_nearest_distance(X)
    svm = PosteriorSVMClassifier
    table: dict[str, Callable[[], Any]] = {
        "5 neighbours": lambda: KNNPosterior(5),
        "15 neighbours": lambda: KNNPosterior(15),
        "window 2 r0": lambda: WindowPosterior(),
        "window 4 r0": lambda: WindowPosterior(wide),
    }
    for decoding in ("plain-softmax", "softmax"):
        table |= {
            f"canonical single, {decoding}": lambda d=decoding: svm(density=None, decoding=d),
            f"single on neighbours, {decoding}": lambda d=decoding: svm(n_neighbors=15, decoding=d),
            f"single on windows, {decoding}": lambda d=decoding: svm(
                density="window", radius=wide, decoding=d
            ),
            f"one-vs-all on neighbours, {decoding}": lambda d=decoding: svm(
                machine="one-vs-all", n_neighbors=15, decoding=d
            ),
        }
    return table


def divergence(true: Any, estimate: Any) -> tuple[float, float]:
    """Return the mean Kullback–Leibler divergence and the mean absolute difference."""
    mixed = (1.0 - MIX) * estimate + MIX / true.shape[1]
    terms = np.where(true > 0.0, true * (np.log(np.maximum(true, 1e-300)) - np.log(mixed)), 0.0)
    return float(terms.sum(axis=1).mean()), float(np.abs(true - estimate).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, default=300)
    arguments = parser.parse_args()
    print(f"{arguments.draws} draws of {arguments.rows} training rows; divergence, then absolute difference")
    for name in ("r1", "r2", "r3", "r4"):
        generator = generators()[name]
        new, _ = generator.sample(5000, 10_000)
        true = generator.posterior(new)
        found: dict[str, list[tuple[float, float]]] = {}
        start = time.perf_counter()
        for draw in range(arguments.draws):
            X, y = generator.sample(arguments.rows, draw)
            for method, make in methods(X).items():
                found.setdefault(method, []).append(divergence(true, make().fit(X, y).predict_proba(new)))
        print(f"{name}  ({time.perf_counter() - start:.1f} s)")
        for method, values in found.items():
            (kl, difference), errors = (
                np.mean(values, axis=0),
                np.std(values, axis=0, ddof=1) / len(values) ** 0.5,
            )
            print(f"  {method:40s} {kl:7.4f} ± {errors[0]:.4f}   {difference:7.4f} ± {errors[1]:.4f}")


if __name__ == "__main__":
    main()
