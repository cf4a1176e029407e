"""Datasets by name, from the first source that has them."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, overload

from numpy.typing import NDArray

from polymargin._dataset import Dataset, DatasetNotFound
from polymargin.datasets import _files, _sources
from polymargin.datasets._catalog import CATALOG, Known

VARIABLE = "POLYMARGIN_DATA"
"""The environment variable that names the data folder."""


def names() -> tuple[str, ...]:
    """Return the names of the datasets that `load` can load.

    Returns
    -------
    names : tuple of str
        Sorted.

    Examples
    --------
    >>> "wine" in names()
    True
    """
    return tuple(sorted(CATALOG))


@overload
def load(name: str, *, return_X_y: Literal[False] = False, download_if_missing: bool = True) -> Dataset: ...


@overload
def load(
    name: str, *, return_X_y: Literal[True], download_if_missing: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]: ...


def load(
    name: str, *, return_X_y: bool = False, download_if_missing: bool = True
) -> Dataset | tuple[NDArray[Any], NDArray[Any]]:
    """Load a dataset by name.

    The first of these sources that has it is used:

    1. the folder that the environment variable ``POLYMARGIN_DATA`` names: ``<name>.csv.gz``, a header row,
       the features, a last column ``class``, an empty field for a missing value; ``<name>.split.json`` beside
       it for an official split;
    2. scikit-learn's own copies of digits, iris, wine and wdbc, which give the same rows, labels and column names;
    3. the generators for led7digit, led7_3200, twonorm and waveform: same distribution and size, other rows;
    4. OpenML by pinned id through scikit-learn, which caches it; the size is checked.

    `Dataset.source` names the source.

    Parameters
    ----------
    name : str
        One of `names()`.
    return_X_y : bool, default=False
        Return the arrays only.
    download_if_missing : bool, default=True
        Whether the data may be downloaded from OpenML.

    Returns
    -------
    Dataset, or (X, y)
        X of shape (n_samples, n_features), y of shape (n_samples,).

    Raises
    ------
    ValueError
        If there is no such name.
    DatasetNotFound
        If no source has the data; the message says what to set.

    Examples
    --------
    >>> wine = load("wine")
    >>> wine.X.shape, wine.classes, wine.split
    ((178, 13), array([1, 2, 3]), None)
    >>> X, y = load("wine", return_X_y=True)
    """
    dataset = _find(_known(name), download_if_missing)
    return (dataset.X, dataset.y) if return_X_y else dataset


def data_files(name: str) -> list[Path]:
    """Return the files that `load` reads for a dataset if the folder ``$POLYMARGIN_DATA`` holds them.

    Parameters
    ----------
    name : str
        The name of a dataset.

    Returns
    -------
    files : list of Path
        Whether they exist or not; none if the variable is not set.

    Examples
    --------
    >>> import os
    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, {"POLYMARGIN_DATA": "."}):
    ...     [file.name for file in data_files("wine")]
    ['wine.csv.gz', 'wine.split.json']
    """
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return []
    return [Path(folder).expanduser() / f"{name}{ending}" for ending in (".csv.gz", ".split.json")]


def _known(name: str) -> Known:
    if name in CATALOG:
        return CATALOG[name]
    close = get_close_matches(name, CATALOG, n=3)
    known = f"Did you mean: {', '.join(close)}?" if close else f"Known: {', '.join(names())}."
    raise ValueError(f"There is no dataset {name!r}. {known}")


def _find(known: Known, download: bool) -> Dataset:
    folder = _folder()
    if folder is not None and (folder / f"{known.name}.csv.gz").is_file():
        return _files.read(folder, known)
    dataset = _sources.from_sklearn(known) or _sources.from_generator(known)
    tried = ""
    if dataset is None and download:
        try:
            dataset = _sources.from_openml(known)
        except DatasetNotFound as error:
            tried = f" {error}"
    if dataset is None:
        raise DatasetNotFound(_advice(known, folder) + tried)
    return dataset


def _folder() -> Path | None:
    """Return the user's data folder; None if the variable is unset or empty."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        # To fall back to another source would hide a misspelled path.
        raise DatasetNotFound(f"{VARIABLE} is set to {value!r}, which is not a folder. Correct or unset it.")
    return folder


def _advice(known: Known, folder: Path | None) -> str:
    where = (
        f"{VARIABLE} is not set." if folder is None else f"{VARIABLE} is {str(folder)!r}, without that file."
    )
    return (
        f"No data for {known.name!r} here. Set {VARIABLE} to a folder that holds {known.name}.csv.gz, "
        f"a gzip-compressed CSV with a header row, {known.n_features} features and a last column 'class', "
        f"an empty field for a missing value. {where}"
    )
