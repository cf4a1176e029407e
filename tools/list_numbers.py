"""List the module-level numbers on the path of a default fit, with what each is for.

    python tools/list_numbers.py [--check]

Fits `LSSVMClassifier()` and `AutoKernelClassifier()` to the wine data, notes every file of the package that is entered,
and writes the numbers that these files define at module level, with the comments beside them, to ``NUMBERS.md``.
``--check`` only tells whether that file is up to date.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import polymargin

PACKAGE = Path(polymargin.__file__).parent
TABLE = Path(__file__).parents[1] / "NUMBERS.md"
HEAD = """# Numbers

Every number that a module defines on the path of `LSSVMClassifier().fit` and `AutoKernelClassifier().fit`, and what it
is for; written by `python tools/list_numbers.py`. Those that users may change are the fields of `SearchSettings`
(`selection/settings.py`) and parameters of estimators and decoders, which are documented there. Bounds of rounding keep
float64 from answering where it has no digits; sizes and budgets change how long a fit takes, not its answer.
"""


@dataclass(frozen=True)
class Number:
    """Names, values and purpose of numbers that are defined in one statement."""

    file: str
    names: str
    value: str
    purpose: str


def files_entered() -> list[Path]:
    """Return the files of the package that default fits enter, in order of appearance."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    models = polymargin.LSSVMClassifier(), polymargin.AutoKernelClassifier()
    for model in models:
        model.fit(X, y)  # imports what is imported when it is first used
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_filename] = None

    sys.setprofile(note)
    try:
        for model in models:
            model.fit(X, y)
    finally:
        sys.setprofile(None)
    return [file for file in map(Path, seen) if PACKAGE in file.parents]


def numbers_in(file: Path) -> list[Number]:
    """Return the numbers that a module defines, each with the comment above it."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for statement in ast.parse(text).body:
        match statement:
            case ast.Assign(targets=[target], value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case _:
                continue
        names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
        constants = [
            node.value
            for node in ast.walk(value)
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        ]
        calls = [node for node in ast.walk(value) if isinstance(node, ast.Call | ast.Subscript | ast.Dict)]
        if not names or not all(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in names):
            continue
        if not constants or any(isinstance(constant, bool) for constant in constants) or calls:
            continue
        above = statement.lineno - 2
        comment: list[str] = []
        while above >= 0 and lines[above].startswith("#:"):
            comment.insert(0, lines[above].removeprefix("#:").strip())
            above -= 1
        found.append(
            Number(
                file.relative_to(PACKAGE).as_posix(), ", ".join(names), ast.unparse(value), " ".join(comment)
            )
        )
    return found


def table() -> str:
    """Return the page."""
    numbers = [number for file in files_entered() for number in numbers_in(file)]
    missing = [f"{number.file}: {number.names}" for number in numbers if not number.purpose]
    if missing:
        raise SystemExit("no comment says what these are for: " + "; ".join(missing))
    count = sum(number.names.count(",") + 1 for number in numbers)
    rows = [
        f"| `{number.file}` | `{number.names}` | `{number.value}` | {number.purpose} |" for number in numbers
    ]
    head = f"{HEAD}\n{count} numbers:\n\n| file | name | value | what it is for |\n|---|---|---|---|\n"
    return head + "\n".join(row.replace("||", "‖") for row in rows) + "\n"


def main() -> None:
    """Write the page, or tell whether it is up to date."""
    text = table()
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(text, encoding="utf-8")
    elif not TABLE.exists() or TABLE.read_text(encoding="utf-8") != text:
        raise SystemExit("NUMBERS.md is not up to date: run python tools/list_numbers.py")


if __name__ == "__main__":
    main()
