"""Compilation of the jitted loops, with numba's cache on disk where there is a place for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

Function = Callable[..., Any]


def compiled(**options: Any) -> Callable[[Function], Any]:
    """Return a decorator like ``numba.njit(cache=True, **options)`` that also works without a place for the cache.

    Numba refuses to decorate a function if neither ``NUMBA_CACHE_DIR``, nor the package's folder, nor the user's cache
    folder can be written, as in containers and read-only installations. The function is then compiled anew in every
    process, with one warning.

    Parameters
    ----------
    **options
        Options of ``numba.njit``, except ``cache``.

    Returns
    -------
    callable
        The decorator, for functions at the top level of a module.
    """

    def decorate(function: Function) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            without = njit(**options)(function)
        _warn_that_nothing_is_cached()
        return without

    return decorate


@cache
def _warn_that_nothing_is_cached() -> None:
    """Warn, once in a process."""
    warnings.warn(
        "numba finds no writable directory for its cache, so the solvers of support vector machines are compiled again "
        "in every process, which takes some seconds; set NUMBA_CACHE_DIR to a directory that can be written",
        RuntimeWarning,
        stacklevel=3,
    )
