"""Measure whether probabilities can be trusted: tails, stated log-losses, the pool, perturbations, many rows.

    POLYMARGIN_DATA=<folder> python benchmarks/trust.py [--sections tails honesty ...] [--json FILE] [options]

tails
    On all two-class sets: of the predictions above 0.99 and 0.999, how many are wrong, and how many they promise to be
    wrong, Σ(1 − p). The ratio is pooled over sets and splits, with Garwood's 95 % interval of a Poisson count (splits
    of one set share rows, so that it is a little too narrow). For wdbc also the log-loss against a support vector
    machine tuned by grid search and calibrated by sigmoids or isotonic regression.
honesty
    The stated log-loss (``loo_log_loss_``) against the true one, where the truth is known: pure noise, and the
    generators. The true loss is the expectation over labels at 5000 new rows; what the true posterior itself loses on
    the training rows beyond its entropy, which is luck, is taken from the stated loss. Mean over seeds.
pool
    On every set, at most 2000 rows: the pool's log-loss over that of its best member, means over splits. The best is
    chosen with hindsight, by its test loss.
perturbation
    The largest change of a probability of 200 test rows by X·(1 + 1e-9 noise), 3·X, permuted rows and renamed classes.
large
    12 000 training rows of covtype and of letter: log-loss, seconds and peak memory (of all its processes), one model
    at a time in a process of its own. Not run unless asked for.

Everything but "large" takes at most 2000 rows a fit. Splits and preparation are those of ``quality.py``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from quality import DATASETS, METHODS, TWO_CLASSES, Split  # first: it holds BLAS to one thread

# isort: split
import numpy as np
from scipy.stats import chi2
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import polymargin
from polymargin.datasets import DatasetNotFound, generators, load

MODELS = {"single": "LSSVMClassifier", "pool": "AutoKernelClassifier"}
ALL_TWO_CLASSES = (*TWO_CLASSES, "banana", "twonorm")
ALL_SETS = (*DATASETS, "banana", "twonorm", "led7_3200", "zoo", "soybean_small", "mnist")
NOISE = ((40, 2, 5), (100, 2, 5), (400, 2, 5), (100, 8, 20))  # rows, classes, columns
GENERATORS = ("waveform", "twonorm", "r1", "r2", "r3", "r4", "led7")
GENERATOR_ROWS = (100, 400)
CALIBRATED = ("SVC sigmoid", "SVC isotonic", "SVC own")
LARGE = ("covtype_15k", "letter")
THRESHOLDS = (0.99, 0.999)
Row = dict[str, Any]


def make(name: str, **options: Any) -> Any:
    return getattr(polymargin, MODELS[name])(**options)


def mean_loss(log_proba: np.ndarray, y: np.ndarray) -> float:
    return -float(log_proba[np.arange(y.size), y].mean())


def splits_of(names: list[str], n_splits: int) -> Any:
    """Yield (name, number, split), and say which sets are not there."""
    for name in names:
        for number in range(n_splits):
            try:
                yield name, number, Split(name, number)
            except DatasetNotFound as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                break


def tell(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


# tails -------------------------------------------------------------------------------------------------------


def garwood(count: float, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of the mean of a Poisson variable that was observed once."""
    tail = (1 - level) / 2
    low = chi2.ppf(tail, 2 * count) / 2 if count > 0 else 0.0
    return float(low), float(chi2.isf(tail, 2 * count + 2) / 2)


def tails(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    names = [name for name in arguments.datasets or ALL_TWO_CLASSES if name in ALL_TWO_CLASSES]
    counts: dict[tuple[str, str, float], np.ndarray] = {}
    losses: dict[str, list[float]] = {}
    for name, number, split in splits_of(names, arguments.splits):
        for model in MODELS:
            log_proba = make(model).fit(split.X_train, split.y_train).predict_log_proba(split.X_test)
            others = -np.expm1(log_proba.max(axis=1))  # 1 - p, without cancellation
            wrong = log_proba.argmax(axis=1) != split.y_test
            for threshold in THRESHOLDS:
                sure = others < 1 - threshold
                found = np.array([sure.sum(), wrong[sure].sum(), others[sure].sum()], dtype=float)
                key = (model, name, threshold)
                counts[key] = counts.get(key, np.zeros(3)) + found
            if name == "wdbc":
                losses.setdefault(model, []).append(mean_loss(log_proba, split.y_test))
        if name == "wdbc":
            for method in CALIBRATED:
                made = METHODS[method](split)
                assert made is not None
                proba = made[0].fit(split.X_train, split.y_train).predict_proba(split.X_test)
                loss = mean_loss(np.log(np.clip(proba, 1e-15, None)), split.y_test)
                losses.setdefault(method, []).append(loss)
        tell("tails", name, number)
    rows = []
    for model in MODELS:
        for threshold in THRESHOLDS:
            for name in (*names, "all together"):
                keys = [
                    key
                    for key in counts
                    if key[::2] == (model, threshold) and name in (key[1], "all together")
                ]
                if keys:
                    n, wrong_n, promised = sum(counts[key] for key in keys)
                    ratios = [
                        count / promised if promised else None for count in (wrong_n, *garwood(wrong_n))
                    ]
                    rows.append({"model": model, "above": threshold, "set": name, "predictions": int(n),
                                 "wrong": int(wrong_n), "promised": promised, "ratio": ratios[0],
                                 "from": ratios[1], "to": ratios[2]})  # fmt: skip
    wdbc = [{"method": method, "log-loss": np.mean(values), "standard error": np.std(values) / len(values) ** 0.5}
            for method, values in losses.items()]  # fmt: skip
    return {"tails": rows, "wdbc, log-loss": wdbc}


# honesty -----------------------------------------------------------------------------------------------------


def noise_problem(n: int, K: int, d: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return training rows, labels, their true log-probabilities, test rows, and the truth there."""
    rng = np.random.default_rng(seed)
    X, X_test = rng.normal(size=(n, d)), rng.normal(size=(5000, d))
    y = rng.integers(0, K, n)
    return X, y, np.full((n, K), 1 / K), X_test, np.full((5000, K), 1 / K)


def drawn_problem(name: str, n: int, seed: int) -> tuple[np.ndarray, ...]:
    generator = generators()[name]
    X, y = generator.sample(n, random_state=seed)
    X_test, _ = generator.sample(5000, random_state=10_000 + seed)
    scaler = StandardScaler().fit(X)
    return (
        scaler.transform(X),
        y,
        generator.posterior(X),
        scaler.transform(X_test),
        generator.posterior(X_test),
    )


def entropy(P: np.ndarray) -> float:
    return -float(np.mean(np.sum(P * np.log(np.maximum(P, 1e-300)), axis=1)))


def honesty(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    problems: dict[str, Callable[[int], tuple[np.ndarray, ...]]] = {}
    for n, K, d in NOISE:
        problems[f"noise, {n} rows, {K} classes, {d} columns"] = lambda s, p=(n, K, d): noise_problem(*p, s)
    for name in GENERATORS:
        for n in GENERATOR_ROWS:
            problems[f"{name}, {n} rows"] = lambda s, p=(name, n): drawn_problem(*p, s)
    rows = []
    for label, problem in problems.items():
        found: dict[str, list[tuple[float, float, float]]] = {model: [] for model in MODELS}
        for seed in range(arguments.seeds):
            X, y, P, X_test, P_test = problem(seed)
            luck = mean_loss(np.log(P), y) - entropy(P)
            for model in MODELS:
                try:
                    fitted = make(model).fit(X, y)
                except ValueError as error:  # a class of one row, say
                    tell(label, seed, model, error)
                    continue
                true = -float(np.mean(np.sum(P_test * fitted.predict_log_proba(X_test), axis=1)))
                found[model].append((fitted.loo_log_loss_ - luck, true, true - entropy(P_test)))
        for model, values in found.items():
            stated, true, excess = np.mean(values, axis=0)
            error = np.std([s - t for s, t, _ in values]) / len(values) ** 0.5
            rows.append({"problem": label, "model": model, "stated": stated, "true": true, "gap": stated - true,
                         "its standard error": error, "excess over the truth": excess})  # fmt: skip
        tell("honesty", label)
    return {"honesty": rows}


# pool --------------------------------------------------------------------------------------------------------


def pool(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    losses: dict[str, list[list[float]]] = {}
    for name, number, split in splits_of(arguments.datasets or list(ALL_SETS), arguments.splits):
        fitted = make("pool").fit(split.X_train, split.y_train)
        every = [
            mean_loss(m.predict_log_proba(split.X_test), split.y_test) for m in (fitted, *fitted.members_)
        ]
        losses.setdefault(name, []).append(every)
        tell("pool", name, number)
    rows = []
    for name, values in losses.items():
        width = min(map(len, values))
        means = np.mean([value[:width] for value in values], axis=0)
        rows.append({"set": name, "pool": means[0], "best member": means[1:].min(), "which": int(means[1:].argmin()),
                     "ratio": means[0] / means[1:].min(),
                     "members": ", ".join(f"{mean:.4f}" for mean in means[1:])})  # fmt: skip
    rows.sort(key=lambda row: -row["ratio"])
    return {"pool over its best member": rows}


# perturbation ------------------------------------------------------------------------------------------------


def perturbed(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[Any, ...]]:
    """Return, for every perturbation, the rows, the labels, the scale, and the old class of every new one."""
    same, rows, old = np.arange(y.max() + 1), rng.permutation(y.size), rng.permutation(y.max() + 1)
    return {
        "1e-9 noise": (X * (1 + 1e-9 * rng.normal(size=X.shape)), y, 1.0, same),
        "3 X": (3 * X, y, 3.0, same),
        "rows permuted": (X[rows], y[rows], 1.0, same),
        "classes renamed": (X, np.array([f"class {k:02d}" for k in np.argsort(old)])[y], 1.0, old),
    }


def perturbation(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    def take(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        if name in GENERATORS:
            return generators()[name].sample(n, random_state=seed)
        data = load(name)
        rows = np.random.default_rng(seed).permutation(len(data.y))[:n]
        return data.X[rows].astype(float), np.unique(data.y, return_inverse=True)[1][rows]

    rows = []
    for name in arguments.datasets or ("waveform", "r4", "satimage", "banana"):
        for n in arguments.sizes:
            for model in MODELS:
                worst: dict[str, float] = {}
                for seed in range(min(arguments.seeds, 5)):
                    X, y = take(name, n + 200, seed)
                    scaler = StandardScaler().fit(X[:n])
                    X, X_test, y = scaler.transform(X[:n]), scaler.transform(X[n:]), y[:n]
                    before = make(model).fit(X, y).predict_proba(X_test)
                    changes = perturbed(X, y, np.random.default_rng(100 + seed))
                    for change, (X_new, y_new, scale, old) in changes.items():
                        after = make(model).fit(X_new, y_new).predict_proba(scale * X_test)
                        moved = float(np.abs(after - before[:, old]).max())
                        worst[change] = max(worst.get(change, 0.0), moved)
                rows.append({"set": name, "rows": n, "model": model, **worst})
                tell("perturbation", rows[-1])
    return {"largest change of a probability": rows}


# large -------------------------------------------------------------------------------------------------------


def peak_memory(stop: threading.Event, found: list[float]) -> None:
    """Note the largest memory of this process and its children, in GB, until told to stop."""
    import psutil

    me = psutil.Process()
    while not stop.wait(0.2):
        total = 0
        for process in (me, *me.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        found[0] = max(found[0], total / 1e9)


def fit_large(name: str, n: int, model: str, n_jobs: int) -> Row:
    data = load(name)
    y = np.unique(data.y, return_inverse=True)[1]
    train, test = train_test_split(np.arange(y.size), train_size=0.8, random_state=0)
    train = train[:n]
    scaler = StandardScaler().fit(data.X[train].astype(float))
    X, X_test = (scaler.transform(data.X[rows].astype(float)) for rows in (train, test))
    stop, peak = threading.Event(), [0.0]
    watch = threading.Thread(target=peak_memory, args=(stop, peak), daemon=True)
    watch.start()
    start = time.perf_counter()
    with threadpool_limits(n_jobs):  # importing `quality` has held BLAS to one thread
        fitted = make(model, n_jobs=n_jobs).fit(X, y[train])
    seconds = time.perf_counter() - start
    log_proba = fitted.predict_log_proba(X_test)
    stop.set()
    return {"set": name, "rows": int(train.size), "model": model, "log-loss": mean_loss(log_proba, y[test]),
            "accuracy": float((log_proba.argmax(axis=1) == y[test]).mean()), "stated": float(fitted.loo_log_loss_),
            "seconds": seconds, "peak GB": peak[0]}  # fmt: skip


def large(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    rows = []
    for name in LARGE:
        if arguments.datasets and name not in arguments.datasets:
            continue
        for model in MODELS:
            # Not a daemon, which could have no workers of its own.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                try:
                    fit = process.submit(fit_large, name, arguments.large, model, arguments.jobs)
                    rows.append(fit.result())
                except (DatasetNotFound, MemoryError) as error:
                    tell(f"{name}, {model}: {error}")
                    continue
            tell("large", rows[-1])
    return {"large": rows}


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, list[Row]]]] = {
    "tails": tails,
    "honesty": honesty,
    "pool": pool,
    "perturbation": perturbation,
    "large": large,
}


def show(title: str, rows: list[Row]) -> None:
    """Print rows that have the same keys as a table."""
    if not rows:
        return
    texts = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(list(rows[0]), *texts, strict=True)]
    print(f"\n{title}")
    for line in (list(rows[0]), *texts):
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    default = [name for name in SECTIONS if name != "large"]
    parser.add_argument("--sections", nargs="*", default=default, choices=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--datasets", nargs="*", help="those of the section's sets that are wanted")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=20, help="of honesty; of perturbation at most five")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[250, 1500, 3000], help="rows of perturbation"
    )
    parser.add_argument("--large", type=int, default=12_000, help="training rows of large")
    parser.add_argument("--jobs", type=int, default=2, help="n_jobs of the section large")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    arguments = parser.parse_args()
    unknown = set(arguments.datasets or ()) - {*ALL_SETS, *GENERATORS}
    if unknown:
        parser.error(
            f"no dataset {', '.join(sorted(unknown))}; choose from {', '.join((*ALL_SETS, *GENERATORS))}"
        )
    warnings.simplefilter("ignore")
    os.environ["PYTHONWARNINGS"] = "ignore"  # of the processes that fits start
    results: dict[str, list[Row]] = {}
    for section in arguments.sections:
        found = SECTIONS[section](arguments)
        results |= found
        for title, rows in found.items():
            show(title, rows)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1, default=float))


if __name__ == "__main__":
    main()
