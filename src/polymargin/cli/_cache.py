"""The folder where commands keep intermediate results."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]

VARIABLE = "POLYMARGIN_CACHE"
"""The environment variable that names the cache folder."""


def cache_folder() -> Path:
    """Return the folder that ``$POLYMARGIN_CACHE`` names, else the system's place for caches; it need not exist."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "polymargin"
