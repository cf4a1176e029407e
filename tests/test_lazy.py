"""What `import polymargin` leaves for later: heavy packages, and the compiler where nothing is to compile."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import polymargin
from polymargin._lazy import attach

LAZY = ["polymargin", "polymargin.estimators", "polymargin.inspection", "polymargin.machines"]


def imported_by(code):
    """Return the names of all modules that a fresh interpreter has imported after some code."""
    code += "\nimport sys\nprint(*sys.modules, file=sys.__stdout__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_the_package_imports_no_library_and_little_of_itself():
    added = imported_by("import polymargin") - imported_by("pass")
    assert added.isdisjoint(["numpy", "scipy", "sklearn", "numba", "joblib", "threadpoolctl"])
    assert added.isdisjoint(["pandas", "skops", "matplotlib", "rich", "typer", "dask", "torch"])
    assert {name for name in added if name.startswith("polymargin")} == {
        "polymargin",
        "polymargin._lazy",
        "polymargin._version",
    }


def test_an_estimator_imports_only_what_it_runs():
    added = imported_by("from polymargin import LSSVMClassifier")
    assert "polymargin.estimators.lssvm" in added
    absent = ["numba", "skops", "matplotlib", "sklearn.cluster", "sklearn.linear_model", "sklearn.neighbors"]
    assert added.isdisjoint(absent)
    assert added.isdisjoint(
        {"polymargin.estimators.svm", "polymargin.estimators.auto", "polymargin.persistence"}
    )


@pytest.mark.parametrize("model", ["LSSVMClassifier()", "AutoKernelClassifier()"])
def test_least_squares_needs_no_compiler(model):
    added = imported_by(
        f"from polymargin import *\nfrom sklearn.datasets import load_wine\n"
        f"X, y = load_wine(return_X_y=True)\nX = X / X.std(axis=0)\n"
        f"assert {model}.fit(X[::3], y[::3]).predict_proba(X).shape == (178, 3)"
    )
    assert "sklearn.datasets" in added
    assert {"numba", "llvmlite", "skops", "matplotlib"} & added == set()


def names_for_type_checkers(package):
    """Return the module and name of every import under ``if TYPE_CHECKING``."""
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING")
    found = []
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "X as X tells type checkers that X is public"
            found.append((node.module, alias.name))
    return found


@pytest.mark.parametrize("name", LAZY)
def test_type_checkers_see_what_is_there(name):
    package = import_module(name)
    declared = names_for_type_checkers(package)
    submodules = {each for module, each in declared if module == name}
    assert {each for _, each in declared} - submodules == set(package.__all__) - {"__version__"}
    for module, each in declared:
        expected = (
            import_module(f"{name}.{each}") if each in submodules else getattr(import_module(module), each)
        )
        assert getattr(package, each) is expected
        assert each in dir(package)


def test_names_are_imported_once_and_listed():
    assert "Codebook" in dir(polymargin)
    assert polymargin.__all__ == sorted(set(polymargin.__all__))
    assert polymargin.Codebook is vars(polymargin)["Codebook"]


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'polymargin' has no attribute 'LSSVM'"):
        polymargin.LSSVM  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"'onnx': it is a module of its own, import polymargin\.onnx first"
    ):
        attach("polymargin", {})[0]("onnx")
    with pytest.raises(ImportError, match="cannot import name 'LSSVM'"):
        from polymargin import LSSVM  # noqa: F401


def test_a_submodule_that_cannot_be_imported_says_why():
    get, names, public = attach("polymargin", {"absent": ["Thing"]})
    assert public == ["Thing"]
    assert "Thing" in names()
    with pytest.raises(ModuleNotFoundError, match=r"polymargin\.absent"):
        get("Thing")
