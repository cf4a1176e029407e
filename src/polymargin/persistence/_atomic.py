"""Writing a file as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at any moment there is the old one or the new one, complete.

    A failure, or the end of the process, leaves the old file as it was and nothing beside it. (Where the system has no
    files without a name, a process that is killed while writing leaves a hidden file of the ending ``.part``.)

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a", b"old")
    ...     write_atomically(Path(folder) / "a", b"new")
    ...     (Path(folder) / "a").read_bytes(), os.listdir(folder)
    (b'new', ['a'])
    """
    # A link is followed: what it points to is replaced, not the link.
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        if not _written_without_a_name(temporary, data):
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
            )
            _write(descriptor, data)
        os.replace(temporary, target)
    except BaseException:  # Ctrl-C included: nothing is left behind
        temporary.unlink(missing_ok=True)
        raise
    _make_durable(target.parent)


def _written_without_a_name(temporary: Path, data: bytes) -> bool:
    """Write to a file that has no name until it is complete; tell whether the system can."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    with contextlib.ExitStack() as stack:
        try:
            folder = os.open(temporary.parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            descriptor = os.open(temporary.parent, os.O_WRONLY | os.O_TMPFILE, 0o666)
        except FileNotFoundError:
            raise
        except OSError:
            return False
        # The copy keeps the file alive while it is named.
        kept = os.dup(descriptor)
        stack.callback(os.close, kept)
        _write(descriptor, data)
        try:
            os.link(f"/proc/self/fd/{kept}", temporary.name, dst_dir_fd=folder)
        except OSError:
            return False
    return True


def _write(descriptor: int, data: bytes) -> None:
    """Write everything through to the disk, and close."""
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _make_durable(folder: Path) -> None:
    """Have the folder remember the new name after a power failure, where folders can be synchronised."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
