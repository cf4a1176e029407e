"""Completion of arguments in the shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["data_files", "one_of"]


def one_of(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a completion that offers these words.

    >>> one_of(["ls-svm", "svm"])("l")
    ['ls-svm']
    """
    words = list(choices)
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def data_files(incomplete: str) -> list[str]:
    """Offer datasets by name, and files and folders.

    >>> data_files("win")
    ['wine']
    """
    from polymargin import datasets

    path = Path(incomplete)
    folder, beginning = (path, "") if incomplete.endswith("/") else (path.parent, path.name)
    try:
        found = sorted(file for file in folder.iterdir() if file.name.startswith(beginning))
    except OSError:
        found = []
    files = [f"{file}/" if file.is_dir() else str(file) for file in found if not file.name.startswith(".")]
    return [name for name in datasets.names() if name.startswith(incomplete)] + files
