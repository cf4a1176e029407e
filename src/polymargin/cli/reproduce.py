"""``polymargin reproduce``: a paper's tables computed again, ours beside theirs, and its figures drawn again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from polymargin.cli._comparison_table import print_comparison
from polymargin.cli._console import INTERRUPTED, USAGE, errors, fail, results
from polymargin.cli._progress import show_progress
from polymargin.papers import PAPERS, available, fast_tables, tables
from polymargin.reproduction import (
    Comparison,
    Experiment,
    Key,
    Listing,
    ReproductionError,
    RunInterrupted,
    RunProgress,
    RunReport,
    compare_with_paper,
    load_results,
    run_experiment,
)

__all__ = ["command"]


def command(
    paper: Annotated[str | None, typer.Argument(help="The paper, by author and year; see --list.")] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="Only this table (may be repeated).")
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", help="Draw this figure (may be repeated); needs matplotlib."),
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", help="Only this dataset (may be repeated).")
    ] = None,
    results_dir: Annotated[
        Path | None,
        typer.Option("--results", help="Results folder; ./polymargin-results/PAPER unless given."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Worker processes; -1 for one per core.")] = -1,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="A coarser grid, where the paper here has one; the output says which."),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Compute everything anew; the old journal is kept.")
    ] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Compute nothing: compare what is finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    list_tables: Annotated[
        bool, typer.Option("--list", help="List papers, tables and figures, and leave.")
    ] = False,
) -> None:
    """Compute a paper's tables again and print them beside the paper's, cell by cell; draw its figures again.

    Runs may be killed at any moment: the same command resumes where they stopped.

    Example: [bold]polymargin reproduce vangestel2002 --table 2 --dataset win --dataset iri[/bold]
    """
    if list_tables:
        _list(paper)
        return
    if jobs < 1 and jobs != -1:
        fail(f"--jobs must be -1 or a number of processes, not {jobs}", USAGE)
    if paper is None:
        fail(f"say which paper: {', '.join(available())}", USAGE)
    experiments = _experiments(paper, table, fast=fast)
    folder = results_dir or Path("polymargin-results") / paper
    if figure:
        _draw(paper, figure, folder)
        if not table:
            return
    chosen = _chooser(experiments, dataset)
    documents, failed = [], False
    for experiment in experiments.values():
        report = _run(experiment, folder, chosen, jobs, restart=restart, no_run=no_run)
        comparison = _compare(experiment, report, dataset)
        listings = experiment.listings(report.rows)
        if as_json:
            documents.append(_document(experiment, report, comparison, listings))
        else:
            _print(experiment, comparison, listings)
        failed |= _report_failures(report)
    if as_json:
        typer.echo(json.dumps({"paper": paper, "tables": documents}, indent=2, ensure_ascii=False))
    if failed:
        raise typer.Exit(1)


def _list(paper: str | None) -> None:
    try:
        for name in available() if paper is None else [paper]:
            found = tables(name)
            known = PAPERS[name]
            typer.echo(f"{name}: {', '.join(known.authors)}: {known.title}")
            for number, make in found.items():
                typer.echo(f"  --table {number}  {make().title}")
            for number, draw in _figures(name).items():
                typer.echo(f"  --figure {number}  {(draw.__doc__ or '').partition(chr(10))[0]}")
    except ReproductionError as error:
        fail(str(error), USAGE)


def _experiments(paper: str, wanted: list[str] | None, *, fast: bool) -> dict[str, Experiment]:
    try:
        found = tables(paper)
    except ReproductionError as error:
        fail(str(error), USAGE)
    for number in wanted or ():
        if number not in found:
            fail(f"{paper} has no table {number!r} here; available: {', '.join(found)}", USAGE)
    if fast:
        found = fast_tables(paper)
        if not found:
            fail(f"{paper} has no fast protocol: leave --fast out", USAGE)
        for number in wanted or ():
            if number not in found:
                fail(f"table {number} of {paper} has no fast protocol, only {', '.join(found)} have", USAGE)
    return {number: found[number]() for number in wanted or found}


def _figures(paper: str) -> Mapping[str, Callable[[Path], Path]]:
    """Return a paper's figures by number; most have none here."""
    return getattr(import_module(f"polymargin.papers.{paper}"), "FIGURES", {})


def _draw(paper: str, wanted: list[str], folder: Path) -> None:
    """Draw figures into the results folder, and print where they are."""
    known = _figures(paper)
    for number in wanted:
        if number not in known:
            fail(f"{paper} has no figure {number!r} here; available: {', '.join(known) or 'none'}", USAGE)
    for number in wanted:
        try:
            typer.echo(known[number](folder / f"{paper}-figure{number}.png"))
        except ReproductionError as error:
            fail(str(error))
        except OSError as error:
            if error.strerror is None:  # not an error of the system: there are no data
                fail(str(error))
            fail(f"cannot write to the results folder {folder}: {error.strerror}")


def _chooser(experiments: dict[str, Experiment], datasets: list[str] | None) -> Callable[[Key], bool] | None:
    """Return the jobs to run, after a check that the datasets exist."""
    if not datasets:
        return None
    known = dict.fromkeys(job["dataset"] for experiment in experiments.values() for job in experiment.jobs())
    for dataset in datasets:
        if dataset not in known:
            fail(f"no dataset {dataset!r} in these tables; available: {', '.join(known)}", USAGE)
    return lambda job: job["dataset"] in datasets


def _run(
    experiment: Experiment,
    folder: Path,
    chosen: Callable[[Key], bool] | None,
    jobs: int,
    *,
    restart: bool,
    no_run: bool,
) -> RunReport:
    try:
        if no_run:
            return load_results(experiment, folder, only=chosen)
        with _Stages() as progress:
            report = run_experiment(
                experiment, folder, n_jobs=jobs, only=chosen, restart=restart, progress=progress
            )
    except RunInterrupted as interrupt:
        fail(str(interrupt), INTERRUPTED)
    except ReproductionError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot use the results folder {folder}: {error.strerror or error}")
    for warning in report.warnings:
        errors().print(f"warning: {warning}", markup=False)
    return report


class _Stages:
    """Progress of an experiment and of those that it requires, each under its own name."""

    def __enter__(self) -> Callable[[RunProgress], None]:
        self._open = ExitStack()
        self._name = ""
        return self._tell

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def _tell(self, now: RunProgress) -> None:
        if now.experiment != self._name:
            self._open.close()
            self._name = now.experiment
            self._show = self._open.enter_context(show_progress(self._name))
        self._show(now)


def _compare(experiment: Experiment, report: RunReport, datasets: list[str] | None) -> Comparison:
    figures = [
        figure
        for figure in experiment.paper_figures()
        if not datasets or ("dataset" in figure.key and figure.key["dataset"] in datasets)
    ]
    layout = experiment.layout
    return compare_with_paper(
        report.rows,
        figures,
        replicates=experiment.replicates,
        better=experiment.direction,
        fields=(*layout.panels, *layout.rows, *layout.columns),
    )


def _print(experiment: Experiment, comparison: Comparison, listings: Sequence[Listing]) -> None:
    """Print the comparison where there is one, and the listings below it."""
    if experiment.compared:
        print_comparison(results(), experiment.title, comparison, experiment.layout)
    else:
        results().print(Text(experiment.title, style="bold"))
    for listing in listings:
        table = Table(title=listing.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
                      padding=(0, 1, 0, 0))  # fmt: skip
        for column in listing.columns:
            table.add_column(column)
        for row in listing.rows:
            table.add_row(*map(Text, row))
        results().print(table)


def _document(
    experiment: Experiment, report: RunReport, comparison: Comparison, listings: Sequence[Listing]
) -> dict[str, Any]:
    return {
        "name": experiment.name,
        "title": experiment.title,
        "jobs": {"done": report.done, "total": report.total, "failed": len(report.failures)},
        "results": str(report.csv_path),
        "failures": [{"job": f.job.asdict(), "error": f.error} for f in report.failures],
        **comparison.as_json(),
        **({"listings": [listing.as_json() for listing in listings]} if listings else {}),
    }


def _report_failures(report: RunReport) -> bool:
    """Say on stderr what failed, equal errors together; return whether anything did."""
    by_error: dict[str, list[Key]] = {}
    for failure in report.failures:
        by_error.setdefault(failure.error, []).append(failure.job)
    for error, failed in by_error.items():
        jobs = ", ".join(map(str, failed[:3])) + (", ..." if len(failed) > 3 else "")
        typer.echo(f"polymargin: {len(failed)} jobs failed ({jobs}): {error}", err=True)
    if by_error:
        typer.echo(f"polymargin: full tracebacks are in {report.journal_path}", err=True)
    return bool(by_error)
