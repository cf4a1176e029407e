"""Warnings that point to the line of the user's code which called the package."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that names the nearest caller outside the package, however deep it arises.

    Parameters
    ----------
    message : str
        What happened, and what to do.
    category : type, default=UserWarning
        The category of the warning.
    """
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
