"""Exact machines on a GPU: the margins of new rows, and the memory."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def device_margins(bank: Any, X: Any, device: str) -> Array:
    """Return the margins of new rows, computed on a device.

    Parameters
    ----------
    bank : LSSVMBank
        The machines.
    X : array or sparse matrix of shape (n, d)
        Rows.
    device : str
        The name of the device.

    Returns
    -------
    ndarray of shape (n, L)
    """
    from polymargin.device import DeviceMargins

    return DeviceMargins(bank, device).margins(X)


def free_memory(device: str) -> float:
    """Return the free bytes of a device.

    Parameters
    ----------
    device : str
        Its name.

    Returns
    -------
    float
    """
    from polymargin.device import resolve_device

    return resolve_device(device).free_memory()
