"""How commands are told to read files: the options that they share."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # importing pandas at run time would make every command slow to start
    from polymargin.tables import Dialect

__all__ = [
    "STDIN",
    "Decimal",
    "Delimiter",
    "Encoding",
    "Header",
    "Missing",
    "Use",
    "dialect_of",
    "from_stdin",
]

#: What stands for stdin in place of a file.
STDIN = "-"
_PANEL = "How a CSV file is written (found out unless given)"

Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", help="What separates fields: a character, or tab.", rich_help_panel=_PANEL),
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="The decimal mark: . or ,", rich_help_panel=_PANEL)
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="How characters are written: utf-8, cp1252, ...", rich_help_panel=_PANEL),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first row has the names of the columns; without, they are called x1, x2, ...",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        help="What else stands for a missing number, beside -, ?, NA and the like (may be repeated).",
        rich_help_panel=_PANEL,
    ),
]
Use = Annotated[
    list[str] | None,
    typer.Option(
        "--use", help="A column to learn from although it looks like an identifier (may be repeated)."
    ),
]


def dialect_of(
    delimiter: str | None,
    decimal: str | None,
    encoding: str | None,
    header: bool | None,
    missing: list[str] | None,
) -> Dialect:
    """Return what the options say of how a file is written."""
    from polymargin.tables import Dialect

    return Dialect(delimiter, decimal, encoding, header, tuple(missing or ()))


@contextmanager
def from_stdin(data: str | Path) -> Iterator[str]:
    """Give the file to read: that of this name or, for ``-``, one with what comes from stdin, which is removed then."""
    if str(data) != STDIN:
        yield str(data)
        return
    with tempfile.TemporaryDirectory(prefix="polymargin-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)
