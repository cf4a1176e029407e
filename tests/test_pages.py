"""The Python blocks of the Markdown pages run, print what they say, and the pages' tables are the stored ones."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot as plt

import polymargin
from polymargin.papers import available

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    if BLOCK.search(path.read_text(encoding="utf-8"))
}


def extension(name):
    """Import one of the extensions of the documentation."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_extensions" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def stated_outputs(block):
    """Yield the line number and the text behind every ``print(...)  # text`` of a block."""
    lines = block.splitlines()
    for statement in ast.walk(ast.parse(block)):
        if isinstance(statement, ast.Call) and getattr(statement.func, "id", "") == "print":
            code, mark, text = lines[statement.end_lineno - 1].rpartition("  # ")
            if mark and statement.end_col_offset <= len(code):
                yield statement.lineno, text


def same(printed, stated):
    """Whether a text is the stated one, numbers give or take one in the last place."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", stated).split():
        return False
    return all(
        abs(float(number) - float(other)) < 1.5 * 10.0 ** -len(other.partition(".")[2])
        if "." in other
        else number == other
        for number, other in zip(NUMBER.findall(printed), NUMBER.findall(stated), strict=True)
    )


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in BLOCK.findall(PAGES[page].read_text(encoding="utf-8")):
        for statement in ast.parse(block).body:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = compile(ast.Module([statement], []), page, "exec")
                exec(code, names)
            stated = [
                text
                for line, text in stated_outputs(block)
                if statement.lineno <= line <= statement.end_lineno
            ]
            if stated:
                assert same(printed.getvalue(), stated[0]), f"{printed.getvalue()!r} is not {stated[0]!r}"
        plt.close("all")


def test_a_wrong_number_would_be_found():
    assert same("0.83 cat", "0.84 cat")
    assert not same("0.83 cat", "0.85 cat")
    assert not same("0.83 cat", "0.83 dog")
    assert not same("13", "12")
    assert list(stated_outputs("print(f(1))  # 2\nx = 1  # a remark\nprint(x)")) == [(1, "2")]


def test_the_readme_is_one_screen_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
    assert len(text.splitlines()) < 90


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name
)
def test_links_to_files_of_the_repository_lead_somewhere(path):
    if "_build" in path.parts or "gallery" in path.parts:
        pytest.skip("made by the build")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" in target or target.startswith(("gallery/", "api/")):  # the build checks these
            continue
        place = path.parent / target
        assert place.exists() or place.with_name(f"{place.name}.md").exists(), target


def test_every_stored_table_is_described_and_shown():
    tables = extension("stored_results")
    stored = {file.stem for file in tables.RESULTS.glob("*.csv")}
    shown = set()
    for page in DOCS.glob("*.md"):
        shown |= set(re.findall(r"```\{stored-results\} (\w+)", page.read_text(encoding="utf-8")))
    assert stored == shown
    for name in stored:
        assert {"title", "command"} <= set(tables.described(name))
        rows = tables.read(name)
        assert {len(row) for row in rows} == {len(rows[0])}, name
        script = re.search(r"benchmarks/\w+\.py", tables.described(name)["command"]).group()
        assert (ROOT / script).exists()
        html = tables.table_html(rows)
        assert all(row[0] in html.replace("&quot;", '"') for row in rows)


def test_every_paper_shows_all_its_stored_results():
    tables = extension("paper_tables")
    for paper in available():
        experiments = tables.stored_experiments(paper)
        folder = ROOT / "src" / "polymargin" / "papers" / paper / "results"
        assert {experiment.name for experiment in experiments.values()} == {
            file.stem for file in folder.glob("*.csv")
        }
        assert (DOCS / "papers" / f"{paper}.md").exists()
        figures = getattr(sys.modules[f"polymargin.papers.{paper}"], "FIGURES", {})
        for number in figures:
            assert (tables.FIGURES / f"{paper}-figure{number}.png").exists()


def test_a_papers_table_has_ours_and_theirs():
    tables = extension("paper_tables")
    experiment = tables.stored_experiments("vangestel2002")["2"]
    comparison = tables.compared("vangestel2002", experiment)
    html = "".join(tables.comparison_html(comparison, experiment))
    assert html.count("<td class=") == len(comparison.cells) == 160
    cell = comparison.cells[0]
    assert f'{cell.ours.text(1)}<span class="paper">{cell.paper.text(1)}</span>' in html


def test_the_reference_has_everything_public():
    reference = extension("reference_pages")
    modules = {*reference.FOR_USERS, *reference.FOR_DEVELOPERS}
    public = {
        path.stem if path.suffix else path.name
        for path in (ROOT / "src" / "polymargin").iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").exists())
    }
    # Without __all__, or without what a program would import.
    assert public - modules == {"cli", "dealing", "rows", "solvers"}
    pages = "".join(map(reference.page, modules))
    for name in polymargin.__all__:
        thing = getattr(polymargin, name)
        if callable(thing):
            assert f"polymargin.{name}\n" in pages


def test_formulas_become_mathml():
    pytest.importorskip("sphinx", reason="install polymargin with its docs extra")
    pytest.importorskip("latex2mathml", reason="install polymargin with its docs extra")
    from docutils import nodes

    mathml = extension("mathml")
    text = mathml.translated(nodes.math(text=r"\sum_i x_i^2 < 1"), "inline")
    assert text.startswith("<math ")
    assert 'aria-label="\\sum_i x_i^2 &lt; 1"' in text
    assert "<mo>&#x02211;</mo>" in text
