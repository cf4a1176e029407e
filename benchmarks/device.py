"""Exact machines on a GPU beside the CPU: agreement, seconds and probabilities; and what many cores are good for.

    python benchmarks/device.py agreement [--datasets satimage]
    python benchmarks/device.py fit [--datasets covtype_15k letter mnist] [--metric learned] [--device cuda]
    python benchmarks/device.py cores [--datasets covtype_15k letter] [--jobs 1 16]
    python benchmarks/device.py divided [--rows 100000 1000000] [--scale auto] [--jobs 16]
    python benchmarks/device.py torchkm [--datasets letter covtype_15k]

``fit`` chooses kernel, C, gamma and, if asked for, the metric, calibrates, and predicts the test rows. The rows are
those of the official split where there is one (mnist: 60 000 and 10 000), else 12 000 and the rest. Columns are
standardised, those of mnist are divided by 255. ``--steps`` prints when each step of a fit began. ``divided`` fits
leaves and landmarks to waveform, whose true posterior is known, on the CPU and on the device. ``torchkm`` compares with
that package (``pip install torchkm``), which has two classes: every other class against the rest.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from _missing import run as run_benchmark
from polymargin import LSSVMClassifier
from polymargin.datasets import load

#: The rows on which divided fits are compared, and their seed, which is that of no training rows.
TEST_ROWS, TEST_SEED = 100_000, 1_000_003


@dataclass(frozen=True)
class Split:
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def split(name: str, n_rows: int | None) -> Split:
    """Return the rows of a dataset, scaled."""
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    data = load(name)
    X = data.X.astype(np.float64)
    if name == "mnist":
        train, test = np.arange(60_000), np.arange(60_000, 70_000)
        if n_rows is not None:
            train = train_test_split(train, train_size=n_rows, stratify=data.y[train], random_state=0)[0]
        return Split(X[train] / 255.0, data.y[train], X[test] / 255.0, data.y[test])
    size = min(12_000 if n_rows is None else n_rows, int(0.8 * data.y.size))
    rows = train_test_split(np.arange(data.y.size), train_size=size, stratify=data.y, random_state=0)
    scaler = StandardScaler().fit(X[rows[0]])
    (X_train, X_test), (y_train, y_test) = (
        (scaler.transform(X[part]) for part in rows),
        (data.y[part] for part in rows),
    )
    return Split(X_train, y_train, X_test, y_test)


def warm_up(device: str | None) -> None:
    """Fit a few rows: what is loaded and compiled once is no part of a measurement."""
    rng = np.random.default_rng(0)
    n_rows = 600 if device is None else 5000  # fewer rows are not worth a device
    X, y = rng.normal(size=(n_rows, 20)), rng.integers(0, 3, n_rows)
    for metric in (None, "learned"):
        LSSVMClassifier(scale="exact", device=device, metric=metric).fit(X, y).predict_proba(X)


def fitted(rows: Split, **parameters: Any) -> tuple[LSSVMClassifier, np.ndarray, dict[str, float]]:
    """Fit and predict; return the model, the log-probabilities of the test rows, and what was measured."""
    start = time.perf_counter()
    model = LSSVMClassifier(**parameters).fit(rows.X, rows.y)
    seconds = time.perf_counter() - start
    log_p = model.predict_log_proba(rows.X_test)
    predicted = time.perf_counter() - start - seconds
    truth = np.searchsorted(model.classes_, rows.y_test)
    return (
        model,
        log_p,
        {
            "accuracy": float(np.mean(log_p.argmax(axis=1) == truth)),
            "log-loss": float(-log_p[np.arange(truth.size), truth].mean()),
            "stated": float(model.loo_log_loss_),
            "fit s": seconds,
            "predict s": predicted,
        },
    )


def line(facts: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in facts.items())


def agreement(arguments: argparse.Namespace) -> None:
    """Print the largest difference between probabilities of the CPU and of the device, everything chosen by fit."""
    warm_up(arguments.device)
    for name in arguments.datasets or ["satimage"]:
        rows = split(name, arguments.rows and arguments.rows[0])
        # The same sample for the search on both, so that the same C and gamma are found or refined.
        parameters = {"scale": "exact", "n_jobs": arguments.jobs[-1], "metric": arguments.metric}
        given, _, on_device = fitted(rows, device=arguments.device, **parameters)
        chosen = {"C": float(given.C_[0]), "gamma": float(given.gamma_[0]), "kernel": arguments.kernel}
        pair = [fitted(rows, device=device, **parameters, **chosen) for device in ("cpu", arguments.device)]
        difference = np.abs(np.exp(pair[0][1]) - np.exp(pair[1][1])).max()
        print(f"{name}, searched on {arguments.device}: {line(on_device)}")
        print(f"{name}, the same C and gamma: largest difference of a probability {difference:.2e}")
        print(f"  cpu: {line(pair[0][2])}\n  {arguments.device}: {line(pair[1][2])}", flush=True)


def fit(arguments: argparse.Namespace) -> None:
    """Print quality and seconds of fits on the device."""
    warm_up(arguments.device)
    for name in arguments.datasets or ["covtype_15k", "letter", "mnist"]:
        rows = split(name, arguments.rows and arguments.rows[0])
        with parts_measured() as seconds:
            model, _, facts = fitted(
                rows,
                scale=arguments.scale,
                device=arguments.device,
                metric=arguments.metric,
                kernel=arguments.kernel,
                coding=arguments.coding,
                n_jobs=arguments.jobs[-1],
                verbose=int(arguments.steps),
            )
        print(f"{name}, {rows.y.size} rows, {arguments.coding}: {line(facts)}\n  {model.plan_}")
        print(f"  {line(seconds)}", flush=True)


def divided(arguments: argparse.Namespace) -> None:
    """Print seconds and quality of fits to many rows, and the largest difference between their probabilities."""
    from polymargin.datasets.generators import generators
    from polymargin.metrics import divergence_from_truth

    warm_up(arguments.device)
    generator = generators()["waveform"]
    X_test, y_test = generator.sample(TEST_ROWS, random_state=TEST_SEED)
    truth = generator.posterior(X_test)
    scale = "auto" if arguments.scale == "exact" else arguments.scale
    for n_rows in arguments.rows or [100_000, 1_000_000]:
        rows = Split(*generator.sample(n_rows, random_state=0), X_test, y_test)
        found = []
        for device in ("cpu", arguments.device):
            model, log_p, facts = fitted(
                rows, scale=scale, device=device, n_jobs=arguments.jobs[-1], verbose=int(arguments.steps)
            )
            facts["excess"] = float(divergence_from_truth(truth, log_p).kl)
            print(f"waveform, {device}: {line(facts)}\n  {model.plan_}", flush=True)
            found.append(np.exp(log_p))
        print(f"  largest difference of a probability {np.abs(found[0] - found[1]).max():.2e}", flush=True)


def torchkm(arguments: argparse.Namespace) -> None:
    """Print quality and seconds of two-class problems on the device, ours beside TorchKM's exact machine."""
    from torchkm.estimators import TorchKMSVC

    warm_up(arguments.device)
    for name in arguments.datasets or ["letter", "covtype_15k"]:
        rows = split(name, arguments.rows and arguments.rows[0])
        labels, every_other = np.unique(rows.y)[::2], (rows.y, rows.y_test)
        y, y_test = (np.isin(each, labels).astype(int) for each in every_other)
        rows = Split(rows.X, y, rows.X_test, y_test)
        for metric in (None, "learned"):
            _, _, facts = fitted(rows, scale="exact", device=arguments.device, metric=metric)
            print(f"{name}, {y.size} rows, two classes, metric={metric}: {line(facts)}", flush=True)
        peer = TorchKMSVC(kernel="rbf", device=arguments.device, probability=True, random_state=0)
        start = time.perf_counter()
        peer.fit(rows.X, rows.y)
        facts = {"fit s": time.perf_counter() - start}
        proba = np.asarray(peer.predict_proba(rows.X_test))
        proba = proba if proba.ndim == 2 else np.column_stack([1.0 - proba, proba])
        proba = np.clip(proba, 1e-15, 1.0)
        facts |= {
            "accuracy": float(np.mean(proba.argmax(axis=1) == y_test)),
            "log-loss": float(-np.log(proba[np.arange(y_test.size), y_test]).mean()),
        }
        print(f"{name}, {y.size} rows, two classes, TorchKMSVC: {line(facts)}", flush=True)


@contextmanager
def parts_measured() -> Iterator[dict[str, float]]:
    """Give the seconds of the parts of the fits in this block, each without those within it, and their calls."""
    from polymargin.decoders import CoupledSoftmax
    from polymargin.estimators import _metric
    from polymargin.machines import lssvm_training
    from polymargin.scale import _places
    from polymargin.scale._on_device import OnDevice
    from polymargin.selection import leave_one_out
    from polymargin.selection.samples import Samples

    seconds: dict[str, float] = {}
    within = [0.0]
    this_thread = threading.get_ident()

    def timed(part: str, owner: Any, name: str) -> Any:
        function = getattr(owner, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != this_thread:
                return function(*args, **kwargs)
            start = time.perf_counter()
            within.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - start
                seconds[part] = seconds.get(part, 0.0) + taken - within.pop()
                within[-1] += taken

        return patch.object(owner, name, run)

    with ExitStack() as stack:
        for part in (
            ("search: lattice", Samples, "compute"),
            ("search: polish", leave_one_out, "_polished"),
            ("search: the rest", lssvm_training, "select_parameters"),
            ("machines on the CPU", _places, "train_together"),
            ("machines on the device", OnDevice, "_train"),
            ("refinement on the device", OnDevice, "refined"),
            ("gradients", _metric, "_squared_gradients"),
            ("margins of other rows", OnDevice, "margins"),
            ("relevance", _metric, "relevance"),
            ("decoder", CoupledSoftmax, "cross_fit"),
            ("decoder", CoupledSoftmax, "fit"),
            ("the rest", LSSVMClassifier, "fit"),
        ):
            stack.enter_context(timed(*part))
        yield seconds


def cores(arguments: argparse.Namespace) -> None:
    """Print the seconds of the same fit with several numbers of jobs on the CPU, BLAS held to as many threads."""
    from threadpoolctl import threadpool_limits

    warm_up(None)
    for name in arguments.datasets or ["covtype_15k", "letter"]:
        rows = split(name, arguments.rows and arguments.rows[0])
        for n_jobs in arguments.jobs:
            with threadpool_limits(n_jobs), parts_measured() as seconds:
                _, _, facts = fitted(
                    rows,
                    n_jobs=n_jobs,
                    scale=arguments.scale,
                    metric=arguments.metric,
                    coding=arguments.coding,
                    verbose=int(arguments.steps),
                )
            print(
                f"{name}, {rows.y.size} rows, n_jobs={n_jobs}: {line(facts)}\n  {line(seconds)}", flush=True
            )


def show_steps() -> None:
    """Log every step of a fit with the seconds since the start."""
    import polymargin._progress

    polymargin._progress._SECONDS_BETWEEN_LINES = 0.0
    start = time.perf_counter()

    class Stamped(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"    {time.perf_counter() - start:7.2f} s  {record.getMessage()}"

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Stamped())
    # Of what is counted, the beginning and the end.
    counted = re.compile(r": (\d+) of (\d+)")
    handler.addFilter(
        lambda record: not (found := counted.search(record.getMessage())) or found[1] in ("0", found[2])
    )
    logging.getLogger("polymargin").addHandler(handler)
    logging.getLogger("polymargin").setLevel(logging.INFO)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("command", choices=("agreement", "fit", "cores", "divided", "torchkm"))
    parser.add_argument("--datasets", nargs="+")
    parser.add_argument("--rows", type=int, nargs="+", help="training rows; several for divided")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--metric", choices=("learned",))
    parser.add_argument("--kernel")
    parser.add_argument("--coding", default="one-vs-one")
    parser.add_argument("--scale", default="exact")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--steps", action="store_true", help="print when each step of a fit began")
    arguments = parser.parse_args()
    if arguments.steps:
        show_steps()
    commands = {"agreement": agreement, "fit": fit, "cores": cores, "divided": divided, "torchkm": torchkm}
    commands[arguments.command](arguments)


if __name__ == "__main__":
    run_benchmark(main)
