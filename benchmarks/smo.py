"""Time the SMO solver against scikit-learn's SVC (LIBSVM), one-vs-one, RBF kernel, as ratios in one run.

    POLYMARGIN_DATA=<folder> python benchmarks/smo.py [--repeats 5] [--path-repeats 1] [--C 10] [dataset ...]

Datasets come with their official split.
BLAS runs on one thread; "two threads" is the solver's own ``n_threads=2``. Below one, we are faster.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from _missing import run as run_benchmark  # noqa: E402
from polymargin.datasets import load  # noqa: E402
from polymargin.solvers.status import Status  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from smo_pairs import solve_one_vs_one, solve_one_vs_one_path  # noqa: E402

TOL = 1e-3
PATH = np.logspace(-2, 3, 10)


def prepare(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the standardised training rows of the official split, their class indices and the test rows."""
    data = load(name)
    assert data.split is not None
    train, test = data.split
    scale = data.X[train].std(axis=0)
    X = (data.X - data.X[train].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    return X[train], np.unique(data.y, return_inverse=True)[1][train], X[test]


def timed(functions: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median seconds and the last result of each function; they take turns, so noise hits all."""
    seconds: dict[str, list[float]] = {key: [] for key in functions}
    results = {}
    for _ in range(repeats):
        for key, function in functions.items():
            start = time.perf_counter()
            results[key] = function()
            seconds[key].append(time.perf_counter() - start)
    return {key: median(values) for key, values in seconds.items()}, results


def report(name: str, what: str, seconds: dict[str, float], target: float) -> None:
    reference = seconds["svc"]
    ratios = "   ".join(f"{key} {value:7.3f} s = {value / reference:.3f}x" for key, value in seconds.items())
    print(f"{name:9s} {what:8s} {ratios}   (target {target}x)", flush=True)


def run(name: str, C: float, repeats: int, path_repeats: int) -> None:
    X, y, new = prepare(name)
    n_classes, gamma = int(y.max()) + 1, 1.0 / X.shape[1]
    print(f"{name}: {X.shape[0]} x {X.shape[1]}, {n_classes} classes, {new.shape[0]} test rows", flush=True)

    def svc(C: float) -> SVC:
        return SVC(C=C, gamma=gamma, tol=TOL, cache_size=1000, decision_function_shape="ovo").fit(X, y)

    def fit(n_threads: int) -> Any:
        return solve_one_vs_one(X, y, n_classes, C, gamma=gamma, tol=TOL, n_threads=n_threads)

    def path(n_threads: int) -> Any:
        return solve_one_vs_one_path(X, y, n_classes, 1.0, PATH, gamma=gamma, tol=TOL, n_threads=n_threads)

    fits = {"svc": lambda: svc(C), "one thread": lambda: fit(1), "two threads": lambda: fit(2)}
    seconds, results = timed(fits, repeats)
    report(name, "fit", seconds, 0.4)
    model, ours = results["svc"], results["one thread"]
    assert all(solution.status is Status.CONVERGED for solution in ours.solutions)

    predictions = {
        "svc": lambda: model.decision_function(new),
        "one thread": lambda: ours.decision_values(new),
        "two threads": lambda: ours.decision_values(new, n_threads=2),
    }
    seconds, results = timed(predictions, repeats)
    report(name, "predict", seconds, 0.1)
    difference = np.abs(results["svc"] - results["one thread"]).max()
    print(f"{name:9s} largest difference of decision values at tol={TOL}: {difference:.1e}", flush=True)

    seconds, _ = timed(
        {
            "svc": lambda: [svc(value) for value in PATH],
            "one thread": lambda: path(1),
            "two threads": lambda: path(2),
        },
        path_repeats,
    )
    report(name, "path", seconds, 0.15)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("datasets", nargs="*", default=["satimage", "usps", "letter"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--path-repeats", type=int, default=1)
    parser.add_argument("--C", type=float, default=10.0)
    arguments = parser.parse_args()
    # Compile, or load from the cache, before the clock starts.
    for X in (np.eye(8, 4), np.eye(8, 400)):
        path = solve_one_vs_one_path(X, np.arange(8) % 2, 2, 1.0, [1.0, 2.0], gamma=1.0)
        path[0].decision_values(X)
    for name in arguments.datasets:
        run(name, arguments.C, arguments.repeats, arguments.path_repeats)


if __name__ == "__main__":
    run_benchmark(main)
