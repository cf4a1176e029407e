"""Tables of any size: seconds, memory and probabilities of ``polymargin fit``, beside what else takes so many rows.

    python benchmarks/scale.py stream [--rows 10000 100000 1000000] [--format csv] [--memory 2GB] [--model auto]
    python benchmarks/scale.py divided [--datasets covtype_15k letter mnist] [--scales both exact] [--rows 12000]

Waveform, whose true posterior is known, is written to a file, block by block, and fitted by the command, in a process
of its own, whose time and peak memory are measured. Its excess is the mean divergence of the probabilities of 5000 new
rows from the true ones. The peers have all rows in memory: logistic regression by stochastic gradients on a thousand
random features of an RBF kernel (its width and its penalty chosen on a sample of 5000 rows), and boosted trees that
stop by a validation set. Their memory is that of their processes, reading the table included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from _missing import run as run_benchmark
from polymargin.datasets.generators import generators
from polymargin.metrics import divergence_from_truth

GENERATOR = "waveform"
TEST_ROWS, TEST_SEED = 5000, 1_000_003
BLOCK = 100_000
COLUMNS = [f"x{number}" for number in range(21)]
PEERS = ("sgd", "trees")


def write_table(path: Path, n_rows: int) -> None:
    """Write rows of waveform to a CSV or Parquet file, in blocks drawn one after the other."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    writer = None
    for number, start in enumerate(range(0, n_rows, BLOCK)):
        X, y = generators()[GENERATOR].sample(min(BLOCK, n_rows - start), random_state=number)
        columns = {name: column.astype(np.float32) for name, column in zip(COLUMNS, X.T, strict=True)}
        table = pa.table(columns | {"wave": y})
        if writer is None:
            make = pa.csv.CSVWriter if path.suffix == ".csv" else pa.parquet.ParquetWriter
            writer = make(str(path), table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def test_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return new rows, and their true posterior."""
    generator = generators()[GENERATOR]
    X = generator.sample(TEST_ROWS, random_state=TEST_SEED)[0]
    return X, generator.posterior(X)


def excess(log_proba: np.ndarray) -> float:
    """Return the mean divergence of probabilities of the test rows from the truth."""
    return float(divergence_from_truth(test_rows()[1], log_proba).kl)


def measured(command: list[str]) -> tuple[float, float, str]:
    """Run a command; return its seconds, the peak of its memory in MB, and what it printed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024.0, output


def our_fit(path: Path, model: str, memory: str | None) -> dict[str, float]:
    """Fit by the command, and measure the model that it saved."""
    import pandas as pd

    import polymargin

    file = path.with_suffix(".model")
    command = [sys.executable, "-m", "polymargin", "fit", str(path), "--model", model, "-o", str(file)]
    command += ["--json"] if memory is None else ["--json", "--memory", memory, "--stream"]
    seconds, peak, _ = measured(command)
    start = time.perf_counter()
    fitted = polymargin.load(file)
    log_proba = fitted.predict_log_proba(pd.DataFrame(test_rows()[0], columns=COLUMNS))
    return {
        "seconds": seconds,
        "peak MB": peak,
        "excess": excess(log_proba),
        "model MB": file.stat().st_size / 1e6,
        "seconds to load and predict": time.perf_counter() - start,
    }


def fit_peer(name: str, path: Path) -> dict[str, float]:
    """Fit a peer, in this process, and return its excess and times."""
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import SGDClassifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    start = time.perf_counter()
    if path.suffix == ".csv":
        frame = pd.read_csv(path, dtype=dict.fromkeys(COLUMNS, np.float32))
    else:
        frame = pd.read_parquet(path)
    X, y = frame[COLUMNS].to_numpy(np.float32), frame["wave"].to_numpy()
    new = test_rows()[0].astype(np.float32)
    if name == "trees":
        model = HistGradientBoostingClassifier(max_iter=1000, early_stopping=True, random_state=0).fit(X, y)
        return {"excess": excess(np.log(model.predict_proba(new))), "seconds": time.perf_counter() - start}
    pipeline = make_pipeline(
        StandardScaler(),
        RBFSampler(n_components=1000, random_state=0),
        SGDClassifier(loss="log_loss", average=True, max_iter=10, tol=None, random_state=0),
    )
    grid = {
        "rbfsampler__gamma": [0.1 / 21, 0.3 / 21, 1.0 / 21],
        "sgdclassifier__alpha": [1e-6, 1e-5, 1e-4, 1e-3],
    }
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=3).fit(X[:5000], y[:5000])
    pipeline.set_params(**search.best_params_)
    scaler, features, classifier = (step for _, step in pipeline.steps)
    scaler.fit(X[:BLOCK])
    features.fit(scaler.transform(X[:1]))
    # A pass over blocks in place of fit, which would hold the features of all rows; a few for few rows.
    for _ in range(max(1, 1_000_000 // len(X))):
        for block in range(0, len(X), BLOCK):
            rows = slice(block, block + BLOCK)
            classifier.partial_fit(features.transform(scaler.transform(X[rows])), y[rows], np.unique(y))
    proba = classifier.predict_proba(features.transform(scaler.transform(new)))
    return {
        "excess": excess(np.log(np.clip(proba, 1e-15, None))),
        "seconds": time.perf_counter() - start,
    }


def peer(name: str, path: Path) -> dict[str, float]:
    """Fit a peer in a process of its own."""
    seconds, peak, output = measured([sys.executable, __file__, "peer", name, str(path)])
    return {"seconds": seconds, "peak MB": peak, **{"excess": json.loads(output)["excess"]}}


def stream(arguments: argparse.Namespace) -> None:
    """Measure all methods on tables of several sizes."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for n_rows in arguments.rows:
            path = Path(folder) / f"waveform{n_rows}.{arguments.format}"
            write_table(path, n_rows)
            size = path.stat().st_size / 1e6
            print(f"{n_rows} rows, {arguments.format}, {size:.0f} MB", flush=True)
            methods = {
                f"polymargin {model}": lambda model=model: our_fit(path, model, arguments.memory)  # noqa: B023
                for model in arguments.model
            }
            methods |= {name: lambda name=name: peer(name, path) for name in arguments.peers}  # noqa: B023
            for name, measure in methods.items():
                facts = measure()
                line = ", ".join(f"{key} {value:.4g}" for key, value in facts.items())
                print(f"  {name}: {line}", flush=True)
            path.unlink()


def fit_divided(
    name: str, scale: str, n_rows: int, n_test: int, n_jobs: int, coding: str
) -> dict[str, float | str]:
    """Fit to so many rows of a dataset, in this process; return the quality on new rows, the seconds and the plan."""
    from sklearn.metrics import accuracy_score, log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    from polymargin import LSSVMClassifier
    from polymargin.datasets import load

    data = load(name)
    train, test = train_test_split(
        np.arange(data.y.size), train_size=n_rows, test_size=n_test, stratify=data.y, random_state=0
    )
    scaler = StandardScaler().fit(data.X[train])
    X, new = scaler.transform(data.X[train]), scaler.transform(data.X[test])
    start = time.perf_counter()
    model = LSSVMClassifier(scale=scale, coding=coding, n_jobs=n_jobs).fit(X, data.y[train])
    seconds = time.perf_counter() - start
    proba = model.predict_proba(new)
    return {
        "log-loss": log_loss(data.y[test], proba, labels=model.classes_),
        "accuracy": accuracy_score(data.y[test], model.predict(new)),
        "seconds": seconds,
        "seconds to predict": time.perf_counter() - start - seconds,
        "plan": str(model.plan_),
    }


def divided(arguments: argparse.Namespace) -> None:
    """Measure divided and exact machines on the same rows, one fit after the other."""
    for name in arguments.datasets:
        for scale in arguments.scales:
            sizes = [str(arguments.rows), str(arguments.test), str(arguments.jobs)]
            one = ["fit-divided", name, scale, *sizes, arguments.coding]
            _, peak, output = measured([sys.executable, __file__, *one])
            facts = json.loads(output)
            plan = facts.pop("plan")
            line = ", ".join(f"{key} {value:.4g}" for key, value in facts.items())
            print(f"{name}, {scale}: {line}, peak MB {peak:.0f}\n  {plan}", flush=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command")
    streaming = commands.add_parser("stream", help="tables of several sizes")
    alone = commands.add_parser("peer", help="one peer on one file, as the measuring process calls it")
    alone.add_argument("name", choices=PEERS)
    alone.add_argument("path", type=Path)
    dividing = commands.add_parser("divided", help="rows divided into leaves and landmarks, and exact")
    dividing.add_argument("--datasets", nargs="+", default=["covtype_15k", "letter", "mnist"])
    dividing.add_argument("--scales", nargs="+", default=["both", "exact"])
    dividing.add_argument("--rows", type=int, default=12_000, help="training rows")
    dividing.add_argument("--test", type=int, default=3000, help="new rows")
    dividing.add_argument("--jobs", type=int, default=2)
    dividing.add_argument("--coding", default="one-vs-one")
    one = commands.add_parser("fit-divided", help="one fit of these, as the measuring process calls it")
    for argument in ("name", "scale"):
        one.add_argument(argument)
    for argument in ("rows", "test", "jobs"):
        one.add_argument(argument, type=int)
    one.add_argument("coding")
    streaming.add_argument("--rows", type=lambda text: int(float(text)), nargs="+", default=[10_000, 100_000])
    streaming.add_argument("--format", choices=("csv", "parquet"), default="csv")
    streaming.add_argument(
        "--memory", help="the bound of polymargin fit, which then streams; all unless given"
    )
    streaming.add_argument("--model", nargs="+", choices=("auto", "ls-svm"), default=["auto"])
    streaming.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    streaming.add_argument("--folder", help="where tables and models are written for the time being")
    arguments = parser.parse_args(sys.argv[1:] or ["stream"])
    if arguments.command == "peer":
        print(json.dumps(fit_peer(arguments.name, arguments.path)))
    elif arguments.command == "fit-divided":
        sizes = arguments.rows, arguments.test, arguments.jobs
        facts = fit_divided(arguments.name, arguments.scale, *sizes, arguments.coding)
        print(json.dumps(facts))
    elif arguments.command == "divided":
        divided(arguments)
    else:
        stream(arguments)


if __name__ == "__main__":
    run_benchmark(main)
