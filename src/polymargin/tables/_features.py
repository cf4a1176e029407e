"""Which columns of a table are features that a kernel can use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from polymargin.tables._cells import Kind, holds_texts
from polymargin.tables._examples import Examples
from polymargin.tables._identifiers import NAMED_ROWS, Numbering
from polymargin.tables._looks import Columns


def choose_features(
    examples: Examples, *, max_categories: int = 100, use: Collection[str] = (), without: Collection[str] = ()
) -> Examples:
    """Leave out the columns that teach a kernel nothing, and note which and why.

    These are: whole numbers that are different in every row, as those of an identifier are, columns with a single value
    or none, texts that are different in every row, and texts with too many different values to give each an indicator
    of its own. Whole numbers that rise from row to row, but could be something else than an identifier, are kept,
    with a note.

    Parameters
    ----------
    examples : Examples
        The rows.
    max_categories : int
        The most different values of a column of texts.
    use : collection of str
        The columns that may look like identifiers.
    without : collection of str
        The columns of the file of which nothing is said, as they are no features.

    Returns
    -------
    Examples
        With fewer columns and more notes.

    Raises
    ------
    ValueError
        If no column is left, or there is none that is to be used.

    Examples
    --------
    >>> from polymargin.datasets import Dataset
    >>> from polymargin.tables import examples_of
    >>> X = np.array([[f"r{i}", i**0.5] for i in range(30)], dtype=object)
    >>> toy = Dataset("toy", X, np.arange(30) % 2, ("id", "x"), "here", nominal=("id",))
    >>> chosen = choose_features(examples_of(toy))
    >>> chosen.feature_names, chosen.left_out
    (('x',), {'id': 'it has a different text in every row, like an identifier'})
    """
    columns = columns_of(examples.frame) if examples.columns is None else examples.columns
    check_used(use, columns, examples.target)
    left_out = reasons_against_kinds(columns, without)
    left_out |= reasons_against(examples.frame, columns, max_categories, use)
    notes = [*examples.notes, *notes_on_columns(columns, left_out, examples.first_row, without)]
    kept = [name for name in examples.frame if name not in left_out]
    if not kept:
        reasons = "; ".join(notes) or f"there is only the target {examples.target!r}"
        raise ValueError(f"{examples.name} has no column to learn from: {reasons}")
    return replace(examples.select(kept), notes=tuple(notes), columns=columns, left_out=left_out)


def columns_of(frame: pd.DataFrame) -> Columns:
    """Return what columns of numbers and texts hold."""
    kinds: dict[str, Kind] = {}
    suspects: dict[str, str] = {}
    rising: list[str] = []
    for name in frame:
        kinds[name] = "text" if holds_texts(frame[name]) else "number"
        if kinds[name] == "number":
            numbering = Numbering(str(name))
            numbering.add(frame[name].to_numpy(dtype=np.float64, na_value=np.nan))
            if reason := numbering.suspicion():
                suspects[name] = reason
            elif numbering.rising:
                rising.append(name)
    return Columns(kinds, suspects=suspects, rising=tuple(rising))


def check_used(use: Collection[str], columns: Columns, target: str | None) -> None:
    """Raise ValueError if a column that is to be used is not there."""
    unknown = [name for name in use if name not in columns.kinds]
    if unknown:
        reason = "is the target" if unknown[0] == target else "does not exist or is dropped"
        raise ValueError(f"the column {unknown[0]!r} that is to be used {reason}")


def reasons_against_kinds(columns: Columns, without: Collection[str] = ()) -> dict[str, str]:
    """Return the columns that hold neither numbers nor texts nor dates, with this reason to leave them out."""
    return {
        name: "it holds neither numbers nor texts nor dates"
        for name, kind in columns.kinds.items()
        if kind == "other" and name not in without
    }


def reasons_against(
    frame: pd.DataFrame, columns: Columns, max_categories: int, use: Collection[str] = ()
) -> dict[str, str]:
    """Return which columns of a frame are left out, and why.

    Parameters
    ----------
    frame : DataFrame
        Columns of numbers, days and texts.
    columns : Columns
        What they hold.
    max_categories : int
        The most different values of a column of texts.
    use : collection of str
        The columns that may look like identifiers.

    Returns
    -------
    dict of str to str
    """
    found = {}
    for name in frame:
        if holds_texts(frame[name]):
            known = frame[name].dropna()
            n_values, n_known = known.nunique(), len(known)
            reason = reason_against_texts(n_values, n_known, len(frame), max_categories)
        else:
            values = frame[name].to_numpy()
            low, high = (function.reduce(values, initial=np.nan) for function in (np.fmin, np.fmax))
            reason = reason_against_numbers(name, low, high, columns, use)
        if reason is not None:
            found[name] = reason
    return found


def reason_against_numbers(
    name: str, low: float, high: float, columns: Columns, use: Collection[str]
) -> str | None:
    """Return why a column of numbers or days between these is left out, None if it is not."""
    if not low < high:
        return "it is empty" if np.isnan(low) else "it is constant"
    return None if name in use else columns.suspects.get(name)


def reason_against_texts(n_values: int, n_known: int, n_rows: int, most: int) -> str | None:
    """Return why a column of texts is left out, None if it is not; beyond `most`, values need not be counted."""
    if n_values == 0 or (n_values == 1 and n_known == n_rows):
        return "it is empty" if n_values == 0 else "it is constant"
    if n_values == n_known >= NAMED_ROWS:
        return "it has a different text in every row, like an identifier"
    return f"it has more than {most} different texts" if n_values > most else None


def too_many_texts(reason: str) -> bool:
    """Return whether a column is left out for its many different texts."""
    return reason.startswith("it has more than")


def notes_on_columns(
    columns: Columns, left_out: Mapping[str, str], first_row: int, without: Collection[str] = ()
) -> Iterator[str]:
    """Yield which columns are left out and why, and how others are read where this could be done in another way."""
    for name, reason in left_out.items():
        yield f"column {name!r} is left out: {reason}{_remedy(name, reason, columns, first_row)}"
    kept = {
        name: kind for name, kind in columns.kinds.items() if name not in left_out and name not in without
    }
    commas = [name for name in columns.commas if name in kept]
    if commas:
        yield f"decimal mark: a comma in {_listed(commas)} (--decimal)"
    dates = [name for name, kind in kept.items() if kind in ("date", "time")]
    if dates:
        yield f"dates, of which day, season and weekday are learned from: {_listed(dates)}"
    yield from (note for name, note in columns.notes.items() if name in kept)
    for name in columns.rising:
        if name in kept:
            yield (
                f"column {name!r} rises from row to row, as a number of the row does; if it is one, leave it out: "
                f"--drop {name}"
            )


def _remedy(name: str, reason: str, columns: Columns, first_row: int) -> str:
    if columns.suspects.get(name) == reason:
        return f" (--use {name} learns from it all the same)"
    if not too_many_texts(reason):
        return ""
    row, text = columns.first_texts.get(name, (0, ""))
    numbers = (
        f", or, if it should hold numbers, correct {text!r} in row {row + first_row} or count it as missing "
        f"(--missing {text!r})"
    )
    return f" (--max-categories); group them{numbers if text else ''}"


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
