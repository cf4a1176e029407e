"""Columns of whole numbers that tell rows apart, and nothing else: identifiers and numbers of rows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NAMED_ROWS", "Numbering"]

Array = NDArray[Any]

#: Of fewer rows nothing is said about identifiers and numbers of rows.
NAMED_ROWS = 20
#: Numbers that differ in every row are an enumeration if so many pairs should be equal by chance, were the numbers
#: drawn from their range, all equally likely; by chance none is with a probability of exp(-7), one in a thousand.
_EXPECTED_PAIRS = 7.0
#: So many numbers are compared with each other: of more rows a random part, by the numbers themselves.
_MOST_HELD = 2**15
#: Whole numbers beyond are not exact in double precision.
_LARGEST = 2.0**53
_NAME = re.compile(
    r"(?i:(?:^|[\W_])(?:id|ids|idx|index|uid|uuid|guid|key|rowid|row|nr|no)(?:$|[\W_]))"
    r"|[a-z](?:Id|ID|Nr|No)$|^(?:Id|ID)[A-Z]",
)


class Numbering:
    """Tells whether a column has a different whole number in every row, as numbers pass by.

    Parameters
    ----------
    name : str
        The name of the column.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        #: Whether all numbers so far are whole and different.
        self.active = True
        self._rises = True
        self._n_rows = 0
        self._low, self._high = np.inf, -np.inf
        self._held: Array = np.zeros(0, dtype=np.int64)
        #: A number is held if its hash is divisible by this.
        self._every = np.uint64(1)

    def add(self, values: Array) -> None:
        """Learn from numbers that follow the last ones."""
        if not self.active:
            return
        known = values[~np.isnan(values)]
        if not known.size:
            return
        if (np.floor(known) != known).any() or np.abs(known).max() > _LARGEST:
            self.active = False
            return
        whole = known.astype(np.int64)
        self._rises = self._rises and known.size == values.size and whole[0] > self._high
        self._rises = self._rises and bool((np.diff(whole) > 0).all())
        self._low, self._high = min(self._low, float(whole.min())), max(self._high, float(whole.max()))
        self._n_rows += whole.size
        self._hold(whole)

    def _hold(self, whole: Array) -> None:
        held = np.concatenate([self._held, whole[_hashes(whole) % self._every == 0]])
        self.active = np.unique(held).size == held.size
        while held.size > _MOST_HELD:
            self._every *= np.uint64(2)
            held = held[_hashes(held) % self._every == 0]
        self._held = held if self.active else held[:0]

    @property
    def rising(self) -> bool:
        """Whether every row has a larger whole number than those before it."""
        return self.active and self._rises and self._n_rows >= NAMED_ROWS

    def suspicion(self) -> str | None:
        """Return why the column looks like an identifier, None if it does not."""
        if not self.active or self._n_rows < NAMED_ROWS:
            return None
        span = self._high - self._low + 1.0
        n_pairs = 0.5 * self._n_rows**2 / float(self._every) / span
        if n_pairs >= _EXPECTED_PAIRS:
            order = ", in order," if self._rises else ""
            return f"it has a different whole number in every row{order} like an identifier"
        if _NAME.search(self._name):
            return "it has a different whole number in every row and is called like an identifier"
        return None


def _hashes(whole: Array) -> Array:
    """Return a number for each that has nothing to do with its size."""
    mixed = whole.astype(np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )  # 2⁶⁴ divided by the golden ratio (Knuth, 6.4)
    return mixed >> np.uint64(40)
