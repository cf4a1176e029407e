"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

__all__ = ["USAGE", "check_outputs", "errors", "fail", "note", "reported", "results"]

#: The exit status of a command that was called wrongly.
USAGE = 2
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


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong in one line and leave with a non-zero status."""
    typer.echo(f"polymargin: {message}", err=True)
    raise typer.Exit(code)


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[str | Path] = ()) -> None:
    """Refuse at once what could not be written in the end, or what would replace an input or another output."""
    taken = {Path(path).resolve(): "the command reads it" for path in inputs}
    for path in outputs:
        if path is None:
            continue
        folder = path.absolute().parent
        if path.is_dir():
            fail(f"{path} is a folder; give the name of a file", USAGE)
        if not folder.is_dir():
            fail(f"cannot write {path}: there is no folder {path.parent}", USAGE)
        if not os.access(folder, os.W_OK):
            fail(f"cannot write {path}: the folder {folder} is read-only")
        if path.resolve() in taken:
            fail(f"cannot write {path}: {taken[path.resolve()]}; give another name", USAGE)
        taken[path.resolve()] = "it is written already, by another option"


@contextmanager
def reported() -> Iterator[None]:
    """Turn what users can do something about into one line: wrong input, no file, no memory, no library."""
    try:
        yield
    except BrokenPipeError:
        raise
    except FileNotFoundError as error:
        fail(f"no file {error.filename}" if error.filename else str(error), USAGE)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (ValueError, MemoryError, ImportError) as error:
        fail(" ".join(str(error).split()) or type(error).__name__)
