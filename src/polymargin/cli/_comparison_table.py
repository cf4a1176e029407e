"""A comparison printed in the shape of the paper's table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from polymargin.reproduction import CellComparison, Comparison, Key, Layout

__all__ = ["print_comparison"]

T = TypeVar("T", bound=Hashable)
_STYLE = {"better": "green", "same": "", "worse": "bold red", "missing": "dim", "unprinted": ""}


def print_comparison(console: Console, title: str, comparison: Comparison, layout: Layout) -> None:
    """Print ours above the paper's, with the difference in combined standard errors, and the count."""
    console.print(Text(title, style="bold"))
    console.print(
        Text(
            "each cell: ours (sd) / paper (sd) / difference in combined standard errors "
            "(green: better, red: worse, by more than two)",
            style="dim",
        )
    )
    for panel in _unique(cell.key.only(layout.panels) for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if cell.key.only(layout.panels) == panel]
        for table in _tables_that_fit(console, cells, layout, str(panel)):
            console.print(table)
    _print_summary(console, comparison)


def _tables_that_fit(
    console: Console, cells: Sequence[CellComparison], layout: Layout, title: str
) -> list[Table]:
    """Return one table, or one per outermost column heading where one is too wide."""
    whole = _table(cells, layout, title)
    unbounded = console.options.update(max_width=10_000)
    if len(layout.columns) < 2 or Measurement.get(console, unbounded, whole).maximum <= console.width:
        return [whole]
    outer = layout.columns[0]
    return [
        _table([cell for cell in cells if cell.key[outer] == value], layout, title)
        for value in _unique(cell.key[outer] for cell in cells)
    ]


def _table(cells: Sequence[CellComparison], layout: Layout, title: str) -> Table:
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_lines=False,
    )
    columns = _unique(cell.key.only(layout.columns) for cell in cells)
    table.add_column("\n".join(layout.rows), no_wrap=True)
    for column in columns:
        table.add_column("\n".join(column[name] for name in column), justify="right", no_wrap=True)
    at = {(cell.key.only(layout.rows), cell.key.only(layout.columns)): cell for cell in cells}
    for row in _unique(cell.key.only(layout.rows) for cell in cells):
        table.add_row(
            str(row).replace("/", " "),
            *(_cell(at[row, column]) if (row, column) in at else Text("") for column in columns),
            end_section=True,
        )
    return table


def _cell(cell: CellComparison) -> Text:
    style = _STYLE[cell.verdict]
    text = Text()
    text.append(cell.ours.text(cell.decimals) if cell.ours else "—", style=style)
    text.append("\n" + (cell.paper.text(cell.decimals) if cell.paper else "—"), style="dim")
    text.append("\n" + cell.apart, style=style)
    return text


def _print_summary(console: Console, comparison: Comparison) -> None:
    console.print(comparison.summary)
    if comparison.n_compared == 0:
        return
    if comparison.count("missing"):
        console.print(f"{comparison.count('missing')} cells are not computed yet.")
    if any(cell.paper and math.isnan(cell.paper.sd) for cell in comparison.cells):
        console.print(
            "Where the paper prints no standard deviation, its mean is taken as exact.", style="dim"
        )
    if comparison.exceptions:
        console.print("Worse:", style="bold")
    for cell in comparison.exceptions:
        assert cell.ours is not None
        assert cell.paper is not None
        ours, paper = cell.ours.text(cell.decimals), cell.paper.text(cell.decimals)
        console.print(Text(f"  {_name(cell.key)}: {ours} / {paper} / {cell.apart}", style="red"))


def _name(key: Key) -> str:
    return " ".join(key[name] for name in key)


def _unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
