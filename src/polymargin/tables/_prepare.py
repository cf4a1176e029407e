"""`prepare`: from a frame of any types to the features of a kernel machine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from polymargin.tables._table_preparation import TablePreparation, prepare_frame

__all__ = ["prepare"]


def prepare(
    frame: Any,
    target: str | None = None,
    *,
    drop: Collection[str] = (),
    use: Collection[str] = (),
    max_categories: int = 100,
) -> TablePreparation:
    """Return a transformer that makes the columns of a frame fit for a kernel, as the command line does.

    The frame is only looked at, to find out what its columns hold; what is learned (means, deviations, values) comes
    from the rows that the transformer is fitted on, so that it belongs into a pipeline. Numbers, booleans and nullable
    types are standardised, with the mean and an indicator for missing values; of dates, the day and its place in year
    and week; of texts and categories, one indicator for every value. Texts that hold numbers or dates in all rows,
    such as "$1,250" or "31 Jan 2024", are read as such.

    Left out, with a warning, are columns that teach a kernel nothing or too much: constants, texts that are different
    in every row or have more than `max_categories` values, and whole numbers that look like an identifier.

    Parameters
    ----------
    frame : DataFrame of pandas or polars, or pyarrow.Table
        The rows to learn from.
    target : str or None, default=None
        The column with the labels, which is not learned from. Name it whenever the frame has it: with None, all columns
        are features, and a model that is fitted to one of them as y learns the labels from themselves. `fit` warns of a
        column that is equal to y.
    drop : collection of str, default=()
        Other columns that are not to be learned from.
    use : collection of str, default=()
        Columns to learn from although they look like identifiers.
    max_categories : int, default=100
        The most different texts of a column.

    Returns
    -------
    TablePreparation
        Not fitted. Its ``columns`` say what the columns hold, its ``left_out`` which are not learned from, and why.

    Warns
    -----
    UserWarning
        If columns are left out.

    Notes
    -----
    Needs pandas and pyarrow, also for frames of polars: install polymargin with its tables extra. Where the pipeline
    predicts, columns may come in any order and others beside them; one that is missing is an error, and an unknown
    value of a nominal column is treated like a missing one.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> import polymargin
    >>> frame = pd.DataFrame(
    ...     {
    ...         "weight": [150, 120, None, 170, 115, 125],
    ...         "colour": pd.Categorical(["green", "orange", "red", "red", None, "orange"]),
    ...         "picked": ["2024-09-01", "2024-12-24", "2024-09-15", "2024-10-02", "2024-12-30", "2024-11-26"],
    ...         "fruit": ["apple", "orange", "apple", "apple", "orange", "orange"],
    ...     }
    ... )
    >>> preparation = polymargin.prepare(frame, "fruit")
    >>> preparation.columns
    {'weight': 'number', 'colour': 'text', 'picked': 'date'}
    >>> model = make_pipeline(preparation, polymargin.LSSVMClassifier(kernel="rbf", C=1.0, gamma=0.1))
    >>> model.fit(frame, frame["fruit"]).predict(frame[["picked", "weight", "colour"]]).tolist()
    ['apple', 'orange', 'apple', 'apple', 'orange', 'orange']
    """
    return prepare_frame(frame, target, drop, use, max_categories)
