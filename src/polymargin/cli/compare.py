"""``polymargin compare``: classifiers, and codings × decoders, on a dataset, ranked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from polymargin import codebooks
from polymargin.cli._cache import cache_folder
from polymargin.cli._completion import data_files, one_of
from polymargin.cli._console import (
    INTERRUPTED,
    USAGE,
    check_outputs,
    counted,
    errors,
    fail,
    note,
    reported,
    results,
)
from polymargin.cli._data import files_read, load_examples, names_file
from polymargin.cli._models import ADAPTIVE, DECODINGS, KERNELS
from polymargin.cli._progress import show_progress
from polymargin.cli._reading import (
    Decimal,
    Delimiter,
    Encoding,
    Header,
    Missing,
    Use,
    dialect_of,
    from_stdin,
)
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

_DEFAULT_MACHINES = ("auto", "ls-svm", "svc", "random-forest", "baseline")
_WITH_KERNEL = {"ls-svm", "svm", "posterior-svm"}
_WITH_CODINGS = {"ls-svm", "svm"}
_CODINGS = tuple(codebooks.CODINGS)
#: The decoders that are left out unless named.
_NOT_BY_DEFAULT = ("argmax", "mixture", "plain-softmax", "votes", "dag")
#: Machines that are tuned in folds by scikit-learn, and the rows of every class that this needs.
_TUNED_IN_FOLDS, _LEAST_TO_TUNE = ("svc", "logistic"), 2
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
            help="A dataset by name (wine, vehicle, ...), a CSV or Parquet file, or - for stdin.",
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
    machine: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            "-m",
            help="auto (AutoKernelClassifier), ls-svm (LSSVMClassifier with four codings and six decodings), svm, "
            "posterior-svm; for comparison svc (scikit-learn's SVC, tuned and calibrated), logistic, random-forest, "
            "baseline (the class frequencies). May be repeated. Unless given: auto, ls-svm, svc, random-forest and "
            "baseline, or ls-svm if a coding, decoding or kernel is named.",
            autocompletion=_machines,
        ),
    ] = None,
    coding: Annotated[
        list[str] | None,
        typer.Option(
            "--coding",
            "-c",
            help=f"Only this coding: {', '.join(_CODINGS)}. May be repeated. Unless given: all, from 65 classes on "
            "without one-vs-one.",
            autocompletion=one_of(_CODINGS),
        ),
    ] = None,
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            "--decoding",
            "-d",
            help=f"Only this decoding: {', '.join(DECODINGS)}. May be repeated. Unless given: all but "
            f"{', '.join(_NOT_BY_DEFAULT)}.",
            autocompletion=one_of(DECODINGS),
        ),
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            "-k",
            help=f"{', '.join(KERNELS)}; auto: the default of every machine. For ls-svm, svm, posterior-svm.",
            autocompletion=one_of(("auto", *KERNELS)),
        ),
    ] = "auto",
    repeats: Annotated[int, typer.Option("--repeats", "-r", min=1, help="Random stratified splits.")] = 10,
    test_size: Annotated[
        float, typer.Option("--test-size", min=0.01, max=0.99, help="Share of rows kept for testing.")
    ] = 1 / 3,
    sample: Annotated[
        int, typer.Option("--sample", min=10, help="Use at most so many rows, drawn from every class.")
    ] = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample, the splits and the models.")] = 0,
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
    """Compare classifiers, output codings and decoders on repeated stratified splits.

    AutoKernelClassifier, LSSVMClassifier with four codings and six decoders (see --coding and --decoding), a tuned and
    calibrated SVC, a random forest and the class frequencies are ranked by the log-loss of their probabilities on test
    rows. Numeric columns are standardised, missing values filled with the mean, nominal columns one-hot encoded, all
    learned from the training rows of each split. Every model tunes itself on them. Mean and standard deviation over the
    splits are printed; the calibration error is that of the largest probability, over the test rows of all splits.
    Balanced accuracy (mean recall) and AUC (ROC, each class against the rest) are shown where the largest class has
    three times the rows of the smallest; --json and the report always have them.

    Runs may be killed at any moment: the same command goes on with the splits that are missing. More --repeats, or
    another --machine, only add to what is finished; changed data are a new comparison.

    Examples: [bold]polymargin compare wine --report wine.html[/bold],
    [bold]polymargin compare my.csv -t species -m auto -m svm -m svc --drop id --sample 1000[/bold]
    """
    machine = machine or (["ls-svm"] if coding or decoding or kernel != "auto" else list(_DEFAULT_MACHINES))
    _check_choices(kernel, machine, jobs, report is not None)
    _check_names(coding or (), decoding or ())
    with reported(), from_stdin(data) as data:
        check_outputs([report], files_read(data))
        dialect = dialect_of(delimiter, decimal, encoding, header, missing)
        dataset, notes = _load(data, target, dialect, drop or (), use or ())
    if dataset.n_classes < 2:
        fail(f"{dataset.name} has only one class, {dataset.classes.tolist()}; there is nothing to tell apart")
    dataset, said = _sampled(dataset, sample, seed)
    notes += said
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
            for table in _tables(comparison, ranking):
                results().print(table)
        page = None if report is None else _write_report(comparison, ranking, notes, report)
        if as_json:
            typer.echo(json.dumps(_document(comparison, ranking, notes, page), indent=2, ensure_ascii=False))
        elif page is not None:
            typer.echo(f"report: {page}")


def _check_choices(kernel: str, machines: list[str], jobs: int, with_report: bool) -> None:
    """Check the options before anything is computed."""
    from polymargin.comparison.repeated import MACHINES, OWN

    if kernel not in ("auto", *KERNELS):
        fail(f"unknown kernel {kernel!r}; choose one of auto, {', '.join(KERNELS)}", USAGE)
    for name in machines:
        if name not in MACHINES:
            fail(f"unknown machine {name!r}; choose among {', '.join(MACHINES)}", USAGE)
    if not set(machines) & set(OWN):
        fail(
            f"name at least one of {', '.join(OWN)} (--machine): the report and the pictures are those of a model of "
            "this package",
            USAGE,
        )
    if kernel != "auto" and not set(machines) & _WITH_KERNEL:
        fail(
            f"--kernel {kernel} would change nothing: {' and '.join(machines)} have kernels of their own, or none; "
            "leave it out, or add --machine ls-svm",
            USAGE,
        )
    if jobs < 1 and jobs != -1:
        fail(f"--jobs must be -1 or a number of processes, not {jobs}", USAGE)
    if with_report:
        try:
            import polymargin.report  # noqa: F401
        except ImportError as error:
            fail(str(error))


def _check_names(codings: Sequence[str], decodings: Sequence[str]) -> None:
    """Check the names of codings and decodings."""
    for name in codings:
        if name == ADAPTIVE:
            fail(f"compare has no adaptive coding; choose among {', '.join(_CODINGS)}", USAGE)
        if name not in _CODINGS:
            fail(f"unknown coding {name!r}; choose among {', '.join(_CODINGS)}", USAGE)
    for name in decodings:
        if name not in DECODINGS:
            fail(f"unknown decoding {name!r}; choose among {', '.join(DECODINGS)}", USAGE)


def _load(
    data: str, target: str | None, dialect: Dialect, drop: Sequence[str], use: Sequence[str]
) -> tuple[Dataset, list[str]]:
    """Return the rows with the columns that `fit` would use, and what is to be known of them."""
    from polymargin import datasets, tables

    if not names_file(data) and target is None and not use and dialect == tables.Dialect():
        return _without(datasets.load(data), drop), []
    examples = load_examples(data, target, dialect=dialect, drop=drop, use=use)
    for line in examples.notes:
        note(line)
    return examples.as_arrays(), list(examples.notes)


def _without(dataset: Dataset, drop: Sequence[str]) -> Dataset:
    """Return the dataset without some columns."""
    unknown = [name for name in drop if name not in dataset.feature_names]
    if unknown:
        raise ValueError(
            f"there is no column {unknown[0]!r} to drop; there are {', '.join(dataset.feature_names)}"
        )
    kept = [name for name in dataset.feature_names if name not in drop]
    if not kept:
        raise ValueError("--drop leaves no column to learn from")
    return dataset.select(kept) if drop else dataset


def _sampled(dataset: Dataset, sample: int, seed: int) -> tuple[Dataset, list[str]]:
    """Return a stratified sample of the rows if there are more, and a note that says so."""
    if len(dataset.y) <= sample:
        return dataset, []
    from polymargin import tables

    place = {"place": np.arange(len(dataset.y))}
    extras = {"row": np.arange(1, len(dataset.y) + 1), **dataset.extras}
    with reported():
        drawn = tables.sampled(tables.examples_of(replace(dataset, extras=extras | place)), sample, seed)
    said = f"a sample of {len(drawn.y)} of the {len(dataset.y)} rows (--sample {len(dataset.y)} takes all)"
    note(said)
    return replace(dataset, extras=extras).take(drawn.extras["place"]), [said]


def _comparison(
    dataset: Dataset,
    machines: list[str],
    codings: list[str] | None,
    decodings: list[str] | None,
    kernel: str,
    repeats: int,
    test_size: float,
    seed: int,
) -> RepeatedComparison:
    from polymargin.comparison.repeated import (
        CODINGS,
        DECODINGS,
        RepeatedComparison,
        affordable_codings,
        decoder_for,
    )

    asked = _trainable(list(dict.fromkeys(machines)), dataset, test_size)
    affordable = affordable_codings(dataset.n_classes)
    if not codings and len(affordable) < len(CODINGS) and set(asked) & _WITH_CODINGS:
        others = " ".join(f"-c {name}" for name in CODINGS)
        note(
            f"{dataset.n_classes} classes would need {dataset.n_classes * (dataset.n_classes - 1) // 2} machines with "
            "one-vs-one coding, which is left out; it may take minutes on every split: -c one-vs-one compares this "
            f"coding alone, {others} all of them"
        )
    try:
        comparison = RepeatedComparison(
            dataset,
            asked,
            list(dict.fromkeys(codings or affordable)),
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


def _trainable(machines: list[str], dataset: Dataset, test_size: float) -> list[str]:
    """Return the machines without those whose own cross-validation needs two training rows of every class."""
    least = int(np.unique(dataset.y, return_counts=True)[1].min())
    # A split by classes gives the smallest class this many rows to train on, or one more.
    if int(least * (1.0 - test_size)) >= _LEAST_TO_TUNE:
        return machines
    left_out = [name for name in machines if name in _TUNED_IN_FOLDS]
    if left_out:
        note(
            f"{' and '.join(left_out)} left out: the smallest class has {least} rows, too few to tune and to calibrate "
            "with on every split"
        )
    return [name for name in machines if name not in _TUNED_IN_FOLDS]


def _run(comparison: RepeatedComparison, folder: Path, jobs: int, *, fresh: bool) -> RunReport:
    from joblib import cpu_count, effective_n_jobs

    name = re.sub(r"\W+", "-", comparison.dataset.name)[:40]
    folder = folder / f"{name}-{comparison.digest}"
    few = comparison.class_index.size <= _FEW_ROWS
    try:
        title = f"compare on {escape(comparison.dataset.name)}"
        # Jobs differ by machine: the time left is known once every machine has had a turn.
        with show_progress(title, least_jobs=len(comparison.machines)) as progress:
            outcome = run_experiment(
                comparison,
                folder,
                n_jobs=jobs,
                threads=1 if few else max(1, cpu_count() // effective_n_jobs(jobs)),
                restart=fresh,
                progress=progress,
            )
    except RunInterrupted as interrupt:
        fail(str(interrupt), INTERRUPTED)
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


def _tables(comparison: RepeatedComparison, ranking: list[Standing]) -> Iterator[Table]:
    """Yield the ranking of the classifiers, if several were compared, and that of codings and decoders."""
    from polymargin.comparison.standings import classifiers

    dataset = comparison.dataset
    rows, features = dataset.X.shape
    title = (
        f"{escape(dataset.name)}: {counted(rows, 'row')}, {counted(features, 'feature')}, {dataset.n_classes} classes; "
        f"{_kernels(comparison)}, {counted(comparison.repeats, 'split')}"
    )
    first = classifiers(ranking)
    coded = [standing for standing in ranking if standing.method.is_coded]
    spread = "mean (standard deviation)" if comparison.repeats > 1 else "scores"
    caption = f"{spread} on test rows, best log-loss first"
    if first:
        yield _table(comparison, first, title, caption, coded=False)
        title = "Codings × decoders"
    if len(coded) > sum(standing.method.is_coded for standing in first):
        caption += "; a dash where a decoder gives labels only"
        yield _table(comparison, coded, title, caption, coded=True)


def _table(
    comparison: RepeatedComparison, ranking: list[Standing], title: str, caption: str, *, coded: bool
) -> Table:
    from polymargin.metrics import is_unbalanced

    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    names = ("model", "coding", "decoding") if coded else ("model",)
    for name in names:
        table.add_column(name)
    shown = [("log-loss", "log_loss", 1.0, 3), ("accuracy %", "accuracy", 100.0, 1)]
    if is_unbalanced(comparison.class_index):
        shown += [("balanced accuracy %", "balanced_accuracy", 100.0, 1), ("AUC", "auc", 1.0, 3)]
    shown += [("Brier", "brier", 1.0, 3)]
    for heading in (*(heading for heading, *_ in shown), "calibration error"):
        table.add_column(heading, justify="right")
    for standing in ranking:
        row = standing.as_json()
        table.add_row(
            *(row[name] for name in names),
            *(_cell(row[score], factor, digits, comparison.repeats) for _, score, factor, digits in shown),
            "–" if standing.calibration_error is None else f"{standing.calibration_error:.3f}",
            style="dim" if row["machine"] == "baseline" else None,
        )
    return table


def _kernels(comparison: RepeatedComparison) -> str:
    if comparison.kernel == "auto":
        return "kernels chosen by the models"
    return f"{comparison.kernel} kernel" + (", auto with its own" if "auto" in comparison.machines else "")


def _cell(value: dict[str, float] | None, factor: float, digits: int, splits: int) -> str:
    if value is None:
        return "–"
    mean = f"{factor * value['mean']:.{digits}f}"
    return f"{mean} ({factor * value['sd']:.{digits}f})" if splits > 1 else mean
