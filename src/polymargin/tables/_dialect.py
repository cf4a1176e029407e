"""How a CSV file is written: its separator, its decimal mark, its characters, and whether it has a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from polymargin.tables._cells import MISSING_NUMBER

__all__ = ["Dialect", "find_delimiter", "looks_like_data"]

_DELIMITERS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
_NUMBER = re.compile(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Dialect:
    r"""How a CSV file is written, as far as this is known before it is read; None is found out.

    Parameters
    ----------
    delimiter : str or None, default=None
        The character between two fields; None: comma, semicolon, tab or ``|``, whichever fits the first lines.
    decimal : {".", ","} or None, default=None
        What separates whole numbers from fractions; None: the one in which all numbers of a column can be read.
    encoding : str or None, default=None
        How characters are written; None: UTF-8, UTF-16 with a byte order mark, else cp1252.
    header : bool or None, default=None
        Whether the first row has the names of the columns; None: it must, and what seems to be data is refused.
        Without, columns are called x1, x2, ….
    missing : tuple of str, default=()
        What else stands for a missing number or date, such as "none of these".

    Examples
    --------
    >>> Dialect(delimiter="tab").delimiter
    '\t'
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = {"tab": "\t", r"\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", named.get(self.delimiter.lower(), self.delimiter))
            if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
                raise ValueError(f"the delimiter must be a single character, or tab, not {self.delimiter!r}")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"the decimal mark must be . or , and not {self.decimal!r}")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                raise ValueError(
                    f"there is no encoding {self.encoding!r}; utf-8, cp1252, latin-1 and utf-16 are some"
                ) from None

    @property
    def decimals(self) -> tuple[str, ...]:
        """The decimal marks that are possible."""
        return (".", ",") if self.decimal is None else (self.decimal,)

    @property
    def missing_numbers(self) -> tuple[str, ...]:
        """What stands for a missing number or date, in lower case."""
        return (*MISSING_NUMBER, *(text.strip().lower() for text in self.missing))


def find_delimiter(lines: Sequence[str]) -> str:
    """Return what separates the fields of these lines, the first of which is the header.

    Of several characters that the header has it is the one with which most lines have as many fields as the header.

    Examples
    --------
    >>> find_delimiter(["city, land;size\\n", "Bonn, DE;1,5\\n", "Rome;2\\n"]), find_delimiter(["a|b\\n"])
    (';', '|')
    """
    unquoted = _QUOTED.sub("", lines[0])
    counts = {delimiter: unquoted.count(delimiter) for delimiter in _DELIMITERS if delimiter in unquoted}
    if len(counts) < 2:
        return next(iter(counts), ",")

    def fitting(delimiter: str) -> tuple[float, int]:
        try:
            n_fields = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            return 0.0, 0
        # The last one may not be complete.
        same = [n == n_fields[0] for n in n_fields[1:-1] or n_fields]
        return sum(same) / len(same), counts[delimiter]

    return max(counts, key=fitting)


def looks_like_data(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Return why the first row of a file seems to be data, None if it may be names.

    Names may be numbers, such as years or wavelengths, if they ascend. A name is not one of the values of its column.

    Examples
    --------
    >>> looks_like_data(["5.1", "3.5", "setosa"], [["4.9", "3.0", "setosa"]])
    'the numbers 5.1, 3.5'
    >>> looks_like_data(["yes", "no"], [["no", "no"], ["yes", "no"]])
    "the value 'no' of row 2 again"
    >>> looks_like_data(["name", "1990", "2000"], [["name 1", "1", "2"]]) is None
    True
    """
    numeric = [name for name in names if _NUMBER.fullmatch(name)]
    values = [float(name.replace(",", ".")) for name in numeric]
    ascending = all(one < other for one, other in pairwise(values))
    if not ascending or (len(values) < 3 and not all(_WHOLE.fullmatch(name) for name in numeric)):
        return f"the number{'s' * (len(numeric) > 1)} {', '.join(numeric[:3])}"
    again: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        for name, cell in zip(names, row, strict=False):
            if name and name == cell.strip() and name not in numeric:
                again.setdefault(name, number)
    # A column or two may well be called like one of their values.
    if again and 2 * len(again) > len({name for name in names if name} - set(numeric)):
        name, number = next(iter(again.items()))
        return f"the value {name!r} of row {number} again"
    return None
