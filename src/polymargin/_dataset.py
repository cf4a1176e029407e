"""Rows with labels in memory, as arrays: what `datasets/` loads, and what `tables/` extends to frames of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

IntArray = NDArray[np.int64]


class DatasetNotFound(FileNotFoundError):
    """A known dataset that no source could deliver; the message says what to set."""


class Split(NamedTuple):
    """Row numbers of the official training and test part.

    Attributes
    ----------
    train, test : ndarray of int
        Row numbers.
    """

    train: IntArray
    test: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A classification dataset in memory.

    Attributes
    ----------
    name : str
        The name it was loaded by.
    X : ndarray of shape (n_samples, n_features)
        float64 with NaN for a missing value; uint8 for images; object where some columns hold text
        (then text columns hold ``str``, or None for a missing value, and the others ``float``).
    y : ndarray of shape (n_samples,)
        Labels: int64 if all of them are integers, else text.
    feature_names : tuple of str
        One per column of `X`.
    source : str
        Where the rows came from and what was done to them; meant for the records of an experiment.
    split : Split or None
        The official training and test rows, if there are any.
    nominal : tuple of str
        Names of the columns whose values are codes without an order of their own, see `one_hot`.
    dates : tuple of str
        Names of the columns whose numbers are dates, as days since 1970-01-01.
    extras : mapping of str to ndarray of shape (n_samples,)
        Further facts about each row which are no features: speaker and sex for vowel; for a file of the user's
        ``row``, the number that messages call a row by, and its ``weight`` and ``group`` where they were read.
    unlabelled : int
        How many rows of the source were left out because they have no label.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    feature_names: tuple[str, ...]
    source: str
    split: Split | None = None
    nominal: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unlabelled: int = 0

    def __post_init__(self) -> None:
        n_samples, n_features = self.X.shape
        if len(self.y) != n_samples:
            raise ValueError(f"{self.name}: {n_samples} rows but {len(self.y)} labels.")
        if len(self.feature_names) != n_features:
            raise ValueError(f"{self.name}: {n_features} columns but {len(self.feature_names)} names.")

    @property
    def classes(self) -> NDArray[Any]:
        """Sorted distinct labels, shape (n_classes,)."""
        return np.unique(self.y)

    @property
    def n_classes(self) -> int:
        """Number of distinct labels."""
        return len(self.classes)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which cells are missing, shape (n_samples, n_features)."""
        if self.X.dtype == object:
            # None marks missing text, NaN (the only value unequal to itself) a missing number.
            return (self.X == None) | (self.X != self.X)  # noqa: E711 (elementwise)
        return np.isnan(self.X)

    @property
    def has_missing(self) -> bool:
        """Whether any cell is missing; if so, put `training_imputer` first in the pipeline."""
        return bool(self.missing.any())

    def take(self, rows: ArrayLike, note: str = "") -> Self:
        """Keep some rows; the official split and the extras follow.

        Parameters
        ----------
        rows : array-like of shape (n_kept,)
            Row numbers, each at most once, in the order wanted; or a boolean mask of shape (n_samples,).
        note : str
            What was done, appended to `source`.

        Returns
        -------
        Dataset
        """
        index = np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)
        split = None
        if self.split is not None:
            position = np.full(len(self.y), -1, dtype=np.int64)
            position[index] = np.arange(len(index))
            train, test = (position[part] for part in self.split)
            split = Split(train[train >= 0], test[test >= 0])
        return replace(
            self,
            X=_safe_indexing(self.X, index),
            y=self.y[index],
            source=f"{self.source}; {note}" if note else self.source,
            split=split,
            extras={key: values[index] for key, values in self.extras.items()},
        )

    def select(self, feature_names: Iterable[str], note: str = "") -> Self:
        """Keep some columns.

        Parameters
        ----------
        feature_names : iterable of str
            Names of the columns to keep, in the order wanted.
        note : str
            What was done, appended to `source`.

        Returns
        -------
        Dataset
            With float64 `X` if no column of texts is left.

        Examples
        --------
        >>> X = np.array([["red", 1.0], ["blue", 2.0]], dtype=object)
        >>> toy = Dataset("toy", X, np.array([0, 1]), ("colour", "size"), "here", nominal=("colour",))
        >>> toy.select(["size"]).X
        array([[1.],
               [2.]])
        """
        names = tuple(feature_names)
        places = {name: place for place, name in enumerate(self.feature_names)}
        X = _safe_indexing(self.X, [places[name] for name in names], axis=1)
        kept = set(names)
        nominal, dates = (tuple(name for name in of if name in kept) for of in (self.nominal, self.dates))
        return replace(
            self,
            X=X.astype(np.float64) if not nominal and isinstance(X, np.ndarray) and X.dtype == object else X,
            feature_names=names,
            nominal=nominal,
            dates=dates,
            source=f"{self.source}; {note}" if note else self.source,
        )

    def __repr__(self) -> str:
        kind, (n_samples, n_features) = type(self).__name__, self.X.shape
        return f"{kind}({self.name!r}: {n_samples} rows, {n_features} features, {self.n_classes} classes)"
