"""The trained leaves of a partition, in a file of the worker that holds them.

Leaves take more memory than the data. A worker has them on disk, and loads one at a time.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from polymargin.kernels import Kernel
from polymargin.scale.sources import FittedLeaf
from polymargin.scale.stored_leaves import fitted_from, to_arrays

Array = NDArray[Any]


class LeafFile:
    """Trained leaves in a file, which lives as long as this object.

    To Dask it is a small result: it is not what fills a worker's memory. It is pickled with what the file holds, so
    that another worker may have it, or Dask write it elsewhere.

    Parameters
    ----------
    kernel : Kernel
        The kernel, which all leaves share.
    path : Path
        The file.
    places : dict of int to (int, int, tuple of str)
        For every leaf: where its arrays begin, the bytes that they take in memory, and their names.
    """

    def __init__(self, kernel: Kernel, path: Path, places: dict[int, tuple[int, int, tuple[str, ...]]]):
        self.kernel = kernel
        self._path, self._places = path, places
        weakref.finalize(self, path.unlink, missing_ok=True)

    @classmethod
    def of(
        cls, kernel: Kernel, leaves: Iterable[tuple[int, FittedLeaf]], dtype: Any = np.float64
    ) -> LeafFile:
        """Write leaves to a new file, one at a time.

        Parameters
        ----------
        kernel : Kernel
            The kernel, which all leaves share.
        leaves : iterable of (int, FittedLeaf)
            The leaves with their numbers.
        dtype : dtype
            That of the rows that were given, which has all their digits.

        Returns
        -------
        LeafFile
        """
        found = cls(kernel, _new_file(), {})
        with found._path.open("wb") as file:
            for number, fitted in leaves:
                arrays = to_arrays(fitted)
                n_bytes = sum(np.asarray(values).nbytes for values in arrays.values())
                found._places[number] = file.tell(), n_bytes, tuple(arrays)
                if "X" in arrays:
                    arrays["X"] = arrays["X"].astype(dtype, copy=False)
                for values in arrays.values():
                    np.save(file, values, allow_pickle=False)
        return found

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of the leaves."""
        return iter(self._places)

    def __contains__(self, number: int) -> bool:
        """Return whether a leaf is here."""
        return number in self._places

    def n_bytes(self, number: int) -> int:
        """Return the bytes that a leaf takes in memory.

        Parameters
        ----------
        number : int
            The leaf.

        Returns
        -------
        int
        """
        return self._places[number][1]

    def load(self, number: int) -> FittedLeaf:
        """Read a leaf.

        Parameters
        ----------
        number : int
            The leaf.

        Returns
        -------
        FittedLeaf
        """
        start, _, names = self._places[number]
        with self._path.open("rb") as file:
            file.seek(start)
            arrays = {name: np.load(file, allow_pickle=False) for name in names}
        if "X" in arrays:
            arrays["X"] = arrays["X"].astype(np.float64, copy=False)
        return fitted_from(arrays, self.kernel)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        contents: Any = b""
        if self._places:
            with self._path.open("rb") as file:
                contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            # From protocol 5 on, Dask sends or writes the pages of the file without a copy in memory.
            contents = pickle.PickleBuffer(contents) if protocol >= 5 else contents[:]
        return _rebuilt, (self.kernel, self._places, contents)


def _rebuilt(kernel: Kernel, places: dict[int, tuple[int, int, tuple[str, ...]]], contents: Any) -> LeafFile:
    """Return the leaves that were pickled, in a file here."""
    found = LeafFile(kernel, _new_file(), places)
    found._path.write_bytes(contents)
    return found


#: The folders of the workers of this process that a task has told of, the last one last.
_folders: list[str] = []


def _new_file() -> Path:
    """Return the path of a new file in the worker's folder, or in that of temporary files."""
    try:
        from distributed import get_worker

        folder = get_worker().local_directory
        if folder not in _folders:
            _folders.append(folder)
    except (ImportError, ValueError):
        # What arrives from another worker is unpickled outside of tasks, where Dask does not say which worker this is.
        known = [each for each in _folders if Path(each).is_dir()]
        folder = known[-1] if known else dask.config.get("temporary-directory", None)
    descriptor, path = tempfile.mkstemp(prefix="leaves-", dir=folder)
    os.close(descriptor)
    return Path(path)
