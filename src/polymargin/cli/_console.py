"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console

__all__ = ["errors", "fail", "results"]

_PIPED_WIDTH = 200  # a pipe has no width of its own: do not wrap what a file can hold


def results() -> Console:
    """Return the console for results."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


def errors() -> Console:
    """Return the console for progress, warnings and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong in one line and leave with a non-zero status."""
    typer.echo(f"polymargin: {message}", err=True)
    raise typer.Exit(code)
