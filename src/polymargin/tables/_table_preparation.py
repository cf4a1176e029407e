"""The columns of a frame, of any types, as features that a kernel can compare: a transformer for pipelines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from polymargin._preparation import column_preparation
from polymargin._warnings import warn
from polymargin.tables._cells import Kind, holds_texts
from polymargin.tables._examples import Examples
from polymargin.tables._features import reasons_against, reasons_against_kinds, too_many_texts
from polymargin.tables._frames import FrameTable, typed_frame
from polymargin.tables._looks import Columns, Reading, look_at
from polymargin.tables._scan import new_looks

__all__ = ["TablePreparation", "preparation", "preparation_of", "prepare_frame"]

_MISSING = "missingindicator_"


class TablePreparation(TransformerMixin, BaseEstimator):
    """Features that a kernel can compare, from the columns of a frame; usually made by `polymargin.prepare`.

    Numbers: missing values to the mean, then standardised, and an indicator of missing values where there were some in
    training. Dates: the day, and its place in the year and the week (see `DateFeatures`), then the same. Texts: one
    indicator for every value of the training rows; a missing value, and an unknown one, has none. What is learned
    (means, deviations, values) comes from the rows it is fitted on.

    Parameters
    ----------
    columns : mapping of str to {"number", "text", "date", "time"}
        The columns that are learned from, and what they hold; a time is a date with the time of day. They are found by
        their names: other columns of a frame do not matter, nor does their order.
    readings : mapping of str to str, default=None
        How texts are read that hold numbers with a decimal comma (","), or dates (a format of ``strptime``).
    missing : tuple of str, default=()
        What else stands for a missing number or date, beside NA, -, ? and the like.
    left_out : mapping of str to str, default=None
        The columns that are not learned from, and why. It is only kept, to be looked at.

    Attributes
    ----------
    feature_names_in_ : ndarray of str
        The names of the columns.
    n_features_in_ : int
        Their number.
    transformer_ : ColumnTransformer
        The fitted transformer of columns of numbers, days since 1970-01-01, and texts.

    See Also
    --------
    polymargin.prepare : Finds out what the columns of a frame hold.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [1, 3, None], "colour": ["red", None, "blue"], "note": ["x", "y", "z"]})
    >>> prepared = TablePreparation({"size": "number", "colour": "text"}).fit(frame)
    >>> prepared.get_feature_names_out().tolist()
    ['size', 'size_missing', 'colour_blue', 'colour_red']
    >>> prepared.transform(frame).round(2)
    array([[-1.22,  0.  ,  0.  ,  1.  ],
           [ 1.22,  0.  ,  0.  ,  0.  ],
           [ 0.  ,  1.  ,  1.  ,  0.  ]])
    """

    def __init__(
        self,
        columns: Mapping[str, Kind],
        readings: Mapping[str, Reading] | None = None,
        missing: tuple[str, ...] = (),
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.columns = columns
        self.readings = readings
        self.missing = missing
        self.left_out = left_out

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn means, deviations and values from the columns of a frame.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or pyarrow.Table
            The frame.
        y : array-like of shape (n,), default=None
            The labels, to warn of a column that is equal to them. Nothing is learned from them.

        Returns
        -------
        TablePreparation
        """
        self._fit_typed(self._typed(X), y)
        return self

    def fit_transform(self, X: Any, y: object = None, **fit_params: Any) -> NDArray[np.float64]:
        """Learn from the columns of a frame, and return their features.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or pyarrow.Table
            The frame.
        y : array-like of shape (n,), default=None
            The labels, to warn of a column that is equal to them. Nothing is learned from them.
        **fit_params : object
            Not used.

        Returns
        -------
        ndarray of shape (n, p)
        """
        frame = self._typed(X)
        self._fit_typed(frame, y)
        return self.transformer_.transform(frame)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the features of the rows of a frame.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or pyarrow.Table
            The frame, with the columns of the training, in any order and of any type that can be read like those.

        Returns
        -------
        ndarray of shape (n, p)
        """
        check_is_fitted(self)
        return self.transformer_.transform(self._typed(X))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : object
            Not used.

        Returns
        -------
        ndarray of str
            ``size`` for a number, ``size_missing`` where it is missing, ``colour_red`` for a value, ``born_day`` and so
            on for a date. If two were the same, each says by which part of `transformer_` it is made.
        """
        check_is_fitted(self)
        full = self.transformer_.get_feature_names_out()
        names = []
        for name in full:
            part, _, name = name.partition("__")
            names.append(f"{name.removeprefix(_MISSING)}_missing" if part == "missing" else name)
        return np.array(names, dtype=object) if len(set(names)) == len(names) else full

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether it is fitted."""
        return hasattr(self, "transformer_")

    def _typed(self, X: Any) -> pd.DataFrame:
        frame = typed_frame(X, self.columns, self.readings or {}, self.missing)
        if len(frame) == 0:
            raise ValueError("the frame has no rows: at least one is needed")
        return frame

    def _fit_typed(self, frame: pd.DataFrame, y: Any) -> None:
        of = {
            kind: [name for name, other in self.columns.items() if other == kind]
            for kind in ("number", "date", "time", "text")
        }
        if sum(map(len, of.values())) < len(self.columns):
            raise ValueError(
                f"columns hold 'number', 'text', 'date' or 'time'; these are {dict(self.columns)}"
            )
        for name in () if y is None else _equal_columns(frame, np.asarray(y)):
            warn(
                f"the column {name!r} is equal to the labels y, so that they are learned from themselves: give its "
                "name to prepare(frame, target), or in drop if it is a copy of the labels"
            )
        incomplete = frame.isna().any()
        self.transformer_ = column_preparation(
            of["number"],
            {name: sorted(frame[name].dropna().unique()) for name in of["text"]},
            dates=of["date"],
            times=of["time"],
            incomplete=incomplete.index[incomplete].tolist(),
        ).fit(frame)
        self.feature_names_in_ = np.array(list(self.columns), dtype=object)
        self.n_features_in_ = len(self.columns)


def _equal_columns(frame: pd.DataFrame, y: NDArray[Any]) -> list[str]:
    """Return the names of the columns of numbers and texts whose values are those of y in every row."""
    y = y.ravel()
    if len(y) != len(frame):
        return []
    found = []
    for name in frame:
        values = frame[name].to_numpy()
        for rows in (slice(50), slice(None)):  # most columns differ soon
            try:
                labels = y[rows].astype(str if values.dtype == object else np.float64)
            except (TypeError, ValueError):  # texts are no numbers
                break
            if not np.array_equal(values[rows].astype(labels.dtype), labels):
                break
        else:
            found.append(name)
    return found


def preparation(frame: pd.DataFrame) -> TablePreparation:
    """Return the transformer that makes columns of numbers and of texts fit for a kernel, not fitted.

    Parameters
    ----------
    frame : DataFrame of pandas
        Columns of texts, and of numbers.

    Returns
    -------
    TablePreparation

    Examples
    --------
    >>> preparation(pd.DataFrame({"size": [1.0, 3.0], "colour": np.array(["red", None], dtype=object)}))
    TablePreparation(columns={'colour': 'text', 'size': 'number'})
    """
    return TablePreparation({str(name): "text" if holds_texts(frame[name]) else "number" for name in frame})


def preparation_of(examples: Examples) -> TablePreparation:
    """Return the transformer that makes the columns of examples fit for a kernel, not fitted.

    Parameters
    ----------
    examples : Examples
        The rows. What their columns hold, and how texts of them are read, was found out before.

    Returns
    -------
    TablePreparation
    """
    columns = examples.columns or Columns({})
    readings = {name: columns.readings[name] for name in examples.X if name in columns.readings}
    return TablePreparation(examples.kinds, readings, columns.missing, dict(examples.left_out))


def prepare_frame(
    frame: Any, target: str | None, drop: Collection[str], use: Collection[str], max_categories: int
) -> TablePreparation:
    """Return the preparation that suits a frame; see `polymargin.prepare`, which is this.

    Parameters
    ----------
    frame : DataFrame of pandas or polars, or pyarrow.Table
        The rows to learn from.
    target : str or None
        The column with the labels.
    drop, use : collection of str
        Columns not to be learned from, and columns to learn from although they look like identifiers.
    max_categories : int
        The most different texts of a column.

    Returns
    -------
    TablePreparation
    """
    if isinstance(drop, str) or isinstance(use, str):
        raise TypeError("drop and use are collections of names, not a name")
    table = FrameTable(frame)
    target = None if target is None else _column_name("target", target)
    drop, use = (
        [_column_name(what, name) for name in names] for what, names in (("drop", drop), ("use", use))
    )
    named = [*([] if target is None else [target]), *drop, *use]
    table.check(named)
    names = [name for name in table.columns if name not in {*drop, target}]
    if unused := [name for name in use if name not in names]:
        raise ValueError(f"the column {unused[0]!r} cannot be used, as it is dropped or the target")
    table.check(names)
    cells = table.cells(names)
    looks = new_looks(table, cells)
    for name, look in looks.items():
        look.add(0, cells.column(name))
    columns = look_at(looks)
    readable = {name: kind for name, kind in columns.kinds.items() if kind != "other"}
    typed = typed_frame(frame, readable, columns.readings)
    left_out = reasons_against_kinds(columns) | reasons_against(typed, columns, max_categories, use)
    kept = {name: kind for name, kind in readable.items() if name not in left_out}
    told = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
    if not kept:
        raise ValueError(f"there is no column to learn from{f': {told}' if told else ''}")
    if left_out:
        warn(
            f"columns are left out ({told}); name them in drop, or, if they only look like identifiers, in use"
            f"{_first_texts(left_out, columns)}"
        )
    for name in kept:
        if name in columns.notes:
            warn(columns.notes[name])
    readings = {name: columns.readings[name] for name in kept if name in columns.readings}
    return TablePreparation(kept, readings, left_out=left_out)


def _column_name(what: str, name: Any) -> str:
    """Return the name of a column as a text; raise TypeError for what is no name, such as the column itself."""
    if isinstance(name, str | Integral):
        return str(name)
    raise TypeError(f"{what} takes names of columns of the frame, not a {type(name).__name__}")


def _first_texts(left_out: Mapping[str, str], columns: Columns) -> str:
    """Return what keeps columns that are left out for their many texts from being numbers."""
    found = [
        f"{columns.first_texts[name][1]!r} in {name!r}"
        for name, reason in left_out.items()
        if too_many_texts(reason) and name in columns.first_texts
    ]
    if not found:
        return ""
    return f"; for a column that should hold numbers, make what is no number missing: {', '.join(found)}"
