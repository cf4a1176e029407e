"""What it is worth to call LAPACK without the interpreter's lock, and to invert triangles by halves.

    python benchmarks/lapack.py [--rows 200 700 1500] [--threads 1 2] [--repeats 5] [--fit]

`polymargin.solvers._lapack` calls the routines of SciPy's LAPACK through ctypes, which lets go of the lock;
``scipy.linalg.lapack`` holds it. Both have one BLAS thread. As many matrices as threads are worked on at once;
printed are the least times per matrix, and SciPy's over ours. ``--fit`` times a whole `LSSVMClassifier` on a waveform
problem of 3000 rows as well, by either.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from scipy.linalg import lapack

from polymargin.solvers import _lapack


def scipy_factor(A: np.ndarray) -> bool:
    return lapack.dpotrf(A, lower=1, clean=1, overwrite_a=1)[1] == 0


def scipy_invert_triangle(lower: np.ndarray) -> None:
    lapack.dtrtri(lower, lower=1, overwrite_c=1)


def scipy_invert_factored(lower: np.ndarray) -> None:
    lapack.dpotri(lower, lower=1, overwrite_c=1)


def scipy_solve_factored(lower: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return lapack.dpotrs(lower, np.asfortranarray(Y), lower=1)[0]


SCIPY: dict[str, Callable[..., Any]] = {
    "factor": scipy_factor,
    "invert_triangle": scipy_invert_triangle,
    "invert_factored": scipy_invert_factored,
    "solve_factored": scipy_solve_factored,
}


def matrix(n: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, n))
    return np.asfortranarray(rows @ rows.T + n * np.eye(n))


def seconds(routine: Callable[..., Any], name: str, n: int, n_threads: int, repeats: int) -> float:
    """Return the least time per matrix."""
    given = [matrix(n, seed) for seed in range(n_threads)]
    if name != "factor":
        for A in given:
            _lapack.factor(A)
    right = (np.ones((n, 10)),) if name == "solve_factored" else ()
    best = np.inf
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(repeats):
            copies = [A.copy(order="F") for A in given]
            start = time.perf_counter()
            list(pool.map(lambda A: routine(A, *right), copies))
            best = min(best, (time.perf_counter() - start) / n_threads)
    return best


def fit_seconds(n_jobs: int) -> tuple[float, float]:
    """Return the time and the CPU time of a fit."""
    from polymargin import LSSVMClassifier
    from polymargin.datasets import make_waveform

    X, y = make_waveform(3000, random_state=0)
    start, used = time.perf_counter(), time.process_time()
    LSSVMClassifier(n_jobs=n_jobs).fit(X, y)
    return time.perf_counter() - start, time.process_time() - used


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 700, 1500])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    for n_threads in arguments.threads:
        for n in arguments.rows:
            for name, theirs in SCIPY.items():
                own, other = (
                    seconds(routine, name, n, n_threads, arguments.repeats)
                    for routine in (getattr(_lapack, name), theirs)
                )
                print(f"{n_threads} threads, {n:5d} rows, {name:16s} ours {1e3 * own:8.2f} ms, "
                      f"scipy {1e3 * other:8.2f} ms, {other / own:.2f}x", flush=True)  # fmt: skip
    if arguments.fit:
        for n_jobs in arguments.threads:
            own, other = [], []
            for _ in range(arguments.repeats):
                own.append(fit_seconds(n_jobs))
                with mock.patch.multiple(_lapack, **SCIPY):
                    other.append(fit_seconds(n_jobs))
            sides = (zip(*side, strict=True) for side in (own, other))
            times = [f"{min(wall):.2f} s (CPU {min(cpu):.2f} s)" for wall, cpu in sides]
            print(f"fit with n_jobs={n_jobs}: ours {times[0]}, scipy {times[1]}")


if __name__ == "__main__":
    main()
