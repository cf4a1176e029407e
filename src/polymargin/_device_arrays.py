"""Which arrays may be on a device, found out without importing their libraries."""

from __future__ import annotations

from typing import Any

#: The libraries whose arrays may be on a device; array-api-strict stands in for one in tests.
_LIBRARIES = ("torch", "cupy", "array_api_strict")


def is_device_array(values: Any) -> bool:
    """Return whether values are an array of torch, CuPy or array-api-strict.

    Parameters
    ----------
    values : object
        Anything.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_device_array([1.0, 2.0])
    False
    """
    return type(values).__module__.partition(".")[0] in _LIBRARIES
