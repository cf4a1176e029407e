"""Compare log-loss with boosted trees and xRFM: CatBoost, LightGBM, XGBoost, a kernel machine with a learned metric.

    pip install '.[modern]'
    POLYMARGIN_DATA=<folder> python benchmarks/modern.py [--datasets ...] [--methods ...] [--splits 5] [--jobs 1]
                                                         [--results FILE] [--report]

The datasets and splits are those of ``quality.py``: at most 2000 rows, five times two thirds for training and one third
for testing. Finished results are kept in ``polymargin-results/modern.jsonl``: a run can be stopped and goes on where it
was; what failed is tried again. ``--report`` only prints what is there. Every fit has one thread; the seconds are CPU
seconds of fitting and predicting. Probabilities are clipped at 1e-15, and nowhere else.

catboost, lightgbm, xgboost
    Five models, each trained on four of five stratified folds and stopped when the log-loss of the fifth has not become
    lower in 50 rounds, after 5000 at the latest; the mean of their probabilities. The learning rate is 0.05
    (AutoGluon's for CatBoost and LightGBM), all else is the library's default, with two exceptions for CatBoost, whose
    rounds are slow otherwise: categories of up to 15 values are indicators (as in the tuned defaults of Holzmüller et
    al., Better by Default, 2024), and usps's 256 columns have 32 borders each instead of 254. The columns are as
    loaded: nominal ones are passed as categories, missing values as missing.
xrfm
    ``xRFM()`` with its defaults, the number of its iterations chosen by the log-loss of a validation set: in five folds
    as above, the mean of the probabilities. Columns as its README recommends: numeric ones standardised, nominal ones
    as indicators which are not. (Its ``categorical_info`` is for speed with many values only.) Its
    probabilities are never below about 0.001: xRFM clips its outputs there and divides by their sum.
xrfm-tuned
    The same, with the settings that PyTabKit and TabArena search: random bandwidth, ridge, exponent and full or
    diagonal metric of the Laplace kernel (the space "only_l2"), and PyTabKit's other defaults. These 30 candidates, the
    defaults of PyTabKit and those of xRFM are compared by their log-loss on the held-out folds, on all five where there
    are at most 500 training rows, else on the first.
polymargin, polymargin-single, polymargin-metric, polymargin-trees
    ``AutoKernelClassifier()``, ``LSSVMClassifier()``, the latter with ``metric="learned"``, and the default pool with
    scikit-learn's boosted trees as a further member.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from quality import DATASETS, TWO_CLASSES, Split, known_results  # first: it holds BLAS to one thread

# isort: split
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from polymargin import AutoKernelClassifier, LSSVMClassifier

RESULTS = Path("polymargin-results") / "modern.jsonl"
Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Row = dict[str, Any]

FOLDS = 5
#: These come first, so that no process is left with them when the others have finished.
SLOW = ("letter", "satimage", "segment", "usps", "vowel")
LEARNING_RATE = 0.05
MOST_ROUNDS = 5000
PATIENCE = 50
#: Where CatBoost has fewer borders: after 100 rounds on usps the log-loss is the same within 1 %.
MANY_COLUMNS = 100
CANDIDATES = 30
#: With as many rows, or fewer, the validation rows of one fold are too few to choose among candidates.
FEW_ROWS = 500
#: What `sklearn.metrics.log_loss` clipped at for long; with float64 it now clips at 2e-16.
CLIP = 1e-15
#: Below this log-losses are as good as none, and their ratios those of rounding.
LEAST_LOSS = 1e-3
#: A log-loss larger than theirs by this factor is listed.
LOST = 1.05


def folds(y: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield training and validation rows, stratified; every class is in every training part.

    The rows of a class with fewer rows than folds are in different folds, so only a single row could be missing from a
    training part: it is always there, and never held out.
    """
    single = np.flatnonzero(np.bincount(y)[y] == 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes with fewer rows than folds
        for train, held in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(y, y):
            yield np.union1d(train, single), np.setdiff1d(held, single)


@dataclass
class Columns:
    """The columns of a split as loaded, for boosted trees.

    Attributes
    ----------
    train, test : ndarray of shape (n_rows, n_columns)
        Nominal columns hold the numbers of their values in the training rows. NaN is a missing or unseen value.
    nominal : list of int
        The nominal columns.
    """

    train: Array
    test: Array
    nominal: list[int]

    @classmethod
    def of(cls, split: Split) -> Columns:
        """Return those of a split."""
        data = split.train_rows
        nominal = [j for j, name in enumerate(data.feature_names) if name in data.nominal]
        parts = [np.empty(rows.X.shape) for rows in (data, split.test_rows)]
        for j in range(data.X.shape[1]):
            values = sorted({value for value in data.X[:, j] if not _missing(value)})
            number = {value: float(code) for code, value in enumerate(values)}
            for part, rows in zip(parts, (data, split.test_rows), strict=True):
                if j in nominal:
                    part[:, j] = [np.nan if _missing(v) else number.get(v, np.nan) for v in rows.X[:, j]]
                else:
                    part[:, j] = rows.X[:, j].astype(float)
        return cls(*parts, nominal)


def _missing(value: Any) -> bool:
    return value is None or value != value


Booster = Callable[[Columns, Rows, Rows, Rows, int], Array]


def bagged(booster: Booster) -> Callable[[Split], Array]:
    def probabilities(split: Split) -> Array:
        columns, y = Columns.of(split), split.y_train
        n_classes = int(y.max()) + 1
        parts = [booster(columns, y, train, held, n_classes) for train, held in folds(y)]
        return np.mean(np.asarray(parts, dtype=np.float64), axis=0)

    return probabilities


def catboost(columns: Columns, y: Rows, train: Rows, held: Rows, n_classes: int) -> Array:
    from catboost import CatBoostClassifier, Pool

    def pool(X: Array, labels: Rows | None = None) -> Any:
        table: Any = X
        if columns.nominal:  # categories must be text or integers
            table = X.astype(object)
            for j in columns.nominal:
                table[:, j] = ["missing" if _missing(value) else str(int(value)) for value in X[:, j]]
        return Pool(table, labels, cat_features=columns.nominal or None, thread_count=1)

    model = CatBoostClassifier(
        iterations=MOST_ROUNDS,
        learning_rate=LEARNING_RATE,
        loss_function="Logloss" if n_classes == 2 else "MultiClass",
        early_stopping_rounds=PATIENCE,
        one_hot_max_size=15,
        border_count=254 if columns.train.shape[1] <= MANY_COLUMNS else 32,
        random_seed=0,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(pool(columns.train[train], y[train]), eval_set=pool(columns.train[held], y[held]))
    return model.predict_proba(pool(columns.test), thread_count=1)


def lightgbm(columns: Columns, y: Rows, train: Rows, held: Rows, n_classes: int) -> Array:
    import lightgbm as lgb

    parameters: dict[str, Any] = {
        "learning_rate": LEARNING_RATE,
        "num_threads": 1,
        "seed": 0,
        "verbose": -1,
        "objective": "binary",
        "metric": "binary_logloss",
    }
    if n_classes > 2:
        parameters |= {"objective": "multiclass", "metric": "multi_logloss", "num_class": n_classes}
    data = lgb.Dataset(columns.train[train], y[train], categorical_feature=columns.nominal)
    model = lgb.train(
        parameters,
        data,
        MOST_ROUNDS,
        valid_sets=[data.create_valid(columns.train[held], y[held])],
        callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
    )
    return _both_classes(model.predict(columns.test))


def xgboost(columns: Columns, y: Rows, train: Rows, held: Rows, n_classes: int) -> Array:
    import xgboost as xgb

    types = ["c" if j in columns.nominal else "q" for j in range(columns.train.shape[1])]

    def matrix(X: Array, labels: Rows | None = None) -> Any:
        return xgb.DMatrix(X, labels, feature_types=types, enable_categorical=True, nthread=1)

    parameters: dict[str, Any] = {
        "learning_rate": LEARNING_RATE,
        "nthread": 1,
        "seed": 0,
        "tree_method": "hist",
        "objective": "binary:logistic",
        "eval_metric": "logloss",
    }
    if n_classes > 2:
        parameters |= {"objective": "multi:softprob", "eval_metric": "mlogloss", "num_class": n_classes}
    model = xgb.train(
        parameters,
        matrix(columns.train[train], y[train]),
        MOST_ROUNDS,
        evals=[(matrix(columns.train[held], y[held]), "held")],
        early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    )
    return _both_classes(model.predict(matrix(columns.test), iteration_range=(0, model.best_iteration + 1)))


def _both_classes(proba: Any) -> Array:
    proba = np.asarray(proba, dtype=np.float64)
    return np.column_stack([1.0 - proba, proba]) if proba.ndim == 1 else proba


def xrfm_candidates() -> Iterator[dict[str, Any]]:
    """Yield xRFM's defaults, PyTabKit's, and random settings: keyword arguments."""
    yield {}
    rng = np.random.default_rng(0)
    drawn: list[dict[str, Any]] = [{"bandwidth": 10.0, "exponent": 1.0, "diag": True, "reg": 1e-3}]
    for _ in range(CANDIDATES):
        drawn.append(
            {
                "bandwidth": float(np.exp(rng.uniform(np.log(0.5), np.log(200.0)))),
                "exponent": float(rng.uniform(0.7, 1.4)),
                "diag": bool(rng.integers(2)),
                "reg": float(np.exp(rng.uniform(np.log(1e-6), np.log(10.0)))),
            }
        )
    for one in drawn:
        fit = {"reg": one.pop("reg"), "iters": 5, "early_stop_rfm": True, "early_stop_multiplier": 1.1}
        model = {"kernel": "l2", "bandwidth_mode": "constant", **one}
        parameters = {"model": model, "fit": {**fit, "verbose": False, "solver": "solve"}}
        yield {"rfm_params": parameters, "classification_mode": "prevalence"}


def fitted_xrfm(split: Split, train: Rows, held: Rows, **parameters: Any) -> Any:
    import torch
    from xrfm import xRFM

    torch.set_num_threads(1)
    X, y = split.X_train.astype(np.float32), torch.as_tensor(split.y_train, dtype=torch.long)
    model = xRFM(
        device=torch.device("cpu"),
        tuning_metric="logloss",
        n_threads=1,
        random_state=0,
        verbose=False,
        **parameters,
    )
    return model.fit(X[train], y[train], X[held], y[held])


def xrfm_mean(split: Split, **parameters: Any) -> Array:
    X_test = split.X_test.astype(np.float32)
    models = [fitted_xrfm(split, train, held, **parameters) for train, held in folds(split.y_train)]
    return np.mean([model.predict_proba(X_test).astype(np.float64) for model in models], axis=0)


def xrfm_tuned(split: Split) -> Array:
    y = split.y_train
    X = split.X_train.astype(np.float32)
    parts = list(folds(y))[: FOLDS if y.size <= FEW_ROWS else 1]
    losses = []
    candidates = list(xrfm_candidates())
    for candidate in candidates:
        try:
            models = [fitted_xrfm(split, train, held, **candidate) for train, held in parts]
            each = [
                log_loss(y[held], model.predict_proba(X[held]))
                for model, (_, held) in zip(models, parts, strict=True)
            ]
            losses.append(float(np.mean(each)))
        except (RuntimeError, ValueError):  # singular matrices, outputs that are not finite
            losses.append(np.inf)
    return xrfm_mean(split, **candidates[int(np.nanargmin(losses))])


def ours(make: Callable[[], Any]) -> Callable[[Split], Array]:
    return lambda split: make().fit(split.X_train, split.y_train).predict_proba(split.X_test)


def with_trees() -> AutoKernelClassifier:
    return AutoKernelClassifier(["default", HistGradientBoostingClassifier()])


MODELS: dict[str, Callable[[], Any]] = {
    "polymargin": AutoKernelClassifier,
    "polymargin-single": LSSVMClassifier,
    "polymargin-metric": lambda: LSSVMClassifier(metric="learned"),
    "polymargin-trees": with_trees,
}
OURS = {name: ours(make) for name, make in MODELS.items()}
OTHERS: dict[str, Callable[[Split], Array]] = {
    "catboost": bagged(catboost),
    "lightgbm": bagged(lightgbm),
    "xgboost": bagged(xgboost),
    "xrfm": xrfm_mean,
    "xrfm-tuned": xrfm_tuned,
}
METHODS = OURS | OTHERS
NEEDS = {"xrfm-tuned": "xrfm"}


def log_loss(y: Rows, proba: Array) -> float:
    """Return the mean log-loss; probabilities are clipped at 1e-15."""
    own = np.asarray(proba, dtype=np.float64)[np.arange(y.size), y]
    return -float(np.log(np.maximum(own, CLIP)).mean())


@cache
def compile_ours() -> None:
    """Fit once, so that no seconds are those of numba's compiler."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 3
    for n_classes in (2, 3):
        for make in MODELS.values():
            make().fit(X, y % n_classes).predict_proba(X)


def measured(name: str, number: int, method: str) -> Row:
    """Return the scores of a method on one split; of one that fails, the error."""
    row: Row = {"dataset": name, "split": number, "method": method}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split = Split(name, number)
        if method in OURS:
            compile_ours()
        else:
            __import__(NEEDS.get(method, method))
        start = time.process_time()
        try:
            proba = np.asarray(METHODS[method](split), dtype=np.float64)
        except Exception as error:  # the others are still to be measured
            return row | {"failed": f"{type(error).__name__}: {error}"}
        seconds = time.process_time() - start
    proba /= proba.sum(axis=1, keepdims=True)  # up to rounding they are
    own = proba[np.arange(split.y_test.size), split.y_test]
    return row | {
        "log_loss": log_loss(split.y_test, proba),
        "accuracy": float((proba.argmax(axis=1) == split.y_test).mean()),
        "seconds": seconds,
        "least": float(proba.min()),
        "clipped": int(np.count_nonzero(own < CLIP)),
    }


def run(datasets: Sequence[str], methods: Sequence[str], splits: int, jobs: int, results: Path) -> None:
    """Measure what is not known yet, and note it at once."""
    results.parent.mkdir(parents=True, exist_ok=True)
    done = {
        (row["dataset"], row["split"], row["method"]) for row in known_results(results) if "log_loss" in row
    }
    tasks = [
        (name, number, method)
        for number in range(splits)
        for method in sorted(methods, key=[*OTHERS, *OURS].index)
        for name in datasets
        if (name, number, method) not in done
    ]
    tasks.sort(key=lambda task: task[0] not in SLOW)
    found = Parallel(jobs, return_as="generator_unordered", batch_size=1)(
        delayed(measured)(*task) for task in tasks
    )
    for row in found:
        with results.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        said = row.get("failed") or f"log-loss {row['log_loss']:.4f}, {row['seconds']:.1f} s"
        print(f"{row['dataset']} {row['split']} {row['method']}: {said}", flush=True)


class Table:
    """Scores by dataset, method and split.

    Parameters
    ----------
    rows : iterable of dict
        The lines of the journal.
    """

    def __init__(self, rows: Iterable[Row]):
        self.rows = {
            (row["dataset"], row["method"], row["split"]): row for row in rows if "log_loss" in row
        }  # the last of each
        names = {name for name, _, _ in self.rows}
        self.names = [*(name for name in DATASETS if name in names), *sorted(names.difference(DATASETS))]
        methods = {method for _, method, _ in self.rows}
        self.methods = [method for method in METHODS if method in methods]

    def splits(self, name: str, methods: Iterable[str]) -> list[int]:
        """Return the splits of a dataset on which all of these methods were measured."""
        of_method = [
            {split for each, m, split in self.rows if (each, m) == (name, method)} for method in methods
        ]
        return sorted(set.intersection(*of_method)) if of_method else []

    def means(self, score: str, methods: Sequence[str]) -> tuple[list[str], Array]:
        """Return the datasets on which all of these methods were measured, and the means over splits all have."""
        names, means = [], []
        for name in self.names:
            splits = self.splits(name, methods)
            if splits:
                names.append(name)
                means.append([np.mean([self.rows[name, m, s][score] for s in splits]) for m in methods])
        return names, np.array(means).reshape(len(names), len(methods))


def ratios(losses: Array) -> tuple[float, float]:
    """Return the median and the geometric mean of the ratio of the first column to the second."""
    if not len(losses):
        return np.nan, np.nan
    logs = np.diff(np.log(np.maximum(losses[:, ::-1], LEAST_LOSS)), axis=1)
    return float(np.exp(np.median(logs))), float(np.exp(logs.mean()))


def compared(table: Table, mine: str, other: str) -> Iterator[str]:
    """Yield the lines of one of ours with one competitor."""
    names, losses = table.means("log_loss", (mine, other))
    two = np.array([name in TWO_CLASSES for name in names], dtype=bool)
    parts = {"all": np.ones_like(two), "three or more classes": ~two, "two classes": two}
    text = "; ".join(
        "{} {:.3f}, {:.3f} ({})".format(title, *ratios(losses[part]), np.count_nonzero(part))
        for title, part in parts.items()
    )
    wins = int(np.count_nonzero(losses[:, 0] < losses[:, 1]))
    yield f"  to {other}: {text}; better on {wins} of {len(names)}"
    lost = np.flatnonzero(np.maximum(losses[:, 0], LEAST_LOSS) > LOST * np.maximum(losses[:, 1], LEAST_LOSS))
    lost = lost[np.argsort(losses[lost, 1] / losses[lost, 0])]
    if lost.size:
        listed = ", ".join(f"{names[i]} {losses[i, 0]:.4f}/{losses[i, 1]:.4f}" for i in lost)
        yield f"    worse by more than {100 * (LOST - 1):.0f} %: {listed}"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the report."""
    table = Table(rows)
    if not table.methods:
        yield "no results"
        return
    width = max(len(method) for method in table.methods) + 1
    yield "log-loss".ljust(16) + "".join(method.rjust(width) for method in table.methods)
    for name in table.names:
        cells = []
        for method in table.methods:
            found = [table.rows[name, method, split]["log_loss"] for split in table.splits(name, [method])]
            cells.append(f"{np.mean(found):{width}.4f}" if found else "-".rjust(width))
        yield name.ljust(16) + "".join(cells)
    names, losses = table.means("log_loss", table.methods)
    if names:
        for title, values in (
            ("mean", losses.mean(axis=0)),
            ("mean rank", rankdata(losses, axis=1).mean(axis=0)),
        ):
            yield title.ljust(16) + "".join(f"{value:{width}.3f}" for value in values)
        yield f"(the last two of the {len(names)} sets on which all were measured)"
    seconds = {method: [row["seconds"] for (_, m, _), row in table.rows.items() if m == method]
               for method in table.methods}  # fmt: skip
    yield "median CPU s".ljust(16) + "".join(f"{np.median(some):{width}.2f}" for some in seconds.values())
    yield "all CPU s".ljust(16) + "".join(f"{np.sum(some):{width}.0f}" for some in seconds.values())
    for title, text in (
        ("clipped", "test rows whose probability was clipped"),
        ("least", "least probability"),
    ):
        of = {
            method: [row[title] for (_, m, _), row in table.rows.items() if m == method]
            for method in table.methods
        }
        value = {method: sum(some) if title == "clipped" else min(some) for method, some in of.items()}
        yield f"{text}: " + ", ".join(f"{method} {number:.2g}" for method, number in value.items())
    for mine in (method for method in table.methods if method in OURS):
        yield f"{mine}: ratio of its log-loss to that of others, median, geometric mean (datasets)"
        for other in (method for method in table.methods if method in OTHERS):
            yield from compared(table, mine, other)
    failed = {(row["dataset"], row["method"], row["split"]): row["failed"] for row in rows if "failed" in row}
    for key, message in failed.items():
        if key not in table.rows:
            yield f"failed: {' '.join(map(str, key))}: {message}"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, metavar="NAME", default=DATASETS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", default=list(METHODS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        needed = {NEEDS.get(method, method) for method in arguments.methods if method in OTHERS}
        missing = sorted(name for name in needed if find_spec(name) is None)
        if missing:
            sys.exit(f"{', '.join(missing)} missing: pip install 'polymargin[modern]', or choose --methods")
        run(arguments.datasets, arguments.methods, arguments.splits, arguments.jobs, arguments.results)
    print("\n".join(summary(known_results(arguments.results))))


if __name__ == "__main__":
    from modern import main as imported  # whose functions joblib's processes can import: they compile once

    imported()
