"""From columns of numbers, dates and nominal values to features that a kernel can compare: the one preparation.

Whatever learns from values must see training rows only, so all of this is transformers, to be fitted in a pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = [
    "PERIODS",
    "DateFeatures",
    "column_preparation",
    "of_columns",
    "training_imputer",
    "value_indicators",
]

#: What is made of a date, and besides of a time of day. Sine and cosine keep December close to January.
_DATE_PARTS = ("day", "season_sin", "season_cos", "weekday_sin", "weekday_cos")
_TIME_PARTS = (*_DATE_PARTS, "hour_sin", "hour_cos")
#: The periods of season, weekday and time of day, in days.
PERIODS = (365.2425, 7.0, 1.0)


def training_imputer() -> SimpleImputer:
    """Fill missing numbers with the column's mean over the rows it is fitted on.

    The first step of a pipeline, so that in every split it sees the training rows only. Of the numeric sets
    dermatology needs it: 8 of its 366 ages are missing. Columns are never dropped, even if wholly missing.

    Returns
    -------
    SimpleImputer

    Examples
    --------
    >>> import numpy as np
    >>> train, test = np.array([[1.0], [3.0]]), np.array([[np.nan]])
    >>> training_imputer().fit(train).transform(test)
    array([[2.]])
    """
    return SimpleImputer(strategy="mean", keep_empty_features=True)


def value_indicators(values: list[list[Any]]) -> OneHotEncoder:
    """Return the transformer of columns that have these values into indicators; any other value has none.

    Parameters
    ----------
    values : list of list
        The values of every column, in the order of their indicators.

    Returns
    -------
    OneHotEncoder

    Examples
    --------
    >>> import numpy as np
    >>> colours = np.array([["red"], [None], ["green"]], dtype=object)
    >>> value_indicators([["blue", "red"]]).fit_transform(colours)
    array([[0., 1.],
           [0., 0.],
           [0., 0.]])
    """
    # Left to find the values, the encoder would take a missing one for a value.
    return OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)


def column_preparation(
    numeric: Sequence[Any],
    nominal: Mapping[Any, list[Any]],
    *,
    dates: Sequence[Any] = (),
    times: Sequence[Any] = (),
    incomplete: Collection[Any] = (),
) -> ColumnTransformer:
    """Return the transformer of a table's columns into features, not fitted.

    Numeric columns: missing values to the mean, then standardised. Dates: see `DateFeatures`, then the same. Nominal
    columns: one indicator per value; a missing or unseen value has none. All other columns are left out.

    Parameters
    ----------
    numeric : sequence of str or int
        Names or numbers of the numeric columns.
    nominal : mapping of str or int to list
        The nominal columns and the values of each; a column without values is left out.
    dates, times : sequence of str or int
        The columns of dates, without and with the time of day, as days since 1970-01-01.
    incomplete : collection of str or int
        The numeric columns and dates that get an indicator of missing values, which may matter in itself. It is not
        standardised: a row with the one missing value of its column would be far from all others.

    Returns
    -------
    ColumnTransformer

    Examples
    --------
    >>> table = np.array([[1.0, "red"], [3.0, None], [np.nan, "blue"]], dtype=object)
    >>> column_preparation([0], {1: ["blue", "red"]}, incomplete=[0]).fit_transform(table).round(2)
    array([[-1.22,  0.  ,  0.  ,  1.  ],
           [ 1.22,  0.  ,  0.  ,  0.  ],
           [ 0.  ,  1.  ,  1.  ,  0.  ]])
    """
    valued = {column: values for column, values in nominal.items() if values}
    parts: list[tuple[str, Any, list[Any]]] = []
    if numeric:
        parts.append(("numbers", make_pipeline(training_imputer(), StandardScaler()), list(numeric)))
    for name, columns, with_time in (("dates", dates, False), ("times", times, True)):
        if columns:
            steps = DateFeatures(time_of_day=with_time), training_imputer(), StandardScaler()
            parts.append((name, make_pipeline(*steps), list(columns)))
    incomplete = set(incomplete)
    missing = [column for column in (*numeric, *dates, *times) if column in incomplete]
    if missing:
        parts.append(("missing", MissingIndicator(features="all"), missing))
    if valued:
        parts.append(("texts", value_indicators(list(valued.values())), list(valued)))
    return ColumnTransformer(parts)


def of_columns(step: Any) -> Any:
    """Return the ColumnTransformer in a fitted preparation of tables, and any other step of a pipeline as it is."""
    inner = getattr(step, "transformer_", None)
    return inner if isinstance(inner, ColumnTransformer) else step


class DateFeatures(TransformerMixin, BaseEstimator):
    """Numbers that a kernel can compare for every date: the day, and its place in year and week.

    A kernel sees that two days are close in time, or that both are in winter, or Sundays; of the time of day, that
    midnight lies between eleven and one.

    Parameters
    ----------
    time_of_day : bool, default=False
        Whether the time of day counts, too.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns of dates.

    Examples
    --------
    >>> days = (np.array([["2024-01-31"], ["2024-07-31"]], dtype="M8[D]") - np.datetime64(0, "D")).astype(float)
    >>> DateFeatures().fit_transform(days)[:, 1:].round(2)
    array([[ 0.49,  0.87, -0.78,  0.62],
           [-0.48, -0.88, -0.78,  0.62]])
    """

    def __init__(self, time_of_day: bool = False) -> None:
        self.time_of_day = time_of_day

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Count the columns.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Days since 1970-01-01, NaN where a date is missing.
        y : object
            Not used.

        Returns
        -------
        DateFeatures
        """
        validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the features of dates.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Days since 1970-01-01, NaN where a date is missing.

        Returns
        -------
        ndarray of shape (n, d · 5), or (n, d · 7) with the time of day
            Those of the first column, then those of the second, …
        """
        check_is_fitted(self)
        days = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        features = [days]
        for period in PERIODS[: 2 + self.time_of_day]:
            # The day of the week is that of the whole day.
            angle = np.mod(np.floor(days) if period == 7.0 else days, period) * (2.0 * np.pi / period)
            # What is left of a zero by rounding errors must not be taken for a feature, and standardised.
            features += [np.sin(angle).round(12), np.cos(angle).round(12)]
        return np.stack(features, axis=2).reshape(len(days), -1)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> NDArray[np.object_]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : sequence of str or None
            The names of the columns; None: those that it was fitted with, or "x0", "x1", ….

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = input_features
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        parts = _TIME_PARTS if self.time_of_day else _DATE_PARTS
        return np.array([f"{name}_{part}" for name in names for part in parts], dtype=object)
