"""The columns of a file that a fitted model needs, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from polymargin.tables._cells import Kind
from polymargin.tables._examples import frame_of
from polymargin.tables._files import Batch, Table
from polymargin.tables._table_preparation import TablePreparation


class TableReader:
    """Reads the columns that a model was fitted on from a file, batch by batch.

    Parameters
    ----------
    model : estimator
        A fitted classifier or pipeline. If it starts with a `TablePreparation`, columns are read as in its training; if
        with a `ColumnTransformer`, those that go to an encoder of categories as texts, all others as numbers.

    Attributes
    ----------
    kinds : dict of str to Kind
        The columns and what is read from them; empty if the model knows no names.
    infinite : dict of str to int
        How many infinite numbers have been found so far; they count as missing.
    unknown : dict of str to (int, str)
        How many rows have had a text so far that the model has not seen in training, and the first of these texts.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        first = model.steps[0][1] if isinstance(model, Pipeline) else model
        self.kinds = _kinds(first)
        known = first if isinstance(first, TablePreparation) else TablePreparation({})
        self._readings, self._missing = known.readings or {}, known.missing
        self.infinite: dict[str, int] = {}
        self.unknown: dict[str, tuple[int, str]] = {}
        self._values = _values(first)

    def columns(self, table: Table, besides: Sequence[str] = ()) -> list[str]:
        """Return the columns of the file that the model reads.

        A model that was fitted without names reads all columns but those in `besides`, and their number must match.

        Parameters
        ----------
        table : Table
            The file.
        besides : sequence of str
            Columns that are not features, such as the label.

        Returns
        -------
        list of str

        Raises
        ------
        ValueError
            If columns are missing; the message names them.
        """
        if self.kinds:
            present = set(table.columns)
            missing = [name for name in self.kinds if name not in present]
            if missing:
                raise ValueError(
                    f"{table.path.name} lacks {len(missing)} of the {len(self.kinds)} columns of the model: "
                    f"{', '.join(map(repr, missing))}"
                )
            table.check(list(self.kinds))
            return list(self.kinds)
        others = set(besides)
        names = [name for name in table.columns if name not in others]
        if len(names) != self._model.n_features_in_:
            raise ValueError(
                f"the model was fitted on {self._model.n_features_in_} columns without names, and "
                f"{table.path.name} has {len(names)}"
            )
        table.check(names)
        return names

    def frames(
        self, table: Table, besides: Sequence[str] = (), max_rows: int = 20_000
    ) -> Iterator[tuple[Any, Batch]]:
        """Yield the features of the rows, and the batches that they come from.

        Parameters
        ----------
        table : Table
            The file.
        besides : sequence of str
            Further columns to read, which are not features.
        max_rows : int
            The most rows of a batch.

        Yields
        ------
        frame : DataFrame or ndarray
            The input of the model; an array if it was fitted without names.
        batch : Batch
            The same rows as they stand in the file, with the columns in `besides`.
        """
        names = self.columns(table, besides)
        table.dialect = replace(table.dialect, missing=(*table.dialect.missing, *self._missing))
        kinds: dict[str, Kind] = self.kinds or dict.fromkeys(names, "number")
        read = set(names)
        others = [name for name in dict.fromkeys(besides) if name not in read]
        for batch in table.batches([*names, *others], max_rows):
            rows = np.arange(batch.start, batch.start + batch.cells.num_rows)
            frame = frame_of(table, batch.cells, kinds, rows, self.infinite, self._readings)
            self._count_unknown(frame)
            yield (frame if self.kinds else frame.to_numpy()), batch

    def _count_unknown(self, frame: Any) -> None:
        for name, values in self._values.items():
            texts = frame[name]
            new = texts[texts.notna() & ~texts.isin(values)]
            if len(new):
                before, example = self.unknown.get(name, (0, str(new.iloc[0])))
                self.unknown[name] = (before + len(new), example)


def _kinds(first: Any) -> dict[str, Kind]:
    """Return the columns that the first step of a model was fitted on and what they hold."""
    if isinstance(first, TablePreparation):
        return dict(first.columns)
    if isinstance(first, ColumnTransformer):
        return {
            str(name): "text" if _encodes(part) else "number"
            for _, part, names in first.transformers_
            if not (isinstance(part, str) and part == "drop")
            for name in names
        }
    return {str(name): "number" for name in getattr(first, "feature_names_in_", ())}


def _values(first: Any) -> dict[str, list[Any]]:
    """Return the texts that the first step of a model has seen in training, by column."""
    columns = first.transformer_ if isinstance(first, TablePreparation) else first
    if not isinstance(columns, ColumnTransformer):
        return {}
    return {
        str(name): list(values)
        for _, part, names in columns.transformers_
        for encoder in _steps(part)[:1]
        if isinstance(encoder, OneHotEncoder | OrdinalEncoder)
        for name, values in zip(names, encoder.categories_, strict=True)
    }


def _steps(part: Any) -> list[Any]:
    return [step for _, step in part.steps] if isinstance(part, Pipeline) else [part]


def _encodes(part: Any) -> bool:
    steps = _steps(part)
    return any(isinstance(step, OneHotEncoder | OrdinalEncoder) for step in steps)
