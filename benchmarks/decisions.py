"""Prediction sets: coverage and size, ours and MAPIE's around the same classifier, on many datasets.

    POLYMARGIN_DATA=<folder> python benchmarks/decisions.py [--datasets ...] [--splits 20] [--report]

Splits and preparation are those of ``quality.py``: two thirds of the rows for training, stratified, at most 2000 rows.
A coverage of 0.9 is asked for. The classifier is ``LSSVMClassifier()`` everywhere:

lac, aps, per class
    ``predict_set`` with its scores, and with ``per_class=True``; one fit, which calibrates itself. Sets may be empty.
never empty
    ``predict_set`` as it is by default: the predicted label is in every set.
mapie split
    MAPIE's split conformal classifier ("lac"): fitted to three quarters of the training rows, calibrated by the rest.
mapie cross
    MAPIE's cross-conformal classifier ("lac", ``agg_scores="crossval"``, that is CV+): five fits, and one to all rows.

Finished splits are kept in ``polymargin-results/decisions.jsonl``: a run can be stopped and goes on where it was. The
result is ``benchmarks/results/raw/decisions.csv``, a line for every dataset, method and class, and one for all classes
together; ``--report`` prints it as tables.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quality import Split  # first: it holds BLAS to one thread

# isort: split
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from _missing import run as run_benchmark
from polymargin import LSSVMClassifier
from polymargin.datasets import load

DATASETS = (
    *("balance", "bupa", "car", "contraceptive", "covtype_15k", "german_numeric"),
    *("glass", "led7digit", "pima", "satimage", "vehicle", "waveform"),
)
COVERAGE = 0.9
FINISHED = Path("polymargin-results") / "decisions.jsonl"
RESULTS = Path(__file__).parent / "results" / "raw" / "decisions.csv"
Row = dict[str, Any]
Sets = dict[str, np.ndarray]


def ours(split: Split) -> Sets:
    """Return the sets of the test rows by one fit."""
    model = LSSVMClassifier().fit(split.X_train, split.y_train)
    asked: dict[str, Row] = {
        "lac": {"allow_empty": True},
        "aps": {"score": "aps", "allow_empty": True},
        "per class": {"per_class": True, "allow_empty": True},
        "never empty": {},
    }
    return {name: model.predict_set(split.X_test, COVERAGE, **options) for name, options in asked.items()}


def mapie_split(split: Split) -> Sets:
    """Return those of MAPIE's split conformal classifier."""
    from mapie.classification import SplitConformalClassifier

    fit, held = train_test_split(
        np.arange(split.y_train.size), test_size=1 / 4, stratify=split.y_train, random_state=split.number
    )
    model = LSSVMClassifier().fit(split.X_train[fit], split.y_train[fit])
    sets = SplitConformalClassifier(model, COVERAGE, prefit=True)
    sets.conformalize(split.X_train[held], split.y_train[held])
    return {"mapie split": sets.predict_set(split.X_test)[1][:, :, 0]}


def mapie_cross(split: Split) -> Sets:
    """Return those of MAPIE's cross-conformal classifier."""
    from mapie.classification import CrossConformalClassifier

    sets = CrossConformalClassifier(LSSVMClassifier(), COVERAGE, cv=5, random_state=0)
    sets.fit_conformalize(split.X_train, split.y_train)
    return {"mapie cross": sets.predict_set(split.X_test, agg_scores="crossval")[1][:, :, 0]}


METHODS: dict[str, Callable[[Split], Sets]] = {
    "ours": ours,
    "mapie split": mapie_split,
    "mapie cross": mapie_cross,
}


def measured(split: Split, method: str) -> Iterator[Row]:
    """Yield the counts of every class: its test rows, those covered, the sizes of their sets, the empty ones."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = METHODS[method](split)
    seconds = time.process_time() - start
    for name, sets in found.items():
        sizes, hit = sets.sum(axis=1), sets[np.arange(split.y_test.size), split.y_test]
        for k in np.unique(split.y_test):
            of_class = split.y_test == k
            yield {
                "sets": name,
                "class": int(k),
                "rows": int(of_class.sum()),
                "covered": int(hit[of_class].sum()),
                "size": int(sizes[of_class].sum()),
                "empty": int((sizes[of_class] == 0).sum()),
                "seconds": round(seconds, 2),
            }


def finished() -> list[Row]:
    """Return what was measured before."""
    if not FINISHED.exists():
        return []
    return [json.loads(line) for line in FINISHED.read_text().splitlines()]


def summarised(rows: list[Row]) -> pd.DataFrame:
    """Return coverage, sizes and seconds by dataset, method and class; the standard error is over splits."""
    table = pd.DataFrame([{**job, **row} for job in rows for row in job.pop("found")])
    together = table.groupby(["dataset", "split", "sets"], as_index=False).agg(
        {"rows": "sum", "covered": "sum", "size": "sum", "empty": "sum", "seconds": "first"}
    )
    table = pd.concat([together.assign(**{"class": "all"}), table], ignore_index=True)
    lines = []
    for (dataset, method, label), each in table.groupby(["dataset", "sets", "class"], sort=False):
        shares = each["covered"] / each["rows"]
        n = each["rows"].sum()
        name = label if label == "all" else np.unique(load(dataset).y)[label]
        lines.append(
            {
                "dataset": dataset,
                "sets": method,
                "class": name,
                "splits": len(each),
                "test_rows": round(n / len(each), 1),
                "coverage": round(each["covered"].sum() / n, 4),
                "standard_error": round(shares.std() / len(each) ** 0.5, 4),
                "size": round(each["size"].sum() / n, 3),
                "empty": round(each["empty"].sum() / n, 4),
                "seconds": round(each["seconds"].mean(), 2),
            }
        )
    table = pd.DataFrame(lines)
    order = {name: place for place, name in enumerate(("lac", "per class", "aps", "never empty", *METHODS))}
    return table.sort_values(
        ["dataset", "sets", "class"],
        key=lambda column: (
            column.map(order) if column.name == "sets" else column.astype(str).replace("all", "")
        ),
        ignore_index=True,
    )


def report(table: pd.DataFrame) -> None:
    """Print the tables: coverage and sizes of all rows, and the least coverage of a class."""
    all_rows = table[table["class"] == "all"]
    of_classes = table[table["class"] != "all"].groupby(["dataset", "sets"])["coverage"].min()
    for title, values in (
        ("coverage of all rows", all_rows.pivot(index="dataset", columns="sets", values="coverage")),
        ("mean size of a set", all_rows.pivot(index="dataset", columns="sets", values="size")),
        ("least coverage of a class", of_classes.unstack()),
    ):
        order = [name for name in table["sets"].unique() if name in values]
        values = values[order]
        values.loc["mean"] = values.mean()
        print(f"\n{title}\n{values.round(3).to_string()}")


def main() -> None:
    """Measure what is missing, write the table, print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--mapie-splits", type=int, default=20)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    done = {(row["dataset"], row["split"], row["method"]) for row in finished()}
    FINISHED.parent.mkdir(exist_ok=True)
    jobs = [
        (name, number, method)
        for method in METHODS
        for number in range(options.splits if method == "ours" else options.mapie_splits)
        for name in options.datasets
    ]
    for name, number, method in [] if options.report else jobs:
        if (name, number, method) in done:
            continue
        found = list(measured(Split(name, number), method))
        with FINISHED.open("a") as file:
            file.write(
                json.dumps({"dataset": name, "split": number, "method": method, "found": found}) + "\n"
            )
        print(name, number, method, f"{found[0]['seconds']:.1f} s", flush=True)
    table = summarised(finished())
    RESULTS.parent.mkdir(exist_ok=True)
    table.to_csv(RESULTS, index=False)
    report(table)


if __name__ == "__main__":
    run_benchmark(main)
