"""Which arguments are Dask collections, told without importing Dask."""

from __future__ import annotations

from typing import Any


def is_dask(given: Any) -> bool:
    """Return whether something is a Dask array, dataframe or series.

    Parameters
    ----------
    given : object
        Anything.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_dask([[1.0, 2.0]])
    False
    """
    return type(given).__module__.partition(".")[0] == "dask" and hasattr(given, "__dask_graph__")
