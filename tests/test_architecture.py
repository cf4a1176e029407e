"""ARCHITECTURE.md names every file that a default fit enters."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polymargin

ROOT = Path(__file__).parents[1]


def functions_entered():
    spec = importlib.util.spec_from_file_location("count_path", ROOT / "tools" / "count_path.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.functions_entered("LSSVMClassifier")


def test_the_walk_names_every_file_on_the_path_of_a_default_fit():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text[text.index("## One fit, file by file") : text.index("## The other machines")]
    entered = [Path(file) for file in functions_entered()]
    assert Path("estimators/lssvm.py") in entered
    # A package stands for its __init__.py.
    names = [f"{file.parent}/" if file.name == "__init__.py" else file.name for file in entered]
    assert [name for name in names if f"`{name}`" not in walk and f"/{name}`" not in walk] == []


def test_the_text_names_files_that_exist():
    root = Path(polymargin.__file__).parent
    existing = {
        file.name
        for file in [*root.rglob("*.py"), *ROOT.glob("t*/*.py"), *ROOT.glob("docs/_extensions/*.py")]
    }
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {word.split("/")[-1] for word in text.split("`") if word.endswith(".py") and "*" not in word}
    assert "rows.py" in named
    assert named <= existing
