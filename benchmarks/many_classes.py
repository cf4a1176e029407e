"""One-vs-one against one-vs-all coding for many classes: log-loss on new rows, and seconds of the processor.

    python benchmarks/many_classes.py [--classes 60 120] [--rows 12] [--pool] [--sets blobs nested]

The classes are synthetic, with 20 columns; 30 new rows of every class are predicted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler

from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.kernels import Polynomial

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

#: New rows of every class.
NEW = 30


def blobs(n_classes: int, n_rows: int, n_columns: int = 20) -> Rows:
    """Return Gaussian classes with centres and sizes of their own."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(n_classes, n_columns))
    sizes = np.exp(0.3 * random.normal(size=(n_classes, 1)))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(n_classes), n)
        return centres[y] + random.normal(size=(y.size, n_columns)) * sizes[y], y

    return draw(n_rows) + draw(NEW)


def hypercube(n_classes: int, n_rows: int) -> Rows:
    """Return classes of two clusters each at corners of a hypercube, with some wrong labels."""
    X, y = make_classification(
        n_classes * (n_rows + NEW),
        20,
        n_informative=12,
        n_redundant=4,
        n_classes=n_classes,
        class_sep=1.5,
        flip_y=0.02,
        random_state=0,
    )
    order = np.random.default_rng(0).permutation(y.size)
    X, y = X[order], y[order]
    known = np.zeros(y.size, dtype=bool)
    for number in range(n_classes):
        known[np.flatnonzero(y == number)[:n_rows]] = True
    return X[known], y[known], X[~known], y[~known]


def warped(n_classes: int, n_rows: int) -> Rows:
    """Return a curved map of Gaussian classes, beside five columns of noise."""
    X, y, new, y_new = blobs(n_classes, n_rows, 8)
    directions = np.random.default_rng(1).normal(size=(8, 15)) / 8**0.5

    def bent(X: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng(7).normal(size=(len(X), 5))
        return np.hstack([np.sin(1.5 * X @ directions) + 0.5 * np.abs(X @ directions), noise])

    return bent(X), y, bent(new), y_new


def nested(n_classes: int, n_rows: int) -> Rows:
    """Return classes in families of eight that resemble each other, as species of a genus do."""
    random = np.random.default_rng(0)
    n_families = max(2, n_classes // 8)
    families = 1.2 * random.normal(size=(n_families, 20))
    centres = families[np.arange(n_classes) % n_families] + 0.6 * random.normal(size=(n_classes, 20))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(n_classes), n)
        return centres[y] + 0.8 * random.normal(size=(y.size, 20)), y

    return draw(n_rows) + draw(NEW)


SETS: dict[str, Callable[[int, int], Rows]] = {
    "blobs": blobs,
    "hypercube": hypercube,
    "warped": warped,
    "nested": nested,
}


def classifier(coding: str, pool: bool) -> Any:
    """Return a classifier with its defaults but for the coding; of a pool, that of its first two members."""
    if not pool:
        return LSSVMClassifier(coding=coding)
    return AutoKernelClassifier(
        [
            LSSVMClassifier(kernel="blend", coding=coding, metric="learned"),
            LSSVMClassifier(kernel=Polynomial(2, centred=True), coding=coding),
            LSSVMClassifier(kernel="laplacian", coding="one-vs-all", columns="ranks", metric="learned"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--classes", nargs="+", type=int, default=[30, 60])
    parser.add_argument("--rows", nargs="+", type=int, default=[12])
    parser.add_argument("--codings", nargs="+", default=["one-vs-one", "one-vs-all"])
    parser.add_argument("--pool", action="store_true", help="the pool in place of the single model")
    given = parser.parse_args()
    print("set        classes  rows of each  coding      log-loss  seconds")
    for name in given.sets:
        for n_classes in given.classes:
            for n_rows in given.rows:
                X, y, new, y_new = SETS[name](n_classes, n_rows)
                scaler = StandardScaler().fit(X)
                for coding in given.codings:
                    start = time.process_time()
                    model = classifier(coding, given.pool).fit(scaler.transform(X), y)
                    seconds = time.process_time() - start
                    log_p = model.predict_log_proba(scaler.transform(new))
                    loss = -log_p[np.arange(y_new.size), y_new].mean()
                    print(
                        f"{name:10s} {n_classes:7d} {n_rows:13d}  {coding:10s} {loss:9.4f} {seconds:8.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
