"""Read a user's own CSV file as a dataset."""

from __future__ import annotations

import csv
import gzip
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from polymargin.datasets._dataset import Dataset
from polymargin.datasets._files import as_labels

#: What stands for a missing value, in any case of letters.
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


def read_csv(path: str | Path, target: str | None = None) -> Dataset:
    """Read a CSV file with a header row; a column is numeric if all its values are, otherwise nominal.

    Fields are separated by commas, semicolons or tabs, as the header shows.

    Parameters
    ----------
    path : str or Path
        The file, perhaps compressed (``.gz``).
    target : str or None
        The name of the column with the labels; the last column unless given.

    Returns
    -------
    Dataset
        Missing values (an empty field, ``NA``, ``?`` and the like) are NaN, or None in nominal columns. Rows
        without a label are left out.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "fruit.csv"
    >>> _ = file.write_text("weight,colour,fruit\\n150,green,apple\\n120,,orange\\n,red,apple\\n")
    >>> data = read_csv(file)
    >>> data, data.nominal, data.y.tolist()
    (Dataset('fruit': 3 rows, 2 features, 2 classes), ('colour',), ['apple', 'orange', 'apple'])
    """
    path = Path(path)
    try:
        with _open_text(path) as stream:
            header_line = stream.readline()
            # Whatever separates the most columns of the header separates all of them.
            separator = max(",;\t", key=header_line.count)
            table = [row for row in csv.reader(chain([header_line], stream), delimiter=separator) if row]
    except (csv.Error, UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path.name} is not a CSV file in UTF-8: {error}") from None
    if len(table) < 2:
        raise ValueError(f"{path.name} needs a header row and data")
    header, rows = table[0], table[1:]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(
                f"{path.name}, row {number}: {len(row)} fields where the header has {len(header)}"
            )
    target = header[-1] if target is None else target
    if header.count(target) != 1:
        wrong = "no column" if target not in header else "more than one column"
        raise ValueError(f"{path.name} has {wrong} {target!r}; its columns are {', '.join(header)}")
    place = header.index(target)
    rows = [row for row in rows if row[place].strip().lower() not in _MISSING]
    names = tuple(name for name in header if name != target)
    columns = [[row[j].strip() for row in rows] for j in range(len(header)) if j != place]
    numbers = [_numbers(column) for column in columns]
    nominal = tuple(name for name, values in zip(names, numbers, strict=True) if values is None)
    X = np.empty((len(rows), len(names)), dtype=object if nominal else np.float64)
    for j, (column, values) in enumerate(zip(columns, numbers, strict=True)):
        X[:, j] = _texts(column) if values is None else values
    return Dataset(
        name=path.name.removesuffix(".gz").removesuffix(".csv"),
        X=X,
        y=as_labels([row[place].strip() for row in rows]),
        feature_names=names,
        source=f"file {path.name}",
        nominal=nominal,
    )


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _numbers(column: list[str]) -> list[float] | None:
    """Return the column as numbers, NaN where missing, or None if some value is no number."""
    try:
        return [float("nan") if value.lower() in _MISSING else float(value) for value in column]
    except ValueError:
        return None


def _texts(column: list[str]) -> list[str | None]:
    return [None if value.lower() in _MISSING else value for value in column]
