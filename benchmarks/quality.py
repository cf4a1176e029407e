"""Compare class probabilities with those of other classifiers: log-loss on test rows, many datasets.

    POLYMARGIN_DATA=<folder> python benchmarks/quality.py [--datasets ...] [--methods ...] [--splits 5] [--report]

Every dataset is split five times into two thirds for training and one third for testing, stratified. Features are
standardised (nominal ones written as indicators) on the training rows; everything else, tuning and calibration
included, is the method's own affair. Sets of more than 2000 rows are cut to a random 2000, so that the peers' grid
searches end. Finished results are kept in ``polymargin-results/quality.jsonl``: a run can be stopped and goes on
where it was; ``--forget METHOD`` drops a method's. ``--report`` only prints what is there.

The peers are a support vector machine tuned by five-fold cross-validation over 7 × 6 values of C and gamma, with its
own probabilities (Platt's, coupled) or calibrated afterwards; a Gaussian process and kernel logistic regression where
there are at most 1000 rows; logistic regression; a random forest; boosted trees.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.gaussian_process import GaussianProcessClassifier  # noqa: E402
from sklearn.gaussian_process.kernels import RBF  # noqa: E402
from sklearn.linear_model import LogisticRegressionCV  # noqa: E402
from sklearn.metrics import brier_score_loss, log_loss  # noqa: E402
from sklearn.model_selection import GridSearchCV, train_test_split  # noqa: E402
from sklearn.svm import SVC  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from _missing import run as run_benchmark  # noqa: E402
from polymargin.datasets import load, preprocessor  # noqa: E402

threadpool_limits(1)  # for those who had imported numpy before

DATASETS = (
    "balance",
    "bupa",
    "car",
    "contraceptive",
    "covtype_15k",
    "dermatology",
    "german_numeric",
    "glass",
    "heart",
    "ionosphere",
    "iris",
    "led7digit",
    "letter",
    "new_thyroid",
    "pima",
    "satimage",
    "segment",
    "sonar",
    "soybean_large",
    "spambase",
    "splice",
    "usps",
    "vehicle",
    "vowel",
    "waveform",
    "wdbc",
    "wine",
)
TWO_CLASSES = ("bupa", "german_numeric", "heart", "ionosphere", "pima", "sonar", "spambase", "wdbc")
LARGEST = 2000
SLOW_LARGEST = 1000
RESULTS = Path("polymargin-results") / "quality.jsonl"
C_GRID = 2.0 ** np.arange(-3, 10, 2)
GAMMA_FACTORS = 2.0 ** np.arange(-6, 5, 2)
OURS = ("LSSVMClassifier", "AutoKernelClassifier")
CALIBRATIONS = ("sigmoid", "isotonic", "temperature")


class Split:
    """The rows of one split, and what its methods share: the tuned support vector machine."""

    def __init__(self, name: str, number: int):
        data = load(name)
        y = np.unique(data.y, return_inverse=True)[1]
        rows = np.arange(y.size)
        if y.size > LARGEST:
            rows, _ = train_test_split(rows, train_size=LARGEST, stratify=y, random_state=1000 + number)
        train, test = train_test_split(rows, test_size=1 / 3, stratify=y[rows], random_state=number)
        transformer = preprocessor(data.take(train)).fit(data.X[train])
        self.X_train, self.X_test = transformer.transform(data.X[train]), transformer.transform(data.X[test])
        self.y_train, self.y_test = y[train], y[test]
        self.n_rows, self.number = rows.size, number
        self.train_rows, self.test_rows = data.take(train), data.take(test)  # as they were loaded
        self._tuned: tuple[SVC, float] | None = None

    def tuned_svm(self) -> tuple[SVC, float]:
        """Return the support vector machine with the best parameters, not fitted, and the seconds it took."""
        if self._tuned is None:
            start = time.process_time()
            scale = 1.0 / (self.X_train.shape[1] * self.X_train.var())
            search = GridSearchCV(
                SVC(cache_size=500), {"C": C_GRID, "gamma": scale * GAMMA_FACTORS}, cv=5, refit=False
            )
            search.fit(self.X_train, self.y_train)
            self._tuned = SVC(cache_size=500, **search.best_params_), time.process_time() - start
        return self._tuned


def svm_platt(split: Split) -> tuple[Any, float]:
    svm, seconds = split.tuned_svm()
    return clone(svm).set_params(probability=True, random_state=0), seconds


def svm_calibrated(method: str) -> Callable[[Split], tuple[Any, float]]:
    def make(split: Split) -> tuple[Any, float]:
        svm, seconds = split.tuned_svm()
        return CalibratedClassifierCV(svm, method=method, cv=5, ensemble=False), seconds

    return make


def gaussian_process(split: Split) -> tuple[Any, float] | None:
    if split.n_rows > SLOW_LARGEST:
        return None
    return GaussianProcessClassifier(1.0 * RBF(1.0), random_state=0), 0.0


def ours(name: str, **parameters: Any) -> Callable[[Split], tuple[Any, float]]:
    def make(split: Split) -> tuple[Any, float]:
        import polymargin

        return getattr(polymargin, name)(**parameters), 0.0

    return make


METHODS: dict[str, Callable[[Split], tuple[Any, float] | None]] = {
    "SVC own": svm_platt,
    **{f"SVC {method}": svm_calibrated(method) for method in CALIBRATIONS},
    "Gaussian process": gaussian_process,
    "logistic": lambda split: (
        LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=2000, l1_ratios=(0.0,)),
        0.0,
    ),
    "random forest": lambda split: (RandomForestClassifier(500, random_state=0), 0.0),
    "boosted trees": lambda split: (HistGradientBoostingClassifier(random_state=0), 0.0),
    "KernelLogisticClassifier": lambda split: (
        ours("KernelLogisticClassifier")(split) if split.n_rows <= SLOW_LARGEST else None
    ),
    **{name: ours(name) for name in OURS},
}


def measure(split: Split, method: str) -> dict[str, Any] | None:
    """Fit one method; return its scores on the test rows and the CPU seconds of fitting."""
    made = METHODS[method](split)
    if made is None:
        return None
    model, seconds = made
    start = time.process_time()
    model.fit(split.X_train, split.y_train)
    seconds += time.process_time() - start
    proba = model.predict_proba(split.X_test)
    proba = proba / proba.sum(axis=1, keepdims=True)  # up to rounding they are
    labels = np.arange(proba.shape[1])
    return {
        "log_loss": float(log_loss(split.y_test, proba, labels=labels)),
        "brier": float(
            brier_score_loss(split.y_test, proba, labels=labels, scale_by_half=False)
            if labels.size > 2
            else np.square(proba - np.eye(2)[split.y_test]).sum(axis=1).mean()
        ),
        "accuracy": float((model.predict(split.X_test) == split.y_test).mean()),
        "seconds": seconds,
        "n_train": int(split.y_train.size),
        "n_rows": int(split.n_rows),
    }


def known_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(datasets: list[str], methods: list[str], splits: int) -> None:
    """Measure what is not known yet, and note it at once."""
    RESULTS.parent.mkdir(exist_ok=True)
    done = {(row["dataset"], row["split"], row["method"]) for row in known_results()}
    for number in range(splits):
        for name in datasets:
            missing = [method for method in methods if (name, number, method) not in done]
            split = Split(name, number) if missing else None
            for method in missing:
                assert split is not None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    scores = measure(split, method)
                row = {"dataset": name, "split": number, "method": method, **(scores or {"skipped": True})}
                with RESULTS.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                if scores:
                    print(f"{name} {number} {method}: log-loss {scores['log_loss']:.4f}, accuracy "
                          f"{scores['accuracy']:.4f}, {scores['seconds']:.2f} s", flush=True)  # fmt: skip


def table(score: str, methods: list[str]) -> tuple[list[str], list[int], np.ndarray]:
    """Return the datasets, their rows, and the mean scores over splits, shape (datasets, methods)."""
    values: dict[tuple[str, str], list[float]] = {}
    rows: dict[str, int] = {}
    for row in known_results():
        if score in row:
            values.setdefault((row["dataset"], row["method"]), []).append(row[score])
            rows[row["dataset"]] = row["n_rows"]
    names = [name for name in DATASETS if name in rows]
    means = [[np.mean(values.get((name, method), [np.nan])) for method in methods] for name in names]
    return names, [rows[name] for name in names], np.array(means)


def summary() -> Iterator[str]:
    """Yield the lines of the report."""
    methods = [name for name in METHODS if name in {row["method"] for row in known_results()}]
    names, rows, losses = table("log_loss", methods)
    yield "log-loss".ljust(16) + " ".join(method[:10].rjust(10) for method in methods)
    for name, of_name in zip(names, losses, strict=True):
        yield name.ljust(16) + " ".join(f"{value:10.4f}" for value in of_name)
    _, _, accuracies = table("accuracy", methods)
    _, _, seconds = table("seconds", methods)
    everywhere = ~np.isnan(losses).any(axis=1)
    yield "mean".ljust(16) + " ".join(f"{v:10.4f}" for v in np.nanmean(losses, axis=0))
    if everywhere.any():
        yield "mean, all ran".ljust(16) + " ".join(f"{v:10.4f}" for v in losses[everywhere].mean(axis=0))
    ranks = np.argsort(np.argsort(np.where(np.isnan(losses), np.inf, losses), axis=1), axis=1) + 1.0
    ranks[np.isnan(losses)] = np.nan
    yield "mean rank".ljust(16) + " ".join(f"{v:10.2f}" for v in np.nanmean(ranks, axis=0))
    yield "mean accuracy".ljust(16) + " ".join(f"{v:10.4f}" for v in np.nanmean(accuracies, axis=0))
    yield "median CPU s".ljust(16) + " ".join(f"{v:10.2f}" for v in np.nanmedian(seconds, axis=0))
    place = {method: number for number, method in enumerate(methods)}
    calibrated = [place[f"SVC {name}"] for name in CALIBRATIONS if f"SVC {name}" in place]
    large = np.array(rows) >= 500
    many = np.array([name not in TWO_CLASSES for name in names])
    if not calibrated or "SVC own" not in place:
        return
    for name in (name for name in (*OURS, "KernelLogisticClassifier") if name in place):
        mine = losses[:, place[name]]
        yield f"{name}: median ratio of log-loss (sets of more than two classes, of these with 500 rows or more,"
        yield "all sets, all with 500 rows or more)"
        for label, other in (
            ("the better calibrated SVC", losses[:, calibrated].min(axis=1)),
            ("the tuned SVC's own", losses[:, place["SVC own"]]),
        ):
            ratio = mine / other
            medians = [np.nanmedian(ratio[part]) for part in (many, many & large, large >= 0, large)]
            yield f"  to {label}: {', '.join(f'{median:.3f}' for median in medians)}; worst {np.nanmax(ratio):.3f}"
        gain = accuracies[:, place[name]] - accuracies[:, place["SVC own"]]
        yield f"  accuracy minus the tuned SVC's: {100 * np.nanmean(gain):+.2f} points in the mean"
        speed = seconds[:, place["SVC own"]] / seconds[:, place[name]]
        yield f"  CPU time of grid search and calibration over ours: median {np.nanmedian(speed):.1f}"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--forget", nargs="*", default=[])
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.forget:
        kept = [row for row in known_results() if row["method"] not in arguments.forget]
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in kept))
    if not arguments.report:
        run(arguments.datasets, arguments.methods, arguments.splits)
    print("\n".join(summary()))


if __name__ == "__main__":
    run_benchmark(main)
