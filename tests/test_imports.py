"""The folders of the package import each other in one direction: no cycles, at module level or inside functions."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import polymargin

ROOT = Path(polymargin.__file__).parent


def folder_of(file: Path) -> str:
    """Return the folder right under the package that a file is in, or the name of a module that is in none."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def imported(tree: ast.AST) -> list[str]:
    """Return the names of the package that are imported anywhere in a module, as "folder" or "folder.module"."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name.removeprefix("polymargin.") for name in found if name.startswith("polymargin.")]


def imports_between_folders() -> dict[str, set[str]]:
    """Return the folders that each folder imports; "__init__" is the package itself, whose classes some import."""
    files = sorted(ROOT.rglob("*.py"))
    folders = {folder_of(file) for file in files}
    graph = defaultdict(set)
    for file in files:
        folder = folder_of(file)
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            other = name.split(".")[0]
            other = other if other in folders else "__init__"
            if other != folder:
                graph[folder].add(other)
    return graph


def test_no_cycle_between_folders():
    graph = imports_between_folders()
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"folders import each other in a circle: {' ← '.join(error.args[1])}")


def test_imports_inside_functions_are_seen():
    module = "import polymargin.tables\ndef f():\n    from polymargin.plots.x import y\n"
    assert imported(ast.parse(module)) == ["tables", "plots.x.y"]
    assert "tables" in imports_between_folders()["datasets"]  # when a file is read: it needs pandas


def test_only_the_command_line_knows_the_papers():
    graph = imports_between_folders()
    assert {folder for folder, others in graph.items() if "papers" in others} <= {"cli"}
