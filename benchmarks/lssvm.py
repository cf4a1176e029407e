"""Least squares: what the factorisations cost, and the design of all the dichotomies of USPS.

The reduction to tridiagonal form serves every C; it is compared with the Cholesky factorisation that serves one, and
with the eigendecomposition it replaces in the search. USPS needs ``$POLYMARGIN_DATA``.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from _missing import run as run_benchmark
from polymargin import LSSVMClassifier
from polymargin.codebooks import ecoc
from polymargin.datasets import load
from polymargin.kernels import RBF
from polymargin.solvers.centring import centre
from polymargin.solvers.tridiagonal import tridiagonalise


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of some work."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def factorisations() -> None:
    print("   n   Cholesky  tridiagonal  eigh   (the last two in Cholesky factorisations)")
    for n in (500, 1000, 2000):
        X = np.random.default_rng(0).normal(size=(n, 20))
        y = np.where(X[:, :1] > 0, 1.0, -1.0)
        _, A = centre(RBF().gram(X, gamma=0.02), np.ones(n))
        shifted = A + 0.1 * np.eye(n)
        cholesky = seconds(lambda shifted=shifted: lapack.dpotrf(shifted, lower=1))
        reduction = seconds(lambda A=A, y=y: tridiagonalise(A.copy(order="F"), y))
        spectrum = seconds(lambda A=A: np.linalg.eigh(A), 3)
        print(f"{n:5d} {cholesky:9.4f} s {reduction / cholesky:10.1f} {spectrum / cholesky:8.1f}")


def usps() -> None:
    data = load("usps")
    assert data.split is not None
    train, test = data.split
    mean, spread = data.X[train].mean(axis=0), data.X[train].std(axis=0)
    X = (data.X - mean) / np.where(spread > 0, spread, 1.0)
    for shared in (False, True):
        start = time.perf_counter()
        model = LSSVMClassifier(shared_parameters=shared).fit(X[train], data.y[train])
        design = time.perf_counter() - start
        accuracy = model.score(X[test], data.y[test])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        kind = "one for all" if shared else "each its own"
        print(
            f"45 dichotomies, C and width {kind}: {design:.0f} s, accuracy {accuracy:.4f}, peak {peak:.1f} GiB"
        )


if __name__ == "__main__":
    factorisations()
    print(f"ECOC for 26 classes: {seconds(lambda: ecoc(26, 0)):.2f} s")
    run_benchmark(usps)
