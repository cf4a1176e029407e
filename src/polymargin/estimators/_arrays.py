"""Arrays of torch and CuPy as arguments of estimators: they are recognised, and answered in kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from polymargin._device_arrays import is_device_array

Method = TypeVar("Method", bound=Callable[..., Any])


def to_numpy(values: Any) -> Any:
    """Return an array of a device as one of NumPy, and anything else as it is.

    Parameters
    ----------
    values : object
        Rows, labels or weights.

    Returns
    -------
    object
    """
    device = _device_of(values)
    return values if device is None else device.to_numpy(values)


def device_name(X: Any) -> str | None:
    """Return the name of the GPU on which an array is; None if it is on none.

    Parameters
    ----------
    X : object
        Rows.

    Returns
    -------
    str or None
    """
    device = _device_of(X)
    if device is None or "cuda" not in str(device.device).lower():
        return None
    number = "".join(filter(str.isdigit, str(device.device)))
    return f"cuda:{number or 0}"


def _device_of(values: Any) -> Any:
    if not is_device_array(values):
        return None
    from polymargin.device import device_of

    return device_of(values)


def same_kind_of_array(method: Method) -> Method:
    """Let a method that maps rows to an array return one of the library and on the device of the rows.

    As everywhere in scikit-learn, arrays of other libraries are recognised under
    ``sklearn.config_context(array_api_dispatch=True)``. Labels that are no numbers are returned as a NumPy array.

    Parameters
    ----------
    method : callable (self, X) -> ndarray
        The method.

    Returns
    -------
    callable
    """

    @wraps(method)
    def run(self: Any, X: Any) -> Any:
        device = _device_of(X)
        if device is None:
            return method(self, X)
        result = np.asarray(method(self, device.to_numpy(X)))
        if result.dtype.kind not in "biuf":
            return result
        single = "float32" in str(X.dtype) and result.dtype.kind == "f"
        return device.to_device(result, "float32" if single else str(result.dtype))

    return run  # type: ignore[return-value]
