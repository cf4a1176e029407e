"""Measure what a learned metric brings: log-loss, time, columns of noise, honesty.

    POLYMARGIN_DATA=<folder> python benchmarks/metric.py [--sections sets noise honesty] [--splits 5] [--json FILE]
    python benchmarks/metric.py --picture docs/relevance.svg

sets
    `LSSVMClassifier` with ``metric="learned"`` and without, on the datasets of ``quality.py``: the ratio of the
    log-losses and of the CPU seconds of fitting, one BLAS thread. Of the sets on which the metric is not chosen, the
    ratio of the seconds alone.
noise
    Waveform, 300 training rows, with columns of standard normal noise added: the log-loss beyond that of the true
    posterior on 4000 new rows.
honesty
    The stated log-loss (``loo_log_loss_``) and the one on new rows, on pure noise and on generators, with and without
    the metric. Means over seeds.

``--picture`` measures nothing, but draws the relevance of the columns of waveform with 20 columns of noise, beside what
is true of them: the between-class variance of the waves without noise, and the sensitivity of the true posterior to the
same exchange of values by which relevances are measured.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

from quality import DATASETS, Split  # first: it holds BLAS to one thread

# isort: split
import numpy as np
from joblib import Parallel, delayed

from polymargin import LSSVMClassifier
from polymargin.datasets import generators
from polymargin.datasets.generators import Waveform

METRICS = {"without": None, "with": "learned"}
NOISE_COLUMNS = (0, 20, 100, 400)
NOISE_ROWS = 300
PICTURE_ROWS, PICTURE_NOISE = 500, 20
PURE_NOISE = ((60, 100), (100, 20), (400, 20))  # rows, columns
GENERATORS = ("waveform", "twonorm", "r1", "r4")
#: Below this log-losses are as good as none, and their ratios those of rounding.
LEAST_LOSS = 1e-3
Row = dict[str, Any]


def fitted(metric: str, X: np.ndarray, y: np.ndarray) -> tuple[LSSVMClassifier, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model = LSSVMClassifier(metric=METRICS[metric]).fit(X, y)
        return model, time.process_time() - start


def mean_loss(model: LSSVMClassifier, X: np.ndarray, y: np.ndarray) -> float:
    return -float(model.predict_log_proba(X)[np.arange(y.size), y].mean())


def on_split(name: str, number: int) -> list[Row]:
    split = Split(name, number)
    rows = []
    fitted("without", split.X_train[::5], split.y_train[::5])  # imports and compilation
    for metric in METRICS:
        model, seconds = fitted(metric, split.X_train, split.y_train)
        results = model.metric_results_
        row = {"dataset": name, "split": number, "metric": metric, "seconds": seconds}
        row["log_loss"], row["stated"] = (
            mean_loss(model, split.X_test, split.y_test),
            float(model.loo_log_loss_),
        )
        row["rounds"] = 0 if results is None else results["chosen"].index(True)
        rows.append(row)
    return rows


def sets(arguments: argparse.Namespace) -> list[Row]:
    names = arguments.datasets or DATASETS
    tasks = [delayed(on_split)(name, number) for name in names for number in range(arguments.splits)]
    rows = [row for some in Parallel(arguments.jobs)(tasks) for row in some]
    of = {(row["dataset"], row["split"], row["metric"]): row for row in rows}
    ratios, idle, busy = {}, [], []
    print("dataset            without   with    ratio  seconds  rounds")
    for name in names:
        pairs = [(of[name, n, "without"], of[name, n, "with"]) for n in range(arguments.splits)]
        plain, learned = (float(np.mean([pair[side]["log_loss"] for pair in pairs])) for side in (0, 1))
        ratios[name] = max(learned, LEAST_LOSS) / max(plain, LEAST_LOSS)
        times = [pair[1]["seconds"] / pair[0]["seconds"] for pair in pairs]
        for pair, ratio in zip(pairs, times, strict=True):
            (busy if pair[1]["rounds"] else idle).append(ratio)
        rounds = "".join(str(pair[1]["rounds"]) for pair in pairs)
        print(
            f"{name:18s} {plain:7.4f}  {learned:7.4f}  {ratios[name]:5.3f}  {np.median(times):5.1f}x  {rounds}"
        )
    worst = max(ratios, key=lambda name: ratios[name])
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    print(f"geometric mean of the ratios {mean:.3f}, worst {ratios[worst]:.3f} ({worst})")
    for text, some in (("not chosen", idle), ("chosen", busy)):
        if some:
            print(
                f"seconds where the metric is {text}: {np.median(some):.2f}x in the median, {max(some):.2f}x at most"
            )
    return rows


def noise(arguments: argparse.Namespace) -> list[Row]:
    rows = []
    print("columns of noise   without   with   (log-loss beyond that of the true posterior)")
    generator = generators()["waveform"]
    for n_columns in NOISE_COLUMNS:
        excess: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for seed in range(arguments.splits):
            rng = np.random.default_rng(seed)
            X, y = generator.sample(NOISE_ROWS, random_state=seed)
            new, labels = generator.sample(4000, random_state=1000 + seed)
            truth = -float(generator.log_posterior(new)[np.arange(4000), labels].mean())
            X, new = (np.hstack([each, rng.normal(size=(len(each), n_columns))]) for each in (X, new))
            mean, scale = X.mean(axis=0), X.std(axis=0)
            X, new = (X - mean) / scale, (new - mean) / scale
            for metric in METRICS:
                model, _ = fitted(metric, X, y)
                excess[metric].append(mean_loss(model, new, labels) - truth)
        row: Row = {"columns": n_columns, **{metric: float(np.mean(some)) for metric, some in excess.items()}}
        rows.append(row)
        print(f"{n_columns:16d}   {row['without']:7.4f}  {row['with']:7.4f}", flush=True)
    return rows


def honesty(arguments: argparse.Namespace) -> list[Row]:
    rows = []
    print("data                       stated   true  | stated   true   (without | with the metric)   chosen")
    cases: list[tuple[str, Any]] = [(f"noise {n} × {d}", (n, d)) for n, d in PURE_NOISE]
    cases += [(f"{name} {n}", (name, n)) for name in GENERATORS for n in (100, 400)]
    for title, case in cases:
        found: dict[str, list[tuple[float, float]]] = {metric: [] for metric in METRICS}
        chosen = 0
        for seed in range(4 * arguments.splits):
            rng = np.random.default_rng(seed)
            if isinstance(case[0], str):
                generator = generators()[case[0]]
                X, y = generator.sample(case[1], random_state=seed)
                new, labels = generator.sample(4000, random_state=1000 + seed)
            else:
                X, new = rng.normal(size=case), rng.normal(size=(4000, case[1]))
                y, labels = rng.permutation(np.arange(case[0]) % 2), np.arange(4000) % 2
            for metric in METRICS:
                model, _ = fitted(metric, X, y)
                found[metric].append((model.loo_log_loss_, mean_loss(model, new, labels)))
                if model.metric_results_ is not None:
                    chosen += not model.metric_results_["chosen"][0]
        means = {metric: np.mean(pairs, axis=0) for metric, pairs in found.items()}
        rows.append({"data": title, "chosen": chosen, **{m: v.tolist() for m, v in means.items()}})
        values = " | ".join(f"{stated:.3f}   {true:.3f} " for stated, true in means.values())
        print(f"{title:25s}  {values}   {chosen} of {4 * arguments.splits}", flush=True)
    return rows


def true_shares(n_rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Return what is true of the columns of waveform, as shares, shape (21,) each.

    The variance of the means of the classes, and the mean squared change of the true posterior if another row's value
    is put into a column.
    """
    generator = Waveform()
    between = generator.waves.mean(axis=1).var(axis=0)
    X, _ = generator.sample(n_rows, random_state=0)
    others = np.roll(np.arange(n_rows), 1)  # rows are drawn in a random order
    posterior = np.exp(generator.log_posterior(X))
    changes = np.empty(X.shape[1])
    for column in range(X.shape[1]):
        changed = X.copy()
        changed[:, column] = X[others, column]
        changes[column] = np.square(np.exp(generator.log_posterior(changed)) - posterior).sum(axis=1).mean()
    return between / between.sum(), changes / changes.sum()


def draw(path: Path) -> None:
    """Draw the relevance of the columns of waveform and of columns of noise, beside what is true of them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    X, y = Waveform().sample(PICTURE_ROWS, random_state=0)
    X = np.hstack([X, np.random.default_rng(0).normal(size=(PICTURE_ROWS, PICTURE_NOISE))])
    model, _ = fitted("with", X, y)
    shares, spread = 100.0 * model.feature_relevance_, 100.0 * model.feature_relevance_std_
    columns, n_waves = np.arange(shares.size), shares.size - PICTURE_NOISE
    between, posterior = (100.0 * np.append(each, np.zeros(PICTURE_NOISE)) for each in true_shares())
    # The same bytes every time.
    pyplot.rcParams.update({"svg.hashsalt": "relevance", "font.size": 10})
    figure, ax = pyplot.subplots(figsize=(9.0, 3.4), layout="constrained", facecolor="white")
    ax.axvspan(n_waves - 0.5, shares.size - 0.5, color="#eeeeee", zorder=0)
    bars = ax.bar(
        columns,
        shares,
        0.75,
        color="#92c5de",
        yerr=[np.minimum(spread, shares), spread],
        error_kw={"ecolor": "#444444", "elinewidth": 1.0, "capsize": 1.5},
        label="relevance to the fitted model, ± standard deviation over folds",
    )
    (variance,) = ax.plot(
        columns, between, "D", color="#b2182b", ms=4.5, label="between-class variance of the waves"
    )
    (truth,) = ax.plot(
        columns, posterior, "_", color="black", ms=9, mew=2, label="sensitivity of the true posterior"
    )
    ax.legend(handles=[bars, variance, truth], loc="upper right", frameon=False)
    ax.set(
        xlabel=f"column: 0 to {n_waves - 1} are waveform's, {n_waves} to {shares.size - 1} are noise",
        ylabel="share, %",
        xlim=(-0.7, shares.size - 0.3),
    )
    ax.set_xticks(np.arange(0, shares.size, 5))
    ax.set_yticks(np.arange(0, 20, 5))
    ax.set_ylim(0.0, 19.0)
    ax.text(n_waves + PICTURE_NOISE / 2 - 0.5, 4.0, "noise", ha="center", color="#555555", fontsize=12)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    noise = shares[n_waves:]
    print(f"{path}: the columns of noise have {noise.sum():.1f} %, {noise.max():.2f} % at most")


SECTIONS = {"sets": sets, "noise": noise, "honesty": honesty}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--datasets", nargs="+")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="draw this file (.svg, .png) in place of the sections")
    arguments = parser.parse_args()
    if arguments.picture:
        draw(arguments.picture)
        return
    results = {}
    for name in arguments.sections:
        print(f"== {name}", flush=True)
        results[name] = SECTIONS[name](arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
