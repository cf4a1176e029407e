"""``polymargin predict``: a model and a table in, labels and probabilities out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from polymargin.cli._console import USAGE, check_outputs, errors, fail, note, reported
from polymargin.cli._decisions import DecisionColumns
from polymargin.cli._progress import duration, show_rows
from polymargin.cli._reading import Decimal, Delimiter, Encoding, Header, Missing, dialect_of, from_stdin

if TYPE_CHECKING:  # importing it at run time would make every command slow to start
    import pyarrow as pa

    from polymargin.tables import Table

__all__ = ["command"]

Array = NDArray[Any]


def command(
    model: Annotated[Path, typer.Argument(help="A model file that polymargin fit or polymargin.save wrote.")],
    data: Annotated[Path, typer.Argument(help="A CSV file (.gz too) or Parquet file; - is stdin.")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .csv, .csv.gz, .jsonl or .parquet file; - is stdout.")
    ] = "-",
    proba: Annotated[
        bool, typer.Option("--proba/--no-proba", help="Whether to write the probabilities of all classes.")
    ] = True,
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, help="Write only the so many most probable classes, best first."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            help="Write the set of classes that holds the label with this probability, such as 0.9.",
        ),
    ] = None,
    per_class: Annotated[
        bool,
        typer.Option("--per-class", help="Let the coverage hold for the rows of every class by themselves."),
    ] = False,
    reject: Annotated[
        float | None,
        typer.Option(
            "--reject", help="Write a decision, and none where the largest probability is less than this."
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            help="Write the decision of least expected cost. A CSV file: the true classes in the first column, then a "
            "column for every decision.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="A column to copy, such as an identifier (may be repeated)."),
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Compare with the labels in the table and print how good it is.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="The label column for --score, if not the one of the training."),
    ] = None,
    chunk_rows: Annotated[
        int, typer.Option("--chunk-rows", min=1, help="How many rows are held in memory at once.")
    ] = 10_000,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    missing: Missing = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per row (and the score as JSON).")
    ] = False,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In CSV, put an apostrophe before texts that a spreadsheet would run as formulas (=, +, -, @).",
        ),
    ] = False,
) -> None:
    """Give every row of a table its label and its class probabilities.

    The table may be larger than memory. It needs the columns that the model was fitted on, in any order; others are
    ignored. The result has the columns asked for by --keep, then prediction, then decision and set if asked for, then
    p(class) for every class, or with --top 2: top1, p1, top2, p2. The classes of a set are separated by |, the most
    probable first (lists in JSON and Parquet). The output file appears when all is written, or not at all; devices and
    pipes are written to directly. Labels and copied columns are written as they are: open the CSV in a spreadsheet
    program only if you trust them, or use --escape-formulas.

    Examples: [bold]polymargin predict flowers.model new.csv -o out.csv --keep id[/bold],
    [bold]polymargin predict flowers.model new.csv --coverage 0.9 --top 3[/bold],
    [bold]polymargin predict flowers.model test.csv --score -o out.parquet[/bold]
    """
    path = None if output == "-" else Path(output)
    check_outputs([path], [model, data, *([] if costs is None else [costs])])
    start = time.perf_counter()
    try:
        with reported(), from_stdin(data) as file:
            from polymargin import load, tables

            if not model.is_file():
                fail(f"no file {model}", USAGE)
            dialect = dialect_of(delimiter, decimal, encoding, header, missing)
            fitted, table = load(model), tables.open_table(file, dialect)
            labels = _target(model, table, target) if score else None
            format_ = "json" if as_json else tables.format_of(path)
            decisions = DecisionColumns(
                fitted,
                coverage=coverage,
                per_class=per_class,
                costs=costs,
                reject=reject,
                as_text=format_ == "csv",
            )
            kept = tuple(dict.fromkeys(keep or ()))
            layout = _Layout(fitted, proba=proba, top=top, keep=kept, decisions=decisions)
            with tables.writing(path, format_, escape_formulas=escape_formulas) as write:
                tally = _predict_all(fitted, table, layout, labels, chunk_rows, write)
    except BrokenPipeError:  # the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    seconds = time.perf_counter() - start
    if path is not None:
        note(f"{tally.n_rows:,} rows in {duration(seconds)} ({tally.n_rows / seconds:,.0f} rows/s): {path}")
    if score:
        _print_score(tally, as_json, to_stdout=path is not None)


def _predict_all(
    model: Any,
    table: Table,
    layout: _Layout,
    target: str | None,
    max_rows: int,
    write: Callable[[pa.RecordBatch], None],
) -> _Tally:
    """Predict batch by batch, and write every batch at once."""
    from polymargin.tables import TableReader

    besides = [*layout.keep, *([] if target is None else [target])]
    table.check(besides)
    reader, tally = TableReader(model), _Tally()
    with show_rows(f"predicting {table.path.name}") as progress:
        for frame, batch in reader.frames(table, besides, max_rows):
            best, log_proba = _predict(model, frame)
            sets = layout.decisions.sets(log_proba)
            write(layout.batch(batch.cells, best, log_proba, sets))
            tally.n_rows += len(best)
            if target is not None:
                tally.add(model.classes_, batch.cells.column(target), best, log_proba, sets, layout.decisions)
            progress(tally.n_rows, batch.share)
    if tally.n_rows == 0:
        raise ValueError(f"{table.path.name} has no rows")
    for name, count in reader.infinite.items():
        note(f"column {name!r}: {count} infinite numbers count as missing")
    for name, (count, example) in reader.unknown.items():
        rows = "all rows" if count == tally.n_rows else f"{count} of {tally.n_rows} rows"
        note(f"column {name!r}: {rows} have a value that the model has not seen, such as {example!r}")
    return tally


def _target(model_file: Path, table: Table, given: str | None) -> str:
    """Return the column with the labels: the one given, or the one of the training."""
    from polymargin.persistence import describe

    target = given or (describe(model_file)["summary"] or {}).get("target")
    if target is None:
        raise ValueError("the model does not say which column it was fitted to; name it by --target")
    if target not in table.columns:
        raise ValueError(f"{table.path.name} has no column {target!r} to score against; name it by --target")
    return target


def _predict(model: Any, frame: Any) -> tuple[Array, Array | None]:
    """Return the places of the predicted classes, and the log-probabilities where there are any."""
    if hasattr(model, "predict_log_proba"):
        log_proba = model.predict_log_proba(frame)
        return np.exp(log_proba).argmax(axis=1), log_proba
    return np.searchsorted(model.classes_, model.predict(frame)), None


class _Layout:
    """The columns of the result."""

    def __init__(
        self, model: Any, *, proba: bool, top: int | None, keep: tuple[str, ...], decisions: DecisionColumns
    ) -> None:
        import pyarrow as pa

        self.keep, self.decisions = keep, decisions
        self._classes = pa.array(model.classes_.tolist())
        names = [str(name) for name in model.classes_.tolist()]
        has_proba = hasattr(model, "predict_log_proba")
        if top is not None and not has_proba:
            raise ValueError("--top needs probabilities, and the decoding of this model gives none")
        self._top = None if top is None else min(top, len(names))
        self._proba = proba and has_proba and top is None
        columns = ["prediction", *decisions.names]
        if self._top is not None:
            columns += [name for k in range(1, self._top + 1) for name in (f"top{k}", f"p{k}")]
        elif self._proba:
            columns += [f"p({name})" for name in names]
        self._names = _distinct([*keep, *columns])

    def batch(
        self, cells: pa.RecordBatch, best: Array, log_proba: Array | None, sets: Array | None
    ) -> pa.RecordBatch:
        """Return the result for some rows."""
        import pyarrow as pa

        columns = [_plain(cells.column(name)) for name in self.keep]
        columns.append(self._classes.take(pa.array(best)))
        columns += self.decisions.columns(log_proba, sets)
        columns += [pa.array(column) for column in self._probabilities(log_proba)]
        return pa.RecordBatch.from_arrays(columns, names=self._names)

    def _probabilities(self, log_proba: Array | None) -> Iterator[Any]:
        if log_proba is None or not (self._proba or self._top):
            return
        proba = np.exp(log_proba)
        if self._top is None:
            yield from np.ascontiguousarray(proba.T)
            return
        order = np.argsort(-proba, axis=1, kind="stable")
        for place in range(self._top):
            yield self._classes.take(order[:, place])
            yield np.take_along_axis(proba, order[:, place, np.newaxis], axis=1)[:, 0]


def _plain(cells: pa.Array) -> pa.Array:
    return cells.dictionary_decode() if hasattr(cells, "dictionary_decode") else cells


def _distinct(names: Sequence[str]) -> list[str]:
    """Return unique names, by numbering repeated ones.

    >>> _distinct(["id", "prediction", "prediction"])
    ['id', 'prediction', 'prediction_2']
    """
    found: dict[str, None] = {}
    for name in names:
        number, candidate = 1, name
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found[candidate] = None
    return list(found)


@dataclass
class _Tally:
    """Sums the scores of predictions over batches."""

    n_rows: int = 0
    n_scored: int = 0
    n_right: int = 0
    log_loss: float = 0.0
    has_proba: bool = True
    n_covered: int = 0
    set_sizes: int | None = None
    decided: dict[str, float] = field(default_factory=dict)

    def add(
        self,
        classes: Array,
        labels: pa.Array,
        best: Array,
        log_proba: Array | None,
        sets: Array | None,
        decisions: DecisionColumns,
    ) -> None:
        from polymargin.tables import class_indices, label_texts

        truth = class_indices(label_texts(labels).to_pylist(), classes)
        known = np.flatnonzero(truth >= 0)
        self.n_scored += known.size
        self.n_right += int((truth[known] == best[known]).sum())
        self.has_proba = log_proba is not None
        if log_proba is not None:
            self.log_loss -= float(log_proba[known, truth[known]].sum())
            for name, value in decisions.scores(log_proba[known], truth[known]).items():
                self.decided[name] = self.decided.get(name, 0.0) + value
        if sets is not None:
            self.n_covered += int(sets[known, truth[known]].sum())
            self.set_sizes = (self.set_sizes or 0) + int(sets[known].sum())


def _print_score(tally: _Tally, as_json: bool, *, to_stdout: bool) -> None:
    left_out = tally.n_rows - tally.n_scored
    if tally.n_scored == 0:
        fail("no row has a label that the model knows; there is nothing to score")
    document: dict[str, Any] = {"rows": tally.n_scored, "accuracy": tally.n_right / tally.n_scored}
    line = f"{tally.n_scored} rows: accuracy {document['accuracy']:.2%}"
    if tally.has_proba:
        document["log_loss"] = tally.log_loss / tally.n_scored
        line += f", log-loss {document['log_loss']:.4f}"
    if tally.set_sizes is not None:
        document["coverage"] = tally.n_covered / tally.n_scored
        document["mean_set_size"] = tally.set_sizes / tally.n_scored
        line += f", coverage {document['coverage']:.2%} by sets of {document['mean_set_size']:.2f} classes on average"
    if "cost" in tally.decided:
        document["mean_cost"] = tally.decided["cost"] / tally.n_scored
        line += f", mean cost of the decisions {document['mean_cost']:.4g}"
    if "cost_of_labels" in tally.decided:
        document["mean_cost_of_labels"] = tally.decided["cost_of_labels"] / tally.n_scored
        line += f" (of the most probable classes: {document['mean_cost_of_labels']:.4g})"
    if "answered" in tally.decided:
        answered = tally.decided["answered"]
        document["answered"] = answered / tally.n_scored
        document["accuracy_of_answers"] = tally.decided["right"] / answered if answered else None
        line += f", answers to {document['answered']:.2%} of the rows"
        line += f", of which {tally.decided['right'] / answered:.2%} are right" if answered else ""
    if left_out:
        document["rows_without_known_label"] = left_out
        note(f"{left_out} rows have no label that the model knows and are not scored")
    text = json.dumps(document) if as_json else line
    if to_stdout:
        typer.echo(text)
    else:
        errors().print(text, markup=False)
