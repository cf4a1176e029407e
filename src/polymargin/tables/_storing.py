"""A table becomes rows of numbers, batch by batch, and what its columns need is learned on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from polymargin.tables._cells import Kind
from polymargin.tables._examples import check_weight, checked_weights, frame_of, notes_on_rows
from polymargin.tables._features import (
    check_used,
    notes_on_columns,
    reason_against_numbers,
    reason_against_texts,
    reasons_against_kinds,
)
from polymargin.tables._labels import label_texts, typed_labels
from polymargin.tables._scan import ReadProgress, Scan
from polymargin.tables._stored import StoredColumn, StoredTable, numbers_of

Array = NDArray[Any]

#: Sums are taken over so many rows at a time, however the table is read: the files it comes in do not matter then.
_ROWS_TOGETHER = 8192


def store_table(
    scan: Scan,
    write: Callable[[Array], None],
    *,
    weight: str | None = None,
    max_categories: int = 100,
    use: Collection[str] = (),
    max_rows: int = 20_000,
    progress: ReadProgress | None = None,
) -> StoredTable:
    """Store the labelled rows of a scanned table as numbers, and learn how its columns are prepared.

    The preparation is the same as that of a table in memory: all rows are seen, none is held.

    Parameters
    ----------
    scan : Scan
        The table and what its columns hold. What is neither number nor text nor date is left out.
    write : callable (ndarray of shape (n, d + 3))
        Called with the numbers of some rows at a time.
    weight : str or None
        The column with the row weights, which then is no feature; rows of weight zero are left out.
    max_categories : int
        The most different values of a column of texts.
    use : collection of str
        The columns that may look like identifiers.
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
    array([[ 1.22,  0.  ,  1.  ,  0.  ],
           [-1.22,  0.  ,  0.  ,  0.  ],
           [ 0.  ,  1.  ,  0.  ,  1.  ]])
    """
    check_weight(scan, weight)
    check_used(use, scan.columns, scan.target)
    not_stored = reasons_against_kinds(scan.columns, () if weight is None else (weight,))
    kinds: dict[str, Kind] = {
        name: kind for name, kind in scan.kinds.items() if name not in not_stored and name != weight
    }
    if not kinds:
        raise ValueError(_nothing_to_learn_from(scan, list(_notes(scan, not_stored, weight))))
    reader = _Reader(scan, kinds, weight, max_categories)
    looks = _Looks(list(kinds.values()))
    n_rows, weights = 0, 0.0
    counts = np.zeros(len(reader.classes), dtype=np.int64)
    for rows in _together(reader.rows(max_rows, progress), len(kinds) + 3):
        looks.add(rows[:, :-3])
        counts += np.bincount(rows[:, -3].astype(np.intp), minlength=counts.size)
        weights += float(rows[:, -2].sum())
        n_rows += len(rows)
        write(rows)
    if not counts.all():
        raise ValueError(
            f"all rows of the class {reader.classes[int(counts.argmin())]!r} have the weight zero; remove them"
        )
    columns = [
        _column(name, kind, place, looks, reader, use) for place, (name, kind) in enumerate(kinds.items())
    ]
    left_out = not_stored | {one.name: one.left_out for one in columns if one.left_out is not None}
    notes = [*notes_on_rows(scan, scan.label_counts, reader.infinite), *_notes(scan, left_out, weight)]
    if len(left_out) == len(columns) + len(not_stored):
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
        not_stored,
        scan.table.dialect.missing,
    )


def _notes(scan: Scan, left_out: dict[str, str], weight: str | None) -> Iterator[str]:
    return notes_on_columns(scan.columns, left_out, scan.table.first_row, () if weight is None else (weight,))


def _nothing_to_learn_from(scan: Scan, notes: list[str]) -> str:
    reasons = "; ".join(notes) or f"there is only the target {scan.target!r}"
    return f"{scan.table.name} has no column to learn from: {reasons}"


class _Reader:
    """Reads a table as rows of numbers."""

    def __init__(self, scan: Scan, kinds: dict[str, Kind], weight: str | None, most: int) -> None:
        self._scan, self._kinds, self._weight = scan, kinds, weight
        self.columns, self.most = scan.columns, most
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
                frame = frame_of(scan.table, cells, read, numbers, self.infinite, scan.columns.readings)
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
        if kind != "text":
            return column.to_numpy()
        places, different = pd.factorize(column.to_numpy())
        codes = self.codes[str(column.name)]
        for text in different:
            if text not in codes and len(codes) <= self.most:  # one more than there may be: too many
                codes[text] = len(codes)
        known = np.array([codes.get(text, np.nan) for text in different] + [np.nan], dtype=np.float64)
        return known[places]


class _Looks:
    """Sums over the columns of the rows that pass by; of a date, over its features."""

    def __init__(self, kinds: list[Kind]) -> None:
        self._kinds = kinds
        self.n_rows = 0
        #: Which sums belong to each column.
        self.places: list[slice] = []
        self.count = self.mean = self.squares = self.low = self.high = np.zeros(0)

    def add(self, rows: Array) -> None:
        """Learn from rows that follow the last ones."""
        parts = [
            rows[:, [place]] if kind == "text" else numbers_of(rows[:, [place]], kind)
            for place, kind in enumerate(self._kinds)
        ]
        X = np.hstack(parts)
        if not self.n_rows:
            ends = np.cumsum([part.shape[1] for part in parts])
            self.places = [slice(end - part.shape[1], end) for end, part in zip(ends, parts, strict=True)]
            self.count, self.mean, self.squares = np.zeros((3, X.shape[1]))
            self.low, self.high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
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
        self.n_rows += len(rows)


def _column(
    name: str, kind: Kind, number: int, looks: _Looks, reader: _Reader, use: Collection[str]
) -> StoredColumn:
    """Return what was learned of a column, and why it is left out, if it is."""
    places = looks.places[number]
    n_known = int(looks.count[places][0])
    if kind == "text":
        values = tuple(reader.codes[name])
        if len(values) > reader.most:  # not all of them are known
            n_known = looks.n_rows + 1
        reason = reason_against_texts(len(values), n_known, looks.n_rows, reader.most)
        return StoredColumn(name, kind, reason, values=() if reason else values)
    low, high = (looks.low[places][0], looks.high[places][0]) if n_known else (np.nan, np.nan)
    n, mean, variance = looks.n_rows, looks.mean[places], looks.squares[places] / looks.n_rows
    # As scikit-learn has it: a deviation that is nothing but rounding is none.
    rounding = n * np.finfo(np.float64).eps * variance + (n * mean * np.finfo(np.float64).eps) ** 2
    scales = np.where(variance > rounding, np.sqrt(variance), 1.0)
    return StoredColumn(
        name,
        kind,
        reason_against_numbers(name, low, high, reader.columns, use),
        tuple(mean.tolist()),
        tuple(scales.tolist()),
        n_known < n,
        reading=reader.columns.readings.get(name),
    )


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
