"""Compare variants of an estimator that each change one thing, on the development datasets; see ``search.py``."""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from joblib import Parallel, delayed  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from devsets import DEV_SETS, load_dev  # noqa: E402
from polymargin import LSSVMClassifier  # noqa: E402
from polymargin.metrics import log_loss  # noqa: E402

#: A log-loss below this is as good as none: where all rows are easy, ratios would be those of rounding.
LEAST_LOSS = 1e-3

Row = dict[str, Any]


@cache
def warm_up() -> None:
    """Fit something small, so that the first time that is taken is none of imports."""
    random = np.random.default_rng(0)
    LSSVMClassifier().fit(random.normal(size=(60, 3)), np.arange(60) % 3)


def measure(name: str, number: int, variants: Mapping[str, Any]) -> list[Row]:
    """Fit variants to two thirds of a dataset; return their log-loss on the rest and the CPU seconds of fitting."""
    X, y = load_dev(name)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=1 / 3, stratify=y, random_state=number
    )
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    warm_up()
    rows = []
    for variant, estimator in variants.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.process_time()
            model = clone(estimator).fit(X_train, y_train)
            seconds = time.process_time() - start
            loss = log_loss(y_test, model.predict_log_proba(X_test))
        rows.append(
            {"dataset": name, "split": number, "variant": variant, "log_loss": loss, "seconds": seconds}
        )
    return rows


def known(results: Path) -> list[Row]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def run(results: Path, variants: Mapping[str, Any], datasets: list[str], splits: int, jobs: int) -> None:
    """Measure what is not known yet, and note it at once."""
    results.parent.mkdir(exist_ok=True)
    done = {(row["dataset"], row["split"], row["variant"]) for row in known(results)}
    tasks = []
    for number in range(splits):
        for name in datasets:
            missing = {key: value for key, value in variants.items() if (name, number, key) not in done}
            tasks += [delayed(measure)(name, number, {key: value}) for key, value in missing.items()]
    for rows in Parallel(jobs, return_as="generator_unordered")(tasks):
        with results.open("a") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        for row in rows:
            print(f"{row['dataset']} {row['split']} {row['variant']}: log-loss {row['log_loss']:.4f}, "
                  f"{row['seconds']:.2f} s", flush=True)  # fmt: skip


def report(results: Path, variants: Mapping[str, Any], datasets: list[str]) -> Iterator[str]:
    """Yield the lines of the report: every variant relative to the first."""
    values: dict[str, dict[tuple[str, int], Row]] = {}
    for row in known(results):
        values.setdefault(row["variant"], {})[row["dataset"], row["split"]] = row
    base = values.get(next(iter(variants)), {})
    yield f"{'relative to the first':44s} {'log-loss':>8s} {'CPU':>6s}  {'worst set':24s} best set"
    for variant in variants:
        ratios, times = {}, []
        for name in datasets:
            both = [key for key in values.get(variant, {}) if key[0] == name and key in base]
            if not both:
                continue
            mine, theirs = (
                max(float(np.mean([of[key]["log_loss"] for key in both])), LEAST_LOSS)
                for of in (values[variant], base)
            )
            ratios[name] = mine / theirs
            times.append(
                sum(values[variant][key]["seconds"] for key in both)
                / sum(base[key]["seconds"] for key in both)
            )
        if ratios:
            worst, best = max(ratios, key=ratios.__getitem__), min(ratios, key=ratios.__getitem__)
            mean, seconds = (float(np.exp(np.mean(np.log(part)))) for part in (list(ratios.values()), times))
            told = [f"{ratios[name]:.3f} {name}" for name in (worst, best)]
            yield f"{variant:44s} {mean:8.4f} {seconds:6.2f}  {told[0]:24s} {told[1]}  ({len(ratios)} sets)"


def main(description: str | None, results: Path, variants: Mapping[str, Any]) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument(
        "--datasets", nargs="*", default=list(DEV_SETS), choices=list(DEV_SETS), metavar="NAME"
    )
    parser.add_argument(
        "--variants", nargs="*", default=list(variants), choices=list(variants), metavar="VARIANT"
    )
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="processes; CPU times are cleanest with one")
    parser.add_argument(
        "--forget", nargs="*", default=[], metavar="VARIANT", help="drop what is known of these"
    )
    parser.add_argument("--report", action="store_true", help="only print what is there")
    arguments = parser.parse_args()
    if arguments.forget:
        kept = [row for row in known(results) if row["variant"] not in arguments.forget]
        results.write_text("".join(json.dumps(row) + "\n" for row in kept))
    first = next(iter(variants))
    chosen = {name: variants[name] for name in dict.fromkeys([first, *arguments.variants])}
    if not arguments.report:
        run(results, chosen, arguments.datasets, arguments.splits, arguments.jobs)
    print("\n".join(report(results, chosen, arguments.datasets)))
