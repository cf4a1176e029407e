"""Pictures: an empty one to draw a paper's figure on, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polymargin.plots._matplotlib import matplotlib_part
from polymargin.reproduction.errors import ReproductionError


def new_picture(figsize: tuple[float, float]) -> Any:
    """Return an empty matplotlib figure, or say what to install."""
    try:
        Figure = matplotlib_part("figure").Figure
    except ImportError as error:
        raise ReproductionError(str(error)) from error
    return Figure(figsize=figsize, layout="constrained")


def save_picture(picture: Any, path: Path) -> Path:
    """Write a picture in the format of the file's suffix, and return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)
    return path
