"""Coupling 100 000 rows of ten classes, fitting Platt's sigmoids, and fitting the softmax decoder, on one core."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np

from polymargin.codebooks import Codebook, ecoc, one_vs_one
from polymargin.decoders import Coupling, Softmax
from polymargin.outputs import Outputs
from polymargin.solvers.coupling import METHODS, bradley_terry, couple
from polymargin.solvers.softmax import fit_softmax, smooth_targets


def seconds(work: Callable[[], object], repeats: int = 3) -> tuple[float, float]:
    """Return the median time of some work, by the clock and of the processor."""
    times = []
    for _ in range(repeats):
        clock, processor = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - clock, time.process_time() - processor))
    return tuple(np.median(times, axis=0))  # type: ignore[return-value]


def problem(n: int, n_classes: int, noise: float) -> tuple[Codebook, Outputs, np.ndarray]:
    """Return one-vs-one outputs whose errors are correlated, as those of real machines are."""
    random = np.random.default_rng(0)
    book = one_vs_one(n_classes)
    y = random.integers(0, n_classes, n)
    shared = random.normal(size=(n, 6)) @ random.normal(size=(6, book.n_columns))
    signal = 0.7 * book.targets(y) + 0.3 * random.normal(size=(n_classes, book.n_columns))[y]
    return (
        book,
        Outputs(signal + noise * (0.5 * random.normal(size=signal.shape) + 0.4 * shared), "leave_one_out"),
        y,
    )


def coupling() -> None:
    random = np.random.default_rng(0)
    i, k = np.triu_indices(10, 1)
    theta = 1.5 * random.normal(size=(100_000, 10))
    r = 1.0 / (1.0 + np.exp(theta[:, k] - theta[:, i] + random.normal(size=(100_000, i.size))))
    print("coupling, K = 10                       rows   clock    processor")
    for method in METHODS:
        clock, processor = seconds(lambda method=method: couple(r, method))
        print(f"  {method:34s} {100_000:7d} {clock:7.2f} s {processor:7.2f} s")
    for name, book in (("one-vs-one", one_vs_one(10)), ("ECOC, 40 columns", ecoc(10, 0))):
        p = np.exp(theta[:10_000])
        odds = np.log(p @ (book.matrix > 0)) - np.log(p @ (book.matrix < 0))
        rows = 1.0 / (1.0 + np.exp(-odds - random.normal(size=odds.shape)))
        clock, processor = seconds(lambda rows=rows, book=book: bradley_terry(rows, book.matrix))
        print(f"  Bradley–Terry, {name:19s} {10_000:7d} {clock:7.2f} s {processor:7.2f} s")


def softmax() -> None:
    print("fitting                               clock    processor")
    for n, n_classes, noise in ((4000, 6, 2.0), (5000, 10, 2.0), (5000, 26, 3.0)):
        book, outputs, y = problem(n, n_classes, noise)
        size = f"n={n} L={book.n_columns} K={n_classes}"
        X = (outputs.margins - outputs.margins.mean(axis=0)) / outputs.margins.std(axis=0)
        T = smooth_targets(y, n_classes, 0.3 / n)
        work: dict[str, Callable[[], object]] = {
            "one ridge": lambda X=X, T=T: fit_softmax(X, T, ridge=1.0),
            "ridge chosen": lambda b=book, o=outputs, y=y: Softmax().fit(b, o, y),
            "sigmoids": lambda b=book, o=outputs, y=y: Coupling().fit(b, o, y),
        }
        for name, task in work.items():
            clock, processor = seconds(task)
            print(f"  {size:20s} {name:14s} {clock:7.2f} s {processor:7.2f} s", flush=True)


if __name__ == "__main__":
    coupling()
    softmax()
