"""Cells of a column: from what a file holds to numbers or texts."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: What a column holds.
Kind = Literal["number", "text", "date", "other"]

#: What stands for a missing label, in any case of letters; "none" may well be the name of a class.
MISSING_LABEL = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "?")
#: What stands for a missing value.
MISSING = (*MISSING_LABEL, "none")


class NotANumber(ValueError):
    """A text among numbers; `place` is where in the column."""

    def __init__(self, place: int, text: str) -> None:
        super().__init__(f"{text!r} is no number")
        self.place, self.text = place, text


def kind_of(type_: pa.DataType) -> Kind:
    """Return what a column of this Arrow type holds; texts may turn out to be numbers.

    Examples
    --------
    >>> kind_of(pa.dictionary(pa.int8(), pa.string())), kind_of(pa.bool_()), kind_of(pa.timestamp("s"))
    ('text', 'number', 'date')
    """
    if pa.types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if _is_text(type_):
        return "text"
    if pa.types.is_temporal(type_):
        return "date"
    tests = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_null,
    )
    return "number" if any(test(type_) for test in tests) else "other"


def numbers(cells: pa.Array) -> NDArray[np.float64]:
    """Return the cells as numbers, NaN where one is missing; true and false are 1 and 0.

    Raises
    ------
    NotANumber
        If a cell is neither a number nor missing.

    Examples
    --------
    >>> numbers(pa.array(["1.5", " 2 ", "NA", "+3", "true"]))
    array([1.5, 2. , nan, 3. , 1. ])
    """
    cells = _plain(cells)
    if not _is_text(cells.type):
        cells = cells.cast(pa.uint8()) if pa.types.is_boolean(cells.type) else cells
        return _floats(cells.cast(pa.float64(), safe=False))
    try:  # nearly every column of numbers is written so that Arrow reads it, which is quick
        return _floats(pc.if_else(pc.equal(cells, ""), None, cells).cast(pa.float64()))
    except pa.ArrowInvalid:
        return _patient_numbers(texts(cells))


def texts(cells: pa.Array, missing: tuple[str, ...] = MISSING) -> pa.Array:
    """Return the cells as texts without surrounding blanks, null where one is missing.

    Examples
    --------
    >>> texts(pa.array([" red", "", "N/A", "None"])).to_pylist()
    ['red', None, None, None]
    """
    cells = _plain(cells)
    if not _is_text(cells.type):
        cells = cells.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(cells)
    return pc.if_else(pc.is_in(pc.utf8_lower(trimmed), pa.array(missing, trimmed.type)), None, trimmed)


def objects(cells: pa.Array) -> NDArray[Any]:
    """Return texts as an array of Python objects, None where one is missing."""
    return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=object)


def holds_texts(column: pd.Series) -> bool:
    """Tell whether a column of a frame holds texts rather than numbers, booleans included."""
    return not pd.api.types.is_numeric_dtype(column.dtype)


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _plain(cells: pa.Array) -> pa.Array:
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _floats(cells: pa.Array) -> NDArray[np.float64]:
    return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)


def _patient_numbers(cells: pa.Array) -> NDArray[np.float64]:
    """Read what Arrow does not: blanks around numbers, words for missing values, true and false, a plus sign."""
    column = pd.Series(objects(cells), dtype=object)
    values = np.array(pd.to_numeric(column, errors="coerce"), dtype=np.float64)
    truth = _floats(
        pc.index_in(pc.utf8_lower(cells), pa.array(["false", "true"], cells.type)).cast(pa.float64())
    )
    unread = np.isnan(values) & cells.is_valid().to_numpy(zero_copy_only=False)
    values[unread] = truth[unread]
    for place in np.flatnonzero(np.isnan(values) & unread):
        try:  # pandas 2 does not read numbers beyond the range of double precision, such as 1e400
            values[place] = pa.scalar(column[place]).cast(pa.float64()).as_py()
        except pa.ArrowInvalid:
            raise NotANumber(int(place), column[place]) from None
    return values
