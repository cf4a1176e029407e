"""Frames in memory, of pandas, polars or Arrow, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from polymargin.tables._cells import Kind
from polymargin.tables._dialect import Dialect
from polymargin.tables._examples import frame_of
from polymargin.tables._files import Table
from polymargin.tables._looks import Reading

__all__ = ["FrameTable", "column_names", "typed_frame"]


class FrameTable(Table):
    """A frame in memory as a table.

    Parameters
    ----------
    frame : DataFrame of pandas or polars, or pyarrow.Table
        The frame. Its columns are found by their names, as texts.
    dialect : Dialect or None
        How texts that hold numbers are written.
    """

    in_memory = True

    def __init__(self, frame: Any, dialect: Dialect | None = None) -> None:
        super().__init__(Path("the frame"), column_names(frame), dialect)
        self._frame = frame

    def row(self, number: int) -> str:
        """Return how messages refer to a row: by its place, as in ``frame.iloc``."""
        return f"row {number} (counted from 0)"

    def cells(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return some columns, which must exist."""
        cells = [_arrow_cells(self._frame, self._places[name]) for name in columns]
        return pa.RecordBatch.from_arrays(cells, names=list(columns))

    def _batches(self, columns: Sequence[str], max_rows: int) -> Iterator[tuple[pa.RecordBatch, float]]:
        if columns:
            yield self.cells(columns), 1.0


def column_names(frame: Any) -> list[str]:
    """Return the names of the columns of a frame.

    Raises
    ------
    TypeError
        If it is no frame.
    """
    if isinstance(frame, pd.DataFrame):
        if frame.columns.nlevels > 1:
            raise TypeError(
                "columns must have one name each, and those of a MultiIndex have several: flatten them first, for "
                "example frame.columns = ['_'.join(map(str, names)) for names in frame.columns]"
            )
        return [str(name) for name in frame.columns]
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return list(frame.schema.names)
    if hasattr(frame, "to_arrow") and hasattr(frame, "columns"):
        return [str(name) for name in frame.columns]
    raise TypeError(
        f"a frame of pandas, polars or pyarrow is needed, whose columns have names, not {type(frame).__name__}"
    )


def typed_frame(
    frame: Any, kinds: Mapping[str, Kind], readings: Mapping[str, Reading], missing: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return columns of a frame as numbers, days since 1970-01-01, and texts; infinite numbers are missing.

    Parameters
    ----------
    frame : DataFrame of pandas or polars, or pyarrow.Table
        The frame.
    kinds : mapping of str to Kind
        The columns, and what they hold.
    readings : mapping of str to Reading
        How texts are read that hold numbers or dates.
    missing : tuple of str
        What else stands for a missing number or date.

    Returns
    -------
    DataFrame of pandas
        float64 columns with NaN, and object columns of texts with None.

    Raises
    ------
    ValueError
        If a text stands among numbers or dates; the message names row and column.
    """
    table = FrameTable(frame, Dialect(missing=missing))
    table.check(list(kinds))
    return frame_of(table, table.cells(list(kinds)), kinds, range(len(frame)), {}, readings)


def _arrow_cells(frame: Any, place: int) -> pa.Array:
    """Return a column of a frame in the memory format of Arrow."""
    if isinstance(frame, pd.DataFrame):
        return _of_pandas(frame.iloc[:, place])
    if not isinstance(frame, pa.Table | pa.RecordBatch):
        return frame.to_series(place).to_arrow()
    column = frame.column(place)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _of_pandas(column: pd.Series) -> pa.Array:
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    elif isinstance(
        values.dtype, pd.IntervalDtype | pd.PeriodDtype
    ):  # as of pd.cut: categories with a name each
        column = column.astype(str).where(column.notna(), None)
    elif values.dtype.kind == "c":  # what Arrow has no numbers for
        return pa.array([{"real": value.real, "imaginary": value.imag} for value in column])
    try:
        cells = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError):
        # Texts beside numbers, and types of pandas that Arrow does not know.
        texts = [
            None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)
        ]
        cells = pa.array(texts, pa.string())
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
