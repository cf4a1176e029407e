"""Read one dataset from a folder of gzip-compressed CSV files.

``<name>.csv.gz`` has a header row, the features, and a last column ``class``; an empty field is a missing
value. ``<name>.split.json``, if it is there, holds the official split: either ``train`` and ``test``, each
a list of half-open row ranges, or ``flag``, one character per row, 1 for test. Its other lists with one
entry per row are facts about the rows that are no features.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._dataset import Dataset, Split
from polymargin.datasets._catalog import ALL, Known

_INTEGER = re.compile(r"[+-]?[0-9]+")


def read(folder: Path, known: Known) -> Dataset:
    """Read a dataset, its split and its extras.

    Parameters
    ----------
    folder : Path
        Where the files are.
    known : Known
        Says which columns are text and how numbers are stored.

    Returns
    -------
    Dataset
    """
    path = folder / f"{known.name}.csv.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
            header = next(csv.reader([stream.readline()]), [])
            lines = [line for line in stream if line.strip()]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path.name} is a damaged gzip file ({error}); download it again.") from None
    if not header or header[-1] != "class" or not lines:
        raise ValueError(f"{path.name} must hold a header row that ends in 'class', and data.")
    names = tuple(header[:-1])
    nominal = names if known.nominal == ALL else known.nominal
    X, labels = _parse(path.name, lines, names, nominal if known.text else (), known)
    split, extras = _read_split(folder / f"{known.name}.split.json", len(labels))
    return Dataset(
        name=known.name,
        X=X,
        y=as_labels(labels),
        feature_names=names,
        source=f"file {path.name} in the data folder",
        split=split,
        nominal=nominal,
        extras=extras,
    )


def as_labels(labels: Sequence[str]) -> NDArray[Any]:
    """Turn the texts of labels into an array: integers if all of them are, else text.

    >>> as_labels(["1", "-1"])
    array([ 1, -1])
    >>> as_labels(["1", "b"])
    array(['1', 'b'], dtype='<U1')
    """
    distinct = set(labels)
    if all(_INTEGER.fullmatch(label) for label in distinct):
        return np.array(labels, dtype=np.int64)
    return np.array(labels, dtype=str)


def _parse(
    file: str, lines: Sequence[str], names: tuple[str, ...], text: tuple[str, ...], known: Known
) -> tuple[NDArray[Any], list[str]]:
    """Return the features, shape (n_samples, n_features), and the labels' texts."""
    if not text:
        try:
            return _parse_numbers(lines, len(names), known)
        except ValueError:
            pass  # a missing value, a quoted field or a mistake: the slower parser reads it or names it
    rows = list(csv.reader(lines))
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names) + 1 or not row[-1]:
            raise ValueError(f"{file}, line {number}: {len(names)} features and a class are expected.")
    columns = list(zip(*rows, strict=True))
    X = np.empty((len(rows), len(names)), dtype=object if text else np.float64)
    for j, (name, column) in enumerate(zip(names, columns[:-1], strict=True)):
        if name in text:
            X[:, j] = [value or None for value in column]
        else:
            X[:, j] = _numbers(file, name, column)
    return X, list(columns[-1])


def _parse_numbers(lines: Sequence[str], n_features: int, known: Known) -> tuple[NDArray[Any], list[str]]:
    """Parse complete, purely numeric features in C: a second for the 55 million cells of mnist."""
    labels = [line.rpartition(",")[2].strip() for line in lines]
    features = (line.rpartition(",")[0] for line in lines)
    X = np.loadtxt(features, delimiter=",", dtype=known.dtype, comments=None, ndmin=2)
    if X.shape != (len(labels), n_features) or not all(labels) or any('"' in label for label in set(labels)):
        raise ValueError("not a plain numeric table")
    return X, labels


def _numbers(file: str, name: str, column: Sequence[str]) -> list[float]:
    """Convert one column of texts, empty ones to NaN."""
    try:
        return [float(value) if value else np.nan for value in column]
    except ValueError as error:
        raise ValueError(f"{file}, column {name!r}: {error}.") from None


def _read_split(path: Path, n_samples: int) -> tuple[Split | None, dict[str, NDArray[Any]]]:
    """Read the official split and the extras; (None, {}) if there is no such file."""
    if not path.is_file():
        return None, {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if "flag" in content:
        is_test = np.array([flag == "1" for flag in content.pop("flag")])
        split = Split(np.flatnonzero(~is_test), np.flatnonzero(is_test))
    else:
        split = Split(_rows(content.pop("train")), _rows(content.pop("test")))
    if not np.array_equal(np.sort(np.concatenate(split)), np.arange(n_samples)):
        raise ValueError(f"{path.name} does not fit the {n_samples} rows: each must be named exactly once.")
    extras = {
        key: np.asarray(values)
        for key, values in content.items()
        if isinstance(values, list) and len(values) == n_samples
    }
    return split, extras


def _rows(ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Expand half-open row ranges."""
    return np.fromiter(chain.from_iterable(range(start, stop) for start, stop in ranges), dtype=np.int64)
