"""Warnings of the library, printed as notes that name options of the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polymargin.cli._console import note

if TYPE_CHECKING:  # importing it at run time would make every command slow to start
    from polymargin.datasets import Dataset

__all__ = ["copies_in", "noted"]

_COPIES = re.compile(
    r"(\d+ of \d+ rows are copies(?:, or nearly copies,)? of other rows with the same label)"
)


@contextmanager
def noted() -> Iterator[list[str]]:
    """Print warnings as notes once the block has ended; yields the list that they are put into."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        yield notes
    notes += dict.fromkeys(_in_words(str(warning.message)) for warning in caught)
    for line in notes:
        note(line)


def _in_words(message: str) -> str:
    """Return a warning in one line, with options in place of the parameters of Python.

    Examples
    --------
    >>> _in_words("the solver stopped\\n  early")
    'the solver stopped early'
    """
    found = _COPIES.search(message)
    if found is None:
        return " ".join(message.split())
    return (
        f"{found[1]}, and the columns do not make that likely by chance; rows with their copies count as one "
        "observation, which is held out as a whole. If you know which rows belong together, name the column that tells "
        "them apart (--groups); if all rows are independent, name one that differs in every row"
    )


def copies_in(dataset: Dataset) -> list[str]:
    """Return a note for `compare` if rows of a dataset are likely copies of others, else nothing."""
    import numpy as np

    from polymargin.datasets import preprocessor
    from polymargin.estimators._copies import find_copies

    X = preprocessor(dataset).fit_transform(dataset.X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        find_copies(X, np.unique(dataset.y, return_inverse=True)[1])
    found = [_COPIES.search(str(warning.message)) for warning in caught]
    return [
        f"{match[1]}, and the columns do not make that likely by chance; a test row whose copy was trained on makes "
        "the scores look better than they are: remove the copies from the file"
        for match in found
        if match
    ]
