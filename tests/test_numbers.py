"""NUMBERS.md lists the numbers on the path of a default fit, each with what it is for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("list_numbers", ROOT / "tools" / "list_numbers.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_the_table_is_up_to_date(tool):
    assert (ROOT / "NUMBERS.md").read_text(encoding="utf-8") == tool.table()


def test_numbers_are_found_with_their_comments(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text("#: The first\n#: of two.\n_A, B = 1, 2.5\nC = f(3)\nD = True\nlower = 4\n")
    (number,) = tool.numbers_in(file)
    assert (number.names, number.value, number.purpose) == ("_A, B", "(1, 2.5)", "The first of two.")
