"""A table as rows of numbers, one batch after the other, for tables larger than memory.

Every labelled row becomes as many numbers as the table has columns of numbers and texts (texts as codes, NaN where a
cell is missing), then the index of its class, its weight, and its number in the table. What the preparation of the
columns needs, means, deviations and the values of texts, is learned as they pass by, exactly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from polymargin._preparation import DateFeatures
from polymargin.tables._cells import Kind
from polymargin.tables._examples import Examples
from polymargin.tables._looks import Columns
from polymargin.tables._table_preparation import TablePreparation

Array = NDArray[Any]

#: The transformer of a single column of dates.
DATE_FEATURES = {
    kind: DateFeatures(time_of_day=kind == "time").fit(np.zeros((1, 1))) for kind in ("date", "time")
}


@dataclass(frozen=True)
class StoredColumn:
    """A column of a stored table.

    Attributes
    ----------
    name : str
        Its name.
    kind : {"number", "date", "time", "text"}
        What it holds.
    left_out : str or None
        Why it is not learned from; None if it is.
    means, scales : tuple of float
        Of a number, or of the features of a date: what missing ones are replaced by, and their standard deviations
        then.
    incomplete : bool
        Whether a number or a date is missing.
    values : tuple of str
        Of texts: the different ones, in the order of their codes.
    reading : str or None
        How texts are read that hold numbers or dates; see `Columns`.
    """

    name: str
    kind: Kind
    left_out: str | None
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    incomplete: bool = False
    values: tuple[str, ...] = ()
    reading: str | None = None


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
    not_stored : dict of str to str
        The columns that are not stored, and why.
    missing : tuple of str
        What else stands for a missing number or date.

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
    not_stored: dict[str, str]
    missing: tuple[str, ...] = ()

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
            StoredColumn(**{name: _tuples(value) for name, value in column.items()})
            for column in document["columns"]
        ]
        return cls(**{**document, "columns": columns, "missing": tuple(document["missing"])})

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that are not learned from, and why."""
        reasons = {column.name: column.left_out for column in self.columns if column.left_out is not None}
        return self.not_stored | reasons

    def _kept(self, *kinds: Kind) -> list[int]:
        """Return the places of the columns of some kinds that are learned from, kind by kind."""
        return [
            place
            for kind in kinds
            for place, column in enumerate(self.columns)
            if column.kind == kind and column.left_out is None
        ]

    @property
    def n_features(self) -> int:
        """The number of features of a row."""
        columns = [self.columns[place] for place in self._kept(*_NUMERIC, "text")]
        return sum(len(column.means) + column.incomplete + len(column.values) for column in columns)

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
        parts = []
        for kind in _NUMERIC:
            places = self._kept(kind)
            if not places:
                continue
            means = np.concatenate([self.columns[place].means for place in places])
            numbers = numbers_of(rows[:, places], kind)
            numbers = np.where(np.isnan(numbers), means, numbers)
            numbers -= means
            numbers /= np.concatenate([self.columns[place].scales for place in places])
            parts.append(numbers)
        incomplete = [place for place in self._kept(*_NUMERIC) if self.columns[place].incomplete]
        parts.append(np.isnan(rows[:, incomplete]).astype(np.float64))
        for place in self._kept("text"):
            values = self.columns[place].values
            order = np.argsort(np.array(values, dtype=object), kind="stable")
            parts.append((rows[:, place, np.newaxis] == order).astype(np.float64))
        return np.ascontiguousarray(np.hstack(parts))

    def preparation(self) -> TablePreparation:
        """Return the fitted transformer of the table's columns into features.

        Returns
        -------
        TablePreparation
        """
        kept = [self.columns[place] for place in sorted(self._kept(*_NUMERIC, "text"))]
        found = TablePreparation(
            {column.name: column.kind for column in kept},
            {column.name: column.reading for column in kept if column.reading is not None},
            self.missing,
            self.left_out,
        )
        # Fitted to a frame with the same values and gaps, it needs the other means and deviations only.
        n_rows = max([2, *(len(column.values) for column in kept)])
        frame = {
            column.name: np.resize(np.array(column.values or [0.0], dtype=object), n_rows) for column in kept
        }
        for column in kept:
            if column.kind != "text":
                frame[column.name] = np.zeros(n_rows)
                frame[column.name][0] = np.nan if column.incomplete else 0.0
        found.fit(pd.DataFrame(frame))
        for kind, part in zip(_NUMERIC, ("numbers", "dates", "times"), strict=True):
            columns = [self.columns[place] for place in self._kept(kind)]
            if not columns:
                continue
            *_, imputer, scaler = (step for _, step in found.transformer_.named_transformers_[part].steps)
            means, scales = (
                np.concatenate([getattr(one, name) for one in columns]) for name in ("means", "scales")
            )
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
        for place in sorted(self._kept(*_NUMERIC, "text")):
            column = self.columns[place]
            if column.kind != "text":
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
            columns=Columns(
                {column.name: column.kind for column in self.columns},
                {column.name: column.reading for column in self.columns if column.reading is not None},
                missing=self.missing,
            ),
            left_out=self.left_out,
        )


_NUMERIC: tuple[Kind, ...] = ("number", "date", "time")


def numbers_of(columns: Array, kind: Kind) -> Array:
    """Return stored columns of numbers as they are, of dates their features, shape (n, p)."""
    return columns if kind == "number" else _date_features(columns, kind)


def _date_features(columns: Array, kind: Kind) -> Array:
    made = [DATE_FEATURES[kind].transform(columns[:, [place]]) for place in range(columns.shape[1])]
    return np.hstack(made)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
