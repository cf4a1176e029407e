"""Where arrays live: a device, the array library that computes there, and the memory that is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils._array_api import _convert_to_numpy, get_namespace_and_device

from polymargin import _memory
from polymargin._device_arrays import is_device_array
from polymargin.device import _adaptors

Array = NDArray[Any]
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: The largest temporary of a block of rows on an accelerator: large enough for matrix products at full speed.
_BLOCK_BYTES = 2 * 2**30
#: A block takes at most this part of the memory that is free.
_BLOCK_SHARE = 0.125
_INSTALL = "install torch (polymargin's gpu extra), or CuPy with array-api-compat"
#: The libraries that compute on a GPU, in the order in which they are tried.
_GPU_LIBRARIES = ("torch", "cupy")


class OutOfDeviceMemory(MemoryError):
    """The memory of the device has run out, or would: fewer rows, float32, or another way to fit are needed."""


@dataclass(frozen=True)
class Device:
    """A device and the array namespace that computes on it; `resolve_device` makes one from a name.

    Attributes
    ----------
    xp : module
        A namespace of the array API standard.
    device : object
        The device, as this namespace names it.

    Examples
    --------
    >>> device = resolve_device("cpu")
    >>> device.to_numpy(2.0 * device.to_device([1.0, 2.0]))
    array([2., 4.])
    """

    xp: Any
    device: Any

    def __repr__(self) -> str:
        return f"Device({_adaptors.library(self.xp)}, {self.device})"

    def to_device(self, values: Any, dtype: str = "float64") -> Any:
        """Return an array on this device.

        Parameters
        ----------
        values : array-like, sparse matrix or array of this namespace
            The values. Sparse ones become dense.
        dtype : str, default="float64"
            The type of the numbers.

        Returns
        -------
        array of the namespace
            It may share memory with the values: do not overwrite it.
        """
        if not is_device_array(values):
            if sparse.issparse(values):
                values = values.toarray()
            # torch warns of NumPy arrays that cannot be written to.
            values = np.require(values, dtype=dtype, requirements=["C", "W"])
        return self.xp.asarray(values, dtype=getattr(self.xp, dtype), device=self.device)

    def to_numpy(self, array: Any) -> Array:
        """Return a NumPy array with the values of an array of this namespace.

        Parameters
        ----------
        array : array of the namespace
            The values.

        Returns
        -------
        ndarray
        """
        return np.asarray(_convert_to_numpy(array, self.xp))

    def current(self) -> AbstractContextManager[Any]:
        """Return a context in which arrays are made on this device, of whichever thread.

        Returns
        -------
        context manager
        """
        return _adaptors.current(self.xp, self.device)

    def free_memory(self) -> float:
        """Return the bytes that can still be had on the device, infinity where it does not say.

        Returns
        -------
        float
        """
        return _adaptors.free_memory(self.xp, self.device)

    def block_bytes(self) -> float:
        """Return the bytes that the largest temporary of a block of rows may take.

        Returns
        -------
        float
        """
        at_most = _memory.BLOCK_BYTES
        if _adaptors.is_accelerator(self.xp, self.device):
            at_most = _BLOCK_BYTES
        return min(float(at_most), _BLOCK_SHARE * self.free_memory())

    def require(self, n_bytes: float, purpose: str, remedy: str) -> None:
        """Raise OutOfDeviceMemory, with the number and the remedy, if this much memory cannot be had.

        Parameters
        ----------
        n_bytes : float
            The bytes.
        purpose : str
            What they are for.
        remedy : str
            What to do where there are fewer.
        """
        free = self.free_memory()
        if n_bytes > free:
            raise OutOfDeviceMemory(
                f"{purpose} needs {n_bytes / _memory.GIB:.3g} GiB on {self.device}, where "
                f"{free / _memory.GIB:.3g} GiB are free; {remedy}"
            )


def resolve_device(device: str | Device | None = None, *, library: str | None = None) -> Device:
    """Return the device of a name, with the array library that computes there.

    Parameters
    ----------
    device : {"cpu", "cuda", "cuda:<number>"}, Device or None, default=None
        The name of the device; None for the CPU. A `Device` is returned as it is.
    library : {"torch", "cupy", "numpy", "array_api_strict"} or None, default=None
        The array library. None: NumPy on the CPU; on a GPU torch, or CuPy where there is no torch.

    Returns
    -------
    Device

    Raises
    ------
    ImportError
        If the library, or every library for GPUs, is missing.
    RuntimeError
        If there is no such GPU.
    ValueError
        If the device has no such name.

    Notes
    -----
    CuPy computes on its current device only: ``"cuda:1"`` with CuPy makes device 1 the current one.

    Examples
    --------
    >>> resolve_device("cpu")
    Device(numpy, cpu)
    """
    if isinstance(device, Device):
        return device
    name = "cpu" if device is None else str(device)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ValueError(f'unknown device {name!r}; choose "cpu", "cuda" or, for the second GPU, "cuda:1"')
    if name == "cpu":
        return _on_cpu(library or "numpy")
    number = int(name.partition(":")[2] or 0)
    problems: list[str] = []
    for candidate in _GPU_LIBRARIES if library is None else (library,):
        try:
            xp = _namespace(candidate)
        except ImportError:
            continue
        n_devices = _count_gpus(xp)
        if number < n_devices:
            return _on_gpu(xp, number)
        problems.append(f"{candidate} finds {n_devices} GPUs" if n_devices else f"{candidate} finds no GPU")
    if not problems:
        raise ImportError(f"device={name!r} needs a library that computes on GPUs: {_INSTALL}")
    raise RuntimeError(
        f"device={name!r}: {' and '.join(problems)}; check the driver (nvidia-smi) and that the library was built "
        'for it, or choose device="cpu"'
    )


def device_of(*arrays: Any) -> Device | None:
    """Return the device of torch or CuPy arrays that a user has passed; None if they are NumPy's, or no arrays.

    As everywhere in scikit-learn, arrays of other libraries are recognised under
    ``sklearn.config_context(array_api_dispatch=True)``.

    Parameters
    ----------
    *arrays : array-like
        The arrays, of one library and on one device.

    Returns
    -------
    Device or None

    Examples
    --------
    >>> device_of([[1.0]]) is None
    True
    """
    xp, is_array_api, device = get_namespace_and_device(*arrays)
    if not is_array_api or _adaptors.library(xp) == "numpy":
        return None
    return Device(xp, device)


def with_memory_errors(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let a function raise OutOfDeviceMemory where a library says in its own way that memory has run out.

    Parameters
    ----------
    function : callable
        The function.

    Returns
    -------
    callable
        The function.
    """

    @wraps(function)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, OutOfDeviceMemory) or not _adaptors.is_out_of_memory(error):
                raise
            message = str(error)
        # Raised here, the new error does not refer to the old one, whose traceback keeps the arrays alive: who catches
        # it has the memory back.
        raise OutOfDeviceMemory(
            f'the memory of the device has run out ({message}); fit fewer rows, choose dtype="float32" or '
            'coding="one-vs-one", or end other programs on the device'
        )

    return run


def _on_cpu(library: str) -> Device:
    xp = _namespace(library)
    return Device(xp, xp.zeros(0).device if library == "array_api_strict" else "cpu")


def _on_gpu(xp: Any, number: int) -> Device:
    if _adaptors.library(xp) == "torch":
        return Device(xp, xp.device("cuda", number))
    device = xp.cuda.Device(number)
    device.use()
    return Device(xp, device)


def _count_gpus(xp: Any) -> int:
    """Return the number of GPUs that a library finds."""
    if _adaptors.library(xp) == "torch":
        return int(xp.cuda.device_count()) if xp.cuda.is_available() else 0
    try:
        return int(xp.cuda.runtime.getDeviceCount())
    except (AttributeError, RuntimeError):  # no library for GPUs, or no driver
        return 0


def _namespace(library: str) -> Any:
    """Return the namespace of a library as the standard wants it; raise ImportError if it is missing."""
    try:
        if library == "array_api_strict":
            return import_module(library)
        import_module(library)
        try:
            return import_module(f"array_api_compat.{library}")
        except ImportError:  # scikit-learn brings its own copy since version 1.7
            return import_module(f"sklearn.externals.array_api_compat.{library}")
    except ImportError as error:
        raise ImportError(f"arrays of {library} need {library} and array-api-compat: {_INSTALL}") from error
