"""Exact least-squares machines on a device: torch on a GPU or the CPU, CuPy, or any other array library.

The mathematics is written in the array API standard (https://data-apis.org/array-api); `_adaptors.py` has the little
that it lacks. A kernel matrix of n rows takes 8n² bytes, once: 60 000 rows fit on one GPU.
"""

from typing import Any

from polymargin.device.arrays import Device, OutOfDeviceMemory, device_of, resolve_device
from polymargin.device.bank import fit_device_bank
from polymargin.device.kernels import kernel_matrix
from polymargin.device.margins import DeviceMargins
from polymargin.device.search import RefinedParameters, press_path, refine_parameters
from polymargin.device.softmax import fit_softmax
from polymargin.device.stacks import STACKED_ROWS

__all__ = [
    "STACKED_ROWS",
    "Device",
    "DeviceMargins",
    "OutOfDeviceMemory",
    "RefinedParameters",
    "device_of",
    "fit_device_bank",
    "fit_softmax",
    "kernel_matrix",
    "mean_squared_gradients",
    "press_path",
    "refine_parameters",
    "resolve_device",
]


def __getattr__(name: str) -> Any:
    """Import the gradients when they are wanted: those of the CPU, whose numbers they share, need numba."""
    if name == "mean_squared_gradients":
        from polymargin.device.gradients import mean_squared_gradients

        return mean_squared_gradients
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
