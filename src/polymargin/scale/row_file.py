"""Training rows in a file of numbers, read block by block or row by row.

A row is as many numbers as its table has columns, then the index of its class, its weight, and its number in the table.
The classes are kept once more by themselves, so that samples can be drawn without reading all rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: What follows the columns: class, weight, and number in the table.
EXTRA = 3
#: So many classes are looked at together.
_CLASSES_AT_ONCE = 2**20


class RowWriter:
    """Writes a file of rows.

    Parameters
    ----------
    path : Path
        The file; its classes go to the same name with the ending ``.classes``.

    Attributes
    ----------
    n_rows : int
        The rows written so far.
    """

    def __init__(self, path: Path) -> None:
        self._files = [path.open("wb"), _classes_of(path).open("wb")]
        self.n_rows = 0

    def write(self, rows: Array) -> None:
        """Write some rows.

        Parameters
        ----------
        rows : ndarray of shape (n, d + 3)
            The rows.
        """
        self._files[0].write(np.ascontiguousarray(rows, dtype=np.float64).data)
        self._files[1].write(rows[:, -3].astype(np.int32).data)
        self.n_rows += len(rows)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()


@dataclass(frozen=True)
class RowFile:
    """A file of rows.

    Attributes
    ----------
    path : Path
        The file.
    n_rows : int
        The number of rows.
    width : int
        The numbers of a row: d + 3.
    """

    path: Path
    n_rows: int
    width: int

    @property
    def complete(self) -> bool:
        """Whether the file has so many rows."""
        sizes = ((self.path, 8 * self.width), (_classes_of(self.path), 4))
        return all(path.is_file() and path.stat().st_size == size * self.n_rows for path, size in sizes)

    def read(self, start: int, stop: int) -> Array:
        """Return a block of rows.

        Parameters
        ----------
        start, stop : int
            The first row, and the one after the last.

        Returns
        -------
        ndarray of shape (stop − start, d + 3)
        """
        # Not mapped into memory: pages of a map would count as this process's.
        found = np.fromfile(self.path, np.float64, (stop - start) * self.width, offset=8 * start * self.width)
        return found.reshape(stop - start, self.width)

    def take(self, numbers: Iterable[int]) -> Array:
        """Return some rows.

        Parameters
        ----------
        numbers : iterable of int
            Which ones.

        Returns
        -------
        ndarray of shape (n, d + 3)
        """
        numbers = np.asarray(numbers)
        found = np.empty((numbers.size, self.width))
        with self.path.open("rb", buffering=0) as file:
            for row, number in zip(found, numbers.tolist(), strict=True):
                file.seek(8 * self.width * number)
                file.readinto(row.data)
        return found

    def classes(self) -> Iterator[tuple[int, Array]]:
        """Yield the classes of all rows, some at a time, each time after the number of rows before.

        Yields
        ------
        start : int
        class_index : ndarray of int, shape (n,)
        """
        for start in range(0, self.n_rows, _CLASSES_AT_ONCE):
            yield (
                start,
                np.fromfile(_classes_of(self.path), np.int32, _CLASSES_AT_ONCE, offset=4 * start).astype(
                    np.intp
                ),
            )


def priorities(seed: int, start: int, stop: int) -> Array:
    """Return the random numbers, between 0 and 1, by which rows are drawn: those of a row depend on its number only.

    Parameters
    ----------
    seed : int
        The seed.
    start, stop : int
        The first row, and the one after the last.

    Returns
    -------
    ndarray of shape (stop − start,)

    Examples
    --------
    >>> bool((priorities(1, 0, 5)[2:] == priorities(1, 2, 5)).all())
    True
    """
    return np.random.Generator(np.random.PCG64(seed).advance(start)).random(stop - start)


def draw(file: RowFile, class_counts: Array, n_rows: int, least: int, seed: int) -> Array:
    """Return the numbers, ascending, of a sample with the same share of every class, but at least so many rows of it.

    Smaller samples are parts of larger ones, and no sample depends on how the file is read.

    Parameters
    ----------
    file : RowFile
        The rows.
    class_counts : ndarray of int, shape (K,)
        The number of rows of every class.
    n_rows : int
        About how many rows.
    least : int
        The least number of rows of a class, as far as it has them.
    seed : int
        The seed.

    Returns
    -------
    ndarray of int
    """
    share = n_rows / max(file.n_rows, 1)
    wanted = np.maximum(np.ceil(share * class_counts), least).astype(np.intp)
    numbers, classes, keys = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0)
    # The largest priority that may still be drawn from every class.
    bound = np.full(class_counts.size, np.inf)
    for start, index in file.classes():
        p = priorities(seed, start, start + index.size)
        new = np.flatnonzero(p <= bound[index])
        numbers = np.concatenate([numbers, start + new])
        classes, keys = np.concatenate([classes, index[new]]), np.concatenate([keys, p[new]])
        order = np.lexsort([keys, classes])
        first = np.searchsorted(classes[order], np.arange(class_counts.size))
        rank = np.arange(order.size) - first[classes[order]]
        last = order[rank == wanted[classes[order]] - 1]
        bound[classes[last]] = keys[last]
        kept = order[rank < wanted[classes[order]]]
        numbers, classes, keys = numbers[kept], classes[kept], keys[kept]
    return np.sort(numbers)


def _classes_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.classes")
