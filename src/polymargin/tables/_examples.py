"""The labelled rows of a table in memory: all of them, or a sample in which every class is present."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from polymargin import _memory
from polymargin._dataset import Dataset
from polymargin.tables._cells import (
    ISO,
    Kind,
    NotRead,
    days,
    holds_texts,
    numbers,
    objects,
    texts,
)
from polymargin.tables._dialect import Dialect
from polymargin.tables._files import Batch, Table
from polymargin.tables._labels import label_texts, typed_labels
from polymargin.tables._looks import Columns
from polymargin.tables._scan import ReadProgress, Scan

Array = NDArray[Any]

#: A class of which a sample would hold fewer rows keeps this many, as far as it has them.
_LEAST_ROWS = 5
_BYTES_PER_CELL = {"number": 8, "date": 8, "time": 8, "text": 72}


@dataclass(frozen=True, eq=False, repr=False)
class Examples(Dataset):
    """A dataset whose rows are a frame of pandas: float64 columns with NaN, and object columns of texts with None.

    Dates are days since 1970-01-01.

    Attributes
    ----------
    target : str
        The column that the labels come from.
    first_row : int
        What messages call the first row of the table.
    notes : tuple of str
        What the user should know of how the rows were chosen.
    columns : Columns or None
        What the columns hold, and how texts of them are read; None: numbers and texts, as they are.
    left_out : mapping of str to str
        The columns that are not learned from, and why.
    """

    X: pd.DataFrame
    target: str = "class"
    first_row: int = 1
    notes: tuple[str, ...] = ()
    columns: Columns | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What the columns hold."""
        if self.columns is not None:
            return {name: self.columns.kinds[name] for name in self.X}
        return {name: "text" if holds_texts(self.X[name]) else "number" for name in self.X}

    @property
    def frame(self) -> pd.DataFrame:
        """The features, shape (n, d)."""
        return self.X

    @property
    def labels(self) -> Array:
        """The labels, shape (n,)."""
        return self.y

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """How many rows of the table come before each, shape (n,)."""
        return self.extras["row"] - self.first_row

    @property
    def weights(self) -> Array | None:
        """Row weights, shape (n,)."""
        return self.extras.get("weight")

    @property
    def groups(self) -> Array | None:
        """Texts that name the group of each row, shape (n,); the rows of a group are one observation."""
        return self.extras.get("group")

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which cells are missing, shape (n, d)."""
        return self.X.isna().to_numpy()

    def as_arrays(self) -> Dataset:
        """Return the same rows as arrays.

        Returns
        -------
        Dataset
        """
        held = {part.name: getattr(self, part.name) for part in fields(Dataset)}
        return Dataset(**held | {"X": self.X.to_numpy(dtype=object if self.nominal else np.float64)})


def examples_of(dataset: Dataset) -> Examples:
    """Return a dataset with its rows as a frame.

    Parameters
    ----------
    dataset : Dataset
        Its nominal columns hold texts, or codes without an order; the others hold numbers.

    Returns
    -------
    Examples

    Examples
    --------
    >>> X = np.array([[1.0, "red"], [3.0, None]], dtype=object)
    >>> toy = Dataset("toy", X, np.array([0, 1]), ("size", "colour"), "here", nominal=("colour",))
    >>> examples_of(toy).frame
       size colour
    0   1.0    red
    1   3.0   None
    """
    of_texts = set(dataset.nominal)
    columns = {
        column: pd.Series(dataset.X[:, j], dtype=object if column in of_texts else np.float64)
        for j, column in enumerate(dataset.feature_names)
    }
    held = {part.name: getattr(dataset, part.name) for part in fields(dataset)}
    extras = {"row": np.arange(1, len(dataset.y) + 1), **dataset.extras}
    return Examples(**held | {"X": pd.DataFrame(columns), "extras": extras})


def sampled(examples: Examples, sample: int | None, seed: int = 0) -> Examples:
    """Return a stratified random sample of examples, see `read_examples`.

    Parameters
    ----------
    examples : Examples
        The examples.
    sample : int or None
        The size of the sample; None for all examples.
    seed : int
        Seeds the draw.

    Returns
    -------
    Examples
        The same object if there are no more than `sample`.
    """
    labels = examples.y.astype(str)
    names, counts = np.unique(labels, return_counts=True)
    shares = dict(zip(names.tolist(), counts.tolist(), strict=True))
    chosen = _share_out(shares, sample)
    if chosen == shares:
        return examples
    rows = _Draw(shares, chosen, seed)(labels.astype(object))
    note = f"a sample of {rows.size} of the {labels.size} rows"
    return replace(examples.take(rows, note), notes=(*examples.notes, note))


def read_examples(
    scan: Scan,
    *,
    weight: str | None = None,
    group: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: ReadProgress | None = None,
) -> Examples:
    """Read the labelled rows of a scanned table, or a random sample of them.

    Parameters
    ----------
    scan : Scan
        The table and what its columns hold. What is neither number nor text nor date is left out.
    weight : str or None
        The column with the row weights, which then is no feature.
    group : str or None
        The column that names the group of every row, which then is no feature.
    sample : int or None
        How many rows to draw, if there are more. Every class has its share of them, and at least five rows, as far
        as it has them.
    seed : int
        Of the sample.
    progress : callable or None
        Called with the number of rows read so far, and the share of the file.

    Returns
    -------
    Examples

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from polymargin.tables import open_table, scan_table
    >>> file = Path(tempfile.mkdtemp()) / "fruit.csv"
    >>> _ = file.write_text("weight,colour,fruit\\n150,green,apple\\n120,,orange\\n,red,apple\\n")
    >>> examples = read_examples(scan_table(open_table(file)))
    >>> examples.frame
       weight colour
    0   150.0  green
    1   120.0   None
    2     NaN    red
    """
    check_weight(scan, weight)
    if group is not None and group not in scan.kinds:
        raise ValueError(f"there is no column {group!r} for the groups; there are {', '.join(scan.kinds)}")
    if group is not None and group == weight:
        raise ValueError(f"the column {group!r} cannot hold both the weights and the groups")
    kinds = {name: kind for name, kind in scan.kinds.items() if kind in _BYTES_PER_CELL and name != group}
    columns = list(kinds) if group is None else [*kinds, group]
    n_rows = scan.n_labelled if sample is None else min(sample, scan.n_labelled)
    _memory.require(
        n_rows * sum(_BYTES_PER_CELL[kind] for kind in kinds.values()),
        f"a table of {n_rows} rows",
        "draw a sample of them (--sample)",
    )
    chosen = _share_out(scan.label_counts, sample)
    pieces: list[pd.DataFrame] = []
    labels: list[Array] = []
    places: list[Array] = []
    group_texts: list[Array] = []
    infinite: dict[str, int] = {}
    for batch, rows in _labelled(scan, columns, _Draw(scan.label_counts, chosen, seed), progress):
        taken = batch.cells.take(pa.array(rows))
        pieces.append(frame_of(scan.table, taken, kinds, batch.start + rows, infinite, scan.columns.readings))
        labels.append(objects(label_texts(taken.column(scan.target))))
        places.append(batch.start + rows)
        if group is not None:
            group_texts.append(objects(label_texts(taken.column(group))))
    frame = pd.concat(pieces, ignore_index=True)
    names = np.concatenate(labels)
    values = typed_labels(scan.label_counts)
    row_numbers = np.concatenate(places)
    extras = {"row": row_numbers + scan.table.first_row}
    if weight is not None:
        extras["weight"] = checked_weights(scan, frame.pop(weight), row_numbers)
    if group is not None:
        extras["group"] = _groups(scan, group, np.concatenate(group_texts), row_numbers)
    return Examples(
        name=scan.table.name,
        X=frame,
        y=np.array([values[name] for name in names]),
        feature_names=tuple(frame),
        source=f"file {scan.table.path.name}",
        nominal=tuple(name for name in frame if kinds[name] == "text"),
        dates=tuple(name for name in frame if kinds[name] in ("date", "time")),
        extras=extras,
        unlabelled=sum(scan.unlabelled.values()),
        target=scan.target,
        first_row=scan.table.first_row,
        notes=tuple(notes_on_rows(scan, chosen, infinite)),
        columns=scan.columns,
    )


def check_weight(scan: Scan, weight: str | None) -> None:
    """Raise ValueError if the table has no such column for the weights."""
    if weight is not None and weight not in scan.kinds:
        raise ValueError(f"there is no column {weight!r} for the weights; there are {', '.join(scan.kinds)}")


def frame_of(
    table: Table,
    cells: pa.RecordBatch,
    kinds: Mapping[str, Kind],
    rows: Sequence[int] | Array,
    infinite: dict[str, int],
    readings: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Return columns of numbers, days and texts as a frame; infinite numbers are counted, and missing from then on.

    Raises
    ------
    ValueError
        If a text stands among numbers or dates; the message names row and column.
    """
    columns: dict[str, Array] = {}
    readings = readings or {}
    for name, kind in kinds.items():
        if kind == "text":
            columns[name] = objects(texts(cells.column(name)))
            continue
        try:
            values = _values(cells.column(name), kind, readings.get(name), table.dialect)
        except NotRead as found:
            where = table.row(int(rows[found.place]))
            raise ValueError(
                f"{table.path.name}, {where}: {_among_others(table, found, name, kind)}"
            ) from None
        boundless = np.isinf(values)
        if boundless.any():
            infinite[name] = infinite.get(name, 0) + int(boundless.sum())
            values = np.where(boundless, np.nan, values)
        columns[name] = values
    index = pd.RangeIndex(cells.num_rows)
    # Only texts need to be told their type, and a Series for every column takes long where there are many.
    frame = {
        name: pd.Series(values, index, dtype=object) if values.dtype == object else values
        for name, values in columns.items()
    }
    return pd.DataFrame(frame, index=index)


def _values(cells: pa.Array, kind: Kind, reading: str | None, dialect: Dialect) -> Array:
    missing = dialect.missing_numbers
    if kind == "number":
        return numbers(cells, dialect.decimal or reading or ".", missing)
    try:
        return days(cells, reading or ISO, missing)
    except NotRead:
        if reading in (None, ISO):
            raise
        return days(cells, ISO, missing)  # which has no other meaning


def _among_others(table: Table, found: NotRead, name: str, kind: Kind) -> str:
    """Return what is wrong with a text among numbers or dates, and what to do."""
    wrong = f"{found.text!r} in the column {name!r}"
    if kind != "number":
        return f"{wrong} is no date that is written like the others"
    if table.in_memory:
        return (
            f"{wrong}, which holds numbers; correct it, or replace it by None if it stands for a missing one"
        )
    for decimal, mark in ((",", "comma"), (".", "point")):
        try:
            numbers(pa.array([found.text]), decimal)
        except NotRead:
            continue
        return f"{wrong}, which holds numbers; if its decimal mark is a {mark}, pass --decimal {decimal}"
    return f"{wrong}, which holds numbers; correct it, or pass --missing {found.text!r} if it stands for a missing one"


def _labelled(
    scan: Scan, columns: list[str], draw: Callable[[Array], Array], progress: ReadProgress | None
) -> Iterator[tuple[Batch, Array]]:
    """Yield the batches with the places of the rows that are drawn from them."""
    for batch in scan.table.batches([*columns, scan.target]):
        rows = draw(objects(label_texts(batch.cells.column(scan.target))))
        if rows.size:
            yield batch, rows
        if progress is not None:
            progress(batch.start + batch.cells.num_rows, batch.share)


class _Draw:
    """Draws a given number of rows from every class, all equally likely, as they pass by."""

    def __init__(self, counts: Mapping[str, int], chosen: Mapping[str, int], seed: int) -> None:
        self._all = dict(counts) == dict(chosen)
        self._left, self._wanted = dict(counts), dict(chosen)
        self._random = np.random.default_rng(seed)

    def __call__(self, names: Array) -> Array:
        if self._all:
            return np.flatnonzero(names != None)  # noqa: E711 (elementwise)
        taken = []
        for name, rows in pd.Series(names, dtype=object).groupby(names).indices.items():
            wanted, left = self._wanted[name], self._left[name]
            n_taken = self._random.hypergeometric(wanted, left - wanted, rows.size)
            taken.append(self._random.choice(rows, n_taken, replace=False))
            self._wanted[name], self._left[name] = wanted - n_taken, left - rows.size
        return np.sort(np.concatenate(taken)) if taken else np.zeros(0, dtype=np.int64)


def _share_out(counts: Mapping[str, int], sample: int | None) -> dict[str, int]:
    """Return how many rows of every class a sample holds."""
    total = sum(counts.values())
    if sample is None or sample >= total:
        return dict(counts)
    if sample < 2 * len(counts):
        raise ValueError(f"a sample of {sample} rows is too small for {len(counts)} classes; take more")
    least = min(_LEAST_ROWS, sample // len(counts))
    shares = {name: min(count, max(least, round(sample * count / total))) for name, count in counts.items()}
    largest = max(shares, key=shares.__getitem__)
    # What rounding and the small classes took or left is the largest class's.
    shares[largest] = max(least, min(counts[largest], shares[largest] + sample - sum(shares.values())))
    return shares


def checked_weights(scan: Scan, column: pd.Series, row_numbers: Array) -> Array:
    """Return the weights; raise ValueError if one is missing or negative."""
    if holds_texts(column):
        raise ValueError(f"the weights {column.name!r} are texts, not numbers")
    values = column.to_numpy()
    wrong = np.flatnonzero(~(values >= 0.0))
    if wrong.size:
        where = scan.table.row(int(row_numbers[wrong[0]]))
        raise ValueError(f"{where} has no weight in the column {column.name!r}, or a negative one")
    return values


def _groups(scan: Scan, name: str, values: Array, row_numbers: Array) -> Array:
    missing = np.flatnonzero(values == None)  # noqa: E711 (elementwise)
    if missing.size:
        where = scan.table.row(int(row_numbers[missing[0]]))
        raise ValueError(f"{where} has no group in the column {name!r}: give every row one")
    return values.astype(str)


def notes_on_rows(scan: Scan, chosen: Mapping[str, int], infinite: Mapping[str, int]) -> Iterator[str]:
    """Yield how the file is read, which rows are left out, or drawn, and what counts as missing."""
    yield from scan.table.notes
    if scan.unlabelled:
        kinds = ", ".join(f"{text!r}: {count}" for text, count in scan.unlabelled.items())
        count = sum(scan.unlabelled.values())
        yield f"{count} of {scan.n_rows} rows have no label in {scan.target!r} and are left out ({kinds})"
    total, sample = scan.n_labelled, sum(chosen.values())
    if sample < total:
        yield f"a sample of {sample} of the {total} rows"
        raised = [
            name for name, rows in chosen.items() if rows > 1.5 * sample * scan.label_counts[name] / total + 1
        ]
        if raised:
            yield f"in the sample these classes are more frequent than in the file: {', '.join(map(repr, raised))}"
    for name, count in infinite.items():
        yield f"column {name!r}: {count} infinite numbers count as missing"
