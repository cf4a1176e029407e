"""``polymargin compare``: machines × codings × decoders on a dataset, ranked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from polymargin import codebooks
from polymargin.cli._cache import cache_folder
from polymargin.cli._completion import data_files, one_of
from polymargin.cli._console import USAGE, check_outputs, errors, fail, note, reported, results
from polymargin.cli._data import files_read, load_examples, names_file
from polymargin.cli._models import DECODINGS, KERNELS
from polymargin.cli._progress import show_progress
from polymargin.cli._reading import Decimal, Delimiter, Encoding, Header, Missing, Use, dialect_of
from polymargin.cli._warnings import copies_in
from polymargin.reproduction import (
    FolderBusy,
    JournalDamaged,
    ReproductionError,
    RunInterrupted,
    RunReport,
    run_experiment,
)

if TYPE_CHECKING:  # importing them at run time would make every command slow to start
    from polymargin.comparison.repeated import RepeatedComparison
    from polymargin.comparison.standings import Standing
    from polymargin.datasets import Dataset
    from polymargin.tables import Dialect

__all__ = ["command"]

_INTERRUPTED = 130
#: With more rows than this, a job may use all threads; with fewer, threads do not make it faster.
_FEW_ROWS = 2500


def _machines(incomplete: str) -> list[str]:
    """Offer the machines."""
    from polymargin.comparison.repeated import MACHINES

    return one_of(MACHINES)(incomplete)


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A dataset by name (wine, vehicle, ...), or a CSV or Parquet file.",
            autocompletion=data_files,
        ),
    ],
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="The file's label column; the last unless given.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="A column not to learn from (may be repeated).")
    ] = None,
    use: Use = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=10, help="Use at most so many rows, drawn from every class.")
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            "-m",
            help="ls-svm (the default; tuned by leave-one-out), svm, posterior-svm (both by cross-validation) or "
            "auto (a pool of least-squares machines, which has its own codings). May be repeated.",
            autocompletion=_machines,
        ),
    ] = None,
    coding: Annotated[
        list[str] | None,
        typer.Option(
            "--coding",
            "-c",
            help="Only this coding (may be repeated).",
            autocompletion=one_of(codebooks.CODINGS),
        ),
    ] = None,
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            "--decoding",
            "-d",
            help="Only this decoding (may be repeated).",
            autocompletion=one_of(DECODINGS),
        ),
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            "-k",
            help=f"{', '.join(KERNELS)}; auto: the default of every machine. The machine auto has its own.",
            autocompletion=one_of(("auto", *KERNELS)),
        ),
    ] = "auto",
    repeats: Annotated[int, typer.Option("--repeats", "-r", min=1, help="Random stratified splits.")] = 10,
    test_size: Annotated[
        float, typer.Option("--test-size", min=0.01, max=0.99, help="Share of rows kept for testing.")
    ] = 1 / 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the splits.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Worker processes; -1 for one per core.")] = 1,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write a page with the pictures to this HTML file.")
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option("--journal", help="Folder for finished splits; in the system's cache unless given."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute everything anew, finished splits included.")
    ] = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    missing: Missing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Compare machines, output codings and decoders on repeated stratified splits.

    Numeric columns are standardised, missing values filled with the mean, nominal columns one-hot encoded, all
    learned from the training rows of each split. The machines choose C and the kernel width by themselves. Mean and
    standard deviation over the splits are printed, the best log-loss first; the calibration error is that of the
    largest probability, over the test rows of all splits.

    Runs may be killed at any moment: the same command goes on with the splits that are missing. More --repeats, or
    another --machine, only add to what is finished; changed data are a new comparison.

    Examples: [bold]polymargin compare wine --report wine.html[/bold],
    [bold]polymargin compare my.csv --target species -m ls-svm -m svm -m auto[/bold]
    """
    _check_choices(kernel, machine or [], jobs, report is not None)
    check_outputs([report], files_read(data))
    with reported():
        dialect = dialect_of(delimiter, decimal, encoding, header, missing)
        dataset, notes = _load(
            data, target, dialect, drop=drop or (), use=use or (), sample=sample, seed=seed
        )
    if dataset.n_classes < 2:
        fail(f"{dataset.name} has only one class, {dataset.classes.tolist()}; there is nothing to tell apart")
    with reported():
        copies = copies_in(dataset)
    for line in copies:
        note(line)
    notes += copies
    comparison = _comparison(dataset, machine, coding, decoding, kernel, repeats, test_size, seed)
    outcome = _run(comparison, journal or cache_folder() / "compare", jobs, fresh=fresh)

    from polymargin.comparison.standings import standings

    ranking = standings(comparison, outcome.rows)
    with reported():
        if not as_json:
            results().print(_table(comparison, ranking))
        page = None if report is None else _write_report(comparison, ranking, notes, report)
        if as_json:
            typer.echo(json.dumps(_document(comparison, ranking, notes, page), indent=2, ensure_ascii=False))
        elif page is not None:
            typer.echo(f"report: {page}")


def _check_choices(kernel: str, machines: list[str], jobs: int, with_report: bool) -> None:
    """Check the options before anything is computed."""
    from polymargin.comparison.repeated import MACHINES

    if kernel not in ("auto", *KERNELS):
        fail(f"unknown kernel {kernel!r}; choose one of auto, {', '.join(KERNELS)}", USAGE)
    for name in machines:
        if name not in MACHINES:
            fail(f"unknown machine {name!r}; choose among {', '.join(MACHINES)}", USAGE)
    if kernel != "auto" and set(machines) == {"auto"}:
        fail(
            f"--kernel {kernel} would change nothing: the machine auto is a pool with kernels of its own; leave it "
            "out, or choose another --machine",
            USAGE,
        )
    if jobs < 1 and jobs != -1:
        fail(f"--jobs must be -1 or a number of processes, not {jobs}", USAGE)
    if with_report:
        try:
            import polymargin.report  # noqa: F401
        except ImportError as error:
            fail(str(error))


def _load(data: str, target: str | None, dialect: Dialect, **options: Any) -> tuple[Dataset, list[str]]:
    """Return the rows with the columns that `fit` would use, and what is to be known of them."""
    from polymargin import datasets, tables

    plain = dialect == tables.Dialect() and not any(
        (target, *options["drop"], *options["use"], options["sample"])
    )
    if plain and not names_file(data):
        return datasets.load(data), []  # all of its columns, as it is
    examples = load_examples(data, target, dialect=dialect, **options)
    for line in examples.notes:
        note(line)
    return examples.as_arrays(), list(examples.notes)


def _comparison(
    dataset: Dataset,
    machines: list[str] | None,
    codings: list[str] | None,
    decodings: list[str] | None,
    kernel: str,
    repeats: int,
    test_size: float,
    seed: int,
) -> RepeatedComparison:
    from polymargin.comparison.repeated import CODINGS, DECODINGS, RepeatedComparison, decoder_for

    asked = list(dict.fromkeys(machines or ["ls-svm"]))
    try:
        comparison = RepeatedComparison(
            dataset,
            asked,
            list(dict.fromkeys(codings or CODINGS)),
            list(dict.fromkeys(decodings or DECODINGS)),
            kernel=kernel,
            repeats=repeats,
            test_size=test_size,
            seed=seed,
        )
        able = {method.machine for method in comparison.methods}
    except ValueError as error:
        fail(str(error), USAGE)
    for name in asked:
        if name not in able:
            if all(decoder_for(name, decoding).needs_variances for decoding in comparison.decodings):
                fail("support vector machines have no variances, which these decoders need", USAGE)
            fail(f"none of these decoders can read any of these codings ({name})", USAGE)
    if comparison.classes.size == 2 and len(comparison.codings) > 1:
        note(f"two classes have one dichotomy, so only {comparison.codings[0]} takes part of the codings")
    return comparison


def _run(comparison: RepeatedComparison, folder: Path, jobs: int, *, fresh: bool) -> RunReport:
    from joblib import cpu_count, effective_n_jobs

    name = re.sub(r"\W+", "-", comparison.dataset.name)[:40]
    folder = folder / f"{name}-{comparison.digest}"
    few = comparison.class_index.size <= _FEW_ROWS
    try:
        with show_progress(f"compare on {escape(comparison.dataset.name)}") as progress:
            outcome = run_experiment(
                comparison,
                folder,
                n_jobs=jobs,
                threads=1 if few else max(1, cpu_count() // effective_n_jobs(jobs)),
                restart=fresh,
                progress=progress,
            )
    except RunInterrupted as interrupt:
        fail(str(interrupt), _INTERRUPTED)
    except FolderBusy:
        fail("the same comparison is running already; wait for it, or choose another folder with --journal")
    except JournalDamaged:
        fail(f"the journal in {folder} cannot be read; --fresh begins anew and keeps the old one beside it")
    except ReproductionError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot keep finished splits in {folder}: {error.strerror or error}; choose another --journal")
    for warning in outcome.warnings:
        errors().print(f"warning: {warning}", markup=False)
    if outcome.failures:
        kind, _, said = outcome.failures[0].error.partition(": ")
        fail(f"{len(outcome.failures)} of {outcome.total} trainings failed: {said or kind}")
    if outcome.resumed:
        note(
            f"{outcome.resumed} of {outcome.total} trainings were finished earlier (--fresh computes them anew)"
        )
    return outcome


def _write_report(
    comparison: RepeatedComparison, ranking: list[Standing], notes: list[str], path: Path
) -> Path:
    from polymargin.report import compare_summary, write_page

    try:
        return write_page(compare_summary(comparison, ranking, notes=notes), path)
    except OSError as error:
        fail(f"cannot write the report {path}: {error.strerror or error}")


def _document(
    comparison: RepeatedComparison, ranking: list[Standing], notes: list[str], page: Path | None
) -> dict[str, Any]:
    dataset = comparison.dataset
    rows, features = dataset.X.shape
    return {
        "data": dataset.name,
        "rows": rows,
        "unlabelled": dataset.unlabelled,
        "features": features,
        "classes": [str(label) for label in comparison.classes.tolist()],
        "machines": comparison.machines,
        "kernel": comparison.kernel,
        "repeats": comparison.repeats,
        "test_size": comparison.test_size,
        "seed": comparison.seed,
        "notes": notes,
        "scores": [standing.as_json() for standing in ranking],
        **({} if page is None else {"report": str(page)}),
    }


def _table(comparison: RepeatedComparison, ranking: list[Standing]) -> Table:
    dataset = comparison.dataset
    rows, features = dataset.X.shape
    table = Table(
        title=f"{escape(dataset.name)}: {rows} rows, {features} features, {dataset.n_classes} classes; "
        f"{_kernels(comparison)}, {comparison.repeats} splits",
        caption="mean (standard deviation) on test rows; a dash where a decoder gives no probabilities",
    )
    for name in ("machine", "coding", "decoding"):
        table.add_column(name)
    for name in ("accuracy %", "log-loss", "Brier", "calibration"):
        table.add_column(name, justify="right")
    for standing in ranking:
        row = standing.as_json()
        table.add_row(
            *standing.method,
            _cell(row["accuracy"], 100.0, 1),
            _cell(row["log_loss"], 1.0, 3),
            _cell(row["brier"], 1.0, 3),
            "–" if standing.calibration_error is None else f"{standing.calibration_error:.3f}",
        )
    return table


def _kernels(comparison: RepeatedComparison) -> str:
    if comparison.kernel == "auto":
        return "kernels chosen by the machines"
    return f"{comparison.kernel} kernel" + (", auto with its own" if "auto" in comparison.machines else "")


def _cell(value: dict[str, float] | None, factor: float, digits: int) -> str:
    if value is None:
        return "–"
    return f"{factor * value['mean']:.{digits}f} ({factor * value['sd']:.{digits}f})"
