"""Public names that are imported when they are first used, so that to import a package costs next to nothing.

A package says twice what it offers: as imports for type checkers, which run nothing, and as a table of its modules::

    if TYPE_CHECKING:
        from polymargin.estimators import SVMClassifier as SVMClassifier
    else:
        __getattr__, __dir__, __all__ = attach(__name__, {"estimators": ["SVMClassifier"]})

A new name is one line in each; `tests/test_lazy.py` compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def attach(
    package: str, names: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names are imported on first use (PEP 562).

    Parameters
    ----------
    package : str
        Its ``__name__``.
    names : mapping of str to iterable of str
        The names that each submodule defines; the name of a module beside the package begins with a dot.
    submodules : iterable of str
        The submodules that are public themselves.

    Returns
    -------
    __getattr__ : callable
        Imports the submodule that a name is in.
    __dir__ : callable
        Lists what is there and what may be imported.
    __all__ : list of str
        The names, without the submodules.
    """
    home = {name: module for module, listed in names.items() for name in listed}
    submodules = frozenset(submodules)

    def __getattr__(name: str) -> Any:
        if name in submodules:
            return import_module(f".{name}", package)  # which makes it an attribute of the package
        if name not in home:
            there = not name.startswith("_") and find_spec(f"{package}.{name}") is not None
            hint = f": it is a module of its own, import {package}.{name} first" if there else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        value = getattr(import_module(f".{home[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *submodules})

    return __getattr__, __dir__, sorted(home)
