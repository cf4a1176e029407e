"""The solvers are mathematics on arrays: of this package they import only each other, kernels, and what they run on."""

import ast
from pathlib import Path

import pytest

import polymargin.solvers

ALLOWED = ("solvers", "kernels", "_memory", "_threads", "_accelerator")
FILES = sorted(Path(polymargin.solvers.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_solvers_know_nothing_of_the_layers_above(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported = [node.module]
        else:
            continue
        for module in imported:
            package, _, rest = module.partition(".")
            assert package != "polymargin" or rest.startswith(ALLOWED), module
