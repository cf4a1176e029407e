"""``polymargin fit``: a table in, a model out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from polymargin.cli._completion import data_files, one_of
from polymargin.cli._console import USAGE, check_outputs, counted, errors, fail, note, reported, results
from polymargin.cli._data import files_read, load_examples, name_of, names_file, scan_file
from polymargin.cli._fitted import document_of, honest_of, relevance_of, save_model, write_report
from polymargin.cli._models import (
    CODINGS,
    DECODINGS,
    KERNELS,
    METRICS,
    MODELS,
    make_classifier,
    note_on_many_classes,
)
from polymargin.cli._progress import duration, logged, show_time
from polymargin.cli._reading import (
    STDIN,
    Decimal,
    Delimiter,
    Encoding,
    Header,
    Missing,
    Use,
    dialect_of,
    from_stdin,
)
from polymargin.cli._scores import quality_lines, warning_lines
from polymargin.cli._streaming import STREAMING, Task, begun, fit_stream, is_large, parse_memory
from polymargin.cli._warnings import noted

if TYPE_CHECKING:  # importing pandas for good would make every command slow to start
    from polymargin.tables import Examples

__all__ = ["command"]

#: What the library advises where memory does not suffice for a search, and what commands have instead.
_IN_PYTHON = "give C and gamma, or select them on fewer rows"
_IN_SHELL = "learn from a sample (--sample 10000), or choose --model auto, which takes any number of rows"
#: Models that hold all pairs of rows in memory: how much of it, how their time grows, and the number of rows from which
#: on that is long enough to say so. The posterior SVM is fitted by default with its C and gamma in five folds.
_BYTES_PER_PAIR_OF_ROWS = {"kernel-logistic": 48.0, "posterior-svm": 8.0}
_GROWTH = {"kernel-logistic": "cube", "posterior-svm": "square or more"}
_MANY_ROWS = {"kernel-logistic": 10_000, "posterior-svm": 5_000}
#: How many of the columns that matter most are named.
_NAMED_COLUMNS = 5
#: How many of the columns that are left out are named.
_NAMED_LEFT_OUT = 20
#: The number of rows from which on a fit takes long enough to say at its beginning what is fitted.
_LONG_FIT = 5_000


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A CSV file (.gz too) or Parquet file, a folder of them, a dataset by name (wine, vehicle, ...), or - "
            "for stdin.",
            autocompletion=data_files,
        ),
    ],
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="The label column; the last unless given.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The model file; named after the data unless given."),
    ] = None,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help=f"{', '.join(MODELS)}.", autocompletion=one_of(MODELS)),
    ] = "auto",
    coding: Annotated[
        str | None,
        typer.Option("--coding", "-c", help=f"{', '.join(CODINGS)}.", autocompletion=one_of(CODINGS)),
    ] = None,
    decoding: Annotated[
        str | None,
        typer.Option("--decoding", "-d", help=f"{', '.join(DECODINGS)}.", autocompletion=one_of(DECODINGS)),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", "-k", help=f"{', '.join(KERNELS)}.", autocompletion=one_of(KERNELS)),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="learned: scale the columns by how much they matter, if held-out rows are predicted better, as auto "
            "does unless told otherwise; none: do not, which takes a third of the time (--model auto, ls-svm).",
            autocompletion=one_of(METRICS),
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="A column not to learn from (may be repeated).")
    ] = None,
    use: Use = None,
    weight: Annotated[
        str | None, typer.Option("--weight", help="The column with row weights, which multiply the losses.")
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            help="The column that says which rows are one observation (patient, session, original of copies): they are "
            "held out together. It is not learned from.",
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=2, help="Learn from so many rows, drawn from every class.")
    ] = None,
    max_categories: Annotated[
        int, typer.Option("--max-categories", min=2, help="A column of more different texts is left out.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample, the folds and the model.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", help="Workers that fit at once, -1 for one per core; the result is the same."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write a page about the model to this HTML file.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            help="How much memory the fit may take beside the program itself, such as 500MB or 2GB; all that is free "
            "unless given.",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Read the table in pieces, as is done without being told if it is too large for memory "
            "(--model auto, ls-svm).",
        ),
    ] = False,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            help="The folder for the parts of a fit that streams, beside the model file unless given. Killed, the same "
            "command goes on where it stood; at the end they are removed.",
        ),
    ] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    missing: Missing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Learn a model from a table, say how good it is, and save it.

    Columns of numbers are standardised, missing values filled with the mean and marked by an indicator; of dates the
    day and its place in year and week are learned from; of columns of texts every value becomes an indicator, and a
    missing one has none. Columns that are left out, such as identifiers, are named, with the reason. The model tunes
    and calibrates itself. How good it is, is measured on rows that it had not learned from: by leave-one-out, which
    comes with the fit of least-squares machines, or else in folds. The columns that the model depends on most are
    named: a sensitivity of the model, not a cause.

    A table may be larger than memory: it is read twice and kept as numbers in a folder beside the model file, from
    which the fit streams; a fit that was killed goes on where it stood.

    Examples: [bold]polymargin fit flowers.csv --target species -o flowers.model --report flowers.html[/bold],
    [bold]polymargin fit big.parquet --sample 5000 --drop id[/bold],
    [bold]polymargin fit visits.csv --target diagnosis --groups patient[/bold],
    [bold]polymargin fit big-folder --memory 2GB -o big.model[/bold]
    """
    start = time.perf_counter()
    if data == STDIN and output is None:
        fail("a model of what comes from stdin needs a name: give its file by --output", USAGE)
    with reported(), from_stdin(data) as data:
        classifier = make_classifier(
            model, seed, jobs=jobs, coding=coding, decoding=decoding, kernel=kernel, metric=metric
        )
        dialect = dialect_of(delimiter, decimal, encoding, header, missing)
        output = output or Path(f"{name_of(data)}.skops")
        check_outputs([output, report], files_read(data))
        if groups is not None:
            _check_groups(model, classifier)
        bound = None if memory is None else parse_memory(memory)
        n_rows = None
        task = Task(
            data,
            output,
            work,
            target,
            tuple(drop or ()),
            tuple(use or ()),
            weight,
            max_categories,
            seed,
            bound,
            classifier,
            dialect,
        )
        scan = None
        stream = stream or begun(task)  # killed, the same command goes on
        if names_file(data) and sample is None and not stream:
            scan = scan_file(data, target, task.drop, dialect)
            stream = is_large(scan, task, model)
        if stream:
            _check_stream(model, data, groups, sample)
            with noted() as notes:
                streamed = fit_stream(task, scan)
            pipeline, examples, honest = streamed.pipeline, streamed.examples, streamed.honest
            n_rows = streamed.n_rows
        else:
            examples = load_examples(
                data,
                target,
                drop=task.drop,
                use=task.use,
                weight=weight,
                group=groups,
                sample=sample,
                seed=seed,
                max_categories=max_categories,
                dialect=dialect,
                check_rows=_check_rows(model),
                scan=scan,
            )
            prepared = task.limited()
            many = note_on_many_classes(prepared, np.unique(examples.labels).size)
            if many is not None:
                examples = replace(examples, notes=(*examples.notes, many))
            for line in (*examples.notes, *_small_classes(examples)):
                if as_json or not any(line.startswith(_left_out(name)) for name in examples.left_out):
                    note(line)  # columns that are left out are part of the result
            with noted() as notes:
                pipeline = _fitted(prepared, examples)
            honest = honest_of(pipeline, examples, seed)
        examples = replace(examples, notes=(*examples.notes, *notes))
        relevance = relevance_of(pipeline)
        seconds = time.perf_counter() - start
        document = document_of(model, pipeline, examples, honest, output, seconds, n_rows)
        document |= {} if relevance is None else {"relevance": relevance}
        save_model(pipeline, output, document)
        if report is not None:
            document["report"] = str(write_report(pipeline, examples, honest, report))
        if stream:
            streamed.folder.remove()
        if as_json:
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            _print(document)


def _check_rows(model: str) -> Callable[[int], None]:
    """Return what refuses more rows than a model can learn from here, before they are read."""

    def check(n_rows: int) -> None:
        from polymargin import _memory

        if model not in _BYTES_PER_PAIR_OF_ROWS:  # the others know best themselves
            return
        _memory.require(
            _BYTES_PER_PAIR_OF_ROWS[model] * n_rows**2,
            f"--model {model} on {n_rows} rows",
            _IN_SHELL,
        )
        if n_rows > _MANY_ROWS[model]:
            note(
                f"--model {model} takes long on {n_rows} rows, its time grows with their {_GROWTH[model]}; --sample "
                "5000 is quick and often as good, and --model auto takes any number of rows"
            )

    return check


def _check_stream(model: str, data: str, groups: str | None, sample: int | None) -> None:
    """Refuse what a fit that streams cannot do, with what to do instead."""
    if not names_file(data):
        raise ValueError(
            f"--stream is for files and folders; {data!r} is a dataset by name, which is in memory"
        )
    if model not in STREAMING:
        raise ValueError(
            f"--model {model} needs all rows in memory; choose --model {' or '.join(STREAMING)}, or learn from a "
            "sample (--sample 10000)"
        )
    if sample is not None:
        raise ValueError("--sample draws rows into memory; leave out --stream, or --sample")
    if groups is not None:
        raise ValueError(
            "--groups needs all rows in memory, and a table that streams is too large for it: learn from a sample "
            "(--sample 100000), keep one row of every group, or give the fit more memory (--memory)"
        )


def _check_groups(model: str, classifier: Any) -> None:
    """Refuse groups for a model whose fit takes none, before anything is read."""
    from sklearn.utils.validation import has_fit_parameter

    if not has_fit_parameter(classifier, "groups"):
        raise ValueError(f"--model {model} takes no --groups; choose --model ls-svm")


def _small_classes(examples: Examples) -> Iterator[str]:
    classes, counts = np.unique(examples.labels, return_counts=True)
    alone = classes[counts == 1].tolist()
    if alone:
        yield f"{_names(alone)} {'has' if len(alone) == 1 else 'have'} a single row, which is hardly enough"


def _fitted(classifier: Any, examples: Examples) -> Any:
    """Return the fitted pipeline: what makes the columns fit for a kernel, and the classifier."""
    from sklearn.pipeline import Pipeline

    from polymargin.tables import preparation_of

    pipeline = Pipeline([("prepare", preparation_of(examples)), ("classifier", classifier)])
    given = {"sample_weight": examples.weights, "groups": examples.groups}
    given = {f"classifier__{name}": values for name, values in given.items() if values is not None}
    n_rows, n_columns = examples.frame.shape
    what = f"fitting {type(classifier).__name__} to {counted(n_rows, 'row')}"
    if n_rows >= _LONG_FIT:
        n_classes = np.unique(examples.labels).size
        errors().print(f"{what}, {counted(n_columns, 'column')}, {n_classes} classes", markup=False)
    try:
        with logged(), show_time(what):
            pipeline.set_params(classifier__verbose=1).fit(examples.frame, examples.labels, **given)
    except MemoryError as error:
        raise MemoryError(str(error).replace(_IN_PYTHON, _IN_SHELL)) from error
    return pipeline.set_params(classifier__verbose=0)


def _print(document: dict[str, Any]) -> None:
    console = results()
    kinds = list(document["columns"].values())
    n_texts, n_dates = kinds.count("text"), kinds.count("date") + kinds.count("time")
    other = ", ".join(f"{n} of {what}" for n, what in ((n_texts, "texts"), (n_dates, "dates")) if n)
    columns = counted(len(kinds), "column") + (f" ({other})" if other else "")
    console.print(
        f"{document['data']}: {counted(document['n_rows'], 'row')}, {columns}, {len(document['classes'])} classes of "
        f"{document['target']!r}: {_names(document['classes'])}",
        markup=False,
    )
    for line in _left_out_lines(document["left_out"], document["notes"]):
        console.print(line, markup=False)
    console.print(_chosen_table(document["estimator"], document["chosen"]))
    lines = (_tried_lines, _metric_lines, _plan_lines)
    for line in (line for find in lines for line in find(document["chosen"])):
        console.print(line, markup=False)
    for line in _relevance_lines(document.get("relevance")):
        console.print(line, markup=False)
    quality = document["quality"]
    console.print(Text(f"on rows that were held out ({quality['method']})", style="bold"))
    for line in quality_lines(quality, document["classes"]):
        console.print(f"  {line}", markup=False)
    for line in warning_lines(quality, document["classes"]):
        console.print(Text(f"warning: {line}", style="bold red"))
    console.print(f"model: {document['file']} ({duration(document['seconds'])})", markup=False)
    if "report" in document:
        console.print(f"report: {document['report']}", markup=False)


def _left_out(name: str) -> str:
    """Return how the note on a column begins that is left out."""
    return f"column {name!r} is left out: "


def _left_out_lines(reasons: dict[str, str], notes: list[str]) -> Iterator[str]:
    """Yield which columns are not learned from, why, and what can be done about it, the first of them."""
    if reasons:
        yield "not learned from:"
    shown = list(reasons.items())[:_NAMED_LEFT_OUT]
    for name, reason in shown:
        said = next((line for line in notes if line.startswith(_left_out(name))), _left_out(name) + reason)
        yield f"  {name!r}: {said.removeprefix(_left_out(name))}"
    if len(reasons) > len(shown):
        yield f"  and {len(reasons) - len(shown)} more (--json lists them all)"


def _chosen_table(estimator: str, facts: dict[str, Any]) -> Table:
    """Return what was chosen, one line for every member of a pool."""
    members = [
        member | ({"metric": _kept(member["metric_results"])} if "metric_results" in member else {})
        for member in facts.get("members", [])
    ] or [facts]
    table = Table(title=estimator, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    wanted = ("weight", "kernel", "coding", "decoding", "C", "gamma", "metric", "log_loss")
    names = [name for name in wanted if any(name in member for member in members)]
    for name in names:
        table.add_column(
            name.replace("_", "-"), justify="right" if name in ("weight", "log_loss") else "left"
        )
    for member in members:
        table.add_row(*(Text(_value(name, member[name]) if name in member else "") for name in names))
    return table


def _tried_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield what was chosen and what came second, with their losses."""
    found = facts.get("search_results")
    if found is None:
        return
    best, second = next(row for row in found["candidates"] if row["chosen"]), found["runner_up"]
    metric = facts.get("metric_results")
    chosen = "chosen" if metric is None or metric["chosen"][0] else "chosen before the metric was learned,"
    line = f"{chosen} by the {found['compared_by']} on {found['n_rows']} rows: {_candidate(best)}"
    yield line if second is None else f"{line}; runner-up: {_candidate(second)}"


def _plan_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield how many rows were divided, if they were."""
    plans = dict.fromkeys(member["plan"] for member in (facts, *facts.get("members", [])) if "plan" in member)
    yield from (f"plan: {plan}" for plan in plans)


def _metric_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield whether a learned metric was kept, with the losses."""
    found = facts.get("metric_results")
    if found is None:
        return
    plain, *others = found["loss"]
    if not others:
        yield "learned metric: none, since rounding errors leave no held-out rows to judge it by"
        return
    line = f"loss {min(others):.4f}, {plain:.4f} without it, on {found['n_rows'][0]} rows"
    on_all = [loss for loss in found["loss_on_all_rows"] if loss is not None]
    if on_all:
        line += f"; {on_all[1]:.4f} and {on_all[0]:.4f} with machines of all rows"
    yield f"learned metric: {_kept(found)} ({line})"


def _kept(found: dict[str, Any]) -> str:
    """Return whether a learned metric was kept."""
    rounds = found["chosen"].index(True)
    return f"kept, {rounds} round{'s' * (rounds > 1)}" if rounds else "not kept"


def _relevance_lines(found: dict[str, Any] | None) -> Iterator[str]:
    """Yield the columns that the model depends on most, and those that hardly matter to it."""
    if found is None:
        return
    idle = set(found["negligible"])
    rows = zip(found["name"], found["relevance"], found["std"], strict=True)
    most = [
        f"{name!r} {share:.1%}" + ("" if std is None else f" (± {std:.1%})")
        for name, share, std in rows
        if name not in idle
    ]
    if most:
        yield f"depends most on (sensitivity, not cause): {', '.join(most[:_NAMED_COLUMNS])}"
    if idle:
        yield f"hardly depends on: {_names(found['negligible'])}"


def _candidate(row: dict[str, Any]) -> str:
    smaller = "" if row["smaller_C"] == 1.0 else f" with a {row['smaller_C']:g} times smaller C"
    return f"{row['kernel']}{smaller} ({row['loss']:.4f})"


def _value(name: str, value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(f"{number:.4g}" for number in value)
    digits = {"weight": ".2f", "log_loss": ".4f"}.get(name, ".4g")
    return f"{value:{digits}}" if isinstance(value, float) else str(value)


def _names(values: list[Any], most: int = 10) -> str:
    shown = ", ".join(map(repr, values[:most]))
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"
