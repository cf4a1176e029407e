"""Which columns of a table are features that a kernel can use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from polymargin.tables._cells import holds_texts
from polymargin.tables._examples import Examples
from polymargin.tables._scan import Scan

#: Of fewer rows nothing is said about identifiers and numbers of rows.
NAMED_ROWS = 20
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,.' ]\d{3})+(?:[.,]\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def choose_features(examples: Examples, scan: Scan | None = None, *, max_categories: int = 100) -> Examples:
    """Leave out the columns that teach a kernel nothing, and note which and why.

    These are: numbers that only count the rows, columns with a single value or none, texts that are different in
    every row, and texts with too many different values to give each an indicator of its own. Whole numbers that rise
    from row to row may be something to learn from, or may not: they are kept, with a note.

    Parameters
    ----------
    examples : Examples
        The rows.
    scan : Scan or None
        What the file holds, for notes about its texts and dates.
    max_categories : int
        The most different values of a column of texts.

    Returns
    -------
    Examples
        With fewer columns and more notes.

    Raises
    ------
    ValueError
        If no column is left.

    Examples
    --------
    >>> from polymargin.datasets import Dataset
    >>> from polymargin.tables import examples_of
    >>> X = np.array([[f"r{i}", i**0.5] for i in range(30)], dtype=object)
    >>> toy = Dataset("toy", X, np.arange(30) % 2, ("id", "x"), "here", nominal=("id",))
    >>> chosen = choose_features(examples_of(toy))
    >>> chosen.feature_names, chosen.notes
    (('x',), ("column 'id' is left out: it has a different text in every row, like an identifier",))
    """
    notes = list(examples.notes)
    if scan is not None:
        notes += notes_on_dates(scan)
    kept = []
    for name in examples.frame:
        column = examples.frame[name]
        first_text = "" if scan is None else scan.first_texts.get(name, (0, ""))[1]
        if holds_texts(column) and first_text:
            notes += notes_on_numbers(name, first_text)
        reason = (
            _wrong_with_texts(column, max_categories, scan)
            if holds_texts(column)
            else _wrong_with_numbers(column, examples.row_numbers)
        )
        if reason is None:
            kept.append(name)
            if _numbers_the_rows(column, examples.row_numbers):
                notes.append(note_on_rising(name))
        else:
            notes.append(f"column {name!r} is left out: {reason}")
    if not kept:
        reasons = "; ".join(notes) or f"there is only the target {examples.target!r}"
        raise ValueError(f"{examples.name} has no column to learn from: {reasons}")
    return replace(examples.select(kept), notes=tuple(notes))


def note_on_rising(name: str) -> str:
    """Return what is said of a column whose whole numbers rise from row to row."""
    return (
        f"column {name!r} rises from row to row, as a number of the row does; if it is one, leave it out: "
        f"--drop {name}"
    )


def _wrong_with_numbers(column: pd.Series, row_numbers: np.ndarray) -> str | None:
    values = column.dropna()
    if values.nunique() < 2:
        return "it is empty" if values.empty else "it is constant"
    if len(values) == len(row_numbers) >= NAMED_ROWS and np.ptp(values.to_numpy() - row_numbers) == 0:
        return "it counts the rows"
    return None


def _numbers_the_rows(column: pd.Series, row_numbers: np.ndarray) -> bool:
    """Tell whether every row has a larger whole number than those before it."""
    if holds_texts(column) or len(row_numbers) < NAMED_ROWS:
        return False
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)[np.argsort(row_numbers)]
    return bool((np.diff(values) > 0).all() and (values == np.floor(values)).all())


def _wrong_with_texts(column: pd.Series, most: int, scan: Scan | None) -> str | None:
    values = column.dropna()
    n_different = values.nunique()
    if n_different == 0 or (n_different == 1 and len(values) == len(column)):
        return "it is empty" if n_different == 0 else "it is constant"
    if n_different == len(values) >= NAMED_ROWS:
        return "it has a different text in every row, like an identifier"
    if n_different > most:
        reason = f"it has {n_different} different texts, more than {most} (--max-categories); group them"
        if scan is not None and str(column.name) in scan.first_texts:
            row, text = scan.first_texts[str(column.name)]
            reason += f", or, if it should hold numbers, correct {text!r} in {scan.table.row(row)}"
        return reason
    return None


def notes_on_dates(scan: Scan) -> Iterator[str]:
    """Yield why columns that hold neither numbers nor texts are left out."""
    for name, kind in scan.kinds.items():
        if kind == "date":
            yield f"column {name!r} is left out: it holds dates; make numbers of them, such as ages or months"
        elif kind == "other":
            yield f"column {name!r} is left out: it holds neither numbers nor texts"


def notes_on_numbers(name: str, text: str) -> Iterator[str]:
    """Yield why a text that looks like a number is none."""
    if _GROUPED.fullmatch(text):
        yield f"column {name!r} is read as text: {text!r} has thousands separators; write numbers without them"
    elif _DECIMAL_COMMA.fullmatch(text):
        yield f"column {name!r} is read as text: {text!r} has a decimal comma; write numbers with a point"
