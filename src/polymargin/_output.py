"""Writing files: regular ones as a whole or not at all, devices and pipes directly."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at any moment there is the old one or the new one, complete; see `replacing`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a", b"old")
    ...     write_atomically(Path(folder) / "a", b"new")
    ...     (Path(folder) / "a").read_bytes(), os.listdir(folder)
    (b'new', ['a'])
    """
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of an older one when the block ends without an error.

    A failure, or the end of the process, leaves the old file as it was and nothing beside it. (Where the system has no
    files without a name, a process that is killed while writing leaves a hidden file of the ending ``.part``.) A link
    stays a link: the file it points to is replaced. A character device, a pipe, and the file that stdout or stderr is
    redirected to cannot be replaced: they are written to directly, and keep what was written before a failure.

    Parameters
    ----------
    path : str or path
        The file.

    Yields
    ------
    file : binary file
        Errors in writing to it carry `path` as their ``filename``.

    Raises
    ------
    OSError
        If the path is a folder, a block device or a socket, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a") as file:
    ...         _ = file.write(b"half of ")
    ...         listed = os.listdir(folder)
    ...         _ = file.write(b"the file")
    ...     (Path(folder) / "a").read_bytes()
    b'half of the file'
    """
    if reason := unwritable(path):
        kind = IsADirectoryError if os.path.isdir(path) else OSError
        raise kind(f"{os.fspath(path)} {reason}")
    descriptor = _special(path)
    if descriptor is None:
        with _replaced(path, Path(os.path.realpath(path))) as file:
            yield file
    else:
        with io.BufferedWriter(_File(descriptor, path)) as file:
            yield file


def unwritable(path: str | os.PathLike[str]) -> str | None:
    """Return why nothing can be written to this path, whatever its permissions; None if it can.

    >>> unwritable(os.curdir)
    'is a folder; give the name of a file'
    """
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        return "is a folder; give the name of a file"
    if stat.S_ISBLK(mode):
        return "is a disk or another block device; give the name of a file"
    if stat.S_ISSOCK(mode) and _standard_stream(path) is None:
        return "is a socket; give the name of a file"
    return None


def is_replaced(path: str | os.PathLike[str]) -> bool:
    """Tell whether `replacing` replaces what has this name, rather than writing to it directly.

    >>> is_replaced(os.devnull), is_replaced("no such file")
    (False, True)
    """
    mode = _mode(path)
    return (stat.S_ISREG(mode) or mode == 0) and _standard_stream(path) is None


def _mode(path: str | os.PathLike[str]) -> int:
    """Return the kind and permissions of a file, links followed; 0 if there is none."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return 0


def _standard_stream(path: str | os.PathLike[str]) -> int | None:
    """Return the descriptor of stdout or stderr if one of them writes to this very file.

    ``/dev/stdout`` may be a link to a regular file, which the shell goes on writing to: replacing it would lose what it
    held, and what the shell writes next.
    """
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
    return None


def _special(path: str | os.PathLike[str]) -> int | None:
    """Return a descriptor to write to directly; None if the file is one to be replaced."""
    if is_replaced(path):
        return None
    stream = _standard_stream(path)
    if stream is not None:
        return os.dup(stream)
    return os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0))


class _File(io.FileIO):
    """A file whose errors in writing name the path that the user gave."""

    def __init__(self, descriptor: int, path: str | os.PathLike[str]) -> None:
        super().__init__(descriptor, "wb")
        self._path = os.fspath(path)

    def write(self, data: Any) -> int:
        """Write some bytes."""
        with _naming(self._path):
            return super().write(data)


@contextlib.contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def _replaced(path: str | os.PathLike[str], target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `target`, and rename it when all is written."""
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with _naming(path):
            unnamed = _without_a_name(target.parent)
            descriptor = _named(temporary) if unnamed is None else unnamed
        with io.BufferedWriter(_File(descriptor, path)) as file:
            yield file
            file.flush()
            with _naming(path):
                os.fsync(file.fileno())
                if unnamed is not None:
                    _give_name(unnamed, temporary)
        with _naming(path):
            os.replace(temporary, target)
    except BaseException:  # Ctrl-C included: nothing is left behind
        temporary.unlink(missing_ok=True)
        raise
    _make_durable(target.parent)


def _named(path: Path) -> int:
    """Return the descriptor of a new file."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


def _without_a_name(folder: Path) -> int | None:
    """Return the descriptor of a new file that has no name yet; None if the system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o666)
    except FileNotFoundError:
        raise
    except OSError:
        return None


def _give_name(descriptor: int, path: Path) -> None:
    """Give a name to a file that has none, or copy it where the system cannot."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # With the folder's descriptor the link in /proc is followed; without one it would be copied as a link.
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder)
    except OSError:
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as source, os.fdopen(_named(path), "wb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
    finally:
        os.close(folder)


def _make_durable(folder: Path) -> None:
    """Have the folder remember the new name after a power failure, where folders can be synchronised."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
