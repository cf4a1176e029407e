"""Time the single-machine solver: against general QP solvers, on the waveform problem, and as n grows.

    python benchmarks/single_machine.py [--repeats 3] [qp waveform growth path]

The data are `polymargin.datasets.make_waveform`, standardised; hard labels, or soft ones from 7 neighbours.
One thread. The QP solvers (piqp and clarabel, by qpsolvers, at their own tolerances) get the dual with its
matrix ready made; the solvers take turns, so that noise hits all of them.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel  # noqa: E402
from sklearn.neighbors import NearestNeighbors  # noqa: E402

from polymargin.datasets import make_waveform  # noqa: E402
from polymargin.solvers.single_machine import (  # noqa: E402
    Margins,
    SingleMachineSolution,
    required_margins,
    solve,
    solve_path,
)
from polymargin.solvers.status import Status  # noqa: E402

KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rbf": lambda X: rbf_kernel(X, gamma=1.0 / X.shape[1]),
    "cubic": lambda X: polynomial_kernel(X, degree=3, gamma=1.0 / X.shape[1], coef0=1.0),
}


def problem(n: int, kernel: str, soft: bool) -> tuple[np.ndarray, Margins]:
    """Return the Gram matrix and the margins."""
    X, y = make_waveform(n, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    P = np.eye(3)[y]
    if soft:
        P = P[NearestNeighbors(n_neighbors=7).fit(X).kneighbors(X, return_distance=False)].mean(axis=1)
    return KERNELS[kernel](X), required_margins(P, y)


def timed(functions: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median seconds and the last result of each function; they take turns."""
    seconds: dict[str, list[float]] = {key: [] for key in functions}
    results = {}
    for _ in range(repeats):
        for key, function in functions.items():
            start = time.perf_counter()
            results[key] = function()
            seconds[key].append(time.perf_counter() - start)
    return {key: median(values) for key, values in seconds.items()}, results


def dual_program(gram: np.ndarray, margins: Margins, C: float) -> dict[str, np.ndarray]:
    """Return the dual in the form that qpsolvers takes."""
    d, z = margins
    rows, others = np.nonzero(np.arange(d.shape[1]) != z[:, None])
    A = np.zeros((d.shape[1], rows.size))
    A[z[rows], np.arange(rows.size)] += 1.0
    A[others, np.arange(rows.size)] -= 1.0
    H = gram[np.ix_(rows, rows)] * (A.T @ A)
    box = {"lb": np.zeros(rows.size), "ub": np.full(rows.size, C)}
    return {"P": H, "q": -d[rows, others], "A": A[:-1], "b": np.zeros(A.shape[0] - 1), **box}


def against_qp(repeats: int) -> None:
    """n·K = 3000, both sides at an objective that is good to 1e-5."""
    try:
        import qpsolvers
    except ImportError:
        print("qp: needs qpsolvers with piqp or clarabel: pip install qpsolvers piqp clarabel")
        return
    warnings.simplefilter("ignore", qpsolvers.warnings.QPWarning)
    peers = [name for name in ("piqp", "clarabel") if name in qpsolvers.available_solvers]
    cases = [
        ("rbf", 0.01, 100),
        ("rbf", 1.0, 100),
        ("rbf", 100.0, 15),
        ("cubic", 1.0, 15),
        ("cubic", 100.0, 15),
    ]
    for kernel, C, target in cases:
        for soft in (False, True):
            gram, margins = problem(1000, kernel, soft)
            program = dual_program(gram, margins, C)
            functions: dict[str, Callable[[], Any]] = {
                "ours": partial(solve, gram, margins, C, tol=1e-5),
                **{name: partial(qpsolvers.solve_qp, **program, solver=name) for name in peers},
            }
            seconds, results = timed(functions, repeats)
            best = results["ours"].objective
            line = f"{kernel:5s} {'soft' if soft else 'hard'} C={C:<6g} ours {seconds['ours']:7.3f} s"
            for name in peers:
                alpha = results[name]
                value = -program["q"] @ alpha - 0.5 * alpha @ program["P"] @ alpha
                line += f"   {name} {seconds[name]:6.2f} s = {seconds[name] / seconds['ours']:4.0f}x"
                line += f" (objective {(best - value) / value:+.0e})"
            print(f"{line}   (target {target}x)", flush=True)


def waveform(repeats: int) -> None:
    """3333 rows, K = 3."""
    for kernel, C, target in [
        ("rbf", 0.01, 1.0),
        ("rbf", 1.0, 1.0),
        ("rbf", 100.0, 10.0),
        ("cubic", 100.0, 10.0),
    ]:
        for soft in (False, True):
            gram, margins = problem(3333, kernel, soft)
            functions = {f"tol={tol:g}": partial(solve, gram, margins, C, tol=tol) for tol in (1e-3, 1e-6)}
            seconds, results = timed(functions, repeats)
            line = "   ".join(f"{key} {seconds[key]:6.3f} s {note(results[key])}" for key in functions)
            print(
                f"{kernel:5s} {'soft' if soft else 'hard'} C={C:<6g} {line}   (target {target} s)", flush=True
            )


def note(solution: SingleMachineSolution) -> str:
    """Return the steps, and the status if it is not the best one."""
    status = "" if solution.status is Status.CONVERGED else f", {solution.status.name}"
    return f"({solution.n_iter} steps, gap {solution.relative_gap:.0e}{status})"


def growth(repeats: int) -> None:
    """From n = 1000 to 4000; the exponent of n."""
    for C in (1.0, 100.0):
        sizes = (1000, 2000, 4000)
        problems = {n: problem(n, "rbf", False) for n in sizes}
        functions = {str(n): partial(solve, *problems[n], C, tol=1e-5) for n in sizes}
        seconds, _ = timed(functions, repeats)
        exponent = np.log(seconds["4000"] / seconds["1000"]) / np.log(4.0)
        figures = "   ".join(f"n={n} {seconds[str(n)]:.3f} s" for n in sizes)
        print(f"C={C:<5g} {figures}   time ~ n^{exponent:.2f}", flush=True)


def path(repeats: int) -> None:
    """Eleven values of C, ascending, with and without warm starts."""
    grid = np.logspace(-2, 3, 11)
    for kernel in KERNELS:
        gram, margins = problem(1000, kernel, False)
        functions: dict[str, Callable[[], Any]] = {
            "warm": partial(solve_path, gram, margins, grid),
            "cold": lambda gram=gram, margins=margins: [solve(gram, margins, C) for C in grid],
        }
        seconds, results = timed(functions, repeats)
        steps = {key: sum(solution.n_iter for solution in results[key]) for key in functions}
        figures = "   ".join(f"{key} {seconds[key]:.3f} s, {steps[key]} steps" for key in functions)
        print(f"{kernel:5s} {figures}   {steps['cold'] / steps['warm']:.2f}x fewer steps", flush=True)


BENCHMARKS = {"qp": against_qp, "waveform": waveform, "growth": growth, "path": path}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("which", nargs="*", default="all", choices=["all", *BENCHMARKS])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    # Compile, or load from the cache, before the clock starts.
    solve(*problem(60, "cubic", True), 100.0, tol=1e-9)
    for name in BENCHMARKS if "all" in arguments.which else arguments.which:
        print(f"-- {name}: {BENCHMARKS[name].__doc__}", flush=True)
        BENCHMARKS[name](arguments.repeats)


if __name__ == "__main__":
    main()
