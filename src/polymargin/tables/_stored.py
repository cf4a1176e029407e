"""A table as rows of numbers, one batch after the other, for tables larger than memory.

Every labelled row becomes as many numbers as the table has columns of numbers and texts (texts as codes, NaN where a
cell is missing), then the index of its class, its weight, and its number in the table. What the preparation of the
columns needs, means, deviations and the values of texts, is learned as they pass by, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer

from polymargin._preparation import column_preparation
from polymargin.tables._cells import Kind
from polymargin.tables._examples import Examples, check_weight, checked_weights, frame_of, notes_on_rows
from polymargin.tables._features import NAMED_ROWS, note_on_rising, notes_on_dates, notes_on_numbers
from polymargin.tables._labels import label_texts, typed_labels
from polymargin.tables._scan import ReadProgress, Scan

Array = NDArray[Any]

#: Sums are taken over so many rows at a time, however the table is read: the files it comes in do not matter then.
_ROWS_TOGETHER = 8192


@dataclass(frozen=True)
class StoredColumn:
    """A column of a stored table.

    Attributes
    ----------
    name : str
        Its name.
    kind : {"number", "text"}
        What it holds.
    left_out : str or None
        Why it is not learned from; None if it is.
    mean, scale : float
        Of numbers: what missing ones are replaced by, and their standard deviation then.
    values : list of str
        Of texts: the different ones, in the order of their codes.
    """

    name: str
    kind: Kind
    left_out: str | None
    mean: float = 0.0
    scale: float = 1.0
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredTable:
    """What is known of a table whose rows are stored as numbers.

    Attributes
    ----------
    name, target : str
        What the table is called, and the column with the labels.
    source : str
        Where the rows come from.
    first_row : int
        What messages call the first row of the table.
    n_rows : int
        The rows that are stored: those with a label and a positive weight.
    classes : list
        The class labels, ascending.
    class_counts : list of int
        The rows of every class.
    columns : list of StoredColumn
        The columns, in the order of the numbers of a row.
    weight : str or None
        The column of the weights.
    mean_weight : float
        Their mean.
    unlabelled : int
        The rows without a label.
    notes : list of str
        What the user should know of how rows and columns were chosen.

    See Also
    --------
    store_table : Stores a table.
    """

    name: str
    target: str
    source: str
    first_row: int
    n_rows: int
    classes: list[Any]
    class_counts: list[int]
    columns: list[StoredColumn]
    weight: str | None
    mean_weight: float
    unlabelled: int
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON.

        Returns
        -------
        dict
        """
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StoredTable:
        """Return the table that `to_json` described.

        Parameters
        ----------
        document : dict
            What it returned.

        Returns
        -------
        StoredTable
        """
        columns = [
            StoredColumn(**{**column, "values": tuple(column["values"])}) for column in document["columns"]
        ]
        return cls(**{**document, "columns": columns})

    def _kept(self, kind: Kind) -> list[int]:
        """Return the places of the columns of a kind that are learned from."""
        return [
            place
            for place, column in enumerate(self.columns)
            if column.kind == kind and column.left_out is None
        ]

    @property
    def n_features(self) -> int:
        """The number of features of a row."""
        return len(self._kept("number")) + sum(
            len(self.columns[place].values) for place in self._kept("text")
        )

    def features(self, rows: Array) -> Array:
        """Return the features of stored rows, the very numbers that `preparation` makes of their columns.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            The numbers of the columns of some rows.

        Returns
        -------
        ndarray of shape (n, p)
        """
        places = self._kept("number")
        means = np.array([self.columns[place].mean for place in places])
        numbers = rows[:, places]
        numbers = np.where(np.isnan(numbers), means, numbers)
        numbers -= means
        numbers /= np.array([self.columns[place].scale for place in places])
        parts = [numbers]
        for place in self._kept("text"):
            values = self.columns[place].values
            order = np.argsort(np.array(values, dtype=object), kind="stable")
            parts.append((rows[:, place, np.newaxis] == order).astype(np.float64))
        return np.ascontiguousarray(np.hstack(parts))

    def preparation(self) -> ColumnTransformer:
        """Return the fitted transformer of the table's columns into features.

        Returns
        -------
        ColumnTransformer
        """
        numeric = [self.columns[place] for place in self._kept("number")]
        nominal = {
            self.columns[place].name: sorted(self.columns[place].values) for place in self._kept("text")
        }
        frame = pd.DataFrame(
            {column.name: np.zeros(2) for column in numeric}
            | {name: np.array([values[0]] * 2, dtype=object) for name, values in nominal.items()}
        )
        names = [self.columns[place].name for place in sorted(self._kept("number") + self._kept("text"))]
        found = column_preparation([column.name for column in numeric], nominal).fit(frame[names])
        if numeric:
            imputer, scaler = (step for _, step in found.named_transformers_["numbers"].steps)
            means, scales = np.array([(column.mean, column.scale) for column in numeric]).T
            imputer.statistics_ = means.copy()
            scaler.mean_, scaler.scale_, scaler.var_ = means.copy(), scales.copy(), np.square(scales)
            scaler.n_samples_seen_ = self.n_rows
        return found

    def examples(self, rows: Array) -> Examples:
        """Return stored rows as a frame, with their labels.

        Parameters
        ----------
        rows : ndarray of shape (n, d + 3)
            The rows.

        Returns
        -------
        Examples
        """
        frame: dict[str, Any] = {}
        for place in sorted(self._kept("number") + self._kept("text")):
            column = self.columns[place]
            if column.kind == "number":
                frame[column.name] = rows[:, place]
            else:
                known = np.array([*column.values, None], dtype=object)
                codes = np.where(np.isnan(rows[:, place]), len(column.values), rows[:, place])
                frame[column.name] = pd.Series(known[codes.astype(np.intp)], dtype=object)
        extras = {"row": rows[:, -1].astype(np.int64) + self.first_row}
        if self.weight is not None:
            extras["weight"] = rows[:, -2]
        return Examples(
            name=self.name,
            X=pd.DataFrame(frame),
            y=np.array(self.classes)[rows[:, -3].astype(np.intp)],
            feature_names=tuple(frame),
            source=self.source,
            nominal=tuple(self.columns[place].name for place in self._kept("text")),
            extras=extras,
            unlabelled=self.unlabelled,
            target=self.target,
            first_row=self.first_row,
            notes=tuple(self.notes),
        )


def store_table(
    scan: Scan,
    write: Callable[[Array], None],
    *,
    weight: str | None = None,
    max_categories: int = 100,
    max_rows: int = 20_000,
    progress: ReadProgress | None = None,
) -> StoredTable:
    """Store the labelled rows of a scanned table as numbers, and learn how its columns are prepared.

    The preparation is the same as that of a table in memory: all rows are seen, none is held.

    Parameters
    ----------
    scan : Scan
        The table and what its columns hold. Dates, and what is neither number nor text, are left out.
    write : callable (ndarray of shape (n, d + 3))
        Called with the numbers of some rows at a time.
    weight : str or None
        The column with the row weights, which then is no feature; rows of weight zero are left out.
    max_categories : int
        The most different values of a column of texts.
    max_rows : int
        The most rows that are read at a time.
    progress : callable or None
        Called with the number of rows read so far, and the share of the file.

    Returns
    -------
    StoredTable

    Raises
    ------
    ValueError
        If no column is left, a weight is missing or negative, or a class has rows of weight zero only.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from polymargin.tables import open_table, scan_table
    >>> file = Path(tempfile.mkdtemp()) / "fruit.csv"
    >>> _ = file.write_text("weight,colour,fruit\\n150,green,apple\\n120,,orange\\n,red,apple\\n")
    >>> rows = []
    >>> stored = store_table(scan_table(open_table(file)), rows.append)
    >>> rows[0]
    array([[150.,   0.,   0.,   1.,   0.],
           [120.,  nan,   1.,   1.,   1.],
           [ nan,   1.,   0.,   1.,   2.]])
    >>> stored.features(rows[0][:, :2]).round(2)
    array([[ 1.22,  1.  ,  0.  ],
           [-1.22,  0.  ,  0.  ],
           [ 0.  ,  0.  ,  1.  ]])
    """
    check_weight(scan, weight)
    kinds: dict[str, Kind] = {
        name: kind for name, kind in scan.kinds.items() if kind in ("number", "text") and name != weight
    }
    if not kinds:
        raise ValueError(_nothing_to_learn_from(scan, list(notes_on_dates(scan))))
    reader = _Reader(scan, kinds, weight, max_categories)
    looks = _Looks(list(kinds), [kind == "number" for kind in kinds.values()])
    n_rows, weights = 0, 0.0
    counts = np.zeros(len(reader.classes), dtype=np.int64)
    for rows in _together(reader.rows(max_rows, progress), len(kinds) + 3):
        looks.add(rows)
        counts += np.bincount(rows[:, -3].astype(np.intp), minlength=counts.size)
        weights += float(rows[:, -2].sum())
        n_rows += len(rows)
        write(rows)
    if not counts.all():
        raise ValueError(
            f"all rows of the class {reader.classes[int(counts.argmin())]!r} have the weight zero; remove them"
        )
    columns = [_column(name, kind, place, looks, reader) for place, (name, kind) in enumerate(kinds.items())]
    notes = [*notes_on_rows(scan, scan.label_counts, reader.infinite), *notes_on_dates(scan)]
    for place, column in enumerate(columns):
        if column.kind == "text" and column.name in scan.first_texts:
            notes += notes_on_numbers(column.name, scan.first_texts[column.name][1])
        if column.left_out is not None:
            notes.append(f"column {column.name!r} is left out: {column.left_out}")
        elif column.kind == "number" and looks.rises[place] and n_rows >= NAMED_ROWS:
            notes.append(note_on_rising(column.name))
    if all(column.left_out is not None for column in columns):
        raise ValueError(_nothing_to_learn_from(scan, notes))
    return StoredTable(
        scan.table.name,
        scan.target,
        f"file {scan.table.path.name}",
        scan.table.first_row,
        n_rows,
        reader.classes,
        counts.tolist(),
        columns,
        weight,
        weights / n_rows,
        sum(scan.unlabelled.values()),
        notes,
    )


def _nothing_to_learn_from(scan: Scan, notes: list[str]) -> str:
    reasons = "; ".join(notes) or f"there is only the target {scan.target!r}"
    return f"{scan.table.name} has no column to learn from: {reasons}"


class _Reader:
    """Reads a table as rows of numbers."""

    def __init__(self, scan: Scan, kinds: dict[str, Kind], weight: str | None, most: int) -> None:
        self._scan, self._kinds, self._weight, self._most = scan, kinds, weight, most
        labels = typed_labels(scan.label_counts)
        self.classes: list[Any] = np.unique(list(labels.values())).tolist()
        self._index = {text: self.classes.index(label) for text, label in labels.items()}
        self.infinite: dict[str, int] = {}
        #: The code of every text, as far as there are not too many of a column.
        self.codes: dict[str, dict[str, int]] = {name: {} for name, kind in kinds.items() if kind == "text"}

    def rows(self, max_rows: int, progress: ReadProgress | None) -> Iterator[Array]:
        """Yield the labelled rows of positive weight."""
        scan = self._scan
        read: dict[str, Kind] = dict(self._kinds)
        if self._weight is not None:
            read[self._weight] = scan.kinds[self._weight]
        for batch in scan.table.batches([*read, scan.target], max_rows):
            found = label_texts(batch.cells.column(scan.target)).dictionary_encode()
            known = np.array([self._index.get(text, -1) for text in found.dictionary.to_pylist()] + [-1])
            index = known[found.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
            labelled = np.flatnonzero(index >= 0)
            if labelled.size:
                numbers = batch.start + labelled
                cells = batch.cells.take(pa.array(labelled))
                frame = frame_of(scan.table, cells, read, numbers, self.infinite)
                weights = np.ones(labelled.size)
                if self._weight is not None:
                    weights = checked_weights(scan, frame.pop(self._weight), numbers)
                columns = [self._numbers(frame[name], kind) for name, kind in self._kinds.items()]
                rows = np.column_stack([*columns, index[labelled], weights, numbers])
                yield rows[weights > 0.0]
            if progress is not None:
                progress(batch.start + batch.cells.num_rows, batch.share)

    def _numbers(self, column: pd.Series, kind: Kind) -> Array:
        """Return a column as numbers: texts as their codes, NaN for what is missing or has no code."""
        if kind == "number":
            return column.to_numpy()
        places, different = pd.factorize(column.to_numpy())
        codes = self.codes[str(column.name)]
        for text in different:
            if text not in codes and len(codes) <= self._most:  # one more than there may be: too many
                codes[text] = len(codes)
        known = np.array([codes.get(text, np.nan) for text in different] + [np.nan], dtype=np.float64)
        return known[places]


class _Looks:
    """What is learned of the columns as rows pass by, for all columns of numbers at once."""

    def __init__(self, names: list[str], numeric: list[bool]) -> None:
        self.names = names
        d = len(names)
        self.n_rows = 0
        self.count, self.mean, self.squares = np.zeros(d), np.zeros(d), np.zeros(d)
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
        #: The least and the largest difference between the number and that of the row.
        self.ahead, self.behind = np.full(d, -np.inf), np.full(d, np.inf)
        self.rises = np.array(numeric)
        self._last: Array = np.full(d, -np.inf)

    def add(self, rows: Array) -> None:
        """Learn from rows that follow the last ones."""
        X, numbers = rows[:, :-3], rows[:, -1:]
        here = ~np.isnan(X)
        count = here.sum(axis=0)
        mean = np.where(here, X, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = np.square(np.where(here, X - mean, 0.0)).sum(axis=0)
        together = np.maximum(self.count + count, 1)
        shift = mean - self.mean
        # Sums of squares about two means become one about the mean of all (Chan, Golub and LeVeque, 1983).
        self.squares += squares + np.square(shift) * self.count * count / together
        self.mean += shift * count / together
        self.count += count
        self.low = np.minimum(self.low, np.where(here, X, np.inf).min(axis=0))
        self.high = np.maximum(self.high, np.where(here, X, -np.inf).max(axis=0))
        difference = X - numbers
        self.ahead = np.maximum(self.ahead, np.where(here, difference, -np.inf).max(axis=0))
        self.behind = np.minimum(self.behind, np.where(here, difference, np.inf).min(axis=0))
        if self.rises.any():
            rising = (np.diff(X, axis=0, prepend=self._last[np.newaxis]) > 0).all(axis=0)
            self.rises &= rising & (np.floor(X) == X).all(axis=0)
            self._last = X[-1]
        self.n_rows += len(rows)


def _column(name: str, kind: Kind, place: int, looks: _Looks, reader: _Reader) -> StoredColumn:
    """Return what was learned of a column, and why it is left out, if it is."""
    if kind == "text":
        values = tuple(reader.codes[name])
        reason = _wrong_with_texts(len(values), int(looks.count[place]), looks.n_rows, name, reader)
        return StoredColumn(name, kind, reason, values=() if reason else values)
    reason = None
    if not looks.low[place] < looks.high[place]:
        reason = "it is empty" if not looks.count[place] else "it is constant"
    elif looks.count[place] == looks.n_rows >= NAMED_ROWS and looks.ahead[place] == looks.behind[place]:
        reason = "it counts the rows"
    n, mean, variance = looks.n_rows, float(looks.mean[place]), float(looks.squares[place]) / looks.n_rows
    # As scikit-learn has it: a deviation that is nothing but rounding is none.
    rounding = n * np.finfo(np.float64).eps * variance + (n * mean * np.finfo(np.float64).eps) ** 2
    return StoredColumn(name, kind, reason, mean, float(np.sqrt(variance)) if variance > rounding else 1.0)


def _wrong_with_texts(n_values: int, n_known: int, n_rows: int, name: str, reader: _Reader) -> str | None:
    if n_values == 0 or (n_values == 1 and n_known == n_rows):
        return "it is empty" if n_values == 0 else "it is constant"
    if n_values == n_known >= NAMED_ROWS and n_values <= reader._most:
        return "it has a different text in every row, like an identifier"
    if n_values > reader._most:
        reason = f"it has more than {reader._most} different texts (--max-categories); group them"
        if name in reader._scan.first_texts:
            row, text = reader._scan.first_texts[name]
            reason += f", or, if it should hold numbers, correct {text!r} in {reader._scan.table.row(row)}"
        return reason
    return None


def _together(parts: Iterator[Array], width: int) -> Iterator[Array]:
    """Yield the same rows, always so many at a time, and what is left."""
    held: list[Array] = []
    n_held = 0
    for part in parts:
        held.append(part)
        n_held += len(part)
        if n_held < _ROWS_TOGETHER:
            continue
        rows = np.concatenate(held)
        n_whole = len(rows) // _ROWS_TOGETHER * _ROWS_TOGETHER
        for start in range(0, n_whole, _ROWS_TOGETHER):
            yield rows[start : start + _ROWS_TOGETHER]
        held, n_held = [rows[n_whole:]], len(rows) - n_whole
    if n_held:
        yield np.concatenate([np.empty((0, width)), *held])
