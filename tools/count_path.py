"""Count the functions through which a default fit passes: how much there is to read.

    python tools/count_path.py [CLASS]

Fits a class of the package, `LSSVMClassifier` unless another is named, to the wine data, twice: the second time without
what only the first call of a process does. Prints the number of named functions of the package that were entered, those
of every file in order of appearance, and their names. Generators, comprehensions and lambdas are not counted.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import polymargin

PACKAGE = Path(polymargin.__file__).parent


def functions_entered(name: str) -> dict[str, list[str]]:
    """Return the named functions that ``fit`` of a class enters, by file, in order of appearance."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = getattr(polymargin, name)()
    model.fit(X, y)
    seen: dict[str, dict[str, None]] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code, file = frame.f_code, Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents and not code.co_name.startswith("<"):
            seen.setdefault(str(file.relative_to(PACKAGE)), {})[code.co_qualname] = None

    sys.setprofile(note)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
    return {file: list(functions) for file, functions in seen.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    entered = functions_entered(*(sys.argv[1:] or ["LSSVMClassifier"]))
    print(sum(map(len, entered.values())), "functions in", len(entered), "files")
    for file, functions in entered.items():
        print(f"{len(functions):4d}  {file}: {', '.join(functions)}")
