"""The directive ``paper-tables``: every stored table of a paper, ours beside the paper's, cell by cell.

The numbers are those that `polymargin reproduce` wrote into ``src/polymargin/papers/<paper>/results``; tables are made
from them when the pages are built, so that no page can say anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from polymargin.papers import fast_tables, tables
from polymargin.reproduction import (
    CellComparison,
    Comparison,
    Experiment,
    Key,
    compare_with_paper,
    read_results,
)

#: Where the pictures that `polymargin reproduce <paper> --figure` drew are kept.
FIGURES = Path(__file__).parent.parent / "papers" / "figures"


def stored_experiments(paper: str) -> dict[str, Experiment]:
    """Return the experiments of a paper whose results are in the package, by the name of their table."""
    made = {number: make() for number, make in tables(paper).items()}
    made |= {f"{number} --fast": make() for number, make in fast_tables(paper).items()}
    return {number: made[number] for number in made if results_of(paper, made[number]).is_file()}


def results_of(paper: str, experiment: Experiment) -> Any:
    """Return the file of an experiment's stored results."""
    return files(f"polymargin.papers.{paper}").joinpath("results", f"{experiment.name}.csv")


def compared(paper: str, experiment: Experiment) -> Comparison:
    """Compare the stored results with the paper's figures, as the command does."""
    layout = experiment.layout
    return compare_with_paper(
        read_results(results_of(paper, experiment).read_text(encoding="utf-8").splitlines()),
        experiment.paper_figures(),
        replicates=experiment.replicates,
        better=experiment.direction,
        fields=(*layout.panels, *layout.rows, *layout.columns),
    )


def comparison_html(comparison: Comparison, experiment: Experiment) -> Iterable[str]:
    """Yield one table for every panel of the paper's table, and for every metric of ours that it does not print."""
    layout = experiment.layout
    for panel in unique(cell.key.only(layout.panels) for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if cell.key.only(layout.panels) == panel]
        yield from panel_html(cells, layout.rows, layout.columns, words(panel))


def panel_html(
    cells: Sequence[CellComparison], down: Sequence[str], across: Sequence[str], title: str
) -> Iterable[str]:
    """Yield the lines of one table."""
    columns = unique(cell.key.only(across) for cell in cells)
    at = {(cell.key.only(down), cell.key.only(across)): cell for cell in cells}
    yield '<div class="pst-scrollable-table-container"><table class="table paper-table">'
    if title:
        yield f"<caption>{escape(title)}</caption>"
    heads = "".join(f'<th scope="col">{escape(words(column))}</th>' for column in columns)
    yield f'<thead><tr><th scope="col">{escape(", ".join(down))}</th>{heads}</tr></thead><tbody>'
    for row in unique(cell.key.only(down) for cell in cells):
        entries = "".join(
            cell_html(at[row, column]) if (row, column) in at else "<td></td>" for column in columns
        )
        yield f'<tr><th scope="row">{escape(words(row))}</th>{entries}</tr>'
    yield "</tbody></table></div>"


def cell_html(cell: CellComparison) -> str:
    """Return ours, the paper's and how far they are apart."""
    ours = cell.ours.text(cell.decimals) if cell.ours else "—"
    paper = f'<span class="paper">{cell.paper.text(cell.decimals)}</span>' if cell.paper else ""
    apart = f'<span class="apart">{cell.apart}</span>' if cell.apart else ""
    return f'<td class="{cell.verdict}">{ours}{paper}{apart}</td>'


def words(key: Key) -> str:
    """Return the values of a key, parted by spaces."""
    return " ".join(str(key[name]) for name in key)


def unique(values: Iterable[Any]) -> list[Any]:
    """Return the values without repetition, in their order."""
    return list(dict.fromkeys(values))


class PaperTables(Directive):
    """``paper-tables``: all stored tables of the paper that is its argument."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Return one section for every table."""
        paper = self.arguments[0]
        return [
            self._section(paper, number, experiment)
            for number, experiment in stored_experiments(paper).items()
        ]

    def _section(self, paper: str, number: str, experiment: Experiment) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(experiment.name)], names=[experiment.name])
        section += nodes.title(text=experiment.title)
        command = f"polymargin reproduce {paper} --table {number}"
        section += nodes.paragraph("", "", nodes.literal(text=command))
        comparison = compared(paper, experiment)
        if comparison.n_compared:
            section += nodes.paragraph(text=comparison.summary)
        section += nodes.raw("", "\n".join(comparison_html(comparison, experiment)), format="html")
        return section


class PaperFigures(Directive):
    """``paper-figures``: the figures of a paper, drawn again."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Return one section for every figure."""
        paper = self.arguments[0]
        known: Mapping[str, Any] = getattr(import_module(f"polymargin.papers.{paper}"), "FIGURES", {})
        sections = []
        for number, draw in known.items():
            name = f"{paper}-figure{number}"
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title(text=f"Figure {number}")
            section += nodes.paragraph(text=(draw.__doc__ or "").partition("\n")[0].removeprefix("Draw "))
            section += nodes.image(uri=f"/papers/figures/{name}.png", alt=f"Figure {number}, drawn again")
            command = f"polymargin reproduce {paper} --figure {number}"
            section += nodes.paragraph("", "", nodes.literal(text=command))
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("paper-tables", PaperTables)
    app.add_directive("paper-figures", PaperFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
