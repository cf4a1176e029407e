"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from polymargin._output import is_replaced, unwritable

__all__ = [
    "INTERRUPTED",
    "USAGE",
    "check_outputs",
    "counted",
    "errors",
    "fail",
    "note",
    "reported",
    "results",
]

#: The exit status of a command that was called wrongly, and of one that was interrupted.
USAGE = 2
INTERRUPTED = 130
_PIPED_WIDTH = 200  # a pipe has no width of its own: do not wrap what a file can hold


def results() -> Console:
    """Return the console for results."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


def errors() -> Console:
    """Return the console for progress, warnings and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Tell the user something that is no error."""
    errors().print(f"note: {message}", markup=False)


def counted(number: int, one: str) -> str:
    """Write a number with what is counted.

    >>> counted(1, "column"), counted(2, "column")
    ('1 column', '2 columns')
    """
    return f"{number} {one}{'' if number == 1 else 's'}"


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong in one line and leave with a non-zero status."""
    typer.echo(f"polymargin: {message}", err=True)
    raise typer.Exit(code)


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[str | Path] = ()) -> None:
    """Refuse at once what could not be written in the end, or what would replace an input or another output.

    Two paths are the same if they lead to the same file, also through links.

    Parameters
    ----------
    outputs : sequence of Path or None
        The files that the command will write; None is none.
    inputs : sequence of str or Path
        The files that it reads, whether they exist or not.
    """
    taken = [(Path(path), "the command reads it") for path in inputs]
    for path in outputs:
        if path is None:
            continue
        _check_place(path)
        if path.is_char_device():  # holds nothing that could be lost
            continue
        for other, reason in taken:
            if _same_file(path, other):
                fail(f"cannot write {path}: {reason}; give another name", USAGE)
        taken.append((path, "it is written already, by another option"))


def _check_place(path: Path) -> None:
    """Refuse a path that nothing can be written to."""
    if reason := unwritable(path):
        fail(f"cannot write {path}: it {reason}", USAGE)
    if not is_replaced(path):
        return
    # A link stays: the file it points to is replaced, in its own folder.
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        fail(f"cannot write {path}: there is no folder {folder if path.is_symlink() else path.parent}", USAGE)
    if not os.access(folder, os.W_OK):
        fail(f"cannot write {path}: the folder {folder} is read-only")


def _same_file(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them is not there yet
        return os.path.realpath(path) == os.path.realpath(other)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what users can do something about into one line: wrong input, no file, no memory, no library, Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        fail(str(interrupt) or "interrupted", INTERRUPTED)
    except FileNotFoundError as error:
        fail(f"no file {error.filename}" if error.filename else str(error), USAGE)
    except OSError as error:
        if (
            isinstance(error, BrokenPipeError) and error.filename is None
        ):  # stdout: the reader has closed the pipe
            raise
        fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    except (ValueError, MemoryError, ImportError) as error:
        fail(" ".join(str(error).split()) or type(error).__name__)
