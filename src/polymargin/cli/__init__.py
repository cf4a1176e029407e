"""The command line: one file per command; its function `command` is registered at the end of this file."""

from __future__ import annotations

from typing import Annotated

import typer

from polymargin._version import __version__
from polymargin.cli import bench, compare, export, fit, predict, reproduce

__all__ = ["app"]

app = typer.Typer(
    help="Multiclass kernel machines whose class probabilities can be trusted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Multiclass kernel machines whose class probabilities can be trusted."""


app.command("fit")(fit.command)
app.command("predict")(predict.command)
app.command("export")(export.command)
app.command("compare")(compare.command)
app.command("bench")(bench.command)
app.command("reproduce")(reproduce.command)
