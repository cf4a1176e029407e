"""A folder for the parts of a long fit, so that one that was killed goes on where it stood.

Every part is written under another name, synchronised and renamed: it is there completely or not at all. Parts are
named by a digest of all that they were computed from; nothing in the folder is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin._output import replacing, write_atomically
from polymargin.codebooks import Codebook

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no fcntl; two fits in one folder are then not detected
    fcntl = None  # type: ignore[assignment]

Array = NDArray[Any]

_TASK, _LOCK = "task.json", "lock"


class WorkFolder:
    """An open folder with the finished parts of a fit, locked against other processes.

    Parameters
    ----------
    path : Path
        The folder, which is made if it is not there. What another task has left in it is removed.
    task : mapping
        All that the parts depend on, as plain JSON: the files with their sizes and times, the options, the versions.

    Attributes
    ----------
    resumed : bool
        Whether the folder was begun before, for the same task.

    Raises
    ------
    ValueError
        If the folder holds something else, or another process works in it.
    """

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self.path = path
        if path.is_dir() and any(path.iterdir()) and not (path / _TASK).is_file():
            left = [entry.name for entry in path.iterdir() if entry.name != _LOCK]
            if left:
                raise ValueError(
                    f"{path} is there already and was not made by a fit; remove it, or name another place by --work"
                )
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        try:
            wanted = json.loads(json.dumps(task))
            self.resumed = self.json(_TASK) == wanted
            if not self.resumed:
                self._clear()
                self.keep_json(_TASK, wanted)
        except BaseException:
            self.close()
            raise

    def _clear(self) -> None:
        """Remove what another task has left."""
        # The task goes first: without it nothing that is left is taken for a part of another one.
        (self.path / _TASK).unlink(missing_ok=True)
        for entry in list(self.path.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != _LOCK:
                entry.unlink()

    def file(self, name: str) -> Path:
        """Return the path of a part.

        Parameters
        ----------
        name : str
            Its name, perhaps with that of a folder before it.

        Returns
        -------
        Path
        """
        return self.path / name

    def json(self, name: str) -> Any:
        """Return a part that was kept as JSON; None if there is none.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        object
        """
        try:
            return json.loads((self.path / name).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def keep_json(self, name: str, value: Any) -> None:
        """Keep a part as JSON; when this returns, it is on disk.

        Parameters
        ----------
        name : str
            Its name.
        value : object
            What JSON can write.
        """
        write_atomically(self.path / name, json.dumps(value, ensure_ascii=False).encode())

    def arrays(self, name: str) -> dict[str, Array] | None:
        """Return the arrays of a part; None if it is not there.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        dict of str to ndarray, or None
        """
        try:
            with np.load(self.path / name, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
        except FileNotFoundError:
            return None

    def keep_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Keep the arrays of a part; when this returns, they are on disk.

        Parameters
        ----------
        name : str
            Its name.
        arrays : mapping of str to array or number
            The arrays.
        """
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            np.savez(file, **arrays)

    def forget(self, name: str) -> None:
        """Remove a folder of parts.

        Parameters
        ----------
        name : str
            Its name.
        """
        shutil.rmtree(self.path / name)

    def remove(self) -> None:
        """Remove the folder: the fit is finished."""
        self._clear()
        (self.path / _LOCK).unlink(missing_ok=True)
        self.close()
        self.path.rmdir()

    def close(self) -> None:
        """Let other processes have the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _locked(path: Path) -> int:
    """Return the descriptor of the lock of a folder, which the system drops whenever the process ends."""
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ValueError(
                f"another fit works in {path}; wait for it, or name another place by --work"
            ) from error
        except OSError:  # a file system without locks: go on without
            pass
    return descriptor


def digest_of(*values: Any) -> str:
    """Return a name for what values say: arrays, numbers, texts, and dataclasses and collections of them.

    Parameters
    ----------
    *values : object
        The values.

    Returns
    -------
    str
        Twenty hexadecimal digits.

    Examples
    --------
    >>> digest_of(1.0, [np.arange(3)]) == digest_of(1.0, [np.arange(3)]), digest_of(1.0) == digest_of(1)
    (True, False)
    """
    found = hashlib.sha256()
    _add(found, values)
    return found.hexdigest()[:20]


def _add(digest: Any, value: Any) -> None:
    """Add a value, and of what kind it is, to a digest."""
    digest.update(f"|{type(value).__qualname__}:".encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif sparse.issparse(value):
        rows = value.tocsr()
        _add(digest, [rows.shape, rows.data, rows.indices, rows.indptr])
    elif isinstance(value, Codebook):
        _add(digest, value.matrix)  # all else follows from it
    elif is_dataclass(value):
        told = [part for part in fields(value) if part.metadata.get("digest", True)]
        _add(digest, {part.name: getattr(value, part.name) for part in told})
    elif isinstance(value, Mapping):
        _add(digest, [(key, value[key]) for key in sorted(value)])
    elif isinstance(value, list | tuple):
        for each in value:
            _add(digest, each)
        digest.update(b";")
    elif hasattr(value, "__dict__"):
        _add(digest, vars(value))
    else:
        digest.update(repr(value).encode())
