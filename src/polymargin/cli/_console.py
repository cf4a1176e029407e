"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console

__all__ = ["USAGE", "errors", "fail", "note", "reported", "results"]

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
