"""The directive ``stored-results``: a table of measured numbers, with the command that measures them.

``benchmarks/results/<name>.csv`` has the numbers, ``benchmarks/results/index.toml`` what they are and how they were
made. Pages write no measured table by hand.
"""

from __future__ import annotations

import csv
import tomllib
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"


def described(name: str) -> dict[str, str]:
    """Return what the index says about a table: ``title``, ``command`` and, where there is more to say, ``note``."""
    return tomllib.loads((RESULTS / "index.toml").read_text(encoding="utf-8"))[name]


def read(name: str) -> list[list[str]]:
    """Return the rows of a table, the headings first."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def is_number(text: str) -> bool:
    """Return whether a cell is a number, a range or a ratio of numbers, which are aligned to the right."""
    return bool(text) and all(character in "0123456789.,+−- /%" for character in text)


def table_html(rows: list[list[str]]) -> str:
    """Return the table: the first column names the rows, empty cells were not measured."""
    head, *body = rows
    lines = [
        "<thead><tr>",
        *(f'<th scope="col">{escape(cell)}</th>' for cell in head),
        "</tr></thead><tbody>",
    ]
    for first, *rest in body:
        cells = "".join(
            f"<td{' class=number' if is_number(cell) else ''}>{escape(cell)}</td>" for cell in rest
        )
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return (
        '<div class="pst-scrollable-table-container"><table class="table results-table">'
        + "".join(lines)
        + "</tbody></table></div>"
    )


def title(text: str) -> nodes.strong:
    """Return a title, in which what stands between backquotes is code: elsewhere two hyphens become a dash."""
    found = nodes.strong()
    for place, part in enumerate(text.split("`")):
        found += nodes.literal(text=part) if place % 2 else nodes.Text(part)
    return found


class StoredResults(Directive):
    """``stored-results``: the table of the name that is its argument."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Return title, table, note and command."""
        name = self.arguments[0]
        about = described(name)
        self.state.document.settings.record_dependencies.add(str(RESULTS / f"{name}.csv"))
        caption = nodes.paragraph("", "", title(about["title"]))
        made = nodes.paragraph(classes=["made-by"])
        if about.get("note"):
            made += nodes.Text(about["note"] + " ")
        made += nodes.Text("Measured by ")
        made += nodes.literal(text=about["command"])
        made += nodes.Text(".")
        return [caption, nodes.raw("", table_html(read(name)), format="html"), made]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("stored-results", StoredResults)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
