"""``polymargin bench``: our defaults against other classifiers on your data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from polymargin._peers import METHODS, fit_method, log_proba_of
from polymargin.cli._completion import data_files, one_of
from polymargin.cli._console import counted, note, reported, results
from polymargin.cli._data import load_examples
from polymargin.cli._progress import show_steps
from polymargin.cli._reading import Decimal, Delimiter, Encoding, Header, Missing, Use, dialect_of

if TYPE_CHECKING:  # importing pandas at run time would make every command slow to start
    from polymargin.tables import Examples

__all__ = ["command"]

_SCORES = ("log_loss", "accuracy", "balanced_accuracy", "auc", "seconds")


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A CSV or Parquet file, or a dataset by name (wine, vehicle, ...).",
            autocompletion=data_files,
        ),
    ] = "wine",
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="The label column; the last unless given.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="A column not to learn from (may be repeated).")
    ] = None,
    use: Use = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help=f"Only this one (may be repeated): {'; '.join(METHODS)}.",
            autocompletion=one_of(METHODS),
        ),
    ] = None,
    splits: Annotated[
        int, typer.Option("--splits", "-s", min=1, help="Random splits, one third to test.")
    ] = 3,
    sample: Annotated[
        int, typer.Option("--sample", min=10, help="Use at most so many rows: the peers' grids take long.")
    ] = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample and the splits.")] = 0,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    missing: Missing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Compare the defaults with a tuned and calibrated SVC, logistic regression, a random forest and a baseline.

    Two thirds of the rows are for training, one third for testing, stratified. All classifiers are given
    the same standardised columns, and the time includes their tuning and calibration. Means over the splits, the best
    log-loss first. Balanced accuracy (mean recall) and AUC (ROC, each class against the rest) are shown where the
    largest class has three times the rows of the smallest; --json always has them.

    Examples: [bold]polymargin bench wine[/bold], [bold]polymargin bench my.csv --target species --splits 5[/bold]
    """
    with reported():
        for name in method or ():
            if name not in METHODS:
                raise ValueError(f"unknown method {name!r}; choose among {'; '.join(METHODS)}")
        dialect = dialect_of(delimiter, decimal, encoding, header, missing)
        examples = load_examples(
            data, target, drop=drop or (), use=use or (), sample=sample, seed=seed, dialect=dialect
        )
        for line in examples.notes:
            note(line)
        rows = _scores(examples, method or list(METHODS), splits, seed)
        ranking = _ranking(rows)
        if as_json:
            document = {
                "data": examples.name,
                "n_rows": len(examples.labels),
                "left_out": dict(examples.left_out),
                "notes": list(examples.notes),
                "splits": splits,
                "scores": ranking,
            }
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        else:
            results().print(_table(examples, splits, ranking))


def _scores(examples: Examples, methods: list[str], splits: int, seed: int) -> list[dict[str, Any]]:
    """Return the scores of every method on every split."""
    from sklearn.model_selection import StratifiedShuffleSplit

    from polymargin import metrics
    from polymargin.tables import preparation_of

    y = np.unique(examples.labels, return_inverse=True)[1]
    total = splits * len(methods)
    rows: list[dict[str, Any]] = []
    with show_steps(f"bench on {examples.name}") as advance:
        drawn = StratifiedShuffleSplit(splits, test_size=1 / 3, random_state=seed).split(y, y)
        for train, test in drawn:
            prepare = preparation_of(examples)
            X_train = prepare.fit_transform(examples.frame.iloc[train])
            X_test = prepare.transform(examples.frame.iloc[test])
            for method in methods:
                advance(len(rows), total)
                start = time.perf_counter()
                model = fit_method(method, X_train, y[train], seed)
                seconds = time.perf_counter() - start
                log_proba = log_proba_of(model, X_test)
                proba, predicted = np.exp(log_proba), log_proba.argmax(axis=1)
                rows.append(
                    {
                        "method": method,
                        "log_loss": metrics.log_loss(y[test], log_proba),
                        "accuracy": metrics.accuracy(y[test], predicted),
                        "balanced_accuracy": metrics.balanced_accuracy(y[test], predicted),
                        "auc": metrics.one_vs_rest_auc(y[test], proba),
                        "seconds": seconds,
                    }
                )
        advance(total, total)
    return rows


def _ranking(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over the splits, best log-loss first."""
    methods = dict.fromkeys(row["method"] for row in rows)
    means = [
        {
            "method": method,
            **{score: _mean(row[score] for row in rows if row["method"] == method) for score in _SCORES},
        }
        for method in methods
    ]
    return sorted(means, key=lambda row: row["log_loss"])


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean, None if a value is not known."""
    given = list(values)
    known = [value for value in given if value is not None]
    return mean(known) if len(known) == len(given) else None


def _table(examples: Examples, splits: int, ranking: list[dict[str, Any]]) -> Table:
    from polymargin import metrics

    n_rows, n_columns = examples.frame.shape
    title = (
        f"{examples.name}: {counted(n_rows, 'row')}, {counted(n_columns, 'column')}, "
        f"{len(set(examples.labels.tolist()))} classes"
    )
    table = Table(title=Text(f"{title}; means of {counted(splits, 'split')}"), title_justify="left")
    table.add_column("method")
    shown = [("log-loss", "log_loss", 1.0, 4), ("accuracy %", "accuracy", 100.0, 1)]
    if metrics.is_unbalanced(np.unique(examples.labels, return_inverse=True)[1]):
        shown += [("balanced accuracy %", "balanced_accuracy", 100.0, 1), ("AUC", "auc", 1.0, 3)]
    shown += [("seconds", "seconds", 1.0, 2)]
    for name, *_ in shown:
        table.add_column(name, justify="right")
    for row in ranking:
        cells = ("–" if row[s] is None else f"{factor * row[s]:.{digits}f}" for _, s, factor, digits in shown)
        table.add_row(row["method"], *cells, style="dim" if "baseline" in row["method"] else None)
    return table
