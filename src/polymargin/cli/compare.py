"""``polymargin compare``: codings × decoders on a dataset, ranked."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from polymargin.cli._console import errors, fail, results

__all__ = ["command"]

_USAGE = 2
_CODINGS = ["one-vs-one", "one-vs-all", "minimal", "ecoc"]
_DECODINGS = ["coupled-softmax", "softmax", "coupling", "bayes", "hamming", "loss"]
_DECODINGS_WITHOUT_VARIANCES = [name for name in _DECODINGS if name != "bayes"]
_KERNELS = ("rbf", "laplacian", "poly", "linear")
_MACHINES = ("ls-svm", "svm")


def command(
    data: Annotated[str, typer.Argument(help="A dataset by name (wine, vehicle, ...) or a CSV file.")],
    target: Annotated[
        str | None, typer.Option("--target", help="The CSV's label column; the last unless given.")
    ] = None,
    coding: Annotated[
        list[str] | None, typer.Option("--coding", "-c", help="Only this coding (may be repeated).")
    ] = None,
    decoding: Annotated[
        list[str] | None, typer.Option("--decoding", "-d", help="Only this decoding (may be repeated).")
    ] = None,
    kernel: Annotated[str, typer.Option("--kernel", "-k", help="rbf, laplacian, poly or linear.")] = "rbf",
    machine: Annotated[
        str,
        typer.Option("--machine", "-m", help="ls-svm (tuned by leave-one-out) or svm (by cross-validation)."),
    ] = "ls-svm",
    repeats: Annotated[int, typer.Option("--repeats", "-r", min=1, help="Random stratified splits.")] = 10,
    test_size: Annotated[
        float, typer.Option("--test-size", min=0.01, max=0.99, help="Share of rows kept for testing.")
    ] = 1 / 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the splits.")] = 0,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write the table to this HTML file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Compare output codings and decoders on repeated stratified splits.

    Numeric columns are standardised, missing values filled with the mean, nominal columns one-hot encoded, all
    learned from the training rows of each split. The machines choose C and the kernel width by themselves:
    least-squares SVMs by leave-one-out errors, SVMs by cross-validation. Mean and standard deviation over the splits
    are printed, the best log-loss first.

    Example: [bold]polymargin compare wine[/bold], [bold]polymargin compare my.csv --target species[/bold]
    """
    if kernel not in _KERNELS:
        fail(f"unknown kernel {kernel!r}; choose one of {', '.join(_KERNELS)}", _USAGE)
    if machine not in _MACHINES:
        fail(f"unknown machine {machine!r}; choose one of {', '.join(_MACHINES)}", _USAGE)
    decodings = decoding or (_DECODINGS if machine == "ls-svm" else _DECODINGS_WITHOUT_VARIANCES)
    dataset = _load(data, target)
    if dataset.n_classes < 2:
        fail(f"{dataset.name} has only one class, {dataset.classes.tolist()}; there is nothing to tell apart")
    try:
        rows = _scores(dataset, coding or _CODINGS, decodings, machine, kernel, repeats, test_size, seed)
    except (ValueError, MemoryError) as error:
        fail(str(error))
    if not rows:
        fail("none of these decoders can read any of these codings", _USAGE)
    summary = _summarise(rows)
    if as_json:
        document = {
            "data": dataset.name,
            "machine": machine,
            "kernel": kernel,
            "repeats": repeats,
            "scores": summary,
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    table = _table(dataset, machine, kernel, repeats, summary)
    if not as_json:
        results().print(table)
    if report is not None:
        recorder = Console(record=True, width=100, file=StringIO())
        recorder.print(table)
        try:
            report.write_text(recorder.export_html(), encoding="utf-8")
        except OSError as error:
            fail(f"cannot write the report {report}: {error.strerror or error}")
        errors().print(f"report: {report.resolve()}", markup=False)


def _load(data: str, target: str | None) -> Any:
    from polymargin import datasets

    if Path(data).suffix in (".csv", ".gz") or Path(data).is_file():
        try:
            return datasets.read_csv(data, target)
        except FileNotFoundError:
            fail(f"no file {data}", _USAGE)
        except (OSError, ValueError) as error:
            fail(str(error), _USAGE)
    if target is not None:
        fail("--target names a column of a CSV file; datasets by name have their own", _USAGE)
    try:
        return datasets.load(data)
    except (ValueError, FileNotFoundError) as error:
        fail(str(error), _USAGE)


def _scores(
    dataset: Any,
    codings: Sequence[str],
    decodings: Sequence[str],
    machine: str,
    kernel: str,
    repeats: int,
    test_size: float,
    seed: int,
) -> list[Any]:
    from sklearn.model_selection import StratifiedShuffleSplit

    from polymargin import datasets
    from polymargin.comparison import Hinge, compare_codings, least_squares
    from polymargin.decoders import Loss

    splits = StratifiedShuffleSplit(repeats, test_size=test_size, random_state=seed)
    console = errors()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    own_loss = Loss("squared" if machine == "ls-svm" else "hinge")
    scores = []
    with bar:
        task = bar.add_task(f"compare on {escape(dataset.name)}", total=repeats)
        for number, (train, test) in enumerate(splits.split(dataset.X, dataset.y)):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
                encoder = datasets.preprocessor(dataset).fit(dataset.X[train])
                X_train, X_test = encoder.transform(dataset.X[train]), encoder.transform(dataset.X[test])
            scores += compare_codings(
                X_train,
                dataset.y[train],
                X_test,
                dataset.y[test],
                codings=codings,
                decodings={decoding: own_loss if decoding == "loss" else decoding for decoding in decodings},
                kernel=kernel,
                machines=partial(least_squares, selection="loo")
                if machine == "ls-svm"
                else Hinge(random_state=seed + number),
                random_state=seed + number,
            )
            bar.update(task, advance=1)
    return scores


def _summarise(scores: list[Any]) -> list[dict[str, Any]]:
    """Return mean and standard deviation of every pair, best log-loss first, then by accuracy."""
    pairs: dict[tuple[str, str], list[Any]] = {}
    for score in scores:
        pairs.setdefault((score.coding, score.decoding), []).append(score)
    summary = [
        {
            "coding": coding,
            "decoding": decoding,
            "accuracy": _mean_sd([score.accuracy for score in group]),
            "log_loss": _mean_sd([score.log_loss for score in group]),
            "brier": _mean_sd([score.brier for score in group]),
        }
        for (coding, decoding), group in pairs.items()
    ]
    return sorted(
        summary,
        key=lambda row: (
            row["log_loss"]["mean"] if row["log_loss"] else math.inf,
            -row["accuracy"]["mean"],
        ),
    )


def _mean_sd(values: list[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    spread = sum((value - mean) ** 2 for value in known) / (len(known) - 1) if len(known) > 1 else 0.0
    return {"mean": mean, "sd": math.sqrt(spread)}


def _table(dataset: Any, machine: str, kernel: str, repeats: int, summary: list[dict[str, Any]]) -> Table:
    rows, features = dataset.X.shape
    table = Table(
        title=f"{escape(dataset.name)}: {rows} rows, {features} features, {dataset.n_classes} classes; "
        f"{machine}, {kernel} kernel, {repeats} splits",
        caption="mean (standard deviation) on test rows; a dash where a decoder gives no probabilities",
    )
    table.add_column("coding")
    table.add_column("decoding")
    for name in ("accuracy %", "log-loss", "Brier"):
        table.add_column(name, justify="right")
    for row in summary:
        table.add_row(
            row["coding"],
            row["decoding"],
            _cell(row["accuracy"], 100.0, 1),
            _cell(row["log_loss"], 1.0, 3),
            _cell(row["brier"], 1.0, 3),
        )
    return table


def _cell(value: dict[str, float] | None, factor: float, digits: int) -> str:
    if value is None:
        return "–"
    return f"{factor * value['mean']:.{digits}f} ({factor * value['sd']:.{digits}f})"
