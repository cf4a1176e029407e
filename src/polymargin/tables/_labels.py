"""Labels: from texts to classes, and columns that are no labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from polymargin.tables._cells import MISSING_LABEL, kind_of, texts

#: 01 is a code, not a number: codes keep their zeros.
_WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]*))(?:\.0*)?")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}.*")
_MAX_CLASSES = 1000
_MAX_FRACTIONS = 20


def label_texts(cells: pa.Array) -> pa.Array:
    """Return labels as texts, null where they are missing.

    Parameters
    ----------
    cells : pyarrow.Array
        The cells of the label column.

    Returns
    -------
    pyarrow.Array
        Of strings.

    Examples
    --------
    >>> label_texts(pa.array([1.0, 2.5, None])).to_pylist(), label_texts(pa.array(["none", "?"])).to_pylist()
    (['1', '2.5', None], ['none', None])
    """
    return texts(cells, MISSING_LABEL)


def typed_labels(names: Iterable[str]) -> dict[str, Any]:
    """Return the labels that texts denote: integers if all of them are, else the texts themselves.

    Parameters
    ----------
    names : iterable of str
        The texts.

    Returns
    -------
    dict of str to int, or of str to str

    Examples
    --------
    >>> typed_labels(["1", "-1", "2.0"]), typed_labels(["1", "b"]), typed_labels(["01", "02"])
    ({'1': 1, '-1': -1, '2.0': 2}, {'1': '1', 'b': 'b'}, {'01': '01', '02': '02'})
    """
    names = list(names)
    whole = {name: _whole(name) for name in names}
    return {name: name for name in names} if None in whole.values() else whole


def class_indices(labels: Sequence[str | None], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the indices of labels among a model's classes; −1 where one is missing or unknown.

    Parameters
    ----------
    labels : sequence of str or None
        The labels as texts; None where they are missing.
    classes : ndarray of shape (K,)
        The model's classes.

    Returns
    -------
    ndarray of int, shape (n,)

    Examples
    --------
    >>> class_indices(["2.0", "1", None, "x"], np.array([1, 2]))
    array([ 1,  0, -1, -1])
    """
    places = {str(name): place for place, name in enumerate(classes.tolist())}

    def place(label: str | None) -> int:
        if label is None or label in places:
            return -1 if label is None else places[label]
        whole = _whole(label)
        return -1 if whole is None else places.get(str(whole), -1)

    distinct = {label: place(label) for label in set(labels)}
    return np.array([distinct[label] for label in labels], dtype=np.int64)


def check_target(name: str, type_: pa.DataType) -> None:
    """Raise ValueError if a column of this type cannot hold labels."""
    if kind_of(type_) == "date":
        raise ValueError(f"the target {name!r} holds dates, not classes; name the label column by --target")
    if kind_of(type_) == "other":
        raise ValueError(f"the target {name!r} holds {type_} values, not labels")


def too_many(n_labels: int) -> bool:
    """Tell whether a column has so many different values that it need not be read further."""
    return n_labels > 10 * _MAX_CLASSES


def check_labels(target: str, counts: Mapping[str, int]) -> None:
    """Raise ValueError, with advice, if these labels and their numbers are nothing to learn classes from."""
    n_rows, n_classes = sum(counts.values()), len(counts)
    if n_rows == 0:
        raise ValueError(f"no row has a label in the column {target!r}")
    if n_classes == 1:
        raise ValueError(
            f"the target {target!r} has only one class, {next(iter(counts))!r}; there is nothing to tell apart"
        )
    fractions = sum(_is_fraction(name) for name in counts)
    advice = "name the label column by --target, or group the values into classes"
    if all(_DATE.fullmatch(name) for name in counts):
        raise ValueError(f"the target {target!r} holds dates, not classes; {advice}")
    numeric = fractions and all(_is_number(name) for name in counts)
    if numeric and n_classes > _MAX_FRACTIONS:
        raise ValueError(
            f"the target {target!r} is a continuous number ({n_classes} different values in {n_rows} rows), "
            f"which is regression; {advice}"
        )
    if n_classes > _MAX_CLASSES or (n_classes > _MAX_FRACTIONS and n_classes > n_rows / 2):
        raise ValueError(
            f"the target {target!r} has {n_classes} different values in {n_rows} rows: more like numbers or names "
            f"than classes; {advice}"
        )


def _whole(name: str) -> int | None:
    match = _WHOLE.fullmatch(name)
    value = int(match.group(1)) if match and len(name) < 40 else None
    return value if value is not None and -(2**63) <= value < 2**63 else None


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _is_fraction(name: str) -> bool:
    return _whole(name) is None and _is_number(name)
