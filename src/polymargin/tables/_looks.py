"""What columns hold, learned as their cells pass by, so that no type changes half-way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polymargin.tables._cells import (
    ISO,
    MISSING_NUMBER,
    Kind,
    NotRead,
    days,
    is_text,
    kind_of,
    numbers,
    objects,
    plain,
    texts,
)
from polymargin.tables._identifiers import Numbering

__all__ = ["ColumnLook", "Columns", "Reading", "look_at"]

#: How texts of a column are read: the decimal mark of numbers, or the format of dates.
Reading = str

#: Of 01/02/2024 the day comes first, unless a column has a date that tells.
_DAYS = (
    *("%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%d. %B %Y"),
    *("%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%a, %d %b %Y", "%A, %d %B %Y", "%A, %B %d, %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", ", %H:%M:%S")
_FORMATS = (ISO, *(day + time for day, time in product(_DAYS, _TIMES)))
#: Only what looks like this is tried in all formats, which takes a millisecond.
_LIKE_A_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d.*(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec).*\d",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Columns:
    """What the columns of a table hold.

    Attributes
    ----------
    kinds : dict of str to Kind
        What every column holds.
    readings : dict of str to Reading
        How texts are read that hold numbers with a decimal comma, or dates.
    first_texts : dict of str to (int, str)
        Of every column of texts, the row of its first text that is no number, and that text; with the decimal mark
        that lets more texts before it be numbers.
    suspects : dict of str to str
        The columns of numbers that look like an identifier, and why.
    rising : tuple of str
        The other columns whose whole numbers rise from row to row.
    notes : dict of str to str
        What was decided about columns of texts that can be read in two ways.
    missing : tuple of str
        What else stands for a missing number or date.
    commas : tuple of str
        The columns of numbers with a decimal comma in which there are commas or points.
    """

    kinds: dict[str, Kind]
    readings: dict[str, Reading] = field(default_factory=dict)
    first_texts: dict[str, tuple[int, str]] = field(default_factory=dict)
    suspects: dict[str, str] = field(default_factory=dict)
    rising: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    commas: tuple[str, ...] = ()


class ColumnLook:
    """What is learned of one column.

    Parameters
    ----------
    name : str
        Its name.
    type_ : pyarrow.DataType
        The type of its cells.
    decimals : sequence of {".", ","}
        The decimal marks that texts may have.
    missing : tuple of str
        What stands for a missing number or date, in lower case.
    """

    def __init__(
        self,
        name: str,
        type_: pa.DataType,
        decimals: Sequence[str],
        missing: tuple[str, ...] = MISSING_NUMBER,
    ) -> None:
        self._missing = missing
        self.of_texts = is_text(type_)
        self.kind: Kind = "number" if self.of_texts else kind_of(type_)
        #: The decimal marks, and formats of dates, in which all texts so far can be read.
        self.decimals = list(decimals) if self.of_texts else ["."]
        self.formats: list[str] | None = None
        self.first_text: tuple[int, str] | None = None
        #: Whether there are commas or points, so that it matters which of them is the decimal mark.
        self.marked = False
        self.numbering = Numbering(name)
        self._empty = True

    def add(self, start: int, cells: pa.Array) -> None:
        """Learn from cells that follow the last ones; `start` rows come before them."""
        if self.kind in ("text", "other"):
            return
        if self.kind == "number":
            self._as_numbers(start, cells)
        if self.kind in ("date", "time"):
            self._as_dates(start, cells)

    def _as_numbers(self, start: int, cells: pa.Array) -> None:
        values = None
        for decimal in list(self.decimals):
            if decimal == "," and values is not None and not _has(cells, "[.,]"):
                continue  # the same numbers in both readings
            self.marked = self.marked or decimal == ","
            try:
                found = numbers(cells, decimal, self._missing)
                values = found if values is None else values
            except NotRead as not_read:
                self.decimals.remove(decimal)
                row = start + not_read.place
                if (
                    self.first_text is None or row > self.first_text[0]
                ):  # with the other mark, more can be read
                    self.first_text = row, not_read.text
        if values is not None:
            self._empty = self._empty and bool(np.isnan(values).all())
            self.numbering.add(values)
        elif self._empty:
            self.kind = "date"
        else:
            self.kind = "text"

    def _as_dates(self, start: int, cells: pa.Array) -> None:
        self.numbering.active = False
        values = None
        if not self.of_texts:
            values = days(cells)
        else:
            if self.formats is None:
                self.formats = _formats_of(cells, self._missing)
            for written in list(self.formats):
                try:
                    found = days(cells, written, self._missing)
                    values = found if values is None else values
                except NotRead:
                    self.formats.remove(written)
        if values is None:
            self.kind = "text"
        elif np.nanmax(values % 1.0, initial=0.0) > 0.0:
            self.kind = "time"


def look_at(looks: Mapping[str, ColumnLook], missing: tuple[str, ...] = ()) -> Columns:
    """Return what was learned of all columns; one that can be read in two ways is read like the others.

    Parameters
    ----------
    looks : mapping of str to ColumnLook
        What was learned of each.
    missing : tuple of str
        What the user says stands for a missing number or date.

    Returns
    -------
    Columns
    """
    readings: dict[str, Reading] = {}
    notes: dict[str, str] = {}
    marks = [look.decimals for look in looks.values() if look.kind == "number" and look.of_texts]
    comma = [","] in marks and ["."] not in marks
    for name, look in looks.items():
        if look.kind == "number" and "," in look.decimals and (comma or look.decimals == [","]):
            readings[name] = ","
        elif look.formats and look.kind in ("date", "time"):
            readings[name] = look.formats[0]
            if len({order for written in look.formats if (order := _day_first(written)) is not None}) > 1:
                notes[name] = (
                    f"column {name!r}: every date can be read in two ways, and is read as {_in_words(look.formats[0])}"
                )
    suspects = {name: reason for name, look in looks.items() if (reason := _suspicion(look)) is not None}
    return Columns(
        {name: look.kind for name, look in looks.items()},
        readings,
        {
            name: look.first_text
            for name, look in looks.items()
            if look.kind == "text" and look.first_text is not None
        },
        suspects,
        tuple(
            name
            for name, look in looks.items()
            if look.kind == "number" and look.numbering.rising and name not in suspects
        ),
        notes,
        missing,
        tuple(name for name, look in looks.items() if readings.get(name) == "," and look.marked),
    )


def _suspicion(look: ColumnLook) -> str | None:
    return look.numbering.suspicion() if look.kind == "number" else None


def _formats_of(cells: pa.Array, missing: Iterable[str]) -> list[str]:
    """Return the formats in which the first text is a date."""
    known = objects(texts(cells, tuple(missing)).drop_null().slice(0, 1)).tolist()
    if not known or not _LIKE_A_DATE.search(known[0]):
        return []
    return [written for written in _FORMATS if written == ISO or _is_date(known[0], written)]


def _is_date(text: str, written: str) -> bool:
    try:
        datetime.strptime(text, written)
    except ValueError:
        return False
    return True


def _has(cells: pa.Array, pattern: str) -> bool:
    cells = plain(cells)
    return is_text(cells.type) and bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())


def _day_first(written: str) -> bool | None:
    """Return whether the number of the day stands before that of the month; None if only one of them is a number."""
    return written.index("%d") < written.index("%m") if "%d" in written and "%m" in written else None


def _in_words(written: str) -> str:
    """Return a format of dates as people write it.

    >>> _in_words("%d/%m/%Y %H:%M")
    'day/month/year hour:minute'
    """
    words = {
        "%d": "day",
        "%m": "month",
        "%Y": "year",
        "%y": "year",
        "%H": "hour",
        "%M": "minute",
        "%S": "second",
    }
    return re.sub("%[a-zA-Z]", lambda found: words.get(found[0], found[0]), written)
