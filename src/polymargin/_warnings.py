"""Warnings that point to the line of the user's code which called the package."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import joblib
import sklearn

#: A message and its category.
Warned = tuple[str, type[Warning]]

#: Where the packages are whose lines are not the user's: an estimator may be called by a pipeline or a search.
_PACKAGES = tuple(str(Path(file).parent) + os.sep for file in (__file__, sklearn.__file__, joblib.__file__))
#: Where warnings are collected, if anywhere.
_collected: ContextVar[list[Warned] | None] = ContextVar("collected", default=None)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that names the nearest caller outside the package, scikit-learn and joblib.

    Parameters
    ----------
    message : str
        What happened, and what to do.
    category : type, default=UserWarning
        The category of the warning.
    """
    found = _collected.get()
    if found is not None:
        found.append((message, category))
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected() -> Iterator[list[Warned]]:
    """Collect warnings in a list instead of issuing them, to be issued by `warn_once` where the user called.

    Examples
    --------
    >>> with collected() as found:
    ...     warn("too few rows")
    >>> found
    [('too few rows', <class 'UserWarning'>)]
    """
    found: list[Warned] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def warn_once(warned: Iterable[Warned]) -> None:
    """Issue collected warnings, but of those that begin alike, up to the first colon, only the first.

    Parameters
    ----------
    warned : iterable of (message, category)
        What `collected` gave for all members of a pool.
    """
    first: dict[tuple[str, type[Warning]], str] = {}
    for message, category in warned:
        first.setdefault((message.partition(":")[0], category), message)
    for (_, category), message in first.items():
        warn(message, category)
