"""Time from arrays to a tuned and calibrated model, against a grid search with calibration, as ratios in one run.

    POLYMARGIN_DATA=<folder> python benchmarks/speed.py [--repeats 3] [--satimage] [dataset ...]

The peer is the usual recipe: ``GridSearchCV`` of a support vector machine over 7 × 6 values of C and gamma in five
folds, then ``CalibratedClassifierCV``, both with ``n_jobs=2`` and a warm pool of workers. Ours is one call of ``fit``,
with ``n_jobs=2``. BLAS has one thread: a second one spins for a tenth of a second after it was last used, by whichever
side, and takes a core from the other. Sides take turns; printed are medians, and the peer's time over ours.
``--satimage`` fits the two doors on two thirds of all 6435 rows of satimage.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

import polymargin
from _missing import run as run_benchmark
from polymargin.datasets import load, preprocessor
from quality import C_GRID, DATASETS, GAMMA_FACTORS, OURS, Split


def grid_search(X: np.ndarray, y: np.ndarray) -> Any:
    """Return a tuned and calibrated support vector machine."""
    grid = {"C": C_GRID, "gamma": GAMMA_FACTORS / (X.shape[1] * X.var())}
    search = GridSearchCV(SVC(cache_size=500), grid, cv=5, n_jobs=2, refit=False).fit(X, y)
    svm = SVC(cache_size=500, **search.best_params_)
    return CalibratedClassifierCV(svm, method="sigmoid", cv=5, ensemble=False, n_jobs=2).fit(X, y)


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function()
    return time.perf_counter() - start


def compare(name: str, repeats: int) -> dict[str, float]:
    split = Split(name, 0)
    X, y = split.X_train, split.y_train
    sides: dict[str, Callable[[], Any]] = {"grid search": lambda: grid_search(X, y)}
    for door in OURS:
        sides[door] = lambda door=door: getattr(polymargin, door)(n_jobs=2).fit(X, y)
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, function in sides.items():
            times[side].append(seconds(function))
    medians = {side: median(values) for side, values in times.items()}
    ratios = {door: medians["grid search"] / medians[door] for door in OURS}
    print(f"{name:16s} {X.shape[0]:5d} rows, {split.y_train.max() + 1:2d} classes: "
          + ", ".join(f"{side} {value:.3f} s" for side, value in medians.items())
          + "; " + ", ".join(f"{ratio:.1f}x" for ratio in ratios.values()), flush=True)  # fmt: skip
    return ratios


def satimage(repeats: int) -> None:
    data = load("satimage")
    y = np.unique(data.y, return_inverse=True)[1]
    train, test = train_test_split(np.arange(y.size), test_size=1 / 3, stratify=y, random_state=0)
    transformer = preprocessor(data.take(train)).fit(data.X[train])
    X, X_test = transformer.transform(data.X[train]), transformer.transform(data.X[test])
    for door in OURS:
        model = getattr(polymargin, door)(n_jobs=2)
        time_ = median(seconds(lambda model=model: model.fit(X, y[train])) for _ in range(repeats))
        log_p = model.predict_log_proba(X_test)
        loss = -log_p[np.arange(test.size), y[test]].mean()
        print(f"satimage, {train.size} rows: {door} {time_:.2f} s, test log-loss {loss:.4f}, "
              f"accuracy {model.score(X_test, y[test]):.4f}", flush=True)  # fmt: skip


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--satimage", action="store_true")
    arguments = parser.parse_args()
    if arguments.satimage:
        satimage(arguments.repeats)
        return
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    grid_search(X, y)  # start the workers
    polymargin.AutoKernelClassifier().fit(X, y)
    ratios = [compare(name, arguments.repeats) for name in arguments.datasets]
    for door in OURS:
        print(f"{door}: median {median(ratio[door] for ratio in ratios):.1f} times faster", flush=True)


if __name__ == "__main__":
    run_benchmark(main)
