"""Cells of a column: from what a file or a frame holds to numbers, days or texts."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: What a column holds; a time is a date with the time of day.
Kind = Literal["number", "text", "date", "time", "other"]

#: What stands for a missing label, in any case of letters; "none" may well be the name of a class.
MISSING_LABEL = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "?")
#: What stands for a missing value.
MISSING = (*MISSING_LABEL, "none")
#: What stands for a missing value among numbers and dates, where it cannot be a value like the others.
MISSING_NUMBER = (
    *MISSING,
    *(
        "-",
        "--",
        "---",
        "–",
        "—",
        ".",
        "..",
        "...",
        "…",
        "??",
        "n.a.",
        "n. a.",
        "n/k",
        "nd",
        "n.d.",
        "nil",
        "nat",
    ),
    *(
        "missing",
        "unknown",
        "not available",
        "not applicable",
        "#value!",
        "#div/0!",
        "#ref!",
        "#name?",
        "#num!",
    ),
)
#: How dates are written unless a column says otherwise: 2024-01-31, perhaps with a time of day.
ISO = "ISO8601"


class NotRead(ValueError):
    """A text among numbers or dates; `place` is where in the column."""

    def __init__(self, place: int, text: str, kind: Kind) -> None:
        super().__init__(f"{text!r} is no {kind}")
        self.place, self.text = place, text


def kind_of(type_: pa.DataType) -> Kind:
    """Return what a column of this Arrow type holds; texts may turn out to be numbers or dates, and dates times.

    Categories are texts, also if they are called by numbers.

    Examples
    --------
    >>> kind_of(pa.dictionary(pa.int8(), pa.int64())), kind_of(pa.bool_()), kind_of(pa.timestamp("s"))
    ('text', 'number', 'date')
    """
    if pa.types.is_dictionary(type_):
        kind = kind_of(type_.value_type)
        return "text" if kind == "number" else kind
    if is_text(type_):
        return "text"
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return "date"
    tests = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_duration,
        pa.types.is_null,
    )
    return "number" if any(test(type_) for test in tests) else "other"


def numbers(
    cells: pa.Array, decimal: str = ".", missing: tuple[str, ...] = MISSING_NUMBER
) -> NDArray[np.float64]:
    """Return the cells as numbers, NaN where one is missing; true and false are 1 and 0, durations are in days.

    Texts may have thousands separators, a currency or a per cent sign; 12 % is 12.

    Parameters
    ----------
    cells : pyarrow.Array
        The cells.
    decimal : {".", ","}
        What separates whole numbers from fractions. The other one, blanks and apostrophes separate thousands.
    missing : tuple of str
        What stands for a missing value, in lower case.

    Raises
    ------
    NotRead
        If a cell is neither a number nor missing.

    Examples
    --------
    >>> numbers(pa.array(["1.5", " 2 ", "NA", "+3", "true", "$1,234.50", "12 %", "-"]))
    array([1.5000e+00, 2.0000e+00,        nan, 3.0000e+00, 1.0000e+00,
           1.2345e+03, 1.2000e+01,        nan])
    >>> numbers(pa.array(["1.234,5", "1,5 €"]), ",")
    array([1234.5,    1.5])
    """
    cells = plain(cells)
    if not is_text(cells.type):
        if pa.types.is_duration(cells.type):
            return floats(cells.cast(pa.duration("us"), safe=False).cast(pa.int64())) / _MICROSECONDS
        cells = cells.cast(pa.uint8()) if pa.types.is_boolean(cells.type) else cells
        return floats(cells.cast(pa.float64(), safe=False))
    try:  # nearly every column of numbers is written so that Arrow reads it, which is quick
        if decimal == "." or not pc.any(pc.match_substring(cells, ".")).as_py():
            pointed = pc.replace_substring(cells, decimal, ".") if decimal != "." else cells
            return floats(pc.if_else(pc.equal(pointed, ""), None, pointed).cast(pa.float64()))
    except pa.ArrowInvalid:
        pass
    _refuse_texts(cells, decimal, missing)
    return _patient_numbers(texts(cells, missing), decimal)


def days(
    cells: pa.Array, written: str = ISO, missing: tuple[str, ...] = MISSING_NUMBER
) -> NDArray[np.float64]:
    """Return dates as days since 1970-01-01, NaN where one is missing; times of day are fractions.

    Numbers are taken for days already.

    Parameters
    ----------
    cells : pyarrow.Array
        The cells.
    written : str
        How dates in texts are written: "ISO8601", or a format of `datetime.strptime`.
    missing : tuple of str
        What stands for a missing value, in lower case.

    Raises
    ------
    NotRead
        If a text is neither a date written like this nor missing.

    Examples
    --------
    >>> days(pa.array(["1970-01-02", "1970-01-02T12:00", "-"]))
    array([1. , 1.5, nan])
    >>> days(pa.array(["2 January 1970"]), "%d %B %Y")
    array([1.])
    """
    cells = plain(cells)
    if is_text(cells.type):
        known = texts(cells, missing)
        column = pd.Series(objects(known), dtype=object)
        found = pd.to_datetime(column, format=written, errors="coerce", utc=True)
        wrong = np.flatnonzero(found.isna().to_numpy() & known.is_valid().to_numpy(zero_copy_only=False))
        if wrong.size:
            raise NotRead(int(wrong[0]), column[wrong[0]], "date")
        moments = found.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    elif kind_of(cells.type) == "number":
        return numbers(cells)
    else:
        whole = cells.cast(pa.timestamp("us", getattr(cells.type, "tz", None)), safe=False)
        moments = whole.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return np.asarray(moments, dtype=np.float64) / _MICROSECONDS
    since = (moments - np.datetime64(0, "us")).astype(np.float64)
    return np.where(np.isnat(moments), np.nan, since / _MICROSECONDS)


def texts(cells: pa.Array, missing: tuple[str, ...] = MISSING) -> pa.Array:
    """Return the cells as texts without surrounding blanks, null where one is missing.

    Examples
    --------
    >>> texts(pa.array([" red", "", "N/A", "None"])).to_pylist()
    ['red', None, None, None]
    """
    cells = plain(cells)
    if not is_text(cells.type):
        cells = cells.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(cells)
    return pc.if_else(pc.is_in(pc.utf8_lower(trimmed), pa.array(missing, trimmed.type)), None, trimmed)


def objects(cells: pa.Array) -> NDArray[Any]:
    """Return texts as an array of Python objects, None where one is missing."""
    return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=object)


def holds_texts(column: pd.Series) -> bool:
    """Tell whether a column of a frame holds texts rather than numbers, booleans included."""
    return not pd.api.types.is_numeric_dtype(column.dtype)


def is_text(type_: pa.DataType) -> bool:
    """Tell whether cells of this type are texts."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def plain(cells: pa.Array) -> pa.Array:
    """Return cells without a dictionary, and texts not as views, with which much of Arrow cannot compute."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    return cells.cast(pa.large_string()) if pa.types.is_string_view(cells.type) else cells


def floats(cells: pa.Array) -> NDArray[np.float64]:
    """Return numbers as an array of NumPy, NaN where one is missing."""
    return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)


_MICROSECONDS = 86_400e6
#: So many cells are looked at first: there may be many columns of texts.
_FEW = 16
_CURRENCY = (
    r"(?:US\$|R\$|[$€£¥₹₽₩₺฿]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|BRL|SEK|NOK|DKK|PLN|CZK|HUF"
    r"|Fr\.|kr\.?|zł|Kč)"
)
_SIGN = r"[+\-−]?"
_BLANKS = "[\\s\u00a0\u202f]*"


def _number_pattern(decimal: str) -> str:
    separators = [separator for separator in ",. '’\u00a0\u202f\u2009" if separator != decimal]
    grouped = "|".join(rf"\d{{1,3}}(?:{re.escape(one)}\d{{3}})+" for one in separators)
    point = re.escape(decimal)
    return (
        rf"^(?P<sign>{_SIGN}){_BLANKS}(?:{_CURRENCY}{_BLANKS}(?P<inner>{_SIGN}))?"
        rf"(?P<number>(?:\d+|{grouped})(?:{point}\d*)?|{point}\d+)(?P<power>(?:[eE][+-]?\d+)?)"
        rf"{_BLANKS}(?:%|{_CURRENCY})?$"
    )


_NUMBERS = {decimal: _number_pattern(decimal) for decimal in (".", ",")}
_COMPILED = {decimal: re.compile(pattern) for decimal, pattern in _NUMBERS.items()}


def _refuse_texts(cells: pa.Array, decimal: str, missing: tuple[str, ...]) -> None:
    """Raise NotRead if one of the first cells is no number, quickly."""
    for place, cell in enumerate(cells.slice(0, _FEW).to_pylist()):
        text = "" if cell is None else cell.strip()
        if not _COMPILED[decimal].match(text) and text.lower() not in missing and text.lower() not in _WORDS:
            raise NotRead(place, text, "number")


def _patient_numbers(cells: pa.Array, decimal: str) -> NDArray[np.float64]:
    """Read what Arrow does not: thousands, decimal commas, currencies, per cent, true and false, plus signs."""
    found = pc.extract_regex(cells, _NUMBERS[decimal])
    sign, inner, number, power = (
        pc.struct_field(found, name) for name in ("sign", "inner", "number", "power")
    )
    if decimal == ",":
        number = pc.replace_substring(pc.replace_substring(number, ".", ""), ",", ".")
    number = pc.replace_substring_regex(number, "[^0-9.]", "")
    none, minus = pa.scalar("", cells.type), pa.scalar("-", cells.type)
    is_negative = pc.match_substring_regex(
        pc.binary_join_element_wise(sign, pc.fill_null(inner, none), none), "[-−]"
    )
    signed = pc.binary_join_element_wise(pc.if_else(is_negative, minus, none), number, power, none)
    values = floats(signed.cast(pa.float64()))
    unread = ~found.is_valid().to_numpy(zero_copy_only=False) & cells.is_valid().to_numpy(
        zero_copy_only=False
    )
    for place in np.flatnonzero(unread):
        text = cells[int(place)].as_py()
        if text.lower() not in _WORDS:
            raise NotRead(int(place), text, "number")
        values[place] = _WORDS[text.lower()]
    return values


_WORDS = {"true": 1.0, "false": 0.0} | {
    f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in ("inf", "infinity", "∞")
}
